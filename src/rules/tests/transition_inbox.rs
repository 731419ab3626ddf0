//! Tests of arrivals: stale messages, wake hints, messages that need no turn, messages of the
//! scheduler, and requeued messages.

use crate::model::decision::{Tick, WorkTick};
use crate::model::message::Hinted;
use crate::rules::posture::waking_hint;
use crate::rules::transition::arrival::{admit_drop, admitted, staleness};
use crate::rules::transition::inbox::{drop_dead_letter, emit_tick, rejected};

use super::*;

#[test]
fn a_message_is_stale_after_its_expiry_or_if_another_message_has_its_key() {
    let expires = |millis| Message { expires_at: Some(at(millis)), ..prompt(1) };
    let rows = [
        (prompt(1), None, None),
        (expires(1), None, None),
        (expires(0), None, None),
        (expires(-1), None, Some(Staleness::Expired)),
        // A message that had a turn does not expire.
        (Message { attempt: 2, ..expires(-1) }, None, None),
        (prompt(1), Some(message_id(1)), None),
        (prompt(1), Some(message_id(2)), Some(Staleness::Duplicate)),
        (expires(-1), Some(message_id(2)), Some(Staleness::Expired)),
    ];
    for (message, first, expected) in rows {
        assert_eq!(staleness(&message, first, now()), expected, "{:?}", message.expires_at);
    }
}

#[test]
fn stale_messages_are_dropped_with_the_reason() {
    let keyed = Message { dedupe_key: Some("k".to_owned()), ..prompt(1) };
    for (why, reason, notes) in
        [(Staleness::Expired, "ttl_expired", 1), (Staleness::Duplicate, "duplicate", 0)]
    {
        let records = with(|records| records.inbox.stale = vec![(keyed.clone(), why)]);
        let draft = taken_in(records);
        assert!(draft.records.inbox.stale.is_empty());
        let transaction = finish(draft);
        // A person is told of an expired message, but not of a duplicate.
        let expected = [EventKind::MessageAdmitted, EventKind::MessageSettled, EventKind::Attention];
        assert_eq!(kinds(&transaction.events), expected[..2 + notes]);
        assert_eq!(settled_as(&transaction), (MessageStatus::Dropped, Some(reason), false));
        assert_eq!(transaction.state.counters.messages_dropped, 1);
        assert_eq!(transaction.deletes, [Delete::Message(keyed.key())]);
        // The dedupe key of a duplicate is not recorded again: the first message has it.
        assert_eq!(transaction.puts.len(), notes, "{reason}");
    }
}

#[test]
fn taking_in_an_empty_inbox_changes_nothing() {
    for state in ExecutionState::ALL {
        assert!(taken_in(records_in(Status::Stopped, *state)).is_empty(), "{state}");
    }
}

fn with_hints(hints: Vec<WakeHint>, pending: Option<WakeHint>) -> Draft {
    let mut records = records_in(Status::Asleep, ExecutionState::Completed);
    records.inbox.hints = hints;
    records.state.pending_wake_hint = pending;
    taken_in(records)
}

fn about(number: u32, resource: &str) -> WakeHint {
    WakeHint { resource: Some(resource.to_owned()), ..hint(number) }
}

#[test]
fn the_first_hint_becomes_the_pending_one_and_counts_as_a_wake() {
    let draft = with_hints(vec![hint(1)], None);
    assert_eq!(draft.records.state.pending_wake_hint, Some(hint(1)));
    assert_eq!(draft.records.state.counters.wakes, 1);
    let transaction = finish(draft);
    assert_eq!(transaction.deletes, [Delete::Hint(message_id(1))]);
    assert_eq!(kinds(&transaction.events), []);
}

