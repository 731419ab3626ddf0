//! Tests of `create`, `start`, `stop` and recovery: their conditions, the records that they change,
//! and the records that they leave.

use crate::rules::execution::agrees;
use crate::rules::transition::gate::is_to_be_shut_down;
use crate::rules::transition::lifecycle::{create, end_late_start, is_uninitialized};
use crate::rules::transition::recovery::{self, recover};

use super::*;

#[test]
fn a_new_agent_is_booting_and_its_only_event_is_its_creation() {
    let transaction = create(agent(), Policy::default(), stamp_at(now())).expect("created");
    let state = &transaction.state;
    assert_eq!((transaction.base_revision, state.revision), (0, 1));
    assert_eq!((state.status, state.execution.state), (Status::Booting, ExecutionState::Initializing));
    assert_eq!(kinds(&transaction.events), [EventKind::AgentCreated]);
    assert_eq!(state.next_due_at, None, "a new agent is never due");
    assert!(transaction.puts.is_empty() && transaction.deletes.is_empty());
    assert!(transaction.archived.is_empty());
}

/// Returns every pair of a status and an execution state that allows the status.
fn occurring() -> impl Iterator<Item = (Status, ExecutionState)> {
    ExecutionState::ALL.iter().flat_map(|state| {
        Status::ALL.iter().filter(|status| agrees(*state, **status)).map(|status| (*status, *state))
    })
}

#[test]
fn start_makes_booting_and_stopped_agents_idle_and_changes_no_other_agent() {
    for (status, state) in occurring() {
        let mut draft = draft(records_in(status, state));
        let before = draft.records.clone();
        assert_eq!(start(&mut draft, &OPERATOR), Ok(()), "{status} {state}");
        if !matches!(status, Status::Booting | Status::Stopped) {
            assert_eq!(draft.records, before);
            assert!(draft.is_empty(), "a second start changes nothing");
            continue;
        }
        let is_new = state == ExecutionState::Initializing;
        let expected = if is_new { ExecutionState::Runnable } else { state };
        let found = &draft.records.state;
        assert_eq!((found.status, found.execution.state), (Status::AwakeIdle, expected), "{status} {state}");
        assert_eq!(found.current_run, None);
        // The other states belong to a run, which these records do not have.
        if !agrees(expected, Status::AwakeIdle) {
            continue;
        }
        let transaction = finish(draft);
        let told = [EventKind::ControlRequestAdmitted, EventKind::ControlApplied, EventKind::StateTransition];
        assert_eq!(kinds(&transaction.events), told[..2 + usize::from(is_new)], "{status} {state}");
        assert_eq!(path(&transaction.events), ["initializing -> runnable"][..usize::from(is_new)]);
        assert!(transaction.puts.is_empty() && transaction.deletes.is_empty(), "start creates no message");
    }
}

#[test]
fn start_is_refused_until_the_stop_has_ended_the_run() {
    let mut records = records_in(Status::Stopped, ExecutionState::ShuttingDown);
    records.state.current_run = Some(current_run(&prompt(1)));
    let refusal = refused(records, |draft| start(draft, &OPERATOR));
    assert_eq!(refusal.kind, "invalid_state_transition");
}

#[test]
fn stop_is_accepted_in_every_status_and_a_second_stop_only_adds_its_events() {
    for (status, state) in occurring() {
        let mut draft = draft(records_in(status, state));
        let changed = stop(&mut draft, secs(30), false, None, &OPERATOR).expect("stopped");
        assert_eq!(changed, status != Status::Stopped, "{status} {state}");
        assert_eq!(draft.records.state.status, Status::Stopped);
        assert_eq!(draft.records.state.execution.state, state, "the stop does not change the state");
        let told = [EventKind::ControlRequestAdmitted, EventKind::ControlApplied];
        let transaction = finish(draft);
        assert_eq!(kinds(&transaction.events), told, "{status} {state}");
        assert_eq!(put_message(&transaction), None, "{status} {state}");
    }
}

