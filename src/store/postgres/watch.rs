//! Notifications of changes: a waiting process inserts a row in `watcher` for each of its agents,
//! and a process that changes an agent notifies the channels in the agent's rows on commit.
//!
//! Commits with notifications wait for each other in the whole server, so a commit sends a
//! notification only for an agent with rows. Notifications may be lost, and no result depends on
//! them: a commit in progress when a row is inserted sends none, and connections may break. Rows of
//! killed processes expire.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::id::AgentName;

use super::super::backend::Subscription;
use super::context::StoreContext;
use super::errors::RoundTripFault;
use super::pool::Then;
use super::wire::{Connection, Statement};

/// Lifetime of a `watcher` row without renewal, in milliseconds by the server's clock.
const LIFETIME_MS: u64 = 45_000;
/// Interval at which a waiting process renews its `watcher` rows.
const RENEWAL: Duration = Duration::from_secs(15);

/// Timeout for a connection and an answer, short because the waiting process also polls its agents.
const PATIENCE: Duration = Duration::from_secs(2);

/// Delay of the next connection attempt if the server could not be reached.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Maximum number of expired rows that one process deletes at a time.
const MOST_REMOVED: usize = 1000;

/// First statement of a transaction that writes rows of `watcher`, which need no durability.
fn hasty() -> Statement {
    Statement::new(
        "SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '1s', true)",
    )
}

/// Subscription of a process to changes of agents.
#[derive(Debug)]
pub struct PgSubscription {
    shared: Rc<StoreContext>,
    state: ListenState,
}

#[derive(Debug)]
enum ListenState {
    /// No connection is open. The next attempt is at this time; `None`: immediately.
    Closed(Option<Instant>),
    Open(Box<ListenConnection>),
    /// The server does not support notifications, so no further attempt is made.
    Unsupported,
}

/// Connection that only receives notifications.
#[derive(Debug)]
struct ListenConnection {
    connection: Connection,
    channel: String,
    /// Number of watched names, including those without an agent.
    named: usize,
    /// Ids of the watched agents that exist.
    agents: Vec<String>,
    written_at: Instant,
    /// True after the arrival of a test notification from another connection of this process.
    is_proven: bool,
}

impl ListenConnection {
    /// Returns the channel of the test notification.
    fn proof(&self) -> String {
        format!("{}_proof", self.channel)
    }
}

impl PgSubscription {
    pub fn new(shared: &Rc<StoreContext>) -> PgSubscription {
        PgSubscription { shared: Rc::clone(shared), state: ListenState::Closed(None) }
    }

    /// Opens a subscription. `None` if a pooler is between this process and the server.
    fn begin(&self, agents: &[AgentName]) -> Result<Option<Box<ListenConnection>>, RoundTripFault> {
        let pool = &self.shared.pool;
        let mut connection = pool.open(PATIENCE)?;
        let asked = Statement::new(
            "SELECT pg_backend_pid(), 'dormouse_' || replace(gen_random_uuid()::text, '-', '')",
        );
        let answers = pool.send_within(&mut connection, &[asked], Then::Commit, PATIENCE)?;
        let row = answers.last().and_then(|answer| answer.first());
        // A pooler would pass this connection, with its subscription, to another process.
        let is_own =
            connection.backend().is_some() && connection.backend() == row.and_then(|row| row.number(0));
        let Some(channel) = row.and_then(|row| row.text(1)).filter(|_| is_own) else { return Ok(None) };
        let line = Box::new(ListenConnection {
            connection,
            channel,
            named: 0,
            agents: Vec::new(),
            written_at: Instant::now(),
            is_proven: false,
        });
        let listens = [line.channel.clone(), line.proof()].map(|channel| format!("LISTEN {channel}"));
        self.write(line, agents, listens.map(Statement::new).to_vec()).map(Some)
    }

