//! Tests of failures with records in a database: damage, a lost lease, and operations that only
//! files support.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::alone::alone;
use crate::engine::context::Context;
use crate::engine::monitor::of_task;
use crate::engine::step::step;
use crate::engine::sync::register;
use crate::engine::tasks::cancel;
use crate::error::{Error, Status};
use crate::local::{LeaseClaimant, Subject};
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{InboxKey, Priority};
use crate::model::record::Plane;
use crate::model::state::State;
use crate::model::time::Span;
use crate::model::work::WorkItem;
use crate::process::turn::Monitor;
use crate::store::backend::{AgentRecords, Arrival, Op, RemoteBackend, each_of};
use crate::store::memory::Memory;
use crate::store::{RecordWatch, Store};

use super::both_stores::{Play, made, opener};

/// Returns a store with records in memory, the memory, and the directory of this machine.
fn stores() -> (TempDir, Rc<Memory>, Store) {
    let (dir, memory) = (tempfile::tempdir().expect("a directory"), Rc::new(Memory::default()));
    let remote = Rc::clone(&memory) as Rc<dyn RemoteBackend>;
    let store = Store::with(made(dir.path()), opener(), remote).expect("open");
    (dir, memory, store.with_lease(Span::from_secs(3)))
}

fn ada() -> AgentName {
    "ada".parse().expect("a name")
}

fn revision(records: &dyn AgentRecords) -> u64 {
    serde_json::from_str::<State>(&records.state().expect("a state")).expect("JSON").revision
}

#[test]
fn the_error_for_a_damaged_record_names_the_record() {
    let (_dir, memory, store) = stores();
    let play = Play::new(&store).expect("made");
    let id = "work_01900000000070008000000000000001";
    let text = format!("{{\n  \"schema\": \"dormouse/work/1\",\n  \"id\": \"{id}\",\n  torn");
    let records = memory.agent(&ada()).expect("asked").expect("there");
    let hold = records.lock(Duration::ZERO).expect("asked").expect("free");
    let revision = revision(&*records);
    hold.commit(revision, &[Op::Open { plane: Plane::Work, id: id.to_owned(), text }]).expect("committed");
    drop(hold);
    let all = play.agent.unchecked_snapshot().open::<WorkItem>().expect_err("torn");
    let one =
        play.agent.unchecked_snapshot().open_one::<WorkItem>(id.parse().expect("an id")).expect_err("torn");
    for error in [all, one] {
        assert_eq!(error.exit_status(), Status::Damaged);
        let said = error.to_string();
        assert!(said.starts_with(&format!("memory: agents/ada/work/{id}:4:")), "{said}");
    }
}

