//! Search for agents that are stuck, over all waits, arrivals and ends of turns. A resting agent is
//! stuck if no possible event ends its rest, and no advisory tells the operator the remedy.

use std::collections::BTreeSet;
use std::thread;

use crate::rules::due::{next_wake, overdue};
use crate::rules::posture::posture;
use crate::rules::projection::closure;
use crate::rules::stall::{notify_at, questions, stall};
use crate::rules::transition::task;
use crate::rules::work::{WaitsByItem, scheduling_state, wait_kind};

use super::transition_sequences::{End, World};
use super::waits::Word;
use super::*;

const DAY: i64 = 86_400_000;

/// Owner of a wait: the agent, its current work item, or another work item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Agent,
    Current,
    Other,
}

const OWNERS: [Owner; 3] = [Owner::Agent, Owner::Current, Owner::Other];

/// Wait of one searched case. If `is_bare`, an external wait names no event that can end the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    pub kind: WaitKind,
    pub is_bare: bool,
    pub owner: Owner,
}

pub fn waitings() -> Vec<Waiting> {
    let kinds = WaitKind::ALL.iter().map(|kind| (*kind, false)).chain([(WaitKind::External, true)]);
    kinds.flat_map(|(kind, is_bare)| OWNERS.map(move |owner| Waiting { kind, is_bare, owner })).collect()
}

/// Returns the record of a wait. Its resource, source, trigger and task have the number of the
/// wait. Messages and hints of a case refer to wait 1.
pub fn record(number: u32, waiting: Waiting) -> Wait {
    let Waiting { kind, is_bare, owner } = waiting;
    let has_subject = matches!(kind, WaitKind::External | WaitKind::System) && !is_bare;
    Wait {
        resource: match kind {
            WaitKind::Task => Some(task_id(number).to_string()),
            WaitKind::External | WaitKind::System => has_subject.then(|| format!("resource:{number}")),
            WaitKind::Operator | WaitKind::Timer => None,
        },
        source: has_subject.then(|| format!("webhook:{number}")),
        trigger_id: has_subject.then(|| trigger_id(number)),
        wake_at: (kind == WaitKind::Timer).then(|| at(1000 * DAY)),
        expires_at: (kind == WaitKind::System).then(|| at(1000 * DAY)),
        work_item_id: item_of(number, owner),
        ..wait(number, kind)
    }
}

/// Returns the work item of a wait: 9 is the current item, all others have the wait's number.
pub fn item_of(number: u32, owner: Owner) -> Option<WorkId> {
    match owner {
        Owner::Agent => None,
        Owner::Current => Some(work_id(9)),
        Owner::Other => Some(work_id(number)),
    }
}

/// Field by which a message refers to wait 1, the first wait of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Wait,
    Resource,
    Source,
    Trigger,
    Item,
    Task,
    Nothing,
}

/// True if a message that refers to wait 1 by this field ends the wait (contract, semantics §5).
pub fn ends(kind: WaitKind, word: Word, by: By) -> bool {
    let from_outside = matches!(word, Word::Event { .. } | Word::Hint { .. });
    if matches!(word, Word::Scheduler(_) | Word::Result { ended: false }) {
        return false;
    }
    match kind {
        WaitKind::Operator => word == Word::Operator,
        WaitKind::Task => by == By::Wait || word == Word::Result { ended: true } && by == By::Task,
        WaitKind::External | WaitKind::System => {
            by == By::Wait || from_outside && matches!(by, By::Resource | By::Trigger | By::Source)
        }
        WaitKind::Timer => by == By::Wait,
    }
}

/// Message or hint that arrives, and the field by which the message or hint refers to wait 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Nothing,
    Said(Word, By),
}

fn arrivals() -> Vec<Arrival> {
    let all = [By::Wait, By::Resource, By::Source, By::Trigger, By::Item, By::Nothing];
    let words: [(Word, &[By]); 9] = [
        (Word::Operator, &all),
        (Word::Event { contentful: true }, &all),
        (Word::Event { contentful: false }, &all),
        (Word::Hint { contentful: true }, &[By::Wait, By::Resource, By::Source, By::Trigger, By::Nothing]),
        (Word::Hint { contentful: false }, &[By::Wait, By::Resource, By::Source, By::Trigger, By::Nothing]),
        // A result is that of the task of wait 1 (`By::Task`) or of another task (`By::Nothing`).
        (Word::Result { ended: true }, &[By::Task, By::Nothing]),
        (Word::Result { ended: false }, &[By::Task, By::Wait]),
        (Word::Fire, &[By::Wait, By::Nothing]),
        (Word::Followup, &all),
    ];
    let said = words.iter().flat_map(|(word, ways)| ways.iter().map(|by| Arrival::Said(*word, *by)));
    std::iter::once(Arrival::Nothing).chain(said).collect()
}