    /// Inserts or renews the rows of `watcher`. `along`: other statements of the transaction.
    fn write(
        &self,
        mut line: Box<ListenConnection>,
        agents: &[AgentName],
        along: Vec<Statement>,
    ) -> Result<Box<ListenConnection>, RoundTripFault> {
        let pool = &self.shared.pool;
        let names = agents.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>();
        // Each waiting process deletes expired rows of all processes, so the table stays small.
        let removed = Statement::new(format!(
            "DELETE FROM @.watcher WHERE (agent_id, channel) IN (SELECT w.agent_id, w.channel \
               FROM @.watcher w WHERE w.until < @now LIMIT {MOST_REMOVED} FOR UPDATE SKIP LOCKED)"
        ));
        let written = Statement::new(format!(
            "INSERT INTO @.watcher (agent_id, channel, until) \
               SELECT a.id, $1, @now + {LIFETIME_MS} FROM @.agent a WHERE a.name = ANY ($2::text[]) ORDER BY a.id \
               ON CONFLICT (agent_id, channel) DO UPDATE SET until = excluded.until RETURNING agent_id"
        ));
        let mut trip = vec![hasty()];
        trip.extend(along);
        trip.extend([removed, written.with(&line.channel).with(names)]);
        let answers = pool.send_within(&mut line.connection, &trip, Then::Commit, PATIENCE)?;
        let rows = answers.last().map(Vec::as_slice).unwrap_or_default();
        line.agents = rows.iter().filter_map(|row| row.text(0)).collect();
        (line.named, line.written_at) = (agents.len(), Instant::now());
        if !line.is_proven {
            let proof = Statement::new("SELECT pg_notify($1, '')").with(line.proof());
            // Another connection sends the test, because only an asynchronous notification proves
            // that notifications arrive.
            drop(pool.ask_within(&[hasty(), proof], PATIENCE));
        }
        Ok(line)
    }
}

impl Subscription for PgSubscription {
    fn listen(&mut self, agents: &[AgentName]) {
        let told = match std::mem::replace(&mut self.state, ListenState::Unsupported) {
            ListenState::Unsupported => return,
            ListenState::Closed(until) if until.is_some_and(|until| Instant::now() < until) => {
                self.state = ListenState::Closed(until);
                return;
            }
            ListenState::Open(line) if line.named == agents.len() && line.written_at.elapsed() < RENEWAL => {
                self.state = ListenState::Open(line);
                return;
            }
            ListenState::Closed(_) => self.begin(agents),
            ListenState::Open(line) => self.write(line, agents, Vec::new()).map(Some),
        };
        self.state = match told {
            Ok(Some(line)) => ListenState::Open(line),
            Ok(None) => ListenState::Unsupported,
            Err(
                RoundTripFault::Lost { .. }
                | RoundTripFault::Unreachable(_)
                | RoundTripFault::Locked(_)
                | RoundTripFault::Crossed(_),
            ) => ListenState::Closed(Instant::now().checked_add(RETRY_DELAY)),
            // Later attempts would fail too: the role may not write, or the server is read-only.
            Err(RoundTripFault::Refused { .. } | RoundTripFault::Other(_)) => ListenState::Unsupported,
        };
    }

    fn notifies(&self) -> bool {
        matches!(&self.state, ListenState::Open(line) if line.is_proven)
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            ListenState::Open(line) => Some(line.connection.as_fd()),
            ListenState::Closed(_) | ListenState::Unsupported => None,
        }
    }

    fn was_notified(&mut self) -> bool {
        let ListenState::Open(line) = &mut self.state else { return false };
        if let Ok(told) = line.connection.notified(Duration::ZERO) {
            let proof = line.proof();
            line.is_proven |= told.contains(&proof);
            return told.contains(&line.channel);
        }
        // Notifications may have been lost with the connection, so the next attempt is immediate.
        self.state = ListenState::Closed(None);
        true
    }
}

impl Drop for PgSubscription {
    /// Deletes the rows of `watcher`. Rows that remain after an error expire.
    fn drop(&mut self) {
        let ListenState::Open(line) = &mut self.state else { return };
        if line.agents.is_empty() {
            return;
        }
        let pool = &self.shared.pool;
        let removed = Statement::new(
            "DELETE FROM @.watcher WHERE agent_id = ANY ($1::text[]::bigint[]) AND channel = $2",
        );
        let trip = [hasty(), removed.with(line.agents.clone()).with(&line.channel)];
        drop(pool.send_within(&mut line.connection, &trip, Then::Commit, PATIENCE));
    }
}