#[test]
fn hints_of_one_scope_are_merged_into_one_hint_with_a_count_and_all_reasons() {
    let first = WakeHint { reason: Some("a".to_owned()), body: Some(text("one")), ..about(1, "mail") };
    let second = WakeHint { count: 3, ..about(2, "mail") };
    let third = WakeHint { reason: Some("c".to_owned()), body: Some(text("three")), ..about(3, "mail") };
    for pending_already in [false, true] {
        let mut hints = vec![first.clone(), second.clone(), third.clone()];
        let pending = pending_already.then(|| hints.remove(0));
        let draft = with_hints(hints, pending);
        let expected = WakeHint { count: 5, reason: Some("a; c".to_owned()), ..first.clone() };
        assert_eq!(draft.records.state.pending_wake_hint, Some(expected));
        assert!(draft.records.inbox.hints.is_empty());
        let transaction = finish(draft);
        // The first hint has no event of its own, because the message contains its payload.
        let merged: Vec<(&Value, &Value)> = of_kind(&transaction.events, EventKind::WakeHintCoalesced)
            .map(|data| (&data["count"], &data["hint"]["payload"]))
            .collect();
        assert_eq!(merged, [(&json!(4), &Value::Null), (&json!(5), &json!(text("three")))]);
        assert_eq!(transaction.events.len(), 2);
    }
}

#[test]
fn readers_show_the_hint_that_the_next_step_will_make_pending() {
    let all =
        [about(1, "mail"), about(2, "chat"), WakeHint { count: 3, ..about(3, "mail") }, hint(4), hint(5)];
    for split in 0..all.len() {
        for pending in [None, Some(about(9, "chat"))] {
            let mut records = records();
            records.inbox.hints = [&all[split..], &all[..split]].concat();
            records.state.pending_wake_hint = pending.clone();
            let shown = waking_hint(&records);
            let draft = taken_in(records);
            assert_eq!(shown, draft.records.state.pending_wake_hint, "{split} {pending:?}");
        }
    }
}

#[test]
fn hints_of_one_scope_that_could_end_different_waits_are_not_merged() {
    let by_wait = WakeHint { wait_id: Some(wait_id(1)), ..hint(1) };
    let by_trigger = WakeHint { trigger_id: Some(trigger_id(3)), ..hint(1) };
    let by_resource = WakeHint { resource: Some("mail".to_owned()), ..hint(1) };
    let about = |other: &WakeHint, resource: &str| WakeHint {
        id: message_id(2),
        resource: Some(resource.to_owned()),
        ..other.clone()
    };
    let from = |other: &WakeHint, source: &str| WakeHint {
        id: message_id(2),
        source: source.to_owned(),
        ..other.clone()
    };
    for (first, second, joined) in [
        (by_wait.clone(), about(&by_wait, "mail"), false),
        (by_trigger.clone(), about(&by_trigger, "mail"), false),
        (about(&by_trigger, "post"), about(&by_trigger, "mail"), false),
        (by_wait.clone(), from(&by_wait, "github"), false),
        // Merged (`true`): hints about one resource, even if their sources differ.
        (by_resource.clone(), from(&by_resource, "github"), true),
        (by_wait.clone(), from(&by_wait, "cron"), true),
    ] {
        let first = WakeHint { id: message_id(1), ..first };
        let draft = taken_in(with(|records| records.inbox.hints = vec![first.clone(), second.clone()]));
        let pending = draft.records.state.pending_wake_hint.as_ref().map(|hint| hint.count);
        let left = draft.records.inbox.hints.len();
        let expected = if joined { (Some(2), 0) } else { (Some(1), 1) };
        assert_eq!((pending, left), expected, "{first:?} and {second:?}");
    }
}

#[test]
fn hints_of_another_scope_stay_for_a_later_step() {
    let draft = with_hints(vec![about(1, "mail"), about(2, "chat"), about(3, "mail"), hint(4)], None);
    let pending = draft.records.state.pending_wake_hint.clone().expect("one");
    assert_eq!((pending.id, pending.count), (message_id(1), 2));
    let left: Vec<MessageId> = draft.records.inbox.hints.iter().map(|hint| hint.id).collect();
    assert_eq!(left, [message_id(2), message_id(4)]);
    let transaction = finish(draft);
    assert_eq!(transaction.deletes, [Delete::Hint(message_id(1)), Delete::Hint(message_id(3))]);
}

