//! Tests that readers take no lock, and find one consistent state while other commands write.

use std::fs;

use super::{AGENT, agent, is_sound};
use crate::harness::{each_in_parallel, one_in};
use crate::paused::{Held, call};
use crate::setup::{objects, only_file};
use crate::strace::{Call, Harm, harm, record};

#[test]
fn a_reader_finds_a_transaction_whole_that_is_not_applied() {
    needs!("strace");
    const READ: &[&str] = &["events", AGENT, "--limit", "0", "--json"];
    const WRITE: &[&str] = &["work", "add", "objective", "-a", AGENT];
    let sandbox = agent("true", "");
    sandbox.run(["enqueue", AGENT, "hello"]);
    sandbox.run(["tick", AGENT, "--until-idle"]);
    let before = sandbox.run(READ.iter().copied());
    let reads = record(&sandbox, READ, "").calls;
    let writes = record(&sandbox.copy(), WRITE, "").calls;
    // The test stops the reader between opening the event ledger and reading it.
    let reader = Held::at(&sandbox, READ, "", call(&reads, "open", "/ledger/2"));
    let ledger = only_file(&sandbox, "ledger");
    harm(&sandbox, WRITE, "", call(&writes, "rename", "/state.json\""), Harm::Kill);
    // The test cuts the ledger, as a reader may see only the first part of a concurrent write.
    let text = fs::read(&ledger).unwrap();
    fs::write(&ledger, &text[..text.len() - 10]).unwrap();
    let ran = reader.go_on().exits(0);
    let seqs: Vec<u64> = objects(&ran.stdout).iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert!(seqs.len() > objects(&before).len(), "the transaction is committed");
    sandbox.run(["enqueue", AGENT, "hello", "--dedupe-key", "key"]);
    is_sound(&sandbox);
}

/// A tick reads the archive for the context of its turn under the lock of the claim, so that no
/// other command writes to the archive meanwhile.
#[test]
fn no_command_writes_while_a_tick_reads_the_context_of_its_turn() {
    needs!("strace");
    const TICK: &[&str] = &["tick", AGENT];
    let sandbox = agent("true", "");
    sandbox.run(["enqueue", AGENT, " ", "--allow-empty", "--origin", "channel"]);
    sandbox.run(["tick", AGENT, "--until-idle"]);
    sandbox.run(["enqueue", AGENT, "hello"]);
    let other = sandbox.run(["enqueue", AGENT, "never mind"]).trim().to_owned();
    let steps = record(&sandbox.copy(), TICK, "").calls;
    // The tick reads settled messages from the archive before it writes the turn's context file.
    let begins = steps.iter().position(|call| call.rest.contains("/context.json\"")).unwrap();
    let read = steps[..begins].iter().rfind(|call| call.rest.contains("/message.jsonl\", {flags=O_RDONLY"));
    let tick = Held::at(&sandbox, TICK, "", read.unwrap());
    sandbox.cmd(["queue", "drop", &other, "--lock-timeout", "0s"]).exits(5);
    tick.go_on().exits(0);
    sandbox.run(["queue", "drop", &other]);
    let found = is_sound(&sandbox);
    assert_eq!(found.ended_as(&other), Some("dropped"));
}

/// A step replaces a large inbox and moves its messages into directories, without a transaction.
#[test]
fn a_reader_finds_all_messages_while_a_step_moves_them_into_directories() {
    needs!("strace");
    const MESSAGES: usize = 1100;
    const LIST: &[&str] = &["queue", "list", "-a", AGENT, "--limit", "0"];
    const TICK: &[&str] = &["tick", AGENT];
    // Two small batches become files of the inbox, one large batch becomes a subdirectory.
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
        // The test stops the reader when it opens the inbox, a subdirectory or a message.
        for call in reads.into_iter().filter(is_of_inbox).take(6) {
            // The tick is killed early, midway or late while it rearranges the inbox.
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
