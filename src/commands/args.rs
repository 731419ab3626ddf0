//! Arguments that several commands take (texts, times, agents, record ids), with the wrong flag in
//! each error; and the output of commands with one result.

use std::collections::BTreeSet;
use std::env;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{AgentAndText, AgentFlag, AgentFlags, RecordArg};
use crate::engine::context::Context;
use crate::engine::environment;
use crate::engine::lookup;
use crate::engine::session::{Chosen, Session, agents};
use crate::error::{Error, IoContext, Result, Status};
use crate::model::action::Requester;
use crate::model::bound::{Bound, MAX_SETTINGS, SHORT_TEXT};
use crate::model::id::AgentName;
use crate::model::json::{self, Sent};
use crate::model::message::{Message, MessageStatus};
use crate::model::record::{OpenRecord, Record};
use crate::model::refusal::Refusal;
use crate::model::time::{Direction, Span, Time};
use crate::report::output::Output;
use crate::rules::schedule::to_come;
use crate::store::{Agent, Snapshot, Store};

pub fn parse<T>(flag: &str, word: &str) -> Result<T>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    word.parse().map_err(|error| Error::in_word(flag, error))
}

/// Parses the value of an optional flag.
pub fn parse_optional<T>(flag: &str, word: Option<&str>) -> Result<Option<T>>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    word.map(|word| parse(flag, word)).transpose()
}

/// Converts a refusal to a usage error, if a flag's value is wrong in every state of the agent.
pub fn wrong_word(flag: &str, refusal: Refusal) -> Error {
    let error = Error::in_word(flag, refusal.message);
    match refusal.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// Parses a time, or a duration as the time that long before `now`. A weekday is the last such day.
pub fn time_or_ago(flag: &str, word: &str, now: Time) -> Result<Time> {
    if let Ok(span) = word.parse::<Span>() {
        return Ok(now.before(span));
    }
    Time::said(word, now, Direction::Back).map_err(|error| Error::in_word(flag, error))
}

/// Parses a time. Refuses a past time unless `past_ok` is set.
pub fn moment(flag: &str, word: &str, now: Time, past_ok: bool) -> Result<Time> {
    let at = Time::said(word, now, Direction::Ahead).map_err(|error| Error::in_word(flag, error))?;
    Ok(to_come(at, now, past_ok)?)
}

/// Returns the requester of a change: present time, caller's hops, and true for the agent's turn.
pub fn requester(context: Context<'_>) -> Result<Requester> {
    let Context { session, agent } = context;
    let caller = session.caller(agent.store())?;
    let in_turn = caller.as_ref().is_some_and(|caller| caller.is_turn_of(agent.name()));
    Ok(Requester { since: session.clock.now(), hops: caller.and_then(|caller| caller.hops), in_turn })
}

/// Returns the argument TEXT, stdin for `-`, or the contents of a file for `@FILE`. Without TEXT,
/// reads stdin unless stdin is a terminal. Refuses a text larger than `bound`.
pub fn text(flag: &str, word: Option<&str>, bound: &Bound) -> Result<String> {
    match word {
        Some("-") => stdin(bound),
        Some(word) => match word.strip_prefix('@') {
            Some(path) => utf8(Path::new(path), read_file(Error::TAKE_TEXT, Path::new(path), bound)?),
            None => {
                bound.check(word.len() as u64)?;
                Ok(word.to_owned())
            }
        },
        None if std::io::stdin().is_terminal() => Err(Error::usage(format!("{flag}: nothing to say"))
            .with_hint("give the text, or `-` for stdin, or `@FILE`")),
        // An empty stdin is an error, because under cron stdin is empty even if no text was meant.
        None => match stdin(bound)? {
            text if text.is_empty() => {
                Err(Error::usage(format!("{flag}: there is no text, and nothing on stdin"))
                    .with_hint("give the text, `-` for stdin (even if it is empty), or `@FILE`"))
            }
            text => Ok(text),
        },
    }
}

/// Returns the text of a flag or argument, by the rules of [`text`] and at most `SHORT_TEXT` long.
pub fn short_text(flag: &str, word: &str) -> Result<String> {
    text(flag, Some(word), &SHORT_TEXT)
}

/// Returns the text of an optional flag, by the rules of [`short_text`].
pub fn optional_text(flag: &str, word: Option<String>) -> Result<Option<String>> {
    word.map(|word| short_text(flag, &word)).transpose()
}

fn stdin(bound: &Bound) -> Result<String> {
    static TAKEN: std::sync::OnceLock<()> = std::sync::OnceLock::new();
    if TAKEN.set(()).is_err() {
        return Err(Error::usage("`-`: stdin can be only one of the texts"));
    }
    utf8(Path::new("stdin"), bytes("-", bound)?)
}

/// Reads a file, or stdin for `-`. Refuses more than `bound`.
pub fn bytes(word: &str, bound: &Bound) -> Result<Vec<u8>> {
    match word {
        "-" => read_bounded(std::io::stdin(), Path::new("stdin"), bound),
        word => read_file("read", Path::new(word), bound),
    }
}

/// Reads a file. `action`: action that the error names if the file can't be opened.
fn read_file(action: &'static str, path: &Path, bound: &Bound) -> Result<Vec<u8>> {
    let file = File::open(path).context(action, path)?;
    // A pipe has no known size and passes this check, so the read is bounded, too.
    bound.check(file.metadata().context("read", path)?.len())?;
    read_bounded(file, path, bound)
}

fn read_bounded(reader: impl Read, path: &Path, bound: &Bound) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(bound.most.0.saturating_add(1)).read_to_end(&mut bytes).context("read", path)?;
    if bytes.len() as u64 > bound.most.0 {
        return Err(bound.refuse(&format!("at least {}", bytes.len())).into());
    }
    Ok(bytes)
}

