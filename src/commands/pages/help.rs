//! Help texts, and answers to mistakes on the command line.

use std::ffi::OsString;
use std::io::Write;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Cli;
use crate::error::{Error, Status};
use crate::model::id::Malformed;
use crate::report::output::{Output, Style};
use crate::report::text::escape_line;

use super::exemplified;

/// Commands that `-h` lists.
const FIRST: &str = "init create start ask enqueue tick list logs queue explain";

/// Headings of `--help`, each with its commands.
const PURPOSES: [(&str, &str); 7] = [
    ("Begin", "init create start stop edit clone service completions man"),
    ("Every day", "ask enqueue wake tick list get explain logs watch await next-wake"),
    ("When something fails", "queue recover fail preempt resume doctor"),
    (
        "Inside a turn",
        "work wait timer task safe-point checkpoint yield non-preemptible schema check-outcome",
    ),
    ("Outside systems", "trigger ingress metrics sync merge-driver"),
    ("History", "run briefs events state usage report"),
    ("Moving and removing", "export import rename rm gc"),
];

/// Commands of other tools, each with the way to do the same here.
const GUESSES: [(&str, &str); 14] = [
    ("status", "`dormouse list` shows all agents, `dormouse get AGENT` shows one"),
    ("ps", "`dormouse list` shows all agents, `dormouse run list` shows turns"),
    ("ls", "`dormouse list` shows all agents"),
    ("show", "`dormouse get AGENT` shows an agent, `dormouse queue show ID` a message"),
    ("send", "`dormouse enqueue AGENT TEXT` sends a message"),
    ("add", "`dormouse create AGENT` makes an agent, `dormouse enqueue AGENT TEXT` sends it a message"),
    ("new", "`dormouse create AGENT` makes an agent"),
    ("delete", "`dormouse rm AGENT` deletes an agent, `dormouse queue drop ID` a message"),
    ("remove", "`dormouse rm AGENT` deletes an agent, `dormouse queue drop ID` a message"),
    ("kill", "`dormouse fail AGENT` ends a turn, `dormouse stop AGENT --now` stops the agent"),
    ("cancel", "`dormouse queue drop ID` drops a message; `wait`, `timer` and `task` end their own records"),
    ("retry", "`dormouse recover AGENT` retries now, `dormouse queue requeue ID` retries a dead letter"),
    ("restart", "`dormouse stop AGENT && dormouse start AGENT`"),
    ("log", "`dormouse logs AGENT` shows events and the output of turns"),
];

/// Last line of the help of a command.
const EVERYWHERE: &str = "Everywhere: -C DIR, --json, -q, -v, --color, --lock-timeout (dormouse --help)";

/// Shows an error of the command line, in JSON with --json. Help and version arrive as errors, too.
pub fn refuse_usage(error: clap::Error) -> Status {
    let wants_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if let Some(error) = malformed_word(&error) {
        let mut out = Output::new(Style { json: wants_json, quiet: false, verbose: false, color: None });
        out.failure(&error, None, None);
        return out.finish(Status::Usage);
    }
    let error = with_tip(without_hidden_commands(error));
    let is_mistake = error.use_stderr();
    if is_mistake && wants_json {
        let text = error.render().to_string();
        // The first paragraph: clap lists missing arguments below its message.
        let said = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let message = said.collect::<Vec<_>>().join(" ");
        let mut object = serde_json::json!({ "error": {
            "kind": "usage",
            "message": message.trim_start_matches("error: "),
            "exit_status": Status::Usage.code(),
        } });
        let near = nearest(&error);
        if let Some(tip) = tip(&error) {
            object["error"]["hint"] = tip.into();
        } else if !near.is_empty() {
            object["error"]["hint"] = format!("did you mean {}?", near.join(" or ")).into();
        }
        let _ = writeln!(std::io::stdout(), "{object}");
    }
    let error = if error.kind() == ErrorKind::DisplayHelp { asked_help(error) } else { error };
    // A closed pipe is no failure, because the reader has read enough.
    let _ = without_what_hides(error).print();
    if is_mistake { Status::Usage } else { Status::Done }
}

/// Returns the error for a duration, a name or an id that is none.
pub fn malformed_word(error: &clap::Error) -> Option<Error> {
    let reason = std::error::Error::source(error)?.downcast_ref::<Malformed>()?;
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else { return None };
    // The name of an option is followed by that of its value.
    let name = arg.split_whitespace().next()?.trim_matches(['<', '>', '[', ']', '.']);
    Some(Error::in_word(name, reason))
}

