//! Runs the same steps on a state directory and on another store, and compares the results.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::alone::alone;
use crate::clock::Clock;
use crate::engine::context::Context;
use crate::engine::environment::claimant;
use crate::engine::gate::{Stop, start_agent};
use crate::engine::load::{self, first_of_its_key};
use crate::engine::lookup;
use crate::engine::new_agent::{AgentRequest, make};
use crate::engine::session::{GlobalOptions, Session};
use crate::engine::step::preview;
use crate::engine::step::step;
use crate::engine::stop::stop_agent;
use crate::error::Result;
use crate::local::{Opener, StateDir, Subject, anchor::Anchor};
use crate::model::action::{Requester, TaskRequest};
use crate::model::digest::sha256;
use crate::model::event::EventKind;
use crate::model::id::{AgentName, MessageId, TaskId};
use crate::model::message::{AdmissionContext, DeliverySurface, Message, MessageKind, WakeHint};
use crate::model::refusal::Refusal;
use crate::model::retention::{Keep, Retention};
use crate::model::run::Run;
use crate::model::submission::{Speaker, Submission};
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;
use crate::model::trigger::{DeliveryMode, SIGNATURE_HEADER, TriggerScope, Verify};
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::report::output::{Output, Style};
use crate::rules::admission::admit;
use crate::rules::authority::OPERATOR;
use crate::rules::transition::arrival::admit_drop;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox::requeue;
use crate::rules::transition::task::{self, TaskEnding};
use crate::rules::transition::trigger::{self, NewTrigger};
use crate::store::backend::RemoteBackend;
use crate::store::memory::Memory;
use crate::store::{Agent, Store};

/// Script that the agent runs as its turn. The text of the message selects what the turn does.
const TURN: &str = r#"#!/bin/sh
told=$(cat)
case $told in
*'"text": "fail"'*) echo no >&2; exit 1 ;;
*'"text": "plan"'*) echo '{"brief":"planned","actions":[{"do":"work.add","objective":"dig","plan":"deep","pick":true},
    {"do":"timer.add","in":"1h","text":"ring"},
    {"do":"wait","kind":"operator","reason":"which way?"}]}' >"$DORMOUSE_OUTCOME" ;;
*) test -z "$DORMOUSE_WORK_ITEM" || done='{"do":"work.complete","id":"'$DORMOUSE_WORK_ITEM'"}'
    echo '{"brief":"done","actions":['$done']}' >"$DORMOUSE_OUTCOME" ;;
esac
"#;

const POLICY: &str = r#"
[turn]
command = ["./turn"]
[recovery]
max_attempts = 2
"#;

/// An agent with the reports of its steps and the current time.
pub struct Play<'s> {
    pub session: Session,
    pub store: &'s Store,
    pub agent: Agent<'s>,
    said: Vec<String>,
    pub now: Time,
}

impl<'s> Play<'s> {
    /// Creates the record of a task, without a process.
    pub fn begins(&self, request: Value) -> Result<TaskId> {
        let new: TaskRequest = serde_json::from_value(request).expect("a request");
        let by = Requester { since: self.now, hops: None, in_turn: false };
        let at = claimant(self.store)?;
        let begin = |draft: &mut Draft| task::start(draft, new, by, String::new(), at);
        Ok(Context::new(&self.session, &self.agent).change(begin)?.made.id)
    }