/// Time at which the agent is stopped and started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Never,
    BeforeTheArrival,
    DuringTheArrival,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    waiting: Waiting,
    arrival: Arrival,
    second: Option<Waiting>,
    /// True if a runnable queued item has caused a `system_tick`; `None` without such an item.
    runnable: Option<bool>,
    terminal: Option<Terminal>,
    stopped: Stopped,
    turns_fail: bool,
    unmatched: Unmatched,
    /// True if wait 1 has a recheck that repeats every day.
    is_rechecked: bool,
}

/// Space of all cases: the product of the values of all fields. Each number below `size` stands for
/// one case.
struct Space {
    waitings: Vec<Waiting>,
    arrivals: Vec<Arrival>,
    seconds: Vec<Option<Waiting>>,
    terminals: Vec<Option<Terminal>>,
}

impl Space {
    fn new() -> Space {
        let seconds = waitings().into_iter().filter(|waiting| !waiting.is_bare);
        Space {
            waitings: waitings(),
            arrivals: arrivals(),
            seconds: optional(&seconds.collect::<Vec<_>>()),
            terminals: optional(Terminal::ALL),
        }
    }

    fn size(&self) -> u64 {
        let lists = [self.waitings.len(), self.arrivals.len(), self.seconds.len(), self.terminals.len()];
        lists.iter().map(|length| *length as u64).product::<u64>() * 3 * 3 * 2 * 2 * 2
    }

    fn case(&self, number: u64) -> Case {
        let mut left = number;
        let mut digit = |base: usize| {
            let digit = (left % base as u64) as usize;
            left /= base as u64;
            digit
        };
        Case {
            waiting: self.waitings[digit(self.waitings.len())],
            arrival: self.arrivals[digit(self.arrivals.len())],
            second: self.seconds[digit(self.seconds.len())],
            terminal: self.terminals[digit(self.terminals.len())],
            runnable: [None, Some(false), Some(true)][digit(3)],
            stopped: [Stopped::Never, Stopped::BeforeTheArrival, Stopped::DuringTheArrival][digit(3)],
            turns_fail: [false, true][digit(2)],
            unmatched: [Unmatched::Reduce, Unmatched::Run][digit(2)],
            is_rechecked: [false, true][digit(2)],
        }
    }
}

/// Returns an agent that rests with these waits.
pub fn world(
    waits: Vec<Wait>,
    runnable: Option<bool>,
    terminal: Option<Terminal>,
    unmatched: Unmatched,
) -> World {
    let mut world = World::new();
    world.is_checked = false;
    let mut records = records_in(Status::AwakeIdle, ExecutionState::Runnable);
    records.policy.recovery.max_attempts = 2;
    records.policy.inbox.unmatched = unmatched;
    records.state.last_turn = terminal.map(last_turn);
    let mut items: Vec<WorkId> = waits.iter().filter_map(|wait| wait.work_item_id).collect();
    items.sort();
    items.dedup();
    records.works = items.iter().map(|id| WorkItem { id: *id, ..work(0) }).collect();
    records.state.focus = items.contains(&work_id(9)).then(|| work_id(9));
    if let Some(is_spent) = runnable {
        let ticked = is_spent.then_some(Ticked { revision: 1, wakes: 0 });
        records.works.push(WorkItem { ticked, ..work(8) });
    }
    records.tasks = running_tasks(waits.iter().filter_map(Wait::task_id).chain([task_id(3)]));
    records.waits = waits;
    world.records = records;
    world
}

/// Stops the agent and kills its turn, if one runs.
pub fn stop_and_kill(world: &mut World, requeue: bool) {
    world.control(|draft| stop(draft, secs(0), requeue, None, &OPERATOR).map(drop));
    if world.records.state.current_run.is_some() {
        world.control(|draft| shut_down(draft, secs(0)));
        world.control(|draft| finish_stop(draft, true, None).map(drop));
        world.live = None;
    }
}

