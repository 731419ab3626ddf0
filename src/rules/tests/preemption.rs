//! Tests of requests to yield, critical sections, forced ends of a run, and resumption.

use crate::model::preemption::{Preemption, Section};
use crate::rules::preemption::{
    asks_to_yield, force_at, is_interjection, is_overdue, kill_at, protected_until, will_be_suspended,
};
use crate::rules::transition::lifecycle;
use crate::rules::transition::preemption::{close_section, cut_sections, open_section};

use super::*;

fn asked(reason: &str, force_at: i64) -> Preemption {
    Preemption {
        reason: reason.to_owned(),
        requested_at: at(-1),
        force_at: at(force_at),
        resume_after: None,
        asked_by: None,
        needed: None,
    }
}

/// Returns the first checkpoint of this run.
fn saved(run: u32) -> Checkpoint {
    Checkpoint { run_id: run_id(run), number: 1 }
}

/// Returns a run with critical sections that end at `sections`, and, if given, a request to yield
/// whose grace period ends at `grace`, all in milliseconds after the present.
fn run_with(grace: Option<i64>, sections: &[i64]) -> CurrentRun {
    let open = |(index, until): (usize, &i64)| Section {
        number: index as u32 + 1,
        until: at(*until),
        of_command: false,
    };
    CurrentRun {
        preemption: grace.map(|end| asked("make room", end)),
        sections: sections.iter().enumerate().map(open).collect(),
        ..current_run(&prompt(1))
    }
}

fn condemned(reason: &str, run: CurrentRun) -> CurrentRun {
    CurrentRun { condemned: Some(reason.to_owned()), ..run }
}

fn stopped(run: CurrentRun) -> CurrentRun {
    CurrentRun { stopping: Some(stopping(false)), ..run }
}

/// Returns an agent that works on message 1 in this run.
fn live(run: CurrentRun) -> Records {
    let mut records = running(&prompt(1));
    records.state.current_run = Some(run);
    records
}

fn run_of(draft: &Draft) -> CurrentRun {
    draft.records.state.current_run.clone().expect("a run")
}

fn settled(run: CurrentRun, end: TurnEnd) -> Transaction {
    super::settled(live(run), end).1
}

fn yielded() -> CurrentRun {
    CurrentRun { yielded_at: Some(at(-5)), checkpoint: Some(saved(1)), ..run_with(Some(1000), &[]) }
}

#[test]
fn a_run_is_asked_to_yield_unless_a_section_of_it_has_time_left() {
    for (grace, sections, yields, forced) in [
        (None, &[][..], false, None),
        (None, &[10], false, None),
        (Some(30), &[], true, Some(30)),
        (Some(-30), &[], true, Some(-30)),
        (Some(30), &[10], false, Some(30)),
        (Some(30), &[40], false, Some(40)),
        // A critical section still protects the run exactly at its end.
        (Some(30), &[0], false, Some(30)),
        (Some(30), &[-1], true, Some(30)),
        (Some(30), &[-1, 10], false, Some(30)),
        (Some(30), &[50, 40], false, Some(50)),
        (Some(30), &[40, -1], false, Some(40)),
    ] {
        let run = run_with(grace, sections);
        assert_eq!(asks_to_yield(&run, now()).is_some(), yields, "{grace:?} {sections:?}");
        assert_eq!(force_at(&run), forced.map(at), "{grace:?} {sections:?}");
        // A critical section also delays an end of the run by `fail`, by its own tick or by `stop`.
        let protected = protected_until(&run, now()).is_some();
        let expected = |why| (!protected).then_some(why);
        assert_eq!(asks_to_yield(&condemned("enough", run.clone()), now()), expected("enough"));
        let told = CurrentRun { told: Some("too long".to_owned()), ..run.clone() };
        assert_eq!(asks_to_yield(&told, now()), expected("too long"));
        assert_eq!(asks_to_yield(&stopped(run), now()), expected("stopped"));
    }
    for (millis, overdue) in [(29, false), (30, false), (31, true)] {
        assert_eq!(is_overdue(&run_with(Some(30), &[]), at(millis)), overdue, "{millis}");
    }
}

