//! Tests power cuts: records the file operations of commands and replays them on a model of a disk
//! that loses what was not synced.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel, one_in};
use crate::journal;
use crate::scenarios::{AGENT, Before, Case, SCENARIOS, Scenario, hold, settle, turns};
use crate::setup;
use crate::strace::{self, Harm};

type Id = usize;

#[derive(Debug, Clone)]
enum Node {
    Dir(BTreeMap<String, Id>),
    File(Vec<u8>),
}

/// Change in the file system. Changes of names and of contents reach the disk independently.
#[derive(Debug, Clone)]
enum Change {
    Link { dir: Id, name: String, node: Id },
    Unlink { dir: Id, name: String },
    Rename { from: Id, from_name: String, to: Id, to_name: String, node: Id },
    Exchange { dirs: [Id; 2], names: [String; 2], nodes: [Id; 2] },
    Write { file: Id, offset: usize, bytes: Vec<u8> },
    Cut { file: Id, length: usize },
}

impl Change {
    /// Returns the changed file or directory. Changes of the same one reach the disk in order.
    fn queue(&self) -> Id {
        match self {
            Change::Link { dir, .. } | Change::Unlink { dir, .. } => *dir,
            Change::Rename { to, .. } => *to,
            Change::Exchange { dirs: [_, other], .. } => *other,
            Change::Write { file, .. } | Change::Cut { file, .. } => *file,
        }
    }

    fn is_about_names(&self) -> bool {
        !matches!(self, Change::Write { .. } | Change::Cut { .. })
    }

    /// True if a sync of the file or directory `node` makes the change durable. A rename is one
    /// change: a sync of either directory makes all of it durable.
    fn is_synced_by(&self, node: Id) -> bool {
        self.queue() == node
            || matches!(self, Change::Rename { from, .. } if *from == node)
            || matches!(self, Change::Exchange { dirs: [one, _], .. } if *one == node)
    }
}

#[derive(Debug, Clone)]
enum Event {
    Change(Change),
    Sync(Id),
    /// Sync of the whole file system.
    SyncAll,
    /// Text that the command wrote to standard output.
    Printed(String),
}

/// Unsynced changes that survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Luck {
    None,
    All,
    /// All changes of file names survive and no contents, as if a file was renamed before its
    /// content was synced.
    Names,
    /// All changes survive, but contents as zeros: the length of a file reached the disk, its
    /// content did not.
    Zeros,
    /// All changes of file contents survive the power cut, but no changes of file names.
    Contents,
    /// The first changes of each directory and file survive; the seed decides how many. Only a part
    /// of the last write may survive.
    Some(u64),
}

/// Recorded file operations of commands, and the directory tree before these operations.
struct Tape {
    /// Files and directories before the first command, and an empty one for each created later.
    base: Vec<Node>,
    /// Files and directories with all recorded changes, as the commands see them.
    now: Vec<Node>,
    events: Vec<Event>,
    root: PathBuf,
}

const ROOT: Id = 0;

impl Tape {
    fn new(root: &Path) -> Tape {
        let mut base = Vec::new();
        load(root, &mut base);
        Tape { now: base.clone(), base, events: Vec::new(), root: root.to_owned() }
    }

    fn find(&self, path: &Path) -> Option<Id> {
        path.strip_prefix(&self.root).ok()?.components().try_fold(ROOT, |at, part| {
            let (Component::Normal(name), Node::Dir(names)) = (part, &self.now[at]) else { return None };
            names.get(&*name.to_string_lossy()).copied()
        })
    }

