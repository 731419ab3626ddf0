//! Semantics §9: messages, and the queue of them.

use super::continuation::Continuation;
use super::timers::Schedule;
use super::work::Work;
use super::{Born, DEDUPE_WINDOW, Millis, Model, NOT_FOUND, REFUSED, Tag, Word, resource_name};

/// Maker of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Maker {
    /// A user, a turn, a trigger, a timer or a task.
    #[default]
    Sender,
    /// A wake hint that a step turned into a `system_tick`.
    Hint,
    /// The scheduler, for any reason but the recheck or the expiry of a wait.
    Scheduler,
    /// The scheduler, because the time to recheck a wait has come.
    Recheck,
    /// The scheduler, because a wait has expired.
    Expiry,
}

/// Numbers of runs that cost no attempt since the last failed attempt (execution §7, §8).
#[derive(Debug, Clone, Copy, Default)]
pub struct Setbacks {
    /// Successive interruptions.
    pub interruptions: u32,
    pub deferrals: u32,
    pub suspensions: u32,
}

#[derive(Debug, Clone, Default)]
pub struct Message {
    pub born: Born,
    pub kind: Word,
    /// 0 (`interject`) to 3 (`background`).
    pub priority: u8,
    /// Name of the message: its correlation id, else its text.
    pub said: Tag,
    pub attempt: u32,
    pub setbacks: Setbacks,
    pub hops: u32,
    pub contentful: bool,
    pub maker: Maker,
    pub source: Option<String>,
    pub resource: Option<String>,
    pub wait: Option<Tag>,
    pub trigger: Option<Tag>,
    /// True if the trigger has counted the message as a delivery.
    pub counted: bool,
    pub work: Option<Tag>,
    pub task: Option<Tag>,
    pub expires: Option<Millis>,
    /// Continuation that the first attempt derived; later attempts keep it.
    pub continuation: Option<Continuation>,
    /// Texts of `interject` messages that runs of this message have received (execution §6).
    pub interjected: Vec<Tag>,
    /// Last checkpoint of the message (execution §6).
    pub checkpoint: Option<Tag>,
}

/// A message that a step has processed without a turn.
#[derive(Debug, Clone)]
pub struct SetAside {
    pub contentful: bool,
    /// The reason why no turn ran; `None` once a `system_tick` says that the reason is over.
    pub by: Option<KeptOutBy>,
}

/// The reason for which a message is set aside: a wait, or an item whose plan asks the operator.
#[derive(Debug, Clone, PartialEq)]
pub enum KeptOutBy {
    Wait(Tag),
    Item(Tag),
}

/// Arguments of `enqueue`. Spans are in seconds.
#[derive(Debug, Clone, Default)]
pub struct EnqueueArgs {
    pub kind: Word,
    pub priority: Word,
    pub blank: bool,
    pub source: Option<Word>,
    pub resource: Option<usize>,
    pub wait: Option<usize>,
    pub work: Option<usize>,
    pub key: Option<usize>,
    pub ttl: Option<i64>,
    pub delay: Option<i64>,
}

impl Message {
    pub fn is_event(&self) -> bool {
        matches!(self.kind, "channel_event" | "webhook_event" | "callback_event")
    }

    /// True if the scheduler emitted the message on its own account, not for a hint.
    pub fn is_of_scheduler(&self) -> bool {
        !matches!(self.maker, Maker::Sender | Maker::Hint)
    }

    /// True if the message has expired. A message whose first attempt has begun does not expire.
    pub fn is_stale(&self, now: Millis) -> bool {
        let has_begun = self.attempt > 1 || self.setbacks.interruptions > 0;
        !has_begun && self.expires.is_some_and(|limit| now > limit)
    }
}

impl Model {
    /// Returns a new message at its first attempt.
    pub fn own_message(&mut self, kind: Word, priority: u8, said: Tag, maker: Maker) -> Message {
        Message {
            born: self.born(),
            kind,
            priority,
            contentful: !said.is_empty(),
            said,
            attempt: 1,
            maker,
            ..Message::default()
        }
    }

    /// Queues a `system_tick` of the scheduler.
    pub fn tick_of(&mut self, said: &str, priority: u8) {
        let tick = self.own_message("system_tick", priority, said.to_owned(), Maker::Scheduler);
        self.queue.push(tick);
    }

    // Messages in the queue, and their ends

