//! Second consistency check of an agent's records, which uses none of the program's own code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::Files;
use crate::setup::{has_journal, names, words};

/// Records of one agent, and the inconsistencies among them.
#[derive(Debug, Default)]
pub struct Found {
    pub state: Value,
    /// Messages in the inbox and its subdirectories, by id.
    pub queued: BTreeMap<String, Value>,
    pub hints: BTreeSet<String>,
    /// All lines of the archive about each message, in order.
    pub archived: BTreeMap<String, Vec<Value>>,
    /// Ids of messages that a timer will deliver.
    pub put_off: BTreeSet<String>,
    /// Ids of open work items, waits, timers and tasks.
    pub open: BTreeSet<String>,
    /// Ids of archived work items, waits, timers and tasks.
    pub over: BTreeSet<String>,
    /// Open and archived work items, waits, timers and tasks, by id.
    pub records: BTreeMap<String, Value>,
    pub runs: BTreeMap<String, Value>,
    pub has_journal: bool,
    /// Names of the files in `tmp/`.
    pub leftovers: Vec<String>,
    pub complaints: Vec<String>,
}

/// Reads all records of an agent. Unless `has_journal`, an incomplete transaction is a complaint.
pub fn look(agent: &Path) -> Found {
    let mut found = Found { has_journal: has_journal(agent), ..Found::default() };
    found.leftovers = names(&agent.join("tmp"));
    // Lock files are never deleted.
    found.leftovers.retain(|name| name != "notify.lock");
    let agent = &Files::of(agent);
    found.read_top(agent);
    found.read_inbox(agent);
    found.read_archive(agent);
    found.read_dedupe(agent);
    if !found.has_journal {
        found.read_runs(agent);
        found.read_ledger(agent);
        found.compare();
    }
    found
}

impl Found {
    /// Returns the ids of all messages: queued, archived and put off.
    pub fn messages(&self) -> BTreeSet<String> {
        self.queued.keys().chain(self.archived.keys()).chain(&self.put_off).cloned().collect()
    }

    /// Returns the ids of all work items, waits, timers and tasks: open and archived.
    pub fn planes(&self) -> BTreeSet<String> {
        self.open.union(&self.over).cloned().collect()
    }

    /// Returns the last archived status of a message, or `None` if the message is queued.
    pub fn ended_as(&self, id: &str) -> Option<&str> {
        if self.queued.contains_key(id) {
            return None;
        }
        self.archived.get(id)?.last()?["settlement"]["status"].as_str()
    }

    pub fn revision(&self) -> u64 {
        self.state["revision"].as_u64().unwrap_or(0)
    }

    fn complain(&mut self, text: impl Into<String>) {
        self.complaints.push(text.into());
    }