    /// Returns the directory that contains a path below the root, and the path's file name.
    fn place(&self, path: &Path) -> Option<(Id, String)> {
        let dir = self.find(path.parent()?)?;
        Some((dir, path.file_name()?.to_string_lossy().into_owned()))
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.now, &change);
        self.events.push(Event::Change(change));
    }

    fn make(&mut self, path: &Path, node: Node) -> Option<Id> {
        let (dir, name) = self.place(path)?;
        let id = self.now.len();
        self.base.push(node.clone());
        self.now.push(node);
        self.change(Change::Link { dir, name, node: id });
        Some(id)
    }

    fn length(&self, file: Id) -> usize {
        match &self.now[file] {
            Node::File(bytes) => bytes.len(),
            Node::Dir(_) => 0,
        }
    }

    /// Adds the system calls of one command that strace has recorded.
    fn play(&mut self, recording: &str) {
        let mut open: HashMap<i64, (Id, usize)> = HashMap::new();
        for line in recording.lines() {
            let Some(call) = Call::parse(line) else { continue };
            self.take(&call, &mut open);
        }
    }

    fn take(&mut self, call: &Call, open: &mut HashMap<i64, (Id, usize)>) {
        let fd = call.fd(0);
        match call.name {
            "open" | "openat" | "openat2" => {
                let (path, flags) = if call.name == "open" {
                    (call.path(0), call.args[1])
                } else {
                    (call.path_at(0, 1), call.args[2])
                };
                let file = match self.find(&path) {
                    None if flags.contains("O_CREAT") => self.make(&path, Node::File(Vec::new())),
                    found => found,
                };
                let Some(file) = file else { return };
                if flags.contains("O_TRUNC") && self.length(file) > 0 {
                    self.change(Change::Cut { file, length: 0 });
                }
                let at = if flags.contains("O_APPEND") { self.length(file) } else { 0 };
                open.insert(call.result, (file, at));
            }
            "close" => {
                open.remove(&fd);
            }
            "lseek" => {
                if let Some(entry) = open.get_mut(&fd) {
                    entry.1 = usize::try_from(call.result).unwrap();
                }
            }
            "write" | "pwrite64" => {
                let length = usize::try_from(call.result).unwrap();
                let bytes = call.bytes(1)[..length].to_vec();
                if let Some((file, at)) = open.get(&fd).copied() {
                    let offset = if call.name == "write" { at } else { call.args[3].parse().unwrap() };
                    self.change(Change::Write { file, offset, bytes });
                    if call.name == "write" {
                        open.insert(fd, (file, at + length));
                    }
                } else if fd == 1 {
                    self.events.push(Event::Printed(String::from_utf8(bytes).unwrap()));
                }
            }
            "ftruncate" => {
                if let Some((file, _)) = open.get(&fd).copied() {
                    let length = call.args[1].parse().unwrap();
                    if length != self.length(file) {
                        self.change(Change::Cut { file, length });
                    }
                }
            }
            "fsync" | "fdatasync" => {
                if let Some((node, _)) = open.get(&fd) {
                    self.events.push(Event::Sync(*node));
                }
            }
            "syncfs" => self.events.push(Event::SyncAll),
            "mkdir" => drop(self.make(&call.path(0), Node::Dir(BTreeMap::new()))),
            "mkdirat" => drop(self.make(&call.path_at(0, 1), Node::Dir(BTreeMap::new()))),
            "unlink" | "rmdir" => self.unlink(&call.path(0)),
            "unlinkat" => self.unlink(&call.path_at(0, 1)),
            "rename" => self.rename(&call.path(0), &call.path(1)),
            "renameat2" if call.args[4].contains("RENAME_EXCHANGE") => {
                self.exchange(&call.path_at(0, 1), &call.path_at(2, 3));
            }
            "renameat" | "renameat2" => self.rename(&call.path_at(0, 1), &call.path_at(2, 3)),
            // The disk model ignores space, permissions, special files, locks and processes.
            "fallocate" | "mknodat" | "fchmod" | "pidfd_open" | "pidfd_send_signal" | "kill" | "flock"
            | "poll" | "ppoll" | "wait4" | "waitid" | "clone" | "clone3" | "fork" | "vfork"
            | "exit_group" => {}
            other => panic!("the model does not know {other}"),
        }
    }

    fn unlink(&mut self, path: &Path) {
        if let Some((dir, name)) = self.place(path) {
            self.change(Change::Unlink { dir, name });
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let Some(node) = self.find(from) else { return };
        let ((from, from_name), (to, to_name)) = (self.place(from).unwrap(), self.place(to).unwrap());
        self.change(Change::Rename { from, from_name, to, to_name, node });
    }

    fn exchange(&mut self, one: &Path, other: &Path) {
        let (Some(node), Some(other_node)) = (self.find(one), self.find(other)) else { return };
        let ((dir, name), (other_dir, other_name)) = (self.place(one).unwrap(), self.place(other).unwrap());
        let (dirs, names) = ([dir, other_dir], [name, other_name]);
        self.change(Change::Exchange { dirs, names, nodes: [node, other_node] });
    }

    /// Returns the tree that a power cut after the first `events` events leaves.
    fn tree(&self, events: usize, luck: Luck) -> Tree {
        let events = &self.events[..events];
        let mut durable = vec![false; events.len()];
        for (at, event) in events.iter().enumerate() {
            let is_synced = |change: &Change| match event {
                Event::Sync(node) => change.is_synced_by(*node),
                Event::SyncAll => true,
                Event::Change(_) | Event::Printed(_) => false,
            };
            for (earlier, durable) in events[..at].iter().zip(&mut durable) {
                *durable |= matches!(earlier, Event::Change(change) if is_synced(change));
            }
        }
        let mut nodes = self.base.clone();
        let mut luck = Dice::new(luck);
        for (event, durable) in events.iter().zip(durable) {
            let Event::Change(change) = event else { continue };
            if durable {
                apply(&mut nodes, change);
            } else if let Some(change) = luck.survivor(change) {
                apply(&mut nodes, &change);
            }
        }
        let mut tree = Tree::default();
        tree.walk(&nodes, ROOT, &mut PathBuf::new());
        tree
    }

    fn printed(&self, events: usize) -> String {
        let texts = self.events[..events].iter().filter_map(|event| match event {
            Event::Printed(text) => Some(text.as_str()),
            Event::Change(_) | Event::Sync(_) | Event::SyncAll => None,
        });
        texts.collect()
    }
}

