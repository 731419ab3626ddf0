//! Functions of the database for what each step asks: the server plans the statements of a function once for each connection.
//!
//! The first call over a connection costs more than a plan, so only connections that are kept from step to step call them.
//! Unlike a prepared statement a function needs no session, so a pooler of transactions is no obstacle.

use crate::error::Result;
use crate::model::record::Record;
use crate::model::run::Brief;

use super::{sql, statements, watch};

/// The functions.
pub const NAMES: [&str; 5] = ["agent_of", "records_of", "last_of_kind", "last_of_ids", "tell"];

/// How many briefs come along with the records: as many as a turn is told.
pub const BRIEFS: usize = 5;

/// Makes the functions. They run with the rights of their caller.
pub fn make(schema: &str) -> String {
    // With partitions the server would go on planning each call: a plan for all values seems as dear to it.
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
         CREATE FUNCTION {schema}.last_of_kind(bigint, text, bigint, bigint) RETURNS TABLE (seq bigint, body json) {options} ROWS 8 \
           AS $$ BEGIN RETURN QUERY SELECT t.seq, t.body FROM {schema}.archive t \
             WHERE t.agent_id = $1 AND t.kind = $2 AND t.revision <= $3 ORDER BY t.seq DESC LIMIT $4; END $$;\
         CREATE FUNCTION {schema}.last_of_ids(bigint, text[], text[], bigint, bigint) RETURNS TABLE (seq bigint, body json) {options} ROWS 1 \
           AS $$ BEGIN RETURN QUERY SELECT t.seq, t.body FROM {schema}.archive t \
             WHERE t.agent_id = $1 AND t.kind = ANY ($2) AND t.id = ANY ($3) AND t.revision <= $4 ORDER BY t.seq DESC LIMIT $5; END $$;\
         CREATE FUNCTION {schema}.tell(bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM {told}; END $$;",
        told = watch::told(schema, "$1"),
        agent = statements::glance(schema, "$1"),
        records = statements::load(schema, "$1"),
        brief = Brief::KIND,
    )
}

/// What [`statements::glance`] asks.
pub fn glance(schema: &str, name: &str) -> String {
    format!("SELECT * FROM {schema}.agent_of({name})")
}

/// What [`statements::load`] asks. `with_past`: and what a claim asks next: the last briefs, at most [`BRIEFS`] (rows `b`: number and
/// text), and how the first message of the inbox has ended, if it has (rows `e`: kind and text), the newest lines first.
pub fn load(schema: &str, agent: i64, with_past: bool) -> String {
    format!("SELECT * FROM {schema}.records_of({agent}, {with_past})")
}

/// What [`watch::tell`] does.
pub fn tell(schema: &str, agent: i64) -> String {
    format!("SELECT {schema}.tell({agent});")
}

/// The newest lines of the archive that no later revision than this one wrote: number and text. `None`: no function asks that.
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
