//! Help texts, and answers to mistakes on the command line.

use std::ffi::OsString;
use std::io::Write;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::{Cli, PURPOSES};
use crate::error::{Error, Status};
use crate::model::id::Malformed;
use crate::report::output::{Output, Style, failure, talk};
use crate::report::text::escape_line;

use super::exemplified;

/// Commands that `-h` lists.
const FIRST: &[&str] =
    &["init", "create", "start", "ask", "enqueue", "tick", "list", "logs", "queue", "explain"];

/// Commands that users of other tools may expect, each group with the dormouse commands to use.
const GUESSES: [(&str, &str); 18] = [
    ("status ps ls jobs agent agents", "`dormouse list` shows all agents, `dormouse run list` shows turns"),
    ("show info inspect describe", "`dormouse get AGENT` shows an agent, `dormouse queue show ID` a message"),
    ("send say tell message msg prompt", "`dormouse enqueue AGENT TEXT` sends a message"),
    ("add new make", "`dormouse create AGENT` makes an agent, `dormouse enqueue AGENT TEXT` a message"),
    ("delete remove del destroy", "`dormouse rm AGENT` deletes an agent, `dormouse queue drop ID` a message"),
    ("kill", "`dormouse fail AGENT` ends a turn, `dormouse stop AGENT --now` stops the agent"),
    ("cancel drop", "`dormouse queue drop ID` drops a message; see also `dormouse timer`, `task` and `wait`"),
    ("retry requeue", "`dormouse recover AGENT` retries now, `dormouse queue requeue ID` a dead letter"),
    ("restart", "`dormouse stop AGENT && dormouse start AGENT`"),
    ("unpause", "`dormouse start AGENT` starts a stopped agent"),
    ("log history", "`dormouse logs AGENT` shows turns and their output, `dormouse events AGENT` all events"),
    ("tail", "`dormouse logs -f AGENT` shows turns and their output as they come"),
    ("set update config configure", "`dormouse edit AGENT` changes the command and the other settings"),
    ("unlock", "a lock ends with its process; `dormouse recover AGENT` settles an interrupted turn"),
    ("version", "`dormouse --version`"),
    ("exec step", "`dormouse tick AGENT` runs a step"),
    ("schedule cron at", "`dormouse timer add` sends a message later, `dormouse service cron` ticks by cron"),
    ("daemon serve", "there is no daemon: `dormouse service` has systemd or cron tick the agents"),
];

/// Tip for a text beginning with `-` that clap has taken for an option.
const DASH: &str = "put `--` before a text that begins with `-`, as in `dormouse enqueue AGENT -- TEXT`";

/// Last line of the help of a command.
const EVERYWHERE: &str = "Everywhere: -C DIR, --json, -q, -v, --color, --lock-timeout (dormouse --help)";

/// Shows an error of the command line, in JSON with --json. Help and version arrive as errors, too.
pub fn refuse_usage(error: clap::Error) -> Status {
    let wants_json = words().iter().take_while(|word| *word != "--").any(|word| word == "--json");
    if let Some(error) = malformed_word(&error).or_else(|| text_as_help(&error)) {
        let out = Output::new(Style { json: wants_json, quiet: false, verbose: false, color: None });
        out.failure(&error, None, None);
        return out.finish(Status::Usage);
    }
    let error = with_tip(without_hidden_commands(error));
    let is_mistake = error.use_stderr();
    if is_mistake && wants_json {
        let text = error.render().to_string();
        // The first paragraph of clap's text is the message, one line per missing argument.
        let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let is_alone = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        let message =
            if is_alone { "a command is missing".to_owned() } else { lines.collect::<Vec<_>>().join(" ") };
        let message = message.trim_start_matches("error: ").to_owned();
        let hint = text.lines().find_map(|line| line.trim().strip_prefix("tip: ")).map(str::to_owned);
        let wrong = Error::Usage { message, hint };
        let _ = writeln!(std::io::stdout(), "{}", failure(&wrong, None));
    }
    let error = if error.kind() == ErrorKind::DisplayHelp { asked_help(error) } else { error };
    match without_what_hides(error).print() {
        _ if is_mistake => Status::Usage,
        // A closed pipe is no failure, because the reader has read enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            talk(&format!("can't write to stdout: {error}"));
            Status::Failed
        }
        Err(_) | Ok(()) => Status::Done,
    }
}

