//! Live events of agents, and live output of turns and tasks.

use std::collections::HashMap;

use serde_json::Value;

use crate::error::{Result, Status};
use crate::local::workdir::{Dir, GrowingLog, Stream};
use crate::model::event::Event;
use crate::model::id::{AgentName, RunId};
use crate::model::time::Time;
use crate::report::text::Characters;
use crate::store::{Agent, RecordWatch};

use super::context::Context;

/// Follows the events of agents. Returns each event of an agent once, ordered by sequence number.
#[derive(Debug, Default)]
pub struct Follower {
    /// Sequence number of the last event that was returned, by agent.
    told: HashMap<AgentName, u64>,
}

/// Limits for the events that the first call of `Follower::news` for an agent returns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beginning {
    /// Earliest time of an event.
    pub since: Option<Time>,
    /// Maximum number of events, counted from the newest; 0 for all.
    pub limit: usize,
}

impl Follower {
    /// Returns the wanted events since the last call, oldest first.
    pub fn news(
        &mut self,
        agent: &Agent<'_>,
        beginning: Beginning,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Vec<Event>> {
        let before = self.told.get(agent.name()).copied();
        if before.unwrap_or(0) == agent.peek()?.counters.events {
            return Ok(Vec::new());
        }
        let (events, last) = agent.read(|seen, state| {
            let last = state.counters.events;
            let mut events = Vec::new();
            match before {
                Some(before) => {
                    let most = usize::try_from(last.saturating_sub(before)).unwrap_or(usize::MAX);
                    events = seen.last_events(most, |event| event.seq > before)?;
                    events.retain(&wanted);
                    events.reverse();
                }
                None if beginning.limit > 0 => {
                    events = seen.last_events(beginning.limit, &wanted)?;
                    events.reverse();
                }
                None => seen.events(beginning.since, |event| {
                    if wanted(&event) {
                        events.push(event);
                    }
                    Ok(())
                })?,
            }
            Ok((events, last))
        })?;
        self.told.insert(agent.name().clone(), last);
        Ok(events)
    }
}

/// Prints the output of a process so far, and if followed also all further output until the process
/// has ended. `dir`: directory of the run or task. `last`: maximum of earlier output to print, in
/// bytes; `None` for all. `object` makes the JSON object for a piece of output.
pub fn print_output(
    Context { session, agent }: Context<'_>,
    (dir, stream, last): (&Dir, Stream, Option<u64>),
    is_followed: bool,
    object: impl Fn(&str) -> Value,
    has_ended: impl Fn() -> Result<bool>,
) -> Result<Status> {
    if agent.store().properties().is_shared && !dir.exists() {
        session
            .out
            .note("this machine has no output of it: there is none, or it is on the machine on which it ran");
    }
    let mut log = dir.follow(stream, last);
    let mut characters = Characters::default();
    let mut watch = is_followed.then(RecordWatch::new);
    loop {
        if let Some(watch) = &mut watch {
            watch.follow_records(agent);
            watch.follow_output(dir);
        }
        // The end is checked before the last read, so that the read misses no output.
        let is_over = !is_followed || has_ended()?;
        let said = log.news()?;
        if session.out.is_json() {
            let text = characters.take(&said, is_over);
            if !text.is_empty() || !is_followed {
                session.out.json_line(&object(&text));
            }
        } else {
            session.out.log(&said, &mut characters, is_over);
        }
        session.out.flush();
        match &mut watch {
            Some(watch) if !is_over && session.out.has_reader() => watch.wait(None),
            Some(_) | None => return Ok(Status::Done),
        }
    }
}

/// Follows the output of a turn line by line.
pub struct OutputTail {
    streams: [Followed; 2],
}

struct Followed {
    stream: Stream,
    log: GrowingLog,
    characters: Characters,
    /// Last line of the output so far, if its newline has not been read yet.
    tail: String,
}

impl OutputTail {
    /// Follows stdout and stderr of a run. `last`: maximum of earlier output, in bytes.
    pub fn of(agent: &Agent<'_>, run: RunId, last: Option<u64>) -> OutputTail {
        let dir = agent.local().run(run);
        let followed = |stream: Stream| Followed {
            stream,
            log: dir.follow(stream, last),
            characters: Characters::default(),
            tail: String::new(),
        };
        OutputTail { streams: [Stream::Stdout, Stream::Stderr].map(followed) }
    }

    /// Returns the complete lines since the last call. `ended`: there will be no more output.
    pub fn news(&mut self, ended: bool) -> Result<Vec<(Stream, String)>> {
        let mut lines = Vec::new();
        for followed in &mut self.streams {
            let bytes = followed.log.news()?;
            followed.tail.push_str(&followed.characters.take(&bytes, ended));
            let whole =
                if ended { followed.tail.len() } else { followed.tail.rfind('\n').map_or(0, |at| at + 1) };
            let rest = followed.tail.split_off(whole);
            let text = std::mem::replace(&mut followed.tail, rest);
            lines.extend(text.lines().map(|line| (followed.stream, line.to_owned())));
        }
        Ok(lines)
    }

    /// Returns the last lines of stdout and stderr whose newlines have not been read yet.
    pub fn unfinished(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|followed| followed.tail.as_str()).filter(|tail| !tail.is_empty())
    }
}

/// Maximum number of lines of stdout and of stderr in [`output_end`].
const LAST_LINES: usize = 20;
const LAST_BYTES: u64 = 4 << 10;

/// Returns the last lines of a run's stdout, then of its stderr; `None` if this machine has none.
pub fn output_end(agent: &Agent<'_>, run: RunId) -> Result<Option<String>> {
    let lines = OutputTail::of(agent, run, Some(LAST_BYTES)).news(true)?;
    let ends = lines.chunk_by(|(one, _), (other, _)| one == other);
    let ends = ends.flat_map(|of_stream| &of_stream[of_stream.len().saturating_sub(LAST_LINES)..]);
    let lines: Vec<&str> = ends.map(|(_, line)| line.as_str()).collect();
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}