fn load(path: &Path, nodes: &mut Vec<Node>) -> Id {
    let id = nodes.len();
    if path.is_dir() {
        nodes.push(Node::Dir(BTreeMap::new()));
        let names = setup::names(path).into_iter();
        let names = names.map(|name| (name.clone(), load(&path.join(&name), nodes))).collect();
        nodes[id] = Node::Dir(names);
    } else {
        nodes.push(Node::File(fs::read(path).unwrap()));
    }
    id
}

fn names_of(nodes: &mut [Node], dir: Id) -> &mut BTreeMap<String, Id> {
    match &mut nodes[dir] {
        Node::Dir(names) => names,
        Node::File(_) => panic!("not a directory"),
    }
}

fn apply(nodes: &mut [Node], change: &Change) {
    match change {
        Change::Link { dir, name, node } => {
            names_of(nodes, *dir).insert(name.clone(), *node);
        }
        Change::Unlink { dir, name } => {
            names_of(nodes, *dir).remove(name);
        }
        Change::Rename { from, from_name, to, to_name, node } => {
            // The old name may belong to another file if the power cut lost an earlier change.
            let names = names_of(nodes, *from);
            if names.get(from_name) == Some(node) {
                names.remove(from_name);
            }
            names_of(nodes, *to).insert(to_name.clone(), *node);
        }
        Change::Exchange { dirs: [dir, other_dir], names: [one, other], nodes: [node, other_node] } => {
            names_of(nodes, *dir).insert(one.clone(), *other_node);
            names_of(nodes, *other_dir).insert(other.clone(), *node);
        }
        Change::Write { file, offset, bytes } => {
            let Node::File(content) = &mut nodes[*file] else { panic!("not a file") };
            let end = offset + bytes.len();
            content.resize(content.len().max(end), 0);
            content[*offset..end].copy_from_slice(bytes);
        }
        Change::Cut { file, length } => {
            let Node::File(content) = &mut nodes[*file] else { panic!("not a file") };
            content.resize(*length, 0);
        }
    }
}

/// Decides which unsynced changes survive. The random numbers are the same in each run.
struct Dice {
    luck: Luck,
    state: u64,
    /// Files and directories that have lost a change, and therefore lose all later changes.
    over: HashSet<Id>,
}

