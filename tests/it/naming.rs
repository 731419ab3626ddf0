//! Tests how commands determine their agents: by words, by `-a`, by `--all`, or by the calling
//! turn.

use std::fs;
use std::io::Read;

use crate::harness::Sandbox;
use crate::setup::{Beside, add, commands, extend_policy, objects, started};
use crate::watching::terminal::Terminal;

/// Agents `ada` and `bob`, each with a failed and a queued message.
fn two() -> Sandbox {
    let turn = "test -e good || exit 1; echo said";
    let sandbox = started(turn);
    add(&sandbox, "bob", turn);
    for name in ["ada", "bob"] {
        extend_policy(&sandbox, name, "[recovery]\nmax_attempts = 1\n");
        sandbox.run(["enqueue", name, "first"]);
        sandbox.cmd(["tick", name]).output();
        sandbox.run(["enqueue", name, "second"]);
    }
    sandbox
}

#[test]
fn lists_accept_several_agents_and_name_the_agent_of_each_line() {
    let sandbox = two();
    sandbox.run(["task", "start", "ada", "--", "sleep", "100"]);
    sandbox.run(["task", "start", "bob", "--", "sleep", "100"]);
    for list in ["queue list", "queue dead", "run list", "task list", "events", "briefs"] {
        let with = |more: &[&str]| {
            let line: Vec<&str> = list.split(' ').chain(more.iter().copied()).collect();
            sandbox.json_lines(line)
        };
        let all = with(&["--all"]);
        let of =
            |name: &str| all.iter().filter(|object| object["agent"] == name).cloned().collect::<Vec<_>>();
        assert_eq!(all.len(), of("ada").len() + of("bob").len(), "{list}");
        assert_eq!(all, with(&["ada", "bob"]), "{list}");
        assert_eq!(all, with(&["-a", "ada", "-a", "bob"]), "{list}");
        assert_eq!(all, with(&["-a", "bob", "-a", "ada", "ada", "bob", "ada"]), "{list}: each once");
        let one = with(&["bob"]);
        assert_eq!(one.len(), of("bob").len(), "{list}");
        assert_eq!(one, with(&["-a", "bob"]), "{list}");
        sandbox
            .cmd(list.split(' ').chain(["ada", "-a", "bob"]))
            .exits(2)
            .warns("`ada` as a word, and --agent bob: which is meant?");
        // An unknown agent must not suppress the output about the others.
        let ran = sandbox.cmd(list.split(' ').chain(["nobody", "ada", "--json"])).exits(3);
        assert_eq!(ran.stdout.lines().count(), of("ada").len() + 1, "{list}: {ran}");
    }
    let text = sandbox.run(["queue", "list", "--all"]);
    let first: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(first, ["ada", "bob"], "{text}");
    assert!(sandbox.run(["queue", "list", "ada"]).starts_with("msg_"), "the list of one agent names it");
    let text = sandbox.run(["queue", "dead", "--all", "--ack"]);
    assert_eq!(text, "ada  acknowledged 1\nbob  acknowledged 1\n");
    sandbox.cmd(["stop", "--all", "--grace", "0s"]).output();
    assert_eq!(sandbox.json_lines(["task", "list", "--all", "--ended"]).len(), 2);
}

/// List commands, each with true if its JSON objects name the agent even if there is only one.
const LISTS: [(&str, bool); 13] = [
    ("wait list", false),
    ("timer list", false),
    ("task list", false),
    ("trigger list", false),
    ("work list", false),
    ("queue list", false),
    ("queue dead", false),
    ("queue rejected", true),
    ("run list", false),
    ("events", true),
    ("briefs", false),
    ("usage --since 365d", true),
    ("logs --since 365d", true),
];

/// Agents `ada` and `bob`, each with a record of every kind in [`LISTS`].
fn full() -> Sandbox {
    let sandbox = two();
    fs::write(sandbox.project().join("good"), "").unwrap();
    for name in ["ada", "bob"] {
        fs::write(sandbox.agent(name).join("inbox/x.json"), "{").unwrap();
        sandbox.cmd(["tick", name, "--until-idle"]).output();
        sandbox.run(["enqueue", name, "third"]);
        sandbox.run(["work", "add", name, "objective"]);
        sandbox.run(["wait", name, "--on", "external", "--reason", "why", "--recheck", "1h"]);
        sandbox.run(["task", "start", name, "--", "sleep", "100"]);
    }
    sandbox.run(["timer", "add", "bob", "--in", "1h", "soon"]);
    sandbox.run(["timer", "add", "ada", "--in", "2h", "later"]);
    sandbox
}

