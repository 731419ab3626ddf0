//! Whatever is done to an agent, and in whatever order: the program does what a small machine,
//! written from the contract alone, says that it does.
//!
//! A case is a list of acts: commands, jumps of the clock, and ticks whose turns do something of
//! their own. After each act, everything that can be seen of the agent is compared, and what the
//! next step would decide. A case that fails is made smaller, printed as a shell transcript, and
//! kept in `model.proptest-regressions`, to be run first from then on.

mod hooks;
mod limits;
mod preemption;
mod reference;
mod script;
mod world;

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestCaseError, TestError, TestRunner};

use hooks::Does;
use reference::{Command, End, Owner, Schedule, Settings};
use world::{Template, World};

/// Something that is done to the agent.
#[derive(Debug, Clone)]
pub enum Act {
    Do(Command),
    /// The clock is set, by so many seconds.
    Pass(i64),
    Tick(Turn),
    /// From now on a hook does this, if there are hooks.
    Hook(&'static str, Does),
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

fn any_record() -> impl Strategy<Value = usize> {
    0usize..6
}

/// A span in seconds, from a moment to days.
fn span() -> impl Strategy<Value = i64> {
    select(&[1i64, 5, 60, 600, 3600, 90_000][..])
}

fn resource() -> impl Strategy<Value = Option<usize>> {
    weighted(0.4, 0usize..2)
}

fn words(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    select(words)
}

fn schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        2 => span().prop_map(Schedule::Once),
        1 => span().prop_map(|span| Schedule::Once(-span)),
        2 => select(&[1i64, 7, 60, 3600, 86_400][..]).prop_map(Schedule::Every),
        2 => select(&[0u32, 4, 9, 23][..]).prop_map(Schedule::Daily),
    ]
}

fn work() -> impl Strategy<Value = Command> {
    let plan_status = words(&["draft", "ready", "needs_input"]);
    prop_oneof![
        4 => (any::<bool>(), weighted(0.15, Just(())), weighted(0.3, Just(())), of(span())).prop_map(
            |(pick, asks, blocked, recheck)| Command::WorkAdd {
                pick, needs_input: asks.is_some(), blocked: blocked.is_some(), recheck,
            }
        ),
        1 => (any_record(), plan_status)
            .prop_map(|(item, plan_status)| Command::WorkUpdate { item, plan_status }),
        2 => (any_record(), any::<bool>()).prop_map(|(item, clear)| Command::WorkPick { item, clear }),
        2 => (any_record(), of(span())).prop_map(|(item, recheck)| Command::WorkBlock { item, recheck }),
        1 => any_record().prop_map(Command::WorkUnblock),
        2 => any_record().prop_map(Command::WorkComplete),
    ]
}

fn wait() -> impl Strategy<Value = Command> {
    let owner = prop_oneof![
        2 => Just(Owner::Nearest),
        1 => Just(Owner::Agent),
        2 => any_record().prop_map(Owner::Item),
    ];
    let kind = words(&["operator", "task", "external", "timer", "system"]);
    let deadline = || weighted(0.25, span());
    (kind, owner, resource(), any_record(), span(), deadline(), deadline()).prop_map(
        |(kind, owner, resource, task, within, recheck, expires)| Command::Wait {
            kind,
            owner,
            resource,
            task,
            within,
            recheck,
            expires,
        },
    )
}

fn timer() -> impl Strategy<Value = Command> {
    (schedule(), any::<bool>(), words(&["once", "all", "skip"]))
        .prop_map(|(schedule, blank, catch_up)| Command::TimerAdd { schedule, blank, catch_up })
}

fn enqueue(
    kinds: &'static [&'static str],
    priorities: &'static [&'static str],
) -> impl Strategy<Value = Command> {
    let delay = || weighted(0.1, prop_oneof![3 => span(), 1 => span().prop_map(|span| -span)]);
    let item = weighted(0.2, any_record());
    let blank = weighted(0.3, Just(()));
    let key = weighted(0.2, 0usize..2);
    let ttl = weighted(0.15, span());
    (words(kinds), words(priorities), blank, resource(), item, key, ttl, delay()).prop_map(
        |(kind, priority, blank, resource, work, key, ttl, delay)| Command::Enqueue {
            kind,
            priority,
            blank: blank.is_some(),
            resource,
            work,
            key,
            ttl,
            delay,
        },
    )
}

/// What anybody may call, outside of turns and inside.
fn own_planes() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => work(),
        5 => wait(),
        2 => any_record().prop_map(Command::WaitCancel),
        2 => timer(),
        1 => any_record().prop_map(Command::TimerCancel),
        1 => any::<bool>().prop_map(|notify| Command::TaskStart { notify }),
    ]
}

