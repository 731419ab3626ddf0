//! Chaos tests of several machines on one PostgreSQL, which are paused, cut off and killed: each
//! message has one effective turn, and a machine that has lost its lease writes nothing. A machine
//! is a home directory with its own processes and its own connection to the server. If root runs
//! the tests, machines and server are separate network hosts. The function `judge` checks the log
//! of the turns and the final records; a test shows that it finds faults if a machine does not
//! check its fencing token. `DORMOUSE_FLEET=600 DORMOUSE_FLEET_SEED=7 cargo test --test it
//! a_fleet_in_trouble -- --nocapture` runs for 600 s, with other troubles.

pub mod host;
pub mod judge;
pub mod link;
pub mod net;
mod trouble;

use std::sync::OnceLock;
use std::time::Duration;

use predicates::prelude::*;
use predicates::str::contains;

use self::host::Fleet;
use self::judge::{Evidence, Sign, judge, pairs};
use self::net::Line;
use crate::harness::Ran;
use crate::missing_tools::leave_out;
use crate::server::{Server, durable};
use crate::setup::{Beside, eventually, number};

/// Returns the server that all fleets of this process share: in a network of its own, where
/// possible.
fn server() -> &'static Server {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let own = SERVER.get_or_init(|| net::network().map(|network| Server::start_in(Some(network), "")));
    own.as_ref().unwrap_or_else(|| durable())
}

/// Steps the agent from a machine until the message has ended.
fn until_processed(fleet: &Fleet<'_>, host: usize, message: &str) {
    eventually("the end of the message", || {
        fleet.hosts[host].run(&["tick", "ada", "--until-idle", "-q"]);
        let shown = fleet.hosts[host].run(&["--json", "queue", "show", message]);
        shown.contains("\"status\":\"processed\"").then_some(())
    });
}

/// Pauses a machine during a turn for longer than its lease. Another machine takes over and
/// completes the work. Then the first machine continues. Returns the output of its step, and the
/// log and records for `judge`. `frozen`: words in the command lines of the paused processes; an
/// empty text pauses the whole machine. `tamper` changes the proxy of the paused machine, whose
/// turn has the fencing token 1.
fn paused(schema: &'static str, frozen: &str, tamper: Option<fn(&Fleet<'_>)>) -> (Ran, Evidence) {
    let make = if tamper.is_some() { Fleet::by_proxy } else { Fleet::new };
    let fleet = make(server(), schema, &[0, 0], &["ada"]);
    let (one, other) = (&fleet.hosts[0], &fleet.hosts[1]);
    let message = one.run(&["enqueue", "ada", "wait for me"]).trim_end().to_owned();
    let step = Beside::start(one.cmd(&["tick", "ada"]));
    eventually("a turn", || fleet.log().first().cloned());
    if let Some(name) = one.name() {
        assert_eq!(fleet.ask("SELECT host FROM @.lease"), [[name]]);
    }
    // Until the lease expires, no other machine may begin a turn.
    other.cmd(&["tick", "ada", "--json"]).assert().stdout(contains("terminal").not());
    if let Some(tamper) = tamper {
        tamper(&fleet);
    }
    one.freeze(frozen);
    fleet.outlast(one);
    std::thread::scope(|scope| {
        let taking_over = scope.spawn(|| until_processed(&fleet, 1, &message));
        // If only the tick is paused, its turn continues, so two turns must run at once.
        let (is_whole, first) = (frozen.is_empty(), fleet.log()[0].run.clone());
        eventually("another turn", || {
            let log = fleet.log();
            let second = log.iter().position(|line| line.run != first)?;
            (is_whole || log[second..].iter().any(|line| line.run == first)).then_some(())
        });
        fleet.go();
        taking_over.join().unwrap();
        eventually("the ends of the turns", || {
            let ends = fleet.log().iter().filter(|line| line.sign == Sign::End).count();
            (ends == if is_whole { 1 } else { 2 }).then_some(())
        });
    });
    one.thaw();
    let ran = step.end();
    (ran, fleet.evidence(vec![message]))
}

