//! `trigger` and `ingress`: access of outside systems to an agent.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::model::trigger::{DeliveryMode, VerifyKind};

use super::groups::{AgentFlag, AgentFlags, RecordArg, SecretArgs};

/// Capabilities by which outside systems reach an agent
///
/// The secret of a trigger lets a sender put messages or wake hints into the inbox of one agent,
/// and do nothing else. The secret is shown once, when the trigger is created: on a terminal, with
/// --json, or in the file of --secret-file.
#[derive(Debug, Subcommand)]
pub enum TriggerCommand {
    Create(TriggerCreateArgs),
    /// List active triggers
    List {
        #[command(flatten)]
        agents: AgentFlags,
        /// List revoked triggers, too
        #[arg(long)]
        revoked: bool,
    },
    /// Show one trigger, active or revoked
    Show(RecordArg),
    Deliver(DeliverArgs),
    /// Replace the secret of a trigger; the old one becomes invalid
    Rotate {
        #[command(flatten)]
        trigger: RecordArg,
        #[command(flatten)]
        secret: SecretArgs,
    },
    /// Revoke a trigger for good; its deliveries stay
    Revoke(RecordArg),
}

/// Create a trigger
///
/// Inside a turn: for a wait of the agent's own, with --wait.
#[derive(Debug, Args)]
pub struct TriggerCreateArgs {
    #[command(flatten)]
    pub agent: AgentFlag,
    /// Effect of a delivery: a message or a wake hint [default: enqueue_message]
    #[arg(long)]
    pub mode: Option<DeliveryMode>,
    /// Subject of every delivery, for example `github:org/repo#12`; this ends the waits for it
    #[arg(long, value_name = "REF", conflicts_with = "wait")]
    pub resource: Option<String>,
    /// The active wait that a delivery ends. The trigger is revoked when the wait has ended
    #[arg(long, value_name = "ID")]
    pub wait: Option<String>,
    /// Sender name of deliveries: `webhook:NAME` or `callback:NAME` [default: webhook; with
    /// --wait: callback]
    #[arg(long, value_name = "KIND:NAME")]
    pub source: Option<String>,
    /// Method by which a delivery proves that its sender has the secret [default: secret]
    ///
    /// secret: the delivery contains it, as a bearer token, as the password of Basic
    /// authentication, or in GitLab's X-Gitlab-Token. hmac_sha256: it has a signature of its
    /// body, as GitHub sends it. standard_webhooks, stripe, slack: it has a signature in the
    /// format of that name. url: its address contains the secret, which servers write into
    /// their logs.
    #[arg(long)]
    pub verify: Option<VerifyKind>,
    /// The header with the signature, with --verify hmac_sha256 [default: X-Hub-Signature-256]
    #[arg(long, value_name = "NAME")]
    pub signature_header: Option<String>,
    #[command(flatten)]
    pub secret: SecretArgs,
}

/// Deliver through a trigger, as an outside system would
#[derive(Debug, Args)]
pub struct DeliverArgs {
    pub id: String,
    /// The message; not needed for a trigger whose mode is wake_hint
    pub text: Option<String>,
    #[command(flatten)]
    pub agent: AgentFlag,
    /// The file with the secret; `-` for stdin
    #[arg(long, value_name = "FILE")]
    pub secret_file: PathBuf,
    /// A body in JSON: the JSON itself, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "JSON", conflicts_with = "text")]
    pub body_json: Option<String>,
    /// Deliver at most once under this key within `limits.dedupe_window`
    #[arg(long, value_name = "KEY")]
    pub dedupe_key: Option<String>,
}

/// Answer one HTTP request
///
/// A web server runs this by CGI; inetd and systemd run it with a connection as stdin and stdout.
/// Deliveries go to /agents/AGENT/triggers/ID. `[ingress]` in dormouse.toml sets which requests are
/// allowed.
#[derive(Debug, Args)]
pub struct IngressArgs {}
