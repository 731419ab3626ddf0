//! Timers, deadlines of waits, and rechecks of blocked work (contract, semantics §4, §5, §11).

use serde_json::json;

use crate::model::action::{Requester, TimerRequest};
use crate::model::event::EventKind;
use crate::model::id::{MessageId, TimerId};
use crate::model::message::{Body, EXPIRY_KEY, Message, MessageKind, MessageStatus, Priority, RECHECK_KEY};
use crate::model::refusal::Refusal;
use crate::model::time::{Span, Time};
use crate::model::timer::{CatchUp, Schedule, Timer, TimerStatus};
use crate::model::wait::{Wait, WaitKind};
use crate::model::work::WorkItem;

use crate::rules::admission::{check_size, in_chain};
use crate::rules::execution::is_over;
use crate::rules::schedule::{calendar, check, due, next_after, requested_time};

use super::arrival::{admit, own_message};
use super::draft::Draft;
use super::settlement::drop_message;

/// Maximum length of a timer's name, in bytes.
const NAME_MAX: usize = 100;

/// Adds a timer, or changes the active timer of the same name. Returns the timer, and the change:
/// `added`, `replaced`, or `unchanged` if the definition is equal.
pub fn add(draft: &mut Draft, new: TimerRequest, by: Requester) -> Result<(Timer, &'static str), Refusal> {
    let now = draft.now();
    let at = requested_time(new.within, new.at, new.past_ok, by.since, now)?;
    let zone = new.time_zone.unwrap_or_default();
    let cron = new.cron.map(|expression| calendar(expression, zone, new.seconds)).transpose()?;
    let schedule = match (at, new.every, cron) {
        (Some(at), None, None) => Schedule::At { at },
        (None, Some(every), None) => Schedule::Every { every, from: now },
        (None, None, Some(calendar)) => calendar,
        _ => {
            let message = "a timer has one of `in`, `at`, `every` and `cron`";
            return Err(Refusal::usage("invalid_timer", message));
        }
    };
    let (catch_up, grace) = (new.catch_up.unwrap_or(CatchUp::Once), new.grace);
    let body = new.text.map(|text| Body::Text { text });
    let next_at = check(&schedule, now)?;
    if let Some(body) = &body {
        check_size(body, &draft.records.policy.limits)?;
    }
    if grace.is_some() && catch_up != CatchUp::Skip {
        let message = "a grace is for catch-up `skip` only: the others are never too late";
        return Err(Refusal::usage("invalid_timer", message)
            .hint("say --catch-up skip with it, or in JSON \"catch_up\": \"skip\""));
    }
    if let Some(name) = &new.name
        && (name.trim().is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control))
    {
        let message = format!("the name of a timer has 1 to {NAME_MAX} bytes and no control characters");
        return Err(Refusal::usage("invalid_timer", message));
    }
    let hops = in_chain(by.hops, Some(next_at), now, &draft.records.policy.limits)?;
    let namesake = |timer: &&Timer| new.name.is_some() && timer.name == new.name;
    if let Some(timer) = draft.records.timers.iter().find(namesake) {
        let keeps_time = timer.schedule.is_like(&schedule);
        if keeps_time && (timer.catch_up, timer.grace, &timer.body) == (catch_up, grace, &body) {
            return Ok((timer.clone(), "unchanged"));
        }
        let mut timer = Timer { catch_up, grace, body, hops, ..timer.clone() };
        if !keeps_time {
            (timer.schedule, timer.next_at) = (schedule, next_at);
        }
        draft.change::<Timer>(timer.id, |replaced| *replaced = timer.clone());
        note(draft, &timer, "replace");
        return Ok((timer, "replaced"));
    }
    let id = TimerId(draft.stamp.mint());
    let agent = draft.records.state.agent.clone();
    let timer = Timer {
        name: new.name,
        catch_up,
        grace,
        body,
        hops,
        ..Timer::new(id, agent, schedule, next_at, now)
    };
    draft.add(&timer);
    note(draft, &timer, "add");
    Ok((timer, "added"))
}

