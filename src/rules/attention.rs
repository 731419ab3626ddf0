//! When a step tells of an attention that whoever raised it has not told of.

use crate::model::records::Records;
use crate::model::time::{Span, Time};

/// How long whoever has raised an attention may take beside its hook.
const MARGIN: Span = Span::from_secs(60);

/// How long a hook without a limit is given.
const UNLIMITED: Span = Span::from_secs(24 * 3600);

/// From when on an attention counts as not told, and a step tells of it: by then whoever raised it
/// was killed, or ran inside a hook itself. `None`: there is no such attention.
pub fn tell_at(records: &Records) -> Option<Time> {
    let limit = records.policy.timeouts.hook.0.unwrap_or(UNLIMITED);
    let newest = records.state.attention.iter().flat_map(|mark| &mark.newest);
    let untold = newest.filter(|attention| attention.untold);
    untold.map(|attention| attention.at.after(limit).after(MARGIN)).min()
}
