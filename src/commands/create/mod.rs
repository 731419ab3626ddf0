//! Commands `init`, `create` and `clone`.

mod template;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli;
use crate::engine::authority;
use crate::engine::context::Context;
use crate::engine::new_agent::{AgentRequest, make};
use crate::engine::new_file::NewFile;
use crate::engine::secret::Secret;
use crate::engine::session::{Session, anchor_of};
use crate::error::{Error, Result, Status};
use crate::local::{StateDir, anchor::Anchor};
use crate::model::agent::Status as AgentStatus;
use crate::model::id::{AgentName, TriggerId};
use crate::model::trigger::Verify;
use crate::store::{DatabaseRole, Store, grant, is_url};

use super::args::{answer, note_settings_fault, optional_text, settings};

use template::{Template, script_name, write_script};

pub fn init(session: &Session, args: cli::InitArgs) -> Result<Status> {
    let into = args.into.as_deref().and_then(std::path::Path::to_str).filter(|word| is_url(word));
    if let Some(url) = into.map(str::to_owned).or_else(|| session.named_url().filter(|_| args.into.is_none()))
    {
        return init_at(session, &url, &args.grant);
    }
    if !args.grant.is_empty() {
        return Err(Error::usage("--grant is for a store in a database, and this is a directory")
            .with_hint("`[sharing] group` in dormouse.toml shares the inboxes of a directory"));
    }
    let named = session.named_dir();
    if let (Some(into), Some(named)) = (&args.into, &named)
        && Anchor::to_make(into)? != Anchor::to_make(named)?
    {
        session.out.note(&format!(
            "made in {}, which DIR names; --dir or DORMOUSE_DIR points to {}",
            into.display(),
            named.display()
        ));
    }
    let anchor = Anchor::to_make(&args.into.or(named).unwrap_or_else(|| PathBuf::from(".")))?;
    let created = StateDir::init(&anchor, None)?;
    let shared = session.store_at(anchor.clone())?.local().share_all()?;
    let dir = anchor.path();
    let object = json!({ "dir": dir.to_string_lossy(), "created": created });
    session.out.result(&object, |out| {
        let change = (shared > 0).then(|| "shared as its dormouse.toml says".to_owned());
        made_text(&out.safe(&dir.display().to_string()), created, change)
    });
    if created && let Some(hidden) = anchor.hides() {
        session.out.note(&format!(
            "commands that are called here no longer find {}; name it with --dir or DORMOUSE_DIR",
            hidden.display()
        ));
    }
    Ok(Status::Done)
}

/// Creates the tables of a store in a database, and the local state directory.
fn init_at(session: &Session, url: &str, grants: &[String]) -> Result<Status> {
    let parts = grants.iter().map(|grant| part_of(grant)).collect::<Result<Vec<_>>>()?;
    let anchor = anchor_of(url)?;
    let patience = session.patience().as_std();
    let created = Store::init_at(&anchor, url, patience)?;
    parts.into_iter().try_for_each(|(part, role)| grant(url, patience, part, role))?;
    let object = json!({ "dir": url, "created": created, "anchor": anchor.path().to_string_lossy(), "granted": grants });
    answer(session, &object, |out| {
        let change = (!grants.is_empty()).then(|| format!("granted {}", out.safe(&grants.join(", "))));
        made_text(&out.safe(url), created, change)
    })
}

/// Returns the output line for a store at `place`. `change`: change of a store that existed before.
fn made_text(place: &str, created: bool, change: Option<String>) -> String {
    match (created, change) {
        (true, _) => format!("made {place}"),
        (false, None) => format!("{place} is there already: nothing changed"),
        (false, Some(change)) => format!("{place} is there already: now {change}"),
    }
}

/// Database roles with their names in the output.
const PARTS: [(DatabaseRole, &str); 3] = [
    (DatabaseRole::Ticker, "ticker"),
    (DatabaseRole::Producer, "producer"),
    (DatabaseRole::Reader, "reader"),
];

fn part_of(grant: &str) -> Result<(DatabaseRole, &str)> {
    let found = grant.split_once('=').filter(|(_, role)| !role.is_empty());
    let part = found.and_then(|(word, _)| PARTS.iter().find(|(_, known)| *known == word));
    match (part, found) {
        (Some((part, _)), Some((_, role))) => Ok((*part, role)),
        _ => Err(Error::usage(format!("--grant: `{grant}` is not PART=ROLE"))
            .with_hint("PART is `ticker`, `producer` or `reader`, ROLE a role of the database")),
    }
}