impl Dice {
    fn new(luck: Luck) -> Dice {
        let state = if let Luck::Some(seed) = luck { seed.wrapping_mul(2) + 1 } else { 1 };
        Dice { luck, state, over: HashSet::new() }
    }

    fn throw(&mut self, sides: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % sides
    }

    /// Returns the part of an unsynced change that survives the power cut.
    fn survivor(&mut self, change: &Change) -> Option<Change> {
        let (luck, mut change) = (self.luck, change.clone());
        let survives = match luck {
            Luck::None => false,
            Luck::All => true,
            Luck::Names => change.is_about_names(),
            Luck::Contents => !change.is_about_names(),
            Luck::Zeros => {
                if let Change::Write { bytes, .. } = &mut change {
                    bytes.fill(0);
                }
                true
            }
            Luck::Some(_) if self.over.contains(&change.queue()) => false,
            Luck::Some(_) if self.throw(4) > 0 => true,
            Luck::Some(_) => {
                self.over.insert(change.queue());
                let Change::Write { bytes, .. } = &mut change else { return None };
                bytes.truncate(self.throw(bytes.len() as u64 + 1) as usize);
                true
            }
        };
        survives.then_some(change)
    }
}

/// Paths of directories, and contents of files by path.
#[derive(Debug, Default, Hash)]
struct Tree {
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Tree {
    fn walk(&mut self, nodes: &[Node], id: Id, path: &mut PathBuf) {
        match &nodes[id] {
            Node::File(bytes) => {
                // The content of a lock file only names its holder in messages: not compared.
                let is_lock = path.extension().is_some_and(|end| end == "lock") || path.ends_with("lock");
                if !is_lock {
                    self.files.insert(path.clone(), bytes.clone());
                }
            }
            Node::Dir(names) => {
                self.dirs.insert(path.clone());
                for (name, id) in names {
                    path.push(name);
                    self.walk(nodes, *id, path);
                    path.pop();
                }
            }
        }
    }

    fn put(&self, root: &Path) {
        fs::remove_dir_all(root).unwrap();
        for dir in &self.dirs {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        // The journal is written last, because a journal of an earlier boot that is older than
        // `state.json` may be ignored.
        let (journals, others): (Vec<_>, Vec<_>) =
            self.files.iter().partition(|(path, _)| path.ends_with("journal.jsonl"));
        for (path, bytes) in others {
            fs::write(root.join(path), bytes).unwrap();
        }
        for (path, bytes) in journals {
            journal::write(&root.join(path), &journal::of_another_boot(bytes));
        }
    }
}

/// Line of strace: `name(args) = result`. strace prints strings and paths of descriptors in
/// hexadecimal, so they contain no separators.
struct Call<'a> {
    name: &'a str,
    args: Vec<&'a str>,
    result: i64,
}

impl<'a> Call<'a> {
    /// Parses a line. Returns `None` for a call that failed or never returned.
    fn parse(line: &'a str) -> Option<Call<'a>> {
        let (call, result) = line.rsplit_once(" = ")?;
        let (name, args) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        let result = result.split(|c: char| c != '-' && !c.is_ascii_digit()).next()?.parse().ok()?;
        (result >= 0).then(|| Call { name, args: args.split(", ").collect(), result })
    }

    fn fd(&self, at: usize) -> i64 {
        self.args[at].split('<').next().unwrap().parse().unwrap_or(-1)
    }

    fn bytes(&self, at: usize) -> Vec<u8> {
        unhex(self.args[at].trim_matches('"'))
    }

    fn path(&self, at: usize) -> PathBuf {
        PathBuf::from(String::from_utf8(self.bytes(at)).unwrap())
    }

    fn path_at(&self, dir: usize, at: usize) -> PathBuf {
        let dir = self.args[dir].split_once('<').unwrap().1.trim_end_matches('>');
        PathBuf::from(String::from_utf8(unhex(dir)).unwrap()).join(self.path(at))
    }
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(!text.ends_with("..."), "strace has cut a string");
    text.split("\\x").skip(1).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// Power cut after the first `events` events of a recording.
struct Outage<'a> {
    recorded: &'a Recorded<'a>,
    events: usize,
    luck: Luck,
}

/// Recording of the file operations of one command.
struct Recorded<'a> {
    scenario: &'a Scenario,
    template: Sandbox,
    /// Copy of `template` in which the command was recorded. Failures print its command lines.
    ran_in: Sandbox,
    tape: Tape,
    first_event: usize,
    /// Revision of the agent's state after the command.
    final_revision: u64,
}

/// Returns the calls at which a tick can be killed in a recording that also traces its turn: strace
/// counts calls per process, so these are calls that no turn makes.
fn cuttable(template: &Sandbox, words: &[&str], scenario: &Scenario) -> Vec<strace::Call> {
    let of_tick =
        ["rename", "unlink", "mkdir", "fsync", "fdatasync", "syncfs", "ftruncate", "flock", "pwrite64"];
    let points = strace::record(&template.copy(), words, scenario.stdin).points();
    points.into_iter().filter(|point| of_tick.contains(&point.act())).collect()
}

fn play<'a>(scenario: &'a Scenario, killed_at: Option<usize>) -> Recorded<'a> {
    let template = (scenario.prepare)();
    let args = scenario.args(&template);
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let ran_in = template.copy();
    let mut tape = Tape::new(&ran_in.store());
    if let Some(at) = killed_at {
        let points = cuttable(&template, &words, scenario);
        let point = &points[at % points.len()];
        tape.play(&strace::record_files(&ran_in, &words, scenario.stdin, Some((point, Harm::Kill))).1);
    }
    let first_event = tape.events.len();
    let (ran, recording) = strace::record_files(&ran_in, &words, scenario.stdin, None);
    tape.play(&recording);
    assert!([0, 4, 7].contains(&ran.code()), "{ran}");
    let final_revision = checker::look(&ran_in.agent(AGENT)).revision();
    Recorded { scenario, template, ran_in, tape, first_event, final_revision }
}

