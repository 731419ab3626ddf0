//! What a turn writes, heard line by line while it runs.

use crate::error::Result;
use crate::model::id::RunId;
use crate::report::text::Characters;
use crate::store::Agent;
use crate::workdir::{Log, Stream};

/// What a turn writes, line by line, while it is written.
pub struct Tail {
    streams: [Followed; 2],
}

struct Followed {
    stream: Stream,
    log: Log,
    characters: Characters,
    /// The beginning of a line that has not ended.
    begun: String,
}

impl Tail {
    /// Both streams of a run. `last`: begins with so many bytes of what is there already.
    pub fn of(agent: &Agent<'_>, run: RunId, last: Option<u64>) -> Tail {
        let dir = agent.workdir().run(run);
        let followed = |stream: Stream| Followed {
            stream,
            log: dir.follow(stream, last),
            characters: Characters::default(),
            begun: String::new(),
        };
        Tail { streams: [Stream::Stdout, Stream::Stderr].map(followed) }
    }

    /// The lines that have come since the last look. `ended`: no more comes.
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

    /// The lines that have begun and not ended.
    pub fn unfinished(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|followed| followed.begun.as_str()).filter(|begun| !begun.is_empty())
    }
}
