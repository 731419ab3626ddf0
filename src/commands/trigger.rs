//! Command `trigger`: capabilities by which outside systems send messages or hints to an agent.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::{CommandGroup, DeliverArgs, RecordArg, SecretArgs, TriggerCommand, TriggerCreateArgs};
use crate::engine::authority;
use crate::engine::context::{Context, OpenTxn};
use crate::engine::delivery::{self, DeliveryProof};
use crate::engine::lookup::active_trigger;
use crate::engine::secret::Secret;
use crate::engine::session::Session;
use crate::error::{Error, Result, Status};
use crate::model::bound::Bound;
use crate::model::message::{Body, DeliverySurface};
use crate::model::policy::Size;
use crate::model::trigger::{
    DeliveryMode, SIGNATURE_HEADER, Trigger, TriggerScope, Verify, VerifyFields, VerifyKind,
};
use crate::model::wait::Wait;
use crate::report::output::Output;
use crate::report::summary::for_people;
use crate::report::trigger as shown;
use crate::rules::delivery::Delivery;
use crate::rules::transition::trigger::{self as rules, NewTrigger};
use crate::store::{Agent, Store};

use super::args::{
    answer, bytes, each_listed, ended_records, find_any, find_open, json_body, open_id, read_record,
    required_agent, text,
};

/// Maximum size of a file with a secret.
const SECRET: Bound = Bound {
    kind: "secret_too_large",
    what: "the secret",
    name: "max_secret",
    most: Size(4096),
    hint: "name the file that has the secret and nothing else",
};

pub fn trigger(session: &Session, store: &Store, args: CommandGroup<TriggerCommand>) -> Result<Status> {
    authority::owners(store, "trigger")?;
    match args.command {
        TriggerCommand::Create(args) => {
            let agent = store.agent(&required_agent(&args.agent)?)?;
            create(Context::new(session, &agent), args)
        }
        TriggerCommand::List { agents, revoked } => {
            each_listed(session, store, &agents, |context| list(context, revoked))
        }
        TriggerCommand::Show(trigger) => show(session, store, &trigger),
        TriggerCommand::Deliver(args) => deliver(session, store, args),
        TriggerCommand::Rotate { trigger, secret } => rotate(session, store, &trigger, &secret),
        TriggerCommand::Revoke(trigger) => revoke(session, store, &trigger),
    }
}

fn verify_of(kind: Option<VerifyKind>, named: Option<String>) -> Result<Verify> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    let verify = kind.unwrap_or_default();
    let signature_header = match (verify, named) {
        (VerifyKind::HmacSha256, None) => Some(SIGNATURE_HEADER.to_owned()),
        (VerifyKind::HmacSha256, Some(name)) if is_name(&name) => Some(name),
        (VerifyKind::HmacSha256, Some(name)) => {
            let name = name.escape_debug();
            return Err(Error::usage(format!("--signature-header: `{name}` is not the name of a header")));
        }
        (_, None) => None,
        (other, Some(_)) => {
            let message =
                format!("--signature-header: a trigger that verifies by `{other}` chooses no header");
            return Err(Error::usage(message).with_hint("add --verify hmac_sha256"));
        }
    };
    Verify::try_from(VerifyFields { verify, signature_header }).map_err(Error::usage)
}

/// Reads from --secret-from the secret that a sender uses already, or draws a new secret.
fn read_or_draw(session: &Session, store: &Store, verify: &Verify, args: &SecretArgs) -> Result<Secret> {
    let Some(from) = &args.secret_from else {
        return Secret::draw(session, store, verify, args.secret_file.as_deref());
    };
    let word = String::from_utf8(bytes(&from.to_string_lossy(), &SECRET)?)
        .map_err(|_| Error::usage("--secret-from: the secret is not UTF-8"))?;
    let secret = Secret::given(verify, word.trim_ascii().to_owned())?;
    if secret.word().len() < 16 {
        session.out.note("the secret is short and can be guessed");
    }
    Ok(secret)
}

/// Checks the caller. A turn or task may make and revoke triggers of its own agent for waits only.
fn reach(context: Context<'_>, verb: &str, own: Option<&TriggerScope>) -> Result<()> {
    if authority::inside(context.session, context.store())?.as_ref() != Some(context.agent.name()) {
        return authority::reach(context, &format!("{verb} a trigger of"));
    }
    match own {
        Some(TriggerScope::Wait(_)) => Ok(()),
        Some(TriggerScope::Agent | TriggerScope::Resource(_)) | None => Err(Error::refused(
            "operators_only",
            format!("a turn or task can't {verb} a trigger of its agent: that is the operator's"),
        )
        .with_hint("a trigger for a wait of its own it can make, with --wait, and revoke")),
    }
}

