//! SHA-256 in hexadecimal, whole or shortened for names and lines.

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
    let hash = hash.finalize();
    let mut text = String::with_capacity(2 * hash.len());
    for byte in hash {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
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
}
