//! `export`, `import`, `rm` and `rename`: agents as a stream from one store to another, deletion,
//! and renaming (contract, command line §2).

pub mod delete;
pub mod rename;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use indicatif::BinaryBytes;
use serde::Serialize;

use crate::cli;
use crate::engine::authority;
use crate::engine::checks;
use crate::engine::context::Context;
use crate::engine::environment::claimant;
use crate::engine::lookup::existing;
use crate::engine::new_file::Replacement;
use crate::engine::owner::refuse_foreign_claim;
use crate::engine::session::Session;
use crate::engine::tasks::recorded_end;
use crate::engine::turn::settle_in_draft;
use crate::error::{Error, IoContext, Result, Status};
use crate::model::id::AgentName;
use crate::model::moved::{Leave, Moved};
use crate::model::policy::Reach;
use crate::model::state::State;
use crate::model::task::{Task, TaskStatus};
use crate::report::output::Output;
use crate::report::progress::Unit;
use crate::report::text::count;
use crate::rules::transition::draft::Draft;
use crate::rules::transition::moved::let_go;
use crate::rules::transition::{moved, task};
use crate::store::stream::{StreamReader, StreamWriter};
use crate::store::{Agent, AgentImport, AgentTxn, Appeared, DirExport, Store, moved_away};

/// Result of an export or import for one agent.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize)]
struct TransferReport {
    agent: AgentName,
    files: usize,
    bytes: u64,
    moved_to: Option<String>,
    /// True if the imported agent had been moved away from this store.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    back: bool,
}

impl TransferReport {
    fn text(&self, out: &Output) -> String {
        let size = size_text(self.files, self.bytes);
        let back = if self.back { ", back again" } else { "" };
        match &self.moved_to {
            Some(to) => format!("{}  {size}, moved to {}", self.agent, out.safe(to)),
            None => format!("{}  {size}{back}", self.agent),
        }
    }
}

/// Formats a number of files, and their bytes.
fn size_text(files: usize, size: u64) -> String {
    format!("{}, {}", count(files as u64, "file", "files"), BinaryBytes(size))
}

pub fn export(session: &Session, args: cli::ExportArgs) -> Result<Status> {
    let store = session.store()?;
    if let Some(to) = &args.to {
        check_place(to)?;
    }
    let to = args.to.map(|to| MoveRequest { by: Leave::Move, to });
    let mut names = authority::governed(session, &store, &args.agents.agents, args.agents.all)?;
    names.sort();
    names.dedup();
    for name in &names {
        let agent = store.agent(name)?;
        authority::reach(Context::new(session, &agent), "export")?;
    }
    if names.is_empty() {
        return Err(Error::NoAgent { agent: "*".to_owned(), known: Some(Vec::new()), renamed: None });
    }
    match &args.output {
        Some(path) => {
            let new = Replacement::begin(path, 0o600)?;
            let out = BufWriter::new(new.file());
            let reports = write(session, &store, (&names, to.as_ref()), out, path)?;
            new.place()?;
            for report in reports {
                session.out.result(&report, |out| report.text(out));
            }
        }
        None => {
            if session.out.is_json() || io::stdout().is_terminal() {
                return Err(Error::usage("the stream goes to stdout, which is for a program to read")
                    .with_hint("redirect it, or name a file with --output"));
            }
            let stdout = Path::new("stdout");
            let out = BufWriter::new(io::stdout().lock());
            match write(session, &store, (&names, to.as_ref()), out, stdout) {
                // The reader closed stdout early, which only the exit status reports.
                Err(Error::Io { source, path, .. })
                    if source.kind() == io::ErrorKind::BrokenPipe && path == stdout =>
                {
                    return Ok(Status::Failed);
                }
                written => drop(written?),
            }
        }
    }
    Ok(Status::Done)
}

/// Refuses a destination of `export --move` that is blank, too long or has control characters.
fn check_place(to: &str) -> Result<()> {
    const MOST: usize = 1000;
    let message = match to {
        blank if blank.trim().is_empty() => "says nothing".to_owned(),
        long if long.len() > MOST => format!("{} bytes, of at most {MOST}", long.len()),
        odd if odd.chars().any(char::is_control) => "has control characters".to_owned(),
        _ => return Ok(()),
    };
    Err(Error::in_word("--move", message))
}

