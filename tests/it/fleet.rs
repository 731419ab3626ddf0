//! Tests agents in PostgreSQL end to end: connections, passwords, `export`, `rm` and `doctor`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::connection_proxy::Proxy;
use crate::harness::{Cmd, Sandbox, write_program};
use crate::server::{Bouncer, LONG, Server, durable, server};
use crate::setup::{eventually, names, objects, texts, tree};

/// Machine that names its store by a URL, in `DORMOUSE_DIR`.
pub struct Machine {
    pub sandbox: Sandbox,
    /// Additional environment of every command.
    env: Vec<(String, String)>,
}

impl Machine {
    pub fn new(url: &str, password: Option<&str>) -> Machine {
        let mut env = vec![("DORMOUSE_DIR".to_owned(), url.to_owned())];
        env.extend(password.map(|password| ("PGPASSWORD".to_owned(), password.to_owned())));
        Machine { sandbox: Sandbox::empty().with_real_clock(), env }
    }

    /// Machine that connects through a proxy, as this user of the database.
    pub fn through(proxy: &Proxy, user: &str, schema: &str) -> Machine {
        let port = proxy.port;
        let url = format!("postgres://{user}@127.0.0.1:{port}/dormouse?schema={schema}&sslmode=disable");
        Machine::new(&url, None)
    }

    /// Two machines of one new store, which has the started agent `ada`.
    pub fn two(schema: &str) -> [Machine; 2] {
        let url = server().url(schema);
        let one = Machine::new(&url, None).with_ada("echo done");
        let other = Machine::new(&url, None);
        assert_eq!(other.json_lines(["list"]).len(), 1);
        [one, other]
    }

