//! Tests of the admission of messages: origins, kinds, priorities, sizes, bodies, expiry and hops.

use crate::model::submission::{CalledBy, Caller, Speaker, Submission};
use crate::rules::admission::{admit, authority, is_open_to_outside, kinds};

use super::*;

/// Rows of contract, semantics §9: origin, its message kinds, its authority.
const TABLE: [(&str, &[&str], &str); 7] = [
    ("operator", &["operator_prompt", "control"], "operator_instruction"),
    ("channel", &["channel_event"], "external_evidence"),
    ("webhook", &["webhook_event"], "integration_signal"),
    ("callback", &["callback_event"], "integration_signal"),
    ("timer", &["timer_tick"], "runtime_instruction"),
    ("system", &["system_tick", "internal_followup", "control"], "runtime_instruction"),
    ("task", &["task_result", "task_status"], "runtime_instruction"),
];

/// Origins that no outside sender may name. A turn may name its own agent as `system`.
const RUNTIME: [&str; 3] = ["timer", "system", "task"];

fn said(text: &str) -> Submission {
    Submission { text: Some(text.to_owned()), ..Submission::default() }
}

fn from_origin(origin: &str) -> Submission {
    Submission { origin: Some(origin.to_owned()), ..said("x") }
}

fn of_kind(kind: MessageKind) -> Submission {
    Submission { kind: Some(kind), ..said("x") }
}

fn submit_with(submission: Submission, speaker: Speaker<'_>, limits: &Limits) -> Result<Message, Refusal> {
    admit(&agent(), submission, speaker, limits, &mut stamp_at(now()))
}

fn submit_as(submission: Submission, speaker: Speaker<'_>) -> Result<Message, Refusal> {
    submit_with(submission, speaker, &Limits::default())
}

fn submit(submission: Submission) -> Result<Message, Refusal> {
    submit_as(submission, Speaker::Outside)
}

/// Returns a turn of the agent `writer`, whose message has come through `hops` turns.
fn caller(hops: u32) -> Caller {
    let by = CalledBy::Turn { run_id: run_id(5), message_id: message_id(6) };
    Caller { agent: "writer".parse().expect("a name"), by, hops: Some(hops) }
}

fn submit_inside(submission: Submission, hops: u32) -> Result<Message, Refusal> {
    submit_as(submission, Speaker::Work(&caller(hops)))
}

fn refused(result: Result<Message, Refusal>) -> &'static str {
    result.expect_err("a refusal").kind
}

#[test]
fn the_kinds_and_the_authority_of_each_origin_are_those_of_the_table() {
    assert_eq!(OriginKind::ALL.len(), TABLE.len());
    for (origin, (name, allowed, class)) in OriginKind::ALL.iter().zip(TABLE) {
        assert_eq!(origin.name(), name);
        let names: Vec<&str> = kinds(*origin).iter().map(|kind| kind.name()).collect();
        assert_eq!(names, allowed, "{origin}");
        assert_eq!(authority(*origin).name(), class, "{origin}");
        assert_eq!(is_open_to_outside(*origin), !RUNTIME.contains(&name), "{origin}");
    }
}

#[test]
fn of_all_70_pairs_of_origin_and_kind_the_outside_may_use_exactly_those_of_the_table() {
    let mut admitted = 0;
    for (origin, allowed, class) in TABLE {
        for kind in MessageKind::ALL {
            let result = submit(Submission { kind: Some(*kind), ..from_origin(origin) });
            if RUNTIME.contains(&origin) {
                assert_eq!(refused(result), "origin_not_allowed", "{origin} {kind}");
            } else if allowed.contains(&kind.name()) {
                let message = result.unwrap_or_else(|refusal| panic!("{origin} {kind}: {refusal:?}"));
                assert_eq!((message.origin.kind.name(), message.kind), (origin, *kind));
                assert_eq!(message.authority_class.name(), class, "{origin} {kind}");
                admitted += 1;
            } else {
                assert_eq!(refused(result), "kind_origin_mismatch", "{origin} {kind}");
            }
        }
    }
    assert_eq!(admitted, 5);
}

#[test]
fn without_an_origin_the_outside_may_use_the_kinds_of_its_own_origins_alone() {
    for kind in MessageKind::ALL {
        let result = submit(of_kind(*kind));
        let (origin, ..) = provenance(*kind);
        if RUNTIME.contains(&origin.name()) {
            assert_eq!(refused(result), "origin_not_allowed", "{kind}");
        } else {
            assert_eq!(result.map(|message| message.origin.kind), Ok(origin), "{kind}");
        }
    }
}

