//! Monitors of a running command, which end the command when the agent's records require that.
//! While the tick waits for the command, it asks the monitor repeatedly.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::model::id::{RunId, TaskId};
use crate::model::policy::PreemptionPolicy;
use crate::model::preemption::{Critical, FreeResources};
use crate::model::state::State;
use crate::model::task::{Task, TaskStatus};
use crate::model::time::{Span, Time};
use crate::process::turn::Monitor;
use crate::process::{host, is_past};
use crate::report::progress::Age;
use crate::rules::preemption::{force_at, protected_until};
use crate::rules::priority::first_to_go;
use crate::rules::transition::preemption::{force, request, request_end};
use crate::store::HeldLease;

use super::context::Context;
use super::resources::yielding_when_low;

/// Default time between SIGTERM and SIGKILL.
pub const KILL_GRACE: Duration = Duration::from_secs(5);

/// Pause between two reads of the agent's state. Watching the state file by inotify would make
/// every step slower, because removing a watch is slow.
const READ_PAUSE: Duration = Duration::from_millis(200);

/// Pause between two reads of the agent's state if each is a query over a connection.
const QUERY_PAUSE: Duration = Duration::from_secs(1);

/// Pause between two checks whether a lease is due for renewal.
const BEATS: Duration = Duration::from_secs(1);

/// Pause before another attempt to change a run's record, if another process has the agent's lock.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Number of attempts to record why a turn is ended; after these, it is ended without a record.
const RECORD_ATTEMPTS: u32 = 25;

/// Two monitors as one: each can end the command. Timeouts and signals go only to the second.
impl<A: Monitor, B: Monitor> Monitor for (A, B) {
    fn pause(&self) -> Option<Duration> {
        self.0.pause().into_iter().chain(self.1.pause()).min()
    }

    fn ask(&mut self) -> bool {
        self.0.ask() || self.1.ask()
    }

    fn late(&mut self) -> bool {
        self.0.ask() || self.1.late()
    }

    fn signalled(&mut self, signal: i32) {
        self.1.signalled(signal);
    }
}

/// Monitor that may be absent: without it, nothing ends the command.
impl<M: Monitor> Monitor for Option<M> {
    fn pause(&self) -> Option<Duration> {
        self.as_ref().and_then(M::pause)
    }

    fn ask(&mut self) -> bool {
        self.as_mut().is_some_and(M::ask)
    }
}

/// Renews a lease, and ends the command when the lease is lost.
pub struct LeaseKeeper<'a>(pub Option<&'a HeldLease>);

impl Monitor for LeaseKeeper<'_> {
    fn pause(&self) -> Option<Duration> {
        self.0.and_then(HeldLease::fence).map(|_| BEATS)
    }

    fn ask(&mut self) -> bool {
        !self.0.is_none_or(HeldLease::beat)
    }
}

/// Monitor that calls `look` after each pause. `look` reads the records, and returns true if the
/// command must end.
pub struct RecordMonitor<'a, L> {
    context: Context<'a>,
    look: L,
    next: Instant,
}

impl<'a, L: FnMut() -> Result<bool>> RecordMonitor<'a, L> {
    fn new(context: Context<'a>, look: L) -> RecordMonitor<'a, L> {
        RecordMonitor { context, look, next: Instant::now() + READ_PAUSE }
    }
}

impl<L: FnMut() -> Result<bool>> Monitor for RecordMonitor<'_, L> {
    fn pause(&self) -> Option<Duration> {
        Some(if self.context.agent.store().properties().has_connection { QUERY_PAUSE } else { READ_PAUSE })
    }

    fn ask(&mut self) -> bool {
        if !is_past(Some(self.next)) {
            return false;
        }
        let Context { session, agent } = self.context;
        self.next = Instant::now() + self.pause().unwrap_or_default();
        // A killed command may have left its commit in the journal, which must be applied first.
        let _ = agent.finish_interrupted(session.clock.now());
        // Unreadable records are no reason to end the command; the settlement will report them.
        (self.look)().unwrap_or(false)
    }
}

/// Returns a monitor that ends the command when `look` returns true for the agent's state.
pub fn of_state<'a>(context: Context<'a>, mut look: impl FnMut(&State) -> bool + 'a) -> impl Monitor + 'a {
    RecordMonitor::new(context, move || context.agent.peek().map(|state| look(&state)))
}

/// Returns a monitor that ends a task's command after another machine has cancelled or ended the
/// task, because that machine can't signal the processes. `fence`: fencing token of the task's
/// lease. Returns `None` without a token, because then no other machine has the records.
pub fn of_task<'a>(context: Context<'a>, id: TaskId, fence: Option<u64>) -> Option<impl Monitor + 'a> {
    let look = move || {
        let task = context.agent.read(|seen, _| seen.open_one::<Task>(id))?;
        Ok(task.is_none_or(|task| task.status == TaskStatus::Cancelling))
    };
    fence.map(|_| RecordMonitor::new(context, look))
}

