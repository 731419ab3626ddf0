//! Option `tick --commit`: makes one git commit for each step that has changed a record.

use crate::error::Result;
use crate::model::time::Time;
use crate::process::git::Repository;
use crate::report::step::StepReport;
use crate::store::Agent;

/// Returns the revision before a step. Fails, to prevent the step, if git could not commit.
pub fn before_step(repository: &Repository<'_>, agent: &Agent<'_>) -> Result<u64> {
    let revision = agent.peek()?.revision;
    repository.check()?;
    Ok(revision)
}

/// Commits the state directory with the decision as the message, if the step has changed a record
/// since the revision `before`; falling asleep is such a change. Returns git's message about files
/// that git can't read and has left out.
///
/// The records are synced first, so that the commit has only content that survives a power cut.
pub fn commit(
    repository: &Repository<'_>,
    before: u64,
    agent: &Agent<'_>,
    report: &StepReport,
    now: Time,
) -> Result<Option<String>> {
    if agent.peek()?.revision == before {
        return Ok(None);
    }
    agent.empty_journal(now)?;
    let (subject, body) = message(report);
    repository.commit(&subject, &body)
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
