//! Tests of the life of a wait: a claim binds it to a message, a completed turn resolves it, and
//! without a completed turn it becomes active again.

use crate::model::wait::Recoverability;
use crate::rules::transition::task::{self, TaskEnding as TaskOver};
use crate::rules::transition::timer;
use crate::rules::transition::wait::{bind, cancel, set, settle_bound};
use crate::rules::transition::work::{WorkChange, update};

use super::liveness::stop_and_kill;
use super::transition_sequences::{End, World};
use super::*;

const FAR: i64 = 86_400_000;

/// Returns a started agent with these waits, and with the work items and tasks that they name.
fn world(waits: Vec<Wait>) -> World {
    let items = waits.iter().filter_map(|wait| wait.work_item_id);
    let mut records = Records {
        works: items.map(|id| WorkItem { id, ..work(0) }).collect(),
        tasks: running_tasks(waits.iter().filter_map(Wait::task_id)),
        waits,
        ..records()
    };
    records.policy.recovery.max_attempts = 2;
    let mut world = World::new();
    world.records = records;
    world
}

fn about(number: u32, resource: &str) -> Wait {
    Wait { resource: Some(resource.to_owned()), ..wait(number, WaitKind::External) }
}

fn event(number: u32, resource: &str) -> Message {
    Message { resource: Some(resource.to_owned()), ..message(number, MessageKind::WebhookEvent) }
}

type Binding = (Option<MessageId>, Option<MessageId>);

impl World {
    fn enqueue(&mut self, message: Message) {
        self.queue.insert(message.key(), message);
    }

    /// Returns the message to which a wait is bound, and the message that should have ended the
    /// wait but for which no turn completed. `None` if the wait has ended.
    fn binding(&self, number: u32) -> Option<Binding> {
        let wait = self.records.waits.iter().find(|wait| wait.id == wait_id(number))?;
        Some((wait.resolved_by, wait.lost_answer))
    }

    fn ended_as(&self, number: u32) -> Option<WaitStatus> {
        self.waits.iter().find(|wait| wait.id == wait_id(number)).map(|wait| wait.status)
    }

    /// Takes steps until a turn runs.
    fn claim_next(&mut self) -> RunId {
        for _ in 0..8 {
            self.step();
            if let Some(run) = self.live {
                return run;
            }
            self.later(3_600_000);
        }
        panic!("no turn runs: {:?}", self.records.state)
    }

    /// Takes steps until a step finds nothing to do. Every turn completes. Returns the messages
    /// that had turns.
    fn run_out(&mut self) -> Vec<MessageId> {
        let mut ran = Vec::new();
        for _ in 0..40 {
            let (decision, changed) = self.step();
            ran.extend(self.records.state.current_run.iter().map(|run| run.message_id));
            self.end_turn(End::Well);
            if !changed && !decision.moves() {
                return ran;
            }
        }
        panic!("still busy: {:?}", self.records.state)
    }

    /// Fails the running first attempt of the message of wait 1, and its second and last attempt.
    fn fail_both_attempts(&mut self) {
        self.end_turn(End::Badly);
        assert!(self.binding(1).is_some_and(|(resolved_by, _)| resolved_by.is_some()));
        self.claim_next();
        self.end_turn(End::Badly);
    }

    /// Sends the messages of due timers and deadlines, without the decision of a step.
    fn take_in_due(&mut self) {
        let mut draft = self.draft();
        timer::take_in_due(&mut draft);
        self.commit(draft);
    }
}

const BOUND: Option<Binding> = Some((Some(MESSAGE), None));
const LOST: Option<Binding> = Some((None, Some(MESSAGE)));
const ACTIVE: Option<Binding> = Some((None, None));
const MESSAGE: MessageId = MessageId(uuid::Uuid::from_u128(50));

/// Returns an agent that runs a turn for message 50. Wait 1 and wait 2 of a work item are bound to
/// that message; wait 3 has another subject.
fn bound() -> World {
    let mut world = world(vec![
        about(1, "pr:1"),
        Wait { work_item_id: Some(work_id(2)), ..about(2, "pr:1") },
        about(3, "pr:2"),
    ]);
    world.enqueue(event(50, "pr:1"));
    world.claim_next();
    assert_eq!([1, 2, 3].map(|number| world.binding(number)), [BOUND, BOUND, ACTIVE]);
    world
}

