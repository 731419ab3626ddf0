//! Tests `rename`: an agent gets another name and keeps all its records.

use std::fs;

use predicates::str::contains;
use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox, each_in_parallel, one_in};
use crate::paused::{self, Held};
use crate::setup::{add, agents, failure, hook, names, objects, own_name, say, started, texts};
use crate::sharing::mode;
use crate::strace::{self, Harm};
use crate::travel::{
    WRITES, at_once, changing_calls, each_on_full_disk, export, healthy, held_at_some_calls, in_turn,
    killed_everywhere, produce_during, turn_may_only_touch_child,
};

fn queued(sandbox: &Sandbox, name: &str) -> Vec<String> {
    texts(&sandbox.json_lines(["queue", "list", "-a", name, "--limit", "0"]), "id")
}

#[track_caller]
fn renamed(sandbox: &Sandbox, former: &str, name: &str) {
    let ran = sandbox.cmd(["rename", former, name]).output();
    assert!(ran.code() == 0 && ran.stdout.starts_with(&format!("{former}  is {name} now")), "{ran}");
}

#[track_caller]
fn refused(sandbox: &Sandbox, words: &[&str], status: i32, kind: &str) -> Ran {
    sandbox.cmd([&["--json"], words].concat()).fails(status, kind)
}

/// Returns an agent with a child, a message, history, a trigger key, and files of its operator.
fn estate() -> Sandbox {
    let here = started("echo said");
    here.run(["create", "kid", "--parent", "ada", "--", "true"]);
    hook(&here.agent("ada"), "on-startup", "exit 0");
    fs::write(here.home().join("secret"), "a secret of a sender\n").unwrap();
    here.run(["trigger", "create", "-a", "ada", "--verify", "hmac_sha256"]);
    fs::create_dir(here.agent("ada").join("memory")).unwrap();
    fs::write(here.agent("ada").join("memory/notes"), "mine").unwrap();
    std::os::unix::fs::symlink("notes", here.agent("ada").join("memory/link")).unwrap();
    say(&here, "first");
    here.run(["tick", "ada", "--until-idle"]);
    for words in [
        &["enqueue", "ada", "once", "--dedupe-key", "k"][..],
        &["work", "add", "objective", "-a", "ada"],
        &["timer", "add", "-a", "ada", "--every", "1h", "x"],
        &["wait", "-a", "ada", "--on", "operator", "--reason", "why", "--whole-agent"],
    ] {
        here.run(words.iter().copied());
    }
    here
}

/// Returns an agent's key files and listings of its records, with its name replaced by `NAME`.
fn shown(here: &Sandbox, name: &str) -> Vec<String> {
    let keys = names(&here.agent(name).join("keys"));
    let shown = ["queue list", "briefs", "run list", "work list", "timer list", "wait list", "trigger list"];
    let shown = shown.map(|words| {
        let words = words.split(' ').chain(["-a", name, "--json"]);
        here.run(words).replace(&format!("\"{name}\""), "\"NAME\"")
    });
    keys.into_iter().chain(shown).collect()
}