/// Stores a message in a timer, which admits the message unchanged at `at`.
pub fn put_off(draft: &mut Draft, message: Message, at: Time) {
    draft.note_dedupe(&message, MessageStatus::Queued);
    let id = TimerId(draft.stamp.mint());
    let agent = draft.records.state.agent.clone();
    let timer = Timer::new(id, agent, Schedule::At { at }, at, draft.now());
    let timer = Timer { message: Some(Box::new(message)), ..timer };
    draft.add(&timer);
    note(draft, &timer, "add");
}

pub fn cancel(draft: &mut Draft, id: TimerId) -> Result<Timer, Refusal> {
    let timer = draft
        .take::<Timer>(id)
        .ok_or_else(|| Refusal::new("not_active", format!("{id} is not an active timer")))?;
    // The drop is recorded under the `dedupe_key`, so that a caller that repeats the message learns
    // that the message was dropped and will not be sent.
    if let Some(message) = &timer.message {
        drop_message(draft, (**message).clone(), "its timer was cancelled");
    }
    Ok(end(draft, timer, TimerStatus::Cancelled))
}

fn end(draft: &mut Draft, mut timer: Timer, status: TimerStatus) -> Timer {
    timer.status = status;
    timer.ended_at = Some(draft.now());
    draft.end(&timer);
    note(draft, &timer, status.name());
    timer
}

fn note(draft: &mut Draft, timer: &Timer, action: &str) {
    let data = json!({
        "timer_id": timer.id,
        "action": action,
        "next_at": (timer.status == TimerStatus::Active).then_some(timer.next_at),
        "fired": timer.fired,
        "missed": timer.missed,
    });
    draft.event(EventKind::TimerTransition, None, data);
}

/// Processes everything that is due: timers, deadlines of waits, rechecks of blocked work.
///
/// The total size of timer messages in one step is limited. Timers beyond the limit stay due for
/// the next step.
pub fn take_in_due(draft: &mut Draft) {
    let now = draft.now();
    let mut left = AT_ONCE;
    for timer in std::mem::take(&mut draft.records.timers) {
        if timer.next_at > now || left == 0 {
            draft.records.timers.push(timer);
        } else {
            left = left.saturating_sub(fire(draft, timer));
        }
    }
    let waits: Vec<Wait> = draft.records.waits.iter().filter(|wait| wait.is_waiting()).cloned().collect();
    for wait in waits {
        meet_deadlines(draft, wait);
    }
    remind_of_blocked(draft);
}

/// Maximum size of all timer messages in one step, in bytes. A larger transaction could not be read
/// back.
const AT_ONCE: usize = 16 << 20;

/// Fires a timer. Returns the number of bytes of the messages that were sent.
fn fire(draft: &mut Draft, mut timer: Timer) -> usize {
    let now = draft.now();
    let body = timer.message.as_ref().map(|message| &message.body).or(timer.body.as_ref());
    let length = body.map_or(0, Body::bytes).max(1);
    let due = due(&timer.schedule, timer.next_at, now);
    // Without a grace, a fire is too late if the following fire is due as well.
    let is_too_late = timer.grace.map_or(due.count > 1, |grace| now.since(due.latest) > grace);
    let to_fire: Vec<Time> = match timer.catch_up {
        CatchUp::All => due.first.into_iter().take((AT_ONCE / length).max(1)).collect(),
        CatchUp::Once => vec![due.latest],
        CatchUp::Skip if is_too_late => Vec::new(),
        CatchUp::Skip => vec![due.latest],
    };
    let missed = due.count - to_fire.len() as u64;
    timer.missed = timer.missed.saturating_add(missed);
    for at in &to_fire {
        timer.fired = timer.fired.saturating_add(1);
        timer.last_fired_at = Some(*at);
        let message = fire_message(draft, &timer, *at, missed);
        admit(draft, message);
    }
    match next_after(&timer.schedule, now) {
        Some(next) => {
            timer.next_at = next;
            note(draft, &timer, "fire");
            draft.add(&timer);
        }
        None => {
            end(draft, timer, TimerStatus::Done);
        }
    }
    to_fire.len() * length
}

fn fire_message(draft: &mut Draft, timer: &Timer, at: Time, missed: u64) -> Message {
    if let Some(message) = &timer.message {
        return message.as_ref().clone();
    }
    let body = timer.body.clone().unwrap_or(Body::Text { text: String::new() });
    let mut message = own_message(draft, MessageKind::TimerTick, body);
    message.hops = timer.hops;
    message.source_refs = vec![format!("{}@{at}", timer.id)];
    if missed > 0 {
        message.source_refs.push(format!("missed={missed}"));
    }
    message
}