#[test]
fn a_stopped_agent_ignores_hints_and_has_an_event_for_each() {
    let mut records = records_in(Status::Stopped, ExecutionState::Completed);
    records.inbox.hints = vec![hint(1), about(2, "mail")];
    let draft = taken_in(records);
    assert!(draft.records.inbox.hints.is_empty());
    let transaction = finish(draft);
    let state = &transaction.state;
    assert_eq!((&state.pending_wake_hint, state.counters.wakes), (&None, 0));
    assert_eq!(kinds(&transaction.events), [EventKind::WakeHintIgnored, EventKind::WakeHintIgnored]);
    assert_eq!(transaction.events[1].data["hint"]["resource"], "mail");
    assert_eq!(transaction.deletes, [Delete::Hint(message_id(1)), Delete::Hint(message_id(2))]);
}

#[test]
fn an_agent_that_is_stopped_or_was_never_started_keeps_its_messages() {
    for (status, state) in
        [(Status::Stopped, ExecutionState::Completed), (Status::Booting, ExecutionState::Initializing)]
    {
        let mut records = records_in(status, state);
        records.inbox.stale = vec![(prompt(1), Staleness::Expired), (prompt(2), Staleness::Duplicate)];
        let draft = taken_in(records);
        assert!(draft.is_empty(), "{status}");
        assert_eq!(draft.records.inbox.stale.len(), 2, "{status}");
    }
}

/// Returns an agent whose held run is in this state since this time.
fn held_since(status: Status, state: ExecutionState, since: i64) -> Records {
    let mut records = holding(state, None);
    records.state.status = status;
    records.state.execution.since = at(since);
    records
}

/// Rows: state, its timeout in milliseconds, the reason of the failure.
const OVERDUE: [(ExecutionState, i64, &str); 2] = [
    (ExecutionState::WaitingResources, 300_000, "resource_timeout"),
    (ExecutionState::Suspended, 3_600_000, "suspend_timeout"),
];

#[test]
fn a_held_run_fails_once_its_state_has_lasted_too_long_and_its_message_keeps_its_attempt() {
    for (state, limit, reason) in OVERDUE {
        let in_time = taken_in(held_since(Status::AwakeIdle, state, -limit));
        assert!(in_time.is_empty(), "{state} exactly at its limit");

        let late = taken_in(held_since(Status::Asleep, state, -limit - 1));
        let head = late.records.inbox.head.as_ref().map(|message| message.id);
        assert_eq!(head, Some(message_id(1)), "the message is in the queue again");
        let transaction = finish(late);
        assert_eq!(path(&transaction.events), [format!("{state} -> failed")]);
        let state = &transaction.state;
        assert_eq!(state.execution.reason.as_deref(), Some(reason));
        assert_eq!((state.status, &state.held), (Status::AwakeIdle, &None));
        let expected = Retry { attempt: Some(1), reason: reason.to_owned(), ..retry(&prompt(1), at(1000)) };
        assert_eq!(state.retry, Some(expected));
        // The message keeps the continuation of its first attempt.
        let [Put::Message(message)] = transaction.puts.as_slice() else { panic!("{:?}", transaction.puts) };
        assert_eq!((message.id, message.attempt, message.failures.len()), (message_id(1), 1, 0));
        assert!(message.continuation.is_some() && transaction.deletes.is_empty());
    }
}

#[test]
fn a_held_run_fails_at_once_without_its_message_and_never_with_a_disabled_timeout() {
    for (state, limit, _) in OVERDUE {
        let mut records = held_since(Status::AwakeIdle, state, 0);
        records.inbox.claimed = None;
        let transaction = finish(taken_in(records));
        assert_eq!(path(&transaction.events), [format!("{state} -> failed")]);
        assert_eq!(transaction.state.retry.expect("a retry").attempt, None);

        let mut records = held_since(Status::AwakeIdle, state, -100_000_000);
        // A queued message keeps the agent from counting as stalled, so that no stall is reported.
        records.inbox.head = Some(prompt(2));
        records.policy.timeouts.resources = Limit(None);
        records.policy.timeouts.suspend = Limit(None);
        assert!(taken_in(records).is_empty(), "{state}");

        // A held run that exceeds its timeout does not start a stopped agent.
        let draft = taken_in(held_since(Status::Stopped, state, -limit - 1));
        assert_eq!(draft.records.state.status, Status::Stopped, "{state}");
        assert_eq!(reason(&draft.records, now()), "stopped");
    }
}

