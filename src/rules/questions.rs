//! Open questions to the operator: waits and work items that need a person's answer (contract,
//! people §1).

use crate::model::attention::{Attention, AttentionSubject};
use crate::model::records::Records;
use crate::model::wait::WaitKind;
use crate::model::work::{PlanStatus, WorkState};

/// Open question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Wait, or work item whose plan needs input.
    pub about: AttentionSubject,
    /// Work item that is blocked, if the question does not block the whole agent.
    item: Option<crate::model::id::WorkId>,
    /// Text, cut after [`Attention::QUESTION`] characters.
    pub text: String,
    pub options: Vec<String>,
}

impl Question {
    /// True if a person has been told this question with the same text and about the same work.
    pub fn repeats(&self, told: &Attention) -> bool {
        told.about.work_item_id == self.item && told.reason == self.text && told.options == self.options
    }
}

/// Returns the open questions: waits for the operator in the order of their ids, then work items
/// that need input and have no such wait.
pub fn questions(records: &Records) -> Vec<Question> {
    let cut = |text: &str| text.chars().take(Attention::QUESTION).collect::<String>();
    let operator =
        || records.waits.iter().filter(|wait| wait.kind == WaitKind::Operator && wait.is_waiting());
    let of_waits = operator().map(|wait| Question {
        about: AttentionSubject {
            wait_id: Some(wait.id),
            work_item_id: wait.work_item_id,
            ..AttentionSubject::default()
        },
        item: wait.work_item_id,
        text: cut(&wait.reason),
        options: wait.options.clone(),
    });
    let needs_input = records.works.iter().filter(|item| {
        item.state == WorkState::Open
            && item.plan_status == PlanStatus::NeedsInput
            && !records.waits.iter().any(|wait| wait.is_active() && wait.work_item_id == Some(item.id))
    });
    let of_items = needs_input.map(|item| Question {
        about: AttentionSubject { work_item_id: Some(item.id), ..AttentionSubject::default() },
        item: Some(item.id),
        text: cut(&format!("needs input: {}", item.objective)),
        options: Vec::new(),
    });
    of_waits.chain(of_items).collect()
}
