//! Open records of an agent that one step reads, loaded at once.

use super::id::{MessageId, WaitId};
use super::message::{Message, Priority, WakeHint};
use super::place::Away;
use super::policy::Policy;
use super::resource::Shortage;
use super::state::State;
use super::task::Task;
use super::time::Time;
use super::timer::Timer;
use super::trigger::Trigger;
use super::wait::Wait;
use super::work::WorkItem;

/// Liveness of a run: a process holds its lease, or none does (contract, execution §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    Free,
    Held,
}

/// Reason for which a message is dropped instead of being taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    Expired,
    /// Another message was admitted under the same `dedupe_key`.
    Duplicate,
    /// The message has ended before, and its file came back.
    Settled,
}

/// Malformed inbox file: it has the name of a message or hint, but can't be read or belongs to
/// another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedFile {
    /// File name in the store.
    pub name: String,
    pub reason: String,
}

/// Head of the inbox: the messages and hints that the next decision may be about.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inbox {
    /// Messages before the head that must not be taken up any more.
    pub stale: Vec<(Message, Staleness)>,
    /// First unclaimed message in processing order, read whole.
    pub head: Option<Message>,
    /// Message that the agent has claimed, at any position.
    pub claimed: Option<Message>,
    /// Last queued message of priority `interject`, at any position.
    pub last_interject: Option<MessageId>,
    /// Wake hints that no step has taken in yet, in order of arrival.
    pub hints: Vec<WakeHint>,
    /// Malformed files before the head, or in the place of a hint or of the claimed message. The
    /// step quarantines them.
    pub misfits: Vec<MalformedFile>,
    /// Number of dropped files that no step has taken in yet.
    pub drops: usize,
    /// Modification time of the first of them. Only readers get it.
    pub dropped_at: Option<Time>,
    /// True if a message of background priority may be queued.
    pub has_background: bool,
}

/// Wait that nothing can end any more, because other records contradict it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenWait {
    /// The message that the wait is bound to is gone.
    AnswerGone(WaitId),
    /// The task of the wait has ended, and its result is not in the inbox.
    TaskGone(WaitId),
    /// The message that tells the agent to check is gone.
    RecheckGone(MessageId),
}

impl Inbox {
    /// Registers a message that may be taken up. It becomes the head if it precedes the present
    /// one.
    pub fn offer(&mut self, message: &Message) {
        if message.priority == Priority::Interject {
            self.last_interject = self.last_interject.max(Some(message.id));
        }
        if self.head.as_ref().is_none_or(|head| message.key() < head.key()) {
            self.head = Some(message.clone());
        }
    }
}

/// Installed hooks that run between the claim of a turn and its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InstalledHooks {
    pub on_scheduled: bool,
    pub on_resume: bool,
    pub on_state_change: bool,
}

/// Open records of one agent at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Records {
    pub policy: Policy,
    pub state: State,
    pub lease: LeaseState,
    /// Place of the current run, if that is not here and its lease has not ended.
    pub away: Option<Away>,
    /// Resource that a claim would lack. It is determined only if a claim comes next.
    pub shortage: Option<Shortage>,
    /// Determined only if a turn is claimed.
    pub installed_hooks: InstalledHooks,
    pub inbox: Inbox,
    /// In order of creation.
    pub works: Vec<WorkItem>,
    pub waits: Vec<Wait>,
    pub broken_waits: Vec<BrokenWait>,
    pub timers: Vec<Timer>,
    pub tasks: Vec<Task>,
    /// Active triggers that the waits, the hints and the messages to take up name.
    pub triggers: Vec<Trigger>,
}

impl Records {
    /// Returns the records of an agent that has no other record than its state.
    pub fn new(policy: Policy, state: State) -> Records {
        Records {
            policy,
            state,
            lease: LeaseState::Free,
            away: None,
            shortage: None,
            installed_hooks: InstalledHooks::default(),
            inbox: Inbox::default(),
            works: Vec::new(),
            waits: Vec::new(),
            broken_waits: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            triggers: Vec::new(),
        }
    }
}