#[test]
fn steps_skip_and_count_an_unreadable_message() {
    let _alone = alone();
    let (_dir, memory, store) = stores();
    let mut play = Play::new(&store).expect("made");
    let id: MessageId = "msg_01900000000070008000000000000001".parse().expect("an id");
    let torn = Arrival::Message { key: InboxKey { priority: Priority::Next, id }, text: "{".to_owned() };
    memory.agent(&ada()).expect("asked").expect("there").arrive(&[torn]).expect("arrived");
    play.arrives("hello").expect("arrived");
    let mut lines = Vec::new();
    for _ in 0..10 {
        let (line, did_something) = play.one_step().expect("stepped");
        lines.push(line);
        if !did_something {
            break;
        }
    }
    assert!(lines.len() < 10, "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("done")), "{lines:#?}");
    let state = play.agent.peek().expect("read");
    let seen = play.agent.unchecked_snapshot();
    assert_eq!(seen.count_rejected(&state).expect("counted"), 1);
    assert_eq!(seen.keys().expect("listed").len(), 1);
    assert!(seen.without_passed_over(&state).keys().expect("listed").is_empty());
}

#[test]
fn a_turn_whose_lease_is_lost_ends_and_settles_nothing() {
    let _alone = alone();
    let (_dir, memory, store) = stores();
    let mut play = Play::new(&store).expect("made");
    let before = play.agent.policy_text().expect("read");
    let sleeps =
        before.replace("[\"./turn\"]", "[\"sh\", \"-c\", \"echo $DORMOUSE_FENCE >&2; exec sleep 30\"]");
    assert!(play.agent.replace_policy(&before, &sleeps, play.now).expect("replaced"));
    assert_eq!(play.agent.policy_text().expect("read"), sleeps);
    play.arrives("hello").expect("arrived");
    memory.lose_leases(&ada());
    let begun = Instant::now();
    let error = step(Context::new(&play.session, &play.agent)).map(drop).expect_err("it lost its lease");
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!((error.kind(), error.exit_status()), (Error::FENCED, Status::Busy));
    let state = play.agent.peek().expect("read");
    let run = state.current_run.expect("nothing is settled");
    let output = play.agent.local().run(run.run_id).cap.path().join("stderr.log");
    assert_eq!(std::fs::read_to_string(output).expect("kept"), "1\n", "the fence was told");
    assert!(!play.agent.is_leased(Subject::Run).expect("asked"));
}

#[test]
fn on_disconnect_determines_whether_a_disconnected_turn_ends() {
    let _alone = alone();
    for (word, seconds, ends) in [("end", 30, true), ("finish", 1, false)] {
        let (_dir, memory, store) = stores();
        let mut play = Play::new(&store).expect("made");
        let before = play.agent.policy_text().expect("read");
        // The turn lasts long enough for a failed renewal of its lease.
        let turn = format!("[\"sh\", \"-c\", \"sleep {seconds}; echo over\"]");
        let after = before
            .replace("[\"./turn\"]", &turn)
            .replace("[turn]\n", &format!("[turn]\non_disconnect = \"{word}\"\n"));
        assert!(play.agent.replace_policy(&before, &after, play.now).expect("replaced"));
        play.arrives("hello").expect("arrived");
        memory.cut_off(&ada());
        let stepped = step(Context::new(&play.session, &play.agent));
        let state = play.agent.peek().expect("read");
        assert_eq!(stepped.as_ref().err().map(|error| error.kind()), ends.then_some(Error::FENCED), "{word}");
        assert_eq!(state.current_run.is_some(), ends, "{word}");
        assert_eq!(state.counters.messages_processed, u64::from(!ends), "{word}");
    }
}

#[test]
fn a_lease_shared_with_a_supervisor_is_not_released() {
    let (_dir, memory, store) = stores();
    let play = Play::new(&store).expect("made");
    let subject = Subject::Task("task_01900000000070008000000000000001".parse().expect("an id"));
    let first = play.agent.lease(subject, play.now).expect("asked").expect("free");
    let lock = first.share().expect("shared");
    let fence = first.fence().expect("a fence");
    drop(first);
    let records = memory.agent(&ada()).expect("asked").expect("there");
    let another = &|| Ok(LeaseClaimant { anchor: "another".to_owned(), ..play.store.local().claimant()? });
    assert!(
        records.is_leased(subject, another).expect("asked") == Some(true),
        "the supervisor is about to take it over"
    );
    let second = play.agent.inherited_lease(subject, lock, play.now).expect("taken over");
    assert!(second.fence().expect("a fence") > fence);
    drop(second);
    assert!(!play.agent.is_leased(subject).expect("asked"));
}

#[test]
fn file_operations_are_refused_for_records_in_memory() {
    let (_dir, _, store) = stores();
    let error = store.files_for("anything").expect_err("there are none");
    assert_eq!(error.exit_status(), Status::Refused);
    let said = error.to_string();
    assert_eq!(said, "anything works on files; the records of this store are in memory");
    let refused = register(&store).expect_err("no merge of records in memory");
    assert_eq!(refused.exit_status(), Status::Refused);
    let other = tempfile::tempdir().expect("a directory");
    let directory = Store::open(made(other.path()), opener()).expect("open");
    directory.files_for("anything").expect("they are files");
}

#[test]
fn a_supervisor_ends_a_task_that_another_machine_cancelled() {
    let (_dir, _, store) = stores();
    let play = Play::new(&store).expect("made");
    let id = play.begins(json!({ "command": ["sleep", "60"], "notify": false })).expect("started");
    let context = Context::new(&play.session, &play.agent);
    let mut monitor = of_task(context, id, Some(1)).expect("records elsewhere");
    let mut asked_after_a_pause = || {
        std::thread::sleep(monitor.pause().expect("a pause"));
        monitor.ask()
    };
    assert!(!asked_after_a_pause());
    cancel(Context::new(&play.session, &play.agent), &[id]).expect("marked");
    assert!(asked_after_a_pause());
}

#[test]
fn a_watch_is_notified_of_changes_but_not_of_arrivals() {
    let (_dir, memory, store) = stores();
    let mut play = Play::new(&store).expect("made");
    let changes = || {
        let records = memory.agent(&ada()).expect("asked").expect("there");
        let hold = records.lock(Duration::ZERO).expect("asked").expect("free");
        hold.commit(revision(&*records), &[]).expect("committed");
    };
    // `RecordWatch` subscribes only after its first wait, so the first change is no news.
    let mut watch = RecordWatch::new();
    watch.follow_records(&play.agent);
    changes();
    assert!(!watch.has_news());
    watch.wait(Some(Duration::ZERO));
    watch.follow_records(&play.agent);
    play.arrives("hello").expect("arrived");
    assert!(!watch.has_news());
    changes();
    assert!(watch.has_news() && !watch.has_news());
    // A watch of more than 16 agents does not subscribe to changes in the database.
    let mut watch = RecordWatch::for_long();
    for number in 0..20 {
        let name: AgentName = format!("a{number}").parse().expect("a name");
        memory.create(&name, &each_of(&[])).expect("made");
        watch.follow_records(&store.agent(&name).expect("there"));
    }
    watch.follow_records(&play.agent);
    changes();
    assert!(!watch.has_news());
}
