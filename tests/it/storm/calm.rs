//! End of the stress test: completes all work, and collects evidence for the test oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use super::actors::merge_both_ways;
use super::history::{Ended, Event, Handicap, What};
use super::oracle::{Ending, Evidence, Message, Records, Run};
use super::world::{TRAVELLER, World};
use crate::checker::Found;
use crate::setup::{self, aged_rooms, notes};

/// Maximum number of rounds in which all agents are ticked until they are idle.
const ROUNDS: usize = 100;

/// Completes all work of the stress test, and lets each agent process one more message as a probe.
pub fn calm(world: &World) {
    world.history.note(What::Calm);
    let merged = world.base.is_some() || (0..30).any(|_| can_merge(world) || wait(500));
    assert!(merged, "git is kept from merging");
    for agent in world.agents() {
        let (_, said) = call(world, &["timer", "list", "-a", &agent, "--json"]);
        let timers = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for timer in timers
            .filter(|timer| !timer["schedule"]["every"].is_null() || timer["schedule"]["kind"] == "every")
        {
            call(world, &["timer", "cancel", timer["id"].as_str().unwrap()]);
        }
    }
    // With a database, the next `create` removes remains of killed creations only after a day, so
    // they are made older.
    for place in [world.project(), world.east(), world.west()] {
        aged_rooms(&place.join(".dormouse/agents"));
    }
    call(world, &["create", "last", "--from", world.root().join("agent.toml").to_str().unwrap()]);
    settle(world);
    for agent in world.agents() {
        let (_, said) = call(world, &["enqueue", &agent, "quick sign of life"]);
        world.history.note(What::Probe { agent, id: said.trim().to_owned() });
    }
    settle(world);
    call(world, &["doctor"]);
    calm_traveller(world);
    // Supervisors of tasks and leftover processes of turns end a moment later.
    let _ = (0..100).any(|_| world.processes().is_empty() || wait(100));
}

/// Quarantines malformed inbox files, which `sync` refuses, completes a killed `sync`, and merges
/// the two clones. Returns `false` if the merge must be repeated.
fn can_merge(world: &World) -> bool {
    let ours = |place: &Path, words: &[&str]| {
        world.aside(crate::harness::dormouse().to_str().unwrap(), place, words);
    };
    ours(&world.project(), &["doctor", "--repair"]);
    [world.project(), world.clone(), world.project()].iter().for_each(|place| ours(place, &["sync"]));
    merge_both_ways(world)
}

/// Completes the work of the moved agent, which is back in its first store.
fn calm_traveller(world: &World) {
    let call = |place: &Path, words: &[&str]| world.call("calm", place, words, &Handicap::default(), "");
    let east = world.east();
    let settle = || {
        let at_rest = || is_at_rest(world, &east, TRAVELLER);
        let _ = (0..ROUNDS).any(|_| {
            call(&east, &["start", "--all"]);
            call(&east, &["resume", "--all"]);
            call(&east, &["tick", "--all", "--until-idle"]);
            at_rest() || wait(100)
        });
    };
    settle();
    let (_, said) = call(&east, &["enqueue", TRAVELLER, "quick sign of life"]);
    world.history.note(What::Probe { agent: TRAVELLER.to_owned(), id: said.trim().to_owned() });
    settle();
    // In the store that the moved agent has left, a tick must find no work of this agent.
    call(&world.west(), &["tick", "--all", "--until-idle"]);
    for place in [east, world.west()] {
        call(&place, &["doctor", "--repair"]);
    }
}

fn wait(ms: u64) -> bool {
    std::thread::sleep(Duration::from_millis(ms));
    false
}

fn call(world: &World, words: &[&str]) -> (Ended, String) {
    world.call("calm", &world.project(), words, &Handicap::default(), "")
}

/// Ticks all agents until they are idle, in at most [`ROUNDS`] rounds.
fn settle(world: &World) {
    for _ in 0..ROUNDS {
        call(world, &["start", "--all"]);
        call(world, &["resume", "--all"]);
        call(world, &["tick", "--all", "--until-idle"]);
        let is_busy = |agent: &String| !is_at_rest(world, &world.project(), agent);
        let busy: Vec<String> = world.agents().into_iter().filter(is_busy).collect();
        if busy.is_empty() {
            return;
        }
        if world.base.is_some() {
            // A machine recovers its own interrupted run at once only if a tick names the agent;
            // `tick --all` waits until a step is due.
            for agent in &busy {
                for place in [world.project(), world.clone()] {
                    world.call("calm", &place, &["tick", agent, "--until-idle"], &Handicap::default(), "");
                }
            }
        }
        wait(100);
    }
}

