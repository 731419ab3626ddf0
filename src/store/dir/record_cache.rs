//! Cache of the open records of a kind, in one file. Reading the metadata of many small files takes
//! a fifth of the time of opening and reading them.
//!
//! A cached record is used only if its file has the inode, length, mtime and ctime of the file that
//! was read. These change with every transaction, merge, restore or edit in place. But the clock of
//! a file system advances in steps, and a second change within one step would not be noticed. So a
//! record that was changed less than [`SETTLED`] before a step has read it is not cached. If
//! anything is wrong with the cache, the records are read without it.

use std::fs::File;
use std::io::Write;

use twox_hash::XxHash64;

use crate::beneath::{Content, FileStamp, Spot};
use crate::error::Result;

use super::files::{self, Disk};
use super::layout;
use super::view::View;

/// Minimum number of records at which reading the cache file pays.
pub const MANY: usize = 32;

/// Minimum age of a file's last change, in nanoseconds: file systems count in steps of up to two
/// seconds.
const SETTLED: u64 = 2_100_000_000;

/// A step rewrites the cache above this number of uncached records, and above 1/16 of all.
const TOO_MANY: usize = 16;

/// Maximum bytes of one cached record, and of the cache file.
const MOST_EACH: usize = 64 << 10;
const MOST: u64 = 64 << 20;

const MAGIC: &[u8; 8] = b"open-1\n\0";
const HEAD: usize = MAGIC.len() + 8;

/// Returns the contents of the records of a kind at these sorted paths. Leaves out missing files.
pub fn contents(view: &View<'_>, plane: &str, paths: Vec<String>) -> Result<Vec<(String, Vec<u8>)>> {
    let spot = view.agent.join(layout::remembered(plane));
    let bytes = load(&spot);
    let names = || paths.iter().map(|path| name(plane, path));
    let stamps = view.agent.join(plane).stamps(names())?;
    let mut entries = entries(&bytes).peekable();
    let known: Vec<Option<CachedRecord<'_>>> = names()
        .zip(stamps)
        .map(|(name, stamp)| {
            while entries.next_if(|entry| entry.name < name).is_some() {}
            entries.next_if(|entry| entry.name == name).filter(|entry| Some(entry.stamp) == stamp)
        })
        .collect();
    let unknown = known.iter().filter(|known| known.is_none()).count();
    let is_worth_it = unknown > TOO_MANY.max(paths.len() / TOO_MANY);
    // The renewal begins before any read: a record that changes later than that is not cached.
    let mut renewal = view.remembers().filter(|_| is_worth_it).and_then(|disk| Renewal::begin(view, disk));
    let mut contents = Vec::with_capacity(paths.len());
    for (path, known) in paths.into_iter().zip(known) {
        if let Some(entry) = known {
            contents.push((path, entry.content.to_vec()));
            if let Some(renewal) = &mut renewal {
                renewal.keep(entry);
            }
            continue;
        }
        let Some(Content { bytes, stamp, .. }) = files::read_owned(&view.agent.join(&path))? else {
            continue;
        };
        if let Some(renewal) = &mut renewal {
            renewal.add(CachedRecord { name: name(plane, &path), stamp, content: &bytes });
        }
        contents.push((path, bytes));
    }
    if let Some(renewal) = renewal {
        renewal.end(&spot);
    }
    Ok(contents)
}

fn name<'p>(plane: &str, path: &'p str) -> &'p str {
    path.get(plane.len() + 1..).unwrap_or(path)
}

/// Content of one record.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CachedRecord<'b> {
    name: &'b str,
    stamp: FileStamp,
    content: &'b [u8],
}

/// Returns the encoded entries of a cache file; empty if the file is no valid cache.
fn load(spot: &Spot) -> Vec<u8> {
    let mut bytes = spot.read(MOST).ok().flatten().unwrap_or_default();
    let is_whole = bytes
        .split_at_checked(HEAD)
        .is_some_and(|(head, entries)| head[..MAGIC.len()] == *MAGIC && head[MAGIC.len()..] == sum(entries));
    if is_whole {
        bytes.drain(..HEAD);
    } else {
        bytes.clear();
    }
    bytes
}

fn sum(entries: &[u8]) -> [u8; 8] {
    XxHash64::oneshot(0, entries).to_le_bytes()
}

