//! Command `ingress`: answers one HTTP request.

use std::env;
use std::io::IsTerminal;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::cli::IngressArgs;
use crate::engine::checks;
use crate::engine::context::Context;
use crate::engine::delivery::{self, DeliveryProof};
use crate::engine::lookup::existing;
use crate::engine::session::Session;
use crate::engine::views;
use crate::error::{Error, IoContext, Result, Status as Exit};
use crate::http::{HttpAnswer, HttpRequest, HttpStatus, cgi, connection};
use crate::model::agent::Visibility;
use crate::model::bound::Bound;
use crate::model::digest;
use crate::model::id::{AgentName, TriggerId};
use crate::model::json::{self, Sent};
use crate::model::message::{Body, DeliverySurface};
use crate::model::settings::IngressSettings;
use crate::model::time::Span;
use crate::model::trigger::Verify;
use crate::report::metrics::{self, Naming};
use crate::report::output::talk;
use crate::report::summary::summary;
use crate::report::text::present;
use crate::rules::delivery::Delivery;
use crate::rules::signature::{self, Shown};
use crate::store::Store;

/// Time limits from the start of the process for reading the request, getting the agent's lock,
/// answering, and ending the process. Many senders never retry, so a delivery may use all the time.
const READ: Duration = Duration::from_secs(7);
const LOCKED: Duration = Duration::from_secs(8);
const ANSWER: Duration = Duration::from_secs(9);
const END: Duration = Duration::from_millis(9500);

/// Minimum time from a request to the refusal of a wrong trigger secret. Every search for a trigger
/// is shorter, so the response time does not reveal which triggers exist.
const ALIKE: Duration = Duration::from_millis(50);

/// Maximum number of values in a JSON body, which bounds the memory for a body of tiny values. A
/// list counts as two values and an object as three, because they take that much more memory.
const MAX_VALUES: usize = 50_000;

/// Maximum length of one string in `source_refs` of a delivery, in characters.
const MAX_REF: usize = 200;

