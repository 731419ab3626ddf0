//! Claims that lack a resource: the held run, its next check, and its timeout.

use super::*;

fn with_message() -> Records {
    let mut records = records();
    records.inbox.head = Some(prompt(1));
    records
}

/// Returns the records after the step that finds this missing, at this time. `None`: it changes
/// nothing.
fn step(records: &Records, lacking: &Shortage, moment: Time) -> Option<(Records, Vec<EventKind>)> {
    let mut records = records.clone();
    records.shortage = Some(lacking.clone());
    let decision = decide(&project(&records, moment));
    assert_eq!(decision.report.reason, lacking.resource.name());
    let mut draft = Draft::new(records, stamp_at(moment));
    let message = draft.records.inbox.head.clone().or(draft.records.inbox.claimed.clone());
    let message: Message = message.expect("a message");
    lack(&mut draft, &message, continuation(), lacking, &decision.report).expect("an edge leads there");
    if draft.is_empty() {
        return None;
    }
    let after = draft.records.clone();
    let transaction = draft.finish().expect("status and execution agree");
    let kinds = transaction.events.iter().map(|event| event.kind).collect();
    Some((Records { state: transaction.state, shortage: None, ..after }, kinds))
}

fn slot() -> Shortage {
    let evidence = vec!["all in use".to_owned()];
    Shortage { resource: Resource::Slot, evidence, back_at: None, is_occupied: false }
}

fn limit(back: i64) -> Shortage {
    let back_at = Some(at(back));
    let evidence = vec!["10 of 10".to_owned()];
    Shortage { resource: Resource::TurnsPerHour, evidence, back_at, is_occupied: false }
}

#[test]
fn a_claim_that_lacks_something_goes_to_waiting_resources_and_its_attempt_does_not_count() {
    let (after, kinds) = step(&with_message(), &shortage(), now()).expect("something new");
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
fn it_is_looked_for_more_and_more_rarely_and_nothing_is_written_in_between() {
    let (mut records, _) = step(&with_message(), &shortage(), now()).expect("something new");
    let mut moment = 0;
    for pause in [1_000, 2_000, 4_000, 8_000] {
        assert_eq!(next_due(&records), Some(at(moment + pause)));
        assert!(step(&records, &shortage(), at(moment + pause - 1)).is_none(), "a step that is early");
        moment += pause;
        let (after, kinds) = step(&records, &shortage(), at(moment)).expect("the next look");
        assert_eq!((kinds, after.state.execution.since), (vec![], now()));
        records = after;
    }
}

#[test]
fn a_limit_is_due_when_it_is_back_and_not_before() {
    let (records, _) = step(&with_message(), &limit(5_000), now()).expect("something new");
    assert_eq!(next_due(&records), Some(at(5_000)));
    assert!(step(&records, &limit(5_000), at(4_999)).is_none());
    let (later, _) = step(&records, &limit(9_000), at(4_999)).expect("the policy has changed");
    assert_eq!(next_due(&later), Some(at(9_000)));
}

#[test]
fn a_claim_that_lacks_something_else_looks_anew_and_goes_on_with_its_row() {
    let (records, _) = step(&with_message(), &shortage(), now()).expect("something new");
    let (after, kinds) = step(&records, &slot(), at(60_000)).expect("something else");
    assert_eq!(after.state.execution.since, at(60_000));
    let held = after.state.held.as_ref().expect("held");
    assert_eq!((held.looks, held.setbacks.deferrals, held.deferred_since), (1, 2, Some(now())));
    let late = Some((at(300_000), "resource_timeout"));
    assert_eq!(deadline(&after.state, &Timeouts::default()), late, "from the first of the row");
    assert!(!kinds.contains(&EventKind::MessageAdmitted), "it was told of before");
}

/// Only a run whose resource may never return is late after `timeouts.resources`.
#[test]
fn only_what_may_never_come_back_is_late() {
    let never = Timeouts { resources: Limit(None), ..Timeouts::default() };
    for resource in std::iter::once(None).chain(Resource::ALL.iter().copied().map(Some)) {
        let mut records = records_in(Status::AwakeIdle, ExecutionState::WaitingResources);
        records.state.held = Some(held(&prompt(1), Some(at(900_000))));
        records.inbox.claimed = Some(prompt(1));
        if let Some(held) = &mut records.state.held {
            held.resource = resource;
        }
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