/// Reads an `agent.toml` of limited size. `name` is the file's name in errors.
pub fn settings(name: &str, path: &Path) -> Result<String> {
    let most = MAX_SETTINGS;
    let mut text = String::new();
    let file = File::open(path).context("read", path)?;
    file.take(most + 1).read_to_string(&mut text).context("read", path)?;
    if text.len() as u64 > most {
        let message = format!("{name}: more than {most} bytes, and settings have at most that");
        return Err(Error::damaged(path, message));
    }
    Ok(text)
}

/// Prints the result of a successful command that has one result.
pub fn answer(
    session: &Session,
    object: &impl Serialize,
    text: impl FnOnce(&Output) -> String,
) -> Result<Status> {
    session.out.result(object, text);
    Ok(Status::Done)
}

/// Returns the JSON of a message with its status, as several commands print it.
pub fn message_object(message: &Message, status: MessageStatus) -> Value {
    let mut object = json!(message);
    object["status"] = json!(status);
    object
}

/// Prints the JSON object with --json, else the text without escaping.
pub fn answer_verbatim(session: &Session, object: &Value, text: &str) -> Result<Status> {
    if session.out.is_json() {
        session.out.json_line(object);
    } else {
        session.out.raw(text.as_bytes());
    }
    Ok(Status::Done)
}

/// Poll interval for up to 999 agents that inotify can't watch.
pub const POLL_INTERVAL: Span = Span::from_secs(5);

/// Returns the poll interval for `unwatched` agents: longer by `POLL_INTERVAL` per thousand.
pub fn poll_interval(unwatched: usize) -> Span {
    POLL_INTERVAL.times(1 + unwatched as u64 / 1000)
}

/// Returns the message to the user that inotify can't watch some agents.
pub fn cannot_watch() -> String {
    format!(
        "not every agent can be watched here (fs.inotify.max_user_watches or max_user_instances, or a network file system): such agents are looked at every {POLL_INTERVAL}"
    )
}

/// Warns if the agent's turn command can't be started, for example because a program is missing.
pub fn note_settings_fault(Context { session, agent }: Context<'_>) -> Result<()> {
    if let Some(fault) = environment::fault(agent, &agent.policy()?) {
        session.out.note(&format!("{}: no turn can start yet: {fault}", agent.name()));
    }
    Ok(())
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| {
        Error::usage(format!("{}: not UTF-8", path.display()))
            .with_hint("a message is text: encode other data, or put it into a file and send its path")
    })
}

/// Returns the agent that a command names, else the agent of the calling turn.
pub fn optional_agent(args: &AgentFlag) -> Result<Option<AgentName>> {
    one_agent(args.word.as_ref(), args.agent.as_ref())
}

/// Returns the agent that a command names, else the agent of the calling turn. Error if none is.
pub fn required_agent(args: &AgentFlag) -> Result<AgentName> {
    optional_agent(args)?.ok_or_else(which_agent)
}

/// Returns the agent and the text argument of a command.
pub fn agent_and_text(args: AgentAndText) -> Result<(AgentName, Option<String>)> {
    let AgentAndText { mut words, agent } = args;
    let text = words.pop();
    let word: Option<AgentName> = parse_optional("--agent", words.first().map(String::as_str))?;
    Ok((one_agent(word.as_ref(), agent.as_ref())?.ok_or_else(which_agent)?, text))
}

fn one_agent(word: Option<&AgentName>, flag: Option<&AgentName>) -> Result<Option<AgentName>> {
    if let (Some(word), Some(flag)) = (word, flag)
        && word != flag
    {
        return Err(two_agents(word.as_str(), flag.as_str()));
    }
    match word.or(flag) {
        Some(named) => Ok(Some(named.clone())),
        None => {
            let of_turn = env::var("DORMOUSE_AGENT").ok().filter(|name| !name.is_empty());
            parse_optional("--agent", of_turn.as_deref())
        }
    }
}