/// Stops the agent as the command does: kills its turn and ends its tasks.
pub fn stop_with_tasks(world: &mut World) {
    stop_and_kill(world, false);
    let open: Vec<_> = world.records.tasks.iter().map(|task| task.id).collect();
    for id in open {
        world.control(|draft| task::cancel(draft, id).map(drop));
        world
            .control(|draft| task::finish(draft, id, task::TaskEnding::Lost("stopped".to_owned())).map(drop));
    }
}

/// Lets a message or a hint arrive. Returns the id of a message that is now in the queue.
pub fn arrive(world: &mut World, arrival: Arrival, item: Option<WorkId>) -> Option<MessageId> {
    let Arrival::Said(word, by) = arrival else { return None };
    let id = message_id(world.name());
    let number = if by == By::Source { "1" } else { "irc" };
    let by_wait = (by == By::Wait).then(|| wait_id(1));
    let by_resource = (by == By::Resource).then(|| "resource:1".to_owned());
    let by_trigger = (by == By::Trigger).then(|| trigger_id(1));
    let named = |kind: MessageKind, contentful: bool| Message {
        id,
        body: text(if contentful { "news" } else { " " }),
        wait_id: by_wait,
        resource: by_resource.clone(),
        trigger_id: by_trigger,
        work_item_id: item.filter(|_| by == By::Item),
        ..message(0, kind)
    };
    let said = match word {
        Word::Hint { contentful } => {
            let hint = WakeHint {
                id,
                source: format!("webhook:{number}"),
                wait_id: by_wait,
                resource: by_resource,
                trigger_id: by_trigger,
                body: contentful.then(|| text("look")),
                ..hint(0)
            };
            world.hints.insert(id, hint);
            return None;
        }
        Word::Result { ended: true } => {
            let task = task_id(if by == By::Task { 1 } else { 3 });
            let end = task_end(Exit::Code { code: 1 }, at(0));
            world.control(|draft| task::finish(draft, task, task::TaskEnding::Seen(end)).map(drop));
            return None;
        }
        Word::Result { ended: false } => Message {
            task_id: Some(task_id(1)),
            task_status: Some(TaskStatus::Running),
            ..named(MessageKind::TaskResult, true)
        },
        Word::Operator => named(MessageKind::OperatorPrompt, true),
        Word::Event { contentful } => Message {
            origin: Origin { kind: OriginKind::Webhook, id: Some(number.to_owned()) },
            ..named(MessageKind::WebhookEvent, contentful)
        },
        Word::Fire => named(MessageKind::TimerTick, true),
        Word::Followup | Word::Tick | Word::Scheduler(_) => named(MessageKind::InternalFollowup, true),
    };
    world.queue.insert(said.key(), said);
    Some(id)
}

/// Runs steps until there is nothing to do, or the operator must decide. `end`: end of every turn.
pub fn settle_down(world: &mut World, end: End) -> Result<Decision, String> {
    for _ in 0..120 {
        let (decision, changed) = world.step();
        world.end_turn(end);
        if world.needs_operator() {
            return Ok(decision);
        }
        let is_delayed =
            matches!(decision.kind(), DecisionKind::WaitForTimer | DecisionKind::WaitForResources);
        if is_delayed && decision.action == StepAction::Stay {
            world.later(3_600_000);
        } else if !changed {
            return Ok(decision);
        }
    }
    Err("still busy".to_owned())
}

/// True if the operator was notified of a held message, and has not decided about it.
pub fn is_hold_told(world: &World) -> bool {
    let mut newest = world.records.state.attention.iter().flat_map(|mark| &mark.newest);
    newest.any(|one| one.subject == Subject::MessageHeld)
}