fn from_outside() -> impl Strategy<Value = Command> {
    let kinds = &[
        "operator_prompt",
        "operator_prompt",
        "channel_event",
        "webhook_event",
        "callback_event",
        "control",
    ];
    let priorities = &["normal", "normal", "next", "background", "interject"];
    prop_oneof![
        8 => enqueue(kinds, priorities),
        3 => (any::<bool>(), resource(), weighted(0.3, any_record()))
            .prop_map(|(blank, resource, wait)| Command::Wake { blank, resource, wait }),
        10 => own_planes(),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(well, notify)| Command::TaskRun { well, notify }),
        1 => (any_record(), any::<bool>()).prop_map(|(task, well)| Command::TaskEnd { task, well }),
        1 => any_record().prop_map(Command::TaskStop),
        1 => any_record().prop_map(Command::Drop),
        1 => any_record().prop_map(Command::Requeue),
        2 => Just(Command::Start),
        1 => any::<bool>().prop_map(|requeue| Command::Stop { requeue }),
        1 => Just(Command::Recover),
        3 => Just(Command::Resume),
        1 => Just(Command::Fail),
        1 => preemption(),
    ]
}

/// How long a grace lasts, or a section: until now, until what is late, or beyond that.
fn respite() -> impl Strategy<Value = i64> {
    select(&[0i64, 600, 20_000][..])
}

/// What a turn says about itself; from outside all of it is refused.
fn preemption() -> impl Strategy<Value = Command> {
    let late = || weighted(0.4, Just(())).prop_map(|late| late.is_some());
    prop_oneof![
        4 => (respite(), of(span())).prop_map(|(grace, resume_after)| Command::Preempt { grace, resume_after }),
        4 => any::<bool>().prop_map(|checkpoint| Command::Yield { checkpoint }),
        3 => late().prop_map(|late| Command::SafePoint { late }),
        3 => (respite(), late()).prop_map(|(deadline, late)| Command::Begin { deadline, late }),
        2 => Just(Command::End),
    ]
}

/// Two requests, and a turn that is late to look whether it may begin something.
fn asked_twice() -> impl Strategy<Value = Vec<Command>> {
    let grace = || select(&[600i64, 20_000][..]);
    (grace(), grace(), of(span())).prop_map(|(first, second, resume_after)| {
        vec![
            Command::Preempt { grace: first, resume_after: None },
            Command::Preempt { grace: second, resume_after },
            Command::Begin { deadline: 600, late: true },
        ]
    })
}

/// What a turn calls. `planes`: how much of it is about anything but the turn itself.
fn inside(planes: u32) -> impl Strategy<Value = Command> {
    let interject = (any::<bool>(), weighted(0.2, span()))
        .prop_map(|(blank, ttl)| Command::Interject { blank, ttl })
        .boxed();
    let refused = select(&[Command::Resume, Command::Fail, Command::Recover][..]);
    let within = (respite(), vec(prop_oneof![4 => preemption(), 1 => interject.clone()], 0..4));
    prop_oneof![
        6 * planes => own_planes(),
        2 * planes => enqueue(&["internal_followup"], &["normal", "next", "background", "interject"]),
        planes => Just(Command::TaskRun { well: true, notify: true }),
        12 => preemption(),
        3 => interject,
        3 => within.prop_map(|(deadline, commands)| Command::Within { deadline, commands }),
        1 => refused,
    ]
}

/// What a hook may do.
fn hook() -> impl Strategy<Value = Act> {
    let done = select(
        &[
            ("on-state-change", Does::Fails),
            ("on-scheduled", Does::Fails),
            ("on-scheduled", Does::Well),
            ("on-preempt-request", Does::Fails),
            ("on-suspend", Does::Fails),
            ("on-suspend", Does::Saves),
            ("on-suspend", Does::Well),
            ("on-resume", Does::Fails),
            ("on-resume", Does::Well),
            ("on-shutdown", Does::Fails),
            ("on-recovery-start", Does::Fails),
            ("on-recovery-start", Does::Kills),
            ("on-recovery-start", Does::Well),
            ("on-recovery-complete", Does::Fails),
        ][..],
    );
    done.prop_map(|(hook, does)| Act::Hook(hook, does))
}

fn settings() -> impl Strategy<Value = Settings> {
    let hooks = weighted(0.3, Just(()));
    let limit = |limits| weighted(0.15, select(limits));
    (hooks, limit(&[0u64, 1, 2, 2, 3][..]), limit(&[100u64][..])).prop_map(
        |(hooks, turns_per_hour, tokens_per_day)| Settings {
            stop_when_exhausted: false,
            hooks: hooks.is_some(),
            turns_per_hour,
            tokens_per_day,
        },
    )
}

