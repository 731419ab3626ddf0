//! Checks that the words in `cli` are those of the contract, because `cli` repeats words of layers
//! that it may not import.

use std::collections::BTreeSet;

use clap::Parser;

use crate::cli::{self, Cli};
use crate::model::event::EventSchema;
use crate::model::execution::ExecutionState;
use crate::model::message::{MessageKind, OriginKind};
use crate::report::list::Column;
use crate::rules::admission::{is_open_to_outside, kinds};

use super::pages::malformed_word;

#[test]
fn listed_columns_are_those_of_the_report() {
    let columns: Vec<&str> = cli::COLUMNS.iter().map(|(name, _)| *name).collect();
    assert_eq!(columns, Column::ALL.iter().map(|one| one.name()).collect::<Vec<_>>());
    assert_eq!(cli::STATE_CODES.len(), ExecutionState::ALL.len());
}

/// The command line accepts the message kinds that an outside origin may send.
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
    assert!(kind.is_some_and(|kind| cli::SCHEMAS.split(' ').any(|name| name == kind)));
}

/// An invalid name, duration or id is reported with its flag, in the words of its type.
#[test]
fn a_malformed_word_is_reported_with_its_flag() {
    let report = |words: &[&str]| {
        let error = Cli::try_parse_from(["dormouse"].iter().chain(words)).unwrap_err();
        malformed_word(&error).map(|error| error.to_string())
    };
    for (words, begins) in [
        (&["stop", "ada", "--grace", "x"][..], "--grace: `x` "),
        (&["get", "Ada"], "AGENT: `Ada` is not an agent name"),
        (&["stop", "ada", "Bob"], "AGENT: `Bob` is not an agent name"),
        (&["queue", "list", "-a", "Ada"], "--agent: `Ada` is not an agent name"),
        (&["clone", "ada", "Bob"], "NEW: `Bob` is not an agent name"),
    ] {
        let report = report(words).unwrap();
        assert!(report.starts_with(begins), "{report}");
    }
    for words in [&["list", "--posture", "asleep"][..], &["tick", "ada", "--jobs", "0"], &["stop", "--al"]] {
        assert_eq!(report(words), None, "{words:?}");
    }
}
