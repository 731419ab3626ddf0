//! Fuzz tests. With any state directory and any command line, a command ends with a documented exit
//! status, in limited time and memory, changes no file outside, and overwrites no file that it
//! can't read. `cargo test` tries a fixed number of cases, and ten times as many if `CI` is set.
//! `DORMOUSE_FUZZ=200000` tries that many cases, `DORMOUSE_FUZZ=3h` tries cases for that time,
//! `DORMOUSE_FUZZ_SEED=7` draws other cases, and `DORMOUSE_FUZZ_CASE=1234` repeats one case.

mod chance;
mod commands;
mod estate;
mod judge;
mod misplace;
mod mutate;
mod records;
mod rows;
mod run;
mod streams;
mod tree;
mod vectors;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::copy_of_dormouse;
use commands::Documented;
use estate::{Copy, Estate};
use run::{Line, Place, Ran};

/// Number of different failures after which a worker stops.
const FAILURES: usize = 12;
/// Maximum number of failures of one kind that are printed.
const ALIKE: usize = 1;
/// User id of the commands if the tests run as root. No account has this number, and file
/// permissions apply to it.
const NOBODY: u32 = 61_737;

/// Kind of input that a fuzz run mutates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Records,
    Vectors,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Subject::Records => "records",
            Subject::Vectors => "vectors",
        }
    }
}

/// Length of a fuzz run.
#[derive(Debug, Clone, Copy)]
enum Amount {
    Cases(u64),
    For(Duration),
}

#[test]
fn commands_handle_mutated_records_as_documented() {
    fuzz(Subject::Records, 4_500);
}

#[test]
fn any_command_line_ends_as_documented() {
    fuzz(Subject::Vectors, 2_000);
}

fn asked(name: &str) -> Option<String> {
    std::env::var(format!("DORMOUSE_{name}")).ok().filter(|value| !value.is_empty())
}

fn amount(usual: u64) -> Amount {
    let Some(asked) = asked("FUZZ") else {
        return Amount::Cases(if std::env::var_os("CI").is_some() { usual } else { usual / 10 });
    };
    let cases = asked.parse().map(Amount::Cases);
    cases.unwrap_or_else(|_| {
        Amount::For(humantime::parse_duration(&asked).expect("DORMOUSE_FUZZ is a number, or a duration"))
    })
}

/// Runs the cases in worker processes of this test binary. A worker is small, so the memory of a
/// command can be told from the memory of the worker, and a worker is the parent of the processes
/// that its commands leave behind.
fn fuzz(subject: Subject, usual: u64) {
    if asked("FUZZ_WORKER").is_some() {
        return;
    }
    let dir = scratch(subject);
    let estate = Estate::make();
    let program = dir.join("dormouse");
    copy_of_dormouse(&program);
    let program = if runs(&program) { program } else { elsewhere(subject) };
    let workers =
        if asked("FUZZ_CASE").is_some() { 1 } else { asked("FUZZ_JOBS").map_or(2, |n| n.parse().unwrap()) };
    let seed = asked("FUZZ_SEED").map_or(1, |seed| seed.parse().expect("DORMOUSE_FUZZ_SEED is a number"));
    let began = Instant::now();
    let children: Vec<_> = (0..workers)
        .map(|number| {
            let order = json!({
                "subject": subject.name(), "number": number, "of": workers, "seed": seed, "usual": usual,
                "dir": dir, "estate": estate.root, "program": program,
            });
            Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "fuzz::a_worker_process_runs_its_share_of_the_cases",
                    "--nocapture",
                    "--test-threads=1",
                ])
                .env("DORMOUSE_FUZZ_WORKER", order.to_string())
                .env("RUST_BACKTRACE", "0")
                .stdin(Stdio::null())
                .stdout(fs::File::create(dir.join(format!("worker-{number}.log"))).unwrap())
                .stderr(fs::File::create(dir.join(format!("worker-{number}.err"))).unwrap())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut is_good = true;
    for (number, mut child) in children.into_iter().enumerate() {
        let status = child.wait().unwrap();
        is_good &= status.success();
        for ending in ["log", "err"] {
            let said = fs::read_to_string(dir.join(format!("worker-{number}.{ending}"))).unwrap_or_default();
            let harness = [
                "running 1 test",
                "test fuzz::",
                "test result:",
                "failures:",
                "note: run with",
                "successes:",
            ];
            let own =
                said.lines().filter(|line| !harness.iter().any(|word| line.trim_start().starts_with(word)));
            own.filter(|line| !line.is_empty()).for_each(|line| println!("{line}"));
        }
    }
    println!("{}: seed {seed}, {:.0?}", subject.name(), began.elapsed());
    report(subject, &dir, workers);
    assert!(is_good, "what went wrong stands above; it is kept in {}", dir.display());
    fs::remove_dir_all(&dir).unwrap();
    if !program.starts_with(&dir) {
        fs::remove_dir_all(program.parent().unwrap()).unwrap();
    }
}