#[test]
fn a_reduced_message_is_processed_without_a_turn_or_a_change_of_waits() {
    for status in [Status::Asleep, Status::AwaitingTask, Status::AwakeIdle] {
        let mut records = records_in(status, ExecutionState::Waiting);
        records.inbox.head = Some(message(1, MessageKind::WebhookEvent));
        records.waits.push(wait(1, WaitKind::External));
        let mut draft = draft(records);
        reduce(&mut draft, message(1, MessageKind::WebhookEvent), Some(liveness()));
        assert_eq!(draft.records.waits.len(), 1);
        let transaction = finish(draft);
        let expected = [EventKind::MessageAdmitted, EventKind::TriggerIgnored, EventKind::MessageSettled];
        assert_eq!(kinds(&transaction.events), expected);
        let ignored = &transaction.events[1].data;
        assert_eq!(word(ignored, "class"), "liveness_only");
        assert_eq!(word(ignored, "message_id"), message_id(1).to_string());
        let state = &transaction.state;
        assert_eq!((state.status, state.execution.state), (Status::AwakeIdle, ExecutionState::Waiting));
        assert_eq!(state.last_continuation, Some(liveness()));
        let counters = &state.counters;
        let counts = [counters.messages_reduced, counters.reduced_since_turn, counters.messages_processed];
        assert_eq!(counts, [1; 3]);
        assert_eq!(settled_as(&transaction), (MessageStatus::Processed, Some("reduced"), false));
        assert_eq!(transaction.deletes, [Delete::Message(prompt(1).key())]);
        assert_eq!(state.current_run, None);
    }
}

#[test]
fn a_message_that_is_no_trigger_is_reduced_without_an_event_about_triggers() {
    for kind in [MessageKind::Control, MessageKind::TaskStatus] {
        let transaction = applied(records(), |draft| reduce(draft, message(1, kind), None));
        assert_eq!(kinds(&transaction.events), [EventKind::MessageAdmitted, EventKind::MessageSettled]);
    }
}

#[test]
fn the_event_of_an_admission_has_the_kind_origin_priority_surface_and_time() {
    let webhook = Message {
        origin: Origin { kind: OriginKind::Webhook, id: Some("ci".to_owned()) },
        priority: Priority::Next,
        ..message(1, MessageKind::WebhookEvent)
    };
    let transaction = applied(records(), |draft| admitted(draft, &webhook));
    let data = &transaction.events[0].data;
    let found = words(data, ["kind", "origin", "priority", "delivery_surface"]);
    assert_eq!(found, ["webhook_event", "webhook:ci", "next", "cli"]);
    assert_eq!(word(data, "admitted_at"), webhook.created_at.to_string());
}

fn emitted(records: Records, tick: &Tick) -> (Transaction, Message) {
    let transaction = applied(records, |draft| emit_tick(draft, tick));
    let message = put_message(&transaction).expect("a message").clone();
    (transaction, message)
}

