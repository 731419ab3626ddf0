//! Settings of the state directory, in `dormouse.toml`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Deserialize;
use smart_default::SmartDefault;

use super::policy::{Limit, SchedulingPolicy};
use super::pool::Pools;
use super::time::Span;
use super::trigger::Trigger;

/// Content of `dormouse.toml`.
#[serde_with::apply(_ => #[serde(default)])]
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    #[serde_with(skip_apply)]
    pub format: u32,
    pub store: StoreSettings,
    pub scheduler: SchedulerSettings,
    pub git: GitSettings,
    pub sharing: SharingSettings,
    pub ingress: IngressSettings,
    /// Retention settings for every agent. The settings in `defaults` take precedence.
    pub retention: toml::Table,
    /// Settings for every agent. The agent's `agent.toml` takes precedence.
    pub defaults: toml::Table,
    /// Settings by name of a profile, for agents with that profile. They take precedence over
    /// `defaults`.
    pub profiles: BTreeMap<String, toml::Table>,
}

/// Format of the state directory that this program reads and writes.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    pub durability: Durability,
    /// URL of the database with the records; absent: the records are in the state directory. With a
    /// database, the state directory contains only files of this machine.
    pub url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSettings {
    /// Maximum number of concurrent turns of all agents; absent: unlimited.
    pub max_running: Option<NonZeroU32>,
    /// Minimum difference of priority at which a running turn yields its slot to a more urgent
    /// agent, when all slots are taken. Absent: no turn yields its slot.
    pub preempt_margin: Option<NonZeroU32>,
    /// Pools whose agents this machine ticks, for records in a database.
    pub pool: Pools,
    /// Time after which a due step that did not run shows that no process ticks the agent.
    #[default(SchedulingPolicy::OVERDUE_AFTER)]
    pub overdue_after: Limit,
}

/// Settings for the use of git by `tick --commit`.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GitSettings {
    /// True if a commit runs the repository's hooks and its file system monitor.
    pub hooks: bool,
    /// Timeout of one call of git.
    #[default(Span::from_secs(60))]
    pub timeout: Span,
}

/// Settings that let users other than the owner put messages and hints into inboxes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SharingSettings {
    /// Name of the group whose members may put messages and hints into inboxes, or its number as
    /// text; absent: only the owner may.
    pub group: Option<String>,
}

/// Settings of `dormouse ingress`.
#[derive(Debug, Clone, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IngressSettings {
    /// Base URL of a server that runs `dormouse ingress`; absent: there is no such server.
    pub base_url: Option<String>,
    /// Maximum difference between the time of a signature and the present time.
    #[default(Span::from_secs(300))]
    pub tolerance: Span,
    /// Maximum number of deliveries that a trigger accepts per minute.
    #[default(NonZeroU32::MIN.saturating_add(599))]
    pub per_minute: NonZeroU32,
    /// True if everybody may read the status of public agents.
    pub read: bool,
    /// Headers by which a sender marks a repeated delivery. The first that a request has is used.
    #[default(words(&["X-GitHub-Delivery", "Idempotency-Key", "webhook-id"]))]
    pub dedupe_headers: Vec<String>,
    /// Headers that are stored with a delivery as its provenance.
    #[default(words(&["User-Agent", "X-GitHub-Event", "X-Gitlab-Event"]))]
    pub source_headers: Vec<String>,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl IngressSettings {
    /// Returns the URL for deliveries through a trigger, if a server is configured. `{agent}` and
    /// `{trigger}` in `base_url` are replaced by their names; otherwise the path is appended.
    pub fn url(&self, trigger: &Trigger) -> Option<String> {
        let base = self.base_url.as_deref()?;
        let (agent, id) = (trigger.agent.as_str(), trigger.id.to_string());
        Some(if base.contains("{trigger}") {
            base.replace("{agent}", agent).replace("{trigger}", &id)
        } else {
            format!("{}/agents/{agent}/triggers/{id}", base.trim_end_matches('/'))
        })
    }
}

names! {
    /// Event that an acknowledged write survives: a power cut, or only the death of the process.
    #[derive(Default)]
    "durability" Durability {
        #[default]
        Full = "full",
        Process = "process",
    }
}
