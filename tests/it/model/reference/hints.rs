//! Semantics §10: wake hints, and no chain without end.

use super::triggers::Scope;
use super::{Born, CHAIN_PAUSE, Millis, Model, NOT_FOUND, REFUSED, Tag, Word, resource_name};

#[derive(Debug, Clone)]
pub struct Hint {
    pub born: Born,
    pub source: String,
    pub resource: Option<String>,
    pub wait: Option<Tag>,
    pub trigger: Option<Tag>,
    /// What the operator or a turn said with it.
    pub reason: Tag,
    /// What an outside system sent with it, which makes it contentful.
    pub payload: Tag,
    pub hops: u32,
}

impl Hint {
    /// What the message is known by that it becomes.
    pub fn said(&self) -> Tag {
        if self.reason.is_empty() { self.payload.clone() } else { self.reason.clone() }
    }

    /// Wait, else trigger, else resource, else source; and of one scope only those that could end the same waits.
    fn scope(&self) -> impl PartialEq + '_ {
        let source = self.resource.is_none().then_some(&self.source);
        (&self.wait, &self.trigger, &self.resource, source)
    }
}

impl Model {
    /// One that no step has taken in is seen by everyone.
    pub fn has_hint(&self) -> bool {
        self.pending_hint.is_some() || !self.hints.is_empty()
    }

    pub fn wake(
        &mut self,
        blank: bool,
        source: Option<Word>,
        resource: Option<usize>,
        wait: Option<usize>,
        trigger: Option<usize>,
        inside: bool,
    ) -> Result<(), i32> {
        // A turn speaks as itself (§14).
        if inside && source.is_some() {
            return Err(REFUSED);
        }
        let wait = wait.and_then(|wait| self.wait(wait));
        if wait.is_some_and(|wait| !wait.is_active()) {
            return Err(NOT_FOUND);
        }
        // A hint answers no question to the operator.
        if wait.is_some_and(|wait| wait.kind == "operator") {
            return Err(REFUSED);
        }
        let wait = wait.map(|wait| wait.tag.clone());
        // It is about what the trigger is scoped to, unless it says something else.
        let trigger = trigger.map(|trigger| self.active_trigger(trigger)).transpose()?.cloned();
        let (of_wait, of_resource) = match trigger.as_ref().map(|trigger| &trigger.scope) {
            Some(Scope::Wait(wait)) => (Some(wait.clone()), None),
            Some(Scope::Resource(resource)) => (None, Some(*resource)),
            Some(Scope::Agent) | None => (None, None),
        };
        let (wait, resource) = (wait.or(of_wait), resource.or(of_resource));
        let trigger = trigger.map(|trigger| trigger.tag);
        let hops = self.hops(inside)?;
        let reason = if blank { String::new() } else { self.name("hint") };
        let resource = resource.map(resource_name);
        let born = self.born();
        let source = source.unwrap_or(if inside { "ada" } else { "cli" }).to_owned();
        self.hints.push(Hint { born, source, resource, wait, trigger, reason, payload: String::new(), hops });
        Ok(())
    }

    /// While the agent is stopped, hints are recorded as ignored.
    pub fn ignore_hints(&mut self) {
        for hint in std::mem::take(&mut self.hints) {
            self.count_delivery(hint.trigger.as_ref(), hint.born);
        }
        self.pending_hint = None;
    }

    /// Those of one scope are one. Taking one in makes runnable work eligible for one more tick.
    pub fn take_in_hints(&mut self) {
        self.hints.sort_by_key(|hint| hint.born);
        if self.pending_hint.is_none() && !self.hints.is_empty() {
            let first = self.hints.remove(0);
            self.count_delivery(first.trigger.as_ref(), first.born);
            self.pending_hint = Some(first);
            self.works.iter_mut().for_each(|item| item.ticked = false);
        }
        for hint in std::mem::take(&mut self.hints) {
            let Some(pending) = &mut self.pending_hint else { return };
            if hint.scope() != pending.scope() {
                self.hints.push(hint);
                continue;
            }
            pending.hops = pending.hops.max(hint.hops);
            pending.reason = match (pending.reason.is_empty(), hint.reason.is_empty()) {
                (false, false) => format!("{}; {}", pending.reason, hint.reason),
                _ => format!("{}{}", pending.reason, hint.reason),
            };
            if pending.payload.is_empty() {
                pending.payload = hint.payload;
            }
            self.count_delivery(hint.trigger.as_ref(), hint.born);
        }
    }

    // Hops

    /// How far from the beginning of its chain something is that is said now.
    pub fn hops(&self, inside: bool) -> Result<u32, i32> {
        let Some(hops) = self.hops_of_turn(inside) else { return Ok(0) };
        if hops < self.settings.max_hops { Ok(hops + 1) } else { Err(REFUSED) }
    }

    /// Of something that is due at a moment: a longer pause starts a new chain.
    pub fn hops_at(&self, now: Millis, next: Millis, inside: bool) -> Result<u32, i32> {
        if next - now > CHAIN_PAUSE { Ok(0) } else { self.hops(inside) }
    }

    fn hops_of_turn(&self, inside: bool) -> Option<u32> {
        let claimed = self.run.as_ref().filter(|_| inside)?.message;
        Some(self.queue.iter().find(|message| message.born == claimed)?.hops)
    }
}
