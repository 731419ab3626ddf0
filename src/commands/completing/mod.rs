//! Shell completion: the scripts that `completions` prints run this program at each Tab.
//!
//! A candidate is a command-line word, an agent name or an id; none of them needs quoting in a
//! shell. The description of an id is untrusted text, so it is cut to one line and escaped.

mod known;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use clap::CommandFactory;
use clap::builder::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::cli::Cli;
use crate::clock::Clock;
use crate::engine::session::{GlobalOptions, Session};
use crate::error::{Result, Status};
use crate::model::id::AgentName;
use crate::model::time::Span;
use crate::report::output::{Output, Style};
use crate::report::text::one_line;

use known::Lookup;

/// Maximum length of the description of a completion candidate, in columns.
const COLUMNS: usize = 50;

/// Common tag of all candidates for an argument. Without a common tag, the completion engine
/// renders the command once for each candidate.
const TAG: &str = "known";

/// Values of `COMP_TYPE` for which bash lists the candidates without inserting one: `?`, `!`, `@`.
const BASH_LISTS: [&str; 3] = ["63", "33", "64"];

/// Answers the completion function of `shell`. `argv` has the form `dormouse -- WORD…`.
pub fn complete(argv: &[OsString], shell: &OsStr) -> Status {
    let out = Output::new(quiet());
    let shells: [&dyn EnvCompleter; 3] = [&Bash, &Zsh, &Fish];
    let shell = shell.to_str().and_then(|name| shells.into_iter().find(|shell| shell.is(name)));
    let words: Vec<OsString> = argv.iter().skip_while(|word| *word != "--").skip(1).cloned().collect();
    let mut answer = Vec::new();
    let answered = shell.filter(|_| !words.is_empty()).is_some_and(|shell| {
        let asked = Arc::new(CompletionRequest::of(shell, words));
        let mut grammar = knowing(Cli::command(), &[], &asked);
        grammar.build();
        let here = env::current_dir().ok();
        shell.write_complete(&mut grammar, asked.words.clone(), here.as_deref(), &mut answer).is_ok()
    });
    if answered {
        out.raw(&answer);
    }
    out.finish(if answered { Status::Done } else { Status::Usage })
}

/// Completion request of a shell: a command line with one unfinished word.
#[derive(Debug)]
struct CompletionRequest {
    words: Vec<OsString>,
    /// Word that the user is typing.
    word: OsString,
    /// Separator that the shell expects between the candidates.
    separator: String,
    /// True if bash only lists the candidates; each is then followed by its description.
    is_list: bool,
}

impl CompletionRequest {
    fn of(shell: &dyn EnvCompleter, words: Vec<OsString>) -> CompletionRequest {
        let set = |name| env::var(name).ok().filter(|_| !shell.is(Fish.name()));
        let is_bash = shell.is(Bash.name());
        let at = set("_CLAP_COMPLETE_INDEX").and_then(|at| at.parse().ok());
        let word = words.get(at.unwrap_or(words.len().saturating_sub(1))).cloned().unwrap_or_default();
        let separator = set("_CLAP_IFS").unwrap_or_else(|| "\n".to_owned());
        let listing = set("_CLAP_COMPLETE_COMP_TYPE").filter(|_| is_bash);
        let is_list = listing.is_some_and(|kind| BASH_LISTS.contains(&kind.as_str()));
        CompletionRequest { words, word, separator, is_list }
    }
}

fn quiet() -> Style {
    Style { json: false, quiet: true, verbose: false, color: Some(false) }
}

/// Returns the state directory and the agents that the unfinished command line names, which is
/// parsed as far as possible.
fn named_in(words: &[OsString]) -> (Option<PathBuf>, Vec<AgentName>) {
    let Ok(matches) = Cli::command().ignore_errors(true).try_get_matches_from(words) else {
        return (None, Vec::new());
    };
    let mut inner = &matches;
    while let Some((_, matches)) = inner.subcommand() {
        inner = matches;
    }
    let named = |arg| inner.try_get_many::<AgentName>(arg).ok().flatten().into_iter().flatten().cloned();
    let mut agents: Vec<AgentName> =
        ["agent", "agents", "word", "words"].into_iter().flat_map(named).collect();
    let texts = inner.try_get_many::<String>("words").ok().flatten().into_iter().flatten();
    agents.extend(texts.filter_map(|name| name.parse().ok()));
    if agents.is_empty() {
        agents.extend(env::var("DORMOUSE_AGENT").ok().and_then(|name| name.parse().ok()));
    }
    (inner.try_get_one::<PathBuf>("dir").ok().flatten().cloned(), agents)
}

/// Adds to each argument of a command a function that completes it. `path`: words of the command.
fn knowing(command: Command, path: &[&str], asked: &Arc<CompletionRequest>) -> Command {
    let command = command.mut_args(|arg| match Lookup::of(path, arg.get_id().as_str()) {
        Some(known) => {
            let asked = asked.clone();
            arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
                let typed = typed.to_str().unwrap_or_default();
                // An error yields no candidates; the completed command reports it when it runs.
                candidates(&asked, known, typed).unwrap_or_default()
            }))
        }
        None => arg,
    });
    command.mut_subcommands(|child| {
        let name = child.get_name().to_owned();
        let path: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
        knowing(child, &path, asked)
    })
}

fn candidates(asked: &CompletionRequest, known: Lookup, typed: &str) -> Result<Vec<CompletionCandidate>> {
    let (dir, agents) = named_in(&asked.words);
    let said = GlobalOptions { command: "complete", dir, patience: Span::ZERO };
    let session = Session::new(Clock::from_env()?, Output::new(quiet()), said);
    let found = known.beginning(&session, agents, typed)?;
    let new = |word: String| CompletionCandidate::new(word).tag(Some(TAG.into()));
    // clap renders each completion separately, which is slow for thousands of words. Words without
    // descriptions are joined into one, unless clap has to put a prefix before each.
    let is_bare = found.len() > 1 && found.iter().all(|(_, what)| what.is_empty());
    if is_bare && asked.word == typed {
        let words: Vec<String> = found.into_iter().map(|(word, _)| word).collect();
        return Ok(vec![new(words.join(&asked.separator))]);
    }
    let is_list = asked.is_list && found.len() > 1;
    let shown = |(word, what): (String, String)| match one_line(&what, COLUMNS) {
        what if what.is_empty() => new(word),
        what if is_list => new(format!("{word}  ({what})")),
        what => new(word).help(Some(what.into())),
    };
    Ok(found.into_iter().map(shown).collect())
}