#[test]
fn of_several_requests_the_latest_gives_the_reason_and_the_earliest_the_deadline() {
    let mut draft = draft(live(current_run(&prompt(1))));
    for (reason, grace, pause, until) in
        [("one", 30, Some(secs(60)), 30_000), ("two", 60, None, 30_000), ("three", 5, Some(secs(1)), 5000)]
    {
        request(&mut draft, reason.to_owned(), secs(grace), pause).expect("asked for");
        let expected = Preemption { requested_at: now(), resume_after: pause, ..asked(reason, until) };
        assert_eq!(run_of(&draft).preemption, Some(expected));
    }
    let events = finish(draft).events;
    assert_eq!(kinds(&events), [EventKind::PreemptionRequested; 3]);
    assert_eq!((word(&events[1].data, "reason"), events[1].run_id), ("two", Some(run_id(1))));
}

#[test]
fn a_request_is_refused_without_a_run_and_for_a_run_that_is_being_ended() {
    let run = || current_run(&prompt(1));
    for records in [records(), live(stopped(run())), live(condemned("x", run()))] {
        let refused = refused(records, |draft| request(draft, "why".to_owned(), secs(1), None));
        assert_eq!(refused.kind, "invalid_state_transition");
    }
}

#[test]
fn sections_nest_and_close_by_number_or_from_the_innermost() {
    let mut draft = draft(live(current_run(&prompt(1))));
    let numbers =
        |draft: &Draft| -> Vec<u32> { run_of(draft).sections.iter().map(|section| section.number).collect() };
    for number in [1, 2, 3] {
        let section = open_section(&mut draft, run_id(1), secs(5), false).expect("open");
        assert_eq!(section, Section { number, until: at(5000), of_command: false });
    }
    assert_eq!(close_section(&mut draft, run_id(1), Some(2)).map(|section| section.number), Ok(2));
    let again = close_section(&mut draft, run_id(1), Some(2));
    assert_eq!(again.map_err(|refused| refused.kind), Err("no_section"));
    assert_eq!(numbers(&draft), [1, 3]);
    // The number of a closed section is not used again while a later section is open.
    assert_eq!(open_section(&mut draft, run_id(1), secs(1), false).map(|section| section.number), Ok(4));
    for left in [&[1, 3][..], &[1], &[]] {
        close_section(&mut draft, run_id(1), None).expect("closed");
        assert_eq!(numbers(&draft), left);
    }
    assert!(close_section(&mut draft, run_id(1), None).is_err());
}

/// A critical section protects a run from a request to yield. An overlapping section does not
/// extend this protection, which lasts for `max_section` at most.
#[test]
fn overlapping_sections_protect_until_the_deadline_of_the_first() {
    let mut records = live(current_run(&prompt(1)));
    let opened = |records: &mut Records, moment: i64, time: u64| {
        let mut draft = draft_at(records.clone(), at(moment));
        let section = open_section(&mut draft, run_id(1), secs(time), false).expect("open");
        *records = draft.records;
        section.until
    };
    assert_eq!(opened(&mut records, 0, 5), at(5000));
    for (moment, time) in [(1000, 5), (2000, 3600), (3000, 1), (6000, 5)] {
        assert_eq!(opened(&mut records, moment, time), at(5000), "{moment}");
    }
    records.state.current_run = Some(current_run(&prompt(1)));
    assert_eq!(opened(&mut records, 0, 3600), at(600_000), "max_section");
    // A critical section of a stopped turn does not extend the grace period of the stop.
    records.state.current_run = Some(stopped(current_run(&prompt(1))));
    assert_eq!(opened(&mut records, 7, 3600), at(7));
}

#[test]
fn a_stop_counts_its_grace_from_the_end_of_a_section() {
    for (sections, end) in [(&[][..], 30_000), (&[-5], 30_000), (&[5000], 35_000), (&[9_000_000], 630_000)] {
        let run = run_with(None, sections);
        assert_eq!(kill_at(&run, now(), secs(600), secs(30)), at(end), "{sections:?}");
        let mut draft = draft(live(run));
        lifecycle::stop(&mut draft, secs(30), false, None, &OPERATOR).expect("stopped");
        cut_sections(&mut draft, secs(1));
        let run = run_of(&draft);
        assert_eq!(run.sections, []);
        let left = run.stopping.expect("stopping").kill_at;
        assert_eq!(left, if sections.is_empty() { at(30_000) } else { at(1000) });
    }
}

