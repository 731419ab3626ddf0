//! Inbox files of users other than the owner of the state directory. The rights of such a file are
//! those of an outside sender, or less.

use super::continuation::TriggerKind;
use super::message::{
    AdmissionContext, AuthorityClass, DeliverySurface, Message, MessageKind, Origin, OriginKind, Priority,
    WakeHint,
};
use super::record::Extra;

/// Prefix of a user name, in the id of an origin and in the source of a hint.
const USER: &str = "uid:";

/// Returns the `source` of wake hints in inbox files that belong to `user`.
pub fn source(user: &str) -> String {
    format!("{USER}{user}")
}

/// Returns `key` with a prefix for the user, so that it differs from dedupe keys of other users.
pub fn key_of_user(key: String, user: &str) -> String {
    let own = format!("{}:", source(user));
    if key.starts_with(&own) { key } else { own + &key }
}

/// True for an id or source `uid:USER`, which is reserved for input in files of that user.
pub fn is_users(id: &str) -> bool {
    id.starts_with(USER)
}

impl Origin {
    /// Returns the origin of a message whose inbox file belongs to `user`.
    pub fn of_user(user: &str) -> Origin {
        Origin { kind: OriginKind::Channel, id: Some(source(user)) }
    }

    /// True if the origin is the user who owns the message's file.
    pub fn is_of_user(&self) -> bool {
        self.kind == OriginKind::Channel && self.id.as_deref().is_some_and(is_users)
    }
}

impl Message {
    /// Returns the message with the owner of its file as origin, whatever origin the file claims.
    /// Keeps only fields that senders set. `Err`: reason of the refusal.
    pub fn said_by(self, user: &str) -> Result<Message, String> {
        if self.priority == Priority::Interject {
            return Err(format!("only the operator can interject, and the file belongs to user `{user}`"));
        }
        let origin = Origin::of_user(user);
        let (id, agent, body, created_at) = (self.id, self.agent, self.body, self.created_at);
        Ok(Message {
            authority_class: AuthorityClass::ExternalEvidence,
            delivery_surface: DeliverySurface::FileDrop,
            admission_context: AdmissionContext::LocalProcess,
            trigger_kind: Some(TriggerKind::ExternalEvent),
            priority: self.priority,
            work_item_id: self.work_item_id,
            wait_id: self.wait_id,
            resource: self.resource,
            correlation_id: self.correlation_id,
            dedupe_key: self.dedupe_key.map(|key| key_of_user(key, user)),
            expires_at: self.expires_at,
            hops: self.hops,
            ..Message::new(id, agent, MessageKind::ChannelEvent, origin, body, created_at)
        })
    }
}

impl WakeHint {
    /// Returns the hint with the owner of its file as source.
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
