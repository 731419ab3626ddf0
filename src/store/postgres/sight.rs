//! Read view of one revision of an agent's records.
//!
//! A single statement loads the records that commands use most, and no transaction stays open.
//! Later queries answer from the same revision: archive lines and events carry the revision that
//! wrote them, and other queries also return the current revision. If that has changed, the query
//! fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use uuid::Uuid;

use crate::error::Result;
use crate::model::id::MessageId;
use crate::model::message::{InboxKey, Priority};
use crate::model::record::{Plane, Record};
use crate::model::run::Brief;
use crate::model::time::Time;

use super::super::elsewhere::{ENDED, Op, Order, ReadView};
use super::shared::{One, number};
use super::wire::Row;
use super::{faults, kept, said, sql, statements, whole};

/// Maximum number of lines that the first query and each later query return.
const FEW_LINES: usize = 32;
const MANY_LINES: usize = 512;

#[derive(Debug)]
pub struct PgReadView {
    pub one: Rc<One>,
    pub seen_at: u64,
    pub fence: i64,
    pub state: String,
    pub open: BTreeMap<(Plane, String), String>,
    /// First keys of the inbox, in order, and the texts that are loaded so far.
    messages: Vec<InboxKey>,
    texts: RefCell<BTreeMap<InboxKey, String>>,
    pub hints: Vec<(MessageId, String)>,
    pub leases: BTreeMap<String, LeaseRow>,
    /// Archive lines that were loaded with the records.
    past: Option<ArchiveQuery>,
}

/// Archive lines that a claim needs.
#[derive(Debug, Default)]
struct ArchiveQuery {
    /// Latest briefs with their sequence numbers, newest first.
    briefs: Vec<(i64, String)>,
    /// Kinds and texts of the archive lines about the first message of the inbox.
    ended: Vec<(String, String)>,
}