/// Returns the error for a malformed duration, name or id; `None` for another mistake.
pub fn malformed_word(error: &clap::Error) -> Option<Error> {
    let reason = std::error::Error::source(error)?.downcast_ref::<Malformed>()?;
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else { return None };
    // clap shows an option together with its value, as in `--agent <AGENT>`.
    let name = arg.split_whitespace().next()?.trim_matches(['<', '>', '[', ']', '.']);
    let wrong = Error::in_word(name, reason);
    let value = error.get(ContextKind::InvalidValue);
    let has_space = matches!(value, Some(ContextValue::String(word)) if word.contains(' '));
    let hint = "the agent's name comes first, and has no spaces";
    Some(if has_space && name == "AGENT" { wrong.with_hint(hint) } else { wrong })
}

/// Returns the words of the command line.
fn words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Returns the error for a text such as `-hello`, which clap takes for `-h`.
fn text_as_help(error: &clap::Error) -> Option<Error> {
    let is_text = |word: &String| word.len() > 2 && word.starts_with("-h");
    let word = words().into_iter().take_while(|word| word != "--").find(is_text)?;
    let is_help = error.kind() == ErrorKind::DisplayHelp;
    is_help.then(|| Error::usage(format!("unexpected argument '{word}' found")).with_hint(DASH))
}

/// Returns a tip for an unexpected word: the probable command, or the right place for the word.
fn tip(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let usage = usage.to_string();
    let command = usage.split_whitespace().skip_while(|word| *word != "dormouse").skip(1);
    let command = command.take_while(|word| !word.starts_with(['[', '<', '-'])).collect::<Vec<_>>().join(" ");
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        return subcommand_tip(&command, word);
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    let tip = (error.kind() == ErrorKind::UnknownArgument).then(|| word_tip(&command, word, &usage))?;
    tip.filter(|_| error.get(ContextKind::SuggestedArg).is_none())
}

/// Returns the tip for an unknown command: the command to use, or all commands of the group.
fn subcommand_tip(group: &str, word: &str) -> Option<String> {
    if group.is_empty() {
        let is_guess = |(names, _): &&(&str, &str)| names.split(' ').any(|name| name == word);
        return GUESSES.iter().find(is_guess).map(|(_, tip)| (*tip).to_owned());
    }
    let program = Cli::command();
    let names: Vec<&str> =
        program.find_subcommand(group)?.get_subcommands().map(clap::Command::get_name).collect();
    let step = if group == "run" { ", and `dormouse tick AGENT` runs a step" } else { "" };
    Some(format!("`dormouse {group}` has the commands {}{step}", names.join(", ")))
}

