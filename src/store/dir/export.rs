//! Export of an agent at one revision: its files are collected under the agent's lock within
//! moments, and written out without the lock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::cap_fs::CapPath;
use crate::error::{Error, IoContext, Result};
use crate::local::travel::{FileKind, MAX_FILE, keeps_time, place, walk};
use crate::local::{LocalAgent, layout};
use crate::model::id::AgentName;
use crate::store::stream::{Meta, StreamWriter};

use super::change::DirTxn;
use super::moved::TakenInbox;

/// Files up to this many bytes are copied under the agent's lock; for larger files, an open
/// descriptor and the length are kept.
const COPIED: u64 = 64 << 10;

/// Files of an agent at one revision.
#[derive(Debug)]
pub struct DirExport {
    agent: AgentName,
    dir: CapPath,
    files: Vec<Taking>,
    /// Unnamed temporary file with the contents of small files, one after another.
    copies: File,
    copied: u64,
    /// Paths, relative to the agent's directory, of files that are neither exported nor local to
    /// this machine: links, pipes, unknown names.
    left_out: Vec<PathBuf>,
}

#[derive(Debug)]
struct Taking {
    path: PathBuf,
    length: u64,
    is_executable: bool,
    /// Time of the last write, in seconds since 1970; 0 for a file whose time is not exported.
    written_at: u64,
    content: TakenContent,
}

#[derive(Debug)]
enum TakenContent {
    /// Ranges of the temporary file `copies`, each as its offset and length in bytes.
    Copy(Vec<(u64, u64)>),
    Open(File),
}

impl DirTxn<'_> {
    /// Collects all exported files of the agent. If the agent is marked as moved (`is_moved`),
    /// these are the files of the first export, without inbox files that arrived since.
    pub(in crate::store) fn exported(&self, is_moved: bool) -> Result<DirExport> {
        self.empty_journal()?;
        // `scan` finishes an interrupted replacement of the inbox: no message may be left out.
        self.scan()?;
        let agent = self.agent;
        let mut exported = agent.local.empty_export()?;
        if is_moved && agent.local.state_dir.is_shared() {
            // Members of the sharing group can't read in `state.json` that the agent was moved, so
            // they lose the permission to add files before the inbox is listed.
            agent.local.dir.join(layout::INBOX).set_mode(0o700)?;
        }
        exported.collect(false)?;
        if is_moved {
            let list = agent.local.dir.join(layout::TAKEN);
            match TakenInbox::read(&agent.local.dir)? {
                Some(taken) => exported.files.retain(|file| taken.has_of(&file.path)),
                None => agent.local.replace_file(&list, &TakenInbox::of(exported.paths()).encode())?,
            }
        }
        Ok(exported)
    }
}

impl LocalAgent<'_> {
    /// Collects the local files of an agent whose records are in another store. The caller holds
    /// the agent's lock, and adds the records.
    pub(in crate::store) fn export_local_files(&self) -> Result<DirExport> {
        let mut exported = self.empty_export()?;
        exported.collect(true)?;
        Ok(exported)
    }

    /// Returns an export without files.
    fn empty_export(&self) -> Result<DirExport> {
        let cap = self.tmp().join(format!("export-{}", std::process::id()));
        let copies = self.disk().stage_unsynced(&cap, b"")?;
        cap.remove()?;
        Ok(DirExport {
            agent: self.name.clone(),
            dir: self.dir.cap().clone(),
            files: Vec::new(),
            copies,
            copied: 0,
            left_out: Vec::new(),
        })
    }
}