#[test]
fn a_completed_turn_resolves_the_waits_that_are_bound_to_its_message() {
    let mut world = bound();
    world.end_turn(End::Well);
    assert_eq!([1, 2, 3].map(|number| world.binding(number)), [None, None, ACTIVE]);
    assert_eq!([1, 2].map(|number| world.ended_as(number)), [Some(WaitStatus::Resolved); 2]);
    assert_eq!(world.records.works[0].revision, 2, "the end of the wait changes its item");
}

#[test]
fn a_wait_stays_bound_while_its_message_has_another_try() {
    type Change = fn(&mut World);
    let nothing: Change = |_| {};
    // Rows: the end of the turn, and the command after which its message has another turn.
    let rows: [(&str, Change, Change); 9] = [
        ("failed", |world| world.end_turn(End::Badly), nothing),
        ("timed out", |world| world.end_turn(End::TimedOut), nothing),
        ("deferred", |world| world.end_turn(End::Deferred), nothing),
        ("not started", |world| world.end_turn(End::NotStarted), nothing),
        ("cancelled", |world| world.end_turn(End::Cancelled), nothing),
        ("killed", |world| world.end_turn(End::Killed), nothing),
        ("without its `tick` process", |world| world.live = None, nothing),
        ("suspended", suspend, |world| world.control(resume)),
        (
            "stopped and requeued",
            |world| stop_and_kill(world, true),
            |world| world.control(|draft| start(draft, &OPERATOR)),
        ),
    ];
    let the_run = |world: &World| world.records.state.current_run.clone().expect("a run");
    for (name, end, bring_back) in rows {
        let mut world = bound();
        let first = the_run(&world);
        end(&mut world);
        assert_eq!(world.binding(1), BOUND, "{name}");
        // A later message about the same resource does not end the wait, which is bound already.
        world.enqueue(event(60, "pr:1"));
        bring_back(&mut world);
        world.claim_next();
        let second = the_run(&world);
        assert_eq!((second.message_id, second.continuation), (MESSAGE, first.continuation), "{name}");
        assert_ne!(second.run_id, first.run_id, "{name}");
        assert_eq!(world.binding(1), BOUND, "{name}");
        world.end_turn(End::Well);
        assert_eq!(world.ended_as(1), Some(WaitStatus::Resolved), "{name}");
    }
}

fn suspend(world: &mut World) {
    let run = world.live.expect("a run");
    world.control(|draft| request(draft, "why".to_owned(), secs(30), None));
    world.control(|draft| give_way(draft, run, true, None).map(drop));
    world.end_turn(End::Well);
    assert_eq!(world.records.state.execution.state, ExecutionState::Suspended);
}

#[test]
fn without_a_completed_turn_the_answer_is_lost_and_the_wait_is_active_again() {
    // The message has become a dead letter.
    let mut dead = bound();
    dead.fail_both_attempts();
    // The operator has dropped the message between two attempts.
    let mut dropped = bound();
    dropped.end_turn(End::Badly);
    dropped.control(|draft| {
        let message = draft.records.inbox.head.clone().expect("the retry");
        drop_message(draft, message, "dropped by the operator");
        Ok(())
    });
    // The agent was stopped during the turn.
    let mut aborted = bound();
    stop_and_kill(&mut aborted, false);
    for (world, why) in [(dead, "dead"), (dropped, "dropped"), (aborted, "aborted")] {
        assert_eq!([1, 2, 3].map(|number| world.binding(number)), [LOST, LOST, ACTIVE], "{why}");
    }
}

#[test]
fn a_requeued_dead_letter_ends_the_waits_that_it_names() {
    let mut world = bound();
    world.fail_both_attempts();
    let dead = world.archive.last().cloned().expect("a dead letter");
    world.control(|draft| requeue(draft, dead));
    world.claim_next();
    assert_eq!([1, 2].map(|number| world.binding(number)), [BOUND, BOUND], "the lost answer is cleared");
    world.end_turn(End::Well);
    assert_eq!([1, 2].map(|number| world.ended_as(number)), [Some(WaitStatus::Resolved); 2]);
}

