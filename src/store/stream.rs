//! The stream that `export` writes and `import` reads, between stores of any kind (docs/FORMAT.md
//! §7).
//!
//! The stream is a tar archive of plain files in a fixed order, so equal agents give equal bytes.
//! The reader refuses every other kind of entry, so links, devices and sparse files never reach the
//! code that stores files.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType, Header};

use crate::error::{Error, IoContext, Result};
use crate::model::digest;
use crate::model::id::AgentName;
use crate::model::json;

/// Schema of the first file of a stream.
pub const SCHEMA: &str = "dormouse/export/1";
const FAMILY: &str = "dormouse/export/";
const VERSION: u32 = 1;

/// Name of the first file, which lists the agents; `SUM`: of the last, the SHA-256 of all before.
const CONTENTS: &str = "dormouse-export.json";
const SUM: &str = "dormouse-export.sha256";
/// Directory of the agents in a stream: an agent's files are below `agents/NAME/`.
const AGENTS: &str = "agents";

const BLOCK: usize = 512;
/// Bytes from the content of the last file to the end: one block of content, two blocks of zeros.
const END: usize = 3 * BLOCK;

/// Maximum bytes of the first file of a stream: a list of some 60,000 agent names.
const MAX_CONTENTS: u64 = 4 << 20;
/// Maximum bytes of a path in a stream.
const MAX_PATH: usize = 3 << 10;
/// Maximum bytes of a name between the slashes of a path.
const MAX_PART: usize = 255;
/// Maximum bytes before the content of a file: its header, and the header and block of a long path.
const MAX_HEADERS: u64 = (MAX_PATH + 3 * BLOCK) as u64;

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
    /// Time of the last write, in seconds since 1970. 0 for checkpoints, and for records, which
    /// name their own times.
    pub written_at: u64,
}

impl Meta {
    /// Path relative to the agent's directory, for display.
    #[cfg(test)]
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Path in the stream.
    fn whole_path(&self) -> PathBuf {
        Path::new(AGENTS).join(self.agent.as_str()).join(&self.path)
    }
}

/// Writes an export stream: a list of agents, their files, and a checksum.
pub struct StreamWriter<W: Write> {
    out: Builder<Summed<W>>,
    name: PathBuf,
}

impl<W: Write> StreamWriter<W> {
    /// Begins a stream of these agents, whose files follow in this order. `name`: name of the
    /// stream in error messages.
    pub fn begin(out: W, name: &str, agents: &[AgentName]) -> Result<StreamWriter<W>> {
        let mut writer = StreamWriter { out: Builder::new(Summed::new(out)), name: PathBuf::from(name) };
        let contents = Preamble { schema: SCHEMA.to_owned(), agents: agents.to_vec() };
        let mut bytes = serde_json::to_vec(&contents).unwrap_or_default();
        bytes.push(b'\n');
        writer.put(Path::new(CONTENTS), header(bytes.len() as u64), &bytes[..], Path::new(CONTENTS))?;
        Ok(writer)
    }

    /// Adds a file. `content` must give exactly `meta.length` bytes. `at`: path in error messages.
    pub(super) fn file(&mut self, meta: &Meta, content: impl Read, at: &Path) -> Result<()> {
        let mut header = header(meta.length);
        header.set_mode(if meta.is_executable { 0o700 } else { 0o600 });
        header.set_mtime(meta.written_at);
        self.put(&meta.whole_path(), header, content, at)
    }

    /// Ends the stream, and returns the underlying writer.
    pub fn finish(mut self) -> Result<W> {
        let sum = format!("{}\n", digest::of(self.out.get_ref().sum.clone()));
        self.put(Path::new(SUM), header(sum.len() as u64), sum.as_bytes(), Path::new(SUM))?;
        let mut out = self.out.into_inner().context("write", &self.name)?.inner;
        out.flush().context("write", &self.name)?;
        Ok(out)
    }