/// Checks that the step of the paused machine is refused and changes nothing.
#[track_caller]
fn assert_fenced(ran: &Ran, evidence: &Evidence) {
    assert_eq!(judge(evidence), Vec::<String>::new(), "{ran}\n{evidence:#?}");
    let is_said = ["nothing of it counts", "nothing of this turn was recorded"];
    let is_said = is_said.iter().any(|words| ran.stderr.contains(words));
    assert!(ran.status.code() == Some(5) && is_said, "{ran}");
    let mut terminals: Vec<&str> = evidence.ended.iter().map(|ended| ended.terminal.as_str()).collect();
    terminals.sort_unstable();
    assert_eq!(terminals, ["completed", "interrupted"]);
}

#[test]
fn a_machine_that_was_paused_past_its_lease_is_fenced() {
    needs!("postgresql");
    let (ran, evidence) = paused("paused", "", None);
    assert_fenced(&ran, &evidence);
}

/// The turn of the paused step has ended well meanwhile, but the step may not settle it.
#[test]
fn a_step_that_was_paused_past_its_lease_is_fenced() {
    needs!("postgresql");
    let (ran, evidence) = paused("paused_step", "tick ada", None);
    assert_fenced(&ran, &evidence);
}

/// The function `judge` finds faults if a machine does not check its fencing token. The proxy makes
/// the machine believe that it still owns the lease.
#[test]
fn the_judge_objects_if_a_machine_does_not_check_the_fence() {
    needs!("postgresql");
    let tamper = |fleet: &Fleet<'_>| {
        let proxy = fleet.hosts[0].proxy();
        // The proxy replaces two statements, so that the old lease looks valid to the machine: the
        // read of the leases under the lock, and the heartbeat.
        let lease = "\"unchecked\".lease l";
        let anchor = &fleet.ask("SELECT anchor FROM @.lease")[0][0];
        let own = format!(
            "(SELECT a.id AS agent_id, 'run' AS subject, 1 AS fence, '{anchor}' AS anchor, 0 AS expires_at \
             FROM \"unchecked\".agent a) l"
        );
        fleet.ask(&format!(
            "DO $do$ BEGIN EXECUTE replace(replace(pg_get_functiondef('\"unchecked\".load'::regproc), '.load(', '.unguarded('), \
             '{lease} WHERE', $own${own} WHERE$own$); END $do$"
        ));
        proxy.say_instead("\"unchecked\".load(", "\"unchecked\".unguarded(");
        // The replacement must have the parameters of the heartbeat, so it uses each of them.
        let beat = "SELECT s.revision FROM \"unchecked\".state s \
                    WHERE num_nulls($1::bigint, $2::text, $3::bigint, $4::text, $5::bigint) = 0 --";
        proxy.say_instead(&format!("UPDATE {lease}"), beat);
    };
    let (ran, evidence) = paused("unchecked", "tick ada", Some(tamper));
    let wrong = judge(&evidence);
    assert_ne!(ran.status.code(), Some(5), "the check is elsewhere by now: {ran}");
    for expected in ["was recorded 2 times", "and counts all the same"] {
        assert!(
            wrong.iter().any(|one| one.contains(expected)),
            "{expected}: {wrong:?}\n{ran}\n{evidence:#?}"
        );
    }
}

