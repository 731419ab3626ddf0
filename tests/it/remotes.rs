//! Creates clones of one state directory, and the bare repository that they share.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Ran, Sandbox};
use crate::setup::{Beside, add, git_in, make_repository, names};

/// Clones of one repository. The first one is the project of the sandbox.
pub struct Remote {
    pub sandbox: Sandbox,
    pub dirs: Vec<PathBuf>,
}

impl Remote {
    /// Creates a bare repository with these agents, and `count` clones of it.
    pub fn new(agents: &[&str], shell: &str, count: usize) -> Remote {
        Remote::of(Sandbox::empty().with_real_clock(), agents, shell, count)
    }

    /// Creates a bare repository with these agents, and `count` clones of it, in a given sandbox.
    /// The git configuration of the sandbox applies to all clones.
    pub fn of(sandbox: Sandbox, agents: &[&str], shell: &str, count: usize) -> Remote {
        sandbox.run(["init"]);
        make_repository(&sandbox);
        fs::write(sandbox.project().join("code"), "one\n").unwrap();
        for name in agents {
            add(&sandbox, name, shell);
        }
        let mut remote = Remote { dirs: vec![sandbox.project()], sandbox };
        remote.git(0, &["add", "--all"]);
        remote.git(0, &["commit", "--quiet", "-m", "start"]);
        let bare = remote.bare();
        let bare = bare.to_str().unwrap();
        remote.git(0, &["init", "--quiet", "--bare", "--initial-branch=main", bare]);
        remote.git(0, &["remote", "add", "origin", bare]);
        remote.git(0, &["push", "--quiet", "-u", "origin", "main"]);
        for number in 1..count {
            let dir = remote.sandbox.root().join(format!("clone-{number}"));
            remote.git(0, &["clone", "--quiet", bare, dir.to_str().unwrap()]);
            remote.dirs.push(dir);
        }
        remote
    }

    pub fn bare(&self) -> PathBuf {
        self.sandbox.root().join("origin.git")
    }

    #[track_caller]
    pub fn git(&self, at: usize, words: &[&str]) -> String {
        git_in(&self.sandbox, &self.dirs[at], words)
    }

    /// Prepares a `dormouse` command in a clone.
    pub fn cmd(&self, at: usize, words: &[&str]) -> crate::harness::Cmd<'_> {
        let dir = self.dirs[at].to_str().unwrap();
        self.sandbox.cmd(["-C", dir].iter().chain(words).copied())
    }

    /// Runs a `dormouse` command in a clone, with any exit status.
    #[track_caller]
    pub fn ran(&self, at: usize, words: &[&str]) -> Ran {
        self.cmd(at, words).output()
    }

    #[track_caller]
    pub fn run(&self, at: usize, words: &[&str]) -> String {
        let ran = self.ran(at, words);
        assert_eq!(ran.code(), 0, "{words:?} in {}: {ran}", self.dirs[at].display());
        ran.stdout
    }

    /// Starts a command in a clone, and kills it after a while.
    pub fn kill_after(&self, at: usize, words: &[&str], pause: Duration) {
        let mut running = Beside::start(self.cmd(at, words));
        std::thread::sleep(pause);
        running.kill();
    }

    #[track_caller]
    pub fn sync(&self, at: usize) -> Value {
        serde_json::from_str(self.run(at, &["--json", "sync"]).trim()).unwrap()
    }

    pub fn agent(&self, at: usize, name: &str) -> PathBuf {
        self.dirs[at].join(".dormouse/agents").join(name)
    }

    #[track_caller]
    pub fn enqueue(&self, at: usize, agent: &str, text: &str) -> String {
        self.run(at, &["-q", "enqueue", agent, text]).trim().to_owned()
    }

    /// Lists mode, hash and path of all files in the last commit of a clone.
    pub fn committed(&self, at: usize) -> String {
        self.git(at, &["ls-tree", "-r", "HEAD"])
    }

    /// Syncs all clones twice. They then have equal commits and clean worktrees, and pass `doctor`.
    #[track_caller]
    pub fn agree(&self) {
        for at in 0..self.dirs.len() {
            self.sync(at);
        }
        for at in 0..self.dirs.len() {
            self.sync(at);
            assert_eq!(self.committed(at), self.committed(0), "clone {at}");
            assert_eq!(self.git(at, &["status", "--short"]), "", "clone {at}");
            self.ran(at, &["doctor"]).exits(0);
        }
    }
}

/// Returns the ids of the messages in an inbox.
pub fn queued(agent: &Path) -> Vec<String> {
    let found = names(&agent.join("inbox")).into_iter().filter(|name| name.contains("msg_"));
    found.map(|name| name[name.find("msg_").unwrap()..].trim_end_matches(".json").to_owned()).collect()
}

/// Counts how often each message is recorded as processed in an agent's archive.
pub fn processed(agent: &Path) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for month in names(&agent.join("archive")) {
        let path = agent.join("archive").join(month).join("message.jsonl");
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            if record["settlement"]["status"] == "processed" {
                *found.entry(record["id"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
    }
    found
}
