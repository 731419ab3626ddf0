//! `create`, `start`, `stop` and recovery: their conditions, their changes, and the unchanged
//! records.

use crate::rules::transition::gate::is_to_be_shut_down;
use crate::rules::transition::lifecycle::{create, end_late_start, is_uninitialized};
use crate::rules::transition::recovery::{self, recover};

use super::*;

#[test]
fn a_new_agent_is_booting_and_nothing_has_happened_to_it() {
    let transaction = create(agent(), Policy::default(), stamp_at(now())).expect("created");
    let state = &transaction.state;
    assert_eq!((transaction.base_revision, state.revision), (0, 1));
    assert_eq!((state.status, state.execution.state), (Status::Booting, ExecutionState::Initializing));
    assert_eq!(kinds(&transaction.events), [EventKind::AgentCreated]);
    assert_eq!(state.next_due_at, None, "an agent that nobody started is never late");
    assert!(transaction.puts.is_empty() && transaction.deletes.is_empty());
    assert!(transaction.archived.is_empty());
}

/// Returns the pairs of status and state that can occur.
fn occurring() -> impl Iterator<Item = (Status, ExecutionState)> {
    ExecutionState::ALL.iter().flat_map(|state| {
        Status::ALL
            .iter()
            .filter(|status| crate::rules::execution::agrees(*state, **status))
            .map(|status| (*status, *state))
    })
}

#[test]
fn start_changes_only_booting_and_stopped_agents() {
    for (status, state) in occurring() {
        let mut draft = draft(records_in(status, state));
        let before = draft.records.clone();
        let result = start(&mut draft, &OPERATOR);
        assert_eq!(result, Ok(()), "{status} {state}");
        if matches!(status, Status::Booting | Status::Stopped) {
            assert_eq!(draft.records.state.status, Status::AwakeIdle);
        } else {
            assert_eq!(draft.records, before);
            assert!(draft.is_empty(), "a repeated start leaves no trace");
        }
    }
}

#[test]
fn start_leads_from_initializing_to_runnable_and_leaves_every_other_state_where_it_is() {
    for state in [
        ExecutionState::Initializing,
        ExecutionState::Runnable,
        ExecutionState::Completed,
        ExecutionState::Waiting,
        ExecutionState::WaitingResources,
        ExecutionState::Suspended,
        ExecutionState::Failed,
    ] {
        let mut draft = draft(records_in(Status::Stopped, state));
        start(&mut draft, &OPERATOR).expect("started");
        let transaction = finish(draft);
        let (expected, steps): (_, &[&str]) = match state {
            ExecutionState::Initializing => (ExecutionState::Runnable, &["initializing -> runnable"]),
            other => (other, &[]),
        };
        assert_eq!(transaction.state.execution.state, expected);
        assert_eq!(path(&transaction.events), steps);
    }
}

#[test]
fn start_creates_no_message_and_runs_nothing() {
    let mut draft = draft(records_in(Status::Booting, ExecutionState::Initializing));
    start(&mut draft, &OPERATOR).expect("started");
    let transaction = finish(draft);
    assert_eq!(
        kinds(&transaction.events),
        [EventKind::ControlRequestAdmitted, EventKind::ControlApplied, EventKind::StateTransition]
    );
    assert!(transaction.puts.is_empty() && transaction.deletes.is_empty());
    assert_eq!(transaction.state.current_run, None);
}

#[test]
fn start_waits_for_a_stop_that_has_not_ended_its_run() {
    let mut records = records_in(Status::Stopped, ExecutionState::ShuttingDown);
    records.state.current_run = Some(current_run(&prompt(1)));
    let mut draft = draft(records);
    assert_eq!(start(&mut draft, &OPERATOR).expect_err("refused").kind, "invalid_state_transition");
    assert!(draft.is_empty());
}

#[test]
fn stop_is_accepted_in_every_status_and_the_second_one_leaves_its_event_only() {
    for (status, state) in occurring() {
        let mut draft = draft(records_in(status, state));
        let changed = stop(&mut draft, secs(30), false, None, &OPERATOR).expect("stopped");
        assert_eq!(changed, status != Status::Stopped, "{status} {state}");
        assert_eq!(draft.records.state.status, Status::Stopped);
        assert_eq!(draft.records.state.execution.state, state, "only the gate is closed");
        let told = [EventKind::ControlRequestAdmitted, EventKind::ControlApplied];
        assert_eq!(kinds(&finish(draft).events), told, "{status} {state}");
    }
}

