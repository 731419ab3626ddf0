//! Templates of `create --template`: agents with a commented turn script, ready to run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engine::new_file::NewFile;
use crate::error::{Error, IoContext, Result};
use crate::model::id::AgentName;

pub struct Template {
    pub name: &'static str,
    /// Default description of the agent.
    pub description: &'static str,
    /// Lines of the new `agent.toml` that follow `command` in `[turn]`.
    pub settings: &'static str,
    script: &'static str,
    /// Message text in the `ask` command that `create` suggests to the user.
    pub first_words: &'static str,
}

macro_rules! template {
    ($name:literal, $description:literal, $first_words:literal) => {
        Template {
            name: $name,
            description: $description,
            settings: include_str!(concat!("templates/", $name, ".toml")),
            script: include_str!(concat!("templates/", $name, ".sh")),
            first_words: $first_words,
        }
    };
}

/// Templates in the order of `cli::TEMPLATES`.
const ALL: &[Template] = &[
    template!("script", "Runs a script for each message", "hello"),
    template!("llm", "Asks a language model", "hello"),
    template!("reviewer", "Reviews commits", "HEAD"),
    template!("nightly", "Works every night", "begin"),
];

pub fn named(name: &str) -> Option<&'static Template> {
    ALL.iter().find(|template| template.name == name)
}

/// Returns the file name of an agent's turn script.
pub fn script_name(agent: &AgentName) -> String {
    format!("{agent}.sh")
}

/// Writes the script of a template into `home`. An existing file with identical text is kept,
/// because a killed command may have left it; any other existing file is refused. Returns the path
/// of the script, and the file if it is new.
pub fn write_script(
    template: &Template,
    home: &Path,
    agent: &AgentName,
) -> Result<(PathBuf, Option<NewFile>)> {
    let path = home.join(script_name(agent));
    let new = NewFile::write(&path, 0o777, template.script.as_bytes())?;
    if new.is_none() {
        let found = fs::symlink_metadata(&path).context("look at", &path)?;
        let is_same = found.is_file()
            && found.len() == template.script.len() as u64
            && fs::read(&path).context("read", &path)? == template.script.as_bytes();
        if !is_same {
            let message = format!("{} exists already, and is not from this template", path.display());
            return Err(Error::refused("script_exists", message).with_hint(
                "it stays as it is: run it with `-- ./FILE` in place of --template, or name the agent \
                 otherwise",
            ));
        }
    }
    Ok((path, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_lists_exactly_the_templates() {
        let names: Vec<&str> = ALL.iter().map(|template| template.name).collect();
        assert_eq!(names, crate::cli::TEMPLATES);
    }
}
