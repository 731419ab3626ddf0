//! Tests `clone`, which copies settings to a new agent, and `edit`, which opens them in an editor.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::harness::{Ran, Sandbox, write_program};
use crate::setup::{assert_includes, mode, say, started};

const SETTINGS: &str = ".dormouse/agents/ada/agent.toml";

fn write(sandbox: &Sandbox, path: &str, text: &str) {
    fs::write(sandbox.project().join(path), text).unwrap();
}

fn read(sandbox: &Sandbox, path: &str) -> String {
    fs::read_to_string(sandbox.project().join(path)).unwrap()
}

#[test]
fn a_clone_has_settings_and_hooks_and_nothing_else() {
    let sandbox = started("echo done");
    let hooks = sandbox.agent("ada").join("hooks");
    fs::create_dir_all(&hooks).unwrap();
    write_program(&hooks.join("on-scheduled"), "#!/bin/sh\necho told >> told\n");
    write(&sandbox, ".dormouse/agents/ada/hooks/notes", "not a program\n");
    say(&sandbox, "x");
    sandbox.run(["tick", "ada"]);
    say(&sandbox, "y");
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h", "look"]);
    let made = sandbox.json(["clone", "ada", "eva"]);
    assert_includes(&made, json!({ "agent": "eva", "cloned_from": "ada" }));
    assert_eq!(read(&sandbox, ".dormouse/agents/eva/agent.toml"), read(&sandbox, SETTINGS));
    let modes = ["on-scheduled", "notes"].map(|name| mode(&sandbox.agent("eva").join("hooks").join(name)));
    assert_eq!(modes, [0o700, 0o600]);
    assert_includes(&sandbox.json(["get", "eva"]), json!({ "status": "booting", "queue.pending": 0 }));
    assert!(sandbox.json_lines(["timer", "list", "eva"]).is_empty());
    let of = |agent: &str| sandbox.json(["trigger", "list", agent])["id"].clone();
    assert_ne!(of("eva"), of("ada"));
    sandbox.run(["start", "eva"]);
    assert_eq!(sandbox.run(["ask", "-q", "eva", "hello"]), "done\n");
    assert_eq!(read(&sandbox, "told"), "told\ntold\n", "one hook call by `ada` and one by `eva`");
    sandbox.run(["doctor"]);
}

#[test]
fn a_clone_that_fails_makes_no_agent() {
    let sandbox = started("true");
    sandbox.run(["create", "-q", "eva", "--", "true"]);
    for (words, status) in
        [(["clone", "ada", "eva"], 4), (["clone", "ada", "../x"], 2), (["clone", "zoe", "kim"], 3)]
    {
        assert_eq!(sandbox.cmd(words).output().code(), status, "{words:?}");
    }
    symlink("on-scheduled", sandbox.project().join(".dormouse/agents/ada/hooks/on-startup")).unwrap();
    sandbox.cmd(["clone", "ada", "kim"]).exits(0).warns("hooks/on-startup of ada is no plain file");
    write(&sandbox, SETTINGS, "[turn\n");
    sandbox.cmd(["clone", "ada", "lea", "--secret-file", "key"]).exits(6).warns("agents/ada/agent.toml");
    assert!(!sandbox.project().join("key").exists() && !sandbox.agent("lea").exists());
}

/// Runs `edit` for `ada`; the editor gets a copy of the settings in the directory `copies`.
fn edit(sandbox: &Sandbox, editor: &str) -> Ran {
    let copies = sandbox.project().join("copies");
    fs::create_dir_all(&copies).unwrap();
    sandbox.cmd(["edit", "ada"]).env("EDITOR", editor).env("TMPDIR", copies).output()
}

/// Returns the contents of all copies that `edit` has left.
fn copies(sandbox: &Sandbox) -> Vec<Vec<u8>> {
    let copies = fs::read_dir(sandbox.project().join("copies")).unwrap();
    copies.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn valid_settings_replace_the_old_ones() {
    let sandbox = started("true");
    let before = read(&sandbox, SETTINGS);
    edit(&sandbox, "true").printed(0, "ada  nothing was changed\n");
    assert_eq!(read(&sandbox, SETTINGS), before);
    edit(&sandbox, "sed -i 's/30m/1h/'").printed(0, "ada  settings changed\n");
    assert_eq!(read(&sandbox, SETTINGS), before.replace("30m", "1h"));
    assert!(copies(&sandbox).is_empty());
    // Valid settings also replace invalid ones.
    write(&sandbox, SETTINGS, "[turn\n");
    assert_eq!(edit(&sandbox, "sed -i 's/turn/turn]/'").code(), 0);
    assert_eq!(read(&sandbox, SETTINGS), "[turn]\n");
    sandbox.run(["doctor"]);
}

#[test]
fn a_text_that_can_not_replace_the_settings_is_kept() {
    let sandbox = started("true");
    let before = read(&sandbox, SETTINGS);
    for (editor, status, says) in [
        ("sed -i 's/30m/soon/'", 6, "soon"),
        ("f() { printf '\\377' >> $1; }; f", 1, "valid utf-8"),
        (
            "f() { head -c 1100000 /dev/zero | tr '\\0' '#' >> $1; }; f",
            6,
            "agent.toml: more than 1048576 bytes",
        ),
        ("f() { sed -i 's/30m/1h/' $1; exit 3; }; f", 1, "the editor ended with exit status 3"),
        (
            "f() { sed -i s/30m/1h/ $1; echo '# by hand' >> .dormouse/agents/ada/agent.toml; }; f",
            4,
            "changed meanwhile",
        ),
    ] {
        let ran = edit(&sandbox, editor);
        assert!(ran.code() == status && ran.stderr.contains(says), "{editor}: {ran}");
        assert!(ran.stderr.contains("what you have written is in "), "{editor}: {ran}");
        if status != 1 {
            let place = ran.stderr.find("what you have written").unwrap();
            assert!(ran.stderr.find(says).unwrap() < place, "the error comes first: {ran}");
        }
        let kept = copies(&sandbox);
        assert!(kept.len() == 1 && kept[0] != before.as_bytes(), "{editor}");
        fs::remove_dir_all(sandbox.project().join("copies")).unwrap();
    }
    assert_eq!(read(&sandbox, SETTINGS), format!("{before}# by hand\n"));
}

#[test]
fn an_editor_that_fails_or_leaves_an_empty_file_changes_nothing() {
    let sandbox = started("true");
    let before = read(&sandbox, SETTINGS);
    for editor in ["false", "/nowhere/editor"] {
        let ran = edit(&sandbox, editor);
        assert!(ran.code() == 1 && copies(&sandbox).is_empty(), "{ran}");
    }
    let ran = edit(&sandbox, "cat /dev/null >");
    assert!(ran.code() == 1 && ran.stderr.contains("an empty file: nothing was changed"), "{ran}");
    assert_eq!(read(&sandbox, SETTINGS), before);
    sandbox.cmd(["edit", "zoe"]).env("EDITOR", "true").exits(3);
}
