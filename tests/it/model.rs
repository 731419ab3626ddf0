//! Whatever commands an agent gets, and in whatever order, the program does what a small machine says, which
//! was written from the contract alone.
//!
//! A case is a list of acts: commands, jumps of the clock, and ticks whose turns do something of their own.
//! After each act, the test compares everything that can be seen of the agent, and what the next step would
//! decide. A case that fails is made smaller, printed as a shell transcript, and kept in
//! `model.proptest-regressions`, to be run first from then on.

mod acts;
mod compare;
mod database;
mod reference;
mod script;
mod silence;
mod turns;
mod world;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestCaseError, TestError, TestRunner};

use acts::{acts, settings};
use reference::commands::Command;
use reference::hooks::HookBehavior;
use reference::recovery::End;
use world::{Records, Template, World};

/// Something that is done to the agent.
#[derive(Debug, Clone)]
pub enum Act {
    Do(Command),
    /// The clock is set, by so many seconds.
    Pass(i64),
    Tick(Turn),
    /// From now on a hook does this, if there are hooks.
    Hook(&'static str, HookBehavior),
}

/// What a turn does, if the step runs one.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Commands that it calls.
    commands: Vec<Command>,
    /// What it leaves in its outcome file.
    actions: Vec<Command>,
    /// How much it says that it has used.
    tokens: u64,
    end: End,
}

/// In each of the two tests.
const CASES: u32 = 50;

/// Of the cases that everybody runs: whether a change is good must not depend on chance. New ones come
/// with another number in PROPTEST_RNG_SEED.
const SEED: u64 = 20_261_121;

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs as many cases as the environment asks for.
fn run(cases: u32, on_exhausted: &'static str, records: Records) {
    let template = Template::new(on_exhausted, records);
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/model.proptest-regressions");
    let config = ProptestConfig {
        cases: number("PROPTEST_CASES").unwrap_or(cases),
        rng_seed: RngSeed::Fixed(number("PROPTEST_RNG_SEED").unwrap_or(SEED)),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        max_shrink_iters: number("PROPTEST_MAX_SHRINK_ITERS").unwrap_or(2000),
        ..ProptestConfig::default()
    };
    let count = std::cell::Cell::new((0usize, 0usize));
    let result = TestRunner::new(config).run(&(settings(), acts()), |(settings, acts)| {
        let mut world = World::new(&template, settings);
        let done = std::iter::once(&Act::Do(Command::Start))
            .chain(&acts)
            .try_for_each(|act| world.act(act))
            .and_then(|()| world.finish());
        let (cases, commands) = count.get();
        count.set((cases + 1, commands + world.commands));
        done.map_err(|what| TestCaseError::fail(format!("{what}\n{}", world.transcript())))
    });
    let (cases, commands) = count.get();
    println!("{cases} cases, {commands} commands");
    let why = match result {
        Ok(()) => return,
        Err(TestError::Fail(why, _) | TestError::Abort(why)) => why,
    };
    panic!(
        "{why}\nThe case is kept in {kept} and runs first from now on. PROPTEST_CASES=<number> says how many \
         there are, PROPTEST_RNG_SEED=<number> makes them other ones."
    );
}

#[test]
fn the_program_does_what_the_contract_says() {
    needs!("jq");
    run(CASES, "park", Records::Files);
}

#[test]
fn the_program_does_what_the_contract_says_where_the_last_attempt_stops_the_agent() {
    needs!("jq");
    run(CASES, "stop", Records::Files);
}

/// Each case has tables of its own, so there are fewer.
const IN_DATABASE: u32 = 25;

#[test]
fn the_program_does_what_the_contract_says_in_a_database() {
    needs!("jq", "postgresql");
    run(IN_DATABASE, "park", Records::Database);
}
