//! Tests of random sequences of events: every transition is a valid transaction, and in the end the
//! agent rests.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::message::InboxKey;
use crate::model::records::BrokenWait;
use crate::rules::execution::{agrees, can};
use crate::rules::preemption::{force_at, is_interjection};
use crate::rules::transition::arrival::staleness;
use crate::rules::transition::gate::is_to_be_shut_down;
use crate::rules::transition::inbox::emit_tick;
use crate::rules::transition::lifecycle::fail;
use crate::rules::transition::preemption::{close_section, open_section};
use crate::rules::transition::recovery::recover;
use crate::rules::transition::rest::decided;

use super::*;

/// End of a turn's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Well,
    Badly,
    Deferred,
    TimedOut,
    Cancelled,
    NotStarted,
    Prevented,
    BadOutcome,
    Killed,
}

const ENDS: [End; 9] = [
    End::Well,
    End::Badly,
    End::Deferred,
    End::TimedOut,
    End::Cancelled,
    End::NotStarted,
    End::Prevented,
    End::BadOutcome,
    End::Killed,
];

/// Event in the life of an agent.
#[derive(Debug, Clone)]
pub enum Act {
    Arrive { kind: MessageKind, priority: Priority, blank: bool, ttl: Option<i64> },
    Wake { resource: Option<u32>, blank: bool },
    AddWork { focus: bool },
    ReviseWork(usize),
    BlockWork(usize),
    AddWait { kind: WaitKind, item: Option<usize> },
    EndWait(usize),
    SetTask(TaskStatus),
    AddTimer,
    DropTimer,
    Pass(i64),
    Step,
    // The running turn ends, and its `tick` process settles it.
    EndTurn(End),
    // The `tick` process of the turn dies before the settlement.
    LoseTick,
    Stop { requeue: bool },
    ShutDown,
    FinishStop { killed: bool },
    Start,
    Recover,
    Requeue(usize),
    // From now on every claim lacks this resource, or no resource.
    Lack(Option<Resource>),
    Preempt { grace: u64, pause: Option<u64> },
    // The turn opens a critical section of so many seconds, or closes the innermost section.
    Section(Option<u64>),
    // The turn takes the operator's messages of priority `interject` from the queue.
    SafePoint,
    Yield { saved: bool, pause: Option<u64> },
    // The `tick` process ends a turn that did not yield before its deadline.
    Force,
    Resume,
    Fail,
}

fn acts() -> impl Strategy<Value = Act> {
    let any_of = |all: &'static [MessageKind]| proptest::sample::select(all);
    let kind = any_of(MessageKind::ALL);
    let priority = proptest::sample::select(Priority::ALL);
    let wait_kind = proptest::sample::select(WaitKind::ALL);
    let ttl = proptest::option::weighted(0.2, 0i64..5000);
    prop_oneof![
        6 => (kind, priority, any::<bool>(), ttl)
            .prop_map(|(kind, priority, blank, ttl)| Act::Arrive { kind, priority, blank, ttl }),
        3 => (proptest::option::of(0u32..2), any::<bool>())
            .prop_map(|(resource, blank)| Act::Wake { resource, blank }),
        2 => any::<bool>().prop_map(|focus| Act::AddWork { focus }),
        1 => (0usize..4).prop_map(Act::ReviseWork),
        1 => (0usize..4).prop_map(Act::BlockWork),
        3 => (wait_kind, proptest::option::of(0usize..4))
            .prop_map(|(kind, item)| Act::AddWait { kind, item }),
        2 => (0usize..4).prop_map(Act::EndWait),
        2 => proptest::sample::select(TaskStatus::ALL).prop_map(Act::SetTask),
        1 => Just(Act::AddTimer),
        1 => Just(Act::DropTimer),
        3 => prop_oneof![Just(1i64), Just(1000), Just(60_000), Just(400_000)].prop_map(Act::Pass),
        16 => Just(Act::Step),
        10 => proptest::sample::select(&ENDS[..]).prop_map(Act::EndTurn),
        2 => Just(Act::LoseTick),
        2 => any::<bool>().prop_map(|requeue| Act::Stop { requeue }),
        2 => Just(Act::ShutDown),
        2 => any::<bool>().prop_map(|killed| Act::FinishStop { killed }),
        3 => Just(Act::Start),
        1 => Just(Act::Recover),
        1 => (0usize..3).prop_map(Act::Requeue),
        2 => proptest::option::of(proptest::sample::select(Resource::ALL)).prop_map(Act::Lack),
        3 => (0u64..60, proptest::option::of(1u64..600))
            .prop_map(|(grace, pause)| Act::Preempt { grace, pause }),
        2 => proptest::option::of(1u64..120).prop_map(Act::Section),
        2 => Just(Act::SafePoint),
        4 => (any::<bool>(), proptest::option::of(1u64..600))
            .prop_map(|(saved, pause)| Act::Yield { saved, pause }),
        2 => Just(Act::Force),
        3 => Just(Act::Resume),
        1 => Just(Act::Fail),
    ]
}

