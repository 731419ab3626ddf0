//! Tests `ingress`, which answers one HTTP request: by CGI, on a connection, and behind real
//! servers.

mod alike;
mod load;
mod memory;
mod servers;
mod signatures;

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::harness::{Sandbox, dormouse};
use crate::setup::{edit_file, names, started, words};

/// Time of a CGI delivery, which is the initial time of each sandbox's clock.
const NOW: &str = "2026-01-02T03:04:05Z";

/// Path of a trigger, its id, and the secret that deliveries to the path are sent with.
pub struct Hook {
    pub path: String,
    pub id: String,
    pub secret: String,
}

/// Creates a trigger of `ada`.
pub fn hook(sandbox: &Sandbox, flags: &[&str]) -> Hook {
    let made = sandbox.json([&["trigger", "create", "-a", "ada"], flags].concat());
    Hook::of(&made, made["trigger_secret"].as_str().unwrap())
}

/// Returns requests with every kind of wrong path, secret or signature, each with a description.
fn wrong_capabilities(sandbox: &Sandbox) -> Vec<(&'static str, String)> {
    sandbox.run(["create", "bob", "--", "true"]);
    let good = hook(sandbox, &[]);
    let signed = hook(sandbox, &["--verify", "hmac_sha256"]);
    let hinting = hook(sandbox, &["--mode", "wake_hint", "--resource", "r"]);
    let revoked = hook(sandbox, &[]);
    sandbox.run(["trigger", "revoke", &revoked.id]);
    let unknown = "/agents/ada/triggers/trig_00000000000070008000000000000000";
    let of_agent = |agent: &str| format!("/agents/{agent}/triggers/{}", good.id);
    let requests = [
        ("a wrong secret", &*good.path, "wrong"),
        ("a wrong secret of the right length", &*good.path, &*"0".repeat(64)),
        ("the secret of a revoked trigger", &*good.path, &*revoked.secret),
        ("an empty secret", &*good.path, ""),
        ("the secret of a signed trigger", &*good.path, &*signed.secret),
        ("no signature", &*signed.path, &*good.secret),
        ("a wrong secret for hints", &*hinting.path, "wrong"),
        ("a revoked trigger", &*revoked.path, &*revoked.secret),
        ("an unknown trigger", unknown, &*good.secret),
        ("no trigger id", "/agents/ada/triggers/x", &*good.secret),
        ("a trigger of another agent", &of_agent("bob"), &*good.secret),
        ("an unknown agent", &of_agent("eve"), &*good.secret),
        ("no agent name", &of_agent(".."), &*good.secret),
    ]
    .map(|(what, path, secret)| (what, Hook::at(path, secret).json("{}")));
    let unsigned = format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", good.path);
    let basic = unsigned.replace("Host: x", "Host: x\r\nAuthorization: Basic YTpi");
    requests.into_iter().chain([("no secret", unsigned), ("basic authorization", basic)]).collect()
}

impl Hook {
    /// Returns the trigger that a command has answered with.
    fn of(made: &Value, secret: &str) -> Hook {
        let id = made["id"].as_str().unwrap();
        Hook { id: id.to_owned(), ..Hook::at(&format!("/agents/ada/triggers/{id}"), secret) }
    }

    fn at(path: &str, secret: &str) -> Hook {
        Hook { path: path.to_owned(), id: String::new(), secret: secret.to_owned() }
    }

    /// Returns a delivery as HTTP text. Each line of `headers` ends with CR LF.
    pub fn request(&self, headers: &str, body: &str) -> String {
        format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            self.path,
            self.secret,
            body.len()
        )
    }

    fn json(&self, body: &str) -> String {
        self.request("Content-Type: application/json\r\n", body)
    }

    /// Returns GitHub's signature of a body.
    pub fn signature(&self, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256={digits}")
    }
}

/// Answer to a request, with its body as JSON.
#[derive(Debug, Clone)]
pub struct Answered {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

pub fn parse(text: &str) -> Answered {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    Answered {
        status: head.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0),
        head: head.to_owned(),
        body: serde_json::from_str(body).unwrap_or(Value::Null),
    }
}

/// Starts `ingress` on one end of a connection. Returns the process and the other end.
fn connect(sandbox: &Sandbox) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (on(sandbox, theirs), ours)
}

