//! Stores at a URL, if this program was built with database support.

use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};

use super::super::backend::{DatabaseRole, RemoteBackend};

/// True if a word is the URL of a database, and not the path of a directory.
pub fn is_url(word: &str) -> bool {
    word.starts_with("postgres://") || word.starts_with("postgresql://")
}

/// Returns a URL for display, without secrets and in one form for all URLs of a database.
pub fn shown_url(url: &str) -> Result<String> {
    Ok(open(url, Duration::ZERO)?.shown())
}

#[cfg(feature = "postgres")]
mod built {
    use super::super::super::postgres::{Postgres, Url};
    use super::{DatabaseRole, Duration, Error, Rc, RemoteBackend, Result};

    fn parsed(url: &str) -> Result<Url> {
        Url::parse(url).map_err(Error::usage)
    }

    /// Minimum timeout for an answer of the server, even for a command that does not wait for
    /// locks.
    const ANSWERS: Duration = Duration::from_secs(5);

    /// Opens the store at a URL. Sends no request to the server yet.
    pub fn open(url: &str, patience: Duration) -> Result<Rc<dyn RemoteBackend>> {
        Ok(Rc::new(Postgres::open(parsed(url)?, patience.max(ANSWERS))))
    }

    /// Creates the store at a URL. Returns true if the store is new.
    pub fn init(url: &str, patience: Duration) -> Result<bool> {
        Postgres::init(parsed(url)?, patience.max(ANSWERS))
    }

    /// Gives the database role `role` the permissions of `part` on the store at a URL.
    pub fn grant(url: &str, patience: Duration, part: DatabaseRole, role: &str) -> Result<()> {
        Postgres::grant(parsed(url)?, patience.max(ANSWERS), part, role)
    }
}

#[cfg(not(feature = "postgres"))]
mod built {
    use super::{DatabaseRole, Duration, Error, Rc, RemoteBackend, Result};

    fn missing<T>() -> Result<T> {
        Err(Error::usage("this dormouse was built without PostgreSQL")
            .with_hint("build it without `--no-default-features`, or name a directory"))
    }

    pub fn open(_url: &str, _patience: Duration) -> Result<Rc<dyn RemoteBackend>> {
        missing()
    }

    pub fn init(_url: &str, _patience: Duration) -> Result<bool> {
        missing()
    }

    pub fn grant(_url: &str, _patience: Duration, _part: DatabaseRole, _role: &str) -> Result<()> {
        missing()
    }
}

pub use built::{grant, init, open};
