//! Checks of `doctor` for a database: durability of acknowledged changes, and integrity of the
//! tables.

use uuid::Uuid;

use crate::error::Result;
use crate::model::time::{Span, Time};

use super::super::backend::StoreFault;
use super::pool::ConnectionPool;
use super::tables::{FUNCTIONS, Rows, TABLES, Table};
use super::wire::{Row, Statement};

/// Maximum tolerated difference between the clocks of this machine and the server, in milliseconds.
/// A larger difference only misleads people who compare times.
const SKEW: i64 = 1000;

/// Settings and state that a server reports.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    pub fsync: String,
    pub full_page_writes: String,
    pub synchronous_commit: String,
    /// Number of standby servers that replicate this server.
    pub followers: u64,
    /// True if `synchronous_standby_names` names standby servers for which a commit may wait.
    pub waits: bool,
    pub is_standby: bool,
    /// Time of the server's clock, in milliseconds since 1970.
    pub now: i64,
}

impl ServerFacts {
    /// True if a commit is acknowledged only after a standby server has received it. With
    /// `synchronous_commit` at `local` or `off`, a commit does not wait for standby servers.
    fn waits_for_followers(&self) -> bool {
        self.waits && !matches!(self.synchronous_commit.as_str(), "local" | "off")
    }
}

/// Returns the faults of a server with these facts. The query was sent at `asked` and answered
/// `took` milliseconds later.
pub fn server_faults(facts: &ServerFacts, asked: i64, took: i64) -> Vec<StoreFault> {
    let mut faults = Vec::new();
    let mut find = |kind, is_warning, message: String| faults.push(StoreFault { kind, message, is_warning });
    for (name, value) in [("fsync", &facts.fsync), ("synchronous_commit", &facts.synchronous_commit)] {
        if value == "off" {
            let message = format!("`{name}` is off: a power cut loses acknowledged changes");
            find("not_durable", false, message);
        }
    }
    if facts.full_page_writes == "off" {
        let message = "`full_page_writes` is off: a power cut may damage stored pages";
        find("not_durable", true, message.to_owned());
    }
    if facts.is_standby {
        find("standby", false, "this server follows another one, and takes no changes".to_owned());
    } else if facts.followers > 0 && !facts.waits_for_followers() {
        let message = "its standby servers follow later: a failover loses the last acknowledged messages";
        find("asynchronous_replication", true, message.to_owned());
    }
    // The server read its clock during the round trip, so the trip's duration is subtracted.
    let apart = (facts.now - asked).max(0) - took;
    let behind = asked - facts.now;
    if apart > SKEW || behind > SKEW {
        let seconds = apart.max(behind) as f64 / 1000.0;
        let message = format!("the clocks of this machine and the server are {seconds:.1} s apart");
        find("clock_skew", true, message);
    }
    faults
}

/// Returns the faults of the server and of the store; if `is_quick`, only after cheap checks.
pub fn faults(
    pool: &ConnectionPool,
    now: Time,
    overdue_after: Option<Span>,
    is_quick: bool,
) -> Result<Vec<StoreFault>> {
    let begun = std::time::Instant::now();
    let answer = pool.ask_one(Statement::new(
        "SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), \
         (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names') <> '', \
         pg_is_in_recovery(), @now",
    ))?;
    let took = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
    let row = answer.first();
    let text = |column: usize| row.and_then(|row| row.text(column)).unwrap_or_default();
    let facts = ServerFacts {
        fsync: text(0),
        full_page_writes: text(1),
        synchronous_commit: text(2),
        followers: text(3).parse().unwrap_or(0),
        waits: text(4) == "t",
        is_standby: text(5) == "t",
        now: text(6).parse().map_err(|_| pool.unexpected("its clock"))?,
    };
    let mut faults = server_faults(&facts, now.as_millis(), took);
    let missing = missing(pool)?;
    let is_whole = missing.is_empty();
    faults.extend(missing);
    if is_whole && !is_quick {
        faults.extend(orphans(pool)?);
        if let Some(after) = overdue_after {
            faults.extend(unticked_pools(pool, now, after)?);
        }
        faults.extend(shared_owners(pool)?);
        faults.extend(damaged_agents(pool)?);
    }
    Ok(faults)
}

