//! Packed files of lines: compressed, written once, never changed.
//!
//! A packed file is named after its month, its kind, its number and its own bytes:
//! `2026-01.message.0001-<16 hex digits>.jsonl.zst`. So two clones that pack the same month make
//! the same file. If they have packed different lines, both files stay: a month has the lines of
//! all its files, each line once.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::beneath::Spot;
use crate::error::{Error, Result};
use crate::model::digest::hex;

use super::files::MAX_RECORD;

/// How a packed file's name ends.
pub const ENDING: &str = ".jsonl.zst";

/// How many bytes of lines go into one packed file, unless a single line is longer.
const PART: usize = 4 << 20;

/// The most bytes that a packed file may unpack to: a line has at most what a record may have, and
/// is not cut.
const MOST: usize = MAX_RECORD as usize + PART;

/// How far back packed data may refer, in bytes. Unpacking keeps that much in memory.
const WINDOW: u64 = 8 << 20;

/// How many bytes are unpacked at a time before the bound is checked.
const AT_ONCE: usize = 1 << 20;

/// The content of a packed file; `None` if there is none. Memory is taken for no more than a packed
/// file may hold.
pub fn read(spot: &Spot) -> Result<Option<Vec<u8>>> {
    let Some(bytes) = spot.read(MOST as u64)? else { return Ok(None) };
    unpack(&bytes)
        .map(Some)
        .map_err(|why| Error::damaged(spot.path(), format!("not a packed file of lines: {why}")))
}

/// Unpacks one frame, no more than a packed file may hold; `Err` says what is wrong with it.
pub fn unpack(packed: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let mut source = packed;
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW);
    decoder.init(&mut source).map_err(|error| error.to_string())?;
    let mut lines = Vec::new();
    loop {
        decoder
            .decode_blocks(&mut source, BlockDecodingStrategy::UptoBytes(AT_ONCE))
            .map_err(|error| error.to_string())?;
        lines.extend(decoder.collect().unwrap_or_default());
        if lines.len() > MOST {
            return Err(format!("it unpacks to more than {MOST} bytes"));
        }
        if decoder.is_finished() {
            break;
        }
    }
    if !source.is_empty() {
        return Err("something follows its end".to_owned());
    }
    if decoder.get_checksum_from_data() != decoder.get_calculated_checksum() {
        return Err("its checksum is another one".to_owned());
    }
    Ok(lines)
}

/// Packs lines, and checks that they can be unpacked again.
pub fn pack(lines: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let packed = compress_to_vec(lines, CompressionLevel::Fastest);
    match unpack(&packed)? == lines {
        true => Ok(packed),
        false => Err("what was packed is not what comes out".to_owned()),
    }
}

/// Groups lines such that each group goes into one packed file.
pub fn parts<'l>(records: impl IntoIterator<Item = &'l [u8]>) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for record in records {
        match parts.last_mut().filter(|part| part.len() + record.len() < PART) {
            Some(part) => part.extend_from_slice(record),
            None => parts.push(record.to_vec()),
        }
        parts.last_mut().into_iter().for_each(|part| part.push(b'\n'));
    }
    parts
}

/// The name of a packed file: `stem` is its month, in the archive with its kind.
pub fn name(stem: &str, number: u32, packed: &[u8]) -> String {
    format!("{stem}.{number:04}-{}{ENDING}", hex(&[packed], 16))
}

/// The part of a packed file's name before its number, and the number.
pub fn parse(name: &str) -> Option<(&str, u32)> {
    let (stem, rest) = name.strip_suffix(ENDING)?.rsplit_once('.')?;
    let (number, hash) = rest.split_once('-')?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = number.len() >= 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_hash && is_number { Some((stem, number.parse().ok()?)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let mut lines = Vec::new();
        for number in 0..10_000 {
            lines.extend_from_slice(format!("{{\"schema\":\"dormouse/run/1\",\"n\":{number}}}\n").as_bytes());
        }
        for lines in [&b""[..], b"\n", b"one\n", &lines] {
            let packed = pack(lines).expect("packed");
            assert_eq!(unpack(&packed).as_deref(), Ok(lines));
        }
        assert!(pack(&lines).expect("packed").len() * 5 < lines.len());
    }

    #[test]
    fn what_is_no_packed_file_is_an_error_and_no_memory() {
        let bomb = pack_unchecked(&vec![b'x'; MOST + 2 * AT_ONCE]);
        assert!(bomb.len() < 1 << 20);
        assert!(unpack(&bomb).expect_err("a bomb").contains("more than"));
        let whole = pack(b"line\nline\nanother\n").expect("packed");
        let mut longer = whole.clone();
        longer.push(0);
        assert!(unpack(&longer).is_err());
        for cut in 0..whole.len() {
            assert!(unpack(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            // A change that changes nothing is none.
            assert!(
                unpack(&changed).map_or(true, |lines| lines == b"line\nline\nanother\n"),
                "changed at {at}"
            );
        }
    }

    fn pack_unchecked(lines: &[u8]) -> Vec<u8> {
        compress_to_vec(lines, CompressionLevel::Fastest)
    }

    #[test]
    fn lines_are_never_cut_and_names_are_read_back() {
        let long = vec![b'l'; PART + 1];
        let records: Vec<&[u8]> = vec![b"a", &long, b"b", b"c"];
        let parts = parts(records.iter().copied());
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [2, PART + 2, 4]);
        assert_eq!(parts.concat().len(), PART + 1 + 3 + 4);
        for stem in ["2026-01", "2026-01.message"] {
            let name = name(stem, 12, b"bytes");
            assert_eq!(parse(&name), Some((stem, 12)), "{name}");
        }
        for other in ["message.jsonl", "message.0001.jsonl.zst", "message.0001-xyz.jsonl.zst", "x.jsonl.zst"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