/// Returns the tip for a word that a command does not take.
fn word_tip(command: &str, word: &str, usage: &str) -> Option<String> {
    let line = words();
    let at = |part: &str| line.iter().rposition(|word| word == part);
    let is_after_dashes = at("--").is_some_and(|end| Some(end) < at(word));
    let takes_text = usage.contains("TEXT]");
    let tip = match word {
        "-a" | "--agent" => return Some(format!("name the agent as a word: `dormouse {command} AGENT`")),
        _ if word.starts_with('-') && is_after_dashes => "options come before `--`",
        _ if word.starts_with('-') && takes_text => DASH,
        _ if word.starts_with('-') => return None,
        _ if command == "list" => "`dormouse get NAME` shows one agent",
        _ if command == "create" && at("--shell").is_some() => "put the line in quotes: `--shell 'LINE'`",
        _ if command == "create" => "put the turn command after `--`: `dormouse create AGENT -- COMMAND`",
        _ if takes_text => "put a text of several words in quotes: 'TEXT'",
        _ if usage.contains("<AGENT>") => "name one agent; `dormouse list` shows all",
        _ => return None,
    };
    Some(tip.to_owned())
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
    // This copies the global options to each command, where `about_itself` hides them.
    grammar.build();
    let listed = if has("-h") {
        let first = listing(&grammar, "First commands", FIRST);
        format!("{first}\n`dormouse --help` lists all commands and options, `dormouse man` is the manual.\n")
    } else {
        let lists = PURPOSES.iter().map(|(purpose, names)| listing(&grammar, purpose, names));
        format!("{}\nOptions:\n{{options}}", lists.collect::<Vec<_>>().join("\n"))
    };
    let about = "{about-with-newline}\n{usage-heading} {usage}\n\n";
    let grammar = grammar.help_template(format!("{about}{listed}")).mut_subcommands(about_itself);
    grammar.try_get_matches_from(words).err().unwrap_or(error)
}

/// Ends the help of a command and its subcommands with the global options in one line.
fn about_itself(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
    command.after_help(EVERYWHERE).mut_subcommands(about_itself)
}

/// Returns a heading, and a line for each command of `names` that is not hidden.
fn listing(grammar: &clap::Command, heading: &str, names: &[&str]) -> String {
    let line = |name: &&str| {
        let command = grammar.find_subcommand(name).filter(|command| !command.is_hide_set())?;
        Some(format!("  {name:<15}  {}\n", command.get_about()?))
    };
    format!("{heading}:\n{}", names.iter().filter_map(line).collect::<String>())
}

/// Removes suggestions of hidden commands.
fn without_hidden_commands(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(mut words)) = error.remove(ContextKind::SuggestedSubcommand) {
        let program = Cli::command();
        words.retain(|word| !program.find_subcommand(word).is_some_and(clap::Command::is_hide_set));
        if words.is_empty() {
            // clap inserts an empty list of suggestions, and would print an empty line for it.
            error.remove(ContextKind::Suggested);
        } else {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(words));
        }
    }
    error
}

/// Escapes the user's words in an error, so that they can't control the terminal.
fn without_what_hides(mut error: clap::Error) -> clap::Error {
    let shown = |word: &String| escape_line(word).into_owned();
    let quoted = error.context().filter_map(|(kind, value)| {
        if let ContextValue::String(word) = value {
            Some((kind, ContextValue::String(shown(word))))
        } else if let ContextValue::Strings(words) = value {
            Some((kind, ContextValue::Strings(words.iter().map(shown).collect())))
        } else {
            // Values of other types contain no words of the user, so they need no escape.
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
    fn the_help_fits_80_columns_and_lists_every_command_and_global_option() {
        let grammar = Cli::command();
        for option in grammar.get_arguments().filter(|option| option.is_global_set()) {
            let short = option.get_short().map(|short| format!("-{short}"));
            let word = short.unwrap_or_else(|| format!("--{}", option.get_long().unwrap()));
            assert!(EVERYWHERE.contains(&word), "{word}: {EVERYWHERE}");
        }
        let listed = |heading: &str, names: &[&str]| -> Vec<String> {
            let text = listing(&grammar, heading, names);
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            text.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
        };
        assert_eq!(listed("First commands", FIRST), FIRST);
        let mut all: Vec<String> =
            PURPOSES.iter().flat_map(|(purpose, names)| listed(purpose, names)).collect();
        let shown = grammar.get_subcommands().filter(|command| !command.is_hide_set());
        let mut commands: Vec<&str> = shown.map(clap::Command::get_name).collect();
        all.sort_unstable();
        commands.sort_unstable();
        assert_eq!(all, commands);
    }
}
