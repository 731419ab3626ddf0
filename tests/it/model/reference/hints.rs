//! Semantics §10: wake hints, and the limit on hops of a chain.

use super::triggers::Scope;
use super::{Born, CHAIN_PAUSE, Millis, Model, NOT_FOUND, REFUSED, Tag, Word, resource_name};

#[derive(Debug, Clone)]
pub struct Hint {
    pub born: Born,
    pub source: String,
    pub resource: Option<String>,
    pub wait: Option<Tag>,
    pub trigger: Option<Tag>,
    /// Reason for the hint: a text from the operator or a turn.
    pub reason: Tag,
    /// Text from an outside system, which makes the hint contentful.
    pub payload: Tag,
    pub hops: u32,
}

/// Arguments of `wake`.
#[derive(Debug, Clone)]
pub struct WakeArgs {
    pub blank: bool,
    pub source: Option<Word>,
    pub resource: Option<usize>,
    pub wait: Option<usize>,
    pub trigger: Option<usize>,
}

impl Hint {
    /// Returns the name of the message that the hint becomes.
    pub fn said(&self) -> Tag {
        if self.reason.is_empty() { self.payload.clone() } else { self.reason.clone() }
    }

    /// Returns the fields in which hints must agree to be merged, because they could end the same
    /// waits. With a resource they could do so whatever their sources are.
    fn scope(&self) -> impl PartialEq + '_ {
        let source = self.resource.is_none().then_some(&self.source);
        (&self.wait, &self.trigger, &self.resource, source)
    }
}

impl Model {
    /// True if a wake hint is pending, taken in by a step or not.
    pub fn has_hint(&self) -> bool {
        self.pending_hint.is_some() || !self.hints.is_empty()
    }

    pub fn wake(&mut self, asked: &WakeArgs, inside: bool) -> Result<(), i32> {
        let WakeArgs { blank, source, resource, wait, trigger } = *asked;
        // A turn can't choose another source than its agent (§14).
        if inside && source.is_some() {
            return Err(REFUSED);
        }
        let wait = wait.and_then(|wait| self.wait(wait));
        if wait.is_some_and(|wait| !wait.is_active()) {
            return Err(NOT_FOUND);
        }
        // A hint is no operator input, and can't end a wait for the operator.
        if wait.is_some_and(|wait| wait.kind == "operator") {
            return Err(REFUSED);
        }
        let wait = wait.map(|wait| wait.tag.clone());
        // Without a wait or resource of its own the hint has that of the trigger's scope.
        let trigger = trigger.map(|trigger| self.active_trigger(trigger)).transpose()?.cloned();
        let scope = trigger.as_ref().map_or(Scope::Agent, |trigger| trigger.scope.clone());
        let (wait, resource) = (wait.or(scope.wait()), resource.or(scope.resource()));
        let trigger = trigger.map(|trigger| trigger.tag);
        let hops = self.hops(inside)?;
        let reason = if blank { String::new() } else { self.name("hint") };
        let resource = resource.map(resource_name);
        let born = self.born();
        let source = source.unwrap_or(if inside { "ada" } else { "cli" }).to_owned();
        self.hints.push(Hint { born, source, resource, wait, trigger, reason, payload: String::new(), hops });
        Ok(())
    }

    /// Drops all hints, as a stopped agent does. Those of triggers still count as deliveries.
    pub fn ignore_hints(&mut self) {
        for hint in std::mem::take(&mut self.hints) {
            self.count_delivery(hint.trigger.as_ref(), hint.born);
        }
        self.pending_hint = None;
    }

    /// Takes in the oldest hint unless one is pending, and merges hints of the same scope into the
    /// pending one. A new hint makes runnable work items eligible for another `system_tick`.
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

    // Counts of hops, which bound chains of messages between agents

    /// Returns the number of hops of a message or hint that is sent now; `REFUSED` above the limit.
    pub fn hops(&self, inside: bool) -> Result<u32, i32> {
        let Some(hops) = self.hops_of_turn(inside) else { return Ok(0) };
        if hops < self.settings.max_hops { Ok(hops + 1) } else { Err(REFUSED) }
    }

    /// Returns the number of hops of a timer or deadline that is due at `next`. After a pause
    /// longer than `CHAIN_PAUSE` a new chain begins with 0 hops.
    pub fn hops_at(&self, now: Millis, next: Millis, inside: bool) -> Result<u32, i32> {
        if next - now > CHAIN_PAUSE { Ok(0) } else { self.hops(inside) }
    }

    fn hops_of_turn(&self, inside: bool) -> Option<u32> {
        let claimed = self.run.as_ref().filter(|_| inside)?.message;
        Some(self.in_queue(claimed)?.hops)
    }
}