#[test]
fn without_a_kind_or_priority_a_message_has_the_first_kind_of_its_origin_and_is_normal() {
    let rows = [
        (None, MessageKind::OperatorPrompt),
        (Some("operator"), MessageKind::OperatorPrompt),
        (Some("channel:irc"), MessageKind::ChannelEvent),
        (Some("webhook:ci"), MessageKind::WebhookEvent),
        (Some("callback"), MessageKind::CallbackEvent),
    ];
    for (origin, kind) in rows {
        let found = submit(Submission { origin: origin.map(str::to_owned), ..said("hello") });
        let found = found.map(|message| (message.kind, message.priority));
        assert_eq!(found, Ok((kind, Priority::Normal)), "{origin:?}");
    }
}

#[test]
fn an_origin_keeps_its_name_and_an_unknown_origin_is_refused() {
    let rows = [
        ("webhook:ci", Some("ci")),
        ("webhook:github:org/repo", Some("github:org/repo")),
        ("webhook", None),
        ("webhook:", None),
    ];
    for (origin, id) in rows {
        let expected = Origin { kind: OriginKind::Webhook, id: id.map(str::to_owned) };
        assert_eq!(submit(from_origin(origin)).map(|message| message.origin), Ok(expected), "{origin}");
    }
    for origin in ["robot", "", ":ci", "Webhook:ci"] {
        assert_eq!(refused(submit(from_origin(origin))), "unknown_origin", "{origin}");
    }
}

#[test]
fn an_admitted_message_has_the_fields_of_its_request_and_its_provenance_alone() {
    let request = Submission {
        origin: Some("webhook:ci".to_owned()),
        priority: Some(Priority::Background),
        dedupe_key: Some("build-7".to_owned()),
        resource: Some("github:org/repo#12".to_owned()),
        work_item_id: Some(work_id(3)),
        correlation_id: Some("c-1".to_owned()),
        ..said("red")
    };
    let found = submit(request).expect("admitted");
    let expected = Message {
        id: MessageId(stamp_at(now()).mint()),
        agent: agent(),
        kind: MessageKind::WebhookEvent,
        priority: Priority::Background,
        origin: Origin { kind: OriginKind::Webhook, id: Some("ci".to_owned()) },
        authority_class: AuthorityClass::IntegrationSignal,
        delivery_surface: DeliverySurface::Cli,
        admission_context: AdmissionContext::LocalProcess,
        trigger_kind: Some(TriggerKind::ExternalEvent),
        body: Body::Text { text: "red".to_owned() },
        work_item_id: Some(work_id(3)),
        task_id: None,
        task_status: None,
        wait_id: None,
        trigger_id: None,
        resource: Some("github:org/repo#12".to_owned()),
        correlation_id: Some("c-1".to_owned()),
        causation_id: None,
        source_refs: Vec::new(),
        dedupe_key: Some("build-7".to_owned()),
        idempotency_key: None,
        hint: None,
        expires_at: None,
        hops: 0,
        attempt: 1,
        created_at: now(),
        continuation: None,
        setbacks: Setbacks::default(),
        failures: Vec::new(),
        taken_up: false,
        interjected: Vec::new(),
        checkpoint: None,
        settlement: None,
        extra: Default::default(),
    };
    assert_eq!(found, expected);
}

#[test]
fn the_surface_follows_from_the_speaker() {
    let (writer, file) = (caller(0), "operator".parse().expect("an origin"));
    let rows = [
        (Speaker::Outside, DeliverySurface::Cli, AdmissionContext::LocalProcess),
        (Speaker::Work(&writer), DeliverySurface::RuntimeSystem, AdmissionContext::RuntimeOwned),
        (Speaker::File(&file), DeliverySurface::FileDrop, AdmissionContext::LocalProcess),
        (Speaker::User("ci"), DeliverySurface::FileDrop, AdmissionContext::LocalProcess),
    ];
    for (speaker, surface, context) in rows {
        let found = submit_as(said("x"), speaker).expect("admitted");
        assert_eq!((found.delivery_surface, found.admission_context), (surface, context), "{speaker:?}");
    }
}

