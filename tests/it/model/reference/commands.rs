//! Commands in a test case, and their effect on the reference model of an agent.

use super::hints::WakeArgs;
use super::messages::EnqueueArgs;
use super::recovery::Stopped;
use super::timers::Schedule;
use super::triggers::Delivery;
use super::waits::WaitArgs;
use super::{Millis, Model, REFUSED, Word, ms};

/// A command. A record is given by its number among all records of its kind that were ever made.
/// Spans are in seconds.
#[derive(Debug, Clone)]
pub enum Command {
    Enqueue(EnqueueArgs),
    Wake(WakeArgs),
    TriggerCreate { mode: Word, resource: Option<usize>, wait: Option<usize>, source: Option<Word> },
    TriggerDeliver(Delivery),
    TriggerRotate(usize),
    TriggerRevoke(usize),
    WorkAdd { pick: bool, needs_input: bool, blocked: bool, recheck: Option<i64> },
    WorkUpdate { item: usize, plan_status: Word },
    WorkPick { item: usize, clear: bool },
    WorkBlock { item: usize, recheck: Option<i64> },
    WorkUnblock(usize),
    WorkComplete(usize),
    Wait(WaitArgs),
    WaitCancel(usize),
    TimerAdd { schedule: Schedule, blank: bool, catch_up: Word },
    TimerCancel(usize),
    // Starts a task, and waits for its end.
    TaskRun { well: bool, notify: bool },
    // Starts a task that runs until `TaskEnd`. With `notify` its end sends a `task_result`.
    TaskStart { notify: bool },
    TaskEnd { task: usize, well: bool },
    TaskStop(usize),
    Drop(usize),
    Requeue(usize),
    // Acknowledges all attentions (`queue dead --ack`).
    Acknowledge,
    Start,
    Stop { requeue: bool },
    Recover,
    Preempt { grace: i64, resume_after: Option<i64> },
    Resume,
    Fail,
    // Enqueues an `interject` message of the operator while a turn runs.
    Interject { blank: bool, ttl: Option<i64> },
    SafePoint { late: bool, peek: bool },
    Checkpoint,
    Yield { checkpoint: bool, resume_after: Option<i64> },
    Begin { deadline: i64, late: bool },
    End,
    // Runs these commands in a critical section (`non-preemptible -- sh -c`), and exits with
    // `SECTION_STATUS`.
    Within { deadline: i64, commands: Vec<Command> },
}

/// Exit status of the shell that runs commands in a critical section ([`Command::Within`]).
pub const SECTION_STATUS: i32 = 5;

/// Owner of a new wait. `Nearest` is the default of the command line.
#[derive(Debug, Clone, Copy)]
pub enum Owner {
    Nearest,
    Agent,
    Item(usize),
}

impl Model {
    /// True if the records that a command names exist. Other commands are skipped.
    pub fn has_subject(&self, command: &Command) -> bool {
        match command {
            Command::Enqueue(said) => {
                let work = said.work.is_none() || !self.works.is_empty();
                work && (said.wait.is_none() || !self.waits.is_empty())
            }
            Command::Wake(WakeArgs { wait, .. }) | Command::TriggerCreate { wait, .. } => {
                wait.is_none() || !self.waits.is_empty()
            }
            Command::WorkUpdate { .. }
            | Command::WorkPick { .. }
            | Command::WorkBlock { .. }
            | Command::WorkUnblock(_)
            | Command::WorkComplete(_) => !self.works.is_empty(),
            Command::Wait(WaitArgs { owner: Owner::Item(_), .. }) if self.works.is_empty() => false,
            Command::Wait(WaitArgs { kind, .. }) => *kind != "task" || !self.tasks.is_empty(),
            Command::WaitCancel(_) => !self.waits.is_empty(),
            // The test can't find the id of a timer without a text.
            Command::TimerCancel(timer) => self.timer(*timer).is_some_and(|timer| !timer.said().is_empty()),
            Command::TaskEnd { task, .. } => self.task(*task).is_some_and(|task| task.status == "running"),
            Command::TaskStop(_) => !self.tasks.is_empty(),
            Command::Drop(_) | Command::Requeue(_) => !self.enqueued.is_empty(),
            Command::TriggerDeliver(_)
            | Command::TriggerRotate(_)
            | Command::TriggerRevoke(_)
            | Command::WorkAdd { .. }
            | Command::TimerAdd { .. }
            | Command::TaskRun { .. }
            | Command::TaskStart { .. }
            | Command::Acknowledge
            | Command::Start
            | Command::Stop { .. }
            | Command::Recover
            | Command::Resume
            | Command::Fail
            | Command::Interject { .. }
            | Command::SafePoint { .. }
            | Command::Checkpoint
            | Command::Yield { .. }
            | Command::Begin { .. }
            | Command::End
            | Command::Within { .. } => true,
            // A request without a grace would end the turn before its last command.
            Command::Preempt { grace, .. } => *grace > 0 || self.is_protected(),
        }
    }

