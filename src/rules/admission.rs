//! Admission: the messages that an agent accepts, their origins and their authority (contract,
//! semantics §9).

use crate::model::author::key_of_user;
use crate::model::bound::{Bound, RECORD};
use crate::model::continuation::TriggerKind;
use crate::model::id::{AgentName, MessageId};
use crate::model::message::{
    AdmissionContext, AuthorityClass, Body, DeliverySurface, Message, MessageKind, Origin, OriginKind,
    Priority,
};
use crate::model::policy::Limits;
use crate::model::refusal::Refusal;
use crate::model::stamp::Stamp;
use crate::model::submission::{Caller, Speaker, Submission};
use crate::model::time::Time;

use super::authority::{OPERATOR, agent};

/// Returns the message kinds that an origin may send; the first is the default.
pub const fn kinds(origin: OriginKind) -> &'static [MessageKind] {
    match origin {
        OriginKind::Operator => &[MessageKind::OperatorPrompt, MessageKind::Control],
        OriginKind::Channel => &[MessageKind::ChannelEvent],
        OriginKind::Webhook => &[MessageKind::WebhookEvent],
        OriginKind::Callback => &[MessageKind::CallbackEvent],
        OriginKind::Timer => &[MessageKind::TimerTick],
        OriginKind::System => &[MessageKind::SystemTick, MessageKind::InternalFollowup, MessageKind::Control],
        OriginKind::Task => &[MessageKind::TaskResult, MessageKind::TaskStatus],
    }
}

/// Returns the authority that every message of an origin has.
pub const fn authority(origin: OriginKind) -> AuthorityClass {
    match origin {
        OriginKind::Operator => AuthorityClass::OperatorInstruction,
        OriginKind::Channel => AuthorityClass::ExternalEvidence,
        OriginKind::Webhook | OriginKind::Callback => AuthorityClass::IntegrationSignal,
        OriginKind::Timer | OriginKind::System | OriginKind::Task => AuthorityClass::RuntimeInstruction,
    }
}

/// True if a message from outside dormouse may have this origin.
pub const fn is_open_to_outside(origin: OriginKind) -> bool {
    match origin {
        OriginKind::Operator | OriginKind::Channel | OriginKind::Webhook | OriginKind::Callback => true,
        OriginKind::Timer | OriginKind::System | OriginKind::Task => false,
    }
}

/// Returns the trigger kind of a message kind; `None` for kinds that never start a turn.
pub const fn trigger_kind(kind: MessageKind) -> Option<TriggerKind> {
    match kind {
        MessageKind::OperatorPrompt => Some(TriggerKind::OperatorInput),
        MessageKind::ChannelEvent | MessageKind::WebhookEvent | MessageKind::CallbackEvent => {
            Some(TriggerKind::ExternalEvent)
        }
        MessageKind::TimerTick => Some(TriggerKind::TimerFire),
        MessageKind::SystemTick => Some(TriggerKind::SystemTick),
        MessageKind::TaskResult => Some(TriggerKind::TaskResult),
        MessageKind::InternalFollowup => Some(TriggerKind::InternalFollowup),
        MessageKind::TaskStatus | MessageKind::Control => None,
    }
}