/// Fails unless every open item and every wait can continue, or an advisory names the remedy. If
/// the operator must decide about a held message, fails only if no person was notified of that.
pub fn nothing_is_stuck(world: &World) -> Result<(), String> {
    if world.needs_operator() {
        return if is_hold_told(world) { Ok(()) } else { Err("a held message was not told".to_owned()) };
    }
    let records = world.load();
    let advised: Vec<String> =
        advisories(&records, world.now).into_iter().map(|advisory| advisory.subject).collect();
    let is_advised = |id: String| advised.contains(&id);
    let something_comes = records.inbox.head.is_some()
        || !records.inbox.hints.is_empty()
        || records.state.pending_wake_hint.is_some()
        || next_wake(&records).is_some();
    let is_due = |wait: &Wait| {
        wait.recheck_at.is_some()
            || wait.expires_at.is_some() && wait.expiry_told_at.is_none()
            || wait.wake_at.is_some() && wait.woken_at.is_none()
    };
    for wait in &records.waits {
        if let Some(message) = wait.resolved_by {
            return Err(format!("{} is bound to {message}, which has no turn", wait.id));
        }
        if let Some(message) = wait.lost_answer.filter(|_| !is_advised(wait.id.to_string())) {
            return Err(format!("{} has lost {message} without an advisory", wait.id));
        }
        let names_something = wait.resource.is_some() || wait.source.is_some() || wait.trigger_id.is_some();
        let can_end = match wait.kind {
            WaitKind::Operator => true,
            WaitKind::Task => records.tasks.iter().any(|task| Some(task.id) == wait.task_id()),
            WaitKind::External => names_something || is_due(wait),
            WaitKind::Timer | WaitKind::System => is_due(wait),
        };
        if !can_end && !is_advised(wait.id.to_string()) {
            return Err(format!("nothing ends {wait:?}"));
        }
    }
    let waits = WaitsByItem::of(&records.waits);
    for item in &records.works {
        let comes_back = match scheduling_state(item, &waits) {
            SchedulingState::Runnable => something_comes,
            SchedulingState::Blocked => item.recheck_at.is_some() && item.recheck_consumed_at.is_none(),
            SchedulingState::Completed
            | SchedulingState::WaitingTask
            | SchedulingState::WaitingOperator
            | SchedulingState::WaitingTimer
            | SchedulingState::WaitingExternal
            | SchedulingState::WaitingSystem => true,
        };
        if !comes_back && !is_advised(item.id.to_string()) {
            return Err(format!("nothing brings {item:?} back"));
        }
    }
    match records.state.set_aside.newest.last() {
        Some(kept) if !is_advised(kept.message_id.to_string()) => {
            return Err("input is set aside without an advisory".to_owned());
        }
        Some(_) | None => {}
    }
    a_person_is_told_what_to_do(&records)
}

/// Fails unless a person was notified of every question and of a stall, or a due step will notify
/// of the stall. Fails also if status commands would not report that no process makes the due step.
fn a_person_is_told_what_to_do(records: &Records) -> Result<(), String> {
    for question in questions(records, now()) {
        if !records.state.asked.iter().any(|told| told.about == question.about) {
            return Err(format!("nobody was told of {question:?}"));
        }
    }
    let is_told = stall(records).is_none_or(|stall| records.state.stalled == Some(stall.since));
    if !is_told && next_due(records) != notify_at(records) {
        return Err("the agent stands still, and no step is due that tells it".to_owned());
    }
    let Some(due) = next_due(records) else { return Ok(()) };
    let long_after = due.max(records.state.execution.since).after(secs(601));
    let stepped = records.state.stepped_at.map_or(long_after, |at| long_after.max(at.after(secs(601))));
    match overdue(records, stepped) {
        Some(_) => Ok(()),
        None => Err(format!("no step is made, and readers do not show it at {stepped}")),
    }
}

/// Fails unless the closure, the posture and the decision of a resting agent agree about its waits.
pub fn all_agree(world: &World, decision: &Decision) -> Result<(), String> {
    let records = world.load();
    let waits = WaitsByItem::of(&records.waits);
    let states: Vec<SchedulingState> =
        records.works.iter().map(|item| scheduling_state(item, &waits)).collect();
    if states.contains(&SchedulingState::Runnable) {
        return Ok(());
    }
    let own = records.waits.iter().any(|wait| wait.is_waiting() && wait.is_agents_own());
    let is_waiting = own || states.iter().any(|state| wait_kind(*state).is_some());
    let closure = closure(&records);
    let ended_well = records.state.last_turn.as_ref().is_none_or(|turn| turn.terminal == Terminal::Completed);
    if ended_well && (closure.outcome == ClosureOutcome::Waiting) != is_waiting {
        return Err(format!("waits: {is_waiting}, but the closure is {closure:?}"));
    }
    let posture = posture(&records);
    let shown = matches!(
        posture.posture,
        Posture::WaitingForTask
            | Posture::WaitingForExternal
            | Posture::WaitingForOperator
            | Posture::Blocked
    );
    if shown != is_waiting && !states.contains(&SchedulingState::Blocked) {
        return Err(format!("waits: {is_waiting}, but the posture is {posture:?}"));
    }
    let rests = matches!(
        decision.kind(),
        DecisionKind::WaitForOperator
            | DecisionKind::WaitForExternalChange
            | DecisionKind::WaitForTimer
            | DecisionKind::WaitForTask
            | DecisionKind::WaitForResources
    );
    if rests != is_waiting && records.timers.is_empty() {
        return Err(format!("waits: {is_waiting}, but the decision is {decision:?}"));
    }
    for id in [closure.wait_id.filter(|_| ended_well), posture.wait_id].into_iter().flatten() {
        if !records.waits.iter().any(|wait| wait.id == id && wait.is_waiting()) {
            return Err(format!("{id} is named, but is no active wait"));
        }
    }
    Ok(())
}

