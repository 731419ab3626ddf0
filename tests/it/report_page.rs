//! Tests the page that `report` writes, also with hostile texts from agents.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{add, assert_includes, names, say, started, started_with, step, step_on, tree};

/// Returns the HTML page that `report` makes of all agents, or of those that `words` name.
#[track_caller]
fn page(sandbox: &Sandbox, words: &[&str]) -> String {
    sandbox.run(["report", "-o", "-"].iter().chain(words).copied())
}

/// Checks that the tags of a page are known and closed, without event handlers or other hosts.
#[track_caller]
fn judge(page: &str) {
    const ALONE: [&str; 2] = ["meta", "path"];
    const KNOWN: &str = " html head title style body a header main section footer h1 h2 h3 p dl div dt dd span small \
                         table thead tbody tr th td code figure figcaption svg g details summary ul li ";
    assert!(page.starts_with("<!DOCTYPE html>\n") && page.ends_with("</html>\n"));
    let mut open: Vec<&str> = Vec::new();
    let mut rest = &page["<!DOCTYPE html>".len()..];
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag that ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "in {tag}");
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap();
        for attribute in tag.split_whitespace().skip(1) {
            assert!(!attribute.starts_with("on"), "a handler: {tag}");
            assert!(!attribute.starts_with("href=") || attribute.starts_with("href=\"#"), "{tag}");
            assert!(!attribute.starts_with("src="), "{tag}");
        }
        if !ALONE.contains(&name) {
            assert!(KNOWN.contains(&format!(" {name} ")), "an unknown tag: {tag}");
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    let invisible = |c: &char| {
        c.is_control() && *c != '\n' || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
    };
    assert_eq!(page.chars().find(invisible), None);
}

/// Leaves an agent without ticks: the report page begins with this problem and its cause.
#[test]
fn the_page_begins_with_an_agent_that_no_process_ticks() {
    let sandbox = started("true");
    say(&sandbox, "first");
    sandbox.pass(7200);
    let page = page(&sandbox, &[]);
    let needs = page.find("What needs a person").unwrap();
    assert!(needs < page.find("The whole in numbers").unwrap());
    assert!(page[needs..].contains("no process ticks: a step has been due for 2h"), "{page}");
}

#[test]
fn the_page_shows_turns_failures_waits_and_attention() {
    let sandbox = started_with(
        "test -e good && printf '{\"brief\":\"all is well\",\"usage\":{\"input_tokens\":1200,\"cost_usd\":0.25}}' > \"$DORMOUSE_OUTCOME\"",
        "\n[recovery]\nbase = \"1s\"\nmax_attempts = 2\n",
    );
    add(&sandbox, "bob", "true");
    step_on(&sandbox, "first");
    sandbox.pass(60);
    // After a failed turn, the first step starts the recovery, and the second repeats the turn.
    step(&sandbox);
    step(&sandbox);
    sandbox.pass(600);
    fs::write(sandbox.project().join("good"), "").unwrap();
    say(&sandbox, "second");
    sandbox.pass(60);
    step(&sandbox);
    step(&sandbox);
    sandbox.run([
        "wait",
        "-a",
        "ada",
        "--on",
        "external",
        "--reason",
        "a review",
        "--resource",
        "github:1",
        "--expires",
        "1d",
    ]);
    sandbox.pass(3600);
    let page = page(&sandbox, &[]);
    judge(&page);
    for said in [
        "all is well",
        "failed, attempt 2",
        "completed",
        "for a message from you",
        "waits for external since",
        "a review",
        "dead letter msg_",
        "dormouse queue dead -a ada",
        "1\u{2009}200",
        "$0.25",
        "median 1m",
        "1 without turns, waits or messages",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let only = self::page(&sandbox, &["bob"]);
    judge(&only);
    // The digits of an id may contain `ada`.
    let mut words = only.split(|letter: char| !letter.is_ascii_alphanumeric());
    assert!(words.all(|word| word != "ada"), "an agent that was not named");
    let before = self::page(&sandbox, &["--since", "2s"]);
    assert!(!before.contains("all is well"), "a turn that ended earlier");
}

#[test]
fn the_same_state_and_clock_make_the_same_page_and_nothing_else_changes() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    let before = tree(&sandbox.store());
    let at = "2026-01-02T05:00:00Z";
    let told: Value =
        serde_json::from_str(&sandbox.cmd(["report", "--json"]).env("DORMOUSE_NOW", at).output().stdout)
            .unwrap();
    let written = fs::read_to_string(sandbox.project().join("report.html")).unwrap();
    assert_includes(&told, json!({ "path": "report.html", "agents": 1, "bytes": written.len() }));
    assert_eq!(sandbox.cmd(["report", "-o", "-"]).env("DORMOUSE_NOW", at).output().stdout, written);
    assert_eq!(sandbox.cmd(["report", "-o", "other.html"]).env("DORMOUSE_NOW", at).output().code(), 0);
    assert_eq!(fs::read_to_string(sandbox.project().join("other.html")).unwrap(), written);
    assert_eq!(tree(&sandbox.store()), before);
    let mut pages = names(&sandbox.project());
    pages.retain(|name| name.contains("html"));
    assert_eq!(pages, ["other.html", "report.html"]);
}

