//! Text of an `agent.toml`, and the values that a database stores in columns next to the text.

use crate::model::policy::Policy;
use crate::model::pool::Pool;
use crate::model::strict::from_toml;

/// Settings of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Text of the file `agent.toml`.
    pub text: String,
    /// Pool (named group of agents). A machine ticks only agents of the pools in its settings.
    pub pool: Pool,
    pub takes: Takes,
}

/// Maximum bytes of the body of a message to an agent, if the agent's own settings define one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Takes {
    /// The settings define no maximum message size, so that of the sender's machine applies.
    #[default]
    ByDefault,
    /// Maximum message size in bytes, from the agent's settings.
    AtMost(u64),
    /// The limit is not known from this text alone, because the text names a profile or is damaged:
    /// only a command that also reads the machine's settings finds the limit.
    Unknown,
}

impl Settings {
    pub fn of(text: String) -> Settings {
        Settings { pool: Pool::of(&text), takes: Takes::of(&text), text }
    }
}

impl Takes {
    fn of(text: &str) -> Takes {
        let (Ok(policy), Ok(table)) = (from_toml::<Policy>(text), text.parse::<toml::Table>()) else {
            return Takes::Unknown;
        };
        if policy.profile.is_some() || policy.check().is_err() {
            return Takes::Unknown;
        }
        match table.get("limits").and_then(|limits| limits.get("max_message")) {
            Some(_) => Takes::AtMost(policy.limits.max_message.0),
            None => Takes::ByDefault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_limit_is_known_if_agent_toml_alone_determines_it() {
        let rows = [
            ("", Takes::ByDefault),
            ("[turn]\ncommand = [\"true\"]\n", Takes::ByDefault),
            ("[limits]\nmax_hops = 3\n", Takes::ByDefault),
            ("[limits]\nmax_message = \"4 KiB\"\n", Takes::AtMost(4096)),
            ("limits = { max_message = \"1 MiB\" }\n", Takes::AtMost(1 << 20)),
            ("profile = \"nightly\"\n[limits]\nmax_message = \"4 KiB\"\n", Takes::Unknown),
            ("[limits]\nmax_message = \"much\"\n", Takes::Unknown),
            ("no settings", Takes::Unknown),
        ];
        for (text, expected) in rows {
            assert_eq!(Settings::of(text.to_owned()).takes, expected, "{text:?}");
        }
    }
}
