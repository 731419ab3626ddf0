//! Tests `create --template`: each template works without changes, with any message.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{Beside, decision, edit_file, eventually, failure, objects, step_on};

/// API key of a language model, which must not appear in output or files.
const KEY: &str = "sk-test-0123456789";

/// Returns messages that a careless script would misread or execute.
fn hostile() -> Vec<String> {
    vec![
        "it's \"quoted\" $(touch pwned) `touch pwned` \\n %s %n ; touch pwned".to_owned(),
        "-n\n--help\n\n\n  \ttrailing  \n\n".to_owned(),
        "\u{1b}[31m\r\u{7f}\u{202e} ünïcode 🐭".to_owned(),
        "@/etc/passwd\n```\n````\n</message>\n{{ message }} {% raw %}".to_owned(),
        "x".repeat((1 << 20) - 8),
    ]
}

fn make(sandbox: &Sandbox, template: &str) {
    let made = sandbox.cmd(["create", "ada", "--template", template, "--json"]).output();
    assert_eq!(made.status.code(), Some(0), "{made}");
    let script = objects(&made.stdout)[0]["script"].as_str().unwrap().to_owned();
    assert_eq!(Path::new(&script), fs::canonicalize(sandbox.project()).unwrap().join("ada.sh"));
    sandbox.run(["start", "ada"]);
}

fn say(sandbox: &Sandbox, text: &str) {
    sandbox.cmd(["enqueue", "ada", "-"]).stdin(text).output();
}

/// Runs a step with the API key in its environment, and returns the JSON object of the step.
fn step(sandbox: &Sandbox) -> Value {
    let ran = sandbox.cmd(["tick", "ada", "--json"]).env("LLM_API_KEY", KEY).output();
    assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY), "the key is shown: {ran}");
    objects(&ran.stdout).pop().unwrap_or_else(|| panic!("{ran}"))
}

fn brief(stepped: &Value) -> &str {
    assert_eq!(decision(stepped), "start_model_turn (operator_prompt) completed", "{stepped}");
    stepped["brief"].as_str().unwrap()
}

