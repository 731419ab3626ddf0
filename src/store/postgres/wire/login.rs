//! Login on a new socket: TLS, authentication, and a check that the server is suitable.

use std::collections::BTreeMap;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::super::url::{Host, Tls, Url};
use super::connect::connect;
use super::fault::{WireFault, unfit};
use super::message;
use super::password::Sources;
use super::socket::{DialDeadline, Socket, SocketFault};
use super::tls;

/// Oldest major version of PostgreSQL that supports the statements of this store.
const OLDEST: u32 = 14;

/// Connects, starts TLS, and logs in. Returns the connection to a suitable server that is ready for
/// statements, and the process id of the server. A pooler reports an id of its own.
pub(super) fn log_in(
    url: &Url,
    sources: &Sources,
    deadline: DialDeadline,
) -> Result<(Socket, Option<i32>), WireFault> {
    let mut line = Socket::over(connect(url, deadline)?);
    let fault = |trouble: SocketFault| of_trouble(url, trouble);
    let mut binding = None;
    if url.tls != Tls::Disable {
        let client = tls::client(url)?;
        frontend::ssl_request(&mut line.outgoing);
        line.hand_over(deadline).map_err(fault)?;
        match line.one_byte(deadline).map_err(fault)? {
            b'S' => {}
            b'N' => {
                return unfit(format!(
                    "the server at {} has no TLS: turn it on there (ssl = on), or write sslmode=disable if nobody else \
                     is on the way to it",
                    url.host.text()
                ));
            }
            other => {
                let why = format_args!("{other:#04x} is no answer about TLS");
                return Err(fault(SocketFault::senseless(why)));
            }
        }
        let certificate = line.encrypt(client, deadline).map_err(fault)?;
        binding = tls::end_point(&certificate);
    }
    let user = user(url)?;
    let parameters = [
        ("user", &*user),
        ("database", &*url.database),
        ("client_encoding", "UTF8"),
        // SQL literals need this setting, which a database or role may turn off by default.
        ("standard_conforming_strings", "on"),
        ("application_name", "dormouse"),
    ];
    frontend::startup_message(parameters, &mut line.outgoing)
        .map_err(|error| WireFault::Unfit(format!("{}: {error}", url.shown())))?;
    let mut login = Login { url, sources, user, binding, deadline, line };
    login.authenticate()?;
    login.get_ready()
}

/// Returns the role for the login.
fn user(url: &Url) -> Result<String, WireFault> {
    let from = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = url.user.clone().or_else(|| ["PGUSER", "USER", "LOGNAME"].into_iter().find_map(from));
    user.map_or_else(
        || unfit("it is not known which user to log in as: write postgres://USER@… or set PGUSER"),
        Ok,
    )
}

/// Converts a socket fault before the first statement to a fault of the connection.
fn of_trouble(url: &Url, trouble: SocketFault) -> WireFault {
    let host = url.host.text();
    match trouble {
        SocketFault::Ended(why) => WireFault::Unreachable(format!("{host}: {why}")),
        SocketFault::Unfit(why) => WireFault::Unfit(format!("{host}: {why}")),
    }
}

/// Login in progress.
struct Login<'u> {
    url: &'u Url,
    sources: &'u Sources,
    user: String,
    binding: Option<Vec<u8>>,
    deadline: DialDeadline,
    line: Socket,
}

