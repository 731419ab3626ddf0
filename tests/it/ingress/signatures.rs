//! Tests the signature schemes of webhook senders, and the messages that signed deliveries become.

use std::fs;

use serde_json::{Value, json};

use super::{Answered, Hook, NOW, cgi, queued};
use crate::harness::{Ran, Sandbox};
use crate::setup::{assert_includes, edit_file, failure, mode, names, objects, only_object, started};

/// Tries to create a trigger of `ada` with a secret from stdin.
fn create(sandbox: &Sandbox, verify: &str, secret: &str) -> Ran {
    let args = ["--json", "trigger", "create", "-a", "ada", "--verify", verify, "--secret-from", "-"];
    sandbox.cmd(args).stdin(secret).output()
}

/// Creates a trigger of `ada` with the secret of its sender.
fn with_secret_of_sender(sandbox: &Sandbox, verify: &str, secret: &str) -> Hook {
    let ran = create(sandbox, verify, &format!("{secret}\n")).exits(0);
    assert!(!ran.stdout.contains(secret), "the answer repeats the secret: {ran}");
    Hook::of(&only_object(&ran.stdout), secret)
}

/// Delivers by CGI with these headers at this moment.
fn delivered(sandbox: &Sandbox, hook: &Hook, now: &str, headers: &[(&str, &str)], body: &str) -> Answered {
    let length = body.len().to_string();
    let mut vars = vec![
        ("REQUEST_METHOD", "POST"),
        ("PATH_INFO", hook.path.as_str()),
        ("CONTENT_LENGTH", length.as_str()),
        ("DORMOUSE_NOW", now),
    ];
    vars.extend(headers);
    cgi(sandbox, &vars, body)
}

/// Returns the body of the message with this id.
fn body_of(sandbox: &Sandbox, message_id: &Value) -> Value {
    sandbox.json(["queue", "show", message_id.as_str().unwrap()])["body"].clone()
}

