//! Input of an agent: messages and wake hints.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::continuation::{Continuation, SchedulerTick, TriggerKind};
use super::id::{AgentName, MessageId, RunId, TaskId, TriggerId, WaitId, WorkId};
use super::json::{Sent, tagged};
use super::preemption::Checkpoint;
use super::record::{Extra, Plane, ensure, is_default, record};
use super::setbacks::{FailedAttempt, Setbacks};
use super::task::TaskStatus;
use super::time::Time;

names! {
    /// Kind of a message, with words that describe such a message.
    "message kind" MessageKind {
        OperatorPrompt = "operator_prompt" as "a message from you",
        ChannelEvent = "channel_event" as "a message from a channel",
        WebhookEvent = "webhook_event" as "a message from a webhook",
        CallbackEvent = "callback_event" as "a callback",
        TimerTick = "timer_tick" as "a timer",
        SystemTick = "system_tick" as "a scheduler tick",
        TaskResult = "task_result" as "the result of a task",
        TaskStatus = "task_status" as "the status of a task",
        Control = "control" as "a control message",
        InternalFollowup = "internal_followup" as "a message from an agent",
    }
}

impl MessageKind {
    /// Describes a message of this kind for people. `origin`: its origin, such as `webhook:ci`.
    pub fn described(self, origin: &str) -> String {
        match (self, origin.split_once(':')) {
            (MessageKind::OperatorPrompt, Some((_, name))) => format!("a message from {name}"),
            (MessageKind::ChannelEvent | MessageKind::WebhookEvent, Some(_)) => {
                format!("a message from {origin}")
            }
            _ => self.words().to_owned(),
        }
    }
}

names! {
    "priority" Priority {
        Interject = "interject",
        Next = "next",
        Normal = "normal",
        Background = "background",
    }
}

impl Priority {
    /// Returns the digit that begins a message's file name, so that names sort in processing order.
    pub const fn digit(self) -> u8 {
        self as u8
    }

    pub fn from_digit(digit: u8) -> Option<Priority> {
        Priority::ALL.get(usize::from(digit)).copied()
    }
}

names! {
    "origin" OriginKind {
        Operator = "operator",
        Channel = "channel",
        Webhook = "webhook",
        Callback = "callback",
        Timer = "timer",
        System = "system",
        Task = "task",
    }
}

names! {
    /// Authority of a message, from the least to the most.
    "authority class" AuthorityClass {
        ExternalEvidence = "external_evidence",
        IntegrationSignal = "integration_signal",
        OperatorInstruction = "operator_instruction",
        RuntimeInstruction = "runtime_instruction",
    }
}

names! {
    "delivery surface" DeliverySurface {
        Cli = "cli",
        Cgi = "cgi",
        TimerScheduler = "timer_scheduler",
        RuntimeSystem = "runtime_system",
        TaskRejoin = "task_rejoin",
        FileDrop = "file_drop",
    }
}

names! {
    "admission context" AdmissionContext {
        LocalProcess = "local_process",
        ExternalTriggerCapability = "external_trigger_capability",
        RuntimeOwned = "runtime_owned",
    }
}

names! {
    /// Status of a message. After a crash `queued` and `dequeued` messages are processed again, all
    /// others never.
    "message status" MessageStatus {
        Queued = "queued",
        Dequeued = "dequeued",
        Processed = "processed",
        Aborted = "aborted",
        Interjected = "interjected",
        Dropped = "dropped",
    }
}

impl MessageStatus {
    /// True for a message that ended without being processed.
    pub fn has_failed(self) -> bool {
        matches!(self, MessageStatus::Aborted | MessageStatus::Dropped)
    }
}

