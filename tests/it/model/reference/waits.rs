//! Semantics §5: waits.

use super::commands::Owner;
use super::messages::{Maker, Message};
use super::tasks::Task;
use super::triggers::Scope;
use super::work::Work;
use super::{Born, Millis, Model, NOT_FOUND, REFUSED, Tag, Word, ms, resource_name};

#[derive(Debug, Clone, Default)]
pub struct Wait {
    pub born: Born,
    pub tag: Tag,
    pub kind: Word,
    pub status: Word,
    /// Work item of the wait; `None` if the wait belongs to the agent itself.
    pub item: Option<Tag>,
    pub resource: Option<String>,
    pub source: Option<String>,
    /// Trigger whose deliveries end the wait.
    pub trigger: Option<Tag>,
    pub task: Option<Tag>,
    /// Time at which a timer wait ends.
    pub wake: Option<Millis>,
    pub recheck: Option<Millis>,
    pub recheck_every: Option<Millis>,
    pub expires: Option<Millis>,
    /// True if the message that ends a timer wait was emitted.
    pub woken: bool,
    /// Message about the recheck (a periodic reminder to check the wait), as long as it is queued.
    pub rechecking: Option<Born>,
    /// True if the message about the expiry of the wait was emitted.
    pub expiring: bool,
    /// Message that satisfies the wait, and ends it when a turn has processed the message.
    pub resolved_by: Option<Born>,
    /// True if a message to which the wait was bound has ended without a completed turn.
    pub answer_lost: bool,
    pub hops: u32,
    /// True if the agent has had its one `system_tick` for this system wait.
    pub ticked: bool,
}

/// Arguments of the command `wait`. Spans are in seconds.
#[derive(Debug, Clone)]
pub struct WaitArgs {
    pub kind: Word,
    pub owner: Owner,
    pub resource: Option<usize>,
    pub source: Option<Word>,
    pub trigger: Option<usize>,
    /// Task for which a wait of kind `task` waits.
    pub task: usize,
    /// Seconds until a wait of kind `timer` ends.
    pub within: i64,
    /// Seconds between two messages that ask the agent to check if the wait is over.
    pub recheck: Option<i64>,
    pub expires: Option<i64>,
}

impl Wait {
    pub fn is_active(&self) -> bool {
        self.status == "active"
    }

    /// True if the wait is active and no message satisfies it yet: only then it has an effect.
    pub fn counts(&self) -> bool {
        self.counts_for(None)
    }

    /// True if the wait counts in the closure before `message`: a wait that `message` itself has
    /// satisfied still counts.
    pub fn counts_for(&self, message: Option<Born>) -> bool {
        self.is_active() && (self.resolved_by.is_none() || self.resolved_by == message)
    }

    fn names_nothing(&self) -> bool {
        self.resource.is_none() && self.source.is_none() && self.trigger.is_none()
    }

    /// Returns the time of the next recheck, unless a message about a recheck is queued.
    fn recheck_due(&self) -> Option<Millis> {
        self.recheck.filter(|_| self.rechecking.is_none())
    }

    /// Moves a repeating recheck to its next time after now. Times that have passed are skipped.
    fn advance_recheck(&mut self, now: Millis) {
        let (Some(at), Some(every)) = (self.recheck, self.recheck_every) else { return };
        if at <= now {
            self.recheck = Some(at + ((now - at) / every + 1) * every);
        }
    }
}

impl Model {
    pub fn counting(&self, kind: Word) -> impl Iterator<Item = &Wait> {
        self.counting_for(kind, None)
    }

    pub fn counting_for(&self, kind: Word, message: Option<Born>) -> impl Iterator<Item = &Wait> {
        self.waits.iter().filter(move |wait| wait.counts_for(message) && wait.kind == kind)
    }

    pub fn own_wait(&self, kind: Word, message: Option<Born>) -> Option<&Wait> {
        self.counting_for(kind, message).filter(|wait| wait.item.is_none()).min_by_key(|wait| wait.born)
    }

    pub fn wait_on(&self, item: &Work, kind: Word, message: Option<Born>) -> Option<&Wait> {
        self.counting_for(kind, message).find(|wait| wait.item.as_ref() == Some(&item.tag))
    }

    pub fn wait_mut(&mut self, tag: &Tag) -> Option<&mut Wait> {
        self.waits.iter_mut().find(|wait| wait.tag == *tag)
    }

