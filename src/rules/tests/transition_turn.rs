//! Tests of the life of a run: its claim in every state, its settlement after every end, and its
//! interruption, stop, and late output.

use crate::model::recovery::Strategy;

use super::*;

fn resolving(number: u32) -> Continuation {
    Continuation { resolves: vec![wait_id(number)], matched_waiting_reason: true, ..continuation() }
}

#[test]
fn a_claim_leads_to_running_from_every_state_that_may_start_a_turn() {
    let rows = [
        (
            ExecutionState::Completed,
            &["completed -> runnable", "runnable -> scheduled", "scheduled -> running"][..],
        ),
        (ExecutionState::Runnable, &["runnable -> scheduled", "scheduled -> running"]),
        (ExecutionState::Waiting, &["waiting -> running"]),
        (ExecutionState::WaitingResources, &["waiting_resources -> running"]),
        (ExecutionState::Suspended, &["suspended -> resumed", "resumed -> running"]),
    ];
    for (state, steps) in rows {
        for status in [Status::AwakeIdle, Status::Asleep] {
            let transaction = changed(records_in(status, state), |draft| {
                claim(draft, prompt(1), continuation(), claimant())
            });
            assert_eq!(path(&transaction.events), steps, "{state}");
            let State { status, execution, .. } = transaction.state;
            assert_eq!((status, execution.state), (Status::AwakeRunning, ExecutionState::Running));
            assert_eq!(execution.task_id, Some(message_id(1)));
        }
    }
}

#[test]
fn a_claim_is_refused_where_no_edge_leads_to_running() {
    for state in [
        ExecutionState::Initializing,
        ExecutionState::Running,
        ExecutionState::Failed,
        ExecutionState::ShuttingDown,
        ExecutionState::Recovering,
    ] {
        let mut draft = draft(records_in(Status::Stopped, state));
        let refusal = claim(&mut draft, prompt(1), continuation(), claimant()).expect_err("refused");
        assert_eq!(refusal.message, format!("invalid state transition: {state} -> running"));
    }
}

#[test]
fn the_events_of_a_claim_are_its_admission_the_wait_that_it_binds_and_its_states() {
    let mut records = records_in(Status::Asleep, ExecutionState::Waiting);
    records.waits = vec![wait(1, WaitKind::Operator), wait(2, WaitKind::External)];
    let mut draft = draft(records);
    claim(&mut draft, prompt(1), resolving(1), claimant()).expect("claimed");
    let bound = Wait { resolved_by: Some(message_id(1)), ..wait(1, WaitKind::Operator) };
    assert_eq!(draft.records.waits, [bound.clone(), wait(2, WaitKind::External)]);
    let transaction = finish(draft);
    let expected = [EventKind::MessageAdmitted, EventKind::WaitTransition, EventKind::StateTransition];
    assert_eq!(kinds(&transaction.events), expected);
    let data = &transaction.events[1].data;
    let found = words(data, ["from", "to", "resolved_by"]);
    assert_eq!(found, ["active", "active", &message_id(1).to_string()]);
    assert_eq!(transaction.puts, [Put::Wait(Box::new(bound))]);
    assert!(transaction.deletes.is_empty() && transaction.archived.is_empty(), "the end of a record");
}

#[test]
fn a_claim_that_resolves_no_wait_changes_no_wait() {
    let mut records = records_in(Status::Asleep, ExecutionState::Waiting);
    records.waits = vec![wait(1, WaitKind::Operator), wait(2, WaitKind::External)];
    for resolves in [continuation(), resolving(7)] {
        let mut draft = draft(records.clone());
        claim(&mut draft, prompt(1), resolves, claimant()).expect("claimed");
        assert_eq!(draft.records.waits, records.waits);
        assert!(finish(draft).archived.is_empty());
    }
}

