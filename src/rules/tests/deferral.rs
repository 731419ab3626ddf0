//! Tests of consecutive deferrals: the details that a turn gives, their duration and number, and
//! the operator's ways to end them.

use crate::rules::transition::lifecycle::{self, Given};
use crate::rules::transition::preemption;

use super::*;

fn ending(deferral: Deferral) -> TurnEnd {
    TurnEnd { outcome: Ok(Outcome { deferred: Some(deferral), ..Outcome::default() }), ..exited(75) }
}

/// Returns the records after the running turn has ended at `moment`, and the result of the turn.
fn ended(records: Records, end: TurnEnd, moment: Time) -> (Records, Terminal) {
    let mut draft = draft_at(records, moment);
    let terminal = settle_run(&mut draft, end).terminal;
    (committed(draft), terminal)
}

/// Returns the records after a step at `moment` has claimed the held message again.
fn again(records: Records, moment: Time) -> Records {
    let mut draft = draft_at(records, moment);
    let message = draft.records.inbox.claimed.clone().expect("held");
    claim(&mut draft, message, continuation(), claimant()).expect("claimed");
    committed(draft)
}

/// Returns the records after the turn of message 1 has deferred the message.
fn put_off(end: TurnEnd) -> Records {
    let (records, terminal) = ended(running(&prompt(1)), end, now());
    assert_eq!(terminal, Terminal::Deferred);
    records
}

fn timeout(records: &Records) -> Option<(Time, &'static str)> {
    deadline(&records.state, &records.policy.timeouts)
}

#[test]
fn the_reason_of_a_deferral_is_that_of_the_turn_or_its_last_error_line() {
    let said = |resource: Option<&str>, reason: Option<&str>, line: Option<&str>| {
        let deferral = Deferral {
            resource: resource.map(str::to_owned),
            reason: reason.map(str::to_owned),
            ..Deferral::default()
        };
        let end = TurnEnd { last_error_line: line.map(str::to_owned), ..ending(deferral) };
        the_held(&put_off(end)).missing.clone()
    };
    assert_eq!(said(Some("api:x"), Some("429"), Some("noise")), "api:x: 429");
    assert_eq!(said(Some("api:x"), None, Some("too many")), "api:x: too many");
    assert_eq!(said(Some(" api:x "), Some(" "), None), "api:x");
    assert_eq!(said(None, Some("429"), None), "429");
    assert_eq!(said(None, None, Some("too many")), "too many");
    assert_eq!(said(None, None, None), "the turn asked to come back later (exit status 75)");
    let long = "ä".repeat(5000);
    assert_eq!(said(None, Some(&long), None).len(), 4096, "the stored text is bounded");
}

#[test]
fn no_step_tries_before_a_known_time_and_the_run_does_not_time_out_before_it() {
    let two_hours = Deferral { after: Some(secs(7200)), ..Deferral::default() };
    let then = Deferral { until: Some(at(7_200_000)), ..Deferral::default() };
    for deferral in [two_hours, then] {
        let records = put_off(ending(deferral));
        assert_eq!(timeout(&records), None);
        assert_eq!(next_due(&records), Some(at(7_200_000)));
        for (moment, reason) in [
            (at(7_199_999), "the turn asked to come back later (exit status 75)"),
            (at(7_200_000), "resources_available"),
            (at(99_000_000), "resources_available"),
        ] {
            let draft = taken_in_at(records.clone(), moment);
            assert!(draft.is_empty(), "not late at {moment}");
            let report = report(&draft.records, moment);
            let back = (moment < at(7_200_000)).then(|| "back at 2023-11-15T00:13:20.000Z".to_owned());
            assert_eq!((report.reason.as_str(), report.evidence), (reason, Vec::from_iter(back)));
        }
    }
    // If the turn names a resume time in the past, the backoff determines the next try.
    for past in [
        Deferral { until: Some(at(-1)), ..Deferral::default() },
        Deferral { after: Some(secs(0)), ..Deferral::default() },
    ] {
        let records = put_off(ending(past));
        assert_eq!(next_due(&records), Some(at(1000)), "the backoff");
    }
}

