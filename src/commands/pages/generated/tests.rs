//! Renders the generated texts and compares them with the committed ones.
//!
//! A stale file is rewritten and the test fails, so that the change appears in the diff. With `CI`
//! in the environment the test only compares.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use clap_mangen::Man;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::cli::{self, Cli};
use crate::model::agent::Identity;
use crate::model::dedupe::DedupeEntry;
use crate::model::event::Event;
use crate::model::message::{Message, WakeHint};
use crate::model::policy::Policy;
use crate::model::record::Record;
use crate::model::run::{Brief, Run};
use crate::model::state::State;
use crate::model::submission::Submission;
use crate::model::task::Task;
use crate::model::timer::Timer;
use crate::model::trigger::Trigger;
use crate::model::turn::Outcome;
use crate::model::wait::Wait;
use crate::model::work::WorkItem;
use crate::report::context::Document;

/// Contents of the generated files, by path from the root of the crate.
type Texts = BTreeMap<String, String>;

/// Date of the last substantial change of the manual pages. The date is set by hand, because a
/// build must not change the pages.
const MAN_DATE: &str = "2026-11-21";

/// Preamble that clap_mangen repeats in every section, although a page needs only one.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// Directories of generated files. Only `man/sections` is written by hand.
const DIRS: &[&str] = &["man", "completions", "schemas"];

#[test]
fn generated_texts_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Texts::new();
    manual_pages(root, &mut texts);
    completions(&mut texts);
    schemas(&mut texts);
    let index = index(&texts);
    texts.insert("src/commands/pages/generated.rs".to_owned(), index);

    let compare_only = std::env::var_os("CI").is_some();
    let mut stale = Vec::new();
    for (path, text) in &texts {
        if fs::read_to_string(root.join(path)).ok().as_ref() != Some(text) {
            stale.push(path.clone());
            if !compare_only {
                fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                fs::write(root.join(path), text).unwrap();
            }
        }
    }
    for path in committed(root) {
        if !texts.contains_key(&path) {
            if !compare_only {
                fs::remove_file(root.join(&path)).unwrap();
            }
            stale.push(path);
        }
    }
    let done =
        if compare_only { "run `cargo test generated` and commit" } else { "rewritten: please commit" };
    assert!(stale.is_empty(), "stale, {done}: {}", stale.join(", "));
}

/// Returns the paths of the files in the generated directories.
fn committed(root: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for dir in DIRS {
        for entry in fs::read_dir(root.join(dir)).into_iter().flatten() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                paths.push(format!("{dir}/{}", entry.file_name().to_str().unwrap()));
            }
        }
    }
    paths
}

/// Renders a page per command and subcommand: the part of clap, then the handwritten sections.
fn manual_pages(root: &Path, texts: &mut Texts) {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut used = BTreeSet::new();
    manual_page(root, command, None, &mut used, texts);
    for entry in fs::read_dir(root.join("man/sections")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(used.contains(&name), "man/sections/{name} is of no command");
    }
}

fn manual_page(
    root: &Path,
    command: Command,
    parent: Option<&str>,
    used: &mut BTreeSet<String>,
    texts: &mut Texts,
) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        manual_page(root, child.clone(), Some(&name), used, texts);
    }
    let is_top = name == "dormouse";
    let has_subcommands = command.has_subcommands();
    // Only the page of `dormouse` itself describes the global flags.
    let hide = |arg: Arg| if is_top || !arg.is_global_set() { arg } else { arg.hide(true) };
    let man = Man::new(command.mut_args(|arg| on_one_line(hide(arg))));
    let mut page = Vec::new();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    if !is_top {
        page.extend_from_slice(b".PP\nThe options that every command takes are in dormouse(1).\n");
    }
    if has_subcommands {
        man.render_subcommands_section(&mut page).unwrap();
    }
    let sections = format!("{}.roff", name.strip_prefix("dormouse-").unwrap_or(&name));
    let by_hand = fs::read_to_string(root.join("man/sections").join(&sections))
        .unwrap_or_else(|error| panic!("man/sections/{sections}, for EXIT STATUS and EXAMPLES: {error}"));
    for heading in [".SH \"EXIT STATUS\"", ".SH EXAMPLES"] {
        assert!(by_hand.contains(heading), "man/sections/{sections} has no {heading}");
    }
    used.insert(sections);
    let mut page = format!(
        "{PREAMBLE}.TH {} 1 {MAN_DATE} \"dormouse {}\"\n{}",
        name.to_uppercase(),
        env!("CARGO_PKG_VERSION"),
        typeset(&String::from_utf8(page).unwrap().replace(PREAMBLE, ""))
    );
    page.push_str(by_hand.trim_end());
    page.push('\n');
    if let Some(parent) = parent {
        page.push_str(&format!(".SH \"SEE ALSO\"\n.BR {} (1)\n", parent.replace('-', "\\-")));
    }
    texts.insert(format!("man/{name}.1"), page);
}