#[test]
fn a_run_has_its_claimant_message_work_item_and_lease() {
    let message = Message { hops: 3, work_item_id: Some(work_id(1)), attempt: 2, ..prompt(1) };
    for (timeout, lease) in [(Some(secs(100)), 160_000), (None, 86_460_000)] {
        let mut draft = draft(with(|records| records.policy.turn.timeout = Limit(timeout)));
        let claimed = claim(&mut draft, message.clone(), resolving(4), claimant()).expect("claimed");
        let expected = CurrentRun {
            run_id: claimed.run.run_id,
            claimed_at: now(),
            lease_expires_at: at(lease),
            continuation: resolving(4),
            ..current_run(&message)
        };
        assert_eq!(claimed.run, expected);
        assert_eq!(claimed.message, message);
        let state = finish(draft).state;
        assert_eq!((state.current_run, state.last_continuation), (Some(expected), Some(resolving(4))));
    }
}

#[test]
fn only_the_first_claim_of_a_message_has_an_admission_event() {
    let admissions = |message: Message, held_before: bool| {
        let mut records = records_in(Status::AwakeIdle, ExecutionState::WaitingResources);
        records.state.held = held_before.then(|| held(&message, None));
        let mut draft = draft(records);
        claim(&mut draft, message, continuation(), claimant()).expect("claimed");
        of_kind(&finish(draft).events, EventKind::MessageAdmitted).count()
    };
    assert_eq!(admissions(prompt(1), false), 1);
    assert_eq!(admissions(Message { attempt: 2, ..prompt(1) }, false), 0);
    assert_eq!(admissions(prompt(1), true), 0);
}

#[test]
fn a_claimed_held_run_keeps_its_number_of_deferrals() {
    let mut draft = draft(holding(ExecutionState::WaitingResources, Some(at(0))));
    let claimed = claim(&mut draft, prompt(1), continuation(), claimant()).expect("claimed");
    assert_eq!((claimed.run.setbacks.deferrals, claimed.run.attempt), (1, 1));
    assert_eq!(finish(draft).state.held, None);
}

fn run_record(transaction: &Transaction) -> &Run {
    let mut runs = all_of!(transaction.archived, Archived::Run);
    match (runs.next(), runs.next()) {
        (Some(run), None) => run,
        other => panic!("not exactly one run: {other:?}"),
    }
}

