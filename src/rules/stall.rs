//! Open questions to the operator, and stalled agents, which only a person can resume (contract,
//! people §1 and semantics §15).

use crate::model::agent::Status;
use crate::model::attention::{Attention, AttentionSubject, Subject};
use crate::model::digest::sha256;
use crate::model::records::Records;
use crate::model::time::{Span, Time};
use crate::model::wait::{Wait, WaitKind};
use crate::model::work::{PlanStatus, WorkItem, WorkState};

use super::due::next_wake;
use super::work::{WaitsByItem, is_spent};

/// Duration of a stall after which a person is notified.
pub const PATIENCE: Span = Span::from_secs(24 * 3600);

/// Stall of an agent: its start, the stalled record, and the reason with the command that helps.
#[derive(Debug, Clone, PartialEq)]
pub struct Stall {
    pub since: Time,
    pub about: AttentionSubject,
    pub reason: String,
}

/// Returns the stall of an agent that has nothing queued, running or due. A wait for an outside
/// event prevents no stall, because its end resumes only the work that has this wait.
pub fn stall(records: &Records) -> Option<Stall> {
    let state = &records.state;
    let is_open = !matches!(state.status, Status::Booting | Status::Stopped) && state.moved.is_none();
    // An agent with a live run or task is not stalled, because the end of either wakes it.
    let is_busy = state.current_run.is_some() || records.tasks.iter().any(|task| !task.status.is_terminal());
    if !is_open || is_busy || next_wake(records).is_some() || has_input(records) {
        return None;
    }
    let agent = &state.agent;
    if let Some(held) = &state.held {
        let cure = if held.needs_operator {
            format!("`dormouse recover {agent}` tries it again")
        } else {
            format!("`dormouse resume {agent}` resumes its turn")
        };
        let reason = format!("{}; {cure}", held.missing);
        let about = AttentionSubject::message(held.message_id);
        return Some(Stall { since: state.execution.since, about, reason });
    }
    if state.retry.is_some() {
        return None;
    }
    let waits = WaitsByItem::of(&records.waits);
    let of_item = |item: &WorkItem, reason| Stall {
        since: state.execution.since.max(item.updated_at),
        about: AttentionSubject { work_item_id: Some(item.id), ..AttentionSubject::default() },
        reason,
    };
    let is_used_up = |item: &&WorkItem| waits.is_runnable(item) && is_spent(records, item);
    if let Some(item) = records.works.iter().find(is_used_up) {
        let cure = format!("`dormouse wake {agent}` makes the agent look again");
        let reason = format!("{} is runnable, and its tick is used up; {cure}", item.objective);
        return Some(of_item(item, reason));
    }
    let item = records.works.iter().find(|item| is_stalled(item, &waits))?;
    let cure = format!("`dormouse work unblock {}`", item.id);
    Some(of_item(item, format!("{} is blocked, and nothing brings it back; {cure}", item.objective)))
}

/// Returns the time at which a person is to be notified of the stall. `None` without a stall, or if
/// a person was notified already.
pub fn notify_at(records: &Records) -> Option<Time> {
    let stall = stall(records).filter(|stall| records.state.stalled != Some(stall.since))?;
    Some(stall.since.after(PATIENCE))
}

/// True if the inbox has a message, file or hint for a step to take in, or a hint is pending.
pub fn has_input(records: &Records) -> bool {
    let inbox = &records.inbox;
    inbox.head.is_some()
        || inbox.submissions > 0
        || !inbox.hints.is_empty()
        || records.state.pending_wake_hint.is_some()
}

/// True if an item is blocked, and neither a recheck nor a wait is pending for the item.
pub fn is_stalled(item: &WorkItem, waits: &WaitsByItem<'_>) -> bool {
    let comes_back = item.recheck_due().is_some();
    item.state == WorkState::Open && item.blocked_by.is_some() && !comes_back && waits.on(item.id).is_empty()
}

/// Maximum number of questions that get an attention of their own, and maximum length of their
/// texts in characters, because `state.json` contains these attentions.
const QUESTIONS: usize = 500;
const TEXT: usize = 400;

/// Returns the open questions to the operator, as attentions that are not logged yet: first the
/// waits for the operator in the order of their ids, then the work items that need input and have
/// no active wait. The last attention, about no record, stands for all above the maximum number.
pub fn questions(records: &Records, now: Time) -> Vec<Attention> {
    let question = |about, text: &str| {
        let shown = match text.char_indices().nth(TEXT) {
            // The hash distinguishes long questions whose first characters are equal.
            Some((end, _)) => format!("{}… (sha256 {:.8})", &text[..end], sha256(text.as_bytes())),
            None => text.to_owned(),
        };
        Attention::new(Subject::Asked, about, shown, now)
    };
    let is_question = |wait: &&Wait| wait.kind == WaitKind::Operator && wait.is_waiting();
    let of_waits = records.waits.iter().filter(is_question).map(|wait| {
        let (wait_id, work_item_id) = (Some(wait.id), wait.work_item_id);
        let about = AttentionSubject { wait_id, work_item_id, ..AttentionSubject::default() };
        Attention { options: wait.options.clone(), ..question(about, &wait.reason) }
    });
    let needs_input = records.works.iter().filter(|item| {
        item.state == WorkState::Open
            && item.plan_status == PlanStatus::NeedsInput
            && !records.waits.iter().any(|wait| wait.is_active() && wait.work_item_id == Some(item.id))
    });
    let of_items = needs_input.map(|item| {
        let about = AttentionSubject { work_item_id: Some(item.id), ..AttentionSubject::default() };
        question(about, &format!("needs input: {}", item.objective))
    });
    let mut open: Vec<Attention> = of_waits.chain(of_items).collect();
    if open.len() > QUESTIONS {
        open.truncate(QUESTIONS);
        let further = format!("more than {QUESTIONS} are open: `dormouse wait list`, `dormouse work list`");
        open.push(question(AttentionSubject::default(), &further));
    }
    open
}
