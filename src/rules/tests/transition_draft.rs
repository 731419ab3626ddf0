//! Transaction in preparation: its numbering, its refusals, and its effect on the next step.

use crate::model::attention::AttentionSubject;
use crate::model::event::Boundary;
use crate::rules::transition::settlement::settle_message;

use super::*;

#[test]
fn a_transaction_holds_against_the_revision_it_was_made_from_and_makes_the_next() {
    let mut draft = draft(records());
    draft.event(EventKind::Advisory, None, json!({}));
    let transaction = finish(draft);
    assert_eq!(transaction.agent, agent());
    assert_eq!((transaction.base_revision, transaction.state.revision), (10, 11));
}

#[test]
fn events_are_numbered_on_from_the_counter_in_the_order_in_which_they_happened() {
    let mut records = records();
    records.state.counters.events = 41;
    let mut draft = draft(records);
    draft.event(EventKind::Advisory, None, json!({"n": 1}));
    draft.event(EventKind::RecordRepaired, Some(run_id(3)), json!({"n": 2}));
    let transaction = finish(draft);
    let shown: Vec<_> =
        transaction.events.iter().map(|event| (event.seq, event.kind, event.run_id, event.at)).collect();
    assert_eq!(
        shown,
        [(42, EventKind::Advisory, None, now()), (43, EventKind::RecordRepaired, Some(run_id(3)), now()),]
    );
    assert_eq!(transaction.state.counters.events, 43);
    assert!(transaction.events[0].id < transaction.events[1].id);
}

#[test]
fn a_draft_is_empty_until_something_changes() {
    let fresh = || draft(records());
    assert!(fresh().is_empty());
    let mut same_status = fresh();
    same_status.set_status(Status::AwakeIdle, Boundary::Control);
    assert!(same_status.is_empty());

    let mut other_status = fresh();
    other_status.set_status(Status::Asleep, Boundary::LifecycleSleep);
    let mut with_event = fresh();
    with_event.event(EventKind::Advisory, None, json!({}));
    let mut with_put = fresh();
    with_put.put(Put::Message(Box::new(prompt(1))));
    let mut with_delete = fresh();
    with_delete.delete(Delete::Hint(message_id(1)));
    let mut with_archived = fresh();
    with_archived.archive(Archived::Message(Box::new(prompt(1))));
    let mut with_rest = fresh();
    with_rest.rest(decide(&project(&records(), now())).report);
    for changed in [other_status, with_event, with_put, with_delete, with_archived, with_rest] {
        assert!(!changed.is_empty());
    }
}

#[test]
fn entering_a_state_notes_since_when_for_which_message_and_the_cause_in_the_ledger() {
    let mut draft = draft(records_in(Status::AwakeIdle, ExecutionState::Runnable));
    draft.records.state.execution.since = at(-9000);
    draft.enter(ExecutionState::Scheduled, Some(message_id(4)), "claimed").expect("an edge");
    let execution = draft.records.state.execution.clone();
    assert_eq!(execution.state, ExecutionState::Scheduled);
    assert_eq!((execution.since, execution.task_id, execution.reason), (now(), Some(message_id(4)), None));
    draft.set_status(Status::AwakeRunning, Boundary::MessageAdmission);
    let transaction = finish(draft);
    assert_eq!(path(&transaction.events), ["runnable -> scheduled"]);
    let data = &transaction.events[0].data;
    assert_eq!(word(data, "cause"), "claimed");
    assert_eq!((word(data, "previous_status"), word(data, "next_status")), ("awake_idle", "awake_running"));
    assert_eq!(word(data, "boundary"), "message_admission");
}

