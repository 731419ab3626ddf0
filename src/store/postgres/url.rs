//! Address of a store: `postgres://user@host:port/database?schema=team&sslmode=verify-full`.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::model::digest;

const PORT: u16 = 5432;

/// Directory of the server's socket in the packages of most Linux distributions.
const SOCKETS: &str = "/var/run/postgresql";

const SCHEMA: &str = "dormouse";

const NO_PASSWORD: &str = "a URL must not hold a password: put it into PGPASSWORD, or into a file that only you can read \
                           (~/.pgpass, or what PGPASSFILE names)";

/// Default timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Address of a store without a password, because it is displayed, passed to turns, and stored in
/// settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) user: Option<String>,
    pub(super) database: String,
    schema: String,
    pub(super) tls: Tls,
    /// File of root certificates in PEM; `None` for the root certificates that the system trusts.
    pub(super) roots: Option<String>,
    pub(super) connect_timeout: Duration,
}

/// Host of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// Directory of the server's Unix socket.
    Socket(String),
    Address(IpAddr),
    /// Host name in lower case.
    Name(String),
}

impl Host {
    /// True if no data leaves this machine. The name `localhost` is included, because `connect`
    /// accepts only loopback addresses for that name.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Host::Socket(_) => true,
            Host::Address(address) => address.to_canonical().is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Host::Socket(text) | Host::Name(text) => text.clone(),
            Host::Address(address) => address.to_string(),
        }
    }
}

/// Required level of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tls {
    Disable,
    /// TLS is used, but no certificate is checked. Protects against eavesdroppers only.
    Require,
    /// A trusted authority has signed the server's certificate, for any name.
    VerifyCa,
    /// A trusted authority has signed the server's certificate for the name or address in the URL.
    VerifyFull,
}

impl Tls {
    fn word(self) -> &'static str {
        match self {
            Tls::Disable => "disable",
            Tls::Require => "require",
            Tls::VerifyCa => "verify-ca",
            Tls::VerifyFull => "verify-full",
        }
    }

    fn read(word: &str) -> Result<Tls, String> {
        let all = [Tls::Disable, Tls::Require, Tls::VerifyCa, Tls::VerifyFull];
        all.into_iter().find(|mode| mode.word() == word).ok_or_else(|| {
            format!("sslmode is one of disable, require, verify-ca and verify-full, and not `{word}`")
        })
    }
}

impl Url {
    /// Parses a URL. The error is a sentence for the user, and never contains a password.
    pub fn parse(text: &str) -> Result<Url, String> {
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or("a store in PostgreSQL begins with postgres://")?;
        if rest.contains('#') {
            return Err("a URL of PostgreSQL has no part after `#`; write %23 for the sign itself".to_owned());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(format!("{NO_PASSWORD}, and write postgres://user@host/database"));
        }
        let user = user.map(decode).transpose()?.filter(|user| !user.is_empty());
        let (host, port) = place_of(place)?;
        let parameters = parameters(query)?;
        let given = |name: &str| parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        let host = only_one("host", host, given("host").cloned())?;
        let port = only_one("port", port, given("port").map(|port| port_of(port)).transpose()?)?;
        let host = host_of(host.as_deref().unwrap_or(SOCKETS))?;
        let database = decode(database)?;
        if database.is_empty() || database.contains('/') {
            return Err("the URL has to name the database: postgres://host/database".to_owned());
        }
        let schema = given("schema").cloned().unwrap_or_else(|| SCHEMA.to_owned());
        check_schema(&schema)?;
        let roots = given("sslrootcert").filter(|roots| *roots != "system").cloned();
        let tls = tls_of(&host, given("sslmode"), given("sslrootcert").is_some())?;
        let connect_timeout =
            given("connect_timeout").map_or(Ok(CONNECT_TIMEOUT), |text| timeout_of(text))?;
        let port = port.unwrap_or(PORT);
        let url = Url { host, port, user, database, schema, tls, roots, connect_timeout };
        let texts = [url.user.as_ref(), Some(&url.database), url.roots.as_ref(), Some(&url.host.text())];
        if texts.into_iter().flatten().any(|text| text.contains(char::is_control)) {
            return Err("a URL of PostgreSQL has no control characters in it".to_owned());
        }
        Ok(url)
    }

    /// Returns the schema of the store.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Returns the canonical text, without default values except the schema. Parsing it returns an
    /// equal URL.
    pub fn shown(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("{}@", encode(user))).unwrap_or_default();
        let host = match &self.host {
            Host::Socket(_) => String::new(),
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            Host::Address(_) | Host::Name(_) => encode(&self.host.text()),
        };
        let port = if self.port == PORT { String::new() } else { format!(":{}", self.port) };
        let (database, schema) = (encode(&self.database), &self.schema);
        let mut shown = format!("postgres://{user}{host}{port}/{database}?schema={schema}");
        if let Host::Socket(directory) = &self.host
            && directory != SOCKETS
        {
            let _ = write!(shown, "&host={}", encode(directory));
        }
        if Ok(self.tls) != tls_of(&self.host, None, self.roots.is_some()) {
            let _ = write!(shown, "&sslmode={}", self.tls.word());
        }
        if let Some(roots) = &self.roots {
            let _ = write!(shown, "&sslrootcert={}", encode(roots));
        }
        if self.connect_timeout != CONNECT_TIMEOUT {
            let _ = write!(shown, "&connect_timeout={}ms", self.connect_timeout.as_millis());
        }
        shown
    }
}

