//! Fuzz tests of the readers of records, lines, journals and settings: no reader panics, and a
//! value that was read is unchanged after it was written and read again.
//!
//! `cargo test --bin dormouse readers` fuzzes each reader for a moment,
//! `BOLERO_RANDOM_TEST_TIME_MS=3600000` for an hour each. `cargo bolero test
//! store::tests::readers::record_readers_never_panic` lets libFuzzer search for new code paths.

pub use readers::{positional, tried};

mod readers {
    use std::path::Path;

    use bolero::{TypeGenerator, check};
    use serde_json::Value;

    use crate::local::config::{policy_from, store_config};
    use crate::model::agent::Identity;
    use crate::model::dedupe::DedupeEntry;
    use crate::model::event::Event;
    use crate::model::message::{Message, WakeHint};
    use crate::model::record::Record;
    use crate::model::run::{Brief, Run};
    use crate::model::state::State;
    use crate::model::task::Task;
    use crate::model::timer::Timer;
    use crate::model::trigger::Trigger;
    use crate::model::wait::Wait;
    use crate::model::work::WorkItem;
    use crate::store::dir::journal::{JournalEntry, decode_all};
    use crate::store::dir::quarantine;
    use crate::store::dir::record::{decode, decode_plain, encode};

    /// Default time for which each reader is fuzzed.
    const MOMENT: std::time::Duration = std::time::Duration::from_millis(300);

    /// Change of a text, at an offset that may be beyond its end.
    #[derive(Debug, Clone, TypeGenerator)]
    enum Edit {
        Cut { place: u16 },
        Turn { place: u16, bit: u8 },
        Drop { place: u16, length: u8 },
        Twice { place: u16, length: u8 },
        Insert { place: u16, word: u8 },
        Replace { place: u16, word: u8 },
    }

