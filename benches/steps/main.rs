//! Benchmark: ratios of durations from the same run, for the targets of docs/PERFORMANCE.md.
//!
//! `cargo bench` measures all targets; `cargo bench -- 3 7` only targets 3 and 7.
//! `DORMOUSE_BENCH_QUICK=1` takes fewer rounds and smaller sets; `DORMOUSE_BENCH_DIR` holds the
//! files.

mod run;
mod table;
mod world;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use run::{Lane, Times, bare, lane, measure, race, same, time};
use table::{Table, Target};
use world::{Agent, World, batch, database, program};

/// Limit for the largest resident set of a command, in MiB. Listings of large sets have no limit.
const MEMORY: Target = Target::AtMost(10.0);

/// Largest ratio of two medians that count as equal, because other load disturbs the machine.
const FLAT: f64 = 1.1;

const INSERT: &str =
    "INSERT INTO queue (body) VALUES ('{\"text\":\"look at what has come in and say what is to be done\"}');";
const DEQUEUE: &str = "DELETE FROM queue WHERE id = (SELECT min(id) FROM queue) RETURNING body;";
const CLAIM: &str = "UPDATE queue SET claimed = 1 WHERE id = (SELECT min(id) FROM queue) RETURNING body;";
const REMOVE: &str = "DELETE FROM queue WHERE id = (SELECT max(id) FROM queue);";

struct Bench {
    world: World,
    table: Table,
    rounds: usize,
    /// Number of records in a large backlog or history.
    many: usize,
    agents: usize,
    /// Number of open records of each kind in a large set.
    open: usize,
    only: Vec<u8>,
}

fn main() {
    let quick = std::env::var_os("DORMOUSE_BENCH_QUICK").is_some_and(|value| value != "0");
    let mut bench = Bench {
        world: World::make(),
        table: Table::begin(),
        rounds: if quick { 60 } else { 300 },
        many: if quick { 20_000 } else { 100_000 },
        agents: if quick { 1_000 } else { 10_000 },
        open: 500,
        only: std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect(),
    };
    bench.arrival();
    bench.looks();
    bench.backlog();
    bench.history();
    bench.many_agents();
    bench.whole_step();
    bench.steps_together();
    bench.left_behind();
    bench.batches();
    bench.start_up();
    bench.open_records();
    bench.planes();
    bench.at_a_key();
    bench.world.clear();
    bench.table.end();
}

impl Bench {
    fn wanted(&self, numbers: &[u8]) -> bool {
        self.only.is_empty() || numbers.iter().any(|number| self.only.contains(number))
    }

    /// Compares `enqueue` with storing the same message file durably (performance target 1).
    fn arrival(&mut self) {
        if !self.wanted(&[1]) {
            return;
        }
        let store = self.world.store("arrival");
        let agent = store.agent("a");
        agent.fill(1);
        let bytes = std::fs::read_to_string(agent.message()).expect("a message");
        let [enqueue, floor] = race(
            self.rounds,
            [
                lane("enqueue", || time(&mut agent.enqueue())),
                lane("write, sync, rename, sync", || time(&mut agent.floor_store(&self.world, &bytes))),
            ],
        );
        self.table.ratio(1, &enqueue, &floor, Target::AtMost(1.3));
        self.memory("enqueue", &agent.enqueue());
    }