/// Returns the host or port. Error if the URL has it both before the path and as a parameter.
fn only_one<T>(what: &str, in_place: Option<T>, parameter: Option<T>) -> Result<Option<T>, String> {
    if in_place.is_some() && parameter.is_some() {
        return Err(format!("the {what} is given twice, before the path and as `{what}=`"));
    }
    Ok(in_place.or(parameter))
}

/// Parses the host and the port of a URL, between `//` and `/`.
fn place_of(place: &str) -> Result<(Option<String>, Option<u16>), String> {
    if place.contains(',') {
        return Err("the URL names one host; put a name or an address in front of several servers".to_owned());
    }
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("an IPv6 address needs brackets: [::1]:5432")?;
            if !rest.is_empty() && !rest.starts_with(':') {
                return Err("write `:port` or `/` after an IPv6 address in brackets".to_owned());
            }
            (host, rest.strip_prefix(':').unwrap_or(rest))
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let host = decode(host)?;
    let port = (!port.is_empty()).then(|| port_of(port)).transpose()?;
    Ok(((!host.is_empty()).then_some(host), port))
}

fn port_of(text: &str) -> Result<u16, String> {
    let port = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let wrong = || format!("a port is a number from 1 to 65535, and not `{text}`");
    port.filter(|port| *port != 0).ok_or_else(wrong)
}

fn host_of(text: &str) -> Result<Host, String> {
    if text.starts_with('/') {
        let directory = text.trim_end_matches('/');
        return Ok(Host::Socket(if directory.is_empty() { "/" } else { directory }.to_owned()));
    }
    if let Ok(address) = text.parse() {
        return Ok(Host::Address(address));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.len() > 253 || !text.chars().all(fits) {
        return Err(format!("`{text}` is no host: a name, an address, or the directory of a unix socket"));
    }
    Ok(Host::Name(text.to_ascii_lowercase()))
}

/// Returns the level of TLS. The default is the strictest, unless no data leaves this machine.
fn tls_of(host: &Host, asked: Option<&String>, names_roots: bool) -> Result<Tls, String> {
    let mode = match asked {
        Some(word) => Tls::read(word)?,
        None if names_roots => Tls::VerifyFull,
        None if host.is_here() => Tls::Disable,
        None => Tls::VerifyFull,
    };
    if matches!(host, Host::Socket(_)) && mode != Tls::Disable {
        return Err("a unix socket has no TLS: leave sslmode and sslrootcert out".to_owned());
    }
    if names_roots && matches!(mode, Tls::Disable | Tls::Require) {
        let word = mode.word();
        return Err(format!(
            "sslrootcert has no meaning with sslmode={word}: write sslmode=verify-full, or leave it out"
        ));
    }
    Ok(mode)
}

/// Parses a duration with a unit (`10s`, `500ms`), or a number of seconds.
fn timeout_of(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u32>().map(|seconds| Duration::from_secs(seconds.into()));
    let parsed = seconds.ok().or_else(|| humantime::parse_duration(text).ok());
    let fits = |time: &Duration| (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(time);
    let wrong = || format!("connect_timeout is a time like 10s, between 1ms and 1h, and not `{text}`");
    parsed.filter(fits).ok_or_else(wrong)
}

/// Refuses schema names that SQL changes unless they are quoted.
fn check_schema(schema: &str) -> Result<(), String> {
    let begins = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if !begins || schema.len() > 63 || !schema.bytes().all(fits) {
        return Err(format!(
            "`{schema}` is no schema for dormouse: use up to 63 of a-z, 0-9 and _, without a digit in front"
        ));
    }
    if schema.starts_with("pg_") || schema == "information_schema" {
        return Err(format!("`{schema}` is the server's own: choose another schema"));
    }
    Ok(())
}

/// Parses the parameters after `?`. Error if a parameter is unknown or occurs twice.
fn parameters(query: &str) -> Result<Vec<(&'static str, String)>, String> {
    const KNOWN: [&str; 6] = ["schema", "host", "port", "sslmode", "sslrootcert", "connect_timeout"];
    let mut parameters: Vec<(&'static str, String)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let name = decode(name)?;
        if name == "password" {
            return Err(NO_PASSWORD.to_owned());
        }
        let Some(known) = KNOWN.into_iter().find(|known| *known == name) else {
            return Err(format!("`{name}` is no parameter here; there are {}", KNOWN.join(", ")));
        };
        if parameters.iter().any(|(before, _)| *before == known) {
            return Err(format!("`{known}` is given twice"));
        }
        let value = decode(value)?;
        if value.is_empty() {
            return Err(format!("`{known}=` has no value"));
        }
        parameters.push((known, value));
    }
    Ok(parameters)
}

/// Decodes percent-encoded bytes such as `%2F`.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("in `{text}`, `%` is not followed by two digits of a byte in hexadecimal");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(wrong)?;
        bytes.extend(digest::bytes(digits).ok_or_else(wrong)?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| format!("`{text}` is not UTF-8 after its `%` are resolved"))
}

/// Encodes a text for a part of a URL.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