/// Sender of a message: a kind, and a name within it (`webhook:ci`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Origin {
    pub kind: OriginKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.id {
            Some(id) => write!(f, "{}:{id}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

tagged! {
    "type", [rename_all = "snake_case"]
    #[derive(Debug, Clone, PartialEq)]
    pub enum Body {
        Text { text: String },
        Json {
            #[serde(deserialize_with = "super::json::plain")]
            value: Value,
            /// JSON as its sender wrote it, if `value` lost part of it: a number with more digits
            /// than a double has, or a repeated key.
            #[serde(skip_serializing_if = "Option::is_none")]
            sent: Option<String>,
        },
    }
}

impl Body {
    /// True for text that is not blank, and for every JSON body.
    pub fn is_contentful(&self) -> bool {
        match self {
            Body::Text { text } => !text.trim().is_empty(),
            Body::Json { .. } => true,
        }
    }

    /// Returns the length of the body as [`Body::to_text`] returns it, in bytes.
    pub fn bytes(&self) -> usize {
        self.to_text().len()
    }

    /// Returns the body as text. JSON is written on one line, or as its sender wrote it if the
    /// value does not represent all of it.
    pub fn to_text(&self) -> String {
        match self {
            Body::Text { text } | Body::Json { sent: Some(text), .. } => text.clone(),
            Body::Json { value, sent: None } => value.to_string(),
        }
    }
}

impl<J: Into<Sent>> From<J> for Body {
    fn from(json: J) -> Body {
        let Sent { value, text } = json.into();
        Body::Json { value, sent: text }
    }
}

/// End of a message. A message in the inbox has no settlement.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settlement {
    pub status: MessageStatus,
    pub at: Time,
    pub reason: Option<String>,
    pub run_id: Option<RunId>,
    /// True if the message was parked after its last attempt: `queue dead` lists it, `queue
    /// requeue` puts it back.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dead_letter: bool,
}

impl Settlement {
    /// Returns a settlement that has neither a reason nor a run.
    pub fn new(status: MessageStatus, at: Time) -> Settlement {
        Settlement { status, at, reason: None, run_id: None, dead_letter: false }
    }

    /// True if the message was settled without a turn.
    pub fn is_reduced(&self) -> bool {
        self.status == MessageStatus::Processed && self.run_id.is_none()
    }

    /// True if the message was dropped as a duplicate, or was dropped by an operator who gave the
    /// reason `duplicate`.
    pub fn is_of_duplicate(&self) -> bool {
        self.status == MessageStatus::Dropped && self.reason.as_deref() == Some(DUPLICATE)
    }
}

fn first() -> u32 {
    1
}

/// Wake hint from which a `system_tick` was made.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hinted {
    pub hint_id: MessageId,
    pub source: String,
    pub reason: Option<String>,
    /// Number of merged hints of one scope for which the message was made.
    pub count: u32,
    /// Payload that an outside system sent with the hint. It is recorded as evidence and not shown
    /// to turns.
    pub payload: Option<Body>,
}

/// Message as admitted (contract, semantics §9), with fields that dormouse sets later while it
/// processes the message. The origin and other fields about the provenance never change.
// `Message::new` makes a message of the least authority, as if a program had dropped its file.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Option => #[new(default)], Vec => #[new(default)], bool => #[new(default)])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, derive_new::new)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Message {
    pub id: MessageId,
    pub agent: AgentName,
    pub kind: MessageKind,
    #[new(value = "Priority::Normal")]
    pub priority: Priority,
    pub origin: Origin,
    #[new(value = "AuthorityClass::ExternalEvidence")]
    pub authority_class: AuthorityClass,
    #[new(value = "DeliverySurface::FileDrop")]
    pub delivery_surface: DeliverySurface,
    #[new(value = "AdmissionContext::LocalProcess")]
    pub admission_context: AdmissionContext,
    /// Absent for kinds that never trigger a turn.
    pub trigger_kind: Option<TriggerKind>,
    pub body: Body,
    pub work_item_id: Option<WorkId>,
    pub task_id: Option<TaskId>,
    /// Status of the task that this message is about.
    pub task_status: Option<TaskStatus>,
    pub wait_id: Option<WaitId>,
    pub trigger_id: Option<TriggerId>,
    pub resource: Option<String>,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_refs: Vec<String>,
    pub dedupe_key: Option<String>,
    /// Key of a `system_tick`; at most one such message is emitted under each key.
    pub idempotency_key: Option<String>,
    /// Source and reason of the wake hint from which a `system_tick` was made.
    pub hint: Option<Hinted>,
    pub expires_at: Option<Time>,
    /// Number of turns in the chain that led to this message, each caused by the turn before.
    #[new(default)]
    #[serde(default, skip_serializing_if = "is_default")]
    pub hops: u32,
    /// Number of the next attempt, from 1.
    #[new(value = "1")]
    #[serde(default = "first")]
    pub attempt: u32,
    pub created_at: Time,
    /// Continuation that the first attempt derived; retries keep the same.
    pub continuation: Option<Continuation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedAttempt>,
    /// Numbers of runs and claims since the last failed attempt that neither completed the message
    /// nor used up an attempt. While a run is live or held, they are in `state.json` instead.
    #[new(default)]
    #[serde(default, skip_serializing_if = "is_default")]
    pub setbacks: Setbacks,
    /// True for a requeued message that a step had taken up before. The trigger that delivered the
    /// message counted it then, and does not count it again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub taken_up: bool,
    /// Operator messages of priority `interject` that earlier runs of this message received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interjected: Vec<MessageId>,
    /// Last checkpoint that a run of this message saved; the next run continues from that
    /// checkpoint. While a run is live or held, `state.json` has the checkpoint instead.
    pub checkpoint: Option<Checkpoint>,
    pub settlement: Option<Settlement>,
    #[new(default)]
    #[serde(flatten)]
    pub extra: Extra,
}

