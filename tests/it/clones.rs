//! Tests that git merges the work of clones without a lost, doubled or misdelivered message.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Deref;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Ran, Sandbox, each_in_parallel};
use crate::remotes::Remote;
use crate::setup::{edit_file, names, number, objects, raw_git, texts, words};

/// Settings of git that change how a merge treats renames.
const SETTINGS: [&str; 4] = [
    "",
    "[merge]\ndirectoryRenames = true\n",
    "[diff]\nrenames = copies\n[merge]\ndirectoryRenames = true\n",
    "[merge]\nrenames = false\n",
];

/// Clones of one repository with a state directory, which merge each other's commits.
struct Clones(Remote);

impl Deref for Clones {
    type Target = Remote;

    fn deref(&self) -> &Remote {
        &self.0
    }
}

impl Clones {
    /// Makes a repository with these agents, and `count - 1` clones of it.
    fn new(agents: &[&str], count: usize, settings: &str) -> Clones {
        let clones = Clones(Remote::of(Sandbox::in_memory(), agents, "echo done", count));
        edit_file(&clones.sandbox.home().join(".gitconfig"), |config| config + settings);
        clones
    }

    fn commit(&self, at: usize) {
        self.git(at, &["add", "--all"]);
        self.git(at, &["commit", "--quiet", "--allow-empty", "-m", "done"]);
    }

    /// Merges the commits of another clone; the merge may fail.
    fn try_pull(&self, at: usize, from: usize) -> Ran {
        let there = self.dirs[from].to_str().unwrap();
        let words = ["pull", "--quiet", "--no-rebase", "--no-edit", there, "main"];
        raw_git(&self.sandbox, &self.dirs[at], &words)
    }

    #[track_caller]
    fn pull(&self, at: usize, from: usize) {
        let ran = self.try_pull(at, from);
        let status = self.git(at, &["status", "--short"]);
        assert_eq!(ran.code(), 0, "{at} pulls {from}: {ran}\n{status}");
    }

    /// Commits both of two clones, and merges each into the other.
    #[track_caller]
    fn merge_both(&self) {
        (0..2).for_each(|at| self.commit(at));
        self.pull(0, 1);
        self.pull(1, 0);
    }

    /// Enqueues `count` messages of similar texts in a clone.
    #[track_caller]
    fn enqueue_all(&self, at: usize, agent: &str, count: usize) {
        for number in 0..count {
            self.run(at, &["enqueue", agent, &format!("the same words, number {number}")]);
        }
    }

    /// Ticks an agent in a clone until it has nothing to do.
    #[track_caller]
    fn tick(&self, at: usize, agent: &str) {
        self.run(at, &["tick", agent, "--until-idle", "-q"]);
    }
}

/// Returns the ids of the messages in an inbox and in its subdirectories.
fn queued(agent: &Path) -> Vec<String> {
    let inbox = agent.join("inbox");
    let mut found = Vec::new();
    for name in names(&inbox) {
        let inside = names(&inbox.join(&name));
        found.extend(if inside.is_empty() { vec![name] } else { inside });
    }
    found.retain(|name| name.contains("msg_"));
    found.iter().map(|name| name[name.find("msg_").unwrap()..].trim_end_matches(".json").to_owned()).collect()
}

/// Returns the ids of all message lines in an archive, with repetitions.
fn settled(agent: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for month in names(&agent.join("archive")) {
        let path = agent.join("archive").join(month).join("message.jsonl");
        let lines = fs::read_to_string(path).unwrap_or_default();
        found.extend(texts(&objects(&lines), "id"));
    }
    found
}

