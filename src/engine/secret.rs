//! Secret of a trigger, from its creation until the caller has it. The secret is given out once, in
//! a file or in the output.

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

/// New secret of a trigger. The store gets its hash only, unless signatures need the secret as key.
pub struct Secret {
    word: String,
    place: SecretPlace,
}

/// Place where the caller finds the secret.
enum SecretPlace {
    /// The command prints the secret in its output.
    Shown,
    File(NewFile),
    /// No place is needed: the system that sends the deliveries has made the secret.
    Sender,
}

impl Secret {
    /// Creates a random secret. With `into`, the secret is written to that file durably before a
    /// trigger depends on it, so that a crash can't lose it. Dropping this value removes the file,
    /// unless `keep` was called.
    ///
    /// `verify`: scheme by which deliveries prove the secret, which determines its format.
    pub fn draw(session: &Session, store: &Store, verify: &Verify, into: Option<&Path>) -> Result<Secret> {
        let word = signature::new_secret(verify, session.clock.secret()?);
        let place = match into {
            Some(path) => SecretPlace::File(secret_file(store, path, &word)?),
            None => SecretPlace::Shown,
        };
        Ok(Secret { word, place })
    }

    /// Wraps a secret that the sender has made. Error when the scheme can't use it.
    pub fn given(verify: &Verify, word: String) -> Result<Secret> {
        signature::check_secret(verify, &word)
            .map_err(|why| Error::usage(format!("--secret-from: the secret can't be used: {why}")))?;
        Ok(Secret { word, place: SecretPlace::Sender })
    }

    /// True if the calling command prints the trigger's secret in its output.
    pub fn is_shown(&self, out: &Output) -> bool {
        matches!(self.place, SecretPlace::Shown) && !out.is_quiet()
    }

    pub fn sha256(&self) -> String {
        sha256(self.word.as_bytes())
    }

    /// Returns the secret itself, for schemes whose key has to be stored.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Keeps the file when this value is dropped, because a trigger now depends on the secret.
    pub fn keep(&mut self) {
        match &mut self.place {
            SecretPlace::File(file) => file.keep(),
            SecretPlace::Shown | SecretPlace::Sender => {}
        }
    }

    /// Adds the secret as `field`, or the path of its file, to JSON output.
    pub fn add_to(&self, object: &mut Value, field: &str, out: &Output) {
        match &self.place {
            SecretPlace::File(file) => object["secret_file"] = json!(file.path().to_string_lossy()),
            SecretPlace::Shown if out.is_quiet() => {}
            SecretPlace::Shown => object[field] = json!(self.word),
            SecretPlace::Sender => {}
        }
    }

    /// Returns a line of text with the secret, or with the path of its file; empty for quiet
    /// output.
    pub fn line(&self, out: &Output) -> String {
        match &self.place {
            _ if out.is_quiet() => String::new(),
            SecretPlace::File(file) => format!("secret  in {}", out.safe(&file.path().to_string_lossy())),
            SecretPlace::Sender => "secret  as the sender has made it".to_owned(),
            SecretPlace::Shown if out.is_on_terminal() => format!("secret  {}", self.word),
            // Output to a pipe may end up in a log or a cron mail, so it has no secret.
            SecretPlace::Shown => {
                "secret  not shown in a pipe: --secret-file FILE keeps it, or --json shows it".to_owned()
            }
        }
    }
}

/// Creates a file with a secret, readable only by its owner. Error when the file exists.
fn secret_file(store: &Store, path: &Path, word: &str) -> Result<NewFile> {
    if path == Path::new("-") {
        return Err(
            Error::usage("--secret-file: `-` is no file").with_hint("--json prints the secret to stdout")
        );
    }
    let hint = "that is cloned and shared: put the secret somewhere else";
    refuse_within(store, path, "--secret-file", hint)?;
    NewFile::write(path, 0o600, format!("{word}\n").as_bytes())?.ok_or_else(|| {
        Error::refused("secret_file_exists", format!("--secret-file: {} is there already", path.display()))
            .with_hint("a secret overwrites no file: name a new one, or remove that one")
    })
}
