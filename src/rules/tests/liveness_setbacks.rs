//! No agent stays silent through repeated setbacks: after a bounded number of them the message is
//! held and a person is told, and each of the operator's options continues the work.

use crate::rules::transition::lifecycle::fail;

use super::liveness::{
    Arrival, By, Waiting, all_agree, arrive, ends, is_told, nobody_is_silent, record, sample, search,
    settle_down, waitings, world,
};
use super::transition_sequences::{Act, End, World};
use super::waits::Word;
use super::*;

/// Cause of the setback of every turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setback {
    TickIsGone,
    TickIsToldToEnd,
    IsPrevented,
    IsForced,
    IsDeferred,
    YieldsFor,
    Yields,
    /// The holder of the workspace is not known.
    LacksAWorkspace,
}

const SETBACKS: [Setback; 8] = [
    Setback::TickIsGone,
    Setback::TickIsToldToEnd,
    Setback::IsPrevented,
    Setback::IsForced,
    Setback::IsDeferred,
    Setback::YieldsFor,
    Setback::Yields,
    Setback::LacksAWorkspace,
];

/// Operator's action on the held message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Recover,
    Fail,
    Drop,
    Requeue,
    Hint,
    Interjection,
    StopAndStart,
}

const THEN: [Then; 7] = [
    Then::Recover,
    Then::Fail,
    Then::Drop,
    Then::Requeue,
    Then::Hint,
    Then::Interjection,
    Then::StopAndStart,
];

#[derive(Debug, Clone, Copy)]
struct Case {
    waiting: Waiting,
    word: Word,
    setback: Setback,
    then: Then,
}

fn cases() -> Vec<Case> {
    let words = [Word::Operator, Word::Event { contentful: true }, Word::Hint { contentful: false }];
    let mut cases = Vec::new();
    for waiting in waitings() {
        // Only an arrival that ends the wait gets a turn.
        for word in words.into_iter().filter(|word| ends(waiting.kind, *word, By::Wait)) {
            for setback in SETBACKS {
                cases.extend(THEN.map(|then| Case { waiting, word, setback, then }));
            }
        }
    }
    cases
}

fn end_as(world: &mut World, setback: Setback) {
    let Some(run) = world.live else { return };
    match setback {
        Setback::TickIsGone => world.live = None,
        Setback::TickIsToldToEnd => world.end_turn(End::Cancelled),
        Setback::IsPrevented => world.end_turn(End::Prevented),
        Setback::IsForced => {
            world.control(true, |draft| request(draft, "why".to_owned(), secs(0), None));
            let over = world.now;
            world.control(true, |draft| {
                assert!(force(draft, run, over), "its time is over");
                Ok(())
            });
            world.end_turn(End::Killed);
        }
        Setback::IsDeferred => world.end_turn(End::Deferred),
        Setback::YieldsFor | Setback::Yields => {
            let pause = (setback == Setback::YieldsFor).then(|| secs(600));
            world.control(true, |draft| give_way(draft, run, false, pause).map(drop));
            world.end_turn(End::Well);
        }
        // Nothing is claimed.
        Setback::LacksAWorkspace => {}
    }
}

/// Takes steps until the message is held. Every turn ends in this way.
fn until_held(world: &mut World, setback: Setback) -> Result<MessageId, String> {
    for _ in 0..120 {
        let (decision, changed) = world.step();
        end_as(world, setback);
        if world.needs_operator() {
            return world.records.state.held.as_ref().map(|held| held.message_id).ok_or("gone".to_owned());
        }
        if !decision.moves() || !changed {
            world.now = Time::from_millis(world.now.as_millis() + 3_600_000);
        }
    }
    Err("neither held nor at an end".to_owned())
}

fn run(case: &Case) -> Result<(), String> {
    let mut world = world(vec![record(1, case.waiting)], None, None, Unmatched::Reduce);
    world.records.policy.recovery.max_interruptions = 3;
    world.records.policy.recovery.max_deferrals = 3;
    if case.setback == Setback::LacksAWorkspace {
        world.act(&Act::Lack(Some(Resource::Workspace)));
    }
    arrive(&mut world, Arrival::Said(case.word, By::Wait), None);
    let message = until_held(&mut world, case.setback)?;
    nobody_is_silent(&world)?;
    let attempt = world.load().inbox.claimed.map(|claimed| claimed.attempt);
    if attempt != Some(1) {
        return Err(format!("an attempt was spent: {attempt:?}"));
    }
    world.act(&Act::Lack(None));
    match case.then {
        Then::Recover => world.control(true, |draft| retry_held(draft, &OPERATOR)),
        Then::Fail => world.control(true, |draft| fail(draft, "enough", &OPERATOR).map(drop)),
        Then::Drop => world.control(true, |draft| {
            let claimed = draft.records.inbox.claimed.clone().expect("held");
            drop_held(draft, claimed, "not wanted")
        }),
        Then::Requeue => {
            world.control(true, |draft| stop(draft, secs(1), true, None, &OPERATOR).map(drop));
            world.control(true, |draft| start(draft, &OPERATOR));
        }
        Then::Hint => {
            arrive(&mut world, Arrival::Said(Word::Hint { contentful: true }, By::Nothing), None);
        }
        Then::Interjection => world.act(&Act::Arrive {
            kind: MessageKind::OperatorPrompt,
            priority: Priority::Interject,
            blank: false,
            ttl: None,
        }),
        Then::StopAndStart => {
            world.control(true, |draft| stop(draft, secs(1), false, None, &OPERATOR).map(drop));
            world.control(true, |draft| start(draft, &OPERATOR));
        }
    }
    let decision = settle_down(&mut world, End::Well)?;
    nobody_is_silent(&world)?;
    let decided = !matches!(case.then, Then::Hint | Then::Interjection | Then::StopAndStart);
    if world.needs_operator() == decided || is_told(&world) == decided {
        return Err(format!("decided {decided}: {:?}", world.records.state.held));
    }
    if decided {
        all_agree(&world, &decision)?;
        let expected =
            if case.then == Then::Drop { MessageStatus::Dropped } else { MessageStatus::Processed };
        let ended = world.archive.iter().find(|ended| ended.id == message);
        let status = ended.and_then(|ended| ended.settlement.as_ref()).map(|settlement| settlement.status);
        if status != Some(expected) {
            return Err(format!("{message} is {status:?}"));
        }
    }
    Ok(())
}

#[test]
fn whatever_keeps_a_message_from_coming_to_anything_a_person_is_told_in_the_end() {
    let cases = cases();
    search(&sample(cases.len() as u64, 1_500), |number| {
        let case = &cases[number as usize];
        run(case).map_err(|why| format!("{case:?}: {why}"))
    });
}
