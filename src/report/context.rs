//! Context document of a turn (contract, turns), which `prompt` renders as text.

use std::borrow::Cow;

use serde::Serialize;

use crate::model::continuation::Continuation;
use crate::model::id::{AgentName, RunId, WaitId, WorkId};
use crate::model::message::{AuthorityClass, Message};
use crate::model::records::Records;
use crate::model::resource::Deferred;
use crate::model::run::Brief;
use crate::model::state::CurrentRun;
use crate::model::task::Task;
use crate::model::time::Time;
use crate::model::timer::Timer;
use crate::model::wait::Wait;
use crate::model::work::{Readiness, SchedulingState, WorkItem};
use crate::rules::limits::{Allowance, left};
use crate::rules::transition::turn::Claimed;
use crate::rules::work::{WaitsByItem, readiness, scheduling_state};

use super::trigger::DefaultIngress;

/// Maximum numbers of turn summaries, messages without a turn, and interjections in `context.json`.
pub const BRIEFS: usize = 5;
pub const REDUCED: usize = 50;
pub const INTERJECTED: usize = 50;

/// Records from before the turn. All lists are newest first.
pub struct History {
    pub briefs: Vec<Brief>,
    pub reduced: Vec<Message>,
    /// Number of messages settled without a turn since the last completed turn; `reduced`: newest.
    pub reduced_count: u64,
    /// Messages of priority `interject` that earlier runs of the message received, newest first.
    pub interjected: Vec<Message>,
    /// Text of the plan of the current work item.
    pub plan: Option<String>,
}

/// `context.json`. Long parts are borrowed, not copied.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document<'a> {
    #[cfg_attr(test, schemars(extend("const" = "dormouse/context/1")))]
    schema: &'static str,
    agent: AgentInfo<'a>,
    run: ThisRun<'a>,
    /// Message for which the turn runs.
    message: MessageView<'a>,
    /// Reason for the turn.
    continuation: &'a Continuation,
    /// Waits that the message of the turn ends.
    resolves: Vec<EndedWait<'a>>,
    reduced: Reduced<'a>,
    /// Messages of priority `interject` that earlier runs of the message received, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interjected: Vec<MessageView<'a>>,
    work: WorkView<'a>,
    /// Active waits, except those that the message of the turn ends.
    waits: Vec<&'a Wait>,
    tasks: &'a [Task],
    timers: &'a [Timer],
    /// Summaries of earlier turns, newest first.
    recent_briefs: &'a [Brief],
    capabilities: Capabilities<'a>,
    default_external_ingress: Option<DefaultIngress>,
}

/// Agent that runs the turn.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AgentInfo<'a> {
    id: &'a AgentName,
    description: &'a Option<String>,
}

/// Run of the turn, with the reason if its message was deferred before.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ThisRun<'a> {
    id: RunId,
    attempt: u32,
    claimed_at: Time,
    deferrals: Option<u32>,
    deferred: Option<&'a Deferred>,
    /// True if the checkpoint of this message is lost: an earlier attempt exists although this turn
    /// starts from the beginning.
    checkpoint_lost: Option<bool>,
}

/// Message, marked as an instruction or as evidence.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MessageView<'a> {
    #[serde(flatten)]
    message: Cow<'a, Message>,
    body_is: BodyIs,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum BodyIs {
    /// The turn should do what the message asks.
    Instruction,
    /// The turn should judge the message and need not obey it.
    Evidence,
}

/// Wait that the message of the turn ends. A wait whose record is missing has only an id.
#[derive(Serialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum EndedWait<'a> {
    Whole {
        #[serde(flatten)]
        wait: &'a Wait,
        age_ms: u64,
    },
    Gone {
        id: &'a WaitId,
    },
}

/// Messages that were settled without a turn since the last completed turn.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Reduced<'a> {
    count: u64,
    /// Newest of the `count` messages, oldest first.
    messages: Vec<MessageView<'a>>,
}

/// Current work item, and all open work items.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct WorkView<'a> {
    current: Option<Current<'a>>,
    open: Vec<OpenItem<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Current<'a> {
    #[serde(flatten)]
    item: &'a WorkItem,
    /// Path relative to the directory of the agent.
    plan_path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OpenItem<'a> {
    id: WorkId,
    objective: &'a str,
    scheduling_state: SchedulingState,
    readiness: Readiness,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Capabilities<'a> {
    paths: Paths<'a>,
    limits: Allowed,
}

