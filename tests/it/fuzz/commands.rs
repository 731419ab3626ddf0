//! The commands that run on a mutated directory, and the exit statuses that each may have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::chance::Chance;

/// Every command with arguments. A word in braces is drawn at random: `{agent}` is mostly the agent
/// whose file was changed, other words are ids of its records. A line with `@` runs as if it were
/// called from the turn of `kim`. Text after `<<` is its stdin.
pub const COMMANDS: &[&str] = &[
    "init",
    "create {new} --shell true",
    "create {new} --template script",
    "create {new} --parent {agent} -- true",
    "start {agent}",
    "start --all",
    "stop {agent} --grace 0s",
    "stop {agent} --now --requeue --reason why",
    "enqueue {agent} hello",
    "enqueue {agent} now --priority interject",
    "enqueue {agent} hello --dedupe-key one",
    "enqueue {agent} later --in 1h",
    "enqueue {agent} --origin webhook:ci --body-json {} --resource github:org/repo#12",
    "enqueue {agent} --batch << {\"text\":\"one\"}\n{\"body\":[2],\"origin\":\"channel\"}",
    "enqueue {agent} about --work-item {work} --wait {wait}",
    "enqueue {agent} hello --await --timeout 20ms",
    "ask {agent} hello --timeout 50ms",
    "wake {agent} --resource github:org/repo#13 look",
    "wake {agent} --wait {wait} --reason why",
    "tick {agent}",
    "tick {agent} --until-idle --max-steps 4",
    "tick {agent} --dry-run",
    "tick --all",
    "tick --all --jobs 2",
    "get {agent}",
    "get {agent} queue.pending",
    "list",
    "list --posture idle --posture waiting_for_operator --kind named",
    "list --sort last --limit 2 --columns agent,note,due",
    "explain {agent}",
    "state {agent}",
    "state {agent} --can running",
    "state {agent} --diagram",
    "state {agent} --diagram dot --history",
    "state {agent} --hooks",
    "await {agent} --status asleep --timeout 20ms",
    "await {agent} --message {message} --timeout 20ms",
    "next-wake {agent}",
    "next-wake --all --format systemd",
    "queue list -a {agent}",
    "queue show {message}",
    "queue dead -a {agent}",
    "queue dead -a {agent} --ack",
    "queue rejected -a {agent}",
    "queue rejected -a fin --accept",
    "queue rejected -a fin --drop bad.json",
    "queue requeue {dead}",
    "queue drop {message} --reason why",
    "work add objective -a {agent} --todo one --plan prose --pick",
    "work list -a {agent}",
    "work list -a {agent} --state completed",
    "work show {work}",
    "work update {work} --todo two",
    "work pick {work} --clear-blocker --reason why",
    "work block {work} --reason why --recheck 1h",
    "work unblock {work} --reason why",
    "work complete {work} --result done",
    "work plan {work}",
    "work plan {work} new",
    "wait -a {agent} --on external --reason why --resource r --recheck 1h",
    "wait -a {agent} --on task --resource {task} --reason why --work-item {work}",
    "wait list -a {agent} --state all",
    "wait show {wait}",
    "wait cancel {wait}",
    "timer add -a {agent} --in 0s due",
    "timer add -a {agent} --every 1h --catch-up all",
    "timer list -a {agent}",
    "timer cancel {timer}",
    "ingress << GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "ingress << POST /agents/ada/triggers/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: 2\r\n\r\n{}",
    "ingress << POST /agents/{agent}/triggers/{trigger} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Type: text/plain\r\nX-GitHub-Delivery: one\r\nContent-Length: 5\r\n\r\nhello",
    "ingress << GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "doctor --quick",
    "trigger create -a {agent} --verify hmac_sha256",
    "trigger create -a {agent} --wait {wait} --mode wake_hint",
    "trigger list -a {agent} --revoked",
    "trigger show {trigger}",
    "trigger deliver {trigger} hello --secret-file - << secret",
    "trigger deliver {trigger} hello --secret-file - --dedupe-key twice << secret",
    "trigger rotate {trigger}",
    "trigger revoke {trigger}",
    "wake {agent} --trigger {trigger}",
    "wait -a {agent} --on external --reason why --trigger {trigger}",
    "task start -a {agent} -- true",
    "task start -a {agent} --delegate cyd hello",
    "task list -a {agent}",
    "task list -a {agent} --ended",
    "task status {task}",
    "task output {task} --bytes 10",
    "task input {task} line",
    "task stop {task} --grace 0s --force",
    "supervise {agent} {task}",
    "run list -a {agent} --limit 0",
    "run show {run}",
    "run show {run} --stdout",
    "briefs {agent} --limit 0",
    "report -o - --since 2026-01-01T00:00:00Z",
    "report {agent} -o -",
    "events {agent} --limit 5",
    "events {agent} --since 2026-01-01T00:00:00Z --kind message_admitted",
    "recover {agent} --force",
    "clone {agent} eva",
    "edit {agent}",
    "rename {agent} eva",
    "fail {agent} --reason why",
    "preempt {agent} --reason why --grace 0s",
    "resume {agent}",
    "@safe-point -a kim",
    "@safe-point -a kim --peek",
    "@safe-point -a kim -- true",
    "@checkpoint -a kim - << saved",
    "@yield -a kim --checkpoint - << saved",
    "@non-preemptible -a kim begin --deadline 1h",
    "@non-preemptible -a kim end",
    "@non-preemptible -a kim --deadline 1h -- true",
    "@enqueue bob hello",
    "@work add objective",
    "doctor",
    "doctor {agent}",
    "doctor --repair",
    "gc {agent} --keep 0s",
    "gc --dry-run",
    "export {agent}",
    "rm {agent} --dry-run",
    "rm {agent} --force --no-export",
    "export --all",
    "import << no stream",
    "usage",
    "usage {agent} --by model",
    "watch",
    "watch {agent}",
    "logs",
    "logs {agent} --since 2026-01-01T00:00:00Z",
    "run show latest -a {agent}",
    "metrics",
    "service systemd --follow",
    "service cron --user",
    "sync",
    "schema state",
    "check-outcome - << {\"actions\": [{\"do\": \"work.complete\", \"id\": 7}]}",
    "check-outcome -a {agent} - << {}",
    "man tick",
    "completions bash",
];

