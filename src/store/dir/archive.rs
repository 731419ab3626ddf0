//! Terminal records on their way into the archive: which file, and which line.

use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::run::{Brief, Run};
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::transaction::Archived;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::layout;
use super::record::encode_line;

/// The archive's file for a record, by the month of its end, and its line.
pub fn line(archived: &Archived) -> (String, Vec<u8>) {
    match archived {
        Archived::Message(message) => {
            let at = message.settlement.as_ref().map_or(message.created_at, |settlement| settlement.at);
            (layout::archive(at, Message::KIND), encode_line(message.as_ref()))
        }
        Archived::Wait(wait) => (
            layout::archive(wait.ended_at.unwrap_or(wait.created_at), Wait::KIND),
            encode_line(wait.as_ref()),
        ),
        Archived::Work(item) => {
            (layout::archive(item.updated_at, WorkItem::KIND), encode_line(item.as_ref()))
        }
        Archived::Timer(timer) => (
            layout::archive(timer.ended_at.unwrap_or(timer.created_at), Timer::KIND),
            encode_line(timer.as_ref()),
        ),
        Archived::Task(task) => (
            layout::archive(task.ended_at.unwrap_or(task.created_at), Task::KIND),
            encode_line(task.as_ref()),
        ),
        Archived::Trigger(trigger) => (
            layout::archive(trigger.revoked_at.unwrap_or(trigger.created_at), Trigger::KIND),
            encode_line(trigger.as_ref()),
        ),
        Archived::Run(run) => (layout::archive(run.ended_at, Run::KIND), encode_line(run.as_ref())),
        Archived::Brief(brief) => (layout::archive(brief.at, Brief::KIND), encode_line(brief.as_ref())),
    }
}
