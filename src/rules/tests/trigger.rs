//! Tests of deliveries through triggers, and of the changes of a trigger.

use crate::model::trigger::{DeliveryMode, Trigger, TriggerScope};
use crate::rules::delivery::{AdmittedDelivery, Delivery, KEY_MAX, admit};
use crate::rules::transition::arrival;
use crate::rules::transition::hints::{coalesce_hints, ignore_hints};
use crate::rules::transition::trigger::{NewTrigger, create, revoke, rotate};
use crate::rules::transition::wait as waits;

use super::*;

fn trigger(number: u32, scope: TriggerScope) -> Trigger {
    Trigger::new(trigger_id(number), agent(), scope, "ab".repeat(32), at(0))
}

fn delivery(words: &str) -> Delivery {
    Delivery {
        body: Some(text(words)),
        key: None,
        source_refs: vec!["http:method:POST".to_owned()],
        surface: DeliverySurface::Cgi,
        hops: None,
    }
}

fn admitted(trigger: &Trigger, delivery: Delivery) -> Result<AdmittedDelivery, &'static str> {
    admit(trigger, delivery, &Limits::default(), &mut stamp_at(now())).map_err(|refusal| refusal.kind)
}

#[track_caller]
fn message_of(admitted: Result<AdmittedDelivery, &'static str>) -> Message {
    match admitted {
        Ok(AdmittedDelivery::Message(message)) => *message,
        other => panic!("no message: {other:?}"),
    }
}

#[test]
fn a_delivery_is_a_signal_about_the_scope_of_its_trigger() {
    let resource = TriggerScope::Resource("github:org/repo#12".to_owned());
    let rows = [
        (TriggerScope::Agent, None, "webhook", MessageKind::WebhookEvent),
        (TriggerScope::Agent, Some("webhook:ci"), "webhook:ci", MessageKind::WebhookEvent),
        (TriggerScope::Agent, Some("callback"), "callback", MessageKind::CallbackEvent),
        (resource, None, "webhook", MessageKind::WebhookEvent),
        (TriggerScope::Wait(wait_id(1)), None, "callback", MessageKind::CallbackEvent),
        (TriggerScope::Wait(wait_id(1)), Some("webhook:ci"), "webhook:ci", MessageKind::WebhookEvent),
    ];
    for (scope, source, origin, kind) in rows {
        let mut trigger = trigger(1, scope);
        trigger.source = source.map(str::to_owned);
        let message = message_of(admitted(&trigger, delivery("hello")));
        let expected = Message {
            kind,
            origin: origin.parse().expect("an origin"),
            authority_class: AuthorityClass::IntegrationSignal,
            admission_context: AdmissionContext::ExternalTriggerCapability,
            priority: Priority::Normal,
            delivery_surface: DeliverySurface::Cgi,
            trigger_id: Some(trigger.id),
            resource: trigger.scope.resource().map(str::to_owned),
            wait_id: trigger.scope.wait_id(),
            source_refs: vec!["http:method:POST".to_owned()],
            ..message.clone()
        };
        assert_eq!(message, expected);
        trigger.delivery_mode = DeliveryMode::WakeHint;
        let Ok(AdmittedDelivery::Hint { hint, dedupe_key: None }) = admitted(&trigger, delivery("hello"))
        else {
            panic!("{origin}")
        };
        assert_eq!((hint.source.as_str(), hint.trigger_id), (origin, Some(trigger.id)));
        assert_eq!(
            (hint.resource.as_deref(), hint.wait_id),
            (trigger.scope.resource(), trigger.scope.wait_id())
        );
        assert_eq!(hint.body, Some(text("hello")));
    }
}

#[test]
fn no_record_makes_a_delivery_an_instruction() {
    for source in ["operator", "operator:boss", "channel:irc", "system", "task", "timer", "nobody"] {
        let trigger = Trigger { source: Some(source.to_owned()), ..trigger(1, TriggerScope::Agent) };
        assert!(trigger.check().is_err(), "{source}");
        assert_eq!(admitted(&trigger, delivery("hello")), Err("invalid_trigger"), "{source}");
    }
    assert_eq!(crate::rules::admission::authority(OriginKind::Callback), AuthorityClass::IntegrationSignal);
}

#[test]
fn a_blank_delivery_may_be_a_wake_hint_but_no_message() {
    let mut trigger = trigger(1, TriggerScope::Agent);
    let blank = [None, Some(text("")), Some(text(" \n"))];
    for body in blank.clone() {
        let said = Delivery { body, ..delivery("") };
        assert_eq!(admitted(&trigger, said), Err("blank_message"));
    }
    let json = Delivery { body: Some(Body::from(serde_json::Value::Null)), ..delivery("") };
    assert!(admitted(&trigger, json).is_ok());
    trigger.delivery_mode = DeliveryMode::WakeHint;
    for body in blank {
        assert!(admitted(&trigger, Delivery { body, ..delivery("") }).is_ok());
    }
}

#[test]
fn the_body_the_key_and_the_hops_of_a_delivery_are_limited() {
    let trigger = trigger(1, TriggerScope::Agent);
    let limits = Limits { max_message: Size(4), max_hops: 2, ..Limits::default() };
    let admit =
        |delivery| admit(&trigger, delivery, &limits, &mut stamp_at(now())).map_err(|refusal| refusal.kind);
    assert!(admit(delivery("four")).is_ok());
    assert_eq!(admit(delivery("fives")), Err("message_too_large"));
    for (key, is_good) in
        [("k".repeat(KEY_MAX), true), ("k".repeat(KEY_MAX + 1), false), (String::new(), false)]
    {
        let said = Delivery { key: Some(key), ..delivery("four") };
        assert_eq!(admit(said).is_ok(), is_good);
    }
    let from = |hops| Delivery { hops, ..delivery("four") };
    assert_eq!(message_of(admit(from(Some(1)))).hops, 2);
    assert_eq!(admit(from(Some(2))), Err("hop_limit"));
    assert_eq!(message_of(admit(from(None))).hops, 0, "a new chain");
}