/// Writes the agents one after the other, each at one revision, which is read under its lock. `to`:
/// destination if the export moves the agents.
fn write(
    session: &Session,
    store: &Store,
    (names, to): (&[AgentName], Option<&MoveRequest>),
    out: impl Write,
    name: &Path,
) -> Result<Vec<TransferReport>> {
    let mut writer: Option<StreamWriter<_>> = None;
    let mut out = Some(out);
    let mut reports = Vec::with_capacity(names.len());
    let mut progress = session.out.progress(Unit::Agents, Some(names.len() as u64));
    for agent in names {
        session.is_about(agent);
        let agent = store.agent(agent)?;
        let (exported, moved) = take_under(session, &agent, &agent.change(session.clock.now())?, to)?;
        say_left_out(session, &agent, &exported);
        // The stream begins after the first agent was read, so an earlier error writes nothing.
        let writer = match (&mut writer, out.take()) {
            (Some(writer), _) => writer,
            (none, Some(out)) => none.insert(StreamWriter::begin(out, &name.to_string_lossy(), names)?),
            (None, None) => continue,
        };
        let mut of_agent = session.out.progress(Unit::Bytes, Some(exported.bytes()));
        let written = exported.write(writer, |bytes| of_agent.advance(bytes));
        drop(of_agent);
        progress.advance(1);
        if let (Err(_), Some(moved)) = (&written, &moved) {
            session.out.alarm(&format!(
                "{} is marked as moved to {}, and its stream is not whole: write it again with \
                 `dormouse export {} --move TO`, or take the agent back by importing that",
                agent.name(),
                moved.to,
                agent.name()
            ));
        }
        written?;
        reports.push(TransferReport {
            agent: agent.name().clone(),
            files: exported.files(),
            bytes: exported.bytes(),
            moved_to: moved.map(|moved| moved.to),
            back: false,
        });
    }
    writer.map(StreamWriter::finish).transpose()?;
    Ok(reports)
}

/// Kind of the departure of an agent (move, rename or deletion), and its new place or name.
struct MoveRequest {
    by: Leave,
    to: String,
}

/// Reads an agent for export under its lock, with its `moved` mark, which `going` sets if absent.
/// Refuses an agent that is being renamed, or that is marked for another destination.
fn take_under(
    session: &Session,
    agent: &Agent<'_>,
    locked: &AgentTxn<'_>,
    going: Option<&MoveRequest>,
) -> Result<(DirExport, Option<Moved>)> {
    let mut moved = locked.any_state()?.moved;
    match (&moved, going) {
        (Some(other), _) if other.by == Leave::Rename => return Err(moved_away(agent, other)),
        (Some(other), Some(going)) if (other.by, &other.to) != (going.by, &going.to) => {
            return Err(moved_away(agent, other));
        }
        (None, Some(going)) => {
            let draft = about_to_leave(session, agent, locked, going)?;
            moved = Context::new(session, agent).commit(locked, draft)?.state.moved;
        }
        (Some(_), _) | (None, None) => {}
    }
    Ok((locked.exported(moved.is_some())?, moved))
}

/// Reports the files of an agent that its stream does not contain.
fn say_left_out(session: &Session, agent: &Agent<'_>, exported: &DirExport) {
    for path in exported.left_out() {
        session.out.note(&format!("{}: {path}: left out: no plain file of an agent", agent.name()));
    }
}

/// Returns records with the `moved` mark, uncommitted. Refuses an open turn, task or delegation.
fn about_to_leave(
    session: &Session,
    agent: &Agent<'_>,
    locked: &AgentTxn<'_>,
    going: &MoveRequest,
) -> Result<Draft> {
    refuse_at_work(agent)?;
    let state = locked.state()?;
    refuse_foreign_claim(agent, &state, session.clock.now())?;
    let mut draft = Context::new(session, agent).draft_of(&locked.records_snapshot(), state)?;
    moved::move_away(&mut draft, going.by, going.to.clone())?;
    Ok(draft)
}