impl Login<'_> {
    fn next(&mut self) -> Result<Message, WireFault> {
        loop {
            let found = message::wait(&mut self.line, message::LONGEST_OF_STRANGER, self.deadline);
            let (message, _) = found.map_err(|trouble| self.fault(trouble))?;
            if let Message::ErrorResponse(body) = &message {
                let (refused, _) = message::refusal(body).map_err(|trouble| self.fault(trouble))?;
                return Err(refused_login(&self.url.host.text(), refused));
            }
            if !matches!(message, Message::NoticeResponse(_)) {
                return Ok(message);
            }
        }
    }

    fn fault(&self, trouble: impl Into<SocketFault>) -> WireFault {
        of_trouble(self.url, trouble.into())
    }

    fn out_of_order(&self) -> WireFault {
        self.fault(SocketFault::senseless("a message that has no place in a login"))
    }

    /// Answers the server's request for a password, if any, and waits until the server accepts the
    /// login. A second request is refused, because it could reveal the password after a SCRAM
    /// proof.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most messages have no place here, and more may be added"
    )]
    fn authenticate(&mut self) -> Result<(), WireFault> {
        match self.next()? {
            Message::AuthenticationOk => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                let is_trusted = matches!(self.url.host, Host::Socket(_));
                self.send_password(is_trusted, "as it is", |_, password| password)?;
            }
            Message::AuthenticationMd5Password(body) => {
                // From an MD5 answer, an eavesdropper can guess passwords, and an impostor can log
                // in. Neither is possible on this machine, and PgBouncer is often configured with
                // MD5.
                self.send_password(self.url.host.is_here(), "hashed with MD5", |user, password| {
                    md5_hash(user.as_bytes(), &password, body.salt()).into_bytes()
                })?;
            }
            Message::AuthenticationSasl(body) => self.prove_by_scram(&body)?,
            Message::AuthenticationGss
            | Message::AuthenticationKerberosV5
            | Message::AuthenticationScmCredential
            | Message::AuthenticationSspi => {
                return unfit(format!(
                    "the server wants {} to log in by Kerberos or the like: dormouse knows passwords (SCRAM) and what the \
                     server takes without one",
                    self.user
                ));
            }
            _ => return Err(self.out_of_order()),
        }
        let Message::AuthenticationOk = self.next()? else { return Err(self.out_of_order()) };
        Ok(())
    }

    /// Sends the password as `encode` returns it, if it is certain that the server gets it.
    /// `is_trusted`: true if that is certain without a checked certificate.
    fn send_password(
        &mut self,
        is_trusted: bool,
        how: &str,
        encode: impl FnOnce(&str, Vec<u8>) -> Vec<u8>,
    ) -> Result<(), WireFault> {
        if !is_trusted && self.url.tls != Tls::VerifyFull {
            return unfit(format!(
                "the server at {} wants the password {how}, and it is not certain who would get it: use scram-sha-256 there, or \
                 sslmode=verify-full",
                self.url.host.text()
            ));
        }
        let password = encode(&self.user, self.sources.find(self.url, &self.user)?);
        self.say(|buffer| frontend::password_message(&password, buffer))
    }

    /// Performs SCRAM: both sides prove that they know the password and, over TLS, that no third
    /// party intercepts the connection.
    fn prove_by_scram(&mut self, body: &AuthenticationSaslBody) -> Result<(), WireFault> {
        let (mut is_plain, mut is_bound) = (false, false);
        let mut mechanisms = body.mechanisms();
        while let Some(name) = mechanisms.next().map_err(|error| self.fault(error))? {
            is_plain |= name == SCRAM_SHA_256;
            is_bound |= name == SCRAM_SHA_256_PLUS;
        }
        let (mechanism, binding) = match self.binding.take() {
            Some(binding) if is_bound => (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(binding)),
            // `unrequested` shows a server that offered channel binding that its offer was removed.
            Some(_) if is_plain => (SCRAM_SHA_256, ChannelBinding::unrequested()),
            None if is_plain => (SCRAM_SHA_256, ChannelBinding::unsupported()),
            Some(_) | None => return unfit("the server knows no SCRAM-SHA-256, which it asks for"),
        };
        let password = self.sources.find(self.url, &self.user)?;
        let mut scram = ScramSha256::new(&password, binding);
        self.say(|buffer| frontend::sasl_initial_response(mechanism, scram.message(), buffer))?;
        let Message::AuthenticationSaslContinue(body) = self.next_of_scram()? else {
            return Err(self.out_of_order());
        };
        scram.update(body.data()).map_err(|error| self.fault(error))?;
        self.say(|buffer| frontend::sasl_response(scram.message(), buffer))?;
        let Message::AuthenticationSaslFinal(body) = self.next_of_scram()? else {
            return Err(self.out_of_order());
        };
        scram.finish(body.data()).or_else(|error| self.unproven(&format!(": {error}")))
    }

    /// Waits for the next message of SCRAM. Error if the server accepts the login before its proof.
    fn next_of_scram(&mut self) -> Result<Message, WireFault> {
        let message = self.next()?;
        if matches!(message, Message::AuthenticationOk) { self.unproven("") } else { Ok(message) }
    }

    fn unproven<T>(&self, why: &str) -> Result<T, WireFault> {
        let host = self.url.host.text();
        unfit(format!("{host}: the server has not shown that it knows the password{why}"))
    }

    fn say(&mut self, write: impl FnOnce(&mut BytesMut) -> std::io::Result<()>) -> Result<(), WireFault> {
        // The only possible error is a NUL in a text.
        write(&mut self.line.outgoing)
            .map_err(|error| WireFault::Unfit(format!("the password can't be sent: {error}")))?;
        self.line.hand_over(self.deadline).map_err(|trouble| self.fault(trouble))
    }

    /// Reads and checks the server's parameters, until the server is ready for statements.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most messages have no place here, and more may be added"
    )]
    fn get_ready(mut self) -> Result<(Socket, Option<i32>), WireFault> {
        let (mut parameters, mut backend) = (BTreeMap::new(), None);
        loop {
            match self.next()? {
                Message::ParameterStatus(body) => {
                    let (name, value) = (body.name().unwrap_or_default(), body.value().unwrap_or_default());
                    parameters.insert(name.to_owned(), value.to_owned());
                }
                Message::BackendKeyData(body) => backend = Some(body.process_id()),
                Message::ReadyForQuery(_) => break,
                _ => return Err(self.out_of_order()),
            }
        }
        let host = self.url.host.text();
        let given = |name: &str| parameters.get(name).map(String::as_str);
        let said = given("server_version").unwrap_or_default();
        if major_version(said).is_none_or(|major| major < OLDEST) {
            return unfit(format!("{host} is PostgreSQL {said}: dormouse needs version 14 or newer"));
        }
        if given("standard_conforming_strings") != Some("on") {
            return unfit(format!(
                "{host} has not standard_conforming_strings = on, so texts can't be quoted safely: turn it on for this \
                 server, database and role"
            ));
        }
        if let Some(encoding) = given("server_encoding").filter(|encoding| *encoding != "UTF8") {
            return unfit(format!(
                "the database {} keeps text in {encoding}: make one with ENCODING 'UTF8'",
                self.url.database
            ));
        }
        Ok((self.line, backend))
    }
}

/// Converts a refused login to a fault, which is `Unreachable` if a later attempt may succeed.
fn refused_login(host: &str, refused: WireFault) -> WireFault {
    // The server is starting or stopping, or has no free connections or memory, or PgBouncer has no
    // server.
    let passes =
        refused.code().is_some_and(|code| ["57P", "53", "08"].iter().any(|class| code.starts_with(class)));
    if passes { WireFault::Unreachable(format!("{host}: {refused}")) } else { refused }
}

/// Parses the major version: 15 of `15.6 (Debian 15.6-0+deb12u1)`, and 16 of `16beta1`.
fn major_version(text: &str) -> Option<u32> {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|major| *major < 10_000)
}
