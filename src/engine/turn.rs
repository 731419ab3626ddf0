//! One turn: its run directory, its environment, its process, and its settlement (contract, turns).

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use crate::error::{Error, IoContext, Result};
use crate::local::workdir::{CONTEXT, PROMPT as PROMPT_FILE, Stream};
use crate::model::action::Action;
use crate::model::bound::PROMPT;
use crate::model::continuation::Continuation;
use crate::model::execution::ExecutionState;
use crate::model::id::RunId;
use crate::model::message::Message;
use crate::model::policy::{CommandSpec, OnDisconnect, Policy, StdinForm};
use crate::model::preemption::Checkpoint;
use crate::model::records::{LeaseState, Records};
use crate::model::refusal::Refusal;
use crate::model::run::Run;
use crate::model::trigger::Trigger;
use crate::model::turn::TurnEnd;
use crate::model::wait::WaitKind;
use crate::process::turn::{Stdin, TurnResult, TurnSpec};
use crate::process::{self, ProcessMark};
use crate::report::context::{self, History};
use crate::report::output;
use crate::report::prompt;
use crate::report::trigger::default_ingress;
use crate::rules::preemption::{is_being_ended, why_suspended, will_be_suspended};
use crate::rules::transition::draft::Draft;
use crate::rules::transition::outcome::OutcomeContext;
use crate::rules::transition::start;
use crate::rules::transition::trace::Settled;
use crate::rules::transition::turn::{self as rules, Claimed, lose_checkpoint};
use crate::store::{Agent, AgentTxn, HeldLease, Snapshot, Store};

use super::authority;
use super::context::Context;
use super::environment::{claimant, environment, set, workspace_path};
use super::hooks::{self, HookEvent, HookName};
use super::load::{self, Loading, Purpose};
use super::lookup::{check_named, ended_task};
use super::monitor::{self, KILL_GRACE, LeaseKeeper};
use super::outcome::{self, Mended};
use super::session::Session;
use super::{sync, tasks};

/// Turn of a claimed message, with the agent's records and the lease of its run.
struct Turn<'a> {
    context: Context<'a>,
    claimed: Claimed,
    /// Records of the agent after the claim.
    records: Records,
    lease: HeldLease,
}

/// Turn whose run is settled.
pub struct EndedTurn {
    pub run_id: RunId,
    pub attempt: u32,
    pub settled: Settled,
    /// Records of the agent after the settlement.
    pub records: Records,
    /// Record of the run, if this process has settled it.
    pub run: Option<Run>,
    /// Signal to this process during the turn.
    pub cancelled_by: Option<i32>,
}

/// Claims a message, runs its turn without the agent's lock, and settles the run. The lease is
/// released as soon as the run is settled.
pub fn run(
    context: Context<'_>,
    locked: AgentTxn<'_>,
    mut draft: Draft,
    (message, continuation): (Message, Continuation),
    lease: HeldLease,
) -> Result<EndedTurn> {
    let Context { session, agent } = context;
    let message_id = message.id;
    draft.records.installed_hooks = hooks::before_start(agent, &draft.records.state);
    let mut claimed = rules::claim(&mut draft, message, continuation, claimant(agent.store())?)?;
    if let Some(checkpoint) = claimed.run.checkpoint
        && !agent.bring_checkpoint(checkpoint)?
    {
        start_from_the_beginning(context, &mut draft, &mut claimed, checkpoint);
    }
    // The history is read before the claim is committed: in a database a commit ends the lock.
    let now = session.clock.now();
    let history = load::history(&locked.records_snapshot(), &draft.records, &claimed.message, now);
    let records = context.commit(&locked, draft)?;
    drop(locked);
    context.notify();
    if let Some(line) = session.publishes_to.get().cloned() {
        sync::publish(context, line, &format!("{}: {message_id} is claimed", agent.name()));
    }
    let (run_id, attempt) = (claimed.run.run_id, claimed.run.attempt);
    let turn = Turn { context, claimed, records, lease };
    let end = run_claimed(&turn, history)?;
    let cancelled_by = end.cancelled_by;
    let (settled, records, run) = settle_refusable(end, |end| settle(context, run_id, &turn.lease, end))?;
    Ok(EndedTurn { run_id, attempt, settled, records, run, cancelled_by })
}

