//! Checks that the words in `cli` are those of the contract. `cli` imports nothing, so it spells
//! them out.

use std::collections::BTreeSet;

use crate::cli;
use crate::model::agent::{AgentKind, Status};
use crate::model::event::{EventKind, EventSchema};
use crate::model::execution::ExecutionState;
use crate::model::message::{MessageKind, OriginKind, Priority};
use crate::model::posture::Posture;
use crate::model::timer::CatchUp;
use crate::model::wait::WaitKind;
use crate::model::work::{PlanStatus, SchedulingState, WorkState};
use crate::report::list::Column;
use crate::rules::admission::{is_open_to_outside, kinds};

#[test]
fn listed_values_are_the_names_of_the_model() {
    assert_eq!(cli::POSTURES, Posture::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::STATUSES, Status::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::EXECUTION_STATES, ExecutionState::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::PRIORITIES, Priority::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::AGENT_KINDS, AgentKind::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::PLAN_STATUSES, PlanStatus::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::WORK_STATES, WorkState::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::SCHEDULING_STATES, SchedulingState::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::WAIT_KINDS, WaitKind::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::EVENT_KINDS, EventKind::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    let columns: Vec<&str> = cli::COLUMNS.iter().map(|(name, _)| *name).collect();
    assert_eq!(columns, Column::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::CATCH_UPS, CatchUp::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
}

/// Kinds that an outside origin may send are those in the command line.
#[test]
fn outside_kinds_are_those_that_can_be_admitted() {
    let open = OriginKind::ALL.iter().filter(|origin| is_open_to_outside(**origin));
    let mut admitted: BTreeSet<&str> =
        open.flat_map(|origin| kinds(*origin)).map(|kind| kind.name()).collect();
    admitted.insert(MessageKind::InternalFollowup.name());
    assert_eq!(cli::OUTSIDE_KINDS.iter().copied().collect::<BTreeSet<_>>(), admitted);
}

#[test]
fn an_event_names_a_published_schema() {
    let kind = EventSchema::V1.name().strip_prefix("dormouse/").and_then(|rest| rest.strip_suffix("/1"));
    assert!(kind.is_some_and(|kind| cli::SCHEMAS.contains(&kind)));
}