/// Returns every `every`th of the power cuts that leave different trees. Adds the number of all
/// power cuts to `tally`.
fn outages<'a>(recorded: &'a Recorded<'a>, every: usize, tally: &mut usize) -> Vec<Outage<'a>> {
    let mut seen = HashSet::new();
    let mut outages = Vec::new();
    // In a long recording, power is cut after every `step`th event, and each of the last 30.
    let step = (recorded.tape.events.len() / 150).max(1);
    for events in recorded.first_event..=recorded.tape.events.len() {
        if events % step > 0 && recorded.tape.events.len() - events > 30 {
            continue;
        }
        let seed = events as u64;
        let drawn = [Luck::Some(seed), Luck::Some(!seed)];
        for luck in [Luck::None, Luck::All, Luck::Names, Luck::Zeros, Luck::Contents].into_iter().chain(drawn)
        {
            *tally += 1;
            let mut hash = DefaultHasher::new();
            (recorded.tape.tree(events, luck), recorded.tape.printed(events)).hash(&mut hash);
            if seen.insert(hash.finish()) {
                outages.push(Outage { recorded, events, luck });
            }
        }
    }
    outages.into_iter().skip(every - 1).step_by(every).collect()
}

fn survive(outage: &Outage<'_>) {
    let Outage { recorded, events, luck } = outage;
    let Recorded { scenario, template, ran_in, tape, final_revision, .. } = recorded;
    let sandbox = template.copy();
    let before = Before::of(&sandbox);
    let turns_before = turns(&sandbox);
    tape.tree(*events, *luck).put(&sandbox.store());
    let case = Case {
        scenario,
        what: format!(
            "power cut after {events} of {} file operations, and of the changes without a sync {luck:?} survived; \
             the operations are those of\n{}the last operations:\n{}",
            tape.events.len(),
            ran_in.reproduction(),
            outage.last_events()
        ),
    };
    let got = sandbox.cmd(["get", AGENT, "--json"]).output();
    case.must(got.code() == 0, &sandbox, format!("get: {got}"));
    let said = tape.printed(*events);
    let acknowledged: BTreeSet<String> =
        said.lines().filter(|line| line.starts_with("msg_")).map(str::to_owned).collect();
    settle(&case, &sandbox);
    hold(&case, &sandbox, &before, &acknowledged);
    if !said.is_empty() {
        let revision = checker::look(&sandbox.agent(AGENT)).revision();
        let lost = format!("the command had reported its end, but its revision {final_revision} is lost");
        case.must(revision >= *final_revision, &sandbox, lost);
        // A turn that a killed tick has run may run again, unless the tick has reported the turn as
        // completed.
        let has_completed = scenario.name == "tick: claim, turn, settle" && said.contains("completed");
        let ran_again = has_completed && turns(&sandbox) != turns_before;
        case.must(!ran_again, &sandbox, "a turn that was reported as completed ran again");
    }
}