#[test]
fn the_run_or_the_recovery_of_a_stopped_agent_is_shut_down_once() {
    for (status, state) in occurring() {
        let mut records = records_in(status, state);
        if state == ExecutionState::Running {
            records.state.current_run = Some(current_run(&prompt(1)));
        }
        let mut draft = draft(records);
        assert!(status == Status::Stopped || !is_to_be_shut_down(&draft.records.state));
        stop(&mut draft, secs(7), false, None, &OPERATOR).expect("stopped");
        draft.stamp.now = at(5000);
        let run_stops = draft.records.state.current_run.as_ref().is_some_and(|run| run.stopping.is_some());
        let expected = match state {
            ExecutionState::Running if run_stops => ExecutionState::ShuttingDown,
            ExecutionState::Recovering => ExecutionState::Failed,
            other => other,
        };
        for _ in 0..2 {
            shut_down(&mut draft, secs(7)).expect("an edge leads there");
            assert_eq!(draft.records.state.execution.state, expected, "{status} {state}");
            assert!(!is_to_be_shut_down(&draft.records.state));
        }
        // The grace period starts with the shutdown of the run, not with the call of `stop`.
        let stopping = draft.records.state.current_run.and_then(|run| run.stopping);
        assert!(stopping.is_none_or(|stopping| stopping.kill_at == at(12_000)));
    }
}

#[test]
fn the_events_of_a_stop_have_its_reason_and_its_effects() {
    let mut records = records_in(Status::Asleep, ExecutionState::Completed);
    records.tasks = vec![task(1, TaskStatus::Running)];
    records.policy.workspace.path = "site".to_owned();
    let transaction =
        changed(records, |draft| stop(draft, secs(30), false, Some("holiday".to_owned()), &OPERATOR));
    assert_eq!(kinds(&transaction.events), [EventKind::ControlRequestAdmitted, EventKind::ControlApplied]);
    let asked = &transaction.events[0].data;
    assert_eq!((word(asked, "action"), word(asked, "reason")), ("stop", "holiday"));
    let done = &transaction.events[1].data;
    let found = words(done, ["action", "previous_status", "next_status", "workspace"]);
    assert_eq!(found, ["stop", "asleep", "stopped", "site"]);
    assert_eq!(done["task_ids"].as_array().map(Vec::len), Some(1));
    assert!(done["run_id"].is_null());
}

#[test]
fn stop_marks_a_live_run_and_does_not_settle_it() {
    for requeue in [false, true] {
        let mut draft = draft(running(&prompt(1)));
        let reason = Some("enough".to_owned());
        assert_eq!(stop(&mut draft, secs(7), requeue, reason.clone(), &OPERATOR), Ok(true));
        shut_down(&mut draft, secs(7)).expect("an edge leads there");
        let transaction = finish(draft);
        assert_eq!(path(&transaction.events), ["running -> shutting_down"]);
        assert_eq!(transaction.state.execution.task_id, Some(message_id(1)));
        let run = transaction.state.current_run.as_ref().expect("still there");
        let expected = Stopping { requested_at: now(), kill_at: at(7000), requeue, reason };
        assert_eq!((run.run_id, &run.stopping), (run_id(1), &Some(expected)));
        assert!(transaction.deletes.is_empty(), "the message is not settled before the run has ended");
        let done = of_kind(&transaction.events, EventKind::ControlApplied).next().expect("one");
        assert_eq!(word(done, "run_id"), run_id(1).to_string());
    }
}

/// Returns a suspended agent with queued input, hints, a work item, a wait, a timer and a retry.
fn full() -> Records {
    let mut records = Records {
        works: vec![work(1)],
        waits: vec![wait(1, WaitKind::External)],
        timers: vec![timer(1, 1000)],
        ..records_in(Status::Asleep, ExecutionState::Suspended)
    };
    records.state.sleeping_until = Some(at(1000));
    records.state.pending_wake_hint = Some(hint(21));
    records.state.held = Some(held(&prompt(1), None));
    records.state.retry = Some(retry(&prompt(1), at(1)));
    records.state.focus = Some(work_id(1));
    records.inbox.head = Some(prompt(2));
    records.inbox.hints = vec![hint(22), hint(23)];
    records
}