fn entries(mut bytes: &[u8]) -> impl Iterator<Item = CachedRecord<'_>> {
    std::iter::from_fn(move || {
        let (stamp, rest) = bytes.split_first_chunk()?;
        let (name, rest) = rest.split_first_chunk()?;
        let (content, rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name) as usize)?;
        let (content, rest) = rest.split_at_checked(u32::from_le_bytes(*content) as usize)?;
        bytes = rest;
        Some(CachedRecord { name: str::from_utf8(name).ok()?, stamp: FileStamp::from_bytes(stamp), content })
    })
}

/// New content of the cache file.
struct Renewal {
    staged: Spot,
    file: File,
    /// Time in nanoseconds since 1970, by the clock of the file system; records that were changed
    /// later are not cached.
    until: u64,
    bytes: Vec<u8>,
    added: usize,
}

impl Renewal {
    /// Begins to rewrite the cache. The caller must hold the lock. Returns `None` if no cache can
    /// be written.
    fn begin(view: &View<'_>, disk: Disk) -> Option<Renewal> {
        let staged = view.agent.join(layout::TMP).join("open");
        let file = disk.stage_unsynced(&staged, b"").ok()?;
        let now = FileStamp::of_file(&file).ok()?.changed();
        Some(Renewal { staged, file, until: now.saturating_sub(SETTLED), bytes: vec![0; HEAD], added: 0 })
    }

    /// Adds a record that was just read from its file.
    fn add(&mut self, entry: CachedRecord<'_>) {
        if entry.stamp.changed() < self.until && entry.content.len() <= MOST_EACH {
            self.added += 1;
            self.keep(entry);
        }
    }

    fn keep(&mut self, entry: CachedRecord<'_>) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or_default().to_le_bytes();
        let CachedRecord { name, stamp, content } = entry;
        let parts: [&[u8]; 5] =
            [&stamp.to_bytes(), &length(name.as_bytes()), &length(content), name.as_bytes(), content];
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }

