//! Generates the acts of a test case, with the weight of each kind of act.

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;

use super::reference::Settings;
use super::reference::commands::{Command, Owner};
use super::reference::hints::WakeArgs;
use super::reference::hooks::HookBehaviour;
use super::reference::messages::EnqueueArgs;
use super::reference::recovery::{End, Stopped};
use super::reference::timers::Schedule;
use super::reference::triggers::Delivery;
use super::reference::waits::WaitArgs;
use super::{Act, Turn};

fn any_record() -> impl Strategy<Value = usize> {
    0usize..6
}

/// Spans in seconds, from one second to 25 hours.
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
    let source = weighted(0.2, source());
    let trigger = weighted(0.15, any_record());
    (kind, owner, resource(), (source, trigger), any_record(), span(), deadline(), deadline()).prop_map(
        |(kind, owner, resource, (source, trigger), task, within, recheck, expires)| {
            // Without a recheck a system wait needs an expiry, here after 600 seconds.
            let expires = expires.or((kind == "system" && recheck.is_none()).then_some(600));
            let source = source.filter(|_| kind == "external" || kind == "system");
            let trigger = trigger.filter(|_| kind != "timer");
            Command::Wait(WaitArgs { kind, owner, resource, source, trigger, task, within, recheck, expires })
        },
    )
}

/// Outside systems that a wait or a hint may name as its source.
fn source() -> impl Strategy<Value = &'static str> {
    words(&["webhook:gh", "webhook", "channel:chat"])
}

fn timer() -> impl Strategy<Value = Command> {
    (schedule(), any::<bool>(), words(&["once", "all", "skip"]))
        .prop_map(|(schedule, blank, catch_up)| Command::TimerAdd { schedule, blank, catch_up })
}

fn enqueue(
    kinds: &'static [&'static str],
    priorities: &'static [&'static str],
) -> impl Strategy<Value = Command> {
    let delay = weighted(0.1, prop_oneof![3 => span(), 1 => span().prop_map(|span| -span)]);
    let item = weighted(0.2, any_record());
    let wait = weighted(0.1, any_record());
    let blank = weighted(0.3, Just(()));
    let key = weighted(0.2, 0usize..2);
    let ttl = weighted(0.15, span());
    let kind = (words(kinds), weighted(0.3, Just(())));
    (kind, words(priorities), blank, resource(), wait, item, key, ttl, delay).prop_map(
        |((kind, named), priority, blank, resource, wait, work, key, ttl, delay)| {
            let source = match (kind, named) {
                ("webhook_event", Some(())) => Some("webhook:gh"),
                ("channel_event", Some(())) => Some("channel:chat"),
                _ => None,
            };
            let blank = blank.is_some();
            let said = EnqueueArgs { kind, priority, blank, source, resource, wait, work, key, ttl, delay };
            Command::Enqueue(said)
        },
    )
}

fn wake() -> impl Strategy<Value = Command> {
    let trigger = weighted(0.2, any_record());
    (any::<bool>(), weighted(0.3, source()), resource(), weighted(0.3, any_record()), trigger).prop_map(
        |(blank, source, resource, wait, trigger)| {
            // The scope of a trigger replaces the resource and the wait of the hint.
            let (resource, wait) = if trigger.is_some() { (None, None) } else { (resource, wait) };
            Command::Wake(WakeArgs { blank, source, resource, wait, trigger })
        },
    )
}

/// Commands that make, rotate and revoke triggers. `of_waits` is the share of new triggers that are
/// scoped to a wait.
fn trigger(of_waits: f64) -> impl Strategy<Value = Command> {
    let source = weighted(0.4, words(&["webhook:gh", "callback:ci"]));
    let wait = weighted(of_waits, any_record());
    prop_oneof![
        4 => (words(&["enqueue_message", "wake_hint"]), resource(), wait, source).prop_map(
            |(mode, resource, wait, source)| Command::TriggerCreate { mode, resource, wait, source },
        ),
        1 => any_record().prop_map(Command::TriggerRotate),
        2 => any_record().prop_map(Command::TriggerRevoke),
    ]
}

fn deliver() -> impl Strategy<Value = Command> {
    let wrong = weighted(0.15, Just(()));
    (any_record(), wrong, weighted(0.25, Just(())), weighted(0.3, 0usize..2)).prop_map(
        |(trigger, wrong, blank, key)| {
            let (right, blank) = (wrong.is_none(), blank.is_some());
            Command::TriggerDeliver(Delivery { trigger, right, blank, key })
        },
    )
}