    /// Executes one command, from outside or from inside a turn, as one transaction. An error is
    /// the exit status.
    pub fn command(&mut self, now: Millis, command: &Command, inside: bool) -> Result<(), i32> {
        self.clock = (now, 0);
        let mut after = self.clone();
        after.carry_out(now, command, inside)?;
        *self = after;
        Ok(())
    }

    pub fn carry_out(&mut self, now: Millis, command: &Command, inside: bool) -> Result<(), i32> {
        let later = |seconds: Option<i64>| seconds.map(|seconds| now + ms(seconds));
        match command {
            Command::Enqueue(said) => self.enqueue(now, said, inside)?,
            Command::Wake(asked) => self.wake(asked, inside)?,
            Command::TriggerCreate { mode, resource, wait, source } => {
                self.create_trigger(mode, *resource, *wait, *source, inside)?;
            }
            Command::TriggerDeliver(said) => self.deliver(now, said, inside)?,
            Command::TriggerRotate(trigger) => self.rotate_trigger(*trigger, inside)?,
            Command::TriggerRevoke(trigger) => self.revoke_trigger(*trigger, inside)?,
            Command::WorkAdd { pick, needs_input, blocked, recheck } => {
                self.add_work(*pick, *needs_input, *blocked, later(*recheck));
            }
            Command::WorkUpdate { item, plan_status } => {
                self.change(*item, |item| item.plan_status = plan_status)?;
            }
            Command::WorkPick { item, clear } => self.pick(*item, *clear)?,
            Command::WorkBlock { item, recheck } => {
                self.change(*item, |item| {
                    item.blocked = true;
                    item.recheck = later(*recheck);
                })?;
            }
            Command::WorkUnblock(item) => {
                if !self.work(*item).is_some_and(|item| item.blocked) {
                    return Err(REFUSED);
                }
                self.change(*item, |item| {
                    item.blocked = false;
                    item.recheck = None;
                })?;
            }
            Command::WorkComplete(item) => self.complete(*item)?,
            Command::Wait(asked) => self.add_wait(now, asked, inside)?,
            Command::WaitCancel(wait) => self.cancel_wait(*wait)?,
            Command::TimerAdd { schedule, blank, catch_up } => {
                let hops = self.hops_at(now, schedule.first(now), inside)?;
                let tag = self.name("timer");
                self.add_timer(now, tag, *schedule, catch_up, None);
                if let Some(timer) = self.timers.last_mut() {
                    timer.blank = *blank;
                    timer.hops = hops;
                }
            }
            Command::TimerCancel(timer) => self.cancel_timer(*timer)?,
            Command::TaskRun { well, notify } => {
                let tag = self.start_task(*notify, inside)?;
                self.end_task(&tag, if *well { "completed" } else { "failed" });
            }
            Command::TaskStart { notify } => {
                self.start_task(*notify, inside)?;
            }
            Command::TaskEnd { task, well } => {
                let tag = self.task(*task).ok_or(REFUSED)?.tag.clone();
                self.end_task(&tag, if *well { "completed" } else { "failed" });
            }
            Command::TaskStop(task) => {
                let tag = self.task(*task).ok_or(REFUSED)?.tag.clone();
                self.end_task(&tag, "cancelled");
            }
            Command::Drop(message) => self.drop_message(*message)?,
            Command::Requeue(message) => self.requeue(*message)?,
            Command::Acknowledge => self.acknowledge(inside)?,
            Command::Start => self.start(now)?,
            Command::Stop { requeue } => {
                self.stop();
                // The tick of a current run is dead, so `stop` only settles the run as aborted.
                self.finish_stop(now, Stopped::Dies, *requeue, &[]);
                if *requeue {
                    self.requeue_held();
                }
                self.end_tasks();
            }
            Command::Recover => self.recover_by_hand(now, inside)?,
            Command::Interject { blank, ttl } => {
                let said = EnqueueArgs {
                    kind: "operator_prompt",
                    priority: "interject",
                    blank: *blank,
                    ttl: *ttl,
                    ..EnqueueArgs::default()
                };
                self.enqueue(now, &said, false)?;
            }
            Command::Resume if self.status == "stopped" => self.start(now)?,
            Command::Resume => self.resume(now)?,
            Command::Fail => self.fail_by_hand(now, inside)?,
            Command::Preempt { .. }
            | Command::SafePoint { .. }
            | Command::Checkpoint
            | Command::Yield { .. }
            | Command::Begin { .. }
            | Command::End
            | Command::Within { .. }
                if !inside =>
            {
                return Err(REFUSED);
            }
            Command::Preempt { grace, resume_after } => self.ask_to_yield(now, *grace, *resume_after),
            Command::SafePoint { peek, .. } => self.safe_point(now, *peek),
            Command::Checkpoint => {
                let checkpoint = self.name("checkpoint");
                self.save(checkpoint);
            }
            Command::Yield { checkpoint, resume_after } => self.yield_turn(*checkpoint, *resume_after),
            // Here `Within` only begins its section; the turn's script runs its commands.
            Command::Begin { deadline, .. } | Command::Within { deadline, .. } => {
                self.begin_section(now, *deadline)?;
            }
            Command::End => self.end_section(None)?,
        }
        Ok(())
    }
}