    // How waits end: a message satisfies them, a turn completes, a command cancels them

    /// Returns the waits of the agent and of all its items that a message satisfies, oldest first.
    pub fn satisfied_by(&self, message: &Message) -> Vec<Tag> {
        let names_nothing = self.names_nothing(message);
        let mut satisfied: Vec<&Wait> = self
            .waits
            .iter()
            .filter(|wait| wait.counts() && is_satisfied(wait, message, names_nothing))
            .collect();
        satisfied.sort_by_key(|wait| wait.born);
        satisfied.iter().map(|wait| wait.tag.clone()).collect()
    }

    /// True if the message names no wait, no resource, and no trigger that a wait names.
    pub fn names_nothing(&self, message: &Message) -> bool {
        let named = |trigger: &Tag| {
            self.waits.iter().any(|wait| wait.counts() && wait.trigger.as_ref() == Some(trigger))
        };
        message.resource.is_none() && message.wait.is_none() && !message.trigger.as_ref().is_some_and(named)
    }

    /// Binds waits to the message that satisfies them, when a step claims the message.
    pub fn bind(&mut self, message: Born, waits: &[Tag]) {
        for wait in self.waits.iter_mut().filter(|wait| wait.counts() && waits.contains(&wait.tag)) {
            wait.resolved_by = Some(message);
            wait.answer_lost = false;
        }
    }

    /// Ends the waits that are bound to a message, because a turn for the message has completed.
    pub fn resolve_bound(&mut self, message: Born) {
        for tag in self.bound_by(message) {
            self.end_wait(&tag, "resolved");
        }
    }

    /// Unbinds the waits that are bound to a message, which has ended without a completed turn.
    pub fn release_bound(&mut self, message: Born) {
        for tag in self.bound_by(message) {
            if let Some(wait) = self.wait_mut(&tag) {
                wait.resolved_by = None;
                wait.answer_lost = true;
                wait.expiring = false;
            }
            self.raise("answer_lost", None);
        }
    }

    fn bound_by(&self, message: Born) -> Vec<Tag> {
        let bound = self.waits.iter().filter(|wait| wait.is_active() && wait.resolved_by == Some(message));
        bound.map(|wait| wait.tag.clone()).collect()
    }

    /// Schedules the next recheck, because the message about the last one has left the queue.
    pub fn recheck_over(&mut self, now: Millis, message: Born) {
        for wait in self.waits.iter_mut().filter(|wait| wait.is_active() && wait.rechecking == Some(message))
        {
            wait.rechecking = None;
            wait.advance_recheck(now);
        }
    }

    pub fn end_wait(&mut self, tag: &Tag, status: Word) {
        let Some(wait) = self.wait_mut(tag).filter(|wait| wait.is_active()) else { return };
        wait.status = status;
        if let Some(item) = wait.item.clone() {
            self.revise(&item);
        }
        self.revoke_of_wait(tag);
    }

    pub fn cancel_waits_on(&mut self, item: &Tag) {
        self.cancel_waits(|wait| wait.item.as_ref() == Some(item));
    }

    /// Cancels active waits that `is_meant` selects, or resolves those that a message satisfied.
    fn cancel_waits(&mut self, is_meant: impl Fn(&Wait) -> bool) {
        let meant = self.waits.iter().filter(|wait| wait.is_active() && is_meant(wait));
        let meant: Vec<(Tag, bool)> =
            meant.map(|wait| (wait.tag.clone(), wait.resolved_by.is_some())).collect();
        for (wait, bound) in meant {
            self.end_wait(&wait, if bound { "resolved" } else { "cancelled" });
        }
    }

    /// Ends waits whose task has ended although no result is pending, and emits a `system_tick` for
    /// each.
    pub fn repair_waits(&mut self) {
        let over: Vec<Wait> = self.waits.iter().filter(|wait| self.is_over(wait)).cloned().collect();
        for wait in over {
            let tick = self.own_message("system_tick", 2, format!("healed: {}", wait.tag), Maker::Scheduler);
            self.queue.push(Message { task: wait.task.clone(), work: wait.item.clone(), ..tick });
            self.end_wait(&wait.tag, "resolved");
        }
    }