#[test]
fn what_a_stopped_agent_is_at_is_shut_down_once() {
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
        // The grace begins with the shutdown of the run, not with the stop.
        let stopping = draft.records.state.current_run.and_then(|run| run.stopping);
        assert!(stopping.is_none_or(|stopping| stopping.kill_at == at(12_000)));
    }
}

#[test]
fn stop_says_what_it_was_asked_and_what_it_did() {
    let mut records = records_in(Status::Asleep, ExecutionState::Completed);
    records.tasks = vec![task(1, TaskStatus::Running)];
    records.policy.workspace.path = "site".to_owned();
    let mut draft = draft(records);
    stop(&mut draft, secs(30), false, Some("holiday".to_owned()), &OPERATOR).expect("stopped");
    let transaction = finish(draft);
    assert_eq!(kinds(&transaction.events), [EventKind::ControlRequestAdmitted, EventKind::ControlApplied]);
    let asked = &transaction.events[0].data;
    assert_eq!((word(asked, "action"), word(asked, "reason")), ("stop", "holiday"));
    let done = &transaction.events[1].data;
    assert_eq!(
        (word(done, "action"), word(done, "previous_status"), word(done, "next_status")),
        ("stop", "asleep", "stopped")
    );
    assert_eq!(word(done, "workspace"), "site");
    assert_eq!(done["task_ids"].as_array().map(Vec::len), Some(1));
    assert!(done["run_id"].is_null());
}

#[test]
fn stop_marks_a_live_run_and_leaves_its_end_to_whoever_sees_it() {
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

fn full() -> Records {
    let mut records = records_in(Status::Asleep, ExecutionState::Suspended);
    records.state.sleeping_until = Some(at(1000));
    records.state.pending_wake_hint = Some(hint(21));
    records.state.held = Some(held(&prompt(1), None));
    records.state.retry = Some(retry(&prompt(1), at(1)));
    records.state.focus = Some(work_id(1));
    records.inbox.head = Some(prompt(2));
    records.inbox.hints = vec![hint(22), hint(23)];
    records.works = vec![work(1)];
    records.waits = vec![wait(1, WaitKind::External)];
    records.timers = vec![timer(1, 1000)];
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
    assert_eq!(state.next_due_at, None, "nothing wakes a stopped agent");
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
        assert_eq!(transaction.state.counters.wakes, 0, "an ignored hint wakes nobody");
    }
}

#[test]
fn recovery_leads_from_failed_to_runnable_and_ends_the_backoff() {
    for status in [Status::AwakeIdle, Status::Asleep, Status::Stopped] {
        let mut records = records_in(status, ExecutionState::Failed);
        records.state.retry = Some(retry(&prompt(1), at(60_000)));
        let mut draft = draft(records);
        recover(&mut draft, "asked for").expect("recovered");
        let transaction = finish(draft);
        assert_eq!(path(&transaction.events), ["failed -> recovering", "recovering -> runnable"]);
        assert_eq!(word(&transaction.events[0].data, "cause"), "asked for");
        assert_eq!((transaction.state.status, &transaction.state.retry), (status, &None));
        assert_eq!(transaction.state.next_due_at, None);
    }
}

#[test]
fn only_a_failed_execution_recovers() {
    let others =
        |state: ExecutionState| !matches!(state, ExecutionState::Failed | ExecutionState::Recovering);
    for (status, state) in occurring().filter(|(_, state)| others(*state)) {
        let mut draft = draft(records_in(status, state));
        let refusal = recover(&mut draft, "asked for").expect_err("refused");
        assert_eq!(refusal.message, "`worker` has nothing to recover");
        assert!(draft.is_empty());
    }
}

#[test]
fn a_recovery_that_was_begun_goes_on_where_it_is() {
    let mut records = records_in(Status::AwakeIdle, ExecutionState::Recovering);
    records.state.retry = Some(retry(&prompt(1), at(1)));
    let mut draft = draft(records);
    recover(&mut draft, "asked for").expect("recovered");
    assert_eq!(path(&finish(draft).events), ["recovering -> runnable"]);
}

#[test]
fn a_recovery_that_fails_is_tried_again_after_a_pause_and_costs_its_message_no_attempt() {
    for status in [Status::AwakeIdle, Status::Asleep, Status::Stopped] {
        let mut records = records_in(status, ExecutionState::Recovering);
        let before = retry(&prompt(1), at(-60_000));
        records.state.retry = Some(before.clone());
        let pause = records.policy.recovery.base;
        let mut draft = draft(records);
        recovery::fail(&mut draft, "no disk").expect("failed");
        let transaction = finish(draft);
        assert_eq!(path(&transaction.events), ["recovering -> failed"]);
        assert_eq!(transaction.state.execution.reason.as_deref(), Some("no disk"));
        let after = transaction.state.retry.expect("a retry");
        assert_eq!((after.message_id, after.attempt), (before.message_id, before.attempt));
        assert_eq!(after.not_before, now().after(pause));
        assert_eq!(transaction.state.status == Status::Stopped, status == Status::Stopped);
    }
}

