//! Reader of all JSON from files and from outside: records, outcomes, dropped files, batches,
//! deliveries.
//!
//! The reader differs from serde's in two ways. It refuses an array in place of an object, while
//! serde fills the fields of a struct from an array by position. It treats all keys alike, while
//! serde_json gives a special meaning to an object with one of serde_json's private keys.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{self, DeserializeOwned, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::strict::Strict;

/// Reads a value from input that contains nothing else.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = T::deserialize(Strict(&mut reader))?;
    reader.end().map(|()| value)
}

/// Reads any JSON value.
pub fn value(bytes: &[u8]) -> serde_json::Result<Value> {
    read(bytes).map(|Plain(value)| value)
}

/// Reads a field that may contain any JSON.
pub fn plain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Plain::deserialize(deserializer).map(|Plain(value)| value)
}

/// JSON value in which no key has a special meaning to the reader.
struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plain, D::Error> {
        deserializer.deserialize_any(PlainVisitor).map(Plain)
    }
}

struct PlainVisitor;

macro_rules! visit_plain {
    ($($method:ident $type:ty),*) => {$(
        fn $method<E>(self, value: $type) -> Result<Value, E> {
            Ok(Value::from(value))
        }
    )*};
}

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    visit_plain! { visit_bool bool, visit_i64 i64, visit_u64 u64, visit_f64 f64, visit_str &str }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Plain(element)) = elements.next_element()? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, Plain(value))) = entries.next_entry()? {
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Unknown fields of a record, which are written back unchanged.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Extra(pub Map<String, Value>);

impl Extra {
    pub fn new() -> Extra {
        Extra::default()
    }
}

impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Extra, D::Error> {
        let Value::Object(fields) = plain(deserializer)? else {
            return Err(de::Error::custom("expected an object"));
        };
        Ok(Extra(fields))
    }
}

/// JSON body as its sender wrote it, and the value that this program can represent.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub value: Value,
    /// Text as the sender wrote it, if `value` does not represent all of it.
    pub text: Option<String>,
}

impl From<Value> for Sent {
    fn from(value: Value) -> Sent {
        Sent { value, text: None }
    }
}

impl Sent {
    /// Reads a text that [`outside`] has repaired. A number beyond the range of a double becomes a
    /// string in `value`.
    pub fn read(text: &str) -> serde_json::Result<Sent> {
        let parsed: &RawValue = serde_json::from_str(text)?;
        let (written, held) = rewritten(parsed.get())?;
        let value = value(held.as_bytes())?;
        let shown = value.to_string();
        let is_whole = written == shown;
        Ok(Sent { value, text: (!is_whole).then(|| parsed.get().to_owned()) })
    }
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sent, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Sent::read(raw.get()).map_err(|error| de::Error::custom(without_place(&error.to_string())))
    }
}

impl Serialize for Sent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.text.as_ref().map(|text| RawValue::from_string(text.clone())) {
            Some(Ok(raw)) => raw.serialize(serializer),
            Some(Err(_)) | None => self.value.serialize(serializer),
        }
    }
}

/// Rewrites valid JSON on one line, with each string in its shortest form. Returns two texts: one
/// with all numbers as written, one with numbers beyond the range of a double as strings.
fn rewritten(text: &str) -> serde_json::Result<(String, String)> {
    let (mut written, mut held) = (String::with_capacity(text.len()), String::with_capacity(text.len()));
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            '-' | '0'..='9' => rest.find(|c| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')),
            other => Some(other.len_utf8()),
        };
        let (token, behind) = rest.split_at(length.unwrap_or(rest.len()));
        rest = behind;
        let shortest = match first {
            ' ' | '\t' | '\n' | '\r' => continue,
            '"' => Cow::Owned(Value::from(serde_json::from_str::<String>(token)?).to_string()),
            _ => Cow::Borrowed(token),
        };
        written.push_str(&shortest);
        let is_infinite = matches!(first, '-' | '0'..='9') && token.parse().is_ok_and(f64::is_infinite);
        held.push_str(&if is_infinite { Cow::Owned(format!("\"{token}\"")) } else { shortest });
    }
    Ok((written, held))
}