#[test]
fn a_change_of_its_item_resolves_a_bound_wait_and_cancels_an_active_wait() {
    type Change = fn(&mut Draft) -> Result<(), Refusal>;
    let again: Change = |draft| set_wait(draft, new_wait(WaitKind::Operator, Some(work_id(2)))).map(drop);
    let changes: [Change; 3] = [
        again,
        |draft| complete(draft, work_id(2), None, None).map(drop),
        |draft| pick(draft, work_id(2), Some("clear".to_owned())).map(drop),
    ];
    for change in changes {
        let mut answered = bound();
        answered.control(change);
        assert_eq!(answered.ended_as(2), Some(WaitStatus::Resolved));
        // The failed turn does not make the wait active again.
        answered.end_turn(End::Badly);
        assert_eq!((answered.binding(2), answered.binding(1)), (None, BOUND));

        let mut open = world(vec![Wait { work_item_id: Some(work_id(2)), ..about(2, "pr:1") }]);
        open.control(change);
        assert_eq!(open.ended_as(2), Some(WaitStatus::Cancelled));
    }
}

/// Returns the message with the id that admission at this time gives it.
fn admitted_at(moment: Time, message: Message) -> Message {
    let id = MessageId(stamp_at(moment).mint());
    Message { id, created_at: moment, ..message }
}

#[test]
fn an_event_admitted_before_the_expiry_ends_a_wait_even_in_a_late_step() {
    let priorities = [Priority::Next, Priority::Normal, Priority::Background];
    for priority in priorities {
        // The wait has not expired exactly at its expiry time.
        for (admitted, in_time) in [(-5000, true), (1000, true), (1002, false), (4000, false)] {
            // The step comes one second, or about an hour, after the expiry time of the wait.
            for step_at in [2000, 3_600_000] {
                let mut world = world(vec![Wait { expires_at: Some(at(1000)), ..about(1, "pr:1") }]);
                world.now = at(step_at.max(admitted + 1));
                let event = admitted_at(at(admitted), Message { priority, ..event(50, "pr:1") });
                world.enqueue(event.clone());
                let ran = world.run_out();
                // A message of higher priority precedes the expiry message, whatever its time.
                let first = in_time || priority == Priority::Next;
                let expected = if first { WaitStatus::Resolved } else { WaitStatus::Expired };
                let case = format!("{priority:?}, admitted at {admitted}, a step at {step_at}");
                assert_eq!(world.ended_as(1), Some(expected), "{case}");
                assert!(ran.contains(&event.id), "{case}");
                assert_eq!(ran.len(), if first { 1 } else { 2 }, "no turn for an expiry after it: {case}");
                assert!(world.queue.is_empty());
            }
        }
    }
}

#[test]
fn the_expiry_of_a_wait_that_has_lost_its_answer_has_a_turn() {
    let mut world = world(vec![Wait { expires_at: Some(at(1000)), ..about(1, "pr:1") }]);
    world.enqueue(admitted_at(at(0), event(50, "pr:1")));
    world.now = at(2000);
    world.claim_next();
    world.fail_both_attempts();
    assert!(world.records.waits[0].lost_answer.is_some());
    let ran = world.run_out();
    assert_eq!((world.ended_as(1), ran.len()), (Some(WaitStatus::Expired), 1));
}

#[test]
fn the_deadline_message_of_a_wait_that_has_ended_has_no_turn() {
    for (recheck_at, expires_at) in [(Some(at(1000)), None), (None, Some(at(1000)))] {
        let mut world = world(vec![Wait { recheck_at, expires_at, ..about(1, "pr:1") }]);
        world.now = at(2000);
        // The message of the deadline is written before the wait is cancelled.
        world.take_in_due();
        world.control(|draft| cancel(draft, wait_id(1)).map(drop));
        assert_eq!(world.run_out(), []);
        let ended = world.archive.last().and_then(|message| message.settlement.as_ref());
        assert_eq!(ended.map(|ended| ended.status), Some(MessageStatus::Processed));
    }
}

