//! Tests the journal after a power cut, a kill, a copy, a restore, and a change by hand.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{Sandbox, copy_tree};
use crate::setup::{edit_file, git, has_journal, make_repository, names, record, say, started, step, texts};
use crate::strace::{self, Call, Harm};

/// Field `applied` of a journal line that no command has applied yet.
pub const NO_MARK: &str = "--------------------------------";
const BOOT: &str = ",\"boot\":\"";

/// Returns a journal line as the program writes it. `mark`: value of the field `applied`.
pub fn line(entry: &Value, boot: &str, mark: &str) -> String {
    let entry = entry.to_string();
    let body = &entry[1..entry.len() - 1];
    let sum = Sha256::digest(body.as_bytes());
    let sum: String = sum.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{{\"sum\":\"{sum}\",{body},\"boot\":\"{boot}\",\"applied\":\"{mark}\"}}\n")
}

/// Returns the lines of a journal, as if the machine had been restarted after they were written.
pub fn of_another_boot(bytes: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let ids = bytes.windows(BOOT.len()).enumerate().filter(|(_, window)| *window == BOOT.as_bytes());
    for at in ids.map(|(at, _)| at + BOOT.len()) {
        // A power cut may have cut the boot id.
        let end = bytes.len().min(at + 32);
        changed[at..end].fill(b'0');
    }
    changed
}

/// Writes a journal that is newer than the files that it changes.
pub fn write(path: &Path, bytes: &[u8]) {
    // File times have steps of a few milliseconds, so an immediate write may have an equal time.
    std::thread::sleep(std::time::Duration::from_millis(8));
    fs::write(path, bytes).unwrap();
}

fn path(sandbox: &Sandbox) -> PathBuf {
    sandbox.agent("ada").join("journal.jsonl")
}

fn lines(sandbox: &Sandbox) -> Vec<Value> {
    let text = fs::read_to_string(path(sandbox)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Changes the journal as if the machine had been restarted.
fn boot_again(sandbox: &Sandbox) {
    let bytes = fs::read(path(sandbox)).unwrap();
    write(&path(sandbox), &of_another_boot(&bytes));
}

fn add(sandbox: &Sandbox, objective: &str) -> String {
    sandbox.run(["work", "add", objective, "-a", "ada"]).trim_end().to_owned()
}

/// Copies the agent's records without the journal, as git or a backup does.
fn keep(sandbox: &Sandbox) -> PathBuf {
    let kept = sandbox.root().join("kept");
    fs::create_dir(&kept).unwrap();
    copy_tree(&sandbox.agent("ada"), &kept);
    for own in ["journal.jsonl", "lock", "run.lock"] {
        let _ = fs::remove_file(kept.join(own));
    }
    kept
}

/// Restores the records from a copy and removes all others, as git does.
fn put_back(sandbox: &Sandbox, kept: &Path) {
    std::thread::sleep(std::time::Duration::from_millis(8));
    for dir in ["work", "inbox", "ledger", "archive"] {
        fs::remove_dir_all(sandbox.agent("ada").join(dir)).unwrap();
    }
    fs::remove_file(sandbox.agent("ada").join("state.json")).unwrap();
    copy_tree(kept, &sandbox.agent("ada"));
}

/// Returns the sorted objectives of the open work items.
fn objectives(sandbox: &Sandbox) -> Vec<String> {
    let mut found = texts(&sandbox.json_lines(["work", "list", "-a", "ada"]), "objective");
    found.sort();
    found
}

/// State directory with the agent `ada`, which has nothing to do and an empty journal.
fn idle() -> Sandbox {
    let sandbox = started("true");
    sandbox.run(["tick", "ada", "--until-idle"]);
    sandbox
}

fn ledger(sandbox: &Sandbox) -> String {
    sandbox.run(["events", "ada", "--json", "--limit", "0"])
}

/// Kills a command at the system call that `at` selects.
fn kill(sandbox: &Sandbox, args: &[&str], at: impl Fn(&mut std::slice::Iter<'_, Call>) -> Option<usize>) {
    let calls = strace::record(&sandbox.copy(), args, "").calls;
    let call = &calls[at(&mut calls.iter()).unwrap()];
    let harmed = strace::harm(sandbox, args, "", call, Harm::Kill);
    assert_eq!(harmed.hit.len(), 1, "{}", harmed.ran);
}

#[test]
fn a_step_with_a_turn_syncs_twice_and_an_idle_step_empties_the_journal() {
    needs!("strace");
    let sandbox = idle();
    say(&sandbox, "hello");
    let calls = strace::calls(&sandbox, &["tick", "ada"]);
    let count = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert_eq!((count("fdatasync"), count("fsync"), count("syncfs")), (2, 0, 0), "{calls:?}");
    assert_eq!(lines(&sandbox).len(), 2, "the claim and the settlement");
    sandbox.run(["tick", "ada"]);
    assert_eq!(fs::read(path(&sandbox)).unwrap(), b"", "at rest");
    sandbox.run(["doctor"]);
    // A step with nothing to do opens the journal once.
    let named = strace::named(&sandbox, &["tick", "ada"]);
    assert_eq!(named.lines().filter(|call| call.contains("journal.json")).count(), 1, "{named}");
    add(&sandbox, "one");
    assert_eq!(lines(&sandbox).len(), 1);
    sandbox.run(["stop", "ada"]);
    assert_eq!(fs::read(path(&sandbox)).unwrap(), b"", "stopped");
}

#[test]
fn a_long_journal_is_emptied() {
    let sandbox = started("true");
    let most = (0..70).map(|at| {
        add(&sandbox, &format!("item {at}"));
        lines(&sandbox).len()
    });
    let most: Vec<usize> = most.collect();
    assert!(most.contains(&63) && !most.contains(&64) && most.contains(&0), "{most:?}");
    let large = "x".repeat(100_000);
    let counts = (0..11).map(|_| {
        sandbox.run(["work", "add", "large", "-a", "ada", "--plan", &large]);
        lines(&sandbox).len()
    });
    let counts: Vec<usize> = counts.collect();
    assert!(counts[1..].contains(&0) && counts.iter().all(|count| *count < 20), "{counts:?}");
}

/// A power cut has undone on the disk all changes of the applied transactions, so the processed
/// message is in the inbox again.
#[test]
fn lost_changes_are_applied_again_from_the_journal_after_a_boot() {
    let sandbox = idle();
    let message = say(&sandbox, "hello");
    let kept = keep(&sandbox);
    sandbox.run(["tick", "ada"]);
    add(&sandbox, "one");
    let before = ledger(&sandbox);
    put_back(&sandbox, &kept);
    boot_again(&sandbox);
    // Readers see the changes in the journal before a command has applied them.
    assert_eq!(ledger(&sandbox), before);
    assert_eq!(objectives(&sandbox), ["one"]);
    assert_eq!(sandbox.json(["queue", "show", &message])["status"], "processed");
    assert_eq!(lines(&sandbox).len(), 3);
    add(&sandbox, "two");
    assert_eq!(lines(&sandbox).len(), 1, "the three applied lines are removed");
    assert_eq!(objectives(&sandbox), ["one", "two"]);
    assert!(ledger(&sandbox).starts_with(&before));
    assert!(names(&sandbox.agent("ada").join("inbox")).iter().all(|name| name == ".gitkeep"));
    assert_eq!(step(&sandbox)["decision"], "emit_system_tick", "the message is settled");
    sandbox.run(["doctor"]);
}

/// A power cut has torn `state.json`: commands restore it from the journal, and report no damage.
#[test]
fn a_torn_state_file_is_restored_from_the_journal_after_a_boot() {
    for torn in ["", "\0\0\0\0", "{\"schema\": \"dormouse/sta"] {
        let sandbox = started("true");
        add(&sandbox, "one");
        fs::write(sandbox.agent("ada").join("state.json"), torn).unwrap();
        boot_again(&sandbox);
        sandbox.run(["get", "ada"]);
        assert_eq!(objectives(&sandbox), ["one"]);
        sandbox.run(["tick", "ada", "--until-idle"]);
        assert_eq!(objectives(&sandbox), ["one"]);
        sandbox.run(["doctor"]);
    }
}

#[test]
fn the_journal_does_not_overwrite_restored_records_within_a_boot() {
    let sandbox = idle();
    add(&sandbox, "one");
    let kept = keep(&sandbox);
    add(&sandbox, "two");
    add(&sandbox, "three");
    put_back(&sandbox, &kept);
    assert_eq!(objectives(&sandbox), ["one"]);
    // The next transaction drops the journal lines of the changes that the restored records lack.
    add(&sandbox, "four");
    assert_eq!(lines(&sandbox).len(), 1);
    boot_again(&sandbox);
    assert_eq!(objectives(&sandbox), ["four", "one"]);
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert_eq!(objectives(&sandbox), ["four", "one"]);
    sandbox.run(["doctor"]);
}

#[test]
fn the_journal_does_not_overwrite_restored_records_across_a_boot() {
    let sandbox = idle();
    add(&sandbox, "one");
    let kept = keep(&sandbox);
    add(&sandbox, "two");
    boot_again(&sandbox);
    put_back(&sandbox, &kept);
    assert_eq!(objectives(&sandbox), ["one"]);
    sandbox.cmd(["tick", "ada"]).exits(0).warns("the records were put back");
    assert_eq!(objectives(&sandbox), ["one"]);
    assert!(sandbox.agent("ada").join("quarantine/journal.jsonl").exists());
    sandbox.run(["doctor"]);
}

#[test]
fn commands_in_a_copy_of_a_directory_do_not_change_the_original() {
    let sandbox = idle();
    add(&sandbox, "one");
    for is_booted in [false, true] {
        let copy = sandbox.copy();
        if is_booted {
            boot_again(&copy);
        }
        assert_eq!(objectives(&copy), ["one"]);
        add(&copy, "two");
        assert_eq!((lines(&copy).len(), objectives(&copy)), (1, vec!["one".to_owned(), "two".to_owned()]));
        boot_again(&copy);
        copy.run(["tick", "ada", "--until-idle"]);
        assert_eq!(objectives(&copy), ["one", "two"]);
        copy.run(["doctor"]);
    }
    assert_eq!(objectives(&sandbox), ["one"]);
}

/// A command that was killed between the commit and the end of its changes has changed the agent.
#[test]
fn a_line_without_its_mark_is_applied_by_the_next_command() {
    needs!("strace");
    let template = idle();
    let rename = |call: &Call, part: &str| call.act() == "rename" && call.rest.contains(part);
    for cut in ["work", "state", "mark"] {
        let sandbox = template.copy();
        kill(&sandbox, &["work", "add", "one", "-a", "ada"], |calls| match cut {
            "work" => calls.position(|call| rename(call, "/work/")),
            "state" => calls.position(|call| rename(call, "/state.json\"")),
            _ => calls.rposition(Call::is_about_journal),
        });
        assert!(has_journal(&sandbox.agent("ada")));
        assert_eq!(objectives(&sandbox), ["one"]);
        let ledger = sandbox.run(["events", "ada", "--limit", "0"]);
        add(&sandbox, "two");
        assert_eq!(objectives(&sandbox), ["one", "two"]);
        assert!(sandbox.run(["events", "ada", "--limit", "0"]).starts_with(ledger.trim_end()));
        assert_eq!(lines(&sandbox).len(), 1);
        sandbox.run(["doctor"]);
    }
}

#[test]
fn an_incomplete_last_line_of_the_journal_is_dropped() {
    let sandbox = idle();
    add(&sandbox, "one");
    let whole = fs::read(path(&sandbox)).unwrap();
    let mut zeros = whole.clone();
    zeros.extend([0; 700]);
    // A power cut may zero the middle of a line that was not synced, and so not marked as applied.
    let mut hole = [whole.clone(), whole.clone()].concat();
    hole[whole.len() + 100..whole.len() + 612].fill(0);
    let mark = hole.len() - 35..hole.len() - 3;
    hole[mark].copy_from_slice(NO_MARK.as_bytes());
    for torn in [[whole.clone(), whole[..300].to_vec()].concat(), zeros, hole] {
        fs::write(path(&sandbox), torn).unwrap();
        assert!(objectives(&sandbox).contains(&"one".to_owned()));
        sandbox.run(["doctor"]);
        assert!(
            fs::read(path(&sandbox)).unwrap() == whole,
            "the incomplete line is removed, the other stays"
        );
        sandbox.cmd(["work", "add", "more", "-a", "ada"]).exits(0);
        // The next case begins with the same journal.
        fs::write(path(&sandbox), &whole).unwrap();
    }
}

#[test]
fn a_line_that_is_damaged_before_the_end_stops_every_command() {
    let sandbox = idle();
    add(&sandbox, "one");
    add(&sandbox, "two");
    let text = fs::read_to_string(path(&sandbox)).unwrap().replacen("one", "ten", 1);
    fs::write(path(&sandbox), of_another_boot(text.as_bytes())).unwrap();
    let state = fs::read(sandbox.agent("ada").join("state.json")).unwrap();
    for command in [&["tick", "ada"][..], &["work", "add", "x", "-a", "ada"], &["get", "ada"], &["doctor"]] {
        let ran = sandbox.cmd(command.to_vec()).exits(6);
        assert!(format!("{ran}").contains("line 1 is damaged"), "{command:?}: {ran}");
    }
    assert_eq!(fs::read_to_string(path(&sandbox)).unwrap().len(), text.len());
    assert_eq!(fs::read(sandbox.agent("ada").join("state.json")).unwrap(), state);
    sandbox.cmd(["doctor", "--repair"]).output();
    assert!(sandbox.agent("ada").join("quarantine/journal.jsonl").exists());
    sandbox.run(["doctor"]);
    sandbox.run(["tick", "ada"]);
}

#[test]
fn a_failed_sync_fails_the_command_and_the_next_command_succeeds() {
    needs!("strace");
    let template = idle();
    for name in ["fdatasync", "syncfs"] {
        let sandbox = template.copy();
        let args: &[&str] =
            if name == "syncfs" { &["stop", "ada"] } else { &["work", "add", "one", "-a", "ada"] };
        let calls = strace::record(&sandbox.copy(), args, "").calls;
        let call = calls.iter().find(|call| call.name == name).unwrap();
        let harmed = strace::harm(&sandbox, args, "", call, Harm::Error("EIO"));
        assert_eq!(harmed.ran.code(), 1, "{}", harmed.ran);
        assert!(harmed.ran.stderr.contains("sync"), "{}", harmed.ran);
        assert!(!lines(&sandbox).is_empty());
        sandbox.run(args.to_vec());
        let ran = strace::record(&sandbox.copy(), &["stop", "ada"], "");
        assert!(ran.calls.iter().any(|call| call.name == "exit_group"));
        sandbox.run(["doctor"]);
    }
}

/// The claim of a turn allocates the space for its settlement.
#[test]
fn a_full_disk_stops_a_claim_and_no_settlement() {
    needs!("strace");
    let template = started("echo ran >> \"$HOME/turns\"");
    template.run(["tick", "ada", "--until-idle"]);
    say(&template, "hello");
    let calls = strace::record(&template.copy(), &["tick", "ada"], "").calls;
    let allocations: Vec<&Call> = calls.iter().filter(|call| call.name == "fallocate").collect();
    assert_eq!(allocations.len(), 1, "the claim allocates space for the settlement");
    let sandbox = template.copy();
    let harmed = strace::harm(&sandbox, &["tick", "ada"], "", allocations[0], Harm::ErrorsFrom("ENOSPC"));
    assert_eq!(harmed.ran.code(), 1, "{}", harmed.ran);
    assert!(harmed.ran.stderr.contains("journal.jsonl"), "{}", harmed.ran);
    assert!(!sandbox.home().join("turns").exists() && !has_journal(&sandbox.agent("ada")));
    // A claim must also succeed on a file system without `fallocate`, where no space is reserved.
    let harmed =
        strace::harm(&template, &["tick", "ada"], "", allocations[0], Harm::ErrorsFrom("EOPNOTSUPP"));
    assert_eq!(harmed.ran.code(), 0, "{}", harmed.ran);
}

#[test]
fn tick_with_commit_empties_the_journal_and_commits_no_journal() {
    let sandbox = started("true");
    make_repository(&sandbox);
    say(&sandbox, "hello");
    sandbox.run(["tick", "ada", "--commit"]);
    assert_eq!(fs::read(path(&sandbox)).unwrap(), b"");
    let tracked = git(&sandbox, &["ls-files"]);
    assert!(!tracked.contains("journal"), "{tracked}");
}

#[test]
fn a_journal_that_git_tracks_is_not_applied() {
    let sandbox = idle();
    let before = add(&sandbox, "one");
    make_repository(&sandbox);
    git(&sandbox, &["add", "--force", ".dormouse/agents/ada/journal.jsonl"]);
    // The command succeeds: before a restart of the machine, the journal has nothing to apply.
    add(&sandbox, "two");
    boot_again(&sandbox);
    let ran = sandbox.cmd(["work", "complete", &before, "--result", "x"]).exits(0);
    ran.warns("is not applied, because git tracks it");
    assert!(sandbox.agent("ada").join("quarantine/journal.jsonl").exists());
    sandbox.run(["doctor"]);
}

/// A journal is refused if it is too long or names a file that no transaction may write, and is not
/// applied if another machine has written it.
#[test]
fn a_hostile_journal_costs_little_and_changes_nothing() {
    let template = idle();
    let revision = record(&template, "state.json")["revision"].clone();
    let entry = |number: u64, path: &str| {
        json!({
            "schema": "dormouse/journal/1", "base_revision": revision,
            "writes": [{ "path": path, "content": "x" }], "appends": [], "deletes": [], "number": number,
        })
    };
    let zero = "0".repeat(32);
    let many: String = (1..=2000).map(|at| line(&entry(at, "work/x.json"), &zero, NO_MARK)).collect();
    let mut foreign = entry(1, "state.json");
    foreign["machine"] = "0123".into();
    let mut newer = entry(1, "state.json");
    newer["schema"] = "dormouse/journal/4".into();
    let cases = [
        (line(&entry(1, "agent.toml"), &zero, NO_MARK), 6, "no transaction changes `agent.toml`"),
        (line(&entry(1, "../bob/state.json"), &zero, NO_MARK), 6, "no transaction changes"),
        (line(&entry(2, "state.json"), &zero, NO_MARK), 6, "line 1 says that it is line 2"),
        (line(&newer, &zero, NO_MARK), 6, "newer"),
        (many, 6, "at most 1024 lines"),
        (line(&foreign, &zero, NO_MARK), 0, "written on another machine"),
    ];
    for (text, code, said) in cases {
        let sandbox = template.copy();
        let state = fs::read(sandbox.agent("ada").join("state.json")).unwrap();
        write(&path(&sandbox), text.as_bytes());
        let ran = sandbox.cmd(["work", "add", "x", "-a", "ada"]).output();
        assert!(ran.code() == code && ran.stderr.contains(said), "{said}: {ran}");
        if code == 6 {
            assert_eq!(fs::read(sandbox.agent("ada").join("state.json")).unwrap(), state);
        }
        sandbox.cmd(["doctor", "--repair"]).output();
    }
    let sandbox = template.copy();
    fs::File::create(path(&sandbox)).unwrap().set_len(4 << 30).unwrap();
    for command in [&["get", "ada"][..], &["tick", "ada"], &["doctor"]] {
        let ran = sandbox.cmd(command.to_vec()).exits(6);
        assert!(format!("{ran}").contains("no file of its kind has holes"), "{command:?}: {ran}");
    }
}

#[test]
fn a_missing_journal_is_made_and_its_name_is_durable() {
    needs!("strace");
    let sandbox = idle();
    fs::remove_file(path(&sandbox)).unwrap();
    let calls = strace::calls(&sandbox, &["work", "add", "one", "-a", "ada"]);
    // The command syncs the directory of the journal, and the line.
    assert_eq!((calls.get("fsync"), calls.get("fdatasync")), (Some(&1), Some(&1)));
    let ignored = sandbox.store().join(".gitignore");
    edit_file(&ignored, |text| text.replace("agents/*/journal.jsonl\n", ""));
    make_repository(&sandbox);
    sandbox.cmd(["doctor", "--repair"]).output().shows("agents/*/journal.jsonl");
    assert!(fs::read_to_string(&ignored).unwrap().contains("agents/*/journal.jsonl\n"));
}

/// The fixture is a state directory after a power cut: its files lack two of four transactions.
#[test]
fn a_state_directory_with_an_old_journal_can_still_be_read() {
    let sandbox = Sandbox::empty();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/power-cut");
    copy_tree(&fixture, &sandbox.store());
    let bytes = fs::read(fixture.join("agents/ada/journal.jsonl")).unwrap();
    write(&path(&sandbox), &bytes);
    let timers = || sandbox.json_lines(["timer", "list", "-a", "ada"]);
    let (events, before) = (ledger(&sandbox), timers());
    assert_eq!((before.len(), objectives(&sandbox)), (1, vec!["two".to_owned()]));
    sandbox.run(["tick", "ada", "--until-idle"]);
    assert_eq!(fs::read(path(&sandbox)).unwrap(), b"");
    assert!(ledger(&sandbox).starts_with(&events));
    assert_eq!(timers(), before);
    let archived = sandbox.agent("ada").join("archive/2026-01/work.jsonl");
    assert_eq!(fs::read_to_string(archived).unwrap().lines().count(), 1);
    sandbox.run(["doctor"]);
}