/// Commands that are accepted both outside of turns and inside.
fn own_records() -> impl Strategy<Value = Command> {
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
        3 => wake(),
        2 => trigger(0.4),
        5 => deliver(),
        10 => own_records(),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(well, notify)| Command::TaskRun { well, notify }),
        1 => (any_record(), any::<bool>()).prop_map(|(task, well)| Command::TaskEnd { task, well }),
        1 => any_record().prop_map(Command::TaskStop),
        1 => any_record().prop_map(Command::Drop),
        1 => any_record().prop_map(Command::Requeue),
        1 => Just(Command::Acknowledge),
        2 => Just(Command::Start),
        1 => any::<bool>().prop_map(|requeue| Command::Stop { requeue }),
        1 => Just(Command::Recover),
        3 => Just(Command::Resume),
        1 => Just(Command::Fail),
        1 => preemption(),
    ]
}

/// Seconds of a grace or a critical section: none, shorter or longer than the delay of `late`.
fn respite() -> impl Strategy<Value = i64> {
    select(&[0i64, 600, 20_000][..])
}

/// Commands of a turn about itself. From outside all of them are refused.
fn preemption() -> impl Strategy<Value = Command> {
    let late = || weighted(0.4, Just(())).prop_map(|late| late.is_some());
    prop_oneof![
        4 => (respite(), of(span())).prop_map(|(grace, resume_after)| Command::Preempt { grace, resume_after }),
        4 => (any::<bool>(), of(span()))
            .prop_map(|(checkpoint, resume_after)| Command::Yield { checkpoint, resume_after }),
        3 => (late(), any::<bool>()).prop_map(|(late, peek)| Command::SafePoint { late, peek }),
        2 => Just(Command::Checkpoint),
        3 => (respite(), late()).prop_map(|(deadline, late)| Command::Begin { deadline, late }),
        2 => Just(Command::End),
    ]
}

/// Two preemption requests, and a critical section that begins after the end of a short grace.
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

/// Commands that a turn calls. `planes` is the weight of those that are not about the turn itself.
fn inside(planes: u32) -> impl Strategy<Value = Command> {
    let interject = (any::<bool>(), weighted(0.2, span()))
        .prop_map(|(blank, ttl)| Command::Interject { blank, ttl })
        .boxed();
    let refused = select(&[Command::Resume, Command::Fail, Command::Recover][..]);
    let within = (respite(), vec(prop_oneof![4 => preemption(), 1 => interject.clone()], 0..4));
    prop_oneof![
        6 * planes => own_records(),
        2 * planes => enqueue(&["internal_followup"], &["normal", "next", "background", "interject"]),
        planes => Just(Command::TaskRun { well: true, notify: true }),
        planes => wake(),
        planes => trigger(0.8),
        planes => deliver(),
        12 => preemption(),
        3 => interject,
        3 => within.prop_map(|(deadline, commands)| Command::Within { deadline, commands }),
        1 => refused,
    ]
}

/// Changes of the behaviour of a hook.
fn hook() -> impl Strategy<Value = Act> {
    let done = select(
        &[
            ("on-state-change", HookBehaviour::Fails),
            ("on-scheduled", HookBehaviour::Fails),
            ("on-scheduled", HookBehaviour::Well),
            ("on-preempt-request", HookBehaviour::Fails),
            ("on-suspend", HookBehaviour::Fails),
            ("on-suspend", HookBehaviour::Saves),
            ("on-suspend", HookBehaviour::Well),
            ("on-resume", HookBehaviour::Fails),
            ("on-resume", HookBehaviour::Well),
            ("on-shutdown", HookBehaviour::Fails),
            ("on-recovery-start", HookBehaviour::Fails),
            ("on-recovery-start", HookBehaviour::Kills),
            ("on-recovery-start", HookBehaviour::Well),
            ("on-recovery-complete", HookBehaviour::Fails),
        ][..],
    );
    done.prop_map(|(hook, does)| Act::Hook(hook, does))
}

