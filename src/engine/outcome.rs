//! The outcome file of a turn: read, and refused whole where any of it is wrong.

use serde::Deserialize;

use crate::beneath::Spot;
use crate::model::action::Action;
use crate::model::bound::{BRIEF, Bound};
use crate::model::policy::Limits;
use crate::model::resource::Deferral;
use crate::model::turn::Outcome;

/// The outcome file, if the turn wrote one; `Err` says where it is wrong.
pub fn read(path: &Spot, limits: &Limits) -> std::result::Result<Outcome, String> {
    let invalid = |reason: String| format!("outcome file {}: {reason}", path.display());
    if let Some(found) = path.look().map_err(|error| error.to_string())? {
        let length = u64::try_from(found.st_size).unwrap_or(0);
        Bound::outcome(limits.max_outcome).check(length).map_err(|refusal| invalid(refusal.message))?;
    }
    let Some(bytes) = path.read(limits.max_outcome.0).map_err(|error| error.to_string())? else {
        return Ok(Outcome::default());
    };
    let outcome = parse(&bytes).map_err(invalid)?;
    let (count, most) = (outcome.actions.len(), limits.max_actions);
    if count as u64 > most {
        let reason = format!("$.actions: it has {count} actions, more than limits.max_actions = {most}");
        return Err(invalid(reason));
    }
    BRIEF
        .check(outcome.brief.as_ref().map_or(0, |brief| brief.len() as u64))
        .map_err(|refusal| invalid(format!("$.brief: {}", refusal.message)))?;
    Ok(outcome)
}

/// An outcome document; `Err` names the path in it that is wrong.
pub(super) fn parse(bytes: &[u8]) -> std::result::Result<Outcome, String> {
    let outcome: Outcome = serde_json::from_slice(bytes).map_err(|error| match bad_action(bytes) {
        Some((at, why)) => format!("$.actions[{at}]: {why}"),
        None => bad_deferral(bytes).map_or_else(|| format!("$: {error}"), |why| format!("$.deferred: {why}")),
    })?;
    if outcome.deferred.as_ref().is_some_and(|said| said.until.is_some() && said.after.is_some()) {
        return Err("$.deferred: `until` and `after` both say when: leave one out".to_owned());
    }
    Ok(outcome)
}

fn bad_deferral(bytes: &[u8]) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    Some(Deferral::deserialize(document.get("deferred")?).err()?.to_string())
}

/// The first action that is none, and why.
fn bad_action(bytes: &[u8]) -> Option<(usize, String)> {
    let document: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let mut actions = document.get("actions")?.as_array()?.iter().enumerate();
    actions.find_map(|(at, action)| Some((at, Action::deserialize(action).err()?.to_string())))
}