/// Outcome and waiting reason of the closure, then the execution state and the status.
type Ended = (&'static str, Option<WaitingReason>, &'static str, &'static str);

#[test]
fn a_completed_turn_processes_its_message_and_its_closure_determines_the_state() {
    use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};
    type Row = (&'static str, Ended, fn(&mut Records));
    const ENDED: Ended = ("completed", None, "completed", "awake_idle");
    const FOR_TASK: Ended = ("waiting", Some(AwaitingTaskResult), "waiting", "awaiting_task");
    let waiting = |reason| ("waiting", reason, "waiting", "asleep");
    let rows: [Row; 9] = [
        ("nothing open", ENDED, |_| {}),
        ("runnable work", ("continuable", None, "completed", "awake_idle"), |records| {
            records.works.push(work(1));
        }),
        ("an operator wait", waiting(Some(AwaitingOperatorInput)), |records| {
            records.waits.push(wait(2, WaitKind::Operator));
        }),
        ("an external wait", waiting(Some(AwaitingExternalChange)), |records| {
            records.waits.push(wait(2, WaitKind::External));
        }),
        ("a timer wait", waiting(Some(AwaitingTimer)), |records| {
            records.waits.push(wait(2, WaitKind::Timer));
        }),
        ("a wait for a running task", FOR_TASK, |records| {
            records.waits.push(wait(2, WaitKind::Task));
            records.tasks = vec![task(1, TaskStatus::Running)];
        }),
        ("a wait for a task that has ended", waiting(Some(AwaitingTaskResult)), |records| {
            records.waits.push(wait(2, WaitKind::Task));
            records.tasks = vec![task(1, TaskStatus::Completed), task(2, TaskStatus::Running)];
        }),
        ("a current item that waits for the system", waiting(None), |records| {
            records.state.focus = Some(work_id(1));
            records.works.push(work(1));
            records.waits.push(wait_on(2, WaitKind::System, 1));
        }),
        ("a timer without a wait, and a running task", ENDED, |records| {
            records.timers.push(timer(1, 1000));
            records.tasks.push(task(1, TaskStatus::Running));
        }),
    ];
    for (name, (outcome, reason, state, status), change) in rows {
        let mut records = running(&prompt(1));
        change(&mut records);
        let (settled, transaction) = settled(records, exited(0));
        assert_eq!((settled.terminal, &settled.reason), (Terminal::Completed, &None), "{name}");
        let closure = settled.closure.expect("a closure");
        assert_eq!((closure.outcome.name(), closure.waiting_reason), (outcome, reason), "{name}");
        assert_eq!(transaction.state.last_closure, Some(closure), "{name}");
        assert_eq!(path(&transaction.events), [format!("running -> {state}")], "{name}");
        assert_eq!(transaction.state.status.name(), status, "{name}");
        assert_eq!(transaction.state.current_run, None);
        assert_eq!(transaction.deletes, [Delete::Message(prompt(1).key())], "{name}");
        let ended = settlement(&transaction);
        assert_eq!((ended.status, ended.run_id), (MessageStatus::Processed, Some(run_id(1))));
        let mut events = vec![EventKind::MessageSettled, EventKind::StateTransition, EventKind::RunSettled];
        // A person is notified of an operator wait after the turn that has set the wait.
        events.extend((name == "an operator wait").then_some(EventKind::Attention));
        assert_eq!(kinds(&transaction.events), events);
    }
}

#[test]
fn a_completed_turn_is_counted_and_clears_earlier_failures() {
    let mut records = running(&prompt(1));
    records.state.runtime_error = Some("not started".to_owned());
    records.state.counters.reduced_since_turn = 4;
    records.state.retry = Some(retry(&prompt(1), at(0)));
    let (_, transaction) = settled(records, exited(0));
    let state = &transaction.state;
    assert_eq!((&state.runtime_error, &state.retry), (&None, &None));
    let counters = &state.counters;
    let turns = (counters.turns, counters.turns_failed);
    assert_eq!((turns, counters.reduced_since_turn, counters.messages_processed), ((1, 0), 0, 1));
    let expected = LastTurn {
        run_id: run_id(1),
        message_id: message_id(1),
        ended_at: at(-10),
        ..last_turn(Terminal::Completed)
    };
    assert_eq!(state.last_turn, Some(expected));
}

#[test]
fn the_record_of_a_run_has_its_end_usage_and_closure() {
    let message = Message { work_item_id: Some(work_id(3)), ..prompt(1) };
    let usage = Usage { input_tokens: Some(12), output_tokens: Some(5), cost_usd: Some(0.5), model: None };
    let end = TurnEnd {
        outcome: Ok(Outcome {
            brief: Some("done".to_owned()),
            usage: Some(usage.clone()),
            ..Outcome::default()
        }),
        ..exited(0)
    };
    let (settled, transaction) = settled(running(&message), end);
    let expected = Run {
        id: run_id(1),
        agent: agent(),
        message_id: message_id(1),
        work_item_id: Some(work_id(3)),
        attempt: 1,
        started_at: at(-1000),
        ended_at: at(-10),
        duration_ms: Some(1500),
        terminal: Terminal::Completed,
        exit: Exit::Code { code: 0 },
        reason: None,
        brief: Some("done".to_owned()),
        usage: Some(usage),
        notes: Vec::new(),
        stdout_bytes: Some(12),
        stderr_bytes: Some(34),
        continuation: continuation(),
        closure: settled.closure,
        extra: Default::default(),
    };
    assert_eq!(run_record(&transaction), &expected);
    let counters = &transaction.state.counters;
    assert_eq!((counters.input_tokens, counters.output_tokens, counters.cost_usd), (12, 5, 0.5));
    let briefs: Vec<&str> =
        all_of!(transaction.archived, Archived::Brief).map(|brief| brief.text.as_str()).collect();
    assert_eq!(briefs, ["done"]);
}

#[test]
fn the_brief_of_a_completed_turn_is_its_own_or_else_its_last_line() {
    let end = |code, own: Option<&str>, line: Option<&str>| TurnEnd {
        outcome: Ok(Outcome { brief: own.map(str::to_owned), ..Outcome::default() }),
        last_line: line.map(str::to_owned),
        ..exited(code)
    };
    let long = "é".repeat(3000);
    let cut = "é".repeat(2048);
    let rows = [
        (end(0, Some("own"), Some("line")), Some("own")),
        (end(0, None, Some("line")), Some("line")),
        (end(0, None, None), None),
        (end(0, Some("  "), Some("line")), None),
        (end(0, Some(&long), None), Some(cut.as_str())),
        (end(1, Some("own"), Some("line")), None),
        (end(75, Some("own"), Some("line")), None),
    ];
    for (end, brief) in rows {
        let (_, transaction) = settled(running(&prompt(1)), end.clone());
        assert_eq!(run_record(&transaction).brief.as_deref(), brief, "{end:?}");
        let last = transaction.state.last_turn.expect("a last turn");
        assert_eq!(last.brief.as_deref(), brief, "{end:?}");
    }
}

/// Returns ends of a turn that cost an attempt, with the terminal kind and the reason.
fn bad_ends() -> Vec<(TurnEnd, Terminal, &'static str)> {
    let said = |end: TurnEnd| TurnEnd { last_error_line: Some("no such branch".to_owned()), ..end };
    let printed = |end: TurnEnd| TurnEnd { last_line: Some("half of it".to_owned()), ..end };
    vec![
        (exited(1), Terminal::Failed, "exit status 1"),
        (said(exited(2)), Terminal::Failed, "exit status 2: no such branch"),
        (said(printed(exited(2))), Terminal::Failed, "exit status 2: no such branch"),
        (printed(exited(2)), Terminal::Failed, "exit status 2: half of it"),
        (TurnEnd { exit: Exit::Signal { signal: 11 }, ..exited(0) }, Terminal::Failed, "signal 11"),
        (
            TurnEnd { outcome: Err("outcome.json: $.brief".to_owned()), ..exited(75) },
            Terminal::Failed,
            "outcome.json: $.brief",
        ),
        (
            TurnEnd { exit: Exit::NotStarted { error: "no such file".to_owned() }, ..exited(0) },
            Terminal::Failed,
            "not started: no such file",
        ),
        (TurnEnd { timed_out: true, ..exited(0) }, Terminal::TimedOut, "turn.timeout was reached"),
    ]
}

#[test]
fn a_failed_turn_puts_its_message_back_at_the_next_attempt() {
    for (end, terminal, reason) in bad_ends() {
        let runtime_error = matches!(end.exit, Exit::NotStarted { .. }).then(|| "no such file".to_owned());
        let (settled, transaction) = settled(running(&prompt(1)), end);
        assert_eq!((settled.terminal, settled.reason.as_deref()), (terminal, Some(reason)));
        // Only a command that did not start is an error of the runtime.
        assert_eq!(transaction.state.runtime_error, runtime_error, "{reason}");
        assert_eq!(settled.closure.map(|closure| closure.outcome), Some(ClosureOutcome::Failed), "{reason}");
        assert_eq!(path(&transaction.events), ["running -> failed"], "{reason}");
        let state = &transaction.state;
        assert_eq!((state.status, &state.current_run), (Status::AwakeIdle, &None));
        assert_eq!(state.execution.reason.as_deref(), Some(reason));
        let expected = Retry { reason: reason.to_owned(), ..retry(&prompt(1), at(1000)) };
        assert_eq!(state.retry, Some(expected));
        assert_eq!(state.next_due_at, Some(at(1000)));
        assert_eq!((state.counters.turns, state.counters.turns_failed), (1, 1));

        let message = put_message(&transaction).expect("put back");
        assert_eq!((message.attempt, &message.continuation), (2, &Some(continuation())));
        let reason = reason.to_owned();
        let failure = FailedAttempt { attempt: 1, run_id: Some(run_id(1)), terminal, at: now(), reason };
        assert_eq!(message.failures, [failure]);
        assert!(ends_the_run_alone(&transaction));
        let record = run_record(&transaction);
        assert_eq!((record.terminal, &record.reason), (terminal, &settled.reason));
        let expected = [EventKind::StateTransition, EventKind::RunSettled];
        assert_eq!(kinds(&transaction.events), expected, "{terminal}");
    }
}

#[test]
fn the_pause_doubles_with_each_attempt_and_the_fifth_attempt_is_the_last() {
    for (attempt, delay) in [(1, 1000), (2, 2000), (3, 4000), (4, 8000)] {
        let (_, transaction) = settled(running(&Message { attempt, ..prompt(1) }), exited(1));
        let retry = transaction.state.retry.clone().expect("a retry");
        assert_eq!((retry.attempt, retry.not_before), (Some(attempt + 1), at(delay)));
        assert_eq!(put_message(&transaction).map(|message| message.attempt), Some(attempt + 1));
    }
    let (_, transaction) = settled(running(&Message { attempt: 5, ..prompt(1) }), exited(1));
    assert_eq!(put_message(&transaction), None);
    assert_eq!(transaction.state.counters.dead, 1);
}

#[test]
fn a_jittered_delay_uses_the_random_number_of_the_stamp() {
    let mut records = running(&prompt(1));
    records.policy.recovery.strategy = Strategy::Jittered;
    let mut draft = Draft::new(records, Stamp::new(now(), 7, 0.5));
    settle_run(&mut draft, exited(1));
    assert_eq!(finish(draft).state.retry.map(|retry| retry.not_before), Some(at(1050)));
}

#[test]
fn a_message_whose_last_attempt_failed_becomes_a_dead_letter_with_every_reason() {
    let message = Message { attempt: 3, failures: vec![failed_attempt(1), failed_attempt(2)], ..prompt(1) };
    for attempts in [3, 2] {
        let mut records = running(&message);
        records.policy.recovery.max_attempts = attempts;
        let (_, transaction) = settled(records, exited(1));
        let dead = archived_message(&transaction);
        let expected = Some("gave up after 3 attempts: exit status 1");
        assert_eq!(settled_as(&transaction), (MessageStatus::Aborted, expected, true));
        let reasons: Vec<(u32, &str)> =
            dead.failures.iter().map(|failure| (failure.attempt, failure.reason.as_str())).collect();
        assert_eq!(reasons, [(1, "too long"), (2, "too long"), (3, "exit status 1")]);
        assert_eq!(transaction.deletes, [Delete::Message(message.key())]);
        assert_eq!(transaction.state.counters.dead, 1);
        // A dead letter causes no retry delay, so the agent is free for the next message at once.
        assert_eq!(transaction.state.status, Status::AwakeIdle);
        let retry = transaction.state.retry.as_ref().map(|retry| (retry.attempt, retry.not_before));
        assert_eq!(retry, Some((None, now())));
    }
}

#[test]
fn on_exhausted_stop_stops_the_agent_like_any_stop() {
    let mut records = running(&Message { attempt: 5, ..prompt(1) });
    records.policy.recovery.on_exhausted = OnExhausted::Stop;
    records.state.pending_wake_hint = Some(hint(8));
    records.state.sleeping_until = Some(at(1));
    let (_, transaction) = settled(records, exited(1));
    let state = &transaction.state;
    assert_eq!((state.status, state.execution.state), (Status::Stopped, ExecutionState::Failed));
    assert_eq!((&state.current_run, &state.pending_wake_hint, state.sleeping_until), (&None, &None, None));
    assert_eq!((state.next_due_at, state.counters.dead), (None, 1));
    let applied = of_kind(&transaction.events, EventKind::ControlApplied).next().expect("one");
    assert_eq!((word(applied, "action"), word(applied, "next_status")), ("stop", "stopped"));
    assert_eq!(of_kind(&transaction.events, EventKind::WakeHintIgnored).count(), 1);
    assert!(settlement(&transaction).dead_letter);
}

#[test]
fn exit_status_75_defers_the_turn_and_its_attempt_does_not_count() {
    for (deferrals, delay) in [(0, 1000), (1, 2000), (4, 16_000)] {
        let mut records = running(&prompt(1));
        if let Some(run) = &mut records.state.current_run {
            run.setbacks.deferrals = deferrals;
        }
        let (settled, transaction) = settled(records, exited(75));
        assert_eq!(settled.terminal, Terminal::Deferred);
        assert_eq!(path(&transaction.events), ["running -> waiting_resources"]);
        let state = &transaction.state;
        assert_eq!((state.status, &state.current_run), (Status::AwakeIdle, &None));
        let held = state.held.as_ref().expect("held");
        assert_eq!((held.message_id, held.not_before), (message_id(1), Some(at(delay))));
        assert_eq!((held.setbacks.deferrals, &held.continuation), (deferrals + 1, &continuation()));
        assert_eq!((state.counters.turns, state.counters.turns_failed), (1, 0));
        // The message stays claimed, at the same attempt.
        assert_eq!(put_message(&transaction), None);
        assert!(ends_the_run_alone(&transaction));
        assert_eq!(state.retry, None);
    }
}

/// Returns a draft for an agent whose run is being stopped.
fn stopping(requeue: bool) -> Draft {
    let mut draft = draft(running(&prompt(1)));
    stop(&mut draft, secs(30), requeue, Some("enough".to_owned()), &OPERATOR).expect("stopped");
    shut_down(&mut draft, secs(30)).expect("an edge leads there");
    super::draft(draft.records)
}

#[test]
fn a_stopped_run_is_aborted_and_its_message_is_aborted_or_requeued() {
    // Without a known end of its processes, the record of the run has no exit status.
    let known = (Some(exited(143)), (Exit::Code { code: 143 }, Some(1500), Some(12)));
    let unknown = (None, (Exit::Unknown {}, None, None));
    for (end, recorded) in [known, unknown] {
        for (requeue, killed) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut draft = stopping(requeue);
            let settled = finish_stop(&mut draft, killed, end.as_ref()).expect("finished");
            let found = (settled.terminal, settled.reason.as_deref());
            assert_eq!(found, (Terminal::Aborted, Some("stopped: enough")));
            let transaction = finish(draft);
            let to = if killed { ExecutionState::Failed } else { ExecutionState::Completed };
            assert_eq!(path(&transaction.events), [format!("shutting_down -> {to}")]);
            let state = &transaction.state;
            assert_eq!((state.status, state.execution.state), (Status::Stopped, to));
            assert_eq!(state.execution.reason.as_deref(), killed.then_some("shutdown_timeout"));
            assert_eq!((&state.current_run, &state.retry), (&None, &None));
            let aborted = of_kind(&transaction.events, EventKind::CurrentRunAborted).next().expect("one");
            assert_eq!((&aborted["killed"], &aborted["requeued"]), (&json!(killed), &json!(requeue)));
            if requeue {
                assert!(ends_the_run_alone(&transaction));
                assert_eq!(of_kind(&transaction.events, EventKind::MessageRequeued).count(), 1);
            } else {
                let ended = settlement(&transaction);
                assert_eq!((ended.status, ended.dead_letter), (MessageStatus::Aborted, false));
                assert_eq!(ended.run_id, Some(run_id(1)));
            }
            let Run { terminal, exit, duration_ms, stdout_bytes, .. } = run_record(&transaction).clone();
            assert_eq!((terminal, (exit, duration_ms, stdout_bytes)), (Terminal::Aborted, recorded.clone()));
        }
    }
}

