//! Messages that dormouse itself sends to an agent (contract, semantics §9).

use crate::model::id::MessageId;
use crate::model::message::{
    AdmissionContext, Body, DeliverySurface, Message, MessageKind, Origin, OriginKind,
};

use crate::rules::admission::{NewMessage, message};

use super::draft::Draft;

/// Returns a message from dormouse itself, with the defaults of its kind.
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
    message(NewMessage {
        id: MessageId(draft.stamp.mint()),
        agent: draft.records.state.agent.clone(),
        kind,
        origin: Origin { kind: origin, id: None },
        delivery_surface,
        admission_context: AdmissionContext::RuntimeOwned,
        body,
        created_at: draft.now(),
    })
}
