//! Functions of the database for the queries and changes of each step: the server plans their
//! statements only once for each connection.
//!
//! The first call over a connection costs more than a plan, so only persistent connections use
//! them. Unlike a prepared statement, a function needs no session, so it works through a pooler in
//! transaction mode.

use crate::error::Result;
use crate::model::record::Record;
use crate::model::run::Brief;
use crate::model::time::Time;

use super::super::elsewhere::Op;
use super::{sql, statements, watch};

pub const NAMES: [&str; 7] =
    ["agent_of", "records_of", "hold", "last_of_kind", "last_of_ids", "change", "tell"];

/// Number of briefs that are loaded with the records: as many as a turn gets.
pub const BRIEFS: usize = 5;

/// Returns statements that create the functions, which run with the privileges of their caller.
pub fn make(schema: &str) -> String {
    // On partitioned tables the server overestimates the cost of a generic plan, and would plan
    // each call.
    let options = "LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan";
    format!(
        "CREATE FUNCTION {schema}.agent_of(text) RETURNS TABLE (id bigint, identity json, policy text, revision bigint, body json, \
             has_arrivals boolean, room text) {options} ROWS 1 AS $$ BEGIN RETURN QUERY {agent}; END $$;\
         CREATE FUNCTION {schema}.records_of(bigint, boolean) RETURNS TABLE (what text, a text, b text, c text, d text) {options} ROWS 8 \
           AS $$ BEGIN RETURN QUERY {records}; \
             IF $2 THEN \
               RETURN QUERY SELECT 'b', t.seq::text, t.body::text, NULL, NULL FROM {schema}.archive t \
                 WHERE t.agent_id = $1 AND t.kind = '{brief}' ORDER BY t.seq DESC LIMIT {BRIEFS}; \
               RETURN QUERY SELECT 'e', t.kind::text, t.body::text, NULL, NULL FROM {schema}.archive t \
                 WHERE t.agent_id = $1 AND t.id = (SELECT 'msg_' || replace(i.id::text, '-', '') FROM {schema}.inbox i \
                   WHERE i.agent_id = $1 AND i.prio >= 0 ORDER BY i.prio, i.id LIMIT 1) ORDER BY t.seq DESC; \
             END IF; END $$;\
         CREATE FUNCTION {schema}.hold(bigint, boolean) RETURNS TABLE (what text, a text, b text, c text, d text) LANGUAGE plpgsql ROWS 8 \
           AS $$ BEGIN \
             RETURN QUERY {locked} NOWAIT; \
             RETURN QUERY SELECT * FROM {schema}.records_of($1, $2); END $$;\
         CREATE FUNCTION {schema}.last_of_kind(bigint, text, bigint, bigint) RETURNS TABLE (seq bigint, body json) {options} ROWS 8 \
           AS $$ BEGIN RETURN QUERY SELECT t.seq, t.body FROM {schema}.archive t \
             WHERE t.agent_id = $1 AND t.kind = $2 AND t.revision <= $3 ORDER BY t.seq DESC LIMIT $4; END $$;\
         CREATE FUNCTION {schema}.last_of_ids(bigint, text[], text[], bigint, bigint) RETURNS TABLE (seq bigint, body json) {options} ROWS 1 \
           AS $$ BEGIN RETURN QUERY SELECT t.seq, t.body FROM {schema}.archive t \
             WHERE t.agent_id = $1 AND t.kind = ANY ($2) AND t.id = ANY ($3) AND t.revision <= $4 ORDER BY t.seq DESC LIMIT $5; END $$;\
         CREATE FUNCTION {schema}.change(agent bigint, fenced bigint, made bigint, state text, due_at bigint, prios smallint[], ids uuid[], \
             numbers bigint[], happened bigint[], events text[], kinds text[], ended bigint[], names text[], lines text[]) \
           RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
             FOR at IN 1 .. cardinality(ids) LOOP \
               DELETE FROM {schema}.inbox i WHERE i.agent_id = agent AND i.prio = prios[at] AND i.id = ids[at]; \
             END LOOP; \
             INSERT INTO {schema}.event (agent_id, number, at, revision, body) SELECT agent, n.number, n.at, made, n.body::json \
               FROM unnest(numbers, happened, events) WITH ORDINALITY n (number, at, body, place) ORDER BY n.place; \
             IF cardinality(lines) > 0 THEN \
               INSERT INTO {schema}.archive (agent_id, kind, at, revision, id, body) SELECT agent, n.kind, n.at, made, n.id, n.body::json \
                 FROM unnest(kinds, ended, names, lines) WITH ORDINALITY n (kind, at, id, body, place) ORDER BY n.place; \
             END IF; \
             UPDATE {schema}.state s SET revision = made, body = state::json, fence = coalesce(fenced, s.fence) WHERE s.agent_id = agent; \
             IF due_at IS NULL THEN \
               {not_due}; \
             ELSE \
               {due}; \
             END IF; \
             PERFORM {told_of_change}; END $$;\
         CREATE FUNCTION {schema}.tell(bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM {told}; END $$;",
        locked = statements::locked(schema, "$1"),
        due = statements::due(schema, "agent", "change.due_at"),
        not_due = statements::not_due(schema, "agent"),
        told = watch::told(schema, "$1"),
        told_of_change = watch::told(schema, "agent"),
        agent = statements::glance(schema, "$1"),
        records = statements::load(schema, "$1"),
        brief = Brief::KIND,
    )
}

/// Query with the columns of [`statements::glance`].
pub fn glance(schema: &str, name: &str) -> String {
    format!("SELECT * FROM {schema}.agent_of({name})")
}

/// Query with the rows of [`statements::load`]. `with_past`: also returns the lines that a claim
/// needs, newest first: the last [`BRIEFS`] briefs (rows `b`: number and text), and the end of the
/// first message of the inbox, if it has ended (rows `e`: kind and text).
pub fn load(schema: &str, agent: i64, with_past: bool) -> String {
    format!("SELECT * FROM {schema}.records_of({agent}, {with_past})")
}

/// Locks an agent without waiting for it and loads its records, with the rows of
/// [`statements::locked`] and [`load`]. The records are current, because each statement of a
/// volatile function sees all earlier commits.
pub fn hold(schema: &str, agent: i64, waits: u128, with_past: bool) -> String {
    let begun = statements::begin(waits);
    format!("{begun}SELECT * FROM {schema}.hold({agent}, {with_past})")
}

/// A call of the function that writes the change of a step.
#[derive(Debug)]
pub struct ChangeCall {
    function: String,
    agent: i64,
    what: String,
}

impl ChangeCall {
    /// Builds the call. `None` if the change has no new state, or pieces that the function can't
    /// write.
    pub fn of(schema: &str, agent: i64, pieces: &[Op]) -> Result<Option<ChangeCall>> {
        let mut state = None;
        let [mut prios, mut ids, mut numbers, mut happened, mut events] = [const { Vec::new() }; 5];
        let [mut kinds, mut ended, mut names, mut lines] = [const { Vec::new() }; 4];
        let at = |time: &Time| time.as_millis().to_string();
        for piece in pieces {
            match piece {
                Op::State { revision, due, text } => {
                    let due = due.as_ref().map_or_else(|| "NULL".to_owned(), at);
                    state = Some(format!("{revision},{},{due}", sql::text(text)?));
                }
                Op::Taken(key) => {
                    prios.push(key.priority.digit().to_string());
                    ids.push(sql::uuid(key.id.0));
                }
                Op::Heard(id) => {
                    prios.push(statements::HINT.to_owned());
                    ids.push(sql::uuid(id.0));
                }
                Op::Event { seq, at: happened_at, text } => {
                    numbers.push(seq.to_string());
                    happened.push(at(happened_at));
                    events.push(sql::text(text)?);
                }
                Op::Ended { kind, id, at: ended_at, text } => {
                    kinds.push(sql::text(kind)?);
                    ended.push(at(ended_at));
                    names.push(sql::optional(id.as_deref())?);
                    lines.push(sql::text(text)?);
                }
                Op::Identity(_)
                | Op::Policy(_)
                | Op::Open { .. }
                | Op::Closed { .. }
                | Op::Plan { .. }
                | Op::Shut(_)
                | Op::Arrived(_)
                | Op::Saved { .. }
                | Op::Unsaved(_)
                | Op::Room(_)
                | Op::File(_)
                | Op::Key { .. }
                | Op::TriggerKey { .. }
                | Op::Forgotten { .. } => return Ok(None),
            }
        }
        let arrays = [
            (prios, "smallint"),
            (ids, "uuid"),
            (numbers, "bigint"),
            (happened, "bigint"),
            (events, "text"),
            (kinds, "text"),
            (ended, "bigint"),
            (names, "text"),
            (lines, "text"),
        ];
        let arrays = arrays.map(|(all, of)| format!("ARRAY[{}]::{of}[]", all.join(",")));
        let what = state.map(|state| format!("{state},{}", arrays.join(",")));
        Ok(what.map(|what| ChangeCall { function: format!("{schema}.change"), agent, what }))
    }

    /// Returns the statement, which also notifies waiting commands. `fence`: the fence of the last
    /// lease that is granted with the change.
    pub fn said(&self, fence: Option<i64>) -> String {
        let fence = fence.map_or_else(|| "NULL".to_owned(), |fence| fence.to_string());
        format!("SELECT {}({},{fence},{});", self.function, self.agent, self.what)
    }
}

/// Statement with the effect of [`watch::tell`].
pub fn tell(schema: &str, agent: i64) -> String {
    format!("SELECT {schema}.tell({agent});")
}

/// Query for the newest archive lines up to this revision: number and text. `None` if no function
/// answers it.
pub fn last(
    schema: &str,
    agent: i64,
    (kinds, ids): (&[&'static str], Option<&[String]>),
    revision: u64,
    most: usize,
) -> Result<Option<String>> {
    Ok(match (kinds, ids) {
        (_, Some(ids)) => Some(format!(
            "SELECT * FROM {schema}.last_of_ids({agent}, {}, {}, {revision}, {most})",
            sql::texts(kinds)?,
            sql::texts(ids)?
        )),
        ([kind], None) => Some(format!(
            "SELECT * FROM {schema}.last_of_kind({agent}, {}, {revision}, {most})",
            sql::text(kind)?
        )),
        (_, None) => None,
    })
}
