//! A trigger's secret between its creation and the caller who asked for it. It is shown once, in
//! one place.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::model::digest::sha256;
use crate::model::trigger::Verify;
use crate::report::output::Output;
use crate::rules::signature;
use crate::store::Store;

use super::new_file::{NewFile, refuse_within};
use super::session::Session;

/// A new secret. Only its hash is stored.
pub struct Secret {
    word: String,
    place: SecretPlace,
}

/// The one place where the secret can be found.
enum SecretPlace {
    /// The output of the command.
    Shown,
    File(NewFile),
    /// The system that made it.
    Sender,
}

impl Secret {
    /// Creates a random secret. With `into`, it is written to that file durably before any trigger
    /// depends on it, so that no crash can lose the secret of a trigger. Dropping this value
    /// removes the file, unless `keep` was called.
    ///
    /// `verify`: the way in which deliveries prove it, which determines its format.
    pub fn draw(session: &Session, store: &Store, verify: &Verify, into: Option<&Path>) -> Result<Secret> {
        let word = signature::new_secret(verify, session.clock.secret()?);
        let place = match into {
            Some(path) => SecretPlace::File(secret_file(store, path, &word)?),
            None => SecretPlace::Shown,
        };
        Ok(Secret { word, place })
    }

    /// Wraps a secret that the sender has made.
    pub fn given(verify: &Verify, word: String) -> Result<Secret> {
        signature::check_secret(verify, &word)
            .map_err(|why| Error::usage(format!("--secret-from: the secret can't be used: {why}")))?;
        Ok(Secret { word, place: SecretPlace::Sender })
    }

    /// True if the secret is short enough to be guessed.
    pub fn is_short(&self) -> bool {
        self.word.len() < 16
    }

    /// True if the command prints the secret.
    pub fn is_shown(&self, out: &Output) -> bool {
        matches!(self.place, SecretPlace::Shown) && !out.is_quiet()
    }

    pub fn sha256(&self) -> String {
        sha256(self.word.as_bytes())
    }

    /// Returns the secret itself, for a key that has to be stored.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Keeps the file, because a trigger now depends on the secret.
    pub fn keep(&mut self) {
        match &mut self.place {
            SecretPlace::File(file) => file.keep(),
            SecretPlace::Shown | SecretPlace::Sender => {}
        }
    }

    /// Adds the secret, or the file in which it is, to the JSON output under `field`.
    pub fn add_to(&self, object: &mut Value, field: &str, out: &Output) {
        match &self.place {
            SecretPlace::File(file) => object["secret_file"] = json!(file.path().to_string_lossy()),
            SecretPlace::Shown if out.is_quiet() => {}
            SecretPlace::Shown => object[field] = json!(self.word),
            SecretPlace::Sender => {}
        }
    }

    /// Returns the secret, or the file in which it is, as a line of text; empty if the sender has
    /// it.
    pub fn line(&self, out: &Output) -> String {
        match &self.place {
            _ if out.is_quiet() => String::new(),
            SecretPlace::File(file) => format!("secret  in {}", out.safe(&file.path().to_string_lossy())),
            SecretPlace::Sender => "secret  as the sender has made it".to_owned(),
            SecretPlace::Shown if out.is_on_terminal() => format!("secret  {}", self.word),
            // On a pipe it could end up in a log or a mail of cron.
            SecretPlace::Shown => {
                "secret  not shown in a pipe: --secret-file FILE keeps it, or --json shows it".to_owned()
            }
        }
    }
}

/// Creates a file with a secret, which only its owner can read.
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
