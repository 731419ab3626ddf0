//! Search for agents that are stuck after a turn whose message ended a wait: the turn sets another
//! wait, completes the work item, is stopped, or fails in all its attempts.

use crate::rules::transition::wait;
use crate::rules::transition::work::block;

use super::liveness::{
    Arrival, By, Waiting, all_agree, arrive, ends, item_of, nothing_is_stuck, record, search_cases,
    settle_down, stop_and_kill, stop_with_tasks, waitings, world,
};
use super::transition_sequences::{End, World};
use super::waits::Word;
use super::*;

/// Action of the turn on the wait to which its message is bound, or on the item of that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    AsksTheOperator,
    WaitsAsTheAgent,
    WaitsAgain,
    CompletesTheItem,
    PicksTheItem,
    BlocksTheItem,
    CancelsTheWait,
}

/// End of the turn whose message ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Turn(End),
    Yields,
    TickIsGone,
    Stopped { requeue: bool },
}

/// Event after the end of the turn, before the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    Nothing,
    IsDropped,
    IsSaidAgain,
    ItsTaskEnds,
    IsStoppedAndStarted,
    ClockGoesBack,
}

#[derive(Debug, Clone, Copy)]
struct TurnCase {
    waiting: Waiting,
    word: Word,
    doing: Doing,
    ending: Ending,
    afterwards: Afterwards,
    turns_fail: bool,
    then_requeued: bool,
}

fn turn_cases() -> Vec<TurnCase> {
    let words = [Word::Operator, Word::Event { contentful: true }, Word::Hint { contentful: false }];
    let doings = [
        Doing::Nothing,
        Doing::AsksTheOperator,
        Doing::WaitsAsTheAgent,
        Doing::WaitsAgain,
        Doing::CompletesTheItem,
        Doing::PicksTheItem,
        Doing::BlocksTheItem,
        Doing::CancelsTheWait,
    ];
    let endings = [
        Ending::Turn(End::Well),
        Ending::Turn(End::Badly),
        Ending::Turn(End::Deferred),
        Ending::Turn(End::Killed),
        Ending::Yields,
        Ending::TickIsGone,
        Ending::Stopped { requeue: false },
        Ending::Stopped { requeue: true },
    ];
    let afterwards = [
        Afterwards::Nothing,
        Afterwards::IsDropped,
        Afterwards::IsSaidAgain,
        Afterwards::ItsTaskEnds,
        Afterwards::IsStoppedAndStarted,
        Afterwards::ClockGoesBack,
    ];
    let mut cases = Vec::new();
    for waiting in waitings() {
        for word in words.into_iter().filter(|word| ends(waiting.kind, *word, By::Wait)) {
            for doing in doings {
                for ending in endings {
                    for afterwards in afterwards {
                        for (turns_fail, then_requeued) in [(false, false), (true, false), (true, true)] {
                            cases.push(TurnCase {
                                waiting,
                                word,
                                doing,
                                ending,
                                afterwards,
                                turns_fail,
                                then_requeued,
                            });
                        }
                    }
                }
            }
        }
    }
    cases
}

fn another(waiting: Waiting, on: Option<WorkId>) -> WaitRequest {
    let resource = (!waiting.is_bare).then(|| "resource:1".to_owned());
    WaitRequest { resource, ..new_wait(WaitKind::External, on) }
}

fn act_in_turn(world: &mut World, case: &TurnCase) {
    let item = item_of(1, case.waiting.owner);
    let set = |draft: &mut Draft, new| {
        wait::set(draft, new, Requester { hops: Some(0), ..outside() }, None, None).map(drop)
    };
    world.control(|draft| match (case.doing, item) {
        (Doing::AsksTheOperator, _) => {
            let new = WaitRequest { kind: WaitKind::Operator, resource: None, ..another(case.waiting, item) };
            set(draft, new)
        }
        (Doing::WaitsAsTheAgent, _) => set(draft, another(case.waiting, None)),
        (Doing::WaitsAgain, _) => set(draft, another(case.waiting, item)),
        (Doing::CompletesTheItem, Some(item)) => complete(draft, item, None, None).map(drop),
        (Doing::PicksTheItem, Some(item)) => pick(draft, item, Some("clear".to_owned())).map(drop),
        (Doing::BlocksTheItem, Some(item)) => block(draft, item, "a decision".to_owned(), None).map(drop),
        (Doing::CancelsTheWait, _) => wait::cancel(draft, wait_id(1)).map(drop),
        (Doing::Nothing, _)
        | (Doing::CompletesTheItem | Doing::PicksTheItem | Doing::BlocksTheItem, None) => Ok(()),
    });
}