    fn put(&mut self, path: &Path, mut header: Header, content: impl Read, at: &Path) -> Result<()> {
        let mut content = content.take(header.entry_size().unwrap_or_default());
        match self.out.append_data(&mut header, path, &mut content) {
            Err(error) if self.out.get_ref().has_failed => Err(error).context("write", &self.name),
            Err(error) => Err(error).context("read", at),
            Ok(()) if content.limit() > 0 => {
                let message = format!("{}: it became shorter while it was exported", at.display());
                Err(Error::failed(message).with_hint("run the export again"))
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Input or output, with the SHA-256 of all bytes so far.
struct Summed<T> {
    inner: T,
    sum: Sha256,
    /// True after an error.
    has_failed: bool,
}

impl<T> Summed<T> {
    fn new(inner: T) -> Summed<T> {
        Summed { inner, sum: Sha256::new(), has_failed: false }
    }

    fn count(&mut self, bytes: &[u8], done: io::Result<usize>) -> io::Result<usize> {
        self.has_failed = done.is_err();
        self.sum.update(&bytes[..*done.as_ref().unwrap_or(&0)]);
        done
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.inner.write(bytes);
        self.count(bytes, done)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let done = self.inner.read(buffer);
        self.count(buffer, done)
    }
}

/// Reads an export stream, which any program may have written.
pub struct StreamReader<R> {
    input: Summed<R>,
    name: PathBuf,
    agents: Vec<AgentName>,
    /// Bytes of the current file's content; 0 once the content was read.
    unread: u64,
    last: Option<Meta>,
}

impl<R: Read> StreamReader<R> {
    /// Begins to read. Error if the first file does not identify the stream as an export. `name`:
    /// name of the stream in error messages.
    pub fn begin(input: R, name: &str) -> Result<StreamReader<R>> {
        let (input, at) = (Summed::new(input), PathBuf::from(name));
        let mut reader = StreamReader { input, name: at, agents: Vec::new(), unread: 0, last: None };
        match reader.header() {
            Ok(Some((path, ..))) if path == CONTENTS.as_bytes() => {}
            Err(error @ Error::Io { .. }) => return Err(error),
            Ok(_) | Err(_) => {
                let message = format!("{name}: not a stream that `dormouse export` wrote");
                let error = Error::refused("not_an_export", message);
                return Err(error.with_hint("`dormouse export NAME` writes one"));
            }
        }
        if reader.unread > MAX_CONTENTS {
            return Err(reader.damaged(format_args!("{CONTENTS} is larger than {MAX_CONTENTS} bytes")));
        }
        let mut bytes = Vec::new();
        reader.copy(|part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
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
        let before = self.input.sum.clone();
        let Some((path, is_executable, written_at)) = self.header()? else { return Err(self.cut_short()) };
        if path == SUM.as_bytes() {
            self.end(before)?;
            return Ok(None);
        }
        let meta = self.meta((&path, is_executable, written_at))?;
        if self.last.as_ref().is_some_and(|last| order(last, &meta) != Ordering::Less) {
            return Err(self.damaged(format_args!("{} is repeated or out of order", shown(&path))));
        }
        self.last = Some(meta.clone());
        Ok(Some(meta))
    }

    /// Calls `take` with each part of the current file's content, unless that content was read.
    pub fn copy(&mut self, take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let length = std::mem::take(&mut self.unread);
        let padding = length.next_multiple_of(BLOCK as u64) - length;
        let StreamReader { input, name, .. } = self;
        let is_whole = parts(&mut *input, length, name, take)? == length
            && parts(input, padding, name, |_| Ok(()))? == padding;
        if is_whole { Ok(()) } else { Err(self.cut_short()) }
    }

    /// Reads the header of the next file: its path, `true` if the owner may execute it, and its
    /// time. `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<(Vec<u8>, bool, u64)>> {
        // The limit bounds the memory that a long path takes.
        let mut archive = Archive::new((&mut self.input).take(MAX_HEADERS));
        let unread = &mut self.unread;
        let found = archive.entries().and_then(|mut entries| {
            let Some(mut entry) = entries.next().transpose()? else { return Ok(None) };
            let path = entry.path_bytes().into_owned();
            let is_plain = entry.header().entry_type() == EntryType::Regular;
            if !is_plain || entry.pax_extensions()?.is_some() || entry.link_name_bytes().is_some() {
                return Err(io::Error::other(format!("{} is no plain file", shown(&path))));
            }
            *unread = entry.size();
            Ok(Some((path, entry.header().mode()? & 0o100 != 0, entry.header().mtime()?)))
        });
        found.map_err(|error| match (error.raw_os_error(), &self.last) {
            (Some(_), _) => Error::Io { action: "read", path: self.name.clone(), source: error },
            (None, None) => self.damaged(error),
            (None, Some(last)) => {
                self.damaged(format_args!("after {}: {error}", last.whole_path().display()))
            }
        })
    }

    fn meta(&self, (path, is_executable, written_at): (&[u8], bool, u64)) -> Result<Meta> {
        let bad = || self.damaged(format_args!("{}: no path of an agent's file", shown(path)));
        let mut parts = path.splitn(3, |byte| *byte == b'/');
        let (top, name, rest) = (parts.next(), parts.next(), parts.next());
        let name = name.and_then(|name| std::str::from_utf8(name).ok()?.parse::<AgentName>().ok());
        let (Some(agent), Some(rest)) = (name, rest) else { return Err(bad()) };
        let is_part =
            |part: &[u8]| !matches!(part, b"" | b"." | b"..") && part.len() <= MAX_PART && !part.contains(&0);
        let is_path = path.len() <= MAX_PATH && rest.split(|byte| *byte == b'/').all(is_part);
        if top != Some(AGENTS.as_bytes()) || !is_path {
            return Err(bad());
        }
        if self.agents.binary_search(&agent).is_err() {
            return Err(self.damaged(format_args!("a file of `{agent}`, which its first file does not name")));
        }
        let (path, length) = (PathBuf::from(OsStr::from_bytes(rest)), self.unread);
        Ok(Meta { agent, path, length, is_executable, written_at })
    }

    /// Reads the checksum, which is the stream's last file, and refuses data after it. `before`:
    /// the checksum of all before the header of that file.
    fn end(&mut self, before: Sha256) -> Result<()> {
        let sum = format!("{}\n", digest::of(before)).into_bytes();
        let (mut wanted, mut found) = (sum.clone(), Vec::new());
        wanted.resize(END, 0);
        (&mut self.input).take(END as u64 + 1).read_to_end(&mut found).context("read", &self.name)?;
        match found.len() {
            short if short < END => Err(self.cut_short()),
            _ if !found.starts_with(&sum) => {
                Err(self.damaged("its content does not match its checksum: it was changed on its way"))
            }
            _ if found != wanted => Err(self.damaged("something follows its end")),
            _ => Ok(()),
        }
    }

    fn cut_short(&self) -> Error {
        self.damaged("it ends too early, and is not whole: its export or its way was cut short")
    }

    /// Error for a fault in the stream.
    pub fn damaged(&self, what: impl std::fmt::Display) -> Error {
        Error::damaged(self.name.clone(), what.to_string())
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
fn parts(
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

/// Returns the header of a plain file, still without its path.
fn header(length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(length);
    header
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests;
