//! Runs random sequences of requests and steps on two stores: after each request and each step, the
//! records must be equal in every field.
//!
//! Time is pinned and randomness comes from a seed, so that both stores get equal ids.

use std::rc::Rc;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};
use serde_json::{Value, json};

use crate::alone::alone;
use crate::clock::seed;
use crate::engine::context::Context;
use crate::engine::gate::{Stop, start_agent};
use crate::engine::step::at_rest;
use crate::engine::step::forecast;
use crate::engine::stop::stop_agent;
use crate::error::{Error, Result};
use crate::model::message::Message;
use crate::model::meters::Meters;
use crate::model::record::OpenRecord;
use crate::model::refusal::Refusal;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::task::Task;
use crate::model::time::{Span, Time};
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::rules::authority::OPERATOR;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::inbox::requeue;
use crate::rules::transition::{timer, wait, work};
use crate::store::backend::RemoteBackend;
use crate::store::memory::Memory;
use crate::store::stream::{StreamReader, StreamWriter};
use crate::store::{Snapshot, Store};

use super::both_stores::{Play, made, opener};

/// Request to an agent. The number chooses among the open records.
#[derive(Debug, Clone)]
enum Act {
    Say(&'static str),
    SayOnce(&'static str),
    Together(usize),
    Wake,
    Step,
    Pass(u64),
    Stop { requeue: bool },
    Start,
    Block(usize),
    Pick(usize),
    EndWait(usize),
    EndTimer(usize),
    Requeue,
}

fn act() -> impl Strategy<Value = Act> {
    let number = || 0usize..3;
    prop_oneof![
        6 => proptest::sample::select(&["plan", "left", "fail", "x"][..]).prop_map(Act::Say),
        2 => proptest::sample::select(&["one", "other"][..]).prop_map(Act::SayOnce),
        1 => (1usize..4).prop_map(Act::Together),
        2 => Just(Act::Wake),
        9 => Just(Act::Step),
        4 => prop_oneof![Just(1u64), Just(70), Just(3601), Just(90_000)].prop_map(Act::Pass),
        1 => any::<bool>().prop_map(|requeue| Act::Stop { requeue }),
        2 => Just(Act::Start),
        1 => number().prop_map(Act::Block),
        1 => number().prop_map(Act::Pick),
        1 => number().prop_map(Act::EndWait),
        1 => number().prop_map(Act::EndTimer),
        1 => Just(Act::Requeue),
    ]
}

impl Play<'_> {
    /// Carries out a request, and returns the result as text.
    fn act(&mut self, act: &Act) -> Result<String> {
        Ok(match act {
            Act::Say(text) => said(self.arrives(text)),
            Act::SayOnce(key) => {
                let message = self.message("once", Some(key))?;
                said(self.agent.add_message(&message))
            }
            Act::Together(count) => {
                let all = (0..*count).map(|_| self.message("x", None)).collect::<Result<Vec<_>>>()?;
                let mut batch = self.agent.batch(self.session.clock.stamp()?.mint())?;
                all.iter().try_for_each(|message| batch.stage(message))?;
                batch.sync()?;
                said(batch.admit(self.now))
            }
            Act::Wake => {
                self.passes(Span::from_secs(1));
                said(self.agent.add_hint(&self.hint()?))
            }
            Act::Step => self.one_step()?.0,
            Act::Pass(seconds) => {
                self.passes(Span::from_secs(*seconds));
                String::new()
            }
            Act::Stop { requeue } => {
                let how = Stop { grace: None, now: true, requeue: *requeue, reason: None, by: OPERATOR };
                said(stop_agent(Context::new(&self.session, &self.agent), &how))
            }
            Act::Start => said(start_agent(Context::new(&self.session, &self.agent), &OPERATOR)),
            Act::Block(at) => self.on_open(*at, |draft, item: &WorkItem| {
                work::block(draft, item.id, "why".to_owned(), None).map(drop)
            })?,
            Act::Pick(at) => {
                self.on_open(*at, |draft, item: &WorkItem| work::pick(draft, item.id, None).map(drop))?
            }
            Act::EndWait(at) => {
                self.on_open(*at, |draft, open: &Wait| wait::cancel(draft, open.id).map(drop))?
            }
            Act::EndTimer(at) => {
                self.on_open(*at, |draft, open: &Timer| timer::cancel(draft, open.id).map(drop))?
            }
            Act::Requeue => {
                let dead = self.agent.read(|seen, _| {
                    let is_dead =
                        |message: &Message| message.settlement.as_ref().is_some_and(|end| end.dead_letter);
                    Ok(seen.recent(self.now, 1, is_dead)?.pop())
                })?;
                let Some(dead) = dead else { return Ok(String::new()) };
                said(Context::new(&self.session, &self.agent).change(|draft| requeue(draft, dead)))
            }
        })
    }

    /// Changes one of the open records of a kind.
    fn on_open<T: OpenRecord>(
        &self,
        at: usize,
        change: impl FnOnce(&mut Draft, &T) -> Result<(), Refusal>,
    ) -> Result<String> {
        let mut open: Vec<T> = self.agent.read(|seen, _| seen.open())?;
        if at >= open.len() {
            return Ok(String::new());
        }
        let one = open.swap_remove(at);
        Ok(said(Context::new(&self.session, &self.agent).change(|draft| change(draft, &one))))
    }

    /// Returns all records, and the answers of the store to other queries, as one JSON object.
    fn records(&self) -> Result<Value> {
        self.agent.read(|seen, state| {
            let mut events = Vec::new();
            seen.events(None, |event| {
                events.push(json!(event));
                Ok(())
            })?;
            // Runs that ended at the same time have no order, so they are sorted.
            let mut runs: Vec<Run> = seen.runs(usize::MAX)?.0;
            runs.sort_by_key(|run| run.id);
            let queued: Vec<_> = seen.keys()?.iter().map(|key| seen.read(&found(&seen, key.id)?)).collect::<Result<_>>()?;
            // The meters are durations measured on this machine, so two runs have different values.
            let state = State { meters: Meters::default(), ..state };
            let mut all = json!({
                "state": state,
                "queued": queued,
                "hints": seen.hints()?.0,
                "first": seen.first(2)?.iter().map(|waiting| waiting.key.to_string()).collect::<Vec<_>>(),
                "last_interject": seen.last_interject()?,
                "has_background": seen.has_background()?,
                "waits_since": seen.oldest_arrival()?,
                "works": open::<WorkItem>(&seen)?,
                "waits": open::<Wait>(&seen)?,
                "timers": open::<Timer>(&seen)?,
                "tasks": open::<Task>(&seen)?,
                "triggers": open::<Trigger>(&seen)?,
                "plans": seen.open::<WorkItem>()?.iter().map(|item| seen.plan(item.id)).collect::<Result<Vec<_>>>()?,
                "ended": [ended::<Message>(&seen)?, ended::<WorkItem>(&seen)?, ended::<Wait>(&seen)?, ended::<Timer>(&seen)?],
                "runs": runs,
                "briefs": seen.briefs(usize::MAX)?.iter().map(|brief: &Brief| json!(brief)).collect::<Vec<_>>(),
                "events": events,
                "is_quiet": self.agent.is_quiet(&state)?,
            });
            forget_durations(&mut all);
            Ok(all)
        })
    }
}

/// Removes the measured durations of turns.
fn forget_durations(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("duration_ms");
            fields.values_mut().for_each(forget_durations);
        }
        Value::Array(all) => all.iter_mut().for_each(forget_durations),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn found(seen: &Snapshot<'_>, id: crate::model::id::MessageId) -> Result<crate::store::Waiting> {
    Ok(seen.waiting(id)?.expect("what was listed is found"))
}

fn open<T: OpenRecord>(seen: &Snapshot<'_>) -> Result<Vec<T>> {
    let open = seen.open::<T>()?;
    let ids: Vec<T::Id> = open.iter().map(OpenRecord::id).collect();
    assert!(ids == seen.open_ids::<T>()?, "what is listed is what is read");
    for id in ids {
        assert!(seen.is_open::<T>(id)? && seen.open_one::<T>(id)?.is_some());
    }
    Ok(open)
}

fn ended<T: crate::model::record::Record>(seen: &Snapshot<'_>) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    seen.ended(|record: T| {
        all.push(json!(record));
        true
    })?;
    Ok(all)
}

