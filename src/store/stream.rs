//! The stream that `export` writes and `import` reads, between stores of any kind (docs/FORMAT.md
//! §7).
//!
//! The stream is a tar archive in the one form that this writer produces, so equal agents give
//! equal bytes. The reader builds each header again from its fields, and refuses the stream if the
//! result differs from the header read. So links, devices, sparse files and other encodings of
//! names and numbers never reach the code that stores files.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use crate::error::{Error, IoContext, Result};
use crate::model::digest;
use crate::model::id::AgentName;
use crate::model::json;

/// Schema of the first file of a stream.
pub const SCHEMA: &str = "dormouse/export/1";
const FAMILY: &str = "dormouse/export/";
const VERSION: u32 = 1;

/// Names of the first file, which lists the agents, and of the last, the SHA-256 of all before it.
const CONTENTS: &str = "dormouse-export.json";
const SUM: &str = "dormouse-export.sha256";
/// Directory of the agents in a stream: an agent's files are below `agents/NAME/`.
const AGENTS: &str = "agents";
/// Name of a header that only has a long path. The header of the file follows.
const LONG_PATH: &str = "dormouse-export.path";

const BLOCK: usize = 512;
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Maximum bytes of the first file of a stream: a list of some 60,000 agent names.
const MAX_CONTENTS: u64 = 4 << 20;
/// Maximum bytes of a path in a stream.
const MAX_PATH: usize = 3 << 10;
/// Maximum bytes of a name between the slashes of a path.
const MAX_PART: usize = 255;
/// Maximum bytes of a file: the largest number in eleven octal digits.
pub const MAX_FILE: u64 = (8 << 30) - 1;
/// Latest time, in seconds since 1970, in eleven octal digits.
const MAX_TIME: u64 = (8 << 30) - 1;

/// Number of bytes that are copied at a time.
const AT_ONCE: usize = 64 << 10;

#[derive(Debug, Serialize, Deserialize)]
struct Preamble {
    schema: String,
    agents: Vec<AgentName>,
}

/// Metadata of a file of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    pub agent: AgentName,
    /// Path in the agent's directory: parts between slashes, none of them empty, `.` or `..`.
    pub(super) path: PathBuf,
    pub length: u64,
    pub is_executable: bool,
    /// Time of the last write, in seconds since 1970.
    pub written_at: u64,
}

impl Meta {
    /// Path relative to the agent's directory, for display.
    #[cfg(test)]
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn whole_path(&self) -> Vec<u8> {
        let name = self.agent.as_str().as_bytes();
        [AGENTS.as_bytes(), name, self.path.as_os_str().as_bytes()].join(&b'/')
    }
}

/// Writes an export stream: a list of agents, their files, and a checksum.
pub struct StreamWriter<W> {
    out: W,
    sum: Sha256,
    name: PathBuf,
}

impl<W: Write> StreamWriter<W> {
    /// Begins a stream of these agents, whose files follow in this order. `name`: name of the
    /// stream in error messages.
    pub fn begin(out: W, name: &str, agents: &[AgentName]) -> Result<StreamWriter<W>> {
        let mut writer = StreamWriter { out, sum: Sha256::new(), name: PathBuf::from(name) };
        let contents = Preamble { schema: SCHEMA.to_owned(), agents: agents.to_vec() };
        let mut bytes = serde_json::to_vec(&contents).unwrap_or_default();
        bytes.push(b'\n');
        writer.whole(CONTENTS, &bytes)?;
        Ok(writer)
    }

    /// Adds a file. `content` must give exactly `meta.length` bytes. `at`: path in error messages.
    pub(super) fn file(&mut self, meta: &Meta, content: impl Read, at: &Path) -> Result<()> {
        self.put(&header(&meta.whole_path(), meta))?;
        if parts(content, meta.length, at, |part| self.put(part))? < meta.length {
            let message = format!("{}: it became shorter while it was exported", at.display());
            return Err(Error::failed(message).with_hint("run the export again"));
        }
        self.put(padding(meta.length))
    }

