//! Tests of claims that lack a resource: the held run, its next check, and its timeout.

use super::*;

/// Returns the records and events of a step at `moment` whose claim lacks a resource. `None` if the
/// step changes nothing.
fn step(records: &Records, missing: &Shortage, moment: Time) -> Option<(Records, Vec<EventKind>)> {
    let draft = lacking(records.clone(), missing, moment);
    if draft.is_empty() {
        return None;
    }
    let after = draft.records.clone();
    let transaction = finish(draft);
    let kinds = kinds(&transaction.events);
    Some((Records { state: transaction.state, ..after }, kinds))
}

fn slot() -> Shortage {
    Shortage { resource: Resource::Slot, evidence: vec!["all in use".to_owned()], ..shortage() }
}

fn limit(back: i64) -> Shortage {
    let evidence = vec!["10 of 10".to_owned()];
    Shortage { resource: Resource::TurnsPerHour, evidence, back_at: Some(at(back)), ..shortage() }
}

#[test]
fn a_claim_that_lacks_a_resource_waits_and_spends_no_attempt() {
    let (after, kinds) = step(&queued(prompt(1)), &shortage(), now()).expect("a change");
    let transition = EventKind::StateTransition;
    let told = [EventKind::MessageAdmitted, EventKind::SchedulerDecision, transition, transition, transition];
    assert_eq!(kinds, told);
    let state = &after.state;
    assert_eq!((state.status, state.execution.state), (Status::AwakeIdle, ExecutionState::WaitingResources));
    assert_eq!(state.execution.reason.as_deref(), Some("workspace: /checkout is held by bob"));
    assert_eq!((state.current_run.is_none(), state.counters.turns), (true, 0));
    let claimed = after.inbox.claimed.as_ref().expect("the message stays claimed");
    assert_eq!((claimed.attempt, after.inbox.head.is_none()), (1, true));
    assert_eq!(state.held.as_ref().and_then(|held| held.resource), Some(Resource::Workspace));
}

#[test]
fn checks_for_a_resource_become_rarer_and_no_step_writes_in_between() {
    let (mut records, _) = step(&queued(prompt(1)), &shortage(), now()).expect("a change");
    let mut moment = 0;
    for pause in [1_000, 2_000, 4_000, 8_000] {
        assert_eq!(next_due(&records), Some(at(moment + pause)));
        assert!(step(&records, &shortage(), at(moment + pause - 1)).is_none(), "a step that is early");
        moment += pause;
        let (after, kinds) = step(&records, &shortage(), at(moment)).expect("the next check");
        assert_eq!((kinds, after.state.execution.since), (vec![], now()));
        records = after;
    }
}

#[test]
fn a_run_held_by_a_limit_is_due_when_the_limit_ends() {
    let (records, _) = step(&queued(prompt(1)), &limit(5_000), now()).expect("a change");
    assert_eq!(next_due(&records), Some(at(5_000)));
    assert!(step(&records, &limit(5_000), at(4_999)).is_none());
    let (later, _) = step(&records, &limit(9_000), at(4_999)).expect("the policy has changed");
    assert_eq!(next_due(&later), Some(at(9_000)));
}

#[test]
fn a_claim_that_lacks_another_resource_resets_its_checks_but_not_its_deferrals() {
    let (records, _) = step(&queued(prompt(1)), &shortage(), now()).expect("a change");
    let (after, kinds) = step(&records, &slot(), at(60_000)).expect("something else");
    assert_eq!(after.state.execution.since, at(60_000));
    let held = after.state.held.as_ref().expect("held");
    assert_eq!((held.looks, held.setbacks.deferrals, held.deferred_since), (1, 2, Some(now())));
    let late = Some((at(300_000), "resource_timeout"));
    assert_eq!(deadline(&after.state, &Timeouts::default()), late, "from the first deferral");
    assert!(!kinds.contains(&EventKind::MessageAdmitted), "its admission has an event already");
}

/// A run that waits for a usage limit does not time out, because the limit is renewed for sure.
#[test]
fn a_run_held_by_a_limit_does_not_time_out() {
    let never = Timeouts { resources: Limit(None), ..Timeouts::default() };
    for resource in optional(Resource::ALL) {
        let mut records = holding(ExecutionState::WaitingResources, Some(at(900_000)));
        records.state.held.iter_mut().for_each(|held| held.resource = resource);
        let is_limit = resource.is_some_and(Resource::is_limit);
        let expected = (!is_limit).then_some((now().after(secs(300)), "resource_timeout"));
        assert_eq!(deadline(&records.state, &Timeouts::default()), expected, "{resource:?}");
        assert_eq!(deadline(&records.state, &never), None, "{resource:?}");
        for (moment, over) in [(at(300_000), false), (at(300_001), !is_limit)] {
            let draft = taken_in_at(records.clone(), moment);
            let failed = draft.records.state.execution.state == ExecutionState::Failed;
            assert_eq!(failed, over, "{resource:?} at {moment}");
            let inbox = &draft.records.inbox;
            let message = if failed { &inbox.head } else { &inbox.claimed };
            let attempt = message.as_ref().map(|message| message.attempt);
            assert_eq!(attempt, Some(1), "no attempt is spent");
        }
    }
}