/// Changes of the status that one transition may make, by contract, semantics §2. A change to
/// `stopped` is always allowed.
const STATUS_TABLE: [(Status, Status); 14] = [
    (Status::Booting, Status::AwakeIdle),
    (Status::Stopped, Status::AwakeIdle),
    (Status::AwakeIdle, Status::AwakeRunning),
    (Status::Asleep, Status::AwakeRunning),
    (Status::AwaitingTask, Status::AwakeRunning),
    (Status::AwakeRunning, Status::AwaitingTask),
    (Status::AwakeIdle, Status::AwaitingTask),
    (Status::AwakeRunning, Status::Asleep),
    (Status::AwakeIdle, Status::Asleep),
    (Status::AwakeRunning, Status::AwakeIdle),
    (Status::Asleep, Status::AwakeIdle),
    (Status::AwaitingTask, Status::AwakeIdle),
    // The reason for which the agent rests may change between a task and anything else.
    (Status::AwaitingTask, Status::Asleep),
    (Status::Asleep, Status::AwaitingTask),
];

/// Returns the status after these events. Panics unless each change begins in the status to which
/// the change before has led.
fn told_status(events: &[Event], before: Status) -> Status {
    events.iter().filter(|event| event.data.get("boundary").is_some()).fold(before, |status, event| {
        let Some(next) = event.data.get("next_status") else { return status };
        assert_eq!(event.data["previous_status"], serde_json::json!(status), "{event:?}");
        serde_json::from_value(next.clone()).expect("a status")
    })
}

/// In-memory store of one agent.
#[derive(Clone)]
pub struct World {
    pub records: Records,
    pub queue: BTreeMap<InboxKey, Message>,
    pub hints: BTreeMap<MessageId, WakeHint>,
    pub archive: Vec<Message>,
    /// Waits that have ended.
    pub waits: Vec<Wait>,
    /// Ids of the waits, work items, timers, tasks and triggers that have ended.
    ended: BTreeSet<String>,
    runs: BTreeMap<RunId, Run>,
    pub now: Time,
    named: u32,
    /// Run whose `tick` process is alive.
    pub live: Option<RunId>,
    lacking: Option<Shortage>,
    /// True if each transaction is checked; false in searches for which the check takes too long.
    pub is_checked: bool,
}

/// Replaces the record that has the id of the new record, or appends the new record.
fn replace<T: Clone, Id: PartialEq>(records: &mut Vec<T>, new: &T, id: impl Fn(&T) -> Id) {
    match records.iter_mut().find(|other| id(other) == id(new)) {
        Some(place) => *place = new.clone(),
        None => records.push(new.clone()),
    }
}

impl World {
    pub fn new() -> World {
        World {
            records: records_in(Status::Booting, ExecutionState::Initializing),
            queue: BTreeMap::new(),
            hints: BTreeMap::new(),
            archive: Vec::new(),
            waits: Vec::new(),
            ended: BTreeSet::new(),
            runs: BTreeMap::new(),
            now: Time::from_millis(NOW_MS),
            named: 100,
            live: None,
            lacking: None,
            is_checked: true,
        }
    }

    /// Returns a new number for a record.
    pub fn name(&mut self) -> u32 {
        self.named += 1;
        self.named
    }

    pub fn later(&mut self, millis: i64) {
        self.now = Time::from_millis(self.now.as_millis() + millis);
    }