    /// Replacements for a word of JSON or TOML.
    const WORDS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\n",
        "null",
        "true",
        "-1",
        "0",
        "1e999",
        "-0.0",
        "18446744073709551616",
        "9223372036854775807",
        "\"\"",
        "\"9999-12-31T23:59:59.999Z\"",
        "\"+262142-12-31T23:59:59.999Z\"",
        "\"-262143-01-01T00:00:00Z\"",
        "\"99999999999999d\"",
        "\"18446744073709551615ms\"",
        "\"never\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "[[[[[[[[",
        "{\"a\":",
        "\u{feff}",
        "= ",
        "[a.b]\n",
        "'''",
    ];

    fn edited(text: &[u8], edits: &[Edit]) -> Vec<u8> {
        let mut text = text.to_vec();
        for edit in edits {
            let at = |place: u16| usize::from(place) % (text.len() + 1);
            let word = |word: u8| WORDS[usize::from(word) % WORDS.len()].bytes();
            match *edit {
                Edit::Cut { place } if place % 8 == 0 => text.truncate(at(place)),
                Edit::Cut { .. } => {}
                Edit::Turn { place, bit } => {
                    let at = at(place);
                    text.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
                }
                Edit::Drop { place, length } => {
                    let from = at(place);
                    text.drain(from..text.len().min(from + usize::from(length % 32)));
                }
                Edit::Twice { place, length } => {
                    let from = at(place);
                    let piece = text[from..text.len().min(from + usize::from(length))].to_vec();
                    text.splice(from..from, piece);
                }
                Edit::Insert { place, word: which } => drop(text.splice(at(place)..at(place), word(which))),
                Edit::Replace { place, word: which } => {
                    let is_end = |byte: &u8| b" ,:\n]}".contains(byte);
                    let from = at(place);
                    let to = text[from..].iter().position(is_end).map_or(text.len(), |length| from + length);
                    text.splice(from..to, word(which));
                }
            }
        }
        text
    }

    /// Fuzzes a reader with changed versions of the samples.
    pub fn tried(samples: &[Vec<u8>], read: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
        assert!(!samples.is_empty(), "no samples");
        samples.iter().for_each(|sample| read(sample));
        let asked = std::env::var_os("BOLERO_RANDOM_TEST_TIME_MS").is_some();
        let target = check!().with_type::<(u16, Vec<Edit>)>();
        let target = if asked { target } else { target.with_test_time(MOMENT) };
        target.for_each(|(which, edits)| {
            read(&edited(&samples[usize::from(*which) % samples.len()], edits));
        });
    }

    /// Returns the files of the fixture whose path contains `part`.
    fn samples(part: &str) -> Vec<Vec<u8>> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1");
        let files = walkdir::WalkDir::new(dir).sort_by_file_name().into_iter().flatten();
        let files =
            files.filter(|file| file.file_type().is_file() && file.path().to_string_lossy().contains(part));
        files.map(|file| std::fs::read(file.path()).unwrap()).collect()
    }

    fn lines(part: &str) -> Vec<Vec<u8>> {
        samples(part)
            .iter()
            .flat_map(|text| text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>())
            .collect()
    }

    fn record<T: Record>(bytes: &[u8]) {
        let Ok(record) = decode::<T>(Path::new("record"), bytes) else { return };
        let written = encode(&record);
        let again = decode::<T>(Path::new("record"), &written);
        let again = again.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&written)));
        assert_eq!(encode(&again), written, "{}", String::from_utf8_lossy(bytes));
    }

    #[test]
    fn record_readers_never_panic() {
        tried(&samples("/state.json"), record::<State>);
        tried(&samples("/identity.json"), record::<Identity>);
        tried(&samples("-msg_"), |bytes| {
            record::<Message>(bytes);
            record::<WakeHint>(bytes);
        });
        tried(&samples("/work/work_"), record::<WorkItem>);
        tried(&samples("/waits/"), record::<Wait>);
        tried(&samples("/timers/"), record::<Timer>);
        tried(&samples("/tasks/task_019b76e94e00700080007edcd88b35f8.json"), record::<Task>);
        tried(&samples("/triggers/"), record::<Trigger>);
        tried(&lines("/run.jsonl"), record::<Run>);
        tried(&samples("/dedupe/"), record::<DedupeEntry>);
    }

    #[test]
    fn ledger_and_archive_readers_never_panic() {
        tried(&lines("/ledger/"), |bytes| drop(decode_plain::<Event>(Path::new("ledger"), 1, bytes)));
        tried(&lines("/message.jsonl"), record::<Message>);
        tried(&lines("/brief.jsonl"), record::<Brief>);
    }

    #[test]
    fn the_journal_reader_never_panics() {
        let lines = include_bytes!("../../tests/data/power-cut/agents/ada/journal.jsonl");
        tried(&[lines.to_vec()], |bytes| drop(decode_all(Path::new("journal.jsonl"), bytes)));
    }

    /// For each object of a JSON document: the path to the object, and the document with the object
    /// replaced by an array of its fields' values.
    pub fn positional(document: &Value) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut paths = vec![String::new()];
        while let Some(path) = paths.pop() {
            match document.pointer(&path) {
                // These fields may contain any JSON, objects of the sender included.
                Some(Value::Object(_)) if path.ends_with("/data") || path.ends_with("/value") => {}
                Some(Value::Object(fields)) => {
                    let mut changed = document.clone();
                    *changed.pointer_mut(&path).unwrap() = Value::Array(fields.values().cloned().collect());
                    found.push((path.clone(), changed.to_string().into_bytes()));
                    paths.extend(fields.keys().map(|key| format!("{path}/{}", key.replace('/', "~1"))));
                }
                Some(Value::Array(elements)) => {
                    paths.extend((0..elements.len()).map(|at| format!("{path}/{at}")));
                }
                Some(_) | None => {}
            }
        }
        found
    }

    fn no_array(kind: &str, samples: &[Vec<u8>], is_read: impl Fn(&[u8]) -> bool) {
        let samples: Vec<&Vec<u8>> = samples.iter().filter(|sample| is_read(sample)).collect();
        assert!(!samples.is_empty(), "no samples of {kind}");
        for sample in samples {
            for (path, bytes) in positional(&serde_json::from_slice(sample).unwrap()) {
                assert!(!is_read(&bytes), "{kind}: {path} is read: {}", String::from_utf8_lossy(&bytes));
            }
        }
    }

    fn reads<T: Record>(bytes: &[u8]) -> bool {
        decode::<T>(Path::new("record"), bytes).is_ok()
    }

    #[test]
    fn every_record_refuses_an_array_in_place_of_an_object() {
        let state = |bytes: &[u8]| {
            let read = decode::<State>(Path::new("record"), bytes);
            read.is_ok_and(|state| quarantine::check(&state).is_ok())
        };
        no_array("state", &samples("/state.json"), state);
        no_array("identity", &samples("/identity.json"), reads::<Identity>);
        no_array("message", &samples("-msg_"), reads::<Message>);
        no_array("hint", &samples("-msg_"), reads::<WakeHint>);
        no_array("work", &samples("/work/work_"), reads::<WorkItem>);
        no_array("wait", &samples("/waits/"), reads::<Wait>);
        no_array("timer", &samples("/timers/"), reads::<Timer>);
        no_array("task", &samples("/tasks/task_019b76e94e00700080007edcd88b35f8.json"), reads::<Task>);
        no_array("trigger", &samples("/triggers/"), reads::<Trigger>);
        no_array("run", &lines("/run.jsonl"), reads::<Run>);
        no_array("dedupe", &samples("/dedupe/"), reads::<DedupeEntry>);
        no_array("settled message", &lines("/message.jsonl"), reads::<Message>);
        no_array("brief", &lines("/brief.jsonl"), reads::<Brief>);
        let event = |bytes: &[u8]| decode_plain::<Event>(Path::new("ledger"), 1, bytes).is_ok();
        no_array("event", &lines("/ledger/"), event);
        let journal = include_bytes!("../../tests/data/power-cut/agents/ada/journal.jsonl");
        let entries = journal.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| {
            let mut entry: Value = serde_json::from_slice(line).unwrap();
            // `JournalEntry` refuses these fields, which belong to the line around the entry.
            for field in ["sum", "boot", "applied"] {
                entry.as_object_mut().unwrap().shift_remove(field);
            }
            entry.to_string().into_bytes()
        });
        let journal: Vec<Vec<u8>> = entries.collect();
        let entry = |bytes: &[u8]| decode_plain::<JournalEntry>(Path::new("journal"), 1, bytes).is_ok();
        no_array("journal", &journal, entry);
        // The fixture has no delegation, so one is built here.
        let id = "01900000000070008000000000000001";
        let message = serde_json::json!({
            "id": format!("msg_{id}"), "agent": "bob", "kind": "operator_prompt", "priority": "normal",
            "origin": { "kind": "operator", "id": "ada" }, "authority_class": "operator_instruction",
            "delivery_surface": "cli", "admission_context": "local_process", "trigger_kind": "operator_input",
            "body": { "type": "json", "value": 1, "sent": "1.00" }, "created_at": "2026-01-02T03:04:05.000Z",
        });
        let task = serde_json::json!({
            "schema": "dormouse/task/1", "id": format!("task_{id}"), "agent": "ada", "status": "queued",
            "job": { "kind": "child_agent", "child": "bob", "message_id": format!("msg_{id}"),
                "assignment": { "policy": "", "message": message } },
            "created_at": "2026-01-02T03:04:05.000Z",
        });
        no_array("delegation", &[task.to_string().into_bytes()], reads::<Task>);
    }

    #[test]
    fn settings_refuse_an_array_in_place_of_a_table() {
        let config = store_config(Path::new("dormouse.toml"), b"format = 1\n").unwrap();
        for table in ["turn", "limits", "retry", "inbox", "retention", "preemption", "tasks", "authority"] {
            for array in ["[]", "[[]]", "[\"true\"]", "[[\"true\"], false]"] {
                let text = format!("{table} = {array}\n");
                assert!(policy_from(Path::new("agent.toml"), text.as_bytes(), &config).is_err(), "{text}");
            }
        }
        for table in ["store", "scheduler", "git", "sharing", "ingress"] {
            let text = format!("format = 1\n{table} = []\n");
            assert!(store_config(Path::new("dormouse.toml"), text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_readers_never_panic() {
        tried(&samples("/dormouse.toml"), |bytes| drop(store_config(Path::new("dormouse.toml"), bytes)));
        let mut policies = samples("/agent.toml");
        policies.push(include_bytes!("../../tests/data/format-1/agents/bob/agent.toml").to_vec());
        let config = store_config(Path::new("dormouse.toml"), b"format = 1\n").unwrap();
        tried(&policies, |bytes| drop(policy_from(Path::new("agent.toml"), bytes, &config)));
    }
}
