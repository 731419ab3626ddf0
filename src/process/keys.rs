//! Parser of the bytes that a terminal sends for keys.
//!
//! The event reader of crossterm relies on edges of epoll, and loses an edge if the terminal
//! changes its size at that moment: then the key is never read, and a poll reports the terminal as
//! readable forever. That reader also blocks within an incomplete sequence and ignores signals.
//! This parser takes the available bytes, and never waits.

use std::str;

/// Key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Up,
    Down,
    Right,
    Left,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Back,
    Escape,
    /// Ctrl-C, which sends no signal in raw mode.
    Cancel,
    /// Ctrl-L: redraws the screen.
    Redraw,
}

const ESCAPE: u8 = 0x1b;
/// Escape sequences at the beginning and at the end of a pasted text.
const PASTE: &[u8] = b"\x1b[200~";
const PASTED: &[u8] = b"\x1b[201~";
/// Maximum length of an escape sequence, in bytes. No terminal sends a longer one.
const LONGEST: usize = 64;

/// Incremental parser of the bytes that a terminal sends for keys.
#[derive(Debug, Default)]
pub struct Keys {
    /// Bytes of an incomplete escape sequence or letter.
    begun: Vec<u8>,
    /// True inside a pasted text, whose letters are not reported as keys.
    pastes: bool,
}

/// Length in bytes of the complete input of one key, and the key, or `None` if the key is ignored.
type ParsedKey = (usize, Option<Key>);

impl Keys {
    /// Returns the keys that these bytes complete. An escape as the last byte is the Escape key.
    pub fn of(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.begun.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.begun);
        let (mut rest, mut keys) = (&all[..], Vec::new());
        while !rest.is_empty() {
            if self.pastes {
                let Some(end) = rest.windows(PASTED.len()).position(|bytes| bytes == PASTED) else {
                    rest = &rest[rest.len().saturating_sub(PASTED.len() - 1)..];
                    break;
                };
                rest = &rest[end + PASTED.len()..];
                self.pastes = false;
                continue;
            }
            match first(rest) {
                Some((length, key)) => {
                    self.pastes = rest.starts_with(PASTE);
                    keys.extend(key);
                    rest = &rest[length..];
                }
                None if rest.len() > LONGEST => rest = &[],
                None => break,
            }
        }
        self.begun = rest.to_vec();
        keys
    }
}

/// Parses the first key of `bytes`, which must not be empty. Returns `None` for an incomplete
/// escape sequence or letter.
fn first(bytes: &[u8]) -> Option<ParsedKey> {
    let single = |key| Some((1, key));
    match bytes[0] {
        ESCAPE => sequence(bytes),
        b'\r' => single(Some(Key::Enter)),
        0x08 | 0x7f => single(Some(Key::Back)),
        0x03 => single(Some(Key::Cancel)),
        0x0c => single(Some(Key::Redraw)),
        0..0x20 => single(None),
        0x20.. => letter(bytes),
    }
}

fn letter(bytes: &[u8]) -> Option<ParsedKey> {
    if let Some(letter) = bytes.utf8_chunks().next()?.valid().chars().next() {
        return Some((letter.len_utf8(), Some(Key::Char(letter))));
    }
    let wrong = str::from_utf8(bytes).err()?.error_len()?;
    Some((wrong, None))
}

/// Parses a sequence that begins with an escape character.
fn sequence(bytes: &[u8]) -> Option<ParsedKey> {
    match bytes.get(1) {
        None | Some(&ESCAPE) => Some((1, Some(Key::Escape))),
        Some(b'O') => bytes.get(2).map(|letter| (3, by_letter(*letter))),
        // Function keys of the Linux console have a second `[`.
        Some(b'[') if bytes.get(2) == Some(&b'[') => bytes.get(3).map(|_| (4, None)),
        Some(b'[') => {
            let end = bytes[2..].iter().position(|byte| (0x40..0x7f).contains(byte))?;
            Some((3 + end, control(&bytes[2..2 + end], bytes[2 + end])))
        }
        // An escape before a letter means Alt.
        Some(_) => letter(&bytes[1..]).map(|(length, _)| (1 + length, None)),
    }
}

/// Parses a control sequence from its numbers and its last byte.
fn control(numbers: &[u8], last: u8) -> Option<Key> {
    let mut numbers = numbers.split(|byte| *byte == b';');
    let (number, held) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let key = match (number, last) {
        (b"1" | b"7", b'~') => Some(Key::Home),
        (b"4" | b"8", b'~') => Some(Key::End),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        (b"" | b"1", letter) => by_letter(letter),
        _ => None,
    };
    // Shift does not change the key; Alt and Ctrl do, so such keys are ignored.
    key.filter(|_| matches!(held, b"" | b"1" | b"2"))
}

fn by_letter(letter: u8) -> Option<Key> {
    match letter {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        b'C' => Some(Key::Right),
        b'D' => Some(Key::Left),
        b'H' => Some(Key::Home),
        b'F' => Some(Key::End),
        b'M' => Some(Key::Enter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of every kind of input that a terminal sends, with the keys that they stand for.
    const SENT: &[(&[u8], &[Key])] = &[
        (b"a", &[Key::Char('a')]),
        ("é日".as_bytes(), &[Key::Char('é'), Key::Char('日')]),
        (b"\r\x7f\x08", &[Key::Enter, Key::Back, Key::Back]),
        (b"\x03\x1a\x0c\t\n", &[Key::Cancel, Key::Redraw]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", &[Key::Up, Key::Down, Key::Up, Key::Down]),
        (b"\x1b[C\x1bOD", &[Key::Right, Key::Left]),
        (b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]),
        (b"\x1b[H\x1b[F\x1b[1~\x1b[4~", &[Key::Home, Key::End, Key::Home, Key::End]),
        (b"\x1b[1;2A\x1b[1;5A\x1b[5;3~", &[Key::Up]),
        (b"\x1bq\x1b\xc3\xa9\x1b[[Ax\x1b[15~", &[Key::Char('x')]),
        (b"\x1b[200~Sy\x1b[Aq\x1b[201~z", &[Key::Char('z')]),
        (b"\xff\xc3(x", &[Key::Char('('), Key::Char('x')]),
        (b"\x1b[?1;2c\x1b[<0;1;1Mx", &[Key::Char('x')]),
    ];

    #[test]
    fn keys_are_parsed_from_whole_or_split_input() {
        for (sent, meant) in SENT {
            assert_eq!(Keys::default().of(sent), *meant, "{sent:?}");
            for cut in 1..sent.len() {
                // An escape at the end of the bytes is the Escape key.
                if sent[cut - 1] == ESCAPE {
                    continue;
                }
                let mut keys = Keys::default();
                let mut found = keys.of(&sent[..cut]);
                found.extend(keys.of(&sent[cut..]));
                assert_eq!(found, *meant, "{sent:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_lone_escape_is_a_key_and_an_endless_sequence_is_discarded() {
        let mut keys = Keys::default();
        assert_eq!(keys.of(b"\x1b"), [Key::Escape]);
        assert_eq!(keys.of(b"\x1b\x1b[A"), [Key::Escape, Key::Up]);
        assert_eq!(keys.of(b"\x1b["), []);
        assert_eq!(keys.of(&[b'1'; 100]), []);
        assert_eq!(keys.of(b"q"), [Key::Char('q')]);
        assert_eq!(keys.of(b"\x1b[200~"), []);
        assert_eq!(keys.of(&[b'q'; 1000]), []);
        assert_eq!(keys.of(b"\x1b[20"), []);
        assert_eq!(keys.of(b"1~q"), [Key::Char('q')]);
    }
}