    /// Returns the records as a step would load them.
    pub fn load(&self) -> Records {
        let mut records = self.records.clone();
        records.lease = if self.live.is_some() { LeaseState::Held } else { LeaseState::Free };
        let state = &records.state;
        let running = state.current_run.as_ref().map(|run| run.message_id);
        let claimed = running.or(state.held.as_ref().map(|held| held.message_id));
        records.inbox.claimed = self.queue.values().find(|message| Some(message.id) == claimed).cloned();
        // The head of the queue is never the claimed message.
        for message in self.queue.values().filter(|message| Some(message.id) != claimed) {
            let Some(why) = staleness(message, None, self.now) else {
                records.inbox.head = Some(message.clone());
                break;
            };
            records.inbox.stale.push((message.clone(), why));
        }
        records.inbox.hints = self.hints.values().cloned().collect();
        records.inbox.has_background =
            self.queue.values().any(|message| message.priority == Priority::Background);
        records.broken_waits = self.records.waits.iter().filter_map(|wait| self.broken(wait)).collect();
        let rechecks = self.records.waits.iter().filter_map(|wait| wait.recheck_id);
        let gone = rechecks.filter(|id| self.queue.values().all(|message| message.id != *id));
        records.broken_waits.extend(gone.map(BrokenWait::RecheckGone));
        records
    }

    /// Returns the contradiction between a wait and the other records, if any.
    fn broken(&self, wait: &Wait) -> Option<BrokenWait> {
        let is_queued = |id: MessageId| self.queue.values().any(|message| message.id == id);
        if let Some(message) = wait.resolved_by {
            return (!is_queued(message)).then_some(BrokenWait::AnswerGone(wait.id, message));
        }
        let ended = wait.task_id().filter(|id| self.records.tasks.iter().all(|task| task.id != *id))?;
        let says_so =
            |message: &Message| message.kind == MessageKind::TaskResult && message.task_id == Some(ended);
        (!self.queue.values().any(says_so)).then_some(BrokenWait::TaskGone(wait.id))
    }

    pub fn draft(&self) -> Draft {
        let entropy = u128::from(self.records.state.revision);
        Draft::new(self.load(), Stamp::new(self.now, entropy, 0.5))
    }

    /// Checks the transaction of a draft and applies it.
    pub fn commit(&mut self, draft: Draft) {
        let before = self.records.state.clone();
        let transaction = draft.finish().unwrap_or_else(|refusal| panic!("{refusal:?} after {before:?}"));
        if !self.is_checked {
            return self.apply(&transaction);
        }
        check(&before, &transaction);
        self.apply(&transaction);
        let stored = |world: &World| (world.queue.clone(), world.hints.clone(), world.records.clone());
        let once = stored(self);
        self.put_and_delete(&transaction);
        assert_eq!(once, stored(self), "the second application of a transaction has changed a record");
        if let Some(resting) = &self.records.state.resting {
            let next = report(&self.load(), self.now);
            assert_eq!(&next, resting, "the decision of the next step");
        }
    }

    fn apply(&mut self, transaction: &Transaction) {
        for archived in &transaction.archived {
            let ended = match archived {
                Archived::Message(message) => {
                    self.archive.push((**message).clone());
                    continue;
                }
                Archived::Wait(wait) => {
                    self.waits.push((**wait).clone());
                    wait.id.to_string()
                }
                Archived::Work(item) => item.id.to_string(),
                Archived::Timer(timer) => timer.id.to_string(),
                Archived::Task(task) => task.id.to_string(),
                Archived::Trigger(trigger) => trigger.id.to_string(),
                Archived::Run(run) => {
                    self.runs.insert(run.id, (**run).clone());
                    continue;
                }
                Archived::Brief(_) => continue,
            };
            assert!(self.ended.insert(ended), "a record has ended twice: {archived:?}");
        }
        self.put_and_delete(transaction);
        let focus = self.records.state.focus;
        let is_open = |id| self.records.works.iter().any(|item| item.id == id);
        assert!(focus.is_none_or(is_open), "an item that is not open is current");
    }

    fn put_and_delete(&mut self, transaction: &Transaction) {
        self.records.state = transaction.state.clone();
        for put in &transaction.puts {
            match put {
                Put::Message(message) => {
                    self.queue.insert(message.key(), (**message).clone());
                }
                Put::Work(item) => replace(&mut self.records.works, item, |item| item.id),
                Put::Wait(wait) => replace(&mut self.records.waits, wait, |wait| wait.id),
                Put::Timer(timer) => replace(&mut self.records.timers, timer, |timer| timer.id),
                Put::Task(task) => replace(&mut self.records.tasks, task, |task| task.id),
                Put::Trigger(trigger) => replace(&mut self.records.triggers, trigger, |trigger| trigger.id),
                Put::Hint(hint) => panic!("no hint has a key, but {hint:?}"),
                Put::Plan(..) => {}
                Put::Outgoing(message) => panic!("no turn sends anything, but {message:?}"),
                Put::Dedupe(entry) => panic!("no message has a key, but {entry:?}"),
            }
        }
        for delete in &transaction.deletes {
            match delete {
                Delete::Message(key) => {
                    self.queue.remove(key);
                }
                Delete::Hint(id) => {
                    self.hints.remove(id);
                }
                Delete::Checkpoint(_) | Delete::Outgoing(_) => {}
            }
        }
        for archived in &transaction.archived {
            match archived {
                Archived::Wait(ended) => self.records.waits.retain(|wait| wait.id != ended.id),
                Archived::Work(ended) => self.records.works.retain(|item| item.id != ended.id),
                Archived::Timer(ended) => self.records.timers.retain(|timer| timer.id != ended.id),
                Archived::Task(ended) => self.records.tasks.retain(|task| task.id != ended.id),
                Archived::Trigger(ended) => self.records.triggers.retain(|trigger| trigger.id != ended.id),
                Archived::Message(_) | Archived::Run(_) | Archived::Brief(_) => {}
            }
        }
    }