/// Starts `ingress` on this end of a connection.
fn on(sandbox: &Sandbox, end: UnixStream) -> Child {
    let mut command = sandbox.cmd(["ingress"]).into_command();
    command.stdin(Stdio::from(OwnedFd::from(end.try_clone().unwrap())));
    command.stdout(Stdio::from(OwnedFd::from(end))).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Sends all bytes at once, and returns the answer. With `half` the sender then closes its
/// direction of the connection.
fn exchange(sandbox: &Sandbox, bytes: impl AsRef<[u8]>, half: bool) -> Answered {
    let (mut child, mut stream) = connect(sandbox);
    let mut writer = stream.try_clone().unwrap();
    let bytes = bytes.as_ref().to_vec();
    let sender = thread::spawn(move || {
        let _ = writer.write_all(&bytes);
        if half {
            let _ = writer.shutdown(Shutdown::Write);
        }
    });
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    drop(stream);
    sender.join().unwrap();
    child.wait().unwrap();
    parse(&String::from_utf8_lossy(&text))
}

/// Returns the whole answer to a GET request.
pub fn get(sandbox: &Sandbox, path: &str) -> String {
    let (mut child, mut stream) = connect(sandbox);
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    drop(stream);
    child.wait().unwrap();
    text
}

fn queued(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json_lines(["queue", "list", "-a", "ada", "--limit", "0"])
}

#[test]
fn a_delivery_is_in_the_inbox_when_it_is_acknowledged() {
    let sandbox = started("true");
    let hook = hook(&sandbox, &["--source", "webhook:ci"]);
    let headers = "Content-Type: application/json\r\nX-GitHub-Event: push\r\nCookie: private\r\n";
    let answer = exchange(&sandbox, hook.request(headers, "{\"state\":\"red\"}"), false);
    assert_eq!(answer.status, 202, "{answer:?}");
    assert!(answer.head.starts_with("HTTP/1.1 202 Accepted\r\nConnection: close\r\n"), "{answer:?}");
    let message = sandbox.json(["queue", "show", answer.body["message_id"].as_str().unwrap()]);
    assert_eq!(message["delivery_surface"], "cgi");
    assert_eq!(message["body"], json!({ "type": "json", "value": { "state": "red" } }));
    assert_eq!(
        message["source_refs"],
        json!(["http:method:POST", "http:content-type:application/json", "http:header:x-github-event:push"])
    );
    let text = exchange(&sandbox, hook.request("Content-Type: text/plain\r\n", "plain"), true);
    assert_eq!(text.status, 202, "half-closed: {text:?}");
    assert_eq!(queued(&sandbox).len(), 2);
}

#[test]
fn a_signed_delivery_of_github_is_accepted_and_its_repeat_is_dropped() {
    let sandbox = started("true");
    let hook = hook(&sandbox, &["--verify", "hmac_sha256", "--source", "webhook:github"]);
    // The body has the shape that GitHub documents for a pull request.
    let body = json!({
        "action": "opened", "number": 12,
        "pull_request": {
            "url": "https://api.github.com/repos/org/repo/pulls/12", "number": 12, "state": "open",
            "title": "Say what this is", "user": { "login": "octocat", "id": 1 },
            "head": { "ref": "topic", "sha": "6dcb09b5b57875f334f61aebed695e2e4193db5e" },
            "base": { "ref": "main", "sha": "c3d0be41ecbe669545ee3e94d31ed9a4bc91ee3c" },
        },
        "repository": { "id": 1296269, "full_name": "org/repo", "private": false },
        "sender": { "login": "octocat", "id": 1 },
    })
    .to_string();
    let request = |signature: &str, delivery: &str| {
        format!(
            "POST {} HTTP/1.1\r\nHost: hooks.example.org\r\nAccept: */*\r\nUser-Agent: GitHub-Hookshot/044aadd\r\n\
             Content-Type: application/json\r\nX-GitHub-Delivery: {delivery}\r\nX-GitHub-Event: pull_request\r\n\
             X-GitHub-Hook-ID: 292430182\r\nX-Hub-Signature-256: {signature}\r\nContent-Length: {}\r\n\r\n{body}",
            hook.path,
            body.len()
        )
    };
    let delivery = "72d3162e-cc78-11e3-81ab-4c9367dc0958";
    let signed = hook.signature(&body);
    let first = exchange(&sandbox, request(&signed, delivery), false);
    assert_eq!((first.status, &first.body["duplicate"]), (202, &json!(false)), "{first:?}");
    let again = exchange(&sandbox, request(&signed, delivery), false);
    assert_eq!((again.status, &again.body["duplicate"]), (202, &json!(true)), "{again:?}");
    assert_eq!(again.body["message_id"], first.body["message_id"]);
    let wrong =
        [hook.signature("another"), "sha256=".to_owned(), signed.replace("sha256", "sha1"), String::new()];
    for wrong in wrong {
        assert_eq!(exchange(&sandbox, request(&wrong, "x"), false).status, 401, "{wrong}");
    }
    // A sender that sends the secret itself instead of a signature is accepted too.
    assert_eq!(exchange(&sandbox, hook.json("[]"), false).status, 202);
    assert_eq!(queued(&sandbox).len(), 2);
}

#[test]
fn every_wrong_capability_gets_the_same_answer() {
    let sandbox = started("true");
    let mut answers = Vec::new();
    for (what, request) in wrong_capabilities(&sandbox) {
        let begun = Instant::now();
        let answer = exchange(&sandbox, request, true);
        assert!(begun.elapsed() >= Duration::from_millis(50), "{what}: {:?}", begun.elapsed());
        answers.push((answer.status, answer.head, answer.body.to_string()));
        assert_eq!(answers.last(), answers.first(), "{what}");
    }
    assert_eq!(answers[0].0, 401);
    assert_eq!(queued(&sandbox), Vec::<Value>::new());
}

#[test]
fn every_other_request_gets_its_http_status() {
    let sandbox = started("true");
    let hook = hook(&sandbox, &[]);
    let hints = self::hook(&sandbox, &["--mode", "wake_hint"]);
    let head = |line: &str, rest: &str| format!("{line}\r\nHost: x\r\n{rest}\r\n");
    let auth = format!("Authorization: Bearer {}\r\n", hook.secret);
    let post = format!("POST {} HTTP/1.1", hook.path);
    let large = "x".repeat((1 << 20) + 1);
    let rows: Vec<(u16, String)> = vec![
        (404, head("GET / HTTP/1.1", "")),
        (200, head("GET /metrics HTTP/1.1", "")),
        (404, head("POST /metrics HTTP/1.1", "Content-Length: 0\r\n")),
        (404, head("GET /metrics/ada HTTP/1.1", "")),
        (404, head("GET /agents HTTP/1.1", "")),
        (404, head("GET /agents/ada HTTP/1.1", "")),
        (404, head(&format!("POST {}/ HTTP/1.1", hook.path), &auth)),
        (404, head(&format!("POST /x{} HTTP/1.1", hook.path), &auth)),
        (404, head(&format!("GET {} HTTP/1.1", hook.path), &auth)),
        (404, head("POST /healthz HTTP/1.1", "")),
        (200, head("GET /healthz HTTP/1.1", "")),
        (200, head("HEAD /healthz HTTP/1.1", "")),
        (200, head("GET /healthz?x=1 HTTP/1.1", "")),
        (200, "GET /healthz HTTP/1.0\r\n\r\n".to_owned()),
        (202, hook.json("{}")),
        (202, hook.request("Content-Type: text/plain; charset=utf-8\r\n", "x")),
        (202, hints.request("", "")),
        (400, hook.request("", "")),
        (400, hook.json("{")),
        (415, hook.request("", "{}")),
        (415, hook.request("Content-Type: application/x-www-form-urlencoded\r\n", "a=b")),
        (415, hook.request("Content-Type: image/png\r\n", "a=b")),
        (413, hook.request("Content-Type: text/plain\r\n", &large)),
        (413, hook.json(&format!("[{}0]", "0,".repeat(60_000)))),
        (413, head(&post, &format!("{auth}Content-Length: 99999999999999999999999\r\n"))),
        (400, head(&post, &format!("{auth}Transfer-Encoding: chunked\r\n")) + "2\r\n{}\r\n0\r\n\r\n"),
        (400, head(&post, &format!("{auth}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n")) + "{}"),
        (400, head(&post, &format!("{auth}Content-Length: 2\r\nContent-Length: 2\r\n")) + "{}"),
        (400, head(&post, &format!("{auth}Content-Length: 2, 2\r\n")) + "{}"),
        (400, head(&post, &format!("{auth}Content-Length: +2\r\n")) + "{}"),
        (400, head(&post, &format!("{auth}Content-Length: -2\r\n")) + "{}"),
        (400, head(&post, &format!("{auth}Content-Length:\r\n")) + "{}"),
        (400, head(&post, &format!("{auth}{auth}"))),
        (400, head(&post, "Folded: a\r\n b\r\n")),
        (400, head(&post, "Spaced : a\r\n")),
        (400, head(&post, "Host: y\r\n")),
        (400, "GET /healthz HTTP/1.1\r\n\r\n".to_owned()),
        (400, "GET /healthz HTTP/1.1\nHost: x\n\n".to_owned()),
        (400, "GET /healthz HTTP/1.1\rHost: x\r\r".to_owned()),
        (400, "\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (400, "GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (400, "GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n".to_owned()),
        (400, "GET /healthz\r\n\r\n".to_owned()),
        (400, "\0\0\0\0".to_owned()),
        (415, head(&post, &format!("{auth}Expect: a miracle\r\nContent-Length: 2\r\n")) + "{}"),
        (400, head("GET /healthz HTTP/1.1", &format!("Long: {}\r\n", "x".repeat(20_000)))),
        (400, head("GET /healthz HTTP/1.1", &"A: b\r\n".repeat(100))),
    ];
    for (status, request) in &rows {
        let answer = exchange(&sandbox, request, true);
        let shown: String = request.chars().take(200).collect();
        assert_eq!(answer.status, *status, "{shown:?}: {answer:?}");
    }
    // `ingress` ignores a second request on the connection, and refuses a body that is too short.
    let two = hook.json("{\"n\":1}") + &hook.json("{\"n\":2}");
    assert_eq!(exchange(&sandbox, two, false).status, 202);
    let short = hook.json("{\"n\":3}");
    assert_eq!(exchange(&sandbox, &short[..short.len() - 2], true).status, 400);
    assert_eq!(queued(&sandbox).len(), 3, "{:?}", queued(&sandbox));
}

/// Agents are readable only with `ingress.read = true`, and private agents never.
#[test]
fn public_agents_are_readable_if_the_settings_allow_it() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--visibility", "private", "--", "true"]);
    let get = |path: &str| exchange(&sandbox, format!("GET {path} HTTP/1.0\r\n\r\n"), true);
    let statuses = |paths: &[&str]| paths.iter().map(|path| get(path).status).collect::<Vec<_>>();
    let paths = words(
        "/agents /agents/ada /agents/ada/state /agents/bob /agents/bob/state /agents/eve /agents/../ada \
         /agents/ada/x",
    );
    assert_eq!(statuses(&paths), [404; 8]);
    edit_file(&sandbox.store().join("dormouse.toml"), |text| format!("{text}\n[ingress]\nread = true\n"));
    assert_eq!(statuses(&paths), [200, 200, 200, 404, 404, 404, 404, 404]);
    let lines = sandbox.json_lines(["list"]);
    let public: Vec<&Value> = lines.iter().filter(|line| line["agent"] == "ada").collect();
    assert_eq!(get("/agents").body, json!(public));
    let shown = get("/agents/ada").body;
    assert_eq!(shown["agent"], "ada");
    assert_eq!(shown["status"], sandbox.json(["get", "ada"])["status"]);
    let state = get("/agents/ada/state").body;
    let told = sandbox.json(["state", "ada"]);
    for field in ["agent", "state", "code", "since"] {
        assert_eq!(state[field], told[field], "{field}: {state}");
    }
    assert!(shown.get("children").is_none(), "the answer names other agents: {shown}");
}

/// curl, for example, sends a large body only after `100 Continue`.
#[test]
fn a_sender_that_expects_100_continue_gets_100_continue() {
    let sandbox = started("true");
    let hook = hook(&sandbox, &[]);
    let (mut child, mut stream) = connect(&sandbox);
    let request = hook.request("Content-Type: text/plain\r\nExpect: 100-continue\r\n", "hello");
    let (head, body) = request.split_at(request.len() - 5);
    stream.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(parse(&text).status, 202);
    child.wait().unwrap();
}

/// Each of several concurrent slow or endless requests is answered within 10 seconds.
#[test]
fn slow_and_endless_requests_end_within_10_seconds() {
    let sandbox = started("true");
    let hook = hook(&sandbox, &[]);
    let ways: [&(dyn Fn(&mut UnixStream) + Sync); 4] = [
        // The sender sends nothing.
        &|_| {},
        // The sender sends a byte every 100 ms.
        &|stream| {
            for byte in b"POST / HTTP/1.1\r\nHost: x\r\nA: ".iter().chain(std::iter::repeat_n(&b'b', 200)) {
                thread::sleep(Duration::from_millis(100));
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
            }
        },
        // The sender leaves out the last byte of the body.
        &|stream| {
            let request = hook.json("{\"never\":\"whole\"}");
            let _ = stream.write_all(&request.as_bytes()[..request.len() - 1]);
        },
        // The sender sends headers without end.
        &|stream| {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
            while stream.write_all(b"Again: and again\r\n").is_ok() {}
        },
    ];
    thread::scope(|scope| {
        for (number, way) in ways.iter().enumerate() {
            let sandbox = &sandbox;
            scope.spawn(move || {
                let begun = Instant::now();
                let (mut child, mut stream) = connect(sandbox);
                let mut writer = stream.try_clone().unwrap();
                scope.spawn(move || way(&mut writer));
                let mut text = Vec::new();
                let _ = stream.read_to_end(&mut text);
                child.wait().unwrap();
                let _ = stream.shutdown(Shutdown::Both);
                let answer = parse(&String::from_utf8_lossy(&text));
                assert!(begun.elapsed() < Duration::from_secs(10), "{number}: {:?}", begun.elapsed());
                assert_eq!(answer.status, [408, 408, 408, 400][number], "{number}: {answer:?}");
            });
        }
    });
    assert_eq!(queued(&sandbox), Vec::<Value>::new());
}

/// Runs `ingress` as a CGI server does, with the request in environment variables.
fn cgi(sandbox: &Sandbox, vars: &[(&str, &str)], body: &str) -> Answered {
    let cmd = sandbox.cmd(["ingress"]).stdin(body.as_bytes()).env("GATEWAY_INTERFACE", "CGI/1.1");
    let ran = vars.iter().fold(cmd, |cmd, (name, value)| cmd.env(name, value)).exits(0);
    parse(&ran.stdout)
}

#[test]
fn a_cgi_server_passes_the_request_in_the_environment() {
    let sandbox = started("env > \"$HOME/env\"");
    let hook = hook(&sandbox, &[]);
    let bearer = format!("Bearer {}", hook.secret);
    let said = [
        ("REQUEST_METHOD", "POST"),
        ("PATH_INFO", hook.path.as_str()),
        ("QUERY_STRING", "x=1"),
        ("CONTENT_TYPE", "application/json"),
        ("CONTENT_LENGTH", "8"),
        ("HTTP_AUTHORIZATION", bearer.as_str()),
        ("HTTP_IDEMPOTENCY_KEY", "one"),
        ("HTTP_X_GITHUB_EVENT", "push"),
        ("REMOTE_ADDR", "203.0.113.7"),
    ];
    let answer = cgi(&sandbox, &said, "{\"a\": 1}more");
    assert!(answer.head.starts_with("Status: 202 Accepted\r\n"), "{answer:?}");
    let message = sandbox.json(["queue", "show", answer.body["message_id"].as_str().unwrap()]);
    let refs = message["source_refs"].to_string();
    for one in ["http:remote:203.0.113.7", "http:header:x-github-event:push"] {
        assert!(refs.contains(one), "{refs}");
    }
    assert_eq!(cgi(&sandbox, &said, "{\"a\": 1}").body["duplicate"], true);
    // No header of the HTTP request may get into the environment of the turn.
    sandbox.run(["tick", "ada"]);
    let env = fs::read_to_string(sandbox.home().join("env")).unwrap();
    assert!(!env.contains("HTTP_") && !env.contains(&hook.secret), "{env}");
    let with = |name: &'static str, value: &'static str| {
        let mut said: Vec<(&str, &str)> = said.to_vec();
        said.retain(|(other, _)| *other != name && *other != "HTTP_IDEMPOTENCY_KEY");
        if value != "-" {
            said.push((name, value));
        }
        said
    };
    for (name, value, status) in [
        ("REQUEST_METHOD", "-", 400),
        ("REQUEST_METHOD", "PUT", 404),
        ("PATH_INFO", "-", 404),
        ("CONTENT_LENGTH", "99", 400),
        ("CONTENT_LENGTH", "x", 400),
        ("CONTENT_LENGTH", "99999999", 413),
        ("CONTENT_TYPE", "image/png", 415),
        ("HTTP_AUTHORIZATION", "Bearer x", 401),
        ("HTTP_AUTHORIZATION", "-", 401),
    ] {
        let answer = cgi(&sandbox, &with(name, value), "{\"a\": 1}");
        assert_eq!(answer.status, status, "{name}={value}: {answer:?}");
    }
    let mut chunked = with("CONTENT_LENGTH", "-");
    chunked.push(("HTTP_TRANSFER_ENCODING", "chunked"));
    assert_eq!(cgi(&sandbox, &chunked, "{}").status, 400);
}

#[test]
fn deliveries_above_the_rate_limit_are_refused_for_a_minute() {
    let sandbox = started("true");
    let (one, other) = (hook(&sandbox, &[]), hook(&sandbox, &[]));
    edit_file(&sandbox.store().join("dormouse.toml"), |text| format!("{text}[ingress]\nper_minute = 3\n"));
    let begun = sandbox.json(["trigger", "show", &one.id]);
    assert_eq!(begun["delivery_count"], 0);
    for _ in 0..3 {
        assert_eq!(exchange(&sandbox, one.json("{}"), false).status, 202);
    }
    let refused = exchange(&sandbox, one.json("{}"), false);
    assert_eq!(refused.status, 429);
    let pause = refused.head.lines().find_map(|line| line.strip_prefix("Retry-After: ")).unwrap();
    assert!((1..=60).contains(&pause.parse::<u32>().unwrap()), "{refused:?}");
    // The limit counts each trigger alone, and does not change the answer to a wrong secret.
    assert_eq!(exchange(&sandbox, other.json("{}"), false).status, 202);
    assert_eq!(exchange(&sandbox, Hook::at(&one.path, "x").json("{}"), false).status, 401);
    sandbox.pass(60);
    assert_eq!(exchange(&sandbox, one.json("{}"), false).status, 202);
    assert_eq!(queued(&sandbox).len(), 5);
}

/// Some senders, such as GitHub, do not retry a delivery that is answered with 503.
#[test]
fn a_delivery_waits_for_the_lock_as_long_as_its_request_has_time() {
    let sandbox = started("true").with_real_clock();
    let hook = hook(&sandbox, &[]);
    let request = hook.request("Content-Type: text/plain\r\nIdempotency-Key: one\r\n", "x");
    let lock = fs::File::open(sandbox.agent("ada").join("lock")).unwrap();
    lock.lock().unwrap();
    thread::scope(|scope| {
        let delivered = scope.spawn(|| exchange(&sandbox, &request, false));
        thread::sleep(Duration::from_millis(2500));
        lock.unlock().unwrap();
        assert_eq!(delivered.join().unwrap().status, 202);
    });
    lock.lock().unwrap();
    let begun = Instant::now();
    let refused = exchange(&sandbox, &request, false);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(refused.status == 503 && refused.head.contains("Retry-After: "), "{refused:?}");
}

#[test]
fn healthz_reports_the_result_of_doctor_quick() {
    let sandbox = started("true");
    let get = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(exchange(&sandbox, get, false).status, 200);
    sandbox.run(["doctor", "--quick"]);
    let state = sandbox.agent("ada").join("state.json");
    let whole = fs::read(&state).unwrap();
    fs::write(&state, "{").unwrap();
    assert_eq!(exchange(&sandbox, get, false).status, 503);
    assert_eq!(sandbox.cmd(["doctor", "--quick"]).output().code(), 6);
    fs::write(&state, whole).unwrap();
    fs::rename(sandbox.store(), sandbox.project().join("elsewhere")).unwrap();
    let gone = exchange(&sandbox, get, false);
    assert_eq!(gone.status, 503, "{gone:?}");
    assert!(!gone.body.to_string().contains("dormouse-"), "the answer has a path: {gone:?}");
}

/// `ingress` answers an empty request on a connection, and exits with 0 without a connection.
#[test]
fn an_empty_request_is_answered() {
    let sandbox = started("true");
    assert_eq!(exchange(&sandbox, "", true).status, 400);
    let mut command = Command::new(dormouse());
    command.arg("ingress").env_clear().current_dir(sandbox.root()).stdin(Stdio::null());
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(names(&sandbox.agent("ada").join("inbox")), Vec::<String>::new());
}