/// True if the arrival in a case must end this wait (contract, semantics §5).
fn is_to_end(case: &Case, number: u32, waiting: Waiting) -> bool {
    let Waiting { kind, is_bare, owner } = waiting;
    if kind == WaitKind::Task && case.stopped != Stopped::Never {
        // The stop has ended the task of this wait, so the wait must end, too.
        return true;
    }
    let Arrival::Said(word, by) = case.arrival else { return false };
    if matches!(word, Word::Hint { .. }) && case.stopped == Stopped::DuringTheArrival {
        return false;
    }
    let by = if by == By::Item && case.waiting.owner == Owner::Agent { By::Nothing } else { by };
    let is_event = word == Word::Event { contentful: true };
    // `By::Trigger` names a wait only if wait 1 has a trigger.
    let is_named =
        !case.waiting.is_bare && matches!(case.waiting.kind, WaitKind::External | WaitKind::System);
    let by_no_name = matches!(by, By::Nothing | By::Item | By::Source) || by == By::Trigger && !is_named;
    let names_nothing = is_event && by_no_name;
    if kind == WaitKind::External && names_nothing && is_bare {
        return true;
    }
    if number == 1 {
        return if is_bare { by == By::Wait && ends(kind, word, by) } else { ends(kind, word, by) };
    }
    // Operator input answers wait 2, too, unless it names wait 1 or another wait's work item.
    let answers_all = !matches!(by, By::Wait | By::Item);
    let answers_its_item = by == By::Item && owner == Owner::Current && case.waiting.owner == Owner::Current;
    kind == WaitKind::Operator && word == Word::Operator && (answers_all || answers_its_item)
}

fn task_has_ended(world: &World, number: u32, kind: WaitKind) -> bool {
    kind == WaitKind::Task && world.records.tasks.iter().all(|task| task.id != task_id(number))
}

fn run(case: &Case) -> Result<(), String> {
    let mut numbered = vec![(1, case.waiting)];
    // A new wait on a work item replaces the item's active wait, so only one is recorded.
    let replaces = |second: &Waiting| second.owner == Owner::Current && case.waiting.owner == Owner::Current;
    numbered.extend(case.second.filter(|second| !replaces(second)).map(|second| (2, second)));
    let mut waits: Vec<Wait> = numbered.iter().map(|(number, waiting)| record(*number, *waiting)).collect();
    if case.is_rechecked {
        waits[0].recheck_every = Some(Span::from_secs(86_400));
        waits[0].recheck_at = Some(at(30 * DAY));
    }
    let mut world = world(waits, case.runnable, case.terminal, case.unmatched);
    let item = item_of(1, case.waiting.owner);

    if case.stopped != Stopped::Never {
        stop_with_tasks(&mut world);
    }
    if case.stopped == Stopped::DuringTheArrival {
        arrive(&mut world, case.arrival, item);
    }
    if case.stopped != Stopped::Never {
        world.control(|draft| start(draft, &OPERATOR));
    }
    if case.stopped != Stopped::DuringTheArrival {
        arrive(&mut world, case.arrival, item);
    }
    let end = if case.turns_fail { End::Badly } else { End::Well };
    let decision = settle_down(&mut world, end)?;

    for (number, waiting) in &numbered {
        let expected = is_to_end(case, *number, *waiting);
        let left = world.records.waits.iter().find(|wait| wait.id == wait_id(*number));
        let over = world.waits.iter().find(|wait| wait.id == wait_id(*number));
        let is_resolved = over.is_some_and(|wait| wait.status == WaitStatus::Resolved);
        let has_lost = left.or(over).is_some_and(|wait| wait.lost_answer.is_some());
        let as_expected = match (expected, case.turns_fail) {
            (false, _) => over.is_none() && !has_lost,
            (true, false) => is_resolved && !has_lost,
            // A task sends its result once, so a step resolves the wait if that message is lost.
            (true, true) if task_has_ended(&world, *number, waiting.kind) => is_resolved,
            (true, true) => over.is_none() && has_lost,
        };
        if !as_expected {
            let ended = &world.waits;
            return Err(format!("wait {number}: expected an end: {expected}; {left:?}, ended {ended:?}"));
        }
    }
    nothing_is_stuck(&world)?;
    all_agree(&world, &decision)?;
    if case.is_rechecked {
        rechecks_repeat(&mut world, end)?;
    }
    questions_are_answered(&mut world)
}

