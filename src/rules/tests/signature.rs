//! Tests of the signatures of webhooks: the published examples of their makers, and near misses.

use crate::model::digest::sha256;
use crate::rules::signature::{
    Capability, Shown, SignedRequest, check_secret, delivery_key, is_secret, new_secret, shown,
};

use super::*;

const TOLERANCE: Span = Span::from_secs(300);

/// Signed request that the maker of its scheme has published, or that its library has signed.
struct Example {
    verify: Verify,
    secret: &'static str,
    headers: Vec<(&'static str, String)>,
    body: &'static str,
    /// Time at which the request arrives, in seconds since 1970.
    at: i64,
}

impl Example {
    fn shown(&self) -> Option<Shown> {
        self.shown_at(self.at)
    }

    fn shown_at(&self, seconds: i64) -> Option<Shown> {
        let hash = sha256(self.secret.as_bytes());
        let key = Some(self.secret.as_bytes());
        let known = Capability { verify: &self.verify, secret_sha256: &hash, key };
        let now = Time::from_millis(seconds * 1000);
        self.with_request(|request| shown(&known, request, now, TOLERANCE))
    }

    fn key(&self) -> Option<String> {
        self.with_request(|request| delivery_key(&self.verify, request))
    }

    fn with_request<T>(&self, take: impl FnOnce(&SignedRequest<'_>) -> T) -> T {
        let header = |name: &str| {
            let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        take(&SignedRequest { body: self.body.as_bytes(), header: &header, in_path: None })
    }
}

fn github() -> Example {
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    Example {
        verify: Verify::HmacSha256 { header: "X-Hub-Signature-256".to_owned() },
        secret: "It's a Secret to Everybody",
        headers: vec![("X-Hub-Signature-256", signature.to_owned())],
        body: "Hello, World!",
        at: 0,
    }
}

fn gitlab() -> Example {
    Example {
        verify: Verify::Secret,
        secret: "a token of GitLab",
        headers: vec![("X-Gitlab-Token", "a token of GitLab".to_owned())],
        body: "{}",
        at: 0,
    }
}

/// Returns the reference vector of Standard Webhooks.
fn standard() -> Example {
    Example {
        verify: Verify::StandardWebhooks,
        secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        headers: vec![
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned()),
            ("webhook-timestamp", "1614265330".to_owned()),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".to_owned()),
        ],
        body: r#"{"test": 2432232314}"#,
        at: 1_614_265_330,
    }
}

/// Returns the signed event in the test data of Stripe's own libraries.
fn stripe() -> Example {
    let said = "t=1533204620,v1=f0bdba6d4eacbd8ad8a3bbadd7248e633ec1477f7899c124c51b39405fa36613,\
                v0=63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef";
    Example {
        verify: Verify::Stripe,
        secret: "webhook_secret",
        headers: vec![("Stripe-Signature", said.to_owned())],
        body: include_str!("../../../tests/data/stripe_event.json"),
        at: 1_533_204_620,
    }
}

/// Returns the example in Slack's description of its signatures.
fn slack() -> Example {
    let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    Example {
        verify: Verify::Slack,
        secret: "8f742231b10e8888abcd99yyyzzz85a5",
        headers: vec![
            ("X-Slack-Request-Timestamp", "1531420618".to_owned()),
            ("X-Slack-Signature", signature.to_owned()),
        ],
        body: "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
               &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
               &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
               &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
        at: 1_531_420_618,
    }
}

#[test]
fn published_examples_are_accepted_and_changed_examples_are_not() {
    for make in [github, standard, stripe, slack] {
        let name = make().verify.kind();
        assert_eq!(make().shown(), Some(Shown::Signed), "{name}");
        assert_eq!(Example { body: "{}", ..make() }.shown(), None, "{name}: another body");
        assert_eq!(Example { secret: "whsec_AAAA", ..make() }.shown(), None, "{name}: another secret");
        for at in 0..make().headers.len() {
            let mut other = make();
            other.headers.remove(at);
            assert_eq!(other.shown(), None, "{name}: without header {at}");
            for cut in 0..make().headers[at].1.len() {
                let mut other = make();
                other.headers[at].1.truncate(cut);
                // The header of Stripe ends with an older signature, which is not checked.
                let is_whole = name.name() == "stripe" && cut >= 80;
                assert_eq!(other.shown().is_some(), is_whole, "{name}: header {at} cut to {cut}");
            }
        }
    }
    assert_eq!(gitlab().shown(), Some(Shown::Said));
}

#[test]
fn a_signature_that_includes_its_time_is_valid_for_five_minutes() {
    for make in [standard, stripe, slack] {
        let example = make();
        for (apart, expected) in
            [(-301, None), (-300, Some(Shown::Signed)), (300, Some(Shown::Signed)), (301, None)]
        {
            assert_eq!(example.shown_at(example.at + apart), expected, "{} {apart}", example.verify.kind());
        }
    }
    for moment in ["", "-1", "+1614265330", "1614265330.0", "99999999999999999999"] {
        let mut other = standard();
        other.headers[1].1 = moment.to_owned();
        assert_eq!(other.shown(), None, "{moment}");
    }
}

#[test]
fn one_right_signature_among_several_is_enough() {
    let mut rotated = standard();
    let right = rotated.headers[2].1.clone();
    for (said, expected) in [
        (format!("v1,AAAA v1a,{} {right}", &right[3..]), Some(Shown::Signed)),
        (format!("{right} v1,AAAA"), Some(Shown::Signed)),
        (right.replace("v1,", "v2,"), None),
        (right.replace("v1,", ""), None),
        ("v1,".to_owned(), None),
    ] {
        rotated.headers[2].1 = said.clone();
        assert_eq!(rotated.shown(), expected, "{said}");
    }
    let mut rotated = stripe();
    rotated.headers[0].1 = rotated.headers[0].1.replace(",v1=", &format!(",v1={},v1=", "0".repeat(64)));
    assert_eq!(rotated.shown(), Some(Shown::Signed));
}

/// GitHub's signature may lack its prefix, and may have digits in upper or lower case.
#[test]
fn the_prefix_and_the_case_of_hexadecimal_digits_do_not_matter() {
    let said = github().headers[0].1.clone();
    let digits = said.trim_start_matches("sha256=").to_owned();
    for (said, expected) in [
        (digits.clone(), true),
        (format!("sha256={}", digits.to_uppercase()), true),
        (format!("{said}00"), false),
        (said.replace("sha256", "sha1"), false),
        ("sha256=ü".to_owned(), false),
    ] {
        let mut other = github();
        other.headers[0].1 = said.clone();
        assert_eq!(other.shown().is_some(), expected, "{said}");
    }
}

#[test]
fn a_secret_may_be_in_one_of_three_headers() {
    let said = |name, value: &str| {
        let headers = vec![(name, value.to_owned())];
        Example { headers, secret: "open sesame", ..gitlab() }.shown()
    };
    for (name, value) in [
        ("Authorization", "Bearer open sesame"),
        ("authorization", "bearer  open sesame"),
        ("Authorization", "Basic YWxpY2U6b3BlbiBzZXNhbWU="),
        ("Authorization", "Basic Om9wZW4gc2VzYW1l"),
        ("X-Gitlab-Token", "open sesame"),
    ] {
        assert_eq!(said(name, value), Some(Shown::Said), "{name}: {value}");
    }
    for (name, value) in [
        ("Authorization", "open sesame"),
        ("Authorization", "Digest open sesame"),
        // In these credentials the secret is the user name instead of the password.
        ("Authorization", "Basic b3BlbiBzZXNhbWU="),
        ("Authorization", "Basic b3BlbiBzZXNhbWU6"),
        ("X-Gitlab-Token", "open sesam"),
        ("X-Token", "open sesame"),
    ] {
        assert_eq!(said(name, value), None, "{name}: {value}");
    }
}

#[test]
fn a_secret_in_the_address_counts_only_for_a_trigger_of_that_kind() {
    for (verify, secret, expected) in [
        (Verify::Url, "word", Some(Shown::Said)),
        (Verify::Url, "wor", None),
        (Verify::Secret, "word", None),
        (Verify::Slack, "word", None),
    ] {
        let known = Capability { verify: &verify, secret_sha256: &sha256(b"word"), key: None };
        let request = SignedRequest { body: b"", header: &|_| None, in_path: Some(secret) };
        let found = shown(&known, &request, Time::from_millis(0), TOLERANCE);
        assert_eq!(found, expected, "{} {secret}", verify.kind());
        assert!(is_secret(&known, b"word"));
    }
}

#[test]
fn without_the_key_no_signature_is_valid() {
    let example = github();
    let hash = sha256(example.secret.as_bytes());
    let known = Capability { verify: &example.verify, secret_sha256: &hash, key: None };
    let now = Time::from_millis(0);
    assert_eq!(example.with_request(|request| shown(&known, request, now, TOLERANCE)), None);
}

#[test]
fn the_key_of_a_delivery_depends_on_the_signed_content_alone() {
    for make in [github, stripe, slack, standard] {
        let (one, mut other) = (make(), make());
        other.headers.push(("X-GitHub-Delivery", "another".to_owned()));
        assert_eq!(one.key(), other.key());
        assert!(one.key().is_some());
    }
    let mut again = standard();
    again.headers[1].1 = "1614265390".to_owned();
    assert_eq!(again.key(), standard().key());
    assert_ne!(Example { body: "Hello", ..github() }.key(), github().key());
    assert_eq!((Example { body: "", ..github() }.key(), gitlab().key()), (None, None));
}

#[test]
fn a_secret_fits_its_scheme() {
    for (verify, secret, fits) in [
        (Verify::Secret, "x", true),
        (Verify::Secret, "", false),
        (Verify::Slack, "a\nb", false),
        (Verify::StandardWebhooks, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
        (Verify::StandardWebhooks, "whsec_", false),
        (Verify::StandardWebhooks, "whsec_a secret", false),
        (Verify::Url, "a/b", false),
    ] {
        assert_eq!(check_secret(&verify, secret).is_ok(), fits, "{} {secret:?}", verify.kind());
        assert_eq!(check_secret(&verify, &new_secret(&verify, "0123456789abcdef".to_owned())), Ok(()));
    }
}
