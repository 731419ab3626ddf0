//! Tests of a draft, the transaction in preparation: its numbers, refusals and settled messages.

use crate::model::attention::{Attention, AttentionSubject, Notification};
use crate::model::event::Boundary;
use crate::rules::transition::settlement::settle_message;

use super::*;

#[test]
fn a_transaction_makes_the_next_revision_and_the_numbers_of_its_events_continue_the_counter() {
    let records = with(|records| records.state.counters.events = 41);
    let mut draft = draft(records);
    draft.event(EventKind::Advisory, None, json!({"n": 1}));
    draft.event(EventKind::RecordRepaired, Some(run_id(3)), json!({"n": 2}));
    let transaction = finish(draft);
    assert_eq!(transaction.agent, agent());
    assert_eq!((transaction.base_revision, transaction.state.revision), (10, 11));
    let shown: Vec<_> =
        transaction.events.iter().map(|event| (event.seq, event.kind, event.run_id, event.at)).collect();
    let repaired = (43, EventKind::RecordRepaired, Some(run_id(3)), now());
    assert_eq!(shown, [(42, EventKind::Advisory, None, now()), repaired]);
    assert_eq!(transaction.state.counters.events, 43);
    assert!(transaction.events[0].id < transaction.events[1].id);
}

#[test]
fn a_draft_is_empty_until_something_changes() {
    assert!(draft(records()).is_empty());
    type Change = fn(&mut Draft);
    let changes: [(Change, bool); 7] = [
        (|draft| draft.set_status(Status::AwakeIdle, Boundary::Control), false),
        (|draft| draft.set_status(Status::Asleep, Boundary::LifecycleSleep), true),
        (|draft| draft.event(EventKind::Advisory, None, json!({})), true),
        (|draft| draft.put(Put::Message(Box::new(prompt(1)))), true),
        (|draft| draft.delete(Delete::Hint(message_id(1))), true),
        (|draft| draft.archive(Archived::Message(Box::new(prompt(1)))), true),
        (|draft| draft.rest(report(&records(), now())), true),
    ];
    for (number, (change, is_change)) in changes.into_iter().enumerate() {
        let mut draft = draft(records());
        change(&mut draft);
        assert_eq!(draft.is_empty(), !is_change, "change {number}");
    }
}

#[test]
fn entering_a_state_stores_its_time_and_message_and_its_event_has_the_cause() {
    let mut draft = draft(records_in(Status::AwakeIdle, ExecutionState::Runnable));
    draft.records.state.execution.since = at(-9000);
    draft.enter(ExecutionState::Scheduled, Some(message_id(4)), "claimed").expect("an edge");
    let state = ExecutionState::Scheduled;
    let expected = Execution { state, since: now(), task_id: Some(message_id(4)), reason: None };
    assert_eq!(draft.records.state.execution, expected);
    draft.set_status(Status::AwakeRunning, Boundary::MessageAdmission);
    let transaction = finish(draft);
    assert_eq!(path(&transaction.events), ["runnable -> scheduled"]);
    let data = &transaction.events[0].data;
    let found = words(data, ["cause", "previous_status", "next_status", "boundary"]);
    assert_eq!(found, ["claimed", "awake_idle", "awake_running", "message_admission"]);
}

