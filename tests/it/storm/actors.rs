//! Threads (actors) of the stress test: each repeats actions that it draws from its own seed.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};
use serde_json::Value;

use super::history::{Ended, Handicap, Luck, What};
use super::world::{AGENTS, TRAVELLER, World, pause};
use crate::setup;

/// Thread that uses or disturbs the agents.
pub struct Actor<'w> {
    world: &'w World,
    name: String,
    luck: Luck,
    number: u64,
}

/// Maximum number of pending messages of an agent before producers pause, so that the stress test
/// can end.
const BACKLOG: usize = 40;

/// Clock errors in seconds. They are shorter than the retention of dedupe keys.
const CLOCKS: [i64; 6] = [-7200, -600, -5, 5, 600, 7200];

/// Texts of messages. The first words tell `turn.sh`, which the turns run, what to do.
const TASKS: [&str; 20] = [
    "quick", "quick", "quick", "quick", "slow", "fail", "flaky", "flaky", "later", "yield", "yield",
    "send bob", "send ada", "send dan", "self", "task", "work", "timer", "wait", "leave",
];

impl<'w> Actor<'w> {
    pub fn new(world: &'w World, name: &str, seed: u64) -> Actor<'w> {
        Actor { world, name: name.to_owned(), luck: Luck::new(seed, name), number: 0 }
    }

    fn agent(&mut self) -> &'static str {
        self.luck.of(&AGENTS)
    }

    /// Returns a text for a message, different each time.
    fn text(&mut self) -> String {
        self.number += 1;
        format!("{} {} {}", self.luck.of(&TASKS), self.name, self.number)
    }

    /// Returns the handicap of a command (a wrong clock or few resources); most commands have none.
    fn handicap(&mut self) -> Handicap {
        match self.luck.below(30) {
            0 => Handicap { files: Some(6 + self.luck.below(30) as u32), ..Handicap::default() },
            1 => Handicap { bytes: Some(self.luck.below(6000) as u32), ..Handicap::default() },
            2 => Handicap {
                clock: CLOCKS[self.luck.below(CLOCKS.len() as u64) as usize],
                ..Handicap::default()
            },
            _ => Handicap::default(),
        }
    }

    fn call(&mut self, words: &[&str]) -> (Ended, String) {
        let handicap = self.handicap();
        self.call_with(words, &handicap, "")
    }

    fn call_with(&mut self, words: &[&str], handicap: &Handicap, stdin: &str) -> (Ended, String) {
        let place = self.place();
        self.world.call(&self.name, &place, words, handicap, stdin)
    }

    /// Returns the directory for a command. With a database, each of two directories is a machine.
    fn place(&mut self) -> PathBuf {
        let is_other = self.world.base.is_some() && self.luck.one_in(2);
        if is_other { self.world.clone() } else { self.world.project() }
    }

    fn backlog(&self, agent: &str) -> usize {
        self.world.waiting(&self.world.project(), agent)
    }

    /// Sends messages and wake hints to agents, by commands with all kinds of options.
    pub fn produce(mut self) {
        while !self.world.is_over() {
            let agent = self.agent();
            if self.backlog(agent) > BACKLOG {
                pause(self.world, 100);
                continue;
            }
            let text = self.text();
            // Each dedupe key is used several times in a row.
            let key = format!("{} {}", self.name, self.number / 30);
            match self.luck.below(14) {
                0 | 9 => drop(self.call(&["enqueue", agent, &text, "--dedupe-key", &key])),
                1 => {
                    let batch: String = (0..1 + self.luck.below(6))
                        .map(|_| {
                            let text = self.text();
                            format!("{{\"text\": \"{text}\"}}\n")
                        })
                        .collect();
                    let handicap = self.handicap();
                    self.call_with(&["enqueue", agent, "--batch"], &handicap, &batch);
                }
                // A delayed message is sent with a correct clock, because otherwise it would be due
                // hours later.
                2 => {
                    let handicap = Handicap { clock: 0, ..self.handicap() };
                    self.call_with(&["enqueue", agent, &text, "--in", "300ms"], &handicap, "");
                }
                3 => drop(self.call(&["enqueue", agent, &text, "--ttl", "2s"])),
                4 => drop(self.call(&["enqueue", agent, &text, "--origin", "channel:rain"])),
                5 => drop(self.call(&["enqueue", agent, &text, "--priority", "next"])),
                6 => drop(self.call(&["wake", agent, "rain", "--resource", &key])),
                7 => drop(self.call(&["enqueue", agent, &text, "--priority", "interject"])),
                8 => drop(self.call(&["ask", agent, &text, "--timeout", "1s"])),
                _ => drop(self.call(&["enqueue", agent, &text])),
            }
            let ms = self.luck.below(60);
            pause(self.world, ms);
        }
    }

