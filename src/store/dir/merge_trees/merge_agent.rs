//! Merge of an agent that two clones have changed: the records of one clone win, and those of the
//! other clone are quarantined.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::Result;
use crate::local::layout;
use crate::model::id::AgentName;
use crate::model::json;
use crate::model::message::InboxKey;
use crate::model::tree::Blob;
use crate::store::dir::merge::{age, merge_lines};
use crate::store::dir::record::with_newline;

use super::{Files, MergeContext, MergedFile, MergedTrees, one_change, text};

/// One of two clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
}

impl Side {
    /// Returns the values of the losing clone, which is this side, and of the winning clone.
    fn lost_and_won<T>(self, ours: T, theirs: T) -> (T, T) {
        match self {
            Side::Ours => (ours, theirs),
            Side::Theirs => (theirs, ours),
        }
    }
}

/// An agent that both clones have changed.
struct AgentMerge<'t> {
    prefix: String,
    name: AgentName,
    base: Files<'t>,
    ours: Files<'t>,
    theirs: Files<'t>,
    /// Clone whose records lose, if both clones have changed `state.json`.
    loser: Option<Side>,
}

/// Merges an agent from its files in the common base, in this clone and in the other clone. Adds
/// the result to the merged state directory. `prefix`: path of the agent's directory.
pub fn merge_agent(
    prefix: String,
    name: AgentName,
    [base, ours, theirs]: [Files<'_>; 3],
    context: &MergeContext<'_>,
    merged: &mut MergedTrees,
) -> Result<()> {
    let states = [&base, &ours, &theirs].map(|side| side.get(layout::STATE).copied());
    let paths: BTreeSet<&str> =
        [&base, &ours, &theirs].into_iter().flat_map(|side| side.keys().copied()).collect();
    let mut merge = AgentMerge { prefix, name, base, ours, theirs, loser: None };
    let mut settled = None;
    if one_change(states).is_none() {
        let read = |blob: Option<&Blob>| -> Result<Value> {
            let bytes = blob.map(context.read).transpose()?.unwrap_or_default();
            Ok(json::value(&bytes).unwrap_or_default())
        };
        let [base, ours, theirs] = states;
        let found = [read(base)?, read(ours)?, read(theirs)?];
        let loser = merge.loser(&found, context)?;
        merge.loser = Some(loser);
        settled = Some((loser, found));
    }
    for path in paths.iter().copied().filter(|path| key(path).is_none()) {
        merge.file(path, context, merged)?;
    }
    merge.messages(&paths, merged);
    if let Some((loser, states)) = settled {
        merge.settle_state(loser, &states, merged);
        merge.revoke(loser, context, merged)?;
    }
    Ok(())
}

impl AgentMerge<'_> {
    /// Removes a trigger that the losing clone has revoked, even if the winning clone has changed
    /// it, because its secret may be known to others. Keeps the trigger of a wait that has not
    /// ended.
    fn revoke(&self, loser: Side, context: &MergeContext<'_>, merged: &mut MergedTrees) -> Result<()> {
        let (lost, won) = loser.lost_and_won(&self.ours, &self.theirs);
        let is_revoked = |path: &&str| {
            path.split('/').next() == Some(layout::TRIGGERS)
                && won.contains_key(*path)
                && !lost.contains_key(*path)
        };
        for path in self.base.keys().copied().filter(is_revoked) {
            let Some(blob) = won.get(path).copied() else { continue };
            let trigger = json::value(&(context.read)(blob)?).unwrap_or_default();
            let wait = trigger["scope"].as_str().and_then(|scope| scope.strip_prefix("wait:"));
            if wait.is_some_and(|id| won.contains_key(&*format!("{}/{id}.json", layout::WAITS))) {
                continue;
            }
            merged.files.remove(&format!("{}{path}", self.prefix));
            if self.base.get(path) != Some(&blob) {
                self.quarantine(path, blob, merged);
            }
            // Each wait that names the revoked trigger continues without a trigger.
            let waits = won.iter().filter(|(path, _)| path.split('/').next() == Some(layout::WAITS));
            for (place, blob) in waits {
                let mut wait = json::value(&(context.read)(blob)?).unwrap_or_default();
                let Some(fields) =
                    wait.as_object_mut().filter(|wait| wait.get("trigger_id") == trigger.get("id"))
                else {
                    continue;
                };
                fields.shift_remove("trigger_id");
                merged.files.insert(format!("{}{place}", self.prefix), MergedFile::Made(bytes_of(&wait)));
            }
        }
        Ok(())
    }

    /// Returns the clone whose records lose. A clone that has exported the agent with `--move`
    /// wins, because the export is in transit. Otherwise the clone recorded as the only one to tick
    /// it wins, then that with the later records, and in a tie the other clone, which pushed first.
    fn loser(&self, [base, ours, theirs]: &[Value; 3], context: &MergeContext<'_>) -> Result<Side> {
        let is_own = |state: &Value| match state["ticked_by"]["id"].as_str() {
            Some(id) => (context.is_own)(&self.name, id).map(Some),
            None => Ok(None),
        };
        let has_left = |state: &Value| base["moved"].is_null() && !state["moved"].is_null();
        match (has_left(ours), has_left(theirs)) {
            (true, false) => return Ok(Side::Theirs),
            (false, true) => return Ok(Side::Ours),
            (true, true) | (false, false) => {}
        }
        Ok(match (is_own(base)?, is_own(ours)?, is_own(theirs)?) {
            (_, _, Some(true)) => Side::Theirs,
            (_, _, Some(false)) | (_, Some(false), None) | (Some(true), _, None) => Side::Ours,
            (_, _, None) if age(ours) > age(theirs) => Side::Theirs,
            (_, _, None) => Side::Ours,
        })
    }

    fn file(&self, path: &str, context: &MergeContext<'_>, merged: &mut MergedTrees) -> Result<()> {
        let [base, ours, theirs] = [&self.base, &self.ours, &self.theirs].map(|side| side.get(path).copied());
        let place = format!("{}{path}", self.prefix);
        let top = path.split('/').next().unwrap_or_default();
        if top == layout::POLICY || top == layout::HOOKS {
            text(&place, [base, ours, theirs], context, merged);
            return Ok(());
        }
        if path.ends_with(layout::LINES) && (top == layout::LEDGER || top == layout::ARCHIVE) {
            let kept = if let Some(kept) = one_change([base, ours, theirs]) {
                kept.cloned().map(MergedFile::As)
            } else {
                let read =
                    |blob: Option<&Blob>| blob.map(context.read).transpose().map(Option::unwrap_or_default);
                Some(MergedFile::Made(merge_lines(&read(base)?, &read(ours)?, &read(theirs)?)))
            };
            let kept = kept.filter(|kept| *kept != MergedFile::Made(Vec::new()));
            merged.files.extend(kept.map(|kept| (place, kept)));
            return Ok(());
        }
        // A record that only the losing clone has created conflicts with none, so it is kept.
        let is_new =
            base.is_none() && matches!(top, layout::WORK | layout::TIMERS | layout::TRIGGERS | layout::RUNS);
        let stays = matches!(top, layout::ARCHIVE | layout::LEDGER | layout::INBOX | layout::QUARANTINE);
        let (kept, other) = if let Some(loser) = self.loser {
            let (lost, won) = loser.lost_and_won(ours, theirs);
            if won.is_none() && lost.is_some() && (is_new || stays) {
                (if lost == base { won } else { lost }, None)
            } else {
                (won, lost.filter(|_| lost != base && lost != won))
            }
        } else if let Some(kept) = one_change([base, ours, theirs]) {
            (kept, None)
        } else if let (Some(our), Some(their)) = (ours, theirs) {
            let read =
                |blob| -> Result<Value> { Ok(json::value(&(context.read)(blob)?).unwrap_or_default()) };
            if age(&read(our)?) > age(&read(their)?) { (ours, theirs) } else { (theirs, ours) }
        } else {
            (ours.or(theirs), None)
        };
        merged.files.extend(kept.map(|blob| (place, MergedFile::As(blob.clone()))));
        if let Some(other) = other {
            self.quarantine(path, other, merged);
        }
        Ok(())
    }

    /// Quarantines the losing clone's version of a file.
    fn quarantine(&self, path: &str, blob: &Blob, merged: &mut MergedTrees) {
        merged.quarantined.push(format!("{}{path}", self.prefix));
        let is_dropped = path.starts_with(layout::INBOX) && !path.contains(layout::REJECTED);
        let name = path.trim_start_matches("quarantine/").replace('/', "__");
        let stem = match path.strip_suffix(".json").filter(|_| is_dropped) {
            // Both clones have a dropped file of this name: the second stays in the inbox, renamed.
            Some(stem) => format!("{}{stem}", self.prefix),
            None => format!("{}{}/{name}", self.prefix, layout::QUARANTINE),
        };
        let ending = if is_dropped && path.ends_with(".json") { ".json" } else { "" };
        let kept = MergedFile::As(blob.clone());
        let places = (0..).map(|number| match (number, ending) {
            (0, "") => stem.clone(),
            (number, "") => format!("{stem}.{number}"),
            (number, ending) => format!("{stem}-{}{ending}", number + 2),
        });
        for place in places {
            let is_taken = self.is_taken(&place);
            match merged.files.get(&place) {
                Some(found) if *found == kept => return,
                None if !is_taken => {
                    merged.files.insert(place, kept);
                    return;
                }
                Some(_) | None => {}
            }
        }
    }

    fn is_taken(&self, place: &str) -> bool {
        let path = place.strip_prefix(&self.prefix).unwrap_or(place);
        self.ours.contains_key(path) || self.theirs.contains_key(path)
    }

    /// Merges messages by their keys, in whatever directory of the inbox each clone has put them.
    fn messages(&self, paths: &BTreeSet<&str>, merged: &mut MergedTrees) {
        let keys: BTreeSet<&str> = paths.iter().filter_map(|path| key(path)).collect();
        let by_key = |files: &Files<'_>| -> BTreeMap<String, (String, Blob)> {
            let found = files.iter().filter_map(|(path, blob)| Some((key(path)?, path, blob)));
            found.map(|(key, path, blob)| (key.to_owned(), ((*path).to_owned(), (*blob).clone()))).collect()
        };
        let [base, ours, theirs] = [&self.base, &self.ours, &self.theirs].map(by_key);
        for key in keys {
            let [base, ours, theirs] = [&base, &ours, &theirs].map(|side| side.get(key));
            let (kept, other) = if let Some(loser) = self.loser {
                let (lost, won) = loser.lost_and_won(ours, theirs);
                if let (None, Some((_, blob)), None) = (base, lost, won) {
                    // Only the losing clone has this message, so the merge must add it.
                    let direct = format!("{}{}/{key}.json", self.prefix, layout::INBOX);
                    merged.files.insert(direct, MergedFile::As(blob.clone()));
                    continue;
                }
                let [was, is, wins] = [base, lost, won].map(|side| side.map(|(_, blob)| blob));
                (won, lost.filter(|_| is != was && is != wins))
            } else {
                // If one clone has removed the message and the other changed it, the removal wins.
                (one_change([base, ours, theirs]).unwrap_or(ours.and(theirs)), None)
            };
            if let Some((path, blob)) = kept {
                merged.files.insert(format!("{}{path}", self.prefix), MergedFile::As(blob.clone()));
            }
            if let Some((_, blob)) = other {
                // The losing version goes to quarantine, because the message must not run twice.
                let path = format!("{}/{key}.json", layout::INBOX);
                merged.quarantined.push(format!("{}{path}", self.prefix));
                let place = format!("{}{}/{}", self.prefix, layout::QUARANTINE, path.replace('/', "__"));
                merged.files.entry(place).or_insert(MergedFile::As(blob.clone()));
            }
        }
    }

    /// Writes the winning state with the higher counters of both clones, so that no number is used
    /// twice, and without the cached decision to do nothing, which may be wrong after the merge.
    fn settle_state(&self, loser: Side, [base, ours, theirs]: &[Value; 3], merged: &mut MergedTrees) {
        let (lost, won) = loser.lost_and_won(ours, theirs);
        let mut state = won.clone();
        let most = |path: &[&str]| {
            let of = |state: &Value| {
                path.iter().try_fold(state, |value, key| value.get(key)).and_then(Value::as_u64).unwrap_or(0)
            };
            of(won).max(of(lost))
        };
        let (revision, events) = (most(&["revision"]), most(&["counters", "events"]));
        let Some(fields) = state.as_object_mut() else { return };
        fields.insert("revision".to_owned(), (revision + 1).into());
        if let Some(counters) = fields.get_mut("counters").and_then(Value::as_object_mut) {
            counters.insert("events".to_owned(), events.into());
        }
        fields.shift_remove("resting");
        fields.shift_remove("rested_at");
        // If only the other clone has changed this field, its value is kept.
        let key = "ticked_by";
        if ours.get(key) == base.get(key) && won.get(key) != theirs.get(key) {
            match theirs.get(key) {
                Some(by) => drop(fields.insert(key.to_owned(), by.clone())),
                None => drop(fields.shift_remove(key)),
            }
        }
        merged.files.insert(format!("{}{}", self.prefix, layout::STATE), MergedFile::Made(bytes_of(&state)));
    }
}

/// Encodes a record as a file.
fn bytes_of(record: &Value) -> Vec<u8> {
    with_newline(serde_json::to_vec_pretty(record))
}

/// Returns the priority and id of a message from the path of its file; `None` for other files.
fn key(path: &str) -> Option<&str> {
    let name = path.strip_prefix(layout::INBOX)?.strip_prefix('/')?.rsplit('/').next()?;
    let stem = name.strip_suffix(".json")?;
    let is_rejected = path.split('/').nth(1) == Some(layout::REJECTED);
    (!is_rejected && InboxKey::parse(stem).is_some()).then_some(stem)
}
