//! Tests of the setbacks of a message: the attempts that failed and interrupted runs cost, and the
//! number of setbacks after which a person is told.

use crate::rules::stall::PATIENCE;
use crate::rules::transition::lifecycle;
use crate::rules::transition::recovery::recover;

use super::*;

/// Returns the records after this change was committed.
fn after(records: Records, end: impl Fn(&mut Draft)) -> Records {
    let mut draft = draft(records);
    end(&mut draft);
    committed(draft)
}

fn settled(records: Records, end: TurnEnd) -> Records {
    after(records, |draft| drop(settle_run(draft, end.clone())))
}

/// Returns the records after the tick of the run has died.
fn interrupted(records: Records) -> Records {
    after(records, |draft| interrupt(draft, "gone").expect("settled"))
}

/// Claims the queued or held message again, after a recovery if needed.
fn again(records: Records) -> Records {
    after(records, |draft| {
        if draft.records.state.execution.state == ExecutionState::Failed {
            recover(draft, "retry").expect("recovered");
        }
        let inbox = &draft.records.inbox;
        let message = inbox.claimed.clone().or(inbox.head.clone()).expect("a message");
        claim(draft, message, continuation(), claimant()).expect("claimed");
        draft.records.inbox.claimed = draft.records.inbox.claimed.take().or(draft.records.inbox.head.take());
    })
}

fn marks(records: &Records) -> Vec<Subject> {
    let mark = records.state.attention.iter().flat_map(|mark| &mark.newest);
    mark.map(|attention| attention.subject).collect()
}