    fn is_over(&self, wait: &Wait) -> bool {
        let ended = |task: &Task| Some(&task.tag) == wait.task.as_ref() && !task.is_open();
        let under_way = |message: &Message| message.kind == "task_result" && message.task == wait.task;
        wait.counts() && self.tasks.iter().any(ended) && !self.queue.iter().any(under_way)
    }

    // Deadlines of waits: end of a timer wait, recheck, expiry

    /// Emits messages about timer waits that end, rechecks and expiries. The creation time of each
    /// message is its due time.
    pub fn meet_deadlines(&mut self, now: Millis) {
        let mut active: Vec<Wait> = self.waits.iter().filter(|wait| wait.counts()).cloned().collect();
        active.sort_by_key(|wait| wait.born);
        let due = |at: Option<Millis>, done: bool| at.filter(|at| *at <= now && !done);
        for wait in active {
            if let Some(at) = due(wait.wake, wait.woken) {
                let fire = self.own_message("timer_tick", 2, wait.tag.clone(), Maker::Sender);
                self.queue_deadline(&wait, Message { born: (at, wait.born.1 * 3), ..fire });
            }
            // A wait expires one millisecond after its limit. A due recheck is then left out.
            let expiry = due(wait.expires.map(|limit| limit + 1), false);
            let recheck = due(wait.recheck_due(), false);
            let born = recheck.filter(|_| expiry.is_none()).map(|at| (at, wait.born.1 * 3 + 1));
            if let Some(born) = born {
                let said = format!("recheck: {}", wait.tag);
                let tick = self.own_message("system_tick", 2, said, Maker::Recheck);
                self.queue_deadline(&wait, Message { born, ..tick });
            }
            if let Some(at) = expiry.filter(|_| !wait.expiring) {
                let said = format!("expired: {}", wait.tag);
                let tick = self.own_message("system_tick", 2, said, Maker::Expiry);
                self.queue_deadline(&wait, Message { born: (at, wait.born.1 * 3 + 2), ..tick });
            }
            if let Some(found) = self.wait_mut(&wait.tag) {
                found.woken |= due(wait.wake, false).is_some();
                if recheck.is_some() {
                    found.rechecking = born;
                    found.advance_recheck(now);
                }
                found.expiring |= expiry.is_some();
            }
        }
    }

    /// Queues a message about a deadline, with the priority `background` if another such message is
    /// queued, so that messages from before the deadline come first.
    fn queue_deadline(&mut self, wait: &Wait, message: Message) {
        let priority = if self.queue.iter().any(|message| message.priority == 3) { 3 } else { 2 };
        self.queue.push(Message {
            priority,
            wait: Some(wait.tag.clone()),
            work: wait.item.clone(),
            resource: wait.resource.clone(),
            hops: wait.hops,
            ..message
        });
    }

    /// Returns the times at which waits end, are rechecked or expire.
    pub fn wait_due(&self) -> impl Iterator<Item = Millis> {
        self.waits.iter().filter(|wait| wait.counts()).flat_map(|wait| {
            let wake = wait.wake.filter(|_| !wait.woken);
            let recheck = wait.recheck_due();
            let expires = wait.expires.filter(|_| !wait.expiring).map(|limit| limit + 1);
            [wake, recheck, expires].into_iter().flatten()
        })
    }

    // Commands for waits

