//! Log of a process's output. An output above the limit loses its middle part.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::cap_fs::CapPath;
use crate::error::{Error, IoContext, Result};

/// Maximum length of [`Captured::last_line`], in bytes.
const LINE: usize = 4096;

/// Summary of the output of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// Number of bytes of the output, in the log or not.
    pub bytes: u64,
    /// Number of bytes that are not in the log because of its limit.
    pub left_out: u64,
    /// Last nonblank line, at most 4 KiB of it.
    pub last_line: Option<String>,
    /// Error because of which a part of the output is not in the log, for example a full disk.
    pub fault: Option<String>,
}

/// Log file of one stream. The first half of the limit holds the head. The second half is a ring
/// buffer: new bytes overwrite the oldest when it is full, so a long output takes no more disk
/// space. `finish` puts the ring buffer in order, unless a write has failed. Before `finish`, and
/// after a kill, the tail begins somewhere inside. Logs are evidence and are not synced.
#[derive(Debug)]
pub struct OutputLog {
    cap: CapPath,
    /// Log file, created for the first byte, so that a process without output has no log.
    file: Option<File>,
    head: u64,
    tail: u64,
    seen: u64,
    last: LastLine,
    /// Error of the first write that failed. Later bytes are only counted.
    fault: Option<Error>,
}

impl OutputLog {
    pub fn new(cap: &CapPath, bound: u64) -> OutputLog {
        let head = bound / 2;
        let tail = bound - head;
        let (cap, last) = (cap.clone(), LastLine::default());
        OutputLog { cap, file: None, head, tail, seen: 0, last, fault: None }
    }

    /// Adds output. An error is only noted: a full disk must not end the process, because its work
    /// would then be done twice.
    pub fn take(&mut self, bytes: &[u8]) {
        self.last.take(bytes);
        if self.fault.is_none() && !bytes.is_empty() {
            self.fault = self.add(bytes).err();
        }
        self.seen += bytes.len() as u64;
    }