pub fn ingress(session: &Session, _: IngressArgs) -> Result<Exit> {
    let is_cgi = env::var("GATEWAY_INTERFACE").is_ok_and(|version| version.starts_with("CGI/"));
    if !is_cgi && std::io::stdin().is_terminal() {
        return Err(Error::usage("a web server, inetd or systemd runs this, not a person").with_hint(
            "`dormouse trigger deliver` delivers by hand; `dormouse man ingress` says how to serve",
        ));
    }
    let begun = Instant::now();
    end_in_time()?;
    let receive = if is_cgi { cgi::receive } else { connection::receive };
    let received = receive(begun + READ);
    let left = LOCKED.saturating_sub(begun.elapsed());
    session.hurry(Span::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
    let (method, answer) = match received {
        Ok(request) => {
            let method = request.method.clone();
            (method, answer(session, request).unwrap_or_else(|error| unavailable(&error)))
        }
        Err(answer) => (String::new(), answer),
    };
    let send = if is_cgi { cgi::answer } else { connection::answer };
    send(&answer, &method, begun + ANSWER);
    Ok(Exit::Done)
}

/// Ends this process at its time limit `END`, even if a thread is blocked. The effect is that of a
/// kill: every acknowledged delivery is stored.
#[expect(clippy::exit, reason = "a process that hangs has nobody to return to")]
fn end_in_time() -> Result<()> {
    let watch = thread::Builder::new().spawn(|| {
        thread::sleep(END);
        std::process::exit(i32::from(Exit::Failed.code()));
    });
    watch.map(drop).context("start", Path::new("the thread that watches over this request"))
}

fn answer(session: &Session, mut request: HttpRequest) -> Result<HttpAnswer> {
    let come = Instant::now();
    let path = std::mem::take(&mut request.path);
    let words: Vec<&str> = path.split('/').skip(1).collect();
    let reads = matches!(request.method.as_str(), "GET" | "HEAD");
    match words.as_slice() {
        ["healthz"] if reads => health(session),
        ["metrics"] if reads => numbers(session),
        ["agents", name, "triggers", id, in_path @ ..] if is_secret(in_path) && request.method == "POST" => {
            let delivered = deliver(session, request, (name, id, in_path.first().copied()));
            Ok(delivered.unwrap_or_else(|refused| {
                // The response time must not reveal how far the search for the trigger got.
                if refused.status == HttpStatus::UNAUTHORIZED {
                    thread::sleep(ALIKE.saturating_sub(come.elapsed()));
                }
                refused
            }))
        }
        ["agents"] if reads => read(session, |store| all_lines(session, store).map(Some)),
        ["agents", name] if reads => read(session, |store| one_summary(session, store, name)),
        ["agents", name, "state"] if reads => {
            read(session, |store| Ok(one_summary(session, store, name)?.map(execution)))
        }
        _ => Ok(nothing()),
    }
}

/// True if the rest of the path is empty, or a single word that may be the secret of a trigger.
fn is_secret(in_path: &[&str]) -> bool {
    in_path.is_empty() || matches!(in_path, [secret] if !secret.is_empty())
}

fn nothing() -> HttpAnswer {
    HttpAnswer::new(HttpStatus::NOT_FOUND, "there is nothing here")
}

/// Answers with metrics: totals, and with `[ingress] read` also the numbers of each public agent.
fn numbers(session: &Session) -> Result<HttpAnswer> {
    let store = session.store()?;
    let now = session.clock.now();
    let naming = if store.local().config.ingress.read { Naming::Public } else { Naming::Hidden };
    let readings = views::readings(&store, &store.agents()?, now, |name, error| {
        talk(&format!("ingress: {name}: {error}"));
    });
    Ok(HttpAnswer::metrics(&metrics::text(&readings, naming, now)))
}

/// Answers with data of public agents if `[ingress] read` is set, else as for an unknown path.
fn read(session: &Session, look: impl FnOnce(&Store) -> Result<Option<Value>>) -> Result<HttpAnswer> {
    let store = session.store()?;
    let found = if store.local().config.ingress.read { look(&store)? } else { None };
    Ok(found.map_or_else(nothing, |value| HttpAnswer::json(HttpStatus::OK, value.to_string())))
}

fn all_lines(session: &Session, store: &Store) -> Result<Value> {
    let now = session.clock.now();
    let mut lines = Vec::new();
    for name in store.agents()? {
        let agent = store.agent(&name)?;
        let identity = agent.identity()?;
        if identity.visibility == Visibility::Public {
            lines.push(json!(views::line(&agent, Some(identity), now)?));
        }
    }
    Ok(Value::Array(lines))
}

/// Returns the summary of a public agent; `None` if no public agent has this name.
fn one_summary(session: &Session, store: &Store, name: &str) -> Result<Option<Value>> {
    let Ok(name) = name.parse::<AgentName>() else { return Ok(None) };
    let Some(agent) = existing(store, &name)? else { return Ok(None) };
    if agent.identity()?.visibility != Visibility::Public {
        return Ok(None);
    }
    let facts = views::facts(&agent, session.clock.now(), false)?;
    Ok(Some(present(summary(&facts))))
}

/// Returns the execution state from a summary, together with the agent's name.
fn execution(mut summary: Value) -> Value {
    let mut object = json!({ "agent": summary["agent"].take() });
    if let (Value::Object(all), Value::Object(part)) = (&mut object, summary["execution"].take()) {
        all.extend(part);
    }
    object
}

/// Logs the error on the server, and asks the sender to retry.
fn unavailable(error: &Error) -> HttpAnswer {
    talk(&format!("ingress: {error}"));
    HttpAnswer::new(HttpStatus::UNAVAILABLE, "not now").with("Retry-After", 5)
}

fn health(session: &Session) -> Result<HttpAnswer> {
    let store = session.store()?;
    store.local().try_writing()?;
    let findings = checks::quick(&store, session.clock.now())?;
    if findings.iter().all(|finding| finding.remedy.is_warning()) {
        return Ok(HttpAnswer::json(HttpStatus::OK, json!({ "status": "ok" }).to_string()));
    }
    for finding in &findings {
        talk(&format!("ingress: {}: {}: {}", finding.place(), finding.kind, finding.message));
    }
    Ok(HttpAnswer::new(HttpStatus::UNAVAILABLE, "`dormouse doctor` finds something"))
}

impl From<Error> for HttpAnswer {
    fn from(error: Error) -> HttpAnswer {
        let status = match error.kind() {
            "message_too_large" | "record_too_large" => HttpStatus::TOO_LARGE,
            "blank_message" | "invalid_dedupe_key" => HttpStatus::BAD_REQUEST,
            _ => return unavailable(&error),
        };
        HttpAnswer::new(status, error.to_string())
    }
}

/// Returns the answer to a sender that does not know the secret of an active trigger.
fn wrong() -> HttpAnswer {
    let message = "no active trigger has this capability";
    HttpAnswer::new(HttpStatus::UNAUTHORIZED, message).with("WWW-Authenticate", "Bearer")
}

fn deliver(
    session: &Session,
    mut request: HttpRequest,
    (name, id, in_path): (&str, &str, Option<&str>),
) -> Result<HttpAnswer, HttpAnswer> {
    let store = session.store()?;
    let settings = &store.local().config.ingress;
    let agent = match name.parse::<AgentName>() {
        Ok(name) => existing(&store, &name)?,
        Err(_) => None,
    };
    request.header("Authorization")?;
    let header = |name: &str| request.header(name).ok().flatten().map(str::to_owned);
    let now = session.clock.now();
    let sent = signature::SignedRequest { body: &request.body, header: &header, in_path };
    let proof = DeliveryProof::Request { request: sent, now, tolerance: settings.tolerance };
    let open = delivery::open(agent.as_ref(), id.parse::<TriggerId>().ok(), &proof)?;
    let DeliveryProof::Request { request: sent, .. } = proof else { return Err(wrong()) };
    let (Some(agent), Some((trigger, shown))) = (agent, open) else { return Err(wrong()) };
    let signed_key = match shown {
        Shown::Signed => signature::delivery_key(&trigger.verify, &sent),
        Shown::Said => None,
    };
    let policy = agent.policy()?;
    let sent = std::mem::take(&mut request.body);
    // The size is checked before parsing, which takes several times the memory.
    Bound::message("the body", policy.limits.max_message).check(sent.len() as u64).map_err(Error::from)?;
    let body = body(&request, sent, trigger.verify == Verify::Slack)?;
    let key = signed_key.map_or_else(|| key(&request, settings), |key| Ok(Some(key)))?;
    if let Err(pause) = agent.use_trigger(trigger.id, settings.per_minute, now)? {
        let message = format!("more than [ingress] per_minute = {}", settings.per_minute);
        let seconds = pause.as_millis().div_ceil(1000).max(1);
        return Err(HttpAnswer::new(HttpStatus::TOO_MANY, message).with("Retry-After", seconds));
    }
    if trigger.verify == Verify::Slack
        && let Some(challenge) = challenge(body.as_ref())
    {
        return Ok(HttpAnswer::json(HttpStatus::OK, json!({ "challenge": challenge }).to_string()));
    }
    let delivery = Delivery {
        body,
        key,
        source_refs: provenance(&request, settings),
        surface: DeliverySurface::Cgi,
        hops: None,
    };
    session.is_about(agent.name());
    let admitted = delivery::deliver(Context::new(session, &agent), &policy, &trigger, delivery)?;
    Ok(HttpAnswer::json(HttpStatus::ACCEPTED, delivery::delivered(&trigger, &admitted).to_string()))
}

/// Returns the challenge of Slack's URL verification, which is no delivery; the answer repeats it.
fn challenge(body: Option<&Body>) -> Option<&str> {
    let Body::Json { value, .. } = body? else { return None };
    (value["type"] == "url_verification").then(|| value["challenge"].as_str()).flatten()
}

/// Parses the body as JSON or text, by its content type; as a form, too, if the sender is Slack. An
/// empty request has no body.
fn body(request: &HttpRequest, sent: Vec<u8>, is_slack: bool) -> Result<Option<Body>, HttpAnswer> {
    if sent.is_empty() {
        return Ok(None);
    }
    let named = request.header("Content-Type")?.unwrap_or_default();
    let kind = named.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json");
    let is_form = is_slack && kind == "application/x-www-form-urlencoded";
    if !is_json && !is_form && !kind.starts_with("text/") {
        return Err(HttpAnswer::new(HttpStatus::UNSUPPORTED_TYPE, "a delivery is application/json or text"));
    }
    let text = String::from_utf8(sent)
        .map_err(|_| HttpAnswer::new(HttpStatus::UNSUPPORTED_TYPE, "the body is not UTF-8"))?;
    if is_form {
        return form(&text).map(Some);
    }
    if is_json { json(&text).map(Some) } else { Ok(Some(Body::Text { text })) }
}

fn json(text: &str) -> Result<Body, HttpAnswer> {
    if values(text) > MAX_VALUES {
        let message = format!("more than {MAX_VALUES} values in the JSON");
        return Err(HttpAnswer::new(HttpStatus::TOO_LARGE, message));
    }
    let sent = Sent::read(&json::outside(text).0).map_err(|error| {
        HttpAnswer::new(HttpStatus::BAD_REQUEST, format!("the body is not JSON: {error}"))
    })?;
    Ok(Body::from(sent))
}

/// Parses a form into an object of texts. A repeated field becomes a list. If `payload` is the only
/// field, its JSON is the body, as Slack sends it.
fn form(text: &str) -> Result<Body, HttpAnswer> {
    if text.matches('&').count() >= MAX_VALUES {
        let message = format!("more than {MAX_VALUES} fields in the form");
        return Err(HttpAnswer::new(HttpStatus::TOO_LARGE, message));
    }
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pairs: Vec<(String, String)> = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect();
    if let [(name, payload)] = pairs.as_slice()
        && name == "payload"
    {
        return json(payload);
    }
    let mut fields = Map::new();
    for (name, value) in pairs {
        match fields.get_mut(&name) {
            None => drop(fields.insert(name, json!(value))),
            Some(Value::Array(values)) => values.push(json!(value)),
            Some(first) => *first = json!([first.take(), value]),
        }
    }
    Ok(Body::from(Value::Object(fields)))
}

/// Decodes a name or value of a form. Invalid UTF-8 becomes U+FFFD.
fn decoded(word: &str) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| first == b'%');
        let escaped = digits.and_then(|digits| digest::bytes(std::str::from_utf8(digits).ok()?)?.pop());
        rest = behind.get(if escaped.is_some() { 2 } else { 0 }..).unwrap_or_default();
        bytes.push(escaped.unwrap_or(if first == b'+' { b' ' } else { first }));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns an upper bound for the number of values in a JSON text, as [`MAX_VALUES`] counts them.
