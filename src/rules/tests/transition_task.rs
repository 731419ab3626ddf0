//! Status of tasks: it only goes forward, and each end leaves one record in the archive and one
//! message.

use crate::rules::transition::task::{self, NewJob, NewTask, TaskEnding};

use super::*;

use TaskStatus::{Cancelled, Cancelling, Completed, Failed, Interrupted, Queued, Running};

fn draft(tasks: Vec<Task>) -> Draft {
    let mut records = records_in(Status::AwakeIdle, ExecutionState::Runnable);
    records.tasks = tasks;
    Draft::new(records, stamp_at(now()))
}

fn seen(exit: Exit) -> TaskEnd {
    TaskEnd { stdout_bytes: 4, last_line: Some("done".to_owned()), ..task_end(exit, now()) }
}

fn supervisor(pid: u32) -> RunClaimant {
    RunClaimant { host: "here".to_owned(), boot_id: "boot".to_owned(), place: StatePlace::default(), pid }
}

fn new() -> NewTask {
    NewTask {
        job: NewJob::Command { argv: vec!["true".to_owned()] },
        summary: None,
        work_item_id: None,
        notify: true,
        interactive: false,
        timeout: None,
        from_turn: false,
        hops: None,
        at: supervisor(1),
    }
}

fn messages(transaction: &Transaction) -> Vec<Message> {
    all_of!(transaction.puts, Put::Message).cloned().collect()
}

fn archived(transaction: &Transaction) -> Vec<Task> {
    all_of!(transaction.archived, Archived::Task).cloned().collect()
}

#[test]
fn the_edges_are_these_and_no_others() {
    let edges = [
        (Queued, Running),
        (Queued, Cancelling),
        (Queued, Failed),
        (Queued, Interrupted),
        (Running, Cancelling),
        (Running, Completed),
        (Running, Failed),
        (Running, Cancelled),
        (Running, Interrupted),
        (Cancelling, Cancelled),
        (Cancelling, Interrupted),
    ];
    for from in TaskStatus::ALL {
        for to in TaskStatus::ALL {
            let leads = task::check(*from, *to).is_ok();
            assert_eq!(leads, edges.contains(&(*from, *to)), "{from} → {to}");
            assert!(!leads || !from.is_terminal(), "{from} is terminal");
        }
    }
}

#[test]
fn an_end_is_one_record_and_one_message() {
    let timed_out = TaskEnd { timed_out: true, ..seen(Exit::Signal { signal: 15 }) };
    let signalled = TaskEnd { cancelled_by: Some(15), ..seen(Exit::Signal { signal: 15 }) };
    let not_started = Exit::NotStarted { error: "program x: not found".to_owned() };
    let lost = || TaskEnding::Lost("its supervisor is gone".to_owned());
    let ok = || seen(Exit::Code { code: 0 });
    #[rustfmt::skip]
    let rows = [
        (Running, TaskEnding::Seen(ok()), Completed, "true: completed (exit status 0)\ndone"),
        (Running, TaskEnding::Seen(seen(Exit::Code { code: 3 })), Failed, "true: failed (exit status 3)\ndone"),
        (Running, TaskEnding::Seen(seen(Exit::Signal { signal: 9 })), Failed, "true: failed (signal 9)\ndone"),
        (Running, TaskEnding::Seen(seen(not_started)), Failed, "true: failed (not started: program x: not found)\ndone"),
        (Running, TaskEnding::Seen(timed_out.clone()), Failed, "true: failed (timed out after 5s, signal 15)\ndone"),
        (Running, TaskEnding::Seen(signalled), Interrupted,
            "true: interrupted (its supervisor was ended by signal 15, signal 15)\ndone"),
        (Running, lost(), Interrupted, "true: interrupted (its supervisor is gone)"),
        (Queued, lost(), Interrupted, "true: interrupted (its supervisor is gone)"),
        (Cancelling, TaskEnding::Seen(ok()), Cancelled, "true: cancelled (exit status 0)\ndone"),
        (Cancelling, TaskEnding::Seen(timed_out), Cancelled, "true: cancelled (signal 15)\ndone"),
        (Cancelling, lost(), Interrupted, "true: interrupted (its supervisor is gone)"),
    ];
    for (from, end, to, text) in rows {
        let started_at = (from != Queued).then(now);
        let timeout = Some(Span::from_secs(5));
        let mut draft = draft(vec![Task { timeout, started_at, ..task(1, from) }]);
        let ended = task::finish(&mut draft, task_id(1), end).unwrap().unwrap();
        assert_eq!((ended.status, ended.ended_at), (to, Some(now())));
        // The second process finds nothing to end.
        assert_eq!(task::finish(&mut draft, task_id(1), lost()).unwrap(), None);
        assert_eq!(draft.records.inbox.head.as_ref().unwrap().task_id, Some(task_id(1)));
        let transaction = draft.finish().unwrap();
        assert_eq!(transaction.state.open_tasks, 0);
        assert_eq!(transaction.deletes, [Delete::Task(task_id(1))]);
        assert_eq!(archived(&transaction), [ended]);
        let messages = messages(&transaction);
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].kind, MessageKind::TaskResult);
        assert_eq!(messages[0].task_status, Some(to));
        assert_eq!(messages[0].body, super::text(text));
    }
}