    /// Compares read-only commands with reading the same files (performance target 2).
    fn looks(&mut self) {
        if !self.wanted(&[2]) {
            return;
        }
        let store = self.world.store("looks");
        let agent = store.agent("a");
        agent.fill(1);
        agent.settle();
        let trigger = world::entries(&agent.path("triggers")).pop().expect("a trigger");
        let config = store.root().join("dormouse.toml");
        let dir = |name: &str| agent.path(&format!("{name}/"));
        let tick = [config.clone(), agent.path("state.json"), dir("inbox")];
        // `state.json` is read twice, because a reader without a lock must detect changes.
        let look =
            ["state.json", "inbox/", "agent.toml", "work/", "waits/", "timers/", "tasks/", "state.json"]
                .map(|name| agent.path(name));
        let list = [&[config, store.root().join("agents/")], &look[..]].concat();
        let get = [&list[..], &[agent.path("identity.json"), dir("triggers"), trigger]].concat();
        for (name, mut command, paths) in [
            ("idle tick", agent.tick(), &tick[..]),
            ("list of one agent", store.dormouse(&["list"]), &list),
            ("get", store.dormouse(&["get", "a"]), &get),
        ] {
            let mut reading = self.world.floor("read");
            reading.args(paths);
            let lanes = [lane(name, || time(&mut command)), same("read the same", reading)];
            let [looked, floor] = race(self.rounds, lanes);
            self.table.ratio(2, &looked, &floor, Target::AtMost(1.5));
            self.memory(name, &command);
        }
    }

    /// Measures commands with a long backlog (performance targets 3, 4, 7 and 8).
    fn backlog(&mut self) {
        if !self.wanted(&[3, 4, 7, 8]) {
            return;
        }
        let store = self.world.store("backlog");
        let [none, few, hundred, direct, filed] =
            ["none", "few", "hundred", "direct", "filed"].map(|name| store.agent(name));
        few.fill(10);
        hundred.fill(100);
        let lines = batch(&self.world, self.many);
        let many = self.many;
        for agent in [&direct, &filed] {
            let command = store.dormouse(&["enqueue", &agent.name, "--batch"]);
            let used = measure(&self.world.floor, &command, Some(&lines));
            if agent.name == "filed" {
                let each = used.took.as_secs_f64() * 1e6 / many as f64;
                self.table.figure(4, &format!("`enqueue --batch` of {many}, each"), each, "us", Target::None);
                self.resident(&format!("`enqueue --batch` of {many}"), used.max_resident_kib);
            }
        }
        self.world.rest();
        let first = measure(&self.world.floor, &filed.tick(), None);
        let what = format!("the first step after {many} arrivals");
        self.table.figure(3, &what, first.took.as_secs_f64(), "s", Target::AtMost(0.3));
        self.resident(&format!("the first step of {many}"), first.max_resident_kib);
        self.world.rest();
        self.enqueue_by_backlog([&none, &few, &direct, &filed]);
        self.take_by_backlog(&hundred, &filed);
        self.memory(&format!("enqueue at {many}"), &filed.enqueue());
        self.memory(&format!("a step at {many}"), &filed.tick());
        self.memory(&format!("get at {many} (lists a large set)"), &store.dormouse(&["get", "filed"]));
        self.beside_sqlite(&few, &filed);
    }

    fn enqueue_by_backlog(&mut self, [none, few, direct, filed]: [&Agent<'_>; 4]) {
        let put = |agent: &Agent<'_>| time(&mut agent.enqueue());
        let put_back = |agent: &Agent<'_>| {
            let took = put(agent);
            agent.take_back();
            took
        };
        let lanes = [
            lane("enqueue, queued: none", || put_back(none)),
            lane("enqueue, queued: 10", || put_back(few)),
            lane("enqueue, queued: many, not filed yet", || put(direct)),
            lane("enqueue, queued: many", || put(filed)),
        ];
        let [none, others @ ..] = race(self.rounds, lanes);
        for times in &others {
            self.table.ratio(4, times, &none, Target::AtMost(FLAT));
        }
    }

