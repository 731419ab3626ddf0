//! Checks of an inbox: waiting messages, rejected files, and files in the wrong place.

use std::collections::{HashMap, HashSet};

use crate::cap_fs::CapPath;
use crate::local::layout;
use crate::model::id::{MessageId, TaskId};
use crate::model::message::{InboxKey, Message, MessageKind, WakeHint};
use crate::model::moved::Moved;
use crate::model::state::State;

use super::super::inbox::{Name, parse_name};
use super::super::moved;
use super::super::quarantine::passed_over;
use super::super::submissions::rejected_names;
use super::super::view::View;
use super::Remedy;
use super::records::Checkup;

impl Checkup<'_> {
    /// Reports files that steps skip because the files can't be moved.
    pub(super) fn passed_over(&mut self, state: &State) {
        for one in passed_over(state) {
            let path = self.path(layout::INBOX).join(&one.file);
            self.note(path, "passed_over", format!("it can't be moved: {}", one.reason), Remedy::SORT);
        }
    }

    /// Reports inbox files that arrived after the agent was exported by `export --move` or `rm`.
    pub(super) fn late(&mut self, moved: &Moved) {
        let inbox = self.path(layout::INBOX);
        match moved::late(&self.agent.local.dir) {
            Ok(late) => {
                for path in late {
                    let message = format!("it came after the agent was {moved}, at {}", moved.at);
                    self.note(inbox.join(path), "late_arrival", message, Remedy::FORWARD);
                }
            }
            Err(error) => self.unreadable(self.path(layout::TAKEN), &error),
        }
    }

    /// Reports the number of files that could not be admitted.
    fn rejected(&mut self, dir: CapPath) {
        let message =
            match rejected_names(&View::settled(&self.agent.local.dir), true).map(|names| names.len()) {
                Ok(0) => return,
                Ok(1) => "1 file could not be admitted".to_owned(),
                Ok(files) => format!("{files} files could not be admitted"),
                Err(error) => return self.unreadable(dir, &error),
            };
        self.note(dir, "rejected_files", message, Remedy::SORT);
    }

    /// Checks the inbox and the directories of messages in it: names, contents, and that no message
    /// occurs twice. Returns the ids of the messages, and of the tasks whose end a message reports.
    pub(super) fn inbox(&mut self) -> (HashSet<MessageId>, HashSet<TaskId>) {
        let mut places: HashMap<MessageId, CapPath> = HashMap::new();
        let mut results = HashSet::new();
        let inbox = self.path(layout::INBOX);
        let kept = self.path(layout::KEPT);
        if self.agent.local.state_dir.is_in_git() && kept.exists().is_ok_and(|is_there| !is_there) {
            let message = "missing: without it git may take the inbox for another agent's that was renamed";
            self.note(kept, "git_inbox", message, Remedy::KeepInbox);
        }
        let former = self.path(layout::FORMER);
        let mut dirs = vec![inbox.clone()];
        if former.exists().is_ok_and(|is_there| is_there) {
            let message = "the former inbox, which a killed command has left";
            self.note(former.clone(), "unfinished_exchange", message, Remedy::FinishExchange);
            dirs.push(former.clone());
        }
        while let Some(dir) = dirs.pop() {
            let is_inbox = dir == inbox || dir == former;
            let entries = match dir.entries() {
                Ok(entries) => entries,
                Err(error) => {
                    self.unreadable(dir, &error);
                    continue;
                }
            };
            for entry in entries {
                let path = dir.join(&entry.name);
                match parse_name(entry.name.as_encoded_bytes(), entry.is_dir) {
                    Name::Message(key) => results.extend(self.message(key, path, &mut places)),
                    Name::Hint(id) => self.hint(id, path),
                    Name::Segment(_) if is_inbox => dirs.push(path),
                    Name::Rejected if is_inbox => self.rejected(path),
                    // The next step checks files that other programs have put into the inbox.
                    Name::Drop if is_inbox => {}
                    Name::Other => {}
                    Name::Segment(_) | Name::Rejected | Name::Drop => {
                        let message = "no message: nothing else lies among filed messages";
                        self.note(path, "not_a_message", message, Remedy::Quarantine);
                    }
                }
            }
        }
        (places.into_keys().collect(), results)
    }

    /// Checks a message: name, content, and that no other file has it. Returns the task whose end
    /// the message reports.
    fn message(
        &mut self,
        key: InboxKey,
        path: CapPath,
        places: &mut HashMap<MessageId, CapPath>,
    ) -> Option<TaskId> {
        let message: Message = self.record(&path)?;
        if message.key() != key || !self.is_own(&message.agent) {
            let message = format!("its content is {} of `{}`", message.key(), message.agent);
            self.note(path, "wrong_name", message, Remedy::Quarantine);
        } else if let Some(other) = places.insert(message.id, path.clone()) {
            let message = format!("the same message as {}", other.display());
            self.note(path, "duplicate_message", message, Remedy::Quarantine);
        } else if message.kind == MessageKind::TaskResult {
            return message.task_id;
        }
        None
    }

    fn hint(&mut self, id: MessageId, path: CapPath) {
        let hint = self.record::<WakeHint>(&path);
        if hint.is_some_and(|hint| hint.id != id || !self.is_own(&hint.agent)) {
            self.note(path, "wrong_name", "its content is another hint's", Remedy::Quarantine);
        }
    }
}