#[test]
fn a_recheck_has_a_turn_and_ends_no_wait() {
    let mut world =
        world(vec![Wait { recheck_at: Some(at(1000)), ..about(1, "pr:1") }, wait(2, WaitKind::Operator)]);
    world.now = at(1000);
    assert_eq!(world.run_out().len(), 1);
    assert_eq!([1, 2].map(|number| world.binding(number)), [ACTIVE, ACTIVE]);
    world.now = at(FAR);
    assert_eq!(world.run_out(), []);
    // After the turn for its only recheck, the wait causes no further message to the agent.
    let left = &world.records.waits[0];
    assert_eq!((left.recoverability(), left.recheck_at), (Recoverability::Weak, None));
    let advised = advisories(&world.load(), world.now);
    assert!(advised.iter().any(|advisory| advisory.subject == left.id.to_string()), "{advised:?}");
}

const HOUR: i64 = 3_600_000;

fn rechecked() -> Wait {
    Wait { recheck_at: Some(at(HOUR)), recheck_every: Some(secs(3600)), ..about(1, "pr:1") }
}

#[test]
fn a_recheck_with_a_period_repeats_on_its_own_schedule_until_the_wait_ends() {
    let mut world = world(vec![rechecked()]);
    // The steps come on time, late, on time, after many missed rechecks, early, and on time.
    for (hours, minutes, looks) in [(1, 0, 1), (2, 40, 1), (3, 0, 1), (9, 30, 1), (9, 59, 0), (10, 0, 1)] {
        world.now = at(hours * HOUR + minutes * 60_000);
        assert_eq!(world.run_out().len(), looks, "{hours}:{minutes}");
        let wait = &world.records.waits[0];
        assert_eq!((wait.recheck_id, wait.status), (None, WaitStatus::Active));
        let next = at(hours * HOUR).after(secs(3600));
        assert_eq!((wait.recheck_at, next_due(&world.load())), (Some(next), Some(next)));
        assert_eq!(wait.recoverability(), Recoverability::Recoverable);
    }
    world.enqueue(event(50, "pr:1"));
    assert_eq!(world.run_out(), [MESSAGE]);
    assert_eq!(world.ended_as(1), Some(WaitStatus::Resolved));
    world.now = at(99 * HOUR);
    assert_eq!(world.run_out(), []);
}

#[test]
fn only_one_recheck_is_queued_and_the_next_follows_its_end_or_drop() {
    let queued = |world: &World| {
        let is_recheck = |message: &&Message| message.scheduler_tick() == Some(SchedulerTick::Recheck);
        world.queue.values().filter(is_recheck).cloned().collect::<Vec<_>>()
    };
    for is_dropped in [false, true] {
        let mut world = world(vec![rechecked()]);
        world.now = at(HOUR);
        world.claim_next();
        world.end_turn(End::Badly);
        // While the message waits for its next attempt, more rechecks become due.
        for hours in [2, 3] {
            world.now = at(hours * HOUR);
            world.take_in_due();
            assert_eq!(queued(&world).len(), 1);
        }
        let message = queued(&world).remove(0);
        assert_eq!(world.records.waits[0].recheck_id, Some(message.id));
        if is_dropped {
            world.control(|draft| {
                drop_message(draft, message.clone(), "dropped by the operator");
                Ok(())
            });
        }
        world.run_out();
        let wait = &world.records.waits[0];
        assert_eq!((wait.recheck_id, wait.recheck_at), (None, Some(at(4 * HOUR))), "{is_dropped}");
        world.now = at(4 * HOUR);
        assert_eq!(world.run_out().len(), 1, "{is_dropped}");
    }
}

#[test]
fn after_the_loss_of_its_message_a_recheck_repeats() {
    let mut world = world(vec![rechecked()]);
    world.now = at(HOUR);
    world.take_in_due();
    world.queue.clear();
    assert_eq!(world.run_out(), []);
    world.now = at(2 * HOUR);
    assert_eq!(world.run_out().len(), 1);
}

