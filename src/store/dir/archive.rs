//! Archive file and archive line of a record that has ended.

use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::run::{Brief, Run};
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::transaction::Archived;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::record::encode_line;
use super::{layout, months};

/// Returns the end of the record; the month of this time selects the archive file.
pub fn at(archived: &Archived) -> Time {
    match archived {
        Archived::Message(message) => {
            message.settlement.as_ref().map_or(message.created_at, |settlement| settlement.at)
        }
        Archived::Wait(wait) => wait.ended_at.unwrap_or(wait.created_at),
        Archived::Work(item) => item.updated_at,
        Archived::Timer(timer) => timer.ended_at.unwrap_or(timer.created_at),
        Archived::Task(task) => task.ended_at.unwrap_or(task.created_at),
        Archived::Trigger(trigger) => trigger.revoked_at.unwrap_or(trigger.created_at),
        Archived::Run(run) => run.ended_at,
        Archived::Brief(brief) => brief.at,
    }
}

/// Returns the path of the archive file for a record, by the month of its end, and its line.
pub fn line(archived: &Archived) -> (String, Vec<u8>) {
    let (kind, line) = match archived {
        Archived::Message(message) => (Message::KIND, encode_line(message.as_ref())),
        Archived::Wait(wait) => (Wait::KIND, encode_line(wait.as_ref())),
        Archived::Work(item) => (WorkItem::KIND, encode_line(item.as_ref())),
        Archived::Timer(timer) => (Timer::KIND, encode_line(timer.as_ref())),
        Archived::Task(task) => (Task::KIND, encode_line(task.as_ref())),
        Archived::Trigger(trigger) => (Trigger::KIND, encode_line(trigger.as_ref())),
        Archived::Run(run) => (Run::KIND, encode_line(run.as_ref())),
        Archived::Brief(brief) => (Brief::KIND, encode_line(brief.as_ref())),
    };
    (layout::archive(at(archived), kind), line)
}

/// Kinds of records in the archive.
pub const KINDS: &[&str] = &[
    Message::KIND,
    Wait::KIND,
    WorkItem::KIND,
    Timer::KIND,
    Task::KIND,
    Trigger::KIND,
    Run::KIND,
    Brief::KIND,
    months::ENDED,
];

/// Returns the kind of this name, or `None` if the archive has no such kind.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "no store that gives words is built in"))]
pub fn kind(word: &str) -> Option<&'static str> {
    KINDS.iter().find(|kind| **kind == word).copied()
}