    /// Compares steps with backlogs of two lengths. A message is added before each step.
    fn take_by_backlog(&mut self, hundred: &Agent<'_>, filed: &Agent<'_>) {
        let take = |agent: &Agent<'_>| {
            agent.fill(1);
            time(&mut agent.tick())
        };
        let lanes = [
            lane("a step, queued: many, filed", || take(filed)),
            lane("a step, queued: 100", || take(hundred)),
        ];
        let [many, hundred] = race(self.rounds / 2, lanes);
        self.table.ratio(3, &many, &hundred, Target::AtMost(1.2));
    }

    /// Compares `enqueue` and steps with durable operations of `sqlite3` (performance target 7).
    fn beside_sqlite(&mut self, few: &Agent<'_>, filed: &Agent<'_>) {
        let sqlite = program("sqlite3");
        if !self.wanted(&[7]) || !sqlite.is_file() {
            return;
        }
        for (agent, count, size) in [(few, 10, "10"), (filed, self.many, "many")] {
            let [wal, rollback] = ["wal", "delete"].map(|mode| database(&self.world, &sqlite, mode, count));
            self.world.rest();
            let sql = |path: &Path, statement: &str| {
                let mut command = bare(&sqlite);
                command.arg(path).arg(format!("PRAGMA synchronous=FULL; {statement}"));
                time(&mut command)
            };
            let insert = |path: &Path| sql(path, INSERT);
            let lanes = [
                lane("enqueue", || {
                    let took = time(&mut agent.enqueue());
                    if count < 100 {
                        agent.take_back();
                    }
                    took
                }),
                lane("sqlite3 insert, WAL", || {
                    let took = insert(&wal);
                    sql(&wal, REMOVE);
                    took
                }),
                lane("sqlite3 insert, rollback journal", || {
                    let took = insert(&rollback);
                    sql(&rollback, REMOVE);
                    took
                }),
            ];
            let [enqueue, others @ ..] = race(self.rounds / 2, lanes);
            self.beside(enqueue, size, &others, |_| Target::None);

            let dequeue = |path: &Path| {
                insert(path);
                sql(path, DEQUEUE)
            };
            let mut turn = bare(program("true"));
            let turn = std::cell::RefCell::new(&mut turn);
            // Like a step, which deletes a message after its turn, this deletes the row last.
            let work = |path: &Path| {
                insert(path);
                sql(path, CLAIM) + time(&mut turn.borrow_mut()) + sql(path, DEQUEUE)
            };
            let lanes: [Lane<'_>; 5] = [
                lane("a step", || {
                    agent.fill(1);
                    time(&mut agent.tick())
                }),
                lane("sqlite3 dequeue, WAL", || dequeue(&wal)),
                lane("sqlite3 dequeue, rollback journal", || dequeue(&rollback)),
                lane("sqlite3 claim, `true`, sqlite3 dequeue, WAL", || work(&wal)),
                lane("sqlite3 claim, `true`, sqlite3 dequeue, rollback journal", || work(&rollback)),
            ];
            let [step, others @ ..] = race(self.rounds / 2, lanes);
            let of = |name: &str| {
                if name.starts_with("sqlite3 dequeue") { Target::AtMost(1.0) } else { Target::None }
            };
            self.beside(step, size, &others, of);
        }
    }

    fn beside(&mut self, mut times: Times, size: &str, others: &[Times], target: impl Fn(&str) -> Target) {
        times.name = format!("{}, queued: {size}", times.name);
        for other in others {
            self.table.ratio(7, &times, other, target(&other.name));
        }
    }

    /// Compares agents with long and short histories (performance target 4).
    fn history(&mut self) {
        if !self.wanted(&[4]) {
            return;
        }
        let store = self.world.store("history");
        let [fresh, aged] = ["fresh", "aged"].map(|name| store.agent(name));
        for agent in [&fresh, &aged] {
            agent.fill(1);
            agent.settle();
        }
        aged.invent_history(self.many);
        self.world.rest();
        let lanes = [
            lane("enqueue, processed: many", || time(&mut aged.enqueue())),
            lane("enqueue, processed: 1", || time(&mut fresh.enqueue())),
        ];
        let [after, before] = race(self.rounds, lanes);
        self.table.ratio(4, &after, &before, Target::AtMost(FLAT));
        for agent in [&fresh, &aged] {
            agent.empty_inbox();
        }
        let step = |agent: &Agent<'_>| {
            agent.fill(1);
            time(&mut agent.tick())
        };
        let lanes =
            [lane("a step, processed: many", || step(&aged)), lane("a step, processed: 1", || step(&fresh))];
        let [after, before] = race(self.rounds / 2, lanes);
        self.table.ratio(4, &after, &before, Target::AtMost(FLAT));
        aged.fill(1);
        self.memory(&format!("a step, processed: {}", self.many), &aged.tick());
    }

    /// Measures the CPU time of `tick --all` for each sleeping agent (performance target 5).
    fn many_agents(&mut self) {
        if !self.wanted(&[5]) {
            return;
        }
        let store = self.world.store("agents");
        let agent = store.agent("original");
        store.copies(&agent, self.agents - 1);
        self.world.rest();
        let command = store.dormouse(&["tick", "--all"]);
        let runs: Vec<_> = (0..7).map(|_| measure(&self.world.floor, &command, None)).collect();
        let mut cpu: Vec<Duration> = runs.iter().map(|run| run.cpu).collect();
        cpu.sort_unstable();
        let each = cpu[cpu.len() / 2].as_secs_f64() * 1e6 / self.agents as f64;
        let what = format!("`tick --all` over {} sleeping agents, CPU each", self.agents);
        self.table.figure(5, &what, each, "us", Target::AtMost(30.0));
        self.resident(&format!("`tick --all` over {}", self.agents), runs[0].max_resident_kib);
        self.memory(&format!("`list` of {} (a large set)", self.agents), &store.dormouse(&["list"]));
    }

    /// Compares a step with only the file operations that a step needs (performance target 6).
    fn whole_step(&mut self) {
        if !self.wanted(&[6]) {
            return;
        }
        let store = self.world.store("step");
        let agent = store.agent("a");
        agent.fill(1);
        agent.settle();
        agent.fill(1);
        let message = std::fs::read_to_string(agent.message()).expect("a message");
        let floor = self.world.path("step-floor");
        for dir in ["tmp", "inbox"] {
            std::fs::create_dir_all(floor.join(dir)).expect("a directory");
        }
        for path in [store.root().join("dormouse.toml"), agent.path("agent.toml"), agent.path("state.json")] {
            std::fs::copy(&path, floor.join(path.file_name().expect("a name"))).expect("a copy");
        }
        let [staged, arrived] = ["tmp/message.json", "inbox/message.json"].map(|name| floor.join(name));
        let mut arrival = self.world.floor("store");
        arrival.arg(staged).arg(&arrived).arg(message);
        let mut command = self.world.floor("step");
        command.arg(&floor).arg(&arrived).arg(program("true"));
        let lanes = [
            lane("a step", || {
                agent.fill(1);
                time(&mut agent.tick())
            }),
            lane("the least, with `true`", || {
                time(&mut arrival);
                time(&mut command)
            }),
        ];
        let [step, floor] = race(self.rounds, lanes);
        self.table.ratio(6, &step, &floor, Target::AtMost(1.25));
        agent.settle();
        agent.fill(1);
        self.memory("a step", &agent.tick());
    }

    /// Compares each of 20 steps in one process with an empty program (performance target 12).
    fn steps_together(&mut self) {
        if !self.wanted(&[12]) {
            return;
        }
        const TOGETHER: usize = 20;
        let store = self.world.store("together");
        let agent = store.agent("a");
        let lanes = [
            lane("a step of 20 in one process", || {
                agent.fill(TOGETHER);
                time(&mut store.dormouse(&["tick", "--until-idle", "a"])) / TOGETHER as u32
            }),
            same("a program that does nothing", self.world.floor("nothing")),
        ];
        let [step, nothing] = race(self.rounds / 10, lanes);
        self.table.ratio(12, &step, &nothing, Target::AtMost(2.0));
    }

    /// Measures files and disk space that each settled turn leaves (performance target 13).
    fn left_behind(&mut self) {
        if !self.wanted(&[13]) {
            return;
        }
        let store = self.world.store("left");
        let agent = store.agent("a");
        agent.fill(1);
        agent.settle();
        let (files, bytes) = agent.takes();
        let turns = self.rounds;
        agent.fill(turns);
        agent.settle();
        let (files_after, bytes_after) = agent.takes();
        let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / turns as f64;
        let kib = each(bytes, bytes_after) / 1024.0;
        self.table.figure(13, "on the disk for each settled turn", kib, "KiB", Target::AtMost(4.0));
        self.table.figure(
            13,
            "files for each settled turn",
            each(files, files_after),
            "",
            Target::AtMost(1.2),
        );
    }

    /// Compares `enqueue --batch` with writing as many plain files (performance target 14).
    fn batches(&mut self) {
        if !self.wanted(&[14]) {
            return;
        }
        const LINES: usize = 20_000;
        let store = self.world.store("batches");
        let lines = batch(&self.world, LINES);
        let sample = store.agent("sample");
        sample.fill(1);
        let bytes = std::fs::read_to_string(sample.message()).expect("a message");
        let number = std::cell::Cell::new(0);
        let next = |kind: &str| {
            number.set(number.get() + 1);
            format!("{kind}-{}", number.get())
        };
        let lanes = [
            lane("`enqueue --batch` of 20,000", || {
                let agent = store.agent(&next("batch"));
                self.world.rest();
                let mut command = store.dormouse(&["enqueue", &agent.name, "--batch"]);
                command.stdin(std::fs::File::open(&lines).expect("the lines"));
                time(&mut command)
            }),
            lane("20,000 plain files", || {
                let dir = self.world.path(&next("files"));
                std::fs::create_dir(&dir).expect("a directory");
                self.world.rest();
                let mut command = self.world.floor("files");
                time(command.arg(dir).arg(LINES.to_string()).arg(&bytes))
            }),
        ];
        let [batch, files] = race(7, lanes);
        self.table.ratio(14, &batch, &files, Target::AtMost(1.5));
    }

    /// Compares the start of dormouse with an empty program (performance target 9).
    fn start_up(&mut self) {
        if !self.wanted(&[9]) {
            return;
        }
        let mut version = bare(env!("CARGO_BIN_EXE_dormouse"));
        version.arg("--version");
        let lanes =
            [same("`--version`", version), same("a program that does nothing", self.world.floor("nothing"))];
        let [version, nothing] = race(self.rounds * 2, lanes);
        self.table.ratio(9, &version, &nothing, Target::None);
        let extra = version.median().saturating_sub(nothing.median()).as_secs_f64() * 1e6;
        self.table.figure(9, "`--version` beyond that", extra, "us", Target::None);
    }

    /// Compares agents with many and with few open or ended records (performance target 10).
    fn open_records(&mut self) {
        if !self.wanted(&[10]) {
            return;
        }
        let store = self.world.store("records");
        let [few, open, ended] = ["few", "open", "ended"].map(|name| store.agent(name));
        few.open(10);
        open.open(self.open);
        ended.open(10);
        ended.invent_past(self.many);
        self.world.rest();
        let item = |agent: &Agent<'_>| {
            let path = world::entries(&agent.path("work")).into_iter().max().expect("an item");
            path.file_stem().expect("an id").to_string_lossy().into_owned()
        };
        let add = |agent: &Agent<'_>, args: &[&str], dir: &str| {
            let took = time(&mut store.dormouse(&[&["-q"], args, &["-a", &agent.name]].concat()));
            agent.take_last(dir);
            took
        };
        type Once<'a> = &'a dyn Fn(&Agent<'_>) -> Duration;
        let cases: [(&str, Target, Once<'_>); 9] = [
            ("idle `tick`", Target::AtMost(FLAT), &|agent| time(&mut agent.tick())),
            ("`get`", Target::None, &|agent| time(&mut store.dormouse(&["get", &agent.name]))),
            ("`enqueue`", Target::AtMost(FLAT), &|agent| {
                let took = time(&mut agent.enqueue());
                agent.take_back();
                took
            }),
            ("a step that takes note of a message", Target::None, &|agent| {
                store.must(&["enqueue", &agent.name, " ", "--allow-empty", "--origin", "webhook"]);
                time(&mut agent.tick())
            }),
            ("a step with a turn", Target::AtMost(1.5), &|agent| {
                agent.fill(1);
                time(&mut agent.tick())
            }),
            ("`work add`", Target::None, &|agent| add(agent, &["work", "add", "more"], "work")),
            ("`wait`", Target::None, &|agent| {
                let item = item(agent);
                let args = ["--on", "external", "--reason", "why", "--recheck", "300d", "--work-item", &item];
                time(&mut store.dormouse(&[&["wait", "-a", &agent.name], &args[..]].concat()))
            }),
            ("`timer add`", Target::None, &|agent| {
                add(agent, &["timer", "add", "--in", "300d", "x"], "timers")
            }),
            ("`next-wake`", Target::None, &|agent| time(&mut store.dormouse(&["next-wake", &agent.name]))),
        ];
        for (name, target, once) in cases {
            let lanes = [
                lane(&format!("{name}, {} open", self.open), || once(&open)),
                lane(&format!("{name}, {} ended", self.many), || once(&ended)),
                lane(&format!("{name}, 10 open"), || once(&few)),
            ];
            let [open, ended, few] = race(self.rounds / 4, lanes);
            self.table.ratio(10, &open, &few, target);
            self.table.ratio(10, &ended, &few, Target::AtMost(FLAT));
        }
        open.fill(1);
        self.memory(&format!("a step with {} open", self.open), &open.tick());
    }

    /// Compares commands that read few records with an empty program (performance target 11).
    fn planes(&mut self) {
        if !self.wanted(&[11]) {
            return;
        }
        let store = self.world.store("planes");
        let agent = store.agent("a");
        agent.open(3);
        let mut cases = Vec::new();
        for plane in ["work", "wait", "timer", "task", "queue", "run"] {
            cases.push((format!("`{plane} list`"), store.dormouse(&[plane, "list", "-a", "a"])));
        }
        for command in ["next-wake", "explain", "state", "briefs", "events"] {
            cases.push((format!("`{command}`"), store.dormouse(&[command, "a"])));
        }
        for (name, command) in cases {
            let lanes =
                [same(&name, command), same("a program that does nothing", self.world.floor("nothing"))];
            let [ours, nothing] = race(self.rounds / 2, lanes);
            self.table.ratio(11, &ours, &nothing, Target::AtMost(2.0));
        }
    }

    /// Compares shell completion of an agent's name with listing agents (performance target 15).
    fn at_a_key(&mut self) {
        if !self.wanted(&[15]) {
            return;
        }
        let store = self.world.store("key");
        let agents = store.root().join("agents");
        // Completion reads only the names of agents, so these directories need no files.
        for number in 0..self.agents {
            std::fs::create_dir(agents.join(format!("agent-{number:05}"))).expect("a directory");
        }
        let mut listing = self.world.floor("read");
        listing.arg(store.root().join("dormouse.toml")).arg(store.root().join("agents/"));
        let asked = |typed: &str| {
            let mut key = bare(env!("CARGO_BIN_EXE_dormouse"));
            key.env("DORMOUSE_COMPLETE", "fish").args(["--", "dormouse", "-C"]).arg(store.root());
            key.args(["tick", typed]);
            key
        };
        let some = "completing a name, a hundredth of the agents fits";
        let lanes = [
            same("completing a name", asked("")),
            same(some, asked("agent-001")),
            same("listing them", listing),
        ];
        let [all, some, listing] = race(self.rounds, lanes);
        self.table.ratio(15, &all, &listing, Target::None);
        self.table.ratio(15, &some, &listing, Target::None);
        let what = format!("completing a name, {} agents", self.agents);
        self.table.figure(15, &what, all.median().as_secs_f64() * 1e3, "ms", Target::AtMost(10.0));
    }

    fn memory(&mut self, what: &str, command: &Command) {
        let used = measure(&self.world.floor, command, None);
        self.resident(what, used.max_resident_kib);
    }

    fn resident(&mut self, what: &str, kib: u64) {
        let target = if what.contains("large set") { Target::None } else { MEMORY };
        self.table.figure(8, &format!("memory: {what}"), kib as f64 / 1024.0, "MiB", target);
    }
}
