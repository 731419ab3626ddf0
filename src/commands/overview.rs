//! `dormouse` without a command: an overview in a few lines, or first instructions.

use serde_json::{Map, json};

use crate::engine::session::Session;
use crate::engine::views;
use crate::error::{Error, Result, Status};
use crate::model::agent::Status as AgentStatus;
use crate::model::posture::Posture;
use crate::report::output::Tone;
use crate::report::text::{count, one_line, relative};
use crate::rules::overdue::Overdue;

/// Maximum number of named agents that need attention.
const NAMED: usize = 5;

/// Commands that end a state in which no process ticks.
pub const TICK: &str =
    "make the steps: dormouse tick --all; dormouse service says how a machine makes them by itself";

pub fn overview(session: &mut Session) -> Result<Status> {
    let store = match session.store() {
        Err(Error::NoStore { .. }) => return Ok(first_steps(session)),
        found => found?,
    };
    let now = session.clock.now();
    let names = store.agents()?;
    let mut lines = Vec::new();
    let status = session.each_agent(&names, true, |_, name| {
        lines.push(views::line(&store.agent(name)?, None, now)?);
        Ok(Status::Done)
    });
    let unstarted: Vec<&str> = lines
        .iter()
        .filter(|line| line.status == AgentStatus::Booting)
        .map(|line| line.id.as_str())
        .collect();
    let postures: Vec<(Posture, usize)> = Posture::ALL
        .iter()
        .map(|posture| (*posture, lines.iter().filter(|line| line.posture == *posture).count()))
        .filter(|(_, agents)| *agents > 0)
        .collect();
    let pending: usize = lines.iter().map(|line| line.pending).sum();
    let attention: Vec<&str> =
        lines.iter().filter(|line| line.needs_attention()).map(|line| line.id.as_str()).collect();
    let next_due_at = lines.iter().filter_map(|line| line.next_due_at).min();
    let by_posture: Map<_, _> =
        postures.iter().map(|(posture, agents)| (posture.to_string(), json!(agents))).collect();
    let late = Overdue::of_all(lines.iter().filter_map(|line| line.nobody_ticks.as_ref()));
    let object = json!({
        "dir": store.local().shown(),
        "agents": names.len(),
        "postures": by_posture,
        "not_started": unstarted,
        "pending": pending,
        "attention": attention,
        "next_due_at": next_due_at,
        "nobody_ticks": late,
    });
    session.out.result(&object, |out| {
        let dir = out.safe(&store.local().shown());
        if names.is_empty() {
            return format!("no agents yet in {dir}\nmake one: dormouse create NAME --template script");
        }
        // An unstarted agent is left out, because no step runs for it.
        let started = |posture| {
            lines.iter().filter(move |line| line.posture == posture && line.status != AgentStatus::Booting)
        };
        let stand = postures.iter().map(|(posture, _)| (started(*posture).count(), posture.to_string()));
        let stand: Vec<String> = stand
            .chain([(unstarted.len(), "not started".to_owned())])
            .filter(|(agents, _)| *agents > 0)
            .map(|(agents, how)| format!("{agents} {how}"))
            .collect();
        let agents = count(names.len() as u64, "agent", "agents");
        let mut text = format!("{agents} in {dir}: {}\n", stand.join(", "));
        if pending > 0 {
            text.push_str(&format!("{} to be dealt with\n", count(pending as u64, "message", "messages")));
        }
        if let Some(first) = unstarted.first() {
            text.push_str(&format!("to have it run: dormouse start {first}\n"));
        }
        if let Some(at) = next_due_at {
            text.push_str(&format!("the next step is due {} ({})\n", relative(at, now), at.local()));
        }
        if let Some(late) = &late {
            let said = format!("nobody ticks: {}", late.describe(now));
            text.push_str(&format!("{}\n{TICK}\n", out.paint(Tone::Bad, &said)));
        }
        for line in lines.iter().filter(|line| line.status != AgentStatus::Booting) {
            for question in line.questions().take(NAMED) {
                text.push_str(&format!("{} {}\n", line.id, out.safe(&one_line(&question.to_string(), 300))));
            }
        }
        if !attention.is_empty() {
            let more = if attention.len() > NAMED { ", …" } else { "" };
            let named = attention.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            text.push_str(&out.paint(Tone::Bad, &format!("to look at: {named}{more}")));
            text.push_str(&format!("\nsee why: dormouse get {}\n", attention[0]));
        }
        text.push_str("see also: dormouse list, dormouse explain AGENT, dormouse --help");
        text
    });
    Ok(status)
}

/// Shows first instructions where no state directory exists.
fn first_steps(session: &mut Session) -> Status {
    let steps = [
        ("dormouse init", "make a state directory here"),
        ("dormouse create ada --template script", "an agent, with a script that explains itself"),
        ("dormouse start ada", "from now on steps run it"),
        ("dormouse ask ada hello", "say something, and see what comes of it"),
    ];
    let object = json!({ "dir": null, "begin": steps.map(|(command, _)| command) });
    session.out.result(&object, |_| {
        let lines = steps.map(|(command, what)| format!("  {command:<38}  {what}"));
        format!(
            "There is no state directory here. To begin:\n\n{}\n\nSee also: dormouse --help",
            lines.join("\n")
        )
    });
    Status::Done
}