    /// Clears the stored decision of a resting agent, because a test has changed records directly.
    pub fn changed(&mut self) {
        self.records.state.resting = None;
    }

    pub fn act(&mut self, act: &Act) {
        match act {
            Act::Arrive { kind, priority, blank, ttl } => {
                let is_task = matches!(kind, MessageKind::TaskResult | MessageKind::TaskStatus);
                let may = *priority != Priority::Interject || *kind == MessageKind::OperatorPrompt;
                let number = self.name();
                let task = self.records.tasks.first().filter(|_| is_task);
                let message = Message {
                    priority: if may { *priority } else { Priority::Next },
                    body: text(if *blank { " " } else { "news" }),
                    expires_at: ttl.map(|ttl| Time::from_millis(self.now.as_millis() + ttl)),
                    task_id: is_task.then(|| task_id(1)),
                    task_status: task.map(|task| task.status),
                    ..message(number, *kind)
                };
                self.queue.insert(message.key(), message);
            }
            Act::Wake { resource, blank } => {
                let number = self.name();
                let hint = WakeHint {
                    resource: resource.map(|number| format!("mail:{number}")),
                    body: (!blank).then(|| text("look")),
                    ..hint(number)
                };
                self.hints.insert(hint.id, hint);
            }
            Act::AddWork { focus } => {
                if self.records.works.len() < 4 {
                    let number = self.name();
                    self.records.works.push(work(number));
                    if *focus {
                        self.records.state.focus = Some(work_id(number));
                    }
                    self.changed();
                }
            }
            Act::ReviseWork(place) => {
                if let Some(item) = self.records.works.get_mut(*place) {
                    item.revision += 1;
                    self.changed();
                }
            }
            Act::BlockWork(place) => {
                if let Some(item) = self.records.works.get_mut(*place) {
                    item.blocked_by = item.blocked_by.is_none().then(|| "a decision".to_owned());
                    item.revision += 1;
                    self.changed();
                }
            }
            Act::AddWait { kind, item } => {
                let number = self.name();
                let item = item.and_then(|place| self.records.works.get(place)).map(|item| item.id);
                let mut new = Wait { work_item_id: item, ..wait(number, *kind) };
                if *kind == WaitKind::External {
                    new.resource = Some("mail:1".to_owned());
                }
                // A new wait on a work item replaces the active wait on that item.
                self.records.waits.retain(|other| item.is_none() || other.work_item_id != item);
                self.records.waits.push(new);
                self.changed();
            }
            Act::EndWait(place) => {
                if let Some(id) = self.records.waits.get(*place).map(|wait| wait.id) {
                    let mut draft = self.draft();
                    end_wait(&mut draft, id, WaitStatus::Cancelled, "by hand");
                    self.commit(draft);
                    assert!(self.records.waits.iter().all(|wait| wait.id != id));
                }
            }
            Act::SetTask(status) => {
                self.records.tasks = vec![task(1, *status)];
                self.changed();
            }
            Act::AddTimer => {
                let number = self.name();
                self.records.timers.push(timer(number, 86_400_000));
                self.changed();
            }
            Act::DropTimer => {
                self.records.timers.pop();
                self.changed();
            }
            Act::Pass(millis) => self.later(*millis),
            Act::Step => {
                self.step();
            }
            Act::EndTurn(end) => self.end_turn(*end),
            Act::LoseTick => self.live = None,
            Act::Stop { requeue } => {
                let mut draft = self.draft();
                let changed =
                    stop(&mut draft, secs(30), *requeue, None, &OPERATOR).expect("a stop is never refused");
                assert_eq!(changed, self.records.state.status != Status::Stopped);
                if changed {
                    self.commit(draft);
                }
                assert_eq!(self.records.state.status, Status::Stopped);
            }
            Act::ShutDown => {
                let asked = is_to_be_shut_down(&self.records.state);
                self.control_if(asked, |draft| shut_down(draft, secs(30)));
                assert!(!is_to_be_shut_down(&self.records.state));
            }
            Act::FinishStop { killed } => {
                let run = self.records.state.current_run.clone();
                if run.is_some_and(|run| run.stopping.is_some()) {
                    let mut draft = self.draft();
                    finish_stop(&mut draft, *killed, None).expect("finished");
                    self.commit(draft);
                }
            }
            Act::Start => {
                let mut draft = self.draft();
                match start(&mut draft, &OPERATOR) {
                    Ok(()) => self.commit(draft),
                    Err(refusal) => assert!(draft.is_empty(), "{refusal:?} left a trace"),
                }
            }
            Act::Recover => self.control(|draft| recover(draft, "by hand")),
            Act::Lack(resource) => {
                self.lacking = resource.map(|resource| Shortage {
                    resource,
                    evidence: vec!["somebody has it".to_owned()],
                    back_at: Some(Time::from_millis(NOW_MS + 500_000)),
                    is_occupied: false,
                });
            }
            Act::Preempt { grace, pause } => {
                let live = self.live.is_some();
                self.control_if(live, |draft| {
                    request(draft, "why".to_owned(), secs(*grace), pause.map(secs))
                });
            }
            Act::Section(Some(time)) => {
                self.inside(|draft, run| open_section(draft, run, secs(*time), false).map(drop))
            }
            Act::Section(None) => self.inside(|draft, run| close_section(draft, run, None).map(drop)),
            Act::SafePoint => {
                let claimed = self.load().inbox.claimed.map(|message| message.id);
                let queued = self.queue.values().filter(|message| Some(message.id) != claimed);
                let said: Vec<Message> = queued.filter(|message| is_interjection(message)).cloned().collect();
                self.inside(|draft, run| interject(draft, run, &said));
            }
            Act::Yield { saved, pause } => {
                self.inside(|draft, run| give_way(draft, run, *saved, pause.map(secs)).map(drop));
            }
            Act::Force => {
                let run = self.records.state.current_run.as_ref();
                if let Some(over) = run.and_then(force_at).filter(|over| *over < self.now) {
                    self.inside(|draft, run| {
                        assert!(force(draft, run, over));
                        Ok(())
                    });
                }
            }
            Act::Resume => self.control(resume),
            Act::Fail => {
                self.control(|draft| fail(draft, "by hand", &OPERATOR).map(drop));
                // `fail` only marks a live run as failed; its caller ends the run.
                let ends = self.records.state.current_run.as_ref().is_some_and(|run| run.condemned.is_some());
                if ends && self.live.is_some() {
                    self.end_turn(End::Killed);
                }
            }
            Act::Requeue(place) => {
                let ended = self.archive.get(*place).cloned();
                let newest = |message: &Message| {
                    self.archive.iter().rev().find(|other| other.id == message.id).cloned()
                };
                if let Some(message) = ended.as_ref().and_then(newest) {
                    self.control(|draft| requeue(draft, message));
                }
            }
        }
    }

