//! Live output of a turn, by lines.

use crate::error::Result;
use crate::model::id::RunId;
use crate::report::text::Characters;
use crate::store::Agent;
use crate::workdir::{GrowingLog, Stream};

/// Follows the output of a turn by lines.
pub struct OutputTail {
    streams: [Followed; 2],
}

struct Followed {
    stream: Stream,
    log: GrowingLog,
    characters: Characters,
    /// Text of a line without its end yet.
    begun: String,
}

impl OutputTail {
    /// Returns a follower of both streams of a run. `last`: maximum of earlier output, in bytes.
    pub fn of(agent: &Agent<'_>, run: RunId, last: Option<u64>) -> OutputTail {
        let dir = agent.workdir().run(run);
        let followed = |stream: Stream| Followed {
            stream,
            log: dir.follow(stream, last),
            characters: Characters::default(),
            begun: String::new(),
        };
        OutputTail { streams: [Stream::Stdout, Stream::Stderr].map(followed) }
    }

    /// Returns the new lines since the last look. `ended`: no more output comes.
    pub fn news(&mut self, ended: bool) -> Result<Vec<(Stream, String)>> {
        let mut lines = Vec::new();
        for followed in &mut self.streams {
            let bytes = followed.log.news()?;
            followed.begun.push_str(&followed.characters.take(&bytes, ended));
            let whole =
                if ended { followed.begun.len() } else { followed.begun.rfind('\n').map_or(0, |at| at + 1) };
            let rest = followed.begun.split_off(whole);
            let text = std::mem::replace(&mut followed.begun, rest);
            lines.extend(text.lines().map(|line| (followed.stream, line.to_owned())));
        }
        Ok(lines)
    }

    /// Returns the lines without an end yet.
    pub fn unfinished(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|followed| followed.begun.as_str()).filter(|begun| !begun.is_empty())
    }
}
