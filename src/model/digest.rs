//! SHA-256 in words: 64 hexadecimal digits, or the first of them where a name or a line has to be
//! short.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The first `digits` hexadecimal digits, at most 64, of the SHA-256 of these bytes, one part after
/// the other.
pub fn hex(parts: &[&[u8]], digits: usize) -> String {
    let mut text = of(parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)));
    text.truncate(digits);
    text
}

/// Of everything that was given to a hash piece by piece.
pub fn of(hash: Sha256) -> String {
    let hash = hash.finalize();
    let mut text = String::with_capacity(2 * hash.len());
    for byte in hash {
        // Nothing is written to but a string.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// All of it.
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
