//! Tests of a step's work before its decision, of the order of that work, and of the decision.

use crate::model::attention::{Notification, PendingTransition};
use crate::model::place::Away;
use crate::model::records::MalformedFile;
use crate::rules::step::{Before, BusyAction, Next, Step, Submissions, Tried, first, step, when_busy};

use super::*;

/// Returns a state in which a step has every kind of work to do before its decision.
fn all_at_once() -> State {
    let mut state = state(Status::AwakeRunning, ExecutionState::Running);
    let pending = PendingTransition {
        seq: 1,
        from: ExecutionState::Runnable,
        to: ExecutionState::Running,
        cause: "claimed".to_owned(),
        run_id: None,
        task_id: None,
        failure: None,
        again: false,
    };
    state.notifications.push(Notification::Transition(pending));
    state.current_run = Some(current_run(&prompt(1)));
    state.outbox.add(&prompt(2));
    state.open_tasks = 1;
    state
}

#[test]
fn the_preparations_have_one_order_and_a_preparation_that_may_fail_is_tried_once() {
    let mut state = all_at_once();
    let mut tried = Tried::default();
    assert_eq!(first(&state, &mut tried), Some(Before::Tell));
    assert_eq!(first(&state, &mut tried), Some(Before::Settle(run_id(1))));
    state.current_run = None;
    assert_eq!(first(&state, &mut tried), Some(Before::Deliver));
    assert_eq!(first(&state, &mut tried), Some(Before::LookAfterTasks));
    assert_eq!(first(&state, &mut tried), None);
}

#[test]
fn while_another_process_holds_the_lease_the_first_two_rungs_decide() {
    let running = all_at_once();
    let stopped = State { status: Status::Stopped, ..all_at_once() };
    let between = State { current_run: None, ..all_at_once() };
    let busy = |report| Decision { action: StepAction::Leave, report };
    let in_progress = |run_id| {
        let report = DecisionReport::new(DecisionKind::Noop, "turn_in_progress");
        BusyAction::Leave(Box::new(busy(DecisionReport { run_id, ..report })))
    };
    let stop = || {
        let report = DecisionReport::new(DecisionKind::Stop, "stopped");
        BusyAction::Leave(Box::new(Decision { action: StepAction::Stay, report }))
    };
    for is_elsewhere in [false, true] {
        assert_eq!(when_busy(&running, is_elsewhere, None, now()), in_progress(Some(run_id(1))));
        assert_eq!(when_busy(&stopped, is_elsewhere, None, now()), stop());
    }
    assert_eq!(when_busy(&between, false, None, now()), in_progress(None));
    let machine = Away::Machine { host: "there".to_owned() };
    assert_eq!(when_busy(&running, true, Some(machine), now()), in_progress(Some(run_id(1))));
    let away = Away::Directory { path: Some("/copy".to_owned()), host: None };
    let elsewhere = busy(DecisionReport {
        run_id: Some(run_id(1)),
        evidence: vec!["it runs in /copy".to_owned()],
        ..DecisionReport::new(DecisionKind::Noop, "turn_elsewhere")
    });
    assert_eq!(when_busy(&running, true, Some(away.clone()), now()), BusyAction::Leave(Box::new(elsewhere)));
    assert_eq!(when_busy(&stopped, true, Some(away), now()), stop());
    // The clock is behind the time of the claim, so the end of the lease must be corrected.
    let before = at(-3_600_000);
    assert_eq!(when_busy(&running, true, None, before), BusyAction::SetLeaseRight(run_id(1)));
    assert_eq!(when_busy(&running, false, None, before), in_progress(Some(run_id(1))));
}

fn stepped(records: Records, tried: Tried) -> Step {
    step(draft(records), tried).expect("no refusal")
}

fn tried(submissions: Submissions) -> Tried {
    Tried { submissions, ..Tried::default() }
}

fn kind(next: &Next) -> DecisionKind {
    match next {
        Next::Decided(decision) => decision.kind(),
        other @ (Next::TakeIn | Next::Quarantine | Next::DropStale) => panic!("{other:?}"),
    }
}

fn stale() -> (Message, Staleness) {
    (prompt(9), Staleness::Expired)
}

#[test]
fn files_and_stale_messages_in_the_inbox_come_before_the_decision() {
    let file = MalformedFile { name: "x".to_owned(), reason: "why".to_owned() };
    let mut found = with(|records| {
        records.inbox.submissions = 1;
        records.inbox.malformed.push(file);
        records.inbox.stale.push(stale());
    });
    assert_eq!(stepped(found.clone(), Tried::default()).next, Next::TakeIn);
    assert_eq!(stepped(found.clone(), tried(Submissions::NoMore)).next, Next::Quarantine);
    found.inbox.malformed.clear();
    let only_stale = stepped(found.clone(), tried(Submissions::NoMore));
    assert_eq!(only_stale.next, Next::DropStale);
    assert!(!only_stale.draft.is_empty(), "the draft drops the stale message");
    // The next message is already loaded, so the step decides right after the stale message.
    found.inbox.head = Some(prompt(1));
    assert_eq!(kind(&stepped(found, tried(Submissions::NoMore)).next), DecisionKind::StartModelTurn);
}

#[test]
fn a_stopped_agent_keeps_stale_messages() {
    let mut stopped = records_in(Status::Stopped, ExecutionState::Completed);
    stopped.inbox.stale.push(stale());
    assert_eq!(kind(&stepped(stopped, Tried::default()).next), DecisionKind::Stop);
}

#[test]
fn files_that_were_left_for_later_come_before_a_rest_but_after_a_claim() {
    let idle = with(|records| records.inbox.submissions = 1);
    assert_eq!(stepped(idle.clone(), tried(Submissions::Some)).next, Next::TakeIn);
    assert_eq!(kind(&stepped(idle, tried(Submissions::NoMore)).next), DecisionKind::Sleep);
    let busy = with(|records| {
        records.inbox.submissions = 1;
        records.inbox.head = Some(prompt(1));
    });
    let claim = stepped(busy, tried(Submissions::Some));
    assert_eq!(kind(&claim.next), DecisionKind::StartModelTurn);
    // Files are also admitted before the agent waits for a resource that the claim lacks.
    assert_eq!(claim.clone().lacking(shortage(), tried(Submissions::Some)).next, Next::TakeIn);
    let lacking = claim.lacking(shortage(), tried(Submissions::NoMore));
    assert_eq!(kind(&lacking.next), DecisionKind::WaitForResources);
}