impl Message {
    fn fault(&self) -> Result<(), String> {
        ensure(self.attempt > 0, "`attempt` counts from 1")
    }

    pub fn key(&self) -> InboxKey {
        InboxKey { priority: self.priority, id: self.id }
    }

    /// True if an earlier step has taken the message up and put it back into the queue.
    pub fn was_claimed(&self) -> bool {
        self.taken_up || self.continuation.is_some() || !self.failures.is_empty()
    }

    /// Describes the message for people, by its hint, its named sender, or its kind.
    pub fn described(&self) -> String {
        let hint = self.hint.as_ref().map(|hint| format!("a wake hint from {}", hint.source));
        hint.unwrap_or_else(|| self.kind.described(&self.origin.to_string()))
    }

    /// True if the body has content, or the payload of the hint from which the message was made.
    pub fn is_contentful(&self) -> bool {
        let payload = self.hint.as_ref().and_then(|hint| hint.payload.as_ref());
        self.body.is_contentful() || payload.is_some_and(Body::is_contentful)
    }

    /// Returns the message with trigger kind `kind`, if one is given.
    pub fn triggering(self, kind: Option<TriggerKind>) -> Message {
        Message { trigger_kind: kind.or(self.trigger_kind), ..self }
    }

    /// Completes this `system_tick` message with the source, content and key of a wake hint.
    pub fn of_hint(mut self, hint: WakeHint) -> Message {
        self.idempotency_key = Some(hint.tick_key());
        // A hint is evidence and never an instruction, from any source.
        self.authority_class = AuthorityClass::IntegrationSignal;
        self.origin.id = Some(hint.source.clone());
        self.wait_id = hint.wait_id;
        self.trigger_id = hint.trigger_id;
        self.resource = hint.resource;
        self.hops = hint.hops;
        self.source_refs = hint.source_refs;
        self.causation_id = Some(hint.id.to_string());
        let WakeHint { id: hint_id, source, reason, count, body: payload, .. } = hint;
        self.hint = Some(Hinted { hint_id, source, reason, count, payload });
        self
    }

    pub fn is_wake_hint(&self) -> bool {
        self.idempotency_key.as_deref().is_some_and(|key| key.starts_with(HINT_KEY))
    }

    /// Returns the reason for which the scheduler emitted this message; `None` for other messages,
    /// and for those made from wake hints.
    pub fn scheduler_tick(&self) -> Option<SchedulerTick> {
        let key = self.idempotency_key.as_deref().filter(|_| !self.is_wake_hint())?;
        Some(if key.starts_with(EXPIRY_KEY) {
            SchedulerTick::Expiry
        } else if key.starts_with(RECHECK_KEY) {
            SchedulerTick::Recheck
        } else {
            SchedulerTick::Other
        })
    }
}

/// Reason with which a message is dropped if another message has its `dedupe_key`.
pub const DUPLICATE: &str = "duplicate";

/// Prefix of the idempotency keys of `system_tick` messages that were made from wake hints.
const HINT_KEY: &str = "wake_hint:";

