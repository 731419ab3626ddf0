//! Order of agents in one tick: the more urgent agent comes first, and of equals the one with the
//! longer wait. Waiting makes an agent more urgent, so that no agent waits for ever.

use std::cmp::Reverse;

use crate::model::id::{AgentName, RunId};
use crate::model::policy::SchedulingPolicy;
use crate::model::time::{Span, Time};

/// Waiting time that lowers the priority number of an agent with due work by 1. After 39 minutes
/// the least urgent agent (20) is as urgent as the most urgent agent (-19).
const AGING: Span = Span::from_secs(60);

/// Urgency of an agent; of several agents, the one with the smallest rank is stepped first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Priority of the agent, reduced by its waiting time; a smaller number is more urgent.
    pub effective: i64,
    waiting: Reverse<Span>,
}

/// Returns the rank of an agent. `since` is the arrival time of its oldest work that can be done
/// now; `None` without such work.
pub fn rank(policy: &SchedulingPolicy, since: Option<Time>, now: Time) -> Rank {
    let waiting = since.map_or(Span::ZERO, |since| now.since(since));
    let aged = i64::try_from(waiting.as_millis() / AGING.as_millis()).unwrap_or(i64::MAX);
    let effective =
        i64::from(policy.priority).saturating_sub(aged).max(i64::from(SchedulingPolicy::MOST_URGENT));
    Rank { effective, waiting: Reverse(waiting) }
}

/// Returns the agent that a machine steps next, among agents with work.
///
/// `machines` is the number of machines that step the same agents. If all machines started with the
/// most urgent agent, only one would find it free. So each machine draws at random among as many
/// agents as there are machines, all with the most urgent effective priority. `chance` is at least
/// 0 and below 1.
pub fn next_of<A>(agents: impl Iterator<Item = (A, Rank)>, machines: usize, chance: f64) -> Option<A> {
    let mut agents: Vec<(A, Rank)> = agents.collect();
    agents.sort_by_key(|(_, rank)| *rank);
    let most_urgent = agents.first()?.1.effective;
    let equal = agents.iter().take(machines).take_while(|(_, rank)| rank.effective == most_urgent).count();
    let drawn = (chance * equal as f64) as usize;
    (drawn < agents.len()).then(|| agents.swap_remove(drawn).0)
}

/// Running turn of an agent, which may occupy a resource for which another agent waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupying {
    pub agent: AgentName,
    pub run_id: RunId,
    /// Priority in `agent.toml`, whatever the waiting time. If waiting counted, two agents would
    /// take the resource from each other again and again.
    pub priority: i32,
    pub claimed_at: Time,
    /// Agent for which the turn was asked to release a resource.
    pub asked_by: Option<AgentName>,
    /// True if the turn is about to end, and so to release its resources, for any reason.
    pub leaves: bool,
}

/// Returns the turn that should release a resource to `agent`, which lacks it: of the turns whose
/// priority number is higher by `margin` or more, the least urgent, and of equals the latest.
/// `None` if there is no such turn, or if a turn was already asked for this agent.
pub fn to_make_way<'a>(
    agent: &AgentName,
    priority: i32,
    margin: u32,
    turns: &'a [Occupying],
) -> Option<&'a Occupying> {
    if turns.iter().any(|turn| turn.asked_by.as_ref() == Some(agent)) {
        return None;
    }
    let is_less_urgent =
        |turn: &&Occupying| i64::from(turn.priority) - i64::from(priority) >= i64::from(margin);
    least_urgent(turns.iter().filter(|turn| turn.agent != *agent && !turn.leaves).filter(is_less_urgent))
}

/// Returns the turn that yields first on a machine that is low on memory or disk. `None` while
/// another turn is about to end, because its end may free enough.
pub fn first_to_go(turns: &[Occupying]) -> Option<&Occupying> {
    if turns.iter().any(|turn| turn.leaves) { None } else { least_urgent(turns.iter()) }
}

/// Returns the least urgent turn, and among equals the latest.
fn least_urgent<'a>(turns: impl Iterator<Item = &'a Occupying>) -> Option<&'a Occupying> {
    turns.max_by_key(|turn| (turn.priority, turn.claimed_at, turn.run_id))
}
