//! Machines of a test: each has a home with a state directory and a connection of its own to the
//! server. Where possible, each is a network host of its own.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::judge::{Ended, Evidence, Line, Settled, Sign};
use super::link::Link;
use super::net;
use crate::fleet::Machine;
use crate::harness::{Cmd, write_program};
use crate::server::Server;
use crate::setup::{names, notes, processes};

const TURN: &str = include_str!("turn.sh");

/// SQL that records each granted lease, in a schema that dormouse does not use.
const AUDIT: &str = "
    CREATE SCHEMA @_audit;
    CREATE TABLE @_audit.given (seq bigserial, agent_id bigint, fence bigint);
    CREATE FUNCTION @_audit.note() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
      BEGIN INSERT INTO @_audit.given (agent_id, fence) VALUES (NEW.agent_id, NEW.fence); RETURN NULL; END $$;
    CREATE TRIGGER given AFTER INSERT ON @.lease FOR EACH ROW EXECUTE FUNCTION @_audit.note();
    CREATE TRIGGER given_again AFTER UPDATE ON @.lease FOR EACH ROW WHEN (OLD.fence <> NEW.fence)
      EXECUTE FUNCTION @_audit.note();";

/// Shell script that waits until the test process has ended in any way, which ends the pipe on
/// stdin. Then the script kills all remaining processes of the machines, also paused ones.
/// Otherwise, `tick --follow` would try to reach the server forever.
const WATCH: &str = r#"
    cat >/dev/null
    while found=$(grep -lzxF "$0" /proc/[0-9]*/environ 2>/dev/null); [ -n "$found" ]; do
        for environ in $found; do
            pid=${environ#/proc/}
            kill -KILL "${pid%/*}" 2>/dev/null
        done
    done
"#;

/// Returns the files with the identities under which a machine owns leases or has owned leases, and
/// the identities.
pub fn owners(anchor: &Path) -> Vec<(PathBuf, String)> {
    let files = names(anchor).into_iter().filter(|name| name.starts_with("owner-"));
    files.map(|name| anchor.join(name)).map(|file| (file.clone(), read(&file))).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap().trim_end().to_owned()
}

/// Several machines and their shared database.
pub struct Fleet<'s> {
    pub server: &'s Server,
    schema: &'static str,
    place: tempfile::TempDir,
    pub hosts: Vec<Host>,
    /// Pipe to the watching shell, which kills the machines when the pipe is closed.
    _life: ChildStdin,
}

/// Machine of a fleet.
pub struct Host {
    machine: Machine,
    /// Network host of the machine's commands; `None` if they run on the host of the tests.
    site: Option<net::Host>,
    /// Proxy to the server; `None` if the machine connects directly.
    link: Option<Link>,
    env: [(&'static str, PathBuf); 2],
    /// Error of the machine's clock, in seconds; positive if the clock is ahead.
    ahead: i64,
    /// True while the whole machine is paused, so that the test starts no command on it.
    is_frozen: AtomicBool,
    /// State directory that the machine's commands use instead of the URL of the database.
    dir: Option<PathBuf>,
    /// Log of the output of the `tick` commands that run in the background on the machine.
    pub talk: PathBuf,
}

impl<'s> Fleet<'s> {
    /// Creates a machine for each clock error in seconds, and an agent of each name. The turns of
    /// the agents log their actions.
    pub fn new(server: &'s Server, schema: &'static str, clocks: &[i64], agents: &[&str]) -> Fleet<'s> {
        Fleet::with(server, schema, clocks, agents, server.network().is_none())
    }

    /// Creates a fleet with a proxy between each machine and the server. The proxy can change
    /// statements and switch to another server.
    pub fn by_proxy(server: &'s Server, schema: &'static str, clocks: &[i64], agents: &[&str]) -> Fleet<'s> {
        Fleet::with(server, schema, clocks, agents, true)
    }