    /// Notes an error because of which no more output can be read.
    pub fn fail(&mut self, error: Errno) {
        let read: Result<()> = Err(error).context("read the output for", &self.cap);
        self.fault = self.fault.take().or(read.err());
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.cap.create()?,
        };
        let written = self.write(&file, bytes).context("write", &self.cap);
        self.file = Some(file);
        written
    }

    pub fn finish(&mut self) -> Captured {
        let left_out = self.seen.saturating_sub(self.bound());
        if let Some(file) = self.file.as_ref().filter(|_| left_out > 0 && self.fault.is_none()) {
            self.fault = self.put_in_order(file, left_out).err();
        }
        let fault = self.fault.as_ref().map(Error::to_string);
        Captured { bytes: self.seen, left_out, last_line: std::mem::take(&mut self.last).finish(), fault }
    }

    fn bound(&self) -> u64 {
        self.head + self.tail
    }

    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        let (mut rest, mut at) = (bytes, self.seen);
        while !rest.is_empty() {
            let room = if at < self.bound() {
                self.bound() - at
            } else {
                // The ring buffer keeps only `tail` bytes, so earlier bytes are skipped.
                let skipped = (rest.len() as u64).saturating_sub(self.tail);
                rest = &rest[usize::try_from(skipped).unwrap_or(rest.len())..];
                at += skipped;
                self.tail - self.in_ring(at)
            };
            let (piece, later) = rest.split_at(rest.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            let offset = if at < self.bound() { at } else { self.head + self.in_ring(at) };
            file.write_all_at(piece, offset)?;
            at += piece.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Returns the offset of byte `at` of the stream in the ring buffer.
    fn in_ring(&self, at: u64) -> u64 {
        (at - self.head).checked_rem(self.tail).unwrap_or(0)
    }

    /// Replaces the log by a copy with an ordered tail and a line about `left_out` bytes. The
    /// rename of the copy makes sure that the log is always complete.
    fn put_in_order(&self, file: &File, left_out: u64) -> Result<()> {
        let mut name = self.cap.name().to_owned();
        name.push(".part");
        let part = self.cap.parent().join(name);
        let copied = part.create().and_then(|to| {
            let oldest = self.in_ring(self.seen);
            let gap = format!("\n[dormouse: {left_out} bytes left out]\n");
            copy(file, 0, self.head, &to)
                .and_then(|()| (&to).write_all(gap.as_bytes()))
                .and_then(|()| copy(file, self.head + oldest, self.tail - oldest, &to))
                .and_then(|()| copy(file, self.head, oldest, &to))
                .context("write", &self.cap)?;
            part.rename(&self.cap)
        });
        if copied.is_err() {
            // The error of the copy is more useful than an error of this removal.
            let _ = part.remove();
        }
        copied
    }
}

fn copy(mut file: &File, from: u64, length: u64, mut to: &File) -> io::Result<()> {
    file.seek(SeekFrom::Start(from))?;
    io::copy(&mut file.take(length), &mut to).map(drop)
}

/// Collects the last nonblank line of a stream.
#[derive(Debug, Default)]
struct LastLine {
    open: Vec<u8>,
    last: Vec<u8>,
}

impl LastLine {
    fn take(&mut self, bytes: &[u8]) {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        self.extend(lines.next().unwrap_or_default());
        for line in lines {
            self.close();
            self.extend(line);
        }
    }

    fn finish(mut self) -> Option<String> {
        self.close();
        if self.last.is_empty() {
            return None;
        }
        let mut text = String::from_utf8_lossy(&self.last).into_owned();
        let end = (0..=LINE.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.truncate(text.trim_end().len());
        Some(text)
    }

    fn extend(&mut self, bytes: &[u8]) {
        // Three bytes beyond the limit are kept, so that a character across the limit is whole.
        let room = (LINE + 3).saturating_sub(self.open.len());
        self.open.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn close(&mut self) {
        if !self.open.trim_ascii().is_empty() {
            std::mem::swap(&mut self.open, &mut self.last);
        }
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap_fs::at;

    /// Returns the log after these chunks, and the value that `finish` returned.
    fn logged(bound: u64, pieces: &[&[u8]]) -> (String, Captured) {
        let dir = tempfile::tempdir().unwrap();
        let path = at(dir.path()).join("stdout.log");
        let mut log = OutputLog::new(&path, bound);
        for piece in pieces {
            log.take(piece);
        }
        let captured = log.finish();
        let left = path.parent().entries().unwrap().len();
        assert_eq!(
            left,
            usize::from(!pieces.is_empty()),
            "the log is left in the directory, if it says something"
        );
        (std::fs::read_to_string(path.path()).unwrap_or_default(), captured)
    }

    fn last_line(pieces: &[&[u8]]) -> Option<String> {
        let mut last = LastLine::default();
        pieces.iter().for_each(|piece| last.take(piece));
        last.finish()
    }

    #[test]
    fn a_log_keeps_all_output_up_to_its_limit() {
        assert_eq!(logged(10, &[]).0, "");
        assert_eq!(logged(10, &[b"012345678"]).0, "012345678");
        let (text, captured) = logged(10, &[b"01234", b"56789"]);
        assert_eq!((text.as_str(), captured.bytes, captured.left_out), ("0123456789", 10, 0));
    }

    #[test]
    fn the_log_does_not_depend_on_the_sizes_of_the_writes() {
        let all: Vec<u8> = (0..1000u32).flat_map(|n| format!("{n:03};").into_bytes()).collect();
        for bound in [0, 1, 2, 7, 10, 64, 999, 3999] {
            let (head, tail) = (bound / 2, bound - bound / 2);
            let text = String::from_utf8(all.clone()).unwrap();
            let left_out = all.len() - bound;
            let expected = format!(
                "{}\n[dormouse: {left_out} bytes left out]\n{}",
                &text[..head],
                &text[all.len() - tail..]
            );
            for size in [1, 3, 10, 64, 4000] {
                let pieces: Vec<&[u8]> = all.chunks(size).collect();
                let (found, captured) = logged(bound as u64, &pieces);
                assert_eq!(found, expected, "bound {bound}, pieces of {size}");
                assert_eq!((captured.bytes, captured.left_out), (4000, left_out as u64));
            }
        }
    }

    #[test]
    fn the_last_line_that_is_not_blank_is_returned() {
        assert_eq!(last_line(&[]), None);
        assert_eq!(last_line(&[b"\n \t\r\n\n"]), None);
        assert_eq!(last_line(&[b"one\ntwo"]).as_deref(), Some("two"));
        assert_eq!(last_line(&[b"one\ntwo\r\n\n   \n"]).as_deref(), Some("two"));
        assert_eq!(last_line(&[b"one\nt", b"w", b"o\n", b"\n"]).as_deref(), Some("two"));
        assert_eq!(last_line(&[b"a \xff b\n"]).as_deref(), Some("a \u{fffd} b"));
    }

    #[test]
    fn the_last_line_is_bounded_at_a_character() {
        let long = "é".repeat(5000);
        assert_eq!(last_line(&[long.as_bytes()]).unwrap(), "é".repeat(2048));
        let odd = format!("x{long}");
        assert_eq!(last_line(&[odd.as_bytes()]).unwrap(), format!("x{}", "é".repeat(2047)));
        assert!(last_line(&[&[0xff; 9000]]).unwrap().len() <= LINE);
    }
}
