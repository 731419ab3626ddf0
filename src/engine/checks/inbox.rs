//! Looking at an inbox: what waits there, what could not be admitted, and what is in the wrong place.

use std::collections::{HashMap, HashSet};

use crate::beneath::Spot;
use crate::model::id::MessageId;
use crate::model::message::{Message, MessageKind, WakeHint};
use crate::model::state::{Moved, State};
use crate::report::text::count;
use crate::store::dir::drops::rejected_names;
use crate::store::dir::inbox::{Name, parse_name};
use crate::store::dir::layout;
use crate::store::dir::view::View;

use super::Remedy;
use super::agent::Checks;
use super::queued::Queued;

impl Checks<'_> {
    /// What steps leave where it is, because it can't be moved.
    pub fn passed_over(&mut self, state: &State) {
        for one in &state.passed_over {
            let path = self.path(layout::INBOX).join(&one.file);
            self.find(path, "passed_over", format!("it can't be moved: {}", one.reason), Remedy::Sort);
        }
    }

    /// What came into the inbox after the agent was moved away, and is not in its stream.
    pub fn late(&mut self, moved: &Moved) {
        let inbox = self.path(layout::INBOX);
        match self.agent.late() {
            Ok(late) => {
                for path in late {
                    let message =
                        format!("it came after the agent was moved to {}, at {}", moved.to, moved.at);
                    self.find(inbox.join(path), "late_arrival", message, Remedy::Forward);
                }
            }
            Err(error) => self.unreadable(self.path(layout::TAKEN), &error),
        }
    }

    /// What lies where those files are put that could not be admitted.
    fn rejected(&mut self, dir: Spot) {
        let files = match rejected_names(&View::settled(self.agent.dir()), true) {
            Ok(names) => names.len(),
            Err(error) => return self.unreadable(dir, &error),
        };
        if files > 0 {
            let message = count(files as u64, "file could not be admitted", "files could not be admitted");
            self.find(dir, "rejected_files", message, Remedy::Sort);
        }
    }

    /// The inbox and its segments: names, contents, and that no message is there twice.
    pub fn inbox(&mut self) -> Queued {
        let mut places: HashMap<MessageId, Spot> = HashMap::new();
        let mut results = HashSet::new();
        let inbox = self.path(layout::INBOX);
        if self.agent.store().is_in_git() && self.agent.has_kept_inbox().is_ok_and(|kept| !kept) {
            let path = self.path(layout::KEPT);
            let message = "missing: without it git may take the inbox for another agent's that was renamed";
            self.find(path, "git_inbox", message, Remedy::KeepInbox);
        }
        let former = self.path(layout::FORMER);
        let mut dirs = vec![inbox.clone()];
        if former.exists().is_ok_and(|is_there| is_there) {
            let message = "what was the inbox, before a command was killed";
            self.find(former.clone(), "unfinished_exchange", message, Remedy::FinishExchange);
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
                    Name::Message(key) => {
                        let Some(message) = self.record::<Message>(&path) else { continue };
                        if message.key() != key || message.agent != *self.agent.name() {
                            let message = format!("its content is {} of `{}`", message.key(), message.agent);
                            self.find(path, "wrong_name", message, Remedy::Quarantine);
                        } else if let Some(other) = places.insert(message.id, path.clone()) {
                            let message = format!("the same message as {}", other.display());
                            self.find(path, "duplicate_message", message, Remedy::Quarantine);
                        } else if message.kind == MessageKind::TaskResult {
                            results.extend(message.task_id);
                        }
                    }
                    Name::Hint(id) => {
                        let hint = self.record::<WakeHint>(&path);
                        if hint.is_some_and(|hint| hint.id != id || hint.agent != *self.agent.name()) {
                            self.find(
                                path,
                                "wrong_name",
                                "its content is another hint's",
                                Remedy::Quarantine,
                            );
                        }
                    }
                    Name::Segment(_) if is_inbox => dirs.push(path),
                    Name::Rejected if is_inbox => self.rejected(path),
                    // Hand-written files are the next step's to judge.
                    Name::Drop if is_inbox => {}
                    Name::Other => {}
                    Name::Segment(_) | Name::Rejected | Name::Drop => {
                        let message = "no message: nothing else lies among filed messages";
                        self.find(path, "not_a_message", message, Remedy::Quarantine);
                    }
                }
            }
        }
        Queued { messages: places.into_keys().collect(), results }
    }
}