#[test]
fn a_control_action_puts_no_record_of_its_own() {
    let mut draft = draft(records());
    stop(&mut draft, secs(1), false, None, &OPERATOR).expect("stopped");
    let put_anything = finish(draft).puts.iter().any(|put| matches!(put, Put::Message(_)));
    assert!(!put_anything);
}

/// Returns the pauses after consecutive failed recoveries, in milliseconds, and their transactions.
fn failing(mut records: Records, times: usize) -> (Vec<i64>, Vec<Transaction>) {
    let (mut pauses, mut all) = (Vec::new(), Vec::new());
    for _ in 0..times {
        records.state.execution.state = ExecutionState::Recovering;
        let mut draft = draft(records.clone());
        recovery::fail(&mut draft, "no disk").expect("failed");
        let transaction = finish(draft);
        records.state = transaction.state.clone();
        pauses.extend(
            records.state.retry.as_ref().map(|retry| retry.not_before.as_millis() - now().as_millis()),
        );
        all.push(transaction);
    }
    (pauses, all)
}

#[test]
fn the_pause_after_a_failed_recovery_grows_and_somebody_is_told_after_the_last_attempt() {
    let (pauses, transactions) = failing(records_in(Status::AwakeIdle, ExecutionState::Recovering), 7);
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 3_600_000, 3_600_000, 3_600_000]);
    let told: Vec<usize> = transactions
        .iter()
        .map(|transaction| of_kind(&transaction.events, EventKind::Attention).count())
        .collect();
    assert_eq!(told, [0, 0, 0, 0, 1, 0, 0], "once");
    // A successful recovery resets the count.
    let mut records = records_in(Status::AwakeIdle, ExecutionState::Failed);
    records.state = transactions[6].state.clone();
    let mut draft = draft(records);
    recover(&mut draft, "asked for").expect("recovered");
    assert_eq!(draft.records.state.recovery_failures, 0);
}

#[test]
fn an_agent_whose_recovery_has_failed_too_often_stops_itself_if_it_is_to() {
    let mut records = records_in(Status::AwakeIdle, ExecutionState::Recovering);
    records.policy.recovery.on_exhausted = OnExhausted::Stop;
    records.policy.recovery.max_attempts = 2;
    let (_, transactions) = failing(records.clone(), 2);
    assert_eq!(transactions[0].state.status, Status::AwakeIdle);
    let last = &transactions[1];
    assert_eq!((last.state.status, last.state.execution.state), (Status::Stopped, ExecutionState::Failed));
    let told = of_kind(&last.events, EventKind::Attention).next().expect("told");
    assert_eq!(
        (word(told, "subject"), word(told, "reason")),
        ("agent_stopped", "its recovery failed: no disk")
    );
    // After its start the agent waits for its pause, and has as many tries again.
    records.state = last.state.clone();
    let mut starting = draft(records.clone());
    start(&mut starting, &OPERATOR).expect("started");
    assert_eq!((finish(starting).state.next_due_at, last.state.recovery_failures), (Some(at(2000)), 0));
}

#[test]
fn a_start_that_was_given_up_is_followed_by_a_pause_and_so_is_each_recovery_after_it() {
    let mut records = records_in(Status::Booting, ExecutionState::Initializing);
    records.state.execution.since = at(-60_001);
    records.state.execution.reason = Some("start".to_owned());
    let mut late = draft(records.clone());
    end_late_start(&mut late).expect("given up");
    let given_up = finish(late);
    assert_eq!(
        (given_up.state.status, given_up.state.execution.state),
        (Status::Stopped, ExecutionState::Failed)
    );
    assert_eq!(
        given_up.state.retry.as_ref().map(|retry| (retry.message_id, retry.not_before)),
        Some((None, at(1000)))
    );
    assert!(is_uninitialized(&given_up.state));
    records.state = given_up.state;
    let mut starting = draft(records.clone());
    start(&mut starting, &OPERATOR).expect("started");
    records.state = finish(starting).state;
    assert_eq!(records.state.next_due_at, Some(at(1000)));
    let (pauses, _) = failing(records, 3);
    assert_eq!(pauses, [1_000, 2_000, 4_000], "also where there is no message that it is about");
}
