//! Agents in PostgreSQL, end to end: by which ways a command gets there, and who learns the password.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cutting::Proxy;
use crate::harness::{Cmd, Sandbox, write_program};
use crate::server::{Bouncer, LONG, Server, durable, server};
use crate::setup::{eventually, objects};

/// A machine whose commands name a URL.
pub struct Machine {
    pub sandbox: Sandbox,
    /// What every command has in its environment beside the rest.
    env: Vec<(String, String)>,
}

impl Machine {
    pub fn new(url: &str, password: Option<&str>) -> Machine {
        let mut env = vec![("DORMOUSE_DIR".to_owned(), url.to_owned())];
        env.extend(password.map(|password| ("PGPASSWORD".to_owned(), password.to_owned())));
        Machine { sandbox: Sandbox::empty().with_real_clock(), env }
    }

    pub fn cmd<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Cmd<'_> {
        self.env.iter().fold(self.sandbox.cmd(args), |cmd, (name, value)| cmd.env(name, value))
    }

    /// A command that succeeds without talk.
    #[track_caller]
    pub fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        let ran = self.cmd(args).output();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran}");
        ran.stdout
    }

    #[track_caller]
    pub fn json<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Value {
        let text = self.run(["--json"].into_iter().chain(args));
        serde_json::from_str(text.trim_end()).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// One object a line.
    #[track_caller]
    pub fn json_lines<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
        objects(&self.run(["--json"].into_iter().chain(args)))
    }

    /// The state directory of this machine.
    pub fn anchor(&self) -> PathBuf {
        let stores = self.sandbox.home().join(".local/state/dormouse");
        let mut found = fs::read_dir(stores).unwrap().map(|entry| entry.unwrap().path().join(".dormouse"));
        let anchor = found.next().unwrap();
        assert!(found.next().is_none(), "one URL, one directory");
        anchor
    }

    /// The agent `ada`, started. Its turns and hooks run these lines.
    pub fn with_ada(self, turn: &str) -> Machine {
        self.run(["init"]);
        self.run(["create", "ada", "--shell", turn]);
        self.run(["start", "ada"]);
        self
    }
}

/// The user `scram`, who may make schemas and logs in by password.
fn of_scram(server: &Server) -> impl Fn(&str, &str, &str) -> String {
    server.sql("GRANT CREATE ON DATABASE dormouse TO scram");
    let port = server.port();
    move |host, schema, more| format!("postgres://scram@{host}:{port}/dormouse?schema={schema}{more}")
}

/// What one agent does from its making to its end, by whatever way.
pub fn lives(machine: &Machine) {
    let message = machine.run(["enqueue", "ada", "hello"]);
    let step = machine.json(["tick", "ada"]);
    assert_eq!((step["terminal"].as_str(), step["brief"].as_str()), (Some("completed"), Some("done")));
    assert_eq!(machine.json(["queue", "show", message.trim_end()])["status"], "processed");
    let task = machine.run(["task", "start", "-a", "ada", "--", "sh", "-c", "echo built"]);
    eventually("the end of the task", || {
        machine.json(["task", "status", task.trim_end()])["ended_at"].is_string().then_some(())
    });
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
fn pgbouncer_may_stand_between() {
    needs!("postgresql");
    let bouncer = Bouncer::before(server());
    let machine = Machine::new(&bouncer.url("by_bouncer"), Some("secret"));
    let until = Instant::now() + LONG;
    while !machine.cmd(["init"]).output().status.success() {
        assert!(Instant::now() < until, "PgBouncer does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    lives(&machine.with_ada("echo done"));
}

#[test]
fn the_server_is_verified_and_the_password_comes_from_a_file() {
    needs!("postgresql");
    let server = server();
    let url = of_scram(server);
    let roots = format!("&sslmode=verify-full&sslrootcert={}", server.roots().display());
    let mut machine = Machine::new(&url("localhost", "by_tls", &roots), None);
    // Nobody has said the password.
    let refused = machine.cmd(["init"]).output();
    assert!(!refused.status.success() && refused.stderr.contains("PGPASSWORD"), "{refused}");
    let file = machine.sandbox.root().join("passwords");
    fs::write(&file, format!("localhost:{}:dormouse:scram:secret\n", server.port())).unwrap();
    let mut only_owner = fs::metadata(&file).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut only_owner, 0o600);
    fs::set_permissions(&file, only_owner).unwrap();
    machine.env.push(("PGPASSFILE".to_owned(), file.to_str().unwrap().to_owned()));
    // A turn that calls commands finds the password there, too.
    let machine = machine.with_ada("dormouse get ada status >/dev/null && echo done");
    lives(&machine);
    // The certificate is made out to another name, or nobody that is trusted has signed it.
    let other = server.roots().with_file_name("other.pem");
    for more in [format!("&sslmode=verify-full&sslrootcert={}", other.display()), roots.clone()] {
        let host = if more == roots { "127.0.0.1" } else { "localhost" };
        let wrong = Machine::new(&url(host, "by_tls", &more), Some("secret")).cmd(["list"]).output();
        assert!(!wrong.status.success() && wrong.stderr.contains("certificate"), "{wrong}");
    }
}

/// What runs for an agent has neither the password in its environment nor a command line that tells it, and no file of this
/// machine has it.
#[test]
fn whoever_steps_has_the_password_and_nobody_below() {
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
    let task = machine.run(["task", "start", "-a", "ada", "--", "sh", "-c", &line("task")]);
    eventually("the end of the task", || {
        machine.json(["task", "status", task.trim_end()])["ended_at"].is_string().then_some(())
    });
    let told = fs::read_to_string(&told).unwrap();
    for who in ["turn", "hook", "task"] {
        assert!(told.lines().any(|line| line == who), "{who} has run: {told}");
    }
    assert!(told.contains("DORMOUSE_FENCE="), "{told}");
    assert!(!told.contains("PGPASSWORD") && !told.contains(password), "{told}");
    for entry in walkdir::WalkDir::new(machine.anchor()) {
        let entry = entry.unwrap();
        let text = fs::read(entry.path()).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&text).contains(password), "{}", entry.path().display());
    }
}

