//! Execution §1 to §4: the twelve states, their transitions and their timeouts.

use super::hooks::Entered;
use super::preemption::Deferred;
use super::recovery::backoff;
use super::{MAX_DELAY, Millis, Model, RECOVERY_TIMEOUT, RESOURCES_TIMEOUT, SUSPEND_TIMEOUT, Word};

impl Model {
    /// Enters a state that may follow the current one. Hooks get `why` as the reason.
    pub fn enter(&mut self, to: Word, why: Option<&str>) {
        let from = self.execution;
        assert!(may_follow(from, to), "no edge leads from {from} to {to}");
        self.execution = to;
        self.since = self.clock.0;
        self.tell("on-state-change", from, to, why);
    }

    /// Enters the given states one after the other.
    fn pass(&mut self, states: &[Word]) {
        states.iter().for_each(|state| self.enter(state, None));
    }

    /// Returns the state in which the hook of a claim runs. `before` is the state that an earlier
    /// claim of the same run has entered, if its hook has not run yet.
    fn state_of_claim(&self, before: Option<Entered>) -> Option<Entered> {
        let hooks = self.settings.hooks;
        match self.execution {
            "completed" | "runnable" => Some(Entered::Scheduled),
            "suspended" => Some(Entered::Resumed),
            "waiting" => Some(Entered::Scheduled).filter(|_| hooks),
            _ => before.filter(|_| hooks),
        }
    }

    /// Enters the states of a claim up to that of its hook, and returns that state: `scheduled` or
    /// `resumed`. `before` is as in `state_of_claim`.
    pub fn enter_claimed(&mut self, before: Option<Entered>) -> Option<Entered> {
        let entered = self.state_of_claim(before);
        match (self.execution, entered) {
            // A waiting agent can only enter `running`, so the claim goes through this state.
            ("waiting" | "waiting_resources", Some(Entered::Scheduled)) => {
                self.pass(&["running", "completed", "runnable", "scheduled"]);
            }
            ("waiting_resources", Some(Entered::Resumed)) => self.pass(&["running", "suspended", "resumed"]),
            _ => self.pass_straight(),
        }
        entered
    }

    /// Enters `waiting_resources` for a claim that lacks a resource. Returns the state whose hook
    /// still has to run.
    pub fn enter_lacking(&mut self, before: Option<Entered>) -> Option<Entered> {
        let entered = self.state_of_claim(before);
        self.pass_straight();
        self.enter_running();
        self.enter("waiting_resources", None);
        entered
    }

    fn pass_straight(&mut self) {
        match self.execution {
            "completed" => self.pass(&["runnable", "scheduled"]),
            "runnable" => self.pass(&["scheduled"]),
            "suspended" => self.pass(&["resumed"]),
            _ => self.pass(&["running"]),
        }
    }

    /// Enters `running` after the hook of a claim, unless the agent is in that state already.
    pub fn enter_running(&mut self) {
        if self.execution != "running" {
            self.enter("running", None);
        }
    }

    /// Returns the time limit of the current state, and the reason when it is over. A run that
    /// continues by itself at a known time has no limit.
    pub fn deadline(&self) -> Option<(Millis, Word)> {
        let held = self.held.as_ref();
        match self.execution {
            "recovering" => Some((self.since + RECOVERY_TIMEOUT, "recovery_timeout")),
            // Successive deferrals share one timeout, which excludes waits for a limit.
            "waiting_resources" if held?.limit.is_none() && !held?.needs_operator => {
                let Deferred { since, known, .. } = held?.deferred;
                Some((since? + known + RESOURCES_TIMEOUT, "resource_timeout"))
            }
            "suspended" if held?.not_before.is_none() => {
                Some((self.since + SUSPEND_TIMEOUT, "suspend_timeout"))
            }
            _ => None,
        }
    }

    pub fn end_overdue(&mut self, now: Millis) {
        let Some((_, why)) = self.deadline().filter(|(limit, _)| now > *limit) else { return };
        let Some(held) = self.held.take() else { return self.fail_recovery(now, why) };
        self.enter("failed", Some(why));
        self.status = "awake_idle";
        self.alarmed = true;
        // The timeout costs no attempt. The number of deferrals is kept, and determines the retry
        // delay after them.
        let deferrals = self.setbacks_of(held.message).map_or(0, |setbacks| setbacks.deferrals);
        let times = if why == "resource_timeout" { deferrals.max(1) } else { 1 };
        self.put_back(now + backoff(times).min(MAX_DELAY), held.message, &held.continuation);
    }
}

fn may_follow(from: Word, to: Word) -> bool {
    let next: &[Word] = match from {
        "initializing" => &["runnable", "failed"],
        "runnable" => &["scheduled"],
        "scheduled" | "waiting" | "resumed" => &["running"],
        "running" => &["waiting", "waiting_resources", "suspended", "completed", "failed", "shutting_down"],
        "waiting_resources" => &["running", "failed"],
        "suspended" => &["resumed", "failed"],
        "completed" => &["runnable"],
        "failed" => &["recovering"],
        "shutting_down" => &["completed", "failed"],
        "recovering" => &["runnable", "failed", "shutting_down"],
        _ => &[],
    };
    next.contains(&to)
}
