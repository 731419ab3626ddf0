//! Mutations of the content of a file: its bytes, its lines, and the fields of JSON and TOML.

use std::path::Path;

use serde_json::{Map, Value};

use super::chance::Chance;
use crate::setup::words;

/// Values for mutated fields.
pub struct Pool<'a> {
    /// Ids of existing records, which mutated fields may refer to.
    pub ids: &'a [String],
    /// Contents that may replace the whole content of the mutated file.
    pub contents: &'a [&'a [u8]],
}

/// Texts that are hard to process. All are harmless if run as a shell command.
pub const TEXTS: &[&str] = &[
    "",
    " ",
    "\u{0}",
    "\n",
    "a\nb\r\nc",
    "\u{1b}[31mred\u{1b}]0;title\u{7}",
    "\u{202e}txt.exe",
    "\u{200b}\u{feff}",
    "e\u{301}\u{1f600}\u{10ffff}",
    "%n%s%d",
    "{{ 7 * 7 }}",
    "{% for x in range(999999999) %}{% endfor %}",
    "..",
    "../../../outside/file",
    "/",
    "/dev/zero",
    "-",
    "--",
    "-rf",
    "@/dev/zero",
    "null",
    "true",
    "0",
    "a/b",
    "A.B",
    "ada",
    "bob",
    "nobody",
    "operator",
    "webhook:github",
    ":",
    "dormouse/message/1",
];

/// Extreme and invalid times.
pub const TIMES: &[&str] = &[
    "0000-01-01T00:00:00.000Z",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00.000Z",
    "2026-02-29T00:00:00Z",
    "2026-12-31T23:59:60Z",
    "9999-12-31T23:59:59.999Z",
    "+262142-12-31T23:59:59.999Z",
    "-262143-01-01T00:00:00Z",
    "+292277026596-12-04T15:30:08Z",
    "2026-01-01T00:00:00+23:59",
    "2026-01-01",
    "now",
];

/// Valid, extreme and invalid durations.
pub const SPANS: &[&str] = &[
    "0s",
    "1ns",
    "-1s",
    "99999999999999d",
    "18446744073709551615s",
    "9223372036854775807ms",
    "584942417years",
    "1h 1h 1h",
    "never",
    "1.5h",
    "1µs",
    "5m",
];

/// Valid and invalid cron expressions.
const CRONS: &[&str] = &[
    "* * * * *",
    "0 0 30 2 *",
    "0 0 29 2 1",
    "*/0 * * * *",
    "0-59/61 * * * *",
    "* * * * * *",
    "0 0 L * *",
    "0 0 * * 5#6",
    "0 0 31W * *",
    "99 99 99 99 99",
    "@yearly",
    "? ? ? ? ?",
];

/// Valid JSON numbers, which few programs can all represent.
const NUMBERS: &str = "0 -0 -1 1 2 255 256 4294967295 4294967296 9007199254740993 9223372036854775807 9223372036854775808 \
     18446744073709551615 18446744073709551616 -9223372036854775809 1e308 1e999 -1e999 1e-999 0.1 \
     0.30000000000000004 1E400000000 1e18446744073709551616 \
     123456789012345678901234567890123456789012345678901234567890";

/// Placeholder for JSON text that no `Value` can represent; replaced after serialization.
const HOLE: &str = "\u{1}hole";

/// Returns the content with one mutation, and the mutation in words.
pub fn mutate(path: &Path, bytes: &[u8], pool: &Pool<'_>, chance: &mut Chance) -> (Vec<u8>, String) {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let by_fields = !chance.one_in(4);
    let changed = match ending {
        "json" if by_fields => of_json(bytes, pool, chance, true),
        "jsonl" if by_fields => of_lines(bytes, pool, chance),
        "toml" if by_fields => of_toml(bytes, pool, chance),
        _ => None,
    };
    changed.unwrap_or_else(|| of_bytes(bytes, pool, chance))
}