#[test]
fn a_tick_is_a_message_of_the_runtime_and_wakes_the_agent() {
    let ticks = [
        Tick::WakeHint { key: hint(7).tick_key() },
        Tick::Work { reason: WorkTick::ContinueActive, work_item_id: work_id(1), revision: 1 },
        Tick::Work { reason: WorkTick::QueuedAvailable, work_item_id: work_id(1), revision: 1 },
        Tick::Work { reason: WorkTick::SystemWait, work_item_id: work_id(1), revision: 1 },
        Tick::OwnSystemWait { wait_id: wait_id(1) },
    ];
    for tick in ticks {
        let mut records = records_in(Status::Asleep, ExecutionState::Completed);
        records.works.push(work(1));
        records.waits.push(wait(1, WaitKind::System));
        records.state.pending_wake_hint = Some(hint(7));
        let (transaction, message) = emitted(records, &tick);
        let authority_class = match &tick {
            // Any sender may write a hint, so a message made from a hint is never an instruction.
            Tick::WakeHint { .. } => AuthorityClass::IntegrationSignal,
            Tick::Work { .. } | Tick::OwnSystemWait { .. } => AuthorityClass::RuntimeInstruction,
        };
        let expected = Message {
            kind: MessageKind::SystemTick,
            priority: Priority::Normal,
            origin: Origin { kind: OriginKind::System, id: message.origin.id.clone() },
            authority_class,
            delivery_surface: DeliverySurface::RuntimeSystem,
            admission_context: AdmissionContext::RuntimeOwned,
            idempotency_key: Some(tick.key()),
            attempt: 1,
            created_at: now(),
            ..message.clone()
        };
        assert_eq!(message, expected);
        assert_eq!(transaction.state.status, Status::AwakeIdle, "{tick:?}");
        assert_eq!(transaction.state.focus, None, "a tick does not move the focus");
    }
}

#[test]
fn a_tick_for_work_has_the_objective_and_marks_the_revision() {
    for (reason, word) in
        [(WorkTick::ContinueActive, "continue_active"), (WorkTick::QueuedAvailable, "queued_available")]
    {
        let mut records = Records { works: vec![WorkItem { revision: 4, ..work(1) }], ..records() };
        records.state.counters.wakes = 6;
        let tick = Tick::Work { reason, work_item_id: work_id(1), revision: 4 };
        let (transaction, message) = emitted(records, &tick);
        assert_eq!((message.body, message.work_item_id), (text("objective 1"), Some(work_id(1))));
        let marked = WorkItem { revision: 4, ticked: Some(Ticked { revision: 4, wakes: 6 }), ..work(1) };
        assert!(transaction.puts.contains(&Put::Work(Box::new(marked))), "{:?}", transaction.puts);
        assert_eq!(message.idempotency_key, Some(format!("work_queue:{word}:{}:4", work_id(1))));
    }
}

#[test]
fn a_tick_for_a_hint_has_all_fields_of_the_hint() {
    let trigger = trigger_id(3);
    let full = WakeHint {
        reason: Some("mail came".to_owned()),
        resource: Some("mail".to_owned()),
        trigger_id: Some(trigger),
        wait_id: Some(wait_id(2)),
        body: Some(text("new mail")),
        count: 3,
        hops: 4,
        ..hint(7)
    };
    let records = with(|records| records.state.pending_wake_hint = Some(full.clone()));
    let (transaction, message) = emitted(records, &Tick::WakeHint { key: full.tick_key() });
    assert_eq!(transaction.state.pending_wake_hint, None);
    assert_eq!(transaction.state.last_wake_key, Some(full.tick_key()));
    assert_eq!(message.body, text(""));
    let named = (message.wait_id, message.trigger_id, message.resource.as_deref());
    assert_eq!(named, (Some(wait_id(2)), Some(trigger), Some("mail")));
    assert_eq!(message.origin.id.as_deref(), Some("cron"));
    assert_eq!(message.causation_id, Some(message_id(7).to_string()));
    assert_eq!(message.hops, 4);
    let hinted = Hinted {
        hint_id: message_id(7),
        source: "cron".to_owned(),
        reason: Some("mail came".to_owned()),
        count: 3,
        payload: Some(text("new mail")),
    };
    assert_eq!(message.hint, Some(hinted.clone()));
    // The event about the admission of the message contains the hint, too.
    let taken = applied(super::records(), |draft| admitted(draft, &message));
    let told = &taken.events[0].data;
    assert_eq!((&told["hint"], &told["resource"]), (&json!(hinted), &json!("mail")));
}

