//! Tests of the rules, one file per rule, and the builders of their rows.

mod admission;
mod advisory;
mod authority;
mod calendar_peers;
mod clock;
mod closure;
mod continuation;
mod counters;
mod deferral;
mod due;
mod execution;
mod forecast;
mod ladder;
mod limits;
mod liveness;
mod liveness_setbacks;
mod liveness_turns;
mod posture;
mod preemption;
mod priority;
mod projection;
mod resources;
mod retry;
mod schedule;
mod setbacks;
mod signature;
mod step;
mod transition_draft;
mod transition_inbox;
mod transition_lifecycle;
mod transition_planes;
mod transition_rest;
mod transition_sequences;
mod transition_task;
mod transition_turn;
mod transition_wait;
mod trigger;
mod waits;
mod work;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::model::agent::Status;
use crate::model::attention::Subject;
use crate::model::closure::{Closure, ClosureOutcome, RuntimePosture, WaitingReason};
use crate::model::continuation::{Continuation, ContinuationClass, SchedulerTick, TriggerKind};
use crate::model::decision::{
    Decision, DecisionKind, DecisionReport, MessageSummary, RecoveryCause, ResumeCause, StepAction,
};
use crate::model::event::{Event, EventKind};
use crate::model::execution::{Execution, ExecutionState};
use crate::model::id::{AgentName, MessageId, RunId, TaskId, TimerId, TriggerId, WaitId, WorkId};
use crate::model::inbox::Unmatched;
use crate::model::message::{
    AdmissionContext, AuthorityClass, Body, DeliverySurface, Message, MessageKind, MessageStatus, Origin,
    OriginKind, Priority, Settlement, WakeHint,
};
use crate::model::place::StatePlace;
use crate::model::policy::{Limit, Limits, Policy, Size, Timeouts};
use crate::model::posture::Posture;
use crate::model::preemption::Checkpoint;
use crate::model::record::{Extra, Record};
use crate::model::records::{InstalledHooks, LeaseState, Records, Staleness};
use crate::model::recovery::OnExhausted;
use crate::model::refusal::Refusal;
use crate::model::resource::{Deferral, Resource, Shortage};
use crate::model::run::{Exit, Run, Terminal, Usage};
use crate::model::setbacks::Setbacks;
use crate::model::stamp::Stamp;
use crate::model::state::{
    Counters, CurrentRun, HeldRun, LastTurn, Retry, SetAside, Spending, State, Stopping,
};
use crate::model::task::{Task, TaskEnd, TaskJob, TaskStatus};
use crate::model::time::{Span, Time};
use crate::model::timer::{CatchUp, Schedule, Timer};
use crate::model::transaction::{Archived, Delete, Put, Transaction};
use crate::model::trigger::Verify;
use crate::model::turn::{Outcome, RunClaimant, TurnEnd};
use crate::model::wait::{Wait, WaitKind, WaitStatus};
use crate::model::work::{PlanStatus, SchedulingState, Ticked, WorkItem, WorkState};
use crate::model::zone::Zone;
use crate::rules::admission::{Provenance, message as admitted};
use crate::rules::advisory::advisories;
use crate::rules::authority::OPERATOR;
use crate::rules::closure::AgentWaits;
use crate::rules::due::next_due;
use crate::rules::execution::deadline;
use crate::rules::ladder::decide;
use crate::rules::projection::{WorkFact, project};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::gate::shut_down;
use crate::rules::transition::inbox::{reduce, requeue};
use crate::rules::transition::lifecycle::{new_state, retry_held, start, stop};
use crate::rules::transition::preemption::{force, give_way, interject, request, resume};
use crate::rules::transition::resources::{drop_held, lack};
use crate::rules::transition::rest::rest;
use crate::rules::transition::settlement::drop_message;
use crate::rules::transition::take_in::take_in;
use crate::rules::transition::turn::{claim, finish_stop, interrupt, settle};
use crate::rules::transition::wait::{NewWait, WaitOwner, end_wait};
use crate::rules::transition::work::{complete, pick};

/// Present time of every test, 2023-11-14T22:13:20Z.
pub const NOW_MS: i64 = 1_700_000_000_000;

pub fn now() -> Time {
    Time::from_millis(NOW_MS)
}

/// Returns a time relative to the present of the tests, in milliseconds.
pub fn at(millis: i64) -> Time {
    Time::from_millis(NOW_MS + millis)
}

pub const fn secs(secs: u64) -> Span {
    Span::from_secs(secs)
}

pub fn stamp_at(moment: Time) -> Stamp {
    Stamp::new(moment, 7, 0.0)
}

pub fn agent() -> AgentName {
    "worker".parse().expect("a valid name")
}

