//! `create --template`: agents that work at once, each with a turn script that explains itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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

/// The turn script of a new agent. A file that was made for it goes with this value, unless it is kept.
pub struct Script {
    pub path: PathBuf,
    is_new: bool,
    is_kept: bool,
}

/// What the script of an agent is called, in the directory that its turns run in.
pub fn script_name(agent: &AgentName) -> String {
    format!("{agent}.sh")
}

impl Script {
    /// Puts the script of a template into `home`. A file that is there already is left alone: it may be the same one,
    /// as a command that was killed leaves it; any other is refused.
    pub fn write(template: &Template, home: &Path, agent: &AgentName) -> Result<Script> {
        let path = home.join(script_name(agent));
        match OpenOptions::new().write(true).create_new(true).mode(0o777).open(&path) {
            Ok(file) => {
                let script = Script { path, is_new: true, is_kept: false };
                script.fill(file, template.script)?;
                Ok(script)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = fs::symlink_metadata(&path).context("look at", &path)?;
                let is_same = found.is_file()
                    && found.len() == template.script.len() as u64
                    && fs::read(&path).context("read", &path)? == template.script.as_bytes();
                if is_same {
                    return Ok(Script { path, is_new: false, is_kept: false });
                }
                Err(Error::Refused {
                    kind: "script_exists",
                    message: format!("{} is there already, and not from this template", path.display()),
                    hint: Some(
                        "it stays as it is: run it with `-- ./FILE` in place of --template, or name the agent otherwise"
                            .to_owned(),
                    ),
                })
            }
            Err(error) => Err(error).context("create", &path),
        }
    }

    fn fill(&self, mut file: File, text: &str) -> Result<()> {
        file.write_all(text.as_bytes()).context("write", &self.path)?;
        file.sync_all().context("sync", &self.path)
    }

    /// An agent runs it from now on.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if self.is_new && !self.is_kept {
            // No agent runs it: the error that got us here is the one worth telling.
            let _ = fs::remove_file(&self.path);
        }
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
