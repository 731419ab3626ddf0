//! Semantics §4: work items.

use super::{Born, Millis, Model, REFUSED, Tag, Word};

#[derive(Debug, Clone)]
pub struct Work {
    pub born: Born,
    pub tag: Tag,
    pub revision: u64,
    pub done: bool,
    pub plan_status: Word,
    pub blocked: bool,
    /// Time at which the agent is reminded of a blocked item; `None` once it was reminded.
    pub recheck: Option<Millis>,
    /// True if a `system_tick` was emitted for the item's revision, and no hint has arrived since.
    pub ticked: bool,
}

impl Model {
    /// Returns the open work items, oldest first.
    pub fn open(&self) -> Vec<&Work> {
        let mut open: Vec<&Work> = self.works.iter().filter(|item| !item.done).collect();
        open.sort_by_key(|item| item.born);
        open
    }

    pub fn current(&self) -> Option<&Work> {
        self.works.iter().find(|item| Some(&item.tag) == self.focus.as_ref())
    }

    /// Returns the open work items that are not current, oldest first.
    pub fn queued(&self) -> Vec<&Work> {
        self.open().into_iter().filter(|item| Some(&item.tag) != self.focus.as_ref()).collect()
    }

    pub fn scheduling(&self, item: &Work) -> Word {
        self.scheduling_for(item, None)
    }

    /// Returns the scheduling state in the closure before `message`: waits that `message` itself
    /// has satisfied still count.
    pub fn scheduling_for(&self, item: &Work, message: Option<Born>) -> Word {
        let waits = |kind| self.wait_on(item, kind, message).is_some();
        match () {
            () if item.done => "completed",
            () if waits("task") => "waiting_task",
            () if waits("operator") || item.plan_status == "needs_input" => "waiting_operator",
            () if waits("timer") => "waiting_timer",
            () if waits("external") => "waiting_external",
            () if waits("system") => "waiting_system",
            () if item.blocked => "blocked",
            () => "runnable",
        }
    }

    pub fn is_runnable(&self, item: &Work) -> bool {
        self.scheduling(item) == "runnable"
    }

    /// Increments the revision of an open work item, which allows one more `system_tick`.
    pub fn revise(&mut self, tag: &Tag) {
        for item in self.works.iter_mut().filter(|item| item.tag == *tag && !item.done) {
            item.revision += 1;
            item.ticked = false;
        }
    }

    // Commands for work items

    pub fn add_work(&mut self, pick: bool, needs_input: bool, blocked: bool, recheck: Option<Millis>) {
        let tag = self.name("work");
        let item = Work {
            born: self.born(),
            tag: tag.clone(),
            revision: 1,
            done: false,
            plan_status: if needs_input { "needs_input" } else { "ready" },
            blocked,
            recheck: recheck.filter(|_| blocked),
            ticked: false,
        };
        self.works.push(item);
        if pick {
            self.focus = Some(tag);
        }
    }

    /// Applies `change` of a command to an open work item, and increments the revision of the item.
    pub fn change(&mut self, number: usize, change: impl FnOnce(&mut Work)) -> Result<Tag, i32> {
        let tag = self.open_work(number)?;
        self.revise(&tag);
        if let Some(item) = self.works.iter_mut().find(|item| item.tag == tag) {
            change(item);
        }
        Ok(tag)
    }

    pub fn open_work(&self, number: usize) -> Result<Tag, i32> {
        Ok(self.work(number).filter(|item| !item.done).ok_or(REFUSED)?.tag.clone())
    }

    pub fn pick(&mut self, number: usize, clear: bool) -> Result<(), i32> {
        let tag = self.open_work(number)?;
        if clear {
            self.cancel_waits_on(&tag);
        }
        self.change(number, |item| {
            item.blocked &= !clear;
            item.recheck = item.recheck.filter(|_| !clear);
        })?;
        self.focus = Some(tag);
        Ok(())
    }

    /// Completes a work item, even if its tasks are still running.
    pub fn complete(&mut self, number: usize) -> Result<(), i32> {
        let tag = self.open_work(number)?;
        self.cancel_waits_on(&tag);
        self.change(number, |item| {
            item.done = true;
            item.blocked = false;
            item.recheck = None;
        })?;
        self.focus = self.focus.take().filter(|focus| *focus != tag);
        Ok(())
    }

    /// Emits one reminder for all blocked items whose recheck is due. The items stay blocked.
    pub fn remind(&mut self, now: Millis) {
        let is_due =
            |item: &&mut Work| !item.done && item.blocked && item.recheck.is_some_and(|at| at <= now);
        let due = self.works.iter_mut().filter(is_due).map(|item| item.recheck = None).count();
        if due > 0 {
            self.tick_of("recheck of blocked work:", 3);
        }
    }
}