#[test]
fn rename_keeps_all_records_of_an_agent() {
    let here = estate();
    let before = shown(&here, "ada");
    let said = objects(&here.cmd(["rename", "ada", "eve", "--json"]).output().stdout).remove(0);
    assert_eq!((&said["agent"], &said["former_name"]), (&json!("eve"), &json!("ada")), "{said}");
    assert_eq!((&said["children"], &said["triggers"]), (&json!(["kid"]), &Value::Null), "{said}");
    assert_eq!(agents(&here), ["eve", "kid"]);
    healthy(&here);
    assert_eq!(shown(&here, "eve"), before);
    let kid = here.json(["get", "kid"]);
    assert_eq!((&kid["parent"], &kid["identity"]["owner"]), (&json!("eve"), &json!("eve")), "{kid}");
    let dir = here.agent("eve");
    assert_eq!(fs::read_to_string(dir.join("memory/link")).unwrap(), "mine");
    assert!(dir.join("hooks/on-startup").exists());
    let events = here.json_lines(["events", "eve", "--limit", "2"]);
    assert_eq!(texts(&events, "kind"), ["moved_away", "moved_in"]);
    assert_eq!(events[0]["data"]["to"], "eve");
    assert_eq!((&events[1]["data"]["by"], &events[1]["data"]["from"]), (&json!("rename"), &json!("ada")));
    assert!(here.run(["logs", "eve"]).contains("had the name ada until now"));
    for words in [&["get", "ada"][..], &["enqueue", "ada", "x"], &["tick", "ada"], &["rename", "ada", "eve"]]
    {
        let ran = refused(&here, words, 3, "no_agent");
        assert_eq!(failure(&ran)["hint"], "it was renamed: it is `eve` now", "{ran}");
    }
    // The renamed agent knows the dedupe key, so its queue still has one message.
    let again = here.json(["enqueue", "eve", "once", "--dedupe-key", "k"]);
    assert_eq!(queued(&here, "eve"), [again["message_id"].as_str().unwrap()]);
    renamed(&here, "eve", "ada");
    healthy(&here);
    assert_eq!(here.json(["get", "kid"])["parent"], "ada");
    assert_eq!(shown(&here, "ada"), before);
    // The agent has its old name again, so a new agent can take the name `eve`.
    add(&here, "eve", "true");
    here.run(["enqueue", "eve", "x"]);
    here.run(["tick", "ada", "--until-idle"]);
    healthy(&here);
}

/// Renames an agent twice with messages and a hint in its inbox, which name it by its first name.
#[test]
fn arrivals_from_before_a_rename_are_processed_once() {
    let here = started("true");
    say(&here, "plain");
    let keyed = here.json(["enqueue", "ada", "once", "--dedupe-key", "k"])["message_id"].clone();
    here.run(["wake", "ada", "--source", "ci", "--reason", "why"]);
    add(&here, "bob", "true");
    for (from, to) in [("ada", "eve"), ("eve", "zoe")] {
        renamed(&here, from, to);
        healthy(&here);
    }
    // The keys are read from the inbox again.
    fs::remove_dir_all(here.agent("zoe").join("cache")).unwrap();
    let again = here.json(["enqueue", "zoe", "once", "--dedupe-key", "k"]);
    assert_eq!((&again["message_id"], &again["duplicate"]), (&keyed, &json!(true)), "{again}");
    for message in here.json_lines(["queue", "list", "-a", "zoe"]) {
        assert_eq!(message["agent"], "zoe", "{message}");
    }
    here.run(["tick", "zoe", "--until-idle"]);
    let got = here.json(["get", "zoe"]);
    assert_eq!(
        (&got["counters"]["messages_processed"], &got["queue"]["pending"]),
        (&json!(3), &json!(0)),
        "{got}"
    );
    for run in here.json_lines(["run", "list", "-a", "zoe"]) {
        assert_eq!(run["agent"], "zoe", "{run}");
    }
    healthy(&here);
    // A message to another agent is refused as before.
    let name = here.run(["enqueue", "bob", "x", "-q"]);
    let name = format!("2-{}.json", name.trim());
    fs::rename(here.agent("bob").join("inbox").join(&name), here.agent("zoe").join("inbox").join(&name))
        .unwrap();
    here.cmd(["tick", "zoe"]).assert().stderr(contains("it is a message to `bob`"));
}