/// Returns the way to do here what an unknown command does in other tools, or what a name after
/// `list` asks for.
fn tip(error: &clap::Error) -> Option<&'static str> {
    let (Some(ContextValue::String(word)), kind) = (
        error.get(ContextKind::InvalidSubcommand).or_else(|| error.get(ContextKind::InvalidArg)),
        error.kind(),
    ) else {
        return None;
    };
    if kind == ErrorKind::InvalidSubcommand {
        return GUESSES.iter().find(|(guess, _)| guess == word).map(|(_, tip)| *tip);
    }
    let is_list = matches!(error.get(ContextKind::Usage),
        Some(ContextValue::StyledStr(usage)) if usage.to_string().contains("dormouse list"));
    let is_name = kind == ErrorKind::UnknownArgument && is_list && !word.starts_with('-');
    is_name.then_some("`dormouse get NAME` shows one agent")
}

fn with_tip(mut error: clap::Error) -> clap::Error {
    if let Some(tip) = tip(&error) {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Returns the help that the command line asks for. The program's help lists the commands by
/// purpose, or the first ones with `-h`. A command's help ends with the global options in one line.
fn asked_help(error: clap::Error) -> clap::Error {
    let words: Vec<OsString> = std::env::args_os().collect();
    let has = |word: &str| words.iter().skip(1).any(|other| other == word);
    let mut grammar = exemplified(Cli::command(), "dormouse");
    // This gives the global options to the commands, which then hide them.
    grammar.build();
    let listed = if has("-h") {
        let first = listing(&grammar, "First commands", FIRST);
        format!("{first}\n`dormouse --help` lists all commands and options, `dormouse man` is the manual.\n")
    } else {
        let lists = PURPOSES.map(|(purpose, names)| listing(&grammar, purpose, names));
        format!("{}\nOptions:\n{{options}}{{after-help}}", lists.join("\n"))
    };
    let about = "{about-with-newline}\n{usage-heading} {usage}\n\n";
    let grammar = grammar.help_template(format!("{about}{listed}")).mut_subcommands(about_itself);
    grammar.try_get_matches_from(words).err().unwrap_or(error)
}

/// Ends the help of a command and those below it with the global options in one line.
fn about_itself(command: clap::Command) -> clap::Command {
    let long = command.get_after_long_help().map(|text| format!("{text}\n{EVERYWHERE}"));
    let long = long.unwrap_or_else(|| EVERYWHERE.to_owned());
    let command = command.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
    command.after_help(EVERYWHERE).after_long_help(long).mut_subcommands(about_itself)
}

/// Returns a heading and a line for each of these commands.
fn listing(grammar: &clap::Command, heading: &str, names: &str) -> String {
    let line = |name: &str| {
        let about = grammar.find_subcommand(name).and_then(clap::Command::get_about);
        format!("  {name:<15}  {}\n", about.map(ToString::to_string).unwrap_or_default())
    };
    format!("{heading}:\n{}", names.split(' ').map(line).collect::<String>())
}

/// Removes suggestions of hidden commands.
fn without_hidden_commands(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::Strings(words)) = error.get(ContextKind::SuggestedSubcommand) else {
        return error;
    };
    let program = Cli::command();
    let is_shown = |word: &&String| !program.find_subcommand(word).is_some_and(clap::Command::is_hide_set);
    let shown: Vec<String> = words.iter().filter(is_shown).cloned().collect();
    if shown.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
    } else {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown));
    }
    error
}

/// Returns the known words that are nearest to an unknown one.
fn nearest(error: &clap::Error) -> Vec<String> {
    let suggested =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let words = |kind| {
        if let Some(ContextValue::String(word)) = error.get(kind) {
            vec![word.clone()]
        } else if let Some(ContextValue::Strings(words)) = error.get(kind) {
            words.clone()
        } else {
            Vec::new()
        }
    };
    suggested.into_iter().flat_map(words).map(|word| format!("`{word}`")).collect()
}

/// Escapes the words of the command line in the error.
fn without_what_hides(mut error: clap::Error) -> clap::Error {
    let shown = |word: &String| escape_line(word).into_owned();
    let quoted = error.context().filter_map(|(kind, value)| {
        if let ContextValue::String(word) = value {
            Some((kind, ContextValue::String(shown(word))))
        } else if let ContextValue::Strings(words) = value {
            Some((kind, ContextValue::Strings(words.iter().map(shown).collect())))
        } else {
            // All other contexts come from our own declarations.
            None
        }
    });
    for (kind, value) in quoted.collect::<Vec<_>>() {
        error.insert(kind, value);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_one_purpose() {
        let grammar = Cli::command();
        let shown = grammar.get_subcommands().filter(|command| !command.is_hide_set());
        let mut commands: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut listed: Vec<&str> = PURPOSES.iter().flat_map(|(_, names)| names.split(' ')).collect();
        commands.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, commands);
        for option in grammar.get_arguments().filter(|option| option.is_global_set()) {
            let short = option.get_short().map(|short| format!("-{short}"));
            let word = short.unwrap_or_else(|| format!("--{}", option.get_long().unwrap()));
            assert!(EVERYWHERE.contains(&word), "{word}: {EVERYWHERE}");
        }
        for (purpose, names) in PURPOSES.into_iter().chain([("First commands", FIRST)]) {
            let text = listing(&grammar, purpose, names);
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        }
    }
}