#[test]
fn the_settlement_of_a_run_that_is_being_stopped_finishes_the_stop() {
    let by_signal = |signal| TurnEnd { exit: Exit::Signal { signal }, ..exited(0) };
    let rows = [
        (exited(1), "completed"),
        (exited(75), "completed"),
        (TurnEnd { timed_out: true, ..exited(0) }, "completed"),
        (by_signal(15), "completed"),
        (by_signal(9), "failed"),
    ];
    for (end, state) in rows {
        let mut draft = stopping(false);
        assert_eq!(settle_run(&mut draft, end).terminal, Terminal::Aborted);
        let transaction = finish(draft);
        assert_eq!(path(&transaction.events), [format!("shutting_down -> {state}")]);
        assert_eq!(transaction.state.status, Status::Stopped);
        assert_eq!(settlement(&transaction).status, MessageStatus::Aborted);
    }
}

#[test]
fn a_stopped_turn_that_exits_with_status_0_within_the_grace_is_completed() {
    for (requeue, shuts_down) in [(false, true), (true, true), (true, false)] {
        let mut draft = stopping(requeue);
        if !shuts_down {
            draft.records.state.execution.state = ExecutionState::Running;
        }
        let outcome = Ok(Outcome { brief: Some("done".to_owned()), ..Outcome::default() });
        let settled = settle_run(&mut draft, TurnEnd { outcome, ..exited(0) });
        assert_eq!(settled.terminal, Terminal::Completed);
        let transaction = finish(draft);
        let state = &transaction.state;
        assert_eq!((state.status, state.execution.state), (Status::Stopped, ExecutionState::Completed));
        assert_eq!((&state.current_run, &state.held), (&None, &None));
        assert_eq!(settlement(&transaction).status, MessageStatus::Processed);
        assert_eq!(of_kind(&transaction.events, EventKind::CurrentRunAborted).count(), 0);
        assert_eq!(of_kind(&transaction.events, EventKind::MessageRequeued).count(), 0);
        assert_eq!(run_record(&transaction).brief.as_deref(), Some("done"));
        assert_eq!(path(&transaction.events).last().map(String::as_str), Some("shutting_down -> completed"));
    }
}