#[test]
fn no_section_begins_in_a_run_that_may_be_ended() {
    for (run, opens) in [
        (run_with(Some(0), &[]), true),
        (run_with(Some(-1), &[]), false),
        // A run with an open critical section is not ended yet, so it may open another section.
        (run_with(Some(-1), &[10]), true),
        (condemned("x", run_with(None, &[10])), true),
        (condemned("x", run_with(None, &[])), false),
        (CurrentRun { told: Some("x".to_owned()), ..run_with(None, &[10]) }, true),
        (CurrentRun { told: Some("x".to_owned()), ..run_with(None, &[]) }, false),
    ] {
        let mut draft = draft(live(run.clone()));
        let opened = open_section(&mut draft, run_id(1), secs(1), false);
        assert_eq!((opened.is_ok(), draft.is_empty()), (opens, !opens), "{run:?}");
    }
}

#[test]
fn commands_of_a_run_that_is_not_current_are_refused() {
    let refused = |result: Result<(), Refusal>| result.expect_err("refused").kind;
    let mut draft = draft(live(current_run(&prompt(1))));
    assert_eq!(refused(open_section(&mut draft, run_id(2), secs(1), false).map(|_| ())), "run_not_current");
    assert_eq!(refused(close_section(&mut draft, run_id(2), None).map(|_| ())), "run_not_current");
    assert_eq!(refused(give_way(&mut draft, run_id(2), true, None).map(|_| ())), "run_not_current");
    assert_eq!(refused(interject(&mut draft, run_id(2), &[prompt(2)])), "run_not_current");
    assert!(!force(&mut draft, run_id(2), at(0)));
    assert!(draft.is_empty());
}

#[test]
fn a_run_is_forced_only_for_its_current_deadline() {
    for (run, over, forced) in [
        (run_with(Some(-5), &[]), -5, true),
        // By the monitor's clock, which nobody can set, the deadline is past; by the clock of the
        // records the deadline is not past.
        (run_with(Some(5), &[]), 5, true),
        (run_with(Some(-5), &[7]), -5, false),
        (run_with(None, &[]), -5, false),
    ] {
        let mut draft = draft(live(run));
        assert_eq!(force(&mut draft, run_id(1), at(over)), forced);
        assert_eq!(run_of(&draft).condemned.as_deref(), forced.then_some("forced_preemption"));
        assert_eq!(draft.is_empty(), !forced);
    }
    let mut late = draft(live(yielded()));
    assert!(force(&mut late, run_id(1), at(1000)), "the monitor ends its processes");
    assert!(late.is_empty(), "the run is suspended nevertheless");
}

#[test]
fn a_turn_that_has_yielded_is_suspended_after_any_exit() {
    let signal = TurnEnd { exit: Exit::Signal { signal: 9 }, ..exited(0) };
    let late = TurnEnd { timed_out: true, ..exited(1) };
    let cancelled = TurnEnd { cancelled_by: Some(15), ..exited(1) };
    for end in [exited(0), exited(1), exited(75), signal, late, cancelled] {
        let transaction = settled(yielded(), end);
        assert_eq!(path(&transaction.events), ["running -> suspended"]);
        let state = &transaction.state;
        assert_eq!((state.status, &state.current_run, &state.retry), (Status::AwakeIdle, &None, &None));
        let expected = HeldRun {
            missing: "suspended: make room".to_owned(),
            setbacks: Setbacks { suspensions: 1, ..Setbacks::default() },
            checkpoint: Some(saved(1)),
            ..held(&prompt(1), None)
        };
        assert_eq!(state.held, Some(expected));
        assert_eq!(state.execution.reason.as_deref(), Some("make room"));
        assert_eq!(state.last_turn.as_ref().map(|turn| turn.terminal), Some(Terminal::Suspended));
        assert_eq!((state.counters.turns, state.counters.turns_failed), (1, 0));
        assert_eq!(state.spending.day, None, "its attempt does not count");
        assert!(transaction.deletes.is_empty(), "its message stays claimed");
    }
}

#[test]
fn a_yielded_turn_whose_tick_is_gone_is_suspended() {
    let transaction = changed(live(yielded()), |draft| interrupt(draft, "its tick is gone"));
    assert_eq!(path(&transaction.events), ["running -> suspended"]);
    assert_eq!(transaction.state.held.and_then(|held| held.checkpoint), Some(saved(1)));
}

