//! Hexadecimal text of bytes and of SHA-256 hashes, which may be shortened for names and lines.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Returns the first `digits` hexadecimal digits of the SHA-256 of the concatenated parts, at most
/// 64.
pub fn hex(parts: &[&[u8]], digits: usize) -> String {
    let mut text = of(parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)));
    text.truncate(digits);
    text
}

/// Returns the hexadecimal digits of a finished hash.
pub fn of(hash: Sha256) -> String {
    digits(&hash.finalize())
}

/// Returns the hexadecimal digits of bytes.
pub fn digits(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Decodes hexadecimal digits. `None` for an odd number of digits, or another character.
pub fn bytes(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |pair: &[u8]| {
        let [high, low] = pair else { return None };
        u8::try_from(value(high)? << 4 | value(low)?).ok()
    };
    digits.as_bytes().chunks(2).map(byte).collect()
}

/// Returns the SHA-256 of the bytes as 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&[bytes], 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_those_of_sha256sum() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
        assert_eq!(hex(&[b"a", b"", b"bc"], 16), abc[..16]);
    }

    #[test]
    fn bytes_survive_hex_encoding_and_decoding() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes(&digits(&all)), Some(all));
        assert_eq!(bytes("aBFf"), Some(vec![0xab, 0xff]));
        for wrong in ["a", "abc", "+f", "0x", " f", "é"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
