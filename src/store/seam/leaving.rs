//! An agent whose records are elsewhere, as the files that a directory would have of it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Result;
use crate::model::record::Plane;
use crate::model::time::Time;

use super::super::dir::{self, Leaving, layout};
use super::super::elsewhere::{Arrival, Piece, Sight};

/// Takes one revision of the records, and what this machine has of the agent.
pub fn take(room: &dir::Change<'_>, sight: &dyn Sight) -> Result<Leaving> {
    with(room.leaving_room()?, sight)
}

/// Takes one revision of the records alone.
pub fn records(room: &dir::Change<'_>, sight: &dyn Sight) -> Result<Leaving> {
    with(room.leaving_nothing()?, sight)
}

/// Adds the records to what is there.
fn with(mut leaving: Leaving, sight: &dyn Sight) -> Result<Leaving> {
    // Settings and plans say nothing of a time: they count as written with the record that they belong to.
    let (mut made_at, mut items) = (0, BTreeMap::new());
    leaving.add(|put| {
        sight.pieces(&mut |piece| match piece {
            Piece::Identity(text) => {
                made_at = written_at(&text);
                put(layout::IDENTITY, &text, made_at)
            }
            Piece::Policy(text) => put(layout::POLICY, &text, made_at),
            Piece::State { text, .. } => put(layout::STATE, &text, written_at(&text)),
            Piece::Open { plane, id, text } => {
                let at = written_at(&text);
                put(&format!("{}/{id}.json", layout::plane(plane)), &text, at)?;
                if plane == Plane::Work {
                    items.insert(id, at);
                }
                Ok(())
            }
            Piece::Plan { work, text } => {
                let at = items.get(&work).copied().unwrap_or(made_at);
                put(&format!("{}/{work}.plan.md", layout::WORK), &text, at)
            }
            Piece::Arrived(Arrival::Message { key, text }) => {
                put(&layout::message(key), &text, written_at(&text))
            }
            Piece::Arrived(Arrival::Hint { id, text }) => put(&layout::hint(id), &text, written_at(&text)),
            Piece::Ended { kind, id: _, at, text } => put(&layout::archive(at, kind), &text, seconds(at)),
            Piece::Event { seq: _, at, text } => put(&layout::ledger(at), &text, seconds(at)),
            // None of these is a part of an agent.
            Piece::Closed { .. } | Piece::Taken(_) | Piece::Heard(_) | Piece::Key { .. } | Piece::Shut(_) => {
                Ok(())
            }
        })
    })?;
    Ok(leaving.in_order())
}

/// The last moment that a record names, in seconds since 1970: so the same record has the same one.
fn written_at(text: &str) -> u64 {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return 0 };
    let named = ["updated_at", "ended_at", "created_at", "at"].iter();
    let moments = named.filter_map(|field| Time::parse(value.get(field)?.as_str()?).ok());
    moments.map(seconds).max().unwrap_or(0)
}

fn seconds(at: Time) -> u64 {
    u64::try_from(at.as_millis() / 1000).unwrap_or(0)
}
