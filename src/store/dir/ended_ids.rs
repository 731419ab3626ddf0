//! Caches of the ids of ended messages, next to the archive and the ledger. They are rebuilt from
//! these files if they are missing or broken.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::error::{IoContext, Result};
use crate::local::{files, layout};
use crate::model::id::MessageId;
use crate::model::time::Time;

use super::evidence;
use super::view::View;

/// Bytes of the header of a cache file; `ID`: bytes of a message id.
const HEAD: usize = 64;
const ID: usize = 16;
const MAGIC: u64 = u64::from_le_bytes(*b"settled2");

/// Maximum bytes of the ids in a cache. A larger cache is invalid, because no file has so many ids.
const MOST: u64 = 16 << 20;

/// Bytes that are read at a time from a file of the archive or the ledger.
const CHUNK: usize = 64 << 10;

/// Maximum offset of the id in a line of the archive.
const ID_WITHIN: usize = 200;

/// True if a message has ended, even if a requeue may have brought it back since. The caller holds
/// the agent's lock, because this function updates the caches.
pub fn may_have_ended(view: &View<'_>, id: MessageId, now: Time) -> Result<bool> {
    // No message ends before its creation, so the search starts in the month of its id. An id may
    // have a time in the future; the search then starts in this month.
    let first = id.minted_at().map_or(now, |born| born.min(now)).month();
    for source in evidence::files_of_ends(view, &first)? {
        if index_contains(view, &source, id)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if a message has ended according to `source`, a file of the archive or the ledger.
fn index_contains(view: &View<'_>, source: &str, id: MessageId) -> Result<bool> {
    let cap = view.agent.join(source);
    let Some((lines, length)) = cap.open_file()? else { return Ok(false) };
    if length > files::MAX_LINES {
        return Err(cap.too_large(length, files::MAX_LINES));
    }
    let inode = lines.metadata().context("look at", &cap)?.ino();
    let cache = view.agent.join(layout::settled(source));
    let (file, _) = files::open_or_create(&cache)?;
    let known = CacheHead::load(&file).context("read", &cache)?;
    // The second round rebuilds the cache, because the content of the known cache may not be what
    // was written, for example after a power cut.
    for mut head in [known, CacheHead::default()] {
        if head.inode != inode || head.length > length {
            head = CacheHead { inode, ..CacheHead::default() };
        }
        head.read_on(&lines, length, &file).context("bring up to date", &cache)?;
        if id.0.into_bytes() > head.newest {
            return Ok(false);
        }
        if let Some(ids) = head.ids(&file).context("read", &cache)? {
            return Ok(ids.contains(id.0.as_bytes()));
        }
    }
    Ok(false)
}

/// Header of a cache file: length read of the archive or ledger file, and a summary of its ids.
#[derive(Debug, Default)]
struct CacheHead {
    /// Inode of the archive or ledger file: another file of the same name has another inode.
    inode: u64,
    /// Number of bytes of the archive or ledger file that were read, all of them complete lines.
    length: u64,
    count: u64,
    /// Checksum of the ids in the cache file.
    sum: u64,
    newest: [u8; ID],
}

impl CacheHead {
    /// Reads the header of a cache file; returns an empty header if the file has none.
    fn load(file: &File) -> std::io::Result<CacheHead> {
        let mut bytes = [0; HEAD];
        let read = file.read_at(&mut bytes, 0)?;
        let [inode, length, count, sum] = [8, 16, 24, 32].map(|at| word(&bytes[at..at + 8]));
        let mut newest = [0; ID];
        newest.copy_from_slice(&bytes[40..40 + ID]);
        let head = CacheHead { inode, length, count, sum, newest };
        Ok(if read == HEAD && head.encode() == bytes { head } else { CacheHead::default() })
    }

    /// Encodes the header of the cache file, with a checksum at its end.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC, self.inode, self.length, self.count, self.sum].map(u64::to_le_bytes).concat();
        bytes.extend_from_slice(&self.newest);
        let words = bytes.chunks_exact(8).map(word);
        let check = words.fold(1, |sum: u64, word| sum.wrapping_mul(31).wrapping_add(word));
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Returns all ids; `None` if their checksum does not match the header.
    fn ids(&self, file: &File) -> std::io::Result<Option<Vec<[u8; ID]>>> {
        let size = self.count.saturating_mul(ID as u64);
        if size > MOST {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        match file.read_exact_at(&mut bytes, HEAD as u64) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let ids = bytes.as_chunks::<ID>().0;
        Ok((sum_of(ids) == self.sum).then(|| ids.to_vec()))
    }

    /// Reads the lines of the archive or ledger file that the cache lacks, and adds their ids to
    /// the cache file. The header is written last: until then the new ids are ignored.
    fn read_on(&mut self, lines: &File, length: u64, file: &File) -> std::io::Result<()> {
        if self.length >= length {
            return Ok(());
        }
        let new = self.added(lines, length)?;
        file.write_all_at(&new.concat(), HEAD as u64 + self.count * ID as u64)?;
        self.count += new.len() as u64;
        self.sum = self.sum.wrapping_add(sum_of(&new));
        self.newest = new.iter().copied().fold(self.newest, <[u8; ID]>::max);
        file.write_all_at(&self.encode(), 0)
    }

    fn added(&mut self, lines: &File, length: u64) -> std::io::Result<Vec<[u8; ID]>> {
        let mut new = Vec::new();
        let mut buffer: Vec<u8> = Vec::new();
        let mut at = self.length;
        while at < length {
            let start = buffer.len();
            let rest = usize::try_from(length - at).unwrap_or(CHUNK);
            buffer.resize(start + rest.min(CHUNK), 0);
            let read = lines.read_at(&mut buffer[start..], at)?;
            buffer.truncate(start + read);
            if read == 0 {
                break;
            }
            at += read as u64;
            // The bytes before `start` contain no line feed, so only the new bytes are searched.
            let end = buffer[start..].iter().rposition(|byte| *byte == b'\n');
            let whole = end.map_or(0, |end| start + end + 1);
            new.extend(buffer[..whole].split(|byte| *byte == b'\n').filter_map(ended));
            self.length += whole as u64;
            buffer.drain(..whole);
        }
        Ok(new)
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Checksum of these ids, which does not depend on their order.
fn sum_of(ids: &[[u8; ID]]) -> u64 {
    ids.iter().fold(0, |sum, id| sum.wrapping_add(word(&id[8..]).wrapping_mul(word(&id[..8]) | 1)))
}

/// Returns the id of the ended message, if a line of the archive or the ledger records such an end.
pub fn ended(line: &[u8]) -> Option<[u8; ID]> {
    let is_event = line.starts_with(b"{\"schema\":\"dormouse/event/");
    let name: &[u8] = if is_event { b"\"message_id\":\"" } else { b"\"id\":\"" };
    if is_event && find(line, b"\"kind\":\"message_settled\"").is_none() {
        return None;
    }
    let start = find(if is_event { line } else { &line[..line.len().min(ID_WITHIN)] }, name)? + name.len();
    // An id consists of its prefix and 32 hexadecimal digits.
    let text = std::str::from_utf8(line.get(start..start + "msg_".len() + 2 * ID)?).ok()?;
    Some(text.parse::<MessageId>().ok()?.0.into_bytes())
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(last: char) -> String {
        format!("msg_0190000000007000800000000000000{last}")
    }

    fn bytes(last: char) -> Option<[u8; ID]> {
        Some(id(last).parse::<MessageId>().expect("an id").0.into_bytes())
    }

    #[test]
    fn the_id_of_an_ended_message_is_read_from_a_line() {
        let archived =
            format!("{{\"schema\":\"dormouse/message/1\",\"id\":\"{}\",\"agent\":\"a\"}}", id('1'));
        assert_eq!(ended(archived.as_bytes()), bytes('1'));
        let event = |kind: &str| {
            format!(
                "{{\"schema\":\"dormouse/event/1\",\"seq\":1,\"id\":\"evt_01900000000070008000000000000009\",\"kind\":\"{kind}\",\"data\":{{\"message_id\":\"{}\"}}}}",
                id('2')
            )
        };
        assert_eq!(ended(event("message_settled").as_bytes()), bytes('2'));
        assert_eq!(ended(event("message_admitted").as_bytes()), None);
        for nothing in ["", "{", "<<<<<<< ours", "{\"schema\":\"dormouse/message/1\",\"id\":\"msg_0\"}"] {
            assert_eq!(ended(nothing.as_bytes()), None);
        }
    }

    /// An update reads only the lines added since the last one. Damaged ids or headers are ignored.
    #[test]
    fn the_cache_reads_only_added_lines_and_is_ignored_if_damaged() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = |name: &str| {
            let mut options = File::options();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(dir.path().join(name))
                .expect("a file")
        };
        let (lines, cache) = (open("lines"), open("cache"));
        let line = |last: char| format!("{{\"schema\":\"dormouse/message/1\",\"id\":\"{}\"}}\n", id(last));
        let text = line('1') + &line('2') + "{\"half";
        lines.write_all_at(text.as_bytes(), 0).expect("written");
        let mut head = CacheHead { inode: 7, ..CacheHead::default() };
        head.read_on(&lines, text.len() as u64, &cache).expect("read");
        let mut again = CacheHead::load(&cache).expect("read");
        assert_eq!((again.inode, again.count, again.length), (7, 2, 2 * line('1').len() as u64));
        assert_eq!(Some(again.newest), bytes('2'));
        lines.write_all_at(line('3').as_bytes(), again.length).expect("written");
        let length = again.length + line('3').len() as u64;
        again.read_on(&lines, length, &cache).expect("read");
        let whole = CacheHead::load(&cache).expect("read");
        assert_eq!(Some(whole.newest), bytes('3'));
        let ids = whole.ids(&cache).expect("read").expect("whole");
        assert_eq!(ids, ['1', '2', '3'].map(|last| bytes(last).expect("an id")));
        cache.write_all_at(&[0; ID], (HEAD + ID) as u64).expect("written");
        assert!(whole.ids(&cache).expect("read").is_none(), "torn ids");
        cache.set_len((HEAD + ID) as u64).expect("cut");
        assert!(whole.ids(&cache).expect("read").is_none(), "ids that are not all there");
        cache.write_all_at(&[0xff; 8], 16).expect("written");
        assert_eq!(CacheHead::load(&cache).expect("read").count, 0, "a torn head");
    }
}