/// Ids in the records of a state directory, by agent and by the prefix of the id.
#[derive(Debug, Default)]
pub struct Ids {
    pub all: Vec<String>,
    by_agent: BTreeMap<(String, String), Vec<String>>,
}

impl Ids {
    /// Collects the ids in the names and contents of files.
    pub fn of<'a>(files: impl Iterator<Item = (&'a Path, &'a [u8])>) -> Ids {
        let mut found: BTreeSet<(String, String)> = BTreeSet::new();
        for (path, bytes) in files {
            let Some(agent) = agent_of(path) else { continue };
            for text in [path.to_string_lossy(), String::from_utf8_lossy(bytes)] {
                ids_in(&text, |id| {
                    found.insert((agent.clone(), id.to_owned()));
                });
            }
        }
        let mut ids = Ids::default();
        for (agent, id) in found {
            let word = id.split('_').next().unwrap_or_default().to_owned();
            ids.by_agent.entry((agent, word)).or_default().push(id.clone());
            ids.all.push(id);
        }
        ids
    }
}

/// Returns the name of the agent that owns a file.
pub fn agent_of(path: &Path) -> Option<String> {
    let below = path.strip_prefix("agents").ok()?;
    Some(below.iter().next()?.to_string_lossy().into_owned())
}

fn ids_in(text: &str, mut each: impl FnMut(&str)) {
    for (at, _) in text.match_indices('_') {
        let before = text[..at].rfind(|c: char| !c.is_ascii_lowercase()).map_or(0, |before| before + 1);
        let id = text.get(before..at + 33).unwrap_or_default();
        if before < at
            && id.get(at - before + 1..).is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            each(id);
        }
    }
}

/// Replaces the words in braces. Returns the words of the command and its stdin.
pub fn draw(template: &str, path: &Path, ids: &Ids, chance: &mut Chance) -> (Vec<String>, Vec<u8>) {
    let (line, stdin) = template.split_once(" << ").unwrap_or((template, ""));
    let agent = match agent_of(path) {
        Some(agent) if !chance.one_in(10) => agent,
        _ => (*chance.pick(&["ada", "bob", "cyd", "eve", "jon", "kim"])).to_owned(),
    };
    let mut of_file = Vec::new();
    ids_in(&path.to_string_lossy(), |id| of_file.push(id.to_owned()));
    let mut id = |word: &str| -> String {
        let named: Vec<&String> = of_file.iter().filter(|id| id.starts_with(word)).collect();
        if !named.is_empty() && !chance.one_in(3) {
            return (*chance.pick(&named)).clone();
        }
        let others = ids.by_agent.get(&(agent.clone(), word.to_owned()));
        let others = others.filter(|_| !chance.one_in(20)).unwrap_or(&ids.all);
        chance.pick(others).clone()
    };
    let stdin = match stdin.split_once("{agent}/triggers/{trigger}") {
        Some((before, after)) => format!("{before}{agent}/triggers/{}{after}", id("trig")),
        None => stdin.to_owned(),
    };
    let words = line.trim_start_matches('@').split(' ');
    let words = words.map(|word| match word {
        "{agent}" => agent.clone(),
        "{new}" => "new".to_owned(),
        "{message}" | "{dead}" => id("msg"),
        "{work}" => id("work"),
        "{wait}" => id("wait"),
        "{timer}" => id("timer"),
        "{task}" => id("task"),
        "{trigger}" => id("trig"),
        "{run}" => id("run"),
        word => word.to_owned(),
    });
    (words.collect(), stdin.into_bytes())
}

/// Exit statuses of every command according to its manual page, and true if the command may also
/// end with the status of a command that it runs.
pub struct Documented(BTreeMap<String, (BTreeSet<i32>, bool)>);

impl Documented {
    pub fn read() -> Documented {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/sections");
        let mut pages = BTreeMap::new();
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap();
            let name = entry.path().file_stem().unwrap().to_string_lossy().into_owned();
            let (_, section) = text.split_once(".SH \"EXIT STATUS\"").unwrap_or_default();
            let section = section.split("\n.SH").next().unwrap_or_default();
            let mut statuses = BTreeSet::new();
            for line in section.lines().filter_map(|line| line.strip_prefix(".B ")) {
                statuses.extend(line.split([' ', ',', '\\']).filter_map(|word| word.parse::<i32>().ok()));
            }
            assert!(statuses.contains(&0), "{name}: no exit statuses");
            pages.insert(name, (statuses, section.contains("126")));
        }
        Documented(pages)
    }

    /// True if the manual page allows this exit status.
    pub fn allows(&self, words: &[String], status: i32) -> bool {
        // A command that runs another command ends with its exit status.
        let runs = |of: &(BTreeSet<i32>, bool)| of.1 && words.iter().any(|word| word == "--");
        self.of(words).is_none_or(|of| of.0.contains(&status) || runs(of))
    }

    fn of(&self, words: &[String]) -> Option<&(BTreeSet<i32>, bool)> {
        let name = words.first()?;
        let below = words.iter().skip(1).find_map(|word| self.0.get(&format!("{name}-{word}")));
        below.or_else(|| self.0.get(name))
    }
}
