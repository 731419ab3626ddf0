//! Tests the parsers of arguments and outcomes on random bytes, as `store::tests` tests those of
//! records: no parser panics, and a parsed value can be written and read again as an equal value.

mod beside;
mod both_stores;
mod random_lives;

mod readers {
    use crate::engine::outcome;
    use crate::model::json;
    use crate::model::message::Origin;
    use crate::model::policy::Limits;
    use crate::model::submission::Submission;
    use crate::model::time::{Span, Time};
    use crate::rules::schedule;
    use crate::store::tests::{positional, tried};

    #[test]
    fn outcome_and_submission_parsers_never_panic() {
        let outcome = br#"{"brief": "x", "usage": {"input_tokens": 1, "cost_usd": 0.25, "model": "m"}, "actions": [
            {"do": "work.add", "objective": "o", "todo": [{"text": "one", "done": true}], "pick": true},
            {"do": "wait", "kind": "external", "resource": "r", "reason": "y", "recheck_after": "6h"},
            {"do": "timer.add", "cron": "0 9 * * 1", "time_zone": "Europe/Berlin", "text": "t"},
            {"do": "enqueue", "agent": "bob", "text": "t", "in": "1h"}], "deferred": {"after": "1h", "reason": "y"}}"#;
        tried(&[outcome.to_vec()], |bytes| drop(outcome::parse(bytes)));
        let dropped = br#"{"text": "t", "origin": "webhook:ci", "kind": "webhook_event", "priority": "next", "ttl": "5h",
            "dedupe_key": "k", "expires_at": "2026-01-01T00:00:00Z", "resource": "r"}"#;
        tried(&[dropped.to_vec()], |bytes| {
            if let Ok(mut submission) = json::read::<Submission>(bytes) {
                drop(submission.take_body());
            }
        });
    }

    /// Tests every action with every field that holds an object.
    #[test]
    fn outcomes_and_submissions_refuse_an_array_in_place_of_an_object() {
        let (work, wait) = ("work_01900000000070008000000000000001", "wait_01900000000070008000000000000001");
        let outcome = serde_json::json!({
            "brief": "b", "usage": { "input_tokens": 1, "output_tokens": 2, "cost_usd": 0.5, "model": "m" },
            "deferred": { "resource": "r", "after": "1h", "reason": "y" },
            "actions": [
                { "do": "work.add", "objective": "o", "todo": [{ "text": "t", "done": true }] },
                { "do": "work.update", "id": work, "todo": [{ "text": "t" }] },
                { "do": "work.pick", "id": work }, { "do": "work.block", "id": work, "reason": "r" },
                { "do": "work.unblock", "id": work, "reason": "r" }, { "do": "work.complete", "id": work },
                { "do": "wait", "kind": "external", "reason": "r" },
                { "do": "task.start", "command": ["true"] }, { "do": "timer.add", "in": "1h" },
                { "do": "enqueue", "body": 1, "wait_id": wait },
            ],
        });
        assert!(outcome::parse(outcome.to_string().as_bytes()).is_ok());
        for (path, bytes) in positional(&outcome) {
            let wrong = outcome::parse(&bytes).expect_err(&path);
            assert!(wrong.why.contains("invalid type: sequence"), "{path}: {}", wrong.why);
        }
        let dropped = serde_json::json!({ "text": "t" });
        for (path, bytes) in positional(&dropped) {
            assert!(json::read::<Submission>(&bytes).is_err(), "{path}");
        }
    }

    #[test]
    fn unambiguous_faults_of_an_outcome_are_repaired_with_a_note() {
        let limits = Limits::default();
        for (text, notes) in [
            ("", 1),
            (" \n", 1),
            ("\u{feff}", 1),
            ("{}", 0),
            (
                "\u{feff}{\"brief\": \"b\\ud800\", \"usage\": {\"input_tokens\": 12.0, \"output_tokens\": 3}}",
                3,
            ),
        ] {
            let (outcome, said) = outcome::check(text.as_bytes(), &limits).expect(text);
            assert_eq!(said.len(), notes, "{text}: {said:?}");
            assert!(outcome.brief.is_none_or(|brief| brief == "b\u{fffd}"), "{text}");
        }
        for text in [
            "{\"usage\": {\"input_tokens\": 1.5}}",
            "{\"usage\": {\"input_tokens\": -1.0}}",
            "\u{feff}\u{feff}{}",
        ] {
            assert!(outcome::check(text.as_bytes(), &limits).is_err(), "{text}");
        }
    }

    #[test]
    fn argument_parsers_never_panic() {
        let samples = [
            "1h30m",
            "2d",
            "2026-01-02T03:04:05.678Z",
            "2026-01-02 03:04",
            "webhook:ci",
            "*/5 9-17 * * 1-5",
            "0 0 29 2 *",
        ];
        let samples: Vec<Vec<u8>> = samples.iter().map(|text| text.as_bytes().to_vec()).collect();
        tried(&samples, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(span) = text.parse::<Span>() {
                assert_eq!(span.to_string().parse::<Span>().ok(), Some(span), "{text}");
            }
            if let Ok(time) = Time::parse(text) {
                assert_eq!(Time::parse(&time.to_string()).ok(), Some(time), "{text}");
            }
            drop(text.parse::<Origin>());
            for seconds in [false, true] {
                if let Ok(calendar) = schedule::calendar(text.to_owned(), "Europe/Berlin".to_owned(), seconds)
                {
                    for now in [0, 1_767_323_045_000, i64::MAX / 2] {
                        let _ = schedule::next_after(&calendar, Time::from_millis(now));
                    }
                }
            }
        });
    }
}