#[test]
fn what_was_stopped_before_it_began_was_not_interrupted() {
    let mut draft = draft(vec![task(1, Cancelling)]);
    let ended = task::finish(&mut draft, task_id(1), TaskEnding::Lost("gone".to_owned())).unwrap().unwrap();
    assert_eq!((ended.status, ended.reason), (Cancelled, None));
}

#[test]
fn an_end_that_nobody_is_to_be_notified_of_triggers_nothing() {
    let mut draft = draft(vec![Task { notify: false, ..task(1, Running) }]);
    task::finish(&mut draft, task_id(1), TaskEnding::Seen(seen(Exit::Code { code: 0 }))).unwrap();
    let messages = messages(&draft.finish().unwrap());
    assert_eq!((messages[0].kind, messages[0].trigger_kind), (MessageKind::TaskStatus, None));
}

#[test]
fn a_task_begins_queued_and_runs_unless_it_was_stopped_before() {
    let mut one = draft(Vec::new());
    let made = task::start(&mut one, NewTask { summary: Some("tests".to_owned()), ..new() }).unwrap();
    assert_eq!((made.status, made.host.as_str(), made.run_id), (Queued, "here", None));
    assert_eq!(one.clone().finish().unwrap().state.open_tasks, 1);
    let mut other = one.clone();
    let running = task::run(&mut one, made.id, supervisor(42)).unwrap().unwrap();
    assert_eq!((running.status, running.supervisor_pid), (Running, Some(42)));
    assert!(task::run(&mut one, made.id, supervisor(43)).is_err());

    assert_eq!(task::cancel(&mut other, made.id).unwrap().status, Cancelling);
    assert_eq!(task::cancel(&mut other, made.id).unwrap().status, Cancelling);
    assert_eq!(task::run(&mut other, made.id, supervisor(42)).unwrap(), None);
}

#[test]
fn what_can_not_be_started_or_stopped_is_refused() {
    let mut stopped = Draft::new(records_in(Status::Stopped, ExecutionState::Runnable), stamp_at(now()));
    assert_eq!(task::start(&mut stopped, new()).unwrap_err().kind, "stopped");
    let mut draft = draft(Vec::new());
    let unknown = NewTask { work_item_id: Some(work_id(7)), ..new() };
    assert_eq!(task::start(&mut draft, unknown).unwrap_err().kind, "not_open");
    assert_eq!(task::cancel(&mut draft, task_id(1)).unwrap_err().kind, "not_open");
    assert!(draft.is_empty());
}
