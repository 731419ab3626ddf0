//! Search for agents that are stuck after repeated setbacks: after a bounded number of them the
//! message must be held and a person be told, and each of the operator's actions must help.

use crate::rules::transition::lifecycle::fail;

use super::liveness::{
    Arrival, By, Waiting, all_agree, arrive, ends, is_hold_told, nothing_is_stuck, record, search_cases,
    settle_down, waitings, world,
};
use super::transition_sequences::{Act, End, World};
use super::waits::Word;
use super::*;

/// Cause of the setback of every turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setback {
    TickIsGone,
    Turn(End),
    IsForced,
    /// The turn yields for ten minutes.
    YieldsFor,
    Yields,
    /// The claim lacks a workspace, whose holder is not known.
    LacksAWorkspace,
}

const SETBACKS: [Setback; 8] = [
    Setback::TickIsGone,
    Setback::Turn(End::Cancelled),
    Setback::Turn(End::Prevented),
    Setback::IsForced,
    Setback::Turn(End::Deferred),
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
        // An arrival that ends the wait leads to a claim, and only a claim has setbacks.
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
        Setback::Turn(end) => world.end_turn(end),
        Setback::IsForced => {
            world.control(|draft| request(draft, "why".to_owned(), secs(0), None));
            let over = world.now;
            world.control(|draft| {
                assert!(force(draft, run, over), "the run may be forced to end");
                Ok(())
            });
            world.end_turn(End::Killed);
        }
        Setback::YieldsFor | Setback::Yields => {
            let pause = (setback == Setback::YieldsFor).then(|| secs(600));
            world.control(|draft| give_way(draft, run, false, pause).map(drop));
            world.end_turn(End::Well);
        }
        // No run was claimed, so there is no turn to end.
        Setback::LacksAWorkspace => {}
    }
}

/// Takes steps until the operator must decide about the held message. Every turn has this setback.
fn until_held(world: &mut World, setback: Setback) -> Result<MessageId, String> {
    for _ in 0..120 {
        let (decision, changed) = world.step();
        end_as(world, setback);
        if world.needs_operator() {
            return world
                .records
                .state
                .held
                .as_ref()
                .map(|held| held.message_id)
                .ok_or("no message is held".to_owned());
        }
        if !decision.moves() || !changed {
            world.later(3_600_000);
        }
    }
    Err("the message is not held after 120 steps".to_owned())
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
    nothing_is_stuck(&world)?;
    let attempt = world.load().inbox.claimed.map(|claimed| claimed.attempt);
    if attempt != Some(1) {
        return Err(format!("an attempt was spent: {attempt:?}"));
    }
    world.act(&Act::Lack(None));
    match case.then {
        Then::Recover => world.control(|draft| retry_held(draft, &OPERATOR)),
        Then::Fail => world.control(|draft| fail(draft, "enough", &OPERATOR).map(drop)),
        Then::Drop => world.control(|draft| {
            let claimed = draft.records.inbox.claimed.clone().expect("held");
            drop_held(draft, claimed, "not wanted")
        }),
        Then::Requeue | Then::StopAndStart => {
            let requeue = case.then == Then::Requeue;
            world.control(|draft| stop(draft, secs(1), requeue, None, &OPERATOR).map(drop));
            world.control(|draft| start(draft, &OPERATOR));
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
    }
    let decision = settle_down(&mut world, End::Well)?;
    nothing_is_stuck(&world)?;
    let decided = !matches!(case.then, Then::Hint | Then::Interjection | Then::StopAndStart);
    if world.needs_operator() == decided || is_hold_told(&world) == decided {
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
fn no_agent_is_stuck_after_repeated_setbacks_and_an_operator_action() {
    search_cases(&cases(), 1_500, run);
}
