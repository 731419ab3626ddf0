//! Inbox files that are not taken up: messages that have ended before, and files that could not be
//! admitted, with the operator's decisions about them.

use serde_json::{Value, json};

use crate::model::attention::{AttentionSubject, Subject};
use crate::model::event::EventKind;
use crate::model::message::{Message, MessageStatus};
use crate::model::transaction::Delete;

use super::draft::Draft;

/// Records that an inbox file could not be admitted and was quarantined. `file` is its name in the
/// quarantine.
pub fn rejected(draft: &mut Draft, file: &str, reason: &str) {
    let data = json!({ "path": file, "reason": reason });
    reject(draft, file, data, format!("{reason} (it is in inbox/rejected/)"));
}

/// Records that an inbox file can be neither admitted nor moved. `file` is its name in the inbox;
/// steps skip it from now on.
pub fn stays(draft: &mut Draft, file: &str, reason: &str) {
    let data = json!({ "path": file, "reason": reason, "stays": true });
    reject(draft, file, data, format!("{reason} (it stays in inbox/)"));
}

fn reject(draft: &mut Draft, file: &str, data: Value, reason: String) {
    draft.event(EventKind::MessageRejected, None, data);
    draft.raise(Subject::MessageRejected, AttentionSubject::file(file), reason);
}

/// Records a person's decision about a rejected file, and acknowledges its attention.
pub fn decided_about_rejected(draft: &mut Draft, kind: EventKind, file: &str) {
    draft.event(kind, None, json!({ "path": file }));
    draft.acknowledge(|seen| {
        seen.subject == Subject::MessageRejected
            && seen.count == 1
            && seen.about.path.as_deref() == Some(file)
    });
}

/// Acknowledges the attentions of all rejected files, because no such file is left.
pub fn decided_about_all_rejected(draft: &mut Draft) {
    draft.acknowledge(|seen| seen.subject == Subject::MessageRejected && seen.about.path.is_some());
}

/// Removes the file of a message that has ended before. Its settlement in the archive stays.
pub fn drop_settled(draft: &mut Draft, message: &Message) {
    let last_interject = &mut draft.records.inbox.last_interject;
    *last_interject = last_interject.filter(|id| *id != message.id);
    draft.delete(Delete::Message(message.key()));
    let (id, kind, status) = (message.id, message.kind, MessageStatus::Dropped);
    let data = json!({ "message_id": id, "kind": kind, "status": status, "reason": "already_settled" });
    draft.event(EventKind::MessageSettled, None, data);
}
