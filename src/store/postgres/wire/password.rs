//! Sources of a password: `PGPASSWORD`, or a file that only its owner can read; never the URL.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::super::url::{Host, Url};
use super::fault::{WireFault, unfit};
use super::files;
use crate::error::describe;

/// Password and path of the password file, from the environment.
pub(super) struct Sources {
    password: Option<OsString>,
    file: Option<PathBuf>,
}

impl Sources {
    /// Reads the environment variables that other PostgreSQL clients read, too.
    pub(super) fn of_environment() -> Sources {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = set("PGPASSFILE").map(PathBuf::from);
        let file = file.or_else(|| Some(Path::new(&set("HOME")?).join(".pgpass")));
        Sources { password: set("PGPASSWORD"), file }
    }

    #[cfg(test)]
    pub(super) fn of(password: Option<&str>, file: Option<&Path>) -> Sources {
        Sources { password: password.map(OsString::from), file: file.map(Path::to_owned) }
    }

    /// Returns the password for a login.
    pub(super) fn find(&self, url: &Url, user: &str) -> Result<Vec<u8>, WireFault> {
        if let Some(password) = &self.password {
            return Ok(std::os::unix::ffi::OsStrExt::as_bytes(password.as_os_str()).to_vec());
        }
        let missing = |looked: &str| {
            unfit(format!(
                "the server wants a password for {user}, and there is none: set PGPASSWORD, or write \
                 HOST:PORT:DATABASE:USER:PASSWORD into {looked} and make it readable to you alone (chmod 0600)"
            ))
        };
        let Some(path) = &self.file else { return missing("~/.pgpass") };
        let shown = path.display().to_string();
        let (contents, mode) = match files::read(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return missing(&shown),
            Err(error) => return unfit(format!("can't read {shown}: {}", describe(&error))),
        };
        // Other users may have read the passwords, or may have replaced a password by their own.
        if mode & 0o077 != 0 {
            let mode = mode & 0o777;
            return unfit(format!(
                "{shown} holds passwords and has mode {mode:04o}: make it readable to you alone (chmod 0600)"
            ));
        }
        let Ok(text) = String::from_utf8(contents) else {
            return unfit(format!("{shown} holds passwords and is not UTF-8"));
        };
        in_file(&text, url, user).map_or_else(|| missing(&shown), |password| Ok(password.into_bytes()))
    }
}

/// Returns the password in the first matching line of a password file.
fn in_file(text: &str, url: &Url, user: &str) -> Option<String> {
    let (host, port) = (url.host.text(), url.port.to_string());
    let is_socket = matches!(url.host, Host::Socket(_));
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let [its_host, its_port, database, its_user, password] = fields(line)?;
        let fits = |pattern: &str, value: &str| pattern == "*" || plain(pattern) == value;
        // Other clients, too, look for `localhost` in the password file for a local socket.
        let fits_host = fits(&its_host, &host.to_lowercase())
            || fits(&its_host, &host)
            || is_socket && plain(&its_host) == "localhost";
        let is_it =
            fits_host && fits(&its_port, &port) && fits(&database, &url.database) && fits(&its_user, user);
        is_it.then(|| plain(&password))
    })
}

/// Splits a password line into five fields, which keep their backslashes. A backslash escapes a
/// colon or a backslash.
fn fields(line: &str) -> Option<[String; 5]> {
    let mut fields = vec![String::new()];
    let mut is_escaped = false;
    for c in line.trim_end_matches('\r').chars() {
        if c == ':' && !is_escaped {
            fields.push(String::new());
            continue;
        }
        is_escaped = c == '\\' && !is_escaped;
        fields.last_mut()?.push(c);
    }
    <[String; 5]>::try_from(fields).ok().filter(|fields| !fields[4].is_empty())
}

/// Removes the backslashes that escape the next character.
fn plain(field: &str) -> String {
    let mut chars = field.chars();
    std::iter::from_fn(|| chars.next().map(|c| if c == '\\' { chars.next().unwrap_or(c) } else { c }))
        .collect()
}