    pub fn new(store: &'s Store) -> Result<Play<'s>> {
        let style = Style { json: true, quiet: true, verbose: false, color: Some(false) };
        let patience = Span::from_secs(10);
        let now = Time::parse("2026-03-04T05:06:07Z").expect("a time");
        let said = GlobalOptions { command: "test", dir: None, patience };
        let session = Session::new(Clock::pinned(now), Output::new(style), said);
        let name: AgentName = "ada".parse().expect("a name");
        let new = AgentRequest {
            name: name.clone(),
            parent: None,
            visibility: None,
            policy: POLICY.to_owned(),
            hooks: Vec::new(),
            secret_sha256: "0".repeat(64),
        };
        make(&session, store, new)?;
        let agent = store.agent(&name)?;
        start_agent(Context::new(&session, &agent), &OPERATOR)?;
        Ok(Play { session, store, agent, said: Vec::new(), now })
    }

    pub fn passes(&mut self, span: Span) {
        self.now = self.now.after(span);
        self.session.clock = Clock::pinned(self.now);
    }

    /// Adds a message from outside, one second after the previous message, so that message ids have
    /// the order of time.
    pub fn message(&mut self, text: &str, key: Option<&str>) -> Result<Message> {
        self.passes(Span::from_secs(1));
        let submission = Submission {
            text: Some(text.to_owned()),
            dedupe_key: key.map(str::to_owned),
            ..Submission::default()
        };
        let (limits, mut stamp) = (self.agent.policy()?.limits, self.session.clock.stamp()?);
        Ok(admit(self.agent.name(), submission, Speaker::Outside, &limits, &mut stamp)?)
    }

    pub fn arrives(&mut self, text: &str) -> Result<()> {
        let message = self.message(text, None)?;
        self.agent.add_message(&message)
    }

    pub fn hint(&self) -> Result<WakeHint> {
        let mut stamp = self.session.clock.stamp()?;
        Ok(WakeHint {
            id: MessageId(stamp.mint()),
            agent: self.agent.name().clone(),
            source: "operator".to_owned(),
            reason: None,
            resource: None,
            trigger_id: None,
            wait_id: None,
            body: None,
            delivery_surface: DeliverySurface::Cli,
            admission_context: AdmissionContext::LocalProcess,
            created_at: stamp.now,
            count: 1,
            hops: 0,
            source_refs: Vec::new(),
            extra: Default::default(),
        })
    }

    /// Runs steps until one does nothing, with a dry run before each.
    fn steps(&mut self) -> Result<()> {
        for _ in 0..20 {
            let (line, did_something) = self.one_step()?;
            self.said.push(line);
            if !did_something {
                return Ok(());
            }
        }
        panic!("it does not come to rest: {:#?}", self.said)
    }

    /// Runs one step after a dry run. Returns both reports, and true if the step did anything.
    pub fn one_step(&mut self) -> Result<(String, bool)> {
        let expected = preview(Context::new(&self.session, &self.agent), self.now)?.decision.report;
        let report = step(Context::new(&self.session, &self.agent))?;
        let terminal = report.terminal.map(|terminal| terminal.name()).unwrap_or("-");
        let brief = report.brief.as_deref().unwrap_or("-");
        let line = format!(
            "{} expected, {} ({}) {terminal} {brief} {} {} attempt {:?}",
            expected.decision,
            report.decision.decision,
            report.decision.reason,
            report.status,
            report.execution_state,
            report.attempt
        );
        Ok((line, report.did_something()))
    }

    /// Adds a summary of the records, without ids and times, to the results that are compared.
    fn count(&mut self) -> Result<()> {
        let line = self.agent.read(|seen, state| {
            let (mut ends, mut kinds) = (Vec::new(), Vec::new());
            seen.ended(|message: Message| {
                ends.extend(message.settlement.map(|end| format!("{} {:?}", end.status, end.reason)));
                true
            })?;
            seen.events(None, |event| {
                kinds.push(event.kind.name());
                Ok(())
            })?;
            let newest = seen.last_events(2, |event| event.kind == EventKind::MessageSettled)?;
            let mut runs: Vec<String> =
                seen.runs(usize::MAX)?.0.iter().map(|run: &Run| format!("{} {}", run.attempt, run.terminal)).collect();
            // Runs that ended at the same time have no order, so the lines are sorted.
            runs.sort();
            let briefs: Vec<String> = seen.briefs(10)?.into_iter().map(|brief| brief.text).collect();
            Ok(format!(
                "revision {} queued {} work {} waits {} timers {} tasks {} ends {ends:?} runs {runs:?} briefs \
                 {briefs:?} settled {} known {} events {kinds:?}",
                state.revision,
                seen.keys()?.len(),
                seen.open::<WorkItem>()?.len(),
                seen.open_ids::<Wait>()?.len(),
                seen.open::<Timer>()?.len(),
                seen.open::<Task>()?.len(),
                newest.len(),
                seen.run_ids()?.into_iter().collect::<BTreeSet<_>>().len(),
            ))
        })?;
        self.said.push(line);
        Ok(())
    }
}

/// Runs an agent through its life, but without work for a second process of this program.
fn play(store: &Store) -> Result<Vec<String>> {
    let mut play = Play::new(store)?;
    play.steps()?;
    // For the message `plan`, the turn creates a work item, a timer and a wait.
    play.arrives("plan")?;
    play.steps()?;
    play.count()?;
    let plan = play.agent.read(|seen, state| state.focus.map_or(Ok(None), |id| seen.plan(id)))?;
    play.said.push(format!("plan {plan:?}"));
    // The message `left` answers the question of the turn: "which way?".
    play.arrives("left")?;
    play.steps()?;
    // The timer becomes due.
    play.passes(Span::from_secs(3601));
    play.steps()?;
    play.count()?;
    // The message `fail` fails until its attempts are used up.
    play.arrives("fail")?;
    for _ in 0..4 {
        play.steps()?;
        play.passes(Span::from_secs(3600));
    }
    play.count()?;
    dead_letter_comes_back(&mut play)?;
    batch_and_copies(&mut play)?;
    play.agent.add_hint(&play.hint()?)?;
    play.steps()?;
    a_task(&mut play)?;
    a_signed_trigger(&mut play)?;
    // A stopped agent takes up no message.
    let how = Stop { grace: None, now: false, requeue: false, reason: None, by: OPERATOR };
    stop_agent(Context::new(&play.session, &play.agent), &how)?.cleared?;
    play.arrives("later")?;
    play.steps()?;
    play.count()?;
    Ok(play.said)
}

/// Requeues a dead letter. Readers must then ignore the older line about it in the archive.
fn dead_letter_comes_back(play: &mut Play<'_>) -> Result<()> {
    let dead = play.agent.read(|seen, _| {
        let mut dead = None;
        seen.ended(|message: Message| {
            let is_dead = message.settlement.as_ref().is_some_and(|end| end.dead_letter);
            dead = Some(message).filter(|_| is_dead);
            dead.is_none()
        })?;
        Ok(dead)
    })?;
    let dead = dead.expect("a dead letter");
    let found = lookup::message(play.store, None, "message", &dead.id.to_string())?;
    assert_eq!(found.1, dead.id);
    Context::new(&play.session, &play.agent).change(|draft| requeue(draft, dead))?;
    play.steps()?;
    play.passes(Span::from_secs(3600));
    play.steps()?;
    play.count()
}

/// Admits three messages at once, one of them with a dedupe key that was used before.
fn batch_and_copies(play: &mut Play<'_>) -> Result<()> {
    let once = play.message("once", Some("key"))?;
    Context::new(&play.session, &play.agent).change(|draft| {
        admit_drop(draft, once.clone(), None);
        Ok::<_, Refusal>(())
    })?;
    let copy = play.message("once more", Some("key"))?;
    let locked = play.agent.change(play.now)?;
    let (state, policy) = (locked.state()?, play.agent.policy()?);
    let known = first_of_its_key(&locked.records_snapshot(), &copy, &state, &policy, play.now)?;
    drop(locked);
    assert_eq!(known, Some(once.id));
    let others = [play.message("one", None)?, play.message("two", None)?];
    let mut batch = play.agent.batch(play.session.clock.stamp()?.mint())?;
    let all: Vec<Message> = others.into_iter().chain([copy]).collect();
    all.iter().try_for_each(|message| batch.stage(message))?;
    batch.sync()?;
    batch.admit(play.now)?;
    play.steps()?;
    // The file of a message that has ended arrives again, and must not run again.
    play.agent.add_message(&all[0])?;
    play.steps()?;
    play.count()
}

/// Runs a task from its record to the message with its result.
fn a_task(play: &mut Play<'_>) -> Result<()> {
    let id = play.begins(json!({ "command": ["true"] }))?;
    // Readers consider the supervisor of the task alive while this lease is held.
    let lease = play.agent.lease(Subject::Task(id), play.now)?.expect("a free lease");
    assert!(play.agent.is_leased(Subject::Task(id))?);
    play.steps()?;
    let found = lookup::open::<Task>(play.store, None, &id.to_string())?;
    assert_eq!(found.1, id);
    let end = TaskEnding::Lost("nobody saw it".to_owned());
    Context::new(&play.session, &play.agent).change(|draft| task::finish(draft, id, end))?;
    drop(lease);
    let records = load::load_unlocked(&play.agent, play.now)?;
    assert_eq!(records.inbox.head.expect("its result").kind, MessageKind::TaskResult);
    play.steps()?;
    let ended = play.agent.read(|seen, _| Ok((seen.ended_one::<Task>(id)?, seen.is_open::<Task>(id)?)))?;
    play.said.push(format!("task {:?} open {}", ended.0.map(|task| task.status), ended.1));
    Ok(())
}

/// Checks that the key of a signing trigger is stored while the trigger's record names the key.
fn a_signed_trigger(play: &mut Play<'_>) -> Result<()> {
    let new = NewTrigger {
        delivery_mode: DeliveryMode::EnqueueMessage,
        scope: TriggerScope::Agent,
        source: None,
        verify: Verify::HmacSha256 { header: SIGNATURE_HEADER.to_owned() },
        secret_sha256: sha256(b"first"),
    };
    let context = Context::new(&play.session, &play.agent);
    let mut open = context.open()?;
    let first = trigger::create(&mut open.draft, new)?;
    open.locked.keep_key(first.id, "first");
    open.commit()?;
    let mut keys = vec![play.agent.key_of(&first)?];
    let mut open = context.open()?;
    open.draft.records.triggers = vec![first.clone()];
    let second = trigger::rotate(&mut open.draft, first.id, sha256(b"second"))?;
    open.locked.keep_key(first.id, "second");
    open.commit()?;
    play.agent.forget_keys(first.id, Some(&second.secret_sha256))?;
    keys.extend([play.agent.key_of(&first)?, play.agent.key_of(&second)?]);
    let most = NonZeroU32::new(2).expect("more than none");
    let mut used = Vec::new();
    for _ in 0..3 {
        used.push(play.agent.use_trigger(first.id, most, play.now)?.is_ok());
    }
    let mut open = context.open()?;
    open.draft.records.triggers = vec![second.clone()];
    trigger::revoke(&mut open.draft, first.id, "revoked")?;
    open.commit()?;
    play.agent.forget_keys(first.id, None)?;
    keys.push(play.agent.key_of(&second)?);
    let key = |key: &str| Some(key.as_bytes().to_vec());
    assert_eq!(keys, [key("first"), None, key("second"), None]);
    assert_eq!(used, [true, true, false]);
    assert!(!play.agent.has_key(&second)?);
    play.steps()
}

pub fn opener() -> Opener {
    Opener {
        command: "test".to_owned(),
        patience: Duration::from_secs(10),
        tell: |_| {},
        is_tracked: |_| false,
    }
}

pub fn made(dir: &Path) -> Anchor {
    let turn = dir.join("turn");
    std::fs::write(&turn, TURN).expect("written");
    std::fs::set_permissions(&turn, std::fs::Permissions::from_mode(0o755)).expect("made a program");
    let anchor = Anchor::to_make(dir).expect("a path");
    StateDir::init(&anchor, None).expect("a state directory");
    anchor
}

#[test]
fn steps_give_equal_results_on_both_stores() {
    let _alone = alone();
    steps_come_to_the_same(Rc::new(Memory::default()));
}

#[cfg(feature = "postgres")]
#[test]
fn steps_give_equal_results_in_a_database() {
    needs!("postgresql");
    let _alone = alone();
    let fresh = crate::store::postgres::tests::Fresh::made();
    steps_come_to_the_same(Rc::new(fresh.open()));
}

#[test]
fn two_collections_at_once_add_each_ended_id_once() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let place = made(dir.path());
    let store = Store::open(place.clone(), opener()).expect("open");
    let mut play = Play::new(&store).expect("made");
    play.arrives("x").and_then(|()| play.steps()).expect("stepped");
    play.passes(Span::from_secs(500 * 24 * 3600));
    // The state names the newest run and its message, so `gc` must keep their month.
    play.arrives("y").and_then(|()| play.steps()).expect("stepped");
    let retention = Retention { archive: Keep::days(90), ..Retention::default() };
    let mut both = [(); 2].map(|()| play.agent.collection(retention, play.now).expect("collected"));
    for expired in &mut both {
        let mut open = Context::new(&play.session, &play.agent).open().expect("the lock");
        open.locked.collect(expired, &open.draft.records.state, false).expect("collected");
        open.draft.event(EventKind::Collected, None, json!({}));
        open.commit().expect("committed");
    }
    let archive = place.path().join("agents/ada/archive/2026-03");
    let ended = std::fs::read_to_string(archive.join("ended.jsonl")).expect("the ids of the month");
    assert_eq!(ended.lines().count(), 1, "{ended}");
    assert!(!archive.join("message.jsonl").exists(), "the month is deleted");
}

fn steps_come_to_the_same(elsewhere: Rc<dyn RemoteBackend>) {
    let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let directory = Store::open(made(one.path()), opener()).expect("open");
    let place = made(other.path());
    let memory = Store::with(place.clone(), opener(), elsewhere).expect("open");
    let in_directory = play(&directory).expect("played");
    let in_memory = play(&memory).expect("played");
    assert!(in_directory.len() > 30, "{in_directory:#?}");
    for (one, other) in in_directory.iter().zip(&in_memory) {
        assert_eq!(one, other);
    }
    assert_eq!(in_directory.len(), in_memory.len());
    let agent = place.path().join("agents/ada");
    assert!(!agent.join("state.json").exists(), "no record went past the memory");
    for dir in ["inbox", "work", "waits", "timers", "archive"] {
        assert!(!agent.join(dir).exists(), "{dir}");
    }
}