/// Makes a turn whose checkpoint (saved progress) is missing start from the beginning, because it
/// could never continue.
fn start_from_the_beginning(
    context: Context<'_>,
    draft: &mut Draft,
    claimed: &mut Claimed,
    checkpoint: Checkpoint,
) {
    let agent = context.agent;
    let path = agent.local().checkpoint(checkpoint);
    let shown = path.to_string_lossy();
    context.session.out.note(&format!(
        "{}: the checkpoint {shown} is missing: the turn starts from the beginning",
        agent.name()
    ));
    lose_checkpoint(draft, claimed, &shown);
}

/// Runs the turn command to its end. A failure to start is also an end. It counts as an
/// interruption, not as a failed attempt, unless the settings of the turn are invalid.
fn run_claimed(turn: &Turn<'_>, history: Result<History>) -> Result<TurnEnd> {
    let session = turn.context.session;
    let run_id = turn.claimed.run.run_id;
    let preemption = turn.records.policy.preemption;
    let started = std::time::Instant::now();
    let run_command = || {
        begin_running(turn)?;
        let spec = prepare(turn, &history?)?;
        let monitor = monitor::of_turn(turn.context, run_id, preemption);
        if turn.records.policy.turn.on_disconnect == OnDisconnect::Finish {
            turn.lease.allow_outage();
        }
        Ok(process::turn::run(&spec, &mut (LeaseKeeper(Some(&turn.lease)), monitor))?)
    };
    let end = match run_command() {
        Ok(ended) => {
            let path = turn.context.agent.local().run(run_id).outcome();
            end_of(session, ended, outcome::read(&path, &turn.records.policy.limits))
        }
        Err(NotStarted { error, is_prevented }) => {
            let why = error.to_string();
            let ended = TurnResult::not_started(why, session.cancelled_by.get(), started.elapsed());
            if is_prevented {
                session.lacked.replace(Some(error).filter(Error::is_shortage));
            }
            TurnEnd { is_prevented, ..end_of(session, ended, Ok(Mended::default())) }
        }
    };
    // Only another process that settles this run needs the noted end; without it the run counts as
    // interrupted.
    if let Err(error) = turn.context.agent.local().run(run_id).write_end(&end) {
        session.out.note(&format!("{}: {error}", turn.context.agent.name()));
    }
    turn.lease.refuse_lost(&run_id.to_string())?;
    before_suspension(turn.context, run_id, Some(&turn.lease))?;
    turn.lease.refuse_lost(&run_id.to_string())?;
    Ok(end)
}

/// Error because of which the turn command was not run to its end.
struct NotStarted {
    error: Error,
    /// True if something other than invalid settings prevented the turn, for example a full disk.
    is_prevented: bool,
}

impl From<Error> for NotStarted {
    fn from(error: Error) -> NotStarted {
        NotStarted { error, is_prevented: true }
    }
}

fn invalid_settings(error: Error) -> NotStarted {
    NotStarted { error, is_prevented: false }
}

/// Runs the hook of a scheduled or resumed turn, and commits that the turn is running. Error when
/// the hook has failed, or a signal or a command has ended the run: the turn then does not start.
fn begin_running(turn: &Turn<'_>) -> Result<()> {
    let session = turn.context.session;
    if let Some(to) = turn.claimed.stands_in {
        let (name, from) = if to == ExecutionState::Resumed {
            (HookName::OnResume, ExecutionState::Suspended)
        } else {
            (HookName::OnScheduled, ExecutionState::Runnable)
        };
        let hook = hooks::find(turn.context, name).filter(|_| session.cancelled_by.get().is_none());
        if let Some(hook) = hook {
            let event = HookEvent::of(&turn.records.state, to, None).from(from);
            let max_section = turn.records.policy.preemption.max_section;
            let monitor = monitor::of_run(turn.context, turn.claimed.run.run_id, max_section);
            let mut monitor = (LeaseKeeper(Some(&turn.lease)), monitor);
            let hook = hook.under(turn.lease.fence());
            if let Some(failure) = hook.run_within(&event, None, &mut monitor)? {
                return Err(Error::failed(failure.to_string()));
            }
            turn.lease.refuse_lost(&turn.claimed.run.run_id.to_string())?;
        }
        let begin = |draft: &mut Draft| start::begin(draft, turn.claimed.run.run_id);
        if session.cancelled_by.get().is_none() && turn.context.change(begin)?.is_changed {
            turn.context.notify();
        }
    }
    let why_not = match session.cancelled_by.get() {
        Some(signal) => format!("ended by signal {signal}"),
        // Without `stands_in` no hook has run, so no command had time to end the run.
        None if turn.claimed.stands_in.is_none() || is_still_current(turn)? => return Ok(()),
        None => "it was ended before it began".to_owned(),
    };
    Err(Error::failed(why_not))
}

