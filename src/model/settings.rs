//! Settings of the state directory itself, which people write in `dormouse.toml`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Deserialize;

use super::time::Span;

/// `dormouse.toml`: the state directory's own settings.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    pub format: u32,
    #[serde(default)]
    pub store: StoreSettings,
    #[serde(default)]
    pub scheduler: SchedulerSettings,
    #[serde(default)]
    pub git: GitSettings,
    /// Settings for every agent. Its `agent.toml` goes over them.
    #[serde(default)]
    pub defaults: toml::Table,
    /// Settings by profile name, for the agents of that profile. They go over the defaults.
    #[serde(default)]
    pub profiles: BTreeMap<String, toml::Table>,
}

/// The format of the state directory that this program reads and writes.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    pub durability: Durability,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSettings {
    /// How many turns may run at once, of all agents together; absent: any number.
    pub max_running: Option<NonZeroU32>,
    /// How much more urgent an agent must be than a running one for the running turn to leave its slot, when
    /// all slots are taken. Absent: no turn leaves its slot.
    pub preempt_margin: Option<NonZeroU32>,
}

/// What `tick --commit` lets git do.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GitSettings {
    /// Whether a commit runs the repository's hooks and its file system monitor.
    pub hooks: bool,
    /// Whether a commit is signed if git is configured so. Signing may ask for a passphrase.
    pub sign: bool,
    /// How long one call of git may take.
    pub timeout: Span,
}

impl Default for GitSettings {
    fn default() -> Self {
        GitSettings { hooks: false, sign: false, timeout: Span::from_secs(60) }
    }
}

names! {
    /// What an acknowledged write survives: a power cut, or only the death of the process.
    #[derive(Default)]
    "durability" Durability {
        #[default]
        Full = "full",
        Process = "process",
    }
}
