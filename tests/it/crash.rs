//! Kills commands at system calls that change something, and checks that no record is torn.
//!
//! A run takes a sample of these calls; `DORMOUSE_CUTS=1 cargo test --test it crash` takes all but
//! those that a scenario leaves out.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel, one_in};
use crate::scenarios::{
    AGENT, Before, Case, SCENARIOS, Scenario, acknowledged, created, forget_what_git_ignores, hold,
    killed_after_the_note, noted_ends, prepared, queued, settle, started, turns,
};
use crate::setup::{fifo, words};
use crate::strace::{self, Call, Harm, Harmed};

/// One system call of one scenario, at which the command is killed.
struct Cut<'a> {
    scenario: &'a Scenario,
    template: &'a Sandbox,
    args: &'a [String],
    call: Call,
    /// Index of `call` among the calls that change something; decides how the test continues.
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
    for (scenario, (template, args)) in SCENARIOS.iter().zip(&prepared) {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let points = strace::record(&template.copy(), &words, scenario.stdin).points();
        for (number, call) in points.into_iter().enumerate().filter(|(at, _)| at % scenario.every == 0) {
            cuts.push(Cut { scenario, template, args, call, number });
        }
    }
    let cuts = one_in(9, cuts);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    cuts.iter().for_each(|cut| *counts.entry(cut.scenario.name).or_default() += 1);
    let tally = Tally::default();
    each_in_parallel(&cuts, |cut| kill(cut, &tally));
    for (name, taken) in counts {
        println!("{name}: cut at {taken} points");
    }
    let (cut, missed) = (tally.cut.into_inner(), tally.missed.into_inner());
    assert!(missed * 50 < cut, "{missed} of {cut} cuts were missed");
    let (again, replayed) = (tally.again.into_inner(), tally.replayed.into_inner());
    println!("{cut} cut, {missed} missed, {again} cut a second time, {replayed} turns ran again");
}

/// Kills a command at a system call, in up to four attempts. Recovery reads every process of the
/// machine, so the tenth `open` of one run can be the twelfth of the next; then the call is found
/// by its place among the calls that change something.
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
    unreachable!("the fourth attempt returns")
}

fn kill(cut: &Cut<'_>, tally: &Tally) {
    let words: Vec<&str> = cut.args.iter().map(String::as_str).collect();
    let (sandbox, before, harmed, call) = cut_at(cut, &words);
    let case = Case { scenario: cut.scenario, what: format!("killed at {call} (really: {:?})", harmed.hit) };
    let counter = if harmed.hit.is_empty() { &tally.missed } else { &tally.cut };
    counter.fetch_add(1, Ordering::Relaxed);
    let mut kept = acknowledged(&harmed.ran);

    // A reader succeeds before any other command repairs the records.
    let got = sandbox.cmd(["get", AGENT, "--json"]).output();
    case.must(got.code() == 0, &sandbox, format!("get: {got}"));

    // A turn whose end note was written must never run again; any other turn may.
    let noted = noted_ends(&sandbox);
    let before_again = turns(&sandbox);

    let is_producer = ["enqueue", "wake"].contains(&words[0]);
    if !is_producer || cut.number % 2 == 1 {
        if !is_producer && cut.number.is_multiple_of(3) {
            // A recovery must survive a kill, too, so the test also kills the next command.
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
        let is_last = !completed || runs.last() == Some(&run);
        case.must(is_last, &sandbox, format!("{run} had ended, and its message ran again: {runs:?}"));
    }
    let ran = turns(&sandbox);
    let more = ran.iter().filter(|(id, now)| {
        let then = before_again.get(*id).map_or(0, Vec::len);
        let completed = found.ended_as(id) == Some("processed");
        then > 0 && now.len() > then && completed
    });
    tally.replayed.fetch_add(more.count(), Ordering::Relaxed);
}

/// A complete turn may run again only if its tick is killed before it has noted the turn's end.
#[test]
fn a_turn_runs_again_only_if_its_end_was_not_recorded() {
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
        // Recovers and finishes the message, so that no turn starts after the turns are counted.
        settle(&case, &sandbox);
        let runs: Vec<Vec<String>> = turns(&sandbox).into_values().collect();
        // A tick killed at call `noted` or before has not noted the end, so the turn may run twice.
        let most = if *at <= noted { 2 } else { 1 };
        let is_once = runs.len() == 1 && (1..=most).contains(&runs[0].len());
        case.must(is_once, &sandbox, format!("point {at}, noted at {noted}: {runs:?}"));
        replays.fetch_add(usize::from(runs[0].len() == 2), Ordering::Relaxed);
    });
    println!(
        "{} points, the end is noted at point {noted}; {} cuts let the turn run again; from its last act to the note: {window_ms:.1} ms under strace",
        points.len(),
        replays.into_inner()
    );
}

/// A second `stop` finishes an earlier `stop` that was killed.
#[test]
fn stop_can_be_killed_while_it_ends_a_run() {
    needs!("strace");
    // The turn reports that it runs, and sleeps for a day.
    const TURN: &str =
        r#"echo "$DORMOUSE_MESSAGE $DORMOUSE_RUN" >> "$HOME/turns"; echo up > "$HOME/up"; exec sleep 86400"#;
    let template = created(TURN, "");
    template.run(words("start ada"));
    template.run(words("enqueue ada hello"));
    let live = || {
        let sandbox = template.copy();
        let up = sandbox.home().join("up");
        fifo(&up);
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
            // The tick ends because its turn was killed.
            let status = tick.wait().unwrap();
            case.must([Some(0), Some(7)].contains(&status.code()), &sandbox, format!("the tick: {status}"));
            let found = checker::look(&sandbox.agent(AGENT));
            let is_sound = found.complaints.is_empty() && !found.has_journal;
            case.must(is_sound, &sandbox, format!("{:#?}", found.complaints));
            case.must(found.state["status"] == "stopped", &sandbox, "the agent is not stopped");
            case.must(found.state["current_run"].is_null(), &sandbox, "the agent still has a run");
            let id = found.messages().into_iter().next().unwrap_or_default();
            let ended = found.ended_as(&id);
            // With `--requeue`, which is a third word, the message is queued again, else aborted.
            let expected = if stop.len() == 3 { None } else { Some("aborted") };
            case.must(ended == expected && found.messages().len() == 1, &sandbox, format!("{ended:?}"));
            replayed.fetch_add(usize::from(turns(&sandbox)[&id].len() > 1), Ordering::Relaxed);
        });
        assert_eq!(replayed.into_inner(), 0);
        println!("{stop:?} of a live run: cut at {} of {} points", cut.into_inner(), points.len());
    }
}

/// The cache of dedupe keys may be deleted at any time. A settlement that makes a new cache must
/// put all keys into it: with its own key alone the cache would pass for complete.
#[test]
fn a_dedupe_cache_that_was_deleted_during_a_turn_is_made_from_all_messages() {
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
