//! Tests of the facts on which a decision depends, and which follow from the records.

use crate::rules::closure::ClosureFacts;
use crate::rules::projection::{Backoff, Gate, HeldFact, PendingHint, closure_facts};

use super::*;

#[test]
fn the_gate_and_the_runtime_posture_follow_the_status_alone() {
    use RuntimePosture::{Awake, Sleeping};
    let rows = [
        (Status::Booting, ExecutionState::Initializing, Gate::NotStarted, false, Awake),
        (Status::AwakeIdle, ExecutionState::Runnable, Gate::Open, false, Awake),
        (Status::AwakeRunning, ExecutionState::Running, Gate::Open, false, Awake),
        (Status::AwaitingTask, ExecutionState::Waiting, Gate::Open, true, Sleeping),
        (Status::Asleep, ExecutionState::Completed, Gate::Open, true, Sleeping),
        (Status::Stopped, ExecutionState::Completed, Gate::Stopped, false, Sleeping),
    ];
    assert_eq!(rows.map(|(status, ..)| status).as_slice(), Status::ALL);
    for (status, execution, gate, asleep, runtime_posture) in rows {
        let records = records_in(status, execution);
        let facts = project(&records, now());
        assert_eq!((facts.gate, facts.asleep), (gate, asleep), "{status}");
        assert_eq!(closure_facts(&records).runtime_posture, runtime_posture, "{status}");
    }
}

#[test]
fn a_run_is_live_while_it_is_current_or_its_lease_is_held() {
    let run = Some(current_run(&prompt(1)));
    let rows = [
        (None, LeaseState::Free, None),
        (None, LeaseState::Held, Some(None)),
        (run.clone(), LeaseState::Free, Some(Some(run_id(1)))),
        (run, LeaseState::Held, Some(Some(run_id(1)))),
    ];
    for (current_run, lease, live) in rows {
        let records = with(|records| (records.state.current_run, records.lease) = (current_run, lease));
        assert_eq!(project(&records, now()).live_run, live, "{lease:?}");
    }
}

fn failed(retry: Option<Retry>) -> Records {
    let mut records = records_in(Status::AwakeIdle, ExecutionState::Failed);
    records.state.retry = retry;
    records
}

#[test]
fn a_backoff_is_over_exactly_at_its_end_and_at_once_after_a_stop() {
    for (not_before, is_over) in [(at(1), false), (at(0), true), (at(-1), true)] {
        let expected = Backoff { until: not_before, is_over, cause: RecoveryCause::Retry };
        let records = failed(Some(retry(&prompt(1), not_before)));
        assert_eq!(project(&records, now()).backoff, Some(expected));
    }
    let expected = Backoff { until: now(), is_over: true, cause: RecoveryCause::AfterStop };
    assert_eq!(project(&failed(None), now()).backoff, Some(expected));
}

#[test]
fn only_a_failed_execution_has_a_backoff_and_an_unfinished_recovery_continues_at_once() {
    for state in ExecutionState::ALL {
        let mut records = records_in(Status::Stopped, *state);
        records.state.retry = Some(retry(&prompt(1), at(1)));
        let found = project(&records, now()).backoff.map(|backoff| backoff.is_over);
        let expected = match state {
            ExecutionState::Failed => Some(false),
            ExecutionState::Recovering => Some(true),
            _ => None,
        };
        assert_eq!(found, expected, "{state}");
    }
}