    /// Sends messages to agents in the other clone, in which no process ticks.
    pub fn produce_elsewhere(mut self) {
        let place = self.world.clone();
        while !self.world.is_over() {
            let agent = self.agent();
            if self.world.waiting(&place, agent) + self.backlog(agent) > BACKLOG {
                pause(self.world, 300);
                continue;
            }
            let text = self.text();
            let handicap = self.handicap();
            let words: &[&str] =
                if self.luck.one_in(8) { &["wake", agent, "rain"] } else { &["enqueue", agent, &text] };
            self.world.call(&self.name, &place, words, &handicap, "");
            let ms = self.luck.below(150);
            pause(self.world, ms);
        }
    }

    /// Drops files into inboxes: messages, files that are no messages, and copies of messages of
    /// other agents.
    pub fn drop_files(mut self) {
        while !self.world.is_over() {
            let room = self.world.room.read().unwrap();
            self.drop_file();
            drop(room);
            let ms = 50 + self.luck.below(400);
            pause(self.world, ms);
        }
    }

    fn drop_file(&mut self) {
        let (agent, text) = (self.agent(), self.text());
        let mut name = format!("{}-{}.json", self.name, self.number);
        let aside = self.world.project().join(&name);
        let message = format!("{{\"text\": \"{text}\"}}\n");
        let mut is_valid = false;
        match self.luck.below(14) {
            0 => fs::write(&aside, &message[..message.len() / 2]).unwrap(),
            1 => fs::write(&aside, "").unwrap(),
            2 => fs::write(&aside, message.replace('}', ", \"kind\": \"nonsense\"}")).unwrap(),
            3 => fs::create_dir(&aside).unwrap(),
            4 => mknodat(CWD, &aside, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
            5 => std::os::unix::fs::symlink("/dev/zero", &aside).unwrap(),
            // A large file is rare, because every clone that git makes takes the same space.
            6 if self.luck.one_in(10) => fs::File::create(&aside).unwrap().set_len(20 << 20).unwrap(),
            // A step must reject the copy of another agent's message.
            7 => {
                let Some((found, bytes)) = self.look_at_message(agent) else { return };
                fs::write(&aside, bytes).unwrap();
                name = found;
            }
            _ => {
                fs::write(&aside, &message).unwrap();
                is_valid = true;
            }
        }
        let inbox = self.world.store().join("agents").join(agent).join("inbox");
        fs::rename(&aside, inbox.join(&name)).unwrap();
        let text = is_valid.then_some(text);
        self.world.history.note(What::Dropped { agent: agent.to_owned(), name, text });
    }

    /// Returns the file name and content of a message in the inbox of an agent other than `than`.
    fn look_at_message(&mut self, than: &str) -> Option<(String, Vec<u8>)> {
        let other = self.agent();
        let inbox = self.world.store().join("agents").join(other).join("inbox");
        let names = setup::names(&inbox);
        let name = names.into_iter().find(|name| name.contains("-msg_") && !name.starts_with("taken"))?;
        let bytes = fs::read(inbox.join(&name)).ok()?;
        (other != than && bytes.ends_with(b"}\n")).then_some((name, bytes))
    }

    /// Runs steps of agents.
    pub fn tick(mut self) {
        while !self.world.is_over() {
            let agent = self.agent();
            let mut words = match self.luck.below(12) {
                0 => vec!["tick", agent],
                1 => vec!["tick", agent, "--until-idle", "--max-steps", "3", "--commit"],
                2 => vec!["tick", "--all", "--jobs", "3"],
                3 => vec!["tick", "--all", "--jobs", "2", "--until-idle", "--max-steps", "5"],
                4 => vec!["tick", "--all"],
                5 => vec!["tick", "--all", "--commit"],
                _ => vec!["tick", agent, "--until-idle", "--max-steps", "20"],
            };
            // `--commit` is refused if a database has the records.
            words.retain(|word| self.world.base.is_none() || *word != "--commit");
            self.call(&words);
        }
    }

    /// Starts, stops, fails and recovers agents.
    pub fn govern(mut self) {
        while !self.world.is_over() {
            let agent = self.agent();
            match self.luck.below(8) {
                0 => {
                    self.call(&["stop", agent, "--grace", "200ms"]);
                }
                1 => {
                    self.call(&["stop", agent, "--requeue", "--grace", "100ms"]);
                }
                2 => drop(self.call(&["stop", agent, "--now", "--grace", "0s"])),
                3 => drop(self.call(&["fail", agent, "--reason", "thunder", "--now"])),
                4 => drop(self.call(&["recover", agent])),
                _ => {}
            }
            let ms = self.luck.below(300);
            pause(self.world, ms);
            // If stopped and suspended agents did not continue, the work would come to an end.
            self.call(&["start", "--all"]);
            self.call(&["resume", "--all"]);
            let ms = self.luck.below(700);
            pause(self.world, ms);
        }
    }

    /// Preempts turns, by `preempt` and by messages with the priority `interject`.
    pub fn preempt(mut self) {
        while !self.world.is_over() {
            let agent = self.agent();
            match self.luck.below(3) {
                0 => drop(self.call(&[
                    "preempt",
                    agent,
                    "--reason",
                    "lightning",
                    "--grace",
                    "200ms",
                    "--for",
                    "100ms",
                ])),
                1 => drop(self.call(&["preempt", agent, "--reason", "lightning", "--grace", "50ms"])),
                _ => {
                    let text = self.text();
                    self.call(&["enqueue", agent, &text, "--priority", "interject"]);
                }
            }
            let ms = 50 + self.luck.below(300);
            pause(self.world, ms);
        }
    }

    /// Makes tasks, delegations, timers, waits and work items, and requeues or drops dead letters.
    pub fn plan(mut self) {
        let mut made: VecDeque<(&str, String)> = VecDeque::new();
        while !self.world.is_over() {
            let agent = self.agent();
            let child = self.luck.of(&["kid-a", "kid-b"]);
            let extra = format!("extra-{}", self.luck.below(8));
            let policy = self.world.root().join("agent.toml");
            let (kind, words): (&str, &[&str]) = match self.luck.below(12) {
                0 => ("task", &["task", "start", "-a", agent, "--", "sleep", "0.2"]),
                1 => ("", &["task", "start", "-a", "ada", "--delegate", child, "quick work of a child"]),
                2 => ("timer", &["timer", "add", "-a", agent, "--every", "1s", "quick, each second"]),
                3 => ("timer", &["timer", "add", "-a", agent, "--in", "200ms", "quick, once"]),
                4 => ("wait", &["wait", "-a", agent, "--on", "timer", "--in", "300ms", "--reason", "r"]),
                5 => ("wait", &["wait", "-a", agent, "--on", "external", "--expires", "1s", "--reason", "r"]),
                6 => ("work", &["work", "add", "-a", agent, "an objective", "--pick"]),
                7 => ("", &["queue", "dead", "-a", agent, "--ack"]),
                8 => ("", &["create", &extra, "--from", policy.to_str().unwrap()]),
                9 => ("rejected", &["queue", "rejected", "-a", agent, "--json"]),
                _ => ("dead", &["queue", "dead", "-a", agent]),
            };
            // Commands for timers, waits and tasks run with a correct clock, because a wrong one
            // would shift their times by hours.
            let handicap = Handicap { clock: 0, ..self.handicap() };
            let (_, said) = self.call_with(words, &handicap, "");
            match kind {
                "" => {}
                "dead" => self.decide_about(&said),
                "rejected" => {
                    let first = said.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok());
                    if let Some(file) = first.as_ref().and_then(|first| first["path"].as_str()) {
                        let act = self.luck.of(&["--accept", "--drop"]);
                        self.call(&["queue", "rejected", "-a", agent, act, file]);
                    }
                }
                kind => made.extend(said.lines().next().map(|id| (kind, id.to_owned()))),
            }
            if made.len() > 3 {
                match made.pop_front().unwrap() {
                    ("task", id) => drop(self.call(&["task", "stop", &id, "--grace", "100ms"])),
                    ("work", id) => drop(self.call(&["work", "complete", &id, "--result", "done"])),
                    (kind, id) => drop(self.call(&[kind, "cancel", &id])),
                }
            }
            let ms = self.luck.below(300);
            pause(self.world, ms);
        }
    }