#[test]
fn a_run_whose_tick_is_gone_fails_for_the_reason_of_its_forced_end() {
    for (run, terminal, reason, attempt) in [
        (condemned("wrong branch", yielded()), Terminal::Failed, "wrong branch", 2),
        (run_with(Some(-1), &[]), Terminal::Failed, "forced_preemption", 1),
        (run_with(Some(0), &[]), Terminal::Interrupted, "its tick is gone", 1),
        (run_with(Some(-1), &[1]), Terminal::Interrupted, "its tick is gone", 1),
        (run_with(None, &[-1]), Terminal::Interrupted, "its tick is gone", 1),
    ] {
        let state = changed(live(run), |draft| interrupt(draft, "its tick is gone")).state;
        let last = state.last_turn.expect("one");
        assert_eq!((last.terminal, last.reason.as_deref()), (terminal, Some(reason)));
        assert_eq!(state.execution.state, ExecutionState::Failed);
        assert_eq!(state.retry.and_then(|retry| retry.attempt), Some(attempt));
    }
}

#[test]
fn a_condemned_run_fails_after_any_exit_of_its_turn() {
    for end in [exited(0), exited(75), TurnEnd { timed_out: true, ..exited(0) }] {
        let run = condemned("wrong branch", yielded());
        assert!(!will_be_suspended(&run));
        let transaction = settled(run, end);
        assert_eq!(path(&transaction.events), ["running -> failed"]);
        let retry = transaction.state.retry.expect("a retry");
        assert_eq!((retry.attempt, retry.reason.as_str()), (Some(2), "wrong branch"));
        assert_eq!(transaction.state.held, None, "the next attempt has no checkpoint");
    }
}