fn uuid(number: u32) -> Uuid {
    Uuid::from_u128(u128::from(number))
}

pub fn message_id(number: u32) -> MessageId {
    MessageId(uuid(number))
}

pub fn run_id(number: u32) -> RunId {
    RunId(uuid(number))
}

pub fn work_id(number: u32) -> WorkId {
    WorkId(uuid(number))
}

pub fn wait_id(number: u32) -> WaitId {
    WaitId(uuid(number))
}

pub fn task_id(number: u32) -> TaskId {
    TaskId(uuid(number))
}

pub fn trigger_id(number: u32) -> TriggerId {
    TriggerId(uuid(number))
}

pub fn timer_id(number: u32) -> TimerId {
    TimerId(uuid(number))
}

/// Returns an agent that is `status` in `execution`, without any other record.
pub fn state(status: Status, execution: ExecutionState) -> State {
    let execution = Execution { state: execution, since: now(), task_id: None, reason: None };
    State { revision: 10, status, execution, ..new_state(agent(), now()) }
}

/// Returns the records of an agent with the default policy, and nothing but its state.
pub fn records_in(status: Status, execution: ExecutionState) -> Records {
    Records::new(Policy::default(), state(status, execution))
}

/// Returns an agent that is awake, has nothing to do and never did anything.
pub fn records() -> Records {
    records_in(Status::AwakeIdle, ExecutionState::Runnable)
}

pub fn draft(records: Records) -> Draft {
    Draft::new(records, stamp_at(now()))
}

/// Returns a kind's own origin, authority and trigger kind, defined independently of the rules.
fn provenance(kind: MessageKind) -> (OriginKind, AuthorityClass, Option<TriggerKind>) {
    use AuthorityClass::{ExternalEvidence, IntegrationSignal, OperatorInstruction, RuntimeInstruction};
    match kind {
        MessageKind::OperatorPrompt => {
            (OriginKind::Operator, OperatorInstruction, Some(TriggerKind::OperatorInput))
        }
        MessageKind::ChannelEvent => {
            (OriginKind::Channel, ExternalEvidence, Some(TriggerKind::ExternalEvent))
        }
        MessageKind::WebhookEvent => {
            (OriginKind::Webhook, IntegrationSignal, Some(TriggerKind::ExternalEvent))
        }
        MessageKind::CallbackEvent => {
            (OriginKind::Callback, IntegrationSignal, Some(TriggerKind::ExternalEvent))
        }
        MessageKind::TimerTick => (OriginKind::Timer, RuntimeInstruction, Some(TriggerKind::TimerFire)),
        MessageKind::SystemTick => (OriginKind::System, RuntimeInstruction, Some(TriggerKind::SystemTick)),
        MessageKind::InternalFollowup => {
            (OriginKind::System, RuntimeInstruction, Some(TriggerKind::InternalFollowup))
        }
        MessageKind::TaskResult => (OriginKind::Task, RuntimeInstruction, Some(TriggerKind::TaskResult)),
        MessageKind::TaskStatus => (OriginKind::Task, RuntimeInstruction, None),
        MessageKind::Control => (OriginKind::Operator, OperatorInstruction, None),
    }
}

/// Returns a message with the text "do it", at its first attempt.
pub fn message(number: u32, kind: MessageKind) -> Message {
    let (origin, authority_class, trigger_kind) = provenance(kind);
    let from = Provenance {
        origin: Origin { kind: origin, id: None },
        delivery_surface: DeliverySurface::Cli,
        admission_context: AdmissionContext::LocalProcess,
    };
    Message {
        id: message_id(number),
        authority_class,
        trigger_kind,
        ..admitted(agent(), kind, from, text("do it"), &mut stamp_at(at(-1000)))
    }
}

pub fn prompt(number: u32) -> Message {
    message(number, MessageKind::OperatorPrompt)
}

pub fn text(text: &str) -> Body {
    Body::Text { text: text.to_owned() }
}

/// Returns an open, ready, unblocked item at revision 1.
pub fn work(number: u32) -> WorkItem {
    WorkItem::new(work_id(number), agent(), format!("objective {number}"), at(-5000))
}

/// Returns an active wait of the agent itself; a timer wait is due in an hour, a task wait is for
/// task 1.
pub fn wait(number: u32, kind: WaitKind) -> Wait {
    Wait {
        resource: (kind == WaitKind::Task).then(|| task_id(1).to_string()),
        wake_at: (kind == WaitKind::Timer).then(|| at(3_600_000)),
        ..Wait::new(wait_id(number), agent(), kind, format!("reason {number}"), at(-4000))
    }
}

/// Returns such a wait on a work item.
pub fn wait_on(number: u32, kind: WaitKind, item: u32) -> Wait {
    Wait { work_item_id: Some(work_id(item)), ..wait(number, kind) }
}

