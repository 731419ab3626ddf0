//! Unit tests of the rules that decide a step, and the functions by which these tests make records.

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

use crate::model::action::{Requester, TaskRequest, TimerRequest, WaitRequest};
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
    AdmissionContext, AuthorityClass, Body, DeliverySurface, EXPIRY_KEY, Message, MessageKind, MessageStatus,
    Origin, OriginKind, Priority, RECHECK_KEY, Settlement, WakeHint,
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
use crate::model::setbacks::{FailedAttempt, Setbacks};
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
use crate::rules::transition::outcome::OutcomeContext;
use crate::rules::transition::preemption::{force, give_way, interject, request, resume};
use crate::rules::transition::resources::{drop_held, lack};
use crate::rules::transition::rest::rest;
use crate::rules::transition::settlement::drop_message;
use crate::rules::transition::take_in::take_in;
use crate::rules::transition::trace::Settled;
use crate::rules::transition::turn::{claim, finish_stop, interrupt, settle};
use crate::rules::transition::wait::{Set, end_wait, set};
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

/// Defines functions that make an id of a number. Tests give each record a number.
macro_rules! ids {
    ($($name:ident: $id:ident),*) => { $(pub fn $name(number: u32) -> $id { $id(uuid(number)) })* };
}

ids!(message_id: MessageId, run_id: RunId, work_id: WorkId, wait_id: WaitId, task_id: TaskId);
ids!(trigger_id: TriggerId, timer_id: TimerId);

/// Returns the state of a new agent in this status and execution state, at revision 10.
pub fn state(status: Status, execution: ExecutionState) -> State {
    let execution = Execution { state: execution, since: now(), task_id: None, reason: None };
    State { revision: 10, status, execution, ..new_state(agent(), now()) }
}

/// Returns the records of an agent that has a state and the default policy, but no other record.
pub fn records_in(status: Status, execution: ExecutionState) -> Records {
    Records::new(Policy::default(), state(status, execution))
}

/// Returns the records of an agent that is awake, has nothing to do and has run no turn.
pub fn records() -> Records {
    records_in(Status::AwakeIdle, ExecutionState::Runnable)
}

/// Returns the records of an idle agent after a change.
pub fn with(change: impl FnOnce(&mut Records)) -> Records {
    let mut records = records();
    change(&mut records);
    records
}

/// Returns the records of an idle agent with one queued message.
pub fn queued(message: Message) -> Records {
    with(|records| records.inbox.head = Some(message))
}

pub fn draft(records: Records) -> Draft {
    draft_at(records, now())
}

pub fn draft_at(records: Records, moment: Time) -> Draft {
    Draft::new(records, stamp_at(moment))
}

/// Returns the report of the decision that a step makes at `moment`.
pub fn report(records: &Records, moment: Time) -> DecisionReport {
    decide(&project(records, moment)).report
}

/// Returns the reason of the decision that a step makes at `moment`.
pub fn reason(records: &Records, moment: Time) -> String {
    report(records, moment).reason
}

/// Returns the origin, authority and trigger kind of a message kind. The rules have their own
/// table, which tests compare with this one.
fn provenance(kind: MessageKind) -> (OriginKind, AuthorityClass, Option<TriggerKind>) {
    use AuthorityClass::{ExternalEvidence, IntegrationSignal, OperatorInstruction, RuntimeInstruction};
    use TriggerKind::{ExternalEvent, InternalFollowup, OperatorInput, SystemTick, TaskResult, TimerFire};
    match kind {
        MessageKind::OperatorPrompt => (OriginKind::Operator, OperatorInstruction, Some(OperatorInput)),
        MessageKind::ChannelEvent => (OriginKind::Channel, ExternalEvidence, Some(ExternalEvent)),
        MessageKind::WebhookEvent => (OriginKind::Webhook, IntegrationSignal, Some(ExternalEvent)),
        MessageKind::CallbackEvent => (OriginKind::Callback, IntegrationSignal, Some(ExternalEvent)),
        MessageKind::TimerTick => (OriginKind::Timer, RuntimeInstruction, Some(TimerFire)),
        MessageKind::SystemTick => (OriginKind::System, RuntimeInstruction, Some(SystemTick)),
        MessageKind::InternalFollowup => (OriginKind::System, RuntimeInstruction, Some(InternalFollowup)),
        MessageKind::TaskResult => (OriginKind::Task, RuntimeInstruction, Some(TaskResult)),
        MessageKind::TaskStatus => (OriginKind::Task, RuntimeInstruction, None),
        MessageKind::Control => (OriginKind::Operator, OperatorInstruction, None),
    }
}

