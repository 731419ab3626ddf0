//! Tests commands while the database server is read-only, has no disk space or no connection left,
//! cancels statements, shuts down, or is replaced by a standby that lacks the last changes.
//!
//! A command that fails changes nothing and says what to do. After the trouble the work continues.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use predicates::prelude::*;
use predicates::str::contains;

use crate::fleet::Machine;
use crate::fleet_chaos::host::{Fleet, Host};
use crate::fleet_chaos::judge::{Line, Sign};
use crate::fleet_chaos::net::network;
use crate::harness::Ran;
use crate::missing_tools::leave_out;
use crate::server::{Server, durable, own};
use crate::setup::{Beside, eventually};
use crate::storm::world::mount;

/// Commands that only read a store with the agent `ada`.
const READING: &[&[&str]] = &[
    &["get", "ada", "status"],
    &["get", "ada", "queue.pending"],
    &["--json", "list"],
    &["--json", "queue", "list", "-a", "ada"],
    &["--json", "events", "ada"],
    &["--json", "run", "list", "-a", "ada"],
    &["--json", "explain", "ada"],
    &["tick", "ada", "--dry-run"],
    &["work", "list", "-a", "ada"],
    &["timer", "list", "-a", "ada"],
];

/// Commands that change a store with the agent `ada`.
const WRITING: &[&[&str]] = &[
    &["enqueue", "ada", "more"],
    &["wake", "ada"],
    &["tick", "ada"],
    &["tick", "--all"],
    &["stop", "ada"],
    &["preempt", "ada", "--reason", "r"],
    &["create", "bob", "--", "true"],
    &["rename", "ada", "eve"],
    &["rm", "ada", "--force", "--no-export"],
    &["work", "add", "-a", "ada", "to be done"],
    &["timer", "add", "-a", "ada", "--in", "1h", "later"],
    &["wait", "-a", "ada", "--on", "external", "--expires", "1h", "--reason", "r"],
    &["task", "start", "-a", "ada", "--", "true"],
    &["trigger", "create", "-a", "ada"],
    &["queue", "dead", "-a", "ada", "--ack"],
    &["gc", "ada"],
];

/// Returns all rows of the agents, sorted.
fn rows(server: &Server, schema: &str) -> Vec<String> {
    let tables = ["agent", "state", "due", "inbox", "record", "dedupe", "lease", "archive", "event"];
    let all = |table: &&str| format!("SELECT '{table}' || t::text FROM {schema}.{table} t");
    let all: Vec<String> = tables.iter().map(all).collect();
    let mut rows = server.sql(&all.join(" UNION ALL "));
    rows.sort();
    rows
}

/// Asserts that each writing command is refused and changes nothing, and that each reading command
/// prints the same as before.
#[track_caller]
fn assert_only_read(machine: &Machine, said: &[Ran], server: &Server, schema: &str) {
    let before = rows(server, schema);
    for (words, said) in READING.iter().zip(said) {
        let ran = machine.cmd(words.iter().copied()).output();
        assert_eq!(
            (ran.code(), &ran.stdout, &ran.stderr),
            (said.code(), &said.stdout, &said.stderr),
            "{words:?}"
        );
    }
    for words in WRITING {
        let ran = machine.cmd(words.iter().copied()).output();
        ran.exits(1).warns("only reads: ").warns("name the server that takes changes");
    }
    assert_eq!(rows(server, schema), before);
}

fn read(machine: &Machine) -> Vec<Ran> {
    READING.iter().map(|words| machine.cmd(words.iter().copied()).output()).collect()
}

/// Store with the agent `ada`, which has had a turn and has a pending message.
fn with_something_to_do(url: &str) -> Machine {
    let machine = Machine::new(url, None).with_ada("echo done");
    machine.run(["enqueue", "ada", "first"]);
    machine.run(["tick", "ada", "-q"]);
    machine.run(["enqueue", "ada", "second"]);
    machine
}

#[test]
fn a_role_that_only_reads_by_default_changes_nothing() {
    needs!("postgresql");
    let (server, schema) = (durable(), "only_read");
    with_something_to_do(&server.url(schema));
    server.sql("CREATE ROLE hesitant LOGIN IN ROLE dormouse");
    let machine = Machine::new(&server.url_of("hesitant", schema), None);
    let said = read(&machine);
    server.sql("ALTER ROLE hesitant SET default_transaction_read_only = on");
    assert_only_read(&machine, &said, server, schema);
    // `doctor` can't take locks in a read-only session, but it can check the records.
    let doctor = machine.cmd(["doctor"]).output();
    assert!(doctor.code() == 0 && doctor.stdout.ends_with("in 1 agent: nothing wrong\n"), "{doctor}");
    server.sql("ALTER ROLE hesitant RESET default_transaction_read_only");
    assert!(machine.run(["tick", "ada"]).contains("completed"));
}