#[test]
fn only_the_operator_interjects() {
    for (origin, ..) in TABLE.iter().filter(|(origin, ..)| !RUNTIME.contains(origin)) {
        for priority in Priority::ALL {
            let result = submit(Submission { priority: Some(*priority), ..from_origin(origin) });
            if *priority == Priority::Interject && *origin != "operator" {
                assert_eq!(refused(result), "priority_not_allowed", "{origin}");
            } else {
                assert_eq!(result.map(|message| message.priority), Ok(*priority), "{origin}");
            }
        }
    }
    let inside = submit_inside(Submission { priority: Some(Priority::Interject), ..said("now") }, 0);
    assert_eq!(refused(inside), "priority_not_allowed");
}

#[test]
fn a_turn_sends_a_follow_up_in_the_name_of_its_agent_one_hop_further() {
    let found = submit_inside(said("x"), 3).expect("admitted");
    let expected = Message {
        kind: MessageKind::InternalFollowup,
        origin: Origin { kind: OriginKind::System, id: Some("writer".to_owned()) },
        authority_class: AuthorityClass::RuntimeInstruction,
        delivery_surface: DeliverySurface::RuntimeSystem,
        admission_context: AdmissionContext::RuntimeOwned,
        hops: 4,
        causation_id: Some(message_id(6).to_string()),
        source_refs: vec![format!("writer/{}", run_id(5))],
        ..found.clone()
    };
    assert_eq!(found, expected);
    for request in
        [from_origin("system"), from_origin("system:writer"), of_kind(MessageKind::InternalFollowup)]
    {
        assert_eq!(submit_inside(request, 3), Ok(found.clone()));
    }
}

#[test]
fn a_turn_can_not_use_another_origin_than_its_own_nor_another_kind_of_the_runtime() {
    use MessageKind::{Control, OperatorPrompt, SystemTick, TaskResult, TaskStatus, TimerTick};
    let others = "operator operator:alice timer task webhook:ci channel callback:x system:somebody-else";
    let requests = others.split(' ').map(from_origin);
    let requests = requests.chain([OperatorPrompt, TimerTick, TaskResult, TaskStatus].map(of_kind));
    let control = Submission { kind: Some(Control), ..from_origin("operator") };
    for request in requests.chain([control]) {
        assert_eq!(refused(submit_inside(request.clone(), 0)), "origin_not_allowed", "{request:?}");
    }
    for kind in [SystemTick, Control] {
        assert_eq!(refused(submit_inside(of_kind(kind), 0)), "kind_not_allowed", "{kind}");
    }
}

#[test]
fn a_chain_of_turns_has_at_most_max_hops() {
    assert_eq!(Limits::default().max_hops, 20);
    assert_eq!(submit_inside(said("x"), 19).map(|message| message.hops), Ok(20));
    assert_eq!(refused(submit_inside(said("x"), 20)), "hop_limit");
    assert_eq!(refused(submit_inside(said("x"), u32::MAX)), "hop_limit");

    let alone = Limits { max_hops: 0, ..Limits::default() };
    assert_eq!(refused(submit_with(said("x"), Speaker::Work(&caller(0)), &alone)), "hop_limit");
    assert_eq!(submit_with(said("x"), Speaker::Outside, &alone).map(|message| message.hops), Ok(0));
}

#[test]
fn a_body_of_exactly_the_limit_is_admitted_and_a_larger_one_is_refused_with_the_limit_named() {
    assert_eq!(Limits::default().max_message, Size(1 << 20));
    let limits = Limits { max_message: Size(2048), ..Limits::default() };
    let bodies: [fn(usize) -> Submission; 3] = [
        |bytes| said(&"x".repeat(bytes)),
        |bytes| said(&"é".repeat(bytes.div_ceil(2))),
        |bytes| Submission { body: Some(json!("x".repeat(bytes - 2)).into()), ..Submission::default() },
    ];
    for body in bodies {
        assert!(submit_with(body(2048), Speaker::Outside, &limits).is_ok());
        let refusal = submit_with(body(2049), Speaker::Outside, &limits).expect_err("too large");
        assert_eq!(refusal.kind, "message_too_large");
        assert!(refusal.message.contains("limits.max_message = 2 KiB"), "{}", refusal.message);
    }
}