fn values(text: &str) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match (in_string, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',') => count += 1,
            (false, b'[') => count += 2,
            (false, b'{') => count += 3,
            (_, _) => {}
        }
    }
    count
}

/// Returns the dedupe key of a delivery: the first of `dedupe_headers` that the request has.
fn key(request: &HttpRequest, settings: &IngressSettings) -> Result<Option<String>, HttpAnswer> {
    for name in &settings.dedupe_headers {
        if let Some(key) = request.header(name)? {
            return Ok(Some(key.to_owned()));
        }
    }
    Ok(None)
}

/// Returns the origin of a delivery: method, content type, sender's address, `source_headers`.
fn provenance(request: &HttpRequest, settings: &IngressSettings) -> Vec<String> {
    let header = |name: &str| request.header(name).ok().flatten();
    let mut refs = vec![format!("http:method:{}", request.method)];
    refs.extend(header("Content-Type").map(|kind| format!("http:content-type:{kind}")));
    let remote = env::var("REMOTE_ADDR").ok().filter(|address| !address.is_empty()).or_else(connection::peer);
    refs.extend(remote.map(|address| format!("http:remote:{address}")));
    for name in &settings.source_headers {
        refs.extend(header(name).map(|value| format!("http:header:{}:{value}", name.to_ascii_lowercase())));
    }
    refs.iter().map(|text| text.chars().take(MAX_REF).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> HttpRequest {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        HttpRequest { method: "POST".to_owned(), path: "/".to_owned(), headers, ..HttpRequest::default() }
    }

    #[test]
    fn a_body_is_json_or_text_by_its_type() {
        let of = |kind: &str, text: &str| {
            body(&request(&[("content-type", kind)]), text.into(), false).map_err(|answer| answer.status)
        };
        for kind in ["application/json", "Application/JSON; charset=utf-8", "application/cloudevents+json"] {
            assert_eq!(of(kind, "[1]"), Ok(Some(Body::from(json!([1])))), "{kind}");
            assert_eq!(of(kind, "[1"), Err(HttpStatus::BAD_REQUEST), "{kind}");
        }
        for kind in ["text/plain", "text/markdown; charset=utf-8"] {
            assert_eq!(of(kind, "[1"), Ok(Some(Body::Text { text: "[1".to_owned() })), "{kind}");
        }
        let form = "application/x-www-form-urlencoded";
        for kind in ["", "image/png", "application/xml", "json", form] {
            assert_eq!(of(kind, "[1]"), Err(HttpStatus::UNSUPPORTED_TYPE), "{kind}");
            assert_eq!(of(kind, ""), Ok(None), "{kind}: nothing has no type");
        }
        let of_slack = body(&request(&[("content-type", form)]), b"a=1".to_vec(), true);
        assert_eq!(of_slack.map_err(|answer| answer.status), Ok(Some(Body::from(json!({ "a": "1" })))));
    }

    #[test]
    fn a_form_is_an_object_or_the_json_in_it() {
        let of = |text: &str| form(text).map(|body| body.to_text()).map_err(|answer| answer.status);
        for (text, expected) in [
            ("payload=%7B%22a%22%3A+1.50%7D", r#"{"a": 1.50}"#),
            ("payload=%EF%BB%BF%22%5Cud800%22", "\"\u{fffd}\""),
            ("payload=1&b=2", r#"{"payload":"1","b":"2"}"#),
            ("a=%C3%BC+x&b&&c=%zz%", r#"{"a":"ü x","b":"","c":"%zz%"}"#),
            ("a=1&b=2&a=3&a=4", r#"{"a":["1","3","4"],"b":"2"}"#),
            ("a=%FF", "{\"a\":\"\u{fffd}\"}"),
            ("a=%+1", r#"{"a":"% 1"}"#),
        ] {
            assert_eq!(of(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(of("payload=%7B"), Err(HttpStatus::BAD_REQUEST));
        assert_eq!(of(&"a&".repeat(MAX_VALUES)), Err(HttpStatus::TOO_LARGE));
        let deep = format!("payload={}", "%5B".repeat(500));
        assert_eq!(of(&deep), Err(HttpStatus::BAD_REQUEST));
    }

    #[test]
    fn values_are_counted_outside_strings() {
        for (text, count) in [("1", 1), ("[1,2,3]", 5), ("{\"a\":[]}", 6), ("\"a,b[c{\\\",\"", 1), ("", 1)] {
            assert_eq!(values(text), count, "{text}");
        }
        let many = format!("[{}0]", "0,".repeat(MAX_VALUES));
        let status = body(&request(&[("Content-Type", "application/json")]), many.into(), false)
            .map_err(|answer| answer.status);
        assert_eq!(status, Err(HttpStatus::TOO_LARGE));
    }

    #[test]
    fn provenance_has_only_configured_headers_and_is_bounded() {
        let settings = IngressSettings::default();
        let long = "x".repeat(9000);
        let headers = [
            ("x-github-event", "push"),
            ("User-Agent", long.as_str()),
            ("Cookie", "secret"),
            ("Authorization", "Bearer x"),
        ];
        let refs = provenance(&request(&headers), &settings);
        assert!(refs.contains(&"http:header:x-github-event:push".to_owned()), "{refs:?}");
        assert!(
            refs.iter().all(|one| one.len() <= MAX_REF && !one.contains("secret") && !one.contains("Bearer"))
        );
    }
}