/// Returns a fault for each missing table or function.
fn missing(pool: &ConnectionPool) -> Result<Vec<StoreFault>> {
    let tables = TABLES.iter().map(|table| table.name).chain(["archive_default", "event_default"]);
    let tables: Vec<String> = tables.map(str::to_owned).collect();
    let functions = FUNCTIONS.map(str::to_owned).to_vec();
    let asked = Statement::new(
        "SELECT 'the table `' || t.name || '`' FROM unnest($1::text[]) WITH ORDINALITY t (name, place) \
         WHERE to_regclass('@.' || t.name) IS NULL \
         UNION ALL SELECT 'the function `' || f.name || '`' FROM unnest($2::text[]) WITH ORDINALITY f (name, place) \
         WHERE to_regproc('@.' || f.name) IS NULL",
    );
    found(pool, "no_table", asked.with(tables).with(functions), |row| {
        Some(format!("{} is missing: bring it back from a backup", row.get(0)?))
    })
}

/// Returns a fault for each row of the query `asked`. `message`: makes the fault's text from a row.
fn found(
    pool: &ConnectionPool,
    kind: &'static str,
    asked: Statement,
    message: impl Fn(&Row) -> Option<String>,
) -> Result<Vec<StoreFault>> {
    let rows = pool.ask_one(asked)?;
    let messages = rows.iter().filter_map(message);
    Ok(messages.map(|message| StoreFault { kind, message, is_warning: false }).collect())
}

/// Returns a fault for each table that has rows of agents that do not exist.
fn orphans(pool: &ConnectionPool) -> Result<Vec<StoreFault>> {
    let counted: Vec<String> = TABLES
        .iter()
        .filter(|table| table.rows != Rows::Store)
        .map(|Table { name: table, .. }| {
            format!(
                "SELECT '{table}', count(*) FROM @.{table} t \
                 WHERE NOT EXISTS (SELECT FROM @.agent a WHERE a.id = t.agent_id) HAVING count(*) > 0"
            )
        })
        .collect();
    found(pool, "orphans", Statement::new(counted.join(" UNION ALL ")), |row| {
        Some(format!("{} rows of the table `{}` belong to no agent", row.get(1)?, row.get(0)?))
    })
}

/// Milliseconds of a minute.
const MINUTE: u64 = 60_000;

/// Returns a fault for each pool, a named group of agents, in which agents have been due for longer
/// than `after`, if no machine has ticked the pool during that time.
fn unticked_pools(pool: &ConnectionPool, now: Time, after: Span) -> Result<Vec<StoreFault>> {
    let overdue = i64::try_from(after.as_std().as_millis()).unwrap_or(i64::MAX);
    let before = Time::from_millis(now.as_millis().saturating_sub(overdue));
    // Ids begin with their creation time: messages with lower ids arrived before that time.
    let least_id = Uuid::from_u128(u128::from(u64::try_from(before.as_millis()).unwrap_or(0)) << 80);
    // Counts overdue agents without a live lease. An immediate step has a due time far in the past,
    // so the state's age is compared, too. The state is searched as text, because JSON operators
    // fail on `\u0000`. A machine that ticks an agent by name leaves no trace but the lease.
    let asked = Statement::new(
        r#"SELECT w.pool, count(*), (SELECT @now - max(n.seen_at) FROM @.anchor n WHERE w.pool = ANY (n.pools)) AS since
           FROM (SELECT a.pool, a.id FROM @.agent a JOIN @.state s ON s.agent_id = a.id
             WHERE substring(s.body::text FROM '"status": "([a-z_]+)"') NOT IN ('booting', 'stopped') AND NOT a.is_shut
               AND (substring(s.body::text FROM '"execution": {\s*"state": "[a-z_]+",\s*"since": "([^"]+)"') < $1
                    AND EXISTS (SELECT FROM @.due d WHERE d.agent_id = a.id AND d.due_at < $2)
                 OR EXISTS (SELECT FROM @.inbox i WHERE i.agent_id = a.id AND i.id < $3))) w
           WHERE NOT EXISTS (SELECT FROM @.lease l WHERE l.agent_id = w.id AND l.expires_at > @now)
           GROUP BY w.pool ORDER BY w.pool"#,
    );
    let answer = pool.ask_one(asked.with(before.to_string()).with(before.as_millis()).with(least_id))?;
    let mut faults = Vec::new();
    for row in &answer {
        let (Some(name), Some(count)) = (row.get(0), row.number::<u64>(1)) else {
            return Err(pool.unexpected("who waits for a machine"));
        };
        let since: Option<i64> = row.number(2);
        let minutes = |since: i64| Span::from_secs(since.unsigned_abs() / MINUTE * 60);
        let whose = if name.is_empty() { "the common pool".to_owned() } else { format!("pool `{name}`") };
        let who = if count == 1 { "an agent".to_owned() } else { format!("{count} agents") };
        let seen = match since {
            Some(since) if since < overdue => continue,
            Some(since) => format!("no machine has ticked it for {}", minutes(since)),
            None => "no machine has ever ticked it".to_owned(),
        };
        let message =
            format!("{who} of {whose} waited for more than {after}, and {seen}: `dormouse tick --all` does");
        faults.push(StoreFault { kind: "nobody_ticks", message, is_warning: true });
    }
    Ok(faults)
}