#[test]
fn a_refused_rename_changes_nothing() {
    let here = started("true");
    add(&here, "bob", "true");
    for (words, status, kind) in [
        (&["rename", "ada", "bob"][..], 4, "agent_exists"),
        (&["rename", "ada", "ada"], 2, "usage"),
        (&["rename", "ada", "../x"], 2, "usage"),
        (&["rename", "ada", ""], 2, "usage"),
        (&["rename", "ada"], 2, "usage"),
        (&["rename", "zoe", "eve"], 3, "no_agent"),
    ] {
        refused(&here, words, status, kind);
    }
    here.run(["task", "start", "-a", "ada", "--delegate", "kid", "hello"]);
    here.cmd(["tick", "ada"]).output();
    refused(&here, &["rename", "ada", "eve"], 4, "task_open");
    refused(&here, &["rename", "kid", "eve"], 4, "task_open");
    here.cmd(["tick", "--all", "--until-idle"]).output();
    say(&here, "still there");
    // An agent that was moved away can't be renamed, and its name is taken.
    export(&here, &["bob", "--move", "host-b"]);
    refused(&here, &["rename", "bob", "eve"], 4, "moved");
    refused(&here, &["rename", "ada", "bob"], 4, "agent_exists");
    // A damaged record makes the command fail before it changes anything.
    let policy = here.agent("ada").join("identity.json");
    let sound = fs::read(&policy).unwrap();
    fs::write(&policy, "{").unwrap();
    refused(&here, &["rename", "ada", "eve"], 6, "damaged");
    fs::write(&policy, sound).unwrap();
    let broken = here.agent("ada").join("work/work_0000.json");
    fs::write(&broken, "{").unwrap();
    refused(&here, &["rename", "ada", "eve"], 6, "damaged");
    fs::remove_file(broken).unwrap();
    assert_eq!(here.json(["get", "ada"])["moved"], Value::Null);
    say(&here, "as before");
    healthy(&here);
}

#[test]
fn a_turn_is_not_renamed_and_renames_only_children() {
    let here = turn_may_only_touch_child(|name| format!("rename {name} {name}-2"));
    assert_eq!(agents(&here), ["ada", "bob", "kid-2"]);
    let (here, end_turn) = in_turn();
    let ran = refused(&here, &["rename", "ada", "eve"], 4, "turn_running");
    assert!(failure(&ran)["hint"].as_str().unwrap().contains("dormouse stop ada"), "{ran}");
    end_turn(&here);
    renamed(&here, "ada", "eve");
    healthy(&here);
}

/// Stops a child in a turn and renames the parent: a later turn of the parent may start the child.
#[test]
fn a_renamed_parent_may_start_a_child_that_its_turn_has_stopped() {
    let own = own_name();
    let here = started(&format!(
        "if [ -e \"$HOME/on\" ]; then {own} start kid; else {own} stop kid; touch \"$HOME/on\"; fi"
    ));
    here.run(["create", "kid", "--parent", "ada", "--", "true"]);
    here.run(["start", "kid"]);
    say(&here, "stop it");
    here.run(["tick", "ada"]);
    assert_eq!(here.json(["get", "kid"])["status"], "stopped");
    renamed(&here, "ada", "eve");
    here.run(["enqueue", "eve", "start it"]);
    here.run(["tick", "eve"]);
    assert_eq!(here.json(["get", "kid"])["status"], "awake_idle");
    // An agent that the operator has stopped is still stopped after its renaming.
    here.run(["stop", "kid"]);
    renamed(&here, "kid", "kim");
    assert_eq!(here.json(["get", "kim"])["status"], "stopped");
    healthy(&here);
}