    /// Requeues or drops the first dead letter in the output of `queue dead`.
    fn decide_about(&mut self, dead: &str) {
        if let Some(id) = dead.split_whitespace().find(|word| word.starts_with("msg_")) {
            let act = self.luck.of(&["requeue", "requeue", "drop"]);
            self.call(&["queue", act, id]);
        }
    }

    /// Runs commands that only read, and must always succeed.
    pub fn read(mut self) {
        while !self.world.is_over() {
            let agent = self.agent();
            match self.luck.below(10) {
                0 => drop(self.call(&["get", agent, "--json"])),
                1 => drop(self.call(&["list", "--json"])),
                2 => drop(self.call(&["explain", agent])),
                3 => drop(self.call(&["events", agent, "--json"])),
                4 => drop(self.call(&["queue", "list", "-a", agent, "--limit", "0"])),
                5 => drop(self.call(&["next-wake", "--all"])),
                6 => drop(self.call(&["tick", agent, "--dry-run"])),
                7 => drop(self.call(&["run", "list", "-a", agent])),
                8 => drop(self.call(&["doctor", "--repair"])),
                _ => drop(self.call(&["doctor"])),
            }
            let ms = self.luck.below(200);
            pause(self.world, ms);
        }
    }

    /// Sends messages through triggers, and rotates the secrets of these triggers.
    pub fn call_in(mut self) {
        let mut held: Vec<(&str, String, String)> = Vec::new();
        while !self.world.is_over() {
            let agent = self.agent();
            self.number += 1;
            let fresh = self.world.out(&format!("secret-{}", self.number)).display().to_string();
            let place = held.iter().position(|(of, ..)| *of == agent);
            match (place, self.luck.below(12)) {
                (None, _) => {
                    let words = ["trigger", "create", "-a", agent, "--secret-file", &fresh, "--json"];
                    let (_, said) = self.call(&words);
                    let made = serde_json::from_str::<Value>(&said).unwrap_or_default();
                    held.extend(made["id"].as_str().map(|id| (agent, id.to_owned(), fresh)));
                }
                (Some(at), 0) => {
                    let id = held[at].1.clone();
                    let words = ["trigger", "rotate", &id, "-a", agent, "--secret-file", &fresh];
                    if matches!(self.call(&words).0, Ended::Status(0)) {
                        held[at].2 = fresh;
                    }
                }
                (Some(at), 1) => {
                    let id = held.swap_remove(at).1;
                    self.call(&["trigger", "revoke", &id, "-a", agent]);
                }
                (Some(_), _) if self.backlog(agent) > BACKLOG => pause(self.world, 100),
                (Some(at), luck) => {
                    let (text, (_, id, file)) = (self.text(), held[at].clone());
                    let key = format!("{} {}", self.name, self.number / 30);
                    let words = [
                        "trigger",
                        "deliver",
                        &id,
                        "-a",
                        agent,
                        "--secret-file",
                        &file,
                        &text,
                        "--dedupe-key",
                        &key,
                    ];
                    let most = if luck < 4 { words.len() } else { words.len() - 2 };
                    let (ended, _) = self.call(&words[..most]);
                    // A killed rotation may have been committed, which makes this secret invalid.
                    if matches!(ended, Ended::Status(4)) {
                        held.swap_remove(at);
                    }
                }
            }
            let ms = self.luck.below(150);
            pause(self.world, ms);
        }
    }