#[test]
fn the_reason_stays_with_states_that_need_one() {
    let rows = [
        (ExecutionState::Running, ExecutionState::Failed, Some("because")),
        (ExecutionState::Running, ExecutionState::WaitingResources, Some("because")),
        (ExecutionState::Running, ExecutionState::Suspended, Some("because")),
        (ExecutionState::Running, ExecutionState::Waiting, None),
        (ExecutionState::Running, ExecutionState::Completed, None),
        (ExecutionState::Failed, ExecutionState::Recovering, None),
    ];
    for (from, to, reason) in rows {
        let mut draft = draft(records_in(Status::Stopped, from));
        draft.enter(to, None, "because").expect("an edge");
        assert_eq!(draft.records.state.execution.reason.as_deref(), reason, "{to}");
    }
}

#[test]
fn a_refused_transition_changes_nothing() {
    for from in ExecutionState::ALL {
        for to in ExecutionState::ALL {
            let mut draft = draft(records_in(Status::Stopped, *from));
            let before = draft.records.clone();
            if draft.enter(*to, Some(message_id(1)), "because").is_err() {
                assert_eq!(draft.records, before, "{from} -> {to}");
                assert!(draft.is_empty(), "{from} -> {to}");
            }
        }
    }
}

#[test]
fn a_status_that_does_not_go_with_the_execution_state_is_refused() {
    let mut refused = 0;
    for state in ExecutionState::ALL {
        for status in Status::ALL {
            let result = draft(records_in(*status, *state)).finish();
            if crate::rules::execution::agrees(*state, *status) {
                assert!(result.is_ok(), "{state} {status}");
            } else {
                assert_eq!(result.expect_err("refused").kind, "status_table", "{state} {status}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 72 - 12 - 20);
}

#[test]
fn a_transaction_says_when_the_agent_is_due_next() {
    let mut records = records();
    records.timers.push(timer(1, 5000));
    records.state.next_due_at = Some(at(-1));
    assert_eq!(finish(draft(records.clone())).state.next_due_at, Some(at(5000)));
    records.timers.clear();
    assert_eq!(finish(draft(records)).state.next_due_at, None);
}

#[test]
fn what_the_last_step_rested_on_does_not_outlive_a_transaction() {
    let mut records = records();
    let report = decide(&project(&records, now())).report;
    records.state.resting = Some(report.clone());
    let mut draft = draft(records);
    draft.event(EventKind::Advisory, None, json!({}));
    let mut resting = draft.clone();
    assert_eq!(finish(draft).state.resting, None);
    resting.rest(report.clone());
    assert_eq!(finish(resting).state.resting, Some(report));
}

fn settled(status: MessageStatus, dead_letter: bool) -> Settlement {
    Settlement { status, at: now(), reason: Some("why".to_owned()), run_id: Some(run_id(1)), dead_letter }
}

#[test]
fn a_settled_message_leaves_the_inbox_for_the_archive_and_is_counted() {
    let rows = [
        (MessageStatus::Processed, false, (1, 0, 0)),
        (MessageStatus::Dropped, false, (0, 1, 0)),
        (MessageStatus::Aborted, false, (0, 0, 0)),
        (MessageStatus::Aborted, true, (0, 0, 1)),
        (MessageStatus::Interjected, false, (0, 0, 0)),
    ];
    for (status, dead_letter, counted) in rows {
        let mut records = records();
        records.inbox.head = Some(prompt(1));
        records.inbox.claimed = Some(prompt(1));
        let mut draft = draft(records);
        settle_message(&mut draft, prompt(1), settled(status, dead_letter));
        assert_eq!((&draft.records.inbox.head, &draft.records.inbox.claimed), (&None, &None));
        let transaction = finish(draft);
        let counters = &transaction.state.counters;
        assert_eq!(
            (counters.messages_processed, counters.messages_dropped, counters.dead),
            counted,
            "{status}"
        );
        assert_eq!(transaction.deletes, [Delete::Message(prompt(1).key())]);
        let expected = Message { settlement: Some(settled(status, dead_letter)), ..prompt(1) };
        assert_eq!(archived_message(&transaction), &expected);
        // A dead letter needs a person.
        let expected = [EventKind::MessageSettled, EventKind::Attention];
        assert_eq!(kinds(&transaction.events), expected[..1 + usize::from(dead_letter)]);
        let data = of_kind(&transaction.events, EventKind::MessageSettled).next().expect("one");
        assert_eq!((word(data, "status"), word(data, "reason")), (status.name(), "why"));
        assert_eq!(transaction.events[0].run_id, Some(run_id(1)));
    }
}

#[test]
fn settling_one_message_leaves_another_where_it_is() {
    let mut records = records();
    records.inbox.head = Some(prompt(2));
    records.inbox.claimed = Some(prompt(1));
    let mut draft = draft(records);
    settle_message(&mut draft, prompt(1), settled(MessageStatus::Processed, false));
    assert_eq!(draft.records.inbox.head, Some(prompt(2)));
    assert_eq!(draft.records.inbox.claimed, None);
}

#[test]
fn a_dedupe_key_remembers_how_its_message_ended() {
    let keyed = Message { dedupe_key: Some("build-7".to_owned()), ..prompt(1) };
    let mut draft = draft(records());
    settle_message(&mut draft, keyed, settled(MessageStatus::Processed, false));
    let transaction = finish(draft);
    let [Put::Dedupe(entry)] = &transaction.puts[..] else { panic!("{:?}", transaction.puts) };
    assert_eq!((entry.key.as_str(), entry.message_id), ("build-7", message_id(1)));
    assert_eq!((entry.admitted_at, entry.status), (at(-1000), MessageStatus::Processed));
    assert_eq!(entry.revision, transaction.state.revision);
}

#[test]
fn what_is_raised_is_an_event_and_a_mark() {
    let mut draft = draft(records());
    draft.raise(Subject::DeadLetter, AttentionSubject::message(message_id(7)), "gave up");
    draft.raise(Subject::MessageDropped, AttentionSubject::message(message_id(8)), "ttl_expired");
    draft.raise(Subject::MessageDropped, AttentionSubject::message(message_id(9)), "ttl_expired");
    let raised: Vec<String> = draft.raised().iter().map(ToString::to_string).collect();
    assert_eq!(
        raised,
        [
            format!("dead letter {}: gave up", message_id(7)),
            format!("message dropped {} and 1 more: ttl_expired", message_id(8)),
        ]
    );
    let transaction = finish(draft);
    let kinds: Vec<EventKind> = transaction.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Attention; 3]);
    let mark = transaction.state.attention.unwrap();
    assert_eq!((mark.count, mark.newest.len(), mark.knows_all()), (3, 2, true));
}

#[test]
fn a_mark_is_bounded_and_goes_when_all_of_it_is_seen() {
    let mut draft = draft(records());
    for number in 0..25 {
        draft.raise(
            Subject::MessageRejected,
            AttentionSubject::file(&number.to_string()),
            number.to_string(),
        );
    }
    let mark = draft.records.state.attention.clone().unwrap();
    assert_eq!((mark.count, mark.newest.len(), mark.knows_all()), (25, 10, false));
    assert_eq!(draft.acknowledge(|seen| seen.reason == "24"), 1);
    assert_eq!(draft.acknowledge(|seen| seen.reason == "3"), 0, "it is not known any more which it was");
    assert_eq!(draft.records.state.attention.as_ref().unwrap().count, 24);
    assert_eq!(draft.acknowledge_all(), 24);
    assert_eq!(draft.records.state.attention, None);
    assert_eq!(draft.acknowledge_all(), 0);
}

#[test]
fn a_hook_is_to_be_told_of_what_is_raised_until_it_was() {
    let mut draft = draft(records());
    draft.raise(Subject::AnswerLost, AttentionSubject::default(), "why");
    assert!(!draft.records.state.needs_hook(), "there may be no hook");
    draft.mark_pending();
    assert!(draft.records.state.needs_hook());
    draft.clear_pending(|_| true);
    assert!(!draft.records.state.needs_hook());
}