/// Kinds of messages about a wait: first word of the text, and prefix of the idempotency key.
const EXPIRED: (&str, &str) = ("expired", EXPIRY_KEY);
const RECHECK: (&str, &str) = ("recheck", RECHECK_KEY);

/// Sends the agent a message for each past deadline of a wait. The message has the time of the
/// deadline and is queued by that time, so that a late step keeps the right order. The wait stays
/// active until a step takes the message up.
fn meet_deadlines(draft: &mut Draft, mut wait: Wait) {
    let now = draft.now();
    let is_due = |at: Option<Time>| at.filter(|at| *at <= now);
    let mut told = Vec::new();
    if let Some(at) = is_due(wait.wake_at).filter(|_| wait.kind == WaitKind::Timer && wait.woken_at.is_none())
    {
        told.push((None, at));
        wait.woken_at = Some(now);
    }
    let expiry = wait.expires_at.filter(|limit| is_over(*limit, now));
    if let Some(limit) = expiry.filter(|_| wait.expiry_told_at.is_none()) {
        // A wait expires one millisecond after its limit.
        told.push((Some(EXPIRED), limit.after(Span::from_millis(1))));
        wait.expiry_told_at = Some(now);
    }
    let recheck = is_due(wait.recheck_due());
    if let Some(at) = recheck {
        // An expired wait needs no message about its recheck.
        if expiry.is_none() {
            told.push((Some(RECHECK), at));
        }
        wait.advance_recheck(now);
        wait.rechecked_at = Some(now);
    }
    if told.is_empty() && recheck.is_none() {
        return;
    }
    for (tick, at) in told {
        let message = deadline_message(draft, &wait, tick, at);
        if tick == Some(RECHECK) {
            wait.recheck_id = Some(message.id);
        }
        admit(draft, message);
    }
    draft.change::<Wait>(wait.id, |replaced| *replaced = wait);
}

/// Returns the message about a deadline of a wait. At the end of a timer wait `tick` is `None`, and
/// the message is a `timer_tick` without idempotency key. For an expiry or a recheck it is a
/// `system_tick` with a key, and starts a turn despite other waits.
fn deadline_message(draft: &mut Draft, wait: &Wait, tick: Option<(&str, &str)>, at: Time) -> Message {
    let (kind, text) = match tick {
        None => (MessageKind::TimerTick, wait.reason.clone()),
        Some((word, _)) => (MessageKind::SystemTick, format!("{word}: {}", wait.reason)),
    };
    let mut message = own_message(draft, kind, Body::Text { text });
    message.id = MessageId(draft.stamp.mint_at(at));
    message.created_at = at;
    // Background messages from before the deadline must precede this message in the queue.
    if draft.records.inbox.has_background {
        message.priority = Priority::Background;
    }
    message.wait_id = Some(wait.id);
    message.work_item_id = wait.work_item_id;
    message.resource = wait.resource.clone();
    message.hops = wait.hops;
    message.idempotency_key = tick.map(|(_, key)| format!("{key}{}:{at}", wait.id));
    message
}

/// Sends one reminder for all blocked items whose recheck is due. The items stay blocked.
fn remind_of_blocked(draft: &mut Draft) {
    let now = draft.now();
    let is_due = |item: &WorkItem| {
        item.blocked_by.is_some()
            && item.recheck_consumed_at.is_none()
            && item.recheck_at.is_some_and(|at| at <= now)
    };
    let mut lines = Vec::new();
    draft.change_each(is_due, |item| {
        item.recheck_consumed_at = Some(now);
        let blocker = item.blocked_by.as_deref().unwrap_or_default();
        lines.push(format!("{}: {}: blocked by {blocker}", item.id, item.objective));
    });
    if lines.is_empty() {
        return;
    }
    let body = Body::Text { text: format!("recheck of blocked work:\n{}", lines.join("\n")) };
    let mut message = own_message(draft, MessageKind::SystemTick, body);
    message.priority = Priority::Background;
    message.idempotency_key = Some(format!("work_queue:recheck:{now}"));
    admit(draft, message);
}