#[test]
fn a_tick_for_a_hint_without_a_body_is_without_content() {
    let reason = Some("a reason is no content".to_owned());
    let records = with(|records| records.state.pending_wake_hint = Some(WakeHint { reason, ..hint(7) }));
    let (_, message) = emitted(records, &Tick::WakeHint { key: hint(7).tick_key() });
    assert!(!message.body.is_contentful());
}

/// Sends the scheduler's message of the next decision and removes it, as if its turn had changed
/// nothing. Returns the reason of the decision.
fn tick_once(records: &mut Records) -> String {
    let decision = decide(&project(records, now()));
    let reason = decision.report.reason;
    if let StepAction::EmitTick(tick) = decision.action {
        let mut draft = draft(records.clone());
        emit_tick(&mut draft, &tick);
        *records = draft.records;
        records.inbox.head = None;
    }
    reason
}

#[test]
fn runnable_work_has_one_tick_per_revision_and_another_after_a_hint() {
    for current in [true, false] {
        let first = if current { "continue_active" } else { "queued_available" };
        let again = format!("duplicate_{first}");
        let mut records = Records { works: vec![work(1)], ..records() };
        records.state.focus = current.then(|| work_id(1));
        assert_eq!(tick_once(&mut records), first);
        assert_eq!(tick_once(&mut records), again);
        assert_eq!(tick_once(&mut records), again);

        records.works[0].revision = 2;
        assert_eq!(tick_once(&mut records), first, "a new revision");
        assert_eq!(tick_once(&mut records), again);

        records.inbox.hints = vec![hint(5)];
        records = taken_in(records).records;
        assert_eq!(tick_once(&mut records), "wake_hint", "the hint precedes the work queue");
        assert_eq!(tick_once(&mut records), first, "the hint has woken the agent");
        assert_eq!(tick_once(&mut records), again);
    }
}

#[test]
fn each_queued_item_gets_its_own_tick_in_order_of_creation() {
    let mut records = records();
    records.works = vec![work(1), work(2)];
    let ticked =
        |records: &Records| -> Vec<bool> { records.works.iter().map(|item| item.ticked.is_some()).collect() };
    assert_eq!(tick_once(&mut records), "queued_available");
    assert_eq!(ticked(&records), [true, false]);
    assert_eq!(tick_once(&mut records), "queued_available");
    assert_eq!(ticked(&records), [true, true]);
    assert_eq!(tick_once(&mut records), "duplicate_queued_available");
}

#[test]
fn an_item_with_a_system_wait_has_one_tick_per_revision() {
    let mut records = records_in(Status::Asleep, ExecutionState::Completed);
    records.state.focus = Some(work_id(1));
    records.works.push(work(1));
    records.waits.push(wait_on(1, WaitKind::System, 1));
    for revision in [1, 2] {
        records.works[0].revision = revision;
        for expected in ["emit_system_tick", "wait_for_resources"] {
            let decided = report(&records, now()).decision.name();
            assert_eq!((decided, tick_once(&mut records)), (expected, "system_wait".to_owned()));
        }
    }
}

#[test]
fn a_system_wait_of_the_agent_has_one_tick() {
    let mut records = records_in(Status::Asleep, ExecutionState::Completed);
    records.waits.push(wait(1, WaitKind::System));
    for expected in ["emit_system_tick", "wait_for_resources", "wait_for_resources"] {
        let decided = report(&records, now()).decision.name();
        assert_eq!((decided, tick_once(&mut records)), (expected, "system_wait".to_owned()));
    }
    assert_eq!(records.waits[0].ticked_at, Some(now()));
}

fn archived(status: MessageStatus, dead_letter: bool) -> Message {
    let settlement = Settlement {
        status,
        at: at(-500),
        reason: Some("gave up".to_owned()),
        run_id: Some(run_id(1)),
        dead_letter,
    };
    Message {
        settlement: Some(settlement),
        attempt: 5,
        continuation: Some(continuation()),
        expires_at: Some(at(-1)),
        dedupe_key: Some("k".to_owned()),
        ..prompt(1)
    }
}

