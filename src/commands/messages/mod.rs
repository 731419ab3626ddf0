//! Commands `enqueue` and `wake`: write a message or hint into the inbox.

pub mod ask;
pub mod awaiting;
mod batch;
mod sender;

use serde_json::json;

use crate::cli;
use crate::commands::args::{answer, json_body, moment, open_id, optional_text, text};
use crate::engine::context::Context;
use crate::engine::delivery::{self, AdmittedArrival, OnRepeat, admit_each_once};
use crate::engine::lookup::{active_trigger, check_named, waiting_or_ended};
use crate::engine::session::Session;
use crate::engine::{authority, load};
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::author::is_users;
use crate::model::bound::Bound;
use crate::model::id::{AgentName, MessageId, WaitId, WorkId};
use crate::model::message::{AdmissionContext, DeliverySurface, Message, OriginKind, WakeHint};
use crate::model::policy::Size;
use crate::model::submission::{Caller, Speaker, Submission};
use crate::model::time::Time;
use crate::model::trigger::{Trigger, TriggerScope};
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::report::text::present;
use crate::rules::admission::{admit, one_further};
use crate::rules::due::overdue;
use crate::store::{Agent, Store};

use awaiting::{WaitLimit, await_all, refuse_closed};
use sender::Sender;

pub fn enqueue(session: &Session, store: &Store, args: cli::EnqueueArgs) -> Result<Status> {
    if let Some((message, status)) = enqueue_unseen(session, store, &args)? {
        session.is_about(&args.agent);
        say(session, &args.agent, &AdmittedArrival::queued(message.id));
        say_if_closed(session, &args.agent, status);
        return Ok(Status::Done);
    }
    let agent = store.agent(&args.agent)?;
    let context = Context::new(session, &agent);
    session.is_about(agent.name());
    if args.awaits {
        authority::owners(store, "--await")?;
        authority::refuse_from_inside(context, "wait for")?;
        // A stopped agent is accepted if a dedupe key is given, because an earlier message with the
        // key may have ended already.
        if args.said.dedupe_key.is_none() {
            refuse_closed(&agent.peek()?, None)?;
        }
    }
    let deadline = WaitLimit::after(args.timeout);
    if args.within.is_some() || args.at.is_some() {
        authority::owners(store, "--in and --at")?;
    }
    let later = match &args.at {
        Some(word) => Some(moment("--at", word, session.clock.now(), args.past_ok)?),
        None => args.within.map(|span| session.clock.now().after(span)),
    };
    let admitted = match args.batch {
        true => batch::admit(context, &args.said)?,
        false => vec![take(context, &args.said, later)?],
    };
    if args.awaits {
        return await_all(context, &admitted, &deadline, true);
    }
    admitted.iter().for_each(|one| say(session, agent.name(), one));
    say_if_closed(session, agent.name(), agent.peek().ok().map(|state| state.status));
    say_if_late(context);
    Ok(Status::Done)
}

/// Admits a message from the command line, now or by a timer.
pub fn take(context: Context<'_>, said: &cli::MessageArgs, later: Option<Time>) -> Result<AdmittedArrival> {
    let Context { session, agent } = context;
    let mut sender = Sender::of(context, said)?;
    let work = open_id::<WorkItem>(agent, said.work_item.as_deref())?;
    let wait = open_id::<Wait>(agent, said.wait.as_deref())?;
    let submission = submission(said, (work, wait), sender.policy.limits.max_message)?;
    let mut stamp = session.clock.stamp()?;
    // A message delayed beyond `chain_pause` begins a new chain of causes, so its hops restart.
    let is_late = later.is_some_and(|at| at > stamp.now.after(sender.policy.limits.chain_pause));
    if let Some(caller) = sender.caller.as_mut().filter(|_| is_late) {
        caller.hops = None;
    }
    let (limits, speaker) = (&sender.policy.limits, sender.speaker());
    let message = admit(agent.name(), submission, speaker, limits, &mut stamp)?;
    let message = message.triggering(sender.trigger);
    if message.wait_id.is_some() {
        agent.read(|seen, _| check_named(&seen, (None, message.wait_id), message.trigger_kind))?;
    }
    let queued = AdmittedArrival::queued(message.id);
    // Without a dedupe key no check is needed. A user other than the owner can't read earlier keys,
    // so the step that admits the message drops a duplicate.
    if later.is_none() && (message.dedupe_key.is_none() || sender.user.is_some()) {
        agent.add_message(&message)?;
        return Ok(queued);
    }
    let body = message.body.clone();
    let on_repeat = if said.retry { OnRepeat::RetryFailed } else { OnRepeat::Answer };
    if said.retry {
        authority::reach_records(context, "settle messages of")?;
    }
    let answers = admit_each_once(context, &sender.policy, vec![message], on_repeat, later)?;
    let mut answer = answers.first().copied().unwrap_or(queued);
    if answer.duplicate {
        let earlier = agent.read(|seen, _| waiting_or_ended(&seen, answer.id))?;
        answer.differs = earlier.is_some_and(|earlier| earlier.body != body);
        note_repeat(session, agent.name(), &answer, said.retry);
    }
    Ok(answer)
}

