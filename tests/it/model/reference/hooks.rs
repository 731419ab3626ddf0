//! Execution §5: hooks.

use super::{Model, Word};

/// What a hook does when it is run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HookBehavior {
    #[default]
    Well,
    Fails,
    /// It kills whoever runs it.
    Kills,
    /// It saves a checkpoint.
    Saves,
}

impl HookBehavior {
    pub fn fails(self) -> bool {
        self == HookBehavior::Fails
    }
}

/// The last line of what a hook says that fails.
pub const NO_LUCK: &str = "no luck";

/// What a hook was told; the reason where the contract says which one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCall {
    pub hook: Word,
    pub from: Word,
    pub to: Word,
    pub reason: Option<String>,
    pub success: Option<bool>,
    /// Of an attention.
    pub subject: Option<Word>,
}

/// The state through which a turn came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    Scheduled,
    Resumed,
}

impl Model {
    /// From now on this is what a hook does.
    pub fn set_hook(&mut self, hook: Word, does: HookBehavior) {
        self.doing.insert(hook, does);
    }

    pub fn tell(&mut self, hook: Word, from: Word, to: Word, why: Option<&str>) {
        if self.settings.hooks {
            let reason = why.map(str::to_owned);
            self.told.push(HookCall { hook, from, to, reason, success: None, subject: None });
        }
    }

    pub fn call_attention_hook(&mut self, subject: Word) {
        if self.settings.hooks {
            let told = HookCall {
                hook: "on-attention",
                from: "",
                to: "",
                reason: None,
                success: None,
                subject: Some(subject),
            };
            self.told.push(told);
        }
    }

    /// Runs a hook that is there, and says what it has done.
    pub fn run_hook(&mut self, hook: Word, from: Word, to: Word) -> HookBehavior {
        self.tell(hook, from, to, None);
        self.done_by(hook)
    }

    pub fn run_hook_for(&mut self, hook: Word, from: Word, to: Word, why: &str) -> HookBehavior {
        self.tell(hook, from, to, Some(why));
        self.done_by(hook)
    }

    fn done_by(&self, hook: Word) -> HookBehavior {
        self.doing.get(hook).copied().filter(|_| self.settings.hooks).unwrap_or_default()
    }

    /// The hook of the state that was entered for this turn. `false`: it has failed, and no turn starts.
    pub fn enter_turn(&mut self) -> bool {
        let goes_on = match self.run.as_mut().and_then(|run| run.entered.take()) {
            Some(Entered::Scheduled) => !self.run_hook("on-scheduled", "runnable", "scheduled").fails(),
            Some(Entered::Resumed) => !self.run_hook("on-resume", "suspended", "resumed").fails(),
            None => true,
        };
        self.enter_running();
        goes_on
    }
}