/// Removes the `moved` mark from an agent whose deletion has failed, unless the agent has another
/// mark now. The mark of an export stays.
fn stay(session: &Session, agent: &Agent<'_>, mark: &Moved) -> Result<()> {
    let locked = agent.change(session.clock.now())?;
    let state = locked.any_state()?;
    if mark.by == Leave::Move || state.moved.as_ref() != Some(mark) {
        return Ok(());
    }
    change_moved(session, agent, &locked, state, |draft| moved::arrive(draft, None))
}

/// Changes the records of an agent that may be marked as moved. `state`: as read under the lock.
fn change_moved(
    session: &Session,
    agent: &Agent<'_>,
    locked: &AgentTxn<'_>,
    state: State,
    rule: impl FnOnce(&mut Draft),
) -> Result<()> {
    let context = Context::new(session, agent);
    let mut draft = context.draft_of(&locked.records_snapshot(), state)?;
    rule(&mut draft);
    context.commit(locked, draft).map(drop)
}

/// Refuses to move a child to which its parent has delegated a task that has not ended.
fn refuse_at_work(agent: &Agent<'_>) -> Result<()> {
    let Some(parent) = agent.identity()?.parent else { return Ok(()) };
    let Some(found) = existing(agent.store(), &parent)? else { return Ok(()) };
    let waits = found.read(|seen, _| seen.open::<Task>())?;
    let Some(task) = waits.iter().find(|task| task.child() == Some(agent.name())) else { return Ok(()) };
    Err(Error::refused(
        "task_open",
        format!("`{parent}` waits for what it has delegated to `{}`, {}", agent.name(), task.id),
    )
    .with_hint(format!("await its end, or end it with `dormouse task stop {}`", task.id)))
}

pub fn import(session: &Session, args: cli::ImportArgs) -> Result<Status> {
    let store = session.store()?;
    refuse_inside(session, &store)?;
    let other = args.name;
    match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(path) => {
            let file = File::open(path).context("open", path)?;
            let length = file.metadata().context("look at", path)?;
            let length = length.is_file().then_some(length.len());
            from(session, &store, io::BufReader::new(file), (path, length), other)
        }
        None if io::stdin().is_terminal() => Err(Error::usage("FILE: nothing to import")
            .with_hint("name the file that `dormouse export` wrote, or give its stream on stdin")),
        None => {
            let stdin = Path::new("stdin");
            from(session, &store, io::stdin().lock(), (stdin, None), other)
        }
    }
}

/// Refuses an import by a turn that may create only children: a stream has agents of any parent.
fn refuse_inside(session: &Session, store: &Store) -> Result<()> {
    let Some(caller) = authority::inside(session, store)? else { return Ok(()) };
    if store.agent(&caller)?.policy()?.authority.lifecycle == Reach::All {
        return Ok(());
    }
    Err(Error::refused(
        "not_own_child",
        format!("this is a turn or task of `{caller}`: it can't import agents"),
    )
    .with_hint("call it from outside the turn, or set `authority.lifecycle = \"all\"`"))
}

/// Imports a stream: stages all agents, checks each, and then makes all visible. `length`: bytes of
/// the stream, if known.
fn from(
    session: &Session,
    store: &Store,
    stream: impl Read,
    (name, length): (&Path, Option<u64>),
    other: Option<AgentName>,
) -> Result<Status> {
    let mut reader = StreamReader::begin(stream, &name.to_string_lossy())?;
    let names = reader.agents().to_vec();
    if other.is_some() && names.len() > 1 {
        return Err(Error::in_word("--as", format!("the stream has {} agents, not one", names.len())));
    }
    for former in &names {
        let name = other.as_ref().unwrap_or(former);
        session.is_about(name);
        store.refuse_taken(name)?;
    }
    // Each agent is checked before the next is staged, because a stream may contain any number of
    // agents, and a bad one is then refused early.
    let mut staged: Vec<AgentImport<'_>> = Vec::with_capacity(names.len());
    let mut progress = session.out.progress(Unit::Bytes, length);
    let mut next = reader.next()?;
    for former in &names {
        let mut agent = store.stage(other.as_ref().unwrap_or(former), former)?;
        // Files in a stream are sorted by agent, so another agent's file ends the loop.
        while let Some(meta) = next.take_if(|meta| meta.agent == *former) {
            agent.dir.add(&meta, &mut reader)?;
            progress.advance(meta.length);
            next = reader.next()?;
        }
        agent.dir.complete()?;
        check(&agent, former, name)?;
        refuse_older(store, &agent.agent)?;
        arrive(session, &agent.agent)?;
        staged.push(agent);
    }
    drop(progress);
    for agent in staged {
        let (name, (files, bytes)) = (agent.agent.name().clone(), agent.dir.size());
        let related = related(&agent);
        let appeared = agent.place(session.clock.now())?;
        let report =
            TransferReport { agent: name, files, bytes, moved_to: None, back: appeared == Appeared::Back };
        session.out.result(&report, |out| report.text(out));
        session.out.flush();
        if let Some(related) = related.filter(|_| other.is_some()) {
            session.out.note(&related);
        }
    }
    Ok(Status::Done)
}