/// Warns that an earlier message has the dedupe key, if its body differs or it has failed.
fn note_repeat(session: &Session, agent: &AgentName, answer: &AdmittedArrival, may_retry: bool) {
    let id = answer.id;
    if answer.differs {
        session.out.note(&format!("{agent}: {id} has this key and another text: your text was not sent"));
    }
    if answer.status.has_failed() && !may_retry {
        session.out.note(&format!("{agent}: {id} has this key and failed before: `--retry` tries it again"));
    }
}

fn say(session: &Session, agent: &AgentName, admitted: &AdmittedArrival) {
    let AdmittedArrival { id, status, duplicate, differs } = admitted;
    let differs = differs.then_some(true);
    let object = json!({
        "agent": agent, "message_id": id, "status": status, "duplicate": duplicate, "differs": differs,
    });
    session.out.result(&present(object), |_| id.to_string());
}

/// Returns the reason for which an agent claims no messages; `None` if it claims messages.
fn closed(status: AgentStatus) -> Option<&'static str> {
    match status {
        AgentStatus::Booting => Some("was never started"),
        AgentStatus::Stopped => Some("is stopped"),
        AgentStatus::AwakeIdle
        | AgentStatus::AwakeRunning
        | AgentStatus::AwaitingTask
        | AgentStatus::Asleep => None,
    }
}

/// Reports that the agent claims no messages at present. No error: the message stays queued.
fn say_if_closed(session: &Session, name: &AgentName, status: Option<AgentStatus>) {
    let Some(how) = status.and_then(closed) else { return };
    session.out.note(&format!("{name} {how}: it takes this up after `dormouse start {name}`"));
}

/// Reports on a terminal that no process ticks the agent. Ignores errors: the message is admitted.
fn say_if_late(Context { session, agent }: Context<'_>) {
    if !session.out.is_on_terminal() || session.out.is_json() {
        return;
    }
    let now = session.clock.now();
    let late = load::load_unlocked(agent, now).ok().and_then(|records| overdue(&records, now));
    if let Some(late) = late {
        let name = agent.name();
        session.out.note(&format!(
            "no process ticks {name}: {}; `dormouse tick {name}` runs a step",
            late.describe(now)
        ));
    }
}

/// Converts the flags to a submission. `ids`: resolved ids of the records in the flags.
fn submission(
    args: &cli::MessageArgs,
    ids: (Option<WorkId>, Option<WaitId>),
    limit: Size,
) -> Result<Submission> {
    let bound = Bound::message("the body", limit);
    let mut submission = Submission {
        kind: args.kind,
        origin: args.origin.clone(),
        priority: args.priority,
        dedupe_key: args.dedupe_key.clone(),
        ttl: args.ttl,
        resource: args.resource.clone(),
        work_item_id: ids.0,
        wait_id: ids.1,
        allow_empty: args.allow_empty,
        correlation_id: args.correlation_id.clone(),
        ..Submission::default()
    };
    match &args.body_json {
        Some(word) => submission.body = Some(json_body(word, &bound)?),
        None => submission.text = Some(text("TEXT", args.text.as_deref(), &bound)?),
    }
    Ok(submission)
}