/// Renames the receiver of a message between the sender's settlement and the delivery.
#[test]
fn a_message_that_was_sent_before_a_rename_is_delivered() {
    needs!("strace");
    let template = started("true");
    let send =
        r#"printf '{"actions":[{"do":"enqueue","agent":"ada","text":"hello"}]}' > "$DORMOUSE_OUTCOME""#;
    add(&template, "bob", send);
    template.run(["enqueue", "bob", "go"]);
    let calls = strace::record(&template.copy(), &["tick", "bob"], "").calls;
    let delivery = paused::call(&calls, "open", "agents/ada/lock");
    let here = template.copy();
    let tick = Held::at(&here, &["tick", "bob"], "", delivery);
    renamed(&here, "ada", "eve");
    let ran = tick.go_on();
    assert!(ran.code() == 0 && queued(&here, "eve").len() == 1, "{ran}");
    for takes_the_name in [false, true] {
        let here = template.copy();
        strace::harm(&here, &["tick", "bob"], "", delivery, Harm::Kill);
        renamed(&here, "ada", "eve");
        if takes_the_name {
            add(&here, "ada", "true");
        }
        here.run(["tick", "bob"]);
        let arrived = queued(&here, if takes_the_name { "ada" } else { "eve" });
        assert_eq!(arrived.len(), 1);
        assert_eq!(here.json(["get", "bob"])["attention"], Value::Null);
        healthy(&here);
    }
    // The renaming is killed when the marked agent has its new name: the delivery is put off.
    let calls = strace::record(&template.copy(), &["rename", "ada", "eve"], "").points();
    let renames = paused::call(&calls, "rename", "agents/eve");
    let after = calls.iter().skip_while(|call| !std::ptr::eq(*call, renames)).nth(1).unwrap();
    let here = template.copy();
    strace::harm(&here, &["tick", "bob"], "", delivery, Harm::Kill);
    strace::harm(&here, &["rename", "ada", "eve"], "", after, Harm::Kill);
    assert_eq!(agents(&here), ["bob", "eve"]);
    here.cmd(["tick", "bob"]).assert().stderr(contains("not delivered yet"));
    renamed(&here, "ada", "eve");
    here.run(["tick", "bob"]);
    assert_eq!(queued(&here, "eve").len(), 1);
    healthy(&here);
}

/// Checks the directory after a renaming was interrupted: the agent has its old or its new name, or
/// is marked as moved, and the same command completes the renaming.
fn can_be_completed(here: &Sandbox, what: &str) {
    healthy(here);
    let there = agents(here);
    let named = |name: &str| there.contains(&name.to_owned());
    let codes =
        ["ada", "eve"].map(|name| here.cmd(["enqueue", name, "two", "--dedupe-key", "two"]).output().code());
    let admitted = codes.iter().filter(|code| **code == 0).count();
    let marked =
        ["ada", "eve"].iter().any(|name| named(name) && here.json(["get", name])["moved"].is_object());
    assert_eq!(admitted, usize::from(!marked), "{what}: {codes:?}");
    if marked {
        let ran = here.cmd(["enqueue", if named("eve") { "eve" } else { "ada" }, "x"]).output();
        assert!(ran.stderr.contains("`dormouse rename ada eve` ends that"), "{what}: {ran}");
        here.cmd(["tick", "--all"]).output();
        for words in [
            &["rm", "ada", "--force"][..],
            &["rm", "eve", "--force"],
            &["export", "ada", "--move", "x", "-o", "x"],
        ] {
            assert!([3, 4].contains(&here.cmd(words.iter().copied()).output().code()), "{what}: {words:?}");
        }
        if named("eve") {
            // An agent that has its new name gets no third name before the renaming is complete.
            assert!([3, 4].contains(&here.cmd(["rename", "ada", "zoe"]).output().code()), "{what}");
            for words in
                [&["rename", "eve", "zoe"][..], &["rename", "eve", "ada"], &["export", "eve", "-o", "x"]]
            {
                refused(here, words, 4, "moved");
            }
        }
    }
    let ran = here.cmd(["rename", "ada", "eve"]).output();
    let is_done = !marked && named("eve");
    assert_eq!(ran.code(), if is_done { 3 } else { 0 }, "{what}: {ran}");
    // Creating an agent deletes leftover files.
    here.run(["create", "new", "--", "true"]);
    assert_eq!(agents(here), ["eve", "kid", "new"], "{what}");
    assert_eq!(queued(here, "eve").len(), 1 + admitted, "{what}");
    assert_eq!(here.json(["get", "kid"])["parent"], "eve", "{what}");
    assert_eq!(fs::read_to_string(here.agent("eve").join("memory/link")).unwrap(), "mine", "{what}");
    assert_eq!(names(&here.agent("eve").join("keys")).len(), 2, "{what}");
    assert_eq!(here.json(["get", "eve"])["moved"], Value::Null, "{what}");
    assert_eq!(here.json_lines(["briefs", "eve"]).len(), 1, "{what}");
    healthy(here);
}

