//! Execution §5: hooks.

use super::{Model, Word};

/// Behaviour of a hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HookBehaviour {
    #[default]
    Well,
    Fails,
    /// Kills the command that runs the hook.
    Kills,
    /// Saves a checkpoint.
    Saves,
}

impl HookBehaviour {
    pub fn fails(self) -> bool {
        self == HookBehaviour::Fails
    }
}

/// Last line on stderr of a hook that fails.
pub const NO_LUCK: &str = "no luck";

/// One call of a hook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookCall {
    pub hook: Word,
    pub from: Word,
    pub to: Word,
    /// Reason of the transition; `None` if the contract does not define it.
    pub reason: Option<String>,
    pub success: Option<bool>,
    /// Subject of the attention, for `on-attention`.
    pub subject: Option<Word>,
}

/// State between the claim and `running`, in which a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    Scheduled,
    Resumed,
}

impl Model {
    /// Sets the behaviour of a hook.
    pub fn set_hook(&mut self, hook: Word, does: HookBehaviour) {
        self.doing.insert(hook, does);
    }

    pub fn tell(&mut self, hook: Word, from: Word, to: Word, why: Option<&str>) {
        if self.settings.hooks {
            let reason = why.map(str::to_owned);
            self.told.push(HookCall { hook, from, to, reason, ..HookCall::default() });
        }
    }

    pub fn call_attention_hook(&mut self, subject: Word) {
        if self.settings.hooks {
            self.told.push(HookCall { hook: "on-attention", subject: Some(subject), ..HookCall::default() });
        }
    }

    /// Runs a hook, and returns its behaviour.
    pub fn run_hook(&mut self, hook: Word, from: Word, to: Word, why: Option<&str>) -> HookBehaviour {
        self.tell(hook, from, to, why);
        self.doing.get(hook).copied().filter(|_| self.settings.hooks).unwrap_or_default()
    }

    /// Runs the hook of the state that the claim entered. Returns false if the hook has failed and
    /// no turn starts.
    pub fn enter_turn(&mut self) -> bool {
        let goes_on = match self.run.as_mut().and_then(|run| run.entered.take()) {
            Some(Entered::Scheduled) => !self.run_hook("on-scheduled", "runnable", "scheduled", None).fails(),
            Some(Entered::Resumed) => !self.run_hook("on-resume", "suspended", "resumed", None).fails(),
            None => true,
        };
        self.enter_running();
        goes_on
    }
}
