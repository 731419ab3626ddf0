//! Lines of `logs`: events as sentences in local time.

use serde_json::Value;

use crate::model::event::{Event, EventKind};
use crate::model::message::MessageKind;
use crate::model::time::Time;

use super::output::{Output, Tone};
use super::step::reason_words;
use super::text::one_line;

/// Maximum length of an event's sentence, in columns.
pub const LONGEST: usize = 160;

/// Renders an event as a line for people. `said`: text of the event's message, if known. Returns
/// `None` for an event that people need not see ([`words`]).
pub fn line(event: &Event, said: Option<&str>, out: &Output) -> Option<String> {
    let (mut words, tone) = words(event)?;
    if let Some(said) = said {
        words = format!("{words}: {said}");
    }
    let words = out.paint(tone, &out.safe(&one_line(&words, LONGEST)));
    Some(format!("{}  {words}", out.paint(Tone::Quiet, &event.at.local_second())))
}

/// Renders a line of a turn's output.
pub fn output(text: &str, out: &Output) -> String {
    format!("{}  {} {}", " ".repeat("yyyy-mm-dd hh:mm:ss".len()), out.paint(Tone::Quiet, "|"), out.safe(text))
}

/// Returns the sentence for an event, with unescaped outside text, and the sentence's tone. Returns
/// `None` if another event has the same content, or if only a developer needs the event.
pub fn words(event: &Event) -> Option<(String, Option<Tone>)> {
    let field = |name: &str| text(&event.data[name]);
    let because = |words: String| match field("reason").or_else(|| field("cause")) {
        Some(why) => format!("{words}: {why}"),
        None => words,
    };
    let of = |name: &str| field(name).unwrap_or_default();
    let plain = |name: &str| of(name).replace('_', " ");
    let bad = Some(Tone::Bad);
    Some(match event.kind {
        // Hidden events: another event has the same content, or only developers need them.
        EventKind::StateTransition
        | EventKind::ControlRequestAdmitted
        | EventKind::CurrentRunAborted
        | EventKind::WakeHintCoalesced
        | EventKind::Advisory => return None,
        EventKind::SchedulerDecision if of("decision") == "start_model_turn" => {
            let reason = of("reason");
            (format!("a turn starts: {}", reason_words(&reason)), Some(Tone::Strong))
        }
        EventKind::SchedulerDecision => (because(plain("decision")).replace('_', " "), None),
        EventKind::RunSettled => {
            let terminal = of("terminal");
            let tone = if terminal == "completed" { Tone::Good } else { Tone::Bad };
            (because(format!("the turn {}", plain("terminal"))), Some(tone))
        }
        EventKind::RunInterrupted => (because("the turn was interrupted".to_owned()), bad),
        EventKind::AgentCreated => ("created".to_owned(), None),
        EventKind::ControlApplied => (because(plain("action")), Some(Tone::Strong)),
        EventKind::MessageAdmitted => {
            let kind = of("kind").parse::<MessageKind>();
            let what = kind.map_or_else(|_| plain("kind"), |kind| kind.described(&of("origin")));
            (format!("takes {what}"), None)
        }
        EventKind::MessageSettled if of("status") == "processed" => return None,
        EventKind::MessageSettled => (because(format!("{} is {}", of("message_id"), plain("status"))), bad),
        EventKind::MessageRejected => (format!("{} is no message: {}", of("path"), of("reason")), bad),
        EventKind::RejectedAccepted => (format!("{} is tried again", of("path")), None),
        EventKind::RejectedRemoved => (format!("{} was removed", of("path")), None),
        EventKind::MessageRequeued => (format!("{} goes back into the queue", of("message_id")), None),
        EventKind::TaskTransition => (because(format!("{} is {}", of("task_id"), plain("to"))), None),
        // The log shows the admission of the message that ends this wait.
        EventKind::WaitTransition if field("resolved_by").is_some() => return None,
        EventKind::WaitTransition => {
            let what = field("resource").map(|resource| format!(" ({resource})")).unwrap_or_default();
            (because(format!("{}{what} is {}", of("wait_id"), plain("to"))), None)
        }
        EventKind::WorkTransition => (because(format!("{}: {}", of("work_item_id"), plain("action"))), None),
        EventKind::TimerTransition => {
            let next = field("next_at").and_then(|at| Time::parse(&at).ok());
            let next = next.map(|next| format!(", next {}", next.local_second())).unwrap_or_default();
            (format!("{}: {}{next}", of("timer_id"), plain("action")), None)
        }
        EventKind::TriggerTransition => (because(format!("{} is {}", of("trigger_id"), plain("to"))), None),
        EventKind::HookEnded if event.data["success"] == Value::Bool(true) => return None,
        EventKind::HookEnded => (because(format!("the hook {} failed", of("hook"))), bad),
        EventKind::Attention if plain("subject") == "asked" => {
            (format!("asks: {}", of("reason")), Some(Tone::Strong))
        }
        EventKind::Attention => (because(format!("needs attention: {}", plain("subject"))), bad),
        EventKind::AttentionAcknowledged => ("what needed attention was acknowledged".to_owned(), None),
        EventKind::MovedAway if field("by").as_deref() == Some("rename") => {
            (format!("gets the name {}", of("to")), Some(Tone::Strong))
        }
        EventKind::MovedAway => (format!("moved away to {}", of("to")), Some(Tone::Strong)),
        EventKind::MovedIn if field("from").is_some() => {
            (format!("had the name {} until now", of("from")), Some(Tone::Strong))
        }
        EventKind::MovedIn => ("moved in".to_owned(), Some(Tone::Strong)),
        EventKind::PreemptionRequested => (because("the turn is asked to yield".to_owned()), None),
        EventKind::PreemptionForced => (because("the turn is ended by force".to_owned()), bad),
        EventKind::RunYielded => ("the turn yields".to_owned(), None),
        EventKind::CheckpointSaved => ("the turn saves a checkpoint".to_owned(), None),
        EventKind::CheckpointLost => {
            ("the checkpoint is lost, the turn starts from the beginning".to_owned(), bad)
        }
        EventKind::WakeHintIgnored
        | EventKind::TriggerIgnored
        | EventKind::RecordRepaired
        | EventKind::Collected
        | EventKind::WorkspaceReleased => (because(event.kind.name().replace('_', " ")), None),
    })
}

/// Returns a nonempty string or a number as text; `None` for every other value.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(_) | Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
