//! Readers take no lock, and find one state whatever is written meanwhile.

use std::fs;

use super::{AGENT, agent, is_sound};
use crate::harness::{Sandbox, each_in_parallel, one_in};
use crate::held::{Held, call};
use crate::setup::{names, objects};
use crate::strace::{Call, Harm, harm, record};

/// Whose ledger has some events, as has its `state.json`.
fn with_events() -> Sandbox {
    let sandbox = agent("true", "");
    sandbox.run(["enqueue", AGENT, "hello"]);
    sandbox.run(["tick", AGENT, "--until-idle"]);
    sandbox
}

#[test]
fn a_reader_finds_nothing_of_a_transaction_that_is_half_carried_out() {
    needs!("strace");
    const READ: &[&str] = &["events", AGENT, "--limit", "0", "--json"];
    const WRITE: &[&str] = &["work", "add", "objective", "-a", AGENT];
    let sandbox = with_events();
    let before = sandbox.run(READ.iter().copied());
    let reads = record(&sandbox, READ, "").calls;
    let writes = record(&sandbox.copy(), WRITE, "").calls;
    // It has opened the ledger, and not read it.
    let reader = Held::at(&sandbox, READ, "", call(&reads, "open", "/ledger/2"));
    let ledger = sandbox.agent(AGENT).join("ledger").join(&names(&sandbox.agent(AGENT).join("ledger"))[0]);
    harm(&sandbox, WRITE, "", call(&writes, "rename", "/state.json\""), Harm::Kill);
    // Who reads beside a write may see the first pages of it.
    let text = fs::read(&ledger).unwrap();
    fs::write(&ledger, &text[..text.len() - 10]).unwrap();
    let ran = reader.go_on().exits(0);
    let seqs: Vec<u64> = objects(&ran.stdout).iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert!(seqs.len() > objects(&before).len(), "the transaction is committed");
    sandbox.run(["enqueue", AGENT, "hello", "--dedupe-key", "key"]);
    is_sound(&sandbox);
}

/// The past of a turn is read under the lock of its claim: nothing is written to the archive meanwhile.
#[test]
fn a_turn_is_told_of_the_past_before_anything_else_is_written() {
    needs!("strace");
    const TICK: &[&str] = &["tick", AGENT];
    let sandbox = agent("true", "");
    sandbox.run(["enqueue", AGENT, " ", "--allow-empty", "--origin", "channel"]);
    sandbox.run(["tick", AGENT, "--until-idle"]);
    sandbox.run(["enqueue", AGENT, "hello"]);
    let other = sandbox.run(["enqueue", AGENT, "never mind"]).trim().to_owned();
    let steps = record(&sandbox.copy(), TICK, "").calls;
    // The messages that were reduced are told of, when the claim is committed and the turn not begun.
    let begins = steps.iter().position(|call| call.rest.contains("/context.json\"")).unwrap();
    let told = steps[..begins].iter().rfind(|call| call.rest.contains("/message.jsonl\", {flags=O_RDONLY"));
    let tick = Held::at(&sandbox, TICK, "", told.unwrap());
    sandbox.cmd(["queue", "drop", &other, "--lock-timeout", "0s"]).exits(5);
    tick.go_on().exits(0);
    sandbox.run(["queue", "drop", &other]);
    let found = is_sound(&sandbox);
    assert_eq!(found.ended_as(&other), Some("dropped"));
}

/// A long inbox is exchanged, and filed into directories, and no record tells of that.
#[test]
fn who_reads_while_messages_are_filed_finds_all_of_them() {
    needs!("strace");
    const MESSAGES: usize = 1100;
    const LIST: &[&str] = &["queue", "list", "-a", AGENT, "--limit", "0"];
    const TICK: &[&str] = &["tick", AGENT];
    // In an inbox, and as a pile.
    let templates = [MESSAGES / 2, MESSAGES].map(|at_once| {
        let template = agent("true", "");
        template.run(["tick", AGENT]);
        for _ in 0..MESSAGES / at_once {
            let batch = "{\"text\":\"hello\"}\n".repeat(at_once);
            let ran = template.cmd(["enqueue", AGENT, "--batch"]).stdin(batch).output();
            assert_eq!(ran.stdout.lines().count(), at_once, "{ran}");
        }
        template
    });
    let mut cases = Vec::new();
    for template in &templates {
        let files = record(&template.copy(), TICK, "").calls;
        let reads = record(&template.copy(), LIST, "").calls;
        let is_move = |call: &Call| call.rest.contains("/inbox") && ["rename", "rmdir"].contains(&call.act());
        let moves: Vec<Call> = files.into_iter().filter(is_move).collect();
        let is_of_inbox = |call: &Call| call.act() == "open" && call.rest.contains("/inbox");
        // Before it looks into the inbox, between two looks, and when it has begun to read what it has found.
        for call in reads.into_iter().filter(is_of_inbox).take(6) {
            // Nothing but the exchange is done, half of it, or all; and nothing is committed.
            let until = [1, 4, moves.len() / 2, moves.len() - 20].map(|until| moves[until].clone());
            cases.extend(until.map(|until| (template, call.clone(), until)));
        }
    }
    each_in_parallel(&one_in(6, cases), |(template, call, until)| {
        let sandbox = template.copy();
        let reader = Held::at(&sandbox, LIST, "", call);
        harm(&sandbox, TICK, "", until, Harm::Kill);
        let ran = reader.go_on();
        let found = (ran.code(), ran.stdout.lines().count());
        assert_eq!(found, (0, MESSAGES), "{call}, until {until}");
    });
}