/// A turn that yields is not done, whatever its exit status.
#[test]
fn a_stopped_turn_that_has_yielded_is_aborted_and_keeps_its_checkpoint() {
    for requeue in [false, true] {
        let mut draft = stopping(requeue);
        give_way(&mut draft, run_id(1), true, None).expect("yielded");
        assert_eq!(settle_run(&mut draft, exited(0)).terminal, Terminal::Aborted);
        let saved = Checkpoint { run_id: run_id(1), number: 1 };
        let transaction = finish(draft);
        if requeue {
            let kept = put_message(&transaction).and_then(|message| message.checkpoint);
            assert_eq!(kept, Some(saved));
        } else {
            assert_eq!(archived_message(&transaction).checkpoint, Some(saved), "for `queue requeue`");
        }
        assert!(!transaction.deletes.contains(&Delete::Checkpoint(saved)));
    }
}

#[test]
fn a_turn_that_ends_before_its_shutdown_passes_through_both_states() {
    let mut draft = draft(running(&prompt(1)));
    stop(&mut draft, secs(30), false, None, &OPERATOR).expect("stopped");
    finish_stop(&mut draft, false, Some(&exited(0))).expect("finished");
    assert_eq!(path(&finish(draft).events), ["running -> shutting_down", "shutting_down -> completed"]);
}