/// Paths as text. JSON can't hold a path that is not UTF-8; the environment has the exact paths.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Paths<'a> {
    pub state_dir: Cow<'a, str>,
    pub run_dir: Cow<'a, str>,
    pub workspace: Cow<'a, str>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Allowed {
    max_message_bytes: u64,
    max_outcome_bytes: u64,
    max_actions: u64,
    open_work_left: u64,
    hops_left: u32,
    attempts_left: u32,
    timeout_ms: Option<u64>,
    left: Allowance,
}

/// Returns the context. `ingress`: default address for outside systems, if settings name an ingress
/// server.
pub fn document<'a>(
    paths: Paths<'a>,
    ingress: Option<DefaultIngress>,
    claimed: &'a Claimed,
    records: &'a Records,
    past: &'a History,
) -> Document<'a> {
    let run = &claimed.run;
    Document {
        schema: "dormouse/context/1",
        agent: AgentInfo { id: &records.state.agent, description: &records.policy.description },
        run: this_run(run, claimed.lost.is_some()),
        message: message_view(&claimed.message),
        continuation: &run.continuation,
        resolves: resolves(&run.continuation, records, run.claimed_at),
        reduced: Reduced {
            count: past.reduced_count,
            messages: past.reduced.iter().rev().map(message_view).collect(),
        },
        interjected: past.interjected.iter().rev().map(message_view).collect(),
        work: work(records, past),
        waits: records.waits.iter().filter(|wait| !run.continuation.resolves.contains(&wait.id)).collect(),
        tasks: &records.tasks,
        timers: &records.timers,
        recent_briefs: &past.briefs,
        capabilities: Capabilities { paths, limits: allowed(run, records) },
        default_external_ingress: ingress,
    }
}

fn this_run(run: &CurrentRun, has_lost_checkpoint: bool) -> ThisRun<'_> {
    ThisRun {
        id: run.run_id,
        attempt: run.attempt,
        claimed_at: run.claimed_at,
        deferrals: run.deferred.as_ref().map(|_| run.setbacks.deferrals),
        deferred: run.deferred.as_ref(),
        checkpoint_lost: has_lost_checkpoint.then_some(true),
    }
}

fn allowed(run: &CurrentRun, records: &Records) -> Allowed {
    let limits = &records.policy.limits;
    Allowed {
        max_message_bytes: limits.max_message.0,
        max_outcome_bytes: limits.max_outcome.0,
        max_actions: limits.max_actions,
        open_work_left: limits.max_open_work.saturating_sub(records.works.len() as u64),
        hops_left: limits.max_hops.saturating_sub(run.hops),
        attempts_left: records.policy.recovery.max_attempts.saturating_sub(run.attempt),
        timeout_ms: records.policy.turn.timeout.0.map(|limit| limit.as_millis()),
        left: left(&records.state, limits, run.claimed_at),
    }
}

fn resolves<'a>(continuation: &'a Continuation, records: &'a Records, now: Time) -> Vec<EndedWait<'a>> {
    let shown = |id: &'a WaitId| match records.waits.iter().find(|wait| wait.id == *id) {
        Some(wait) => EndedWait::Whole { wait, age_ms: now.since(wait.created_at).as_millis() },
        None => EndedWait::Gone { id },
    };
    continuation.resolves.iter().map(shown).collect()
}

fn message_view(message: &Message) -> MessageView<'_> {
    let body_is = if is_evidence(message) { BodyIs::Evidence } else { BodyIs::Instruction };
    let mut message = Cow::Borrowed(message);
    // The payload of a hint is left out, because the agent queries the outside system itself after
    // the hint has woken it.
    if message.hint.as_ref().is_some_and(|hint| hint.payload.is_some())
        && let Some(hint) = &mut message.to_mut().hint
    {
        hint.payload = None;
    }
    MessageView { message, body_is }
}

/// True if the message comes from outside or with a wake hint. The turn should then judge the
/// message, not obey it.
fn is_evidence(message: &Message) -> bool {
    match message.authority_class {
        AuthorityClass::ExternalEvidence | AuthorityClass::IntegrationSignal => true,
        AuthorityClass::OperatorInstruction | AuthorityClass::RuntimeInstruction => message.is_wake_hint(),
    }
}

fn work<'a>(records: &'a Records, past: &'a History) -> WorkView<'a> {
    let focus = records.state.focus;
    let current = records.works.iter().find(|item| Some(item.id) == focus).map(|item| Current {
        item,
        plan_path: format!("work/{}.plan.md", item.id),
        plan: past.plan.as_deref(),
    });
    let waits = WaitsByItem::of(&records.waits);
    let open = records.works.iter().map(|item| {
        let state = scheduling_state(item, &waits);
        OpenItem {
            id: item.id,
            objective: &item.objective,
            scheduling_state: state,
            readiness: readiness(state),
        }
    });
    WorkView { current, open: open.collect() }
}
