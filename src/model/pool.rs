//! Pools: the assignment of agents to machines that share a store in a database.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

/// Name of a pool: 1 to 64 of a-z 0-9 . _ -; the empty name is the pool of all agents without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pool(String);

impl Pool {
    /// Pool of all agents and machines that name none.
    pub const COMMON: Pool = Pool(String::new());

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(word: &str) -> Result<Pool, String> {
        let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if word.len() <= 64 && word.bytes().all(is_fit) {
            return Ok(Pool(word.to_owned()));
        }
        Err(format!("`{word}` is no pool: 1 to 64 of a-z 0-9 . _ -"))
    }

    /// Returns the pool that the text of an `agent.toml` names; [`Pool::COMMON`] if the text can't
    /// be read. The defaults of a machine are not applied, because an agent is the same for all
    /// machines.
    pub fn of(policy: &str) -> Pool {
        let settings: Option<toml::Table> = policy.parse().ok();
        let named = settings.as_ref().and_then(|all| all.get("scheduler")?.get("pool")?.as_str());
        named.and_then(|word| Pool::parse(word).ok()).unwrap_or_default()
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("the common pool") } else { write!(f, "pool `{}`", self.0) }
    }
}

impl<'de> Deserialize<'de> for Pool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pool, D::Error> {
        Pool::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Pools of a machine: it ticks the agents of these pools only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pools(Vec<Pool>);

impl Default for Pools {
    fn default() -> Pools {
        Pools(vec![Pool::COMMON])
    }
}

impl Pools {
    pub fn all(&self) -> &[Pool] {
        &self.0
    }

    pub fn has(&self, pool: &Pool) -> bool {
        self.0.contains(pool)
    }
}

impl fmt::Display for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pool) in self.0.iter().enumerate() {
            write!(f, "{}{pool}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Pools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pools, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Pools;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a pool, or a list of names")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<Pools, E> {
                Pool::parse(word).map(|pool| Pools(vec![pool])).map_err(E::custom)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut words: A) -> Result<Pools, A::Error> {
                let mut pools = Vec::new();
                while let Some(pool) = words.next_element()? {
                    pools.push(pool);
                }
                if pools.is_empty() {
                    return Err(de::Error::custom("a machine has at least one pool: \"\" is the common one"));
                }
                Ok(Pools(pools))
            }
        }
        deserializer.deserialize_any(Visitor)
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
