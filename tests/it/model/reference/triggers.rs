//! Semantics §13: triggers, by which outside systems reach the agent.

use super::hints::Hint;
use super::messages::{Maker, Message};
use super::{Born, DEDUPE_WINDOW, Millis, Model, NOT_FOUND, REFUSED, Tag, Word, resource_name};

#[derive(Debug, Clone)]
pub struct Trigger {
    pub tag: Tag,
    /// `wake_hint` or `enqueue_message`.
    pub mode: Word,
    pub scope: Scope,
    pub source: Option<Word>,
    pub status: Word,
    /// Name of the file with the secret that a delivery through this trigger needs.
    pub secret: Tag,
    /// Names of the files with secrets from before `trigger rotate`, which are no longer valid.
    pub old: Vec<Tag>,
    /// Number of deliveries that steps have processed.
    pub count: u64,
    /// Arrival time of the last delivery that `count` includes.
    pub last: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    Agent,
    Resource(usize),
    Wait(Tag),
}

/// Arguments of `trigger deliver`.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub trigger: usize,
    /// True if the sender has the secret.
    pub right: bool,
    pub blank: bool,
    pub key: Option<usize>,
}

impl Scope {
    pub fn wait(&self) -> Option<Tag> {
        if let Scope::Wait(wait) = self { Some(wait.clone()) } else { None }
    }

    pub fn resource(&self) -> Option<usize> {
        if let Scope::Resource(resource) = self { Some(*resource) } else { None }
    }
}

impl Trigger {
    /// Returns the trigger that the command `create` makes together with the agent.
    pub fn default_one() -> Trigger {
        let tag = "trigger 0".to_owned();
        Trigger { secret: tag.clone(), ..Trigger::new(tag, "enqueue_message", Scope::Agent, None) }
    }

    fn new(tag: Tag, mode: Word, scope: Scope, source: Option<Word>) -> Trigger {
        let secret = tag.clone();
        Trigger { tag, mode, scope, source, status: "active", secret, old: Vec::new(), count: 0, last: None }
    }

    pub fn is_active(&self) -> bool {
        self.status == "active"
    }

    /// Returns the source of the messages and hints that come through the trigger.
    fn origin(&self) -> Word {
        match (self.source, &self.scope) {
            (Some(source), _) => source,
            (None, Scope::Wait(_)) => "callback",
            (None, Scope::Agent | Scope::Resource(_)) => "webhook",
        }
    }

    fn count(&mut self, at: Millis) {
        // The record of a revoked trigger is archived, so its number of deliveries does not change.
        if self.is_active() {
            self.count += 1;
            self.last = self.last.max(Some(at));
        }
    }
}

impl Model {
    pub fn trigger(&self, number: usize) -> &Trigger {
        &self.triggers[number % self.triggers.len()]
    }

    /// Returns a wrong secret for a trigger: its previous one, or that of another trigger.
    pub fn wrong_secret(&self, trigger: &Trigger) -> Tag {
        let mut others =
            self.triggers.iter().filter(|other| other.tag != trigger.tag).map(|other| &other.secret);
        trigger.old.last().or_else(|| others.next_back()).cloned().unwrap_or("no secret".to_owned())
    }

    /// Returns the trigger that a wait or a hint names by its number. Fails if it is not active.
    pub fn active_trigger(&self, number: usize) -> Result<&Trigger, i32> {
        Some(self.trigger(number)).filter(|trigger| trigger.is_active()).ok_or(NOT_FOUND)
    }

    // Commands for triggers

    pub fn create_trigger(
        &mut self,
        mode: Word,
        resource: Option<usize>,
        wait: Option<usize>,
        source: Option<Word>,
        inside: bool,
    ) -> Result<(), i32> {
        let wait = wait.and_then(|wait| self.wait(wait)).cloned();
        if wait.as_ref().is_some_and(|wait| !wait.is_active()) {
            return Err(NOT_FOUND);
        }
        // A turn may create triggers only for waits of its agent.
        if inside && wait.is_none() {
            return Err(REFUSED);
        }
        let tag = self.name("trigger");
        let scope = match (&wait, resource) {
            (Some(wait), _) => Scope::Wait(wait.tag.clone()),
            (None, Some(resource)) => Scope::Resource(resource),
            (None, None) => Scope::Agent,
        };
        if let Some(wait) = wait {
            // Only external and system waits have a trigger, and at most one.
            if !matches!(wait.kind, "external" | "system") || wait.trigger.is_some() {
                return Err(REFUSED);
            }
            self.wait_mut(&wait.tag).ok_or(NOT_FOUND)?.trigger = Some(tag.clone());
        }
        self.triggers.push(Trigger::new(tag, mode, scope, source));
        Ok(())
    }

