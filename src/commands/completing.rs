//! What a word of a command line could become: the functions that `completions` prints ask for it at each key.
//!
//! What is proposed are words of the command line, names of agents and ids, none of which means anything to a shell.
//! What an id stands for is shown beside it; that is outside text, so it is one line and escaped.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::CommandFactory;
use clap::builder::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::cli::Cli;
use crate::clock::Clock;
use crate::engine::session::{Said, Session};
use crate::error::{Result, Status};
use crate::model::id::AgentName;
use crate::model::message::{Body, Message, MessageStatus};
use crate::model::task::Task;
use crate::model::time::Span;
use crate::model::timer::Timer;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::report::output::{Output, Style};
use crate::report::text::one_line;
use crate::store::{Agent, Store};

/// Of how many agents ids are proposed where none is named, and how many of each.
const MOST_AGENTS: usize = 32;
const MOST_IDS: usize = 100;
/// How much is shown of what an id stands for, in columns.
const COLUMNS: usize = 50;

/// Answers the completion function of this shell: `dormouse -- WORD…`.
pub fn complete(argv: &[OsString], shell: &OsStr) -> Status {
    let mut out = Output::new(quiet());
    let shells: [&dyn EnvCompleter; 3] = [&Bash, &Zsh, &Fish];
    let shell = shell.to_str().and_then(|name| shells.into_iter().find(|shell| shell.is(name)));
    let words: Vec<OsString> = argv.iter().skip_while(|word| *word != "--").skip(1).cloned().collect();
    let mut answer = Vec::new();
    let answered = shell.filter(|_| !words.is_empty()).is_some_and(|shell| {
        let mut grammar = knowing(Cli::command(), &[], &Line::of(&words));
        grammar.build();
        let here = env::current_dir().ok();
        shell.write_complete(&mut grammar, words, here.as_deref(), &mut answer).is_ok()
    });
    if answered {
        out.raw(&answer);
    }
    out.finish(if answered { Status::Done } else { Status::Usage })
}

fn quiet() -> Style {
    Style { json: false, quiet: true, verbose: false, color: Some(false) }
}

/// What the words of the line say about every argument on it.
#[derive(Debug, Default, Clone)]
struct Line {
    dir: Option<PathBuf>,
    agent: Option<String>,
}

impl Line {
    fn of(words: &[OsString]) -> Line {
        let after = |names: [&str; 2]| {
            let long = format!("{}=", names[1]);
            let next = words.windows(2).find(|pair| names.iter().any(|name| pair[0] == *name));
            let joined =
                || words.iter().find_map(|word| Some(word.to_str()?.strip_prefix(&long)?.to_owned()));
            next.map(|pair| pair[1].clone()).or_else(|| joined().map(OsString::from))
        };
        let agent = after(["-a", "--agent"]).or_else(|| env::var_os("DORMOUSE_AGENT"));
        Line {
            dir: after(["-C", "--dir"]).map(PathBuf::from),
            agent: agent.and_then(|name| name.into_string().ok()).filter(|name| !name.is_empty()),
        }
    }

    fn session(&self) -> Result<Session> {
        let said = Said { command: "complete", dir: self.dir.clone(), patience: Span::ZERO };
        Ok(Session::new(Clock::from_env()?, Output::new(quiet()), said))
    }
}

/// What a state directory knows that can be named on a command line.
#[derive(Debug, Clone, Copy)]
enum Known {
    Agents,
    Messages,
    Ended,
    Runs,
    Tasks,
    Timers,
    Triggers,
    Waits,
    Works,
}

/// What an argument names, if that is in the state directory.
fn named_by(path: &[&str], arg: &Arg) -> Option<Known> {
    match (path, arg.get_id().as_str()) {
        (["create"], "agent") => None,
        (_, "agent" | "agents" | "word" | "words" | "parent" | "delegate") => Some(Known::Agents),
        (["queue", "requeue"], "id") => Some(Known::Ended),
        (["queue", _], "id") | (["await"], "message") => Some(Known::Messages),
        (["run", _], "id") => Some(Known::Runs),
        (["task", _], "id") => Some(Known::Tasks),
        (["timer", _], "id") => Some(Known::Timers),
        (["trigger", _], "id" | "trigger") => Some(Known::Triggers),
        (["wait", _], "id") | (["enqueue" | "wake" | "ask"], "wait") => Some(Known::Waits),
        (["work", _], "id") | (_, "work_item") => Some(Known::Works),
        _ => None,
    }
}