    /// Exports agents in any state, and imports the copies into another state directory.
    pub fn copy(mut self) {
        let away = self.world.away();
        while !self.world.is_over() {
            let agent = self.agent();
            let file = self.world.out("copy.tar").display().to_string();
            if matches!(self.call(&["export", agent, "--output", &file]).0, Ended::Status(0)) {
                let name = self.luck.of(&["copy", agent]);
                let handicap = self.handicap();
                let words = ["import", &file, "--as", name];
                self.world.call(&self.name, &away, &words, &handicap, "");
                self.world.call(&self.name, &away, &["doctor"], &Handicap::default(), "");
                let _ = fs::remove_dir_all(away.join(".dormouse/agents").join(name));
            }
            let ms = 200 + self.luck.below(600);
            pause(self.world, ms);
        }
    }

    /// Copies the whole state directory while turns run, and ends the runs in the copy in every
    /// way. A process that represents a turn of the original must survive.
    pub fn copy_whole(mut self) {
        let copy = self.world.root().join("whole");
        while !self.world.is_over() {
            let _ = fs::remove_dir_all(&copy);
            fs::create_dir(&copy).unwrap();
            let room = self.world.room.read().unwrap();
            // Files that change meanwhile may be torn or missing, so `cp` may fail.
            let _ = Command::new("cp").arg("-a").arg(self.world.store()).arg(&copy).output().unwrap();
            drop(room);
            AGENTS.iter().for_each(|agent| self.end_in_copy(&copy, agent));
            let ms = 100 + self.luck.below(300);
            pause(self.world, ms);
        }
    }