#[test]
fn a_failed_report_keeps_the_previous_page() {
    let sandbox = started("true");
    sandbox.run(["report"]);
    let path = sandbox.project().join("report.html");
    let before = fs::read(&path).unwrap();
    assert_eq!(sandbox.cmd(["report", "nobody"]).output().code(), 3);
    assert_eq!(sandbox.cmd(["report", "--json", "-o", "-"]).output().code(), 2);
    assert_eq!(sandbox.cmd(["report", "--since", "never"]).output().code(), 2);
    sandbox.cmd(["report", "-o", "nowhere/report.html"]).exits(1).warns(" nowhere/report.html: ");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn report_works_without_agents_and_with_an_unreadable_agent() {
    let sandbox = Sandbox::new();
    let empty = page(&sandbox, &[]);
    judge(&empty);
    assert!(empty.contains("There are no agents."));
    add(&sandbox, "ada", "true");
    add(&sandbox, "bob", "true");
    fs::write(sandbox.agent("bob").join("state.json"), "{ <b>").unwrap();
    let ran = sandbox.cmd(["report", "-o", "-"]).exits(6);
    judge(&ran.stdout);
    assert!(ran.stdout.contains("dormouse doctor bob") && ran.stdout.contains("can&#x27;t be read"));
}

/// Text that would end a text, attribute or comment of the page if the text were not escaped.
const HOSTILE: &str = "\u{202e}gnp\u{200f}\u{0} {{ 7*7 }} </title></script><script>alert(1)</script>\"><svg onload=alert(1)>'--><img src=x onerror=alert(1)> &lt; \u{1b}[31m";

fn hostile() -> Sandbox {
    let sandbox = started_with(
        "cat > /dev/null; cp \"$HOME/outcome\" \"$DORMOUSE_OUTCOME\"; test ! -e \"$HOME/bad\" || { cat \"$HOME/bad\" >&2; exit 1; }",
        "\n[recovery]\nbase = \"1s\"\nmax_attempts = 1\n",
    );
    let long = HOSTILE.repeat(1000);
    let outcome = serde_json::json!({ "brief": HOSTILE, "usage": { "model": HOSTILE } });
    fs::write(sandbox.home().join("outcome"), outcome.to_string()).unwrap();
    step_on(&sandbox, "one");
    fs::write(sandbox.home().join("bad"), &long).unwrap();
    say(&sandbox, "two");
    sandbox.pass(60);
    step(&sandbox);
    let line = HOSTILE.replace(['\u{0}', '\u{1b}'], "");
    sandbox.run(["wait", "-a", "ada", "--on", "operator", "--reason", &line]);
    add(&sandbox, &"n".repeat(64), "true");
    fs::write(sandbox.agent("ada").join("inbox").join("<svg onload=x>.json"), HOSTILE).unwrap();
    sandbox.pass(60);
    step(&sandbox);
    sandbox
}

#[test]
fn text_from_outside_stays_text() {
    let sandbox = hostile();
    let page = page(&sandbox, &[]);
    judge(&page);
    assert!(page.contains("&lt;script&gt;alert(1)"), "the text is not shown");
    assert!(page.contains("\\u{202e}gnp"), "invisible characters are not shown");
    assert!(page.contains("{{ 7*7 }}"));
    assert!(page.len() < 60_000, "too long: {}", page.len());
}

#[test]
fn a_directory_with_a_hostile_name_stays_text() {
    let sandbox = Sandbox::empty();
    // A page that shows this path unescaped would end its own title and begin a script.
    let dir =
        sandbox.project().join("<").join("title><script>alert(1)<").join("script> \" ' \u{202e}\n{{ 7*7 }}");
    fs::create_dir_all(&dir).unwrap();
    let run = |words: &[&str]| {
        let out = sandbox.cmd(words.iter().copied()).into_command().current_dir(&dir).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    run(&["init"]);
    run(&["create", "ada", "--shell", "true"]);
    let page = run(&["report", "-o", "-"]);
    judge(&page);
    let shown =
        "&lt;&#x2f;title&gt;&lt;script&gt;alert(1)&lt;&#x2f;script&gt; &quot; &#x27; \\u{202e}\\n{{ 7*7 }}";
    assert_eq!(page.matches(shown).count(), 2, "in the title and above the page: {page}");
}

#[test]
fn the_page_shows_the_new_place_of_a_moved_agent() {
    let sandbox = started("true");
    step_on(&sandbox, "x");
    add(&sandbox, "bob", "true");
    for name in ["ada", "bob"] {
        sandbox.run(["export", name, "--move", "host-b:<b>/srv", "-o", &format!("{name}.tar")]);
    }
    let page = page(&sandbox, &[]);
    judge(&page);
    let moved = "moved to host-b:&lt;b&gt;&#x2f;srv";
    assert_eq!(page.matches(moved).count(), 2, "of `ada` and `bob`: {page}");
}

/// Copies the archived records of one turn, as if `turns` such turns had followed each other.
fn multiply(sandbox: &Sandbox, turns: u64) {
    let month = sandbox.agent("ada").join("archive").join("2026-01");
    let copy = |file: &str, change: &dyn Fn(&mut Value, u64)| {
        let path = month.join(file);
        let one: Value =
            serde_json::from_str(fs::read_to_string(&path).unwrap().lines().next().unwrap()).unwrap();
        let line = |number| {
            let mut copy = one.clone();
            change(&mut copy, number);
            format!("{copy}\n")
        };
        fs::write(&path, (0..turns).map(line).collect::<String>()).unwrap();
    };
    let at = |number: u64| {
        let (seconds, millis) = (number * 250 / 1000, number * 250 % 1000);
        format!("2026-01-01T{:02}:{:02}:{:02}.{millis:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
    };
    let id = |one: &Value, number: u64| {
        format!("{}{number:08x}", one.as_str().unwrap().split_at(one.as_str().unwrap().len() - 8).0)
    };
    copy("run.jsonl", &|run, number| {
        run["id"] = Value::from(id(&run["id"], number));
        run["message_id"] = Value::from(id(&run["message_id"], number));
        (run["started_at"], run["ended_at"]) = (Value::from(at(number)), Value::from(at(number + 1)));
    });
    copy("message.jsonl", &|message, number| {
        message["id"] = Value::from(id(&message["id"], number));
        message["created_at"] = Value::from(at(number));
        message["settlement"]["at"] = Value::from(at(number + 1));
    });
}

#[test]
fn ten_thousand_turns_make_no_large_page() {
    let sandbox = started("printf '{\"brief\":\"as always\"}' > \"$DORMOUSE_OUTCOME\"");
    step_on(&sandbox, "x");
    multiply(&sandbox, 10_000);
    sandbox.pass(3600);
    let page = page(&sandbox, &[]);
    judge(&page);
    assert!(page.contains("10\u{2009}000 completed"), "{page}");
    assert!(page.len() < 200_000, "{}", page.len());
}

#[test]
fn a_browser_finds_nothing_to_run_in_the_page() {
    let found = Command::new("chromium").arg("--version").output();
    if found.is_err() {
        // Without a browser, the other tests still check the text of the page.
        return;
    }
    let sandbox = hostile();
    sandbox.run(["report"]);
    let path = sandbox.project().join("report.html");
    let profile = tempfile::tempdir().unwrap();
    let ran = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", "--timeout=20000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&ran.stdout);
    assert!(dom.contains("Agent by agent"), "{dom}{}", String::from_utf8_lossy(&ran.stderr));
    for never in ["<script", "<img", " onload=", " onerror="] {
        let in_tag = |tag: &str| tag.split('>').next().is_some_and(|tag| format!("<{tag}").contains(never));
        assert!(!dom.split('<').skip(1).any(in_tag), "{never} in {dom}");
    }
}