fn is_at_rest(world: &World, place: &Path, agent: &str) -> bool {
    let found = world.look(place, agent);
    let state = &found.state;
    let is_busy = ["current_run", "held", "retry", "outbox"].iter().any(|field| !state[field].is_null());
    let has_tasks = state["open_tasks"].as_u64().unwrap_or(0) > 0;
    found.queued.is_empty() && found.put_off.is_empty() && found.hints.is_empty() && !is_busy && !has_tasks
}

/// Collects the evidence for the test oracle.
pub fn gather(world: &World) -> Evidence {
    let mut evidence = Evidence {
        history: world.history.events(),
        memory: world.memory.load(Ordering::Relaxed),
        disturbed: world.disturbed.lock().unwrap().clone(),
        left: world.processes().into_iter().map(|process| process.name).collect(),
        ..Evidence::default()
    };
    let turns = fs::read_to_string(world.out("turns")).unwrap_or_default();
    evidence.turns = notes(&turns).map(str::to_owned).collect();
    let arrived = |event: &&Event| matches!(&event.what, What::End { ended: Ended::Status(0), stdout, .. } if stdout.starts_with(TRAVELLER) && stdout.contains("back again"));
    evidence.moves = evidence.history.iter().filter(arrived).count();
    let west = world.west().join(".dormouse/agents");
    evidence.litter.extend(setup::names(&west).into_iter().filter(|name| name.starts_with('.')));
    for place in [world.project(), world.east()] {
        let agents = place.join(".dormouse/agents");
        let names = if place == world.project() { world.agents() } else { setup::names(&agents) };
        evidence.litter.extend(setup::names(&agents).into_iter().filter(|name| name.starts_with('.')));
        for name in names.into_iter().filter(|name| !name.starts_with('.')) {
            let dir = agents.join(&name);
            let found = world.look(&place, &name);
            evidence.litter.extend(found.leftovers.iter().map(|left| format!("{name}/tmp/{left}")));
            let is_taken = |left: &String| left.starts_with("taken~");
            let taken = setup::names(&dir.join("inbox")).into_iter().filter(is_taken);
            evidence.litter.extend(taken.map(|left| format!("{name}/inbox/{left}")));
            if found.has_journal {
                evidence.litter.push(format!("{name}/journal.jsonl"));
            }
            evidence.records.insert(name, records(&dir, found));
        }
    }
    evidence
}

fn records(dir: &Path, found: Found) -> Records {
    let mut messages = BTreeMap::new();
    for (id, lines) in &found.archived {
        let endings = lines.iter().map(|line| &line["settlement"]).filter(|end| end["status"] != "queued");
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let endings = endings.map(|end| Ending {
            status: word(&end["status"]),
            reason: word(&end["reason"]),
            run: end["run_id"].as_str().map(str::to_owned),
        });
        messages.insert(id.clone(), Message { endings: endings.collect(), ..message(&lines[0]) });
    }
    for (id, queued) in &found.queued {
        messages.entry(id.clone()).or_insert_with(|| message(queued)).is_open = true;
    }
    for id in &found.put_off {
        messages.entry(id.clone()).or_default().is_open = true;
    }
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let runs = found.runs.iter().map(|(id, run)| {
        (id.clone(), Run { message: word(&run["message_id"]), terminal: word(&run["terminal"]) })
    });
    let mut rejected: BTreeSet<String> = setup::names(&dir.join("inbox/rejected"))
        .into_iter()
        .filter(|name| !name.ends_with(".reason"))
        .collect();
    // `doctor --repair` may have quarantined a dropped file before a step rejected it.
    let quarantine = setup::names(&dir.join("quarantine"));
    rejected.extend(quarantine.iter().map(|name| name.strip_prefix("inbox__").unwrap_or(name).to_owned()));
    // A rejected file gets a number as its extension if its name was taken: removed here.
    let given = |name: String| match name.rsplit_once('.') {
        Some((given, number)) if number.parse::<u32>().is_ok() => given.to_owned(),
        _ => name,
    };
    let rejected = rejected.into_iter().map(given).collect();
    let is_quarantine = |complaint: &String| complaint.ends_with("directory: quarantine");
    let complaints = found.complaints.into_iter().filter(|complaint| !is_quarantine(complaint)).collect();
    Records { runs: runs.collect(), messages, rejected, complaints }
}

fn message(record: &Value) -> Message {
    Message {
        text: record["body"]["text"].as_str().unwrap_or_default().to_owned(),
        dedupe_key: record["dedupe_key"].as_str().map(str::to_owned),
        ..Message::default()
    }
}
