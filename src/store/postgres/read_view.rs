//! Read view of one revision of an agent's records.
//!
//! One statement loads the most used records, and no transaction stays open. Later queries must
//! answer from the same revision: archive lines and events contain the revision that wrote them,
//! and other queries also return the current revision. If the revision has changed, such a query
//! fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use uuid::Uuid;

use crate::error::Result;
use crate::model::digest::sha256;
use crate::model::id::MessageId;
use crate::model::message::{InboxKey, Message, Priority, WakeHint};
use crate::model::record::{Plane, Record};
use crate::model::run::Brief;
use crate::model::time::Time;

use super::super::backend::{ENDED, EachLine, EachOp, KeyWindow, Op, Order, ReadView};
use super::super::dir::months;
use super::super::dir::record::{decode, encode};
use super::context::AgentContext;
use super::statements::{BRIEFS, HEAD};
use super::wire::{Row, Statement, Value};
use super::{errors, sql};

/// Maximum rows of the first page and of each later page, for a reader that may need few lines.
const LINES: [usize; 2] = [32, 512];
/// Maximum rows of each page for a copy. Most records are below a kilobyte, some have a megabyte.
const COPIED: [usize; 2] = [64, 64];

#[derive(Debug)]
pub struct PgReadView {
    pub one: Rc<AgentContext>,
    pub seen_at: u64,
    pub fence: i64,
    pub state: String,
    pub open: BTreeMap<(Plane, String), String>,
    /// Keys of the first messages in the inbox, sorted; of all messages if fewer than [`HEAD`].
    messages: Vec<InboxKey>,
    texts: RefCell<BTreeMap<InboxKey, String>>,
    pub hints: BTreeMap<MessageId, String>,
    pub leases: BTreeMap<String, LeaseRow>,
    /// Archive lines that were loaded with the records; `None` if they were not requested.
    past: Option<ArchiveQuery>,
}

/// Archive lines that a step reads to start a run for a message.
#[derive(Debug, Default)]
struct ArchiveQuery {
    /// Latest summaries by turns, with their sequence numbers, newest first.
    briefs: Vec<(i64, String)>,
    /// Kinds and texts of the archive lines about the first message in the inbox.
    ended: Vec<(String, String)>,
}

/// Row of the table `lease`.
#[derive(Debug, Clone)]
pub struct LeaseRow {
    pub fence: i64,
    pub anchor: String,
    pub is_alive: bool,
}

pub fn key(priority: &str, id: &str) -> Option<InboxKey> {
    let priority = Priority::from_digit(priority.parse().ok()?)?;
    Some(InboxKey { priority, id: MessageId(Uuid::parse_str(id).ok()?) })
}

impl PgReadView {
    /// Parses the rows of the SQL function `load`. `None` if the agent does not exist.
    pub fn read(one: &Rc<AgentContext>, rows: &[Row], with_past: bool) -> Result<Option<PgReadView>> {
        let mut seen = PgReadView {
            one: Rc::clone(one),
            seen_at: 0,
            fence: 0,
            state: String::new(),
            open: BTreeMap::new(),
            messages: Vec::new(),
            texts: RefCell::default(),
            hints: BTreeMap::new(),
            leases: BTreeMap::new(),
            past: with_past.then(ArchiveQuery::default),
        };
        let mut is_there = false;
        for row in rows {
            // A renamed agent is no longer the agent of this name.
            is_there |= row.get(0) == Some("agent") && row.get(3) == Some(one.name.as_str());
            seen.take(row).ok_or_else(|| one.shared.pool.unexpected("records"))?;
        }
        seen.messages.sort_unstable();
        Ok(is_there.then_some(seen))
    }

    fn take(&mut self, row: &Row) -> Option<()> {
        match row.get(0)? {
            "state" => {
                self.seen_at = row.number(1)?;
                self.fence = row.number(2)?;
                self.state = row.text(3)?;
            }
            "agent" => {
                self.one.policy.replace(row.text(1)?);
                self.one.identity.replace(row.text(2)?);
            }
            "open" => drop(self.open.insert((sql::plane_of(row.get(1)?)?, row.text(2)?), row.text(3)?)),
            "message" => {
                let key = key(row.get(1)?, row.get(2)?)?;
                self.messages.push(key);
                if let Some(text) = row.text(3) {
                    self.texts.get_mut().insert(key, message_of(text, row.get(4)));
                }
            }
            "hint" => {
                let id = MessageId(Uuid::parse_str(row.get(1)?).ok()?);
                let said_by = |hint: WakeHint, by: &str| Some(hint.said_by(by));
                self.hints.insert(id, sourced(row.text(2)?, row.get(3), said_by));
            }
            "brief" => self.past.as_mut()?.briefs.push((row.number(1)?, row.text(2)?)),
            "ended" => self.past.as_mut()?.ended.push((row.text(1)?, row.text(2)?)),
            "lease" => {
                let (fence, anchor) = (row.number(2)?, row.text(3)?);
                let leased = LeaseRow { fence, anchor, is_alive: row.get(4)? == "true" };
                self.leases.insert(row.text(1)?, leased);
            }
            _ => return None,
        }
        Some(())
    }