/// Returns a message with the text "do it", one second old and at its first attempt.
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

/// Returns an open, ready, unblocked work item at revision 1.
pub fn work(number: u32) -> WorkItem {
    WorkItem::new(work_id(number), agent(), format!("objective {number}"), at(-5000))
}

/// Returns an active wait of the agent. A timer wait ends in an hour; a task wait is for task 1.
pub fn wait(number: u32, kind: WaitKind) -> Wait {
    Wait {
        resource: (kind == WaitKind::Task).then(|| task_id(1).to_string()),
        wake_at: (kind == WaitKind::Timer).then(|| at(3_600_000)),
        ..Wait::new(wait_id(number), agent(), kind, format!("reason {number}"), at(-4000))
    }
}

/// Returns an active wait that belongs to a work item.
pub fn wait_on(number: u32, kind: WaitKind, item: u32) -> Wait {
    Wait { work_item_id: Some(work_id(item)), ..wait(number, kind) }
}

pub fn task(number: u32, status: TaskStatus) -> Task {
    let job = TaskJob::Command { argv: vec!["true".to_owned()] };
    let (host, boot_id) = ("here".to_owned(), "boot".to_owned());
    let place = Some(StatePlace::default());
    Task { status, host, boot_id, place, ..Task::new(task_id(number), agent(), job, at(-3000)) }
}

/// Returns running tasks with these ids.
pub fn running_tasks(ids: impl Iterator<Item = TaskId>) -> Vec<Task> {
    ids.map(|id| Task { id, started_at: Some(at(-2500)), ..task(0, TaskStatus::Running) }).collect()
}

/// Returns a timer that fires once, `millis` milliseconds after the present.
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

/// Source of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerSource {
    Said,
    WakeHint,
    Scheduler(SchedulerTick),
}

/// Properties of a message that determine its continuation.
#[derive(Debug, Clone)]
pub struct TurnTrigger<'a> {
    pub kind: TriggerKind,
    pub source: TriggerSource,
    pub contentful: bool,
    pub task_id: Option<TaskId>,
    pub task_status: Option<TaskStatus>,
    pub wait_id: Option<WaitId>,
    pub work_item_id: Option<WorkId>,
    pub trigger_id: Option<TriggerId>,
    pub resource: Option<&'a str>,
    pub origin: &'a Origin,
}

impl TurnTrigger<'_> {
    /// Returns the message with these properties.
    pub fn message(&self) -> Message {
        let key = match self.source {
            TriggerSource::Said => None,
            TriggerSource::WakeHint => Some("wake_hint:"),
            TriggerSource::Scheduler(SchedulerTick::Expiry) => Some(EXPIRY_KEY),
            TriggerSource::Scheduler(SchedulerTick::Recheck) => Some(RECHECK_KEY),
            TriggerSource::Scheduler(SchedulerTick::Other) => Some("work_queue:"),
        };
        Message {
            trigger_kind: Some(self.kind),
            idempotency_key: key.map(|key| format!("{key}1")),
            body: text(if self.contentful { "do it" } else { "" }),
            task_id: self.task_id,
            task_status: self.task_status,
            wait_id: self.wait_id,
            work_item_id: self.work_item_id,
            trigger_id: self.trigger_id,
            resource: self.resource.map(str::to_owned),
            origin: self.origin.clone(),
            ..message(1, MessageKind::SystemTick)
        }
    }
}

/// Returns a continuation of operator input that starts a turn, and ends no wait.
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

/// Returns a continuation of an external event that starts no turn.
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

/// Returns run 1, which has claimed this message a second ago.
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

/// Returns the records of an agent whose run 1 works on this message.
pub fn running(message: &Message) -> Records {
    let mut records = records_in(Status::AwakeRunning, ExecutionState::Running);
    records.state.execution.task_id = Some(message.id);
    records.state.current_run = Some(current_run(message));
    records.inbox.claimed = Some(message.clone());
    records
}