#[test]
fn a_standby_is_read_and_not_written() {
    needs!("postgresql");
    let (primary, schema) = (Server::start(""), "on_standby");
    let said = read(&with_something_to_do(&primary.url(schema)));
    let standby = primary.standby();
    primary.until_followed_by(&standby);
    let machine = Machine::new(&standby.url(schema), None);
    assert_only_read(&machine, &said, &standby, schema);
    let doctor = machine.cmd(["doctor"]).exits(6).shows("in 1 agent: 1 open\n");
    doctor.shows(": standby: this server follows another one");
    // A promoted standby takes changes like any server.
    primary.kill();
    standby.promote();
    assert!(machine.run(["tick", "ada"]).contains("completed"));
    machine.cmd(["doctor"]).exits(0);
}

#[test]
fn without_a_free_connection_commands_fail_and_a_turn_continues() {
    needs!("postgresql");
    let (server, schema) = (durable(), "crowded");
    with_something_to_do(&server.url(schema)).run(["tick", "ada", "-q"]);
    server.sql("CREATE ROLE crowded LOGIN IN ROLE dormouse");
    let machine = Machine::new(&server.url_of("crowded", schema), None);
    let place = machine.sandbox.root().to_owned();
    let turn = format!("touch {0}/begun; until test -e {0}/go; do sleep 0.05; done", place.display());
    machine.add("bob", &turn);
    machine.run(["enqueue", "bob", "wait for me"]);
    let step = Beside::start(machine.cmd(["tick", "bob"])).after_it_made(place.join("begun"));
    server.sql("ALTER ROLE crowded CONNECTION LIMIT 0");
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crowded'");
    let before = rows(server, schema);
    for words in READING.iter().chain(WRITING) {
        let ran = machine.cmd(words.iter().copied()).exits(1);
        ran.warns("too many connections").warns("are in use: try again");
    }
    assert_eq!(rows(server, schema), before);
    server.sql("ALTER ROLE crowded CONNECTION LIMIT -1");
    fs::write(place.join("go"), "").unwrap();
    step.end().exits(0).shows("completed");
}

/// Timeouts that an administrator has set for a role apply to statements and sessions; they must
/// not end turns that take longer.
#[test]
fn timeouts_of_a_role_cancel_statements_but_no_turns() {
    needs!("postgresql");
    let (server, schema) = (durable(), "limited");
    with_something_to_do(&server.url(schema));
    server.sql("CREATE ROLE hasty LOGIN IN ROLE dormouse");
    let machine = Machine::new(&server.url_of("hasty", schema), None);
    // The tick waits for a row lock of another session, longer than its statement timeout allows.
    server.sql("ALTER ROLE hasty SET statement_timeout = '100ms'");
    let mut other = server.session();
    other.ask(&format!("BEGIN; SELECT count(*) FROM (SELECT FROM {schema}.state FOR UPDATE) s"));
    let before = rows(server, schema);
    let ran = machine.cmd(["tick", "ada"]).exits(1);
    ran.warns("has cancelled the statement").warns("statement_timeout");
    assert_eq!(rows(server, schema), before);
    other.ask("ROLLBACK");
    server.sql(
        "ALTER ROLE hasty RESET statement_timeout; ALTER ROLE hasty SET lock_timeout = '100ms';
         ALTER ROLE hasty SET idle_in_transaction_session_timeout = '100ms';
         ALTER ROLE hasty SET idle_session_timeout = '100ms'",
    );
    machine.add("bob", "sleep 1; dormouse work add 'by a turn'; echo done");
    machine.run(["enqueue", "bob", "work"]);
    for agent in ["ada", "bob"] {
        assert!(machine.run(["tick", agent]).contains("completed"), "{agent}");
    }
    assert!(machine.run(["work", "list", "-a", "bob"]).contains("by a turn"));
}