#[test]
fn a_renaming_can_be_killed_at_every_call() {
    needs!("strace");
    killed_everywhere(&estate(), &["rename", "ada", "eve"], "", can_be_completed);
}

/// Kills a renaming: while no agent has the new name, another name can be given.
#[test]
fn a_renaming_that_was_killed_can_take_another_name() {
    needs!("strace");
    let template = started("true");
    say(&template, "one");
    killed_everywhere(&template, &["rename", "ada", "eve"], "", |here, what| {
        let is_begun = agents(here).contains(&"eve".to_owned());
        let ran = here.cmd(["rename", "ada", "zoe"]).output();
        let ada_is_there = agents(here).contains(&"ada".to_owned());
        match is_begun {
            false => assert_eq!(ran.code(), 0, "{what}: {ran}"),
            true => assert_eq!(ran.code(), if ada_is_there { 4 } else { 3 }, "{what}: {ran}"),
        }
        if is_begun {
            here.cmd(["rename", "ada", "eve"]).output();
            renamed(here, "eve", "zoe");
        }
        assert_eq!(queued(here, "zoe").len(), 1, "{what}");
        assert_eq!(agents(here).iter().filter(|name| !name.starts_with(".new-")).count(), 1, "{what}");
        healthy(here);
    });
}

#[test]
fn a_renaming_that_finds_the_disk_full_loses_nothing() {
    needs!("strace");
    let template = estate();
    let words = ["rename", "ada", "eve"];
    let writes = one_in(6, changing_calls(&template, &words, &WRITES));
    each_on_full_disk(&template, &words, &writes, |here, failed, what| {
        assert!([0, 1, 6].contains(&failed.code()), "{what}");
        can_be_completed(here, what);
    });
}

/// Lets the call that gives the directory its new name fail, alone or with all later renames of
/// files, and the sync after that call, which undoes it.
#[test]
fn a_renaming_whose_main_call_fails_can_be_completed() {
    needs!("strace");
    let template = estate();
    let words = ["rename", "ada", "eve"];
    let calls = strace::record(&template.copy(), &words, "").points();
    let renames = paused::call(&calls, "rename", "agents/eve");
    let after: Vec<_> = calls.iter().skip_while(|call| !std::ptr::eq(*call, renames)).cloned().collect();
    let syncs = paused::call(&after, "fsync", "/agents>");
    for (call, harm, marked) in [
        (renames, Harm::Error("EACCES"), None),
        (renames, Harm::ErrorsFrom("EROFS"), Some("ada")),
        (syncs, Harm::Error("EIO"), None),
    ] {
        let here = template.copy();
        let harmed = strace::harm(&here, &words, "", call, harm);
        let what = format!("{call}: {}", harmed.ran);
        assert!(harmed.hit[0].contains("agents"), "{what}");
        assert_eq!(harmed.ran.code(), 1, "{what}");
        let there = agents(&here);
        assert_eq!(there, [marked.unwrap_or("ada"), "kid"], "{what}");
        assert_eq!(here.json(["get", &there[0]])["moved"].is_object(), marked.is_some(), "{what}");
        assert_eq!(harmed.ran.stderr.contains("is still marked for renaming"), marked.is_some(), "{what}");
        can_be_completed(&here, &what);
    }
}