    pub fn cmd<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Cmd<'_> {
        self.env.iter().fold(self.sandbox.cmd(args), |cmd, (name, value)| cmd.env(name, value))
    }

    /// Runs a command that must succeed and print nothing to standard error. Returns its output.
    #[track_caller]
    pub fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        let ran = self.cmd(args).output();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran}");
        ran.stdout
    }

    /// Runs a command that prints one id, and returns the id.
    #[track_caller]
    pub fn id<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        self.run(args).trim_end().to_owned()
    }

    #[track_caller]
    pub fn json<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Value {
        let text = self.run(["--json"].into_iter().chain(args));
        serde_json::from_str(text.trim_end()).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Runs a command with `--json`, and returns all objects that it prints.
    #[track_caller]
    pub fn json_lines<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
        objects(&self.run(["--json"].into_iter().chain(args)))
    }

    /// Local state directory that belongs to the database URL of this machine.
    pub fn anchor(&self) -> PathBuf {
        let stores = self.sandbox.home().join(".local/state/dormouse");
        let found = names(&stores);
        assert_eq!(found.len(), 1, "one URL has one directory: {found:?}");
        stores.join(&found[0]).join(".dormouse")
    }

    /// Waits until a task has ended, and returns its record.
    pub fn ended_task(&self, id: &str) -> Value {
        eventually("the end of the task", || {
            Some(self.json(["task", "status", id])).filter(|task| task["ended_at"].is_string())
        })
    }

    /// Waits until an agent has processed this number of messages.
    pub fn until_processed(&self, agent: &str, count: usize) {
        eventually(&format!("{count} processed messages of {agent}"), || {
            (self.json(["get", agent])["counters"]["messages_processed"] == count).then_some(())
        });
    }

    /// Repeats a command until it succeeds: PgBouncer needs a moment before it accepts connections.
    pub fn until_bouncer_accepts(&self, command: &str) {
        let until = Instant::now() + LONG;
        while !self.cmd([command]).output().status.success() {
            assert!(Instant::now() < until, "PgBouncer does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Initialises the store, and adds the agent `ada`, whose turns run these lines.
    pub fn with_ada(self, turn: &str) -> Machine {
        self.run(["init"]);
        self.add("ada", turn);
        self
    }

    /// Creates and starts an agent, whose turns run these lines.
    #[track_caller]
    pub fn add(&self, name: &str, turn: &str) {
        self.run(["create", name, "--shell", turn]);
        self.run(["start", name]);
    }

    /// Edits the policy of an agent with lines of shell, in which `$1` is the file.
    pub fn edit_policy(&self, name: &str, lines: &str) {
        let editor = self.sandbox.root().join("editor");
        write_program(&editor, &format!("#!/bin/sh\n{lines}\n"));
        self.cmd(["edit", name]).env("EDITOR", &editor).exits(0);
    }
}

/// Allows the user `scram`, who logs in by password, to create schemas. Returns a function that
/// forms a URL of this user from host, schema and more parameters.
fn of_scram(server: &Server) -> impl Fn(&str, &str, &str) -> String {
    server.sql("GRANT CREATE ON DATABASE dormouse TO scram");
    let port = server.port();
    move |host, schema, more| format!("postgres://scram@{host}:{port}/dormouse?schema={schema}{more}")
}

/// Uses the started agent `ada` for messages, a task and turns until it is stopped.
pub fn lives(machine: &Machine) {
    let message = machine.id(["enqueue", "ada", "hello"]);
    let step = machine.json(["tick", "ada"]);
    assert_eq!((step["terminal"].as_str(), step["brief"].as_str()), (Some("completed"), Some("done")));
    assert_eq!(machine.json(["queue", "show", &message])["status"], "processed");
    machine.ended_task(&machine.id(["task", "start", "-a", "ada", "--", "sh", "-c", "echo built"]));
    assert_eq!(machine.json(["tick", "ada"])["reason"], "task_result");
    assert_eq!(machine.json(["get", "ada"])["queue"]["pending"], 0);
    let batch =
        machine.cmd(["enqueue", "ada", "--batch"]).stdin("{\"body\":\"one\"}\n{\"body\":\"two\"}\n").output();
    assert_eq!((batch.stdout.lines().count(), batch.stderr.as_str()), (2, ""), "{batch}");
    machine.run(["tick", "--all", "--until-idle"]);
    assert_eq!(
        machine.run(["run", "list", "-a", "ada", "--limit", "0", "-q"]).matches("completed").count(),
        4
    );
    machine.run(["stop", "ada"]);
}

#[test]
fn agents_run_behind_pgbouncer() {
    needs!("postgresql");
    let bouncer = Bouncer::before(server());
    let machine = Machine::new(&bouncer.url("by_bouncer"), Some("secret"));
    machine.until_bouncer_accepts("init");
    lives(&machine.with_ada("echo done"));
}

#[test]
fn the_server_is_verified_and_the_password_comes_from_a_file() {
    needs!("postgresql");
    let server = server();
    let url = of_scram(server);
    let roots = format!("&sslmode=verify-full&sslrootcert={}", server.roots().display());
    let mut machine = Machine::new(&url("localhost", "by_tls", &roots), None);
    // Neither the environment nor a file has the password.
    let refused = machine.cmd(["init"]).output().warns("PGPASSWORD");
    assert!(!refused.status.success(), "{refused}");
    let file = machine.sandbox.root().join("passwords");
    fs::write(&file, format!("localhost:{}:dormouse:scram:secret\n", server.port())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    machine.env.push(("PGPASSFILE".to_owned(), file.to_str().unwrap().to_owned()));
    // Commands in a turn must find the password too, in the file that `PGPASSFILE` names.
    let machine = machine.with_ada("dormouse get ada status >/dev/null && echo done");
    lives(&machine);
    // The certificate has another host name, or no trusted authority has signed the certificate.
    let other = server.roots().with_file_name("other.pem");
    for more in [format!("&sslmode=verify-full&sslrootcert={}", other.display()), roots.clone()] {
        let host = if more == roots { "127.0.0.1" } else { "localhost" };
        let wrong = Machine::new(&url(host, "by_tls", &more), Some("secret")).cmd(["list"]).output();
        assert!(!wrong.warns("certificate").status.success());
    }
}

/// The password is in no environment and no command line of turns, hooks and tasks, and in no file
/// of the state directory.
#[test]
fn turns_hooks_and_tasks_never_see_the_password() {
    needs!("postgresql");
    let password = "secret";
    let url = of_scram(server())("127.0.0.1", "by_word", "&sslmode=require");
    let seen = "{ env; tr '\\0' ' ' </proc/$PPID/cmdline; echo; } >>";
    let machine = Machine::new(&url, Some(password));
    let told = machine.sandbox.root().join("told");
    let line = |who: &str| format!("echo {who} >>{0}; {seen}{0}", told.display());
    let machine = machine.with_ada(&format!("{}; echo done", line("turn")));
    let hook = machine.anchor().join("hooks/on-state-change");
    write_program(&hook, &format!("#!/bin/sh\n{}\n", line("hook")));
    machine.run(["enqueue", "ada", "hello"]);
    let step = machine.cmd(["tick", "ada", "-v"]).output();
    assert!(step.stdout.contains("completed") && !step.stderr.contains(password), "{step}");
    machine.ended_task(&machine.id(["task", "start", "-a", "ada", "--", "sh", "-c", &line("task")]));
    let told = fs::read_to_string(&told).unwrap();
    for who in ["turn", "hook", "task"] {
        assert!(told.lines().any(|line| line == who), "the {who} has not run: {told}");
    }
    assert!(told.contains("DORMOUSE_FENCE="), "{told}");
    assert!(!told.contains("PGPASSWORD") && !told.contains(password), "{told}");
    for entry in walkdir::WalkDir::new(machine.anchor()) {
        let entry = entry.unwrap();
        let text = fs::read(entry.path()).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&text).contains(password), "{}", entry.path().display());
    }
}

#[test]
fn an_agent_is_exported_and_removed() {
    needs!("postgresql");
    let machine = Machine::new(&server().url("removed"), None).with_ada("echo done");
    machine.run(["enqueue", "ada", "first"]);
    machine.run(["tick", "--all", "--until-idle"]);
    machine.run(["enqueue", "ada", "second"]);
    // A message is pending, so `rm` refuses and changes nothing.
    machine.cmd(["rm", "ada"]).exits(4).warns("1 message");
    assert_eq!(machine.json(["get", "ada"])["queue"]["pending"], 1);
    machine.run(["export", "ada", "--output", "copy.tar", "-q"]);
    let again = machine.run(["enqueue", "ada", "third"]);
    assert!(again.starts_with("msg_"), "an export changes nothing: {again}");
    let removed = machine.json(["rm", "ada", "--force"]);
    let expected = (Some(true), Some(2));
    assert_eq!((removed["removed"].as_bool(), removed["unfinished"]["messages"].as_u64()), expected);
    assert_eq!(machine.cmd(["list"]).output().stdout, "");
    for words in [["get", "ada"], ["tick", "ada"]] {
        machine.cmd(words).exits(3);
    }
    assert!(!machine.anchor().join("agents/ada").exists());
    let counted = "SELECT sum(n) FROM (SELECT count(*) n FROM removed.agent UNION ALL SELECT count(*) FROM removed.inbox \
         UNION ALL SELECT count(*) FROM removed.state UNION ALL SELECT count(*) FROM removed.event \
         UNION ALL SELECT count(*) FROM removed.archive UNION ALL SELECT count(*) FROM removed.record) c";
    assert_eq!(server().sql(counted), ["0"], "the tables still have rows of the agent");
    // A state directory can import the export of the database.
    let directory = Sandbox::new().with_real_clock();
    let stream = machine.sandbox.project().join("ada.tar");
    directory.cmd(["import", stream.to_str().unwrap()]).output();
    let ada = directory.project().join(".dormouse/agents/ada");
    assert_eq!(names(&ada.join("inbox")).iter().filter(|name| !name.starts_with('.')).count(), 2);
    assert!(tree(&ada.join("runs")).keys().any(|path| path.ends_with("stdout.log")));
    directory.cmd(["doctor", "ada"]).exits(0);
    directory.cmd(["tick", "ada"]).exits(0);
}

#[test]
fn a_message_to_an_agent_that_has_moved_is_refused() {
    needs!("postgresql");
    let machine = Machine::new(&server().url("left"), None).with_ada("echo done");
    machine.run(["enqueue", "ada", "with it"]);
    machine.run(["export", "ada", "--move", "host-b", "--output", "ada.tar", "-q"]);
    machine.cmd(["enqueue", "ada", "too late"]).exits(4).warns("moved to host-b");
    let batch = machine.cmd(["enqueue", "ada", "--batch"]).stdin("{\"body\":\"one\"}\n");
    batch.exits(4).warns("moved to host-b");
    // A second export must have the same bytes.
    machine.run(["export", "ada", "--move", "host-b", "--output", "again.tar", "-q"]);
    let stream = |name: &str| fs::read(machine.sandbox.project().join(name)).unwrap();
    assert!(stream("ada.tar") == stream("again.tar"));
    machine.run(["rm", "ada", "--no-export", "--force", "-q"]);
    assert_eq!(machine.cmd(["list"]).output().stdout, "");
}

#[test]
fn doctor_reads_every_record_of_a_database() {
    needs!("postgresql");
    let server = durable();
    let url = server.url("checked");
    let machine = Machine::new(&url, None).with_ada("echo done");
    machine.run(["enqueue", "ada", "hello"]);
    machine.run(["tick", "ada"]);
    machine.run(["enqueue", "ada", "more", "--in", "1h"]);
    assert!(machine.run(["doctor"]).ends_with("in 1 agent: nothing wrong\n"));
    assert_eq!(machine.run(["doctor", "--quick"]), "0 records in 0 agents: nothing wrong\n");
    // This version can't read one record, a counter is wrong, and a message belongs to no agent.
    server.sql(
        "UPDATE checked.record SET body = replace(body::text, '\"active\"', '\"odd\"')::json WHERE kind = 'trigger';
         UPDATE checked.state SET body = replace(body::text, '\"dead\": 0', '\"dead\": 3')::json;
         INSERT INTO checked.inbox (agent_id, prio, id, body) VALUES (999, 1, gen_random_uuid(), '{}')",
    );
    let kinds = |args: &[&str]| -> Vec<(String, bool)> {
        let ran = machine.cmd([&["--json", "doctor"], args].concat()).output();
        assert_eq!((ran.status.code(), ran.stderr.as_str()), (Some(6), ""), "{ran}");
        let found = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let named = found.filter_map(|one| Some((one["kind"].as_str()?.to_owned(), one["repaired"] == true)));
        named.collect()
    };
    let expect = |repaired| {
        [("orphans", false), ("damaged", false), ("dead_count", repaired)]
            .map(|(kind, is)| (kind.to_owned(), is))
            .to_vec()
    };
    assert_eq!(kinds(&[]), expect(false));
    assert_eq!(kinds(&["--repair"]), expect(true));
    assert_eq!(kinds(&[]), expect(false)[..2]);
    let said = machine.cmd(["doctor"]).output().stdout;
    assert!(said.contains(": agents/ada/triggers/trig_"), "{said}");
    // `doctor` has removed the files that it wrote to check the records.
    assert_eq!(names(&machine.anchor().join("agents")), ["ada"]);
    // Agents whose rows no command can use do not prevent the steps of other agents.
    server.sql(
        "INSERT INTO checked.agent (name, identity, policy) VALUES ('../eve', '{}', ''), ('fay', '{}', '');
         INSERT INTO checked.inbox SELECT id, 1, gen_random_uuid(), NULL, '{}' FROM checked.agent WHERE name = '../eve';
         UPDATE checked.agent SET is_shut = true WHERE name = 'ada'",
    );
    let said = machine.cmd(["doctor"]).output().stdout;
    for expected in [
        "`../eve` in the table `agent` has a name",
        "`fay` in the table `agent` has no row",
        "`ada` in the table `agent` takes nothing in",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    for all in [&["list"][..], &["tick", "--all"]] {
        let ran = machine.cmd(all.iter().copied()).output();
        assert!(!ran.stderr.contains("names of agents"), "{ran}");
    }
    // This server has `fsync` off, so a crash of its machine may lose acknowledged changes.
    let unsafe_machine = Machine::new(&self::server().url("forgetful"), None).with_ada("echo done");
    unsafe_machine.cmd(["doctor"]).exits(6).shows("not_durable: `fsync` is off");
    server.sql("DROP TABLE checked.plan; DROP FUNCTION checked.deliver");
    let ran = machine.cmd(["doctor", "--quick"]).exits(6);
    ran.shows("no_table: the table `plan`").shows("no_table: the function `deliver`");
}

/// `doctor` writes records into temporary files to check them. If it is killed, the files stay
/// until the next `create`.
#[test]
fn create_removes_the_stale_files_of_a_killed_doctor() {
    needs!("postgresql");
    let machine = Machine::new(&server().url("left_by_doctor"), None).with_ada("echo done");
    let left = machine.anchor().join("agents/.new-ada-1");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("state.json"), "{}").unwrap();
    machine.run(["create", "bob", "-q", "--", "true"]);
    assert!(!left.exists() && machine.anchor().join("agents/ada").exists());
}

/// Machine whose run has saved the output of the command `saved` as its checkpoint and has yielded.
/// The next turn prints checksum and size of the checkpoint.
fn half_done(url: &str, saved: &str) -> Machine {
    let turn = format!(
        "cat >/dev/null; if test -n \"$DORMOUSE_CHECKPOINT\"; then cksum < \"$DORMOUSE_CHECKPOINT\"; \
         else echo early | dormouse checkpoint -; {saved} | dormouse yield --checkpoint - >/dev/null; fi"
    );
    let machine = Machine::new(url, None).with_ada(&turn);
    machine.run(["enqueue", "ada", "work"]);
    assert_eq!(machine.json(["tick", "ada"])["terminal"], "suspended");
    machine.run(["resume", "ada"]);
    machine
}

#[test]
fn a_run_continues_on_another_machine_from_its_checkpoint() {
    needs!("postgresql");
    for (schema, saved, sum) in [
        ("saved_some", "printf half", "2407547407 4"),
        ("saved_much", "head -c 5000000 /dev/zero", "834356705 5000000"),
    ] {
        let url = durable().url(schema);
        let one = half_done(&url, saved);
        let other = Machine::new(&url, None);
        other.cmd(["doctor"]).exits(0);
        let step = other.json(["tick", "ada"]);
        assert_eq!((&step["terminal"], &step["brief"]), (&json!("completed"), &json!(sum)), "{schema}");
        let left = durable().sql(&format!("SELECT count(*) FROM {schema}.blob"));
        assert_eq!(left, ["0"], "the checkpoint was not deleted with its message");
        one.cmd(["doctor"]).exits(0);
    }
}

#[test]
fn a_lost_checkpoint_is_reported() {
    needs!("postgresql");
    let url = durable().url("saved");
    let one = half_done(&url, "printf half");
    durable().sql("DELETE FROM saved.blob");
    one.cmd(["doctor"]).exits(6).shows("checkpoint: missing");
    let tick = Machine::new(&url, None).cmd(["tick", "ada"]).output();
    tick.warns("is missing: the turn starts from the beginning");
}

/// `tick --all` makes no requests for agents that rest, whatever their number is.
#[test]
fn tick_all_needs_no_round_trips_for_resting_agents() {
    needs!("postgresql");
    let trips = [0, 20_000].map(|resting| {
        let schema = format!("resting_{resting}");
        let owner = Machine::new(&server().url(&schema), None).with_ada("dormouse enqueue bob hello -q && echo done");
        owner.add("bob", "echo done");
        owner.run(["tick", "--all", "--until-idle", "-q"]);
        server().sql(&format!(
            "INSERT INTO {schema}.agent (name, identity, policy) SELECT 'rests' || n, '1', '' FROM generate_series(1, {resting}) n;
             INSERT INTO {schema}.state (agent_id, revision, body) SELECT id, 1, '1' FROM {schema}.agent WHERE name LIKE 'rests%';
             INSERT INTO {schema}.due SELECT id, '', 9000000000000 FROM {schema}.agent WHERE name LIKE 'rests%'"
        ));
        let proxy = Proxy::before(server().socket(), None);
        let machine = Machine::through(&proxy, "dormouse", &schema);
        assert_eq!(machine.run(["tick", "--all"]), "", "no agent has anything to do");
        machine.run(["enqueue", "ada", "work"]);
        // `bob` takes the message that `ada` has sent, in the same `tick --all`.
        assert_eq!(texts(&machine.json_lines(["tick", "--all"]), "agent"), ["ada", "bob"]);
        machine.cmd(["tick", "--all", "--exit-code"]).exits(10);
        proxy.trips()
    });
    // On a busy machine a turn takes longer, and its lease needs some more round trips.
    assert!(trips[0].abs_diff(trips[1]) < 10, "{trips:?}");
}

/// Only `doctor` can report that no machine ticks the agents of a pool.
#[test]
fn doctor_names_a_pool_that_no_machine_ticks() {
    needs!("postgresql");
    let machine = Machine::new(&durable().url("unticked"), None).with_ada("echo done");
    let late = || {
        durable().sql(
            "INSERT INTO unticked.due SELECT id, pool, 1000 FROM unticked.agent \
             ON CONFLICT (agent_id) DO UPDATE SET due_at = 1000;\
             UPDATE unticked.state SET body = regexp_replace(body::text, 'since\": \"20..', 'since\": \"2000')::json",
        );
        let ran = machine.cmd(["doctor"]).output();
        ran.stdout.lines().filter(|line| line.contains("nobody_ticks")).map(str::to_owned).collect::<Vec<_>>()
    };
    let [said] = late().try_into().unwrap();
    assert!(
        said.contains("an agent of the common pool") && said.contains("no machine has ever ticked it"),
        "{said}"
    );
    machine.run(["tick", "ada"]);
    assert_eq!(late().len(), 1, "`tick AGENT` looks at no other agent");
    machine.run(["next-wake", "--all"]);
    assert_eq!(late().len(), 1, "`next-wake` steps no agent");
    machine.run(["tick", "--all"]);
    assert_eq!(late(), Vec::<String>::new());
    durable().sql("UPDATE unticked.anchor SET seen_at = seen_at - 7500000");
    let [said] = late().try_into().unwrap();
    assert!(said.contains("no machine has ticked it for 2h5m"), "{said}");
    // `doctor` also reports an old waiting message of a pool, unless the agent runs or is stopped.
    durable().sql("DELETE FROM unticked.due; UPDATE unticked.agent SET pool = 'gpu'");
    machine.run(["enqueue", "ada", "work"]);
    let waiting = || {
        durable().sql("UPDATE unticked.inbox SET id = '01900000-0000-7000-8000-000000000000'");
        machine.cmd(["doctor"]).output().stdout.contains("an agent of pool `gpu`")
    };
    assert!(waiting());
    durable().sql("INSERT INTO unticked.lease VALUES (1, 'run', 9, 'x', 'x', 1, 9000000000000)");
    assert!(!waiting(), "a machine runs a turn of the agent");
    durable().sql("DELETE FROM unticked.lease");
    machine.run(["stop", "ada"]);
    assert!(!waiting());
}

/// A command that finds no output on this machine prints a note, because another machine may have
/// the output.
#[test]
fn a_command_reports_that_the_output_is_on_another_machine() {
    needs!("postgresql");
    let [one, other] = Machine::two("outputs");
    one.run(["enqueue", "ada", "work", "-q"]);
    one.run(["tick", "ada", "-q"]);
    let task = one.id(["task", "start", "-a", "ada", "--", "sh", "-c", "echo built"]);
    one.ended_task(&task);
    for (args, here) in [
        (["run", "show", "latest", "--stdout"].as_slice(), "done\n"),
        (&["run", "show", "latest", "--stderr"], ""),
        (&["task", "output", &task], "built\n"),
    ] {
        assert_eq!(one.run(args.iter().copied()), here);
        let ran = other.cmd(args.iter().copied()).output();
        assert_eq!((ran.code(), ran.stdout.as_str()), (0, ""), "{ran}");
        assert!(ran.stderr.contains("this machine has no output of it"), "{ran}");
    }
}