    fn end_in_copy(&mut self, copy: &Path, agent: &str) {
        let dir = copy.join(".dormouse/agents").join(agent);
        let Ok(text) = fs::read_to_string(dir.join("state.json")) else { return };
        let Ok(state) = serde_json::from_str::<Value>(&text) else { return };
        let Some(run) = state["current_run"]["run_id"].as_str() else { return };
        // The bystander process gets the new id of the run, so that only commands in the copy can
        // take it for a process of that run.
        self.number += 1;
        let fresh = format!("{}{:012x}", &run[..run.len() - 12], self.number);
        fs::write(dir.join("state.json"), text.replace(run, &fresh)).unwrap();
        fs::write(dir.join("journal.jsonl"), "").unwrap();
        fs::write(dir.join("agent.toml"), "[turn]\ncommand = [\"true\"]\n").unwrap();
        let mut bystander = Command::new("sleep")
            .arg("600")
            .env("DORMOUSE_RUN", &fresh)
            .env("DORMOUSE_PLACE", crate::harness::place_of(&self.world.store()))
            .spawn()
            .unwrap();
        let ways: [&[&str]; 5] = [
            &["tick", agent],
            &["recover", agent],
            &["stop", agent, "--now"],
            &["fail", agent, "--reason", "copied"],
            &["recover", agent, "--force"],
        ];
        for _ in 0..3 {
            let words = ways[self.luck.below(ways.len() as u64) as usize];
            let mut command = Command::new(crate::harness::dormouse());
            command.arg("-C").arg(copy).args(words).env_clear();
            command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", copy);
            command.stdin(Stdio::null()).output().unwrap();
            if bystander.try_wait().unwrap().is_some() {
                self.world.disturbed.lock().unwrap().push(words.join(" "));
            }
        }
        self.world.copied.fetch_add(1, Ordering::Relaxed);
        let _ = bystander.kill();
        let _ = bystander.wait();
    }