/// Makes `agents/` read-only for a renaming, and then a child unreadable, whose record of its
/// parent has to be changed.
#[test]
fn a_renaming_that_lacks_a_permission_leaves_a_usable_agent_or_can_be_repeated() {
    let here = estate().of_an_ordinary_user();
    let (parent, kid) = (here.store().join("agents"), here.agent("kid"));
    mode(&parent, 0o500);
    refused(&here, &["rename", "ada", "eve"], 1, "not_allowed");
    assert_eq!(
        (agents(&here), &here.json(["get", "ada"])["moved"]),
        (vec!["ada".into(), "kid".into()], &Value::Null)
    );
    let before = queued(&here, "ada").len();
    say(&here, "as before");
    here.run(["tick", "ada"]);
    mode(&parent, 0o700);
    healthy(&here);
    mode(&kid, 0o000);
    refused(&here, &["rename", "ada", "eve"], 1, "not_allowed");
    let error = failure(&refused(&here, &["enqueue", "eve", "x"], 4, "moved"));
    assert!(error["hint"].as_str().unwrap().contains("`dormouse rename ada eve` ends that"), "{error}");
    mode(&kid, 0o700);
    renamed(&here, "ada", "eve");
    assert_eq!(queued(&here, "eve").len(), before);
    assert_eq!(here.json(["get", "kid"])["parent"], "eve");
    healthy(&here);
}

#[test]
fn producers_lose_nothing_to_a_renaming() {
    for round in 0..6 {
        let (here, acknowledged) = produce_during(round, &["rename", "ada", "eve"], Some("eve"));
        assert_eq!(agents(&here), ["eve"]);
        let mut arrived = queued(&here, "eve");
        for id in &acknowledged {
            assert!(arrived.contains(id), "{id}");
        }
        let all = arrived.len();
        arrived.sort_unstable();
        arrived.dedup();
        assert_eq!(arrived.len(), all, "a message has arrived twice");
        healthy(&here);
    }
}

/// Holds `enqueue` at the rename into the inbox, or just after it, while the agent is renamed.
#[test]
fn enqueue_delivers_or_fails_if_the_agent_is_renamed_meanwhile() {
    needs!("strace");
    let template = started("true");
    let calls = strace::record(&template.copy(), &["enqueue", "ada", "held"], "").calls;
    let arrival = paused::call(&calls, "rename", "/inbox");
    let after = calls.iter().skip_while(|call| !std::ptr::eq(*call, arrival)).nth(1).unwrap();
    for call in [arrival, after] {
        let here = template.copy();
        let producer = Held::at(&here, &["enqueue", "ada", "held", "--json"], "", call);
        renamed(&here, "ada", "eve");
        let ran = producer.go_on();
        let there = queued(&here, "eve").len();
        assert!(
            ran.code() == 0 && there == 1 || failure(&ran)["kind"] == "no_agent",
            "{call}: {ran} {there}"
        );
        healthy(&here);
    }
}

/// Renames the parent while the renaming of its child waits for the child's lock.
#[test]
fn a_renamed_child_keeps_the_new_name_of_its_parent() {
    needs!("strace");
    let here = started("true");
    here.run(["create", "kid", "--parent", "ada", "--", "true"]);
    let words = ["rename", "kid", "joe"];
    let calls = strace::record(&here.copy(), &words, "").calls;
    let child = Held::at(&here, &words, "", paused::call(&calls, "open", "agents/kid/lock"));
    renamed(&here, "ada", "eve");
    let ran = child.go_on();
    assert_eq!(ran.code(), 0, "{ran}");
    assert_eq!(here.json(["get", "joe"])["parent"], "eve");
    healthy(&here);
}