#[test]
fn the_timeout_counts_from_the_first_of_consecutive_deferrals() {
    let mut records = put_off(exited(75));
    for second in [10, 100, 200] {
        records = again(records, at(second * 1000));
        assert_eq!(records.state.current_run.as_ref().and_then(|run| run.deferred_since), Some(now()));
        (records, _) = ended(records, exited(75), at(second * 1000 + 500));
    }
    assert_eq!((the_held(&records).setbacks.deferrals, the_held(&records).deferred_since), (4, Some(now())));
    assert_eq!(records.state.execution.since, at(200_500));
    assert_eq!(timeout(&records), Some((at(300_000), "resource_timeout")));
    let late = taken_in_at(records, at(300_001));
    let head = late.records.inbox.head.clone().expect("in the queue");
    assert_eq!((head.attempt, head.failures.len()), (1, 0), "no attempt is spent");
    assert_eq!(head.setbacks.deferrals, 4, "the deferrals are still counted");
    assert_eq!(next_due(&late.records), Some(at(308_001)));
}

#[test]
fn the_timeout_does_not_count_the_time_until_a_known_time() {
    let records = put_off(exited(75));
    let records = again(records, at(10_000));
    let hour = Deferral { after: Some(secs(3600)), ..Deferral::default() };
    let (records, _) = ended(records, ending(hour), at(20_000));
    let records = again(records, at(3_620_000));
    let (records, _) = ended(records, exited(75), at(3_630_000));
    let limit = at(300_000 + 3_600_000);
    assert_eq!(timeout(&records), Some((limit, "resource_timeout")));
}

#[test]
fn a_failed_attempt_resets_the_deferrals_and_a_turn_that_yields_resets_their_time_alone() {
    let records = put_off(exited(75));
    let (failed, _) = ended(again(records.clone(), at(1000)), exited(1), at(2000));
    let head = failed.inbox.head.clone().expect("in the queue");
    assert_eq!((head.attempt, head.setbacks, failed.state.held), (2, Setbacks::default(), None));
    let mut yields = again(records, at(1000));
    if let Some(run) = &mut yields.state.current_run {
        run.yielded_at = Some(at(1500));
    }
    let (suspended, _) = ended(yields, exited(0), at(2000));
    let held = the_held(&suspended);
    assert_eq!((held.setbacks.deferrals, held.setbacks.suspensions, held.deferred_since), (1, 1, None));
}

#[test]
fn a_check_that_lacks_a_resource_counts_as_another_consecutive_deferral() {
    let records = committed(lacking(put_off(exited(75)), &shortage(), at(5000)));
    let lacks = the_held(&records);
    assert_eq!((lacks.resource, lacks.looks), (Some(Resource::Workspace), 1));
    assert_eq!((lacks.setbacks.deferrals, lacks.deferred_since), (2, Some(now())));
    let run = again(records, at(9000)).state.current_run.expect("claimed");
    assert_eq!((run.setbacks.deferrals, run.deferred_since), (2, Some(now())));
}

/// Returns an agent whose turn has deferred its message by one day.
fn until_tomorrow() -> Records {
    put_off(ending(Deferral { after: Some(secs(86_400)), ..Deferral::default() }))
}

#[test]
fn after_recover_or_start_the_next_step_tries_again_and_the_deferrals_are_reset() {
    let moment = at(299_000);
    let recovered = {
        let mut draft = draft_at(until_tomorrow(), moment);
        retry_held(&mut draft, &OPERATOR).expect("recovered");
        let events = finish(draft.clone()).events;
        assert_eq!(of_kind(&events, EventKind::ControlApplied).count(), 1);
        committed(draft)
    };
    let started = {
        let mut draft = draft_at(until_tomorrow(), at(1));
        stop(&mut draft, secs(1), false, None, &OPERATOR).expect("stopped");
        let stopped = committed(draft);
        assert_eq!(stopped.state.execution.state, ExecutionState::WaitingResources, "a stop leaves it");
        let mut draft = draft_at(stopped, moment);
        start(&mut draft, &OPERATOR).expect("started");
        committed(draft)
    };
    for records in [recovered, started] {
        assert_eq!(records.state.next_due_at, Some(moment));
        let late = at(599_001);
        let draft = taken_in_at(records.clone(), at(599_000));
        assert_eq!(reason(&draft.records, at(599_000)), "resources_available");
        assert_eq!(timeout(&records).map(|(limit, _)| limit < late), Some(true));
        let held = the_held(&records);
        assert_eq!((held.setbacks.deferrals, held.deferred_since), (0, Some(moment)));
    }
}

