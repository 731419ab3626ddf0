//! What hooks are told of transitions and failures (contract, execution §5).

use crate::model::event::{Event, EventKind};
use crate::model::state::{FailureTold, State, Untold};
use crate::model::transaction::Transaction;

/// The transitions that a transaction makes, in order, as `on-state-change` is told of them.
pub fn transitions(transaction: &Transaction) -> Vec<Untold> {
    let state = &transaction.state;
    // A transaction is about one run at most, but not every event of it names that run.
    let about = transaction.events.iter().find_map(|event| event.run_id);
    let run_id = state.current_run.as_ref().map(|run| run.run_id).or(about);
    let last = state.last_turn.as_ref().filter(|turn| Some(turn.run_id) == run_id);
    let task_id = state.execution.task_id.or(last.map(|turn| turn.message_id));
    let untold = |event: &Event| {
        // A claim may lead the agent through other states before it has a run.
        let is_before_run = state.current_run.is_some() && event.run_id.is_none();
        let (run_id, task_id) = if is_before_run { (None, None) } else { (run_id, task_id) };
        let failure: Option<FailureTold> = serde_json::from_value(event.data["failure"].clone()).ok();
        Some(Untold {
            seq: event.seq,
            from: serde_json::from_value(event.data["from"].clone()).ok()?,
            to: serde_json::from_value(event.data["to"].clone()).ok()?,
            cause: event.data["cause"].as_str().unwrap_or_default().to_owned(),
            task_id: task_id.or(failure.as_ref().and_then(|failure| failure.message_id)),
            run_id: run_id.or(failure.as_ref().and_then(|failure| failure.run_id)),
            failure,
            again: false,
        })
    };
    let moves = transaction.events.iter().filter(|event| event.kind == EventKind::StateTransition);
    moves.filter_map(untold).collect()
}

/// What a failed agent has to recover from.
pub fn failure(state: &State) -> Option<FailureTold> {
    let retry = state.retry.as_ref()?;
    let turn = state.last_turn.as_ref().filter(|turn| Some(turn.message_id) == retry.message_id);
    Some(FailureTold {
        reason: retry.reason.clone(),
        message_id: retry.message_id,
        attempt: turn.map(|turn| turn.attempt).or(retry.attempt),
        run_id: turn.map(|turn| turn.run_id),
    })
}
