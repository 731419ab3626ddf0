//! Hearing of changes: a process that waits has a row for each of its agents, and a process that
//! commits a change of an agent sends a word to the channels of its rows, in the flight of that
//! commit.
//!
//! A commit that sends a word waits for all others that send one, in the whole server. So a word is
//! sent only where a row says that a process waits. Nothing depends on words: a commit that is
//! under way when a row is written sends none, and a connection may break. The row of a process
//! that was killed counts for a while.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::model::id::AgentName;

use super::super::elsewhere::Ear;
use super::faults::Trouble;
use super::shared::{Shared, first, number};
use super::sql;
use super::wire::Connection;

/// How long a row counts, in milliseconds by the server's clock, and when it is written again.
const LASTS: u64 = 45_000;
const RENEWED: Duration = Duration::from_secs(15);

/// How long a connection and an answer are waited for: a process that waits for an agent has to
/// look at it meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long nothing is tried after the server could not be reached.
const AGAIN: Duration = Duration::from_secs(5);

/// How many rows of processes that are gone are removed at once.
const REMOVED: usize = 1000;

/// A statement that sends a word to the processes that wait for a change of an agent, with the
/// commit that follows. Where there are none it is one probe of an index.
pub fn tell(schema: &str, agent: i64) -> String {
    format!("SELECT {};", told(schema, agent))
}

/// What such a statement selects. `agent`: the number of the agent, or what stands for it.
pub fn told(schema: &str, agent: impl Display) -> String {
    // A server that has too many words which a session does not fetch refuses the next one, and its
    // commit along with it.
    format!(
        "pg_notify(w.channel, '') FROM {schema}.watcher w \
         WHERE w.agent_id = {agent} AND w.until > {now} AND pg_notification_queue_usage() < 0.5",
        now = sql::SERVER_NOW
    )
}

/// The ear of a process.
#[derive(Debug)]
pub struct Listener {
    shared: Rc<Shared>,
    standing: Standing,
}

#[derive(Debug)]
enum Standing {
    /// No connection is open. From this moment on another one is tried.
    Away(Option<Instant>),
    Listens(Box<Line>),
    /// No word will ever come, so nothing is tried any more.
    Deaf,
}

/// A connection that is in no transaction and does nothing but listen.
#[derive(Debug)]
struct Line {
    connection: Connection,
    channel: String,
    /// How many agents were named, and the numbers of those that are there.
    named: usize,
    agents: Vec<String>,
    written_at: Instant,
    /// Whether a word has come that this process has sent by another connection.
    is_proven: bool,
}

impl Line {
    /// The channel by which this process tries whether words come.
    fn proof(&self) -> String {
        format!("{}_proof", self.channel)
    }
}

impl Listener {
    pub fn new(shared: &Rc<Shared>) -> Listener {
        Listener { shared: Rc::clone(shared), standing: Standing::Away(None) }
    }

    /// Begins to listen. `None`: there is a pooler in between.
    fn begin(&self, agents: &[AgentName]) -> Result<Option<Box<Line>>, Trouble> {
        let pool = &self.shared.pool;
        let mut connection = pool.open(PATIENCE)?;
        let asked = "SELECT pg_backend_pid(), 'dormouse_' || replace(gen_random_uuid()::text, '-', '')";
        let answers = pool.fly_within(&mut connection, asked, PATIENCE)?;
        let row = first(&answers);
        // A pooler lends its connections: the next process that has this one would get the words,
        // and go on listening.
        let is_own = connection.backend().is_some() && connection.backend() == number(row, 0);
        let Some(channel) = row.and_then(|row| row.get(1)).filter(|_| is_own) else { return Ok(None) };
        let channel = channel.to_owned();
        let line = Box::new(Line {
            connection,
            channel,
            named: 0,
            agents: Vec::new(),
            written_at: Instant::now(),
            is_proven: false,
        });
        let listens = format!("LISTEN {};LISTEN {};", line.channel, line.proof());
        self.write(line, agents, &listens).map(Some)
    }