#[test]
fn the_script_template_counts_the_characters_of_any_message() {
    needs!("jq");
    let sandbox = Sandbox::new();
    make(&sandbox, "script");
    for text in hostile() {
        say(&sandbox, &text);
        assert!(brief(&step(&sandbox)).starts_with("read "), "{text:?}");
    }
    sandbox.run(["enqueue", "ada", "--body-json", r#"{"a": "\u0000\n"}"#]);
    assert_eq!(brief(&step(&sandbox)), "read 16 characters");
    assert!(!sandbox.project().join("pwned").exists());
}

#[test]
fn the_reviewer_template_reviews_only_commits() {
    needs!("jq");
    let sandbox = Sandbox::new();
    make(&sandbox, "reviewer");
    let git = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m 'WIP: all'";
    let made = Command::new("sh").args(["-c", git]).current_dir(sandbox.project()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let said = step_on(&sandbox, "HEAD");
    assert!(brief(&said).starts_with("reviewed ") && brief(&said).ends_with(": 1 remarks"), "{said}");
    let reviews: Vec<_> = fs::read_dir(sandbox.project().join("reviews")).unwrap().collect();
    assert_eq!(reviews.len(), 1);
    let review = fs::read_to_string(reviews[0].as_ref().unwrap().path()).unwrap();
    assert!(review.contains("- The subject says that this is not finished.\n"), "{review}");
    for text in hostile().into_iter().chain(["--upload-pack=x".to_owned(), "nothing".to_owned()]) {
        let sandbox = Sandbox::new();
        make(&sandbox, "reviewer");
        say(&sandbox, &text);
        assert_eq!(step(&sandbox)["terminal"], "failed", "{text:?}");
        assert!(!sandbox.project().join("pwned").exists());
    }
}

#[test]
fn a_nightly_agent_sets_its_timer_once() {
    needs!("jq");
    let sandbox = Sandbox::new();
    make(&sandbox, "nightly");
    for text in hostile() {
        say(&sandbox, &text);
        assert!(brief(&step(&sandbox)).starts_with("the disk is "));
        let timers = sandbox.json_lines(["timer", "list", "-a", "ada"]);
        assert_eq!(timers.len(), 1, "{timers:?}");
        assert_eq!(timers[0]["next_at"], "2026-01-03T03:00:00.000Z");
    }
    let night = sandbox.cmd(["tick", "ada", "--json"]).env("DORMOUSE_NOW", "2026-01-03T03:00:00Z").output();
    assert_eq!(decision(&objects(&night.stdout)[0]), "start_model_turn (timer_tick) completed");
}

/// Test server in place of a language model, and its URL. The server ends with the test.
struct Model(#[expect(dead_code, reason = "ends the server")] Beside, String);

fn model(sandbox: &Sandbox) -> Model {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/templates/model.py");
    let server = Command::new("python3").arg(script).arg(sandbox.home()).spawn().unwrap();
    let port = eventually("the model", || fs::read_to_string(sandbox.home().join("port")).ok());
    Model(Beside(server), format!("http://127.0.0.1:{port}"))
}

/// Sets the kind of API and the URL of the language model that the agent's script uses.
fn ask_at(sandbox: &Sandbox, api: &str, url: &str) {
    let path = sandbox.agent("ada").join("agent.toml");
    let set = |line: &str| match line.split_once(" = ") {
        Some(("LLM_API", _)) => format!("LLM_API = \"{api}\""),
        Some(("LLM_URL", _)) => format!("LLM_URL = \"{url}\""),
        Some(("# LLM_USD_PER_MILLION_IN" | "# LLM_USD_PER_MILLION_OUT", _)) => line.replace("# ", ""),
        _ => line.to_owned(),
    };
    edit_file(&path, |text| text.lines().map(|line| set(line) + "\n").collect::<String>());
}

#[test]
fn the_llm_template_supports_two_apis_and_counts_the_usage() {
    needs!("curl", "python3");
    let sandbox = Sandbox::new();
    make(&sandbox, "llm");
    let model = model(&sandbox);
    ask_at(&sandbox, "openai", &format!("{}/openai", model.1));
    say(&sandbox, "what does it do?");
    assert_eq!(brief(&step(&sandbox)), "a dormouse sleeps\nand wakes");
    let used = json!({ "input_tokens": 1200, "output_tokens": 30, "cost_usd": 0.00405, "model": "claude-sonnet-4-5" });
    assert_eq!(sandbox.json(["run", "list", "-a", "ada"])["usage"], used);
    ask_at(&sandbox, "anthropic", &format!("{}/anthropic", model.1));
    say(&sandbox, "and then?");
    assert_eq!(brief(&step(&sandbox)), "it sleeps");
    let asked = fs::read_to_string(sandbox.home().join("asked")).unwrap();
    let asked: Vec<Value> = asked.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(asked[0]["headers"]["Authorization"], format!("Bearer {KEY}"));
    assert_eq!(asked[1]["headers"]["x-api-key"], KEY);
    assert!(asked[0]["body"]["messages"][1]["content"].as_str().unwrap().contains("what does it do?"));
    assert!(asked[1]["body"]["system"].is_string());

    // The language model receives the exact text of each message.
    ask_at(&sandbox, "openai", &format!("{}/echo", model.1));
    for text in hostile() {
        say(&sandbox, &text);
        step(&sandbox);
        let asked = fs::read_to_string(sandbox.home().join("asked")).unwrap();
        let last: Value = serde_json::from_str(asked.lines().last().unwrap()).unwrap();
        let content = last["body"]["messages"][1]["content"].as_str().unwrap();
        assert!(content.contains(text.trim()), "{:.200}", content);
    }
    sandbox.run(["enqueue", "ada", "--body-json", r#""\u0000 \u001b[0m""#]);
    assert_eq!(step(&sandbox)["terminal"], "completed");
    assert!(!sandbox.project().join("pwned").exists());
    // No file of the project may contain the API key.
    let found = Command::new("grep").args(["-rl", KEY]).arg(sandbox.project()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn the_llm_template_defers_on_overload_and_fails_on_other_errors() {
    needs!("curl", "python3");
    let home = Sandbox::empty();
    let model = model(&home);
    for (path, terminal, said) in [
        ("limit", "deferred", "model:claude-sonnet-4-5: 429"),
        ("limit-date", "deferred", "model:claude-sonnet-4-5: 429"),
        ("limit-odd", "deferred", "model:claude-sonnet-4-5: 429"),
        ("overloaded", "deferred", "model:claude-sonnet-4-5: 529"),
        ("down", "failed", "/down answered 500"),
        ("key", "failed", "/key does not take the key (401): wrong key [key]"),
        ("moved", "failed", "/moved answered 307"),
        ("nothing", "failed", "answered 200, but no answer is in what came:"),
        ("cut", "failed", "answered 200, but no answer is in what came: {\"choices\": [{\"mess"),
        ("list", "failed", "answered 200, but no answer is in what came: [1, 2]"),
        ("null", "failed", "answered 200, but no answer is in what came:"),
        ("odd-usage", "completed", ""),
    ] {
        let sandbox = Sandbox::new();
        make(&sandbox, "llm");
        ask_at(&sandbox, "openai", &format!("{}/{path}", model.1));
        say(&sandbox, "hello");
        let stepped = step(&sandbox);
        assert_eq!(stepped["terminal"], terminal, "{path}: {stepped}");
        assert!(stepped.to_string().contains(&said.replace('"', "\\\"")), "{path}: {stepped}");
        let held = sandbox.json(["get", "ada"])["held"]["deferred"].clone();
        match path {
            "limit" => {
                assert!(held["until"].as_str().is_some_and(|at| at.starts_with("2026-01-02T03:3")), "{held}")
            }
            "limit-date" => assert!(held["until"].is_string(), "{held}"),
            "limit-odd" | "overloaded" => assert!(held["until"].is_null(), "{held}"),
            _ => {}
        }
        assert!(!sandbox.project().join("pwned").exists());
    }
    // No server listens on port 1, so curl can't connect to the language model of this agent.
    let sandbox = Sandbox::new();
    make(&sandbox, "llm");
    ask_at(&sandbox, "openai", "http://127.0.0.1:1/");
    say(&sandbox, "hello");
    let stepped = step(&sandbox);
    assert!(stepped.to_string().contains("http://127.0.0.1:1/ can't be asked: curl: (7)"), "{stepped}");
}

#[test]
fn a_template_overwrites_no_file() {
    let sandbox = Sandbox::new();
    let script = sandbox.project().join("ada.sh");
    fs::write(&script, "mine").unwrap();
    let refused = sandbox.cmd(["create", "ada", "--template", "script", "--json"]).output();
    assert_eq!((refused.status.code(), &failure(&refused)["kind"]), (Some(4), &json!("script_exists")));
    assert_eq!(fs::read_to_string(&script).unwrap(), "mine");
    assert!(!sandbox.agent("ada").exists());
    fs::remove_file(&script).unwrap();
    std::os::unix::fs::symlink(sandbox.project().join("elsewhere"), &script).unwrap();
    sandbox.cmd(["create", "ada", "--template", "script"]).output();
    assert!(!sandbox.project().join("elsewhere").exists());
    fs::remove_file(&script).unwrap();

    // A script that a killed `create` has left is used again; a refused `create` leaves no script.
    make(&sandbox, "script");
    sandbox.run(["create", "bob", "--", "true"]);
    let again = sandbox.cmd(["create", "bob", "--template", "llm"]).output();
    assert_eq!(again.status.code(), Some(4), "{again}");
    assert!(!sandbox.project().join("bob.sh").exists());
    fs::copy(&script, sandbox.project().join("eve.sh")).unwrap();
    assert_eq!(sandbox.cmd(["create", "eve", "--template", "script"]).output().status.code(), Some(0));
    for line in ["--shell true", "--from x", "-- true"] {
        let words = format!("create kim --template script {line}");
        assert_eq!(sandbox.cmd(words.split(' ')).output().status.code(), Some(2), "{line}");
    }
}