/// Prefixes of the idempotency keys of `system_tick` messages about a wait's deadlines.
pub const EXPIRY_KEY: &str = "wait:expiry:";
pub const RECHECK_KEY: &str = "wait:recheck:";

// A message of a turn to another agent is an open record until it is delivered.
record! { Message of agent = "message", MessageId in Plane::Outbox; check }

/// Name of a message's file in the inbox, without extension. Keys sort in processing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InboxKey {
    pub priority: Priority,
    pub id: MessageId,
}

impl InboxKey {
    /// Parses a key from the text that `Display` writes.
    pub fn parse(text: &str) -> Option<InboxKey> {
        let (digit, id) = text.split_once('-')?;
        let digit = digit.parse::<u8>().ok().filter(|_| digit.len() == 1)?;
        Some(InboxKey { priority: Priority::from_digit(digit)?, id: id.parse().ok()? })
    }
}

impl std::fmt::Display for InboxKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.priority.digit(), self.id)
    }
}

/// Wake hint (contract, semantics §10): a signal that something may have changed. It is a file in
/// the inbox, and after a step has taken the file in, the pending hint in `state.json`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WakeHint {
    pub id: MessageId,
    pub agent: AgentName,
    pub source: String,
    pub reason: Option<String>,
    pub resource: Option<String>,
    pub trigger_id: Option<TriggerId>,
    pub wait_id: Option<WaitId>,
    pub body: Option<Body>,
    pub delivery_surface: DeliverySurface,
    pub admission_context: AdmissionContext,
    /// Facts about the sender and its delivery, such as the HTTP method and chosen headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_refs: Vec<String>,
    pub created_at: Time,
    /// Number of merged hints with the same scope, this one included.
    #[serde(default = "first")]
    pub count: u32,
    /// Number of turns in the chain that led to this hint, each caused by the turn before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hops: u32,
    #[serde(flatten)]
    pub extra: Extra,
}

/// Separator between the reasons of merged hints, and maximum length of the joined reasons, in
/// bytes. Of longer reasons only the newest is kept; the ledger has all of them.
const JOINED: &str = "; ";
const REASONS_MAX: usize = 4096;

impl WakeHint {
    /// Returns the scope of the hint: its wait, else trigger, else resource, else source.
    pub fn scope(&self) -> String {
        let wait = self.wait_id.map(|id| format!("wait:{id}"));
        let trigger = self.trigger_id.map(|id| format!("trigger:{id}"));
        let resource = self.resource.as_ref().map(|name| format!("resource:{name}"));
        wait.or(trigger).or(resource).unwrap_or_else(|| format!("source:{}", self.source))
    }

    /// Merges a later hint of the same scope: adds its count, takes the higher hops, appends a new
    /// reason. Keeps the first payload with content: a payload only makes the hint contentful.
    pub fn absorb(&mut self, later: &WakeHint) {
        self.count = self.count.saturating_add(later.count);
        // A `system_tick` from merged hints continues the longest of their chains of turns.
        self.hops = self.hops.max(later.hops);
        self.body = self.body.take().filter(Body::is_contentful).or_else(|| later.body.clone());
        self.reason = match (self.reason.take(), &later.reason) {
            (Some(first), Some(more)) if !first.split(JOINED).any(|known| known == more) => {
                let both = format!("{first}{JOINED}{more}");
                Some(if both.len() > REASONS_MAX { more.clone() } else { both })
            }
            (first, more) => first.or_else(|| more.clone()),
        };
        self.source_refs.clone_from(&later.source_refs);
    }

    /// True if both hints can be merged into one: wait, trigger and resource are equal, and, if no
    /// resource is named, also the source.
    pub fn merges_with(&self, other: &WakeHint) -> bool {
        let named = |hint: &WakeHint| {
            let source = hint.resource.is_none().then(|| hint.source.clone());
            (hint.wait_id, hint.trigger_id, hint.resource.clone(), source)
        };
        named(self) == named(other)
    }

    /// Returns the idempotency key of the `system_tick` message that is made from this hint.
    pub fn tick_key(&self) -> String {
        format!("{HINT_KEY}{}:{}", self.scope(), self.id)
    }
}

record! { WakeHint of agent = "wake_hint" }