#[test]
fn a_stop_without_a_run_can_not_be_finished() {
    let refusal = refused(records_in(Status::Stopped, ExecutionState::Completed), |draft| {
        finish_stop(draft, true, None)
    });
    assert_eq!(refusal.kind, "no_run");
}

#[test]
fn the_late_end_of_a_run_changes_only_the_output_in_its_record() {
    let previous = || {
        let mut draft = stopping(false);
        finish_stop(&mut draft, true, None).expect("finished");
        run_record(&finish(draft)).clone()
    };
    for mut records in [records_in(Status::Stopped, ExecutionState::Failed), running(&prompt(2))] {
        if let Some(run) = &mut records.state.current_run {
            run.run_id = run_id(2);
        }
        let mut draft = draft(records.clone());
        let settled =
            settle(&mut draft, run_id(1), exited(0), Some(previous()), &Default::default()).expect("settled");
        assert_eq!((settled.terminal, settled.closure), (Terminal::Aborted, None));
        let transaction = finish(draft);
        let expected = Run {
            exit: Exit::Code { code: 0 },
            duration_ms: Some(1500),
            stdout_bytes: Some(12),
            stderr_bytes: Some(34),
            ..previous()
        };
        assert_eq!(transaction.archived, [Archived::Run(Box::new(expected))]);
        assert_eq!(kinds(&transaction.events), [EventKind::RunSettled]);
        assert!(transaction.deletes.is_empty() && transaction.puts.is_empty());
        let state = State {
            revision: transaction.state.revision,
            counters: transaction.state.counters.clone(),
            next_due_at: transaction.state.next_due_at,
            ..records.state
        };
        assert_eq!(transaction.state, state);
    }
}