#[test]
fn a_stop_with_requeue_puts_a_held_message_back_at_its_attempt_also_if_the_agent_is_stopped() {
    for state in [ExecutionState::WaitingResources, ExecutionState::Suspended] {
        for status in [Status::AwakeIdle, Status::Stopped] {
            let mut records = holding(state, None);
            records.state.status = status;
            let mut draft = draft(records);
            stop(&mut draft, secs(1), true, None, &OPERATOR).expect("stopped");
            let inbox = &draft.records.inbox;
            let head = inbox.head.as_ref().map(|head| (head.id, head.attempt));
            assert_eq!((head, &inbox.claimed), (Some((message_id(1), 1)), &None));
            assert_eq!(draft.records.state.held, None);
            let mut records = committed(draft);
            records.state.status = Status::AwakeIdle;
            assert_eq!(reason(&records, now()), "after_stop");
        }
    }
}

#[test]
fn the_operator_can_fail_and_drop_a_held_message() {
    for (state, terminal) in [
        (ExecutionState::WaitingResources, Terminal::Deferred),
        (ExecutionState::Suspended, Terminal::Suspended),
    ] {
        let mut records = holding(state, None);
        records.state.status = Status::Asleep;

        let mut failing = draft(records.clone());
        assert_eq!(lifecycle::fail(&mut failing, "init_timeout", &OPERATOR), Ok(Given::Held(message_id(1))));
        let is_new = lifecycle::is_uninitialized(&failing.records.state);
        assert!(!is_new, "no failed start, although the operator gives the reason of one");
        let transaction = finish(failing);
        assert_eq!(path(&transaction.events), [format!("{state} -> failed")]);
        let [Put::Message(message)] = &transaction.puts[..] else { panic!("{:?}", transaction.puts) };
        let failures: Vec<_> =
            message.failures.iter().map(|failure| (failure.terminal, &*failure.reason)).collect();
        assert_eq!((message.attempt, failures), (2, vec![(terminal, "init_timeout")]));
        assert_eq!(transaction.state.next_due_at, Some(at(1000)), "the backoff");

        let mut dropping = draft(records);
        drop_held(&mut dropping, prompt(1), "no longer wanted").expect("dropped");
        assert_eq!(dropping.records.inbox.claimed, None);
        assert_eq!(reason(&dropping.records, now()), "after_stop", "the next step recovers");
        let transaction = finish(dropping);
        assert_eq!(path(&transaction.events), [format!("{state} -> failed")]);
        assert_eq!(settled_as(&transaction), (MessageStatus::Dropped, Some("no longer wanted"), false));
    }
}

/// Returns the reason of a step's decision after `arrive` has changed the inbox, and the records.
fn after_arrival(arrive: impl Fn(&mut Records), moment: Time) -> (String, Records) {
    let mut records = until_tomorrow();
    arrive(&mut records);
    let records = taken_in_at(records, moment).records;
    (reason(&records, moment), records)
}

#[test]
fn a_deferred_message_is_tried_again_after_an_interjection_but_not_after_a_message_or_a_hint() {
    let put = "the turn asked to come back later (exit status 75)";
    let minted = |millis: i64| Some(MessageId(stamp_at(at(millis)).mint()));
    let moment = at(60_000);
    assert_eq!(after_arrival(|_| {}, moment).0, put);
    let ordinary = |records: &mut Records| {
        records.inbox.head = Some(Message { priority: Priority::Next, created_at: at(1), ..prompt(2) });
    };
    assert_eq!(after_arrival(ordinary, moment).0, put);
    let hinted = |records: &mut Records| {
        records.inbox.hints = vec![WakeHint { created_at: at(30_000), ..hint(8) }];
    };
    let (reason, taken) = after_arrival(hinted, moment);
    assert_eq!(reason, put, "no step tries before the time that the turn has named");
    assert!(taken.state.pending_wake_hint.is_some(), "the hint is kept for later");
    for (came, expected) in [(30_000, "resources_available"), (-30_000, put), (90_000, put)] {
        let (reason, records) = after_arrival(|records| records.inbox.last_interject = minted(came), moment);
        assert_eq!(reason, expected, "an interjection at {came}");
        if expected == put {
            continue;
        }
        // The message of priority `interject` is still queued, but ends only the first deferral.
        let (records, _) = ended(again(records, moment), exited(75), at(61_000));
        let draft = taken_in_at(records, at(61_500));
        assert_eq!(super::reason(&draft.records, at(61_500)), put);
        assert!(draft.is_empty());
    }
}