fn create(context: Context<'_>, args: TriggerCreateArgs) -> Result<Status> {
    let Context { session, agent } = context;
    let wait = open_id::<Wait>(agent, args.wait.as_deref())?;
    let scope = match (args.resource, wait) {
        (Some(resource), _) => TriggerScope::Resource(resource),
        (None, Some(wait)) => TriggerScope::Wait(wait),
        (None, None) => TriggerScope::Agent,
    };
    let verify = verify_of(args.verify, args.signature_header)?;
    let delivery_mode = args.mode.unwrap_or(DeliveryMode::EnqueueMessage);
    reach(context, "make", Some(&scope))?;
    let mut secret = read_or_draw(session, agent.store(), &verify, &args.secret)?;
    let secret_sha256 = secret.sha256();
    let new = NewTrigger { delivery_mode, scope, source: args.source, verify, secret_sha256 };
    let mut open = context.open()?;
    let trigger = rules::create(&mut open.draft, new)?;
    commit(agent, open, &trigger, &mut secret)?;
    say_secret(session, agent.store(), &trigger, &secret, "made");
    Ok(Status::Done)
}

/// Commits a trigger with a new secret, whose file is kept even if a later action fails.
fn commit(agent: &Agent<'_>, open: OpenTxn<'_>, trigger: &Trigger, secret: &mut Secret) -> Result<()> {
    if trigger.verify.needs_key() {
        open.locked.keep_key(trigger.id, secret.word());
    }
    let committed = open.commit();
    // A failed sync returns an error after the commit, so the stored secret is checked, too.
    let stored = || agent.read(|seen, _| seen.open_one::<Trigger>(trigger.id)).ok().flatten();
    if committed.is_ok() || stored().is_some_and(|stored| stored.secret_sha256 == trigger.secret_sha256) {
        secret.keep();
    }
    committed.map(drop)
}

fn say_secret(session: &Session, store: &Store, trigger: &Trigger, secret: &Secret, how: &str) {
    let mut object = shown::object(trigger, &store.local().config.ingress);
    secret.add_to(&mut object, "trigger_secret", &session.out);
    if trigger.verify == Verify::Url {
        session.out.note(
            "the address of this trigger is its secret: servers write addresses into their logs, and whoever reads \
             one there can deliver",
        );
        if secret.is_shown(&session.out)
            && let Some(url) = store.local().config.ingress.url(trigger)
        {
            object["url"] = json!(format!("{url}/{}", secret.word()));
        }
    }
    session.out.result(&object, |out| {
        // The URL of a `url` trigger contains the secret, so it is shown only on a terminal.
        let is_shown = trigger.verify != Verify::Url || out.is_on_terminal();
        let url = object["url"].as_str().filter(|_| is_shown);
        let url = url.map(|url| format!("url     {}\n", out.safe(url))).unwrap_or_default();
        format!("{how} {}\n{url}{}", trigger.id, secret.line(out))
    });
}

fn rotate(session: &Session, store: &Store, trigger: &RecordArg, args: &SecretArgs) -> Result<Status> {
    let (agent, id) = find_open::<Trigger>(store, trigger)?;
    let context = Context::new(session, &agent);
    reach(context, "rotate", None)?;
    let verify = read_record::<Trigger>(&agent, id)?.verify;
    let mut secret = read_or_draw(session, store, &verify, args)?;
    let mut open = context.open()?;
    open.draft.records.triggers = vec![active_trigger(&open.locked.records_snapshot(), id)?];
    let trigger = rules::rotate(&mut open.draft, id, secret.sha256())?;
    commit(&agent, open, &trigger, &mut secret)?;
    agent.forget_keys(id, Some(&trigger.secret_sha256))?;
    say_secret(session, store, &trigger, &secret, "rotated");
    Ok(Status::Done)
}

fn revoke(session: &Session, store: &Store, trigger: &RecordArg) -> Result<Status> {
    let (agent, id) = find_any::<Trigger>(store, trigger)?;
    let mut trigger: Trigger = read_record(&agent, id)?;
    let context = Context::new(session, &agent);
    reach(context, "revoke", Some(&trigger.scope))?;
    if trigger.is_active() {
        let mut open = context.open()?;
        open.draft.records.triggers = vec![active_trigger(&open.locked.records_snapshot(), id)?];
        trigger = rules::revoke(&mut open.draft, id, "revoked by the operator")?;
        open.commit()?;
    }
    agent.forget_keys(id, None)?;
    let object = shown::object(&trigger, &store.local().config.ingress);
    answer(session, &object, |_| format!("revoked {id}"))
}

