//! Tests that a command which waits for an agent in a database is notified of changes, and polls
//! if it can't be notified.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::connection_proxy::Proxy;
use crate::fleet::Machine;
use crate::harness::Sandbox;
use crate::server::{Bouncer, server};
use crate::setup::{Beside, eventually};
use crate::watching::terminal::Terminal;

/// Turn that runs until a file with the id of its message exists.
const TURN: &str = "until test -e \"$HOME/$DORMOUSE_MESSAGE\"; do sleep 0.02; done; echo done";

/// Machine whose proxy counts the round trips to the server.
fn counted(schema: &str) -> (Proxy, Machine) {
    let proxy = Proxy::before(server().socket(), None);
    let machine = Machine::through(&proxy, "dormouse", schema);
    (proxy, machine)
}

/// Waits until there was no round trip for a second.
fn until_quiet(proxy: &Proxy) {
    eventually("quiet", || {
        let before = proxy.trips();
        std::thread::sleep(Duration::from_secs(1));
        (proxy.trips() == before).then_some(())
    });
}

/// Step of a new message on one machine, with a turn that runs until [`Turn::end`].
struct Turn<'m> {
    machine: &'m Machine,
    message: String,
    tick: Beside,
}

impl Turn<'_> {
    fn of(machine: &Machine) -> Turn<'_> {
        let message = machine.id(["enqueue", "ada", "work"]);
        Turn { machine, message, tick: Beside::start(machine.cmd(["tick", "ada"])) }
    }

    /// Ends the turn, waits for the end of the step, and returns that time.
    fn end(self) -> Instant {
        fs::write(self.machine.sandbox.home().join(&self.message), "").unwrap();
        let ended = self.tick.end();
        assert!(ended.status.success(), "{ended}");
        Instant::now()
    }
}

/// Returns the channels of the commands that wait for a notification.
fn waiting(schema: &str) -> Vec<String> {
    server().sql(&format!("SELECT channel FROM {schema}.watcher"))
}

fn until_one_waits(schema: &str) {
    eventually("a command that waits", || waiting(schema).pop());
}

#[test]
fn a_wait_ends_with_the_step_of_another_machine() {
    needs!("postgresql");
    let one = Machine::new(&server().url("watched"), None).with_ada(TURN);
    let (proxy, two) = counted("watched");
    // One of five attempts must be fast, because a single step may be slow on a busy machine.
    let ends_at_once = |_| {
        let (turn, before, begun) = (Turn::of(&one), proxy.trips(), Instant::now());
        let waits = Beside::start(two.cmd(["--json", "await", "ada", "--message", &turn.message]));
        until_one_waits("watched");
        until_quiet(&proxy);
        let over = turn.end();
        let ended = waits.end();
        let took = over.elapsed();
        assert!(ended.status.success() && ended.stdout.contains("processed"), "{ended}");
        // A polling command makes twenty requests per second; a notified one must stay far below.
        let (asked, most) = (proxy.trips() - before, 30 + 2 * begun.elapsed().as_secs() as usize);
        assert!(asked <= most, "{asked} requests in {:?}", begun.elapsed());
        took < Duration::from_secs(2)
    };
    assert!((0..5).any(ends_at_once), "`await` ended only at its next poll");
    assert_eq!(waiting("watched"), [""; 0]);
}

#[test]
fn logs_of_another_machine_are_shown_at_once() {
    needs!("postgresql");
    let one = Machine::new(&server().url("shown_elsewhere"), None).with_ada(TURN);
    let (proxy, two) = counted("shown_elsewhere");
    let told = two.sandbox.root().join("told");
    let mut command = two.cmd(["logs", "-f", "ada"]).into_command();
    let told_in = fs::File::create(&told).unwrap();
    let mut logs = Beside(command.stdin(Stdio::null()).stdout(told_in).spawn().unwrap());
    until_one_waits("shown_elsewhere");
    for round in 1..=2 {
        until_quiet(&proxy);
        Turn::of(&one).end();
        eventually("the line of its end", || {
            let told = fs::read_to_string(&told).unwrap();
            (told.matches("the turn completed").count() >= round).then_some(())
        });
    }
    // The killed command has left its row in the table `watcher`. The next command that waits
    // removes the row if it has expired.
    logs.kill();
    let dead = waiting("shown_elsewhere");
    assert_eq!(dead.len(), 1);
    server().sql("UPDATE shown_elsewhere.watcher SET until = 1");
    let turn = Turn::of(&one);
    let waits = Beside::start(two.cmd(["--json", "await", "ada", "--message", &turn.message]));
    let living = eventually("another row", || waiting("shown_elsewhere").pop().filter(|one| *one != dead[0]));
    assert_eq!(waiting("shown_elsewhere"), [living]);
    turn.end();
    waits.end().exits(0);
    assert_eq!(waiting("shown_elsewhere"), [""; 0]);
}

/// The detail view of `watch` is notified of changes of its agent; the list of agents polls every
/// 5 s without notifications.
#[test]
fn the_detail_view_of_watch_is_notified() {
    needs!("postgresql");
    let one = Machine::new(&server().url("near"), None).with_ada(TURN);
    let two = Sandbox::empty().with_real_clock();
    let url = server().url("near");
    let mut terminal = Terminal::of_size(&two, &["ada"], &[("DORMOUSE_DIR", &url)], 120, 40);
    terminal.shows("POSTURE");
    assert_eq!(waiting("near"), [""; 0]);
    terminal.press("\r");
    terminal.shows("Last events");
    until_one_waits("near");
    let turn = Turn::of(&one);
    terminal.shows("active_turn");
    turn.end();
    terminal.shows("the turn completed");
    terminal.press("q");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(waiting("near"), [""; 0]);
}

/// PgBouncer accepts LISTEN, but delivers no notification, and reports no error.
#[test]
fn a_wait_behind_a_pooler_polls() {
    needs!("postgresql");
    let one = Machine::new(&server().url("pooled"), None).with_ada(TURN);
    server().sql(
        "CREATE TABLE pooled.waited (channel text);
         CREATE FUNCTION pooled.wait() RETURNS trigger LANGUAGE plpgsql AS \
           'BEGIN INSERT INTO pooled.waited VALUES (new.channel); RETURN new; END';
         CREATE TRIGGER wait BEFORE INSERT ON pooled.watcher FOR EACH ROW EXECUTE FUNCTION pooled.wait()",
    );
    let bouncer = Bouncer::before(server());
    let proxy = Proxy::before(bouncer.socket(), None);
    let port = proxy.port;
    let url = format!("postgres://me@127.0.0.1:{port}/dormouse?schema=pooled&sslmode=disable");
    let two = Machine::new(&url, Some("secret"));
    two.until_bouncer_accepts("list");
    let turn = Turn::of(&one);
    let before = proxy.trips();
    let waits = Beside::start(two.cmd(["--json", "await", "ada", "--message", &turn.message]));
    eventually("some polls", || (proxy.trips() > before + 20).then_some(()));
    turn.end();
    waits.end().exits(0).shows("processed");
    assert_eq!(server().sql("SELECT count(*) FROM pooled.waited"), ["0"]);
}