    pub fn claimed(&self) -> Option<Born> {
        let running = self.run.as_ref().map(|run| run.message);
        running.or(self.held.as_ref().map(|held| held.message))
    }

    pub fn is_claimed(&self, message: &Message) -> bool {
        self.claimed() == Some(message.born)
    }

    pub fn in_queue(&self, born: Born) -> Option<&Message> {
        self.queue.iter().find(|message| message.born == born)
    }

    pub fn in_queue_mut(&mut self, born: Born) -> Option<&mut Message> {
        self.queue.iter_mut().find(|message| message.born == born)
    }

    pub fn claimed_message(&self) -> Option<&Message> {
        self.in_queue(self.claimed()?)
    }

    pub fn claimed_message_mut(&mut self) -> Option<&mut Message> {
        self.in_queue_mut(self.claimed()?)
    }

    /// Returns the queue in the order in which steps take messages up.
    pub fn in_order(&self) -> Vec<&Message> {
        let mut queue: Vec<&Message> = self.queue.iter().collect();
        queue.sort_by_key(|message| (message.priority, message.born));
        queue
    }

    /// Returns the next message that is neither claimed nor expired.
    pub fn head(&self, now: Millis) -> Option<&Message> {
        let free = |message: &&Message| !self.is_claimed(message) && !message.is_stale(now);
        self.in_order().into_iter().find(free)
    }

    /// Drops the expired messages before the next valid one. Returns true if messages were dropped
    /// and no valid one is left.
    pub fn drop_stale(&mut self, now: Millis) -> bool {
        let head = self.head(now).map(|message| (message.priority, message.born));
        let stale: Vec<Born> = self
            .queue
            .iter()
            .filter(|message| message.is_stale(now) && !self.is_claimed(message))
            .filter(|message| head.is_none_or(|head| (message.priority, message.born) < head))
            .map(|message| message.born)
            .collect();
        let none_was_left = head.is_none() && !stale.is_empty();
        for born in stale {
            let said = self.in_queue(born).map(|message| message.said.clone());
            self.end_message(born, "dropped");
            self.raise("message_dropped", said);
        }
        none_was_left
    }

    /// Settles a message. If its status is `processed`, the waits that are bound to the message
    /// end; otherwise they are active again.
    pub fn end_message(&mut self, born: Born, status: Word) {
        let Some(at) = self.queue.iter().position(|message| message.born == born) else { return };
        let message = self.queue.remove(at);
        // An aborted message or a dead letter keeps its checkpoint for a later `queue requeue`.
        let checkpoint = message.checkpoint.clone().filter(|_| matches!(status, "dead" | "aborted"));
        self.ended.push((Message { checkpoint, ..message }, status));
        self.recheck_over(self.clock.0, born);
        if status == "processed" {
            self.resolve_bound(born);
        } else {
            self.release_bound(born);
        }
    }

    /// Takes a message in without a turn (§7, §8).
    pub fn reduce(&mut self, born: Born, found: Option<&Continuation>) {
        let Some(message) = self.in_queue(born).cloned() else { return };
        self.count_message(born);
        // The scheduler's own messages, and messages that are no triggers, are not input (§7).
        let is_input = message.contentful && found.is_some() && !message.is_of_scheduler();
        self.reduced
            .push(SetAside { contentful: is_input, by: found.and_then(|found| found.kept_out_by.clone()) });
        self.end_message(born, "processed");
    }

    /// Emits one `system_tick` if the reason for which messages were set aside is over (§7).
    pub fn tick_for_set_aside(&mut self) {
        let still = |by: &KeptOutBy| match by {
            KeptOutBy::Wait(tag) => self.waits.iter().any(|wait| wait.tag == *tag && wait.is_active()),
            KeptOutBy::Item(tag) => {
                let asks = |item: &&Work| self.scheduling(item) == "waiting_operator";
                self.works.iter().find(|item| item.tag == *tag).filter(asks).is_some()
            }
        };
        let free: Vec<bool> =
            self.reduced.iter().map(|aside| aside.by.as_ref().is_some_and(|by| !still(by))).collect();
        for (aside, _) in self.reduced.iter_mut().zip(&free).filter(|(_, free)| **free) {
            aside.by = None;
        }
        if free.contains(&true) {
            self.tick_of("reduced_input", 2);
        }
    }

    // Commands that enqueue, drop and requeue messages