#[test]
fn every_list_covers_all_agents_unless_some_are_named() {
    let sandbox = full();
    for (list, names_itself) in LISTS {
        let with = |more: &[&str]| -> Vec<String> {
            list.split(' ').chain(more.iter().copied()).map(str::to_owned).collect()
        };
        let asked = |more: &[&str], agent: &str| {
            let ran =
                sandbox.cmd(with(&[&["--json"][..], more].concat())).env("DORMOUSE_AGENT", agent).exits(0);
            let mut lines = objects(&ran.stdout);
            for line in &mut lines {
                // The period of `usage` depends on the time of the command, so it is left out.
                line.as_object_mut()
                    .unwrap()
                    .retain(|field, _| !["since", "until"].contains(&field.as_str()));
            }
            lines
        };
        let all = asked(&[], "");
        let of = |name: &str| all.iter().filter(|object| object["agent"] == name).count();
        assert!(of("ada") > 0 && of("bob") > 0, "{list}: {all:?}");
        assert_eq!(all, asked(&["--all"], ""), "{list}");
        for named in [&["bob", "ada"][..], &["-a", "ada", "-a", "bob"]] {
            assert_eq!(asked(named, "").len(), all.len(), "{list} {named:?}");
        }
        let one = asked(&["bob"], "");
        assert_eq!(one, asked(&["-a", "bob"], ""), "{list}");
        assert_eq!(one, asked(&[], "bob"), "{list}");
        assert_eq!(all, asked(&["--all"], "bob"), "{list}");
        let is_named = |object: &serde_json::Value| object["agent"] == "bob" || object.get("total").is_some();
        assert!(!names_itself || one.iter().all(is_named), "{list}: {one:?}");
        sandbox.cmd(with(&["nobody"])).exits(3);
        sandbox.cmd(with(&["ada", "-a", "bob"])).exits(2);
        sandbox.cmd(with(&["ada", "--all"])).exits(2);
    }
    // Timers are listed in the order in which they fire, not by agent.
    let timers = sandbox.run(["timer", "list"]);
    let agents: Vec<&str> = timers.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(agents, ["bob", "ada"], "{timers}");
    // Unlike a list, a command that deletes files demands the name of an agent.
    sandbox.cmd("queue rejected --drop --all".split(' ')).exits(2).warns("which agent?");
    sandbox.cmd(["stop", "--all", "--grace", "0s"]).output();
    fs::write(sandbox.agent("ada").join("state.json"), "{").unwrap();
    for (list, _) in LISTS {
        let ran = sandbox.cmd(list.split(' ').chain(["--json"])).exits(6);
        let is_ended = ["task list", "queue list"].contains(&list);
        assert!(is_ended || ran.stdout.contains("\"agent\":\"bob\""), "{list}: {ran}");
    }
}

#[test]
fn commands_accept_the_agent_as_an_argument_or_as_a_flag() {
    let sandbox = two();
    let id = |line: &[&str]| sandbox.run(line.iter().copied()).split_whitespace().next().unwrap().to_owned();
    let item = id(&["work", "add", "ada", "objective"]);
    id(&["work", "add", "objective", "-a", "ada"]);
    id(&["work", "add", "ada", "objective", "-a", "ada"]);
    assert_eq!(sandbox.json_lines(["work", "list", "ada"]).len(), 3);
    sandbox.run(["work", "plan", &item, "prose", "ada"]);
    assert_eq!(sandbox.run(["work", "plan", &item]), "prose\n");
    sandbox.run(["work", "show", &item, "ada"]);
    let wait = id(&["wait", "ada", "--on", "external", "--reason", "why"]);
    let listed = sandbox.json_lines(["wait", "list", "ada"]);
    assert_eq!(listed, sandbox.json_lines(["wait", "list", "-a", "ada"]));
    sandbox.run(["wait", "cancel", &wait, "ada"]);
    let timer = id(&["timer", "add", "ada", "later", "--in", "1h"]);
    assert_eq!(sandbox.json(["timer", "list", "ada"])["body"]["text"], "later");
    id(&["timer", "add", "-a", "ada", "--in", "1h", "more"]);
    id(&["timer", "add", "-a", "ada", "--in", "1h"]);
    assert_eq!(sandbox.json_lines(["timer", "list", "ada"]).len(), 3);
    sandbox.run(["timer", "cancel", &timer, "-a", "ada"]);
    let task = id(&["task", "start", "ada", "--", "true"]);
    sandbox.run(["task", "status", &task, "ada"]);
    sandbox.run(["trigger", "create", "ada", "--secret-file", "secret"]);
    assert_eq!(sandbox.json_lines(["trigger", "list", "ada"]).len(), 2);
    assert_eq!(sandbox.run(["queue", "rejected", "ada"]), "");
    let wrong = format!(
        "work add ada objective -a bob, work list ada -a bob, work show {item} ada -a bob, \
         wait ada -a bob --on external --reason why, timer add ada later --in 1h -a bob, \
         trigger create ada -a bob"
    );
    for wrong in commands(&wrong) {
        sandbox.cmd(wrong).exits(2).warns("`ada` as a word, and --agent bob: which is meant?");
    }
    for (wrong, said) in [
        (&["work", "add", "-a", "ada"][..], "there is no text"),
        (&["work", "add", "objective"], "which agent?"),
        (&["task", "start", "ada", "text", "--", "true"], "a command takes no text"),
        (&["task", "start", "--", "true"], "which agent?"),
    ] {
        sandbox.cmd(wrong.iter().copied()).exits(2).warns(said);
    }
    // The item belongs to `ada`, so a command for `bob` does not find it.
    sandbox.cmd(["work", "show", &item, "bob"]).exits(3);
}

