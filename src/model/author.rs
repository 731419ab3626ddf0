//! What a file in an inbox says that another user than the owner has written: no more than an outsider may.

use super::continuation::TriggerKind;
use super::message::{
    AdmissionContext, AuthorityClass, DeliverySurface, Message, MessageKind, Origin, OriginKind, Priority,
    WakeHint,
};
use super::record::Extra;

/// How the name of a user begins among the ids of channels and the sources of hints.
const USER: &str = "uid:";

/// A user as the source of a hint.
fn source(user: &str) -> String {
    format!("{USER}{user}")
}

/// Whether an id or a source is kept for what the owner of a file shows: nobody claims it.
pub fn is_users(id: &str) -> bool {
    id.starts_with(USER)
}

impl Origin {
    /// A user whose file it is.
    pub fn of_user(user: &str) -> Origin {
        Origin { kind: OriginKind::Channel, id: Some(source(user)) }
    }

    /// Whether it is one of these.
    pub fn is_of_user(&self) -> bool {
        self.kind == OriginKind::Channel && self.id.as_deref().is_some_and(is_users)
    }
}

impl Message {
    /// The message as the word of the user who has written its file, whatever it claims to be: what an
    /// outsider may say is kept, and all that the executor alone notes is not. Or why it is none.
    pub fn said_by(self, user: &str) -> Result<Message, String> {
        if self.priority == Priority::Interject {
            return Err(format!("only the operator can interject, and the file is of user `{user}`"));
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
            interjected: Vec::new(),
            checkpoint: None,
            settlement: None,
            extra: Extra::new(),
            ..self
        })
    }
}

impl WakeHint {
    /// The same for a hint.
    pub fn said_by(self, user: &str) -> WakeHint {
        WakeHint {
            source: source(user),
            trigger_id: None,
            delivery_surface: DeliverySurface::FileDrop,
            admission_context: AdmissionContext::LocalProcess,
            count: 1,
            extra: Extra::new(),
            ..self
        }
    }
}