#[test]
fn only_states_that_need_a_reason_keep_it() {
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
fn a_status_that_disagrees_with_the_execution_state_is_refused() {
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
fn a_transaction_records_when_the_agent_is_due_next() {
    let mut records = records();
    records.timers.push(timer(1, 5000));
    records.state.next_due_at = Some(at(-1));
    assert_eq!(finish(draft(records.clone())).state.next_due_at, Some(at(5000)));
    records.timers.clear();
    assert_eq!(finish(draft(records)).state.next_due_at, None);
}

#[test]
fn a_transaction_clears_the_resting_decision_unless_it_sets_it() {
    let mut records = records();
    let report = report(&records, now());
    records.state.resting = Some(report.clone());
    let mut draft = draft(records);
    draft.event(EventKind::Advisory, None, json!({}));
    let mut resting = draft.clone();
    assert_eq!(finish(draft).state.resting, None);
    resting.rest(report.clone());
    assert_eq!(finish(resting).state.resting, Some(report));
}

fn ended_as(status: MessageStatus, dead_letter: bool) -> Settlement {
    Settlement { status, at: now(), reason: Some("why".to_owned()), run_id: Some(run_id(1)), dead_letter }
}

#[test]
fn a_settled_message_moves_to_the_archive_and_is_counted() {
    let rows = [
        (MessageStatus::Processed, false, (1, 0, 0)),
        (MessageStatus::Dropped, false, (0, 1, 0)),
        (MessageStatus::Aborted, false, (0, 0, 0)),
        (MessageStatus::Aborted, true, (0, 0, 1)),
        (MessageStatus::Interjected, false, (0, 0, 0)),
    ];
    for (status, dead_letter, counted) in rows {
        let mut records = queued(prompt(1));
        records.inbox.claimed = Some(prompt(1));
        let mut draft = draft(records);
        settle_message(&mut draft, prompt(1), ended_as(status, dead_letter));
        assert_eq!((&draft.records.inbox.head, &draft.records.inbox.claimed), (&None, &None));
        let transaction = finish(draft);
        let counters = &transaction.state.counters;
        let found = (counters.messages_processed, counters.messages_dropped, counters.dead);
        assert_eq!(found, counted, "{status}");
        assert_eq!(transaction.deletes, [Delete::Message(prompt(1).key())]);
        let expected = Message { settlement: Some(ended_as(status, dead_letter)), ..prompt(1) };
        assert_eq!(archived_message(&transaction), &expected);
        // For a dead letter a person is told.
        let expected = [EventKind::MessageSettled, EventKind::Attention];
        assert_eq!(kinds(&transaction.events), expected[..1 + usize::from(dead_letter)]);
        let data = of_kind(&transaction.events, EventKind::MessageSettled).next().expect("one");
        assert_eq!((word(data, "status"), word(data, "reason")), (status.name(), "why"));
        assert_eq!(transaction.events[0].run_id, Some(run_id(1)));
    }
}

#[test]
fn settling_a_message_leaves_other_messages_unchanged() {
    let mut records = queued(prompt(2));
    records.inbox.claimed = Some(prompt(1));
    let mut draft = draft(records);
    settle_message(&mut draft, prompt(1), ended_as(MessageStatus::Processed, false));
    assert_eq!(draft.records.inbox.head, Some(prompt(2)));
    assert_eq!(draft.records.inbox.claimed, None);
}

#[test]
fn the_record_of_a_dedupe_key_has_the_status_of_its_ended_message() {
    let keyed = Message { dedupe_key: Some("build-7".to_owned()), ..prompt(1) };
    let transaction =
        applied(records(), |draft| settle_message(draft, keyed, ended_as(MessageStatus::Processed, false)));
    let [Put::Dedupe(entry)] = &transaction.puts[..] else { panic!("{:?}", transaction.puts) };
    assert_eq!((entry.key.as_str(), entry.message_id), ("build-7", message_id(1)));
    assert_eq!((entry.admitted_at, entry.status), (at(-1000), MessageStatus::Processed));
    assert_eq!(entry.revision, transaction.state.revision);
}

#[test]
fn each_attention_has_an_event_and_a_place_in_the_mark() {
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
    assert_eq!(kinds(&transaction.events), [EventKind::Attention; 3]);
    let mark = transaction.state.attention.unwrap();
    assert_eq!((mark.count, mark.newest.len(), mark.knows_all()), (3, 2, true));
}

#[test]
fn a_mark_lists_ten_attentions_at_most_and_ends_when_all_are_acknowledged() {
    let mut draft = draft(records());
    for number in 0..25 {
        let subject = AttentionSubject::file(&number.to_string());
        draft.raise(Subject::MessageRejected, subject, number.to_string());
    }
    let mark = draft.records.state.attention.clone().unwrap();
    assert_eq!((mark.count, mark.newest.len(), mark.knows_all()), (25, 10, false));
    assert_eq!(draft.acknowledge(|seen| seen.reason == "24"), 1);
    assert_eq!(draft.acknowledge(|seen| seen.reason == "3"), 0, "the mark does not list it any more");
    assert_eq!(draft.records.state.attention.as_ref().unwrap().count, 24);
    assert_eq!(draft.acknowledge_all(), 24);
    assert_eq!(draft.records.state.attention, None);
    assert_eq!(draft.acknowledge_all(), 0);
}

#[test]
fn a_notification_leaves_the_outbox_when_it_was_sent() {
    let mut records = records();
    let told = |seq| {
        let about = AttentionSubject::default();
        let attention = Attention::new(Subject::AnswerLost, about, "why".to_owned(), now());
        Notification::Attention(Attention { seq, ..attention })
    };
    records.state.notifications = [1, 2, 3].map(told).into();
    let mut draft = draft(records);
    draft.strike_off(&[1], &[2]);
    let left = &mut draft.records.state.notifications;
    let left: Vec<_> = left.iter_mut().map(|one| (one.seq(), *one.again())).collect();
    assert_eq!(left, [(2, true), (3, false)]);
}