#[test]
fn a_suspended_run_is_not_woken_by_a_hint() {
    let mut records = holding(ExecutionState::Suspended, None);
    records.inbox.hints = vec![hint(8)];
    let draft = taken_in_at(records, at(1000));
    assert_eq!(the_held(&draft.records).not_before, None);
}

/// Commands by which the operator changes the state of an agent.
const VERBS: [&str; 6] = ["start", "stop", "recover", "resume", "fail", "drop"];

/// Runs this command of the operator. The error is the hint of the refusal, if any.
fn act(verb: &str, records: &Records) -> Result<Records, Option<String>> {
    let mut draft = draft_at(records.clone(), at(1));
    let hinted = |refusal: Refusal| refusal.hint;
    match verb {
        "start" => start(&mut draft, &OPERATOR).map_err(hinted)?,
        "stop" => drop(stop(&mut draft, secs(1), true, None, &OPERATOR).map_err(hinted)?),
        "resume" if records.state.status == Status::Stopped => {
            start(&mut draft, &OPERATOR).map_err(hinted)?
        }
        "resume" => preemption::resume(&mut draft).map_err(hinted)?,
        "recover" if records.state.execution.state == ExecutionState::WaitingResources => {
            retry_held(&mut draft, &OPERATOR).map_err(hinted)?;
        }
        "recover" => crate::rules::transition::recovery::recover(&mut draft, "asked for").map_err(hinted)?,
        "fail" => drop(lifecycle::fail(&mut draft, "enough", &OPERATOR).map_err(hinted)?),
        _ => match draft.records.inbox.claimed.clone() {
            Some(message) if records.state.held.is_some() => {
                drop_held(&mut draft, message, "x").map_err(hinted)?
            }
            Some(_) => return Err(Some("`dormouse stop worker` ends its turn".to_owned())),
            // Without a message to drop, the command `drop` only stops the agent.
            None => stop(&mut draft, secs(1), true, None, &OPERATOR).map(drop).map_err(hinted)?,
        },
    }
    Ok(committed(draft))
}

#[test]
fn a_refused_command_names_a_command_that_has_an_effect() {
    let mut refused = 0;
    for state in ExecutionState::ALL {
        for status in crate::rules::execution::statuses(*state).iter().copied().chain([Status::Stopped]) {
            let records = standing(status, *state);
            for verb in VERBS {
                let Err(hint) = act(verb, &records) else { continue };
                refused += 1;
                // `start` is for stopped agents, so its refusal need not name another command.
                if verb == "start" && status != Status::Stopped {
                    continue;
                }
                let hint =
                    hint.unwrap_or_else(|| panic!("{state} {status}: {verb} is refused without a hint"));
                let named = hint.split("dormouse ").nth(1).and_then(|rest| rest.split([' ', '`']).next());
                match named.unwrap_or_else(|| panic!("{hint}")) {
                    "tick" => assert!(
                        project(&records, at(1)).held.is_none() && records.state.status != Status::Stopped,
                        "{state} {status}: {verb}: {hint}"
                    ),
                    other => {
                        let done = act(other, &records);
                        assert!(
                            done.is_ok_and(|after| after.state != records.state),
                            "{state} {status}: {verb}: {hint}"
                        );
                    }
                }
            }
        }
    }
    assert!(refused > 30, "{refused}");
}

/// Returns an agent in a state, with the run or the held run that belongs to the state.
fn standing(status: Status, state: ExecutionState) -> Records {
    let mut records = match state {
        ExecutionState::Scheduled
        | ExecutionState::Running
        | ExecutionState::Resumed
        | ExecutionState::ShuttingDown => running(&prompt(1)),
        ExecutionState::WaitingResources | ExecutionState::Suspended => holding(state, None),
        ExecutionState::Initializing
        | ExecutionState::Runnable
        | ExecutionState::Waiting
        | ExecutionState::Completed
        | ExecutionState::Failed
        | ExecutionState::Recovering => records_in(status, state),
    };
    records.state.status = status;
    records.state.execution.state = state;
    records
}