/// A row of the table `lease`.
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
    /// Parses the rows of [`statements::load`] or [`kept::load`]. `None` if the agent does not
    /// exist any more.
    pub fn read(one: &Rc<One>, rows: &[Row], with_past: bool) -> Result<Option<PgReadView>> {
        let mut seen = PgReadView {
            one: Rc::clone(one),
            seen_at: 0,
            fence: 0,
            state: String::new(),
            open: BTreeMap::new(),
            messages: Vec::new(),
            texts: RefCell::default(),
            hints: Vec::new(),
            leases: BTreeMap::new(),
            past: with_past.then(ArchiveQuery::default),
        };
        let mut is_there = false;
        for row in rows {
            is_there |= row.get(0) == Some("s");
            seen.take(row).ok_or_else(|| one.shared.pool.unexpected("records"))?;
        }
        seen.messages.sort_unstable();
        seen.hints.sort_unstable_by_key(|(id, _)| *id);
        Ok(is_there.then_some(seen))
    }

    fn take(&mut self, row: &Row) -> Option<()> {
        let text = |column| row.get(column).map(str::to_owned);
        match row.get(0)? {
            "s" => {
                self.seen_at = number(Some(row), 1)?;
                self.fence = number(Some(row), 2)?;
                self.state = text(3)?;
            }
            "a" => {
                self.one.policy.replace(text(1)?);
                self.one.identity.replace(text(2)?);
            }
            "o" => drop(self.open.insert((sql::plane_of(row.get(1)?)?, text(2)?), text(3)?)),
            "m" => {
                let key = key(row.get(1)?, row.get(2)?)?;
                self.messages.push(key);
                if let Some(text) = text(3) {
                    self.texts.get_mut().insert(key, said::message(text, row.get(4)));
                }
            }
            "h" => {
                let id = MessageId(Uuid::parse_str(row.get(1)?).ok()?);
                self.hints.push((id, said::hint(text(2)?, row.get(3))));
            }
            "b" => {
                let brief = (number(Some(row), 1)?, text(2)?);
                self.past.as_mut()?.briefs.push(brief);
            }
            "e" => {
                let ended = (text(1)?, text(2)?);
                self.past.as_mut()?.ended.push(ended);
            }
            "l" => {
                let fence = number(Some(row), 2)?;
                let leased = LeaseRow { fence, anchor: text(3)?, is_alive: row.get(4)? == "true" };
                self.leases.insert(text(1)?, leased);
            }
            _ => return None,
        }
        Some(())
    }

    /// Runs a query about this agent together with its revision, which is the first column. There
    /// is always a row if the agent exists. `from`: subquery in which `s` is the row of `state`.
    /// The returned flag is true if the revision is unchanged.
    fn ask(&self, from: &str) -> Result<(Vec<Row>, bool)> {
        let one = &self.one;
        let schema = one.schema();
        let asked = format!(
            "SELECT s.revision, q.* FROM {schema}.state s LEFT JOIN LATERAL ({from}) q ON true WHERE s.agent_id = {}",
            one.id
        );
        let mut answers = one.ask(&asked)?;
        let rows = if answers.is_empty() { Vec::new() } else { answers.remove(0).rows };
        let is_same = number(rows.first(), 0) == Some(self.seen_at);
        Ok((rows, is_same))
    }

    pub fn changed<T>(&self) -> Result<T> {
        Err(faults::changed(self.one.shared.pool.url(), self.one.name.as_str()))
    }

    /// Returns one text of this revision. Error if the revision has changed.
    fn ask_text(&self, from: &str) -> Result<Option<String>> {
        let (rows, is_same) = self.ask(from)?;
        if !is_same {
            return self.changed();
        }
        Ok(rows.first().and_then(|row| row.get(1)).map(str::to_owned))
    }

    /// True if this id is the first message of the inbox.
    fn is_first(&self, id: &str) -> bool {
        self.messages.first().is_some_and(|key| key.id.to_string() == id)
    }

    /// Passes lines of a table to `each`, ordered by `seq`, until it returns false. `first`:
    /// cheaper query for the first lines. `after`: sequence number before the first line.
    fn lines(
        &self,
        of: &str,
        is_descending: bool,
        (mut first, mut after): (Option<String>, Option<i64>),
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        let one = &self.one;
        let (order, sign) = if is_descending { ("DESC", '<') } else { ("ASC", '>') };
        let mut most = FEW_LINES;
        loop {
            let from = after.map(|seq| format!(" AND t.seq {sign} {seq}")).unwrap_or_default();
            let some = format!(
                "SELECT t.seq, t.body FROM {}.{of} AND t.agent_id = {} AND t.revision <= {}{from} \
                 ORDER BY t.seq {order} LIMIT {most}",
                one.schema(),
                one.id,
                self.seen_at
            );
            let answers = one.ask(&first.take().unwrap_or(some))?;
            let rows = answers.first().map(|answer| answer.rows.as_slice()).unwrap_or_default();
            for row in rows {
                if !each(row.get(1).unwrap_or_default())? {
                    return Ok(());
                }
            }
            if rows.len() < most {
                return Ok(());
            }
            after = number(rows.last(), 0);
            most = MANY_LINES;
        }
    }
}

impl ReadView for PgReadView {
    fn state(&self) -> Result<String> {
        Ok(self.state.clone())
    }

    fn open(&self, plane: Plane) -> Result<Vec<String>> {
        let of_plane = self.open.iter().filter(|((of, _), _)| *of == plane);
        Ok(of_plane.map(|(_, text)| text.clone()).collect())
    }

    fn open_one(&self, plane: Plane, id: &str) -> Result<Option<String>> {
        Ok(self.open.get(&(plane, id.to_owned())).cloned())
    }

    fn plan(&self, work: &str) -> Result<Option<String>> {
        if !self.open.contains_key(&(Plane::Work, work.to_owned())) {
            return Ok(None);
        }
        let hex = self.ask_text(&format!(
            "SELECT encode(p.body, 'hex') FROM {}.plan p WHERE p.agent_id = s.agent_id AND p.id = {}",
            self.one.schema(),
            sql::text(work)?
        ))?;
        let read =
            |hex: String| sql::text_of_hex(&hex).ok_or_else(|| self.one.shared.pool.unexpected("a plan"));
        hex.map(read).transpose()
    }