pub fn wake(session: &Session, store: &Store, args: cli::WakeArgs) -> Result<Status> {
    let agent = store.agent(&args.agent)?;
    session.is_about(agent.name());
    let mut stamp = session.clock.stamp()?;
    if args.wait.is_some() {
        authority::owners(store, "--wait")?;
    }
    let limits = sender::policy(store, &agent)?.limits;
    let bound = Bound::message("the hint", limits.max_message);
    let guest = store.guest();
    let caller = if guest.is_none() { session.caller(store)? } else { None };
    let hops = one_further(caller.as_ref().and_then(|caller| caller.hops), &limits)?;
    if let Some(user) = guest {
        sender::check_name(user, args.source.as_deref())?;
    }
    let source = hint_source(&agent, caller.as_ref(), args.source)?;
    let said = args.text.as_ref().map(|word| text("TEXT", Some(word), &bound)).transpose()?;
    let reason = match (optional_text("--reason", args.reason)?, said) {
        (Some(reason), Some(said)) => Some(format!("{reason}: {said}")),
        (reason, said) => reason.or(said),
    };
    if let Some(reason) = &reason {
        bound.check(reason.len() as u64)?;
    }
    if args.trigger.is_some() {
        authority::owners(store, "--trigger")?;
    }
    let trigger_id = open_id::<Trigger>(&agent, args.trigger.as_deref())?;
    let trigger = trigger_id.map(|id| agent.read(|seen, _| active_trigger(&seen, id))).transpose()?;
    let scope = trigger.as_ref().map(|trigger| &trigger.scope);
    let wait_id = open_id::<Wait>(&agent, args.wait.as_deref())?;
    if wait_id.is_some() {
        agent.read(|seen, _| check_named(&seen, (None, wait_id), None))?;
    }
    let hint = WakeHint {
        id: MessageId(stamp.mint()),
        agent: agent.name().clone(),
        source,
        reason,
        resource: args.resource.or(scope.and_then(TriggerScope::resource).map(str::to_owned)),
        trigger_id,
        wait_id: wait_id.or(scope.and_then(TriggerScope::wait_id)),
        body: None,
        delivery_surface: DeliverySurface::Cli,
        admission_context: AdmissionContext::LocalProcess,
        source_refs: Vec::new(),
        created_at: stamp.now,
        count: 1,
        hops,
        extra: Default::default(),
    };
    let hint = match guest {
        Some(user) => hint.said_by(user),
        None => hint,
    };
    let forecast = delivery::forecast(Context::new(session, &agent), &hint);
    agent.add_hint(&hint)?;
    let mut object = json!({ "agent": agent.name(), "hint_id": hint.id });
    if let Some(forecast) = &forecast {
        delivery::add_forecast(&mut object, forecast);
        delivery::note_without_effect(session, agent.name(), forecast);
    }
    answer(session, &object, |_| hint.id.to_string())
}

/// Returns the source of a hint: the calling agent, else that of --source, else the operator.
fn hint_source(agent: &Agent<'_>, caller: Option<&Caller>, named: Option<String>) -> Result<String> {
    if let Some(user) = named.as_deref().filter(|named| is_users(named)) {
        return Err(Error::refused(
            "origin_not_allowed",
            format!("`{user}`: a user's source comes from the owner of the file"),
        )
        .with_hint("give the source another name"));
    }
    let Some(caller) = caller else {
        return Ok(named.unwrap_or_else(|| OriginKind::Operator.name().to_owned()));
    };
    authority::check_accepts(agent, &caller.agent)?;
    match named.filter(|named| named != caller.agent.as_str()) {
        None => Ok(caller.agent.to_string()),
        Some(other) => {
            Err(Error::refused("origin_not_allowed", format!("an agent can't give a hint as `{other}`"))
                .with_hint("leave out --source: the hint then comes from the agent"))
        }
    }
}

/// Stores a message without reading the agent. Returns it, and the agent's status if known.
///
/// Returns `None` without a change if the agent must be read first or the request is invalid. The
/// caller then admits the message as usual, which reports the error.
fn enqueue_unseen(
    session: &Session,
    store: &Store,
    args: &cli::EnqueueArgs,
) -> Result<Option<(Message, Option<AgentStatus>)>> {
    // A delivery without a read of the agent saves a query over the connection to the database.
    if !store.properties().has_connection || needs_a_look(args) || session.called_in(store)?.is_some() {
        return Ok(None);
    }
    // The usual admission reports faulty settings, after checking that the agent exists.
    let Ok(policy) = store.local().policy_from("", "") else { return Ok(None) };
    let made = submission(&args.said, (None, None), policy.limits.max_message).and_then(|submission| {
        let stamp = &mut session.clock.stamp()?;
        Ok(admit(&args.agent, submission, Speaker::Outside, &policy.limits, stamp)?)
    });
    let Ok(message) = made else { return Ok(None) };
    let told = store.deliver(&message, message.body.bytes() as u64, policy.limits.max_message)?;
    Ok(told.map(|state| (message, state.ok().map(|state| state.status))))
}

/// True if the agent's records are needed, or the text must be read from stdin or a file.
fn needs_a_look(args: &cli::EnqueueArgs) -> bool {
    let cli::EnqueueArgs { awaits, batch, within, at, said, .. } = args;
    let is_given =
        |word: &Option<String>| word.as_deref().is_some_and(|word| word != "-" && !word.starts_with('@'));
    let is_told = is_given(&said.text) || is_given(&said.body_json);
    let named = [&said.dedupe_key, &said.work_item, &said.wait, at];
    *awaits || *batch || within.is_some() || !is_told || named.iter().any(|named| named.is_some())
}