    fn with(
        server: &'s Server,
        schema: &'static str,
        clocks: &[i64],
        agents: &[&str],
        has_proxies: bool,
    ) -> Fleet<'s> {
        let place = tempfile::Builder::new().prefix("dormouse-fleet-").tempdir().unwrap();
        let (turn, log, go) = (place.path().join("turn"), place.path().join("log"), place.path().join("go"));
        write_program(&turn, TURN);
        let network = server.network().cloned().or_else(net::network);
        let host = |(number, ahead): (usize, &i64)| {
            let site = network.as_ref().map(|network| net::Host::on(network).unwrap());
            let link = has_proxies.then(|| Link::to(server.socket(), site.as_ref()));
            let address = site.as_ref().map_or(Ipv4Addr::LOCALHOST, |site| site.server);
            let port = link.as_ref().map_or(server.port(), |link| link.port);
            let url =
                format!("postgres://dormouse@{address}:{port}/dormouse?schema={schema}&sslmode=disable");
            let env = [("FLEET_LOG", log.clone()), ("FLEET_GO", go.clone())];
            let talk = place.path().join(format!("talk-{number}"));
            Host {
                machine: Machine::new(&url, None),
                site,
                link,
                env,
                ahead: *ahead,
                is_frozen: AtomicBool::new(false),
                dir: None,
                talk,
            }
        };
        let hosts: Vec<Host> = clocks.iter().enumerate().map(host).collect();
        let fleet = Fleet { server, schema, place, _life: watch(&hosts), hosts };
        fleet.hosts[0].run(&["init", "-q"]);
        server.sql(&AUDIT.replace('@', schema));
        let policy = fleet.place.path().join("agent.toml");
        let text = format!(
            "[turn]\ncommand = [\"{}\"]\n[recovery]\nmax_attempts = 1000\nmax_interruptions = 1000\nbase = \"10ms\"\nmax_delay = \"50ms\"\n",
            turn.display()
        );
        fs::write(&policy, text).unwrap();
        for agent in agents {
            fleet.hosts[0].run(&["create", agent, "--from", policy.to_str().unwrap(), "-q"]);
            fleet.hosts[0].run(&["start", agent, "-q"]);
        }
        fleet
    }

    /// Makes the last machine a copy of the machine before it: with the same machine id, and with
    /// the same files at the same path. Where machines are not hosts of their own, only the files
    /// are equal.
    pub fn of_one_image(mut self) -> Self {
        let place = self.place.path().join("image");
        fs::create_dir(&place).unwrap();
        let [.., template, last] = self.hosts.as_mut_slice() else { return self };
        for host in [&mut *template, &mut *last] {
            host.run(&["tick", "--all", "-q"]);
            let anchor = host.machine.anchor();
            if let Some(site) = &host.site {
                assert_done(site.bind(anchor.parent().unwrap(), &place));
                assert_done(site.has_machine_id("0123456789abcdef0123456789abcdef"));
                host.dir = Some(place.clone());
            }
        }
        for (file, _) in owners(&template.machine.anchor()) {
            fs::copy(&file, last.machine.anchor().join(file.file_name().unwrap())).unwrap();
        }
        self
    }

    /// Lets the turns that wait for the file `go` end.
    pub fn go(&self) {
        fs::write(self.place.path().join("go"), "").unwrap();
    }

    /// Returns the log of the turns.
    pub fn log(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.place.path().join("log")).unwrap_or_default();
        notes(&text).map(line).collect()
    }

    /// Returns the columns of the rows of a query, in which `@` is the schema.
    #[track_caller]
    pub fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        let rows = self.server.sql(&sql.replace('@', self.schema));
        rows.iter().map(|row| row.split('|').map(str::to_owned).collect()).collect()
    }

    /// Expires the leases of a machine that can't renew them now. Returns their number.
    pub fn outlast(&self, host: &Host) -> usize {
        let owners: Vec<String> =
            owners(&host.machine.anchor()).into_iter().map(|(_, owner)| format!("'{owner}'")).collect();
        let of_it = format!("anchor IN ({})", owners.join(","));
        self.ask(&format!("UPDATE @.lease SET expires_at = 0 WHERE {of_it} RETURNING fence")).len()
    }

    /// Expires the leases of all processes that have ended.
    pub fn outlast_idle(&self) {
        let alive: Vec<String> =
            self.hosts.iter().flat_map(Host::processes).map(|(pid, _)| pid.to_string()).collect();
        let alive = if alive.is_empty() { "0".to_owned() } else { alive.join(",") };
        self.ask(&format!("UPDATE @.lease SET expires_at = 0 WHERE pid NOT IN ({alive})"));
    }

    /// True if no message or other record is open, and no agent has a current run.
    pub fn is_at_rest(&self) -> bool {
        let open = "SELECT 1 FROM @.inbox UNION ALL SELECT 1 FROM @.record WHERE kind <> 'trigger' \
                    UNION ALL SELECT 1 FROM @.state WHERE (body->>'current_run') IS NOT NULL LIMIT 1";
        self.ask(open).is_empty()
    }

    /// Keeps the directory with the logs. Returns its path.
    pub fn keep(mut self) -> PathBuf {
        self.place.disable_cleanup(true);
        self.place.path().to_owned()
    }

    /// Collects log and records for `judge`. `acknowledged`: ids that `enqueue` has printed.
    pub fn evidence(&self, acknowledged: Vec<String>) -> Evidence {
        let given = self.ask(
            "SELECT a.name, g.fence FROM @_audit.given g JOIN @.agent a ON a.id = g.agent_id ORDER BY g.seq",
        );
        let ended = self.ask(
            "SELECT a.name, r.id, r.body->>'message_id', r.body->>'terminal' \
             FROM @.archive r JOIN @.agent a ON a.id = r.agent_id WHERE r.kind = 'run' ORDER BY r.seq",
        );
        let settled = self.ask(
            "SELECT id, body->'settlement'->>'status', body->'settlement'->>'run_id' FROM @.archive \
             WHERE kind = 'message' AND body->'settlement'->>'status' <> 'queued' ORDER BY seq",
        );
        let mut left: Vec<String> = Vec::new();
        for (what, sql) in [
            ("a lease", "SELECT agent_id, subject, fence, expires_at FROM @.lease"),
            ("in the inbox", "SELECT agent_id, prio, id FROM @.inbox"),
            ("open", "SELECT agent_id, kind, id FROM @.record WHERE kind <> 'trigger'"),
            (
                "a current run",
                "SELECT agent_id, body->'current_run'->>'run_id' FROM @.state WHERE (body->>'current_run') IS NOT NULL",
            ),
        ] {
            left.extend(self.ask(sql).into_iter().map(|row| format!("{what}: {}", row.join(" "))));
        }
        let doctor = self.hosts[0].cmd(&["doctor"]).output();
        if !doctor.status.success() {
            left.push(format!("a finding of doctor: {doctor}"));
        }
        let word = |row: &[String], at: usize| row[at].clone();
        Evidence {
            log: self.log(),
            given: given.iter().map(|row| (word(row, 0), row[1].parse().unwrap())).collect(),
            ended: ended
                .iter()
                .map(|row| Ended {
                    agent: word(row, 0),
                    run: word(row, 1),
                    message: word(row, 2),
                    terminal: word(row, 3),
                })
                .collect(),
            settled: settled
                .iter()
                .map(|row| Settled {
                    message: word(row, 0),
                    status: word(row, 1),
                    run: Some(word(row, 2)).filter(|run| !run.is_empty()),
                })
                .collect(),
            acknowledged,
            left,
        }
    }
}