fn seqs(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

/// One clone empties the inbox of alice, and bob gets messages similar to those of alice. Git must
/// not take that for a renamed directory, and move the message that the other clone sends to alice.
#[test]
fn git_does_not_take_an_emptied_inbox_for_a_renamed_directory() {
    for settings in SETTINGS {
        let clones = Clones::new(&["alice", "bob"], 2, settings);
        clones.enqueue_all(0, "alice", 4);
        clones.commit(0);
        clones.pull(1, 0);
        clones.tick(0, "alice");
        clones.enqueue_all(0, "bob", 4);
        let late = clones.run(1, &["enqueue", "alice", "one more"]).trim().to_owned();
        clones.merge_both();
        for at in 0..2 {
            assert_eq!(queued(&clones.agent(at, "alice")), std::slice::from_ref(&late), "{settings:?}");
            assert_eq!(queued(&clones.agent(at, "bob")).len(), 4);
            assert_eq!(clones.run(at, &["doctor"]).lines().count(), 1);
        }
        clones.tick(0, "alice");
        assert!(settled(&clones.agent(0, "alice")).contains(&late));
    }
}

/// A step that replaces a large inbox moves every message into a subdirectory. Git must not move a
/// new message of the other clone into that subdirectory, too.
#[test]
fn git_does_not_take_a_replaced_inbox_for_a_renamed_directory() {
    let clones = Clones::new(&["alice"], 2, SETTINGS[1]);
    let lines: String = (0..1100).map(|number| format!("{{\"text\":\"number {number}\"}}\n")).collect();
    let dir = clones.dirs[0].to_str().unwrap();
    clones.sandbox.cmd(["-C", dir, "enqueue", "alice", "--batch", "-q"]).stdin(lines).exits(0);
    clones.commit(0);
    clones.pull(1, 0);
    clones.run(0, &["tick", "alice", "-q"]);
    let late = clones.run(1, &["enqueue", "alice", "one more"]).trim().to_owned();
    clones.merge_both();
    for at in 0..2 {
        assert!(clones.agent(at, "alice").join(format!("inbox/2-{late}.json")).exists());
        assert_eq!(queued(&clones.agent(at, "alice")).len(), 1100);
        clones.run(at, &["doctor"]);
    }
}

/// Pseudo-random numbers from a seed.
struct Dice(RefCell<u64>);

impl Dice {
    fn roll(&self, sides: usize) -> usize {
        let mut seed = self.0.borrow_mut();
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((*seed >> 33) % sides as u64) as usize
    }
}

/// Work that the commands of all clones have acknowledged.
#[derive(Default)]
struct Said {
    /// Agent of each admitted message, by message id.
    messages: BTreeMap<String, String>,
    /// Number of the only clone that ticks and edits each agent, by agent.
    owners: BTreeMap<String, usize>,
    /// Number of dropped files and created agents, for distinct names.
    made: usize,
}

/// Does something at random in a clone. Any clone sends messages to any agent; only the owner of an
/// agent ticks it, edits it, and changes its work items, waits and timers.
fn act(clones: &Clones, at: usize, dice: &Dice, said: &mut Said) {
    let all: Vec<String> = said.owners.keys().cloned().collect();
    let own: Vec<String> = all.iter().filter(|name| said.owners[*name] == at).cloned().collect();
    let any = all[dice.roll(all.len())].as_str();
    let text = format!("please look at number {}", dice.roll(3));
    let mine = (!own.is_empty()).then(|| own[dice.roll(own.len())].as_str());
    match (dice.roll(14), mine) {
        (0..5, _) => {
            let priority = ["normal", "next", "background"][dice.roll(3)];
            let id = clones.run(at, &["enqueue", any, &text, "--priority", priority, "-q"]);
            said.messages.insert(id.trim().to_owned(), any.to_owned());
        }
        (5, _) => {
            clones.run(at, &["wake", any, "--reason", &text]);
        }
        (6, _) => {
            said.made += 1;
            let path = clones.agent(at, any).join(format!("inbox/ci-{}.json", said.made));
            fs::write(path, format!("{{\"text\":\"{text}\"}}")).unwrap();
        }
        (7, Some(name)) => {
            let path = clones.agent(at, name).join("agent.toml");
            let policy = fs::read_to_string(&path).unwrap();
            let policy = policy.lines().filter(|line| !line.starts_with("description"));
            let policy: String = policy.map(|line| format!("{line}\n")).collect();
            fs::write(&path, format!("description = \"{text} {}\"\n{policy}", dice.roll(9))).unwrap();
        }
        (8, _) => {
            said.made += 1;
            let name = format!("made-{}", said.made);
            clones.run(at, &["create", &name, "--shell", "true"]);
            clones.run(at, &["start", &name]);
            said.owners.insert(name, at);
        }
        (9, Some(name)) => {
            clones.run(at, &["work", "add", "-a", name, &text]);
        }
        (10, Some(name)) => {
            let wait = ["wait", "--on", "external", "--resource", "pr:1", "--expires", "1m"];
            clones.run(at, &[&wait[..], &["-a", name, "--reason", &text]].concat());
        }
        (11, Some(name)) => {
            clones.run(at, &["timer", "add", "-a", name, "--in", "20s", &text]);
        }
        (_, Some(name)) => {
            let ran = clones.ran(at, &["tick", name, "--until-idle", "-q"]);
            assert!([0, 7].contains(&ran.code()), "{ran}");
        }
        (_, None) => {}
    }
}

/// Asserts that every clone is sound and has each acknowledged message once, at its agent.
fn hold(clones: &Clones, said: &Said) {
    for at in 0..clones.dirs.len() {
        let checked = clones.ran(at, &["doctor", "--json"]);
        let found = objects(&checked.stdout);
        assert!(checked.code() == 0 && found.len() == 1, "{checked}");
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in said.owners.keys() {
            let agent = clones.agent(at, name);
            let ended = settled(&agent);
            let once: BTreeSet<&String> = ended.iter().collect();
            assert_eq!(once.len(), ended.len(), "{name}: settled twice");
            for id in queued(&agent).into_iter().chain(ended) {
                places.entry(id).or_default().push(name.clone());
            }
        }
        for (id, agent) in &said.messages {
            assert_eq!(places.get(id), Some(&vec![agent.clone()]), "{id} in clone {at}");
        }
        for (id, agents) in places {
            assert_eq!(agents.len(), 1, "{id}: {agents:?}");
        }
    }
}

fn random(seed: u64) {
    let dice = Dice(RefCell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let count = 2 + dice.roll(2);
    let clones = Clones::new(&["alice", "bob"], count, SETTINGS[dice.roll(SETTINGS.len())]);
    let mut said = Said::default();
    for name in ["alice", "bob"] {
        said.owners.insert(name.to_owned(), dice.roll(count));
    }
    for _ in 0..4 {
        for at in 0..count {
            for _ in 0..dice.roll(8) {
                // A clone acts only on the agents that it has made or pulled.
                let mut here = Said { made: said.made, owners: said.owners.clone(), ..Said::default() };
                here.owners.retain(|name, _| clones.agent(at, name).exists());
                act(&clones, at, &dice, &mut here);
                said.made = here.made;
                said.messages.append(&mut here.messages);
                said.owners.append(&mut here.owners);
            }
            clones.commit(at);
        }
        for _ in 0..dice.roll(3) {
            let at = dice.roll(count);
            clones.pull(at, (at + 1 + dice.roll(count - 1)) % count);
        }
    }
    for _ in 0..2 {
        for at in 0..count {
            for from in (0..count).filter(|from| *from != at) {
                clones.pull(at, from);
            }
        }
    }
    let trees: BTreeSet<String> =
        (0..count).map(|at| clones.git(at, &["rev-parse", "HEAD^{tree}"])).collect();
    assert_eq!(trees.len(), 1, "clones differ after they have merged each other");
    hold(&clones, &said);
}

#[test]
fn random_work_in_clones_merges_without_loss() {
    let (count, first) = (number("DORMOUSE_CLONES", 12), number("DORMOUSE_CLONES_SEED", 1));
    let seeds: Vec<u64> = (first..first + count).collect();
    each_in_parallel(&seeds, |seed| {
        if std::panic::catch_unwind(|| random(*seed)).is_err() {
            panic!("DORMOUSE_CLONES=1 DORMOUSE_CLONES_SEED={seed}");
        }
    });
}

/// `doctor` adds the lines and files for git that an older version has not written. Lines of users
/// stay after those of `doctor`, so that they have precedence.
#[test]
fn a_clone_of_an_older_state_directory_is_brought_up_to_date() {
    let clones = Clones::new(&["alice"], 1, "");
    let store = clones.sandbox.store();
    let (ignore, attributes) = (store.join(".gitignore"), store.join(".gitattributes"));
    fs::write(&ignore, "agents/*/lock\n!agents/*/runs/*/out.log\n# agents/*/cache/\n").unwrap();
    fs::write(&attributes, "*.md text").unwrap();
    let kept = clones.agent(0, "alice").join("inbox/.gitkeep");
    let first = fs::read(&kept).unwrap();
    fs::remove_file(&kept).unwrap();
    let found = |words: &[&str], count: usize| {
        let ran = clones.ran(0, words);
        assert_eq!(ran.code(), 0, "missing lines are no damage: {ran}");
        let mut lines = objects(&ran.stdout);
        let last = lines.pop().unwrap();
        let mended = lines.iter().filter(|line| line["repaired"] == true).count();
        assert_eq!(last["warnings"].as_u64().unwrap() as usize + mended, count, "{ran}");
        texts(&lines, "kind")
    };
    let kinds = ["git_lines", "git_lines", "git_inbox"];
    assert_eq!(found(&["doctor", "--json"], 3), kinds);
    assert_eq!(found(&["doctor", "--json", "--repair"], 3), kinds);
    assert_eq!(found(&["doctor", "--json"], 0), Vec::<String>::new());
    assert_eq!(fs::read(&kept).unwrap(), first);
    let text = fs::read_to_string(&ignore).unwrap();
    assert!(text.ends_with("agents/*/lock\n!agents/*/runs/*/out.log\n# agents/*/cache/\n"), "{text}");
    assert!(text.lines().filter(|line| *line == "agents/*/lock").count() == 1 && text.contains("\nslots/\n"));
    let text = fs::read_to_string(&attributes).unwrap();
    assert_eq!(text, "* -text -filter -ident\n*.jsonl merge=union\n*.md text");
    // Outside a repository, `doctor` reports no missing lines or files for git.
    fs::remove_dir_all(clones.dirs[0].join(".git")).unwrap();
    fs::remove_file(&kept).unwrap();
    assert_eq!(found(&["doctor", "--json"], 0), Vec::<String>::new());
}

/// Makes two clones that have processed the same messages, and begins a merge, which stops at a
/// conflict in `state.json`.
fn both_ticked(count: usize) -> Clones {
    let clones = Clones::new(&["alice"], 2, "");
    clones.enqueue_all(0, "alice", count);
    clones.commit(0);
    clones.pull(1, 0);
    for at in 0..2 {
        clones.tick(at, "alice");
        clones.commit(at);
    }
    clones.try_pull(0, 1).exits(1);
    let unmerged = clones.git(0, &["diff", "--name-only", "--diff-filter=U"]);
    assert_eq!(unmerged, ".dormouse/agents/alice/state.json\n");
    clones
}

/// Resolves the conflict in `state.json` with one side, and commits the merge.
fn take(clones: &Clones, side: &str) {
    clones.git(0, &["checkout", "--quiet", side, ".dormouse/agents/alice/state.json"]);
    clones.commit(0);
}

#[test]
fn in_the_middle_of_a_merge_every_command_names_the_file() {
    let clones = both_ticked(1);
    let state = clones.agent(0, "alice").join("state.json");
    let before = fs::read(&state).unwrap();
    let lines = "get alice; explain alice; events alice; next-wake alice; tick alice; tick alice --commit; \
                 start alice; stop alice; queue dead -a alice; work add -a alice x; \
                 timer add -a alice --in 1h x; enqueue alice x --dedupe-key k; doctor; doctor --repair";
    for line in lines.split("; ") {
        let ran = clones.ran(0, &words(line));
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code(), 6, "{line}: {ran}");
        assert!(said.contains("alice/state.json") && said.contains("merge conflict"), "{line}: {ran}");
    }
    assert_eq!(fs::read(&state).unwrap(), before);
    // Only a dedupe key needs the damaged state, so a message without a key is accepted.
    clones.run(0, &["enqueue", "alice", "x"]);
}

#[test]
fn doctor_finds_and_repairs_messages_that_two_clones_have_settled() {
    for side in ["--ours", "--theirs"] {
        let clones = both_ticked(2);
        take(&clones, side);
        let events = objects(&clones.run(0, &["events", "alice", "--limit", "0", "--json"]));
        let ids: BTreeSet<String> = texts(&events, "id").into_iter().collect();
        assert_eq!(ids.len(), events.len(), "an event is listed twice");
        assert!(seqs(&events).is_sorted(), "{events:?}");
        let last = objects(&clones.run(0, &["events", "alice", "--limit", "5", "--json"]));
        assert!(last.len() == 5 && seqs(&last).is_sorted(), "{last:?}");
        let ran = clones.ran(0, &["doctor", "--json"]);
        let found = objects(&ran.stdout);
        assert_eq!((ran.code(), found.len()), (6, 3), "{ran}");
        let runs = texts(&objects(&clones.run(0, &["run", "list", "-a", "alice", "--json"])), "id");
        assert_eq!(runs.len(), 4);
        for finding in &found[..2] {
            assert_eq!(finding["kind"], "ended_twice");
            let message = finding["message"].as_str().unwrap();
            assert_eq!(runs.iter().filter(|run| message.contains(*run)).count(), 2, "{message}");
        }
        assert_eq!(clones.ran(0, &["doctor", "--repair", "-q"]).code(), 0);
        let ran = clones.ran(0, &["doctor", "--json"]);
        assert_eq!((ran.code(), objects(&ran.stdout).len()), (0, 1), "{ran}");
        let agent = clones.agent(0, "alice");
        let ended = settled(&agent);
        assert_eq!(ended.len(), 2, "the archive has one end of each message");
        let quarantine = agent.join("quarantine");
        let lines = |name: &String| fs::read_to_string(quarantine.join(name)).unwrap().lines().count();
        let kept: usize = names(&quarantine).iter().map(lines).sum();
        assert_eq!(kept, 2, "the quarantine has the other end of each message");
        for id in &ended {
            assert_eq!(objects(&clones.run(0, &["queue", "show", id, "--json"]))[0]["status"], "processed");
        }
        // The repaired agent must process a new message without faults.
        clones.run(0, &["enqueue", "alice", "again"]);
        clones.tick(0, "alice");
        clones.run(0, &["doctor"]);
    }
}

/// After a merge a file can have lines twice, joined, out of order, or without a last newline.
#[test]
fn lines_that_a_merge_has_duplicated_or_joined_count_once() {
    const TANGLED: u64 = 3;
    let clones = Clones::new(&["alice"], 1, "");
    clones.enqueue_all(0, "alice", 3);
    clones.tick(0, "alice");
    clones.run(0, &["queue", "list", "-a", "alice"]);
    let agent = clones.agent(0, "alice");
    let answers = || -> Vec<String> {
        let lines = "events alice --limit 0; events alice --limit 4; \
                     events alice --since 2026-01-02T03:04:09Z --limit 0; briefs alice --limit 2; \
                     queue list -a alice --limit 0; run list -a alice";
        let answer = |line| clones.run(0, &[&["--json"][..], &words(line)].concat());
        lines.split("; ").map(answer).collect()
    };
    let before = answers();
    let ledger = agent.join("ledger").join(&names(&agent.join("ledger"))[0]);
    let archive = agent.join("archive").join(ledger.file_stem().unwrap());
    for path in [&ledger, &archive.join("message.jsonl"), &archive.join("brief.jsonl")] {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let (first, rest) = (lines[0], lines[1..].join("\n"));
        let mixed = if *path == ledger {
            // As in a bad merge, lines are repeated, joined, out of order, or without a newline.
            format!("{rest}\n\n{first}{}\r\n{first}\n{}", lines[1], lines[2])
        } else {
            format!("{text}\n{}\n{}", lines[lines.len() - 2], lines[lines.len() - 1])
        };
        fs::write(path, mixed).unwrap();
    }
    assert_eq!(answers(), before);
    let ran = clones.ran(0, &["doctor", "--json"]);
    let found = objects(&ran.stdout);
    assert_eq!((ran.code(), found.last().unwrap()["warnings"].as_u64()), (0, Some(TANGLED)), "{ran}");
    assert_eq!(clones.ran(0, &["doctor", "--repair", "-q"]).code(), 0);
    let ran = clones.ran(0, &["doctor", "--json"]);
    assert_eq!(objects(&ran.stdout).len(), 1, "{ran}");
    let all = objects(&clones.run(0, &["events", "alice", "--json", "--limit", "0"]));
    let repairs = all.iter().filter(|event| event["kind"] == "record_repaired").count();
    assert_eq!(repairs as u64, TANGLED);
    let seqs = seqs(&objects(&fs::read_to_string(&ledger).unwrap()));
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
}

#[test]
fn the_merge_driver_leaves_no_conflict_and_loses_nothing() {
    let clones = Clones::new(&["alice"], 2, "");
    let added = objects(&clones.run(0, &["work", "add", "-a", "alice", "common", "--json"]));
    let item = added[0]["id"].as_str().unwrap_or_else(|| panic!("{added:?}"));
    clones.enqueue_all(0, "alice", 2);
    clones.commit(0);
    clones.pull(1, 0);
    for at in 0..2 {
        clones.run(at, &["work", "update", "-a", "alice", item, "--objective", &format!("clone {at}")]);
        clones.tick(at, "alice");
        clones.commit(at);
    }
    clones.run(1, &["enqueue", "alice", "more"]);
    clones.tick(1, "alice");
    clones.commit(1);
    let ran = clones.ran(0, &["doctor", "--merge-driver"]);
    assert!(ran.code() == 0 && ran.stderr.contains("in this clone"), "{ran}");
    let attributes = fs::read_to_string(clones.dirs[0].join(".git/info/attributes")).unwrap();
    assert_eq!(clones.run(0, &["doctor", "--merge-driver"]).lines().count(), 1);
    assert_eq!(fs::read_to_string(clones.dirs[0].join(".git/info/attributes")).unwrap(), attributes);
    let theirs = fs::read(clones.agent(1, "alice").join("state.json")).unwrap();
    let ours = fs::read(clones.agent(0, "alice").join("state.json")).unwrap();
    clones.pull(0, 1);
    let agent = clones.agent(0, "alice");
    assert_eq!(fs::read(agent.join("state.json")).unwrap(), theirs, "the second clone has more progress");
    assert_eq!(fs::read(agent.join("quarantine/state.json")).unwrap(), ours);
    let quarantined = names(&agent.join("quarantine"));
    assert!(quarantined.iter().any(|name| name.starts_with("work__work_")), "{quarantined:?}");
    let ledger = agent.join("ledger").join(&names(&agent.join("ledger"))[0]);
    let seqs = seqs(&objects(&fs::read_to_string(ledger).unwrap()));
    assert!(seqs.is_sorted(), "{seqs:?}");
    let ended: BTreeSet<String> = settled(&agent).into_iter().collect();
    for at in 0..2 {
        assert!(settled(&clones.agent(at, "alice")).iter().all(|id| ended.contains(id)));
    }
    let found = objects(&clones.ran(0, &["doctor", "--json"]).stdout);
    let twice = found.iter().filter(|finding| finding["kind"] == "ended_twice").count();
    assert_eq!((twice, found.len()), (2, 3), "{found:?}");
    assert_eq!(clones.ran(0, &["doctor", "--repair", "-q"]).code(), 0);
    clones.run(0, &["enqueue", "alice", "again"]);
    clones.tick(0, "alice");
    clones.run(0, &["doctor"]);
    // The second clone, which has no merge driver, can pull the merged records.
    clones.commit(0);
    clones.pull(1, 0);
    clones.run(1, &["doctor"]);
}

#[test]
fn the_merge_driver_leaves_a_file_that_it_can_not_read_as_a_conflict() {
    let clones = both_ticked(1);
    take(&clones, "--ours");
    let dir = clones.sandbox.root();
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (base, ours, theirs) = (file("base", "{}"), file("ours", "{\"revision\":2}"), file("theirs", "{"));
    let driver = |path: &str, theirs: &str| {
        let line = ["-C", "nowhere", "merge-driver", &base, &ours, theirs, path];
        clones.sandbox.cmd(line).output()
    };
    let state = ".dormouse/agents/alice/state.json";
    assert_eq!(driver(state, &theirs).code(), 6);
    let newer = file("newer", "{\"revision\":3}");
    for path in ["../agents/alice/state.json", "state.json", ".dormouse/agents/nobody/state.json"] {
        assert!([2, 3].contains(&driver(path, &newer).code()), "{path}");
        assert_eq!(fs::read_to_string(&ours).unwrap(), "{\"revision\":2}", "{path}");
    }
    for _ in 0..2 {
        fs::write(&ours, "{\"revision\":2}").unwrap();
        assert_eq!(driver(state, &newer).code(), 0);
        assert_eq!(fs::read_to_string(&ours).unwrap(), "{\"revision\":3}");
        assert_eq!(names(&clones.agent(0, "alice").join("quarantine")), ["state.json"]);
    }
}
