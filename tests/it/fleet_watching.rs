//! A command that waits for an agent in a database is told of its changes, and looks again and again where nothing can tell.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cutting::Proxy;
use crate::fleet::Machine;
use crate::harness::Sandbox;
use crate::server::{Bouncer, LONG, server};
use crate::setup::{Beside, eventually};
use crate::watching::terminal::Terminal;

/// A turn that lasts until the message says so, by a file.
const TURN: &str = "until test -e \"$HOME/$DORMOUSE_MESSAGE\"; do sleep 0.02; done; echo done";

/// A machine whose trips are counted.
fn counted(schema: &str) -> (Proxy, Machine) {
    let proxy = Proxy::before(server().socket(), None);
    let port = proxy.port;
    let url = format!("postgres://dormouse@127.0.0.1:{port}/dormouse?schema={schema}&sslmode=disable");
    (proxy, Machine::new(&url, None))
}

/// Waits until nothing was asked for a second.
fn until_quiet(proxy: &Proxy) {
    eventually("quiet", || {
        let before = proxy.trips();
        std::thread::sleep(Duration::from_secs(1));
        (proxy.trips() == before).then_some(())
    });
}

/// The step of a new message, on one machine, with a turn that runs.
struct Turn<'m> {
    machine: &'m Machine,
    message: String,
    tick: Beside,
}

impl Turn<'_> {
    fn of(machine: &Machine) -> Turn<'_> {
        let message = machine.run(["enqueue", "ada", "work"]).trim_end().to_owned();
        Turn { machine, message, tick: Beside::start(machine.cmd(["tick", "ada"])) }
    }

    /// Ends it, and returns when the step is over.
    fn end(self) -> Instant {
        fs::write(self.machine.sandbox.home().join(&self.message), "").unwrap();
        let ended = self.tick.end();
        assert!(ended.status.success(), "{ended}");
        Instant::now()
    }
}

/// The channels of the commands that wait.
fn waiting(schema: &str) -> Vec<String> {
    server().sql(&format!("SELECT channel FROM {schema}.watcher"))
}

fn until_one_waits(schema: &str) -> String {
    eventually("a row", || waiting(schema).pop())
}

#[test]
fn a_wait_ends_with_the_step_of_another_machine() {
    needs!("postgresql");
    let one = Machine::new(&server().url("watched"), None).with_ada(TURN);
    let (proxy, two) = counted("watched");
    // Any single step may take long on a busy machine.
    let ends_at_once = |_| {
        let (turn, before, begun) = (Turn::of(&one), proxy.trips(), Instant::now());
        let waits = Beside::start(two.cmd(["await", "ada", "--message", &turn.message]));
        until_one_waits("watched");
        until_quiet(&proxy);
        let over = turn.end();
        let ended = waits.end();
        let took = over.elapsed();
        assert!(ended.status.success() && ended.stdout.contains("processed"), "{ended}");
        // A command that looks again and again asks twenty times a second.
        let (asked, most) = (proxy.trips() - before, 30 + 2 * begun.elapsed().as_secs() as usize);
        assert!(asked <= most, "{asked} questions in {:?}", begun.elapsed());
        took < Duration::from_secs(2)
    };
    assert!((0..5).any(ends_at_once), "it ends when it looks the next time");
    assert_eq!(waiting("watched"), [""; 0]);
}

#[test]
fn what_happens_on_another_machine_is_shown_as_it_happens() {
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
    // It was killed, and its row counts on. The next one who waits removes what has had its time.
    logs.kill();
    let dead = waiting("shown_elsewhere");
    assert_eq!(dead.len(), 1);
    server().sql("UPDATE shown_elsewhere.watcher SET until = 1");
    let turn = Turn::of(&one);
    let waits = Beside::start(two.cmd(["await", "ada", "--message", &turn.message]));
    let living = eventually("another row", || waiting("shown_elsewhere").pop().filter(|one| *one != dead[0]));
    assert_eq!(waiting("shown_elsewhere"), [living]);
    turn.end();
    let ended = waits.end();
    assert!(ended.status.success(), "{ended}");
    assert_eq!(waiting("shown_elsewhere"), [""; 0]);
}

/// Its picture is drawn anew at once; of the others it is told nothing, and looks every 5 s.
#[test]
fn an_agent_that_is_watched_from_near_is_listened_to() {
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

/// PgBouncer says nothing of the words that it swallows.
#[test]
fn behind_a_pooler_a_wait_looks_again_and_again() {
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
    let until = Instant::now() + LONG;
    while !two.cmd(["list"]).output().status.success() {
        assert!(Instant::now() < until, "PgBouncer does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let turn = Turn::of(&one);
    let before = proxy.trips();
    let waits = Beside::start(two.cmd(["await", "ada", "--message", &turn.message]));
    eventually("some looks", || (proxy.trips() > before + 20).then_some(()));
    turn.end();
    let ended = waits.end();
    assert!(ended.status.success() && ended.stdout.contains("processed"), "{ended}");
    assert_eq!(server().sql("SELECT count(*) FROM pooled.waited"), ["0"]);
}