#[test]
fn stop_clears_the_sleep_and_the_wake_hints_and_keeps_everything_else() {
    let mut draft = draft(full());
    stop(&mut draft, secs(30), false, None, &OPERATOR).expect("stopped");
    let mut expected = full();
    expected.state = draft.records.state.clone();
    expected.inbox.hints.clear();
    assert_eq!(draft.records, expected);
    let transaction = finish(draft);
    let state = &transaction.state;
    assert_eq!((state.sleeping_until, &state.pending_wake_hint), (None, &None));
    assert_eq!((&state.held, &state.retry), (&full().state.held, &full().state.retry));
    assert_eq!(state.focus, full().state.focus);
    assert_eq!(state.next_due_at, None, "a stopped agent is never due");
    assert_eq!(transaction.deletes, [Delete::Hint(message_id(22)), Delete::Hint(message_id(23))]);
    assert!(transaction.puts.is_empty() && transaction.archived.is_empty());
}

#[test]
fn hints_that_came_before_a_stop_or_while_stopped_are_recorded_as_ignored() {
    let mut stopping = draft(full());
    stop(&mut stopping, secs(30), false, None, &OPERATOR).expect("stopped");
    let mut stopped = full();
    stopped.state.status = Status::Stopped;
    let mut starting = draft(stopped);
    start(&mut starting, &OPERATOR).expect("started");
    for draft in [stopping, starting] {
        assert_eq!(draft.records.state.pending_wake_hint, None);
        let transaction = finish(draft);
        let ignored: Vec<(&str, &str)> = of_kind(&transaction.events, EventKind::WakeHintIgnored)
            .map(|data| (word(data, "hint_id"), word(data, "reason")))
            .collect();
        let ids = [22, 23, 21].map(|number| message_id(number).to_string());
        let expected: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "stopped")).collect();
        assert_eq!(ignored, expected);
        assert_eq!(transaction.state.counters.wakes, 0, "an ignored hint does not wake the agent");
    }
}

#[test]
fn recovery_makes_a_failed_execution_runnable_and_ends_its_backoff_and_nothing_else_recovers() {
    for (status, state) in occurring() {
        let mut records = records_in(status, state);
        records.state.retry = Some(retry(&prompt(1), at(60_000)));
        // An unfinished recovery continues in its state.
        let (steps, cause) = match state {
            ExecutionState::Failed => (&["failed -> recovering", "recovering -> runnable"][..], "asked for"),
            ExecutionState::Recovering => (&["recovering -> runnable"][..], "recovered"),
            _ => {
                let refusal = refused(records, |draft| recover(draft, "asked for"));
                assert_eq!(refusal.message, "`worker` has nothing to recover");
                continue;
            }
        };
        let transaction = changed(records, |draft| recover(draft, "asked for"));
        assert_eq!(path(&transaction.events), steps, "{status}");
        assert_eq!(word(&transaction.events[0].data, "cause"), cause);
        let after = &transaction.state;
        assert_eq!((after.status, &after.retry, after.next_due_at), (status, &None, None));
    }
}

#[test]
fn a_failed_recovery_is_tried_again_after_a_pause_and_costs_its_message_no_attempt() {
    for status in [Status::AwakeIdle, Status::Asleep, Status::Stopped] {
        let mut records = records_in(status, ExecutionState::Recovering);
        let before = retry(&prompt(1), at(-60_000));
        records.state.retry = Some(before.clone());
        let pause = records.policy.recovery.base;
        let transaction = changed(records, |draft| recovery::fail(draft, "no disk"));
        assert_eq!(path(&transaction.events), ["recovering -> failed"]);
        assert_eq!(transaction.state.execution.reason.as_deref(), Some("no disk"));
        let after = transaction.state.retry.expect("a retry");
        assert_eq!((after.message_id, after.attempt), (before.message_id, before.attempt));
        assert_eq!(after.not_before, now().after(pause));
        assert_eq!(transaction.state.status == Status::Stopped, status == Status::Stopped);
    }
}