fn list(Context { session, agent }: Context<'_>, with_revoked: bool) -> Result<Status> {
    let mut triggers = agent.read(|seen, _| {
        let mut found: Vec<Trigger> = seen.open()?;
        if with_revoked {
            found.extend(ended_records::<Trigger>(&seen)?);
        }
        Ok(found)
    })?;
    triggers.sort_by_key(|trigger| trigger.id);
    for trigger in &triggers {
        let object = shown::object(trigger, &agent.store().local().config.ingress);
        session.out.result(&object, |out| line(trigger, &object, out));
    }
    Ok(Status::Done)
}

fn line(trigger: &Trigger, object: &Value, out: &Output) -> String {
    let scope = trigger.scope.to_string();
    let source = trigger.source.as_deref().map(|source| format!("  {source}")).unwrap_or_default();
    format!(
        "{}  {}  {}  {}  {}{}  {} delivered",
        trigger.id,
        trigger.status,
        trigger.delivery_mode,
        trigger.verify.kind(),
        out.safe(&scope),
        out.safe(&source),
        object["delivery_count"]
    )
}

fn show(session: &Session, store: &Store, trigger: &RecordArg) -> Result<Status> {
    let (agent, id) = find_any::<Trigger>(store, trigger)?;
    let trigger: Trigger = read_record(&agent, id)?;
    let lacks_key = trigger.is_active() && trigger.verify.needs_key() && !agent.has_key(&trigger)?;
    let object = shown::object(&trigger, &store.local().config.ingress);
    session.out.result(&object, |out| {
        let mut text = line(&trigger, &object, out);
        for field in ["url", "signature_header", "last_delivered_at", "created_at", "revoked_at"] {
            if let Some(value) = object.get(field) {
                text.push_str(&format!("\n  {field:<17}  {}", out.safe(&for_people(field, value))));
            }
        }
        text
    });
    if lacks_key {
        session.out.note(&format!(
            "the key of {id} is not in this store or clone: it takes no signed delivery here before `dormouse trigger rotate`"
        ));
    }
    Ok(Status::Done)
}

fn deliver(session: &Session, store: &Store, args: DeliverArgs) -> Result<Status> {
    let caller = session.caller(store)?;
    let from_stdin = args.secret_file == Path::new("-");
    let takes_stdin = |word: &Option<String>| word.as_deref() == Some("-");
    if from_stdin && (takes_stdin(&args.text) || takes_stdin(&args.body_json)) {
        return Err(Error::usage("--secret-file: stdin can't be both the secret and the body"));
    }
    let secret = bytes(&args.secret_file.to_string_lossy(), &SECRET)?;
    let named = RecordArg { id: args.id, agent: args.agent };
    // An unknown trigger and a wrong secret cause the same error.
    let (target, id) = match find_open::<Trigger>(store, &named) {
        Ok((agent, id)) => (Some(agent), Some(id)),
        Err(Error::NoRecord { .. }) => (None, None),
        Err(error) => return Err(error),
    };
    let open = delivery::open(target.as_ref(), id, &DeliveryProof::Secret(secret.trim_ascii()))?;
    let (Some(agent), Some((trigger, _))) = (target, open) else {
        return Err(Error::refused(
            "wrong_capability",
            format!("no active trigger `{}` has this secret", named.id),
        )
        .with_hint("`dormouse trigger rotate` makes a new secret"));
    };
    session.is_about(agent.name());
    let policy = agent.policy()?;
    let bound = Bound::message("the body", policy.limits.max_message);
    let body = match (&args.body_json, &args.text) {
        (Some(word), _) => Some(Body::from(json_body(word, &bound)?)),
        (None, None) if trigger.delivery_mode == DeliveryMode::WakeHint => None,
        (None, None) if from_stdin => {
            return Err(Error::usage("TEXT: nothing to say, and stdin is the secret"));
        }
        (None, word) => Some(Body::Text { text: text("TEXT", word.as_deref(), &bound)? }),
    };
    let delivery = Delivery {
        body,
        key: args.dedupe_key,
        source_refs: Vec::new(),
        surface: DeliverySurface::Cli,
        hops: caller.and_then(|caller| caller.hops),
    };
    let delivered = delivery::deliver(Context::new(session, &agent), &policy, &trigger, delivery)?;
    if let Some(forecast) = delivered.forecast.as_ref().filter(|_| !delivered.admitted.duplicate) {
        delivery::note_without_effect(session, agent.name(), forecast);
    }
    let object = delivery::delivered(&trigger, &delivered);
    answer(session, &object, |_| delivered.admitted.id.to_string())
}