/// Returns a held run of this message, which lacks a free slot and was deferred once.
pub fn held(message: &Message, not_before: Option<Time>) -> HeldRun {
    HeldRun {
        missing: "a free slot".to_owned(),
        not_before,
        setbacks: Setbacks { deferrals: 1, ..Setbacks::default() },
        ..HeldRun::new(message.id, continuation())
    }
}

/// Returns the records of an agent with a held run of message 1, which may resume at `not_before`.
pub fn holding(state: ExecutionState, not_before: Option<Time>) -> Records {
    let mut records = records_in(Status::AwakeIdle, state);
    records.state.held = Some(held(&prompt(1), not_before));
    records.inbox.claimed = Some(prompt(1));
    records
}

/// Returns the facts of a decision that a line names, separated by spaces.
pub fn facts(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Returns a shortage of a workspace that no live agent is known to occupy.
pub fn shortage() -> Shortage {
    Shortage {
        resource: Resource::Workspace,
        evidence: vec!["/checkout is held by bob".to_owned()],
        back_at: None,
        is_occupied: false,
    }
}

/// Returns the draft of a step at `moment` whose claim of the queued or the held message lacks a
/// resource.
pub fn lacking(records: Records, missing: &Shortage, moment: Time) -> Draft {
    let mut draft = draft_at(Records { shortage: Some(missing.clone()), ..records }, moment);
    let report = report(&draft.records, moment);
    assert_eq!(report.reason, missing.resource.name());
    let inbox = &draft.records.inbox;
    let message = inbox.head.clone().or(inbox.claimed.clone()).expect("a message");
    lack(&mut draft, &message, continuation(), missing, &report).expect("held");
    draft.records.shortage = None;
    draft
}

pub fn the_held(records: &Records) -> &HeldRun {
    records.state.held.as_ref().expect("a held run")
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

/// Returns the end of a turn whose command exited after 1.5 s without an outcome.
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

/// Returns a request for a wait without a subject, on an item or on the whole agent. Only a timer
/// wait has a time, in one second.
pub fn new_wait(kind: WaitKind, work_item_id: Option<WorkId>) -> WaitRequest {
    WaitRequest {
        kind,
        reason: "why".to_owned(),
        options: Vec::new(),
        resource: None,
        work_item_id,
        whole_agent: true,
        within: (kind == WaitKind::Timer).then(|| secs(1)),
        at: None,
        past_ok: false,
        recheck_after: None,
        recheck_at: None,
        expires_after: None,
        source: None,
        no_fallback: None,
        trigger_id: None,
    }
}

/// Sets a wait for a caller outside of any turn or task.
pub fn set_wait(draft: &mut Draft, new: WaitRequest) -> Result<Set, Refusal> {
    set(draft, new, outside(), None, None)
}

/// Returns a request for a task that runs a command.
pub fn new_task(command: &[&str]) -> TaskRequest {
    TaskRequest {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        delegate: None,
        text: None,
        summary: None,
        work_item_id: None,
        notify: true,
        interactive: false,
        timeout: None,
    }
}

/// Returns a caller outside of any turn or task.
pub fn outside() -> Requester {
    Requester { since: now(), hops: None, in_turn: false }
}

/// Returns the stop of a run whose processes are killed in a second.
pub fn stopping(requeue: bool) -> Stopping {
    Stopping { requested_at: now(), kill_at: at(1000), requeue, reason: None }
}

/// Returns a draft of these records after a step has taken in everything that is due.
pub fn taken_in(records: Records) -> Draft {
    taken_in_at(records, now())
}

/// Returns a draft of these records after a step at `moment` has taken in everything that is due.
pub fn taken_in_at(records: Records, moment: Time) -> Draft {
    let mut draft = draft_at(records, moment);
    take_in(&mut draft).expect("taken in");
    draft
}

/// Returns the transaction of a change that is not refused.
pub fn changed<T>(records: Records, change: impl FnOnce(&mut Draft) -> Result<T, Refusal>) -> Transaction {
    applied(records, |draft| drop(change(draft).unwrap_or_else(|refusal| panic!("{refusal:?}"))))
}

/// Returns the transaction of a change that can't be refused.
pub fn applied(records: Records, change: impl FnOnce(&mut Draft)) -> Transaction {
    let mut draft = draft(records);
    change(&mut draft);
    finish(draft)
}

/// Returns the refusal of a change. Panics if the refused change has touched the draft.
pub fn refused<T>(records: Records, change: impl FnOnce(&mut Draft) -> Result<T, Refusal>) -> Refusal {
    let mut draft = draft(records);
    let refusal = change(&mut draft).err().expect("a refusal");
    assert!(draft.is_empty(), "{refusal:?}");
    refusal
}

/// Settles the current run with this end of its turn.
pub fn settle_run(draft: &mut Draft, end: TurnEnd) -> Settled {
    let run = draft.records.state.current_run.as_ref().expect("a run").run_id;
    settle(draft, run, end, None, &OutcomeContext::default()).expect("settled")
}

/// Returns the result and the transaction of the current run's settlement.
pub fn settled(records: Records, end: TurnEnd) -> (Settled, Transaction) {
    let mut draft = draft(records);
    (settle_run(&mut draft, end), finish(draft))
}

/// Returns the records after a draft was committed.
pub fn committed(draft: Draft) -> Records {
    let after = draft.records.clone();
    Records { state: finish(draft).state, ..after }
}

/// Returns `None`, then each item of a list.
pub fn optional<T: Clone>(all: &[T]) -> Vec<Option<T>> {
    std::iter::once(None).chain(all.iter().cloned().map(Some)).collect()
}

/// Returns all subsets of a list, from the empty one to the whole list.
pub fn subsets<T: Copy>(all: &[T]) -> impl Iterator<Item = Vec<T>> + '_ {
    (0u32..1 << all.len()).map(move |bits| {
        all.iter().enumerate().filter(|(place, _)| bits & (1 << place) != 0).map(|(_, one)| *one).collect()
    })
}

/// Returns the transaction of a draft. Panics if the status disagrees with the execution state.
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

/// Returns several text fields of an event's data.
pub fn words<'a, const N: usize>(data: &'a Value, fields: [&str; N]) -> [&'a str; N] {
    fields.map(|field| word(data, field))
}