    /// Writes the rows, for the first time or once more. `along`: other statements of that
    /// transaction.
    fn write(&self, mut line: Box<Line>, agents: &[AgentName], along: &str) -> Result<Box<Line>, Trouble> {
        let (pool, schema, now) = (&self.shared.pool, self.shared.pool.schema(), sql::SERVER_NOW);
        let names = agents.iter().map(|name| sql::text(name.as_str())).collect::<Result<Vec<_>>>()?;
        // Each process that waits removes the rows of those that are gone, so they never become
        // many.
        let written = format!(
            "BEGIN;SET LOCAL synchronous_commit = off;SET LOCAL lock_timeout = '1s';{along}\
             DELETE FROM {schema}.watcher WHERE (agent_id, channel) IN (SELECT w.agent_id, w.channel \
               FROM {schema}.watcher w WHERE w.until < {now} LIMIT {REMOVED} FOR UPDATE SKIP LOCKED);\
             INSERT INTO {schema}.watcher (agent_id, channel, until) \
               SELECT a.id, '{channel}', {now} + {LASTS} FROM {schema}.agent a WHERE a.name IN ({names}) ORDER BY a.id \
               ON CONFLICT (agent_id, channel) DO UPDATE SET until = excluded.until RETURNING agent_id;COMMIT",
            channel = line.channel,
            names = names.join(",")
        );
        let answers = pool.fly_within(&mut line.connection, &written, PATIENCE)?;
        let rows = answers.iter().flat_map(|answer| &answer.rows);
        line.agents = rows.filter_map(|row| row.get(0).map(str::to_owned)).collect();
        (line.named, line.written_at) = (agents.len(), Instant::now());
        if !line.is_proven {
            let proof = format!(
                "BEGIN;SET LOCAL synchronous_commit = off;SELECT pg_notify('{}', '');COMMIT",
                line.proof()
            );
            // By another connection: what comes back with the answer to a flight proves nothing.
            drop(pool.ask_within(&proof, PATIENCE));
        }
        Ok(line)
    }
}

impl Ear for Listener {
    fn listen(&mut self, agents: &[AgentName]) {
        let told = match std::mem::replace(&mut self.standing, Standing::Deaf) {
            Standing::Deaf => return,
            Standing::Away(until) if until.is_some_and(|until| Instant::now() < until) => {
                self.standing = Standing::Away(until);
                return;
            }
            Standing::Listens(line) if line.named == agents.len() && line.written_at.elapsed() < RENEWED => {
                self.standing = Standing::Listens(line);
                return;
            }
            Standing::Away(_) => self.begin(agents),
            Standing::Listens(line) => self.write(line, agents, "").map(Some),
        };
        self.standing = match told {
            Ok(Some(line)) => Standing::Listens(line),
            Ok(None) => Standing::Deaf,
            Err(
                Trouble::Lost { .. }
                | Trouble::Unreachable(_)
                | Trouble::Locked
                | Trouble::Taken(_)
                | Trouble::Crossed(_),
            ) => Standing::Away(Instant::now().checked_add(AGAIN)),
            // This role may not write rows, or this server takes no changes.
            Err(Trouble::Refused { .. } | Trouble::Other(_)) => Standing::Deaf,
        };
    }

    fn is_sure(&self) -> bool {
        matches!(&self.standing, Standing::Listens(line) if line.is_proven)
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        match &self.standing {
            Standing::Listens(line) => Some(line.connection.as_fd()),
            Standing::Away(_) | Standing::Deaf => None,
        }
    }

    fn has_heard(&mut self) -> bool {
        let Standing::Listens(line) = &mut self.standing else { return false };
        if let Ok(told) = line.connection.notified(Duration::ZERO) {
            let proof = line.proof();
            line.is_proven |= told.contains(&proof);
            return told.contains(&line.channel);
        }
        // What was sent meanwhile is lost with the connection. Another one is tried at once.
        self.standing = Standing::Away(None);
        true
    }
}

impl Drop for Listener {
    /// Takes the rows back. Where that fails they count for a while, and the next process that
    /// waits removes them.
    fn drop(&mut self) {
        let Standing::Listens(line) = &mut self.standing else { return };
        if line.agents.is_empty() {
            return;
        }
        let pool = &self.shared.pool;
        let removed = format!(
            "BEGIN;SET LOCAL synchronous_commit = off;SET LOCAL lock_timeout = '1s';\
             DELETE FROM {}.watcher WHERE agent_id IN ({}) AND channel = '{}';COMMIT",
            pool.schema(),
            line.agents.join(","),
            line.channel
        );
        drop(pool.fly_within(&mut line.connection, &removed, PATIENCE));
    }
}
