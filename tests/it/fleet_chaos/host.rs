//! Machines of a test: each has a home with a state directory of its own, and a line of its own to the server.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::judge::{Ended, Evidence, Line, Settled, Sign};
use super::link::Link;
use crate::fleet::Machine;
use crate::harness::{Cmd, write_program};
use crate::server::Server;
use crate::setup::processes;

const TURN: &str = include_str!("turn.sh");

/// Writes down each lease that is given, in a schema that dormouse knows nothing of.
const AUDIT: &str = "
    CREATE SCHEMA @_audit;
    CREATE TABLE @_audit.given (seq bigserial, agent_id bigint, fence bigint);
    CREATE FUNCTION @_audit.note() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
      BEGIN INSERT INTO @_audit.given (agent_id, fence) VALUES (NEW.agent_id, NEW.fence); RETURN NULL; END $$;
    CREATE TRIGGER given AFTER INSERT ON @.lease FOR EACH ROW EXECUTE FUNCTION @_audit.note();
    CREATE TRIGGER given_again AFTER UPDATE ON @.lease FOR EACH ROW WHEN (OLD.fence <> NEW.fence)
      EXECUTE FUNCTION @_audit.note();";

/// Several machines and the database that they share.
pub struct Fleet<'s> {
    pub server: &'s Server,
    schema: &'static str,
    place: tempfile::TempDir,
    pub hosts: Vec<Host>,
}

/// One machine.
pub struct Host {
    machine: Machine,
    pub link: Link,
    env: [(&'static str, PathBuf); 2],
    /// By how many seconds its clock is ahead.
    ahead: i64,
    /// As long as it is frozen as a whole nobody starts anything on it.
    is_frozen: AtomicBool,
    /// What its followers and senders say.
    pub talk: PathBuf,
}

impl<'s> Fleet<'s> {
    /// A machine for each of these clocks, which are so many seconds ahead, and one agent of each of these names, whose turns
    /// note what they do.
    pub fn new(server: &'s Server, schema: &'static str, clocks: &[i64], agents: &[&str]) -> Fleet<'s> {
        let place = tempfile::Builder::new().prefix("dormouse-fleet-").tempdir().unwrap();
        let (turn, log, go) = (place.path().join("turn"), place.path().join("log"), place.path().join("go"));
        write_program(&turn, TURN);
        let socket = server.socket_dir().join(format!(".s.PGSQL.{}", server.port()));
        let host = |(number, ahead): (usize, &i64)| {
            let link = Link::to(socket.clone());
            let port = link.port;
            let url =
                format!("postgres://dormouse@127.0.0.1:{port}/dormouse?schema={schema}&sslmode=disable");
            let env = [("FLEET_LOG", log.clone()), ("FLEET_GO", go.clone())];
            let talk = place.path().join(format!("talk-{number}"));
            Host {
                machine: Machine::new(&url, None),
                link,
                env,
                ahead: *ahead,
                is_frozen: AtomicBool::new(false),
                talk,
            }
        };
        let fleet = Fleet { server, schema, hosts: clocks.iter().enumerate().map(host).collect(), place };
        fleet.hosts[0].run(&["init", "-q"]);
        server.sql(&AUDIT.replace('@', schema));
        let policy = fleet.place.path().join("agent.toml");
        let text = format!(
            "[turn]\ncommand = [\"{}\"]\n[recovery]\nmax_attempts = 1000\nbase = \"10ms\"\nmax_delay = \"50ms\"\n",
            turn.display()
        );
        fs::write(&policy, text).unwrap();
        for agent in agents {
            fleet.hosts[0].run(&["create", agent, "--from", policy.to_str().unwrap(), "-q"]);
            fleet.hosts[0].run(&["start", agent, "-q"]);
        }
        fleet
    }

    /// Lets the turns end that wait for it.
    pub fn go(&self) {
        fs::write(self.place.path().join("go"), "").unwrap();
    }

    /// What the turns have noted so far.
    pub fn log(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.place.path().join("log")).unwrap_or_default();
        text.lines().map(line).collect()
    }

