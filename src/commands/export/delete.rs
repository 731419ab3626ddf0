//! Command `rm`: exports an agent to a file and deletes the agent (contract, command line §2).
//!
//! The agent is first marked as moved, so that its records no longer change: a later message is in
//! the stream or is refused. When the stream is durable, one rename deletes the agent. After an
//! interruption, a repeated `rm` continues the deletion.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli;
use crate::engine::authority::{self, refuse_from_inside};
use crate::engine::context::Context;
use crate::engine::new_file::{Replacement, name_exists, refuse_within};
use crate::engine::session::{Session, agents};
use crate::engine::views::children_of;
use crate::error::{Error, IoContext, Result, Status};
use crate::model::id::AgentName;
use crate::model::moved::{Leave, Moved};
use crate::model::records::Records;
use crate::report::output::Output;
use crate::report::progress::Unit;
use crate::report::text::count;
use crate::store::stream::StreamWriter;
use crate::store::{Agent, AgentTxn, DirExport, Store, moved_away};

use super::{MoveRequest, about_to_leave, say_left_out, size_text, stay, take_under};

/// Result of `rm` for one agent.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize)]
struct DeleteReport {
    agent: AgentName,
    removed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    exported_to: Option<PathBuf>,
    /// Number of exported files, or with --no-export of deleted files.
    files: Option<usize>,
    bytes: Option<u64>,
    /// Unfinished work of the agent.
    unfinished: UnfinishedCounts,
    /// Agents whose parent is the deleted agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<AgentName>,
    /// Files that arrived in the inbox after the agent was read for the export.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    late: Vec<String>,
}

impl DeleteReport {
    /// Returns the report about an agent before its deletion.
    fn new(agent: &Agent<'_>, request: &DeleteRequest<'_>, unfinished: UnfinishedCounts) -> DeleteReport {
        DeleteReport {
            agent: agent.name().clone(),
            removed: false,
            dry_run: request.dry_run,
            exported_to: request.file.map(Path::to_owned),
            files: None,
            bytes: None,
            unfinished,
            children: Vec::new(),
            late: Vec::new(),
        }
    }