/// What a stream has, without the files of processes: paths and contents.
fn records(dir: &std::path::Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            let path = entry.path().strip_prefix(dir).unwrap().display().to_string();
            found.push((path, String::from_utf8(fs::read(entry.path()).unwrap()).unwrap()));
        }
    }
    found
}

#[test]
fn an_agent_is_exported_and_removed() {
    needs!("postgresql");
    let machine = Machine::new(&server().url("removed"), None).with_ada("echo done");
    machine.run(["enqueue", "ada", "first"]);
    machine.run(["tick", "--all", "--until-idle"]);
    machine.run(["enqueue", "ada", "second"]);
    // It has something before it: nothing is removed, and nothing of it changes.
    let refused = machine.cmd(["rm", "ada"]).output();
    assert!(refused.status.code() == Some(4) && refused.stderr.contains("1 message"), "{refused}");
    assert_eq!(machine.json(["get", "ada"])["queue"]["pending"], 1);
    machine.run(["export", "ada", "--output", "copy.tar", "-q"]);
    let again = machine.run(["enqueue", "ada", "third"]);
    assert!(again.starts_with("msg_"), "an export changes nothing: {again}");
    let removed = machine.json(["rm", "ada", "--force"]);
    assert_eq!(
        (removed["removed"].as_bool(), removed["unfinished"]["messages"].as_u64()),
        (Some(true), Some(2))
    );
    assert_eq!(machine.cmd(["list"]).output().stdout, "");
    for gone in [["get", "ada"], ["tick", "ada"]] {
        assert_eq!(machine.cmd(gone).output().status.code(), Some(3));
    }
    assert!(!machine.anchor().join("agents/ada").exists());
    let counted = "SELECT sum(n) FROM (SELECT count(*) n FROM removed.agent UNION ALL SELECT count(*) FROM removed.inbox \
         UNION ALL SELECT count(*) FROM removed.state UNION ALL SELECT count(*) FROM removed.event \
         UNION ALL SELECT count(*) FROM removed.archive UNION ALL SELECT count(*) FROM removed.record) c";
    assert_eq!(server().sql(counted), ["0"], "nothing is left of it");
    // A directory takes its stream.
    let directory = Sandbox::new().with_real_clock();
    let stream = machine.sandbox.project().join("ada.tar");
    directory.cmd(["import", stream.to_str().unwrap()]).output();
    let ada = directory.project().join(".dormouse/agents/ada");
    assert_eq!(
        fs::read_dir(ada.join("inbox"))
            .unwrap()
            .filter(|entry| !entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'))
            .count(),
        2
    );
    assert!(records(&ada.join("runs")).iter().any(|(path, _)| path.ends_with("stdout.log")));
    let doctor = directory.cmd(["doctor", "ada"]).output();
    assert!(doctor.status.success(), "{doctor}");
    let ticked = directory.cmd(["tick", "ada"]).output();
    assert!(ticked.status.success(), "{ticked}");
}

#[test]
fn whoever_says_something_to_an_agent_that_has_left_is_told() {
    needs!("postgresql");
    let machine = Machine::new(&server().url("left"), None).with_ada("echo done");
    machine.run(["enqueue", "ada", "with it"]);
    machine.run(["export", "ada", "--move", "host-b", "--output", "ada.tar", "-q"]);
    let late = machine.cmd(["enqueue", "ada", "too late"]).output();
    assert!(late.status.code() == Some(4) && late.stderr.contains("moved to host-b"), "{late}");
    let batch = machine.cmd(["enqueue", "ada", "--batch"]).stdin("{\"body\":\"one\"}\n").output();
    assert!(batch.status.code() == Some(4) && batch.stderr.contains("moved to host-b"), "{batch}");
    // The stream is the same as often as it is asked for.
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
    // One record is nothing that this version can read, a counter is wrong, and a message is nobody's.
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
    // Nothing of it is left on this machine.
    let agents = fs::read_dir(machine.anchor().join("agents")).unwrap();
    let names: Vec<_> = agents.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["ada"]);
    // Rows of agents that no command can use. They keep nobody else from a step.
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
    // A server that may forget what it has acknowledged.
    let unsafe_machine = Machine::new(&self::server().url("forgetful"), None).with_ada("echo done");
    let ran = unsafe_machine.cmd(["doctor"]).output();
    assert!(ran.status.code() == Some(6) && ran.stdout.contains("not_durable: `fsync` is off"), "{ran}");
    server.sql("DROP TABLE checked.plan; DROP FUNCTION checked.deliver");
    let ran = machine.cmd(["doctor", "--quick"]).output();
    assert_eq!(ran.status.code(), Some(6), "{ran}");
    for gone in ["no_table: the table `plan`", "no_table: the function `deliver`"] {
        assert!(ran.stdout.contains(gone), "{ran}");
    }
}

