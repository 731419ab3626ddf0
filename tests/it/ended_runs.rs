//! Tests what is left of a settled turn: a line in the archive, and a directory for files that no
//! record contains.

use std::fs;

use serde_json::{Value, json};

use crate::checker;
use crate::harness::Sandbox;
use crate::setup::{
    Beside, add, assert_includes, eventually, extend_policy, names, objects, own_name, say, step, step_on,
};

/// State directory with the default settings and a started agent `ada`, whose turns run this line
/// of shell.
#[track_caller]
fn by_default(shell: &str) -> Sandbox {
    let sandbox = Sandbox::in_memory();
    sandbox.run(["init"]);
    add(&sandbox, "ada", shell);
    sandbox
}

/// Returns the file names in each run directory.
fn left(sandbox: &Sandbox) -> Vec<Vec<String>> {
    let runs = sandbox.agent("ada").join("runs");
    names(&runs).iter().map(|run| names(&runs.join(run))).collect()
}

#[test]
fn a_turn_without_output_leaves_an_archive_line_and_no_run_directory() {
    let sandbox = by_default("true");
    for _ in 0..3 {
        say(&sandbox, "x");
        assert_eq!(step(&sandbox)["terminal"], "completed");
    }
    assert_eq!(left(&sandbox), Vec::<Vec<String>>::new());
    let lines = fs::read_to_string(sandbox.agent("ada").join("archive/2026-01/run.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 3);
    let listed = sandbox.json_lines(["run", "list", "-a", "ada"]);
    let stored: Vec<Value> = objects(&lines).into_iter().rev().collect();
    for (listed, mut stored) in listed.iter().zip(stored) {
        stored.as_object_mut().unwrap().remove("schema");
        assert_eq!(*listed, stored);
        let id = listed["id"].as_str().unwrap();
        for part in [id, &id[20..]] {
            assert_eq!(sandbox.json(["run", "show", part]), *listed);
        }
        assert_eq!(sandbox.run(["run", "show", id, "--stdout"]), "");
    }
    let two = sandbox.cmd(["--json", "run", "list", "-a", "ada", "--limit", "2"]).output();
    assert_eq!(objects(&two.stdout), listed[..2]);
    assert_eq!(two.stderr, "dormouse: the newest 2; --limit 0 lists all\n");
    assert_eq!(sandbox.json_lines(["run", "list", "-a", "ada", "--limit", "3"]), listed);
    sandbox.run(["doctor"]);
}

#[test]
fn a_run_directory_keeps_only_files_that_no_record_contains() {
    let cases = [
        ("echo said", "completed", vec!["stdout.log"]),
        ("echo said >&2", "completed", vec!["stderr.log"]),
        (
            "printf '{\"brief\": \"b\", \"usage\": {\"input_tokens\": 1}}' > $DORMOUSE_OUTCOME",
            "completed",
            vec![],
        ),
        (
            "printf '{\"actions\": [{\"do\": \"work.add\", \"objective\": \"o\"}]}' > $DORMOUSE_OUTCOME",
            "completed",
            vec!["outcome.json"],
        ),
        ("printf nonsense > $DORMOUSE_OUTCOME", "failed", vec!["context.json", "outcome.json"]),
        ("exit 3", "failed", vec!["context.json"]),
        ("exit 75", "deferred", vec![]),
        ("echo mine > \"$(dirname $DORMOUSE_CONTEXT)/notes\"", "completed", vec!["notes"]),
    ];
    for (shell, terminal, kept) in cases {
        let sandbox = by_default(shell);
        say(&sandbox, "x");
        assert_eq!(step(&sandbox)["terminal"], terminal, "{shell}");
        let expected: Vec<Vec<&str>> = [kept].into_iter().filter(|kept| !kept.is_empty()).collect();
        assert_eq!(left(&sandbox), expected, "{shell}");
        sandbox.cmd(["doctor", "-q"]).output();
        let found = checker::look(&sandbox.agent("ada"));
        assert_eq!(found.complaints, Vec::<String>::new(), "{shell}");
    }
}

#[test]
fn retention_context_decides_which_runs_keep_their_context() {
    for (context, shell, kept) in [("all", "true", 1), ("none", "exit 3", 0), ("failed", "true", 0)] {
        let sandbox = by_default(shell);
        extend_policy(&sandbox, "ada", &format!("[retention]\ncontext = \"{context}\"\n"));
        // The agent's policy precedes the settings of the state directory.
        let settings = sandbox.store().join("dormouse.toml");
        let text = fs::read_to_string(&settings).unwrap();
        fs::write(&settings, format!("{text}[retention]\ncontext = \"none\"\n")).unwrap();
        step_on(&sandbox, "x");
        assert_eq!(left(&sandbox).len(), kept, "{context}");
        fs::write(&settings, format!("{text}[retention]\nkontext = \"none\"\n")).unwrap();
        sandbox.cmd(["tick", "ada"]).exits(6).warns("dormouse.toml").warns("[retention]");
    }
}

#[test]
fn a_checkpoint_is_kept_until_its_message_is_settled() {
    let checkpoint = format!("echo half | {} checkpoint -; exit 75", own_name());
    let sandbox = by_default(&format!("test -n \"$DORMOUSE_CHECKPOINT\" || {{ {checkpoint}; }}"));
    say(&sandbox, "x");
    assert_eq!(step(&sandbox)["terminal"], "deferred");
    assert_eq!(left(&sandbox), [["checkpoint-1"]]);
    sandbox.pass(5);
    assert_eq!(step(&sandbox)["terminal"], "completed");
    assert_eq!(left(&sandbox), Vec::<Vec<String>>::new());
}

/// The tick writes the end of its turn after `stop` has settled the run: the archive has two lines
/// of the run, and the last one counts.
#[test]
fn the_tick_of_a_stopped_run_records_its_end_and_clears_its_files() {
    let sandbox = by_default("sleep 60").with_real_clock();
    say(&sandbox, "x");
    let tick = Beside::start(sandbox.cmd(["tick", "ada"]));
    eventually("the turn runs", || (sandbox.json(["get", "ada"])["status"] == "awake_running").then_some(()));
    sandbox.cmd(["stop", "ada", "--grace", "1s"]).output();
    tick.end();
    let run = sandbox.json(["run", "list", "-a", "ada"]);
    assert_includes(&run, json!({ "terminal": "aborted", "exit": { "how": "signal", "signal": 15 } }));
    assert_eq!(left(&sandbox), [["context.json"]]);
    sandbox.run(["doctor"]);
}