impl Outage<'_> {
    /// Describes the last operations before the power cut, without the bytes that were written.
    fn last_events(&self) -> String {
        let from = self.events.saturating_sub(12);
        let line = |event: &Event| {
            let text: String = match event {
                Event::Change(Change::Write { file, offset, bytes }) => {
                    format!("write {} bytes to #{file} at {offset}", bytes.len())
                }
                other => format!("{other:?}"),
            };
            format!("    {text}\n")
        };
        self.recorded.tape.events[from..self.events].iter().map(line).collect()
    }
}

#[test]
fn every_command_survives_a_power_cut_at_every_operation() {
    needs!("strace");
    let recorded: Vec<Recorded<'_>> = SCENARIOS
        .iter()
        .filter(|scenario| scenario.is_durable)
        .map(|scenario| play(scenario, None))
        .collect();
    let (mut all, mut tried) = (0, Vec::new());
    for recorded in &recorded {
        // A long scenario has too many power cuts to try, so only every 23rd is tried.
        let every = if recorded.scenario.every > 1 { 23 } else { 1 };
        let outages = outages(recorded, every, &mut all);
        println!(
            "{}: {} operations, {} different trees tried",
            recorded.scenario.name,
            recorded.tape.events.len(),
            outages.len()
        );
        tried.extend(outages);
    }
    println!("{} of {all} power cuts left different trees", tried.len());
    each_in_parallel(&one_in(20, tried), survive);
}

/// A killed command leaves unsynced changes. The next command must not take them for durable.
#[test]
fn power_may_fail_while_a_killed_command_is_cleaned_up() {
    needs!("strace");
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == "tick: claim, turn, settle").unwrap();
    let points: Vec<usize> = (0..40).step_by(2).collect();
    let (outages_tried, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each_in_parallel(&points, |point| {
        let recorded = play(scenario, Some(*point));
        let mut all = 0;
        // The call at which the command is killed matters more than the power cut: every 11th power
        // cut is tried.
        for outage in outages(&recorded, 11, &mut all) {
            survive(&outage);
            outages_tried.fetch_add(1, Ordering::Relaxed);
        }
        total.fetch_add(all, Ordering::Relaxed);
    });
    println!(
        "{} kills, then {} of {} power cuts tried",
        points.len(),
        outages_tried.into_inner(),
        total.into_inner()
    );
}

/// A command that finds a journal line that is not marked as applied can't know if the line is
/// synced. The command syncs the line before it applies the changes, so that a power cut can't
/// leave a part of them.
#[test]
fn a_command_syncs_an_unapplied_journal_line_before_applying_the_line() {
    needs!("strace");
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == "work add").unwrap();
    let template = (scenario.prepare)();
    let args = scenario.args(&template);
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let points = cuttable(&template, &words, scenario);
    let committed = points.iter().position(strace::Call::is_about_journal).unwrap();
    assert_eq!(points[committed + 1].name, "fdatasync", "the command syncs the journal next");
    let recorded = play(scenario, Some(committed + 1));
    let mut all = 0;
    let outages = outages(&recorded, 1, &mut all);
    assert!(outages.len() > 50, "{} of {all}", outages.len());
    each_in_parallel(&outages, survive);
}