    pub fn enqueue(&mut self, now: Millis, said: &EnqueueArgs, inside: bool) -> Result<(), i32> {
        // The wait and the item of a message must be active and open (§9).
        let wait = said.wait.and_then(|wait| self.wait(wait));
        if wait.is_some_and(|wait| !wait.is_active()) {
            return Err(NOT_FOUND);
        }
        let outside = !matches!(said.kind, "operator_prompt" | "control" | "internal_followup");
        if said.priority == "interject" && (inside || outside) {
            return Err(REFUSED);
        }
        let asks_operator = wait.is_some_and(|wait| wait.kind == "operator");
        let wait = wait.map(|wait| wait.tag.clone());
        let work = said.work.and_then(|work| self.work(work));
        if work.is_some_and(|item| item.done) {
            return Err(NOT_FOUND);
        }
        let work = work.map(|item| item.tag.clone());
        // Only operator input ends a wait for the operator (§5).
        if asks_operator && said.kind != "operator_prompt" {
            return Err(REFUSED);
        }
        let since = |at: Millis| (now - at).abs();
        if let Some(key) = said.key.map(|key| (None, key))
            && self.keys.iter().any(|(known, at)| *known == key && since(*at) < DEDUPE_WINDOW)
        {
            return Ok(());
        }
        // A message that is delayed for long enough begins a new chain of hops.
        let due = now + said.delay.map_or(0, super::ms);
        let hops = self.hops_at(now, due, inside)?;
        self.keys.extend(said.key.map(|key| ((None, key), now)));
        let name = self.name("message");
        let rank = ["interject", "next", "normal", "background"].iter().position(|at| *at == said.priority);
        let message = Message {
            contentful: !said.blank,
            hops,
            source: said.source.map(str::to_owned),
            resource: said.resource.map(resource_name),
            wait,
            work,
            expires: said.ttl.map(|ttl| now + super::ms(ttl)),
            ..self.own_message(said.kind, rank.unwrap_or(2) as u8, name.clone(), Maker::Sender)
        };
        self.enqueued.push(name.clone());
        match said.delay {
            None => self.queue.push(message),
            Some(delay) => self.add_timer(now, name, Schedule::Once(delay), "once", Some(message)),
        }
        Ok(())
    }

    pub fn drop_message(&mut self, number: usize) -> Result<(), i32> {
        let said = self.message(number).ok_or(NOT_FOUND)?.clone();
        if let Some(queued) = self.queue.iter().find(|message| message.said == said) {
            let born = queued.born;
            if self.is_claimed(queued) {
                // A held message can be dropped, a message of a running turn can't (execution §8).
                self.release_held().ok_or(REFUSED)?;
                self.retry = None;
            }
            self.end_message(born, "dropped");
            return Ok(());
        }
        let Some(at) = self.position_ended(&said, |status| status == "dead") else {
            return Err(self.no_such(&said));
        };
        self.ended[at].1 = "dropped";
        self.ended[at].0.checkpoint = None;
        self.acknowledge_message(&said);
        Ok(())
    }

    pub fn requeue(&mut self, number: usize) -> Result<(), i32> {
        let said = self.message(number).ok_or(NOT_FOUND)?.clone();
        let may = |status: &str| matches!(status, "aborted" | "dropped" | "dead");
        let Some(at) = self.position_ended(&said, may) else { return Err(self.no_such(&said)) };
        let (message, _) = self.ended.remove(at);
        self.acknowledge_message(&said);
        let setbacks = Setbacks::default();
        self.queue.push(Message { attempt: 1, setbacks, expires: None, continuation: None, ..message });
        Ok(())
    }

    fn position_ended(&self, said: &Tag, is_meant: impl Fn(&str) -> bool) -> Option<usize> {
        self.ended.iter().position(|(message, status)| message.said == *said && is_meant(status))
    }

    pub fn dead(&self) -> usize {
        self.ended.iter().filter(|(_, status)| *status == "dead").count()
    }

    /// Returns the exit status for a message that can't be dropped or requeued: not found while it
    /// is only in a timer, else refused.
    fn no_such(&self, said: &Tag) -> i32 {
        let nowhere = !self.queue.iter().any(|message| message.said == *said)
            && !self.ended.iter().any(|(message, _)| message.said == *said);
        let put_off = || self.timers.iter().any(|timer| timer.message.is_some() && timer.tag == *said);
        if nowhere && put_off() { NOT_FOUND } else { REFUSED }
    }
}