/// Refuses a staged agent in which the checks of `doctor` find damage. `former`: name of the agent
/// in `from`.
fn check(staged: &AgentImport<'_>, former: &AgentName, from: &Path) -> Result<()> {
    let agent = &staged.agent;
    let files = agent.as_files()?;
    let findings = checks::agent(&files).findings;
    let Some(finding) = findings.iter().find(|finding| !finding.remedy.is_warning()) else { return Ok(()) };
    let place = format!("agents/{former}/{}", finding.place_in(agent.local()));
    Err(Error::damaged(from, format!("{place}: {}: {}", finding.kind, finding.message)).with_hint(format!(
        "nothing was imported: mend it where it comes from (`dormouse doctor {former} --repair`) and export again"
    )))
}

/// Refuses a staged agent whose history ends before the agent left that it would replace: the
/// messages and changes in between would be lost.
fn refuse_older(store: &Store, staged: &Agent<'_>) -> Result<()> {
    let name = staged.name();
    let Some(there) = existing(store, name)? else { return Ok(()) };
    let is_same = there.identity()?.created_at == staged.identity()?.created_at;
    let Some(left) = there.peek()?.moved.filter(|_| is_same) else { return Ok(()) };
    // The stream of the move, and each later one, has the event of the move.
    let is_later =
        staged.read(|seen, _| Ok(!seen.last_events(1, |event| event.at >= left.at)?.is_empty()))?;
    if is_later {
        return Ok(());
    }
    let message = format!("the stream has `{name}` as it was before it was {left}, at {}", left.at);
    Err(Error::refused("older_export", message).with_hint(format!(
        "import the stream of `export --move` or a later one, or give up the newer records: `dormouse rm {name}`"
    )))
}

/// Reason for the end of a run or task that was open when its agent was exported.
const WENT_ON: &str = "it was running when its agent was copied, and continued there";

/// Removes state that only the exporting store can use: the `moved` mark, the clone that ticks the
/// agent, and open turns and tasks, whose processes belong to the original agent.
fn arrive(session: &Session, agent: &Agent<'_>) -> Result<()> {
    let store = agent.store();
    let state = agent.peek()?;
    let was_taken = state.moved.is_some() || state.ticked_by.is_some();
    if !was_taken && state.current_run.is_none() && state.open_tasks == 0 {
        return Ok(());
    }
    let locked = agent.change(session.clock.now())?;
    let (context, seen) = (Context::new(session, agent), locked.records_snapshot());
    let mut draft = context.draft_of(&seen, locked.any_state()?)?;
    moved::arrive(&mut draft, None);
    let_go(&mut draft, None);
    if let Some(run) = draft.records.state.current_run.as_ref().map(|run| run.run_id) {
        let noted = agent.local().run(run).read_end()?;
        settle_in_draft(Context::new(session, agent), &seen, &mut draft, (run, noted), WENT_ON)?;
    }
    for task in draft.records.tasks.clone().iter().filter(|task| task.status != TaskStatus::Queued) {
        task::finish(&mut draft, task.id, recorded_end(agent, task.id, WENT_ON)?)?;
    }
    task::adopt(&mut draft, &claimant(store)?);
    context.commit(&locked, draft)?;
    locked.empty_journal()
}

/// Returns a note about the agents that still use the former name; `None` without a parent.
fn related(staged: &AgentImport<'_>) -> Option<String> {
    let parent = staged.agent.identity().ok()?.parent?;
    Some(format!(
        "{}: its parent `{parent}` knows it by its former name, as do messages, tasks and texts of others",
        staged.agent.name()
    ))
}