#[test]
fn commands_in_a_turn_use_its_own_agent_by_default() {
    let sandbox = two();
    let own = |line: &[&str]| sandbox.cmd(line.iter().copied()).env("DORMOUSE_AGENT", "bob").output().stdout;
    assert_eq!(own(&["queue", "list"]), sandbox.run(["queue", "list", "bob"]));
    assert_eq!(own(&["events"]), sandbox.run(["events", "bob"]));
    assert_eq!(own(&["queue", "list", "ada"]), sandbox.run(["queue", "list", "ada"]));
    assert_eq!(own(&["queue", "list", "--all"]), sandbox.run(["queue", "list", "--all"]));
}

#[test]
fn events_follow_ends_without_a_reader_or_a_state_directory() {
    let sandbox = two().with_real_clock();
    let follow = ["events", "--all", "--follow", "--kind", "message_settled"];
    let (mut child, mut lines) = Beside::with_lines(sandbox.cmd(follow));
    let mut next = || lines.next().unwrap();
    assert!(next().starts_with("ada  ") && next().starts_with("bob  "));
    for name in ["bob", "ada"] {
        sandbox.cmd(["tick", name, "--until-idle"]).output();
        assert!(next().starts_with(&format!("{name}  ")), "the follower shows new events");
    }
    // The follower exits with 0 when its output has no reader.
    drop(lines);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    // The follower fails when the state directory is removed.
    let (mut child, mut lines) = Beside::with_lines(sandbox.cmd(follow));
    for _ in 0..4 {
        lines.next().unwrap();
    }
    fs::remove_dir_all(sandbox.store()).unwrap();
    assert_ne!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn follow_all_ends_when_the_last_agent_is_removed() {
    for follows in ["events", "logs"] {
        let sandbox = two().with_real_clock();
        let (mut child, mut lines) = Beside::with_lines(sandbox.cmd([follows, "--all", "--follow"]));
        lines.next().unwrap();
        sandbox.run(["rm", "ada", "bob", "--no-export", "--force"]);
        lines.for_each(drop);
        let mut note = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut note).unwrap();
        let ended = (child.0.wait().unwrap().code(), note.as_str());
        assert_eq!(ended, (Some(3), "dormouse: no agent is left to follow\n"), "{follows}");
    }
}

#[test]
fn an_agent_name_in_the_place_of_an_id_is_recognized() {
    let sandbox = two();
    add(&sandbox, "adamant", "true");
    let id = sandbox.json_lines(["queue", "list", "ada"])[0]["id"].as_str().unwrap().to_owned();
    let part = &id[4..20];
    // `queue show` accepts the agent before or after the message id.
    for line in
        [["queue", "show", "ada", &id], ["queue", "show", "ada", part], ["queue", "show", part, "ada"]]
    {
        assert_eq!(sandbox.json(line)["id"], id.as_str(), "{line:?}");
    }
    let item = sandbox.run(["work", "add", "adamant", "x"]).trim_end().to_owned();
    assert_eq!(sandbox.json(["work", "show", "adamant", &item])["id"], item.as_str());
    for (line, message, hint) in [
        ("queue show ada", "no message `ada`", "queue list ada"),
        ("queue drop adamant", "no message `adamant`", "queue list adamant"),
        ("run show ada", "no run `ada`", "run list ada"),
        ("work show adamant ada", "no work item `adamant`", "work list ada"),
        ("enqueue ada x --work-item bob", "no open work item `bob`", "work list ada"),
        ("timer cancel ada", "no active timer `ada`", "timer list ada"),
        ("trigger show ada", "no trigger `ada`", "trigger list ada"),
    ] {
        let ran = sandbox.cmd(line.split(' ')).exits(2);
        assert!(ran.stderr.contains(&format!("dormouse: {message}: that is an agent\n")), "{line}: {ran}");
        assert!(ran.stderr.contains(&format!("`dormouse {hint}`")), "{line}: {ran}");
    }
    // A word that is neither an agent nor an id names no record.
    sandbox.cmd(["queue", "show", "nothing", "ada"]).exits(3);
    sandbox.cmd(["queue", "show", &id, "nobody"]).exits(3);
}

