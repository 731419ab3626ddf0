//! Tests of the changes of work items, waits and timers: their results and their refusals.

use crate::rules::transition::timer::{add, take_in_due};
use crate::rules::transition::work::{WorkChange, unblock, update};

use super::*;

fn with_work(numbers: &[u32]) -> Records {
    Records { works: numbers.iter().map(|number| work(*number)).collect(), ..records() }
}

fn ended(transaction: &Transaction) -> Vec<WaitStatus> {
    all_of!(transaction.archived, Archived::Wait).map(|wait| wait.status).collect()
}

#[test]
fn the_owner_of_a_wait_is_the_named_item_or_else_the_focus_or_the_agent() {
    // Rows: the named item, if the agent itself is named, the item of the turn, the current item.
    for (named, whole_agent, of_turn, focus, expected) in [
        (None, true, None, Some(1), Ok(None)),
        (Some(2), false, None, Some(1), Ok(Some(2))),
        (Some(9), false, None, Some(1), Err("not_open")),
        (None, false, Some(2), Some(1), Ok(Some(2))),
        (None, false, Some(9), Some(1), Ok(Some(1))),
        (None, false, None, Some(1), Ok(Some(1))),
        (None, false, None, None, Ok(None)),
    ] {
        let mut records = with_work(&[1, 2]);
        records.state.focus = focus.map(work_id);
        let run = CurrentRun { work_item_id: of_turn.map(work_id), ..current_run(&prompt(1)) };
        records.state.current_run = Some(run);
        let new = WaitRequest { whole_agent, ..new_wait(WaitKind::Operator, named.map(work_id)) };
        let by = Requester { in_turn: true, ..outside() };
        let made = set(&mut draft(records), new, by, None, None);
        let found = made.map(|made| made.wait.work_item_id).map_err(|refusal| refusal.kind);
        let expected = expected.map(|number: Option<u32>| number.map(work_id));
        assert_eq!(found, expected, "{named:?} {of_turn:?} {focus:?}");
    }
}

#[test]
fn a_wait_on_an_item_replaces_that_items_wait_and_no_other() {
    let mut records = with_work(&[1, 2]);
    records.waits = vec![
        wait_on(1, WaitKind::External, 1),
        wait_on(2, WaitKind::External, 2),
        wait(3, WaitKind::Operator),
    ];
    let mut draft = draft(records);
    set_wait(&mut draft, new_wait(WaitKind::Timer, Some(work_id(1)))).expect("a wait");
    let left: Vec<_> = draft.records.waits[..2].iter().map(|wait| wait.id).collect();
    assert_eq!((left, draft.records.waits.len()), (vec![wait_id(2), wait_id(3)], 3));
    assert_eq!(ended(&finish(draft)), [WaitStatus::Cancelled]);
}

#[test]
fn a_wait_for_a_resource_replaces_the_waits_of_its_owner_for_that_resource() {
    let about = |wait: Wait, resource: &str| Wait { resource: Some(resource.to_owned()), ..wait };
    let bound = Wait { resolved_by: Some(message_id(5)), ..about(wait(5, WaitKind::External), "pr:1") };
    let waits = vec![
        about(wait(1, WaitKind::External), "pr:1"),
        about(wait(2, WaitKind::External), "pr:2"),
        about(wait_on(3, WaitKind::External, 1), "pr:1"),
        wait(4, WaitKind::Operator),
        bound,
    ];
    type Row<'r> = (Option<WorkId>, Option<&'r str>, &'r [u32], &'r [WaitStatus]);
    let rows: [Row<'_>; 4] = [
        (None, Some("pr:1"), &[1, 5], &[WaitStatus::Cancelled, WaitStatus::Resolved]),
        (None, Some("pr:3"), &[], &[]),
        (None, None, &[], &[]),
        (Some(work_id(1)), Some("pr:3"), &[3], &[WaitStatus::Cancelled]),
    ];
    for (owner, resource, replaced, ended_as) in rows {
        let mut draft = draft(Records { waits: waits.clone(), ..with_work(&[1]) });
        let resource = resource.map(str::to_owned);
        let new = WaitRequest { resource, ..new_wait(WaitKind::External, owner) };
        let made = set_wait(&mut draft, new).expect("a wait");
        let expected: Vec<_> = replaced.iter().copied().map(wait_id).collect();
        let replaces: Vec<_> = made.replaces.iter().map(|wait| wait.id).collect();
        assert_eq!(replaces, expected, "{owner:?}");
        let is_left = |number: &u32| draft.records.waits.iter().any(|wait| wait.id == wait_id(*number));
        assert!(!replaced.iter().any(is_left), "{owner:?}");
        let transaction = finish(draft);
        assert_eq!(ended(&transaction), ended_as, "{owner:?}");
    }
}