/// True if no command has ended the run since its claim. A command that ends the run later finds
/// the processes of the turn and ends them.
fn is_still_current(turn: &Turn<'_>) -> Result<bool> {
    let current = turn.context.agent.peek()?.current_run;
    Ok(current.is_some_and(|run| run.run_id == turn.claimed.run.run_id && !is_being_ended(&run)))
}

/// Runs the hook of a run whose turn has ended and that is about to be suspended. The run is still
/// current, so that the hook can save a checkpoint with `yield`.
pub fn before_suspension(context: Context<'_>, run_id: RunId, lease: Option<&HeldLease>) -> Result<()> {
    let Context { session, agent } = context;
    let Some(hook) = hooks::find(context, HookName::OnSuspend) else { return Ok(()) };
    let state = agent.peek()?;
    let Some(run) = state.current_run.as_ref().filter(|run| run.run_id == run_id) else { return Ok(()) };
    if will_be_suspended(run) {
        let reason = why_suspended(run).to_owned();
        let event = HookEvent::of(&state, ExecutionState::Suspended, Some(reason));
        let hook = hook.under(lease.and_then(HeldLease::fence));
        hooks::report_failure(session, hook.run_within(&event, None, &mut LeaseKeeper(lease)));
    }
    Ok(())
}

fn end_of(session: &Session, ended: TurnResult, read: Result<Mended, String>) -> TurnEnd {
    let (outcome, mut notes) = match read {
        Ok((outcome, notes)) => (Ok(outcome), notes),
        Err(why) => (Err(why), Vec::new()),
    };
    notes.extend(ended.faults().map(|fault| format!("a part of the output is lost: {fault}")));
    TurnEnd {
        exit: ended.exit,
        timed_out: ended.timed_out,
        cancelled_by: ended.cancelled_by,
        by_itself: ended.by_itself,
        is_prevented: false,
        ended_at: session.clock.now(),
        duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
        outcome,
        notes,
        stdout_bytes: ended.stdout.bytes,
        stderr_bytes: ended.stderr.bytes,
        last_line: ended.stdout.last_line,
        last_error_line: ended.stderr.last_line,
    }
}

/// Calls `settle` with the end of a turn. If the records refuse that, calls `settle` again without
/// the outcome, so that the run fails: a run that is never settled would block every later step.
pub fn settle_refusable<T>(end: TurnEnd, settle: impl Fn(TurnEnd) -> Result<T>) -> Result<T> {
    // These refusals are caused by other processes: dropping the outcome would not prevent them.
    const FROM_OTHERS: [&str; 4] = [Error::FENCED, Error::MOVED, Error::NOT_OWNER, "stale_revision"];
    let is_refusal =
        |error: &Error| matches!(error, Error::Refused { kind, .. } if !FROM_OTHERS.contains(kind));
    match settle(end.clone()) {
        Err(error) if is_refusal(&error) => {
            let why = format!("the outcome can't be committed: {error}");
            settle(TurnEnd { outcome: Err(why), ..end })
        }
        settled => settled,
    }
}

/// Settles a run in uncommitted records: with the end that its tick noted, else as interrupted for
/// the reason `why`. If the end is refused, the run has failed. No process of the run may be alive.
pub fn settle_in_draft(
    context: Context<'_>,
    seen: &Snapshot<'_>,
    draft: &mut Draft,
    (run_id, noted): (RunId, Option<TurnEnd>),
    why: &str,
) -> Result<()> {
    let Some(end) = noted else { return Ok(rules::interrupt(draft, why)?) };
    *draft = settle_refusable(end, |end| {
        let facts = action_facts(context, seen, &end)?;
        let mut settled = draft.clone();
        rules::settle(&mut settled, run_id, end, None, &facts)?;
        Ok(settled)
    })?;
    Ok(())
}