/// Fails unless the agent rechecks wait 1 once a day as long as the wait is active.
fn rechecks_repeat(world: &mut World, end: End) -> Result<(), String> {
    let checks = |world: &World| {
        let is_recheck = |message: &&Message| message.scheduler_tick() == Some(SchedulerTick::Recheck);
        let all = world.archive.iter().chain(world.queue.values());
        all.filter(is_recheck).map(|message| message.id).collect::<BTreeSet<_>>().len()
    };
    for day in 30..33 {
        let is_active = |wait: &Wait| wait.id == wait_id(1);
        let lasts = world.records.waits.iter().any(is_active);
        let before = checks(world);
        world.now = world.now.max(at(day * DAY));
        settle_down(world, end)?;
        if checks(world) - before != usize::from(lasts) {
            return Err(format!("day {day}: {} rechecks, {:?}", checks(world) - before, world.records.waits));
        }
        let left = world.records.waits.iter().find(|wait| is_active(wait));
        if let Some(wait) = left.filter(|wait| wait.recheck_id.is_some() || wait.recheck_at.is_none()) {
            return Err(format!("day {day}: no further recheck of {wait:?}"));
        }
        nothing_is_stuck(world)?;
    }
    Ok(())
}

/// Fails unless operator input ends every remaining operator wait.
fn questions_are_answered(world: &mut World) -> Result<(), String> {
    arrive(world, Arrival::Said(Word::Operator, By::Nothing), None);
    settle_down(world, End::Well)?;
    let left = world.records.waits.iter().find(|wait| wait.kind == WaitKind::Operator);
    left.map_or(Ok(()), |wait| Err(format!("answered, but still active: {wait:?}")))
}

/// Returns the numbers of the cases to try, `usually` many and the same numbers in each run. The
/// environment variable `DORMOUSE_LIVENESS` multiplies the number of cases, or is `all`.
fn sample(size: u64, usually: u64) -> Vec<u64> {
    let asked = std::env::var("DORMOUSE_LIVENESS").unwrap_or_default();
    let wanted = match asked.parse::<u64>() {
        Ok(times) => times.saturating_mul(usually).clamp(1, size),
        Err(_) if asked == "all" => size,
        Err(_) => usually.min(size),
    };
    // A stride that has no common factor with `size` reaches every value of every field of a case.
    let step = (1..).map(|more| size / wanted + more).find(|step| gcd(*step, size) == 1).unwrap_or(1);
    (0..wanted).map(|number| number * step % size).collect()
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Tries the cases with these numbers on all processors. Panics with the first few failed cases.
fn search(numbers: &[u64], try_one: impl Fn(u64) -> Result<(), String> + Sync) {
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let failures: Vec<String> = thread::scope(|scope| {
        let chunks = numbers.chunks(numbers.len().div_ceil(threads).max(1));
        let workers: Vec<_> = chunks
            .map(|chunk| {
                scope.spawn(|| {
                    let failed = |number: &u64| try_one(*number).err().map(|why| format!("{number}: {why}"));
                    chunk.iter().filter_map(failed).take(50).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    let shown: Vec<&str> = failures.iter().take(8).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), numbers.len(), shown.join("\n"));
}

/// Tries a sample of the cases. `usually`: size of the sample in an ordinary test run.
pub fn search_cases<C: std::fmt::Debug + Sync>(
    cases: &[C],
    usually: u64,
    run: impl Fn(&C) -> Result<(), String> + Sync,
) {
    search(&sample(cases.len() as u64, usually), |number| {
        let case = &cases[number as usize];
        run(case).map_err(|why| format!("{case:?}: {why}"))
    });
}

#[test]
fn no_agent_is_stuck_with_any_wait_and_any_arrival() {
    let space = Space::new();
    search(&sample(space.size(), 6_000), |number| {
        let case = space.case(number);
        run(&case).map_err(|why| format!("{case:?}: {why}"))
    });
}