/// Moves the possible values of an argument from a list into the argument's help.
fn on_one_line(arg: Arg) -> Arg {
    let values = arg.get_possible_values();
    if values.is_empty() || !arg.get_action().takes_values() {
        return arg;
    }
    let names: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    arg.hide_possible_values(true).long_help(format!("{help}.\nOne of {}.", names.join(", ")))
}

/// Converts clap's plain text to manual page text: words between backticks become bold, and the
/// dash after the name becomes a minus.
fn typeset(page: &str) -> String {
    let mut typeset = String::with_capacity(page.len());
    let mut in_name = false;
    for line in page.lines() {
        if line.starts_with(".SH") {
            in_name = line == ".SH NAME";
        }
        let line = if in_name {
            line.replacen(" \\- ", " - ", 1).replacen(" - ", " \\- ", 1)
        } else {
            line.to_owned()
        };
        for (at, part) in line.split('`').enumerate() {
            match at {
                0 => {}
                at if at % 2 == 1 => typeset.push_str("\\fB"),
                _ => typeset.push_str("\\fR"),
            }
            typeset.push_str(part);
        }
        // clap formats the separators of a synopsis one by one and leaves a blank at the end of the
        // line.
        typeset.truncate(typeset.trim_end_matches(' ').len());
        typeset.push('\n');
    }
    typeset
}

/// Renders the completion functions, which run this program.
fn completions(texts: &mut Texts) {
    let shells: [(&dyn EnvCompleter, &str); 3] =
        [(&Bash, "dormouse.bash"), (&Zsh, "_dormouse"), (&Fish, "dormouse.fish")];
    for (shell, name) in shells {
        let mut script = Vec::new();
        shell.write_registration(cli::COMPLETES, "dormouse", "dormouse", "dormouse", &mut script).unwrap();
        // On first use zsh calls the file as a function, which must then complete at once.
        let script = String::from_utf8(script).unwrap().replace(
            "compdef _clap_dynamic_completer_dormouse dormouse",
            "if [ \"$funcstack[1]\" = _dormouse ]; then\n    _clap_dynamic_completer_dormouse \"$@\"\n\
             else\n    compdef _clap_dynamic_completer_dormouse dormouse\nfi",
        );
        texts.insert(format!("completions/{name}"), format!("{}\n", script.trim()));
    }
}

