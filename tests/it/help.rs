//! Tests `dormouse` without arguments, its help, and the hints for mistyped commands and names.

use serde_json::{Value, json};

use crate::harness::Sandbox;
use crate::setup::{add, assert_includes, failure, say, started};

const NOTHING: [&str; 0] = [];

#[test]
fn dormouse_alone_prints_the_first_steps() {
    let sandbox = Sandbox::empty();
    let said = sandbox.run(NOTHING);
    assert!(said.starts_with("There is no state directory here. To begin:\n\n  dormouse init  "), "{said}");
    assert!(said.lines().all(|line| line.len() <= 80), "{said}");
    sandbox.cmd(["up"]).exits(2).warns("'up'\n\nUsage: ");
    // Each proposed command succeeds.
    let steps = sandbox.json(NOTHING)["begin"].clone();
    for step in steps.as_array().unwrap() {
        sandbox.cmd(step.as_str().unwrap().split(' ').skip(1)).exits(0);
    }
}

#[test]
fn dormouse_alone_prints_a_summary_of_the_agents() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(NOTHING).starts_with("no agents yet in "));
    add(&sandbox, "ada", "exit 1");
    add(&sandbox, "bob", "true");
    sandbox.run(["create", "kim", "--", "true"]);
    say(&sandbox, "x");
    let said = sandbox.run(NOTHING);
    assert!(said.starts_with("3 agents in "), "{said}");
    assert!(said.contains(": 1 has_queued_input, 1 idle, 1 not started\n"), "{said}");
    assert!(said.contains("\nto have it run: dormouse start kim\n"), "{said}");
    assert!(sandbox.run(["list"]).contains("not started yet"));
    assert!(said.contains("\n1 message pending\n"), "{said}");
    let object = sandbox.json(NOTHING);
    assert_eq!(object["postures"], json!({ "has_queued_input": 1, "idle": 2 }));
    assert_includes(&object, json!({ "not_started": ["kim"], "agents": 3, "pending": 1, "attention": [] }));
    sandbox.cmd(["fail", "ada", "--reason", "x"]).output();
    for _ in 0..12 {
        sandbox.cmd(["tick", "ada"]).output();
        sandbox.cmd(["recover", "ada"]).output();
    }
    assert!(sandbox.run(NOTHING).contains("\nto look at: ada\n"));
    // The summary shows `ada` although the records of `bob` can't be read.
    std::fs::write(sandbox.agent("bob").join("state.json"), "{").unwrap();
    sandbox.cmd(NOTHING).exits(6).shows("\nto look at: ada\n");
    assert_eq!(sandbox.cmd(["-C", "nowhere"]).output().code(), 3);
}

#[test]
fn help_begins_with_the_purpose_of_a_command_and_an_example() {
    let sandbox = Sandbox::empty();
    for command in ["tick", "enqueue", "queue drop", "create", "timer add", "check-outcome", "doctor"] {
        let help = sandbox.run(command.split(' ').chain(["--help"]));
        let (_, example) = help.split_once("\n\nExample:\n").unwrap_or_else(|| panic!("{command}: {help}"));
        let (example, rest) = example.split_once("\n\n").unwrap();
        assert_eq!(help.find("\n\n"), help.find("\n\nExample:"), "{help}");
        assert!(rest.contains("Usage: ") && !example.contains("Usage"), "{help}");
        let is_plain = !example.contains("\\-") && !example.contains("\\(");
        assert!(example.starts_with("  ") && is_plain, "{example}");
    }
    assert!(!sandbox.run(["tick", "-h"]).contains("Example"));
    assert!(sandbox.run(["help", "tick"]).contains("\nExample:\n  dormouse tick "));
    let all = sandbox.run(["--help"]);
    assert!(all.find("\nExample:\n").unwrap() < all.find("\nUsage:").unwrap(), "{all}");
}

