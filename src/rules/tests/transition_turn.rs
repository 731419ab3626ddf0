//! Life of a run: claimed from every state, settled by every end, interrupted, stopped, and found
//! to be another process's.

use crate::model::recovery::Strategy;
use crate::rules::transition::trace::Settled;

use super::*;

fn resolving(number: u32) -> Continuation {
    Continuation { resolves: vec![wait_id(number)], matched_waiting_reason: true, ..continuation() }
}

#[test]
fn a_claim_leads_to_running_from_every_state_that_may_start_a_turn() {
    let rows: [(ExecutionState, &[&str]); 5] = [
        (
            ExecutionState::Completed,
            &["completed -> runnable", "runnable -> scheduled", "scheduled -> running"],
        ),
        (ExecutionState::Runnable, &["runnable -> scheduled", "scheduled -> running"]),
        (ExecutionState::Waiting, &["waiting -> running"]),
        (ExecutionState::WaitingResources, &["waiting_resources -> running"]),
        (ExecutionState::Suspended, &["suspended -> resumed", "resumed -> running"]),
    ];
    for (state, steps) in rows {
        for status in [Status::AwakeIdle, Status::Asleep] {
            let mut draft = draft(records_in(status, state));
            claim(&mut draft, prompt(1), continuation(), claimant()).expect("claimed");
            let transaction = finish(draft);
            assert_eq!(path(&transaction.events), steps, "{state}");
            assert_eq!(transaction.state.status, Status::AwakeRunning);
            assert_eq!(transaction.state.execution.state, ExecutionState::Running);
            assert_eq!(transaction.state.execution.task_id, Some(message_id(1)));
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
fn a_claim_records_the_admission_then_the_wait_that_it_binds_then_the_way_to_running() {
    let mut records = records_in(Status::Asleep, ExecutionState::Waiting);
    records.waits = vec![wait(1, WaitKind::Operator), wait(2, WaitKind::External)];
    let mut draft = draft(records);
    claim(&mut draft, prompt(1), resolving(1), claimant()).expect("claimed");
    let bound = Wait { resolved_by: Some(message_id(1)), ..wait(1, WaitKind::Operator) };
    assert_eq!(draft.records.waits, [bound.clone(), wait(2, WaitKind::External)], "no other wait is touched");
    let transaction = finish(draft);
    assert_eq!(
        kinds(&transaction.events),
        [EventKind::MessageAdmitted, EventKind::WaitTransition, EventKind::StateTransition]
    );
    let data = &transaction.events[1].data;
    assert_eq!(
        ["from", "to", "resolved_by"].map(|field| word(data, field)),
        ["active", "active", &message_id(1).to_string()]
    );
    assert_eq!(transaction.puts, [Put::Wait(Box::new(bound))]);
    assert_eq!((transaction.deletes, transaction.archived), (Vec::new(), Vec::new()), "nothing is over yet");
}

#[test]
fn a_claim_that_resolves_nothing_leaves_every_wait() {
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
fn the_run_says_who_runs_what_for_whom_and_until_when() {
    let message = Message { hops: 3, work_item_id: Some(work_id(1)), attempt: 2, ..prompt(1) };
    for (timeout, lease) in [(Some(secs(100)), 160_000), (None, 86_460_000)] {
        let mut records = records_in(Status::AwakeIdle, ExecutionState::Runnable);
        records.policy.turn.timeout = Limit(timeout);
        let mut draft = draft(records);
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
fn an_admission_is_recorded_at_the_first_attempt_alone() {
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
fn a_held_run_goes_on_with_its_count_of_deferrals() {
    let mut records = records_in(Status::AwakeIdle, ExecutionState::WaitingResources);
    records.state.held = Some(held(&prompt(1), Some(at(0))));
    let mut draft = draft(records);
    let claimed = claim(&mut draft, prompt(1), continuation(), claimant()).expect("claimed");
    assert_eq!((claimed.run.setbacks.deferrals, claimed.run.attempt), (1, 1));
    assert_eq!(finish(draft).state.held, None);
}

fn settled(records: Records, end: TurnEnd) -> (Settled, Transaction) {
    let mut draft = draft(records);
    let settled = settle(&mut draft, run_id(1), end, None, &Default::default()).expect("settled");
    (settled, finish(draft))
}

fn run_record(transaction: &Transaction) -> Run {
    let mut runs = all_of!(transaction.archived, Archived::Run).cloned();
    let run = runs.next().expect("a run record");
    assert_eq!(runs.next(), None);
    run
}

fn put_message(transaction: &Transaction) -> Option<Message> {
    all_of!(transaction.puts, Put::Message).next().cloned()
}

/// Outcome and waiting reason of a closure, and the execution state and the status after it.
type Ended = (&'static str, Option<WaitingReason>, &'static str, &'static str);

fn waits_for(records: &mut Records, kind: WaitKind) {
    records.waits.push(wait(2, kind));
}

#[test]
fn a_turn_that_completes_processes_its_message_and_follows_its_closure() {
    type Row = (&'static str, fn(&mut Records), Ended);
    const ENDED: Ended = ("completed", None, "completed", "awake_idle");
    let waiting = |reason| ("waiting", reason, "waiting", "asleep");
    use WaitingReason::{AwaitingExternalChange, AwaitingOperatorInput, AwaitingTaskResult, AwaitingTimer};
    let rows: [Row; 9] = [
        ("nothing open", |_| {}, ENDED),
        (
            "runnable work",
            |records| records.works.push(work(1)),
            ("continuable", None, "completed", "awake_idle"),
        ),
        (
            "an operator wait",
            |records| waits_for(records, WaitKind::Operator),
            waiting(Some(AwaitingOperatorInput)),
        ),
        (
            "an external wait",
            |records| waits_for(records, WaitKind::External),
            waiting(Some(AwaitingExternalChange)),
        ),
        ("a timer wait", |records| waits_for(records, WaitKind::Timer), waiting(Some(AwaitingTimer))),
        (
            "a wait for a task that runs",
            |records| {
                waits_for(records, WaitKind::Task);
                records.tasks = vec![task(1, TaskStatus::Running)];
            },
            ("waiting", Some(AwaitingTaskResult), "waiting", "awaiting_task"),
        ),
        (
            "a wait for a task that has ended",
            |records| {
                waits_for(records, WaitKind::Task);
                records.tasks = vec![task(1, TaskStatus::Completed), task(2, TaskStatus::Running)];
            },
            waiting(Some(AwaitingTaskResult)),
        ),
        (
            "a current item that waits for the system",
            |records| {
                records.state.focus = Some(work_id(1));
                records.works.push(work(1));
                records.waits.push(wait_on(2, WaitKind::System, 1));
            },
            waiting(None),
        ),
        (
            "a bare timer and a running task",
            |records| {
                records.timers.push(timer(1, 1000));
                records.tasks.push(task(1, TaskStatus::Running));
            },
            ENDED,
        ),
    ];
    for (name, change, (outcome, reason, state, status)) in rows {
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
        let message = archived_message(&transaction).settlement.clone().expect("settled");
        assert_eq!((message.status, message.run_id), (MessageStatus::Processed, Some(run_id(1))));
        let mut events = vec![EventKind::MessageSettled, EventKind::StateTransition, EventKind::RunSettled];
        // A person is told of a question when its turn has ended.
        events.extend((name == "an operator wait").then_some(EventKind::Attention));
        assert_eq!(kinds(&transaction.events), events);
    }
}

#[test]
fn a_completed_turn_is_counted_and_clears_what_came_before() {
    let mut records = running(&prompt(1));
    records.state.runtime_error = Some("not started".to_owned());
    records.state.counters.reduced_since_turn = 4;
    records.state.retry = Some(retry(&prompt(1), at(0)));
    let (_, transaction) = settled(records, exited(0));
    let state = &transaction.state;
    assert_eq!((&state.runtime_error, &state.retry), (&None, &None));
    let counters = &state.counters;
    assert_eq!(
        (counters.turns, counters.turns_failed, counters.reduced_since_turn, counters.messages_processed),
        (1, 0, 0, 1)
    );
    let last = state.last_turn.clone().expect("a last turn");
    assert_eq!((last.run_id, last.message_id, last.attempt), (run_id(1), message_id(1), 1));
    assert_eq!((last.terminal, last.ended_at), (Terminal::Completed, at(-10)));
}

#[test]
fn the_record_of_a_run_says_how_it_went() {
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
    assert_eq!(run_record(&transaction), expected);
    let counters = &transaction.state.counters;
    assert_eq!((counters.input_tokens, counters.output_tokens, counters.cost_usd), (12, 5, 0.5));
    let briefs: Vec<&str> =
        all_of!(transaction.archived, Archived::Brief).map(|brief| brief.text.as_str()).collect();
    assert_eq!(briefs, ["done"]);
}

#[test]
fn the_brief_is_the_turns_own_else_its_last_line_and_only_of_a_turn_that_completed() {
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

/// Returns every end that costs an attempt, the terminal kind and the reason.
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
fn a_turn_that_fails_puts_its_message_back_as_the_next_attempt() {
    for (end, terminal, reason) in bad_ends() {
        let (settled, transaction) = settled(running(&prompt(1)), end);
        assert_eq!((settled.terminal, settled.reason.as_deref()), (terminal, Some(reason)));
        assert_eq!(settled.closure.map(|closure| closure.outcome), Some(ClosureOutcome::Failed), "{reason}");
        assert_eq!(path(&transaction.events), ["running -> failed"], "{reason}");
        let state = &transaction.state;
        assert_eq!((state.status, &state.current_run), (Status::AwakeIdle, &None));
        assert_eq!(state.execution.reason.as_deref(), Some(reason));
        let retry = state.retry.clone().expect("a retry");
        assert_eq!((retry.message_id, retry.attempt), (Some(message_id(1)), Some(2)));
        assert_eq!((retry.not_before, retry.reason.as_str()), (at(1000), reason));
        assert_eq!(state.next_due_at, Some(at(1000)));
        assert_eq!((state.counters.turns, state.counters.turns_failed), (1, 1));

        let message = put_message(&transaction).expect("put back");
        assert_eq!((message.attempt, &message.continuation), (2, &Some(continuation())));
        let [failure] = &message.failures[..] else { panic!("{:?}", message.failures) };
        assert_eq!((failure.attempt, failure.run_id, failure.terminal), (1, Some(run_id(1)), terminal));
        assert_eq!((failure.at, failure.reason.as_str()), (now(), reason));
        assert!(ends_the_run_alone(&transaction));
        let record = run_record(&transaction);
        assert_eq!((record.terminal, record.reason.as_deref()), (terminal, Some(reason)));
        assert_eq!(
            kinds(&transaction.events),
            [EventKind::StateTransition, EventKind::RunSettled],
            "{reason}"
        );
    }
}

#[test]
fn only_a_command_that_never_started_is_an_error_of_the_runtime() {
    for (end, _, reason) in bad_ends() {
        let expected = matches!(end.exit, Exit::NotStarted { .. }).then(|| "no such file".to_owned());
        let (_, transaction) = settled(running(&prompt(1)), end);
        assert_eq!(transaction.state.runtime_error, expected, "{reason}");
    }
}

#[test]
fn each_attempt_waits_twice_as_long_and_the_fifth_is_the_last() {
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
fn the_chance_of_the_moment_goes_into_a_jittered_delay() {
    let mut records = running(&prompt(1));
    records.policy.recovery.strategy = Strategy::Jittered;
    let mut draft = Draft::new(records, Stamp::new(now(), 7, 0.5));
    settle(&mut draft, run_id(1), exited(1), None, &Default::default()).expect("settled");
    assert_eq!(finish(draft).state.retry.map(|retry| retry.not_before), Some(at(1050)));
}

#[test]
fn a_message_whose_attempts_are_used_up_is_parked_as_a_dead_letter_with_every_reason() {
    let failure = |attempt| crate::model::setbacks::FailedAttempt {
        attempt,
        run_id: Some(run_id(attempt + 10)),
        terminal: Terminal::TimedOut,
        at: at(-5000),
        reason: "too long".to_owned(),
    };
    let message = Message { attempt: 3, failures: vec![failure(1), failure(2)], ..prompt(1) };
    for attempts in [3, 2] {
        let mut records = running(&message);
        records.policy.recovery.max_attempts = attempts;
        let (_, transaction) = settled(records, exited(1));
        let dead = archived_message(&transaction);
        let settlement = dead.settlement.clone().expect("settled");
        assert_eq!((settlement.status, settlement.dead_letter), (MessageStatus::Aborted, true));
        assert_eq!(settlement.reason.as_deref(), Some("gave up after 3 attempts: exit status 1"));
        let reasons: Vec<(u32, &str)> =
            dead.failures.iter().map(|failure| (failure.attempt, failure.reason.as_str())).collect();
        assert_eq!(reasons, [(1, "too long"), (2, "too long"), (3, "exit status 1")]);
        assert_eq!(transaction.deletes, [Delete::Message(message.key())]);
        assert_eq!(transaction.state.counters.dead, 1);
        // The agent continues with the next message at once.
        assert_eq!(transaction.state.status, Status::AwakeIdle);
        let retry = transaction.state.retry.clone().expect("a retry");
        assert_eq!((retry.attempt, retry.not_before), (None, now()));
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
    assert_eq!(archived_message(&transaction).settlement.as_ref().map(|ended| ended.dead_letter), Some(true));
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
        let held = state.held.clone().expect("held");
        assert_eq!((held.message_id, held.not_before), (message_id(1), Some(at(delay))));
        assert_eq!((held.setbacks.deferrals, held.continuation), (deferrals + 1, continuation()));
        assert_eq!((state.counters.turns, state.counters.turns_failed), (1, 0));
        // The message stays claimed, at the same attempt.
        assert_eq!(put_message(&transaction), None);
        assert!(ends_the_run_alone(&transaction));
        assert_eq!(state.retry, None);
    }
}

#[test]
fn a_deferred_turn_goes_on_where_it_was_once_its_time_has_come() {
    let mut draft = draft(running(&prompt(1)));
    settle(&mut draft, run_id(1), exited(75), None, &Default::default()).expect("settled");
    let records = committed(draft);
    let early = decide(&project(&records, at(999)));
    assert_eq!(early.kind().name(), "wait_for_resources");
    let due = decide(&project(&records, at(1000)));
    assert_eq!((due.kind().name(), due.report.reason.as_str()), ("start_model_turn", "resources_available"));
}

fn stopping(requeue: bool) -> Draft {
    let mut draft = draft(running(&prompt(1)));
    stop(&mut draft, secs(30), requeue, Some("enough".to_owned()), &OPERATOR).expect("stopped");
    shut_down(&mut draft, secs(30)).expect("an edge leads there");
    let records = Records { state: draft.records.state.clone(), ..draft.records.clone() };
    super::draft(records)
}

#[test]
fn a_stopped_run_is_aborted_and_its_message_with_it_or_requeued() {
    for requeue in [false, true] {
        for killed in [false, true] {
            let mut draft = stopping(requeue);
            let settled = finish_stop(&mut draft, killed, Some(&exited(143))).expect("finished");
            assert_eq!(
                (settled.terminal, settled.reason.as_deref()),
                (Terminal::Aborted, Some("stopped: enough"))
            );
            let transaction = finish(draft);
            let (step, state) = match killed {
                true => ("shutting_down -> failed", ExecutionState::Failed),
                false => ("shutting_down -> completed", ExecutionState::Completed),
            };
            assert_eq!(path(&transaction.events), [step]);
            assert_eq!(transaction.state.execution.state, state);
            let reason = transaction.state.execution.reason.as_deref();
            assert_eq!(reason, killed.then_some("shutdown_timeout"));
            assert_eq!(transaction.state.status, Status::Stopped);
            assert_eq!((&transaction.state.current_run, &transaction.state.retry), (&None, &None));
            let aborted = of_kind(&transaction.events, EventKind::CurrentRunAborted).next().expect("one");
            assert_eq!(
                (aborted["killed"].as_bool(), aborted["requeued"].as_bool()),
                (Some(killed), Some(requeue))
            );
            if requeue {
                assert!(ends_the_run_alone(&transaction));
                assert_eq!(of_kind(&transaction.events, EventKind::MessageRequeued).count(), 1);
            } else {
                let ended = archived_message(&transaction).settlement.clone().expect("settled");
                assert_eq!((ended.status, ended.dead_letter), (MessageStatus::Aborted, false));
                assert_eq!(ended.run_id, Some(run_id(1)));
            }
            let record = run_record(&transaction);
            assert_eq!((record.terminal, record.exit), (Terminal::Aborted, Exit::Code { code: 143 }));
            assert_eq!(record.stdout_bytes, Some(12));
        }
    }
}

#[test]
fn a_stopped_run_whose_end_nobody_saw_says_so() {
    let mut draft = stopping(false);
    finish_stop(&mut draft, true, None).expect("finished");
    let record = run_record(&finish(draft));
    assert_eq!((record.exit, record.duration_ms, record.stdout_bytes), (Exit::Unknown, None, None));
}

#[test]
fn the_settlement_of_a_run_that_is_being_stopped_finishes_the_stop() {
    let rows = [
        (exited(1), "shutting_down -> completed"),
        (exited(75), "shutting_down -> completed"),
        (TurnEnd { timed_out: true, ..exited(0) }, "shutting_down -> completed"),
        (TurnEnd { exit: Exit::Signal { signal: 15 }, ..exited(0) }, "shutting_down -> completed"),
        (TurnEnd { exit: Exit::Signal { signal: 9 }, ..exited(0) }, "shutting_down -> failed"),
    ];
    for (end, step) in rows {
        let mut draft = stopping(false);
        let settled = settle(&mut draft, run_id(1), end, None, &Default::default()).expect("settled");
        assert_eq!(settled.terminal, Terminal::Aborted);
        let transaction = finish(draft);
        assert_eq!(path(&transaction.events), [step]);
        assert_eq!(transaction.state.status, Status::Stopped);
        assert_eq!(
            archived_message(&transaction).settlement.as_ref().map(|ended| ended.status),
            Some(MessageStatus::Aborted)
        );
    }
}

/// A completed turn is not aborted and does not run again.
#[test]
fn a_turn_that_has_done_its_work_within_the_grace_is_completed() {
    for (requeue, shuts_down) in [(false, true), (true, true), (true, false)] {
        let mut draft = stopping(requeue);
        if !shuts_down {
            draft.records.state.execution.state = ExecutionState::Running;
        }
        let mut end = exited(0);
        end.outcome = Ok(Outcome { brief: Some("done".to_owned()), ..Outcome::default() });
        let settled = settle(&mut draft, run_id(1), end, None, &Default::default()).expect("settled");
        assert_eq!(settled.terminal, Terminal::Completed);
        let transaction = finish(draft);
        let state = &transaction.state;
        assert_eq!((state.status, state.execution.state), (Status::Stopped, ExecutionState::Completed));
        assert_eq!((&state.current_run, &state.held), (&None, &None));
        let ended = archived_message(&transaction).settlement.clone().expect("settled");
        assert_eq!(ended.status, MessageStatus::Processed);
        assert_eq!(of_kind(&transaction.events, EventKind::CurrentRunAborted).count(), 0);
        assert_eq!(of_kind(&transaction.events, EventKind::MessageRequeued).count(), 0);
        assert_eq!(run_record(&transaction).brief.as_deref(), Some("done"));
        assert_eq!(path(&transaction.events).last().map(String::as_str), Some("shutting_down -> completed"));
    }
}

/// A turn that yielded has itself declared that it is not done, whatever its exit status.
#[test]
fn a_turn_that_has_given_way_is_not_completed_by_a_stop() {
    for requeue in [false, true] {
        let mut draft = stopping(requeue);
        give_way(&mut draft, run_id(1), true, None).expect("heard");
        let settled = settle(&mut draft, run_id(1), exited(0), None, &Default::default()).expect("settled");
        assert_eq!(settled.terminal, Terminal::Aborted);
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
fn a_turn_that_ends_before_it_is_shut_down_takes_every_step_at_once() {
    let mut draft = draft(running(&prompt(1)));
    stop(&mut draft, secs(30), false, None, &OPERATOR).expect("stopped");
    finish_stop(&mut draft, false, Some(&exited(0))).expect("finished");
    assert_eq!(path(&finish(draft).events), ["running -> shutting_down", "shutting_down -> completed"]);
}

#[test]
fn there_is_no_stop_to_finish_without_a_run() {
    let mut draft = draft(records_in(Status::Stopped, ExecutionState::Completed));
    assert_eq!(finish_stop(&mut draft, true, None).expect_err("refused").kind, "no_run");
    assert!(draft.is_empty());
}

#[test]
fn a_run_that_is_no_longer_current_has_its_output_recorded_and_nothing_else() {
    let previous = || {
        let mut draft = stopping(false);
        finish_stop(&mut draft, true, None).expect("finished");
        run_record(&finish(draft))
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
fn a_run_that_is_no_longer_current_and_has_no_record_changes_nothing() {
    let mut draft = draft(records_in(Status::AwakeIdle, ExecutionState::Completed));
    settle(&mut draft, run_id(1), exited(0), None, &Default::default()).expect("settled");
    assert!(draft.is_empty());
}

#[test]
fn an_interrupted_run_leaves_its_message_at_the_same_attempt() {
    let mut draft = draft(running(&prompt(1)));
    interrupt(&mut draft, "its tick is gone").expect("interrupted");
    let transaction = finish(draft);
    assert_eq!(kinds(&transaction.events), [EventKind::RunInterrupted, EventKind::StateTransition]);
    assert_eq!(path(&transaction.events), ["running -> failed"]);
    let state = &transaction.state;
    assert_eq!((state.status, &state.current_run), (Status::AwakeIdle, &None));
    assert_eq!((state.counters.turns, state.counters.turns_failed), (1, 1));
    assert_eq!(
        state.retry.as_ref().map(|retry| (retry.attempt, retry.not_before)),
        Some((Some(1), at(1000)))
    );
    let message = put_message(&transaction).expect("put back");
    assert_eq!((message.attempt, message.failures.len(), message.setbacks.interruptions), (1, 0, 1));
    let record = run_record(&transaction);
    assert_eq!((record.terminal, record.exit), (Terminal::Interrupted, Exit::Unknown));
    assert_eq!(record.reason.as_deref(), Some("its tick is gone"));
    assert_eq!(record.closure.map(|closure| closure.outcome), Some(ClosureOutcome::Failed));
}

#[test]
fn an_interrupted_stop_is_finished_as_a_kill() {
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
fn without_a_run_there_is_nothing_to_interrupt() {
    let mut draft = draft(records_in(Status::AwakeIdle, ExecutionState::Completed));
    interrupt(&mut draft, "its tick is gone").expect("fine");
    assert!(draft.is_empty());
}

#[test]
fn a_run_whose_message_is_gone_still_settles() {
    for code in [0, 1, 75] {
        let mut records = running(&prompt(1));
        records.inbox.claimed = None;
        records.inbox.head = None;
        let (_, transaction) = settled(records, exited(code));
        assert_eq!(transaction.state.current_run, None);
        assert!(ends_the_run_alone(&transaction), "exit status {code}");
        assert_eq!(put_message(&transaction), None);
    }
}

#[test]
fn a_turn_does_not_change_its_work_item_by_ending() {
    let mut records = running(&Message { work_item_id: Some(work_id(1)), ..prompt(1) });
    records.state.focus = Some(work_id(1));
    records.works.push(WorkItem { revision: 3, ..work(1) });
    for code in [0, 1, 75] {
        let mut draft = draft(records.clone());
        settle(&mut draft, run_id(1), exited(code), None, &Default::default()).expect("settled");
        assert_eq!((&draft.records.works, draft.records.state.focus), (&records.works, Some(work_id(1))));
        assert!(!finish(draft).puts.iter().any(|put| matches!(put, Put::Work(_))));
    }
}
