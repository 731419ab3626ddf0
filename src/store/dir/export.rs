//! An agent as one revision, for `export`: taken under its lock in a moment, and written out without the
//! lock.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::beneath::Spot;
use crate::error::{Context, Error, Result};
use crate::model::id::AgentName;
use crate::store::stream::{Meta, Writer};

use super::change::Change;
use super::import::{Arriving, Source};
use super::layout;
use super::moved::Taken;
use super::travel::{Place, place};

/// Files up to this many bytes are copied under the lock; of larger ones a descriptor is kept, and their length.
const COPIED: u64 = 64 << 10;

/// What an agent consists of at one revision.
#[derive(Debug)]
pub struct Leaving {
    agent: AgentName,
    dir: Spot,
    files: Vec<Taking>,
    /// The contents of small files, one after the other. It has no name.
    copies: File,
    copied: u64,
    /// Files that do not travel and are not this machine's own either, from the agent's directory: links,
    /// pipes, unknown names.
    left_out: Vec<PathBuf>,
}

#[derive(Debug)]
struct Taking {
    path: PathBuf,
    length: u64,
    is_executable: bool,
    written_at: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// Where the content begins among the copies.
    Copy(u64),
    Open(File),
}

impl Change<'_> {
    /// Takes everything of the agent that travels. For an agent that is marked as moved, that is what was
    /// taken the first time: messages may have come into its inbox since.
    pub fn leaving(&self, is_moved: bool) -> Result<Leaving> {
        self.agent.store.files_only("an export")?;
        self.empty_journal()?;
        // This finishes an exchange of the inbox that was interrupted.
        self.scan()?;
        let agent = self.agent;
        let spot = agent.tmp().join(format!("export-{}", std::process::id()));
        let copies = agent.store.disk.stage_unsynced(&spot, b"")?;
        spot.remove()?;
        let mut leaving = Leaving {
            agent: agent.name().clone(),
            dir: agent.dir.spot().clone(),
            files: Vec::new(),
            copies,
            copied: 0,
            left_out: Vec::new(),
        };
        leaving.walk(Path::new(""))?;
        if is_moved {
            match agent.taken()? {
                Some(taken) => leaving.files.retain(|file| taken.has_of(&file.path)),
                None => agent.note_taken(&Taken::of(leaving.files.iter().map(|file| &*file.path)))?,
            }
        }
        Ok(leaving)
    }
}

impl Leaving {
    /// Takes the files of a directory, in the order of their names.
    fn walk(&mut self, below: &Path) -> Result<()> {
        for entry in self.dir.join(below).entries()? {
            let path = below.join(&entry.name);
            match place(&path) {
                Place::Local => {}
                Place::Unknown => self.left_out.push(path),
                Place::Records { .. } | Place::Evidence if entry.is_dir => self.walk(&path)?,
                Place::Records { most } => self.take(path, most)?,
                found @ Place::Evidence => match self.take(path.clone(), found.most().unwrap_or_default()) {
                    // This is a link, a pipe, or a file that is too large or has too many holes.
                    Err(Error::Damaged { .. }) => self.left_out.push(path),
                    taken => taken?,
                },
            }
        }
        Ok(())
    }

    fn take(&mut self, path: PathBuf, most: u64) -> Result<()> {
        let spot = self.dir.join(&path);
        // If it is gone, the command that put it there has taken it back.
        let Some((file, mut length)) = spot.open_file()? else { return Ok(()) };
        if length > most {
            return Err(spot.too_large(length, most));
        }
        let found = file.metadata().context("look at", &spot)?;
        let content = if length <= COPIED {
            let at = self.copied;
            let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
            (&file).take(length).read_to_end(&mut bytes).context("read", &spot)?;
            length = bytes.len() as u64;
            self.copies.write_all_at(&bytes, at).context("write a copy of", &spot)?;
            self.copied += length;
            Content::Copy(at)
        } else {
            Content::Open(file)
        };
        let written_at = u64::try_from(found.mtime()).unwrap_or(0);
        let is_executable = found.mode() & 0o100 != 0;
        self.files.push(Taking { path, length, is_executable, written_at, content });
        Ok(())
    }

    /// The files that are left out and are not this machine's own, for people.
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        self.left_out.iter().map(|path| path.display().to_string())
    }

    pub fn files(&self) -> usize {
        self.files.len()
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }

    /// How many files are in its inbox.
    pub fn arrivals(&self) -> usize {
        let is_arrival =
            |path: &Path| matches!(place(path), Place::Records { .. }) && path.starts_with(layout::INBOX);
        self.files.iter().filter(|file| is_arrival(&file.path)).count()
    }

    /// Writes all of it to a stream. No other command waits for that. `written` is told how many bytes each file has.
    pub fn write<W: Write>(&self, writer: &mut Writer<W>, mut written: impl FnMut(u64)) -> Result<()> {
        for file in &self.files {
            let (meta, content) = self.file(file);
            writer.file(&meta, content, &self.dir.join(&file.path))?;
            written(file.length);
        }
        Ok(())
    }

    /// Gives all of it to an agent that is being made here.
    pub fn copy_to(&self, arriving: &mut Arriving<'_>, mut written: impl FnMut(u64)) -> Result<()> {
        for file in &self.files {
            let (meta, content) = self.file(file);
            arriving
                .add(&meta, &mut Copied { content, left: file.length, spot: self.dir.join(&file.path) })?;
            written(file.length);
        }
        Ok(())
    }

    fn file<'f>(&'f self, file: &'f Taking) -> (Meta, Piece<'f>) {
        let Taking { path, length, is_executable, written_at, content } = file;
        let meta = Meta {
            agent: self.agent.clone(),
            path: path.clone(),
            length: *length,
            is_executable: *is_executable,
            written_at: *written_at,
        };
        let content = match content {
            Content::Copy(at) => Piece { file: &self.copies, at: *at },
            Content::Open(file) => Piece { file, at: 0 },
        };
        (meta, content)
    }
}

/// A part of an open file, read without moving a position that other readers share.
struct Piece<'f> {
    file: &'f File,
    at: u64,
}

impl Read for Piece<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// The content of a file as it was when it was taken: lines may have been added since.
struct Copied<'f> {
    content: Piece<'f>,
    left: u64,
    spot: Spot,
}

impl Source for Copied<'_> {
    fn copy(&mut self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; usize::try_from(self.left.min(COPIED)).unwrap_or_default()];
        while self.left > 0 {
            let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let count = self.content.read(&mut buffer[..most]).context("read", &self.spot)?;
            if count == 0 {
                return Err(self.damaged(&"it became shorter while it was read"));
            }
            self.left -= count as u64;
            take(&buffer[..count])?;
        }
        Ok(())
    }

    fn damaged(&self, what: &dyn Display) -> Error {
        Error::damaged(self.spot.path(), what.to_string())
    }
}