fn schemas(texts: &mut Texts) {
    let mut add = |kind: &str, schema: Value| {
        let mut text = serde_json::to_string_pretty(&schema).unwrap();
        text.push('\n');
        texts.insert(format!("schemas/{kind}.json"), text);
    };
    // These need no added `schema` field: people leave it out, and `Event` has the field.
    add("agent", schema::<Policy>("agent.toml"));
    add("outcome", schema::<Outcome>("what a turn may write to DORMOUSE_OUTCOME"));
    // The context is never parsed, so its schema describes the serialized form.
    let told = SchemaSettings::draft2020_12().for_serialize();
    add("context", schema_by::<Document<'_>>(told, "dormouse/context/1"));
    add("submission", schema::<Submission>("a request to admit a message"));
    add("event", schema::<Event>("dormouse/event/1"));
    add("brief", record::<Brief>());
    add("dedupe", record::<DedupeEntry>());
    add("identity", record::<Identity>());
    add("message", record::<Message>());
    add("run", record::<Run>());
    add("state", record::<State>());
    add("task", record::<Task>());
    add("timer", record::<Timer>());
    add("trigger", record::<Trigger>());
    add("wait", record::<Wait>());
    add("wake_hint", record::<WakeHint>());
    add("work", record::<WorkItem>());
}

fn schema<T: JsonSchema>(title: &str) -> Value {
    schema_by::<T>(SchemaSettings::draft2020_12(), title)
}

fn schema_by<T: JsonSchema>(settings: SchemaSettings, title: &str) -> Value {
    let Value::Object(mut body) = settings.into_generator().into_root_schema_for::<T>().to_value() else {
        panic!("the schema of {title} is no object");
    };
    let mut schema = Map::new();
    for (key, value) in [("$schema", body.shift_remove("$schema")), ("title", Some(json!(title)))] {
        schema.extend(value.map(|value| (key.to_owned(), value)));
    }
    schema.extend(body.shift_remove("description").map(|text| ("description".to_owned(), text)));
    body.shift_remove("title");
    schema.extend(body);
    let mut schema = Value::Object(schema);
    without_references(&mut schema);
    schema
}

/// Removes references to the contract, which a reader of a schema can't follow.
fn without_references(schema: &mut Value) {
    match schema {
        Value::String(text) => {
            while let Some((before, rest)) = text.split_once(" (contract, ")
                && let Some((_, after)) = rest.split_once(')')
            {
                *text = format!("{before}{after}");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_references),
        Value::Object(fields) => fields.values_mut().for_each(without_references),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the schema of a record with the `schema` field that the codec adds.
fn record<T: Record + JsonSchema>() -> Value {
    let mut schema = schema::<T>(&T::schema());
    let mut properties = Map::new();
    properties.insert("schema".to_owned(), json!({ "const": T::schema() }));
    if let Some(Value::Object(others)) = schema.get_mut("properties").map(Value::take) {
        properties.extend(others);
    }
    schema["properties"] = Value::Object(properties);
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.insert(0, json!("schema"));
    }
    schema
}

/// Renders the module that includes all generated texts.
fn index(texts: &Texts) -> String {
    let list = |prefix: &str, suffix: &str| -> String {
        let of = |path: &String| Some(path.strip_prefix(prefix)?.strip_suffix(suffix)?.to_owned());
        let mut lines = vec![String::from("   ")];
        for name in texts.keys().filter_map(of) {
            if lines[lines.len() - 1].len() + name.len() > 96 {
                lines.push(String::from("   "));
            }
            lines.last_mut().unwrap().push_str(&format!(" \"{name}\""));
        }
        lines.join("\n")
    };
    format!(
        "\
//! Generated texts. `cargo test generated` writes this file and those that it includes.

macro_rules! committed {{
    ($path:expr) => {{
        include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/\", $path))
    }};
}}

macro_rules! texts {{
    ($dir:literal, $ending:literal: $($name:literal)*) => {{
        &[$(($name, committed!(concat!($dir, $name, $ending)))),*]
    }};
}}

pub const BASH: &str = committed!(\"completions/dormouse.bash\");
pub const ZSH: &str = committed!(\"completions/_dormouse\");
pub const FISH: &str = committed!(\"completions/dormouse.fish\");
pub const MAN: &[(&str, &str)] = texts! {{ \"man/\", \".1\":
{}
}};
pub const SCHEMAS: &[(&str, &str)] = texts! {{ \"schemas/\", \".json\":
{}
}};

#[cfg(test)]
mod tests;
",
        list("man/", ".1"),
        list("schemas/", ".json")
    )
}

#[test]
fn every_published_schema_has_its_text() {
    let names: Vec<&str> = super::SCHEMAS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.join(" "), cli::SCHEMAS);
}