#[test]
fn a_recheck_with_a_period_below_one_second_is_refused() {
    for (recheck_after, recheck_at, is_refused) in
        [(Some(Span::from_millis(999)), None, true), (Some(secs(1)), None, false), (None, Some(at(1)), false)]
    {
        let new = WaitRequest { recheck_after, recheck_at, ..new_wait(WaitKind::System, None) };
        let refused = set_wait(&mut draft(records()), new).map_err(|refusal| refusal.kind).err();
        assert_eq!(refused, is_refused.then_some("schedule_too_short"), "{recheck_after:?}");
    }
}

#[test]
fn a_timer_wait_ends_at_its_time_next_to_any_other_wait() {
    for kind in WaitKind::ALL {
        let other = Wait { expires_at: Some(at(FAR)), wake_at: Some(at(FAR)), ..wait(2, *kind) };
        let mut world =
            world(vec![Wait { wake_at: Some(at(1000)), ..wait_on(1, WaitKind::Timer, 1) }, other]);
        world.now = at(1000);
        assert_eq!(world.run_out().len(), 2, "a turn for the timer, and a turn for its item: {kind}");
        assert_eq!((world.ended_as(1), world.binding(2)), (Some(WaitStatus::Resolved), ACTIVE), "{kind}");
    }
}

#[test]
fn a_wait_whose_task_has_ended_without_a_message_is_resolved_with_a_turn() {
    for kinds in [vec![], vec![wait(2, WaitKind::Operator)]] {
        let mut world = world([vec![wait_on(1, WaitKind::Task, 1)], kinds].concat());
        world.records.tasks.clear();
        let ran = world.run_out();
        assert_eq!(world.ended_as(1), Some(WaitStatus::Resolved));
        let told = world
            .archive
            .iter()
            .find(|message| message.idempotency_key == Some(format!("wait:healed:{}", wait_id(1))));
        let told = told.expect("the agent is told");
        assert!(ran.contains(&told.id));
        assert_eq!((told.task_id, told.work_item_id), (Some(task_id(1)), Some(work_id(1))));
    }
}

#[test]
fn a_wait_that_is_bound_to_a_missing_message_has_lost_its_answer() {
    let mut world = world(vec![Wait { resolved_by: Some(MESSAGE), ..about(1, "pr:1") }]);
    assert_eq!(world.run_out(), []);
    assert_eq!(world.binding(1), LOST);
}

fn finish_task(world: &mut World, number: u32, at_ms: i64) {
    let end = task_end(Exit::Code { code: 0 }, at(at_ms));
    world.control(|draft| task::finish(draft, task_id(number), TaskOver::Seen(end)).map(drop));
}

#[test]
fn two_tasks_end_their_own_waits_in_any_order() {
    for order in [[1, 2], [2, 1]] {
        let for_second = Wait { resource: Some(task_id(2).to_string()), ..wait_on(2, WaitKind::Task, 2) };
        let mut world = world(vec![wait_on(1, WaitKind::Task, 1), for_second]);
        for number in order {
            finish_task(&mut world, number, 0);
            world.run_out();
            assert_eq!(world.ended_as(number), Some(WaitStatus::Resolved), "{order:?}");
        }
    }
}

#[test]
fn a_task_wait_has_the_id_of_the_message_with_the_result() {
    let mut world = world(vec![wait(1, WaitKind::Task)]);
    finish_task(&mut world, 1, 0);
    let result = world.queue.values().next().expect("a result").id;
    assert_eq!(world.records.waits[0].result_id, Some(result));
}

#[test]
fn a_wait_for_an_ended_task_is_resolved_at_once_unless_its_result_is_still_queued() {
    let ended = |result_id| Task { result_id, ..task(1, TaskStatus::Completed) };
    for (result_id, status) in [(None, WaitStatus::Resolved), (Some(message_id(9)), WaitStatus::Active)] {
        let mut draft = draft(Records { works: vec![work(1)], ..records() });
        let resource = Some(task_id(1).to_string());
        let new = WaitRequest { resource, ..new_wait(WaitKind::Task, Some(work_id(1))) };
        let made = set(&mut draft, new, outside(), None, Some(ended(result_id))).expect("a wait");
        assert_eq!((made.wait.status, made.wait.result_id), (status, result_id));
        assert_eq!(draft.records.waits.len(), usize::from(result_id.is_some()));
    }
}

