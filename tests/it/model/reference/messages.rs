//! Semantics §9: messages, and the queue of them.

use super::continuation::Continuation;
use super::timers::Schedule;
use super::work::Work;
use super::{Born, DEDUPE_WINDOW, Millis, Model, NOT_FOUND, REFUSED, Tag, Word, resource_name};

/// Who made a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Maker {
    /// Somebody said it, or its timer or its task did.
    Sender,
    /// It comes of a wake hint.
    Hint,
    /// The scheduler, for work that is runnable or to be looked at, or for input that was set aside.
    Scheduler,
    /// The scheduler, for a wait whose moment this was.
    Recheck,
    Expiry,
}

/// How often a message came to nothing since its last attempt failed (execution §7, §8).
#[derive(Debug, Clone, Copy, Default)]
pub struct Setbacks {
    /// In a row.
    pub interruptions: u32,
    pub deferrals: u32,
    pub suspensions: u32,
}

#[derive(Debug, Clone)]
pub struct Message {
    pub born: Born,
    pub kind: Word,
    /// From 0, the most urgent.
    pub priority: u8,
    /// What it is known by: its correlation id, else its text.
    pub said: Tag,
    pub attempt: u32,
    pub setbacks: Setbacks,
    pub hops: u32,
    pub contentful: bool,
    pub maker: Maker,
    pub source: Option<String>,
    pub resource: Option<String>,
    pub wait: Option<Tag>,
    /// The trigger through which it came, and whether it was counted there.
    pub trigger: Option<Tag>,
    pub counted: bool,
    pub work: Option<Tag>,
    pub task: Option<Tag>,
    pub expires: Option<Millis>,
    /// What its first attempt found (execution §7).
    pub continuation: Option<Continuation>,
    /// What was said to its runs while they were at it (execution §6).
    pub interjected: Vec<Tag>,
    /// The checkpoint that was last saved for it (execution §6).
    pub checkpoint: Option<Tag>,
}

/// A message that was taken in without a turn.
#[derive(Debug, Clone)]
pub struct SetAside {
    pub contentful: bool,
    /// What kept it out, until that has ended and the agent was told so.
    pub by: Option<KeptOutBy>,
}

/// A wait, or an item whose plan asks the operator.
#[derive(Debug, Clone, PartialEq)]
pub enum KeptOutBy {
    Wait(Tag),
    Item(Tag),
}

/// What is asked to be said.
#[derive(Debug, Clone)]
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

    /// Whether the scheduler emitted it, for something other than a hint.
    pub fn is_of_scheduler(&self) -> bool {
        !matches!(self.maker, Maker::Sender | Maker::Hint)
    }

    /// A message that has begun does not expire.
    pub fn is_stale(&self, now: Millis) -> bool {
        let has_begun = self.attempt > 1 || self.setbacks.interruptions > 0;
        !has_begun && self.expires.is_some_and(|limit| now > limit)
    }
}

impl Model {
    /// A message that nobody has said.
    pub fn own_message(&mut self, kind: Word, priority: u8, said: Tag, maker: Maker) -> Message {
        Message {
            born: self.born(),
            kind,
            priority,
            contentful: !said.is_empty(),
            said,
            attempt: 1,
            setbacks: Setbacks::default(),
            hops: 0,
            maker,
            source: None,
            resource: None,
            wait: None,
            trigger: None,
            counted: false,
            work: None,
            task: None,
            expires: None,
            continuation: None,
            interjected: Vec::new(),
            checkpoint: None,
        }
    }

    /// A tick that the scheduler emits.
    pub fn tick_of(&mut self, said: &str, priority: u8) {
        let tick = self.own_message("system_tick", priority, said.to_owned(), Maker::Scheduler);
        self.queue.push(tick);
    }

    // The queue

    pub fn claimed(&self) -> Option<Born> {
        let running = self.run.as_ref().map(|run| run.message);
        running.or(self.held.as_ref().map(|held| held.message))
    }

    pub fn is_claimed(&self, message: &Message) -> bool {
        self.claimed() == Some(message.born)
    }

    pub fn claimed_message(&mut self) -> Option<&mut Message> {
        let claimed = self.claimed()?;
        self.queue.iter_mut().find(|message| message.born == claimed)
    }

    /// The queue in the order in which it is served.
    pub fn in_order(&self) -> Vec<&Message> {
        let mut queue: Vec<&Message> = self.queue.iter().collect();
        queue.sort_by_key(|message| (message.priority, message.born));
        queue
    }

    /// The message that is next: none that is claimed, none whose time is over.
    pub fn head(&self, now: Millis) -> Option<&Message> {
        let free = |message: &&Message| !self.is_claimed(message) && !message.is_stale(now);
        self.in_order().into_iter().find(free)
    }

    /// Drops what is too late, as far as the first message that is not. Says whether that was all.
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
            let said =
                self.queue.iter().find(|message| message.born == born).map(|message| message.said.clone());
            self.end_message(born, "dropped");
            self.raise("message_dropped", said);
        }
        none_was_left
    }

    /// A message is settled. What it was to end ends with a completed turn, and only with one.
    pub fn end_message(&mut self, born: Born, status: Word) {
        let Some(at) = self.queue.iter().position(|message| message.born == born) else { return };
        let message = self.queue.remove(at);
        // It is there for whoever brings the message back.
        let checkpoint = message.checkpoint.clone().filter(|_| matches!(status, "dead" | "aborted"));
        self.ended.push((Message { checkpoint, ..message }, status));
        self.recheck_over(self.clock.0, born);
        if status == "processed" {
            self.resolve_bound(born);
        } else {
            self.release_bound(born);
        }
    }

    /// Taken in without a turn (§7, §8).
    pub fn reduce(&mut self, born: Born, found: Option<&Continuation>) {
        let Some(message) = self.queue.iter().find(|message| message.born == born).cloned() else { return };
        self.count_message(born);
        // What the scheduler said to itself is no input, and what is no trigger has been heard.
        let is_input = message.contentful && found.is_some() && !message.is_of_scheduler();
        self.reduced
            .push(SetAside { contentful: is_input, by: found.and_then(|found| found.kept_out_by.clone()) });
        self.end_message(born, "processed");
    }

    /// When the wait has ended that kept something out, one tick makes the agent look (§7).
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

    // Commands

    pub fn enqueue(&mut self, now: Millis, said: &EnqueueArgs, inside: bool) -> Result<(), i32> {
        // What is named must be there (command line §7).
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
        // Only the operator answers the operator's questions.
        if asks_operator && said.kind != "operator_prompt" {
            return Err(REFUSED);
        }
        let since = |at: Millis| (now - at).abs();
        if let Some(key) = said.key.map(|key| (None, key))
            && self.keys.iter().any(|(known, at)| *known == key && since(*at) < DEDUPE_WINDOW)
        {
            return Ok(());
        }
        // Put off for longer, it begins a new chain.
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
                // One that is held can be dropped: a way out (execution §8).
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

    /// A message that is nowhere in the queue: put off, or ended in a way that stays.
    fn no_such(&self, said: &Tag) -> i32 {
        let nowhere = !self.queue.iter().any(|message| message.said == *said)
            && !self.ended.iter().any(|(message, _)| message.said == *said);
        let put_off = || self.timers.iter().any(|timer| timer.message.is_some() && timer.tag == *said);
        if nowhere && put_off() { NOT_FOUND } else { REFUSED }
    }
}
