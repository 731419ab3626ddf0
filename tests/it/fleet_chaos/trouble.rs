//! Chaos test of a fleet: machines follow the same agents while machines and the server are paused,
//! cut off and killed. The seed determines the kinds and targets of the troubles, but not their
//! times.

use std::fs::File;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::host::{Fleet, Host};
use super::judge::{Evidence, Sign};
use super::net::Line;
use crate::setup::{eventually, split_mix};

pub const AGENTS: &[&str] = &["ada", "bob", "eve", "fay", "gus"];

/// Fault that the test causes for a machine or for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// All processes of the machine are paused.
    Paused,
    /// The ticks are paused, but not the turns.
    StepsPaused,
    CutOff,
    /// The server gets the packets of the machine, but the machine gets no answers.
    Deaf,
    /// The connections break, and new ones are possible at once.
    Broken,
    StepsKilled,
    TurnsKilled,
    AllKilled,
    ServerKilled,
}

const TROUBLES: &[Trouble] = &[
    Trouble::Paused,
    Trouble::Paused,
    Trouble::StepsPaused,
    Trouble::StepsPaused,
    Trouble::CutOff,
    Trouble::CutOff,
    Trouble::Deaf,
    Trouble::Broken,
    Trouble::StepsKilled,
    Trouble::TurnsKilled,
    Trouble::AllKilled,
    Trouble::ServerKilled,
];

/// Errors of the machines' clocks, in seconds.
pub const CLOCKS: &[i64] = &[0, 0, 4, -4];

/// Random numbers: the same for the same seed.
struct Luck(u64);

impl Luck {
    fn below(&mut self, end: u64) -> u64 {
        split_mix(&mut self.0) % end
    }
}

/// Result of a chaos test.
pub struct Survived {
    pub evidence: Evidence,
    pub troubles: usize,
    /// Number of times that the leases of a machine were expired, as if it were dead.
    pub taken_over: usize,
    /// Time until all work was completed.
    pub calm: Duration,
}

struct World<'f> {
    fleet: &'f Fleet<'f>,
    /// True after the last trouble, so that the threads that send messages end.
    is_calm: AtomicBool,
    /// True when the threads that keep `tick` running on the machines must end.
    is_over: AtomicBool,
    /// Held for reading by a thread that needs the server to be up.
    server: RwLock<()>,
    acknowledged: Mutex<Vec<String>>,
    troubles: AtomicUsize,
    taken_over: AtomicUsize,
}

/// Causes faults for the time `lasts`, and then waits until all work is completed.
pub fn survive(fleet: &Fleet<'_>, lasts: Duration, seed: u64) -> Survived {
    let world = World {
        fleet,
        is_calm: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        server: RwLock::new(()),
        acknowledged: Mutex::default(),
        troubles: AtomicUsize::new(0),
        taken_over: AtomicUsize::new(0),
    };
    let calming = OnceLock::new();
    thread::scope(|scope| {
        let world = &world;
        // Dropping this value ends the threads, even if this function panics.
        let _end = End(world);
        let following: Vec<_> =
            fleet.hosts.iter().map(|host| scope.spawn(move || world.follow(host))).collect();
        let mut luck = Luck(seed);
        let mut saying = Vec::new();
        for host in &fleet.hosts {
            let luck = Luck(luck.below(u64::MAX));
            saying.push(scope.spawn(move || world.say(host, luck)));
        }
        let until = Instant::now() + lasts;
        thread::scope(|scope| {
            for host in &fleet.hosts {
                let mut luck = Luck(luck.below(u64::MAX));
                scope.spawn(move || {
                    while Instant::now() < until {
                        world.trouble(host, &mut luck);
                    }
                });
            }
        });
        calming.set(Instant::now()).unwrap();
        world.is_calm.store(true, Ordering::SeqCst);
        saying.into_iter().for_each(|thread| thread.join().unwrap());
        world.calm();
        world.is_over.store(true, Ordering::SeqCst);
        following.into_iter().for_each(|thread| thread.join().unwrap());
        world.probe();
    });
    Survived {
        evidence: fleet.evidence(world.acknowledged.into_inner().unwrap()),
        troubles: world.troubles.into_inner(),
        taken_over: world.taken_over.into_inner(),
        calm: calming.get().map_or(Duration::ZERO, Instant::elapsed),
    }
}

/// Ends the threads of [`survive`] when dropped, also during a panic.
struct End<'w>(&'w World<'w>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_calm.store(true, Ordering::SeqCst);
        self.0.is_over.store(true, Ordering::SeqCst);
        for host in &self.0.fleet.hosts {
            host.set_line(Line::Whole);
            host.thaw();
        }
    }
}

