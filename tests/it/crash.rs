//! Kills: every command is cut at every system call that changes something, and no record is torn.
//!
//! One call in six is cut. `DORMOUSE_CUTS=1 cargo test --test it crash` cuts every one.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel, one_in};
use crate::scenarios::{
    AGENT, Before, Case, SCENARIOS, Scenario, acknowledged, created, forget_what_git_ignores, hold,
    killed_after_the_note, noted_ends, prepared, queued, settle, started, turns,
};
use crate::setup::words;
use crate::strace::{self, Call, Harm, Harmed};

/// One point of one scenario.
struct Cut<'a> {
    scenario: &'a Scenario,
    template: &'a Sandbox,
    args: &'a [String],
    call: Call,
    /// Even and odd cases differ in what is done next.
    number: usize,
}

#[derive(Default)]
struct Tally {
    cut: AtomicUsize,
    missed: AtomicUsize,
    replayed: AtomicUsize,
    again: AtomicUsize,
}

#[test]
fn every_command_can_be_killed_at_every_call() {
    needs!("strace");
    let prepared = prepared();
    let mut cuts = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (scenario, (template, args)) in SCENARIOS.iter().zip(&prepared) {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let points = strace::record(&template.copy(), &words, scenario.stdin).points();
        for (number, call) in points.into_iter().enumerate().filter(|(at, _)| at % scenario.every == 0) {
            cuts.push(Cut { scenario, template, args, call, number });
        }
    }
    let cuts = one_in(9, cuts);
    cuts.iter().for_each(|cut| *counts.entry(cut.scenario.name).or_default() += 1);
    let tally = Tally::default();
    each_in_parallel(&cuts, |cut| kill(cut, &tally));
    for (name, taken) in counts {
        println!("{name}: cut at {taken} points");
    }
    let (cut, missed) = (tally.cut.into_inner(), tally.missed.into_inner());
    assert!(missed * 50 < cut, "{missed} of {cut} cuts were missed");
    println!(
        "{} cut, {} missed, {} cut a second time, {} turns ran again",
        cut,
        missed,
        tally.again.into_inner(),
        tally.replayed.into_inner()
    );
}

/// Runs differ in what they read: recovery looks at every process of the machine, and what was the
/// tenth file to be opened is the twelfth now. The place among the calls that change something stays.
fn cut_at(cut: &Cut<'_>, words: &[&str]) -> (Sandbox, Before, Harmed, Call) {
    let mut call = cut.call.clone();
    for again in 0.. {
        let sandbox = cut.template.copy();
        let before = Before::of(&sandbox);
        let harmed = strace::harm(&sandbox, words, cut.scenario.stdin, &call, Harm::Kill);
        if !harmed.hit.is_empty() || again == 3 {
            return (sandbox, before, harmed, call);
        }
        let points = strace::record(&cut.template.copy(), words, cut.scenario.stdin).points();
        call = points.get(cut.number).cloned().unwrap_or(call);
    }
    unreachable!("it returns at the last of them")
}

fn kill(cut: &Cut<'_>, tally: &Tally) {
    let words: Vec<&str> = cut.args.iter().map(String::as_str).collect();
    let (sandbox, before, harmed, call) = cut_at(cut, &words);
    let case = Case { scenario: cut.scenario, what: format!("killed at {call} (really: {:?})", harmed.hit) };
    let counter = if harmed.hit.is_empty() { &tally.missed } else { &tally.cut };
    counter.fetch_add(1, Ordering::Relaxed);
    let mut kept = acknowledged(&harmed.ran);

    // Whoever only reads is not disturbed.
    let got = sandbox.cmd(["get", AGENT, "--json"]).output();
    case.must(got.code() == 0, &sandbox, format!("get: {got}"));

    // What was noted to have ended must never run again; anything else may.
    let noted = noted_ends(&sandbox);
    let before_again = turns(&sandbox);

    let is_producer = ["enqueue", "wake"].contains(&words[0]);
    if !is_producer || cut.number % 2 == 1 {
        if !is_producer && cut.number.is_multiple_of(3) {
            // The one who cleans up is killed as well, somewhere on its way.
            let points = strace::record(&sandbox.copy(), &words, cut.scenario.stdin).points();
            let call = &points[cut.number * 7 % points.len()];
            strace::harm(&sandbox, &words, cut.scenario.stdin, call, Harm::Kill);
            tally.again.fetch_add(1, Ordering::Relaxed);
        }
        let again = sandbox.cmd(cut.args.to_vec()).stdin(cut.scenario.stdin).output();
        let allowed = cut.scenario.again.contains(&again.code());
        case.must(allowed, &sandbox, format!("tried again: {again}"));
        kept.extend(acknowledged(&again));
    }
    settle(&case, &sandbox);
    hold(&case, &sandbox, &before, &kept);

    let found = checker::look(&sandbox.agent(AGENT));
    for run in noted {
        let message = found.runs[&run]["message_id"].as_str().unwrap().to_owned();
        let completed = found.runs[&run]["terminal"] == "completed";
        let runs = &turns(&sandbox)[&message];
        case.must(
            !completed || runs.last() == Some(&run),
            &sandbox,
            format!("{run} had ended, and its message ran again: {runs:?}"),
        );
    }
    let ran = turns(&sandbox);
    let more = ran.iter().filter(|(id, now)| {
        let then = before_again.get(*id).map_or(0, Vec::len);
        let completed = found.ended_as(id) == Some("processed");
        then > 0 && now.len() > then && completed
    });
    tally.replayed.fetch_add(more.count(), Ordering::Relaxed);
}

