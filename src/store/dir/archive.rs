//! Kinds of records in the archive.

use crate::model::message::Message;
use crate::model::record::Record;
use crate::model::run::{Brief, Run};
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::months;

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
