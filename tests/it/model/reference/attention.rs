//! Execution §11: attentions, which tell a person about problems that the agent can't solve.

use super::{Model, Tag, Word};

/// An attention that is not acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub subject: Word,
    /// Name of the message that the attention is about.
    about: Option<Tag>,
}

impl Model {
    /// Raises an attention, runs its hook, and makes the current `tick` exit with 7.
    pub fn raise(&mut self, subject: Word, about: Option<Tag>) {
        self.marks.push(Mark { subject, about });
        self.alarmed = true;
        self.call_attention_hook(subject);
    }

    /// Acknowledges all attentions. Refused from inside a turn.
    pub fn acknowledge(&mut self, inside: bool) -> Result<(), i32> {
        if inside {
            return Err(super::REFUSED);
        }
        self.marks.clear();
        Ok(())
    }

    /// Acknowledges the attentions about a message that the operator has dropped or requeued.
    pub fn acknowledge_message(&mut self, said: &Tag) {
        self.marks.retain(|mark| mark.about.as_ref() != Some(said));
    }

    /// Acknowledges the attention about a held message that the operator has decided about.
    pub fn acknowledge_hold(&mut self, said: &Tag) {
        self.marks.retain(|mark| mark.subject != "message_held" || mark.about.as_ref() != Some(said));
    }

    /// Acknowledges that the agent stopped itself, when it is started.
    pub fn acknowledge_stop(&mut self) {
        self.marks.retain(|mark| mark.subject != "agent_stopped");
    }
}
