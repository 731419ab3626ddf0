//! A server in trouble, as commands meet it: it only reads, it has no room or no connection left, it ends what is asked or
//! itself, and another one takes over that was behind.
//!
//! What fails changes nothing and says what to do; when the trouble is over the work goes on.

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
use crate::needs::leave_out;
use crate::server::{Server, durable, own};
use crate::setup::{Beside, eventually};
use crate::storm::world::mount;

/// What only looks at a store with the agent `ada`.
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

/// What changes it.
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

/// All rows that agents consist of.
fn rows(server: &Server, schema: &str) -> Vec<String> {
    let tables = ["agent", "state", "due", "inbox", "record", "dedupe", "lease", "archive", "event"];
    let all = |table: &&str| format!("SELECT '{table}' || t::text FROM {schema}.{table} t");
    let all: Vec<String> = tables.iter().map(all).collect();
    let mut rows = server.sql(&all.join(" UNION ALL "));
    rows.sort();
    rows
}

/// Each writing command is refused in these words and changes nothing; each reading one says what it said before.
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
        let is_said =
            ran.stderr.contains("only reads: ") && ran.stderr.contains("name the server that takes changes");
        assert!(ran.code() == 1 && is_said, "{words:?}: {ran}");
    }
    assert_eq!(rows(server, schema), before);
}

fn read(machine: &Machine) -> Vec<Ran> {
    READING.iter().map(|words| machine.cmd(words.iter().copied()).output()).collect()
}

/// A store with the agent `ada`, who has had a turn and has something more before her.
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
    // Who can't have a lock looks at the records all the same.
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
    let doctor = machine.cmd(["doctor"]).output();
    assert!(doctor.code() == 6 && doctor.stdout.contains("in 1 agent: 1 open\n"), "{doctor}");
    assert!(doctor.stdout.contains(": standby: this server follows another one"), "{doctor}");
    // It is one like any other from then on.
    primary.kill();
    standby.promote();
    assert!(machine.run(["tick", "ada"]).contains("completed"));
    assert_eq!(machine.cmd(["doctor"]).output().code(), 0);
}

#[test]
fn without_a_free_connection_commands_say_so_and_a_turn_goes_on() {
    needs!("postgresql");
    let (server, schema) = (durable(), "crowded");
    with_something_to_do(&server.url(schema)).run(["tick", "ada", "-q"]);
    server.sql("CREATE ROLE crowded LOGIN IN ROLE dormouse");
    let machine = Machine::new(&server.url_of("crowded", schema), None);
    let place = machine.sandbox.root().to_owned();
    let turn = format!("touch {0}/begun; until test -e {0}/go; do sleep 0.05; done", place.display());
    machine.run(["create", "bob", "-q", "--shell", &turn]);
    machine.run(["start", "bob", "-q"]);
    machine.run(["enqueue", "bob", "wait for me"]);
    let step = Beside::start(machine.cmd(["tick", "bob"])).after_it_made(place.join("begun"));
    server.sql("ALTER ROLE crowded CONNECTION LIMIT 0");
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crowded'");
    let before = rows(server, schema);
    for words in READING.iter().chain(WRITING) {
        let ran = machine.cmd(words.iter().copied()).output();
        let is_said =
            ran.stderr.contains("too many connections") && ran.stderr.contains("are in use: try again");
        assert!(ran.code() == 1 && is_said, "{words:?}: {ran}");
    }
    assert_eq!(rows(server, schema), before);
    server.sql("ALTER ROLE crowded CONNECTION LIMIT -1");
    fs::write(place.join("go"), "").unwrap();
    let ran = step.end();
    assert!(ran.code() == 0 && ran.stdout.contains("completed"), "{ran}");
}

/// Whoever has set them for a role has not meant the lifetime of a turn.
#[test]
fn limits_of_a_role_end_statements_and_no_turns() {
    needs!("postgresql");
    let (server, schema) = (durable(), "limited");
    with_something_to_do(&server.url(schema));
    server.sql("CREATE ROLE hasty LOGIN IN ROLE dormouse");
    let machine = Machine::new(&server.url_of("hasty", schema), None);
    // A statement that waits for the agent takes longer than it may.
    server.sql("ALTER ROLE hasty SET statement_timeout = '100ms'");
    let mut other = server.session();
    other.ask(&format!("BEGIN; SELECT count(*) FROM (SELECT FROM {schema}.state FOR UPDATE) s"));
    let before = rows(server, schema);
    let ran = machine.cmd(["tick", "ada"]).output();
    let is_said =
        ran.stderr.contains("has cancelled the statement") && ran.stderr.contains("statement_timeout");
    assert!(ran.code() == 1 && is_said, "{ran}");
    assert_eq!(rows(server, schema), before);
    other.ask("ROLLBACK");
    server.sql(
        "ALTER ROLE hasty RESET statement_timeout; ALTER ROLE hasty SET lock_timeout = '100ms';
         ALTER ROLE hasty SET idle_in_transaction_session_timeout = '100ms';
         ALTER ROLE hasty SET idle_session_timeout = '100ms'",
    );
    machine.run(["create", "bob", "-q", "--shell", "sleep 1; dormouse work add 'by a turn'; echo done"]);
    machine.run(["start", "bob", "-q"]);
    machine.run(["enqueue", "bob", "work"]);
    for agent in ["ada", "bob"] {
        assert!(machine.run(["tick", agent]).contains("completed"), "{agent}");
    }
    assert!(machine.run(["work", "list", "-a", "bob"]).contains("by a turn"));
}