#[test]
fn the_end_of_a_wait_changes_the_revision_of_its_item_once() {
    let waits = vec![wait_on(1, WaitKind::External, 1)];
    let mut draft = draft(Records { waits, ..with_work(&[1]) });
    for _ in 0..2 {
        end_wait(&mut draft, wait_id(1), WaitStatus::Resolved, "a message");
        assert_eq!(draft.records.works[0].revision, 2);
    }
    assert_eq!(ended(&finish(draft)), [WaitStatus::Resolved]);
}

#[test]
fn each_deadline_of_a_wait_makes_one_message_with_its_time_and_ends_no_wait() {
    use MessageKind::{SystemTick, TimerTick};
    type Row = (WaitKind, Option<i64>, Option<i64>, Option<i64>, &'static [(MessageKind, i64)]);
    // Rows: kind, wake time, recheck time, expiry time, and the message for each deadline.
    let rows: [Row; 9] = [
        (WaitKind::External, None, Some(0), None, &[(SystemTick, 0)]),
        (WaitKind::External, None, Some(1), None, &[]),
        (WaitKind::External, None, Some(-9), None, &[(SystemTick, -9)]),
        (WaitKind::External, None, None, Some(0), &[]),
        (WaitKind::External, None, None, Some(-1), &[(SystemTick, 0)]),
        // After the expiry of a wait there is no recheck.
        (WaitKind::External, None, Some(-9), Some(-5), &[(SystemTick, -4)]),
        (WaitKind::Timer, Some(-7), None, None, &[(TimerTick, -7)]),
        (WaitKind::Timer, Some(1), None, None, &[]),
        (WaitKind::Timer, Some(-3), None, Some(-1), &[(TimerTick, -3), (SystemTick, 0)]),
    ];
    for (kind, wake, recheck, expires, told) in rows {
        let waiting = Wait {
            wake_at: wake.map(at),
            recheck_at: recheck.map(at),
            expires_at: expires.map(at),
            ..wait(1, kind)
        };
        let mut draft = draft(Records { waits: vec![waiting], ..records() });
        take_in_due(&mut draft);
        // A second step sends no second message for the same deadlines.
        take_in_due(&mut draft);
        let transaction = finish(draft);
        let row = format!("{kind:?} {wake:?} {recheck:?} {expires:?}");
        let found: Vec<_> =
            messages(&transaction).map(|message| (message.kind, message.created_at)).collect();
        let expected: Vec<_> = told.iter().map(|(kind, millis)| (*kind, at(*millis))).collect();
        assert_eq!(found, expected, "{row}");
        for message in messages(&transaction) {
            assert_eq!(message.id.minted_at(), Some(message.created_at), "its place in the queue: {row}");
            assert_eq!(message.wait_id, Some(wait_id(1)), "{row}");
        }
        assert_eq!(ended(&transaction), [], "{row}");
    }
}

fn every_ten_seconds() -> Timer {
    Timer { schedule: Schedule::Every { every: secs(10), from: now() }, ..timer(1, 10_000) }
}

/// Returns the timer after a step at this time, unless it has ended, and the number of its
/// messages.
fn fired(timer: Timer, now_ms: i64) -> (Option<Timer>, u64) {
    let mut draft = draft_at(Records { timers: vec![timer], ..records() }, at(now_ms));
    take_in_due(&mut draft);
    let left = draft.records.timers.first().cloned();
    (left, messages(&finish(draft)).count() as u64)
}

#[test]
fn catch_up_determines_the_fires_and_missed_fires_of_a_timer() {
    for (catch_up, now_ms, fired_times, missed) in [
        (CatchUp::Once, 9_999, 0, 0),
        (CatchUp::Once, 10_000, 1, 0),
        (CatchUp::Once, 35_000, 1, 2),
        (CatchUp::All, 35_000, 3, 0),
        (CatchUp::All, 1_010_000, 100, 1),
        (CatchUp::Skip, 10_000, 1, 0),
        (CatchUp::Skip, 19_999, 1, 0),
        (CatchUp::Skip, 35_000, 0, 3),
    ] {
        let (left, messages) = fired(Timer { catch_up, ..every_ten_seconds() }, now_ms);
        let left = left.expect("an active timer");
        assert_eq!((left.fired, left.missed), (fired_times, missed), "{catch_up:?} at {now_ms}");
        assert!(left.next_at > at(now_ms), "{catch_up:?} at {now_ms}");
        assert_eq!(messages, fired_times, "{catch_up:?} at {now_ms}");
    }
    let refused = TimerRequest { every: Some(secs(0)), ..TimerRequest::default() };
    let found = add(&mut draft(records()), refused, outside()).map_err(|refusal| refusal.kind);
    assert_eq!(found, Err("schedule_too_short"));
}

#[test]
fn a_fire_that_is_later_than_the_grace_is_missed() {
    for (grace, now_ms, fired_times, missed) in [
        (secs(3), 10_000, 1, 0),
        (secs(3), 13_000, 1, 0),
        (secs(3), 13_001, 0, 1),
        (secs(3), 32_000, 1, 2),
        (secs(3), 35_000, 0, 3),
        (Span::ZERO, 10_000, 1, 0),
        (Span::ZERO, 10_001, 0, 1),
        (secs(3600), 35_000, 1, 2),
    ] {
        let due = Timer { catch_up: CatchUp::Skip, grace: Some(grace), ..every_ten_seconds() };
        let (left, _) = fired(due, now_ms);
        let counts = left.map(|left| (left.fired, left.missed));
        assert_eq!(counts, Some((fired_times, missed)), "{grace} at {now_ms}");
    }
    // A timer that fires once ends, although its only fire is too late.
    let once = Timer { catch_up: CatchUp::Skip, grace: Some(secs(3)), ..timer(1, 10_000) };
    assert_eq!(fired(once, 20_000), (None, 0));
}

#[test]
fn a_name_has_one_active_timer() {
    let named = |every: u64, words: &str| TimerRequest {
        every: Some(secs(every)),
        catch_up: Some(CatchUp::Skip),
        grace: Some(secs(60)),
        name: Some("nightly".to_owned()),
        text: Some(words.to_owned()),
        ..TimerRequest::default()
    };
    let mut draft = draft(records());
    let (first, action) = add(&mut draft, named(600, "look"), outside()).expect("a timer");
    assert_eq!(action, "added");
    draft.records.timers[0].next_at = at(5000);
    // A timer of the same definition stays unchanged. A new text keeps the time of the next fire,
    // and a new schedule sets a new time.
    for (again, action, next_at) in [
        (named(600, "look"), "unchanged", at(5000)),
        (named(600, "look again"), "replaced", at(5000)),
        (named(700, "look again"), "replaced", at(700_000)),
        (TimerRequest { grace: None, ..named(700, "look again") }, "replaced", at(700_000)),
    ] {
        let (timer, found) = add(&mut draft, again, outside()).expect("a timer");
        assert_eq!((timer.id, found, timer.next_at), (first.id, action, next_at));
        assert_eq!(draft.records.timers, [timer]);
    }
    let other = TimerRequest { name: Some("weekly".to_owned()), ..named(600, "look") };
    let (other, action) = add(&mut draft, other, outside()).expect("a timer");
    assert_eq!((action, draft.records.timers.len()), ("added", 2));
    crate::rules::transition::timer::cancel(&mut draft, other.id).expect("it is active");
    let (again, action) =
        add(&mut draft, TimerRequest { name: other.name, ..named(600, "look") }, outside()).expect("a timer");
    assert_eq!((action, again.id != other.id), ("added", true));
    for name in ["", " ", "a\nb", &"x".repeat(101)] {
        let refused = TimerRequest { name: Some(name.to_owned()), ..named(600, "look") };
        assert_eq!(
            add(&mut draft, refused, outside()).map_err(|refusal| refusal.kind),
            Err("invalid_timer"),
            "{name}"
        );
    }
    let refused = TimerRequest { catch_up: Some(CatchUp::Once), ..named(600, "look") };
    assert_eq!(add(&mut draft, refused, outside()).map_err(|refusal| refusal.kind), Err("invalid_timer"));
}

#[test]
fn completing_an_item_ends_its_focus_its_waits_and_its_blocker() {
    let blocked = WorkItem { blocked_by: Some("a lock".to_owned()), recheck_at: Some(at(1)), ..work(1) };
    let mut records = Records { works: vec![blocked, work(2)], ..records() };
    records.state.focus = Some(work_id(1));
    records.waits = vec![wait_on(1, WaitKind::External, 1), wait_on(2, WaitKind::External, 2)];
    let mut draft = draft(records);
    let item = complete(&mut draft, work_id(1), Some("done".to_owned()), None).expect("it is open");
    assert_eq!((item.state, item.blocked_by, item.recheck_at), (WorkState::Completed, None, None));
    assert_eq!((draft.records.state.focus, draft.records.works.len()), (None, 1));
    let again = complete(&mut draft, work_id(1), None, None).map_err(|refusal| refusal.kind);
    assert_eq!(again.err(), Some("not_open"));
    assert_eq!(ended(&finish(draft)), [WaitStatus::Cancelled]);
}

#[test]
fn each_change_of_an_item_is_one_revision_and_one_event() {
    let blocked = WorkItem { blocked_by: Some("a lock".to_owned()), ..work(1) };
    let mut draft = draft(Records { works: vec![blocked], ..records() });
    assert_eq!(update(&mut draft, work_id(1), WorkChange::default()).map(|item| item.revision), Ok(2));
    let picked = pick(&mut draft, work_id(1), None);
    assert_eq!(picked.map(|item| (item.revision, item.blocked_by.is_some())), Ok((3, true)));
    assert_eq!(unblock(&mut draft, work_id(1), "r").map(|item| item.revision), Ok(4));
    assert_eq!(unblock(&mut draft, work_id(1), "r").map_err(|refusal| refusal.kind), Err("not_blocked"));
    let transaction = finish(draft);
    let actions: Vec<&str> =
        of_kind(&transaction.events, EventKind::WorkTransition).map(|data| word(data, "action")).collect();
    assert_eq!(actions, ["update", "pick", "unblock"]);
}