impl Host {
    pub fn cmd(&self, args: &[&str]) -> Cmd<'_> {
        let cmd = self.machine.cmd(args.iter().copied());
        let cmd = self.env.iter().fold(cmd, |cmd, (name, path)| cmd.env(name, path));
        let cmd = self.dir.iter().fold(cmd, |cmd, dir| cmd.env("DORMOUSE_DIR", dir));
        match &self.site {
            Some(site) => cmd.changed(|command| site.takes(command)),
            None => cmd,
        }
    }

    /// Host name, if the machine is a host of its own.
    pub fn name(&self) -> Option<&str> {
        self.site.as_ref().map(|site| site.name.as_str())
    }

    /// Returns the proxy to the server.
    pub fn proxy(&self) -> &Link {
        self.link.as_ref().expect("a fleet that was made with proxies")
    }

    /// Sets which traffic passes between the machine and the server.
    pub fn set_line(&self, line: net::Line) {
        match &self.site {
            Some(site) => assert_done(site.set(line)),
            None => self.proxy().set(line),
        }
    }

    /// Breaks the connections to the server. New connections are possible at once.
    pub fn break_line(&self) {
        match &self.site {
            Some(site) => assert_done(site.break_all()),
            None => self.proxy().break_all(),
        }
    }

    /// Returns a command as the turn that has logged this line would call it.
    pub fn as_turn(&self, line: &Line, args: &[&str]) -> Cmd<'_> {
        let cmd =
            self.cmd(args).env("DORMOUSE_DIR", self.machine.anchor()).env("DORMOUSE_AGENT", &line.agent);
        cmd.env("DORMOUSE_RUN", &line.run).env("DORMOUSE_FENCE", line.fence.to_string())
    }

    pub fn is_wrong(&self) -> bool {
        self.ahead != 0
    }

    /// Returns a command that runs with the clock of the machine.
    pub fn by_its_clock(&self, args: &[&str]) -> Cmd<'_> {
        let cmd = self.cmd(args);
        if !self.is_wrong() {
            return cmd;
        }
        let now = chrono::Utc::now() + chrono::TimeDelta::seconds(self.ahead);
        cmd.env("DORMOUSE_NOW", now.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
    }

    /// Runs a command that must succeed with an empty stderr.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> String {
        let ran = self.cmd(args).output();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{args:?}: {ran}");
        ran.stdout
    }

    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::SeqCst)
    }

    /// Returns the processes of commands and turns of the machine.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let found = processes(&self.machine.sandbox);
        let process = |text: &String| {
            let (pid, words) = text.split_once(' ')?;
            Some((Pid::from_raw(pid.parse().ok()?)?, words.to_owned()))
        };
        found.iter().filter_map(process).collect()
    }

    /// Pauses the processes of the machine whose command line has these words, and all that they
    /// start meanwhile.
    pub fn freeze(&self, words: &str) {
        self.is_frozen.store(words.is_empty(), Ordering::SeqCst);
        let mut frozen = BTreeSet::new();
        let mut looks_in_vain = 0;
        // A matching process may start a moment later, so three searches must find no new one.
        while looks_in_vain < 3 {
            let found = self.processes().into_iter().filter(|(_, command)| command.contains(words));
            let fresh: Vec<Pid> =
                found.map(|(pid, _)| pid).filter(|pid| frozen.insert(pid.as_raw_nonzero())).collect();
            looks_in_vain = if fresh.is_empty() { looks_in_vain + 1 } else { 0 };
            for pid in fresh {
                let _ = kill_process(pid, Signal::STOP);
            }
        }
    }

    pub fn thaw(&self) {
        self.is_frozen.store(false, Ordering::SeqCst);
        self.send(Signal::CONT, "");
    }

    /// Sends a signal to the processes of the machine whose command line has these words.
    pub fn send(&self, signal: Signal, words: &str) {
        for (pid, _) in self.processes().into_iter().filter(|(_, command)| command.contains(words)) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Host {
    /// Kills all processes of the machine at the end of the test.
    fn drop(&mut self) {
        self.send(Signal::KILL, "");
    }
}

/// Starts the shell that kills these machines at the end. The shell is not a child of this process,
/// because tests kill their descendants.
fn watch(hosts: &[Host]) -> ChildStdin {
    let homes: Vec<String> =
        hosts.iter().map(|host| format!("HOME={}", host.machine.sandbox.home().display())).collect();
    let mut start = Command::new("setsid");
    start.args(["--fork", "sh", "-c", WATCH, &homes.join("\n")]).current_dir("/");
    start.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut started = start.spawn().expect("setsid (package util-linux)");
    let life = started.stdin.take().unwrap();
    started.wait().unwrap();
    life
}

/// Panics on an error, unless the test is failing already.
#[track_caller]
fn assert_done(done: Result<(), String>) {
    assert!(done.is_ok() || std::thread::panicking(), "{done:?}");
}

fn line(text: &str) -> Line {
    let words: Vec<&str> = text.split(' ').collect();
    let sign = match words[0] {
        "begin" => Sign::Begin,
        "alive" => Sign::Alive,
        "end" => Sign::End,
        other => panic!("{other}: {text}"),
    };
    let word = |at: usize| words[at].to_owned();
    Line { sign, agent: word(1), run: word(2), message: word(3), fence: words[4].parse().unwrap() }
}
