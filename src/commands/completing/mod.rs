//! What a word of a command line could become: the functions that `completions` prints ask for it
//! at each key.
//!
//! What is proposed are words of the command line, names of agents and ids, none of which means
//! anything to a shell. What an id stands for is shown beside it; that is outside text, so it is
//! one line and escaped.

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
use crate::engine::session::{Said, Session};
use crate::error::{Result, Status};
use crate::model::id::AgentName;
use crate::model::time::Span;
use crate::report::output::{Output, Style};
use crate::report::text::one_line;

use known::Known;

/// How much is shown of what an id stands for, in columns.
const COLUMNS: usize = 50;

/// What all candidates for one argument have in common. If it is left out, the engine renders it
/// anew for each.
const TAG: &str = "known";

/// What bash calls a completion that only lists, in `COMP_TYPE`: `?`, `!` and `@`.
const BASH_LISTS: [&str; 3] = ["63", "33", "64"];

/// Answers the completion function of this shell: `dormouse -- WORD…`.
pub fn complete(argv: &[OsString], shell: &OsStr) -> Status {
    let mut out = Output::new(quiet());
    let shells: [&dyn EnvCompleter; 3] = [&Bash, &Zsh, &Fish];
    let shell = shell.to_str().and_then(|name| shells.into_iter().find(|shell| shell.is(name)));
    let words: Vec<OsString> = argv.iter().skip_while(|word| *word != "--").skip(1).cloned().collect();
    let mut answer = Vec::new();
    let answered = shell.filter(|_| !words.is_empty()).is_some_and(|shell| {
        let asked = Arc::new(Asked::of(shell, words));
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

/// What a shell asks: how the line could go on at one of its words.
#[derive(Debug)]
struct Asked {
    words: Vec<OsString>,
    /// Which word, as it was typed so far.
    word: OsString,
    /// What the shell wants between two words of the answer.
    separator: String,
    /// Whether the shell shows what it is told, and inserts no more than what all words begin with:
    /// bash, which shows nothing beside a word.
    is_list: bool,
}

impl Asked {
    fn of(shell: &dyn EnvCompleter, mut words: Vec<OsString>) -> Asked {
        let set = |name| env::var(name).ok().filter(|_| !shell.is(Fish.name()));
        let is_bash = shell.is(Bash.name());
        if is_bash {
            join_values(&mut words);
        }
        let at = set("_CLAP_COMPLETE_INDEX").and_then(|at| at.parse().ok());
        let word = words.get(at.unwrap_or(words.len().saturating_sub(1))).cloned().unwrap_or_default();
        let separator = set("_CLAP_IFS").unwrap_or_else(|| "\n".to_owned());
        let listing = set("_CLAP_COMPLETE_COMP_TYPE").filter(|_| is_bash);
        let is_list = listing.is_some_and(|kind| BASH_LISTS.contains(&kind.as_str()));
        Asked { words, word, separator, is_list }
    }
}

/// bash takes `--flag=value` for three words. In two words it means the same, and the flag that
/// takes the place of `=` keeps the others where the shell counts them.
fn join_values(words: &mut [OsString]) {
    for at in 1..words.len() {
        if words[at] == "=" && words[at - 1].as_encoded_bytes().starts_with(b"--") {
            words[at] = std::mem::replace(&mut words[at - 1], "--quiet".into());
        }
    }
}

fn quiet() -> Style {
    Style { json: false, quiet: true, verbose: false, color: Some(false) }
}

/// What the words of the line say about the argument that is asked for.
#[derive(Debug, Default)]
struct Line {
    dir: Option<PathBuf>,
    agents: Vec<AgentName>,
}

impl Line {
    /// Reads the line as far as it can be read: it is not finished yet.
    fn of(words: &[OsString]) -> Line {
        let Ok(matches) = Cli::command().ignore_errors(true).try_get_matches_from(words) else {
            return Line::default();
        };
        let mut inner = &matches;
        while let Some((_, matches)) = inner.subcommand() {
            inner = matches;
        }
        let named = |arg| inner.try_get_many::<String>(arg).ok().flatten().into_iter().flatten().cloned();
        let named = ["agent", "agents", "word", "words"].into_iter().flat_map(named);
        let mut agents: Vec<AgentName> = named.filter_map(|name| name.parse().ok()).collect();
        if agents.is_empty() {
            agents.extend(env::var("DORMOUSE_AGENT").ok().and_then(|name| name.parse().ok()));
        }
        Line { dir: inner.try_get_one::<PathBuf>("dir").ok().flatten().cloned(), agents }
    }

    fn session(&self) -> Result<Session> {
        let said = Said { command: "complete", dir: self.dir.clone(), patience: Span::ZERO };
        Ok(Session::new(Clock::from_env()?, Output::new(quiet()), said))
    }
}

/// The grammar of the command line, whose arguments know what they can be.
fn knowing(command: Command, path: &[&str], asked: &Arc<Asked>) -> Command {
    let command = command.mut_args(|arg| match Known::of(path, arg.get_id().as_str()) {
        Some(known) => {
            let asked = asked.clone();
            arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
                let typed = typed.to_str().unwrap_or_default();
                // A state directory that can't be read proposes nothing; the command itself will
                // say why.
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

fn candidates(asked: &Asked, known: Known, typed: &str) -> Result<Vec<CompletionCandidate>> {
    let mut found = known.beginning(&asked.words, typed)?;
    found.retain(|(word, _)| is_plain(word));
    let new = |word: String| CompletionCandidate::new(word).tag(Some(TAG.into()));
    // The engine takes as long for ten thousand candidates as all the rest together, so words that
    // stand for themselves go through it as one. It can put nothing before them: they have to be
    // the whole word.
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

/// Whether a word means nothing to a shell, wherever it comes from.
fn is_plain(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+/".contains(&byte);
    !word.starts_with('-') && word.bytes().all(plain)
}