#[test]
fn a_message_has_one_body_text_or_json() {
    let body = |text: Option<&str>, body| {
        submit(Submission { text: text.map(str::to_owned), body, ..Submission::default() })
            .map(|message| message.body)
            .map_err(|refusal| refusal.kind)
    };
    assert_eq!(body(Some("x"), None), Ok(Body::Text { text: "x".to_owned() }));
    assert_eq!(body(Some(" \n"), None), Err("blank_message"));
    let meant = Submission { text: Some(String::new()), allow_empty: true, ..Submission::default() };
    assert_eq!(submit(meant).map(|message| message.body), Ok(Body::Text { text: String::new() }));
    assert_eq!(body(None, Some(json!({"a": 1}).into())), Ok(Body::from(json!({"a": 1}))));
    assert_eq!(body(None, Some(json!(null).into())), Ok(Body::from(json!(null))));
    assert_eq!(body(None, None), Err("invalid_body"));
    assert_eq!(body(Some("x"), Some(json!(1).into())), Err("invalid_body"));
}

#[test]
fn an_empty_dedupe_key_is_refused() {
    let keyed = |key: &str| Submission {
        text: Some("x".to_owned()),
        dedupe_key: Some(key.to_owned()),
        ..Submission::default()
    };
    assert_eq!(submit(keyed("")).unwrap_err().kind, "invalid_dedupe_key");
    assert_eq!(submit(keyed("k")).unwrap().dedupe_key.as_deref(), Some("k"));
}

#[test]
fn a_time_to_live_counts_from_admission_and_an_expiry_time_precedes_it() {
    let rows = [
        (None, None, None),
        (Some(secs(90)), None, Some(at(90_000))),
        (Some(Span::ZERO), None, Some(at(0))),
        (None, Some(at(5)), Some(at(5))),
        (Some(secs(90)), Some(at(5)), Some(at(5))),
    ];
    for (ttl, expires_at, expected) in rows {
        let found = submit(Submission { ttl, expires_at, ..said("x") });
        assert_eq!(found.map(|message| message.expires_at), Ok(expected), "{ttl:?} {expires_at:?}");
    }
}

/// A file in the inbox may claim the kinds of origin that have at most the authority that the
/// policy grants to files (`most`), and no origin of the runtime.
#[test]
fn a_dropped_file_has_the_origin_of_files_unless_it_claims_less_authority() {
    let words = "channel:file channel:slack channel webhook webhook:ci callback callback:x operator";
    let allowed = [
        ("channel:file", "channel:file channel:slack"),
        ("webhook:ci", "webhook:ci webhook callback:x channel:slack"),
        ("operator", "operator webhook:ci callback channel"),
    ];
    for (most, may) in allowed {
        let most: Origin = most.parse().expect("an origin");
        let drop = |submission| submit_as(submission, Speaker::File(&most));
        assert_eq!(drop(said("x")).map(|message| message.origin), Ok(most.clone()));
        for word in words.split(' ') {
            let found = drop(from_origin(word));
            if may.split(' ').any(|one| one.split(':').next() == word.split(':').next()) {
                let claimed: Origin = word.parse().expect("an origin");
                assert_eq!(found.map(|message| message.origin), Ok(claimed), "{most}: {word}");
            } else {
                assert_eq!(refused(found), "origin_not_allowed", "{most}: {word}");
            }
        }
        for word in RUNTIME {
            assert_eq!(refused(drop(from_origin(word))), "origin_not_allowed");
        }
        // A kind without an origin claims the default origin of the kind, here the operator.
        let prompt = drop(of_kind(MessageKind::OperatorPrompt));
        assert_eq!(prompt.is_ok(), most.kind == OriginKind::Operator, "{most}");
    }
}

/// A request and a whole record in the file of another user give equal messages.
#[test]
fn a_record_in_the_file_of_another_user_has_no_more_authority_than_a_request() {
    let record = submit(said("x")).expect("admitted");
    assert_eq!(record.origin.kind, OriginKind::Operator);
    let request = submit_as(said("x"), Speaker::User("ci")).expect("admitted");
    assert_eq!(request.origin, Origin { kind: OriginKind::Channel, id: Some("uid:ci".to_owned()) });
    assert_eq!(record.said_by("ci"), Ok(request));
    for speaker in [Speaker::Outside, Speaker::File(&"operator".parse().expect("an origin"))] {
        assert_eq!(refused(submit_as(from_origin("channel:uid:ci"), speaker)), "origin_not_allowed");
    }
}
