//! Stream of the complete data of an agent, with rows of only one round trip in memory.

use crate::error::Result;
use crate::model::preemption::Checkpoint;
use crate::model::time::Time;
use crate::workdir;

use super::super::backend::{ENDED, EachOp, ImportedFile, Op};
use super::super::dir::archive;
use super::context::AgentContext;
use super::read_view::PgReadView;
use super::sql;
use super::wire::{Row, Statement, Value};

/// Number of rows per round trip. Most records are smaller than a kilobyte, the largest have a
/// megabyte.
const AT_ONCE: usize = 64;

/// Passes the files of the last import to `each`.
pub fn files(seen: &PgReadView, each: &mut dyn FnMut(ImportedFile) -> Result<()>) -> Result<()> {
    let files = PagedQuery {
        sql: "SELECT f.path, f.written_at, f.digest FROM @.file f WHERE f.agent_id = $1 AND f.path > $2 ORDER BY f.path",
        first: &[""],
        marks: &[0],
        values: Vec::new(),
    };
    let unexpected = || seen.one.shared.pool.unexpected("a file");
    files.each(&seen.one, &mut |row| each(brought(row).ok_or_else(unexpected)?))
}

/// Passes the work items that have plans, and their plans, to `each`.
pub fn plans(seen: &PgReadView, each: &mut dyn FnMut(String, String) -> Result<()>) -> Result<()> {
    let plans = PagedQuery {
        sql: "SELECT p.id, encode(p.body, 'hex') FROM @.plan p WHERE p.agent_id = $1 AND p.id > $2 ORDER BY p.id",
        first: &[""],
        marks: &[0],
        values: Vec::new(),
    };
    plans.each(&seen.one, &mut |row| {
        let text = row.get(1).and_then(sql::text_of_hex);
        each(row.text(0).unwrap_or_default(), text.ok_or_else(|| seen.one.shared.pool.unexpected("a plan"))?)
    })
}

/// Returns the stored checkpoints.
pub fn checkpoints(one: &AgentContext) -> Result<Vec<Checkpoint>> {
    let asked = Statement::new(
        "SELECT b.subject, b.name FROM @.blob b WHERE b.agent_id = $1 AND b.part = 0 ORDER BY 1, 2",
    );
    let named = |row: &Row| workdir::checkpoint_named(row.get(0)?.parse().ok()?, row.get(1)?);
    let unexpected = || one.shared.pool.unexpected("a checkpoint");
    one.ask(asked.with(one.id))?.iter().map(|row| named(row).ok_or_else(unexpected)).collect()
}

/// Passes the archive lines and events of this revision to `each`. `before`: only lines from before
/// this time, without the summaries of removed months ([`ENDED`]).
pub fn lines(seen: &PgReadView, before: Option<Time>, each: &mut EachOp<'_>) -> Result<()> {
    let one = &seen.one;
    let unexpected = |what: &str| one.shared.pool.unexpected(what);
    let before = before.map(Time::as_millis);
    let archive = PagedQuery {
        sql: "SELECT t.kind, t.id, t.at, t.body, t.seq FROM @.archive t \
              WHERE t.agent_id = $1 AND (t.kind, t.seq) > ($2, $3::bigint) AND t.revision <= $4 \
              AND ($5::bigint IS NULL OR t.at < $5 AND t.kind <> $6::text) ORDER BY t.kind, t.seq",
        first: &["", "0"],
        marks: &[0, 4],
        values: vec![seen.seen_at.into(), before.into(), ENDED.into()],
    };
    archive.each(one, &mut |row| each(ended(row).ok_or_else(|| unexpected("a line of the archive"))?))?;
    let events = PagedQuery {
        sql: "SELECT t.number, t.at, t.body, t.seq FROM @.event t \
              WHERE t.agent_id = $1 AND t.seq > $2 AND t.revision <= $3 AND ($4::bigint IS NULL OR t.at < $4) ORDER BY t.seq",
        first: &["0"],
        marks: &[3],
        values: vec![seen.seen_at.into(), before.into()],
    };
    events.each(one, &mut |row| each(event(row).ok_or_else(|| unexpected("an event"))?))?;
    if one.revision()? == Some(seen.seen_at) { Ok(()) } else { seen.changed() }
}

/// Query whose rows are read in pages. Its parameters are the agent, the position after which a
/// page begins, and `values`.
struct PagedQuery {
    sql: &'static str,
    /// Position of the first page.
    first: &'static [&'static str],
    /// Columns that contain the position of a row.
    marks: &'static [usize],
    values: Vec<Value>,
}

impl PagedQuery {
    fn each(&self, one: &AgentContext, each: &mut dyn FnMut(&Row) -> Result<()>) -> Result<()> {
        let mut after: Vec<Option<String>> = self.first.iter().map(|text| Some((*text).to_owned())).collect();
        loop {
            let asked = Statement::new(format!("{} LIMIT {AT_ONCE}", self.sql)).with(one.id);
            let asked = after.iter().cloned().fold(asked, Statement::with);
            let rows = one.ask(self.values.iter().cloned().fold(asked, Statement::with))?;
            rows.iter().try_for_each(&mut *each)?;
            let Some(last) = rows.last().filter(|_| rows.len() == AT_ONCE) else { return Ok(()) };
            after = self.marks.iter().map(|column| last.text(*column)).collect();
        }
    }
}

/// Returns a part of a checkpoint; `None` if the part does not exist.
pub fn saved_part(one: &AgentContext, checkpoint: Checkpoint, part: u32) -> Result<Option<Vec<u8>>> {
    let asked = Statement::new(
        "SELECT encode(b.bytes, 'hex') FROM @.blob b WHERE b.agent_id = $1 AND b.subject = $2 AND b.name = $3 AND b.part = $4",
    );
    let (run, name) = (checkpoint.run_id.to_string(), workdir::name_of(checkpoint));
    let answer = one.ask(asked.with(one.id).with(run).with(name).with(part))?;
    let Some(hex) = answer.first().and_then(|row| row.get(0)) else { return Ok(None) };
    let bytes = sql::bytes_of_hex(hex).ok_or_else(|| one.shared.pool.unexpected("a checkpoint"))?;
    Ok(Some(bytes))
}

fn brought(row: &Row) -> Option<ImportedFile> {
    Some(ImportedFile { path: row.text(0)?, written_at: row.number(1)?, digest: row.text(2)? })
}

fn ended(row: &Row) -> Option<Op> {
    Some(Op::Ended {
        kind: archive::kind(row.get(0)?)?,
        id: row.text(1),
        at: Time::from_millis(row.number(2)?),
        text: row.text(3)?,
    })
}

fn event(row: &Row) -> Option<Op> {
    Some(Op::Event { seq: row.number(0)?, at: Time::from_millis(row.number(1)?), text: row.text(2)? })
}
