//! List, in `state.json`, of the entries of an inbox that a step can neither admit nor move.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, Result};
use crate::local::{LocalAgent, files, layout};
use crate::model::id::AgentName;
use crate::model::state::State;
use crate::model::strict::Strict;
use crate::model::time::Time;

use super::inbox::Dropped;
use super::record::decode;

const PASSED_OVER: &str = "passed_over";

/// Maximum number of inbox entries that are listed to be skipped; steps retry further entries.
const MOST: usize = 100;

/// Entry of the inbox that can be neither admitted nor moved. Steps skip it until it changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PassedOver {
    /// Path relative to the inbox.
    pub file: String,
    pub reason: String,
    /// Time of the inbox entry's last change when a step listed the entry. After a later change, a
    /// step tries again to admit the entry.
    changed_at: Time,
}

fn list(state: &State) -> serde_json::Result<Vec<PassedOver>> {
    state.extra.0.get(PASSED_OVER).map_or_else(|| Ok(Vec::new()), |list| Vec::deserialize(Strict(list)))
}

/// Decodes a `state.json`. Error if the state is not of the agent `name`, or its list of skipped
/// inbox entries is unreadable: a rewrite would lose the list. `place`: path for errors.
pub fn decoded_state(name: &AgentName, place: &Path, bytes: &[u8]) -> Result<State> {
    let state: State = decode(place, bytes)?;
    if !state.is_of(name) {
        let message = format!("the record of agent `{}` lies in the directory of `{name}`", state.agent);
        return Err(Error::damaged(place, message));
    }
    check(&state).map_err(|message| Error::damaged(place, message))?;
    Ok(state)
}

/// Checks that the list of inbox entries that steps skip can be read; otherwise a step must not
/// overwrite the state. The error is the reason.
pub fn check(state: &State) -> std::result::Result<(), String> {
    let damaged = |error| format!("`{PASSED_OVER}` is not what this version writes: {error}");
    list(state).map_err(damaged).map(drop)
}

/// Returns all entries of the inbox that steps skip.
pub fn passed_over(state: &State) -> Vec<PassedOver> {
    list(state).unwrap_or_default()
}

/// Returns the paths, relative to the inbox, of all entries that steps skip.
pub fn all_passed_over(state: &State) -> Vec<String> {
    passed_over(state).into_iter().map(|one| one.file).collect()
}

fn remember(state: &mut State, passed_over: &[PassedOver]) {
    if passed_over.is_empty() {
        state.extra.0.remove(PASSED_OVER);
    } else {
        state.extra.0.insert(PASSED_OVER.to_owned(), json!(passed_over));
    }
}

/// Removes the inbox entries that fit `is_over` from the list of skipped ones; true if any did.
fn forget(state: &mut State, is_over: impl Fn(&PassedOver) -> bool) -> bool {
    let mut all = passed_over(state);
    let before = all.len();
    all.retain(|one| !is_over(one));
    let is_any = all.len() < before;
    if is_any {
        remember(state, &all);
    }
    is_any
}

impl LocalAgent<'_> {
    /// Paths, relative to the inbox, of the skipped entries that have not changed since they were
    /// reported. Reads the metadata of each entry.
    pub(in crate::store) fn passed_over(&self, state: &State) -> Vec<String> {
        let mut all = passed_over(state);
        all.retain(|one| self.is_as_before(one));
        all.into_iter().map(|one| one.file).collect()
    }

    fn is_as_before(&self, one: &PassedOver) -> bool {
        self.changed_in_inbox(&one.file) == one.changed_at
    }

    /// Time of the last change of an inbox entry, its permissions included. The Unix epoch if its
    /// metadata can't be read: the entry is gone, or its name is not UTF-8.
    fn changed_in_inbox(&self, file: &str) -> Time {
        let cap = self.dir.join(layout::INBOX).join(file);
        cap.look().ok().flatten().map_or(Time::from_millis(0), |found| files::changed_at(&found))
    }

    /// Adds an entry that can be neither admitted nor moved to the list of those that steps skip.
    /// Returns `false` if the list is full.
    pub fn pass_over(&self, state: &mut State, file: &Dropped, reason: &str) -> bool {
        let name = file.name().into_owned();
        let mut all = passed_over(state);
        all.retain(|other| other.file != name);
        let is_listed = all.len() < MOST;
        if is_listed {
            let changed_at = self.changed_in_inbox(&name);
            all.push(PassedOver { file: name, reason: reason.to_owned(), changed_at });
        }
        remember(state, &all);
        is_listed
    }

    /// Updates the list of inbox entries that steps skip: removes entries that have changed or no
    /// longer exist. Returns true if any was removed.
    pub fn forget_changed(&self, state: &mut State) -> bool {
        forget(state, |one| !self.is_as_before(one))
    }

    /// Removes an entry from the list of inbox entries that steps skip, after a person's decision.
    pub fn forget_rejected(&self, state: &mut State, name: &str) {
        forget(state, |other| other.file == name);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use crate::store::dir::record::{decode, encode};

    use super::*;

    /// Returns a state in which the field `passed_over` has this value.
    fn state(value: &Value) -> State {
        let bytes = include_bytes!("../../../tests/data/format-1/agents/ada/state.json");
        let mut record: Value = serde_json::from_slice(bytes).unwrap();
        record[PASSED_OVER] = value.clone();
        decode(Path::new("state.json"), record.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_list_survives_a_read_and_a_write() {
        let one = json!({ "file": "x.json", "reason": "why", "changed_at": "2026-01-02T03:04:05.006Z" });
        let mut state = state(&json!([one]));
        assert_eq!(check(&state), Ok(()));
        assert_eq!(all_passed_over(&state), ["x.json"]);
        let again: Value = serde_json::from_slice(&encode(&state)).unwrap();
        assert_eq!(again[PASSED_OVER], json!([one]));
        remember(&mut state, &[]);
        assert_eq!(state.extra.0.get(PASSED_OVER), None);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_damage() {
        for value in [json!({}), json!([{ "file": "x" }]), Value::Null, json!("none"), json!([1])] {
            let found = check(&state(&value)).unwrap_err();
            assert!(found.starts_with("`passed_over` is not what"), "{found}");
        }
    }
}