#[test]
fn an_operators_interject_message_ends_a_backoff_early() {
    let interject = Message { priority: Priority::Interject, ..prompt(2) };
    let rows = [
        (interject.clone(), true),
        // This message has itself failed before, so it does not end the backoff.
        (Message { attempt: 2, ..interject.clone() }, false),
        // The message that failed does not end its own backoff.
        (Message { id: message_id(1), attempt: 2, ..interject.clone() }, false),
        (Message { id: message_id(1), ..interject.clone() }, false),
        (Message { priority: Priority::Next, ..prompt(2) }, false),
        (Message { priority: Priority::Interject, ..message(2, MessageKind::WebhookEvent) }, false),
    ];
    for (head, is_over) in rows {
        let mut records = failed(Some(retry(&prompt(1), at(60_000))));
        records.state.execution.task_id = Some(message_id(1));
        records.inbox.head = Some(head.clone());
        let found = project(&records, now()).backoff.map(|backoff| backoff.is_over);
        assert_eq!(found, Some(is_over), "{head:?}");
        // Without a failed message, as after a failed recovery, no message ends the backoff.
        records.state.execution.task_id = None;
        let found = project(&records, now()).backoff.map(|backoff| backoff.is_over);
        assert_eq!(found, Some(false), "{head:?}");
    }
}

#[test]
fn a_held_run_may_resume_exactly_at_its_time_and_never_by_itself_without_a_time() {
    let rows = [(Some(at(1)), false), (Some(at(0)), true), (Some(at(-1)), true), (None, false)];
    let states = [
        (ExecutionState::Suspended, ResumeCause::Suspended),
        (ExecutionState::WaitingResources, ResumeCause::ResourcesAvailable),
    ];
    for (state, cause) in states {
        for (not_before, may_go_on) in rows {
            let records = holding(state, not_before);
            let run = records.state.held.clone().expect("a held run");
            let expected = HeldFact { run, about: MessageSummary::default(), may_go_on, cause };
            let found = project(&records, now()).held;
            assert_eq!(found, Some(expected), "{state} until {not_before:?}");
        }
    }
}

#[test]
fn only_a_suspended_run_or_one_without_resources_is_held() {
    for state in ExecutionState::ALL {
        let mut records = records_in(Status::Stopped, *state);
        records.state.held = Some(held(&prompt(1), None));
        let expected = matches!(state, ExecutionState::Suspended | ExecutionState::WaitingResources);
        assert_eq!(project(&records, now()).held.is_some(), expected, "{state}");
        records.state.held = None;
        assert_eq!(project(&records, now()).held, None, "{state}");
    }
}

#[test]
fn the_continuation_of_a_queued_message_uses_the_closure_of_the_present_records() {
    // After the last turn the agent waited. Then the wait ended, and an item became runnable.
    let mut records = records();
    records.state.last_turn = Some(last_turn(Terminal::Completed));
    records.state.last_closure =
        Some(closure(ClosureOutcome::Waiting, Some(WaitingReason::AwaitingExternalChange), Some(wait_id(1))));
    records.inbox.head = Some(message(1, MessageKind::WebhookEvent));
    records.works.push(work(1));
    let facts = project(&records, now());
    assert_eq!(facts.prior_closure.outcome, ClosureOutcome::Continuable);
    let found = facts.message.and_then(|message| message.continuation).expect("a trigger");
    assert_eq!(found.class, ContinuationClass::LocalContinuation);
    assert_eq!(found.prior_closure_outcome, ClosureOutcome::Continuable);
}

#[test]
fn a_retry_keeps_the_continuation_that_its_first_attempt_found() {
    let kept = liveness();
    let records = queued(Message { attempt: 2, continuation: Some(kept.clone()), ..prompt(1) });
    let found = project(&records, now()).message.expect("a message");
    assert_eq!((found.id, found.kind), (message_id(1), MessageKind::OperatorPrompt));
    assert_eq!(found.continuation, Some(kept));
}

#[test]
fn a_message_that_is_no_trigger_has_no_continuation() {
    for kind in [MessageKind::Control, MessageKind::TaskStatus] {
        let found = project(&queued(message(1, kind)), now()).message.expect("a message");
        assert_eq!((found.kind, found.continuation), (kind, None));
    }
}