    /// Ends the stream, and returns the underlying writer.
    pub fn finish(mut self) -> Result<W> {
        let sum = format!("{}\n", digest::of(self.sum.clone()));
        self.whole(SUM, sum.as_bytes())?;
        self.put(&END)?;
        self.out.flush().context("write", &self.name)?;
        Ok(self.out)
    }

    /// Writes the list of agents or the checksum, which are the stream's first and last file.
    fn whole(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.put(own_header(path, EntryType::Regular, bytes.len() as u64).as_bytes())?;
        self.put(bytes)?;
        self.put(padding(bytes.len() as u64))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes).context("write", &self.name)
    }
}

/// Reads an export stream, which any program may have written.
pub struct StreamReader<R> {
    input: R,
    sum: Sha256,
    name: PathBuf,
    agents: Vec<AgentName>,
    /// Number of bytes of the stream that were read, for error messages.
    at: u64,
    /// Bytes of the current file's content; 0 once the content was read.
    unread: u64,
    last: Option<Meta>,
}

impl<R: Read> StreamReader<R> {
    /// Begins to read. Error if the first file does not identify the stream as an export. `name`:
    /// name of the stream in error messages.
    pub fn begin(input: R, name: &str) -> Result<StreamReader<R>> {
        let mut reader = StreamReader {
            input,
            sum: Sha256::new(),
            name: PathBuf::from(name),
            agents: Vec::new(),
            at: 0,
            unread: 0,
            last: None,
        };
        let block = reader.at_most(BLOCK as u64)?;
        if block.len() < BLOCK || *Header::from_byte_slice(&block).path_bytes() != *CONTENTS.as_bytes() {
            let message = format!("{name}: not a stream that `dormouse export` wrote");
            return Err(
                Error::refused("not_an_export", message).with_hint("`dormouse export NAME` writes one")
            );
        }
        let length = Header::from_byte_slice(&block).entry_size().map_err(|error| reader.damaged(error))?;
        if block != own_header(CONTENTS, EntryType::Regular, length).as_bytes() {
            return Err(reader.damaged("its first header is not as an export writes it"));
        }
        let bytes = reader.own_content(length, MAX_CONTENTS)?;
        reader.agents = reader.contents(&bytes)?;
        Ok(reader)
    }

    /// Returns the agents of the stream, in its order.
    pub fn agents(&self) -> &[AgentName] {
        &self.agents
    }

