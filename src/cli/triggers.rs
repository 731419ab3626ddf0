//! `trigger` and `ingress`: access of outside systems to an agent.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use super::messages::AgentFlag;

pub const DELIVERY_MODES: &[&str] = &["enqueue_message", "wake_hint"];
pub const VERIFIES: &[&str] = &["secret", "hmac_sha256", "standard_webhooks", "stripe", "slack", "url"];

/// Capabilities by which outside systems reach an agent
///
/// Its secret lets a sender put messages or wake hints into the inbox of one agent, and do nothing
/// else. The secret is shown once, when the trigger is created: on a terminal, with --json, or in
/// the file of --secret-file.
#[derive(Debug, Args)]
pub struct TriggerArgs {
    #[command(subcommand)]
    pub command: TriggerCommand,
}

#[derive(Debug, Subcommand)]
pub enum TriggerCommand {
    /// Create a trigger
    ///
    /// Inside a turn: for a wait of the agent's own, with --wait.
    Create {
        #[command(flatten)]
        agent: AgentFlag,
        /// Effect of a delivery: a message, or a hint that something has changed [default:
        /// enqueue_message]
        #[arg(long, value_parser = PossibleValuesParser::new(DELIVERY_MODES))]
        mode: Option<String>,
        /// Subject of every delivery, for example `github:org/repo#12`; this ends the waits for it
        #[arg(long, value_name = "REF", conflicts_with = "wait")]
        resource: Option<String>,
        /// The active wait that a delivery ends. The trigger is revoked when the wait has ended
        #[arg(long, value_name = "ID")]
        wait: Option<String>,
        /// Sender name of deliveries: `webhook:NAME` or `callback:NAME` [default: webhook; with
        /// --wait: callback]
        #[arg(long, value_name = "KIND:NAME")]
        source: Option<String>,
        /// Method by which a delivery proves that its sender has the secret [default: secret]
        ///
        /// secret: the delivery contains it, as a bearer token, as the password of Basic
        /// authentication, or in GitLab's X-Gitlab-Token. hmac_sha256: it has a signature of its
        /// body, as GitHub sends it. standard_webhooks, stripe, slack: it has a signature in the
        /// format of that name. url: its address contains the secret, which servers write into
        /// their logs.
        #[arg(long, value_parser = PossibleValuesParser::new(VERIFIES))]
        verify: Option<String>,
        /// The header with the signature, with --verify hmac_sha256 [default: X-Hub-Signature-256]
        #[arg(long, value_name = "NAME")]
        signature_header: Option<String>,
        /// Write the secret to this new file, which only you can read, and show it nowhere
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Take the secret that the sender has generated from this file; `-` for stdin
        #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
        secret_from: Option<PathBuf>,
    },
    /// List the active triggers of an agent
    List {
        #[command(flatten)]
        agent: AgentFlag,
        /// The revoked ones, too
        #[arg(long)]
        all: bool,
    },
    /// Show one trigger, active or revoked
    Show {
        id: String,
        #[command(flatten)]
        agent: AgentFlag,
    },
    /// Deliver through a trigger, as an outside system would
    Deliver {
        id: String,
        /// The message; not needed for a trigger whose mode is wake_hint
        text: Option<String>,
        #[command(flatten)]
        agent: AgentFlag,
        /// The file with the secret; `-` for stdin
        #[arg(long, value_name = "FILE")]
        secret_file: PathBuf,
        /// A body in JSON: the JSON itself, `@FILE`, or `-` for stdin
        #[arg(long, value_name = "JSON", conflicts_with = "text")]
        body_json: Option<String>,
        /// Deliver at most once under this key within `limits.dedupe_window`
        #[arg(long, value_name = "KEY")]
        dedupe_key: Option<String>,
    },
    /// Replace the secret of a trigger; the old one becomes invalid
    Rotate {
        id: String,
        #[command(flatten)]
        agent: AgentFlag,
        /// Write the secret to this new file, which only you can read, and show it nowhere
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Take the secret that the sender has generated from this file; `-` for stdin
        #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
        secret_from: Option<PathBuf>,
    },
    /// Revoke a trigger for good; its deliveries stay
    Revoke {
        id: String,
        #[command(flatten)]
        agent: AgentFlag,
    },
}

/// Answer one HTTP request
///
/// A web server runs this by CGI; inetd and systemd run it with a connection as stdin and stdout.
/// Deliveries go to /agents/AGENT/triggers/ID. `[ingress]` in dormouse.toml sets which requests are
/// allowed.
#[derive(Debug, Args)]
pub struct IngressArgs {}
