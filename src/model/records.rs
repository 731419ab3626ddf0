//! Everything open that one step looks at, loaded at once.

use super::id::{MessageId, WaitId};
use super::message::{Message, Priority, WakeHint};
use super::policy::Policy;
use super::resource::Shortage;
use super::state::State;
use super::task::Task;
use super::timer::Timer;
use super::wait::Wait;
use super::work::WorkItem;

/// Whether somebody holds the lease of a run right now (contract, execution §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    Free,
    Held,
}

/// Why a message is dropped instead of being taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    Expired,
    /// Another message was admitted under the same `dedupe_key`.
    Duplicate,
    /// It has ended before, and its file came back.
    Settled,
}

/// What lies in the inbox under the name of a message or hint and is none that the agent can read, or
/// another agent's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// From the inbox.
    pub path: String,
    pub reason: String,
}

/// The head of the inbox: what the next decision can be about.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inbox {
    /// Messages before the head that are not taken up any more.
    pub stale: Vec<(Message, Staleness)>,
    /// The first message in processing order that is not claimed, read whole.
    pub head: Option<Message>,
    /// The message that the agent has claimed, wherever in the order it stands.
    pub claimed: Option<Message>,
    /// The last message of priority `interject` that is queued, wherever in the order it stands.
    pub last_interject: Option<MessageId>,
    /// Wake hints that nobody has taken in yet, in order of arrival.
    pub hints: Vec<WakeHint>,
    /// What lies before the head, or instead of a hint or of the claimed message, and is to be set aside.
    pub misfits: Vec<Misfit>,
    /// How many hand-written files nobody has taken in yet.
    pub drops: usize,
    /// Whether a message of background priority may be queued.
    pub has_background: bool,
}

/// A wait that the other records disagree with: nothing that is still to come ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenWait {
    /// The message that it is bound to is gone.
    AnswerGone(WaitId),
    /// Its task has ended, and no message that says so is in the inbox.
    TaskGone(WaitId),
}

impl Inbox {
    /// A message that is free to be taken up: it is the head if it comes before the one that is.
    pub fn offer(&mut self, message: &Message) {
        if message.priority == Priority::Interject {
            self.last_interject = self.last_interject.max(Some(message.id));
        }
        if self.head.as_ref().is_none_or(|head| message.key() < head.key()) {
            self.head = Some(message.clone());
        }
    }
}

/// Which of the hooks are installed that see a turn on its way to `running`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Onlookers {
    pub on_scheduled: bool,
    pub on_resume: bool,
    pub on_state_change: bool,
}

/// The open records of one agent at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Records {
    pub policy: Policy,
    pub state: State,
    pub lease: Lease,
    /// What a claim would lack. Looked for only where a claim is what comes next.
    pub shortage: Option<Shortage>,
    /// Looked for only where a turn is claimed.
    pub onlookers: Onlookers,
    pub inbox: Inbox,
    /// In order of creation.
    pub works: Vec<WorkItem>,
    pub waits: Vec<Wait>,
    pub broken_waits: Vec<BrokenWait>,
    pub timers: Vec<Timer>,
    pub tasks: Vec<Task>,
}