/// Returns the length in bytes of the string literal at the start of a text, with its quotes.
fn string_length(text: &str) -> Option<usize> {
    let mut is_escaped = true;
    let end = text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        // The opening quote is skipped as if it were escaped.
        is_escaped = !is_escaped && byte == b'\\';
        is_end
    })?;
    Some(end + 1)
}

/// Returns JSON from outside after unambiguous repairs, with a note for each kind of repair.
pub fn outside(text: &str) -> (Cow<'_, str>, Vec<&'static str>) {
    let mut notes = Vec::new();
    let text = match text.strip_prefix('\u{feff}') {
        Some(rest) => {
            notes.push("a byte order mark was left out");
            rest
        }
        None => text,
    };
    let whole = whole_characters(text);
    if matches!(whole, Cow::Owned(_)) {
        notes.push("an escape that is half of a surrogate pair was read as U+FFFD");
    }
    (whole, notes)
}

/// Replaces each escaped half of a surrogate pair by the escape of U+FFFD, which is as long.
fn whole_characters(text: &str) -> Cow<'_, str> {
    let surrogate = |at: usize| -> Option<u32> {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u32::from_str_radix(digits, 16).ok().filter(|unit| (0xD800..0xE000).contains(unit))
    };
    let mut halves = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        at += found;
        at += match surrogate(at) {
            Some(0xD800..0xDC00) if matches!(surrogate(at + 6), Some(0xDC00..)) => 12,
            Some(_) => {
                halves.push(at);
                6
            }
            // The character after a backslash is escaped, and may itself be a backslash.
            None => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if halves.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut whole = text.to_owned();
    for at in halves {
        whole.replace_range(at..at + 6, "\\ufffd");
    }
    Cow::Owned(whole)
}

/// Removes the position from the text of an error, because it counts within a part of the input.
pub fn without_place(words: &str) -> &str {
    words.rsplit_once(" at line ").map_or(words, |(words, _)| words)
}

/// Reads an enum from an object whose field `tag` names the variant. The `Deserialize` that
/// [`tagged!`] implements calls this.
pub fn read_tagged<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    tag: &'static str,
) -> Result<T, D::Error> {
    let (name, fields) = deserializer.deserialize_map(TaggedVisitor { tag })?;
    let fields = MapDeserializer::new(fields.into_iter());
    let variant = MapDeserializer::<_, serde_json::Error>::new(std::iter::once((name, fields)));
    T::deserialize(MapAccessDeserializer::new(variant))
        .map_err(|error| de::Error::custom(without_place(&error.to_string())))
}

struct TaggedVisitor {
    tag: &'static str,
}

impl<'de> Visitor<'de> for TaggedVisitor {
    /// Value of the field `tag`, which names a variant, and all other fields, not yet parsed.
    type Value = (String, Vec<(String, RawField<'de>)>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the field `{}`", self.tag)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut name, mut fields) = (None, Vec::new());
        while let Some(key) = entries.next_key::<String>()? {
            if key != self.tag {
                fields.push((key, RawField(entries.next_value()?)));
            } else if name.replace(entries.next_value::<String>()?).is_some() {
                return Err(de::Error::duplicate_field(self.tag));
            }
        }
        Ok((name.ok_or_else(|| de::Error::missing_field(self.tag))?, fields))
    }
}

/// Field value that has not been parsed yet.
struct RawField<'de>(&'de RawValue);

impl<'de> IntoDeserializer<'de, serde_json::Error> for RawField<'de> {
    type Deserializer = Strict<&'de RawValue>;

    fn into_deserializer(self) -> Self::Deserializer {
        Strict(self.0)
    }
}