/// Creates the directory of a fuzz run, in memory if `/dev/shm` exists.
fn scratch(subject: Subject) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::Builder::new().prefix(&format!("dormouse-fuzz-{}-", subject.name())).tempdir_in(base);
    let dir = dir.unwrap().keep();
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    dir
}

/// True if this copy of the program can run; false if its file system is mounted `noexec`.
fn runs(program: &Path) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Copies the program to a directory of its own, where every user may run it. Returns its path.
fn elsewhere(subject: Subject) -> PathBuf {
    let dir = tempfile::Builder::new()
        .prefix(&format!("dormouse-fuzz-{}-", subject.name()))
        .tempdir()
        .unwrap()
        .keep();
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    copy_of_dormouse(&dir.join("dormouse"));
    dir.join("dormouse")
}

/// Prints the counts of the workers: a line for each kind of file, or for each command.
fn report(subject: Subject, dir: &Path, workers: usize) {
    let mut counts: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let (mut cases, mut commands, mut peak) = (0, 0, 0);
    for number in 0..workers {
        let Ok(bytes) = fs::read(dir.join(format!("worker-{number}.tally"))) else { continue };
        let tally: Value = serde_json::from_slice(&bytes).unwrap();
        cases += tally["cases"].as_u64().unwrap();
        commands += tally["commands"].as_u64().unwrap();
        peak = peak.max(tally["peak_kib"].as_u64().unwrap());
        for entry in tally["counts"].as_array().unwrap() {
            let word = |at: usize| entry[at].as_str().unwrap().to_owned();
            *counts.entry(word(0)).or_default().entry(word(1)).or_default() += entry[2].as_u64().unwrap();
        }
    }
    println!("{}: {cases} cases, {commands} commands, {peak} KiB at most", subject.name());
    for (name, of) in counts {
        let (least, all) = (of.values().min().unwrap_or(&0), of.values().sum::<u64>());
        println!("{name:24} {all:7} cases with {:3} others, each at least {least} times", of.len());
    }
}

/// Process that runs the cases of a fuzz run.
pub struct Worker {
    seed: u64,
    root: PathBuf,
    copy: Copy,
    place: Place,
    documented: Documented,
    run_of_kim: String,
    failures: BTreeMap<String, usize>,
    kept: PathBuf,
}

impl Worker {
    /// Returns the environment of every command.
    fn env(&self) -> Vec<(String, OsString)> {
        vec![
            ("PATH".to_owned(), self.root.join("bin").into()),
            ("HOME".to_owned(), self.root.join("home").into()),
            ("TZ".to_owned(), "UTC".into()),
        ]
    }
}

/// Fuzz case in which a command has broken a rule.
pub struct Failure {
    told: String,
    /// Text that is equal for failures of one kind.
    signature: String,
}