/// Makes a message from a request. `Err`: reason of the refusal.
///
/// A request from a turn or a task becomes an `internal_followup` of its agent, with one hop more
/// than the message that the turn works on. A file from another program gets the origin that the
/// policy names for such files, or another origin that the file names and that has no more
/// authority. A file of a user other than the owner gets that user as its origin.
pub fn admit(
    agent: &AgentName,
    mut submission: Submission,
    speaker: Speaker<'_>,
    limits: &Limits,
    stamp: &mut Stamp,
) -> Result<Message, Refusal> {
    let (caller, delivery_surface, admission_context) = match speaker {
        Speaker::Work(caller) => {
            (Some(caller), DeliverySurface::RuntimeSystem, AdmissionContext::RuntimeOwned)
        }
        Speaker::Outside => (None, DeliverySurface::Cli, AdmissionContext::LocalProcess),
        Speaker::File(_) | Speaker::User(_) => {
            (None, DeliverySurface::FileDrop, AdmissionContext::LocalProcess)
        }
    };
    let body = submission.take_body().map_err(|reason| Refusal::new("invalid_body", reason))?;
    check_size(&body, limits)?;
    if !submission.allow_empty && !body.is_contentful() {
        return Err(Refusal::new("blank_message", "the message is blank")
            .hint("if this is intended, use --allow-empty, or in JSON \"allow_empty\": true"));
    }
    if submission.dedupe_key.as_ref().is_some_and(String::is_empty) {
        return Err(Refusal::new("invalid_dedupe_key", "the dedupe key is empty: set it, or leave it out"));
    }
    let (origin, kind) = origin_and_kind(&submission, speaker)?;
    let priority = submission.priority.unwrap_or(Priority::Normal);
    if priority == Priority::Interject && (origin.kind != OriginKind::Operator || caller.is_some()) {
        return Err(Refusal::new("priority_not_allowed", "only the operator can interject")
            .hint("the highest priority for everybody else is `next`"));
    }
    let dedupe_key = match speaker {
        Speaker::User(user) => submission.dedupe_key.map(|key| key_of_user(key, user)),
        Speaker::Work(_) | Speaker::Outside | Speaker::File(_) => submission.dedupe_key,
    };
    let hops = one_further(caller.and_then(|caller| caller.hops), limits)?;
    let from = Provenance { origin, delivery_surface, admission_context };
    let expires_at = submission.expires_at.or(submission.ttl.map(|ttl| stamp.now.after(ttl)));
    Ok(Message {
        priority,
        work_item_id: submission.work_item_id,
        wait_id: submission.wait_id,
        resource: submission.resource,
        correlation_id: submission.correlation_id,
        causation_id: caller.map(Caller::causation_id),
        source_refs: caller
            .and_then(|caller| Some(format!("{}/{}", caller.agent, caller.run_id()?)))
            .into_iter()
            .collect(),
        dedupe_key,
        expires_at,
        hops,
        ..message(agent.clone(), kind, from, body, stamp)
    })
}

/// Sender of a message, and the way by which the message came in.
pub struct Provenance {
    pub origin: Origin,
    pub delivery_surface: DeliverySurface,
    pub admission_context: AdmissionContext,
}

/// Returns a new message of priority `normal` that names no other record. The trigger kind follows
/// from the message kind, the authority from the origin.
pub fn message(
    agent: AgentName,
    kind: MessageKind,
    from: Provenance,
    body: Body,
    stamp: &mut Stamp,
) -> Message {
    let Provenance { origin, delivery_surface, admission_context } = from;
    Message {
        authority_class: authority(origin.kind),
        delivery_surface,
        admission_context,
        trigger_kind: trigger_kind(kind),
        ..Message::new(MessageId(stamp.mint()), agent, kind, origin, body, stamp.now)
    }
}

/// Refuses a body larger than `limits.max_message`, or too large for a record.
pub fn check_size(body: &Body, limits: &Limits) -> Result<(), Refusal> {
    Bound::message("the body", limits.max_message).check(body.bytes() as u64)?;
    // The encoded size is checked, because one character may take six bytes in the file.
    RECORD.check(serde_json::to_vec(body).map_or(0, |bytes| bytes.len() as u64))
}