/// Returns the retry delays, in milliseconds, after failed recoveries in a row, and the
/// transactions.
fn failing(mut records: Records, times: usize) -> (Vec<i64>, Vec<Transaction>) {
    let (mut pauses, mut all) = (Vec::new(), Vec::new());
    for _ in 0..times {
        records.state.execution.state = ExecutionState::Recovering;
        let transaction = changed(records.clone(), |draft| recovery::fail(draft, "no disk"));
        records.state = transaction.state.clone();
        pauses.extend(records.state.retry.as_ref().map(|retry| retry.not_before.as_millis() - NOW_MS));
        all.push(transaction);
    }
    (pauses, all)
}

#[test]
fn the_recovery_pause_grows_and_the_last_attempt_raises_an_attention() {
    let (pauses, transactions) = failing(records_in(Status::AwakeIdle, ExecutionState::Recovering), 7);
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 3_600_000, 3_600_000, 3_600_000]);
    let told: Vec<usize> = transactions
        .iter()
        .map(|transaction| of_kind(&transaction.events, EventKind::Attention).count())
        .collect();
    assert_eq!(told, [0, 0, 0, 0, 1, 0, 0], "once");
    // A successful recovery resets the number of failed recoveries.
    let mut records = records_in(Status::AwakeIdle, ExecutionState::Failed);
    records.state = transactions[6].state.clone();
    let mut draft = draft(records);
    recover(&mut draft, "asked for").expect("recovered");
    assert_eq!(draft.records.state.recovery_failures, 0);
}

#[test]
fn on_exhausted_stop_stops_the_agent_after_the_last_failed_recovery() {
    let mut records = records_in(Status::AwakeIdle, ExecutionState::Recovering);
    records.policy.recovery.on_exhausted = OnExhausted::Stop;
    records.policy.recovery.max_attempts = 2;
    let (_, transactions) = failing(records.clone(), 2);
    assert_eq!(transactions[0].state.status, Status::AwakeIdle);
    let last = &transactions[1];
    assert_eq!((last.state.status, last.state.execution.state), (Status::Stopped, ExecutionState::Failed));
    let told = of_kind(&last.events, EventKind::Attention).next().expect("told");
    let expected = ["agent_stopped", "its recovery failed: no disk"];
    assert_eq!(words(told, ["subject", "reason"]), expected);
    // A later start keeps the retry delay, although the stop has reset the number of failures.
    records.state = last.state.clone();
    let started = changed(records, |draft| start(draft, &OPERATOR)).state;
    assert_eq!((started.next_due_at, last.state.recovery_failures), (Some(at(2000)), 0));
}

#[test]
fn after_a_failed_start_each_recovery_waits_for_a_growing_pause() {
    let mut records = records_in(Status::Booting, ExecutionState::Initializing);
    records.state.execution.since = at(-60_001);
    records.state.execution.reason = Some("start".to_owned());
    let given_up = changed(records.clone(), end_late_start);
    let state = &given_up.state;
    assert_eq!((state.status, state.execution.state), (Status::Stopped, ExecutionState::Failed));
    let retry = state.retry.as_ref().map(|retry| (retry.message_id, retry.not_before));
    assert_eq!(retry, Some((None, at(1000))));
    assert!(is_uninitialized(state));
    records.state = given_up.state;
    records.state = changed(records.clone(), |draft| start(draft, &OPERATOR)).state;
    assert_eq!(records.state.next_due_at, Some(at(1000)));
    let (pauses, _) = failing(records, 3);
    assert_eq!(pauses, [1_000, 2_000, 4_000], "also without a message");
}