    pub fn rotate_trigger(&mut self, number: usize, inside: bool) -> Result<(), i32> {
        let tag = self.active_trigger(number)?.tag.clone();
        if inside {
            return Err(REFUSED);
        }
        let secret = self.name("secret");
        if let Some(trigger) = self.triggers.iter_mut().find(|trigger| trigger.tag == tag) {
            let old = std::mem::replace(&mut trigger.secret, secret);
            trigger.old.push(old);
        }
        Ok(())
    }

    pub fn revoke_trigger(&mut self, number: usize, inside: bool) -> Result<(), i32> {
        let trigger = self.trigger(number);
        if inside && trigger.scope.wait().is_none() {
            return Err(REFUSED);
        }
        let tag = trigger.tag.clone();
        self.revoke(|trigger| trigger.tag == tag);
        Ok(())
    }

    /// Revokes the trigger that is scoped to a wait, because the wait ends.
    pub fn revoke_of_wait(&mut self, wait: &Tag) {
        self.revoke(|trigger| trigger.scope == Scope::Wait(wait.clone()));
    }

    /// Revokes triggers. Messages that they have delivered stay, and waits that name them continue
    /// without a trigger.
    fn revoke(&mut self, is_meant: impl Fn(&Trigger) -> bool) {
        for trigger in self.triggers.iter_mut().filter(|trigger| trigger.is_active() && is_meant(trigger)) {
            trigger.status = "revoked";
            let named = self.waits.iter_mut().filter(|wait| wait.trigger.as_ref() == Some(&trigger.tag));
            named.for_each(|wait| wait.trigger = None);
        }
    }

    /// Delivers a message or a hint through a trigger. `inside`: the command runs in a turn.
    pub fn deliver(&mut self, now: Millis, said: &Delivery, inside: bool) -> Result<(), i32> {
        let trigger = self.trigger(said.trigger).clone();
        // A wrong secret and a revoked trigger get the same refusal.
        if !said.right || !trigger.is_active() {
            return Err(REFUSED);
        }
        let hint = trigger.mode == "wake_hint";
        if said.blank && !hint {
            return Err(REFUSED);
        }
        // Each trigger has its own dedupe keys.
        let key = said.key.map(|key| (Some(trigger.tag.clone()), key));
        let since = |at: Millis| (now - at).abs();
        if self.keys.iter().any(|(known, at)| Some(known) == key.as_ref() && since(*at) < DEDUPE_WINDOW) {
            return Ok(());
        }
        let hops = self.hops(inside)?;
        self.keys.extend(key.map(|key| (key, now)));
        let (wait, resource) = (trigger.scope.wait(), trigger.scope.resource().map(resource_name));
        let source = trigger.origin();
        if hint {
            let payload = if said.blank { String::new() } else { self.name("hint") };
            let born = self.born();
            let (source, trigger) = (source.to_owned(), Some(trigger.tag));
            let reason = String::new();
            self.hints.push(Hint { born, source, resource, wait, trigger, reason, payload, hops });
            return Ok(());
        }
        let kind = if source.starts_with("callback") { "callback_event" } else { "webhook_event" };
        let name = self.name("message");
        let message = self.own_message(kind, 2, name.clone(), Maker::Sender);
        self.enqueued.push(name);
        self.queue.push(Message {
            hops,
            source: Some(source.to_owned()),
            resource,
            wait,
            trigger: Some(trigger.tag),
            ..message
        });
        Ok(())
    }

    // Number of deliveries per trigger

    /// Counts a message, once, when a step claims the message, if a delivery created it.
    pub fn count_message(&mut self, born: Born) {
        let Some(message) = self.in_queue_mut(born) else { return };
        let counted = std::mem::replace(&mut message.counted, true);
        if message.maker == Maker::Sender && !counted {
            let trigger = message.trigger.clone();
            self.count_delivery(trigger.as_ref(), born);
        }
    }

    pub fn count_delivery(&mut self, trigger: Option<&Tag>, born: Born) {
        let named = self.triggers.iter_mut().find(|other| Some(&other.tag) == trigger);
        named.into_iter().for_each(|trigger| trigger.count(born.0));
    }
}
