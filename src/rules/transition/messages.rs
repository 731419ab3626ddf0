//! Messages that dormouse itself sends to an agent (contract, semantics §9).

use crate::model::id::MessageId;
use crate::model::message::{
    AdmissionContext, Body, DeliverySurface, Message, MessageKind, Origin, OriginKind, Priority,
};
use crate::model::record::Extra;

use crate::rules::admission::{authority, trigger_kind};

use super::draft::Draft;

/// A message of dormouse's own, with the defaults of its kind.
pub fn own_message(draft: &mut Draft, kind: MessageKind, body: Body) -> Message {
    let (origin, delivery_surface) = match kind {
        MessageKind::TimerTick => (OriginKind::Timer, DeliverySurface::TimerScheduler),
        MessageKind::TaskResult | MessageKind::TaskStatus => (OriginKind::Task, DeliverySurface::TaskRejoin),
        MessageKind::OperatorPrompt
        | MessageKind::ChannelEvent
        | MessageKind::WebhookEvent
        | MessageKind::CallbackEvent
        | MessageKind::SystemTick
        | MessageKind::InternalFollowup
        | MessageKind::Control => (OriginKind::System, DeliverySurface::RuntimeSystem),
    };
    Message {
        id: MessageId(draft.stamp.mint()),
        agent: draft.records.state.agent.clone(),
        kind,
        priority: Priority::Normal,
        origin: Origin { kind: origin, id: None },
        authority_class: authority(origin),
        delivery_surface,
        admission_context: AdmissionContext::RuntimeOwned,
        trigger_kind: trigger_kind(kind),
        body,
        work_item_id: None,
        task_id: None,
        task_status: None,
        wait_id: None,
        trigger_id: None,
        resource: None,
        correlation_id: None,
        causation_id: None,
        source_refs: Vec::new(),
        dedupe_key: None,
        idempotency_key: None,
        hint: None,
        expires_at: None,
        hops: 0,
        attempt: 1,
        created_at: draft.now(),
        continuation: None,
        failures: Vec::new(),
        interjected: Vec::new(),
        checkpoint: None,
        settlement: None,
        extra: Extra::new(),
    }
}
