//! Option `tick --commit`: makes one git commit for each step that has changed a record.

use crate::error::Result;
use crate::model::time::Time;
use crate::process::git::Repository;
use crate::report::step::StepReport;
use crate::store::{Agent, Store};

/// Returns the git repository that receives the commits.
pub fn repository(store: &Store) -> Repository<'_> {
    Repository::of(store.anchor().path(), store.local().git_settings(), store.local().patience())
}

/// State of the agent and its repository before a step.
pub struct BeforeStep<'r> {
    repository: &'r Repository<'r>,
    revision: u64,
}

impl<'r> BeforeStep<'r> {
    /// Notes the revision before a step. Fails, to prevent the step, if git could not commit.
    pub fn step(repository: &'r Repository<'r>, agent: &Agent<'_>) -> Result<BeforeStep<'r>> {
        let revision = agent.peek()?.revision;
        repository.check()?;
        Ok(BeforeStep { repository, revision })
    }

    /// Commits the state directory with the decision as the message, if the step has changed a
    /// record; falling asleep is such a change. Returns git's message about files that git can't
    /// read and has left out.
    ///
    /// The records are synced first, so that the commit has only content that survives a power cut.
    pub fn commit(self, agent: &Agent<'_>, report: &StepReport, now: Time) -> Result<Option<String>> {
        if agent.peek()?.revision == self.revision {
            return Ok(None);
        }
        agent.empty_journal(now)?;
        let (subject, body) = message(report);
        self.repository.commit(&subject, &body)
    }
}

/// Returns the subject and body of the commit for a step.
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
