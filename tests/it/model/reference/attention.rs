//! Execution §11: what has gone wrong for good reaches a person.

use super::{Model, Tag, Word};

/// Something that needs somebody, until it is acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub subject: Word,
    /// The message that it is about.
    about: Option<Tag>,
}

impl Model {
    /// A mark that stays, and a word to whoever steps the agent.
    pub fn raise(&mut self, subject: Word, about: Option<Tag>) {
        self.marks.push(Mark { subject, about });
        self.alarmed = true;
        self.call_attention_hook(subject);
    }

    /// An agent does not acknowledge for itself.
    pub fn acknowledge(&mut self, inside: bool) -> Result<(), i32> {
        if inside {
            return Err(super::REFUSED);
        }
        self.marks.clear();
        Ok(())
    }

    /// A message that somebody has dealt with.
    pub fn acknowledge_message(&mut self, said: &Tag) {
        self.marks.retain(|mark| mark.about.as_ref() != Some(said));
    }

    /// A held message that the operator has decided about.
    pub fn acknowledge_hold(&mut self, said: &Tag) {
        self.marks.retain(|mark| mark.subject != "message_held" || mark.about.as_ref() != Some(said));
    }

    /// An agent that stopped itself, and is started.
    pub fn acknowledge_stop(&mut self) {
        self.marks.retain(|mark| mark.subject != "agent_stopped");
    }
}