#[test]
fn without_a_current_run_and_its_record_neither_an_interruption_nor_a_late_end_changes_anything() {
    let mut draft = draft(records_in(Status::AwakeIdle, ExecutionState::Completed));
    interrupt(&mut draft, "its tick is gone").expect("no change");
    settle(&mut draft, run_id(1), exited(0), None, &Default::default()).expect("no change");
    assert!(draft.is_empty());
}

#[test]
fn the_message_of_an_interrupted_run_keeps_its_attempt() {
    let transaction = changed(running(&prompt(1)), |draft| interrupt(draft, "its tick is gone"));
    assert_eq!(kinds(&transaction.events), [EventKind::RunInterrupted, EventKind::StateTransition]);
    assert_eq!(path(&transaction.events), ["running -> failed"]);
    let state = &transaction.state;
    assert_eq!((state.status, &state.current_run), (Status::AwakeIdle, &None));
    assert_eq!((state.counters.turns, state.counters.turns_failed), (1, 1));
    let retry = state.retry.as_ref().map(|retry| (retry.attempt, retry.not_before));
    assert_eq!(retry, Some((Some(1), at(1000))));
    let message = put_message(&transaction).expect("put back");
    assert_eq!((message.attempt, message.failures.len(), message.setbacks.interruptions), (1, 0, 1));
    let record = run_record(&transaction);
    assert_eq!((record.terminal, &record.exit), (Terminal::Interrupted, &Exit::Unknown {}));
    assert_eq!(record.reason.as_deref(), Some("its tick is gone"));
    assert_eq!(record.closure.as_ref().map(|closure| closure.outcome), Some(ClosureOutcome::Failed));
}