    fn text(&self, out: &Output) -> String {
        let what = if self.removed { "removed" } else { "would be removed" };
        let size = self.files.zip(self.bytes).map(|(files, size)| size_text(files, size));
        let to = match &self.exported_to {
            Some(path) => format!("exported to {}", out.safe(&path.to_string_lossy())),
            None => "not exported".to_owned(),
        };
        let open = self.unfinished.words().map(|words| format!("unfinished: {words}"));
        let parts = [Some(what.to_owned()), size, Some(to), open];
        format!("{}  {}", self.agent, parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Numbers of unfinished records. An agent is deleted without --force only if all are zero.
#[derive(Debug, Default, Clone, Copy, Serialize)]
struct UnfinishedCounts {
    messages: usize,
    hints: usize,
    work: usize,
    waits: usize,
    timers: usize,
    /// Messages to other agents that are not delivered yet.
    outbox: u64,
    /// Attentions that the operator has not acknowledged.
    attention: u64,
}

impl UnfinishedCounts {
    fn of(agent: &Agent<'_>, locked: &AgentTxn<'_>, records: &Records) -> Result<UnfinishedCounts> {
        let state = &records.state;
        if state.moved.as_ref().is_some_and(|moved| moved.by == Leave::Move) {
            // After `export --move` the other store lacks only the inbox files that came later.
            return Ok(UnfinishedCounts {
                messages: agent.local().count_late()?,
                ..UnfinishedCounts::default()
            });
        }
        let snapshot = locked.snapshot(state)?;
        Ok(UnfinishedCounts {
            messages: snapshot.keys()?.len(),
            hints: snapshot.hints()?.0.len() + usize::from(state.pending_wake_hint.is_some()),
            work: records.works.len(),
            waits: records.waits.len(),
            timers: records.timers.len(),
            outbox: state.outbox.messages,
            attention: state.attention.as_ref().map_or(0, |mark| mark.count),
        })
    }

    /// Lists the numbers that are not zero, for the user; `None` if all are zero.
    fn words(&self) -> Option<String> {
        let UnfinishedCounts { messages, hints, work, waits, timers, outbox, attention } = self;
        let parts = [
            (*messages as u64, "message", "messages"),
            (*hints as u64, "wake hint", "wake hints"),
            (*work as u64, "work item", "work items"),
            (*waits as u64, "wait", "waits"),
            (*timers as u64, "timer", "timers"),
            (*outbox, "message to others", "messages to others"),
            (*attention, "attention", "attentions"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(most, ..)| *most > 0)
            .map(|(most, one, more)| count(*most, one, more))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Options of `rm` for one agent.
struct DeleteRequest<'a> {
    file: Option<&'a Path>,
    force: bool,
    dry_run: bool,
}

impl DeleteRequest<'_> {
    fn move_request(&self) -> Result<MoveRequest> {
        let to = match self.file {
            Some(file) => std::path::absolute(file).context("find", file)?.to_string_lossy().into_owned(),
            None => String::new(),
        };
        Ok(MoveRequest { by: Leave::Remove, to })
    }
}

pub fn rm(session: &Session, args: cli::RmArgs) -> Result<Status> {
    let store = session.store()?;
    let names = agents(&store, &args.agents, false)?;
    if args.output.is_some() && names.len() > 1 {
        return Err(Error::usage("--output: several agents, and one file")
            .with_hint("leave out --output: each agent then has a file of its own"));
    }
    Ok(session.each_agent(&store, &names, false, |Context { agent, .. }| {
        let own = || (!args.no_export).then(|| PathBuf::from(format!("{}.tar", agent.name())));
        let file = args.output.clone().or_else(own);
        let request = DeleteRequest { file: file.as_deref(), force: args.force, dry_run: args.dry_run };
        remove(session, agent, &request)
    }))
}

/// Exports an agent to a file and deletes the agent.
fn remove(session: &Session, agent: &Agent<'_>, request: &DeleteRequest<'_>) -> Result<Status> {
    session.is_about(agent.name());
    if let Some(file) = request.file {
        refuse_within(agent.store(), file, "--output", "it would go with the agent: name a file beside it")?;
    }
    let Some(ready) = prepare(session, agent, request)? else { return Ok(Status::Done) };
    if let Err(error) = export(session, agent, request.file, &ready) {
        if let Err(error) = stay(session, agent, &ready.mark) {
            session.out.note(&format!("{} is still marked for removal: {error}", agent.name()));
        }
        return Err(error);
    }
    finish(session, agent, request, &ready)
}

/// Agent that is marked as moved, with the records that are exported.
struct MarkedAgent {
    exported: DirExport,
    mark: Moved,
    unfinished: UnfinishedCounts,
}

/// Marks an agent as moved and reads its records for export. A dry run changes nothing, prints the
/// expected result and returns `None`.
fn prepare(session: &Session, agent: &Agent<'_>, request: &DeleteRequest<'_>) -> Result<Option<MarkedAgent>> {
    let store = agent.store();
    refuse_from_inside(Context::new(session, agent), "remove")?;
    authority::reach(Context::new(session, agent), "remove")?;
    let target = request.move_request()?;
    let locked = agent.change(session.clock.now())?;
    let state = locked.any_state()?;
    let is_begun = match &state.moved {
        Some(moved) if moved.by == Leave::Remove && moved.to != target.to => {
            return Err(moved_away(agent, moved));
        }
        Some(moved) if !moved.frees_name() => return Err(moved_away(agent, moved)),
        Some(moved) => moved.by == Leave::Remove,
        None => false,
    };
    if let Some(file) = request.file.filter(|file| !is_begun && name_exists(file)) {
        return Err(Error::refused(
            "file_exists",
            format!("{} exists already: an export overwrites no file", file.display()),
        )
        .with_hint("name another one with --output"));
    }
    let records = match &state.moved {
        // `about_to_leave` refuses an open turn or task before unfinished records are counted.
        None => about_to_leave(session, agent, &locked, &target)?.records,
        Some(_) => Context::new(session, agent).draft_of(&locked.records_snapshot(), state.clone())?.records,
    };
    let records = Records { state: state.clone(), ..records };
    let unfinished = UnfinishedCounts::of(agent, &locked, &records)?;
    if !request.force && !is_begun {
        refuse_unfinished(agent, &unfinished)?;
    }
    if request.dry_run {
        report(session, store, DeleteReport::new(agent, request, unfinished))?;
        return Ok(None);
    }
    let (exported, mark) = take_under(session, agent, &locked, state.moved.is_none().then_some(&target))?;
    let mark = mark.ok_or_else(|| came_back(agent.name()))?;
    say_left_out(session, agent, &exported);
    let arrivals = exported.arrivals();
    if !request.force && request.file.is_none() && !is_begun && arrivals > unfinished.messages {
        drop(locked);
        stay(session, agent, &mark)?;
        refuse_unfinished(agent, &UnfinishedCounts { messages: arrivals, ..unfinished })?;
    }
    Ok(Some(MarkedAgent { exported, mark, unfinished }))
}

fn refuse_unfinished(agent: &Agent<'_>, unfinished: &UnfinishedCounts) -> Result<()> {
    let Some(words) = unfinished.words() else { return Ok(()) };
    let name = agent.name();
    Err(Error::refused("unfinished", format!("`{name}` is not done: {words}"))
        .with_hint(format!("look at it with `dormouse get {name}`, or delete it anyway with --force")))
}

/// Writes the agent into the file, which appears under its name when it is complete and durable.
fn export(session: &Session, agent: &Agent<'_>, file: Option<&Path>, ready: &MarkedAgent) -> Result<()> {
    let Some(path) = file else { return Ok(()) };
    // An existing file is from an interrupted `rm` (`prepare` checks that), so it is replaced.
    let new = Replacement::begin(path, 0o600)?;
    let names = [agent.name().clone()];
    let mut writer = StreamWriter::begin(BufWriter::new(new.file()), &path.to_string_lossy(), &names)?;
    let mut progress = session.out.progress(Unit::Bytes, Some(ready.exported.bytes()));
    ready.exported.write(&mut writer, |bytes| progress.advance(bytes))?;
    drop(progress);
    writer.finish()?;
    new.place()
}

/// Deletes the exported agent. Error when the agent was imported again since the export.
fn finish(
    session: &Session,
    agent: &Agent<'_>,
    request: &DeleteRequest<'_>,
    ready: &MarkedAgent,
) -> Result<Status> {
    let store = agent.store();
    let locked = agent.change(session.clock.now())?;
    if locked.any_state()?.moved.as_ref() != Some(&ready.mark) {
        return Err(came_back(agent.name()));
    }
    let late = locked.delete()?;
    drop(locked);
    report(
        session,
        store,
        DeleteReport {
            removed: true,
            files: Some(ready.exported.files()),
            bytes: Some(ready.exported.bytes()),
            late,
            ..DeleteReport::new(agent, request, ready.unfinished)
        },
    )?;
    Ok(Status::Done)
}

fn came_back(name: &AgentName) -> Error {
    Error::refused("came_back", format!("`{name}` was imported again meanwhile: it is not deleted"))
        .with_hint(format!("see it with `dormouse get {name}`"))
}

/// Prints the result of a deletion, with the agent's children and the inbox files that were lost.
fn report(session: &Session, store: &Store, mut report: DeleteReport) -> Result<()> {
    report.children = children_of(store, &report.agent)?;
    session.out.result(&report, |out| report.text(out));
    for child in &report.children {
        session.out.note(&format!("{child}: its parent was `{}`", report.agent));
    }
    for file in &report.late {
        session.out.alarm(&format!(
            "{}: {file} arrived too late for the stream and was deleted; the command that sent it reports this, too",
            report.agent
        ));
    }
    Ok(())
}
