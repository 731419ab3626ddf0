//! Alternating runs of the sides of a comparison, and the medians and minima of their durations.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Side of a comparison. `once` makes one run, and returns its duration without its preparation.
pub struct Lane<'a> {
    pub name: String,
    pub once: Box<dyn FnMut() -> Duration + 'a>,
}

pub fn lane<'a>(name: &str, once: impl FnMut() -> Duration + 'a) -> Lane<'a> {
    Lane { name: name.to_owned(), once: Box::new(once) }
}

/// Returns a side of a comparison whose runs start the command without an untimed preparation.
pub fn same<'a>(name: &str, mut command: Command) -> Lane<'a> {
    lane(name, move || time(&mut command))
}

pub struct Times {
    pub name: String,
    sorted: Vec<Duration>,
}

impl Times {
    pub fn median(&self) -> Duration {
        self.sorted[self.sorted.len() / 2]
    }

    pub fn min(&self) -> Duration {
        self.sorted[0]
    }
}

/// Runs the sides of a comparison alternately. Each round starts with another side, so that no side
/// always runs first, and other load of the machine disturbs all sides alike.
pub fn race<const N: usize>(rounds: usize, mut lanes: [Lane<'_>; N]) -> [Times; N] {
    let mut times = vec![Vec::with_capacity(rounds); N];
    for round in 0..rounds + rounds / 20 + 1 {
        for at in 0..N {
            let at = (at + round) % N;
            let took = (lanes[at].once)();
            // The first rounds only warm the caches, so their durations are dropped.
            if round > rounds / 20 {
                times[at].push(took);
            }
        }
    }
    let mut times = times.into_iter();
    lanes.map(|lane| {
        let mut sorted = times.next().unwrap_or_default();
        sorted.sort_unstable();
        Times { name: lane.name, sorted }
    })
}

/// Runs the command. Returns the time from before the start of the process to after its end.
pub fn time(command: &mut Command) -> Duration {
    command.stdout(Stdio::null());
    let started = Instant::now();
    let status = command.status().expect("the command starts");
    let took = started.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    took
}

/// Resources that one run of a command used.
pub struct Usage {
    pub took: Duration,
    pub max_resident_kib: u64,
    pub cpu: Duration,
}

/// Runs a command as a child of benches/floor, whose start-up time counts in [`Usage::took`].
pub fn measure(floor: &Path, command: &Command, input: Option<&Path>) -> Usage {
    let mut measured = bare(floor);
    measured.arg("measure").arg(command.get_program()).args(command.get_args());
    measured.stdin(input.map_or(Stdio::null(), |path| File::open(path).expect("the input").into()));
    measured.stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let output = measured.spawn().and_then(|child| child.wait_with_output()).expect("it runs");
    let took = started.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    let numbers: Option<Vec<u64>> =
        said.lines().last().and_then(|line| line.split(' ').map(|word| word.parse().ok()).collect());
    match numbers.as_deref() {
        Some([max_resident_kib, user, system]) if output.status.success() => {
            Usage { took, max_resident_kib: *max_resident_kib, cpu: Duration::from_micros(user + system) }
        }
        _ => panic!("{command:?}: {said}"),
    }
}

/// Returns a command with an empty stdin, and with PATH as the only environment variable.
pub fn bare(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null());
    command
}

/// Returns `one` divided by `other`.
pub fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