    /// Moves an agent between two stores, until the stress test is over and it is in the first.
    pub fn move_about(mut self) {
        let places = [(self.world.east(), "the east"), (self.world.west(), "the west")];
        let mut at = 0;
        while !self.world.is_over() || at != 0 {
            let ((from, _), (to, name)) = (&places[at], &places[1 - at]);
            let file = self.world.out("moved.tar").display().to_string();
            // After a kill, a repetition of the same command continues the move.
            self.insist(from, &["export", TRAVELLER, "--move", name, "-o", &file], &[0]);
            // The agent has arrived already if the former import was killed after its commit.
            self.insist(to, &["import", &file], &[0, 4]);
            at = 1 - at;
            let ms = 100 + self.luck.below(900);
            pause(self.world, ms);
        }
    }

    /// Repeats a command until it ends with one of the given exit statuses.
    fn insist(&mut self, place: &Path, words: &[&str], statuses: &[i32]) {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let handicap = self.handicap();
            let (ended, said) = self.world.call(&self.name, place, words, &handicap, "");
            if matches!(ended, Ended::Status(status) if statuses.contains(&status)) {
                return;
            }
            assert!(Instant::now() < until, "{words:?} never gets through: {ended:?}: {said}");
            // At the end no other thread ticks, so this thread completes an interrupted turn.
            if self.world.is_over() {
                let words = ["tick", "--all", "--until-idle"];
                self.world.call(&self.name, place, &words, &Handicap::default(), "");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends messages to the moved agent in both stores; they arrive only in the store that has the
    /// agent.
    pub fn call_after(mut self) {
        let places = [self.world.east(), self.world.west()];
        let secret = self.world.out("secret").display().to_string();
        while !self.world.is_over() {
            let place = &places[self.luck.below(2) as usize];
            if self.world.waiting(place, TRAVELLER) > BACKLOG {
                pause(self.world, 100);
                continue;
            }
            self.number += 1;
            let task =
                self.luck.of(&["quick", "quick", "slow", "flaky", "later", "self", "work", "timer", "wait"]);
            let text = format!("{task} {} {}", self.name, self.number);
            let key = format!("{} {}", self.name, self.number / 30);
            let trigger = self.world.trigger(place, TRAVELLER).unwrap_or_default();
            let deliver = [
                "trigger",
                "deliver",
                &trigger,
                "-a",
                TRAVELLER,
                "--secret-file",
                &secret,
                &text,
                "--dedupe-key",
                &key,
            ];
            let words: &[&str] = match self.luck.below(6) {
                0 => &["enqueue", TRAVELLER, &text, "--dedupe-key", &key],
                1 => &["enqueue", TRAVELLER, &text, "--ttl", "2s"],
                2 if !trigger.is_empty() => &deliver,
                3 if !trigger.is_empty() => &deliver[..8],
                _ => &["enqueue", TRAVELLER, &text],
            };
            let handicap = self.handicap();
            self.world.call(&self.name, place, words, &handicap, "");
            let ms = self.luck.below(80);
            pause(self.world, ms);
        }
    }

    /// Runs steps in both stores of the moved agent.
    pub fn tick_after(mut self) {
        let places = [self.world.east(), self.world.west()];
        while !self.world.is_over() {
            let place = &places[self.luck.below(2) as usize];
            let handicap = self.handicap();
            let steps = self.luck.of(&["1", "3", "20"]);
            let words = ["tick", "--all", "--until-idle", "--max-steps", steps];
            self.world.call(&self.name, place, &words, &handicap, "");
        }
    }

    /// Runs `sync` in the two clones, which exchange changes over their git remote.
    pub fn exchange(mut self) {
        while !self.world.is_over() {
            let place = if self.luck.one_in(2) { self.world.clone() } else { self.world.project() };
            let handicap = self.handicap();
            self.world.call(&self.name, &place, &["sync"], &handicap, "");
            let ms = 100 + self.luck.below(900);
            pause(self.world, ms);
        }
    }

    /// Merges the changes of the two clones, in both directions.
    pub fn merge(mut self) {
        while !self.world.is_over() {
            let room = self.world.room.read().unwrap();
            let merged = merge_both_ways(self.world);
            drop(room);
            // Other actors use git all the time, so a failed merge is repeated soon.
            let ms = if merged { 300 + self.luck.below(1200) } else { 50 };
            pause(self.world, ms);
        }
    }
}

/// Merges the changes of both clones. The merge happens in the clone that no process ticks; in the
/// other clone git only fast-forwards, because a failed merge would reset files that a step is
/// writing. Returns `false` if another git process prevented the merge.
pub fn merge_both_ways(world: &World) -> bool {
    let (project, clone) = (world.project(), world.clone());
    unlock(world, &project);
    let alone = [&clone, &project].map(|place| after_sync(world, place));
    if alone.iter().any(Option::is_none) {
        return false;
    }
    let merged = record(world, &clone)
        .and_then(|()| between_steps(world, || record(world, &project)))
        // With rename detection, git finds a conflict if both sides have deleted a message, and one
        // side has a similar new message.
        .and_then(|()| {
            pull(
                world,
                &clone,
                &project,
                &["-c", "merge.renames=false", "merge", "-q", "--no-edit", "FETCH_HEAD"],
            )
        })
        .and_then(|()| pull(world, &project, &clone, &["merge", "-q", "--ff-only", "FETCH_HEAD"]));
    assert!(merged.as_ref().err().is_none_or(|said| !said.contains("CONFLICT")), "{merged:?}");
    world
        .history
        .note(merged.as_ref().map_or_else(|why| What::Unmerged { why: why.clone() }, |()| What::Merged));
    merged.is_ok()
}

/// Locks `sync` out of a clone. Returns `None` if a killed `sync` has applied files that no later
/// `sync` has completed, because git would take these for changes of the clone.
fn after_sync(world: &World, clone: &Path) -> Option<fs::File> {
    let lock = fs::File::create(clone.join(".git/dormouse.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let commit = |name: &str| world.aside("git", clone, &["rev-parse", "--verify", "--quiet", name]);
    let (is_applied, applied) = commit("refs/worktree/dormouse-applied");
    let is_whole =
        !is_applied || world.aside("git", clone, &["merge-base", "--is-ancestor", applied.trim(), "HEAD"]).0;
    is_whole.then_some(lock)
}

type Said = Result<(), String>;

/// Holds the locks of all agents during `work`, because git can't add a directory from which files
/// disappear.
fn between_steps(world: &World, work: impl FnOnce() -> Said) -> Said {
    let locks = world.agents().into_iter().map(|agent| world.store().join("agents").join(agent).join("lock"));
    let held: Vec<fs::File> = locks.filter_map(|lock| fs::File::open(lock).ok()).collect();
    held.iter()
        .try_for_each(|lock| flock(lock, FlockOperation::LockExclusive))
        .map_err(|why| why.to_string())?;
    work()
}

fn git(world: &World, place: &Path, words: &[&str]) -> Said {
    for _ in 0..50 {
        let (succeeded, said) = world.aside("git", place, words);
        match succeeded {
            true => return Ok(()),
            // `tick --commit` locks the index for a moment.
            false if said.contains("index.lock") => pause(world, 20),
            false => return Err(format!("{words:?}: {said}")),
        }
    }
    Err(format!("{words:?}: somebody has git's lock"))
}

fn record(world: &World, place: &Path) -> Said {
    git(world, place, &["add", "-A", "--", ".dormouse"])?;
    let is_same = git(world, place, &["diff", "--cached", "--quiet"]).is_ok();
    if is_same { Ok(()) } else { git(world, place, &["commit", "-q", "-m", "weather"]) }
}

fn pull(world: &World, into: &Path, from: &Path, merge: &[&str]) -> Said {
    git(world, into, &["fetch", "-q", from.to_str().unwrap(), "main"])?;
    git(world, into, merge)
}

/// Removes the lock files that a killed git, also one of `tick --commit`, has left in a clone.
fn unlock(world: &World, place: &Path) {
    let git = place.join(".git");
    for lock in ["index.lock", "HEAD.lock", "refs/heads/main.lock"] {
        let path = git.join(lock);
        let age = fs::metadata(&path).ok().and_then(|found| found.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age.as_secs() >= 2) {
            world.history.note(What::Unlocked { path: lock.to_owned() });
            let _ = fs::remove_file(path);
        }
    }
}