pub fn create(session: &Session, store: &Store, args: cli::CreateArgs) -> Result<Status> {
    let name = args.agent.clone();
    let parent = authority::parent(session, store, args.parent.clone())?;
    if let Some(parent) = &parent {
        store.agent(parent)?;
    }
    if let Some(profile) = &args.profile {
        check_profile(store, profile)?;
    }
    let template = args.template.as_deref().and_then(template::named);
    let (path, text) = policy_text(&args, &name, template)?;
    let policy = store.local().policy_from(&path.to_string_lossy(), &text)?;
    let has_command = policy.turn.command.is_some();
    let mut secret = Secret::draw(session, store, &Verify::Secret, args.secret_file.as_deref())?;
    let (path, mut script) = match template {
        Some(template) => {
            let (path, new) = write_script(template, store.anchor().home(), &name)?;
            (Some(path.to_string_lossy().into_owned()), new)
        }
        None => (None, None),
    };
    let new = AgentRequest {
        name: name.clone(),
        parent,
        visibility: args.visibility,
        policy: text,
        hooks: Vec::new(),
        secret_sha256: secret.sha256(),
    };
    let (trigger_id, mut object) = make_with(session, store, new, &mut secret, script.as_mut())?;
    if let Some(path) = &path {
        object["script"] = json!(path);
    }
    session.out.result(&object, |out| {
        let script = path.as_ref().map(|path| format!("script  {}\n", out.safe(path))).unwrap_or_default();
        format!("created {name}\n{script}trigger {trigger_id}\n{}", secret.line(out))
    });
    if let Some(template) = template {
        let words = template.first_words;
        if template.name == "llm" {
            session.out.note(&format!(
                "first: set the model and LLM_KEY_FILE with `dormouse edit {name}`, or export LLM_API_KEY"
            ));
        }
        session.out.note(&format!("next: dormouse start {name}, and then: dormouse ask {name} {words}"));
    }
    if !has_command {
        session.out.note(&format!(
            "{name} has no turn command yet: say what it runs in {}, below [turn]: command = [\"./turn.sh\"]",
            store.agent(&name)?.settings()
        ));
    }
    note_settings_fault(Context::new(session, &store.agent(&name)?))?;
    Ok(Status::Done)
}

pub fn clone(session: &Session, store: &Store, args: cli::CloneArgs) -> Result<Status> {
    let model = store.agent(&args.agent)?;
    // Settings and hooks may contain secrets, so the caller needs access to the agent's records.
    authority::reach_records(Context::new(session, &model), "clone")?;
    let name = args.new;
    let identity = model.identity()?;
    let parent = authority::parent(session, store, identity.parent)?;
    let policy = model.policy_text()?;
    model.policy()?;
    let (hooks, others) = model.local().own_hooks()?;
    let mut secret = Secret::draw(session, store, &Verify::Secret, args.secret_file.as_deref())?;
    let new = AgentRequest {
        name: name.clone(),
        parent,
        visibility: Some(identity.visibility),
        policy,
        hooks,
        secret_sha256: secret.sha256(),
    };
    let (trigger_id, mut object) = make_with(session, store, new, &mut secret, None)?;
    object["cloned_from"] = json!(model.name());
    session.out.result(&object, |out| {
        format!("created {name}, like {}\ntrigger {trigger_id}\n{}", model.name(), secret.line(out))
    });
    for other in others {
        let hook = format!("hooks/{other} of {}", model.name());
        session.out.note(&format!("{hook} is no plain file: {name} does not have it"));
    }
    Ok(Status::Done)
}

/// Creates an agent. If the agent then exists, keeps the new secret file and script, whose drop
/// deletes them otherwise. Returns the id of the agent's trigger, and the JSON object to print.
fn make_with(
    session: &Session,
    store: &Store,
    new: AgentRequest,
    secret: &mut Secret,
    script: Option<&mut NewFile>,
) -> Result<(TriggerId, Value)> {
    let name = new.name.clone();
    let made = make(session, store, new);
    // An error after the commit leaves an agent with this secret, so the triggers are checked.
    let triggers = || store.agent(&name).and_then(|agent| agent.triggers()).unwrap_or_default();
    if made.is_ok() || triggers().iter().any(|trigger| trigger.secret_sha256 == secret.sha256()) {
        secret.keep();
        script.into_iter().for_each(NewFile::keep);
    }
    let trigger_id = made?;
    let mut object = json!({ "agent": name, "status": AgentStatus::Booting, "trigger_id": trigger_id });
    secret.add_to(&mut object, "trigger_secret", &session.out);
    Ok((trigger_id, object))
}

/// Refuses a profile that is not in `dormouse.toml`.
fn check_profile(store: &Store, profile: &str) -> Result<()> {
    let known: Vec<&str> = store.local().config.profiles.keys().map(String::as_str).collect();
    if known.contains(&profile) {
        return Ok(());
    }
    let hint = match known.as_slice() {
        [] => format!("there is none yet: write a table [profiles.{profile}] into dormouse.toml"),
        known => format!("there is {}", known.join(", ")),
    };
    Err(Error::usage(format!("--profile: no profile `{profile}`")).with_hint(hint))
}

/// Returns the text of the new `agent.toml`, and the name of the text's source for errors.
fn policy_text(
    args: &cli::CreateArgs,
    name: &AgentName,
    template: Option<&Template>,
) -> Result<(PathBuf, String)> {
    if let Some(path) = &args.from {
        let text = settings("--from", path)?;
        return Ok((path.clone(), text));
    }
    let mut text = String::new();
    if let Some(profile) = &args.profile {
        text.push_str(&format!("profile = {}\n", quoted(profile)));
    }
    let description = optional_text("--description", args.description.clone())?;
    if let Some(description) = description.as_deref().or(template.map(|template| template.description)) {
        text.push_str(&format!("description = {}\n\n", quoted(description)));
    }
    text.push_str("# What a turn runs, and for how long. `dormouse man` lists every key.\n[turn]\n");
    if let Some(template) = template {
        let command = quoted(&format!("./{}", script_name(name)));
        text.push_str(&format!("command = [{command}]\n{}", template.settings));
        return Ok((PathBuf::from("agent.toml"), text));
    }
    match &args.shell {
        Some(line) if line.is_empty() => return Err(Error::usage("--shell: the line is empty")),
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
    // Active defaults would override the keys of a profile, so the defaults are commented out.
    let open = if args.profile.is_some() { "# " } else { "" };
    text.push_str(&format!("{open}timeout = \"30m\"\n{open}stdin = \"context\"\n"));
    Ok((PathBuf::from("agent.toml"), text))
}

/// Quotes a text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
