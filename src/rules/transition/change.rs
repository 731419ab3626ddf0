//! Methods that add, change and end open records in a draft (transaction in preparation). A change
//! applies to the draft's copy of the records and to the transaction.

use crate::model::record::OpenRecord;
use crate::model::records::Records;
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::transaction::{Archived, Put};
use crate::model::trigger::Trigger;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;

use super::draft::Draft;

/// Open record of a kind that [`Records`] lists.
pub trait Listed: OpenRecord + Clone {
    fn list(records: &mut Records) -> &mut Vec<Self>;
    fn put(self) -> Put;
    fn ended(self) -> Archived;
}

macro_rules! listed {
    ($($record:ident in $records:ident as $variant:ident),+) => {$(
        impl Listed for $record {
            fn list(records: &mut Records) -> &mut Vec<Self> {
                &mut records.$records
            }

            fn put(self) -> Put {
                Put::$variant(Box::new(self))
            }

            fn ended(self) -> Archived {
                Archived::$variant(Box::new(self))
            }
        }
    )+};
}

listed!(WorkItem in works as Work, Wait in waits as Wait, Timer in timers as Timer, Task in tasks as Task);
listed!(Trigger in triggers as Trigger);

impl Draft {
    pub fn add<R: Listed>(&mut self, record: &R) {
        R::list(&mut self.records).push(record.clone());
        self.put(record.clone().put());
    }

    /// Changes the open record with this id, and returns it; `None` if no open record has the id.
    pub fn change<R: Listed>(&mut self, id: R::Id, change: impl FnOnce(&mut R)) -> Option<R> {
        let record = R::list(&mut self.records).iter_mut().find(|record| record.id() == id)?;
        change(record);
        let record = record.clone();
        self.put(record.clone().put());
        Some(record)
    }

    /// Changes every open record for which `is_meant` returns true.
    pub fn change_each<R: Listed>(&mut self, is_meant: impl Fn(&R) -> bool, mut change: impl FnMut(&mut R)) {
        let meant = R::list(&mut self.records).iter().filter(|record| is_meant(record));
        for id in meant.map(R::id).collect::<Vec<_>>() {
            self.change(id, &mut change);
        }
    }

    /// Takes the record with this id out of the open records. The caller changes it and then calls
    /// [`Draft::end`].
    pub fn take<R: Listed>(&mut self, id: R::Id) -> Option<R> {
        let records = R::list(&mut self.records);
        let at = records.iter().position(|record| record.id() == id)?;
        Some(records.remove(at))
    }

    /// Archives an ended record that [`Draft::take`] returned.
    pub fn end<R: Listed>(&mut self, record: &R) {
        self.archive(record.clone().ended());
    }
}
