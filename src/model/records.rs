//! Records of an agent that one step reads, all loaded at one revision.

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

/// Liveness of a run: a process holds its lease, or no process does (contract, execution §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    Free,
    Held,
}

/// Reason why a message is dropped instead of being taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    Expired,
    /// Another message with this `dedupe_key` was admitted before.
    Duplicate,
    /// The message was settled before, and its file has come back.
    Settled,
}

/// Malformed inbox file: it is named like a message or hint, but is unreadable or belongs to
/// another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedFile {
    /// Name of the file in the inbox.
    pub name: String,
    pub reason: String,
}

/// Messages and hints of the inbox on which the next decision may depend.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inbox {
    /// Messages before `head` that must be dropped.
    pub stale: Vec<(Message, Staleness)>,
    /// First message in processing order that is neither claimed nor stale.
    pub head: Option<Message>,
    /// Message that the agent has claimed, at any position in the inbox.
    pub claimed: Option<Message>,
    /// Queued message of priority `interject` with the newest id, at any position in the inbox.
    pub last_interject: Option<MessageId>,
    /// Wake hints that no step has taken in, in order of arrival.
    pub hints: Vec<WakeHint>,
    /// Malformed messages before `head`, malformed hints, and the claimed message if malformed. The
    /// step quarantines these files.
    pub malformed: Vec<MalformedFile>,
    /// Number of message files from other programs that no step has admitted yet.
    pub submissions: usize,
    /// Arrival time of the first message file from another program, in name order; loaded only for
    /// reading commands.
    pub dropped_at: Option<Time>,
    /// True if a message of background priority may be queued.
    pub has_background: bool,
}

/// Wait that nothing can end any more, because other records contradict it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenWait {
    /// The message to which the wait is bound is missing.
    AnswerGone(WaitId, MessageId),
    /// The task of the wait has ended, and the message with its result is not in the inbox.
    TaskGone(WaitId),
    /// The message that asks the agent to check its wait is missing.
    RecheckGone(MessageId),
}

impl Inbox {
    /// Makes a message the head if it precedes the present head, and notes a message of priority
    /// `interject`.
    pub fn offer(&mut self, message: &Message) {
        if message.priority == Priority::Interject {
            self.last_interject = self.last_interject.max(Some(message.id));
        }
        if self.head.as_ref().is_none_or(|head| message.key() < head.key()) {
            self.head = Some(message.clone());
        }
    }
}

/// Installed hooks that may run after the claim of a message and before its turn starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InstalledHooks {
    pub on_scheduled: bool,
    pub on_resume: bool,
    pub on_state_change: bool,
}

/// Open records of an agent at one revision. `new` returns the records of an agent that has only a
/// state and a policy.
#[serde_with::apply(_ => #[new(default)])]
#[derive(Debug, Clone, PartialEq, derive_new::new)]
pub struct Records {
    #[serde_with(skip_apply)]
    pub policy: Policy,
    #[serde_with(skip_apply)]
    pub state: State,
    #[serde_with(skip_apply)]
    #[new(value = "LeaseState::Free")]
    pub lease: LeaseState,
    /// Other machine or state directory of the current run, while the run's lease lasts.
    pub away: Option<Away>,
    /// Resource that a claim would lack; determined only if the decision is a claim.
    pub shortage: Option<Shortage>,
    /// Hooks that run before the start of a turn; determined only when a turn is claimed.
    pub installed_hooks: InstalledHooks,
    pub inbox: Inbox,
    /// Open work items, in order of creation.
    pub works: Vec<WorkItem>,
    pub waits: Vec<Wait>,
    pub broken_waits: Vec<BrokenWait>,
    pub timers: Vec<Timer>,
    pub tasks: Vec<Task>,
    /// Active triggers that waits, hints or loaded messages name.
    pub triggers: Vec<Trigger>,
}