pub fn task(number: u32, status: TaskStatus) -> Task {
    let job = TaskJob::Command { argv: vec!["true".to_owned()] };
    let (host, boot_id) = ("here".to_owned(), "boot".to_owned());
    let place = Some(StatePlace::default());
    Task { status, host, boot_id, place, ..Task::new(task_id(number), agent(), job, at(-3000)) }
}

/// Returns tasks with these ids that have been started.
pub fn running_tasks(ids: impl Iterator<Item = TaskId>) -> Vec<Task> {
    ids.map(|id| Task { id, started_at: Some(at(-2500)), ..task(0, TaskStatus::Running) }).collect()
}

/// Returns a timer that fires so many milliseconds after the present.
pub fn timer(number: u32, millis: i64) -> Timer {
    Timer::new(timer_id(number), agent(), Schedule::At { at: at(millis) }, at(millis), at(-2000))
}

/// Returns a wake hint from `cron` without content.
pub fn hint(number: u32) -> WakeHint {
    WakeHint {
        id: message_id(number),
        agent: agent(),
        source: "cron".to_owned(),
        reason: None,
        resource: None,
        trigger_id: None,
        wait_id: None,
        body: None,
        delivery_surface: DeliverySurface::Cli,
        admission_context: AdmissionContext::LocalProcess,
        source_refs: Vec::new(),
        created_at: at(-1000),
        count: 1,
        hops: 0,
        extra: Extra::new(),
    }
}

pub fn closure(outcome: ClosureOutcome, reason: Option<WaitingReason>, wait: Option<WaitId>) -> Closure {
    Closure {
        outcome,
        waiting_reason: reason,
        wait_id: wait,
        work_item_id: None,
        runtime_posture: RuntimePosture::Awake,
        evidence: Vec::new(),
    }
}

/// Returns a continuation that starts a turn after a closure that waited for nothing.
pub fn continuation() -> Continuation {
    Continuation {
        trigger_kind: TriggerKind::OperatorInput,
        class: ContinuationClass::LocalContinuation,
        model_reentry: true,
        prior_closure_outcome: ClosureOutcome::Completed,
        prior_waiting_reason: None,
        matched_waiting_reason: false,
        resolves: Vec::new(),
        evidence: vec!["prior=completed".to_owned()],
    }
}

/// Returns a continuation that starts no turn.
pub fn liveness() -> Continuation {
    Continuation {
        trigger_kind: TriggerKind::ExternalEvent,
        class: ContinuationClass::LivenessOnly,
        model_reentry: false,
        ..continuation()
    }
}

pub fn claimant() -> RunClaimant {
    RunClaimant { host: "here".to_owned(), boot_id: "boot".to_owned(), place: StatePlace::default(), pid: 42 }
}

/// Returns run 1 of the message, claimed a second ago.
pub fn current_run(message: &Message) -> CurrentRun {
    CurrentRun {
        run_id: run_id(1),
        message_id: message.id,
        work_item_id: message.work_item_id,
        attempt: message.attempt,
        claimed_at: at(-1000),
        host: "here".to_owned(),
        boot_id: "boot".to_owned(),
        place: StatePlace::default(),
        pid: 42,
        lease_expires_at: at(1_859_000),
        hops: message.hops,
        continuation: continuation(),
        setbacks: Setbacks::default(),
        deferred_since: None,
        deferred: None,
        stopping: None,
        preemption: None,
        sections: Vec::new(),
        yielded_at: None,
        resume_after: None,
        checkpoint: None,
        given: None,
        told: None,
        condemned: None,
        forced: false,
    }
}

/// Returns an agent whose turn on this message runs as run 1.
pub fn running(message: &Message) -> Records {
    let mut records = records_in(Status::AwakeRunning, ExecutionState::Running);
    records.state.execution.task_id = Some(message.id);
    records.state.current_run = Some(current_run(message));
    records.inbox.claimed = Some(message.clone());
    records.inbox.head = Some(message.clone());
    records
}

pub fn held(message: &Message, not_before: Option<Time>) -> HeldRun {
    HeldRun {
        missing: "a free slot".to_owned(),
        not_before,
        setbacks: Setbacks { deferrals: 1, ..Setbacks::default() },
        ..HeldRun::new(message.id, continuation())
    }
}

/// Returns a shortage of a workspace that an unknown holder has.
pub fn shortage() -> Shortage {
    Shortage {
        resource: Resource::Workspace,
        evidence: vec!["/checkout is held by bob".to_owned()],
        back_at: None,
        is_occupied: false,
    }
}

pub fn retry(message: &Message, not_before: Time) -> Retry {
    Retry { message_id: Some(message.id), attempt: Some(2), not_before, reason: "exit status 1".to_owned() }
}

