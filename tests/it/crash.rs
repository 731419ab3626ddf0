//! Killed anywhere, torn nowhere: every command is cut at every system call that changes something.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checker;
use crate::harness::{Sandbox, each_in_parallel};
use crate::scenarios::{
    AGENT, Before, Case, SCENARIOS, Scenario, acknowledged, hold, noted_ends, settle, turns,
};
use crate::strace::{self, Call, Harm};

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
    let prepared: Vec<(Sandbox, Vec<String>)> = SCENARIOS
        .iter()
        .map(|scenario| {
            let template = (scenario.prepare)();
            let args = (scenario.args)(&template);
            (template, args)
        })
        .collect();
    let mut cuts = Vec::new();
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (scenario, (template, args)) in SCENARIOS.iter().zip(&prepared) {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let points = strace::record(&template.copy(), &words, scenario.stdin).points();
        let all = points.len();
        let first = cuts.len();
        for (number, call) in points.into_iter().enumerate().filter(|(at, _)| at % scenario.every == 0) {
            cuts.push(Cut { scenario, template, args, call, number });
        }
        counts.insert(scenario.name, (cuts.len() - first, all));
    }
    let tally = Tally::default();
    each_in_parallel(&cuts, |cut| kill(cut, &tally));
    for (name, (taken, all)) in counts {
        println!("{name}: cut at {taken} of {all} points");
    }
    println!(
        "{} cut, {} missed, {} cut a second time, {} turns ran again as the next attempt",
        tally.cut.into_inner(),
        tally.missed.into_inner(),
        tally.again.into_inner(),
        tally.replayed.into_inner()
    );
}

fn kill(cut: &Cut<'_>, tally: &Tally) {
    let sandbox = cut.template.copy();
    let words: Vec<&str> = cut.args.iter().map(String::as_str).collect();
    let before = Before::of(&sandbox);
    let harmed = strace::harm(&sandbox, &words, cut.scenario.stdin, &cut.call, Harm::Kill);
    let case =
        Case { scenario: cut.scenario, what: format!("killed at {} (really: {:?})", cut.call, harmed.hit) };
    let counter = if harmed.hit.is_empty() { &tally.missed } else { &tally.cut };
    counter.fetch_add(1, Ordering::Relaxed);
    let mut kept = acknowledged(&harmed.ran);

    // Whoever only reads is not disturbed.
    let got = sandbox.cmd(["get", AGENT, "--json"]).output();
    case.must(got.code() == 0, &sandbox, format!("get: {got}"));

    // What was noted to have ended must never run again; anything else may, as the next attempt.
    let noted = noted_ends(&sandbox);
    let before_again = turns(&sandbox);

    let is_producer = ["enqueue", "wake"].contains(&words[0]);
    if !is_producer || cut.number % 2 == 1 {
        if !is_producer && cut.number % 3 == 0 {
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
        let attempt = found.runs[&run]["attempt"].as_u64().unwrap();
        let completed = found.runs[&run]["terminal"] == "completed";
        let attempts = &turns(&sandbox)[&message];
        case.must(
            !completed || attempts.iter().all(|ran| u64::from(*ran) <= attempt),
            &sandbox,
            format!("{run} had ended, and its message ran again: {attempts:?}"),
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
