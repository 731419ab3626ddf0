//! `tick --commit`: one git commit for each step that has changed something.

use crate::error::Result;
use crate::model::time::Time;
use crate::process::git::Repository;
use crate::report::step::StepReport;
use crate::store::{Agent, Store};

/// The repository that steps are committed to.
pub fn repository(store: &Store) -> Repository<'_> {
    Repository::of(store.anchor().path(), store.local().git_settings(), store.local().patience())
}

/// Where the records were before a step that is to be committed.
pub struct Before<'r> {
    repository: &'r Repository<'r>,
    revision: u64,
}

impl<'r> Before<'r> {
    /// Fails where git could not commit the step: then there should be none.
    pub fn step(repository: &'r Repository<'r>, agent: &Agent<'_>) -> Result<Before<'r>> {
        let revision = agent.peek()?.revision;
        repository.check()?;
        Ok(Before { repository, revision })
    }

    /// One commit of the state directory, with the decision as its message, if the step has changed
    /// anything. Falling asleep does nothing and is recorded all the same. Returns what git said of
    /// files that it may not read, and has left out.
    ///
    /// Before that the disk has all of it: what git takes is what is there after a power cut, too.
    pub fn commit(self, agent: &Agent<'_>, report: &StepReport, now: Time) -> Result<Option<String>> {
        if agent.peek()?.revision == self.revision {
            return Ok(None);
        }
        agent.empty_journal(now)?;
        let (subject, body) = message(report);
        self.repository.commit(&subject, &body)
    }
}

/// What the commit of a step says: its subject, and what it was about.
pub fn message(report: &StepReport) -> (String, String) {
    let decision = &report.decision;
    let subject = format!("{}: {} ({})", report.agent, decision.decision, decision.reason);
    let body = [
        decision.run_id.map(|run| format!("Run: {run}")),
        decision.message_id.map(|id| format!("Message: {id}")),
        report.terminal.map(|terminal| format!("Terminal: {terminal}")),
    ];
    let body: Vec<String> = body.into_iter().flatten().collect();
    (subject, body.join("\n"))
}