    /// Runs a query about this agent, and adds the agent's revision as the first column. Returns at
    /// least one row if the agent exists, and true if the revision is unchanged. `from`: subquery
    /// in which `s` is the row of `state`; its parameters begin with `$2`.
    fn ask(&self, from: &str, values: impl IntoIterator<Item = Value>) -> Result<(Vec<Row>, bool)> {
        let asked = Statement::new(format!(
            "SELECT s.revision, q.* FROM @.state s LEFT JOIN LATERAL ({from}) q ON true WHERE s.agent_id = $1"
        ));
        let asked = values.into_iter().fold(asked.with(self.one.id), Statement::with);
        let rows = self.one.ask(asked)?;
        let is_same = rows.first().and_then(|row| row.number(0)) == Some(self.seen_at);
        Ok((rows, is_same))
    }

    fn changed<T>(&self) -> Result<T> {
        Err(errors::changed(self.one.shared.pool.url(), self.one.name.as_str()))
    }

    /// Returns the text that a query finds for the view's revision. Error if the agent has changed.
    fn ask_text(&self, from: &str, values: impl IntoIterator<Item = Value>) -> Result<Option<String>> {
        let (rows, is_same) = self.ask(from, values)?;
        if !is_same {
            return self.changed();
        }
        Ok(rows.first().and_then(|row| row.text(1)))
    }

    /// True if `id` is the id of the first message in the inbox.
    fn is_first(&self, id: &str) -> bool {
        self.messages.first().is_some_and(|key| key.id.to_string() == id)
    }

    /// Passes the lines of a table to `each` until `each` returns false. `condition`: SQL condition
    /// for the line `t`, whose parameters begin with `$4`. `after`: sequence number before the
    /// first line.
    fn lines(
        &self,
        table: &str,
        (condition, mut values): (&str, Vec<Value>),
        (is_descending, after): (bool, Option<i64>),
        each: &mut EachLine<'_>,
    ) -> Result<()> {
        let (order, sign, start) = if is_descending { ("DESC", '<', i64::MAX) } else { ("ASC", '>', 0) };
        values.insert(0, self.seen_at.into());
        let lines = PagedQuery {
            sql: &format!(
                "SELECT t.seq, t.body FROM @.{table} t WHERE t.agent_id = $1 AND t.seq {sign} $2 AND t.revision <= $3 \
                 AND {condition} ORDER BY t.seq {order}"
            ),
            start: &[&after.unwrap_or(start).to_string()],
            values,
            sizes: LINES,
        };
        lines.each(&self.one, &mut |row| each(row.get(1).unwrap_or_default()))
    }

    /// Parses all rows of a query with `read`, and passes the results to `each`. `sql`, `start` and
    /// `values`: as in [`PagedQuery`].
    fn copy<T>(
        &self,
        (sql, start): (&str, &[&str]),
        values: Vec<Value>,
        read: impl Fn(&Row) -> Option<T>,
        each: &mut dyn FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let all = PagedQuery { sql, start, values, sizes: COPIED };
        let unexpected = || self.one.shared.pool.unexpected("records");
        all.each(&self.one, &mut |row| each(read(row).ok_or_else(unexpected)?).map(|()| true))
    }
}

/// Query whose rows are read in pages, so that only one page is in memory. Its parameters are the
/// agent, the position after which a page begins, and `values`. The first columns of a row are its
/// position.
struct PagedQuery<'q> {
    sql: &'q str,
    /// Position before the first row, with one text for each column of a position.
    start: &'q [&'q str],
    values: Vec<Value>,
    /// Maximum numbers of rows of the first page and of each later page.
    sizes: [usize; 2],
}

impl PagedQuery<'_> {
    /// Passes each row of the query to `each`, until `each` returns false.
    fn each(&self, one: &AgentContext, each: &mut dyn FnMut(&Row) -> Result<bool>) -> Result<()> {
        let [mut most, later] = self.sizes;
        let mut after: Vec<Value> = self.start.iter().map(|text| (*text).into()).collect();
        loop {
            let asked = Statement::new(format!("{} LIMIT {most}", self.sql)).with(one.id);
            let asked = after.into_iter().fold(asked, Statement::with);
            let rows = one.ask(self.values.iter().cloned().fold(asked, Statement::with))?;
            for row in &rows {
                if !each(row)? {
                    return Ok(());
                }
            }
            let Some(last) = rows.last().filter(|_| rows.len() == most) else { return Ok(()) };
            after = (0..self.start.len()).map(|column| last.text(column).into()).collect();
            most = later;
        }
    }
}