/// True if a transaction deletes no record, and archives nothing but runs.
pub fn ends_the_run_alone(transaction: &Transaction) -> bool {
    let is_run = |archived: &Archived| matches!(archived, Archived::Run(_));
    transaction.deletes.is_empty() && transaction.archived.iter().all(is_run)
}

/// Returns the records of one kind that a transaction puts or archives: `all_of!(puts, Put::Wait)`
/// has all its waits.
macro_rules! all_of {
    ($records:expr, $kind:path) => {
        $records.iter().filter_map(|record| if let $kind(record) = record { Some(&**record) } else { None })
    };
}
pub(crate) use all_of;

/// Returns the only message that a transaction archives.
pub fn archived_message(transaction: &Transaction) -> &Message {
    let mut messages = all_of!(transaction.archived, Archived::Message);
    match (messages.next(), messages.next()) {
        (Some(message), None) => message,
        other => panic!("not exactly one archived message: {other:?}"),
    }
}

/// Returns the settlement of the only message that a transaction archives.
pub fn settlement(transaction: &Transaction) -> &Settlement {
    archived_message(transaction).settlement.as_ref().expect("settled")
}

/// Returns the status and the reason of the settlement of the only archived message, and true if
/// the message is a dead letter.
pub fn settled_as(transaction: &Transaction) -> (MessageStatus, Option<&str>, bool) {
    let Settlement { status, reason, dead_letter, .. } = settlement(transaction);
    (*status, reason.as_deref(), *dead_letter)
}

/// Returns the messages that a transaction puts into the queue.
pub fn messages(transaction: &Transaction) -> impl Iterator<Item = &Message> {
    all_of!(transaction.puts, Put::Message)
}

/// Returns the message that a transaction puts into the queue, if any. Panics if there are several.
pub fn put_message(transaction: &Transaction) -> Option<&Message> {
    let mut messages = messages(transaction);
    let first = messages.next();
    assert_eq!(messages.next(), None, "a second message");
    first
}

/// Returns a failed attempt of a message, which has reached its time limit.
pub fn failed_attempt(attempt: u32) -> FailedAttempt {
    FailedAttempt {
        attempt,
        run_id: Some(run_id(attempt + 10)),
        terminal: Terminal::TimedOut,
        at: at(-5000),
        reason: "too long".to_owned(),
    }
}