/// Declares an enum whose JSON is an object with a field that names the variant. A field of type
/// `Option` or `bool` may be absent. A variant without fields is written with `{}`. serde's own
/// reader of such objects would lose the text of numbers, and accept arrays as inner objects.
macro_rules! tagged {
    (
        $tag:literal, [$($rule:tt)*]
        $(#[$meta:meta])*
        pub enum $type:ident { $($variants:tt)* }
    ) => {
        #[serde_with::apply(Option => #[serde(default)], bool => #[serde(default)])]
        $(#[$meta])*
        #[derive(serde::Serialize)]
        #[serde(tag = $tag, $($rule)*)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum $type { $($variants)* }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                type Tagged = $type;
                #[serde_with::apply(Option => #[serde(default)], bool => #[serde(default)])]
                #[derive(serde::Deserialize)]
                #[serde(remote = "Tagged", $($rule)*)]
                enum Read { $($variants)* }
                #[derive(serde::Deserialize)]
                #[serde(transparent)]
                struct Untagged(#[serde(with = "Read")] Tagged);
                Ok($crate::model::json::read_tagged::<Untagged, D>(deserializer, $tag)?.0)
            }
        }
    };
}
pub(crate) use tagged;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_kept_as_it_was_sent() {
        for text in [
            "1.10",
            "1e5",
            "1e400",
            "-1e-400",
            "12345678901234567890123",
            "{\"a\":1,\"a\":2}",
            "{\"a\": [1.50, {\"b\": 1E2}]}",
            "[0.1000000000000000055511151231257827]",
        ] {
            let sent = Sent::read(text).unwrap();
            assert_eq!(sent.text.as_deref(), Some(text));
            assert_eq!(serde_json::to_string(&sent).unwrap(), text);
        }
        for (text, value) in [
            ("1.0", json!(1.0)),
            ("18446744073709551615", json!(u64::MAX)),
            (" { \"a\\/\\u00e9\" : [ 1 , \"\\\\\\\"\" ] } ", json!({ "a/é": [1, "\\\""] })),
            ("{\"b\":1,\"a\":2}", json!({ "b": 1, "a": 2 })),
        ] {
            assert_eq!(Sent::read(text).unwrap(), Sent::from(value), "{text}");
        }
        assert_eq!(Sent::read("[1e400]").unwrap().value, json!(["1e400"]));
    }

    #[test]
    fn the_reader_treats_private_serde_json_keys_as_plain_keys() {
        for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
            let text = json!({ key: "[1]", "other": { key: { key: "2" } } }).to_string();
            assert_eq!(value(text.as_bytes()).unwrap().to_string(), text);
            assert_eq!(Sent::read(&text).unwrap().value.to_string(), text);
            assert_eq!(read::<Extra>(text.as_bytes()).unwrap().0.get(key), Some(&json!("[1]")));
        }
    }

    #[test]
    fn deeply_nested_json_is_refused() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(value(deep.as_bytes()).is_err() && Sent::read(&deep).is_err());
        let object = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
        assert!(value(object.as_bytes()).is_err() && read::<Sent>(object.as_bytes()).is_err());
    }

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_are_kept() {
        for (text, mended) in [
            ("\"\\ud800\"", "\"\\ufffd\""),
            ("\"\\uDFFFx\"", "\"\\ufffdx\""),
            ("\"\\ud800\\ud83d\\ude00\"", "\"\\ufffd\\ud83d\\ude00\""),
            ("\"\\ud83d\\ude00\"", "\"\\ud83d\\ude00\""),
            ("\"\\\\ud800\"", "\"\\\\ud800\""),
            ("\"\\ud8\"", "\"\\ud8\""),
            ("\"ü\\", "\"ü\\"),
            ("\u{feff}{}", "{}"),
        ] {
            assert_eq!(outside(text).0, mended, "{text}");
        }
        assert_eq!(outside("\u{feff}\"\\udc00\"").1.len(), 2);
        assert!(outside("{\"a\": 1}").1.is_empty());
    }
}