/// A turn survives a restart of the server. Meanwhile commands report that the server is down.
#[test]
fn a_server_that_is_shut_down_ends_no_turn() {
    needs!("postgresql");
    let server = Server::start_in(network(), "");
    let fleet = Fleet::new(&server, "shut_down", &[0], &["ada"]);
    let one = &fleet.hosts[0];
    let message = one.run(&["enqueue", "ada", "wait for me"]).trim_end().to_owned();
    let step = Beside::start(one.cmd(&["tick", "ada"]));
    eventually("a turn", || fleet.log().first().cloned());
    let before = rows(&server, "shut_down");
    server.shut_down();
    for words in [["get", "ada"], ["stop", "ada"]] {
        one.cmd(&words).exits(1).warns("check that the server runs");
    }
    server.start_again();
    // The tick may have renewed its lease meanwhile; all other rows must be the same.
    let without_leases =
        |rows: Vec<String>| rows.into_iter().filter(|row| !row.starts_with("lease")).collect::<Vec<_>>();
    assert_eq!(without_leases(rows(&server, "shut_down")), without_leases(before));
    fleet.go();
    step.end().exits(0).shows("completed");
    assert!(one.run(&["queue", "show", &message]).contains("processed"));
}

/// The tables are on a separate file system, whose size the test sets.
#[test]
fn a_server_without_disk_space_keeps_acknowledged_messages() {
    needs!("postgresql");
    // Only the thread that mounts the file system, and its children, see the mount: the thread
    // enters a new mount namespace.
    thread::scope(|scope| scope.spawn(without_room).join().unwrap());
}

fn without_room() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let disk = place.path().join("disk");
    fs::create_dir(&disk).unwrap();
    if !mount(&disk, "24m") {
        return leave_out("no disk of its own can be mounted here");
    }
    own(&disk);
    let server = Server::start("");
    server.sql(&format!("CREATE TABLESPACE tight LOCATION '{}'", disk.display()));
    server.sql(
        "GRANT CREATE ON TABLESPACE tight TO dormouse; ALTER ROLE dormouse SET default_tablespace = tight",
    );
    let machine = Machine::new(&server.url("tight"), None).with_ada("echo done");
    let long = machine.sandbox.root().join("long");
    // PostgreSQL can't compress random bytes, so that each message takes its full size.
    let noise = "head -c 300000 /dev/urandom | base64 -w 0 > \"$0\"";
    assert!(Command::new("sh").args(["-c", noise]).arg(&long).status().unwrap().success());
    let mut acknowledged = Vec::new();
    let refused = loop {
        let ran = machine.cmd(["enqueue", "ada", "-"]).stdin(fs::read(&long).unwrap()).output();
        if ran.code() != 0 {
            break ran;
        }
        acknowledged.push(ran.stdout.trim_end().to_owned());
        assert!(acknowledged.len() < 200, "the disk does not fill up");
    };
    refused.exits(1).warns("has no room for it: ").warns("nothing was changed; free disk space");
    assert!(!acknowledged.is_empty());
    // The tick succeeds or reports the full disk. In both cases no message is lost.
    let step = machine.cmd(["tick", "ada", "--until-idle"]).output();
    assert!(step.code() == 0 || step.stderr.contains("has no room for it: "), "{step}");
    let waiting = || server.sql("SELECT count(*) FROM tight.inbox").remove(0).parse::<usize>().unwrap();
    let ended = || {
        let ended = "SELECT count(DISTINCT id) FROM tight.archive WHERE kind = 'message'";
        server.sql(ended).remove(0).parse::<usize>().unwrap()
    };
    assert_eq!(waiting() + ended(), acknowledged.len());
    let doctor = machine.cmd(["doctor"]).output();
    assert!(doctor.stdout.ends_with("in 1 agent: nothing wrong\n"), "{doctor}");
    make_room(&disk);
    acknowledged.push(machine.run(["enqueue", "ada", "there is room again"]).trim_end().to_owned());
    eventually("the end of all messages", || {
        machine.cmd(["tick", "ada", "--until-idle", "-q"]).output();
        (waiting() == 0).then_some(())
    });
    for message in &acknowledged {
        assert_eq!(machine.json(["queue", "show", message])["status"], "processed");
    }
    let _ = Command::new("umount").arg("--lazy").arg(&disk).status();
}

fn make_room(disk: &Path) {
    let mount = Command::new("mount").args(["-o", "remount,size=256m"]).arg(disk).status();
    assert!(mount.unwrap().success());
}

/// Kills the first server, promotes its standby, and leads the machines to the standby.
fn fail_over(fleet: &Fleet<'_>, standby: &Server) {
    fleet.server.kill();
    standby.promote();
    for host in &fleet.hosts {
        host.proxy().lead_to(standby.socket());
    }
}

/// Starts a turn that the standby does not know. Returns the step, the id of the turn's message,
/// which the standby has, the id of an acknowledged message that it lacks, and the turn's log line.
fn begin(fleet: &Fleet<'_>, standby: &Server) -> (Beside, String, String, Line) {
    let one = &fleet.hosts[0];
    let known = one.run(&["enqueue", "ada", "wait for me"]).trim_end().to_owned();
    fleet.server.until_followed_by(standby);
    standby.stop_following();
    let lost = one.run(&["enqueue", "ada", "0 tenths"]).trim_end().to_owned();
    let step = Beside::start(one.cmd(&["tick", "ada"]));
    let turn = eventually("a turn", || fleet.log().first().cloned());
    (step, known, lost, turn)
}