fn of_json(bytes: &[u8], pool: &Pool<'_>, chance: &mut Chance, is_pretty: bool) -> Option<(Vec<u8>, String)> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    let (words, hole) = change(&mut value, pool, chance)?;
    let mut text =
        if is_pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.ok()?;
    if let Some(filling) = hole {
        // The quotes of a placeholder stay around a key, and are removed around a value.
        text = text.replace("\"\\u0001hole\":", &format!("{filling}:"));
        text = text.replace("\"\\u0001hole\"", &filling);
    }
    text.push('\n');
    Some((text.into_bytes(), words))
}

/// Collects the paths of a JSON value and of all values in it. `here` is the path of `value`.
fn places(value: &Value, here: &mut Vec<String>, places: &mut Vec<Vec<String>>) {
    places.push(here.clone());
    let mut below = |key: String, value: &Value| {
        here.push(key);
        self::places(value, here, places);
        here.pop();
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| below(key.clone(), value)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| below(at.to_string(), value));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn at<'v>(value: &'v mut Value, place: &[String]) -> Option<&'v mut Value> {
    place.iter().try_fold(value, |value, key| match value {
        Value::Object(fields) => fields.get_mut(key),
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Makes one change. Returns the change in words, and the JSON text that must replace [`HOLE`], if
/// the change has put this placeholder into the value.
fn change(value: &mut Value, pool: &Pool<'_>, chance: &mut Chance) -> Option<(String, Option<String>)> {
    let mut all = Vec::new();
    places(value, &mut Vec::new(), &mut all);
    let place = chance.pick(&all).clone();
    let shown = format!("`{}`", place.join("."));
    match chance.below(12) {
        0 | 1 => {
            let (key, parent) = place.split_last()?;
            match at(value, parent)? {
                Value::Object(fields) => drop(fields.shift_remove(key)),
                Value::Array(items) => drop(items.remove(key.parse().ok()?)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            }
            Some((format!("{shown} is gone"), None))
        }
        2 => {
            let other = match chance.below(7) {
                0 => Value::Null,
                1 => Value::Bool(chance.one_in(2)),
                2 => Value::from(chance.next() as i64),
                3 => Value::String((*chance.pick(TEXTS)).to_owned()),
                4 => Value::Array(vec![at(value, &place)?.clone()]),
                5 => Value::Object(Map::new()),
                _ => Value::Object(Map::from_iter([("text".to_owned(), at(value, &place)?.clone())])),
            };
            let words = format!("{shown} is {other}");
            *at(value, &place)? = other;
            Some((words, None))
        }
        3 | 4 => {
            let text = match at(value, &place)?.as_str() {
                Some(old) if old.contains('_') && !pool.ids.is_empty() && chance.one_in(2) => {
                    chance.pick(pool.ids).clone()
                }
                Some(old) if old.len() > 18 && old.as_bytes()[4] == b'-' => (*chance.pick(TIMES)).to_owned(),
                _ => {
                    let from = [TEXTS, TIMES, SPANS, CRONS][chance.below(4)];
                    (*chance.pick(from)).to_owned()
                }
            };
            let words = format!("{shown} is {text:?}");
            *at(value, &place)? = Value::String(text);
            Some((words, None))
        }
        5 => {
            let number = *chance.pick(&words(NUMBERS));
            // The new number mostly replaces another number, if the JSON value has any.
            let numbers: Vec<Vec<String>> =
                all.into_iter().filter(|place| at(value, place).is_some_and(|v| v.is_number())).collect();
            let place =
                if numbers.is_empty() || chance.one_in(4) { place } else { chance.pick(&numbers).clone() };
            *at(value, &place)? = Value::String(HOLE.to_owned());
            Some((format!("`{}` is the number {number}", place.join(".")), Some(number.to_owned())))
        }
        6 => {
            let other = chance.pick(&all).clone();
            let (one, two) = (at(value, &place)?.clone(), at(value, &other)?.clone());
            if place.starts_with(&other) || other.starts_with(&place) {
                return None;
            }
            *at(value, &place)? = two;
            *at(value, &other)? = one;
            Some((format!("{shown} and `{}` are exchanged", other.join(".")), None))
        }
        7 => {
            let (filling, what) = match chance.below(5) {
                0 => {
                    let depth = *chance.pick(&[100, 127, 128, 129, 1_000, 100_000]);
                    let (open, close) = if chance.one_in(2) { ("[", "]") } else { ("{\"a\":", "}") };
                    let inside = if chance.one_in(3) { "" } else { "0" };
                    let closed = if chance.one_in(3) { String::new() } else { close.repeat(depth) };
                    (format!("{}{inside}{closed}", open.repeat(depth)), format!("{depth} brackets"))
                }
                1 => {
                    let length = *chance.pick(&[4_096, 65_536, 1 << 20, 5 << 20]);
                    (format!("\"{}\"", "x".repeat(length)), format!("a text of {length} bytes"))
                }
                2 => {
                    let length = *chance.pick(&[1_100, 20_000, 200_000]);
                    let item = *chance.pick(&["0", "{}", "\"a\"", "null"]);
                    (format!("[{}{item}]", format!("{item},").repeat(length)), format!("{length} of {item}"))
                }
                3 => ("\"\\ud800\"".to_owned(), "half a surrogate pair".to_owned()),
                _ => ("\"a\\u0000b\\u001b[2J\\u202e\"".to_owned(), "escaped control characters".to_owned()),
            };
            *at(value, &place)? = Value::String(HOLE.to_owned());
            Some((format!("{shown} is {what}"), Some(filling)))
        }
        8 => {
            let name = *chance.pick(&["unknown", "schema", "id", "status", "", "\u{1b}[0m", "__proto__"]);
            let filling = (*chance.pick(TEXTS)).to_owned();
            objects(value, chance)?.insert(name.to_owned(), Value::String(filling));
            Some((format!("a field {name:?} more"), None))
        }
        9 => {
            let fields = objects(value, chance)?;
            let keys: Vec<String> = fields.keys().cloned().collect();
            let key = keys.get(chance.below(keys.len()))?.clone();
            let twin = if chance.one_in(2) { fields.get(&key)?.clone() } else { Value::Null };
            fields.insert(HOLE.to_owned(), twin);
            let quoted = serde_json::to_string(&key).ok()?;
            Some((format!("the field {key:?} twice"), Some(quoted)))
        }
        10 => {
            let fields = objects(value, chance)?;
            let turned: Map<String, Value> =
                fields.iter().rev().map(|(key, value)| (key.clone(), value.clone())).collect();
            *fields = turned;
            Some(("fields in another order".to_owned(), None))
        }
        _ => {
            let fields = value.as_object_mut()?;
            let old = fields.get("schema")?.as_str()?.to_owned();
            let base = old.rsplit_once('/').map_or(old.as_str(), |(base, _)| base);
            let new = match chance.below(6) {
                0 => format!("{base}/2"),
                1 => format!("{base}/0"),
                2 => format!("{base}/4294967296"),
                3 => format!("{base}/-1"),
                4 => "dormouse/task/1".to_owned(),
                _ => base.to_owned(),
            };
            fields.insert("schema".to_owned(), Value::String(new.clone()));
            Some((format!("its schema is {new}"), None))
        }
    }
}

/// Returns a random object in a value.
fn objects<'v>(value: &'v mut Value, chance: &mut Chance) -> Option<&'v mut Map<String, Value>> {
    let mut all = Vec::new();
    places(value, &mut Vec::new(), &mut all);
    all.retain(|place| at(value, place).is_some_and(|value| value.is_object()));
    let place = all.get(chance.below(all.len()))?.clone();
    at(value, &place)?.as_object_mut()
}

fn of_lines(bytes: &[u8], pool: &Pool<'_>, chance: &mut Chance) -> Option<(Vec<u8>, String)> {
    let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let which = chance.below(lines.len());
    let line = lines.get(which)?.clone();
    let words = match chance.below(8) {
        0 => {
            lines.insert(chance.below(lines.len()), line);
            "is there twice".to_owned()
        }
        1 => {
            lines.remove(which);
            "is gone".to_owned()
        }
        2 => {
            chance.shuffle(&mut lines);
            "and the others are in another order".to_owned()
        }
        3 => {
            lines.insert(which, b"\n".to_vec());
            "comes after an empty one".to_owned()
        }
        4 => {
            let (changed, words) = of_bytes(&line, pool, chance);
            lines[which] = changed;
            words
        }
        _ => {
            let (changed, words) = of_json(&line, pool, chance, false)?;
            lines[which] = changed;
            words
        }
    };
    Some((lines.concat(), format!("line {}: {words}", which + 1)))
}

fn of_toml(bytes: &[u8], pool: &Pool<'_>, chance: &mut Chance) -> Option<(Vec<u8>, String)> {
    let text = std::str::from_utf8(bytes).ok()?;
    if chance.one_in(4) {
        let lines = [
            "[turn]\ncommand = []\n",
            "a.b.c.d = 1\n[a]\n",
            "unknown = 1\n",
            "[limits]\nmax_open_work = -1\n",
            "[recovery]\nbase = \"99999999999999d\"\n",
            "x = \"\"\"",
            "when = 2026-01-01T00:00:00Z\n",
            "n = 0xffffffffffffffffff\n",
            "f = nan\n",
            "[[turn]]\n",
        ];
        let line = *chance.pick(&lines);
        let more = if chance.one_in(2) { format!("{line}{text}") } else { format!("{text}{line}") };
        return Some((more.into_bytes(), format!("with {line:?}")));
    }
    if chance.one_in(8) {
        let depth = *chance.pick(&[100, 1_000, 100_000]);
        let more = format!("{text}\n[deep]\nx = {}0{}\n", "[".repeat(depth), "]".repeat(depth));
        return Some((more.into_bytes(), format!("with {depth} brackets")));
    }
    let table: toml::Table = text.parse().ok()?;
    let mut value = serde_json::to_value(&table).ok()?;
    let (words, hole) = change(&mut value, pool, chance)?;
    let table: toml::Table = serde_json::from_value(value).ok()?;
    let text = toml::to_string(&table).ok()?;
    Some((text.replace("\"\\u0001hole\"", &hole.unwrap_or_default()).into_bytes(), words))
}

fn of_bytes(bytes: &[u8], pool: &Pool<'_>, chance: &mut Chance) -> (Vec<u8>, String) {
    let mut changed = bytes.to_vec();
    let place = chance.below(bytes.len());
    let words = match chance.below(13) {
        0 => {
            changed.truncate(place);
            format!("cut after {place} bytes")
        }
        1 => {
            changed.clear();
            "empty".to_owned()
        }
        2 | 3 => {
            let flips = 1 + chance.below(4);
            for _ in 0..flips {
                let place = chance.below(bytes.len());
                if let Some(byte) = changed.get_mut(place) {
                    *byte ^= 1 << chance.below(8);
                }
            }
            format!("{flips} bits turned")
        }
        4 => {
            let intruders: &[&[u8]] = &[b"\0", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x1b[2J"];
            let intruder = intruders[chance.below(intruders.len())];
            changed.splice(place..place, intruder.iter().copied());
            format!("{intruder:?} at byte {place}")
        }
        5 => {
            let half = bytes.len() / 2;
            changed = [b"<<<<<<< ours\n", bytes, b"=======\n", &bytes[half..], b">>>>>>> theirs\n"].concat();
            "a merge conflict".to_owned()
        }
        6 => {
            changed.extend_from_slice(bytes);
            "twice in one file".to_owned()
        }
        7 => {
            let more: &[&[u8]] = &[b"}", b"garbage", b"\0\0\0\0", b"{", b"\n\n"];
            changed.extend_from_slice(more[chance.below(more.len())]);
            "with something at its end".to_owned()
        }
        8 => {
            changed.splice(0..0, *b"\xef\xbb\xbf");
            "with a byte order mark".to_owned()
        }
        9 => {
            let end = place + chance.below(bytes.len() - place);
            changed.drain(place..end);
            format!("without bytes {place} to {end}")
        }
        10 => {
            changed = chance.pick(pool.contents).to_vec();
            "with the content of another file".to_owned()
        }
        11 => {
            let depth = *chance.pick(&[1_000, 100_000]);
            changed = chance.pick(&["[", "{\"a\":", "[[]"]).repeat(depth).into_bytes();
            format!("nothing but {depth} brackets")
        }
        _ => {
            let length = *chance.pick(&[1, 100, 70_000, 3 << 20]);
            let byte = *chance.pick(&[0, b' ', b'\n', b'x', 0xff]);
            changed = vec![byte; length];
            format!("nothing but {length} bytes {byte:#x}")
        }
    };
    (changed, words)
}
