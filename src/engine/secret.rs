//! A secret on its way to the caller who asked for it: shown once, in one place, and nowhere else.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::model::digest::sha256;
use crate::report::output::Output;
use crate::store::Store;

use super::new_file::{NewFile, refuse_within};
use super::session::Session;

/// A new secret. What is stored of it is its hash.
pub struct Secret {
    word: String,
    file: Option<NewFile>,
}

impl Secret {
    /// Draws a secret. If a file is named, the secret is in it, durably, before anything depends on it:
    /// whatever is cut off or fails later, no trigger has a secret that was lost. Dropping this value removes
    /// the file, unless `keep` was called.
    pub fn draw(session: &Session, store: &Store, into: Option<&Path>) -> Result<Secret> {
        let word = session.clock.secret()?;
        let file = into.map(|path| secret_file(store, path, &word)).transpose()?;
        Ok(Secret { word, file })
    }

    pub fn sha256(&self) -> String {
        sha256(self.word.as_bytes())
    }

    /// The secret itself, for a key that has to be stored.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Keeps the file: a trigger depends on the secret from now on.
    pub fn keep(&mut self) {
        self.file.iter_mut().for_each(NewFile::keep);
    }

    /// Adds it to the object that a command prints, under `field`, or the file in which it is.
    pub fn add_to(&self, object: &mut Value, field: &str, out: &Output) {
        match &self.file {
            Some(file) => object["secret_file"] = json!(file.path().to_string_lossy()),
            None if out.is_quiet() => {}
            None => object[field] = json!(self.word),
        }
    }

    /// The same as a line of text, where there is one.
    pub fn line(&self, out: &Output) -> String {
        match &self.file {
            _ if out.is_quiet() => String::new(),
            Some(file) => format!("secret  in {}", out.safe(&file.path().to_string_lossy())),
            None if out.is_on_terminal() => format!("secret  {}", self.word),
            // It would be in a log, or in the mail of cron.
            None => "secret  not shown in a pipe: --secret-file FILE keeps it, or --json shows it".to_owned(),
        }
    }
}

/// A new file with a secret in it, for its owner alone.
fn secret_file(store: &Store, path: &Path, word: &str) -> Result<NewFile> {
    if path == Path::new("-") {
        return Err(Error::usage("--secret-file: `-` is no file").with_hint("for stdout there is --json"));
    }
    let hint = "that is cloned and shared: put the secret somewhere else";
    refuse_within(store, path, "--secret-file", hint)?;
    NewFile::write(path, 0o600, format!("{word}\n").as_bytes())?.ok_or_else(|| {
        Error::refused("secret_file_exists", format!("--secret-file: {} is there already", path.display()))
            .with_hint("a secret is never written over anything: name a new file, or remove that one")
    })
}
