//! Pools, which assign agents to the machines that share a store in a database.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_with::DeserializeFromStr;

/// Name of a pool: 1 to 64 of a-z 0-9 . _ -; the empty name is the pool of all agents without one.
#[derive(Debug, Clone, Default, PartialEq, Eq, DeserializeFromStr)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pool(String);

impl Pool {
    /// Pool of all agents and machines that name no pool.
    pub const COMMON: Pool = Pool(String::new());

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the pool that the text of an `agent.toml` names; [`Pool::COMMON`] if none or an
    /// invalid one. Ignores the defaults of a machine, so that all machines get the same result.
    pub fn of(policy: &str) -> Pool {
        let settings: Option<toml::Table> = policy.parse().ok();
        let named = settings.as_ref().and_then(|all| all.get("scheduler")?.get("pool")?.as_str());
        named.and_then(|word| word.parse().ok()).unwrap_or_default()
    }
}

impl FromStr for Pool {
    type Err = String;

    fn from_str(word: &str) -> Result<Pool, String> {
        let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if word.len() <= 64 && word.bytes().all(is_fit) {
            return Ok(Pool(word.to_owned()));
        }
        Err(format!("`{word}` is no pool: 1 to 64 of a-z 0-9 . _ -"))
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("the common pool") } else { write!(f, "pool `{}`", self.0) }
    }
}

/// Pools of a machine, which ticks only the agents of these pools.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PoolNames")]
pub struct Pools(pub Vec<Pool>);

impl Default for Pools {
    fn default() -> Pools {
        Pools(vec![Pool::COMMON])
    }
}

impl fmt::Display for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(Pool::to_string).collect();
        f.write_str(&names.join(", "))
    }
}

/// Value of `pool` in `dormouse.toml`: one name or a list.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the name of a pool, or a list of names")]
enum PoolNames {
    One(String),
    Several(Vec<String>),
}

impl TryFrom<PoolNames> for Pools {
    type Error = String;

    fn try_from(names: PoolNames) -> Result<Pools, String> {
        let pools = match names {
            PoolNames::One(name) => vec![name.parse()?],
            PoolNames::Several(names) => names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
        };
        if pools.is_empty() {
            return Err("a machine has at least one pool: \"\" is the common one".to_owned());
        }
        Ok(Pools(pools))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_of_the_pool_that_its_own_settings_name() {
        for (text, pool) in [
            ("", ""),
            ("[scheduler]\npriority = 1\n", ""),
            ("[scheduler]\npool = \"gpu\"\n", "gpu"),
            ("scheduler.pool = \"a.b_c-9\"", "a.b_c-9"),
            ("[scheduler]\npool = 7\n", ""),
            ("[scheduler]\npool = \"No\"\n", ""),
            ("[scheduler\npool = \"gpu\"\n", ""),
        ] {
            assert_eq!(Pool::of(text).as_str(), pool, "{text}");
        }
    }

    #[test]
    fn a_machine_has_one_pool_or_several() {
        #[derive(Deserialize)]
        #[serde(default)]
        #[derive(Default)]
        struct Settings {
            pool: Pools,
        }
        let read = |text: &str| toml::from_str::<Settings>(text).map(|read| read.pool.to_string());
        assert_eq!(read("").unwrap(), "the common pool");
        assert_eq!(read("pool = \"gpu\"").unwrap(), "pool `gpu`");
        assert_eq!(read("pool = [\"\", \"gpu\"]").unwrap(), "the common pool, pool `gpu`");
        for (text, why) in [
            ("pool = []", "at least one pool"),
            ("pool = [\"A\"]", "is no pool"),
            ("pool = \"a b\"", "is no pool"),
            ("pool = 7", "the name of a pool"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