/// Asserts that a tick has failed because the records do not have its run any more.
#[track_caller]
fn assert_forgotten(ran: Ran) {
    ran.exits(5).warns("nothing of ");
}

fn is_processed(host: &Host, message: &str) -> bool {
    host.run(&["--json", "queue", "show", message]).contains("\"status\":\"processed\"")
}

/// After a failover the new server gives the fencing token of a lost lease to another machine,
/// while the first turn still runs. Neither machine takes the lease of the other for its own.
#[test]
fn a_fencing_token_that_a_failover_reuses_confuses_no_machine() {
    needs!("postgresql");
    let server = Server::start("");
    let fleet = Fleet::by_proxy(&server, "forgotten", &[0, 0], &["ada"]);
    let standby = server.standby();
    let (one, other) = (&fleet.hosts[0], &fleet.hosts[1]);
    let (step, known, lost, turn) = begin(&fleet, &standby);
    one.freeze("tick ada");
    fail_over(&fleet, &standby);
    let second = Beside::start(other.cmd(&["tick", "ada"]));
    let again = eventually("another turn", || fleet.log().into_iter().find(|line| line.run != turn.run));
    assert_eq!((again.fence, &again.message), (turn.fence, &known), "the test needs equal tokens");
    // Commands of the turn that began before the failover must fail and change nothing.
    let before = rows(&standby, "forgotten");
    for words in [&["work", "add", "-a", "ada", "too late"][..], &["enqueue", "ada", "too late"]] {
        one.as_turn(&turn, words).exits(5).warns("another machine has taken");
    }
    assert_eq!(rows(&standby, "forgotten"), before);
    one.thaw();
    assert_forgotten(step.end());
    let kept = standby.sql("SELECT fence FROM forgotten.lease WHERE subject = 'run'");
    assert_eq!(kept, [again.fence.to_string()], "the other machine has lost its lease");
    fleet.go();
    second.end().exits(0).shows("completed");
    assert!(is_processed(other, &known));
    // The standby never had the last acknowledged message, so its id is unknown.
    other.cmd(&["queue", "show", &lost]).exits(3);
    one.cmd(&["doctor"]).exits(0);
}

/// The turn succeeds, and no other machine has started one, but the new server does not have the
/// run that the tick wants to settle.
#[test]
fn a_settlement_of_a_run_that_a_failover_lost_is_refused() {
    needs!("postgresql");
    let server = Server::start("");
    let fleet = Fleet::by_proxy(&server, "unsettled", &[0], &["ada"]);
    let standby = server.standby();
    let one = &fleet.hosts[0];
    let (step, known, lost, turn) = begin(&fleet, &standby);
    one.freeze("tick ada");
    fail_over(&fleet, &standby);
    fleet.go();
    eventually("the end of the turn", || fleet.log().iter().any(|line| line.sign == Sign::End).then_some(()));
    let before = rows(&standby, "unsettled");
    one.thaw();
    assert_forgotten(step.end());
    assert_eq!(rows(&standby, "unsettled"), before);
    // The next tick runs the message again.
    one.run(&["tick", "ada", "--until-idle", "-q"]);
    assert!(is_processed(one, &known));
    let turns = fleet.log().iter().filter(|line| line.sign == Sign::Begin && line.run != turn.run).count();
    assert_eq!(turns, 1);
    one.cmd(&["queue", "show", &lost]).exits(3);
    one.cmd(&["doctor"]).exits(0);
}

/// A turn whose run the standby has continues after a failover, and is settled.
#[test]
fn a_turn_that_the_standby_knows_survives_a_failover() {
    needs!("postgresql");
    let server = Server::start("");
    let fleet = Fleet::by_proxy(&server, "outlasts", &[0, 0], &["ada"]);
    let standby = server.standby();
    let (one, other) = (&fleet.hosts[0], &fleet.hosts[1]);
    let message = one.run(&["enqueue", "ada", "wait for me"]).trim_end().to_owned();
    let step = Beside::start(one.cmd(&["tick", "ada"]));
    eventually("a turn", || fleet.log().first().cloned());
    server.until_followed_by(&standby);
    fail_over(&fleet, &standby);
    other.cmd(&["tick", "ada", "--json"]).assert().code(0).stdout(contains("terminal").not());
    fleet.go();
    step.end().exits(0).shows("completed");
    assert!(is_processed(other, &message));
}
