//! Words from the command line, turned into values; what is wrong with one names its flag.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::str::FromStr;

use crate::error::{Context, Error, Result};
use crate::model::policy::Size;
use crate::model::time::Time;

/// Parses the word given for a flag or argument.
pub fn parse<T>(flag: &str, word: &str) -> Result<T>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    word.parse().map_err(|error| Error::usage(format!("{flag}: {error}")))
}

/// The same for a flag that may be absent.
pub fn parse_optional<T>(flag: &str, word: Option<&str>) -> Result<Option<T>>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    word.map(|word| parse(flag, word)).transpose()
}

/// A time, or a duration before `now`.
pub fn time_or_ago(flag: &str, word: &str, now: Time) -> Result<Time> {
    if let Ok(span) = word.parse::<crate::model::time::Span>() {
        return Ok(Time::from_millis(
            now.as_millis().saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        ));
    }
    Time::parse(word).map_err(|error| Error::usage(format!("{flag}: {error}")))
}

/// TEXT itself, `-` for stdin, `@FILE`; without any, stdin if it is no terminal. At most a little
/// more than `limit` is read: the rules say that it is too much, not the memory.
pub fn text(flag: &str, word: Option<&str>, limit: Size) -> Result<String> {
    match word {
        Some("-") => stdin(limit),
        Some(word) => match word.strip_prefix('@') {
            Some(path) => {
                let path = Path::new(path);
                let file = File::open(path).context("read", path)?;
                utf8(&path.display().to_string(), read_bounded(file, path, limit)?)
            }
            None => Ok(word.to_owned()),
        },
        None if std::io::stdin().is_terminal() => Err(Error::Usage {
            message: format!("{flag}: nothing to say"),
            hint: Some("give the text, or `-` for stdin, or `@FILE`".to_owned()),
        }),
        // Nobody has put anything there on purpose: cron's stdin, say.
        None => match stdin(limit)? {
            text if text.is_empty() => Err(Error::Usage {
                message: format!("{flag}: nothing to say, and nothing on stdin"),
                hint: Some("give the text, or `-` for stdin whatever is there, or `@FILE`".to_owned()),
            }),
            text => Ok(text),
        },
    }
}

fn stdin(limit: Size) -> Result<String> {
    utf8("stdin", read_bounded(std::io::stdin(), Path::new("stdin"), limit)?)
}

fn read_bounded(reader: impl Read, path: &Path, limit: Size) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit.0.saturating_add(1)).read_to_end(&mut bytes).context("read", path)?;
    Ok(bytes)
}

/// A file, or `-` for stdin, as it is. At most a little more than `limit` is read.
pub fn bytes(word: &str, limit: Size) -> Result<Vec<u8>> {
    if word == "-" {
        return read_bounded(std::io::stdin(), Path::new("stdin"), limit);
    }
    let path = Path::new(word);
    read_bounded(File::open(path).context("read", path)?, path, limit)
}

fn utf8(name: &str, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| Error::Usage {
        message: format!("{name}: not UTF-8"),
        hint: Some("a message is text: encode other data, or put it in a file and say where".to_owned()),
    })
}

/// A part of an id: of at least four characters, with or without its prefix.
pub fn matches_id(id: &str, part: &str) -> bool {
    part.len() >= 4 && id.contains(part)
}
