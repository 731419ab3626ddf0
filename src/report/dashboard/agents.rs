//! Agents that `watch` shows, in the order of the screen.

use std::collections::BTreeSet;

use crate::model::id::AgentName;
use crate::model::posture::Posture;
use crate::report::list::{ListRow, natural};

/// Result of the last read of an agent.
pub enum AgentRow {
    Unread,
    Read(Box<ListRow>),
    /// Error of reading the agent.
    Broken(String),
}

impl AgentRow {
    pub fn needs_attention(&self) -> bool {
        match self {
            AgentRow::Unread => false,
            AgentRow::Read(line) => line.needs_attention(),
            AgentRow::Broken(_) => true,
        }
    }

    /// Returns the row of an agent that was read.
    pub fn row(&self) -> Option<&ListRow> {
        match self {
            AgentRow::Read(line) => Some(line),
            AgentRow::Unread | AgentRow::Broken(_) => None,
        }
    }
}

/// Numbers of agents, and of the queued messages of all agents that were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub agents: usize,
    pub unread: usize,
    pub at_work: usize,
    /// Number of queued messages, and of inbox files that are not admitted yet.
    pub pending: usize,
    pub to_look_at: usize,
}

/// Agents with their last known states.
#[derive(Default)]
pub struct Fleet {
    /// All agents by name. Numbers in the names are ordered by value.
    agents: Vec<(AgentName, AgentRow)>,
    /// Indexes of the shown agents, those that need attention first.
    order: Vec<usize>,
    /// Filter: text that the name or posture of a shown agent contains.
    filter: String,
}

impl Fleet {
    /// Replaces the list of agents. Returns the added agents.
    pub fn list(&mut self, names: Vec<AgentName>) -> Vec<AgentName> {
        let new: Vec<AgentName> = names.iter().filter(|name| self.find(name).is_none()).cloned().collect();
        let names: BTreeSet<AgentName> = names.into_iter().collect();
        self.agents.retain(|(name, _)| names.contains(name));
        self.agents.extend(new.iter().map(|name| (name.clone(), AgentRow::Unread)));
        self.agents.sort_by(|(one, _), (other, _)| natural(one.as_str(), other.as_str()));
        self.sort();
        new
    }

    fn find(&self, name: &AgentName) -> Option<usize> {
        self.agents.binary_search_by(|(one, _)| natural(one.as_str(), name.as_str())).ok()
    }

    pub fn names(&self) -> impl Iterator<Item = &AgentName> {
        self.agents.iter().map(|(name, _)| name)
    }

    /// Sets the row of an agent. The order on the screen changes only at the next call of `sort`.
    pub fn note(&mut self, name: &AgentName, known: AgentRow) {
        if let Some(at) = self.find(name) {
            self.agents[at].1 = known;
        }
    }

    /// Sorts the shown agents, those that need attention first.
    pub fn sort(&mut self) {
        let filter = self.filter.to_lowercase();
        let is_shown = |(name, known): &(AgentName, AgentRow)| {
            let posture = known.row().map_or("", |line| line.posture.words());
            name.as_str().contains(&filter) || posture.contains(&filter)
        };
        self.order = (0..self.agents.len()).filter(|at| is_shown(&self.agents[*at])).collect();
        self.order.sort_by_key(|at| !self.agents[*at].1.needs_attention());
    }

    pub fn filter(&self) -> &str {
        &self.filter
    }

    pub fn filter_by(&mut self, filter: String) {
        self.filter = filter;
        self.sort();
    }

    /// Number of shown agents.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the shown agents from the index `at` on.
    pub fn from(&self, at: usize) -> impl Iterator<Item = (&AgentName, &AgentRow)> {
        self.order.iter().skip(at).map(|at| (&self.agents[*at].0, &self.agents[*at].1))
    }

    /// Returns the index of an agent among the shown agents.
    pub fn place(&self, name: &AgentName) -> Option<usize> {
        let at = self.find(name)?;
        self.order.iter().position(|shown| *shown == at)
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts { agents: self.agents.len(), ..Counts::default() };
        for (_, known) in &self.agents {
            counts.to_look_at += usize::from(known.needs_attention());
            match known {
                AgentRow::Unread => counts.unread += 1,
                AgentRow::Read(line) => {
                    counts.at_work += usize::from(line.posture == Posture::ActiveTurn);
                    counts.pending += line.pending;
                }
                AgentRow::Broken(_) => {}
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(fleet: &Fleet) -> Vec<String> {
        fleet.from(0).map(|(name, _)| name.to_string()).collect()
    }

    fn names(words: &[&str]) -> Vec<AgentName> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    #[test]
    fn broken_agents_are_first_and_names_are_in_natural_order() {
        let mut fleet = Fleet::default();
        assert_eq!(fleet.list(names(&["a10", "a2", "b"])).len(), 3);
        assert_eq!(shown(&fleet), ["a2", "a10", "b"]);
        fleet.note(&"b".parse().unwrap(), AgentRow::Broken("torn".to_owned()));
        fleet.sort();
        assert_eq!(shown(&fleet), ["b", "a2", "a10"]);
        assert_eq!(fleet.place(&"a10".parse().unwrap()), Some(2));
        assert_eq!(fleet.counts(), Counts { agents: 3, unread: 2, to_look_at: 1, ..Counts::default() });
        assert_eq!(fleet.list(names(&["a1", "a10", "b"])), names(&["a1"]), "only that one is new");
        assert_eq!(shown(&fleet), ["b", "a1", "a10"], "what is known of the others stays");
        fleet.filter_by("A1".to_owned());
        assert_eq!(shown(&fleet), ["a1", "a10"]);
        assert_eq!((fleet.len(), fleet.place(&"b".parse().unwrap())), (2, None));
    }
}
