//! `init` and `create`.

use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cli;
use crate::error::{Context, Error, Result, Status};
use crate::model::agent::{AgentKind, Identity, Status as AgentStatus, Visibility};
use crate::model::id::{AgentName, TriggerId};
use crate::model::trigger::{DeliveryMode, Trigger, TriggerScope, TriggerStatus};
use crate::rules::transition::lifecycle;
use crate::store::{NewAgent, Store, layout};

use super::authority;
use super::session::Session;
use super::words::{parse, parse_optional};

pub fn init(session: &mut Session, args: cli::Init) -> Result<Status> {
    let (dir, created) = Store::init(&args.into)?;
    let object = json!({ "dir": dir.to_string_lossy(), "created": created });
    session.out.result(&object, |out| {
        let dir = out.safe(&dir.display().to_string());
        if created { format!("made {dir}") } else { format!("{dir} is there already: nothing changed") }
    });
    Ok(Status::Done)
}

pub fn create(session: &mut Session, args: cli::Create) -> Result<Status> {
    let store = session.store()?;
    let name: AgentName = parse("AGENT", &args.agent)?;
    let parent: Option<AgentName> = parse_optional("--parent", args.parent.as_deref())?;
    let parent = authority::parent(session, &store, parent)?;
    if let Some(parent) = &parent {
        store.agent(parent)?;
    }
    let (path, text) = policy_text(&args)?;
    let policy = store.policy_from(&path, &text)?;
    let has_command = policy.turn.command.is_some();
    let Made { status, trigger_id, secret } = make(session, &store, name.clone(), parent, text)?;
    let object =
        json!({ "agent": name, "status": status, "trigger_id": trigger_id, "trigger_secret": secret });
    session.out.result(&object, |_| format!("created {name}\ntrigger {trigger_id}\nsecret  {secret}"));
    if !has_command {
        session.out.note(&format!("{name} has no turn command yet: say in its agent.toml what it runs"));
    }
    Ok(Status::Done)
}

/// What came of making an agent.
pub struct Made {
    pub status: AgentStatus,
    pub trigger_id: TriggerId,
    pub secret: String,
}

/// Makes an agent, whole. Where it has a parent it is a child: private, and its own.
pub fn make(
    session: &Session,
    store: &Store,
    name: AgentName,
    parent: Option<AgentName>,
    text: String,
) -> Result<Made> {
    let policy = store.policy_from(Path::new(layout::POLICY), &text)?;
    let mut stamp = session.clock.stamp()?;
    let secret = session.clock.secret()?;
    let trigger = Trigger {
        id: TriggerId(stamp.mint()),
        agent: name.clone(),
        delivery_mode: DeliveryMode::EnqueueMessage,
        scope: TriggerScope::Agent,
        status: TriggerStatus::Active,
        secret_sha256: Sha256::digest(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect(),
        created_at: stamp.now,
        extra: Default::default(),
    };
    let identity = Identity {
        name: name.clone(),
        kind: if parent.is_some() { AgentKind::Child } else { AgentKind::Named },
        visibility: if parent.is_some() { Visibility::Private } else { Visibility::Public },
        owner: parent.clone(),
        parent,
        profile: None,
        created_at: stamp.now,
        extra: Default::default(),
    };
    // The first transaction has no directory to be committed to: it is the directory.
    let first = lifecycle::create(name.clone(), policy, stamp)?;
    let mut state = first.state;
    state.events = first.events;
    let made = Made { status: state.status, trigger_id: trigger.id, secret };
    store.create(&NewAgent { identity, policy: text, state, trigger })?;
    Ok(made)
}

/// The new `agent.toml`, and what to call it in errors.
fn policy_text(args: &cli::Create) -> Result<(PathBuf, String)> {
    if let Some(path) = &args.from {
        let text = std::fs::read_to_string(path).context("read", path)?;
        return Ok((path.clone(), text));
    }
    let mut text = String::new();
    if let Some(description) = &args.description {
        text.push_str(&format!("description = {}\n\n", quoted(description)));
    }
    text.push_str("# What a turn runs, and for how long. `dormouse man` lists every key.\n[turn]\n");
    match &args.shell {
        Some(line) => text.push_str(&format!("shell = true\ncommand = {}\n", quoted(line))),
        None if args.command.is_empty() => text.push_str("# command = [\"./turn.sh\"]\n"),
        None if args.command[0].is_empty() => {
            return Err(Error::usage("COMMAND: the name of the program is empty"));
        }
        None => {
            let argv: Vec<String> = args.command.iter().map(|word| quoted(word)).collect();
            text.push_str(&format!("command = [{}]\n", argv.join(", ")));
        }
    }
    text.push_str("timeout = \"30m\"\nstdin = \"context\"\n");
    Ok((PathBuf::from("agent.toml"), text))
}

/// A TOML string of any text.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