#[test]
fn the_stop_of_an_interrupted_run_ends_as_failed() {
    for requeue in [false, true] {
        let mut draft = stopping(requeue);
        interrupt(&mut draft, "its tick is gone").expect("interrupted");
        let transaction = finish(draft);
        assert_eq!(path(&transaction.events), ["shutting_down -> failed"]);
        assert_eq!((transaction.state.status, &transaction.state.current_run), (Status::Stopped, &None));
        assert_eq!(run_record(&transaction).terminal, Terminal::Aborted);
    }
}

#[test]
fn a_run_without_its_message_is_settled() {
    for code in [0, 1, 75] {
        let mut records = running(&prompt(1));
        records.inbox.claimed = None;
        let (_, transaction) = settled(records, exited(code));
        assert_eq!(transaction.state.current_run, None);
        assert!(ends_the_run_alone(&transaction), "exit status {code}");
        assert_eq!(put_message(&transaction), None);
    }
}

#[test]
fn the_end_of_a_turn_does_not_change_its_work_item() {
    let mut records = running(&Message { work_item_id: Some(work_id(1)), ..prompt(1) });
    records.state.focus = Some(work_id(1));
    records.works.push(WorkItem { revision: 3, ..work(1) });
    for code in [0, 1, 75] {
        let mut draft = draft(records.clone());
        settle_run(&mut draft, exited(code));
        assert_eq!((&draft.records.works, draft.records.state.focus), (&records.works, Some(work_id(1))));
        assert!(!finish(draft).puts.iter().any(|put| matches!(put, Put::Work(_))));
    }
}