/// `doctor` looks at records as files, which it makes for a moment. Killed, it leaves them.
#[test]
fn what_a_doctor_has_left_goes_when_an_agent_is_made() {
    needs!("postgresql");
    let machine = Machine::new(&server().url("left_by_doctor"), None).with_ada("echo done");
    let left = machine.anchor().join("agents/.new-ada-1");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("state.json"), "{}").unwrap();
    machine.run(["create", "bob", "-q", "--", "true"]);
    assert!(!left.exists() && machine.anchor().join("agents/ada").exists());
}

/// A machine whose run has saved this, and gives way. The next one says what it goes on from.
fn half_done(url: &str, saved: &str) -> Machine {
    let turn = format!(
        "cat >/dev/null; if test -n \"$DORMOUSE_CHECKPOINT\"; then cksum < \"$DORMOUSE_CHECKPOINT\"; \
         else echo early | dormouse checkpoint -; {saved} | dormouse yield --allow-empty --checkpoint - >/dev/null; fi"
    );
    let machine = Machine::new(url, None).with_ada(&turn);
    machine.run(["enqueue", "ada", "work"]);
    assert_eq!(machine.json(["tick", "ada"])["terminal"], "suspended");
    machine.run(["resume", "ada"]);
    machine
}

#[test]
fn a_run_goes_on_elsewhere_from_what_was_saved() {
    needs!("postgresql");
    for (schema, saved, sum) in [
        ("saved_some", "printf half", "2407547407 4"),
        ("saved_none", "printf ''", "4294967295 0"),
        ("saved_much", "head -c 5000000 /dev/zero", "834356705 5000000"),
    ] {
        let url = durable().url(schema);
        let one = half_done(&url, saved);
        let other = Machine::new(&url, None);
        assert_eq!(other.cmd(["doctor"]).output().code(), 0);
        let step = other.json(["tick", "ada"]);
        assert_eq!((&step["terminal"], &step["brief"]), (&json!("completed"), &json!(sum)), "{schema}");
        let left = durable().sql(&format!("SELECT count(*) FROM {schema}.blob"));
        assert_eq!(left, ["0"], "it goes with its message");
        assert_eq!(one.cmd(["doctor"]).output().code(), 0);
    }
}

#[test]
fn a_checkpoint_that_is_nowhere_is_found_missing() {
    needs!("postgresql");
    let url = durable().url("saved");
    let one = half_done(&url, "printf half");
    durable().sql("DELETE FROM saved.blob");
    let ran = one.cmd(["doctor"]).output();
    assert!(ran.code() == 6 && ran.stdout.contains("checkpoint: missing"), "{ran}");
    let other = Machine::new(&url, None);
    let ran = other.cmd(["tick", "ada"]).output();
    assert!(ran.stderr.contains("is missing: the turn starts from the beginning"), "{ran}");
}