/// The grammar of the command line, whose arguments know what they can be.
fn knowing(command: Command, path: &[&str], line: &Line) -> Command {
    let command = command.mut_args(|arg| match named_by(path, &arg) {
        Some(known) => {
            let line = line.clone();
            arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
                let typed = typed.to_str().unwrap_or_default();
                // A state directory that can't be read proposes nothing; the command itself will say why.
                candidates(&line, known, typed).unwrap_or_default()
            }))
        }
        None => arg,
    });
    command.mut_subcommands(|child| {
        let name = child.get_name().to_owned();
        let path: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
        knowing(child, &path, line)
    })
}

fn candidates(line: &Line, known: Known, typed: &str) -> Result<Vec<CompletionCandidate>> {
    let session = line.session()?;
    let store = session.store()?;
    if let Known::Agents = known {
        let names = store.agents()?;
        let begun = names.iter().filter(|name| name.as_str().starts_with(typed));
        return Ok(begun.map(|name| CompletionCandidate::new(name.as_str())).collect());
    }
    let mut ids = Vec::new();
    for name in agents(&store, line)? {
        // Another agent may well be readable.
        ids.extend(store.agent(&name).and_then(|agent| ids_of(&session, &agent, known)).unwrap_or_default());
    }
    let begun = ids.into_iter().filter(|(id, _)| id.starts_with(typed));
    let shown = |(id, what): (String, String)| {
        let what = one_line(&what, COLUMNS);
        CompletionCandidate::new(id).help((!what.is_empty()).then(|| what.into()))
    };
    Ok(begun.take(MOST_IDS).map(shown).collect())
}

/// Whose ids are proposed: those of the agent that is named, else of all that there are, if they are few.
fn agents(store: &Store, line: &Line) -> Result<Vec<AgentName>> {
    if let Some(agent) = line.agent.as_ref().and_then(|name| name.parse().ok()) {
        return Ok(vec![agent]);
    }
    let mut names = store.agents()?;
    if names.len() > MOST_AGENTS {
        names.clear();
    }
    Ok(names)
}

/// The ids that an agent has of a kind, and what each stands for.
fn ids_of(session: &Session, agent: &Agent<'_>, known: Known) -> Result<Vec<(String, String)>> {
    if let Known::Triggers = known {
        let triggers = agent.triggers()?.into_iter();
        return Ok(triggers.map(|trigger| (trigger.id.to_string(), trigger.scope.to_string())).collect());
    }
    let now = session.clock.now();
    agent.look(|seen, _| {
        Ok(match known {
            Known::Agents | Known::Triggers => Vec::new(),
            Known::Messages => {
                let mut found = Vec::new();
                for waiting in seen.first(MOST_IDS)? {
                    if let Some(Ok(message)) = seen.try_read(&waiting)? {
                        found.push((message.id.to_string(), message.body.to_text()));
                    }
                }
                found
            }
            Known::Ended => {
                let ended: Vec<Message> = seen.recent(now, MOST_IDS, |message: &Message| {
                    message.settlement.as_ref().is_some_and(|end| end.status != MessageStatus::Processed)
                })?;
                ended.into_iter().map(|message| (message.id.to_string(), message.body.to_text())).collect()
            }
            Known::Runs => {
                let (runs, _) = seen.runs(MOST_IDS)?;
                let said = |text: Option<String>| text.map(|text| format!(": {text}")).unwrap_or_default();
                let shown = |terminal: &str, text| format!("{terminal}{}", said(text));
                runs.into_iter()
                    .map(|run| (run.id.to_string(), shown(run.terminal.name(), run.brief.or(run.reason))))
                    .collect()
            }
            Known::Tasks => {
                let tasks = seen.open::<Task>()?.into_iter();
                tasks.map(|task| (task.id.to_string(), task.summary.unwrap_or_default())).collect()
            }
            Known::Timers => {
                let timers = seen.open::<Timer>()?.into_iter();
                let said = |timer: &Timer| timer.body.as_ref().map(Body::to_text).unwrap_or_default();
                timers
                    .map(|timer| (timer.id.to_string(), format!("{} {}", timer.next_at, said(&timer))))
                    .collect()
            }
            Known::Waits => {
                let waits = seen.open::<Wait>()?.into_iter();
                waits.map(|wait| (wait.id.to_string(), format!("{}: {}", wait.kind, wait.reason))).collect()
            }
            Known::Works => {
                let works = seen.open::<WorkItem>()?.into_iter();
                works.map(|item| (item.id.to_string(), item.objective)).collect()
            }
        })
    })
}