pub fn settings() -> impl Strategy<Value = Settings> {
    let hooks = weighted(0.3, Just(()));
    let limit = |limits| weighted(0.15, select(limits));
    let chance = |of| weighted(of, Just(())).prop_map(|chance| chance.is_some());
    let turns_per_hour = limit(&[0u64, 1, 2, 2, 3][..]);
    let tokens_per_day = limit(&[100u64][..]);
    (hooks, turns_per_hour, tokens_per_day, chance(0.2), chance(0.3), chance(0.2)).prop_map(
        |(hooks, turns_per_hour, tokens_per_day, few_hops, few_deferrals, unmatched_runs)| Settings {
            stop_when_exhausted: false,
            hooks: hooks.is_some(),
            turns_per_hour,
            tokens_per_day,
            max_hops: if few_hops { 1 } else { 20 },
            max_deferrals: if few_deferrals { 2 } else { 100 },
            max_interruptions: if few_deferrals { 2 } else { 20 },
            unmatched_runs,
        },
    )
}

fn turn(planes: u32, most: usize) -> impl Strategy<Value = Turn> {
    // The messages of actions get the same time as the messages of timers that were due in the
    // step. They have another priority, so that the order of the queue is defined.
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
        1 => (select(&[Stopped::Killed, Stopped::Dies][..]), any::<bool>())
            .prop_map(|(how, requeue)| End::Stopped { how, requeue }),
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

/// Removes from an `enqueue` what an action of a turn's outcome can't have: a key, a ttl, a wait
/// and a time in the past.
fn without_key(command: Command) -> Command {
    match command {
        Command::Enqueue(said) => {
            let delay = said.delay.filter(|delay| *delay >= 0);
            Command::Enqueue(EnqueueArgs { key: None, ttl: None, wait: None, delay, ..said })
        }
        other => other,
    }
}

pub fn acts() -> impl Strategy<Value = Vec<Act>> {
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
    // Short cases are reduced faster. Few cases are long, and two thirds have a special subject.
    prop_oneof![6 => vec(act.clone(), 2..8), 1 => vec(act, 8..45), 7 => preemption_case(), 6 => trigger_case()]
}

/// Cases of waits, and of triggers by which outside systems end them.
fn trigger_case() -> impl Strategy<Value = Vec<Act>> {
    let waits = || {
        let kind = words(&["external", "external", "system"]);
        let owner = prop_oneof![Just(Owner::Agent), Just(Owner::Nearest)];
        let source = weighted(0.3, words(&["webhook:gh", "webhook", "callback:ci"]));
        let expires = weighted(0.3, span());
        (kind, owner, resource(), source, weighted(0.4, any_record()), expires).prop_map(
            |(kind, owner, resource, source, trigger, expires)| {
                let recheck = (kind == "system" && expires.is_none()).then_some(90_000);
                let (task, within) = (0, 0);
                Command::Wait(WaitArgs {
                    kind,
                    owner,
                    resource,
                    source,
                    trigger,
                    task,
                    within,
                    recheck,
                    expires,
                })
            },
        )
    };
    let decides = select(
        &[
            Command::Start,
            Command::Stop { requeue: true },
            Command::Stop { requeue: false },
            Command::Recover,
            Command::Resume,
            Command::Acknowledge,
        ][..],
    );
    let about_messages = prop_oneof![
        1 => any_record().prop_map(Command::Drop),
        2 => any_record().prop_map(Command::Requeue),
        1 => any_record().prop_map(Command::WaitCancel),
        1 => any_record().prop_map(Command::WorkComplete),
    ];
    let command = prop_oneof![
        8 => deliver(),
        4 => trigger(0.6),
        4 => waits(),
        1 => wake(),
        1 => work(),
        2 => decides,
        2 => about_messages,
    ];
    let act = prop_oneof![
        10 => command.prop_map(Act::Do),
        7 => turn(6, 2).prop_map(Act::Tick),
        1 => select(&[1i64, 2, 601, 3601, -60][..]).prop_map(Act::Pass),
    ];
    (waits(), trigger(0.9), vec(act, 3..16)).prop_map(|(wait, trigger, acts)| {
        let first = [Act::Do(wait), Act::Do(trigger)];
        first.into_iter().chain(acts).collect()
    })
}

/// Cases of turns that are asked to yield, are suspended, and continue.
fn preemption_case() -> impl Strategy<Value = Vec<Act>> {
    let says = || enqueue(&["operator_prompt"], &["normal", "normal", "interject"]).prop_map(Act::Do);
    let commands = prop_oneof![
        1 => select(&[Command::Fail, Command::Start, Command::Recover, Command::Stop { requeue: true }][..]),
        1 => from_outside(),
    ];
    let tick = || turn(1, 5).prop_map(Act::Tick);
    // Several successive runs of one message
    let continues = tick().prop_map(|tick| [Act::Do(Command::Resume), tick]);
    let runs = (says(), tick(), vec(continues, 1..4));
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