    /// Rows of a question in which `@` is the schema, in columns.
    #[track_caller]
    pub fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        let rows = self.server.sql(&sql.replace('@', self.schema));
        rows.iter().map(|row| row.split('|').map(str::to_owned).collect()).collect()
    }

    /// Ends the time of the leases of a machine that can't keep them alive now, as the server sees it after a minute. How many
    /// there were.
    pub fn outlast(&self, host: &Host) -> usize {
        let home = host.machine.sandbox.home();
        let of_it = format!("anchor LIKE '%{}%'", home.display());
        self.ask(&format!("UPDATE @.lease SET expires_at = 0 WHERE {of_it} RETURNING fence")).len()
    }

    /// The same for the leases of no process that is alive.
    pub fn outlast_idle(&self) {
        let alive: Vec<String> =
            self.hosts.iter().flat_map(Host::processes).map(|(pid, _)| pid.to_string()).collect();
        let alive = if alive.is_empty() { "0".to_owned() } else { alive.join(",") };
        self.ask(&format!("UPDATE @.lease SET expires_at = 0 WHERE pid NOT IN ({alive})"));
    }

    /// Whether nothing is open, and nothing is at work.
    pub fn is_at_rest(&self) -> bool {
        let open = "SELECT 1 FROM @.inbox UNION ALL SELECT 1 FROM @.record WHERE kind <> 'trigger' \
                    UNION ALL SELECT 1 FROM @.state WHERE (body->>'current_run') IS NOT NULL LIMIT 1";
        self.ask(open).is_empty()
    }

    /// Keeps the logs for a look, and says where.
    pub fn keep(mut self) -> PathBuf {
        self.place.disable_cleanup(true);
        self.place.path().to_owned()
    }

    /// All that there is to judge about. `acknowledged`: the ids that `enqueue` has told.
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
        self.env.iter().fold(cmd, |cmd, (name, path)| cmd.env(name, path))
    }

    /// A command that a turn of this machine calls: the turn that has noted this line.
    pub fn as_turn(&self, line: &Line, args: &[&str]) -> Cmd<'_> {
        let cmd =
            self.cmd(args).env("DORMOUSE_DIR", self.machine.anchor()).env("DORMOUSE_AGENT", &line.agent);
        cmd.env("DORMOUSE_RUN", &line.run).env("DORMOUSE_FENCE", line.fence.to_string())
    }

    pub fn is_wrong(&self) -> bool {
        self.ahead != 0
    }

    /// The same by the clock of the machine.
    pub fn by_its_clock(&self, args: &[&str]) -> Cmd<'_> {
        let cmd = self.cmd(args);
        if !self.is_wrong() {
            return cmd;
        }
        let now = chrono::Utc::now() + chrono::TimeDelta::seconds(self.ahead);
        cmd.env("DORMOUSE_NOW", now.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
    }

    /// A command that succeeds without talk.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> String {
        let ran = self.cmd(args).output();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{args:?}: {ran}");
        ran.stdout
    }

    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::SeqCst)
    }

    /// Its processes: those of commands and turns.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let found = processes(&self.machine.sandbox);
        let process = |text: &String| {
            let (pid, words) = text.split_once(' ')?;
            Some((Pid::from_raw(pid.parse().ok()?)?, words.to_owned()))
        };
        found.iter().filter_map(process).collect()
    }

    /// Stops the processes of the machine that these words are in, and whatever they start meanwhile.
    pub fn freeze(&self, words: &str) {
        self.is_frozen.store(words.is_empty(), Ordering::SeqCst);
        let mut frozen = BTreeSet::new();
        let mut looks_in_vain = 0;
        // There may be none at this moment.
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

    /// Sends a signal to the processes of the machine that these words are in.
    pub fn send(&self, signal: Signal, words: &str) {
        for (pid, _) in self.processes().into_iter().filter(|(_, command)| command.contains(words)) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Host {
    /// Nothing of a machine outlives its test.
    fn drop(&mut self) {
        self.send(Signal::KILL, "");
    }
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