/// However many agents rest: they are not even looked at.
#[test]
fn a_tick_of_all_costs_what_the_due_agents_cost() {
    needs!("postgresql");
    let trips = [0, 20_000].map(|resting| {
        let schema = format!("resting_{resting}");
        let owner = Machine::new(&server().url(&schema), None).with_ada("dormouse enqueue bob hello -q && echo done");
        owner.run(["create", "bob", "--shell", "echo done"]);
        owner.run(["start", "bob"]);
        owner.run(["tick", "--all", "--until-idle", "-q"]);
        server().sql(&format!(
            "INSERT INTO {schema}.agent (name, identity, policy) SELECT 'rests' || n, '1', '' FROM generate_series(1, {resting}) n;
             INSERT INTO {schema}.state (agent_id, revision, body) SELECT id, 1, '1' FROM {schema}.agent WHERE name LIKE 'rests%';
             INSERT INTO {schema}.due SELECT id, '', 9000000000000 FROM {schema}.agent WHERE name LIKE 'rests%'"
        ));
        let proxy = Proxy::before(server().socket(), None);
        let url = format!(
            "postgres://dormouse@127.0.0.1:{}/dormouse?schema={schema}&sslmode=disable",
            proxy.port
        );
        let machine = Machine::new(&url, None);
        assert_eq!(machine.run(["tick", "--all"]), "", "nobody has anything to do");
        machine.run(["enqueue", "ada", "work"]);
        // What the first has sent is there for the second, in the same tick.
        let stepped = objects(&machine.run(["--json", "tick", "--all"]));
        let names: Vec<_> = stepped.iter().map(|step| step["agent"].as_str().unwrap()).collect();
        assert_eq!(names, ["ada", "bob"]);
        assert_eq!(machine.cmd(["tick", "--all", "--exit-code"]).output().code(), 10);
        proxy.trips()
    });
    assert_eq!(trips[0], trips[1]);
}

/// Nothing happens where nobody ticks, and nobody would say so.
#[test]
fn doctor_says_where_nobody_ticks() {
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
    assert_eq!(late().len(), 1, "who steps one agent by its name looks at no other");
    machine.run(["next-wake", "--all"]);
    assert_eq!(late().len(), 1, "nor does who only asks");
    machine.run(["tick", "--all"]);
    assert_eq!(late(), Vec::<String>::new());
    durable().sql("UPDATE unticked.anchor SET seen_at = seen_at - 7500000");
    let [said] = late().try_into().unwrap();
    assert!(said.contains("no machine has ticked it for 2h5m"), "{said}");
    // A message that has waited says the same, unless its agent is stopped.
    durable().sql("DELETE FROM unticked.due; UPDATE unticked.agent SET pool = 'gpu'");
    machine.run(["enqueue", "ada", "work"]);
    let waiting = || {
        durable().sql("UPDATE unticked.inbox SET id = '01900000-0000-7000-8000-000000000000'");
        machine.cmd(["doctor"]).output().stdout.contains("an agent of pool `gpu`")
    };
    assert!(waiting());
    durable().sql("INSERT INTO unticked.lease VALUES (1, 'run', 9, 'x', 'x', 1, 9000000000000)");
    assert!(!waiting(), "a machine works on it");
    durable().sql("DELETE FROM unticked.lease");
    machine.run(["stop", "ada"]);
    assert!(!waiting());
}

/// Nothing that is silent looks as if a turn had written nothing.
#[test]
fn the_output_of_another_machine_is_said_to_be_there() {
    needs!("postgresql");
    let url = server().url("outputs");
    let one = Machine::new(&url, None).with_ada("cat >/dev/null; echo done");
    let other = Machine::new(&url, None);
    one.run(["enqueue", "ada", "work", "-q"]);
    one.run(["tick", "ada", "-q"]);
    let task = one.run(["task", "start", "-a", "ada", "--", "sh", "-c", "echo built"]);
    eventually("the end of the task", || {
        one.json(["task", "status", task.trim_end()])["ended_at"].is_string().then_some(())
    });
    let host = one.json(["task", "status", task.trim_end()])["host"].as_str().unwrap().to_owned();
    for (args, here, where_else) in [
        (["run", "show", "latest", "--stdout"].as_slice(), "done\n", "the machine on which it ran"),
        (&["run", "show", "latest", "--stderr"], "", ""),
        (&["task", "output", task.trim_end()], "built\n", &host),
    ] {
        assert_eq!(one.run(args.iter().copied()), here);
        let ran = other.cmd(args.iter().copied()).output();
        assert_eq!((ran.code(), ran.stdout.as_str()), (0, ""), "{ran}");
        assert_eq!(ran.stderr.contains("not on this machine"), !where_else.is_empty(), "{ran}");
        assert!(ran.stderr.contains(where_else), "{ran}");
    }
}
