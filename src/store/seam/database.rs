//! The stores that a URL names, if this program was built with them.

use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};

use super::super::elsewhere::{Backend, DatabaseRole};

/// True if a word names a store in a database, and no directory.
pub fn is_url(word: &str) -> bool {
    word.starts_with("postgres://") || word.starts_with("postgresql://")
}

#[cfg(feature = "postgres")]
mod built {
    use super::super::super::postgres::{Postgres, Url};
    use super::{Backend, DatabaseRole, Duration, Error, Rc, Result};

    fn parsed(url: &str) -> Result<Url> {
        Url::parse(url).map_err(Error::usage)
    }

    /// A URL as it is shown, without what should not be: two that mean the same are shown alike.
    pub fn shown(url: &str) -> Result<String> {
        Ok(parsed(url)?.shown())
    }

    /// Minimum timeout of an answer of the server, also for a command that waits for no lock.
    const ANSWERS: Duration = Duration::from_secs(5);

    /// The store that a URL names. Nothing is asked of the server yet.
    pub fn open(url: &str, patience: Duration) -> Result<Rc<dyn Backend>> {
        Ok(Rc::new(Postgres::open(parsed(url)?, patience.max(ANSWERS))))
    }

    /// Makes the store that a URL names. Returns whether it is new.
    pub fn init(url: &str, patience: Duration) -> Result<bool> {
        Postgres::init(parsed(url)?, patience.max(ANSWERS))
    }

    /// Lets a role of the database be something to the store that a URL names.
    pub fn grant(url: &str, patience: Duration, part: DatabaseRole, role: &str) -> Result<()> {
        Postgres::grant(parsed(url)?, patience.max(ANSWERS), part, role)
    }
}

#[cfg(not(feature = "postgres"))]
mod built {
    use super::{Backend, DatabaseRole, Duration, Error, Rc, Result};

    fn missing<T>() -> Result<T> {
        Err(Error::usage("this dormouse was built without PostgreSQL")
            .with_hint("build it without `--no-default-features`, or name a directory"))
    }

    pub fn shown(_url: &str) -> Result<String> {
        missing()
    }

    pub fn open(_url: &str, _patience: Duration) -> Result<Rc<dyn Backend>> {
        missing()
    }

    pub fn init(_url: &str, _patience: Duration) -> Result<bool> {
        missing()
    }

    pub fn grant(_url: &str, _patience: Duration, _part: DatabaseRole, _role: &str) -> Result<()> {
        missing()
    }
}

pub use built::{grant, init, open, shown};