/// Returns an agent with one message that was set aside, because the agent waits for something
/// else.
fn set_aside(keeper: Wait) -> World {
    let mut world = world(vec![keeper]);
    world.enqueue(message(50, MessageKind::ChannelEvent));
    assert_eq!(world.run_out(), []);
    assert_eq!((world.records.state.set_aside.count, world.archive.len()), (1, 1));
    world
}

/// Returns the number of ended messages of the scheduler about input that was set aside.
fn looks(world: &World) -> usize {
    let is_look = |message: &&Message| {
        message.idempotency_key.as_deref().is_some_and(|key| key.starts_with("reduced_input:"))
    };
    world.archive.iter().filter(is_look).count()
}

#[test]
fn input_that_was_set_aside_has_one_turn_when_the_wait_that_kept_it_out_ends() {
    type End = fn(&mut World);
    let keeper = || Wait { expires_at: Some(at(1000)), ..wait_on(1, WaitKind::Operator, 1) };
    let ends: [End; 5] = [
        |world| world.control(|draft| cancel(draft, wait_id(1)).map(drop)),
        |world| {
            world.control(|draft| {
                end_wait(draft, wait_id(1), WaitStatus::Expired, "by hand");
                Ok(())
            });
        },
        |world| world.control(|draft| complete(draft, work_id(1), None, None).map(drop)),
        |world| world.control(|draft| pick(draft, work_id(1), Some("clear".to_owned())).map(drop)),
        |world| {
            world.control(|draft| set_wait(draft, new_wait(WaitKind::Operator, Some(work_id(1)))).map(drop))
        },
    ];
    for end in ends {
        let mut world = set_aside(keeper());
        end(&mut world);
        let turns = world.run_out().len();
        let ticked = world.records.works.iter().filter(|item| item.ticked.is_some()).count();
        assert_eq!((turns, looks(&world)), (1 + ticked, 1));
        assert_eq!(world.records.state.set_aside.count, 0, "a turn was told of the input");
        world.later(FAR);
        world.run_out();
        assert_eq!(looks(&world), 1);
    }
    // A turn for an answer or for the expiry also lists the input that was set aside, so that input
    // needs no turn of its own.
    let mut answered = set_aside(keeper());
    answered.enqueue(prompt(60));
    answered.run_out();
    let mut expired = set_aside(keeper());
    expired.now = at(2000);
    expired.run_out();
    for world in [answered, expired] {
        assert_eq!((looks(&world), world.records.state.set_aside.count), (0, 0));
        assert!(world.ended_as(1).is_some());
    }
}

#[test]
fn input_that_was_set_aside_has_a_turn_when_the_item_that_kept_it_out_changes() {
    let mut world = world(Vec::new());
    world.records.works = vec![WorkItem { plan_status: PlanStatus::NeedsInput, ..work(1) }];
    world.enqueue(message(50, MessageKind::ChannelEvent));
    assert_eq!(world.run_out(), []);
    assert_eq!(world.records.state.set_aside.newest[0].work_item_id, Some(work_id(1)));
    let change = WorkChange { plan_status: Some(PlanStatus::Ready), ..WorkChange::default() };
    world.control(|draft| update(draft, work_id(1), change).map(drop));
    world.run_out();
    assert_eq!((looks(&world), world.records.state.set_aside.count), (1, 0));
}

#[test]
fn messages_about_running_tasks_and_signals_without_content_are_not_set_aside() {
    let going_on = Message {
        task_id: Some(task_id(1)),
        task_status: Some(TaskStatus::Running),
        ..message(50, MessageKind::TaskResult)
    };
    let blank = Message { body: text(" "), ..message(50, MessageKind::WebhookEvent) };
    for said in [going_on, blank, message(50, MessageKind::TaskStatus), message(50, MessageKind::Control)] {
        let mut world = world(vec![wait(1, WaitKind::Operator)]);
        world.enqueue(said.clone());
        assert_eq!(world.run_out(), []);
        assert_eq!(world.records.state.set_aside.count, 0, "{:?}", said.kind);
    }
}