#[test]
fn ack_takes_the_named_agents_or_all_and_drop_needs_one_agent() {
    let sandbox = two();
    let dead = |name: &str| sandbox.json(["get", name])["attention"].clone();
    sandbox.cmd(["queue", "dead", "--ack", "ada"]).prints("ada  acknowledged 1\n");
    assert!(dead("ada").is_null() && !dead("bob").is_null());
    sandbox.cmd(["queue", "dead", "--ack"]).prints("ada  acknowledged 0\nbob  acknowledged 1\n");
    sandbox.cmd(["queue", "dead", "--ack", "nobody"]).exits(3);
    for name in ["ada", "bob"] {
        fs::write(sandbox.agent(name).join("inbox/x.json"), "{").unwrap();
        sandbox.cmd(["tick", name]).output();
    }
    sandbox.cmd(["queue", "rejected", "--drop", "ada", "x.json"]).exits(2).warns("which agent?");
    sandbox.cmd(["queue", "rejected", "ada", "--drop"]).exits(2);
    sandbox.run(["queue", "rejected", "ada", "--drop", "x.json"]);
    assert_eq!(sandbox.run(["queue", "rejected", "ada"]), "");
    assert_ne!(sandbox.run(["queue", "rejected", "bob"]), "");
}

/// A terminal shows the last eight digits of an id, which differ even for ids that were created at
/// the same time. Commands accept these digits, and `latest`.
#[test]
fn ids_have_a_short_form_and_the_newest_record_a_name() {
    let sandbox = started("true");
    let batch: String = (0..50).map(|number| format!("{{\"text\":\"{number}\"}}\n")).collect();
    let ran = sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(batch).output();
    let ids: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(ids.len(), 50, "{ran}");
    let in_pipe = sandbox.run(["queue", "list", "ada", "--limit", "0"]);
    let own = sandbox.dormouse();
    let args = ["queue", "list", "ada", "--limit", "0"];
    let terminal = Terminal::of_program(&sandbox, own.to_str().unwrap(), &args, &[], 100, 60);
    let on_terminal = terminal.shows(&ids[49][28..]);
    for ((id, whole), shown) in ids.iter().zip(in_pipe.lines()).zip(on_terminal.lines()) {
        assert!(whole.starts_with(id), "a pipe gets whole ids: {whole}");
        let digits = &id[28..];
        assert!(shown.starts_with(&format!("msg_{digits}  ")), "{shown}");
        for word in [format!("msg_{digits}"), digits.to_owned()] {
            assert_eq!(sandbox.json(["queue", "show", &word])["id"], **id, "{word}");
        }
    }
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(sandbox.json(["queue", "show", "latest"])["id"], *ids[49]);
    add(&sandbox, "bob", "true");
    let of_bob = sandbox.run(["enqueue", "bob", "x"]);
    assert_eq!(sandbox.json(["queue", "show", "latest"])["id"], of_bob.trim());
    assert_eq!(sandbox.json(["queue", "show", "latest", "-a", "ada"])["id"], *ids[49]);
    // `latest` is the newest record of all agents, even if it has ended.
    sandbox.run(["tick", "bob"]);
    assert_eq!(sandbox.json(["queue", "show", "latest"])["status"], "processed");
    assert_eq!(sandbox.json(["run", "show", "latest"])["message_id"], of_bob.trim());
    let work = sandbox.json(["work", "add", "tidy", "-a", "ada"])["id"].clone();
    assert_eq!(sandbox.json(["work", "show", "latest"])["id"], work);
    sandbox.cmd(["wait", "show", "latest"]).status(3).output();
}