    pub fn add_wait(&mut self, now: Millis, asked: &WaitArgs, inside: bool) -> Result<(), i32> {
        let WaitArgs { kind, owner, resource, source, trigger, task, within, recheck, expires } = *asked;
        let wake = (kind == "timer").then_some(now + ms(within));
        let recheck = recheck.map(ms);
        let expires = expires.map(|span| now + ms(span));
        // A system wait has at least one deadline.
        if kind == "system" && recheck.is_none() && expires.is_none() {
            return Err(REFUSED);
        }
        let item = match owner {
            Owner::Agent => None,
            Owner::Item(item) => Some(self.open_work(item)?),
            Owner::Nearest => {
                let of_turn = self.run.as_ref().filter(|_| inside).and_then(|run| run.work.clone());
                let open = of_turn.filter(|tag| self.open().iter().any(|item| item.tag == *tag));
                open.or(self.focus.clone())
            }
        };
        // A task that was started with --no-notify has no result that could end the wait.
        let task = self.task(task).filter(|_| kind == "task").cloned();
        if task.as_ref().is_some_and(|task| !task.notify) {
            return Err(REFUSED);
        }
        // Only external and system waits may name a trigger, and none that belongs to another wait.
        let trigger = trigger.map(|trigger| self.active_trigger(trigger)).transpose()?;
        if trigger.is_some_and(|trigger| matches!(trigger.scope, Scope::Wait(_)))
            || trigger.is_some() && !matches!(kind, "external" | "system")
        {
            return Err(REFUSED);
        }
        let trigger = trigger.map(|trigger| trigger.tag.clone());
        let soonest = [wake, recheck.map(|span| now + span), expires].into_iter().flatten().min();
        let hops = soonest.map_or(Ok(0), |soonest| self.hops_at(now, soonest, inside))?;
        let resource = resource.map(resource_name).filter(|_| kind != "task");
        let resource = resource.or(task.as_ref().map(|task| task.tag.clone()));
        // The new wait replaces the wait of its item, or the agent's own wait for the same
        // resource.
        if let Some(item) = &item {
            self.cancel_waits_on(item);
            self.revise(item);
        } else if resource.is_some() {
            self.cancel_waits(|wait| wait.item.is_none() && wait.resource == resource);
        }
        let tag = self.name("wait");
        let wait = Wait {
            born: self.born(),
            tag,
            kind,
            status: "active",
            item,
            resource,
            source: source.map(str::to_owned),
            trigger,
            task: task.map(|task| task.tag),
            wake,
            recheck: recheck.map(|span| now + span),
            recheck_every: recheck,
            expires,
            hops,
            ..Wait::default()
        };
        // A wait for an ended task is resolved at once if no result is pending, or if a turn for
        // the result has begun.
        let heard = |message: &Message| {
            let is_result = message.kind == "task_result" && message.task == wait.task;
            is_result && (self.is_claimed(message) || message.continuation.is_some())
        };
        let is_over = self.is_over(&wait) || (wait.kind == "task" && self.queue.iter().any(heard));
        let over = is_over.then(|| wait.tag.clone());
        self.waits.push(wait);
        if let Some(tag) = over {
            self.end_wait(&tag, "resolved");
        }
        Ok(())
    }

    pub fn cancel_wait(&mut self, number: usize) -> Result<(), i32> {
        let tag = self.wait(number).filter(|wait| wait.is_active()).ok_or(NOT_FOUND)?.tag.clone();
        self.end_wait(&tag, "cancelled");
        Ok(())
    }
}

/// True if the message satisfies the wait, by the table of semantics §5.
fn is_satisfied(wait: &Wait, message: &Message, names_nothing: bool) -> bool {
    let speaks = message.is_event() || message.maker == Maker::Hint;
    let names_it = message.wait.as_ref() == Some(&wait.tag);
    let of_resource = || wait.resource.is_some() && wait.resource == message.resource;
    let of_trigger = || wait.trigger.is_some() && wait.trigger == message.trigger;
    let is_from = |source: &String| {
        let kind = message.source.as_ref().and_then(|named| named.split_once(':')).map(|(kind, _)| kind);
        message.source.as_ref() == Some(source) || is_kind(source) && kind == Some(source)
    };
    let of_source = || {
        let names_no_resource = message.resource.is_none() || wait.resource.is_none();
        names_no_resource && wait.source.as_ref().is_some_and(is_from)
    };
    if wait.kind == "operator" {
        let of_item = message.work.is_some() && message.work == wait.item;
        let names_none = message.wait.is_none() && message.work.is_none();
        return message.kind == "operator_prompt" && (names_it || of_item || names_none);
    }
    if names_it && (speaks || message.maker == Maker::Sender) {
        return true;
    }
    match wait.kind {
        "task" => message.kind == "task_result" && message.task.is_some() && message.task == wait.task,
        "system" => speaks && (of_resource() || of_trigger() || of_source()),
        "external" => {
            // An event about one item does not end the wait of another item.
            let of_item = message.work.is_none() || message.work == wait.item;
            let says_something = message.is_event() && message.contentful && names_nothing && of_item;
            speaks && (of_resource() || of_trigger() || of_source()) || says_something && wait.names_nothing()
        }
        // A timer wait ends only by its own `timer_tick`, which names the wait.
        _ => false,
    }
}

/// True if a source is the name of a kind of origin, which covers all sources of that kind.
fn is_kind(source: &str) -> bool {
    ["operator", "channel", "webhook", "callback", "timer", "system", "task"].contains(&source)
}
