//! Triggers: creation, rotation of the secret, revocation, counting (contract, semantics §13).

use serde_json::json;

use crate::model::event::EventKind;
use crate::model::id::{TriggerId, WaitId};
use crate::model::message::{Message, WakeHint};
use crate::model::record::Record;
use crate::model::refusal::Refusal;
use crate::model::time::Time;
use crate::model::trigger::{DeliveryMode, Trigger, TriggerScope, TriggerStatus, Verify};
use crate::model::wait::{Wait, WaitKind};

use super::draft::Draft;

/// Fields of a new trigger.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTrigger {
    pub delivery_mode: DeliveryMode,
    pub scope: TriggerScope,
    pub source: Option<String>,
    pub verify: Verify,
    pub secret_sha256: String,
}

/// Creates a trigger. A trigger with the scope of a wait is assigned to that wait.
pub fn create(draft: &mut Draft, new: NewTrigger) -> Result<Trigger, Refusal> {
    let id = TriggerId(draft.stamp.mint());
    let agent = draft.records.state.agent.clone();
    let trigger = Trigger {
        delivery_mode: new.delivery_mode,
        source: new.source,
        verify: new.verify,
        ..Trigger::new(id, agent, new.scope, new.secret_sha256, draft.now())
    };
    trigger.check().map_err(|reason| Refusal::usage("invalid_trigger", reason))?;
    if let Some(wait) = trigger.scope.wait_id() {
        belong_to(draft, wait, trigger.id)?;
    }
    note(draft, &trigger, "created");
    draft.add(&trigger);
    Ok(trigger)
}

/// Assigns a trigger to an active wait. Refused if it has one, or no outside system can end it.
fn belong_to(draft: &mut Draft, id: WaitId, trigger: TriggerId) -> Result<(), Refusal> {
    let Some(wait) = draft.records.waits.iter().find(|wait| wait.id == id && wait.is_active()) else {
        return Err(Refusal::new("not_active", format!("{id} is not an active wait")));
    };
    may_have_trigger(wait)?;
    if let Some(other) = wait.trigger_id {
        return Err(Refusal::new("wait_has_trigger", format!("{id} has a trigger already: {other}"))
            .hint("revoke that one first"));
    }
    draft.change::<Wait>(id, |wait| wait.trigger_id = Some(trigger));
    Ok(())
}

/// Refuses a trigger for a wait of a kind that no outside system can end.
pub fn may_have_trigger(wait: &Wait) -> Result<(), Refusal> {
    match wait.kind {
        WaitKind::External | WaitKind::System => Ok(()),
        WaitKind::Operator | WaitKind::Task | WaitKind::Timer => {
            let kind = wait.kind;
            let message = format!(
                "a trigger belongs to a wait of kind `external` or `system`, and this one is `{kind}`"
            );
            Err(Refusal::new("invalid_wait", message))
        }
    }
}

/// Replaces the secret of a trigger. Deliveries admitted with the old secret stay valid.
pub fn rotate(draft: &mut Draft, id: TriggerId, secret_sha256: String) -> Result<Trigger, Refusal> {
    let changed = draft.change::<Trigger>(id, |trigger| trigger.secret_sha256 = secret_sha256);
    let trigger = changed.ok_or_else(|| not_active(draft, id))?;
    note(draft, &trigger, "rotated");
    Ok(trigger)
}

/// Revokes a trigger for ever. Deliveries in the inbox stay. A wait that names the trigger stays
/// active without a trigger.
pub fn revoke(draft: &mut Draft, id: TriggerId, cause: &str) -> Result<Trigger, Refusal> {
    let mut trigger = draft.take::<Trigger>(id).ok_or_else(|| not_active(draft, id))?;
    trigger.status = TriggerStatus::Revoked;
    trigger.revoked_at = Some(draft.now());
    note(draft, &trigger, cause);
    draft.end(&trigger);
    draft.change_each(|wait: &Wait| wait.trigger_id == Some(id), |wait| wait.trigger_id = None);
    Ok(trigger)
}

/// Revokes the trigger whose scope is a wait that has ended.
pub fn wait_ended(draft: &mut Draft, wait: &Wait) {
    let belongs = |trigger: &&Trigger| trigger.scope.wait_id() == Some(wait.id);
    if let Some(id) = draft.records.triggers.iter().find(belongs).map(|trigger| trigger.id) {
        // The trigger is open, so `revoke` can't fail.
        let _ = revoke(draft, id, "its wait has ended");
    }
}

fn not_active(draft: &Draft, id: TriggerId) -> Refusal {
    let message = format!("{id} is not an active trigger of `{}`", draft.records.state.agent);
    Refusal::new("not_active", message)
}

fn note(draft: &mut Draft, trigger: &Trigger, cause: &str) {
    let data = json!({
        "trigger_id": trigger.id,
        "to": trigger.status,
        "delivery_mode": trigger.delivery_mode,
        "scope": trigger.scope,
        "cause": cause,
    });
    draft.event(EventKind::TriggerTransition, None, data);
}

/// Counts, in its trigger, the delivery that caused a message, when a step takes the message up.
pub fn count_message(draft: &mut Draft, message: &Message) {
    // The hints from which a message was made were counted already, each in its trigger.
    if message.hint.is_none() && !message.was_claimed() {
        count(draft, message.trigger_id, 1, message.created_at);
    }
}

/// Counts the merged deliveries of a hint in its trigger, when the hint leaves the inbox.
pub fn count_hint(draft: &mut Draft, hint: &WakeHint) {
    count(draft, hint.trigger_id, u64::from(hint.count), hint.created_at);
}

fn count(draft: &mut Draft, id: Option<TriggerId>, deliveries: u64, last: Time) {
    if let Some(id) = id {
        draft.change::<Trigger>(id, |trigger| trigger.count(deliveries, last));
    }
}