#[test]
fn the_same_key_of_two_triggers_is_not_a_duplicate() {
    let key = |number| {
        let said = Delivery { key: Some("one".to_owned()), ..delivery("hello") };
        message_of(admitted(&trigger(number, TriggerScope::Agent), said)).dedupe_key.unwrap()
    };
    assert_ne!(key(1), key(2));
    assert!(key(1).ends_with(":one"));
}

fn new(scope: TriggerScope) -> NewTrigger {
    NewTrigger {
        delivery_mode: DeliveryMode::EnqueueMessage,
        scope,
        source: None,
        verify: Verify::Secret,
        secret_sha256: "cd".repeat(32),
    }
}

#[test]
fn only_an_external_or_system_wait_can_have_a_trigger_and_at_most_one() {
    for kind in WaitKind::ALL {
        let mut draft = draft(Records { waits: vec![wait(1, *kind)], ..records() });
        let made = create(&mut draft, new(TriggerScope::Wait(wait_id(1))));
        if !matches!(kind, WaitKind::External | WaitKind::System) {
            assert_eq!(made.unwrap_err().kind, "invalid_wait", "{kind}");
            continue;
        }
        assert_eq!(draft.records.waits[0].trigger_id, Some(made.unwrap().id));
        let again = create(&mut draft, new(TriggerScope::Wait(wait_id(1))));
        assert_eq!(again.unwrap_err().kind, "wait_has_trigger");
    }
    let mut draft = draft(records());
    assert_eq!(create(&mut draft, new(TriggerScope::Wait(wait_id(1)))).unwrap_err().kind, "not_active");
    assert!(draft.is_empty());
}

#[test]
fn the_trigger_of_a_wait_ends_with_the_wait_but_a_wait_does_not_end_with_its_trigger() {
    let own = |scope| {
        let waiting = Wait { trigger_id: Some(trigger_id(1)), ..wait(1, WaitKind::External) };
        draft(Records { waits: vec![waiting], triggers: vec![trigger(1, scope)], ..records() })
    };
    for (scope, is_revoked) in [
        (TriggerScope::Wait(wait_id(1)), true),
        (TriggerScope::Agent, false),
        (TriggerScope::Resource("r".to_owned()), false),
    ] {
        let mut draft = own(scope.clone());
        waits::end_wait(&mut draft, wait_id(1), WaitStatus::Expired, "expires_at").unwrap();
        assert_eq!(draft.records.triggers.is_empty(), is_revoked, "{scope}");
        let transaction = draft.finish().unwrap();
        let revoked = transaction.archived.iter().any(|archived| {
            matches!(archived, Archived::Trigger(trigger) if !trigger.is_active() && trigger.revoked_at == Some(now()))
        });
        assert_eq!(revoked, is_revoked, "{scope}");

        let mut draft = own(scope);
        revoke(&mut draft, trigger_id(1), "revoked").unwrap();
        assert_eq!(draft.records.waits[0].trigger_id, None);
        assert!(draft.records.waits[0].is_waiting());
        assert_eq!(revoke(&mut draft, trigger_id(1), "revoked").unwrap_err().kind, "not_active");
    }
}

#[test]
fn a_new_secret_replaces_the_old_one_and_nothing_else() {
    let mut draft = draft(Records { triggers: vec![trigger(1, TriggerScope::Agent)], ..records() });
    let rotated = rotate(&mut draft, trigger_id(1), "ef".repeat(32)).unwrap();
    assert_eq!(rotated, Trigger { secret_sha256: "ef".repeat(32), ..trigger(1, TriggerScope::Agent) });
    assert_eq!(draft.puts(), [Put::Trigger(Box::new(rotated))]);
    assert_eq!(rotate(&mut draft, trigger_id(2), String::new()).unwrap_err().kind, "not_active");
}

#[test]
fn a_delivery_is_counted_once_when_a_step_admits_it() {
    let counted = |draft: &Draft| {
        let trigger = &draft.records.triggers[0];
        (trigger.delivery_count, trigger.last_delivered_at)
    };
    let records = || Records { triggers: vec![trigger(1, TriggerScope::Agent)], ..records() };
    let said = Message { trigger_id: Some(trigger_id(1)), ..message(1, MessageKind::WebhookEvent) };
    let mut open = draft(records());
    arrival::admitted(&mut open, &said);
    assert_eq!(counted(&open), (1, Some(said.created_at)));
    // A requeued dead letter is no second delivery.
    let again = Message { failures: vec![failed_attempt(1)], ..said.clone() };
    arrival::admitted(&mut open, &again);
    arrival::admitted(&mut open, &Message { trigger_id: None, ..said.clone() });
    arrival::admitted(&mut open, &Message { trigger_id: Some(trigger_id(9)), ..said });
    assert_eq!(counted(&open).0, 1);

    let hints = |draft: &mut Draft| {
        draft.records.inbox.hints =
            (1..4).map(|n| WakeHint { trigger_id: Some(trigger_id(1)), ..hint(n) }).collect();
    };
    let mut open = draft(records());
    hints(&mut open);
    coalesce_hints(&mut open);
    assert_eq!(counted(&open).0, 3);
    ignore_hints(&mut open, "stopped");
    assert_eq!(counted(&open).0, 3, "the pending hint was counted before");
    hints(&mut open);
    ignore_hints(&mut open, "stopped");
    assert_eq!(counted(&open).0, 6);
}