fn two_agents(words: &str, flags: &str) -> Error {
    Error::usage(format!("`{words}` as a word, and --agent {flags}: which is meant?"))
        .with_hint("name the agent once")
}

fn which_agent() -> Error {
    Error::usage("which agent?").with_hint("name it as a word or with --agent, or set DORMOUSE_AGENT")
}

/// Returns the agents that a listing command names, else the agent of the calling turn, else all.
pub fn several_agents(store: &Store, args: &AgentFlags) -> Result<Chosen> {
    let (words, flags) = (&args.words, &args.agent);
    let has_both = !words.is_empty() && !flags.is_empty();
    if has_both && words.iter().collect::<BTreeSet<_>>() != flags.iter().collect::<BTreeSet<_>>() {
        let joined =
            |names: &[AgentName], by| names.iter().map(AgentName::as_str).collect::<Vec<_>>().join(by);
        return Err(two_agents(&joined(words, " "), &joined(flags, " --agent ")));
    }
    let mut names = agents(store, if words.is_empty() { flags } else { words }, false)?;
    if args.all && !names.is_empty() {
        return Err(Error::usage("--all, and agents by name").with_hint("give the names or --all"));
    }
    if names.is_empty() && !args.all {
        names.extend(one_agent(None, None)?);
    }
    if names.is_empty() {
        return Ok(Chosen { names: store.agents()?, are_all: true, are_told_apart: true });
    }
    Ok(Chosen { are_told_apart: names.len() > 1, are_all: false, names })
}

/// Runs `each` for each agent that [`several_agents`] returns.
pub fn each_listed(
    session: &Session,
    store: &Store,
    args: &AgentFlags,
    each: impl FnMut(Context<'_>) -> Result<Status>,
) -> Result<Status> {
    session.each_chosen(store, &several_agents(store, args)?, each)
}

/// Finds the open record that the arguments name. Returns its agent and its id.
pub fn find_open<'s, T: OpenRecord>(store: &'s Store, args: &RecordArg) -> Result<(Agent<'s>, T::Id)> {
    lookup::open::<T>(store, optional_agent(&args.agent)?, &args.id)
}

/// Finds the record that the arguments name, open or ended. Returns its agent and its id.
pub fn find_any<'s, T: OpenRecord>(store: &'s Store, args: &RecordArg) -> Result<(Agent<'s>, T::Id)> {
    lookup::open_or_archived::<T>(store, optional_agent(&args.agent)?, &args.id)
}

/// Parses the JSON of `--body-json`.
pub fn json_body(word: &str, bound: &Bound) -> Result<Sent> {
    let text = text("--body-json", Some(word), bound)?;
    Sent::read(&json::outside(&text).0).map_err(|error| {
        Error::usage(format!("--body-json: not JSON: {error}"))
            .with_hint("JSON needs double quotes: --body-json '{\"key\": \"value\"}'; for plain text leave out --body-json")
    })
}

/// Finds an open record of the agent by its id or a part of the id.
pub fn open_id<T: OpenRecord>(agent: &Agent<'_>, part: Option<&str>) -> Result<Option<T::Id>> {
    let find = |part| lookup::open::<T>(agent.store(), Some(agent.name().clone()), part);
    part.map(|part| find(part).map(|(_, id)| id)).transpose()
}

/// Reads a record, open or ended. Error if the record does not exist.
pub fn read_record<T: OpenRecord>(agent: &Agent<'_>, id: T::Id) -> Result<T> {
    let found = agent.read(|snapshot, _| open_or_ended(&snapshot, id))?;
    found.ok_or_else(|| no_record::<T>(id))
}

/// Returns the error about a record that does not exist.
pub fn no_record<T: OpenRecord>(id: T::Id) -> Error {
    Error::NoRecord { what: lookup::nouns::<T>().0, id: id.to_string() }
}

/// Returns a record from a snapshot, open or ended; `None` if it does not exist.
pub fn open_or_ended<T: OpenRecord>(snapshot: &Snapshot<'_>, id: T::Id) -> Result<Option<T>> {
    match snapshot.open_one::<T>(id)? {
        Some(record) => Ok(Some(record)),
        None => snapshot.ended_one::<T>(id),
    }
}

/// Returns the ended records of a kind, newest first.
pub fn ended_records<T: Record>(snapshot: &Snapshot<'_>) -> Result<Vec<T>> {
    let mut records = Vec::new();
    snapshot.ended(|record: T| {
        records.push(record);
        true
    })?;
    Ok(records)
}