    /// Moves the new cache into place if that is possible and useful.
    fn end(mut self, spot: &Spot) {
        let sum = sum(&self.bytes[HEAD..]);
        self.bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        self.bytes[MAGIC.len()..HEAD].copy_from_slice(&sum);
        let is_of_use = self.added > TOO_MANY && self.bytes.len() as u64 <= MOST;
        let is_there = is_of_use
            && self.file.write_all(&self.bytes).is_ok()
            && files::rename(&self.staged, spot).is_ok();
        if !is_there {
            let _ = self.staged.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::super::layout::AgentDir;
    use super::super::record::{decode, encode};
    use super::*;
    use crate::beneath::at;
    use crate::model::settings::Durability;
    use crate::model::work::WorkItem;

    const COUNT: u32 = 60;

    fn item(number: u32, objective: &str) -> WorkItem {
        let id = format!("work_{number:08x}000070008000000000000001");
        serde_json::from_value(serde_json::json!({
            "id": id, "agent": "ada", "objective": objective, "state": "open", "plan_status": "ready", "revision": 1,
            "created_at": "2026-01-02T03:04:05.000Z", "updated_at": "2026-01-02T03:04:05.000Z",
        }))
        .expect("an item")
    }

    fn path(dir: &Path, number: u32) -> PathBuf {
        dir.join("work").join(format!("work_{number:08x}000070008000000000000001.json"))
    }

    fn put(dir: &Path, number: u32, objective: &str) {
        fs::write(path(dir, number), encode(&item(number, objective))).expect("written");
    }

    fn items(view: &View<'_>) -> Result<Vec<WorkItem>> {
        let contents = view.contents(layout::WORK)?;
        contents.iter().map(|(path, bytes)| decode(Path::new(path), bytes)).collect()
    }

    /// Reads the records as a step does, with the cache.
    fn read(agent: &AgentDir) -> Vec<WorkItem> {
        let view = View::settled(agent).remembering(Disk::new(Durability::Process));
        items(&view).expect("read")
    }

    /// Reads the records from their files.
    fn there(dir: &Path) -> Vec<WorkItem> {
        let mut paths: Vec<PathBuf> = fs::read_dir(dir.join("work"))
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        let read = |path: PathBuf| {
            let mut item: WorkItem =
                serde_json::from_slice(&fs::read(path).expect("a file")).expect("an item");
            item.extra.clear();
            item
        };
        paths.into_iter().map(read).collect()
    }

    fn agent(dir: &Path) -> AgentDir {
        ["work", "tmp", "cache"].iter().for_each(|name| fs::create_dir(dir.join(name)).expect("made"));
        (0..COUNT).for_each(|number| put(dir, number, "to do"));
        AgentDir::at(at(dir))
    }

    fn remembered(dir: &Path) -> usize {
        entries(&load(&at(dir).join(layout::remembered(layout::WORK)))).count()
    }

    #[test]
    fn what_is_remembered_is_never_another_than_what_is_there() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = place.path();
        let agent = agent(dir);
        assert_eq!(read(&agent), there(dir));
        assert_eq!(remembered(dir), 0, "what was written just now may be written again at the same moment");
        assert!(fs::read_dir(dir.join("tmp")).expect("a directory").next().is_none());

        std::thread::sleep(Duration::from_nanos(SETTLED) + Duration::from_millis(100));
        items(&View::settled(&agent)).expect("read");
        assert_eq!(remembered(dir), 0, "only a step writes");
        assert_eq!(read(&agent), there(dir));
        assert_eq!(remembered(dir), COUNT as usize);
        assert_eq!(read(&agent), there(dir));

        // An edit in place that keeps the length, as some editors do.
        put(dir, 1, "to be");
        assert_eq!(read(&agent)[1].objective, "to be");
        // An edit that restores the modification time.
        let time = fs::metadata(path(dir, 2)).and_then(|found| found.modified()).expect("a time");
        put(dir, 2, "to go");
        fs::File::options()
            .write(true)
            .open(path(dir, 2))
            .and_then(|file| file.set_modified(time))
            .expect("set");
        assert_eq!(read(&agent)[2].objective, "to go");
        // Another file at the path of a record, with the same modification time.
        let aside = dir.join("aside");
        fs::write(&aside, encode(&item(3, "to it"))).expect("written");
        fs::File::options().write(true).open(&aside).and_then(|file| file.set_modified(time)).expect("set");
        fs::rename(&aside, path(dir, 3)).expect("renamed");
        assert_eq!(read(&agent)[3].objective, "to it");
        // The file of one record at the path of another.
        let other = fs::read(path(dir, 4)).expect("read");
        fs::rename(path(dir, 5), path(dir, 4)).expect("renamed");
        assert_eq!(items(&View::settled(&agent)).expect("read"), there(dir));
        fs::write(path(dir, 5), other).expect("written");
        put(dir, 4, "anew");
        put(dir, 5, "anew");
        // A removed record, an added one, and one that was damaged and repaired.
        fs::remove_file(path(dir, 6)).expect("removed");
        put(dir, COUNT, "new");
        let right = fs::read(path(dir, 7)).expect("read");
        fs::write(path(dir, 7), "{").expect("written");
        items(&View::settled(&agent)).expect_err("one can't be read");
        fs::write(path(dir, 7), right).expect("written");
        assert_eq!(read(&agent), there(dir));
        assert_eq!(remembered(dir), COUNT as usize, "a few changes are no reason to write all anew");

        // Any damage of the cache file.
        let cache = dir.join(layout::remembered(layout::WORK));
        let whole = fs::read(&cache).expect("a cache");
        for at in (0..whole.len()).step_by(whole.len() / 97) {
            let mut other = whole.clone();
            other[at] ^= 0x11;
            for bytes in [&other[..], &whole[..at]] {
                fs::write(&cache, bytes).expect("written");
                let view = View::settled(&agent);
                assert_eq!(items(&view).expect("read"), there(dir), "at {at}");
            }
        }
        fs::remove_file(&cache).and_then(|()| fs::create_dir(&cache)).expect("a directory in its place");
        assert_eq!(read(&agent), there(dir));
    }

    #[test]
    fn entries_that_say_they_are_longer_than_the_file_are_none() {
        let entry =
            [&[0; FileStamp::LENGTH][..], &2u32.to_le_bytes(), &3u32.to_le_bytes(), b"n1", b"abc"].concat();
        let names = |bytes: &[u8]| entries(bytes).map(|entry| entry.name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&entry.repeat(2)), ["n1", "n1"]);
        assert_eq!(names(&entry[..entry.len() - 1]), [""; 0]);
        let huge = [&entry[..FileStamp::LENGTH], &[0xff; 12]].concat();
        assert_eq!(names(&huge), [""; 0]);
        assert_eq!(names(b"\xff"), [""; 0]);
    }
}
