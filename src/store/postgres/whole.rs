//! Stream of everything that an agent consists of, with the rows of only one round trip in memory.

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::MessageId;
use crate::model::message::InboxKey;
use crate::model::preemption::Checkpoint;
use crate::model::time::Time;
use crate::workdir;

use super::super::dir::archive;
use super::super::elsewhere::{Arrival, ImportedFile, Op};
use super::super::settings::Settings;
use super::shared::{One, number};
use super::sight::{PgReadView, key};
use super::wire::Row;
use super::{said, sql};

/// Number of rows per round trip. Most records have less than a kilobyte, the largest ones a
/// megabyte.
const AT_ONCE: usize = 64;

/// Passes the pieces of this revision to `each`, perhaps with arrivals that are newer than it.
pub fn pieces(seen: &PgReadView, each: &mut dyn FnMut(Op) -> Result<()>) -> Result<()> {
    let one = &seen.one;
    let (schema, agent) = (one.schema(), one.id);
    let unexpected = |what: &str| one.shared.pool.unexpected(what);
    let rows = one.ask(&format!("SELECT is_shut FROM {schema}.agent WHERE id = {agent}"))?;
    let is_shut = rows.first().and_then(|answer| answer.rows.first()).ok_or_else(|| one.gone())?;
    let page = |after: &str| {
        format!(
            "SELECT f.path, f.written_at, f.digest, quote_literal(f.path) FROM {schema}.file f \
             WHERE f.agent_id = {agent} AND f.path > {after} ORDER BY f.path"
        )
    };
    paged(seen, "''", page, 3, &mut |row| {
        let brought = brought(row).ok_or_else(|| unexpected("a file"))?;
        each(Op::File(brought))
    })?;
    each(Op::Identity(one.identity.borrow().clone()))?;
    each(Op::Policy(Settings::of(one.policy.borrow().clone())))?;
    // The destination computes the due time from the state.
    each(Op::State { revision: seen.seen_at, due: None, text: seen.state.clone() })?;
    each(Op::Shut(is_shut.get(0) == Some("t")))?;
    for ((plane, id), text) in &seen.open {
        each(Op::Open { plane: *plane, id: id.clone(), text: text.clone() })?;
    }
    paged(
        seen,
        "",
        |after| {
            format!(
                "SELECT p.id, encode(p.body, 'hex'), quote_literal(p.id) FROM {schema}.plan p WHERE p.agent_id = {agent} \
             {} ORDER BY p.id",
                if after.is_empty() { String::new() } else { format!("AND p.id > {after}") }
            )
        },
        2,
        &mut |row| {
            let text = row.get(1).and_then(sql::text_of_hex).ok_or_else(|| unexpected("a plan"))?;
            each(Op::Plan { work: row.get(0).unwrap_or_default().to_owned(), text })
        },
    )?;
    paged(
        seen,
        "(-2, '00000000-0000-0000-0000-000000000000')",
        |after| {
            format!(
                "SELECT i.prio, i.id, i.body, i.by, format('(%s, %L::uuid)', i.prio, i.id) FROM {schema}.inbox i \
             WHERE i.agent_id = {agent} AND (i.prio, i.id) > {after} ORDER BY i.prio, i.id"
            )
        },
        4,
        &mut |row| {
            let arrival = arrival(row).ok_or_else(|| unexpected("an arrival"))?;
            each(Op::Arrived(arrival))
        },
    )?;
    let mut parts = Vec::new();
    let page = |after: &str| {
        format!(
            "SELECT b.subject, b.name, b.part, format('(%L, %L, %s)', b.subject, b.name, b.part) FROM {schema}.blob b \
             WHERE b.agent_id = {agent} AND (b.subject, b.name, b.part) > {after} ORDER BY b.subject, b.name, b.part"
        )
    };
    paged(seen, "('', '', 0)", page, 3, &mut |row| {
        parts.push(part(row).ok_or_else(|| unexpected("a checkpoint"))?);
        Ok(())
    })?;
    for (checkpoint, part) in parts {
        let Some(bytes) = saved_part(one, checkpoint, part)? else { return seen.changed() };
        each(Op::Saved { checkpoint, part, bytes })?;
    }
    lines(seen, "", "", each)?;
    let asked = format!("SELECT revision FROM {schema}.state WHERE agent_id = {agent}");
    let now: Option<u64> = number(one.ask(&asked)?.first().and_then(|answer| answer.rows.first()), 0);
    if now == Some(seen.seen_at) { Ok(()) } else { seen.changed() }
}

