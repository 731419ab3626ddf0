//! A real PostgreSQL for tests: one server for all tests of a process, which ends with that process.
//!
//! Durability is off in it, so it is fast, and nothing in it is worth keeping. TLS is on, by certificates of its own.
//! The unit tests of the store use this file, too.

#![allow(dead_code, reason = "each of its users needs a part of it")]

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// How long a test waits for what should come at once.
pub const LONG: Duration = Duration::from_secs(30);

/// What a shell does beside the server: when the test process has ended, in whatever way, the pipe on its stdin ends.
const WATCH: &str = r#"
    "$@" </dev/null & server=$!
    cat >/dev/null
    kill -QUIT "$server"; wait "$server"
    rm -rf "$0"
"#;

/// A namespace that this process holds open.
pub type Namespace = Arc<OwnedFd>;

/// Has the calling thread be in these namespaces.
pub fn enter(namespaces: &[Namespace]) -> io::Result<()> {
    for namespace in namespaces {
        // SAFETY: a system call that concerns the calling thread alone, and no memory.
        if unsafe { libc::setns(namespace.as_raw_fd(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A server. Each test uses a schema of its own.
pub struct Server {
    socket_dir: PathBuf,
    port: u16,
    programs: PathBuf,
    /// Where its processes are, if that is another network than that of the tests. They find its socket all the same.
    network: Option<Namespace>,
    /// As long as these are open the server lives. No child inherits one.
    lives: Mutex<Vec<ChildStdin>>,
}

/// The server that all tests of this process share. Starts it when it is first asked for; fails with what to install if it
/// can't.
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start("fsync = off\n"))
}

/// The same for one that forgets nothing in a power cut, as `doctor` wants it.
pub fn durable() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(""))
}

impl Server {
    /// The URL of a schema, by the server's socket, for the owner of the database: `dormouse`, who is no superuser.
    pub fn url(&self, schema: &str) -> String {
        self.url_of("dormouse", schema)
    }

    /// The same for another user.
    pub fn url_of(&self, user: &str, schema: &str) -> String {
        let dir = self.socket_dir.display();
        format!("postgres://{user}@/dormouse?schema={schema}&host={dir}&port={}", self.port)
    }

    /// A URL by TCP, with more parameters (`&sslmode=require`). Users: `trusted`, `scram`, `hashed` (MD5), `clear`; the
    /// passwords of the last three are `secret`.
    pub fn tcp_url(&self, user: &str, host: &str, more: &str) -> String {
        format!("postgres://{user}@{host}:{}/dormouse?schema=s{more}", self.port)
    }

    /// The directory of the socket.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// The socket itself.
    pub fn socket(&self) -> PathBuf {
        self.socket_dir.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Its network, if that is another one than that of the tests.
    pub fn network(&self) -> Option<&Namespace> {
        self.network.as_ref()
    }

    /// The port, on 127.0.0.1 and in the socket's name.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate of the authority that has signed the server's; that one is made out to `localhost`.
    pub fn roots(&self) -> PathBuf {
        self.socket_dir.join("ca.pem")
    }

    /// Runs statements as a superuser, in the database of the tests. Returns the rows, their columns parted by `|`.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> Vec<String> {
        let output = self.psql("dormouse", statements).output().expect("psql");
        assert!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// The same where it may fail. `Err`: what the client says of it.
    pub fn try_sql(&self, statements: &str) -> Result<Vec<String>, String> {
        let output = self.psql("dormouse", statements).output().expect("psql");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout).lines().map(str::to_owned).collect())
        } else {
            Err(text(&output.stderr))
        }
    }

    /// The same in the name of a role, without the rows.
    pub fn try_sql_as(&self, role: &str, statements: &str) -> Result<(), String> {
        let output = self.psql("dormouse", statements).args(["-U", role]).output().expect("psql");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// A client that stays, for many small questions.
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

    /// A server with these settings besides. Ends with this process.
    pub fn start(settings: &str) -> Server {
        Server::start_in(None, settings)
    }

    /// The same in another network, where all hosts may ask it.
    pub fn start_in(network: Option<Namespace>, settings: &str) -> Server {
        let programs = programs();
        let dir = tempfile::Builder::new().prefix("dormouse-pg").tempdir().unwrap().keep();
        certificates(&dir);
        let data = dir.join("data");
        run(as_user(Command::new("true")));
        own(&dir);
        let mut init = Command::new(programs.join("initdb"));
        init.args([
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--username=postgres",
            "--auth=trust",
            "-D",
        ]);
        init.arg(&data);
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
        let configuration = data.join("postgresql.conf");
        let before = std::fs::read_to_string(&configuration).unwrap();
        std::fs::write(&configuration, before + &own_settings + settings).unwrap();
        own(&dir);
        let server = Server { socket_dir: dir, port, programs, network, lives: Mutex::default() };
        server.launch();
        server.prepare();
        server
    }

    /// A server that follows this one, a moment later, and takes no changes. Ends with this process.
    pub fn standby(&self) -> Server {
        let dir = tempfile::Builder::new().prefix("dormouse-pg").tempdir().unwrap().keep();
        own(&dir);
        let mut copy = Command::new(self.programs.join("pg_basebackup"));
        copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-U", "postgres", "-h"]);
        copy.arg(&self.socket_dir).arg("-p").arg(self.port.to_string()).arg("-D").arg(dir.join("data"));
        run(as_user(copy));
        let port = free_port();
        let more = format!("port = {port}\nunix_socket_directories = '{}'\n", dir.display());
        let configuration = dir.join("data/postgresql.conf");
        let before = std::fs::read_to_string(&configuration).unwrap();
        std::fs::write(&configuration, before + &more).unwrap();
        let programs = self.programs.clone();
        let network = self.network.clone();
        let standby = Server { socket_dir: dir, port, programs, network, lives: Mutex::default() };
        standby.launch();
        standby.until_it_answers();
        standby
    }

    /// Waits until a server that follows this one has all that was committed here.
    pub fn until_followed_by(&self, standby: &Server) {
        let here = self.sql("SELECT pg_current_wal_lsn()").remove(0);
        let is_there = format!("SELECT pg_last_wal_replay_lsn() >= '{here}'");
        let until = Instant::now() + LONG;
        while standby.sql(&is_there) != ["t"] {
            assert!(Instant::now() < until, "it does not follow");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has a server that follows another one hear nothing more of it.
    pub fn stop_following(&self) {
        self.sql("ALTER SYSTEM SET primary_conninfo = ''");
        self.sql("SELECT pg_reload_conf()");
        let until = Instant::now() + LONG;
        while self.sql("SELECT count(*) FROM pg_stat_wal_receiver") != ["0"] {
            assert!(Instant::now() < until, "it goes on following");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes one of a server that follows another one.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), ["t"]);
    }

    /// Starts its processes. They end with this process.
    fn launch(&self) {
        let mut watch = Command::new("sh");
        let dir = &self.socket_dir;
        watch
            .arg("-c")
            .arg(WATCH)
            .arg(dir)
            .arg(self.programs.join("postgres"))
            .arg("-D")
            .arg(dir.join("data"));
        // It is in a session of its own, and no child of this process: tests end what they find below themselves.
        let mut start = Command::new("setsid");
        let watch = as_user(watch);
        start.arg("--fork").arg(watch.get_program()).args(watch.get_args()).current_dir("/");
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        start.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        if let Some(network) = self.network.clone() {
            // SAFETY: the closure runs between fork and exec, makes a system call and allocates nothing.
            unsafe { start.pre_exec(move || enter(std::slice::from_ref(&network))) };
        }
        let mut started = start.spawn().expect("setsid (package util-linux)");
        self.lives.lock().unwrap().push(started.stdin.take().unwrap());
        started.wait().unwrap();
    }

    /// Ends it as its administrator does. Whoever is connected is told.
    pub fn shut_down(&self) {
        let mut stop = Command::new(self.programs.join("pg_ctl"));
        stop.args(["-w", "-m", "fast", "stop", "-D"]).arg(self.socket_dir.join("data"));
        run(as_user(stop));
    }

    /// Starts it again after that.
    pub fn start_again(&self) {
        self.launch();
        self.until_it_answers();
    }

    /// Kills all of its processes, as a machine does that loses its power, and starts it again. Returns when it answers.
    pub fn crash(&self) {
        self.kill();
        let until = Instant::now() + LONG * 2;
        loop {
            // As long as something of the old one is there, a new one does not begin.
            self.launch();
            let soon = Instant::now() + LONG / 10;
            while Instant::now() < soon {
                if self.psql("postgres", "SELECT 1").output().expect("psql").status.success() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(Instant::now() < until, "PostgreSQL does not come back:\n{}", self.log());
        }
    }

    /// Kills all of its processes.
    pub fn kill(&self) {
        let note = std::fs::read_to_string(self.socket_dir.join("data/postmaster.pid")).unwrap();
        let first: i32 = note.lines().next().and_then(|pid| pid.trim().parse().ok()).unwrap();
        let send = |pid: i32, signal: Signal| {
            let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal);
        };
        // It starts no more of them meanwhile.
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
        let until = Instant::now() + LONG * 2;
        loop {
            let asked = self.psql("postgres", "SELECT 1").output().expect("psql");
            if asked.status.success() {
                break;
            }
            if Instant::now() > until {
                let said = String::from_utf8_lossy(&asked.stderr);
                panic!("PostgreSQL does not answer: {said}\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.socket_dir.join("log")).unwrap_or_default()
    }

    /// Waits until it answers, and makes the users.
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
    /// The rows of an answer. A statement that fails ends the test.
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

/// PgBouncer before a server, in transaction mode, for the user `me` with the password `secret`, who is `dormouse` behind it.
/// Ends when this is dropped.
pub struct Bouncer {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Bouncer {
    pub fn before(server: &Server) -> Bouncer {
        Bouncer::start(server, "scram-sha-256")
    }

    /// The same, and asks for no password.
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

    /// A URL by TCP, for a schema. It may take a moment until somebody answers there.
    pub fn url(&self, schema: &str) -> String {
        format!("postgres://me@127.0.0.1:{}/dormouse?schema={schema}", self.port)
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(format!(".s.PGSQL.{}", self.port))
    }

    /// The same by the socket.
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

/// Who may log in, and how.
const RIGHTS_BY_SOCKET: &str = "local all all trust
local replication all trust
";

const RIGHTS_OF_HOSTS: &str = "host all scram 127.0.0.1/32 scram-sha-256
host all hashed 127.0.0.1/32 md5
host all clear 127.0.0.1/32 password
host all all 127.0.0.1/32 trust
";

/// Where the server's programs are: those of the newest version.
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

/// PgBouncer's program.
pub fn pgbouncer() -> PathBuf {
    let known = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
    let found = known.into_iter().map(PathBuf::from).find(|path| path.exists());
    found.expect("these tests need PgBouncer: apt-get install pgbouncer")
}

/// The server and PgBouncer refuse to run as root: then they run as somebody else.
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

/// A command as an ordinary user.
pub fn as_user(command: Command) -> Command {
    let Some(user) = ordinary() else { return command };
    let mut other = Command::new("setpriv");
    other.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
    let group = std::fs::read_to_string("/etc/group").unwrap_or_default();
    if !group.lines().any(|line| line.starts_with(&format!("{user}:"))) {
        other = Command::new("setpriv");
        other.arg(format!("--reuid={user}")).arg("--regid=nogroup").arg("--clear-groups");
    }
    other.arg(command.get_program()).args(command.get_args()).current_dir("/");
    other
}

/// Gives a directory to the ordinary user.
pub fn own(dir: &Path) {
    if let Some(user) = ordinary() {
        let mut chown = Command::new("chown");
        chown.arg("-R").arg(user).arg(dir);
        run(chown);
    }
}

/// A port of 127.0.0.1 on which nobody listens.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Makes an authority, and a certificate of its for `localhost`. They are signed with SHA-384.
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

/// Runs a command to its end, which must be a good one.
#[track_caller]
pub fn run(mut command: Command) {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}