/// The one window in which a turn that did all it had to may run again: from its last act until its
/// tick has noted its end. It is as long as it takes to see that, and to write one small file.
#[test]
fn a_turn_runs_again_only_if_nobody_noted_its_end() {
    needs!("strace");
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == "tick: claim, turn, settle").unwrap();
    let template = queued();
    let measured = template.copy();
    let recording = strace::record(&measured, &["tick", AGENT], "");
    let points = recording.points();
    let noted = points.iter().position(Call::is_about_end_note).unwrap();
    let last_act = fs::metadata(measured.home().join("turns")).unwrap().modified().unwrap();
    let last_act = last_act.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let window_ms = (points[noted].at - last_act) * 1000.0;
    let numbered: Vec<(usize, &Call)> = points.iter().enumerate().collect();
    let replays = AtomicUsize::new(0);
    each_in_parallel(&numbered, |(at, call)| {
        let sandbox = template.copy();
        let harmed = strace::harm(&sandbox, &["tick", AGENT], "", call, Harm::Kill);
        let case = Case { scenario, what: format!("killed at {call} (really: {:?})", harmed.hit) };
        // Which runs came to their end shows only when nothing of the turn is left.
        settle(&case, &sandbox);
        let runs: Vec<Vec<String>> = turns(&sandbox).into_values().collect();
        // The cut comes before the call: at the call itself the note of the end is not there yet.
        let most = if *at <= noted { 2 } else { 1 };
        case.must(
            runs.len() == 1 && (1..=most).contains(&runs[0].len()),
            &sandbox,
            format!("point {at}, noted at {noted}: {runs:?}"),
        );
        replays.fetch_add(usize::from(runs[0].len() == 2), Ordering::Relaxed);
    });
    println!(
        "{} points, the end is noted at point {noted}; {} cuts let the turn run again; from its last act to the note: {window_ms:.1} ms under strace",
        points.len(),
        replays.into_inner()
    );
}

/// A stop that is killed on its way has closed the gate or not; the next one finishes it.
#[test]
fn stop_can_be_killed_while_it_ends_a_run() {
    needs!("strace");
    // It says that it is up, and would work for a day.
    const TURN: &str =
        r#"echo "$DORMOUSE_MESSAGE $DORMOUSE_RUN" >> "$HOME/turns"; echo up > "$HOME/up"; exec sleep 86400"#;
    let template = created(TURN, "");
    template.run(words("start ada"));
    template.run(words("enqueue ada hello"));
    let live = || {
        let sandbox = template.copy();
        let up = sandbox.home().join("up");
        assert!(Command::new("mkfifo").arg(&up).status().unwrap().success());
        let mut tick = sandbox.cmd(["tick", AGENT]).into_command();
        let tick = tick.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(fs::read_to_string(&up).unwrap(), "up\n");
        (sandbox, tick)
    };
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == "stop, idle").unwrap();
    for stop in [&["stop", AGENT][..], &["stop", AGENT, "--requeue"]] {
        let (sandbox, mut tick) = live();
        let points = strace::record(&sandbox, stop, "").points();
        tick.wait().unwrap();
        let (replayed, cut) = (AtomicUsize::new(0), AtomicUsize::new(0));
        each_in_parallel(&points, |call| {
            let (sandbox, mut tick) = live();
            let harmed = strace::harm(&sandbox, stop, "", call, Harm::Kill);
            let case = Case {
                scenario,
                what: format!("{stop:?} of a live run, killed at {call} (really: {:?})", harmed.hit),
            };
            cut.fetch_add(harmed.hit.len(), Ordering::Relaxed);
            let again = sandbox.cmd(stop.to_vec()).output();
            case.must(again.code() == 0, &sandbox, format!("again: {again}"));
            // Its turn was ended, so it ends by itself.
            let status = tick.wait().unwrap();
            case.must([Some(0), Some(7)].contains(&status.code()), &sandbox, format!("the tick: {status}"));
            let found = checker::look(&sandbox.agent(AGENT));
            case.must(
                found.complaints.is_empty() && !found.has_journal,
                &sandbox,
                format!("{:#?}", found.complaints),
            );
            case.must(found.state["status"] == "stopped", &sandbox, "it is not stopped");
            case.must(found.state["current_run"].is_null(), &sandbox, "a run is left");
            let id = found.messages().into_iter().next().unwrap_or_default();
            let ended = found.ended_as(&id);
            // Killed before the commit, it has let the run go on, and the second one has ended it.
            let expected = if stop.len() == 3 { None } else { Some("aborted") };
            case.must(ended == expected && found.messages().len() == 1, &sandbox, format!("{ended:?}"));
            replayed.fetch_add(usize::from(turns(&sandbox)[&id].len() > 1), Ordering::Relaxed);
        });
        assert_eq!(replayed.into_inner(), 0);
        println!("{stop:?} of a live run: cut at {} of {} points", cut.into_inner(), points.len());
    }
}

/// The cache of dedupe keys may be lost at any time. A settlement that comes first must not make one
/// that knows its own key alone: it would pass for the whole.
#[test]
fn a_dedupe_cache_that_was_lost_in_mid_turn_is_made_whole() {
    needs!("strace");
    let sandbox = started();
    let first = sandbox.run(words("enqueue ada one --dedupe-key first"));
    sandbox.run(words("tick ada"));
    sandbox.run(words("enqueue ada two --dedupe-key second"));
    let sandbox = killed_after_the_note(sandbox);
    forget_what_git_ignores(&sandbox);
    sandbox.run(words("tick ada"));
    assert_eq!(turns(&sandbox).len(), 2);
    let answer = sandbox.json(words("enqueue ada one --dedupe-key first"));
    assert_eq!((&answer["duplicate"], &answer["message_id"]), (&true.into(), &first.trim().into()));
}
