//! Settings of the state directory itself, which people write in `dormouse.toml`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::limit::Limit;
use super::pool::Pools;
use super::scheduling::SchedulingPolicy;
use super::time::Span;
use super::trigger::Trigger;

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
    #[serde(default)]
    pub sharing: SharingSettings,
    #[serde(default)]
    pub ingress: IngressSettings,
    /// What every agent keeps of turns that have ended. The defaults below go over it.
    #[serde(default)]
    pub retention: toml::Table,
    /// Settings for every agent. Its `agent.toml` goes over them.
    #[serde(default)]
    pub defaults: toml::Table,
    /// Settings by profile name, for the agents of that profile. They go over the defaults.
    #[serde(default)]
    pub profiles: BTreeMap<String, toml::Table>,
}

/// The format of the state directory that this program reads and writes.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    pub durability: Durability,
    /// Where the records are kept, if not here: a database. The state directory then has what
    /// belongs to the machine.
    pub url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSettings {
    /// How many turns may run at once, of all agents together; absent: any number.
    pub max_running: Option<NonZeroU32>,
    /// How much more urgent an agent must be than a running one for the running turn to leave its
    /// slot, when all slots are taken. Absent: no turn leaves its slot.
    pub preempt_margin: Option<NonZeroU32>,
    /// The pools whose agents this machine ticks, where the records are in a database.
    pub pool: Pools,
    /// The time after which something that is due or queued shows that nobody ticks.
    pub overdue_after: Limit,
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        SchedulerSettings {
            max_running: None,
            preempt_margin: None,
            pool: Pools::default(),
            overdue_after: SchedulingPolicy::OVERDUE_AFTER,
        }
    }
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

/// Which users besides the owner may put messages and hints into the inboxes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SharingSettings {
    /// The users of this group; absent: no other users.
    pub group: Option<Group>,
}

/// What `dormouse ingress` lets in, and what it tells.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IngressSettings {
    /// Where a server that runs `dormouse ingress` is reached. Absent: no server is.
    pub base_url: Option<String>,
    /// How far the moment that a signature names may be from now.
    pub tolerance: Span,
    /// How many deliveries a trigger takes in a minute.
    pub per_minute: NonZeroU32,
    /// Whether anyone may read how the public agents stand.
    pub read: bool,
    /// The headers by which a sender says that it repeats a delivery. The first that a request has
    /// counts.
    pub dedupe_headers: Vec<String>,
    /// The headers that are kept with a delivery as its provenance.
    pub source_headers: Vec<String>,
}

impl Default for IngressSettings {
    fn default() -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        IngressSettings {
            base_url: None,
            tolerance: Span::from_secs(300),
            per_minute: NonZeroU32::MIN.saturating_add(599),
            read: false,
            dedupe_headers: words(&["X-GitHub-Delivery", "Idempotency-Key", "webhook-id"]),
            source_headers: words(&["User-Agent", "X-GitHub-Event", "X-Gitlab-Event"]),
        }
    }
}

impl IngressSettings {
    /// Where deliveries through a trigger go to, if something serves them. `{agent}` and
    /// `{trigger}` in `base_url` stand for their names; a `base_url` without them is what comes
    /// before the path.
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

/// A group of users of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    Name(String),
    Number(u32),
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Group::Name(name) => f.write_str(name),
            Group::Number(number) => number.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Group, D::Error> {
        struct Word;

        impl Visitor<'_> for Word {
            type Value = Group;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the name or the number of a group")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Group, E> {
                // The highest number stands for no group at all.
                let number = u32::try_from(number).ok().filter(|number| *number < u32::MAX);
                number.map(Group::Number).ok_or_else(|| E::custom("not the number of a group"))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Group, E> {
                if name.is_empty() || name.contains([':', '\n']) {
                    return Err(E::custom("not the name of a group"));
                }
                Ok(Group::Name(name.to_owned()))
            }
        }

        from.deserialize_any(Word)
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