pub fn last_turn(terminal: Terminal) -> LastTurn {
    LastTurn {
        run_id: run_id(9),
        message_id: message_id(9),
        attempt: 1,
        terminal,
        ended_at: at(-2000),
        brief: None,
        reason: None,
        model: None,
    }
}

/// Returns the end of a command that exited after 1.5 s without output.
pub fn exited(code: i32) -> TurnEnd {
    TurnEnd {
        exit: Exit::Code { code },
        timed_out: false,
        cancelled_by: None,
        by_itself: false,
        is_prevented: false,
        ended_at: at(-10),
        duration_ms: 1500,
        outcome: Ok(Outcome::default()),
        notes: Vec::new(),
        stdout_bytes: 12,
        stderr_bytes: 34,
        last_line: None,
        last_error_line: None,
    }
}

/// Returns the end of a task's command that wrote nothing.
pub fn task_end(exit: Exit, ended_at: Time) -> TaskEnd {
    TaskEnd {
        exit,
        timed_out: false,
        cancelled_by: None,
        ended_at,
        stdout_bytes: 0,
        stderr_bytes: 0,
        last_line: None,
    }
}

/// Returns a new wait without any time; a timer wait ends in a second.
pub fn new_wait(kind: WaitKind, owner: WaitOwner) -> NewWait {
    NewWait {
        trigger: None,
        kind,
        reason: "why".to_owned(),
        options: Vec::new(),
        owner,
        resource: None,
        wake_at: (kind == WaitKind::Timer).then(|| at(1000)),
        recheck: None,
        expires_at: None,
        source: None,
        no_fallback: None,
        ended_task: None,
        hops: None,
    }
}

/// Returns the end of a stop at this run that kills it in a second.
pub fn stopping(requeue: bool) -> Stopping {
    Stopping { requested_at: now(), kill_at: at(1000), requeue, reason: None }
}

/// Returns a draft of these records after the first part of a step.
pub fn taken_in(records: Records) -> Draft {
    taken_in_at(records, now())
}

/// Returns a draft of these records after the first part of a step at this time.
pub fn taken_in_at(records: Records, moment: Time) -> Draft {
    let mut draft = Draft::new(records, stamp_at(moment));
    take_in(&mut draft).expect("taken in");
    draft
}

/// Returns the records after a draft was committed.
pub fn committed(draft: Draft) -> Records {
    let after = draft.records.clone();
    Records { state: finish(draft).state, ..after }
}

/// Returns the subsets of a list, from the empty one to the whole.
pub fn subsets<T: Copy>(all: &[T]) -> impl Iterator<Item = Vec<T>> + '_ {
    (0u32..1 << all.len()).map(move |bits| {
        all.iter().enumerate().filter(|(place, _)| bits & (1 << place) != 0).map(|(_, one)| *one).collect()
    })
}

/// Returns the transaction of a draft.
pub fn finish(draft: Draft) -> Transaction {
    draft.finish().expect("a status that goes with the execution state")
}

pub fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

/// Returns the states that a transaction passes through, as `from -> to`.
pub fn path(events: &[Event]) -> Vec<String> {
    of_kind(events, EventKind::StateTransition)
        .map(|data| format!("{} -> {}", word(data, "from"), word(data, "to")))
        .collect()
}

/// Returns the data of every event of a kind.
pub fn of_kind(events: &[Event], kind: EventKind) -> impl Iterator<Item = &Value> {
    events.iter().filter(move |event| event.kind == kind).map(|event| &event.data)
}

/// Returns a text field of an event's data.
pub fn word<'a>(data: &'a Value, field: &str) -> &'a str {
    data[field].as_str().unwrap_or_else(|| panic!("no text field `{field}` in {data}"))
}

/// True if a transaction ends nothing but a run.
pub fn ends_the_run_alone(transaction: &Transaction) -> bool {
    let is_run = |archived: &Archived| matches!(archived, Archived::Run(_));
    transaction.deletes.is_empty() && transaction.archived.iter().all(is_run)
}

/// Returns the records of one kind that a transaction writes or archives, such as `all_of!(puts,
/// Put::Wait)`.
macro_rules! all_of {
    ($records:expr, $kind:path) => {
        $records.iter().filter_map(|record| if let $kind(record) = record { Some(&**record) } else { None })
    };
}
pub(crate) use all_of;

/// Returns the one message that a transaction archives.
pub fn archived_message(transaction: &Transaction) -> &Message {
    let mut messages = all_of!(transaction.archived, Archived::Message);
    match (messages.next(), messages.next()) {
        (Some(message), None) => message,
        other => panic!("not exactly one archived message: {other:?}"),
    }
}
