//! Tests that the program does what a small model of the contract does, for random commands.
//!
//! A case is a list of acts: commands, jumps of the clock, and ticks whose turns call commands.
//! After each act the test compares the agent and the decision of the next step in the program
//! with those in the model. A case that fails is reduced, printed as a shell transcript, and kept
//! in `model.proptest-regressions`. Later runs begin with the cases of that file.

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
use reference::hooks::HookBehaviour;
use reference::recovery::End;
use world::{Records, Template, World};

/// Something that happens to the agent.
#[derive(Debug, Clone)]
pub enum Act {
    Do(Command),
    /// The clock is moved by so many seconds.
    Pass(i64),
    Tick(Turn),
    /// A hook behaves like this from now on, if the case has hooks.
    Hook(&'static str, HookBehaviour),
}

/// A turn, if the step runs one.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Commands that the turn calls.
    commands: Vec<Command>,
    /// Actions in the outcome file of the turn.
    actions: Vec<Command>,
    /// Number of tokens in the outcome file of the turn.
    tokens: u64,
    end: End,
}

/// Number of cases in each test with files.
const CASES: u32 = 30;

/// Number of cases in the test with a database, where each case makes tables of its own.
const CASES_IN_DATABASE: u32 = 15;

/// Seed of the default run: whether a change passes must not depend on chance. Another number in
/// PROPTEST_RNG_SEED makes other cases.
const SEED: u64 = 20_261_121;

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs `cases` cases, or the number in PROPTEST_CASES.
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
        "{why}\nThe case is kept in {kept}, and later runs begin with it. PROPTEST_CASES=<number> sets the \
         number of cases, PROPTEST_RNG_SEED=<number> makes other cases."
    );
}

#[test]
fn the_program_agrees_with_the_model_of_the_contract() {
    needs!("jq");
    run(CASES, "park", Records::Files);
}

#[test]
fn the_program_agrees_with_the_model_if_the_last_attempt_stops_agents() {
    needs!("jq");
    run(CASES, "stop", Records::Files);
}

#[test]
fn the_program_agrees_with_the_model_in_a_database() {
    needs!("jq", "postgresql");
    run(CASES_IN_DATABASE, "park", Records::Database);
}