/// Passes the archive lines and events of this revision to `each`. `of_kind` and `when`: SQL
/// conditions on `t.kind` and `t.at`.
pub fn lines(
    seen: &PgReadView,
    of_kind: &str,
    when: &str,
    each: &mut dyn FnMut(Op) -> Result<()>,
) -> Result<()> {
    let one = &seen.one;
    let of_this = format!("t.agent_id = {} AND t.revision <= {}{when}", one.id, seen.seen_at);
    let (schema, unexpected) = (one.schema(), |what: &str| one.shared.pool.unexpected(what));
    let page = |after: &str| {
        format!(
            "SELECT t.kind, t.id, t.at, t.body, format('(%L, %s)', t.kind, t.seq) FROM {schema}.archive t \
             WHERE {of_this}{of_kind} AND (t.kind, t.seq) > {after} ORDER BY t.kind, t.seq"
        )
    };
    paged(seen, "('', 0)", page, 4, &mut |row| {
        let piece = ended(row).ok_or_else(|| unexpected("a line of the archive"))?;
        each(piece)
    })?;
    let page = |after: &str| {
        format!(
            "SELECT t.number, t.at, t.body, t.seq FROM {schema}.event t \
             WHERE {of_this} AND t.seq > {after} ORDER BY t.seq"
        )
    };
    paged(seen, "0", page, 3, &mut |row| {
        let piece = event(row).ok_or_else(|| unexpected("an event"))?;
        each(piece)
    })
}

/// Runs a query page by page. `first`: position before the first page. `mark`: column with the
/// position of a row, after which the next page begins.
fn paged(
    seen: &PgReadView,
    first: &str,
    page: impl Fn(&str) -> String,
    mark: usize,
    each: &mut dyn FnMut(&Row) -> Result<()>,
) -> Result<()> {
    let mut after = first.to_owned();
    loop {
        let answers = seen.one.ask(&format!("{} LIMIT {AT_ONCE}", page(&after)))?;
        let rows = answers.first().map(|answer| answer.rows.as_slice()).unwrap_or_default();
        rows.iter().try_for_each(&mut *each)?;
        match rows.last().and_then(|row| row.get(mark)) {
            Some(last) if rows.len() == AT_ONCE => last.clone_into(&mut after),
            Some(_) | None => return Ok(()),
        }
    }
}

/// Returns a part of a checkpoint, if it exists.
pub fn saved_part(one: &One, checkpoint: Checkpoint, part: u32) -> Result<Option<Vec<u8>>> {
    let answers = one.ask(&format!(
        "SELECT encode(b.bytes, 'hex') FROM {}.blob b WHERE b.agent_id = {} AND b.subject = '{}' AND b.name = '{}' \
         AND b.part = {part}",
        one.schema(),
        one.id,
        checkpoint.run_id,
        workdir::name_of(checkpoint)
    ))?;
    let Some(hex) = answers.first().and_then(|answer| answer.rows.first()).and_then(|row| row.get(0)) else {
        return Ok(None);
    };
    let bytes = sql::bytes_of_hex(hex).ok_or_else(|| one.shared.pool.unexpected("a checkpoint"))?;
    Ok(Some(bytes))
}

/// Parses the key of a checkpoint's part.
fn part(row: &Row) -> Option<(Checkpoint, u32)> {
    Some((workdir::checkpoint_named(row.get(0)?.parse().ok()?, row.get(1)?)?, number(Some(row), 2)?))
}

fn brought(row: &Row) -> Option<ImportedFile> {
    Some(ImportedFile {
        path: row.get(0)?.to_owned(),
        written_at: number(Some(row), 1)?,
        digest: row.get(2)?.to_owned(),
    })
}

fn arrival(row: &Row) -> Option<Arrival> {
    let (priority, id, text, by) = (row.get(0)?, row.get(1)?, row.get(2)?.to_owned(), row.get(3));
    if priority == super::statements::HINT {
        return Some(Arrival::Hint { id: MessageId(Uuid::parse_str(id).ok()?), text: said::hint(text, by) });
    }
    let key: InboxKey = key(priority, id)?;
    Some(Arrival::Message { key, text: said::message(text, by) })
}

fn ended(row: &Row) -> Option<Op> {
    Some(Op::Ended {
        kind: archive::kind(row.get(0)?)?,
        id: row.get(1).map(str::to_owned),
        at: Time::from_millis(row.get(2)?.parse().ok()?),
        text: row.get(3)?.to_owned(),
    })
}

fn event(row: &Row) -> Option<Op> {
    Some(Op::Event {
        seq: row.get(0)?.parse().ok()?,
        at: Time::from_millis(row.get(1)?.parse().ok()?),
        text: row.get(2)?.to_owned(),
    })
}