    /// Applies a command unless it is refused. Panics if a refused command has changed the draft.
    pub fn control(&mut self, change: impl FnOnce(&mut Draft) -> Result<(), Refusal>) {
        self.control_if(true, change);
    }

    /// Calls a command. Commits its changes if `asked` is true and the command is not refused.
    fn control_if(&mut self, asked: bool, change: impl FnOnce(&mut Draft) -> Result<(), Refusal>) {
        let mut draft = self.draft();
        match change(&mut draft) {
            _ if !asked => {}
            Ok(()) if draft.is_empty() => {}
            Ok(()) => self.commit(draft),
            Err(refusal) => assert!(draft.is_empty(), "{refusal:?} left a trace"),
        }
    }

    /// Applies a command from inside the running turn, if there is one.
    pub fn inside(&mut self, change: impl FnOnce(&mut Draft, RunId) -> Result<(), Refusal>) {
        if let Some(run) = self.live {
            self.control(|draft| change(draft, run));
        }
    }

    /// Takes one step as `tick` does. Returns its decision, and true if it changed anything.
    pub fn step(&mut self) -> (Decision, bool) {
        if self.live.is_none() && self.records.state.current_run.is_some() {
            let mut draft = self.draft();
            interrupt(&mut draft, "its tick is gone").expect("interrupted");
            self.commit(draft);
        }
        let mut draft = self.draft();
        if self.live.is_none() {
            take_in(&mut draft).expect("taken in");
        }
        let mut decision = decide(&project(&draft.records, self.now));
        if decision.is_claim() && self.lacking.is_some() {
            draft.records.shortage = self.lacking.clone();
            decision = decide(&project(&draft.records, self.now));
        }
        let report = decision.report.clone();
        let take = |draft: &Draft, id: MessageId| {
            let inbox = &draft.records.inbox;
            inbox
                .head
                .iter()
                .chain(&inbox.claimed)
                .find(|message| message.id == id)
                .cloned()
                .expect("a message")
        };
        match &decision.action {
            StepAction::StartTurn { message_id, continuation } => {
                assert!(continuation.model_reentry, "a turn without re-entry");
                let message = take(&draft, *message_id);
                decided(&mut draft, &report);
                let claimed = claim(&mut draft, message, continuation.clone(), claimant()).expect("claimed");
                self.commit(draft);
                self.live = Some(claimed.run.run_id);
            }
            StepAction::Hold { message_id, continuation, shortage } => {
                let before = self.records.state.counters.clone();
                let message = take(&draft, *message_id);
                lack(&mut draft, &message, continuation.clone(), shortage, &report).expect("put off");
                if draft.is_empty() {
                    return (decision, false);
                }
                self.commit(draft);
                let state = &self.records.state;
                assert_eq!(state.execution.state, ExecutionState::WaitingResources);
                assert_eq!((state.counters.turns, state.current_run.is_none()), (before.turns, true));
                assert_eq!(self.queue.get(&message.key()).map(|kept| kept.attempt), Some(message.attempt));
                if self.needs_operator() {
                    return (decision, true);
                }
                let mut again = self.draft();
                lack(&mut again, &message, continuation.clone(), shortage, &report).expect("put off");
                assert!(again.is_empty(), "{shortage:?} recorded twice");
            }
            StepAction::Recover => {
                decided(&mut draft, &report);
                recover(&mut draft, &report.reason).expect("recovered");
                self.commit(draft);
            }
            StepAction::Reduce { message_id, continuation } => {
                let message = take(&draft, *message_id);
                decided(&mut draft, &report);
                // Leaves out fired timer waits, which end even if their message has no turn.
                let still = |records: &Records| -> Vec<Wait> {
                    records.waits.iter().filter(|wait| wait.woken_at.is_none()).cloned().collect()
                };
                let waits = still(&draft.records);
                reduce(&mut draft, message, continuation.clone());
                assert_eq!(still(&draft.records), waits, "a reduced message has ended another wait");
                self.commit(draft);
            }
            StepAction::EmitTick(tick) => {
                decided(&mut draft, &report);
                emit_tick(&mut draft, tick);
                self.commit(draft);
            }
            StepAction::Leave | StepAction::Stay | StepAction::Rest | StepAction::DropHint => {
                rest(&mut draft, &decision);
                if draft.is_empty() {
                    return (decision, false);
                }
                self.commit(draft);
                if !self.is_checked {
                    return (decision, true);
                }
                let mut again = self.draft();
                take_in(&mut again).expect("taken in");
                let same = decide(&project(&again.records, self.now));
                if again.is_empty() {
                    rest(&mut again, &same);
                    assert!(again.is_empty(), "{same:?} recorded twice");
                }
            }
        }
        (decision, true)
    }