#[test]
fn help_begins_with_ten_commands_and_lists_all_by_purpose() {
    let sandbox = Sandbox::empty();
    let names = |help: &str| {
        let named = |line: &str| line.strip_prefix("  ")?.split_whitespace().next().map(str::to_owned);
        help.lines().take_while(|line| *line != "Options:").filter_map(named).collect::<Vec<_>>()
    };
    let first = sandbox.run(["-h"]);
    assert_eq!(names(&first).join(" "), "init create start ask enqueue tick list logs queue explain");
    assert!(first.contains("`dormouse --help`"), "{first}");
    assert!(first.lines().all(|line| line.len() <= 80), "{first}");
    let all = sandbox.run(["--help"]);
    let headings: Vec<&str> =
        all.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
    assert_eq!(headings[..4], ["Example:", "Begin:", "Every day:", "When something fails:"]);
    assert_eq!(sandbox.run(["help"]), all);
    assert_eq!(sandbox.run(["-C", "tick", "--help"]), all, "a directory may have the name of a command");
    // The help of a command has all general options in one line.
    for help in [sandbox.run(["queue", "list", "-h"]), sandbox.run(["queue", "list", "--help"])] {
        let everywhere: Vec<&str> = help.lines().filter(|line| line.contains("--lock-timeout")).collect();
        assert_eq!(everywhere.len(), 1, "{help}");
        assert!(everywhere[0].starts_with("Everywhere: -C DIR, ") && everywhere[0].len() <= 80, "{help}");
    }
}

#[test]
fn commands_of_other_tools_get_a_hint_with_our_command() {
    let sandbox = started("true");
    for (word, tip) in [
        ("status", "`dormouse list`"),
        ("ps", "`dormouse list`"),
        ("show", "`dormouse get AGENT`"),
        ("send", "`dormouse enqueue AGENT TEXT`"),
        ("add", "`dormouse create AGENT`"),
        ("delete", "`dormouse rm AGENT`"),
        ("kill", "`dormouse fail AGENT`"),
        ("cancel", "`dormouse queue drop ID`"),
        ("retry", "`dormouse recover AGENT`"),
        ("restart", "`dormouse stop AGENT && dormouse start AGENT`"),
        ("log", "`dormouse logs AGENT`"),
    ] {
        let ran = sandbox.cmd([word, "ada", "--json"]).output();
        assert!(failure(&ran)["hint"].as_str().unwrap().starts_with(tip), "{word}: {ran}");
        assert_eq!(ran.code(), 2, "{ran}");
        let said = sandbox.cmd([word, "ada"]).output().stderr;
        assert!(said.contains(&format!("tip: {tip}")) && !said.contains("similar"), "{said}");
    }
}

#[test]
fn mistyped_words_get_a_hint_with_similar_ones() {
    let sandbox = started("true");
    for (line, near) in [
        ("tik ada", "some similar subcommands exist: 'task', 'tick'"),
        ("enqeue ada x", "a similar subcommand exists: 'enqueue'"),
        ("tick ada --untill-idle", "a similar argument exists: '--until-idle'"),
        ("list --posture idel", "a similar value exists: 'idle'"),
        ("tick adda", "did you mean `ada`?"),
        ("tick zzz", "there is ada"),
    ] {
        let ran = sandbox.cmd(line.split(' ').chain(["--json"])).output();
        assert_eq!(failure(&ran)["hint"], Value::from(near), "{line}: {ran}");
    }
    for number in 0..30 {
        sandbox.run(["create", &format!("kid{number}"), "--", "true"]);
    }
    let ran = sandbox.cmd(["tick", "zzz", "--json"]).output();
    let hint = failure(&ran)["hint"].as_str().unwrap().to_owned();
    assert!(hint.starts_with("there is ada, kid0, ") && hint.ends_with(", and 21 more"), "{hint}");
}

#[test]
fn no_hint_names_a_hidden_command() {
    let sandbox = Sandbox::new();
    for word in ["status", "pauze", "supervize"] {
        let ran = sandbox.cmd([word, "--json"]).exits(2);
        for hidden in ["pause", "supervise"] {
            assert!(!ran.stderr.contains(hidden) && !ran.stdout.contains(hidden), "{ran}");
        }
    }
}

#[test]
fn a_wrong_flag_of_list_gets_no_hint_with_get() {
    let sandbox = Sandbox::new();
    let ran = sandbox.cmd(["list", "--nonsense"]).exits(2);
    assert!(!ran.stderr.contains("get NAME"), "{ran}");
}