#[test]
fn the_usage_of_a_yielded_turn_counts_but_its_actions_have_no_effect() {
    let usage = Usage { input_tokens: Some(7), ..Usage::default() };
    let outcome: Outcome =
        serde_json::from_str(r#"{"brief": "so far", "actions": [{"do": "timer.add", "in": "1h"}]}"#)
            .expect("an outcome");
    let end = TurnEnd { outcome: Ok(Outcome { usage: Some(usage), ..outcome }), ..exited(0) };
    let transaction = settled(yielded(), end);
    assert_eq!(transaction.state.counters.input_tokens, 7);
    assert!(!transaction.puts.iter().any(|put| matches!(put, Put::Timer(_))));
    assert!(ends_the_run_alone(&transaction), "no brief");
}

#[test]
fn a_run_that_is_suspended_for_a_time_resumes_then_and_has_no_timeout() {
    let run = CurrentRun {
        preemption: Some(Preemption { resume_after: Some(secs(7200)), ..asked("make room", 1000) }),
        ..yielded()
    };
    let transaction = settled(run, exited(0));
    let back = at(7_200_000);
    assert_eq!(transaction.state.held.as_ref().and_then(|held| held.not_before), Some(back));
    assert_eq!(transaction.state.next_due_at, Some(back));
    let mut records = live(current_run(&prompt(1)));
    records.state = transaction.state;
    assert_eq!(deadline(&records.state, &records.policy.timeouts), None);
    assert_eq!(reason(&records, at(7_199_999)), "suspended: make room");
    assert_eq!(reason(&records, back), "resume_suspended");
}

/// Returns an agent whose run on message 1 was suspended until `not_before` and has saved a
/// checkpoint.
fn suspended(not_before: Option<Time>) -> Records {
    let mut records = holding(ExecutionState::Suspended, not_before);
    records.state.held.iter_mut().for_each(|held| held.checkpoint = Some(saved(1)));
    records
}

#[test]
fn after_resume_the_next_step_runs_the_suspended_run() {
    for (before, after) in [(None, 0), (Some(500), 0), (Some(-500), -500)] {
        let mut draft = draft(suspended(before.map(at)));
        resume(&mut draft).expect("resumed");
        let held = draft.records.state.held.clone().expect("held");
        assert_eq!(held.not_before, Some(at(after)));
        assert_eq!(reason(&draft.records, now()), "resume_suspended");
        assert_eq!(finish(draft).state.execution.state, ExecutionState::Suspended);
    }
    for state in ExecutionState::ALL.iter().filter(|state| **state != ExecutionState::Suspended) {
        let refused = refused(records_in(Status::Stopped, *state), resume);
        assert_eq!(refused.message, format!("invalid state transition: {state} -> resumed"));
    }
}

#[test]
fn a_resumed_run_has_the_checkpoint_the_same_attempt_and_no_request() {
    let mut draft = draft(suspended(None));
    let claimed = claim(&mut draft, prompt(1), continuation(), claimant()).expect("claimed");
    let run = claimed.run;
    assert_eq!((run.checkpoint, run.attempt, run.yielded_at), (Some(saved(1)), 1, None));
    assert_eq!((run.preemption, run.sections.len(), run.condemned), (None, 0, None));
    assert_eq!(path(&finish(draft).events), ["suspended -> resumed", "resumed -> running"]);
}

#[test]
fn a_resumed_run_that_lacks_a_resource_keeps_its_checkpoint_and_its_hook() {
    let mut draft = lacking(suspended(Some(now())), &shortage(), now());
    let held = the_held(&draft.records);
    assert_eq!((held.checkpoint, held.entered), (Some(saved(1)), Some(ExecutionState::Resumed)));
    assert_eq!(draft.records.state.execution.state, ExecutionState::WaitingResources);
    let mut seen = draft.clone();
    seen.records.installed_hooks = InstalledHooks { on_resume: true, ..InstalledHooks::default() };
    let claimed = claim(&mut seen, prompt(1), continuation(), claimant()).expect("claimed");
    assert_eq!(claimed.stands_in, Some(ExecutionState::Resumed));
    let claimed = claim(&mut draft, prompt(1), continuation(), claimant()).expect("claimed");
    assert_eq!((claimed.stands_in, claimed.run.checkpoint), (None, Some(saved(1))), "no hook is installed");
    // The hook of a turn that deferred itself has already run, so no hook is due (`entered`).
    let transaction =
        settled(CurrentRun { checkpoint: Some(saved(3)), ..current_run(&prompt(1)) }, exited(75));
    let held = transaction.state.held.expect("held");
    assert_eq!((held.checkpoint, held.entered), (Some(saved(3)), None));
    assert_eq!(held.resource, None::<Resource>);
}

#[test]
fn a_run_that_yields_resumes_after_the_longer_of_its_own_pause_and_that_of_the_request() {
    for (asked, own, expected) in [
        (None, [None, None], None),
        (None, [Some(5), None], Some(5)),
        (None, [Some(5), Some(3)], Some(3)),
        (Some(None), [Some(5), None], Some(5)),
        (Some(Some(9)), [None, None], Some(9)),
        (Some(Some(9)), [Some(5), None], Some(9)),
        (Some(Some(4)), [None, Some(5)], Some(5)),
    ] {
        let mut draft = draft(live(current_run(&prompt(1))));
        if let Some(pause) = asked {
            request(&mut draft, "lunch".to_owned(), secs(30), pause.map(secs)).expect("asked for");
        }
        for pause in own {
            give_way(&mut draft, run_id(1), false, pause.map(secs)).expect("yields");
        }
        let held = settled(run_of(&draft), exited(0)).state.held.expect("suspended");
        assert_eq!(held.not_before, expected.map(|pause| now().after(secs(pause))), "{asked:?} {own:?}");
    }
}

#[test]
fn a_checkpoint_is_the_last_one_that_was_saved_for_the_attempt() {
    let second = Checkpoint { number: 2, ..saved(1) };
    for (before, saves, after) in [
        (None, false, None),
        (None, true, Some(saved(1))),
        (Some(saved(7)), false, Some(saved(7))),
        (Some(saved(7)), true, Some(saved(1))),
        (Some(saved(1)), false, Some(saved(1))),
        // A second checkpoint gets another number, so that it does not overwrite the first.
        (Some(saved(1)), true, Some(second)),
    ] {
        let mut draft = draft(live(CurrentRun { checkpoint: before, ..current_run(&prompt(1)) }));
        assert_eq!(give_way(&mut draft, run_id(1), saves, None), Ok(after));
        let run = run_of(&draft);
        assert_eq!((run.checkpoint, run.yielded_at), (after, Some(now())));
        assert!(will_be_suspended(&run));
    }
}

#[test]
fn an_interjection_is_settled_and_the_message_of_the_run_lists_it() {
    let said = |number| Message { priority: Priority::Interject, ..prompt(number) };
    let transaction =
        changed(live(current_run(&prompt(1))), |draft| interject(draft, run_id(1), &[said(2), said(3)]));
    assert_eq!((transaction.archived.len(), transaction.deletes.len()), (2, 2));
    for event in transaction.events.iter().filter(|event| event.kind == EventKind::MessageSettled) {
        assert_eq!((word(&event.data, "status"), event.run_id), ("interjected", Some(run_id(1))));
    }
    let listed = put_message(&transaction).map(|message| message.interjected.clone());
    assert_eq!(listed, Some(vec![message_id(2), message_id(3)]));
}

#[test]
fn only_a_message_of_the_operator_is_an_interjection() {
    for priority in Priority::ALL {
        for kind in OriginKind::ALL {
            let origin = Origin { kind: *kind, id: None };
            let message = Message { priority: *priority, origin, ..prompt(2) };
            let expected = *priority == Priority::Interject && *kind == OriginKind::Operator;
            assert_eq!(is_interjection(&message), expected, "{priority} {kind}");
        }
    }
}

#[test]
fn fail_condemns_a_run_fails_a_recovery_and_is_refused_in_other_states() {
    for state in [ExecutionState::Running, ExecutionState::ShuttingDown] {
        let mut records = live(current_run(&prompt(1)));
        records.state.execution.state = state;
        let mut draft = draft(records);
        assert_eq!(lifecycle::fail(&mut draft, "enough", &OPERATOR), Ok(lifecycle::Given::Run(run_id(1))));
        assert_eq!(run_of(&draft).condemned.as_deref(), Some("enough"));
        assert_eq!(draft.records.state.execution.state, state);
    }
    let mut recovering = draft(records_in(Status::AwakeIdle, ExecutionState::Recovering));
    assert_eq!(lifecycle::fail(&mut recovering, "enough", &OPERATOR), Ok(lifecycle::Given::Recovery));
    assert_eq!(path(&finish(recovering).events), ["recovering -> failed"]);
    let accepting = [ExecutionState::Running, ExecutionState::ShuttingDown, ExecutionState::Recovering];
    for state in ExecutionState::ALL.iter().filter(|state| !accepting.contains(state)) {
        let refused = refused(records_in(Status::AwakeIdle, *state), |draft| {
            lifecycle::fail(draft, "enough", &OPERATOR)
        });
        assert!(refused.message.contains(state.name()), "{}", refused.message);
    }
}

#[test]
fn the_stop_of_a_condemned_run_fails_with_the_reason_of_the_operator() {
    for killed in [false, true] {
        let run = CurrentRun { stopping: Some(stopping(true)), ..current_run(&prompt(1)) };
        let mut records = live(condemned("enough", run));
        records.state.status = Status::Stopped;
        records.state.execution.state = ExecutionState::ShuttingDown;
        let transaction = changed(records, |draft| finish_stop(draft, killed, None));
        assert_eq!(path(&transaction.events), ["shutting_down -> failed"]);
        assert_eq!(transaction.state.execution.reason.as_deref(), Some("enough"));
    }
}

/// Tries every combination of a request, critical sections, a yield and `fail`. A run with time
/// left in a section is neither asked to yield nor forced to end. A run that has yielded and is not
/// told to fail is suspended.
#[test]
fn sections_protect_and_yielding_suspends_in_every_combination() {
    for grace in [None, Some(-10), Some(0), Some(10)] {
        for sections in subsets(&[-20_i64, 0, 20]) {
            for (yields, fails) in [(false, false), (false, true), (true, false), (true, true)] {
                let run = CurrentRun {
                    yielded_at: yields.then(now),
                    condemned: fails.then(|| "x".to_owned()),
                    ..run_with(grace, &sections)
                };
                let protected = sections.iter().any(|until| *until >= 0);
                let what = format!("{grace:?} {sections:?} {yields} {fails}");
                let should = (fails || grace.is_some()) && !protected;
                assert_eq!(asks_to_yield(&run, now()).is_some(), should, "{what}");
                let over = grace.is_some_and(|end| end < 0) && !protected;
                assert_eq!(is_overdue(&run, now()), over, "{what}");
                let ended = settled(run.clone(), exited(3)).state.execution.state;
                let suspended = yields && !fails;
                assert_eq!(will_be_suspended(&run), suspended, "{what}");
                let expected = if suspended { ExecutionState::Suspended } else { ExecutionState::Failed };
                assert_eq!(ended, expected, "{what}");
            }
        }
    }
}