fn turn(planes: u32, most: usize) -> impl Strategy<Value = Turn> {
    // Of the moment of the settlement are also the messages of what came due in the step: those are
    // of other priorities, so that there is one order.
    let action = prop_oneof![
        3 => work(),
        3 => wait(),
        1 => timer(),
        2 => enqueue(&["internal_followup"], &["next"]).prop_map(without_key),
    ];
    let end = prop_oneof![
        12 => Just(End::Well),
        3 => Just(End::Badly),
        2 => Just(End::NotNow),
        1 => Just(End::TickKilled),
        1 => Just(End::TickEnded),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(killed, requeue)| End::Stopped { killed, requeue }),
        1 => Just(End::Failed),
        1 => of(span()).prop_map(|resume_after| End::Preempted { resume_after }),
    ];
    let tokens = prop_oneof![3 => Just(0u64), 1 => Just(60u64)];
    let calls = prop_oneof![
        15 => inside(planes).prop_map(|command| vec![command]),
        1 => asked_twice(),
    ];
    let commands = vec(calls, 0..most).prop_map(|calls| calls.concat());
    (commands, vec(action, 0..3), tokens, end).prop_map(|(commands, actions, tokens, end)| Turn {
        commands,
        actions,
        tokens,
        end,
    })
}

/// Actions have neither a key nor a limit.
fn without_key(command: Command) -> Command {
    match command {
        Command::Enqueue { kind, priority, blank, resource, work, delay, .. } => {
            Command::Enqueue { kind, priority, blank, resource, work, key: None, ttl: None, delay }
        }
        other => other,
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let there = select(&[1i64, 2, 10, 301, 3600, 86_400][..]);
    let back = select(&[-1i64, -60, -3600, -86_400][..]);
    let act = prop_oneof![
        10 => from_outside().prop_map(Act::Do),
        8 => turn(12, 3).prop_map(Act::Tick),
        3 => there.prop_map(Act::Pass),
        1 => back.prop_map(Act::Pass),
        1 => hook(),
    ]
    .boxed();
    // Many short ones, which meet much and shrink soon, and some long lives; and as many in which
    // turns make way.
    prop_oneof![6 => vec(act.clone(), 2..8), 1 => vec(act, 8..45), 7 => making_way()]
}

/// A life of turns that are asked to yield, are suspended, and go on.
fn making_way() -> impl Strategy<Value = Vec<Act>> {
    let says = || enqueue(&["operator_prompt"], &["normal", "normal", "interject"]).prop_map(Act::Do);
    let commands = prop_oneof![
        1 => select(&[Command::Fail, Command::Start, Command::Recover, Command::Stop { requeue: true }][..]),
        1 => from_outside(),
    ];
    let tick = || turn(1, 5).prop_map(Act::Tick);
    // Several runs of one message, one after the other.
    let goes_on = tick().prop_map(|tick| [Act::Do(Command::Resume), tick]);
    let runs = (says(), tick(), vec(goes_on, 1..4));
    let acts = prop_oneof![
        3 => runs.prop_map(|(first, then, others)| [vec![first, then], others.concat()].concat()),
        3 => (says(), tick()).prop_map(|(first, then)| vec![first, then]),
        3 => tick().prop_map(|tick| vec![tick]),
        3 => tick().prop_map(|tick| vec![Act::Do(Command::Resume), tick]),
        1 => says().prop_map(|says| vec![says]),
        3 => commands.prop_map(|command| vec![Act::Do(command)]),
        2 => select(&[1i64, 1, 601, 3601, 86_400][..]).prop_map(|span| vec![Act::Pass(span)]),
        2 => hook().prop_map(|hook| vec![hook]),
    ];
    vec(acts, 1..8).prop_map(|acts| acts.concat())
}

/// In each of the two tests.
const CASES: u32 = 800;

/// Of the cases that everybody runs: whether a change is good must not depend on chance. New ones come
/// with another number in PROPTEST_RNG_SEED.
const SEED: u64 = 20_261_121;

/// Runs as many cases as the environment asks for.
fn run(cases: u32, on_exhausted: &'static str) {
    let template = Template::new(on_exhausted);
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/model.proptest-regressions");
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    let config = ProptestConfig {
        cases: asked.unwrap_or(cases),
        rng_seed: RngSeed::Fixed(seed.unwrap_or(SEED)),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        max_shrink_iters: 2000,
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
    run(CASES, "park");
}

#[test]
fn the_program_does_what_the_contract_says_where_the_last_attempt_stops_the_agent() {
    run(CASES, "stop");
}