fn end_as(world: &mut World, ending: Ending) {
    match ending {
        Ending::Turn(end) => world.end_turn(end),
        Ending::TickIsGone => world.live = None,
        Ending::Yields => {
            if let Some(run) = world.live {
                world.control(|draft| request(draft, "why".to_owned(), secs(30), None));
                world.control(|draft| give_way(draft, run, true, None).map(drop));
            }
            world.end_turn(End::Well);
        }
        Ending::Stopped { requeue } => {
            stop_and_kill(world, requeue);
            world.control(|draft| start(draft, &OPERATOR));
        }
    }
}

fn afterwards(world: &mut World, case: &TurnCase, arrival: Arrival) {
    match case.afterwards {
        Afterwards::Nothing => {}
        Afterwards::IsDropped => world.control(|draft| {
            if let Some(message) = draft.records.inbox.head.clone() {
                drop_message(draft, message, "dropped by the operator");
            }
            Ok(())
        }),
        Afterwards::IsSaidAgain => {
            arrive(world, arrival, None);
        }
        Afterwards::ItsTaskEnds => {
            arrive(world, Arrival::Said(Word::Result { ended: true }, By::Task), None);
        }
        Afterwards::IsStoppedAndStarted => {
            stop_with_tasks(world);
            world.control(|draft| start(draft, &OPERATOR));
        }
        Afterwards::ClockGoesBack => world.now = at(-3_600_000),
    }
}

fn run_turn(case: &TurnCase) -> Result<(), String> {
    let mut world = world(vec![record(1, case.waiting)], None, None, Unmatched::Reduce);
    let arrival = Arrival::Said(case.word, By::Wait);
    arrive(&mut world, arrival, None);
    for _ in 0..3 {
        if world.live.is_none() {
            world.step();
        }
    }
    let run = world.records.state.current_run.clone().ok_or("the arrival has no turn")?;
    if world.records.waits.iter().any(|wait| wait.resolved_by != Some(run.message_id)) {
        return Err(format!("a wait is not bound: {:?}", world.records.waits));
    }
    act_in_turn(&mut world, case);
    end_as(&mut world, case.ending);
    afterwards(&mut world, case, arrival);
    let end = if case.turns_fail { End::Badly } else { End::Well };
    settle_down(&mut world, end)?;
    if case.then_requeued {
        let ended = world.archive.iter().rfind(|message| message.id == run.message_id).cloned();
        if let Some(dead) = ended {
            // The command refuses a processed message.
            world.control(|draft| requeue(draft, dead));
        }
    }
    let decision = settle_down(&mut world, if case.then_requeued { End::Well } else { end })?;
    nothing_is_stuck(&world)?;
    all_agree(&world, &decision)?;

    let over = world.waits.iter().find(|wait| wait.id == wait_id(1)).map(|wait| wait.status);
    let nothing_else_happened = case.afterwards == Afterwards::Nothing && case.doing == Doing::Nothing;
    let is_completed = case.ending != Ending::Stopped { requeue: false } && !case.turns_fail
        || case.ending == Ending::Turn(End::Well);
    if nothing_else_happened && is_completed && over != Some(WaitStatus::Resolved) {
        return Err(format!("the turn completed, but the wait is {over:?}"));
    }
    if over == Some(WaitStatus::Cancelled)
        && case.doing != Doing::CancelsTheWait
        && case.ending == Ending::Turn(End::Well)
    {
        return Err("the turn completed, but its wait was cancelled".to_owned());
    }
    Ok(())
}

#[test]
fn no_agent_is_stuck_after_a_turn_whose_message_ended_a_wait() {
    search_cases(&turn_cases(), 3_000, run_turn);
}