impl ReadView for PgReadView {
    fn state(&self) -> Result<String> {
        Ok(self.state.clone())
    }

    fn open(&self, plane: Plane) -> Result<Vec<(String, String)>> {
        let of_plane = self.open.iter().filter(|((of, _), _)| *of == plane);
        Ok(of_plane.map(|((_, id), text)| (id.clone(), text.clone())).collect())
    }

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>> {
        Ok(self.open.get(&(plane, id.to_owned())).cloned())
    }

    fn plan(&self, work: &str) -> Result<Option<String>> {
        if !self.open.contains_key(&(Plane::Work, work.to_owned())) {
            return Ok(None);
        }
        let from = "SELECT encode(p.body, 'hex') FROM @.plan p WHERE p.agent_id = s.agent_id AND p.id = $2";
        let hex = self.ask_text(from, [work.into()])?;
        let read =
            |hex: String| sql::text_of_hex(&hex).ok_or_else(|| self.one.shared.pool.unexpected("a plan"));
        hex.map(read).transpose()
    }

    fn messages(&self, count: usize) -> Result<Vec<InboxKey>> {
        if count <= self.messages.len() || self.messages.len() < HEAD {
            return Ok(self.messages.iter().take(count).copied().collect());
        }
        let limit = i64::try_from(count).unwrap_or(i64::MAX);
        let (rows, is_same) = self.ask(
            "SELECT i.prio, i.id FROM @.inbox i WHERE i.agent_id = s.agent_id AND i.prio >= 0 ORDER BY i.prio, i.id LIMIT $2",
            [limit.into()],
        )?;
        if !is_same {
            return self.changed();
        }
        let read = |row: &Row| key(row.get(1)?, row.get(2)?);
        let mut keys: Vec<InboxKey> = rows.iter().filter_map(read).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    fn message(&self, key: InboxKey) -> Result<Option<String>> {
        if let Some(text) = self.texts.borrow().get(&key) {
            return Ok(Some(text.clone()));
        }
        // If the whole inbox was loaded, no message has a key that was not loaded.
        if self.messages.len() < HEAD && self.messages.binary_search(&key).is_err() {
            return Ok(None);
        }
        let (rows, is_same) = self.ask(
            "SELECT i.body, i.by FROM @.inbox i WHERE i.agent_id = s.agent_id AND i.prio = $2 AND i.id = $3",
            [u32::from(key.priority.digit()).into(), key.id.0.into()],
        )?;
        // Messages are immutable, so an existing message is valid for this revision, too.
        let row = rows.first();
        match row.and_then(|row| row.get(1)) {
            Some(text) => {
                let text = message_of(text.to_owned(), row.and_then(|row| row.get(2)));
                self.texts.borrow_mut().insert(key, text.clone());
                Ok(Some(text))
            }
            None if is_same => Ok(None),
            None => self.changed(),
        }
    }

    fn texts(&self, keys: &[InboxKey], each: &mut dyn FnMut(InboxKey, &str) -> Result<()>) -> Result<()> {
        for some in keys.chunks(HEAD) {
            let column = |text: fn(&InboxKey) -> String| Value::Texts(some.iter().map(text).collect());
            let asked = Statement::new(
                "SELECT i.prio, i.id, i.body, i.by FROM @.inbox i WHERE i.agent_id = $1 AND (i.prio, i.id) IN \
                 (SELECT k.prio::smallint, k.id::uuid FROM unnest($2::text[], $3::text[]) k (prio, id))",
            );
            let answer = self.one.ask(
                asked
                    .with(self.one.id)
                    .with(column(|key| key.priority.digit().to_string()))
                    .with(column(|key| key.id.0.to_string())),
            )?;
            let read = |row: &Row| {
                let text = message_of(row.text(2)?, row.get(3));
                Some((key(row.get(0)?, row.get(1)?)?, text))
            };
            let mut found: Vec<(InboxKey, String)> = answer.iter().filter_map(read).collect();
            found.sort_unstable_by_key(|(key, _)| *key);
            found.iter().try_for_each(|(key, text)| each(*key, text))?;
        }
        Ok(())
    }

    fn hints(&self) -> Result<Vec<MessageId>> {
        Ok(self.hints.keys().copied().collect())
    }

    fn hint(&self, id: MessageId) -> Result<Option<String>> {
        Ok(self.hints.get(&id).cloned())
    }

    fn key(&self, key: &str, _: KeyWindow) -> Result<Option<String>> {
        self.ask_text(
            "SELECT d.body FROM @.dedupe d WHERE d.agent_id = s.agent_id AND d.key_sha = decode($2, 'hex')",
            [sha256(key.as_bytes()).into()],
        )
    }

    fn ended(&self, kinds: &[&'static str], ids: Option<&[String]>, each: &mut EachLine<'_>) -> Result<()> {
        let mut after = None;
        match (&self.past, kinds, ids) {
            (Some(past), [kind], None) if *kind == Brief::KIND => {
                for (seq, text) in &past.briefs {
                    if !each(text)? {
                        return Ok(());
                    }
                    after = Some(*seq);
                }
                if past.briefs.len() < BRIEFS {
                    return Ok(());
                }
            }
            (Some(past), _, Some([id])) if self.is_first(id) => {
                let ended = past.ended.iter().filter(|(kind, _)| kinds.contains(&kind.as_str()));
                for (_, text) in ended {
                    if !each(text)? {
                        break;
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        let (mut condition, kinds) = sql::one_of("t.kind", 4, kinds);
        let mut values = vec![kinds];
        if let Some(ids) = ids {
            let (of_ids, ids) = sql::one_of("t.id", 5, ids);
            condition = format!("{condition} AND {of_ids}");
            values.push(ids);
        }
        self.lines("archive", (&condition, values), (true, after), each)
    }

    fn plans(&self, each: &mut dyn FnMut(String, String) -> Result<()>) -> Result<()> {
        let sql = "SELECT p.id, encode(p.body, 'hex') FROM @.plan p WHERE p.agent_id = $1 AND p.id > $2 ORDER BY p.id";
        let read = |row: &Row| Some((row.text(0)?, sql::text_of_hex(row.get(1)?)?));
        self.copy((sql, &[""]), Vec::new(), read, &mut |(id, text)| each(id, text))
    }

    fn history(&self, before: Option<Time>, each: &mut EachOp<'_>) -> Result<()> {
        let before = before.map(Time::as_millis);
        let sql = "SELECT t.kind, t.seq, t.id, t.at, t.body FROM @.archive t \
                   WHERE t.agent_id = $1 AND (t.kind, t.seq) > ($2, $3::bigint) AND t.revision <= $4 \
                   AND ($5::bigint IS NULL OR t.at < $5 AND t.kind <> $6::text) ORDER BY t.kind, t.seq";
        let values = vec![self.seen_at.into(), before.into(), ENDED.into()];
        self.copy((sql, &["", "0"]), values, ended, each)?;
        let sql = "SELECT t.seq, t.number, t.at, t.body FROM @.event t WHERE t.agent_id = $1 AND t.seq > $2 \
                   AND t.revision <= $3 AND ($4::bigint IS NULL OR t.at < $4) ORDER BY t.seq";
        self.copy((sql, &["0"]), vec![self.seen_at.into(), before.into()], event, each)?;
        // Only a read of old months, with `before`, may continue while the agent changes.
        let is_fine = before.is_some() || self.one.revision()? == Some(self.seen_at);
        if is_fine { Ok(()) } else { self.changed() }
    }

    fn events(&self, order: Order, each: &mut EachLine<'_>) -> Result<()> {
        let since = match order {
            Order::NewestFirst | Order::Since(None) => None,
            Order::Since(Some(since)) => Some(since.as_millis()),
        };
        let condition = ("($4::bigint IS NULL OR t.at >= $4)", vec![since.into()]);
        self.lines("event", condition, (order == Order::NewestFirst, None), each)
    }
}

fn ended(row: &Row) -> Option<Op> {
    let (kind, at) = (months::kind(row.get(0)?)?, Time::from_millis(row.number(3)?));
    Some(Op::Ended { kind, id: row.text(2), at, text: row.text(4)? })
}

fn event(row: &Row) -> Option<Op> {
    Some(Op::Event { seq: row.number(1)?, at: Time::from_millis(row.number(2)?), text: row.text(3)? })
}

/// Returns the text of a message with the role `by`, which may only add messages, as the source.
///
/// Returns an invalid message, or a message that claims to interject, unchanged: readers reject
/// both.
fn message_of(text: String, by: Option<&str>) -> String {
    sourced(text, by, |message: Message, by| message.said_by(by).ok())
}

/// Returns a record's text after `said_by` has set its sender to the database role `by`, if any.
fn sourced<R: Record>(text: String, by: Option<&str>, said_by: impl FnOnce(R, &str) -> Option<R>) -> String {
    let sourced = by.and_then(|by| said_by(decode(Path::new(""), text.as_bytes()).ok()?, by));
    sourced.map_or(text, |sourced| String::from_utf8(encode(&sourced)).unwrap_or_default())
}
