//! Tests of the status of tasks: its edges, and the archived record and the message of each end.

use crate::rules::transition::task::{self, TaskEnding};

use super::*;

use TaskStatus::{Cancelled, Cancelling, Completed, Failed, Interrupted, Queued, Running};

fn draft(tasks: Vec<Task>) -> Draft {
    super::draft(Records { tasks, ..records() })
}

fn seen(exit: Exit) -> TaskEnd {
    TaskEnd { stdout_bytes: 4, last_line: Some("done".to_owned()), ..task_end(exit, now()) }
}

fn supervisor(pid: u32) -> RunClaimant {
    RunClaimant { pid, ..claimant() }
}

fn start(draft: &mut Draft, new: TaskRequest) -> Result<Task, Refusal> {
    task::start(draft, new, outside(), String::new(), supervisor(1))
}

fn archived(transaction: &Transaction) -> Vec<Task> {
    all_of!(transaction.archived, Archived::Task).cloned().collect()
}

#[test]
fn a_task_has_exactly_these_edges() {
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
        // A second process does not end the task again.
        assert_eq!(task::finish(&mut draft, task_id(1), lost()).unwrap(), None);
        assert_eq!(draft.records.inbox.head.as_ref().unwrap().task_id, Some(task_id(1)));
        let transaction = draft.finish().unwrap();
        assert_eq!(transaction.state.open_tasks, 0);
        assert_eq!(archived(&transaction), [ended]);
        let message = put_message(&transaction).expect("a message");
        assert_eq!((message.kind, message.task_status), (MessageKind::TaskResult, Some(to)));
        assert_eq!(message.body, super::text(text));
    }
}

#[test]
fn a_task_that_was_cancelled_before_its_start_has_no_interruption() {
    let mut draft = draft(vec![task(1, Cancelling)]);
    let ended = task::finish(&mut draft, task_id(1), TaskEnding::Lost("gone".to_owned())).unwrap().unwrap();
    assert_eq!((ended.status, ended.reason), (Cancelled, None));
}

#[test]
fn the_end_of_a_task_without_notification_triggers_no_turn() {
    let mut draft = draft(vec![Task { notify: false, ..task(1, Running) }]);
    task::finish(&mut draft, task_id(1), TaskEnding::Seen(seen(Exit::Code { code: 0 }))).unwrap();
    let transaction = draft.finish().unwrap();
    let message = put_message(&transaction).expect("a message");
    assert_eq!((message.kind, message.trigger_kind), (MessageKind::TaskStatus, None));
}

#[test]
fn a_queued_task_runs_unless_it_was_cancelled_before() {
    let mut one = draft(Vec::new());
    let made =
        start(&mut one, TaskRequest { summary: Some("tests".to_owned()), ..new_task(&["true"]) }).unwrap();
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
fn a_task_of_a_stopped_agent_or_for_an_unknown_item_is_refused() {
    let mut stopped = super::draft(records_in(Status::Stopped, ExecutionState::Runnable));
    assert_eq!(start(&mut stopped, new_task(&["true"])).unwrap_err().kind, "stopped");
    let mut draft = draft(Vec::new());
    let unknown = TaskRequest { work_item_id: Some(work_id(7)), ..new_task(&["true"]) };
    assert_eq!(start(&mut draft, unknown).unwrap_err().kind, "not_open");
    assert_eq!(task::cancel(&mut draft, task_id(1)).unwrap_err().kind, "not_open");
    assert!(draft.is_empty());
}