/// Returns a fault for each owner id (of a state directory) that two machines share: each machine
/// takes live turns of the other for its own dead turns, and ends them.
fn shared_owners(pool: &ConnectionPool) -> Result<Vec<StoreFault>> {
    let asked = Statement::new(
        "SELECT o.id, string_agg(DISTINCT o.host, ', ' ORDER BY o.host) FROM \
         (SELECT anchor AS id, host FROM @.lease UNION SELECT id, host FROM @.anchor) o \
         GROUP BY o.id HAVING count(DISTINCT o.host) > 1 ORDER BY o.id",
    );
    found(pool, "one_owner", asked, |row| {
        Some(format!(
            "the machines {} own their leases as one ({}), and end each other's turns: remove the file `owner-*` from the \
             state directory of each but one",
            row.get(1)?,
            row.get(0)?
        ))
    })
}

/// Returns a fault for each agent that commands can't find, or whose inbox is closed although the
/// agent is not marked as moved. Commands for other agents ignore such agents.
fn damaged_agents(pool: &ConnectionPool) -> Result<Vec<StoreFault>> {
    let such = |what: &str, condition: &str| {
        format!(
            "SELECT a.name, '{what}' FROM @.agent a LEFT JOIN @.state s ON s.agent_id = a.id WHERE {condition}"
        )
    };
    let asked = [
        such(
            "has a name that no agent can have",
            "a.name !~ '^[a-z0-9][a-z0-9._-]*$' OR strpos(a.name, '..') > 0",
        ),
        such("has no row in the table `state`", "s.agent_id IS NULL"),
        such(
            "takes nothing in (`is_shut`), though its state says of no move",
            "a.is_shut AND strpos(s.body::text, '\"moved\"') = 0",
        ),
    ];
    found(pool, "damaged", Statement::new(asked.join(" UNION ALL ")), |row| {
        Some(format!("`{}` in the table `agent` {}", row.get(0)?.escape_debug(), row.get(1)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_790_000_000_000;

    fn good() -> ServerFacts {
        let on = "on".to_owned();
        ServerFacts {
            fsync: on.clone(),
            full_page_writes: on.clone(),
            synchronous_commit: on,
            now: NOON + 3,
            ..ServerFacts::default()
        }
    }

    #[test]
    fn unsafe_settings_and_clock_skew_of_a_server_are_reported() {
        let off = || "off".to_owned();
        let local = || "local".to_owned();
        let rows: [(ServerFacts, &[(&str, bool)]); 12] = [
            (good(), &[]),
            (ServerFacts { fsync: off(), ..good() }, &[("not_durable", false)]),
            (ServerFacts { synchronous_commit: off(), ..good() }, &[("not_durable", false)]),
            (ServerFacts { synchronous_commit: local(), ..good() }, &[]),
            (ServerFacts { full_page_writes: off(), ..good() }, &[("not_durable", true)]),
            (ServerFacts { followers: 1, ..good() }, &[("asynchronous_replication", true)]),
            (ServerFacts { followers: 1, waits: true, ..good() }, &[]),
            (
                ServerFacts {
                    followers: 1,
                    waits: true,
                    synchronous_commit: "remote_write".to_owned(),
                    ..good()
                },
                &[],
            ),
            (
                ServerFacts { followers: 1, waits: true, synchronous_commit: local(), ..good() },
                &[("asynchronous_replication", true)],
            ),
            (ServerFacts { is_standby: true, ..good() }, &[("standby", false)]),
            (ServerFacts { now: NOON + 1100, ..good() }, &[("clock_skew", true)]),
            (ServerFacts { now: NOON - 1001, ..good() }, &[("clock_skew", true)]),
        ];
        for (facts, expected) in rows {
            let found = server_faults(&facts, NOON, 20);
            let found: Vec<(&str, bool)> = found.iter().map(|fault| (fault.kind, fault.is_warning)).collect();
            assert_eq!(found, expected, "{facts:?}");
        }
        // A slow answer is not mistaken for a wrong clock.
        assert_eq!(server_faults(&ServerFacts { now: NOON + 5000, ..good() }, NOON, 9000), []);
    }
}