#[test]
fn the_key_of_a_hint_is_its_scope_and_id_and_a_hint_is_seen_if_it_became_the_last_tick() {
    let key = format!("wake_hint:source:cron:{}", message_id(5));
    let other = format!("wake_hint:source:cron:{}", message_id(4));
    for (last, seen) in [(None, false), (Some(other), false), (Some(key.clone()), true)] {
        let mut records = records();
        records.state.pending_wake_hint = Some(hint(5));
        records.state.last_wake_key = last.clone();
        let expected = PendingHint { key: key.clone(), seen };
        assert_eq!(project(&records, now()).hint, Some(expected), "{last:?}");
    }
}

#[test]
fn the_scope_of_a_hint_is_its_wait_else_its_trigger_else_its_resource_else_its_source() {
    let by_source = hint(5);
    let by_resource = WakeHint { resource: Some("mail".to_owned()), ..hint(5) };
    let by_trigger = WakeHint { trigger_id: Some(trigger_id(3)), ..by_resource.clone() };
    let by_wait = WakeHint { wait_id: Some(wait_id(2)), ..by_trigger.clone() };
    let rows = [
        (by_source, "source:cron".to_owned()),
        (by_resource, "resource:mail".to_owned()),
        (by_trigger, format!("trigger:{}", trigger_id(3))),
        (by_wait, format!("wait:{}", wait_id(2))),
    ];
    for (hint, scope) in rows {
        assert_eq!(hint.scope(), scope);
        assert_eq!(hint.tick_key(), format!("wake_hint:{scope}:{}", message_id(5)));
    }
}

fn fact(number: u32, state: SchedulingState) -> WorkFact {
    WorkFact { id: work_id(number), revision: 1, state, ticked: false, wait_id: None, task_id: None }
}

#[test]
fn the_focus_selects_the_current_item_and_queued_items_keep_their_order() {
    let mut records = records();
    records.works = vec![work(1), work(2), work(3)];
    let runnable = SchedulingState::Runnable;
    let facts = project(&records, now());
    assert_eq!((facts.current, facts.queued.len()), (None, 3));

    records.state.focus = Some(work_id(2));
    let facts = project(&records, now());
    assert_eq!(facts.current, Some(fact(2, runnable)));
    assert_eq!(facts.queued, [fact(1, runnable), fact(3, runnable)]);

    records.state.focus = Some(work_id(9));
    assert_eq!(project(&records, now()).current, None);
}

#[test]
fn an_item_has_had_its_tick_until_its_revision_changes_or_a_hint_wakes_the_agent() {
    let rows = [
        (None, false),
        (Some(Ticked { revision: 4, wakes: 2 }), true),
        (Some(Ticked { revision: 3, wakes: 2 }), false),
        (Some(Ticked { revision: 4, wakes: 1 }), false),
    ];
    for (ticked, expected) in rows {
        let mut records = records();
        records.state.counters.wakes = 2;
        records.works.push(WorkItem { revision: 4, ticked, ..work(1) });
        let expected = WorkFact { revision: 4, ticked: expected, ..fact(1, SchedulingState::Runnable) };
        assert_eq!(project(&records, now()).queued, [expected], "{ticked:?}");
    }
}

#[test]
fn a_waiting_item_names_the_wait_of_the_kind_that_decides() {
    let mut records = records();
    records.works.push(work(1));
    records.waits = vec![
        wait(1, WaitKind::Task),
        wait_on(2, WaitKind::External, 1),
        wait_on(3, WaitKind::Task, 1),
        Wait { status: WaitStatus::Cancelled, ..wait_on(4, WaitKind::Task, 1) },
    ];
    let expected = WorkFact {
        wait_id: Some(wait_id(3)),
        task_id: Some(task_id(1)),
        ..fact(1, SchedulingState::WaitingTask)
    };
    assert_eq!(project(&records, now()).queued, [expected]);

    records.works = vec![WorkItem { plan_status: PlanStatus::NeedsInput, ..work(2) }];
    assert_eq!(project(&records, now()).queued, [fact(2, SchedulingState::WaitingOperator)]);
}