    fn contents(&self, bytes: &[u8]) -> Result<Vec<AgentName>> {
        #[derive(Deserialize)]
        struct SchemaField {
            schema: String,
        }
        let SchemaField { schema } = json::read(bytes).map_err(|error| self.damaged(error))?;
        if schema != SCHEMA {
            let version = schema.strip_prefix(FAMILY).and_then(|version| version.parse::<u32>().ok());
            return Err(match version {
                Some(version) if version > VERSION => {
                    Error::Newer { path: self.name.clone(), found: schema, known: SCHEMA.to_owned() }
                }
                _ => self.damaged(format_args!("schema is \"{schema}\": expected \"{SCHEMA}\"")),
            });
        }
        let Preamble { agents, .. } = json::read(bytes).map_err(|error| self.damaged(error))?;
        if agents.is_empty() || agents.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(self.damaged("it names no agents, or not each once and in order"));
        }
        Ok(agents)
    }

    /// Returns the next file. `None` at the end of a stream that is complete and unchanged.
    pub fn next(&mut self) -> Result<Option<Meta>> {
        self.copy(|_| Ok(()))?;
        let before = self.sum.clone();
        let mut raw = self.exactly(BLOCK as u64)?;
        let mut long = None;
        if Header::from_byte_slice(&raw).entry_type() == EntryType::XHeader {
            let length = Header::from_byte_slice(&raw).entry_size().map_err(|error| self.damaged(error))?;
            let said = self.own_content(length, 2 * MAX_PATH as u64)?;
            raw.extend_from_slice(&said);
            raw.extend_from_slice(padding(length));
            long = Some(self.long_path(&said)?);
            raw.extend(self.exactly(BLOCK as u64)?);
        }
        let last = raw.len() - BLOCK;
        let header = Header::from_byte_slice(&raw[last..]);
        let number = |number: io::Result<u64>| number.map_err(|error| self.damaged(error));
        let (length, written_at) = (number(header.entry_size())?, number(header.mtime())?);
        let mode = header.mode().map_err(|error| self.damaged(error))?;
        let path = long.unwrap_or_else(|| header.path_bytes().into_owned());
        if path == SUM.as_bytes() {
            self.end(&raw, length, before)?;
            return Ok(None);
        }
        let meta = self.meta(&path, length, mode & 0o100 != 0, written_at)?;
        if self::header(&path, &meta) != raw {
            let message = format!("the header of {} is not as an export writes it", shown(&path));
            return Err(self.damaged(message));
        }
        if self.last.as_ref().is_some_and(|last| order(last, &meta) != Ordering::Less) {
            return Err(self.damaged(format_args!("{} is repeated or out of order", shown(&path))));
        }
        self.unread = length;
        self.last = Some(meta.clone());
        Ok(Some(meta))
    }

    /// Calls `take` with each part of the current file's content, unless that content was read.
    pub fn copy(&mut self, take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let length = std::mem::take(&mut self.unread);
        if self.parts(length, take)? < length {
            return Err(self.cut_short());
        }
        self.skip_padding(length)
    }

    fn meta(&self, path: &[u8], length: u64, is_executable: bool, written_at: u64) -> Result<Meta> {
        let bad = || self.damaged(format_args!("{}: no path of an agent's file", shown(path)));
        let mut parts = path.splitn(3, |byte| *byte == b'/');
        let (top, name, rest) = (parts.next(), parts.next(), parts.next());
        let name = name.and_then(|name| std::str::from_utf8(name).ok()?.parse::<AgentName>().ok());
        let (Some(agent), Some(rest)) = (name, rest) else { return Err(bad()) };
        let is_part =
            |part: &[u8]| !matches!(part, b"" | b"." | b"..") && part.len() <= MAX_PART && !part.contains(&0);
        let is_path = path.len() <= MAX_PATH && rest.split(|byte| *byte == b'/').all(is_part);
        if top != Some(AGENTS.as_bytes()) || !is_path || length > MAX_FILE {
            return Err(bad());
        }
        if self.agents.binary_search(&agent).is_err() {
            return Err(self.damaged(format_args!("a file of `{agent}`, which its first file does not name")));
        }
        let path = PathBuf::from(OsStr::from_bytes(rest));
        Ok(Meta { agent, path, length, is_executable, written_at })
    }

    /// Reads the checksum, which is the stream's last file, and refuses data after it.
    fn end(&mut self, raw: &[u8], length: u64, before: Sha256) -> Result<()> {
        if raw != own_header(SUM, EntryType::Regular, length).as_bytes() {
            return Err(self.damaged("its last header is not as an export writes it"));
        }
        let said = self.own_content(length, BLOCK as u64)?;
        if said != format!("{}\n", digest::of(before)).as_bytes() {
            return Err(self.damaged("its content does not match its checksum: it was changed on its way"));
        }
        if self.exactly(END.len() as u64)? != END || !self.at_most(1)?.is_empty() {
            return Err(self.damaged("something follows its end"));
        }
        Ok(())
    }

    /// Returns the path in a header for a long path: `LENGTH path=PATH` and a line feed.
    fn long_path(&self, said: &[u8]) -> Result<Vec<u8>> {
        let path = said.splitn(2, |byte| *byte == b'=').nth(1).and_then(|path| path.strip_suffix(b"\n"));
        let path = path.unwrap_or_default().to_vec();
        // Only the length is checked: `next` compares all else with a header that it builds itself.
        if path.len() > MAX_PATH { Err(self.damaged("a path that is too long")) } else { Ok(path) }
    }

    /// Reads an entry that belongs to no agent: the first or last file, or a long path.
    fn own_content(&mut self, length: u64, most: u64) -> Result<Vec<u8>> {
        if length > most {
            return Err(self.damaged(format_args!("{length} bytes where it has at most {most}")));
        }
        let bytes = self.exactly(length)?;
        self.skip_padding(length)?;
        Ok(bytes)
    }

    fn skip_padding(&mut self, length: u64) -> Result<()> {
        let wanted = padding(length);
        let found = self.exactly(wanted.len() as u64)?;
        if found == wanted { Ok(()) } else { Err(self.damaged("there is unexpected data between two files")) }
    }

    /// Reads `length` bytes. Error if the input ends before.
    fn exactly(&mut self, length: u64) -> Result<Vec<u8>> {
        let bytes = self.at_most(length)?;
        if (bytes.len() as u64) < length { Err(self.cut_short()) } else { Ok(bytes) }
    }

    /// Reads `length` bytes, or fewer if the input ends.
    fn at_most(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.parts(length, |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Calls `take` with the next `length` bytes, part by part, or with fewer if the input ends.
    /// Returns the number of bytes read.
    fn parts(&mut self, length: u64, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        let StreamReader { input, sum, name, at, .. } = self;
        parts(input, length, name, |part| {
            *at += part.len() as u64;
            sum.update(part);
            take(part)
        })
    }

    fn cut_short(&self) -> Error {
        self.damaged("it ends here, and is not whole: its export or its way was cut short")
    }

    /// Error for a fault in the stream, with the offset that is being read.
    pub fn damaged(&self, what: impl std::fmt::Display) -> Error {
        Error::damaged(self.name.clone(), format!("byte {}: {what}", self.at))
            .with_hint("nothing of it was imported: export again, and check the transfer")
    }
}

/// Compares two files by their order in a stream: agent by agent, and directories in the order of
/// their names.
fn order(one: &Meta, other: &Meta) -> Ordering {
    one.agent.cmp(&other.agent).then_with(|| one.path.components().cmp(other.path.components()))
}

/// Calls `take` with the next `length` bytes of an input, part by part, or with fewer if the input
/// ends. Returns the number of bytes read. `name`: name of the input in errors.
pub(super) fn parts(
    input: impl Read,
    length: u64,
    name: &Path,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let mut buffer = vec![0; usize::try_from(length).map_or(AT_ONCE, |length| length.min(AT_ONCE))];
    let mut input = input.take(length);
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(length - input.limit()),
            Ok(count) => take(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("read", name),
        }
    }
}