impl World<'_> {
    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    /// Runs `tick --follow` on a machine, and starts it again when it ends, as a service manager
    /// does. A machine with a wrong clock runs `--until-idle` repeatedly instead, because the clock
    /// of a command is set to a fixed time.
    fn follow(&self, host: &Host) {
        let how = if host.is_wrong() { "--until-idle" } else { "--follow" };
        while !self.is_over.load(Ordering::SeqCst) {
            if host.is_frozen() {
                pause(10);
                continue;
            }
            let mut follower = self.start(host, &["tick", "--all", how]);
            while follower.try_wait().unwrap().is_none() {
                if self.is_over.load(Ordering::SeqCst) {
                    let _ = kill_process(Pid::from_child(&follower), Signal::TERM);
                }
                pause(20);
            }
            pause(100);
        }
    }

    fn start(&self, host: &Host, args: &[&str]) -> Child {
        let talk = File::options().create(true).append(true).open(&host.talk).unwrap();
        let mut command = host.by_its_clock(args).into_command();
        command.stdin(std::process::Stdio::null()).stdout(talk.try_clone().unwrap()).stderr(talk);
        command.spawn().unwrap()
    }

    /// Sends messages to the agents from a machine.
    fn say(&self, host: &Host, mut luck: Luck) {
        while !self.is_calm() {
            pause(300 + luck.below(1500));
            if host.is_frozen() {
                continue;
            }
            let agent = AGENTS[luck.below(AGENTS.len() as u64) as usize];
            // A quarter of the turns are so long that another machine may take them over.
            let lasts = if luck.below(4) == 0 { 20 + luck.below(20) } else { luck.below(4) };
            let text = format!("{lasts} tenths");
            let ran = host.by_its_clock(&["enqueue", agent, &text]).output();
            if ran.status.success() {
                self.acknowledged.lock().unwrap().push(ran.stdout.trim_end().to_owned());
            }
        }
    }

    /// Causes a random fault for a machine or the server, and returns when the fault is over.
    fn trouble(&self, host: &Host, luck: &mut Luck) {
        pause(500 + luck.below(2500));
        let what = TROUBLES[luck.below(TROUBLES.len() as u64) as usize];
        let (is_long, lasts) = (luck.below(4) > 0, 500 + luck.below(3000));
        self.troubles.fetch_add(1, Ordering::SeqCst);
        match what {
            Trouble::Paused => host.freeze(""),
            Trouble::StepsPaused => host.freeze("tick"),
            Trouble::CutOff => host.set_line(Line::Cut),
            Trouble::Deaf => host.set_line(Line::Mute),
            Trouble::Broken => return host.break_line(),
            Trouble::StepsKilled => host.send(Signal::KILL, "tick"),
            Trouble::TurnsKilled => return host.send(Signal::KILL, "/turn"),
            Trouble::AllKilled => host.send(Signal::KILL, ""),
            Trouble::ServerKilled => {
                let _nobody_asks = self.server.write().unwrap();
                return self.fleet.server.crash();
            }
        }
        if is_long {
            self.take_for_dead(host);
        }
        pause(lasts);
        host.thaw();
        host.set_line(Line::Whole);
    }

    /// Expires the leases of a machine.
    fn take_for_dead(&self, host: &Host) {
        let _it_is_there = self.server.read().unwrap();
        if self.fleet.outlast(host) > 0 {
            self.taken_over.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until all messages have ended.
    fn calm(&self) {
        let mut looks = 0;
        eventually("calm", || {
            looks += 1;
            // Killed processes can't release their leases, so the test expires such leases.
            if looks % 100 == 0 {
                self.fleet.outlast_idle();
            }
            self.fleet.is_at_rest().then_some(())
        });
    }

    /// Checks that each agent answers a message with a turn. A leftover lease is expired first.
    fn probe(&self) {
        let host = &self.fleet.hosts[0];
        for agent in AGENTS {
            let id = host.run(&["enqueue", agent, "0 tenths"]).trim_end().to_owned();
            eventually("a sign of life", || {
                self.fleet.outlast_idle();
                let ran = host.cmd(&["tick", agent, "--until-idle", "-q"]).output();
                assert!(ran.status.success(), "{ran}");
                let log = self.fleet.log();
                log.iter().any(|line| line.message == id && line.sign == Sign::End).then_some(())
            });
            self.acknowledged.lock().unwrap().push(id);
        }
    }
}

/// Sleeps for `ms` milliseconds.
fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}