    /// True if a message had too many setbacks, so that only the operator can resume it.
    pub fn needs_operator(&self) -> bool {
        self.records.state.held.as_ref().is_some_and(|held| held.needs_operator)
    }

    /// Settles the live run, if any, with this end of its turn.
    pub fn end_turn(&mut self, end: End) {
        let Some(run_id) = self.live.take() else { return };
        let seen = match end {
            End::Well => exited(0),
            End::Badly => exited(1),
            End::Deferred => exited(75),
            End::TimedOut => TurnEnd { timed_out: true, ..exited(0) },
            End::Cancelled => TurnEnd { cancelled_by: Some(2), ..exited(130) },
            End::NotStarted => {
                TurnEnd { exit: Exit::NotStarted { error: "no such file".to_owned() }, ..exited(0) }
            }
            End::Prevented => {
                let exit = Exit::NotStarted { error: "no process".to_owned() };
                TurnEnd { exit, is_prevented: true, ..exited(0) }
            }
            End::BadOutcome => TurnEnd { outcome: Err("$.brief".to_owned()), ..exited(0) },
            End::Killed => TurnEnd { exit: Exit::Signal { signal: 9 }, ..exited(0) },
        };
        let mut draft = self.draft();
        draft.records.lease = LeaseState::Held;
        let previous = self.runs.get(&run_id).cloned();
        let state = self.records.state.clone();
        let is_current = state.current_run.as_ref().is_some_and(|run| run.run_id == run_id);
        settle(&mut draft, run_id, seen, previous, &Default::default()).expect("settled");
        self.commit(draft);
        assert!(self.runs.contains_key(&run_id), "a settled run has a record");
        let run = state.current_run.as_ref().filter(|run| run.run_id == run_id && run.stopping.is_none());
        let run = run.filter(|run| run.yielded_at.is_some() || run.condemned.is_some());
        if let Some(run) = run.filter(|_| !self.needs_operator()) {
            let suspended = run.condemned.is_none();
            let expected = if suspended { ExecutionState::Suspended } else { ExecutionState::Failed };
            assert_eq!(self.records.state.execution.state, expected);
            let held = self.records.state.held.as_ref();
            assert_eq!(held.map(|held| held.checkpoint), suspended.then_some(run.checkpoint));
        }
        if !is_current {
            assert_eq!(self.records.state.execution, state.execution);
            assert_eq!(self.records.state.status, state.status);
        }
    }
}

