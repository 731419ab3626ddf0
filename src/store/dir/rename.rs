//! Renames an agent in its own records. All other content of the records stays as it is.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::model::id::AgentName;
use crate::model::json;

use super::files::MAX_RECORD;

/// Old name and new name of an agent.
#[derive(Debug, Clone, Copy)]
pub struct Names<'n> {
    pub former: &'n AgentName,
    pub name: &'n AgentName,
}

impl Names<'_> {
    /// Returns the content of a record's file with the new name. A file that is no record of the
    /// agent stays byte for byte.
    pub fn record(self, bytes: Vec<u8>) -> Vec<u8> {
        let Some(value) = self.renamed(&bytes) else { return bytes };
        let mut bytes = serde_json::to_vec_pretty(&value).unwrap_or(bytes);
        bytes.push(b'\n');
        bytes
    }

    /// Returns a line of JSON with the agent's new name. A line feed at its end stays.
    fn line(self, line: &[u8]) -> Vec<u8> {
        let renamed = self.renamed(line).and_then(|value| serde_json::to_vec(&value).ok());
        let Some(mut bytes) = renamed else { return line.to_vec() };
        if line.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        bytes
    }

    /// Returns a record with the agent's new name; `None` if nothing changes.
    fn renamed(self, bytes: &[u8]) -> Option<Value> {
        let mut value = json::value(bytes).ok()?;
        // A file without a schema is no record, so its field `agent` may have another meaning.
        let schema = value.get("schema")?.as_str()?;
        let is_identity = schema.starts_with("dormouse/identity/");
        if !schema.starts_with("dormouse/") {
            return None;
        }
        let before = value.clone();
        if is_identity {
            self.rename(value.get_mut("name"));
            // The original agent keeps the former names, so that a search for one finds that agent.
            value.as_object_mut().and_then(|identity| identity.shift_remove("former_names"));
        }
        self.of_record(&mut value);
        for within in ["pending_wake_hint", "message", "held"] {
            value.get_mut(within).into_iter().for_each(|record| self.of_record(record));
        }
        let events = value.get_mut("events").and_then(Value::as_array_mut);
        events.into_iter().flatten().for_each(|record| self.of_record(record));
        self.origin(value.get_mut("stopped_by"));
        (value != before).then_some(value)
    }

    fn of_record(self, record: &mut Value) {
        self.rename(record.get_mut("agent"));
        // Only triggers have `target_agent_id`; other records stay as they are.
        self.rename(record.get_mut("target_agent_id"));
        self.origin(record.get_mut("origin"));
    }

    /// Renames the sender of a message that the agent has sent to itself.
    fn origin(self, origin: Option<&mut Value>) {
        let Some(origin) = origin else { return };
        if origin.get("kind").and_then(Value::as_str) == Some("system") {
            self.rename(origin.get_mut("id"));
        }
    }

    fn rename(self, name: Option<&mut Value>) {
        if let Some(name) = name.filter(|name| name.as_str() == Some(self.former.as_str())) {
            *name = Value::from(self.name.as_str());
        }
    }
}

/// Renames an agent in a file of JSON lines whose bytes arrive in parts.
#[derive(Debug)]
pub struct Lines<'n> {
    names: Names<'n>,
    /// Beginning of a line whose end has not arrived yet.
    begun: Vec<u8>,
}

impl<'n> Lines<'n> {
    pub fn new(names: Names<'n>) -> Lines<'n> {
        Lines { names, begun: Vec::new() }
    }

    /// Adds bytes, and calls `put` with each line that is complete now, with the agent's new name.
    pub fn take(&mut self, bytes: &[u8], put: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for chunk in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(chunk);
            if self.begun.len() as u64 > MAX_RECORD {
                return Err(Error::refused("too_large", format!("a line has more than {MAX_RECORD} bytes"))
                    .with_hint("import the agent under its own name"));
            }
            if chunk.ends_with(b"\n") {
                put(&self.names.line(&self.begun))?;
                self.begun.clear();
            }
        }
        Ok(())
    }

    /// Calls `put` with the bytes after the last line feed, with the agent's new name.
    pub fn end(&self, put: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        put(&self.names.line(&self.begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renaming_an_agent_changes_only_its_own_name_in_records() {
        let (former, name) = ("ada".parse().unwrap(), "eve".parse().unwrap());
        let names = Names { former: &former, name: &name };
        let record = b"{\n  \"schema\": \"dormouse/message/1\",\n  \"agent\": \"ada\",\n  \"origin\": {\n    \"kind\": \"system\",\n    \"id\": \"ada\"\n  },\n  \"body\": {\n    \"agent\": \"ada\",\n    \"n\": 0.1\n  }\n}\n";
        let text = String::from_utf8(names.record(record.to_vec())).unwrap();
        let expected = String::from_utf8(record.to_vec()).unwrap();
        let expected = expected
            .replacen("\"agent\": \"ada\"", "\"agent\": \"eve\"", 1)
            .replace("\"id\": \"ada\"", "\"id\": \"eve\"");
        assert_eq!(text, expected);
        for same in
            [&b"{\"agent\":\"ada\"}"[..], b"not json", b"{\"schema\":\"dormouse/event/1\",\"agent\":\"bob\"}"]
        {
            assert_eq!(names.record(same.to_vec()), same);
            assert_eq!(names.line(same), same);
        }
        let mut lines = Lines::new(names);
        let mut out = Vec::new();
        let mut put = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        for chunk in [&b"{\"schema\":\"dormouse/event/1\",\"ag"[..], b"ent\":\"ada\"}\n{\"x", b"\":1}"] {
            lines.take(chunk, &mut put).unwrap();
        }
        lines.end(&mut put).unwrap();
        assert_eq!(out, b"{\"schema\":\"dormouse/event/1\",\"agent\":\"eve\"}\n{\"x\":1}");
    }
}
