//! Hooks, and the recovery that one of them may carry out (execution §5, §7).

use super::reference::{BACKOFF, Millis, Model, Word};

/// What a hook does when it is run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Does {
    #[default]
    Well,
    Fails,
    /// It kills whoever runs it.
    Kills,
    /// It saves a checkpoint.
    Saves,
}

impl Does {
    pub fn fails(self) -> bool {
        self == Does::Fails
    }

    pub fn saves(self) -> bool {
        self == Does::Saves
    }
}

/// The last line of what a hook says that fails.
pub const NO_LUCK: &str = "no luck";

/// What a hook was told; the reason where the contract says which one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub hook: Word,
    pub from: Word,
    pub to: Word,
    pub reason: Option<String>,
    pub success: Option<bool>,
}

/// The state through which a turn came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    Scheduled,
    Resumed,
}

impl Entered {
    pub fn state(self) -> Word {
        match self {
            Entered::Scheduled => "scheduled",
            Entered::Resumed => "resumed",
        }
    }
}

impl Model {
    /// From now on this is what a hook does.
    pub fn set_hook(&mut self, hook: Word, does: Does) {
        self.doing.insert(hook, does);
    }

    pub(super) fn tell(&mut self, hook: Word, from: Word, to: Word, why: Option<&str>) {
        if self.settings.hooks {
            let reason = why.map(str::to_owned);
            self.told.push(Told { hook, from, to, reason, success: None });
        }
    }

    /// Runs a hook that is there, and says what it has done.
    pub(super) fn run_hook(&mut self, hook: Word, from: Word, to: Word) -> Does {
        self.tell(hook, from, to, None);
        self.done_by(hook)
    }

    pub(super) fn run_hook_for(&mut self, hook: Word, from: Word, to: Word, why: &str) -> Does {
        self.tell(hook, from, to, Some(why));
        self.done_by(hook)
    }

    fn done_by(&self, hook: Word) -> Does {
        self.doing.get(hook).copied().filter(|_| self.settings.hooks).unwrap_or_default()
    }

    // Recovery

    /// From `failed` back to work, or on with a recovery that somebody has begun and not ended.
    pub(super) fn recover(&mut self, now: Millis) {
        if self.execution == "failed" {
            self.enter("recovering", None);
        }
        let does = self.run_hook("on-recovery-start", "recovering", "runnable");
        if does == Does::Kills {
            self.killed = true;
            return;
        }
        let overdue = self.deadline().filter(|(limit, _)| now > *limit).map(|(_, why)| why);
        let failure = overdue.or(does.fails().then_some(NO_LUCK));
        match failure {
            Some(why) => self.fail_recovery(now, why),
            None => {
                self.enter("runnable", None);
                self.retry = None;
                self.end_recovery(true);
            }
        }
    }

    /// The next try comes after a pause, and no attempt is lost.
    pub(super) fn fail_recovery(&mut self, now: Millis, why: &str) {
        self.enter("failed", Some(why));
        self.failed_to_recover = true;
        let failed = self.retry.map(|(_, message)| message).or(self.last_message);
        self.retry = failed.map(|message| (now + BACKOFF, message));
        if self.status != "stopped" {
            self.status = "awake_idle";
        }
        self.end_recovery(false);
    }

    fn end_recovery(&mut self, success: bool) {
        self.tell("on-recovery-complete", "recovering", self.execution, None);
        if let Some(told) = self.told.last_mut().filter(|told| told.hook == "on-recovery-complete") {
            told.success = Some(success);
        }
    }
}