fn origin_and_kind(submission: &Submission, speaker: Speaker<'_>) -> Result<(Origin, MessageKind), Refusal> {
    let named = submission.origin.as_deref().map(str::parse::<Origin>).transpose();
    let named = named.map_err(|error| Refusal::new("unknown_origin", error.to_string()))?;
    let default = match speaker {
        Speaker::Work(caller) => return of_agent(&caller.agent, named, submission.kind),
        Speaker::Outside => &OPERATOR,
        Speaker::File(origin) => origin,
        Speaker::User(user) => return Ok((Origin::of_user(user), MessageKind::ChannelEvent)),
    };
    let origin = match (named, submission.kind) {
        (Some(origin), _) => origin,
        (None, Some(kind)) if !kinds(default.kind).contains(&kind) => speaker_of(kind),
        (None, _) => default.clone(),
    };
    let kind = submission.kind.unwrap_or(kinds(origin.kind)[0]);
    let not_allowed =
        |message: String, hint: &str| Err(Refusal::new("origin_not_allowed", message).hint(hint));
    if !is_open_to_outside(origin.kind) {
        let message = format!("`{}` is the runtime's own origin", origin.kind);
        return not_allowed(message, "speak as operator, channel, webhook or callback");
    }
    if origin.is_of_user() {
        let message = format!("`{origin}`: a user's origin comes from the owner of the file");
        return not_allowed(message, "give the channel another name");
    }
    if let Speaker::File(most) = speaker
        && authority(origin.kind) > authority(most.kind)
    {
        let message = format!("a dropped file can't speak as `{origin}`: inbox.drops_as = \"{most}\"");
        return not_allowed(message, "leave out `origin`, or change inbox.drops_as in agent.toml");
    }
    if !kinds(origin.kind).contains(&kind) {
        let allowed: Vec<&str> = kinds(origin.kind).iter().map(|kind| kind.name()).collect();
        let message = format!("a message from `{}` can't be of kind `{kind}`", origin.kind);
        return Err(Refusal::new("kind_origin_mismatch", message)
            .hint(format!("from that origin the kind is {}", allowed.join(" or "))));
    }
    Ok((origin, kind))
}

/// Returns the origin and the kind of a message that an agent sends: itself, `internal_followup`.
/// Refuses any other origin or kind, because an agent may repeat text of outsiders.
fn of_agent(
    name: &AgentName,
    named: Option<Origin>,
    kind: Option<MessageKind>,
) -> Result<(Origin, MessageKind), Refusal> {
    let own = agent(name);
    let kind = kind.unwrap_or(MessageKind::InternalFollowup);
    let claimed = named.or((!kinds(OriginKind::System).contains(&kind)).then(|| speaker_of(kind)));
    let is_own = |claimed: &Origin| *claimed == own || *claimed == Origin { id: None, ..own.clone() };
    if let Some(other) = claimed.filter(|claimed| !is_own(claimed)) {
        let who =
            if other.kind == OriginKind::Operator { "the operator".to_owned() } else { format!("`{other}`") };
        return Err(Refusal::new("origin_not_allowed", format!("an agent can't speak as {who}"))
            .hint("leave out --origin and --kind: the message then comes from the agent"));
    }
    if kind != MessageKind::InternalFollowup {
        let message = format!("an agent can't send a message of kind `{kind}`");
        return Err(
            Refusal::new("kind_not_allowed", message).hint("leave out --kind: it sends an internal_followup")
        );
    }
    Ok((own, kind))
}

/// Returns the default origin of a message kind.
pub fn speaker_of(kind: MessageKind) -> Origin {
    let speaks = |origin: &&OriginKind| kinds(**origin).contains(&kind);
    let mut all = [&OriginKind::Operator].into_iter().chain(OriginKind::ALL);
    Origin { kind: *all.find(speaks).unwrap_or(&OriginKind::Operator), id: None }
}

/// Returns the hops of an effect of a turn: one more than the turn has if `moment` is at most
/// `limits.chain_pause` from `now`; else 0, which starts a new chain. Error: as [`one_further`].
pub fn in_chain(
    of_turn: Option<u32>,
    moment: Option<Time>,
    now: Time,
    limits: &Limits,
) -> Result<u32, Refusal> {
    let is_soon = moment.is_some_and(|moment| moment <= now.after(limits.chain_pause));
    one_further(of_turn.filter(|_| is_soon), limits)
}

/// Returns one hop more than a turn has, or 0 without a turn. Refuses more than `limits.max_hops`.
pub fn one_further(of_turn: Option<u32>, limits: &Limits) -> Result<u32, Refusal> {
    let hops = of_turn.map_or(0, |hops| hops.saturating_add(1));
    if hops > limits.max_hops {
        let message = format!(
            "this would be hop {hops} of a chain of messages between turns; limits.max_hops = {}",
            limits.max_hops
        );
        return Err(Refusal::new("hop_limit", message)
            .hint("the chain started with one message from outside: let the operator look at it"));
    }
    Ok(hops)
}
