//! Complete copy of an agent, as the operations that make it in another store.

use crate::error::Result;
use crate::model::record::Plane;

use super::super::settings::Settings;
use super::{AgentRecords, Arrival, EachOp, Op, ReadView, parts};

/// Calls `each` with all operations that create a copy of an agent, except the one for its state.
/// Events, and archive lines of one kind, come in the order of writing. Dedupe keys are left out,
/// because a store derives them from the other records.
pub fn contents(records: &dyn AgentRecords, view: &dyn ReadView, each: &mut EachOp<'_>) -> Result<()> {
    each(Op::Identity(records.identity()?))?;
    each(Op::Policy(Settings::of(records.policy()?)))?;
    for plane in Plane::ALL {
        view.open(plane)?.into_iter().try_for_each(|(id, text)| each(Op::Open { plane, id, text }))?;
    }
    view.plans(&mut |work, text| each(Op::Plan { work, text }))?;
    view.history(None, each)?;
    view.texts(&view.messages(usize::MAX)?, &mut |key, text| {
        each(Op::Arrived(Arrival::Message { key, text: text.to_owned() }))
    })?;
    for id in view.hints()? {
        if let Some(text) = view.hint(id)? {
            each(Op::Arrived(Arrival::Hint { id, text }))?;
        }
    }
    for checkpoint in records.checkpoints()? {
        let mut bytes = Vec::new();
        if records.saved(checkpoint, &mut |part| bytes.extend_from_slice(part))? {
            parts(checkpoint, &bytes).try_for_each(&mut *each)?;
        }
    }
    Ok(())
}