/// Settles a run after any end, in one transaction. If another process has settled the run, only
/// the output is recorded. Returns the settlement, the records after it, and the record of the run.
///
/// The lease is released with or before the agent's lock, so that the next process with the lock
/// finds no lease of a settled run.
fn settle(
    context: Context<'_>,
    run_id: RunId,
    lease: &HeldLease,
    end: TurnEnd,
) -> Result<(Settled, Records, Option<Run>)> {
    let Context { session, agent } = context;
    let now = session.clock.now();
    let locked = agent.change(now)?;
    let state = locked.state()?;
    let seen = locked.snapshot(&state)?;
    let at = Loading { lease: LeaseState::Held, now, purpose: Purpose::Look };
    let records = load::records(agent, &seen, state, at)?;
    let mut draft = Draft::new(records, session.clock.stamp()?);
    let facts = action_facts(context, &seen, &end)?;
    let current = draft.records.state.current_run.as_ref();
    let is_current = current.is_some_and(|run| run.run_id == run_id);
    let previous = if is_current { None } else { seen.run(run_id)? };
    if !is_current && previous.is_none() && lease.fence().is_some() {
        // A new database server may lack the last commits of one that has failed.
        let what = format!("{run_id} was recorded: the records of `{}` don't contain it", agent.name());
        let hint =
            "the database may have lost its last commits; the output of the run is still on this machine";
        return Err(Error::refused(Error::FENCED, format!("nothing of {what}")).with_hint(hint));
    }
    let settled = rules::settle(&mut draft, run_id, end, previous, &facts)?;
    let run = draft.settled_run().cloned();
    lease.release_along();
    let after = context.commit(&locked, draft)?;
    Ok((settled, after, run))
}

/// Returns the facts about other records on which the actions of an outcome depend.
fn action_facts(context: Context<'_>, seen: &Snapshot<'_>, end: &TurnEnd) -> Result<OutcomeContext> {
    let agent = context.agent;
    let store = agent.store();
    let actions = end.outcome.as_ref().map(|outcome| outcome.actions.as_slice()).unwrap_or_default();
    if actions.is_empty() {
        return Ok(OutcomeContext::default());
    }
    let mut facts = OutcomeContext { at: claimant(store)?, ..OutcomeContext::default() };
    for (at, action) in actions.iter().enumerate() {
        match action {
            Action::Enqueue { agent: to, work_item_id, wait_id, .. } => {
                let named = (*work_item_id, *wait_id);
                let heard = match to.as_ref().filter(|to| *to != agent.name()) {
                    None => check_named(seen, named, None),
                    Some(other) => store.agent(other).and_then(|other| {
                        let trigger = authority::check_accepts(&other, agent.name())?;
                        if named == (None, None) {
                            return Ok(());
                        }
                        other.read(|seen, _| check_named(&seen, named, trigger))
                    }),
                };
                if let Err(error) = heard {
                    facts.objections.push((at, objection(error)?));
                }
            }
            Action::TimerAdd(new) if new.cron.is_some() && new.time_zone.is_none() => {
                match context.session.clock.time_zone() {
                    Ok(zone) => facts.time_zone = zone,
                    Err(error) => facts.objections.push((at, objection(error)?)),
                }
            }
            Action::WorkComplete { id, .. } => {
                facts.plans.extend(seen.plan(*id)?.map(|plan| (*id, plan)));
            }
            Action::TaskStart(new) => {
                let Some(child) = &new.delegate else { continue };
                facts.policy = agent.policy_text()?;
                if let Err(error) = tasks::check(store, agent.name(), child, &facts.policy) {
                    facts.objections.push((at, objection(error)?));
                }
            }
            Action::Wait(new) => {
                if let Some(id) = new.trigger_id {
                    facts.triggers.extend(seen.open_one::<Trigger>(id)?.filter(Trigger::is_active));
                } else if new.kind == WaitKind::Task {
                    facts.ended_tasks.extend(ended_task(agent, new.resource.as_deref())?);
                }
            }
            Action::WorkAdd(_)
            | Action::WorkUpdate { .. }
            | Action::WorkPick { .. }
            | Action::WorkBlock { .. }
            | Action::WorkUnblock { .. }
            | Action::TimerAdd(_) => {}
        }
    }
    Ok(facts)
}

/// Returns the refusal of an action because of an error; a failure of the machine stays an error.
fn objection(error: Error) -> Result<Refusal> {
    let refusal = match error {
        Error::Refused { kind, message, .. } => Refusal::new(kind, message),
        Error::NoAgent { agent, .. } => Refusal::new("no_agent", format!("there is no agent `{agent}`")),
        Error::NoRecord { .. } | Error::Damaged { .. } | Error::Newer { .. } => {
            Refusal::new(error.kind(), error.to_string())
        }
        Error::Io { .. } if error.is_of_file() => Refusal::new(error.kind(), error.to_string()),
        Error::Io { .. }
        | Error::Usage { .. }
        | Error::NoStore { .. }
        | Error::NotAStore { .. }
        | Error::Busy { .. }
        | Error::Failed { .. } => return Err(error),
    };
    Ok(refusal)
}

