//! The open records of an agent that one step looks at, loaded at once.

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

/// Whether a process holds the lease of a run right now (contract, execution §9).
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

/// Something in the inbox that has the name of a message or hint, but can't be read or belongs to
/// another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The name that the store gives it.
    pub name: String,
    pub reason: String,
}

/// The head of the inbox: what the next decision can be about.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inbox {
    /// Messages before the head that are not to be taken up any more.
    pub stale: Vec<(Message, Staleness)>,
    /// The first message in processing order that is not claimed, read whole.
    pub head: Option<Message>,
    /// The message that the agent has claimed, wherever in the order it stands.
    pub claimed: Option<Message>,
    /// The last message of priority `interject` that is queued, wherever in the order it stands.
    pub last_interject: Option<MessageId>,
    /// Wake hints that no step has taken in yet, in order of arrival.
    pub hints: Vec<WakeHint>,
    /// Misfits that lie before the head, or in the place of a hint or of the claimed message. The
    /// step sets them aside.
    pub misfits: Vec<Misfit>,
    /// How many dropped files no step has taken in yet.
    pub drops: usize,
    /// When the first of them was put there, as its file tells. Only readers are told.
    pub dropped_at: Option<Time>,
    /// Whether a message of background priority may be queued.
    pub has_background: bool,
}

/// A wait that the other records contradict: nothing that is still to come would end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenWait {
    /// The message that it is bound to is gone.
    AnswerGone(WaitId),
    /// Its task has ended, and no message that says so is in the inbox.
    TaskGone(WaitId),
    /// The message that tells the agent to look is gone.
    RecheckGone(MessageId),
}

impl Inbox {
    /// Takes note of a message that may be taken up. It becomes the head if it comes before the
    /// present one.
    pub fn offer(&mut self, message: &Message) {
        if message.priority == Priority::Interject {
            self.last_interject = self.last_interject.max(Some(message.id));
        }
        if self.head.as_ref().is_none_or(|head| message.key() < head.key()) {
            self.head = Some(message.clone());
        }
    }
}

/// Which hooks are installed that run between the claim of a turn and its start.
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
    /// Where the current run goes on, if that is not here and its lease has not ended.
    pub away: Option<Away>,
    /// What a claim would lack. It is looked for only if a claim comes next.
    pub shortage: Option<Shortage>,
    /// Looked for only if a turn is claimed.
    pub onlookers: Onlookers,
    pub inbox: Inbox,
    /// In order of creation.
    pub works: Vec<WorkItem>,
    pub waits: Vec<Wait>,
    pub broken_waits: Vec<BrokenWait>,
    pub timers: Vec<Timer>,
    pub tasks: Vec<Task>,
    /// Those that the waits, the hints and the messages to take up name, as far as they are active.
    pub triggers: Vec<Trigger>,
}
