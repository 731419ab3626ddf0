//! No agent stays silent after its turn changed the wait that the turn's message has ended: the
//! turn sets another wait, completes the item, is stopped, or fails for good.

use crate::rules::transition::wait;
use crate::rules::transition::work::block;

use super::liveness::{
    Arrival, By, Waiting, all_agree, arrive, end_by_stop, ends, item_of, nobody_is_silent, record, sample,
    search, settle_down, stop_it, waitings, world,
};
use super::transition_sequences::{End, World};
use super::waits::Word;
use super::*;

/// Action of the turn on the wait that its message has bound, or on its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    WaitsAnew,
    WaitsAsAWhole,
    WaitsForTheSame,
    CompletesTheItem,
    PicksItClear,
    BlocksIt,
    CancelsTheWait,
}

/// End of that turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Well,
    Badly,
    Deferred,
    Killed,
    Yields,
    TickIsGone,
    Stopped { requeue: bool },
}

/// Event after it, before the next step.
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
        Doing::WaitsAnew,
        Doing::WaitsAsAWhole,
        Doing::WaitsForTheSame,
        Doing::CompletesTheItem,
        Doing::PicksItClear,
        Doing::BlocksIt,
        Doing::CancelsTheWait,
    ];
    let endings = [
        Ending::Well,
        Ending::Badly,
        Ending::Deferred,
        Ending::Killed,
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

fn another(waiting: Waiting, owner: wait::WaitOwner) -> NewWait {
    NewWait {
        trigger: None,
        kind: WaitKind::External,
        reason: "why".to_owned(),
        options: Vec::new(),
        owner,
        resource: (!waiting.is_bare).then(|| "resource:1".to_owned()),
        wake_at: None,
        recheck: None,
        expires_at: None,
        source: None,
        no_fallback: None,
        ended_task: None,
        hops: Some(0),
    }
}

fn act_in_turn(world: &mut World, case: &TurnCase) {
    let item = item_of(1, case.waiting.owner);
    let on_item = item.map_or(wait::WaitOwner::Agent, wait::WaitOwner::Work);
    world.control(true, |draft| match (case.doing, item) {
        (Doing::WaitsAnew, _) => {
            let new = NewWait { kind: WaitKind::Operator, resource: None, ..another(case.waiting, on_item) };
            wait::set(draft, new).map(drop)
        }
        (Doing::WaitsAsAWhole, _) => {
            wait::set(draft, another(case.waiting, wait::WaitOwner::Agent)).map(drop)
        }
        (Doing::WaitsForTheSame, _) => wait::set(draft, another(case.waiting, on_item)).map(drop),
        (Doing::CompletesTheItem, Some(item)) => complete(draft, item, None, None).map(drop),
        (Doing::PicksItClear, Some(item)) => pick(draft, item, Some("clear".to_owned())).map(drop),
        (Doing::BlocksIt, Some(item)) => block(draft, item, "a decision".to_owned(), None).map(drop),
        (Doing::CancelsTheWait, _) => wait::cancel(draft, wait_id(1)).map(drop),
        (Doing::Nothing, _) | (Doing::CompletesTheItem | Doing::PicksItClear | Doing::BlocksIt, None) => {
            Ok(())
        }
    });
}

fn end_as(world: &mut World, ending: Ending) {
    match ending {
        Ending::Well => world.end_turn(End::Well),
        Ending::Badly => world.end_turn(End::Badly),
        Ending::Deferred => world.end_turn(End::Deferred),
        Ending::Killed => world.end_turn(End::Killed),
        Ending::TickIsGone => world.live = None,
        Ending::Yields => {
            if let Some(run) = world.live {
                world.control(true, |draft| request(draft, "why".to_owned(), secs(30), None));
                world.control(true, |draft| give_way(draft, run, true, None).map(drop));
            }
            world.end_turn(End::Well);
        }
        Ending::Stopped { requeue } => {
            end_by_stop(world, requeue);
            world.control(true, |draft| start(draft, &OPERATOR));
        }
    }
}

fn afterwards(world: &mut World, case: &TurnCase, arrival: Arrival) {
    match case.afterwards {
        Afterwards::Nothing => {}
        Afterwards::IsDropped => world.control(true, |draft| {
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
            stop_it(world);
            world.control(true, |draft| start(draft, &OPERATOR));
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
    let run = world.records.state.current_run.clone().ok_or("what names a wait has no turn")?;
    if world.records.waits.iter().any(|wait| wait.resolved_by != Some(run.message_id)) {
        return Err(format!("not bound: {:?}", world.records.waits));
    }
    act_in_turn(&mut world, case);
    end_as(&mut world, case.ending);
    afterwards(&mut world, case, arrival);
    let end = if case.turns_fail { End::Badly } else { End::Well };
    settle_down(&mut world, end)?;
    if case.then_requeued {
        let dead: Vec<Message> =
            world.archive.iter().filter(|message| message.id == run.message_id).cloned().collect();
        if let Some(dead) = dead.last().cloned() {
            // A processed message is refused.
            world.control(true, |draft| requeue(draft, dead));
        }
    }
    let decision = settle_down(&mut world, if case.then_requeued { End::Well } else { end })?;
    nobody_is_silent(&world)?;
    all_agree(&world, &decision)?;

    let over = world.waits.iter().find(|wait| wait.id == wait_id(1)).map(|wait| wait.status);
    let is_quiet = case.afterwards == Afterwards::Nothing && case.doing == Doing::Nothing;
    let is_heard =
        case.ending != Ending::Stopped { requeue: false } && !case.turns_fail || case.ending == Ending::Well;
    if is_quiet && is_heard && over != Some(WaitStatus::Resolved) {
        return Err(format!("heard, and {over:?}"));
    }
    if over == Some(WaitStatus::Cancelled)
        && case.doing != Doing::CancelsTheWait
        && case.ending == Ending::Well
    {
        return Err("heard, and cancelled".to_owned());
    }
    Ok(())
}

#[test]
fn whatever_a_turn_does_about_what_it_was_told_no_agent_goes_silent() {
    let cases = turn_cases();
    search(&sample(cases.len() as u64, 3_000), |number| {
        let case = &cases[number as usize];
        run_turn(case).map_err(|why| format!("{case:?}: {why}"))
    });
}