/// Writes the context file of the turn, and returns the specification of its command.
fn prepare(turn: &Turn<'_>, history: &History) -> Result<TurnSpec, NotStarted> {
    let Turn { context: Context { session, agent }, claimed, records, .. } = turn;
    let store = agent.store();
    let run_id = claimed.run.run_id;
    let policy = &records.policy;
    let argv = argv(policy, agent).map_err(invalid_settings)?;
    let dir = agent.local().run(run_id);
    dir.cap.make_dirs()?;
    let workspace = workspace_path(store, policy);
    let served = &store.local().config.ingress;
    let triggers = if served.base_url.is_some() { agent.triggers()? } else { Vec::new() };
    let paths = context::Paths {
        state_dir: store.anchor().path().to_string_lossy(),
        run_dir: dir.cap.path().to_string_lossy(),
        workspace: workspace.to_string_lossy(),
    };
    let ingress = default_ingress(&triggers, served);
    let document = context::document(paths, ingress, claimed, records, history);
    let mut bytes = serde_json::to_vec_pretty(&document).unwrap_or_default();
    bytes.push(b'\n');
    let context = dir.write(CONTEXT, &bytes)?;
    let stdin = match policy.turn.stdin {
        StdinForm::Context => Stdin::File(context.clone()),
        StdinForm::Prompt => {
            let rendered = prompt_template(store, policy).and_then(|own| {
                let own = own.as_ref().map(|(path, text)| (path.as_path(), text.as_str()));
                prompt::render(&document, own)
            });
            let text = rendered.map_err(|error| match error.is_shortage() {
                true => NotStarted::from(error),
                false => invalid_settings(error),
            })?;
            Stdin::File(dir.write(PROMPT_FILE, text.as_bytes())?)
        }
        StdinForm::None => Stdin::Null,
    };
    let mut env = environment(agent, policy, Some(&claimed.run), turn.lease.fence());
    set(&mut env, "DORMOUSE_CONTEXT", context.path().into());
    set(&mut env, "DORMOUSE_OUTCOME", dir.outcome().path().into());
    Ok(TurnSpec {
        argv,
        workdir: store.anchor().leads_to(&policy.turn.workdir),
        env,
        mark: ProcessMark::run(run_id),
        stdin,
        stdout: dir.stream(Stream::Stdout),
        stderr: dir.stream(Stream::Stderr),
        leader: dir.leader(),
        listener: (session.listens_to.get() == Some(claimed.message.id)).then_some(output::listener),
        max_output: policy.turn.max_output.0,
        timeout: policy.turn.timeout.0.map(|limit| limit.as_std()),
        kill_grace: KILL_GRACE,
        first: policy.preemption.signal,
    })
}

/// Returns the path and the text of the prompt template that the agent's settings name.
fn prompt_template(store: &Store, policy: &Policy) -> Result<Option<(PathBuf, String)>> {
    let Some(name) = &policy.turn.prompt else { return Ok(None) };
    let path = store.anchor().leads_to(name);
    let refused = |why: String| Error::failed(format!("{}: {why}", path.display()));
    // Opening a named pipe could block for ever, so only plain files are opened.
    if !std::fs::metadata(&path).context("read", &path)?.is_file() {
        return Err(refused("it is not a file, and `turn.prompt` names it".to_owned()));
    }
    let mut text = String::new();
    let file = File::open(&path).context("read", &path)?;
    file.take(PROMPT.most.0.saturating_add(1)).read_to_string(&mut text).context("read", &path)?;
    PROMPT.check(text.len() as u64).map_err(|refusal| refused(refusal.message))?;
    Ok(Some((path, text)))
}

fn argv(policy: &Policy, agent: &Agent<'_>) -> Result<Vec<OsString>> {
    match &policy.turn.command {
        Some(CommandSpec::Argv(argv)) => Ok(argv.iter().map(OsString::from).collect()),
        Some(CommandSpec::Line(line)) => Ok(["sh", "-c", line].iter().map(OsString::from).collect()),
        None => Err(Error::failed(format!("{} has no turn.command", agent.settings()))
            .with_hint("set it to the program that the agent runs")),
    }
}
