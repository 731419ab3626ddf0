//! Things in an inbox that are not taken up: messages that have ended before, files that could not be
//! admitted, and what people decide about them.

use serde_json::json;

use crate::model::attention::{About, Subject};
use crate::model::event::EventKind;
use crate::model::message::{Message, MessageStatus};
use crate::model::state::PassedOver;
use crate::model::transaction::Delete;

use super::draft::Draft;

/// Records something in the inbox that could not be admitted and was moved aside. `file` is its name there.
pub fn rejected(draft: &mut Draft, file: &str, reason: &str) {
    draft.event(EventKind::MessageRejected, None, json!({ "file": file, "reason": reason }));
    let reason = format!("{reason} (it is in inbox/rejected/)");
    draft.raise(Subject::MessageRejected, About::file(file), reason);
}

/// Records something in the inbox that can be neither admitted nor moved. Steps pass it over from now on, and
/// it is reported once. Beyond the number that is remembered, nothing is reported.
pub fn pass_over(draft: &mut Draft, one: PassedOver) {
    let passed_over = &mut draft.records.state.passed_over;
    passed_over.retain(|other| other.file != one.file);
    if passed_over.len() >= PassedOver::MOST {
        return;
    }
    let (file, reason) = (one.file.clone(), one.reason.clone());
    passed_over.push(one);
    draft.event(EventKind::MessageRejected, None, json!({ "file": file, "reason": reason, "stays": true }));
    draft.raise(Subject::MessageRejected, About::file(&file), format!("{reason} (it stays in inbox/)"));
}

/// Records what a person has decided about something that could not be admitted, which acknowledges it.
pub fn decided_about_rejected(draft: &mut Draft, kind: EventKind, file: &str) {
    draft.event(kind, None, json!({ "file": file }));
    draft.acknowledge(|seen| {
        seen.subject == Subject::MessageRejected
            && seen.count == 1
            && seen.about.file.as_deref() == Some(file)
    });
    draft.records.state.passed_over.retain(|one| one.file != file);
}

/// Acknowledges everything that could not be admitted, because nothing of it is left.
pub fn decided_about_all_rejected(draft: &mut Draft) {
    draft.acknowledge(|seen| seen.subject == Subject::MessageRejected && seen.about.file.is_some());
}

/// Forgets what was passed over and is gone or has changed since.
pub fn look_again(draft: &mut Draft, is_as_before: impl Fn(&str) -> bool) {
    let passed_over = &mut draft.records.state.passed_over;
    let before = passed_over.len();
    passed_over.retain(|one| is_as_before(&one.file));
    if passed_over.len() < before {
        draft.touch();
    }
}

/// Removes the file of a message that has ended before. What the archive says about its end stays.
pub fn drop_settled(draft: &mut Draft, message: &Message) {
    let last_interject = &mut draft.records.inbox.last_interject;
    *last_interject = last_interject.filter(|id| *id != message.id);
    draft.delete(Delete::Message(message.key()));
    let status = MessageStatus::Dropped;
    draft.event(
        EventKind::MessageSettled,
        None,
        json!({ "message_id": message.id, "kind": message.kind, "status": status, "reason": "already_settled" }),
    );
}
