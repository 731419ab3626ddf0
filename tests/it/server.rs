//! Starts a PostgreSQL server that all tests of a process share, and that ends with this process.
//!
//! The server of [`server`] does not sync, so that tests are fast. TLS uses the server's own
//! certificates. The unit tests of the PostgreSQL store include this file, too.

#![allow(dead_code, reason = "each of its users needs a part of it")]

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Maximum time that a test waits for an event that normally comes at once.
pub const LONG: Duration = Duration::from_secs(30);

/// Script that runs the server until its stdin ends, which happens when the test process has ended.
const WATCH: &str = r#"
    "$@" </dev/null & server=$!
    cat >/dev/null
    kill -QUIT "$server"; wait "$server"
    rm -rf "$0"
"#;

/// Linux namespace that this process keeps open.
pub type Namespace = Arc<OwnedFd>;

/// Moves the calling thread into the given namespaces.
pub fn enter(namespaces: &[Namespace]) -> io::Result<()> {
    for namespace in namespaces {
        // SAFETY: a system call that concerns the calling thread alone, and no memory.
        if unsafe { libc::setns(namespace.as_raw_fd(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// PostgreSQL server. Each test uses its own schema.
pub struct Server {
    socket_dir: PathBuf,
    port: u16,
    programs: PathBuf,
    /// Network namespace of the server, if it has its own. The Unix socket is reachable from all.
    network: Option<Namespace>,
    /// Stdins of the shells that run the server, close-on-exec. Closing the stdins ends the server.
    lives: Mutex<Vec<ChildStdin>>,
}

/// Returns the shared server, which does not sync. The first call starts it, and panics with the
/// name of a missing package.
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start("fsync = off\n"))
}

/// Returns a shared server that syncs its commits, which `doctor` demands.
pub fn durable() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(""))
}

impl Server {
    /// URL of a schema by Unix socket, for the role `dormouse`, the database owner and no
    /// superuser.
    pub fn url(&self, schema: &str) -> String {
        self.url_of("dormouse", schema)
    }

    /// URL of a schema by the Unix socket, for the role `user`.
    pub fn url_of(&self, user: &str, schema: &str) -> String {
        let dir = self.socket_dir.display();
        format!("postgres://{user}@/dormouse?schema={schema}&host={dir}&port={}", self.port)
    }

    /// URL by TCP, with more parameters (`&sslmode=require`). Roles: `trusted`, and with the
    /// password `secret` the roles `scram`, `hashed` (MD5) and `clear`.
    pub fn tcp_url(&self, user: &str, host: &str, more: &str) -> String {
        format!("postgres://{user}@{host}:{}/dormouse?schema=s{more}", self.port)
    }

    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// Path of the server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.socket_dir.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Network namespace of the server, if it has its own.
    pub fn network(&self) -> Option<&Namespace> {
        self.network.as_ref()
    }

    /// TCP port on 127.0.0.1, which is also part of the name of the Unix socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Certificate of the authority that has signed the server's certificate for `localhost`.
    pub fn roots(&self) -> PathBuf {
        self.socket_dir.join("ca.pem")
    }

    /// Runs SQL statements as a superuser. Returns the rows, with `|` between columns.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> Vec<String> {
        let output = self.psql("dormouse", statements).output().expect("psql");
        assert!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// Runs SQL statements as a superuser. Returns the rows, or the message of `psql` as an error.
    pub fn try_sql(&self, statements: &str) -> Result<Vec<String>, String> {
        let output = self.psql("dormouse", statements).output().expect("psql");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout).lines().map(str::to_owned).collect())
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Runs SQL statements as a role. Returns no rows, but the message of `psql` as an error.
    pub fn try_sql_as(&self, role: &str, statements: &str) -> Result<(), String> {
        let output = self.psql("dormouse", statements).args(["-U", role]).output().expect("psql");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// Opens a database session for many small statements.
    pub fn session(&self) -> Session {
        let mut psql = self.client("dormouse");
        let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql");
        let answers = BufReader::new(child.stdout.take().unwrap());
        Session { child, answers }
    }

    fn psql(&self, database: &str, statements: &str) -> Command {
        let mut psql = self.client(database);
        psql.arg("-c").arg(statements);
        psql
    }

    fn client(&self, database: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"]);
        psql.arg(&self.socket_dir).arg("-p").arg(self.port.to_string());
        psql
    }

    /// Starts a server with additional settings. The server ends with this process.
    pub fn start(settings: &str) -> Server {
        Server::start_in(None, settings)
    }

    /// Starts a server in the namespace `network`, if given, to which then every host may connect.
    pub fn start_in(network: Option<Namespace>, settings: &str) -> Server {
        let programs = programs();
        let dir = tempfile::Builder::new().prefix("dormouse-pg").tempdir().unwrap().keep();
        certificates(&dir);
        let data = dir.join("data");
        run(as_user(Command::new("true")));
        own(&dir);
        let mut init = Command::new(programs.join("initdb"));
        let options = "--no-sync --encoding=UTF8 --locale=C.UTF-8 --username=postgres --auth=trust";
        init.args(options.split(' ')).arg("-D").arg(&data);
        run(as_user(init));
        let (addresses, rights) = match network {
            Some(_) => ("*", "host all all samenet trust\n"),
            None => ("127.0.0.1", RIGHTS_OF_HOSTS),
        };
        std::fs::write(data.join("pg_hba.conf"), format!("{RIGHTS_BY_SOCKET}{rights}")).unwrap();
        let port = free_port();
        let own_settings = format!(
            "port = {port}\nlisten_addresses = '{addresses}'\nunix_socket_directories = '{0}'\n\
             max_connections = 200\nssl = on\nssl_cert_file = '{0}/server.pem'\nssl_key_file = '{0}/server.key'\n",
            dir.display()
        );
        append(&data.join("postgresql.conf"), &(own_settings + settings));
        own(&dir);
        let server = Server { socket_dir: dir, port, programs, network, lives: Mutex::default() };
        server.launch();
        server.prepare();
        server
    }

    /// Starts a read-only standby of this server. The standby ends with this process.
    pub fn standby(&self) -> Server {
        let dir = tempfile::Builder::new().prefix("dormouse-pg").tempdir().unwrap().keep();
        own(&dir);
        let mut copy = Command::new(self.programs.join("pg_basebackup"));
        copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-U", "postgres", "-h"]);
        copy.arg(&self.socket_dir).arg("-p").arg(self.port.to_string()).arg("-D").arg(dir.join("data"));
        run(as_user(copy));
        let port = free_port();
        let more = format!("port = {port}\nunix_socket_directories = '{}'\n", dir.display());
        append(&dir.join("data/postgresql.conf"), &more);
        let programs = self.programs.clone();
        let network = self.network.clone();
        let standby = Server { socket_dir: dir, port, programs, network, lives: Mutex::default() };
        standby.launch();
        standby.until_it_answers();
        standby
    }

    /// Waits until a standby has replayed all commits of this server.
    pub fn until_followed_by(&self, standby: &Server) {
        let here = self.sql("SELECT pg_current_wal_lsn()").remove(0);
        let is_there = format!("SELECT pg_last_wal_replay_lsn() >= '{here}'");
        standby.until_sql_returns(&is_there, "t");
    }

    #[track_caller]
    fn until_sql_returns(&self, query: &str, expected: &str) {
        let until = Instant::now() + LONG;
        while self.sql(query) != [expected] {
            assert!(Instant::now() < until, "{query} does not become {expected}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Disconnects this standby from its primary server.
    pub fn stop_following(&self) {
        self.sql("ALTER SYSTEM SET primary_conninfo = ''");
        self.sql("SELECT pg_reload_conf()");
        self.until_sql_returns("SELECT count(*) FROM pg_stat_wal_receiver", "0");
    }

    /// Turns this standby into a primary server.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), ["t"]);
    }

    /// Starts the processes of the server, which end with the test process.
    fn launch(&self) {
        let mut watch = Command::new("sh");
        let dir = &self.socket_dir;
        watch.args(["-c", WATCH]).arg(dir);
        watch.arg(self.programs.join("postgres")).arg("-D").arg(dir.join("data"));
        // Tests kill their own descendants, so the server must not be one of them.
        let mut start = Command::new("setsid");
        let watch = as_user(watch);
        start.arg("--fork").arg(watch.get_program()).args(watch.get_args()).current_dir("/");
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        start.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        if let Some(network) = self.network.clone() {
            // SAFETY: between fork and exec the closure makes a system call and allocates nothing.
            unsafe { start.pre_exec(move || enter(std::slice::from_ref(&network))) };
        }
        let mut started = start.spawn().expect("setsid (package util-linux)");
        self.lives.lock().unwrap().push(started.stdin.take().unwrap());
        started.wait().unwrap();
    }

    /// Shuts the server down in the mode `fast`, which reports the end to connected clients.
    pub fn shut_down(&self) {
        let mut stop = Command::new(self.programs.join("pg_ctl"));
        stop.args(["-w", "-m", "fast", "stop", "-D"]).arg(self.socket_dir.join("data"));
        run(as_user(stop));
    }

    /// Starts the server after [`Server::shut_down`].
    pub fn start_again(&self) {
        self.launch();
        self.until_it_answers();
    }

    /// Kills all processes of the server, starts it again, and returns when it answers.
    pub fn crash(&self) {
        self.kill();
        let until = Instant::now() + LONG * 2;
        loop {
            // A start fails while a killed process of the old server is still alive.
            self.launch();
            if self.answers_within(LONG / 10).is_ok() {
                return;
            }
            assert!(Instant::now() < until, "PostgreSQL does not come back:\n{}", self.log());
        }
    }

    /// Kills all processes of the server.
    pub fn kill(&self) {
        let note = std::fs::read_to_string(self.socket_dir.join("data/postmaster.pid")).unwrap();
        let first: i32 = note.lines().next().and_then(|pid| pid.trim().parse().ok()).unwrap();
        let send = |pid: i32, signal: Signal| {
            let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal);
        };
        // A suspended postmaster starts no more processes, so the list of its children is complete.
        send(first, Signal::STOP);
        let parent = |pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<i32>().ok()
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let others: Vec<i32> = pids.filter(|pid| parent(*pid) == Some(first)).collect();
        for pid in [first].into_iter().chain(others) {
            send(pid, Signal::KILL);
        }
    }

    fn until_it_answers(&self) {
        self.answers_within(LONG * 2)
            .unwrap_or_else(|said| panic!("PostgreSQL does not answer: {said}\n{}", self.log()));
    }

    /// Waits until the server answers a query. The error is the last message of `psql`.
    fn answers_within(&self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        loop {
            let asked = self.psql("postgres", "SELECT 1").output().expect("psql");
            if asked.status.success() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(String::from_utf8_lossy(&asked.stderr).into_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.socket_dir.join("log")).unwrap_or_default()
    }

    /// Waits until the server answers, and creates the roles and the database.
    fn prepare(&self) {
        self.until_it_answers();
        for sql in [
            "CREATE ROLE dormouse LOGIN; CREATE ROLE trusted LOGIN; CREATE ROLE scram LOGIN PASSWORD 'secret';
             CREATE ROLE clear LOGIN PASSWORD 'secret'; SET password_encryption = 'md5';
             CREATE ROLE hashed LOGIN PASSWORD 'secret'; CREATE ROLE bouncer SUPERUSER LOGIN",
            "CREATE DATABASE dormouse OWNER dormouse",
        ] {
            run(self.psql("postgres", sql));
        }
    }
}

pub struct Session {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Session {
    /// Runs a statement and returns its rows. Panics if the statement fails.
    pub fn ask(&mut self, statement: &str) -> Vec<String> {
        const END: &str = "-- that is all --";
        writeln!(self.child.stdin.as_mut().unwrap(), "{statement};\n\\echo '{END}'").expect("psql reads");
        let lines = (&mut self.answers).lines().map(|line| line.expect("a line"));
        let mut rows = Vec::new();
        for line in lines {
            if line == END {
                return rows;
            }
            rows.push(line);
        }
        panic!("{statement}: psql has ended");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// PgBouncer in transaction mode in front of a server. The user `me` with the password `secret`
/// becomes `dormouse` on the server. PgBouncer ends when this value is dropped.
pub struct Bouncer {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Bouncer {
    pub fn before(server: &Server) -> Bouncer {
        Bouncer::start(server, "scram-sha-256")
    }

    /// Starts a PgBouncer that asks for no password, in front of a server.
    pub fn trusting(server: &Server) -> Bouncer {
        Bouncer::start(server, "trust")
    }

    fn start(server: &Server, way: &str) -> Bouncer {
        let program = pgbouncer();
        let dir = tempfile::tempdir().unwrap();
        let (port, path) = (free_port(), dir.path().display());
        let settings = format!(
            "[databases]\ndormouse = host={} port={} user=dormouse\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir = {path}\nauth_type = {way}\nauth_file = {path}/users\n\
             pool_mode = transaction\ndefault_pool_size = 2\n",
            server.socket_dir().display(),
            server.port()
        );
        std::fs::write(dir.path().join("ini"), settings).unwrap();
        std::fs::write(dir.path().join("users"), "\"me\" \"secret\"\n").unwrap();
        own(dir.path());
        let mut command = Command::new(program);
        command.arg(dir.path().join("ini"));
        let mut command = as_user(command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Bouncer { child: command.spawn().unwrap(), dir, port }
    }

    /// URL of a schema by TCP. PgBouncer may need a moment until it accepts connections.
    pub fn url(&self, schema: &str) -> String {
        format!("postgres://me@127.0.0.1:{}/dormouse?schema={schema}", self.port)
    }

    /// Path of the Unix socket of PgBouncer.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(format!(".s.PGSQL.{}", self.port))
    }

    /// URL of a schema by the Unix socket of PgBouncer.
    pub fn socket_url(&self, schema: &str) -> String {
        format!(
            "postgres://me@/dormouse?schema={schema}&host={}&port={}",
            self.dir.path().display(),
            self.port
        )
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines of `pg_hba.conf` for connections by the Unix socket.
const RIGHTS_BY_SOCKET: &str = "local all all trust
local replication all trust
";

/// Lines of `pg_hba.conf` for connections by TCP.
const RIGHTS_OF_HOSTS: &str = "host all scram 127.0.0.1/32 scram-sha-256
host all hashed 127.0.0.1/32 md5
host all clear 127.0.0.1/32 password
host all all 127.0.0.1/32 trust
";

/// Returns the directory with the programs of the newest installed PostgreSQL.
fn programs() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let programs = entry.path().join("bin");
            let is_whole = programs.join("initdb").exists() && programs.join("postgres").exists();
            Some((entry.file_name().to_str()?.parse().ok()?, programs)).filter(|_| is_whole)
        })
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, programs)| programs);
    newest.expect("these tests need a PostgreSQL server: apt-get install postgresql")
}

/// Returns the path of the program PgBouncer.
pub fn pgbouncer() -> PathBuf {
    let known = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
    let found = known.into_iter().map(PathBuf::from).find(|path| path.exists());
    found.expect("these tests need PgBouncer: apt-get install pgbouncer")
}

/// Returns the user that runs the server and PgBouncer if the tests run as root, which both refuse.
fn ordinary() -> Option<&'static str> {
    static USER: OnceLock<Option<&'static str>> = OnceLock::new();
    *USER.get_or_init(|| {
        let is_known = |name: &&str| {
            let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            users.lines().any(|line| line.starts_with(&format!("{name}:")))
        };
        let user = ["postgres", "nobody"].into_iter().find(is_known);
        rustix::process::geteuid().is_root().then(|| user.expect("a user that is not root"))
    })
}

/// Makes a command run as an ordinary user if the tests run as root.
pub fn as_user(command: Command) -> Command {
    let Some(user) = ordinary() else { return command };
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let has_group = groups.lines().any(|line| line.starts_with(&format!("{user}:")));
    let group = if has_group { user } else { "nogroup" };
    let mut other = Command::new("setpriv");
    other.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--clear-groups");
    other.arg(command.get_program()).args(command.get_args()).current_dir("/");
    other
}

/// Makes the ordinary user the owner of a directory and its files, if the tests run as root.
pub fn own(dir: &Path) {
    if let Some(user) = ordinary() {
        let mut chown = Command::new("chown");
        chown.arg("-R").arg(user).arg(dir);
        run(chown);
    }
}

fn append(path: &Path, text: &str) {
    let before = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, before + text).unwrap();
}

/// Returns a free port of 127.0.0.1.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Makes a certificate authority, and a certificate for `localhost` with a SHA-384 signature.
fn certificates(dir: &Path) {
    let openssl = |args: &str| {
        let mut openssl = Command::new("openssl");
        openssl.args(args.split_whitespace()).current_dir(dir);
        run(openssl);
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 3650 -sha384 -subj /CN=ca"));
    openssl(&format!("req -x509 {key} -keyout other.key -out other.pem -days 3650 -subj /CN=other"));
    openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -sha384 -extfile names -out server.pem",
    );
}

/// Runs a command, which must succeed.
#[track_caller]
pub fn run(mut command: Command) {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}