    fn messages(&self, count: usize) -> Result<Vec<InboxKey>> {
        if count <= self.messages.len() || self.messages.len() < statements::HEAD {
            return Ok(self.messages.iter().take(count).copied().collect());
        }
        let limit = if count == usize::MAX { String::new() } else { format!(" LIMIT {count}") };
        let (rows, is_same) = self.ask(&format!(
            "SELECT i.prio, i.id FROM {}.inbox i WHERE i.agent_id = s.agent_id AND i.prio >= 0 \
             ORDER BY i.prio, i.id{limit}",
            self.one.schema()
        ))?;
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
        // If the whole inbox was loaded, a key that is missing there has no message.
        if self.messages.len() < statements::HEAD && self.messages.binary_search(&key).is_err() {
            return Ok(None);
        }
        let (rows, is_same) = self.ask(&format!(
            "SELECT i.body, i.by FROM {}.inbox i WHERE i.agent_id = s.agent_id AND i.prio = {} AND i.id = {}",
            self.one.schema(),
            key.priority.digit(),
            sql::uuid(key.id.0)
        ))?;
        // Messages are immutable, so one that still exists is valid for this revision, too.
        let row = rows.first();
        match row.and_then(|row| row.get(1)) {
            Some(text) => {
                let text = said::message(text.to_owned(), row.and_then(|row| row.get(2)));
                self.texts.borrow_mut().insert(key, text.clone());
                Ok(Some(text))
            }
            None if is_same => Ok(None),
            None => self.changed(),
        }
    }

    fn texts(&self, keys: &[InboxKey], each: &mut dyn FnMut(&str)) -> Result<()> {
        for some in keys.chunks(statements::HEAD) {
            let place = |key: &InboxKey| format!("({},{}::uuid)", key.priority.digit(), sql::uuid(key.id.0));
            let places: Vec<String> = some.iter().map(place).collect();
            let answers = self.one.ask(&format!(
                "SELECT i.body FROM {}.inbox i WHERE i.agent_id = {} AND (i.prio, i.id) IN ({})",
                self.one.schema(),
                self.one.id,
                places.join(",")
            ))?;
            answers.iter().flat_map(|answer| &answer.rows).filter_map(|row| row.get(0)).for_each(&mut *each);
        }
        Ok(())
    }

    fn hints(&self) -> Result<Vec<(MessageId, String)>> {
        Ok(self.hints.clone())
    }

    fn key(&self, key: &str) -> Result<Option<String>> {
        let not_forgotten = match self.one.forgotten.get() {
            Some(before) => format!(" AND d.admitted_at >= {before}"),
            None => String::new(),
        };
        self.ask_text(&format!(
            "SELECT d.body FROM {}.dedupe d WHERE d.agent_id = s.agent_id AND d.key_sha = {}{not_forgotten}",
            self.one.schema(),
            sql::digest(key)
        ))
    }

    fn ended(
        &self,
        kinds: &[&'static str],
        ids: Option<&[String]>,
        each: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        let mut after = None;
        match (&self.past, kinds, ids) {
            (Some(past), [kind], None) if *kind == Brief::KIND => {
                for (seq, text) in &past.briefs {
                    if !each(text)? {
                        return Ok(());
                    }
                    after = Some(*seq);
                }
                if past.briefs.len() < kept::BRIEFS {
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
        let of_ids = match ids {
            Some(ids) => format!(" AND {}", sql::one_of("t.id", ids)?),
            None => String::new(),
        };
        let one = &self.one;
        let first = if one.is_kept() && after.is_none() {
            kept::last(one.schema(), one.id, (kinds, ids), self.seen_at, FEW_LINES)?
        } else {
            None
        };
        self.lines(
            &format!("archive t WHERE {}{of_ids}", sql::one_of("t.kind", kinds)?),
            true,
            (first, after),
            each,
        )
    }

    fn before(&self, moment: Time, each: &mut dyn FnMut(Op) -> Result<()>) -> Result<()> {
        let before = format!(" AND t.at < {}", moment.as_millis());
        whole::lines(self, &format!(" AND t.kind <> {}", sql::text(ENDED)?), &before, each)
    }

    fn events(&self, order: Order, each: &mut dyn FnMut(&str) -> Result<bool>) -> Result<()> {
        match order {
            Order::NewestFirst => self.lines("event t WHERE true", true, (None, None), each),
            Order::Since(None) => self.lines("event t WHERE true", false, (None, None), each),
            Order::Since(Some(since)) => {
                self.lines(&format!("event t WHERE t.at >= {}", since.as_millis()), false, (None, None), each)
            }
        }
    }

    fn pieces(&self, each: &mut dyn FnMut(Op) -> Result<()>) -> Result<()> {
        whole::pieces(self, each)
    }
}