    /// Reads a file with one JSON object of `schema` and a newline at its end.
    fn record(&mut self, path: &Path, schema: &str) -> Option<Value> {
        // Opening a named pipe would block, and a device has no end.
        if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
            self.complain(format!("{}: no file", path.display()));
            return None;
        }
        let complain = |error| self.complain(format!("{}: {error}", path.display()));
        let bytes = fs::read(path).map_err(complain).ok()?;
        if bytes.last() != Some(&b'\n') {
            self.complain(format!("{}: no newline at the end", path.display()));
        }
        self.parse(&path.display().to_string(), &bytes, schema)
    }

    fn parse(&mut self, place: &str, bytes: &[u8], schema: &str) -> Option<Value> {
        match serde_json::from_slice::<Value>(bytes) {
            Ok(value) if value["schema"] == schema => Some(value),
            Ok(value) => {
                self.complain(format!("{place}: schema {} is not {schema}", value["schema"]));
                None
            }
            Err(error) => {
                let text = String::from_utf8_lossy(bytes);
                self.complain(format!("{place}: {error}: {:?}", text.chars().take(80).collect::<String>()));
                None
            }
        }
    }

    /// Reads an append-only file with one JSON object of `schema` in each line.
    fn lines(&mut self, path: &Path, schema: &str) -> Vec<Value> {
        let bytes = fs::read(path).unwrap_or_default();
        if bytes.last().is_some_and(|byte| *byte != b'\n') {
            self.complain(format!("{}: the last line is torn", path.display()));
        }
        let mut values = Vec::new();
        let lines = bytes.split(|byte| *byte == b'\n').enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
            values.extend(self.parse(&format!("{}:{}", path.display(), at + 1), line, schema));
        }
        values
    }

    fn read_top(&mut self, agent: &Path) {
        const KNOWN: &str = "agent.toml identity.json state.json inbox inbox.old work waits timers tasks triggers outbox \
             runs ledger archive hooks lock run.lock journal.jsonl tmp cache";
        for name in names(agent).into_iter().filter(|name| !words(KNOWN).contains(&name.as_str())) {
            self.complain(format!("an unknown name in the agent's directory: {name}"));
        }
        self.record(&agent.join("identity.json"), "dormouse/identity/1");
        self.state = self.record(&agent.join("state.json"), "dormouse/state/1").unwrap_or_default();
        let dirs = words("work:work waits:wait timers:timer tasks:task triggers:trigger outbox:message");
        for (dir, kind) in dirs.iter().filter_map(|pair| pair.split_once(':')) {
            for name in names(&agent.join(dir)).into_iter().filter(|name| name.ends_with(".json")) {
                let path = agent.join(dir).join(&name);
                if let Some(record) = self.record(&path, &format!("dormouse/{kind}/1")) {
                    if record["id"].as_str() != name.strip_suffix(".json") {
                        self.complain(format!("{}: another id inside: {}", path.display(), record["id"]));
                    }
                    self.put_off.extend(record["message"]["id"].as_str().map(str::to_owned));
                    let id = record["id"].as_str().unwrap_or_default().to_owned();
                    if !["trigger", "message"].contains(&kind) {
                        self.open.insert(id.clone());
                        self.records.insert(id, record);
                    }
                }
            }
        }
        // `create` makes a trigger for each agent; a revoked trigger is moved to the archive.
        let is_revoked = || archived(agent).iter().any(|(kind, _)| kind == "trigger");
        if names(&agent.join("triggers")).is_empty() && !is_revoked() {
            self.complain("no trigger");
        }
    }

    fn read_inbox(&mut self, agent: &Path) {
        let inbox = agent.join("inbox");
        for name in names(&inbox) {
            let path = inbox.join(&name);
            // Steps ignore hidden files.
            if name == "rejected" || name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                let first = name.strip_prefix("from-").unwrap_or(&name);
                for filed in names(&path) {
                    if filed.trim_end_matches(".json") < first {
                        self.complain(format!("{name}/{filed}: sorts before the first name of its bucket"));
                    }
                    self.message(&path.join(&filed), &filed);
                }
            } else if let Some(id) = name.strip_prefix("w-").and_then(|name| name.strip_suffix(".json")) {
                if let Some(hint) = self.record(&path, "dormouse/wake_hint/1")
                    && hint["id"] != id
                {
                    self.complain(format!("{}: another id inside", path.display()));
                }
                self.hints.insert(id.to_owned());
            } else {
                self.message(&path, &name);
            }
        }
    }

    fn message(&mut self, path: &Path, name: &str) {
        let Some(message) = self.record(path, "dormouse/message/1") else { return };
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        let priorities = ["interject", "next", "normal", "background"];
        let digit = priorities.iter().position(|priority| message["priority"] == *priority);
        if name != format!("{}-{id}.json", digit.unwrap_or(9)) {
            self.complain(format!("{}: the name does not fit {id}", path.display()));
        }
        if !message["settlement"].is_null() {
            self.complain(format!("{}: settled, and in the inbox", path.display()));
        }
        if self.queued.insert(id, message).is_some() {
            self.complain(format!("{}: the message lies in the inbox twice", path.display()));
        }
    }

    fn read_archive(&mut self, agent: &Path) {
        let mut briefs = BTreeSet::new();
        for (kind, files) in archived(agent) {
            let mut seen = BTreeSet::new();
            for path in files {
                for line in self.lines(&path, &format!("dormouse/{kind}/1")) {
                    if !seen.insert(line.to_string()) {
                        continue;
                    }
                    let id = line["id"].as_str().unwrap_or_default().to_owned();
                    match kind.as_str() {
                        "message" => self.archived.entry(id).or_default().push(line),
                        "work" | "wait" | "timer" | "task" => {
                            if !self.over.insert(id.clone()) {
                                self.complain(format!("{id} is archived twice"));
                            }
                            self.records.insert(id, line);
                        }
                        "run" => drop(self.runs.insert(id, line)),
                        "brief" if !briefs.insert(line["run_id"].to_string()) => {
                            self.complain(format!("two briefs of {}", line["run_id"]));
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    fn read_runs(&mut self, agent: &Path) {
        for id in names(&agent.join("runs")) {
            if self.state["current_run"]["run_id"] != id.as_str() && !self.runs.contains_key(&id) {
                self.complain(format!("the run directory {id} has no run record"));
            }
        }
    }

    /// Checks that the events of the ledger are numbered without a gap, none twice.
    fn read_ledger(&mut self, agent: &Path) {
        let files = names(&agent.join("ledger")).into_iter().map(|name| agent.join("ledger").join(name));
        let mut events: Vec<Value> = files.flat_map(|file| self.lines(&file, "dormouse/event/1")).collect();
        let mut seen = BTreeSet::new();
        events.retain(|event| seen.insert(event["id"].to_string()));
        events.sort_by_key(|event| event["seq"].as_u64());
        for (at, event) in events.iter().enumerate() {
            if event["seq"] != at as u64 + 1 {
                self.complain(format!("event number {} has seq {}", at + 1, event["seq"]));
                break;
            }
        }
        if self.state["counters"]["events"] != events.len() as u64 {
            self.complain(format!("{} events, but {}", events.len(), self.state["counters"]));
        }
        for event in events {
            if event["kind"] == "run_settled" || event["kind"] == "run_interrupted" {
                let run = event["run_id"].as_str().unwrap_or_default().to_owned();
                if !self.runs.contains_key(&run) {
                    self.complain(format!("the ledger says that {run} is over; there is no record of it"));
                }
            }
        }
    }

    fn read_dedupe(&mut self, agent: &Path) {
        let dir = agent.join("cache/dedupe");
        for day in names(&dir) {
            for name in names(&dir.join(&day)) {
                let path = dir.join(&day).join(name);
                let entry = self.record(&path, "dormouse/dedupe/1").unwrap_or_default();
                let id = entry["message_id"].as_str().unwrap_or_default().to_owned();
                if !self.has_journal && !self.messages().contains(&id) {
                    self.complain(format!("{}: there is no message {id}", path.display()));
                }
            }
        }
    }

    /// Checks that the records agree with each other.
    fn compare(&mut self) {
        let mut complaints = Vec::new();
        let (mut dead, mut processed) = (0_u64, 0_u64);
        for (id, lines) in &self.archived {
            let words: Vec<&str> =
                lines.iter().map(|line| line["settlement"]["status"].as_str().unwrap_or_default()).collect();
            let is_queued = self.queued.contains_key(id);
            let last = *words.last().unwrap_or(&"");
            if is_queued != (last == "queued") {
                complaints.push(format!("{id}: in the inbox: {is_queued}; the archive says {words:?}"));
            }
            if words.windows(2).any(|pair| pair[0] == pair[1] || pair[0] == "processed") {
                complaints.push(format!("{id}: archived twice: {words:?}"));
            }
            dead += u64::from(lines.last().is_some_and(|line| line["settlement"]["dead_letter"] == true));
            processed += words.iter().filter(|word| **word == "processed").count() as u64;
        }
        complaints.extend(self.compare_tasks());
        for id in self.open.intersection(&self.over) {
            complaints.push(format!("{id} is open and archived"));
        }
        if let Some(focus) = self.state["focus"].as_str()
            && !self.open.contains(focus)
        {
            complaints.push(format!("the current item {focus} is not open"));
        }
        let counters = &self.state["counters"];
        if counters["dead"] != dead || counters["messages_processed"] != processed {
            complaints.push(format!("{dead} dead, {processed} processed, but {counters}"));
        }
        for claimed in [&self.state["current_run"], &self.state["held"]] {
            if let Some(id) = claimed["message_id"].as_str()
                && !self.queued.contains_key(id)
            {
                complaints.push(format!("{id} is claimed, but not in the inbox"));
            }
        }
        if let Some(run) = self.state["last_turn"]["run_id"].as_str()
            && !self.runs.contains_key(run)
        {
            complaints.push(format!("the last turn {run} has no record"));
        }
        self.complaints.extend(complaints);
    }

    /// Checks the result messages of tasks (one of each that has ended) and the count of open ones.
    fn compare_tasks(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let is_task = |id: &&String| id.starts_with("task_");
        let open = self.open.iter().filter(is_task).count() as u64;
        if self.state["open_tasks"].as_u64().unwrap_or(0) != open {
            complaints.push(format!("{open} tasks are open, but {}", self.state["open_tasks"]));
        }
        let archived = self.archived.iter().filter(|(id, _)| !self.queued.contains_key(*id));
        let archived = archived.filter_map(|(_, lines)| lines.last());
        let messages: Vec<&Value> = self.queued.values().chain(archived).collect();
        for id in self.open.iter().chain(&self.over).filter(is_task) {
            let results = messages.iter().filter(|message| message["origin"]["id"] == id.as_str()).count();
            if results != usize::from(self.over.contains(id)) {
                complaints.push(format!("{id} has {results} results; over: {}", self.over.contains(id)));
            }
        }
        complaints
    }
}

/// Returns the archive's files of each kind of record, in the order of months.
fn archived(agent: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let archive = agent.join("archive");
    let mut by_kind: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for month in names(&archive) {
        for file in names(&archive.join(&month)) {
            let kind = file.trim_end_matches(".jsonl").to_owned();
            by_kind.entry(kind).or_default().push(archive.join(&month).join(file));
        }
    }
    by_kind.into_iter().collect()
}