/// Returns a monitor that ends a run that is settled, that `fail` has marked (`condemned`), that
/// has not yielded in time (contract, execution §6), or that a killed `stop` has not ended. A
/// critical section delays that until its deadline, or by `max_section` if the clock was set.
pub fn of_run<'a>(context: Context<'a>, run_id: RunId, max_section: Span) -> impl Monitor + 'a {
    let mut grace = Grace::default();
    of_state(context, move |state: &State| {
        let settled = context.end_abandoned_sections(state.clone());
        let state = settled.as_ref().unwrap_or(state);
        let run = state.current_run.as_ref().filter(|run| run.run_id == run_id);
        // Another process has settled the run, so its command must not continue.
        let Some(run) = run else { return true };
        let now = context.session.clock.now();
        let section = protected_until(run, now);
        let (own, over) = match (&run.condemned, &run.stopping, &run.preemption) {
            (Some(_), _, _) => match section {
                Some(until) => (now, until),
                None => return true,
            },
            (None, Some(stopping), _) => (stopping.kill_at, stopping.kill_at),
            (None, None, Some(request)) => (request.force_at, force_at(run).unwrap_or(request.force_at)),
            (None, None, None) => return false,
        };
        let end = grace.end(over, over.min(own.max(now.after(max_section))), now);
        if !is_past(end) {
            return false;
        }
        if run.condemned.is_some() || run.stopping.is_some() {
            return true;
        }
        // The commit comes before the signal: after it the turn can begin no critical section.
        let forced = context.try_change(|draft| Ok::<_, Error>(force(draft, run_id, over)));
        // If the turn has begun a critical section, or another process has the agent's lock, the
        // next call reads the state again.
        matches!(forced, Ok(Some(forced)) if forced.made)
    })
}

/// Ends the command of a turn when its run has to end (see [`of_run`]), and after its timeout.
pub struct TurnMonitor<'a, O> {
    run: O,
    context: Context<'a>,
    run_id: RunId,
    section: Grace,
    age: Age,
    preemption: PreemptionPolicy,
    /// Time of the next measurement of memory and disk; `None` if the policy has no limits.
    measured_at: Option<Instant>,
}

pub fn of_turn<'a>(
    context: Context<'a>,
    run_id: RunId,
    preemption: PreemptionPolicy,
) -> TurnMonitor<'a, impl Monitor + 'a> {
    TurnMonitor {
        run: of_run(context, run_id, preemption.max_section),
        context,
        run_id,
        section: Grace::default(),
        age: Age::new(context.agent.name(), context.session.out.is_quiet()),
        preemption,
        measured_at: (preemption.critical != Critical::default()).then(Instant::now),
    }
}

/// Pause between two measurements of the machine's free memory and disk.
const MEASURES: Duration = Duration::from_secs(1);

/// Time for which a turn is suspended that yields because memory or disk space is low.
const RELIEF: Span = Span::from_secs(60);

impl<O> TurnMonitor<'_, O> {
    /// Asks this turn to yield if memory or disk space is low and this turn is the first on this
    /// machine that should yield. Errors are ignored; the next measurement tries again.
    fn yield_if_low(&mut self) {
        if !is_past(self.measured_at) {
            return;
        }
        self.measured_at = Instant::now().checked_add(MEASURES);
        let store = self.context.store();
        let dir = store.anchor().path();
        let left = FreeResources { memory: host::available_memory(), disk: host::free_disk(dir) };
        let Some(reason) = self.preemption.critical.lacks(&left) else { return };
        let turns = yielding_when_low(store, self.context.session.clock.now()).unwrap_or_default();
        if first_to_go(&turns).is_some_and(|turn| turn.run_id == self.run_id) {
            let grace = self.preemption.grace;
            let _ = self.context.try_change(|draft| request(draft, reason, grace, Some(RELIEF)));
        }
    }

    /// Records the reason why the turn is ended, so that commands inside the turn can print the
    /// reason. Gives up if another process holds the agent's lock for too long.
    fn record_reason(&self, why: &str) {
        for _ in 0..RECORD_ATTEMPTS {
            let told = self.context.try_change(|draft| {
                request_end(draft, self.run_id, why);
                Ok::<_, Error>(())
            });
            match told {
                Ok(None) => std::thread::sleep(BUSY_PAUSE),
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
}

impl<O: Monitor> Monitor for TurnMonitor<'_, O> {
    fn pause(&self) -> Option<Duration> {
        self.run.pause()
    }

    fn ask(&mut self) -> bool {
        // This method is called often enough to update the display of the turn's age.
        self.age.show();
        self.yield_if_low();
        self.run.ask()
    }

    /// True if the turn must end after its timeout: when no critical section protects it any more.
    fn late(&mut self) -> bool {
        self.record_reason("turn.timeout was reached");
        let context = self.context;
        let now = context.session.clock.now();
        let state = context.agent.peek().and_then(|state| context.end_abandoned_sections(state)).ok();
        let run = state.as_ref().and_then(|state| state.current_run.as_ref());
        let run = run.filter(|run| run.run_id == self.run_id);
        let Some(until) = run.and_then(|run| protected_until(run, now)) else { return true };
        is_past(self.section.end(until, until.min(now.after(self.preemption.max_section)), now))
    }

    fn signalled(&mut self, signal: i32) {
        self.record_reason(&format!("its tick was ended by signal {signal}"));
    }
}

/// Returns the instant on the monotonic clock at which the wall clock passes `at`.
pub fn instant_of(at: Time, now: Time) -> Option<Instant> {
    Instant::now().checked_add(at.after(Span::from_millis(1)).since(now).as_std())
}

/// Deadline on the monotonic clock. It is computed again only if the recorded deadline changes.
#[derive(Default)]
pub struct Grace {
    seen: Option<(Time, Option<Instant>)>,
}

impl Grace {
    /// Returns the deadline. `at`: deadline in the records. `believed`: the same, but not later
    /// than a plausible time, in case the wall clock was set.
    pub fn end(&mut self, at: Time, believed: Time, now: Time) -> Option<Instant> {
        if self.seen.is_none_or(|(seen, _)| seen != at) {
            self.seen = Some((at, instant_of(believed, now)));
        }
        self.seen.and_then(|(_, end)| end)
    }
}