impl DirExport {
    /// Adds files. `put` calls the function that it receives with each part of a file: the path of
    /// the file, and the bytes.
    pub(in crate::store) fn add(
        &mut self,
        put: impl FnOnce(&mut dyn FnMut(&str, &[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let mut files: BTreeMap<PathBuf, Taking> = BTreeMap::new();
        put(&mut |path, part| {
            let path = PathBuf::from(path);
            let at = self.copy(part, &self.dir.join(&path))?;
            let file = files.entry(path).or_insert_with_key(|path| {
                let content = TakenContent::Copy(Vec::new());
                Taking { path: path.clone(), length: 0, is_executable: false, written_at: 0, content }
            });
            let length = part.len() as u64;
            file.length += length;
            if let TakenContent::Copy(parts) = &mut file.content {
                match parts.last_mut() {
                    Some((begin, long)) if *begin + *long == at => *long += length,
                    Some(_) | None => parts.push((at, length)),
                }
            }
            Ok(())
        })?;
        self.files.extend(files.into_values());
        Ok(())
    }

    /// Sorts the added files by path, as the export stream requires.
    pub(in crate::store) fn in_order(mut self) -> DirExport {
        self.files.sort_by(|one, other| one.path.cmp(&other.path));
        self
    }

    /// Copies some bytes into the temporary file. Returns their offset in it.
    fn copy(&mut self, bytes: &[u8], of: &CapPath) -> Result<u64> {
        let at = self.copied;
        self.copies.write_all_at(bytes, at).context("write a copy of", of)?;
        self.copied += bytes.len() as u64;
        Ok(at)
    }

    /// Collects the files of the agent, sorted by name. `is_room`: true if the agent's records are
    /// in another store.
    fn collect(&mut self, is_room: bool) -> Result<()> {
        let dir = self.dir.clone();
        walk(&dir, Path::new(""), &mut |path, entry| {
            match place(path) {
                FileKind::Local => return Ok(false),
                FileKind::Unknown => self.left_out.push(path.to_owned()),
                FileKind::Records { .. } | FileKind::Evidence if entry.is_dir => return Ok(true),
                FileKind::Records { .. } if is_room => {}
                FileKind::Records { most } => self.take(path, most)?,
                FileKind::Evidence => match self.take(path, MAX_FILE) {
                    // Links, pipes, too large files and files with too many holes are left out.
                    Err(Error::Damaged { .. }) => self.left_out.push(path.to_owned()),
                    taken => taken?,
                },
            }
            Ok(false)
        })
    }

    fn take(&mut self, path: &Path, most: u64) -> Result<()> {
        let cap = self.dir.join(path);
        // A missing file was removed again by the command that had put it into the inbox.
        let Some((file, mut length)) = cap.open_file()? else { return Ok(()) };
        if length > most {
            return Err(cap.too_large(length, most));
        }
        let found = file.metadata().context("look at", &cap)?;
        let content = if length <= COPIED {
            let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
            (&file).take(length).read_to_end(&mut bytes).context("read", &cap)?;
            length = bytes.len() as u64;
            TakenContent::Copy(vec![(self.copy(&bytes, &cap)?, length)])
        } else {
            TakenContent::Open(file)
        };
        let written_at = if keeps_time(path) { u64::try_from(found.mtime()).unwrap_or(0) } else { 0 };
        let is_executable = found.mode() & 0o100 != 0;
        let path = path.to_owned();
        self.files.push(Taking { path, length, is_executable, written_at, content });
        Ok(())
    }

    /// Returns the paths of files that are neither exported nor local to this machine, for display.
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        self.left_out.iter().map(|path| path.display().to_string())
    }

    /// Paths of the files in this export, relative to the agent's directory.
    pub(in crate::store) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| &*file.path)
    }

    pub fn files(&self) -> usize {
        self.files.len()
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }

    /// Number of files in the agent's inbox.
    pub fn arrivals(&self) -> usize {
        let is_arrival =
            |path: &Path| matches!(place(path), FileKind::Records { .. }) && path.starts_with(layout::INBOX);
        self.files.iter().filter(|file| is_arrival(&file.path)).count()
    }

    /// Writes all files to a stream, without blocking other commands. `written` is called with the
    /// number of bytes of each file.
    pub fn write<W: Write>(&self, writer: &mut StreamWriter<W>, mut written: impl FnMut(u64)) -> Result<()> {
        for file in &self.files {
            let (meta, content) = self.file(file);
            writer.file(&meta, content, &self.dir.join(&file.path))?;
            written(file.length);
        }
        Ok(())
    }

    fn file<'f>(&'f self, file: &'f Taking) -> (Meta, FilePart<'f>) {
        let Taking { path, length, is_executable, written_at, content } = file;
        let meta = Meta {
            agent: self.agent.clone(),
            path: path.clone(),
            length: *length,
            is_executable: *is_executable,
            written_at: *written_at,
        };
        let content = match content {
            TakenContent::Copy(parts) => FilePart { file: &self.copies, at: 0, left: 0, rest: parts },
            TakenContent::Open(file) => FilePart { file, at: 0, left: *length, rest: &[] },
        };
        (meta, content)
    }
}

/// Part of an open file, read without moving a file position that other readers share.
struct FilePart<'f> {
    file: &'f File,
    at: u64,
    /// Number of bytes of the current range that were not read yet.
    left: u64,
    rest: &'f [(u64, u64)],
}

impl Read for FilePart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0
            && let Some(((at, length), rest)) = self.rest.split_first()
        {
            (self.at, self.left, self.rest) = (*at, *length, rest);
        }
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