/// Returns the records of an agent with two dead letters.
fn with_dead() -> Records {
    with(|records| records.state.counters.dead = 2)
}

#[test]
fn a_requeued_message_has_its_first_attempt_again() {
    let rows = [
        (MessageStatus::Aborted, true, 1),
        (MessageStatus::Aborted, false, 2),
        (MessageStatus::Dropped, false, 2),
    ];
    for (status, dead_letter, dead_left) in rows {
        let transaction = changed(with_dead(), |draft| requeue(draft, archived(status, dead_letter)));
        assert_eq!(transaction.state.counters.dead, dead_left, "{status}");
        let fresh = Message { dedupe_key: Some("k".to_owned()), taken_up: true, ..prompt(1) };
        assert!(transaction.puts.contains(&Put::Message(Box::new(fresh))), "{:?}", transaction.puts);
        let line = settlement(&transaction);
        assert_eq!((line.status, line.dead_letter, line.at), (MessageStatus::Queued, false, now()));
        assert_eq!(kinds(&transaction.events), [EventKind::MessageRequeued]);
    }
}

#[test]
fn a_processed_or_queued_message_is_not_requeued() {
    let rows = [
        (Some(MessageStatus::Processed), "already_processed"),
        (Some(MessageStatus::Interjected), "already_processed"),
        (Some(MessageStatus::Queued), "not_settled"),
        (Some(MessageStatus::Dequeued), "not_settled"),
        (None, "not_settled"),
    ];
    for (status, kind) in rows {
        let message = status.map_or(prompt(1), |status| archived(status, false));
        assert_eq!(refused(with_dead(), |draft| requeue(draft, message)).kind, kind, "{status:?}");
    }
}

#[test]
fn only_a_dead_letter_can_be_dropped_from_the_archive() {
    let dead = archived(MessageStatus::Aborted, true);
    let transaction = changed(with_dead(), |draft| drop_dead_letter(draft, dead, "noise"));
    assert_eq!(transaction.state.counters.dead, 1);
    let (status, _, dead_letter) = settled_as(&transaction);
    assert_eq!((status, dead_letter), (MessageStatus::Dropped, false));
    assert_eq!(kinds(&transaction.events), [EventKind::MessageSettled]);
    assert!(transaction.puts.is_empty() && transaction.deletes.is_empty());

    let others = [
        (archived(MessageStatus::Aborted, false), "not_dead"),
        (archived(MessageStatus::Processed, false), "not_dead"),
        (archived(MessageStatus::Queued, false), "not_dead"),
        (prompt(1), "not_settled"),
    ];
    for (message, kind) in others {
        assert_eq!(refused(with_dead(), |draft| drop_dead_letter(draft, message, "noise")).kind, kind);
    }
}

#[test]
fn a_queued_message_is_dropped_with_a_reason_and_counted() {
    let mut draft = draft(queued(prompt(1)));
    drop_message(&mut draft, prompt(1), "not wanted");
    assert_eq!(draft.records.inbox.head, None);
    let transaction = finish(draft);
    assert_eq!(settled_as(&transaction), (MessageStatus::Dropped, Some("not wanted"), false));
    assert_eq!(transaction.state.counters.messages_dropped, 1);
}

#[test]
fn a_hand_written_file_is_admitted_under_its_key_or_rejected_with_the_reason() {
    let keyed = Message { dedupe_key: Some("k".to_owned()), ..prompt(1) };
    let transaction = applied(records(), |draft| admit_drop(draft, keyed.clone(), None));
    assert!(matches!(&transaction.puts[..], [Put::Dedupe(_), Put::Message(message)] if **message == keyed));

    let transaction = applied(records(), |draft| rejected(draft, "todo.txt", "not JSON", false));
    assert_eq!(kinds(&transaction.events), [EventKind::MessageRejected, EventKind::Attention]);
    let data = &transaction.events[0].data;
    assert_eq!((word(data, "path"), word(data, "reason")), ("todo.txt", "not JSON"));
}
