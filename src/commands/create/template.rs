//! `create --template`: agents that work at once, each with a turn script that explains itself.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engine::new_file::NewFile;
use crate::error::{Context, Error, Result};
use crate::model::id::AgentName;

pub struct Template {
    name: &'static str,
    /// What the agent is for, where the command line says nothing else.
    pub description: &'static str,
    /// What follows the command in `[turn]`.
    pub settings: &'static str,
    script: &'static str,
    /// What to say to such an agent first.
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

/// In the order of `cli::TEMPLATES`.
const ALL: &[Template] = &[
    template!("script", "Runs a script for each message", "hello"),
    template!("llm", "Asks a language model", "hello"),
    template!("reviewer", "Reviews commits", "HEAD"),
    template!("nightly", "Works every night", "begin"),
];

/// The template of this name.
pub fn named(name: &str) -> Option<&'static Template> {
    ALL.iter().find(|template| template.name == name)
}

/// The turn script of a new agent. A file that was made for it goes with this value, unless it is
/// kept.
pub struct Script {
    pub path: PathBuf,
    new: Option<NewFile>,
}

/// What the script of an agent is called, in the directory that its turns run in.
pub fn script_name(agent: &AgentName) -> String {
    format!("{agent}.sh")
}

impl Script {
    /// Puts the script of a template into `home`. A file that is there already is left alone: it
    /// may be the same one, as a command that was killed leaves it; any other is refused.
    pub fn write(template: &Template, home: &Path, agent: &AgentName) -> Result<Script> {
        let path = home.join(script_name(agent));
        let new = NewFile::write(&path, 0o777, template.script.as_bytes())?;
        if new.is_none() {
            let found = fs::symlink_metadata(&path).context("look at", &path)?;
            let is_same = found.is_file()
                && found.len() == template.script.len() as u64
                && fs::read(&path).context("read", &path)? == template.script.as_bytes();
            if !is_same {
                let message = format!("{} is there already, and not from this template", path.display());
                return Err(Error::refused("script_exists", message).with_hint(
                    "it stays as it is: run it with `-- ./FILE` in place of --template, or name the agent \
                     otherwise",
                ));
            }
        }
        Ok(Script { path, new })
    }

    /// An agent runs it from now on.
    pub fn keep(&mut self) {
        self.new.iter_mut().for_each(NewFile::keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_that_can_be_named_is_there() {
        let names: Vec<&str> = ALL.iter().map(|template| template.name).collect();
        assert_eq!(names, crate::cli::TEMPLATES);
    }
}