/// Returns the headers of a file: one block, or three blocks if its path is too long for one.
fn header(path: &[u8], meta: &Meta) -> Vec<u8> {
    let mut plain = own_header("", EntryType::Regular, meta.length);
    plain.set_mode(if meta.is_executable { 0o700 } else { 0o600 });
    plain.set_mtime(meta.written_at.min(MAX_TIME));
    let mut with_path = plain.clone();
    if with_path.set_path(OsStr::from_bytes(path)).is_ok() && *with_path.path_bytes() == *path {
        with_path.set_cksum();
        return with_path.as_bytes().to_vec();
    }
    let said = pax_path(path);
    let of_path = own_header(LONG_PATH, EntryType::XHeader, said.len() as u64);
    // The name is short enough for a header.
    let _ = plain.set_path(LONG_PATH);
    plain.set_cksum();
    [of_path.as_bytes(), &said[..], padding(said.len() as u64), plain.as_bytes()].concat()
}

/// Encodes a path as a POSIX extended header, which begins with the length of the whole header, the
/// digits of this length included.
fn pax_path(path: &[u8]) -> Vec<u8> {
    let rest = path.len() + " path=\n".len();
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} path=").as_bytes(), path, b"\n"].concat()
}

/// Returns the header of an entry that belongs to no agent, such as the checksum.
fn own_header(path: &str, kind: EntryType, length: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(length);
    header.set_mtime(0);
    // The caller has checked that the path is short enough for the header.
    let _ = header.set_path(path);
    header.set_cksum();
    header
}

/// Returns the zeros that fill the last block of a file. `length`: bytes of the file.
fn padding(length: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let over = usize::try_from(length % BLOCK as u64).unwrap_or_default();
    if over == 0 { &[] } else { &ZEROS[over..] }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests;