fn check(before: &State, transaction: &Transaction) {
    let after = &transaction.state;
    assert_eq!((transaction.base_revision, after.revision), (before.revision, before.revision + 1));
    assert!(agrees(after.execution.state, after.status), "{} {}", after.execution.state, after.status);

    let numbers: Vec<u64> = transaction.events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (before.counters.events + 1..=after.counters.events).collect::<Vec<u64>>());

    let mut state = before.execution.state;
    for event in transaction.events.iter().filter(|event| event.kind == EventKind::StateTransition) {
        let step = |field| word(&event.data, field).parse::<ExecutionState>().expect("a state");
        assert_eq!(step("from"), state, "the transition begins in the state of the last one");
        assert!(can(step("from"), step("to")), "no edge {} -> {}", step("from"), step("to"));
        state = step("to");
    }
    assert_eq!(after.execution.state, state, "the state to which the events lead");

    let (from, to) = (before.status, after.status);
    assert!(
        from == to || to == Status::Stopped || STATUS_TABLE.contains(&(from, to)),
        "no row leads from {from} to {to}"
    );
    assert_eq!(told_status(&transaction.events, from), to, "the events tell of every change of the status");
    if after.current_run.is_none() && to != Status::Stopped {
        assert_ne!(to, Status::AwakeRunning, "a status without a run");
    }
    if to == Status::Stopped {
        assert_eq!((&after.pending_wake_hint, after.sleeping_until), (&None, None));
    }
    let is_held = matches!(state, ExecutionState::Suspended | ExecutionState::WaitingResources);
    assert_eq!(after.held.is_some(), is_held, "{state}");
    assert!(!is_held || after.current_run.is_none(), "a held run has no turn");
    let settled: Vec<MessageId> =
        all_of!(transaction.archived, Archived::Message).map(|message| message.id).collect();
    let distinct: BTreeSet<MessageId> = settled.iter().copied().collect();
    assert_eq!(distinct.len(), settled.len(), "a message ended twice in one transaction");
}

/// True if only an event or a due time leads to another change after this decision.
fn rests(kind: DecisionKind) -> bool {
    match kind {
        DecisionKind::Stop
        | DecisionKind::Noop
        | DecisionKind::WaitForResources
        | DecisionKind::WaitForOperator
        | DecisionKind::WaitForExternalChange
        | DecisionKind::WaitForTimer
        | DecisionKind::WaitForTask
        | DecisionKind::StayIdle
        | DecisionKind::Sleep => true,
        DecisionKind::StartRecovery
        | DecisionKind::StartModelTurn
        | DecisionKind::ReduceMessageOnly
        | DecisionKind::EmitSystemTick => false,
    }
}

