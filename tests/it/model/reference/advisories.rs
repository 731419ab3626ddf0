//! Semantics §15: advisories, which are warnings in `get` and `explain`.

use std::collections::BTreeSet;

use super::waits::Wait;
use super::work::Work;
use super::{Model, Word};

/// Warnings in `get` and `explain` that depend on the records alone, not on time or the machine.
pub const ADVISORIES: [Word; 4] = [
    "external_wait_has_weak_recoverability",
    "answer_lost",
    "input_set_aside",
    "blocked_work_item_without_recheck_or_wait",
];

impl Model {
    pub fn advisories(&self) -> BTreeSet<Word> {
        let is_weak = |wait: &Wait| wait.recheck.is_none() && wait.expires.is_none() && wait.source.is_none();
        let waits = |item: &Work| {
            self.waits.iter().any(|wait| wait.counts() && wait.item.as_ref() == Some(&item.tag))
        };
        let is_stuck = |item: &&Work| item.blocked && item.recheck.is_none() && !waits(item);
        let holds = [
            self.counting("external").any(is_weak),
            self.waits.iter().any(|wait| wait.counts() && wait.answer_lost),
            self.reduced.iter().any(|aside| aside.contentful),
            self.open().iter().any(is_stuck),
        ];
        ADVISORIES.into_iter().zip(holds).filter(|(_, holds)| *holds).map(|(kind, _)| kind).collect()
    }
}