/// A turn outlasts a server that ends and begins again, and commands say that it is away.
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
        one.cmd(&words).assert().code(1).stderr(contains("check that the server runs"));
    }
    server.start_again();
    // Only the lease may be a newer one by now.
    let of_others =
        |rows: Vec<String>| rows.into_iter().filter(|row| !row.starts_with("lease")).collect::<Vec<_>>();
    assert_eq!(of_others(rows(&server, "shut_down")), of_others(before));
    fleet.go();
    let ran = step.end();
    assert!(ran.code() == 0 && ran.stdout.contains("completed"), "{ran}");
    assert!(one.run(&["queue", "show", &message]).contains("processed"));
}

/// The tables are on a disk of their own, as small as the test wants it.
#[test]
fn a_server_without_room_keeps_what_it_has_acknowledged() {
    needs!("postgresql");
    // The disk is seen by the thread that makes it, and by those that it starts.
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
    // Nothing of it can be packed.
    let noise = "head -c 300000 /dev/urandom | base64 -w 0 > \"$0\"";
    assert!(Command::new("sh").args(["-c", noise]).arg(&long).status().unwrap().success());
    let mut acknowledged = Vec::new();
    let refused = loop {
        let ran = machine.cmd(["enqueue", "ada", "-"]).stdin(fs::read(&long).unwrap()).output();
        if ran.code() != 0 {
            break ran;
        }
        acknowledged.push(ran.stdout.trim_end().to_owned());
        assert!(acknowledged.len() < 200, "there is room for anything");
    };
    let is_said = refused.stderr.contains("has no room for it: ")
        && refused.stderr.contains("nothing was changed; free disk space");
    assert!(refused.code() == 1 && is_said && !acknowledged.is_empty(), "{refused}");
    // What needs no more room goes on, what does is refused; either way nothing is lost.
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

/// The first server is gone for good, and the machines find the second one in its place.
fn fail_over(fleet: &Fleet<'_>, standby: &Server) {
    fleet.server.kill();
    standby.promote();
    for host in &fleet.hosts {
        host.proxy().lead_to(standby.socket());
    }
}

/// The step of a machine in the middle of a turn, of which the standby knows nothing: only of the message, but not of another
/// one that was acknowledged.
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

/// A run of which the records know nothing any more counts for nothing, and its machine says so.
#[track_caller]
fn assert_forgotten(ran: &Ran) {
    assert!(ran.code() == 5 && ran.stderr.contains("nothing of "), "{ran}");
}

fn is_processed(host: &Host, message: &str) -> bool {
    host.run(&["--json", "queue", "show", message]).contains("\"status\":\"processed\"")
}

/// The second server gives the number of the lost lease again: to another machine, while the first turn still lives. Neither
/// machine takes the other's lease for its own.
#[test]
fn a_lease_that_a_failover_forgot_is_nobody_elses() {
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
    assert_eq!(
        (again.fence, &again.message),
        (turn.fence, &known),
        "the test is about a number that comes twice"
    );
    // Whatever the first turn calls changes nothing.
    let before = rows(&standby, "forgotten");
    for words in [&["work", "add", "-a", "ada", "too late"][..], &["enqueue", "ada", "too late"]] {
        let ran = one.as_turn(&turn, words).output();
        assert!(ran.code() == 5 && ran.stderr.contains("another machine has taken"), "{words:?}: {ran}");
    }
    assert_eq!(rows(&standby, "forgotten"), before);
    one.thaw();
    assert_forgotten(&step.end());
    let kept = standby.sql("SELECT fence FROM forgotten.lease WHERE subject = 'run'");
    assert_eq!(kept, [again.fence.to_string()], "the lease of the other machine is its own");
    fleet.go();
    let ran = second.end();
    assert!(ran.code() == 0 && ran.stdout.contains("completed"), "{ran}");
    assert!(is_processed(other, &known));
    // What was acknowledged last is lost, and nobody claims otherwise.
    assert_eq!(other.cmd(&["queue", "show", &lost]).output().code(), 3);
    assert_eq!(one.cmd(&["doctor"]).output().code(), 0);
}

/// Nobody else has begun meanwhile, and the turn ends well: but there is no run any more of which that could be recorded.
#[test]
fn a_settlement_of_a_run_that_a_failover_forgot_is_refused() {
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
    assert_forgotten(&step.end());
    assert_eq!(rows(&standby, "unsettled"), before);
    // The message is worked on anew.
    one.run(&["tick", "ada", "--until-idle", "-q"]);
    assert!(is_processed(one, &known));
    let turns = fleet.log().iter().filter(|line| line.sign == Sign::Begin && line.run != turn.run).count();
    assert_eq!(turns, 1);
    assert_eq!(one.cmd(&["queue", "show", &lost]).output().code(), 3);
    assert_eq!(one.cmd(&["doctor"]).output().code(), 0);
}

/// A turn of which the second server knows goes on, and counts.
#[test]
fn a_turn_that_is_known_outlasts_a_failover() {
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
    let ran = step.end();
    assert!(ran.code() == 0 && ran.stdout.contains("completed"), "{ran}");
    assert!(is_processed(other, &message));
}