/// Drops a file into the inbox during a renaming: the renamed agent processes it.
#[test]
fn a_file_that_is_dropped_during_a_rename_is_processed() {
    needs!("strace");
    let template = started("true");
    let words = ["rename", "ada", "eve"];
    let calls = strace::record(&template.copy(), &words, "").points();
    each_in_parallel(&one_in(6, calls), |call| {
        let here = template.copy();
        let first = Held::at(&here, &words, "", call);
        let inbox = here.agent("ada").join("inbox");
        let aside = here.home().join("late");
        fs::write(&aside, "{\"text\": \"late\"}\n").unwrap();
        let is_dropped = fs::rename(&aside, inbox.join("late.json")).is_ok();
        let ran = first.go_on().exits(0);
        here.run(["tick", "eve", "--until-idle"]);
        let processed = here.json(["get", "eve"])["counters"]["messages_processed"].as_u64().unwrap();
        assert_eq!(processed, u64::from(is_dropped), "{call}: {ran}");
        healthy(&here);
    });
}

#[test]
fn a_command_that_is_paused_during_a_rename_leaves_one_agent() {
    needs!("strace");
    let template = started("true");
    say(&template, "one");
    for words in [
        &["tick", "ada"][..],
        &["enqueue", "ada", "x", "--dedupe-key", "k"],
        &["work", "add", "x", "-a", "ada"],
        &["stop", "ada"],
        &["get", "ada"],
        &["rename", "ada", "eve"],
        &["rename", "ada", "zoe"],
        &["create", "eve", "--", "true"],
        &["create", "kid", "--parent", "ada", "--", "true"],
    ] {
        let rename = ["rename", "ada", "eve", "--lock-timeout", "0s"];
        held_at_some_calls(&template, words, "agents/", &rename, |here, first, second, described| {
            assert!([0, 3, 4, 5].contains(&second.code()), "{described}");
            assert!([0, 3, 4, 5].contains(&first.code()), "{described}");
            // A renaming that was interrupted is completed by the next command.
            for name in ["eve", "zoe"] {
                here.cmd(["rename", "ada", name]).output();
            }
            let there = agents(here);
            let kept = there.iter().filter(|name| ["ada", "eve", "zoe"].contains(&name.as_str()));
            let extra = usize::from(words[0] == "create" && words[1] == "eve" && first.code() == 0);
            assert_eq!(kept.count(), 1 + extra, "{there:?} {described}");
            for name in there.iter().filter(|name| !name.starts_with('.')) {
                assert_eq!(here.json(["get", name])["moved"], Value::Null, "{name}: {described}");
            }
            healthy(here);
        });
    }
}

#[test]
fn a_batch_of_an_agent_that_is_renamed_meanwhile_is_delivered_whole() {
    needs!("strace");
    let (template, words) = (started("true"), ["enqueue", "ada", "--batch"]);
    let batch = "{\"text\": \"1\"}\n{\"text\": \"2\"}\n{\"text\": \"3\"}\n";
    let mut calls = strace::record(&template.copy(), &words, batch).calls;
    calls.retain(|call| call.act().starts_with("rename"));
    assert_eq!(calls.len(), 3);
    each_in_parallel(&calls, |call| {
        let here = template.copy();
        let batch = Held::at(&here, &words, batch, call);
        renamed(&here, "ada", "eve");
        let ran = batch.go_on();
        assert!(ran.code() == 0 && queued(&here, "eve").len() == 3, "{call}: {ran}");
        healthy(&here);
    });
}

#[test]
fn two_concurrent_renames_leave_one_agent() {
    let template = started("true");
    say(&template, "one");
    for round in 0..10 {
        let here = template.copy();
        let other = if round % 2 == 0 { "eve" } else { "zoe" };
        let ran = at_once(&here, ["eve", other].map(|name| ["rename", "ada", name]));
        assert!(ran.iter().any(|ran| ran.code() == 0), "{ran:?}");
        assert!(ran.iter().all(|ran| [0, 3, 4].contains(&ran.code())), "{ran:?}");
        let there = agents(&here);
        assert_eq!(there.len(), 1, "{there:?} {ran:?}");
        assert_eq!(queued(&here, &there[0]).len(), 1, "{ran:?}");
        assert_eq!(here.json(["get", &there[0]])["moved"], Value::Null, "{ran:?}");
        healthy(&here);
    }
}