fn started() -> World {
    let mut world = World::new();
    world.act(&Act::Start);
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_is_made_of_valid_transactions_and_in_the_end_the_agent_rests(
        acts in proptest::collection::vec(acts(), 1..60),
    ) {
        let mut world = started();
        for act in &acts {
            world.act(act);
        }
        // From now on nothing arrives, no resource is missing and every turn completes. The agent
        // must rest after a bounded number of steps.
        world.act(&Act::Lack(None));
        world.end_turn(End::Well);
        world.act(&Act::FinishStop { killed: true });
        world.act(&Act::Start);
        let bound = 10 + 4 * (world.queue.len() + world.hints.len() + 1) * (world.records.works.len() + 1);
        let mut last = None;
        for _ in 0..bound {
            // In an hour every backoff and every deferral ends.
            world.act(&Act::Pass(3_600_000));
            world.act(&Act::Resume);
            let (decision, changed) = world.step();
            world.end_turn(End::Well);
            last = Some((decision, changed));
            if !changed {
                break;
            }
        }
        let (decision, changed) = last.expect("a step");
        prop_assert!(!changed, "still busy after {bound} steps: {decision:?}");
        prop_assert!(rests(decision.kind()), "{decision:?}");
        prop_assert!(world.queue.is_empty(), "messages are left: {:?}", world.queue.keys());
        prop_assert!(world.hints.is_empty(), "hints are left: {:?}", world.hints.keys());
    }

    #[test]
    fn a_stopped_agent_starts_no_turn_after_any_arrival(
        acts in proptest::collection::vec(acts(), 1..40),
    ) {
        let mut world = started();
        let half = acts.len() / 2;
        for act in &acts[..half] {
            world.act(act);
        }
        world.act(&Act::Stop { requeue: false });
        let turns = world.records.state.counters.turns;
        let runs = u64::from(world.records.state.current_run.is_some());
        for act in acts[half..].iter().filter(|act| !matches!(act, Act::Start)) {
            world.act(act);
            prop_assert_eq!(world.records.state.status, Status::Stopped);
        }
        prop_assert!(world.records.state.counters.turns <= turns + runs);
        prop_assert_eq!(world.records.state.next_due_at, None);
    }
}

fn prompted(priority: Priority) -> Act {
    Act::Arrive { kind: MessageKind::OperatorPrompt, priority, blank: false, ttl: None }
}

#[test]
fn every_message_ends_exactly_once_and_a_processed_one_never_runs_again() {
    let mut world = started();
    for kind in MessageKind::ALL {
        for blank in [false, true] {
            world.act(&Act::Arrive { kind: *kind, priority: Priority::Normal, blank, ttl: None });
        }
    }
    for end in [End::Badly, End::Deferred, End::Well].iter().cycle().take(400) {
        world.act(&Act::Step);
        world.act(&Act::EndTurn(*end));
        world.act(&Act::Pass(60_000));
    }
    let ended: Vec<MessageId> = world.archive.iter().map(|message| message.id).collect();
    let expected: Vec<MessageId> = (101..=120).map(message_id).collect();
    assert_eq!(ended, expected, "in the order of arrival, each once");
    for message in &world.archive {
        let status = message.settlement.as_ref().map(|settlement| settlement.status);
        assert_eq!(status, Some(MessageStatus::Processed), "{:?}", message.kind);
    }
    assert!(world.queue.is_empty());
}

#[test]
fn the_queue_is_served_by_priority_and_then_first_in_first_out() {
    let mut world = started();
    let priorities = [
        Priority::Background,
        Priority::Normal,
        Priority::Next,
        Priority::Normal,
        Priority::Interject,
        Priority::Background,
        Priority::Next,
    ];
    for priority in priorities {
        world.act(&prompted(priority));
    }
    for _ in priorities {
        world.act(&Act::Step);
        world.act(&Act::EndTurn(End::Well));
    }
    let served: Vec<MessageId> = world.archive.iter().map(|message| message.id).collect();
    assert_eq!(served, [105, 103, 107, 102, 104, 101, 106].map(message_id));
}

#[test]
fn a_message_whose_turns_all_fail_becomes_a_dead_letter_and_the_next_message_runs() {
    let mut world = started();
    for _ in 0..2 {
        world.act(&prompted(Priority::Normal));
    }
    let mut turns = 0;
    while world.archive.is_empty() {
        world.act(&Act::Step);
        turns += u32::from(world.live.is_some());
        world.act(&Act::EndTurn(End::Badly));
        world.act(&Act::Pass(60_000));
    }
    assert_eq!(turns, 5, "max_attempts");
    let dead = world.archive[0].settlement.clone().expect("settled");
    assert_eq!((world.archive[0].id, dead.dead_letter), (message_id(101), true));
    // After the dead letter, the first step recovers, and the second claims the next message.
    world.act(&Act::Step);
    world.act(&Act::Step);
    let run = world.records.state.current_run.clone().expect("a run");
    assert_eq!((run.message_id, run.attempt), (message_id(102), 1));
}