#[test]
fn the_agents_own_waits_are_its_first_active_ones_of_each_kind() {
    let mut records = records();
    for (kind, number) in WaitKind::ALL.iter().zip([10, 20, 30, 40, 50]) {
        records.waits.push(Wait { status: WaitStatus::Expired, ..wait(number, *kind) });
        records.waits.push(wait_on(number + 1, *kind, 1));
        records.waits.push(wait(number + 2, *kind));
        records.waits.push(wait(number + 3, *kind));
    }
    let facts = project(&records, now());
    let expected = AgentWaits {
        operator: Some(wait_id(12)),
        task: Some(wait_id(22)),
        external: Some(wait_id(32)),
        timer: Some(wait_id(42)),
        system: Some(wait_id(52)),
    };
    assert_eq!(facts.agent_waits, expected);
    assert_eq!(facts.awaited_task, Some(task_id(1)));
    records.waits.retain(|wait| wait.work_item_id.is_some());
    let facts = project(&records, now());
    assert_eq!((facts.agent_waits, facts.awaited_task), (AgentWaits::default(), None));
}

#[test]
fn of_several_timers_the_one_that_fires_first_is_the_fact() {
    let mut records = records();
    assert_eq!(project(&records, now()).timer, None);
    records.timers = vec![timer(1, 3000), timer(3, 2000), timer(2, 2000)];
    assert_eq!(project(&records, now()).timer, Some(timer_id(2)));
}

#[test]
fn the_facts_of_a_closure_are_read_from_the_records() {
    let mut records = records_in(Status::Asleep, ExecutionState::Completed);
    let nothing = ClosureFacts {
        runtime_error: false,
        turn_in_progress: false,
        turn_unaccounted: false,
        terminal: None,
        current_work: None,
        queued_work_runnable: false,
        waiting_work: None,
        agent_waits: AgentWaits::default(),
        active_tasks: 0,
        active_timers: 0,
        runtime_posture: RuntimePosture::Sleeping,
    };
    assert_eq!(closure_facts(&records), nothing);

    records.state.status = Status::AwakeIdle;
    records.state.runtime_error = Some("not started".to_owned());
    records.state.last_turn = Some(last_turn(Terminal::Failed));
    records.state.focus = Some(work_id(1));
    records.works = vec![work(1), WorkItem { state: WorkState::Completed, ..work(2) }];
    records.waits = vec![wait(1, WaitKind::System), wait_on(2, WaitKind::Timer, 1)];
    records.tasks = TaskStatus::ALL.iter().map(|status| task(1, *status)).collect();
    records.timers = vec![timer(1, 1), timer(2, 2)];
    let expected = ClosureFacts {
        runtime_error: true,
        terminal: Some(Terminal::Failed),
        current_work: Some(WorkFact { wait_id: Some(wait_id(2)), ..fact(1, SchedulingState::WaitingTimer) }),
        agent_waits: AgentWaits { system: Some(wait_id(1)), ..AgentWaits::default() },
        active_tasks: 3,
        active_timers: 2,
        runtime_posture: RuntimePosture::Awake,
        ..nothing
    };
    assert_eq!(closure_facts(&records), expected);

    records.works.push(work(3));
    assert!(closure_facts(&records).queued_work_runnable);
}

#[test]
fn a_turn_is_in_progress_while_its_lease_is_held_and_unaccounted_for_when_it_is_not() {
    let mut records = records_in(Status::AwakeRunning, ExecutionState::Running);
    records.state.current_run = Some(current_run(&prompt(1)));
    records.lease = LeaseState::Held;
    assert!(closure_facts(&records).turn_in_progress);
    records.lease = LeaseState::Free;
    let facts = closure_facts(&records);
    assert_eq!((facts.turn_in_progress, facts.turn_unaccounted), (false, true));
}
