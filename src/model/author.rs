//! Inbox files that another user than the owner has written. Such a file says no more than an
//! outsider may.

use super::continuation::TriggerKind;
use super::message::{
    AdmissionContext, AuthorityClass, DeliverySurface, Message, MessageKind, Origin, OriginKind, Priority,
    WakeHint,
};
use super::record::Extra;

/// The prefix of a user's name as the id of a channel or the source of a hint.
const USER: &str = "uid:";

/// A user as the source of a hint.
pub fn source(user: &str) -> String {
    format!("{USER}{user}")
}

/// Whether an id or a source is reserved for users that are known as the owners of files. Nothing
/// else may claim it.
pub fn is_users(id: &str) -> bool {
    id.starts_with(USER)
}

impl Origin {
    /// The origin of a file that this user owns.
    pub fn of_user(user: &str) -> Origin {
        Origin { kind: OriginKind::Channel, id: Some(source(user)) }
    }

    /// Whether the origin is such a user.
    pub fn is_of_user(&self) -> bool {
        self.kind == OriginKind::Channel && self.id.as_deref().is_some_and(is_users)
    }
}

impl Message {
    /// The message as an outsider's, in the name of the user who wrote its file, whatever it claims
    /// to be. Fields that an outsider may set are kept; those that only the executor sets are
    /// cleared. `Err` says why the message is refused.
    pub fn said_by(self, user: &str) -> Result<Message, String> {
        if self.priority == Priority::Interject {
            return Err(format!("only the operator can interject, and the file belongs to user `{user}`"));
        }
        Ok(Message {
            kind: MessageKind::ChannelEvent,
            origin: Origin::of_user(user),
            authority_class: AuthorityClass::ExternalEvidence,
            delivery_surface: DeliverySurface::FileDrop,
            admission_context: AdmissionContext::LocalProcess,
            trigger_kind: Some(TriggerKind::ExternalEvent),
            task_id: None,
            task_status: None,
            trigger_id: None,
            causation_id: None,
            source_refs: Vec::new(),
            idempotency_key: None,
            hint: None,
            attempt: 1,
            continuation: None,
            failures: Vec::new(),
            taken_up: false,
            interjected: Vec::new(),
            checkpoint: None,
            settlement: None,
            extra: Extra::new(),
            ..self
        })
    }
}

impl WakeHint {
    /// The hint as an outsider's, in the name of the user who wrote its file.
    pub fn said_by(self, user: &str) -> WakeHint {
        WakeHint {
            source: source(user),
            trigger_id: None,
            delivery_surface: DeliverySurface::FileDrop,
            admission_context: AdmissionContext::LocalProcess,
            source_refs: Vec::new(),
            count: 1,
            extra: Extra::new(),
            ..self
        }
    }
}