impl Failure {
    /// Describes a failed case, and keeps a copy of the directory, which must be as it was when the
    /// command began. `what` describes the mutation.
    fn new(
        worker: &mut Worker,
        line: &Line,
        what: &str,
        wrong: &[String],
        ran: &Ran,
        template: &str,
    ) -> Failure {
        let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_alphabetic() || ",:-".contains(c));
        let kinds = wrong.iter().map(|wrong| wrong.split(' ').filter(is_word).collect::<Vec<_>>().join(" "));
        let command = template.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let signature = format!("{command}: {}", kinds.collect::<Vec<_>>().join("; "));
        let seen = worker.failures.entry(signature.clone()).or_default();
        *seen += 1;
        let kept = if *seen <= ALIKE {
            let kept = worker.kept.join(format!("failure-{}", worker.failures.len()));
            let copied = Command::new("cp").arg("-a").arg(&worker.root).arg(&kept).status();
            assert!(copied.is_ok_and(|status| status.success()), "cp -a {}", worker.root.display());
            kept
        } else {
            worker.root.clone()
        };
        let shown = line.shown(&worker.place.program);
        let shown = shown.replace(&worker.root.display().to_string(), &kept.display().to_string());
        let cut = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2_000)]).into_owned();
        let told = format!(
            "{what}\n  {}\n  reproduce: {}\n  {}\n  stdout: {:?}\n  stderr: {:?}",
            wrong.join("\n  "),
            if shown.len() < 4_000 {
                shown
            } else {
                format!("{}…", shown.chars().take(4_000).collect::<String>())
            },
            ran.status,
            cut(&ran.stdout),
            cut(&ran.stderr),
        );
        Failure { told, signature }
    }
}

/// Runs a worker process, which the tests above start. Without their environment variable the test
/// does nothing.
#[test]
fn a_worker_process_runs_its_share_of_the_cases() {
    let Some(order) = asked("FUZZ_WORKER") else { return };
    let order: Value = serde_json::from_str(&order).unwrap();
    let text = |field: &str| PathBuf::from(order[field].as_str().unwrap());
    let number = |field: &str| order[field].as_u64().unwrap();
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).unwrap();
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    let me = number("number");
    let kept = text("dir");
    let root = kept.join(format!("worker-{me}"));
    let owner = rustix::process::geteuid().is_root().then_some(NOBODY);
    let copy = Copy::make(&text("estate"), &root, owner, me);
    let run_of_kim =
        copy.kinds["run/"].iter().find(|path| commands::agent_of(path).as_deref() == Some("kim"));
    let run_of_kim = run_of_kim.unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let mut worker = Worker {
        seed: number("seed"),
        place: Place {
            program: text("program"),
            owner,
            streams: kept.join(format!("streams-{me}")),
            commands: Cell::default(),
            peak_kib: Cell::default(),
        },
        documented: Documented::read(),
        failures: BTreeMap::new(),
        run_of_kim,
        root,
        copy,
        kept,
    };
    let is_records = order["subject"] == "records";
    let grammar = if is_records { Vec::new() } else { vectors::grammar(&mut worker) };
    let mut counts = records::Coverage::new();
    let mut pairs = records::Pairs::default();
    let began = Instant::now();
    let parent = rustix::process::getppid();
    let only = asked("FUZZ_CASE").map(|case| case.parse::<u64>().expect("DORMOUSE_FUZZ_CASE is a number"));
    let mut case = only.unwrap_or(me);
    let mut cases = 0;
    loop {
        let goes_on = match (only, amount(number("usual"))) {
            (Some(_), _) => cases == 0,
            (None, Amount::Cases(all)) => case < all,
            (None, Amount::For(time)) => began.elapsed() < time,
        };
        // A worker whose interrupted parent has ended has another parent, and must end too.
        let is_alone = rustix::process::getppid() != parent;
        if !goes_on || is_alone || worker.failures.len() >= FAILURES {
            break;
        }
        let failed = if is_records {
            records::case(&mut worker, &mut pairs, case, &mut counts)
        } else {
            vectors::case(&mut worker, &grammar, case, &mut counts)
        };
        cases += 1;
        if let Some(Failure { told, signature }) = failed
            && worker.failures[&signature] <= ALIKE
        {
            println!("\nDORMOUSE_FUZZ_SEED={} DORMOUSE_FUZZ_CASE={case}: {told}", worker.seed);
        }
        case += number("of");
    }
    let counts: Vec<Value> = counts.iter().map(|((one, other), times)| json!([one, other, times])).collect();
    let peak = worker.place.peak_kib.get();
    let tally = json!({ "cases": cases, "commands": worker.place.commands.get(), "peak_kib": peak, "counts": counts });
    fs::write(worker.kept.join(format!("worker-{me}.tally")), tally.to_string()).unwrap();
    for (signature, times) in &worker.failures {
        println!("{times} times: {signature}");
    }
    assert!(worker.failures.is_empty());
    let Worker { copy, root, .. } = worker;
    drop(copy);
    fs::remove_dir_all(root).unwrap();
}