/// The rows are the examples of the makers' own documentation, with their secrets and times.
#[test]
fn the_documented_example_of_every_scheme_is_accepted_once() {
    let sandbox = started("true");
    let form = "application/x-www-form-urlencoded";
    let slack = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
        &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
        &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
        &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    let stripe = "t=1533204620,v1=f0bdba6d4eacbd8ad8a3bbadd7248e633ec1477f7899c124c51b39405fa36613";
    type Row<'r> = (&'r str, &'r str, &'r str, &'r str, Vec<(&'r str, &'r str)>, &'r str);
    let rows: [Row<'_>; 5] = [
        (
            "hmac_sha256",
            "It's a Secret to Everybody",
            "2026-01-02T03:04:05Z",
            "text/plain",
            vec![(
                "HTTP_X_HUB_SIGNATURE_256",
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            )],
            "Hello, World!",
        ),
        (
            "standard_webhooks",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "2021-02-25T15:02:10Z",
            "application/json",
            vec![
                ("HTTP_WEBHOOK_ID", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
                ("HTTP_WEBHOOK_TIMESTAMP", "1614265330"),
                ("HTTP_WEBHOOK_SIGNATURE", "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
            ],
            r#"{"test": 2432232314}"#,
        ),
        (
            "stripe",
            "webhook_secret",
            "2018-08-02T10:10:20Z",
            "application/json",
            vec![("HTTP_STRIPE_SIGNATURE", stripe)],
            include_str!("../../data/stripe_event.json"),
        ),
        (
            "slack",
            "8f742231b10e8888abcd99yyyzzz85a5",
            "2018-07-12T18:36:58Z",
            form,
            vec![
                ("HTTP_X_SLACK_REQUEST_TIMESTAMP", "1531420618"),
                (
                    "HTTP_X_SLACK_SIGNATURE",
                    "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
                ),
            ],
            slack,
        ),
        (
            "secret",
            "a token of GitLab",
            "2026-01-02T03:04:05Z",
            "application/json",
            vec![("HTTP_X_GITLAB_TOKEN", "a token of GitLab"), ("HTTP_IDEMPOTENCY_KEY", "one")],
            r#"{"object_kind": "push"}"#,
        ),
    ];
    for (number, (verify, secret, now, kind, headers, body)) in rows.iter().enumerate() {
        let hook = with_secret_of_sender(&sandbox, verify, secret);
        let with = |more: &[(&'static str, &'static str)]| {
            let mut all: Vec<(&str, &str)> = headers.clone();
            all.push(("CONTENT_TYPE", kind));
            all.extend(more);
            all
        };
        let first = delivered(&sandbox, &hook, now, &with(&[]), body);
        assert_eq!((first.status, &first.body["duplicate"]), (202, &json!(false)), "{verify}: {first:?}");
        // A repeated signed request is a duplicate, even with another delivery id.
        let again = [("HTTP_X_GITHUB_DELIVERY", "another")];
        let again = if *verify == "secret" { &[][..] } else { &again[..] };
        let again = delivered(&sandbox, &hook, now, &with(again), body);
        assert_eq!((again.status, &again.body["duplicate"]), (202, &json!(true)), "{verify}: {again:?}");
        assert_eq!(again.body["message_id"], first.body["message_id"], "{verify}");
        let other = delivered(&sandbox, &hook, now, &with(&[]), &format!("{body} "));
        let expected = if *verify == "secret" { 202 } else { 401 };
        assert_eq!(other.status, expected, "{verify}: another body");
        let late = if (1..4).contains(&number) { 401 } else { 202 };
        let answer = delivered(&sandbox, &hook, "2026-06-01T00:00:00Z", &with(&[]), body);
        assert_eq!(answer.status, late, "{verify}: later");
        let cut = [("CONTENT_TYPE", *kind)];
        assert_eq!(delivered(&sandbox, &hook, now, &cut, body).status, 401, "{verify}: unsigned");
        let keys = sandbox.agent("ada").join("keys");
        for name in names(&keys).iter().filter(|name| name.starts_with(&hook.id)) {
            assert_eq!(mode(&keys.join(name)), 0o600, "{name}");
        }
    }
    let ignored = fs::read_to_string(sandbox.agent("ada").join("keys/.gitignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "*"), "{ignored}");
}

#[test]
fn a_signed_url_verification_of_slack_gets_the_challenge_back() {
    let sandbox = started("true");
    let hook = with_secret_of_sender(&sandbox, "slack", "8f742231b10e8888abcd99yyyzzz85a5");
    let body = r#"{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
    let signed = hook.signature(&format!("v0:1767323045:{body}")).replace("sha256=", "v0=");
    let headers = [
        ("CONTENT_TYPE", "application/json"),
        ("HTTP_X_SLACK_REQUEST_TIMESTAMP", "1767323045"),
        ("HTTP_X_SLACK_SIGNATURE", signed.as_str()),
    ];
    let answer = delivered(&sandbox, &hook, NOW, &headers, body);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body["challenge"], "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P");
    let wrong = delivered(&sandbox, &hook, NOW, &headers[..2], body);
    assert_eq!(wrong.status, 401, "{wrong:?}");
    assert_eq!(queued(&sandbox), Vec::<Value>::new());
}

/// Only a trigger with `--verify url` accepts a delivery without a secret besides its address.
#[test]
fn only_a_trigger_with_verify_url_accepts_its_address_as_the_secret() {
    let sandbox = started("true");
    edit_file(&sandbox.store().join("dormouse.toml"), |text| {
        format!("{text}\n[ingress]\nbase_url = \"https://hooks.example\"\n")
    });
    let ran = sandbox.cmd(["--json", "trigger", "create", "-a", "ada", "--verify", "url"]).output();
    assert!(ran.stderr.contains("the address of this trigger is its secret"), "{ran}");
    let made: Value = serde_json::from_str(&ran.stdout).unwrap();
    let path = made["url"].as_str().unwrap().strip_prefix("https://hooks.example").unwrap().to_owned();
    let shown = sandbox.json(["trigger", "show", made["id"].as_str().unwrap()]);
    assert_eq!(shown.get("url"), None, "{shown}");
    let plain = super::hook(&sandbox, &[]);
    let kind = [("CONTENT_TYPE", "application/json")];
    for (path, status) in [
        (path.clone(), 202),
        (format!("{path}0"), 401),
        (format!("{path}/0"), 404),
        (path.rsplit_once('/').unwrap().0.to_owned(), 401),
        (format!("{}/{}", plain.path, plain.secret), 401),
    ] {
        assert_eq!(delivered(&sandbox, &Hook::at(&path, ""), NOW, &kind, "{}").status, status, "{path}");
    }
}

#[test]
fn json_bodies_are_kept_as_they_were_sent() {
    let sandbox = started("true");
    let hook = super::hook(&sandbox, &[]);
    let bearer = format!("Bearer {}", hook.secret);
    let headers = [("HTTP_AUTHORIZATION", bearer.as_str()), ("CONTENT_TYPE", "application/json")];
    let deliver = |body: &str| {
        let answer = delivered(&sandbox, &hook, NOW, &headers, body);
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.body["message_id"].clone()
    };
    let body =
        r#"{"b": 1.10, "a": 12345678901234567890123, "a": 1e400, "$serde_json::private::RawValue": "[1]"}"#;
    let kept = body_of(&sandbox, &deliver(body));
    assert_includes(&kept, json!({ "sent": body, "value.a": "1e400" }));
    assert_eq!(kept["value"]["$serde_json::private::RawValue"], "[1]");
    // serde_json would interpret such a key when this test parses the answer, so the test compares
    // text.
    let deep = format!("{{\"$serde_json::private::RawValue\":{:?}}}", "[".repeat(200));
    for private in [r#"{"$serde_json::private::RawValue":"{\"a\":1}"}"#, &deep] {
        let id = deliver(private);
        let shown = sandbox.run(["--json", "queue", "show", id.as_str().unwrap()]);
        assert!(shown.contains(&format!("\"value\":{private}}}")), "{shown}");
    }
    let kept = body_of(&sandbox, &deliver("\u{feff}{\"a\":\"\\ud800\"}"));
    assert_eq!(kept["value"], json!({ "a": "\u{fffd}" }));
    // `enqueue` keeps bodies from its arguments and from a batch in the same way.
    let given = sandbox.json(["enqueue", "ada", "--body-json", "\u{feff}{\"a\":1.10,\"b\":\"\\udfff\"}"]);
    assert_eq!(body_of(&sandbox, &given["message_id"])["sent"], "{\"a\":1.10,\"b\":\"\\ufffd\"}");
    let batch = "\u{feff}{\"body\": {\"a\": 1.10}}\n{\"text\": \"\\ud83d\"}\n";
    let ran = sandbox.cmd(["--json", "enqueue", "ada", "--batch"]).stdin(batch).exits(0);
    let [json, text] = &objects(&ran.stdout)[..] else { panic!("{ran}") };
    assert_eq!(body_of(&sandbox, &json["message_id"])["sent"], "{\"a\": 1.10}");
    assert_eq!(body_of(&sandbox, &text["message_id"])["text"], "\u{fffd}");
    for line in ["[\"hello\"]", "[\"hello\", null, \"operator_prompt\"]"] {
        let ran = sandbox.cmd(["--json", "enqueue", "ada", "--batch"]).stdin(format!("{line}\n")).exits(2);
        assert!(failure(&ran)["message"].as_str().unwrap().contains("invalid type: sequence"), "{ran}");
    }
}

#[test]
fn a_secret_of_the_sender_that_its_scheme_can_not_use_is_refused() {
    let sandbox = started("true");
    for (verify, secret) in
        [("secret", "\n"), ("secret", "two\nlines"), ("standard_webhooks", "whsec_no base64"), ("url", "a/b")]
    {
        let ran = create(&sandbox, verify, secret).exits(2);
        assert!(failure(&ran)["message"].as_str().unwrap().starts_with("--secret-from: "), "{ran}");
    }
    let short = create(&sandbox, "secret", "abc");
    assert!(short.code() == 0 && short.stderr.contains("the secret is short"), "{short}");
    let made: Value = serde_json::from_str(&short.stdout).unwrap();
    assert_eq!(made.get("trigger_secret"), None);
    let id = made["id"].as_str().unwrap();
    let deliver = &["deliver", id, "--secret-file", "-", "hello"][..];
    for (args, secret, status) in [
        (&["rotate", id, "--secret-from", "-"][..], "another secret of the sender", 0),
        (deliver, "another secret of the sender", 0),
        (deliver, "abc", 4),
        (&["rotate", id, "--secret-from", "-", "--secret-file", "x"], "x", 2),
    ] {
        let ran = sandbox.cmd([&["trigger"], args].concat()).stdin(secret).output();
        assert_eq!(ran.code(), status, "{args:?} with {secret}: {ran}");
    }
}