fn said<T, E: Into<Error>>(result: Result<T, E>) -> String {
    result.map_or_else(|error| error.into().to_string(), |_| "done".to_owned())
}

/// Runs `acts`, and returns the records after each act.
fn live(store: &Store, acts: &[Act]) -> Result<Vec<(String, Value)>> {
    seed(Some(7));
    let mut play = Play::new(store)?;
    let mut lived = vec![("made".to_owned(), play.records()?)];
    for act in acts {
        let said = play.act(act)?;
        lived.push((format!("{act:?}: {said}"), play.records()?));
    }
    seed(None);
    Ok(lived)
}

/// Default seed and number of the random sequences of requests. The environment variables
/// `DORMOUSE_LIVES_SEED` and `DORMOUSE_LIVES` override them.
const SEED: u64 = 1;
const CASES: u32 = 24;

fn number<T: std::str::FromStr>(variable: &str, otherwise: T) -> T {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn lives() -> ProptestConfig {
    ProptestConfig {
        cases: number("DORMOUSE_LIVES", CASES),
        rng_seed: RngSeed::Fixed(number("DORMOUSE_LIVES_SEED", SEED)),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(lives())]

    #[test]
    fn random_lives_are_the_same_on_both_stores(acts in proptest::collection::vec(act(), 1..30)) {
        let _alone = alone();
        are_the_same(&acts, Rc::new(Memory::default()))?;
    }
}

#[cfg(feature = "postgres")]
proptest! {
    #![proptest_config(lives())]

    #[test]
    fn random_lives_are_the_same_in_a_database(acts in proptest::collection::vec(act(), 1..30)) {
        needs!("postgresql"; Ok(()));
        let _alone = alone();
        are_the_same(&acts, Rc::new(crate::store::postgres::tests::Fresh::made().open()))?;
    }
}

#[test]
fn a_resting_agent_is_not_due() {
    let _alone = alone();
    let home = tempfile::tempdir().expect("a directory");
    let store = Store::with(made(home.path()), opener(), Rc::new(Memory::default())).expect("open");
    let mut play = Play::new(&store).expect("made");
    let due = |play: &Play<'_>| store.due(play.now, false).expect("due").expect("the store tells");
    assert!(due(&play).names().eq([play.agent.name()]), "no step has looked at it yet");
    // The turn of `plan` makes a timer, due in an hour, and a wait for a person.
    for act in [Act::Say("plan"), Act::Step, Act::Step, Act::Step, Act::Step] {
        play.act(&act).expect("acted");
    }
    let found = due(&play);
    assert!(found.agents.is_empty(), "{found:?}");
    let next = found.next.expect("the timer");
    play.now = next;
    assert_eq!(due(&play).agents.len(), 1);
}

proptest! {
    #![proptest_config(lives())]

    #[test]
    fn an_agent_with_a_pending_step_is_due(acts in proptest::collection::vec(act(), 1..30)) {
        let _alone = alone();
        is_due_in_time(&acts, Rc::new(Memory::default()))?;
    }
}

#[cfg(feature = "postgres")]
proptest! {
    #![proptest_config(lives())]

    #[test]
    fn an_agent_with_a_pending_step_is_due_in_a_database(acts in proptest::collection::vec(act(), 1..30)) {
        needs!("postgresql"; Ok(()));
        let _alone = alone();
        is_due_in_time(&acts, Rc::new(crate::store::postgres::tests::Fresh::made().open()))?;
    }
}

/// Runs `acts`. After each act, checks that the store names the agent as due whenever a dry run
/// finds something to do, now or at some later times.
fn is_due_in_time(acts: &[Act], elsewhere: Rc<dyn RemoteBackend>) -> Result<(), TestCaseError> {
    let home = tempfile::tempdir().expect("a directory");
    let store = Store::with(made(home.path()), opener(), elsewhere).expect("open");
    let mut play = Play::new(&store).expect("made");
    for act in acts {
        play.act(act).expect("acted");
        let now = play.now;
        let told = store.due(now, false).expect("due").expect("the store tells");
        for later in [0, 1, 60, 3600, 86_400, 864_000] {
            play.passes(Span::from_secs(later));
            let at = play.now;
            let is_at_rest = at_rest(&play.agent, at).expect("looked at").is_some();
            let would = forecast(Context::new(&play.session, &play.agent), at).expect("foreseen").due;
            let due = store.due(at, false).expect("due").expect("the store tells");
            let named = due.names().any(|name| name == play.agent.name());
            prop_assert!(is_at_rest || named, "it does not rest {later} s after {act:?}");
            prop_assert!(would.is_none_or(|due| due > at) || named, "not named {later} s after {act:?}");
            let foretold = !told.agents.is_empty() || told.next.is_some_and(|next| next <= at);
            prop_assert!(!named || foretold, "{:?} does not foretell {later} s after {act:?}", told.next);
            play.now = now;
            play.passes(Span::ZERO);
        }
    }
    Ok(())
}

/// Two requeues at the same time write equal lines into the archive.
#[test]
fn both_stores_agree_on_a_dead_letter_requeued_twice() {
    use Act::{Pass, Requeue, Say, Step};
    let _alone = alone();
    are_the_same(&[Say("fail"), Step, Pass(1), Step, Step, Requeue, Requeue], Rc::new(Memory::default()))
        .expect("the same");
}

/// Runs `acts` on a state directory and on `elsewhere`, and compares the records after each act.
fn are_the_same(acts: &[Act], elsewhere: Rc<dyn RemoteBackend>) -> Result<(), TestCaseError> {
    let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let directory = Store::open(made(one.path()), opener()).expect("open");
    let memory = Store::with(made(other.path()), opener(), elsewhere).expect("open");
    let in_directory = live(&directory, acts).expect("lived");
    let in_memory = live(&memory, acts).expect("lived");
    for ((act, one), (other_act, other)) in in_directory.iter().zip(&in_memory) {
        prop_assert_eq!(act, other_act);
        for (part, one) in one.as_object().expect("records") {
            prop_assert_eq!(one, &other[part], "{} after {}", part, act);
        }
    }
    prop_assert_eq!(travelling(&directory), travelling(&memory));
    Ok(())
}

/// Returns the records in an export of the agent by file, without those with measured times.
fn travelling(store: &Store) -> Vec<(String, String)> {
    let name = "ada".parse().expect("a name");
    let agent = store.agent(&name).expect("an agent");
    let now = Time::parse("2026-03-04T05:06:07Z").expect("a time");
    let exported = agent.change(now).expect("the lock").exported(false).expect("taken");
    let mut writer = StreamWriter::begin(Vec::new(), "a stream", &[name]).expect("begun");
    exported.write(&mut writer, |_| ()).expect("written");
    let stream = writer.finish().expect("whole");
    let mut reader = StreamReader::begin(stream.as_slice(), "a stream").expect("a stream");
    let mut files = Vec::new();
    while let Some(meta) = reader.next().expect("a file") {
        let mut text = Vec::new();
        let add = |bytes: &[u8]| {
            text.extend_from_slice(bytes);
            Ok(())
        };
        reader.copy(add).expect("its content");
        let shown = meta.shown();
        let is_record = !shown.starts_with("runs/") && shown.split('/').count() <= 3;
        let is_measured = shown == "state.json" || shown.ends_with("/run.jsonl");
        if is_record && !is_measured {
            files.push((shown, String::from_utf8(text).expect("a text")));
        }
    }
    files
}
