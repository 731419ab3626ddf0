//! Stress test, called storm: many processes use one state directory at once, while processes are
//! killed and disk space and time run short. Afterwards a test oracle checks the records.
//! `DORMOUSE_STORM=600 DORMOUSE_STORM_SEED=7 cargo test --test it storm -- --nocapture` runs for
//! 600 s, with other acts. A failed storm keeps its directory: `out/history` has one event on each
//! line. A second storm uses a database that two machines share: `cargo test --test it
//! a_storm_over_a_database`. That storm also kills the server and breaks connections to it.

mod actors;
mod base;
mod calm;
mod histories;
mod history;
mod oracle;
mod weather;
pub mod world;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use crate::setup::number;

use self::actors::Actor;
use self::base::Base;
use self::history::{Event, Luck, What};
use self::world::{World, pause};

#[test]
fn a_storm_loses_no_message_and_blocks_no_agent() {
    let is_ci = std::env::var_os("CI").is_some();
    let wrong = storm(number("DORMOUSE_STORM", if is_ci { 60 } else { 20 }), || World::new(None), None);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
}

#[test]
fn a_storm_over_a_database_loses_no_message_and_blocks_no_agent() {
    needs!("postgresql");
    let is_ci = std::env::var_os("CI").is_some();
    let world = || World::new(Some(Base::new()));
    let wrong = storm(number("DORMOUSE_STORM", if is_ci { 25 } else { 12 }), world, None);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
}

/// The test deletes messages from the database without an event in the history, and the oracle must
/// notice.
#[test]
fn the_oracle_notices_messages_that_a_database_loses() {
    needs!("postgresql");
    let world = || World::new(Some(Base::new()));
    let wrong = storm(4, world, Some(|world| world.base.iter().for_each(|base| base.mole(world))));
    let wrong = wrong.expect("an objection");
    assert!(wrong.contains(" is lost"), "{wrong}");
}

/// Deliberate damage during a stress test, which the test oracle must report. The directory of such
/// a test is not kept.
type Harm = Option<fn(&World)>;

/// Runs a stress test. Returns the objections of the test oracle to the records, if it has any.
fn storm(seconds: u64, world: fn() -> World, harm: Harm) -> Option<String> {
    let seed = number("DORMOUSE_STORM_SEED", 1);
    // Only the thread that mounts the disk, and threads that it starts, see the disk.
    thread::scope(|scope| scope.spawn(|| weather(&mut Some(world()), seconds, seed, harm)).join().unwrap())
}

fn weather(world: &mut Option<World>, seconds: u64, seed: u64, harm: Harm) -> Option<String> {
    let kept = world;
    let world = kept.as_ref()?;
    if !world.has_disk {
        println!("storm: no disk of its own can be mounted here, so it is never full");
    }
    thread::scope(|scope| {
        let actor = |name: &str| Actor::new(world, name, seed);
        for name in ["producer-1", "producer-2", "producer-3"] {
            let actor = actor(name);
            scope.spawn(|| actor.produce());
        }
        let [governor, preempter, planner, reader] =
            ["governor", "preempter", "planner", "reader"].map(actor);
        scope.spawn(|| governor.govern());
        scope.spawn(|| preempter.preempt());
        scope.spawn(|| planner.plan());
        scope.spawn(|| reader.read());
        let [caller, copier] = ["caller", "copier"].map(actor);
        scope.spawn(|| caller.call_in());
        scope.spawn(|| copier.copy());
        let [mover, hailer, follower] = ["mover", "hailer", "follower"].map(actor);
        scope.spawn(|| mover.move_about());
        scope.spawn(|| hailer.call_after());
        scope.spawn(|| follower.tick_after());
        let other = actor("other follower");
        scope.spawn(|| other.tick_after());
        for name in ["ticker-1", "ticker-2", "ticker-3"] {
            let actor = actor(name);
            scope.spawn(|| actor.tick());
        }
        if let Some(base) = &world.base {
            scope.spawn(|| base.count(world));
            scope.spawn(move || base.thunder(world, &mut Luck::new(seed, "thunder")));
        } else {
            // These actors need records in files.
            let [elsewhere, dropper, merger, exchanger, copyist] =
                ["elsewhere", "dropper", "merger", "exchanger", "copyist"].map(actor);
            scope.spawn(|| copyist.copy_whole());
            scope.spawn(|| elsewhere.produce_elsewhere());
            scope.spawn(|| dropper.drop_files());
            scope.spawn(|| merger.merge());
            scope.spawn(|| exchanger.exchange());
        }
        if let Some(harm) = harm {
            scope.spawn(move || harm(world));
        }
        scope.spawn(move || weather::lightning(world, &mut Luck::new(seed, "lightning")));
        scope.spawn(move || weather::flood(world, &mut Luck::new(seed, "flood")));
        pause(world, seconds * 1000);
        world.is_over.store(true, Ordering::Relaxed);
    });
    let calming = Instant::now();
    calm::calm(world);
    let evidence = calm::gather(world);
    let wrong = oracle::judge(&evidence);
    let count =
        |is: fn(&What) -> bool| evidence.history.iter().filter(|event: &&Event| is(&event.what)).count();
    let acknowledged = oracle::acknowledged(&evidence.history).len();
    let kills = count(|what| matches!(what, What::Kill { .. }));
    println!(
        "storm: {seconds} s, seed {seed}: {} commands, {} moves, {acknowledged} messages acknowledged, {} files dropped, {} turns, \
         {kills} kills, {} merges, {} floods, {} MiB at most, calm after {:.1} s: {} objections",
        count(|what| matches!(what, What::Begin { .. })),
        evidence.moves,
        count(|what| matches!(what, What::Dropped { .. })),
        evidence.turns.iter().filter(|line| line.starts_with("start ")).count(),
        count(|what| matches!(what, What::Merged)),
        count(|what| matches!(what, What::Disk { is_full: true })),
        evidence.memory / 1024,
        calming.elapsed().as_secs_f64(),
        wrong.len(),
    );
    let enough = seconds as usize;
    let copied = world.copied.load(Ordering::Relaxed);
    println!("storm: {copied} turns were copied while they ran");
    assert!(world.base.is_some() || copied > 0, "no turn was copied while it ran");
    assert!(acknowledged >= enough && kills >= enough, "that was no storm");
    if wrong.is_empty() {
        return None;
    }
    let shown: Vec<&str> = wrong.iter().take(60).map(String::as_str).collect();
    let shown = shown.join("\n");
    if harm.is_some() {
        return Some(shown);
    }
    kept.take().map(|world| format!("{shown}\nkept for a look: {}", world.keep().display()))
}
