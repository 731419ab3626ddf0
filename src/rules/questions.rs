//! Open questions to the operator: waits and work items that need an answer from a person
//! (contract, people §1).

use crate::model::attention::{Attention, AttentionSubject};
use crate::model::records::Records;
use crate::model::wait::{Wait, WaitKind};
use crate::model::work::{PlanStatus, WorkState};

/// Open question to the operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Wait, and the work item that is blocked; without an item the whole agent is blocked.
    pub about: AttentionSubject,
    /// Text of the question, cut after [`Attention::QUESTION`] characters.
    pub text: String,
    pub options: Vec<String>,
}

impl Question {
    /// True if `told` is this question: the same text and options, and the same work item.
    pub fn repeats(&self, told: &Attention) -> bool {
        (told.about.work_item_id, &told.reason, &told.options)
            == (self.about.work_item_id, &self.text, &self.options)
    }
}

/// Returns the open questions: first the waits for the operator in the order of their ids, then the
/// work items that need input and have no such wait.
pub fn questions(records: &Records) -> Vec<Question> {
    let cut = |text: &str| text.chars().take(Attention::QUESTION).collect::<String>();
    let is_question = |wait: &&Wait| wait.kind == WaitKind::Operator && wait.is_waiting();
    let of_waits = records.waits.iter().filter(is_question).map(|wait| Question {
        about: AttentionSubject {
            wait_id: Some(wait.id),
            work_item_id: wait.work_item_id,
            ..AttentionSubject::default()
        },
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
        text: cut(&format!("needs input: {}", item.objective)),
        options: Vec::new(),
    });
    of_waits.chain(of_items).collect()
}