/// Two machines made from one image have the same files, machine id and paths. Each must leave the
/// turns of the other alone.
#[test]
fn a_machine_does_not_end_turns_of_another_with_the_same_image() {
    needs!("postgresql");
    let fleet = Fleet::new(server(), "one_image", &[0, 0, 0], &["ada"]).of_one_image();
    let (one, other) = (&fleet.hosts[1], &fleet.hosts[2]);
    let message = one.run(&["enqueue", "ada", "wait for me"]).trim_end().to_owned();
    let step = Beside::start(one.cmd(&["tick", "ada"]));
    eventually("a turn", || fleet.log().first().cloned());
    for _ in 0..3 {
        other.cmd(&["tick", "ada", "--json"]).exits(0).shows("\"turn_in_progress\"");
    }
    other.cmd(&["doctor"]).assert().stdout(contains("one_owner").not());
    fleet.go();
    step.end().exits(0);
    assert_eq!(judge(&fleet.evidence(vec![message])), Vec::<String>::new());
    assert_eq!(fleet.log().iter().filter(|line| line.sign == Sign::Begin).count(), 1);

    // A machine whose memory was copied can't be told from the original, but `doctor` reports it.
    let machines =
        "INSERT INTO @.anchor (id, host, pools, version, seen_at) VALUES ('same', 'one', '{}', '', 0)";
    fleet.ask(machines);
    fleet.ask(
        "INSERT INTO @.lease (agent_id, subject, fence, anchor, host, pid, expires_at) \
         SELECT id, 'run', 99, 'same', 'two', 1, 0 FROM @.agent",
    );
    other.cmd(&["doctor"]).exits(6).shows("one_owner").shows("one, two");
}

/// A machine that is cut off ends its turn before another machine begins one. No timeout is
/// shortened in this test, so the test takes a minute.
#[test]
fn a_machine_that_is_cut_off_ends_its_turn_before_another_begins() {
    needs!("postgresql");
    if std::env::var_os("CI").is_none() && std::env::var_os("DORMOUSE_FLEET").is_none() {
        return leave_out("takes a minute: set DORMOUSE_FLEET");
    }
    let fleet = Fleet::new(server(), "cut_off", &[0, 0], &["ada"]);
    let (one, other) = (&fleet.hosts[0], &fleet.hosts[1]);
    let message = one.run(&["enqueue", "ada", "wait for me"]).trim_end().to_owned();
    let step = Beside::start(one.cmd(&["tick", "ada"]));
    let first = eventually("a turn", || fleet.log().first().cloned()).run;
    one.set_line(Line::Cut);
    let following = Beside::start(other.cmd(&["tick", "--all", "--follow", "-q"]));
    eventually("another turn", || fleet.log().iter().any(|line| line.run != first).then_some(()));
    fleet.go();
    let ran = step.end();
    one.set_line(Line::Whole);
    eventually("the end of the message", || fleet.is_at_rest().then_some(()));
    drop(following);
    let evidence = fleet.evidence(vec![message]);
    assert_fenced(&ran, &evidence);
    assert_eq!(pairs(&evidence.log), 0, "{:#?}", evidence.log);
}

#[test]
fn a_fleet_in_trouble_loses_nothing_and_counts_nothing_twice() {
    needs!("postgresql");
    let seconds = number("DORMOUSE_FLEET", if std::env::var_os("CI").is_some() { 25 } else { 15 });
    let seed = number("DORMOUSE_FLEET_SEED", 1);
    let server = Server::start_in(net::network(), "");
    let fleet = Fleet::new(&server, "trouble", trouble::CLOCKS, trouble::AGENTS).of_one_image();
    let survived = trouble::survive(&fleet, Duration::from_secs(seconds), seed);
    let evidence = &survived.evidence;
    let mut wrong = judge(evidence);
    for host in &fleet.hosts {
        let talk = std::fs::read_to_string(&host.talk).unwrap_or_default();
        wrong.extend(talk.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
    }
    let count = |terminal: &str| evidence.ended.iter().filter(|ended| ended.terminal == terminal).count();
    println!(
        "fleet: {seconds} s, seed {seed}: {} messages acknowledged, {} runs completed, {} interrupted, {} pairs at once, \
         {} troubles, a machine taken for dead {} times, calm after {} s: {} objections",
        evidence.acknowledged.len(),
        count("completed"),
        count("interrupted"),
        pairs(&evidence.log),
        survived.troubles,
        survived.taken_over,
        survived.calm.as_secs(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}\nkept for a look: {}", wrong.join("\n"), fleet.keep().display());
    assert!(evidence.acknowledged.len() > seconds as usize / 2, "nobody said anything");
}
