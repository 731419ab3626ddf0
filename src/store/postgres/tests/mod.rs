//! Tests of the store against a real server.

mod holds;
mod leases;
mod losses;
mod proxy;
mod records;
mod ticking;
mod triggers;
mod watching;

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use uuid::Uuid;

use crate::model::id::{AgentName, MessageId};
use crate::model::message::{InboxKey, Priority};
use crate::model::time::{Span, Time};

use super::super::backend::contents::contents;
use super::super::backend::{
    Arrival, Backend, KeyWindow, Op, RemoteBackend, RemoteRecords, RemoteTxn, each_of,
};
use super::super::settings::Settings;
use super::wire::tests::rig;
use super::{PgAgent, Postgres, Url};

pub const PATIENCE: Duration = Duration::from_secs(5);

/// Returns a window that contains every entry of a dedupe key.
fn always() -> KeyWindow {
    KeyWindow { now: at(0), length: Span::from_millis(u64::MAX), revision: u64::MAX }
}

/// New schema on the server of these tests.
pub struct Fresh {
    pub schema: String,
    pub url: Url,
}

impl Fresh {
    /// Returns a schema without tables.
    pub fn unmade() -> Fresh {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let schema = format!("t{}_{number}", std::process::id());
        Fresh { url: server(&schema), schema }
    }

    pub fn made() -> Fresh {
        let fresh = Fresh::unmade();
        assert!(Postgres::init(fresh.url.clone(), PATIENCE).unwrap());
        fresh
    }

    pub fn open(&self) -> Postgres {
        Postgres::open(self.url.clone(), PATIENCE)
    }

    /// Runs statements over a separate connection. Returns the first column of the last answer.
    pub fn run(&self, statements: &str) -> Vec<String> {
        // Inserting a million rows takes long.
        const HOURS: Duration = Duration::from_secs(2 * 3600);
        let pool = super::pool::ConnectionPool::unread(self.url.clone(), HOURS);
        let answers = pool.script(statements).unwrap();
        let rows = answers.last().map(Vec::as_slice).unwrap_or_default();
        rows.iter().map(|row| row.get(0).unwrap_or_default().to_owned()).collect()
    }

    pub fn count(&self, table: &str) -> usize {
        self.run(&format!("SELECT count(*) FROM @.{table}"))[0].parse().unwrap()
    }
}

fn server(schema: &str) -> Url {
    Url::parse(&rig::server().url(schema)).unwrap()
}

pub fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

pub fn at(millis: i64) -> Time {
    Time::from_millis(1_790_000_000_000 + millis)
}

pub fn id(number: u128) -> MessageId {
    MessageId(Uuid::from_u128(number))
}

pub fn key(priority: Priority, number: u128) -> InboxKey {
    InboxKey { priority, id: id(number) }
}

pub fn message(number: u128) -> Arrival {
    Arrival::Message { key: key(Priority::Normal, number), text: format!("{{\"n\": {number}}}\n") }
}

pub fn hint(number: u128) -> Arrival {
    Arrival::Hint { id: id(number), text: "{}\n".into() }
}

pub fn state(revision: u64) -> Op {
    Op::State { revision, due: None, is_at_rest: false, text: format!("{{\"revision\":{revision}}}\n") }
}

pub fn event(seq: u64) -> Op {
    Op::Event { seq, at: at(seq as i64), text: format!("{{\"seq\":{seq}}}\n") }
}

pub fn ended(number: u128) -> Op {
    Op::Ended {
        kind: "message",
        id: Some(id(number).to_string()),
        at: at(0),
        text: format!("{{\"ended\":{number}}}\n"),
    }
}

pub fn create(store: &Postgres, agent: &str) -> Rc<dyn RemoteRecords> {
    let ops = [
        Op::Identity("{\"name\": \"a\"}\n".to_owned()),
        Op::Policy(Settings::of("command = [\"x\"]\n".to_owned())),
        state(1),
        event(1),
    ];
    assert!(store.create(&name(agent), &each_of(&ops)).unwrap());
    agent_of(store, agent)
}

pub fn agent_of(store: &Postgres, agent: &str) -> Rc<dyn RemoteRecords> {
    Rc::new(PgAgent::find(&store.shared, &name(agent)).unwrap().expect("the agent"))
}

/// Returns the revision of an agent's state.
fn revision(agent: &Rc<dyn RemoteRecords>) -> u64 {
    let state: serde_json::Value = serde_json::from_str(&agent.state().unwrap()).unwrap();
    state["revision"].as_u64().unwrap()
}

/// Returns a new schema with the agent `a` of a store.
fn in_a_store() -> (Fresh, Postgres, Rc<dyn RemoteRecords>) {
    let fresh = Fresh::made();
    let store = fresh.open();
    let agent = create(&store, "a");
    (fresh, store, agent)
}

/// Returns a new schema with the agent `a`, which each of two stores has opened.
fn in_two_stores() -> (Fresh, [Postgres; 2], [Rc<dyn RemoteRecords>; 2]) {
    let (fresh, store, agent) = in_a_store();
    let other = fresh.open();
    let theirs = agent_of(&other, "a");
    (fresh, [store, other], [agent, theirs])
}

/// Returns the operations that copy an agent, except those of its state.
pub fn copied(agent: &Rc<dyn RemoteRecords + '_>) -> Vec<Op> {
    let mut told = Vec::new();
    let tell = &mut |op| {
        told.push(op);
        Ok(())
    };
    contents(&**agent, &*agent.read_view().unwrap(), tell).unwrap();
    told
}

pub fn hold(agent: &Rc<dyn RemoteRecords + '_>) -> Box<dyn RemoteTxn> {
    agent.lock(PATIENCE).unwrap().expect("the lock")
}

/// Returns all archive lines of a kind, newest first.
pub fn all_ended(agent: &Rc<dyn RemoteRecords + '_>, kind: &'static str) -> Vec<String> {
    let mut all = Vec::new();
    agent
        .read_view()
        .unwrap()
        .ended(&[kind], None, &mut |line| {
            all.push(line.to_owned());
            Ok(true)
        })
        .unwrap();
    all
}