#[test]
fn an_interjection_binds_operator_waits_to_the_message_of_the_run() {
    let mut world =
        world(vec![wait(1, WaitKind::Operator), wait_on(2, WaitKind::Operator, 2), about(3, "pr:2")]);
    world.enqueue(Message { wait_id: Some(wait_id(3)), ..message(50, MessageKind::WebhookEvent) });
    let run = world.claim_next();
    let said = Message { priority: Priority::Interject, ..prompt(60) };
    world.enqueue(said.clone());
    world.control(|draft| interject(draft, run, &[said]));
    assert_eq!([1, 2, 3].map(|number| world.binding(number)), [BOUND, BOUND, BOUND]);
    world.end_turn(End::Well);
    assert_eq!([1, 2, 3].map(|number| world.ended_as(number)), [Some(WaitStatus::Resolved); 3]);
}

#[test]
fn a_deadline_within_a_minute_continues_the_chain_of_hops_and_a_later_one_does_not() {
    for (millis, hops) in [(60_000, 4), (60_001, 0)] {
        let mut draft = draft(Records { works: vec![work(1)], ..records() });
        let (time, span) = (Some(at(millis)), Some(Span::from_millis(millis.unsigned_abs())));
        let by = Requester { hops: Some(3), ..outside() };
        for new in [
            WaitRequest { within: None, at: time, ..new_wait(WaitKind::Timer, None) },
            WaitRequest { recheck_at: time, ..new_wait(WaitKind::External, None) },
            WaitRequest { expires_after: span, ..new_wait(WaitKind::System, None) },
        ] {
            let made = set(&mut draft, new, by, None, None).expect("a wait");
            assert_eq!(made.wait.hops, hops, "{millis}");
        }
        let new = TimerRequest { at: time, ..TimerRequest::default() };
        assert_eq!(timer::add(&mut draft, new, by).expect("a timer").0.hops, hops);
        // The message of a deadline has the hops of its wait.
        let mut due = draft_at(Records { inbox: Default::default(), ..draft.records }, at(FAR));
        timer::take_in_due(&mut due);
        let transaction = finish(due);
        let told: Vec<u32> = messages(&transaction).map(|message| message.hops).collect();
        assert_eq!(told, [hops; 4]);
    }
    // A wait beyond the limit of hops is refused. A wait set outside of a turn starts a new chain.
    let mut full = draft(records());
    let (new, by) = (new_wait(WaitKind::Timer, None), Requester { hops: Some(20), ..outside() });
    let refused = set(&mut full, new.clone(), by, None, None).map_err(|refusal| refusal.kind);
    assert_eq!(refused.err(), Some("hop_limit"));
    assert!(set_wait(&mut full, new).is_ok());
}

#[test]
fn the_result_of_a_task_that_took_over_a_minute_begins_a_new_chain_of_hops() {
    for (lasted, hops) in [(60_000, 5), (60_001, 0)] {
        let mut world = world(vec![wait(1, WaitKind::Task)]);
        (world.records.tasks[0].hops, world.records.tasks[0].created_at) = (5, at(0));
        finish_task(&mut world, 1, lasted);
        assert_eq!(world.queue.values().next().map(|message| message.hops), Some(hops), "{lasted}");
    }
}

#[test]
fn the_events_of_a_wait_name_the_message_that_bound_and_ended_it() {
    let mut draft = draft(Records { waits: vec![about(1, "pr:1")], ..records() });
    bind(&mut draft, MESSAGE, &[wait_id(1), wait_id(7)]);
    let processed = Settlement::new(MessageStatus::Processed, now());
    settle_bound(&mut draft, MESSAGE, &processed);
    let transaction = finish(draft);
    let told: Vec<_> = of_kind(&transaction.events, EventKind::WaitTransition).collect();
    assert_eq!(told.len(), 2);
    assert_eq!((word(told[0], "to"), word(told[0], "resolved_by")), ("active", &*MESSAGE.to_string()));
    assert_eq!((word(told[1], "to"), word(told[1], "cause")), ("resolved", &*MESSAGE.to_string()));
}