/// Name of an interruption, the run's terminal kind, and the function that causes it.
type Interruption = (&'static str, Terminal, fn(&mut Draft));

/// Returns every end of a run that has its cause outside of the turn.
fn interruptions() -> Vec<Interruption> {
    fn end(draft: &mut Draft, end: TurnEnd) {
        settle_run(draft, end);
    }
    vec![
        ("its tick is gone", Terminal::Interrupted, |draft| interrupt(draft, "gone").expect("settled")),
        ("its tick was told to end", Terminal::Interrupted, |draft| {
            end(draft, TurnEnd { cancelled_by: Some(15), exit: Exit::Signal { signal: 15 }, ..exited(0) });
        }),
        ("its tick was told to end before it began", Terminal::Interrupted, |draft| {
            let exit = Exit::NotStarted { error: "ended by signal 2".to_owned() };
            end(draft, TurnEnd { cancelled_by: Some(2), exit, is_prevented: true, ..exited(0) });
        }),
        ("a hook has failed, or the machine starts no process", Terminal::Failed, |draft| {
            let exit = Exit::NotStarted { error: "on-scheduled failed: exit status 1".to_owned() };
            end(draft, TurnEnd { exit, is_prevented: true, ..exited(0) });
        }),
        ("forced preemption by its tick", Terminal::Failed, |draft| {
            request(draft, "make room".to_owned(), secs(0), None).expect("asked");
            let run = draft.records.state.current_run.as_ref().expect("a run").run_id;
            assert!(force(draft, run, now()));
            end(draft, TurnEnd { exit: Exit::Signal { signal: 15 }, ..exited(0) });
        }),
        ("forced preemption by the next step", Terminal::Failed, |draft| {
            request(draft, "make room".to_owned(), secs(0), None).expect("asked");
            draft.stamp.now = at(1);
            interrupt(draft, "gone").expect("settled");
        }),
    ]
}

#[test]
fn an_interruption_costs_no_attempt_and_consecutive_interruptions_are_counted() {
    for (what, terminal, end) in interruptions() {
        let first = Message { attempt: 3, expires_at: Some(at(500)), ..prompt(1) };
        let mut records = after(running(&first), end);
        for times in 1..=4 {
            let state = &records.state;
            assert_eq!(state.execution.state, ExecutionState::Failed, "{what}");
            assert_eq!(state.last_turn.as_ref().map(|turn| turn.terminal), Some(terminal), "{what}");
            let message = records
                .inbox
                .head
                .clone()
                .expect("the message is queued again, although its expiry time is near");
            assert_eq!((message.attempt, message.failures.len()), (3, 0), "{what}");
            assert_eq!(message.setbacks, Setbacks { interruptions: times, ..Setbacks::default() }, "{what}");
            let retry = state.retry.clone().expect("a pause");
            assert_eq!(retry.attempt, Some(3), "{what}");
            let pause = secs(1 << (times - 1));
            assert!([now().after(pause), at(1).after(pause)].contains(&retry.not_before), "{what}");
            records = after(again(records), end);
        }
        // A failed attempt resets the numbers of consecutive setbacks.
        let failed = settled(again(records), exited(1));
        let message = failed.inbox.head.expect("queued");
        assert_eq!((message.attempt, message.setbacks), (4, Setbacks::default()), "{what}");
    }
}

#[test]
fn a_checkpoint_survives_interruptions_and_the_hold() {
    let saved = Checkpoint { run_id: run_id(1), number: 3 };
    let mut records = running(&prompt(1));
    records.policy.recovery.max_interruptions = 2;
    let run = records.state.current_run.as_mut().expect("a run");
    run.checkpoint = Some(saved);
    let records = interrupted(records);
    assert_eq!(records.inbox.head.as_ref().and_then(|head| head.checkpoint), Some(saved));
    let records = interrupted(again(records));
    assert_eq!((the_held(&records).needs_operator, the_held(&records).checkpoint), (true, Some(saved)));
    let records = again(after(records, |draft| retry_held(draft, &OPERATOR).expect("recovered")));
    assert_eq!(records.state.current_run.and_then(|run| run.given), Some(saved));
}

#[test]
fn a_message_that_had_a_turn_does_not_expire_after_an_interruption() {
    let message = Message { expires_at: Some(at(-1)), ..prompt(1) };
    let records = interrupted(running(&message));
    assert_eq!(records.inbox.head.map(|head| head.id), Some(message_id(1)));
}

/// Returns agents whose message is held for the operator, one for each cause, with the reason.
fn all_held() -> Vec<(Records, &'static str)> {
    let bounds = |mut records: Records| {
        records.policy.recovery.max_interruptions = 3;
        records.policy.recovery.max_deferrals = 3;
        records.policy.timeouts.resources = Limit(None);
        records
    };
    let start = || bounds(running(&prompt(1)));
    let thrice = |end: &dyn Fn(Records) -> Records| end(again(end(again(end(start())))));
    let yields = |records| {
        let yielded = after(records, |draft| {
            let run = draft.records.state.current_run.as_ref().expect("a run").run_id;
            give_way(draft, run, false, Some(secs(3600))).expect("yielded");
        });
        settled(yielded, exited(0))
    };
    let mut lacks = bounds(queued(prompt(1)));
    for moment in [0, 10_000, 20_000] {
        lacks = held_for(lacks, &shortage(), at(moment));
    }
    vec![
        (thrice(&interrupted), "interrupted 3 times in a row (recovery.max_interruptions): gone"),
        (
            thrice(&|records| settled(records, exited(75))),
            "put off 3 times in a row (recovery.max_deferrals): the turn asked to come back later (exit status 75)",
        ),
        (thrice(&yields), "suspended 3 times (recovery.max_deferrals): its turn yielded"),
        (lacks, "put off 3 times in a row (recovery.max_deferrals): workspace: /checkout is held by bob"),
    ]
}

/// Returns the records after a step at `moment` whose claim lacks a resource.
fn held_for(records: Records, missing: &Shortage, moment: Time) -> Records {
    let draft = lacking(records, missing, moment);
    if draft.is_empty() { draft.records } else { committed(draft) }
}

#[test]
fn after_too_many_setbacks_the_message_is_held_with_an_attention() {
    for (mut records, why) in all_held() {
        let state = &records.state;
        let expected = (Status::AwakeIdle, ExecutionState::WaitingResources);
        assert_eq!((state.status, state.execution.state), expected);
        assert_eq!(marks(&records), [Subject::MessageHeld], "{why}");
        let held = the_held(&records).clone();
        assert_eq!(held.missing, format!("held for the operator: {why}"));
        assert_eq!((held.needs_operator, held.not_before), (true, None));
        assert_eq!(records.inbox.claimed.as_ref().map(|message| message.id), Some(message_id(1)));
        // The agent is due only to tell a person once more.
        assert_eq!(next_due(&records), Some(state.execution.since.after(PATIENCE)), "{why}");
        assert_eq!(deadline(state, &records.policy.timeouts), None);
        // Time, a hint, a message of priority `interject` and `start` all do not resume the run.
        records.inbox.hints = vec![hint(8)];
        records.inbox.last_interject = Some(MessageId(stamp_at(at(90_000)).mint()));
        let draft = taken_in_at(records.clone(), at(99_000_000));
        let report = report(&draft.records, at(99_000_000));
        assert_eq!((report.decision.name(), report.reason), ("wait_for_resources", held.missing));
        let stopped = after(records, |draft| drop(stop(draft, secs(1), false, None, &OPERATOR)));
        let started = after(stopped, |draft| start(draft, &OPERATOR).expect("started"));
        assert!(the_held(&started).needs_operator, "{why}");
    }
}

#[test]
fn each_of_four_commands_of_the_operator_ends_the_hold_and_its_attention() {
    for (records, why) in all_held() {
        let recovered = after(records.clone(), |draft| retry_held(draft, &OPERATOR).expect("recovered"));
        assert_eq!(reason(&recovered, now()), "resources_available", "{why}");
        assert_eq!(the_held(&recovered).setbacks, Setbacks::default(), "{why}");

        let failed = after(records.clone(), |draft| {
            lifecycle::fail(draft, "enough", &OPERATOR).expect("held");
        });
        let message = failed.inbox.head.clone().expect("queued");
        assert_eq!((message.attempt, message.setbacks), (2, Setbacks::default()), "{why}");

        let dropped = after(records.clone(), |draft| {
            let message = draft.records.inbox.claimed.clone().expect("held");
            drop_held(draft, message, "not wanted").expect("dropped");
        });
        assert_eq!(dropped.inbox.claimed, None, "{why}");

        let requeued = after(records, |draft| drop(stop(draft, secs(1), true, None, &OPERATOR)));
        let message = requeued.inbox.head.clone().expect("queued");
        assert_eq!((message.attempt, message.setbacks), (1, Setbacks::default()), "{why}");
        for records in [recovered, failed, dropped, requeued] {
            assert_eq!(marks(&records), [], "{why}");
        }
    }
}

#[test]
fn waiting_for_a_resource_of_a_live_agent_counts_as_no_deferral() {
    let occupied = Shortage { is_occupied: true, ..shortage() };
    let mut records = queued(prompt(1));
    records.policy.recovery.max_deferrals = 2;
    for moment in (0..40).map(|minute| at(minute * 60_000)) {
        records = held_for(records, &occupied, moment);
        let held = the_held(&records);
        assert_eq!((held.is_occupied, held.setbacks), (true, Setbacks::default()));
        assert_eq!(deadline(&records.state, &records.policy.timeouts), None);
    }
    // Without a known occupant, the timeout and the deferrals of the run count from this time on.
    let moment = at(40 * 60_000);
    records = held_for(records, &shortage(), moment);
    assert_eq!(the_held(&records).setbacks.deferrals, 1);
    let limit = deadline(&records.state, &records.policy.timeouts).map(|(limit, _)| limit);
    assert_eq!(limit, Some(moment.after(secs(300))));
}

#[test]
fn a_message_whose_resource_never_becomes_free_keeps_its_attempt_and_is_held_in_the_end() {
    let mut records = queued(prompt(1));
    let mut moment = now();
    let mut timeouts = 0;
    for _ in 0..1000 {
        let draft = taken_in_at(records.clone(), moment);
        records = if draft.is_empty() { draft.records } else { committed(draft) };
        let state = &records.state;
        if state.held.as_ref().is_some_and(|held| held.needs_operator) {
            break;
        }
        if state.execution.state == ExecutionState::Failed {
            timeouts += u32::from(state.execution.reason.as_deref() == Some("resource_timeout"));
            let mut draft = draft_at(records, moment);
            recover(&mut draft, "retry").expect("recovered");
            records = committed(draft);
        }
        records = held_for(records, &shortage(), moment);
        moment = records.state.next_due_at.unwrap_or(moment);
    }
    assert!(timeouts > 10, "{timeouts}");
    assert_eq!(the_held(&records).setbacks.deferrals, 100);
    assert_eq!(records.inbox.claimed.as_ref().map(|message| message.attempt), Some(1));
    assert_eq!((marks(&records)[0], records.state.counters.dead), (Subject::MessageHeld, 0));
}

#[test]
fn deferrals_and_suspensions_are_cut_to_max_deferral_with_a_note() {
    let longest = Span::from_secs(35 * 24 * 3600);
    let far = at(250_000_000_000_000);
    for deferral in [
        Deferral { until: Some(far), ..Deferral::default() },
        Deferral { after: Some(Span::from_millis(u64::MAX)), ..Deferral::default() },
    ] {
        let end =
            TurnEnd { outcome: Ok(Outcome { deferred: Some(deferral), ..Outcome::default() }), ..exited(75) };
        let records = settled(running(&prompt(1)), end);
        assert_eq!(next_due(&records), Some(now().after(longest)));
        let missing = &the_held(&records).missing;
        let cut = format!("cut to {} (recovery.max_deferral)", now().after(longest));
        assert!(missing.starts_with(&cut), "{missing}");
    }
    // `recovery.max_deferral` limits a suspension, too, given by the turn or by `preempt`.
    for asks in [false, true] {
        let forever = Some(Span::from_secs(1_000_000_000));
        let records = after(running(&prompt(1)), |draft| {
            let run = run_id(1);
            if asks {
                request(draft, "make room".to_owned(), secs(30), forever).expect("asked");
            }
            give_way(draft, run, false, forever.filter(|_| !asks)).expect("yielded");
        });
        let records = settled(records, exited(0));
        assert_eq!(next_due(&records), Some(now().after(longest)));
        assert!(the_held(&records).missing.contains("(recovery.max_deferral)"));
    }
}

#[test]
fn a_turn_that_exited_with_status_0_is_never_run_again() {
    let deferred = Outcome { deferred: Some(Deferral::default()), ..Outcome::default() };
    let done = |outcome| TurnEnd { outcome, ..exited(0) };
    let unreadable = || Err("outcome.json: $.brief".to_owned());
    let ends = [
        done(unreadable()),
        done(Ok(deferred)),
        TurnEnd { cancelled_by: Some(15), by_itself: true, ..done(unreadable()) },
    ];
    for end in ends {
        for stops in [None, Some(false), Some(true)] {
            let mut records = running(&prompt(1));
            if let Some(requeue) = stops {
                records = after(records, |draft| {
                    stop(draft, secs(30), requeue, None, &OPERATOR).expect("stopped");
                });
            }
            let mut draft = draft(records);
            settle_run(&mut draft, end.clone());
            assert_eq!(marks(&draft.records), [Subject::DeadLetter]);
            let transaction = finish(draft);
            let (status, reason, dead_letter) = settled_as(&transaction);
            assert_eq!((status, dead_letter), (MessageStatus::Aborted, true));
            let expected = "its turn exited with status 0 and is not run again: outcome";
            assert!(reason.is_some_and(|reason| reason.starts_with(expected)), "{reason:?}");
            assert_eq!(archived_message(&transaction).failures.len(), 1);
            assert!(transaction.puts.is_empty(), "{:?}", transaction.puts);
        }
    }
    // The tick got a signal after the turn had ended, or ended the turn because of the signal.
    for (by_itself, terminal) in [(true, Terminal::Completed), (false, Terminal::Interrupted)] {
        let end = TurnEnd { cancelled_by: Some(15), by_itself, ..exited(0) };
        let records = settled(running(&prompt(1)), end);
        assert_eq!(records.state.last_turn.map(|turn| turn.terminal), Some(terminal));
    }
}

#[test]
fn a_message_keeps_its_number_of_suspensions_when_its_suspension_times_out() {
    let setbacks = Setbacks { suspensions: 7, ..Setbacks::default() };
    let mut records = holding(ExecutionState::Suspended, None);
    records.state.held.iter_mut().for_each(|held| held.setbacks = setbacks);
    let draft = taken_in_at(records, at(3_600_001));
    assert_eq!(draft.records.inbox.head.map(|head| (head.attempt, head.setbacks)), Some((1, setbacks)));
}
