//! Tests messages to an agent: `enqueue`, `wake`, `queue`, and files dropped into the inbox.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Cmd, Sandbox, copy_tree};
use crate::setup::{
    Beside, SLEEP, TURN_COMPLETED, TURN_FAILED, add, assert_includes, changes, commit_all, decision,
    decisions, edit_file, extend_policy, failure, field, git, git_in, json_in, names, objects, only_file,
    own_name, record, say, started, started_in_git, started_with, step, step_on, texts, tick_until_running,
    tree, words,
};

/// Turn that runs until the file `go` exists.
const WAIT_FOR_GO: &str = "touch running; while [ ! -e go ]; do sleep 0.02; done";

/// Returns the texts of the queued messages, in the order of the queue.
fn queued(sandbox: &Sandbox) -> Vec<String> {
    sandbox
        .json_lines(["queue", "list", "-a", "ada", "--limit", "0"])
        .iter()
        .map(|message| body(message).to_owned())
        .collect()
}

fn body(message: &Value) -> &str {
    message["body"]["text"].as_str().unwrap_or("(json)")
}

fn message(sandbox: &Sandbox, id: &str) -> Value {
    sandbox.json(["queue", "show", id])
}

/// Enqueues a message to `ada`, and returns its id.
#[track_caller]
fn enqueue(sandbox: &Sandbox, args: &[&str]) -> String {
    sandbox.run([&["enqueue", "ada"], args].concat()).trim_end().to_owned()
}

/// Enqueues a message with a dedupe key, and returns the answer.
#[track_caller]
fn enqueue_once(sandbox: &Sandbox, text: &str, key: &str) -> Value {
    sandbox.json(["enqueue", "ada", text, "--dedupe-key", key])
}

fn enqueue_batch<'s>(sandbox: &'s Sandbox, lines: &str) -> Cmd<'s> {
    sandbox.cmd(["enqueue", "ada", "--batch"]).stdin(lines)
}

fn inbox(sandbox: &Sandbox) -> Vec<String> {
    names(&sandbox.agent("ada").join("inbox"))
}

fn end_turn(sandbox: &Sandbox, tick: Beside) {
    fs::write(sandbox.project().join("go"), "").unwrap();
    assert_eq!(tick.end().code(), 0);
}

#[test]
fn enqueue_prints_the_id_of_its_message() {
    let sandbox = started("true");
    let before = tree(&sandbox.agent("ada"));
    let id = say(&sandbox, "hello");
    let after = tree(&sandbox.agent("ada"));
    let path = sandbox.agent("ada").join(format!("inbox/2-{id}.json"));
    assert_eq!(changes(&before, &after), vec![path], "an arrival is one new file and nothing else");
    assert_eq!(
        sandbox.json(["enqueue", "ada", "hello"]).as_object().unwrap().keys().collect::<Vec<_>>(),
        ["agent", "message_id", "status", "duplicate"]
    );
}

#[test]
fn a_text_comes_from_an_argument_a_file_or_stdin() {
    let sandbox = started("true");
    fs::write(sandbox.project().join("f"), "from a file\n").unwrap();
    let cases: &[(&[&str], &str, &str)] = &[
        (&["enqueue", "ada", "as it is"], "unread", "as it is"),
        (&["enqueue", "ada", "@f"], "", "from a file\n"),
        (&["enqueue", "ada", "-"], "from a dash\n", "from a dash\n"),
        (&["enqueue", "ada"], "from a pipe", "from a pipe"),
        (&["enqueue", "ada", "", "--allow-empty"], "unread", ""),
        (&["enqueue", "ada", "--allow-empty", "-"], "", ""),
        (&["enqueue", "ada", "--", "--text"], "", "--text"),
    ];
    for (args, stdin, text) in cases {
        let ran = sandbox.cmd(args.iter().copied()).stdin(*stdin).exits(0);
        assert_eq!(body(&message(&sandbox, ran.stdout.trim_end())), *text, "{args:?}");
    }
}

#[test]
fn a_body_of_json_comes_from_an_argument_a_file_or_stdin() {
    let sandbox = started("true");
    fs::write(sandbox.project().join("f.json"), "{\"n\": 2}\n").unwrap();
    for (word, stdin, value) in [
        ("{\"n\":1}", "", json!({ "n": 1 })),
        ("@f.json", "", json!({ "n": 2 })),
        ("-", "[3]", json!([3])),
        ("null", "", json!(null)),
    ] {
        let ran = sandbox.cmd(["enqueue", "ada", "--body-json", word]).stdin(stdin).exits(0);
        let expected = json!({ "type": "json", "value": value });
        assert_eq!(message(&sandbox, ran.stdout.trim_end())["body"], expected);
    }
    sandbox
        .cmd(["enqueue", "ada", "--body-json", "{"])
        .status(2)
        .complains(
            "dormouse: --body-json: not JSON: EOF while parsing an object at line 1 column 1\n\
             hint: JSON needs double quotes: --body-json '{\"key\": \"value\"}'; for plain text leave out --body-json\n",
        );
}

#[test]
fn an_unreadable_text_is_refused_with_the_name_of_its_source() {
    let sandbox = started("true");
    sandbox.cmd(["enqueue", "ada", "@nothing"]).status(1).complains(
        "dormouse: can't take the text from nothing: no such file or directory\n\
         hint: `@FILE` is the text in a file; pass a text that begins with `@` on stdin\n",
    );
    sandbox.cmd(["enqueue", "ada"]).stdin(&b"\xff\xfe"[..]).status(2).complains(
        "dormouse: stdin: not UTF-8\n\
         hint: a message is text: encode other data, or put it into a file and send its path\n",
    );
    assert_eq!(inbox(&sandbox), Vec::<String>::new());
}

#[test]
fn a_body_larger_than_the_limit_is_refused_and_the_limit_named() {
    let sandbox = started_with("true", "\n[limits]\nmax_message = \"1 KiB\"\n");
    let exact = "x".repeat(1024);
    sandbox.run(["enqueue", "ada", &exact]);
    sandbox.cmd(["enqueue", "ada"]).stdin("x".repeat(100_000)).status(4).complains(
        "dormouse: the body has at least 1025 bytes, more than limits.max_message = 1 KiB\n\
         hint: put it in a file and say where, or raise limits.max_message in agent.toml\n",
    );
    sandbox
        .cmd(["enqueue", "ada", "--json", "--body-json", &format!("\"{exact}\"")])
        .fails(4, "message_too_large");
    assert_eq!(inbox(&sandbox).len(), 1);
}

#[test]
fn a_message_carries_its_whole_provenance() {
    let sandbox = started("true");
    let work = sandbox.run(["work", "add", "-a", "ada", "a door"]).trim_end().to_owned();
    let flags = format!(
        "red --origin webhook:ci:main --priority background --resource github:org/repo#12 \
         --correlation-id c1 --work-item {work} --ttl 1h30m"
    );
    let id = enqueue(&sandbox, &words(&flags));
    let expected = json!({
        "schema": "dormouse/message/1", "id": id, "agent": "ada", "kind": "webhook_event",
        "priority": "background", "origin": { "kind": "webhook", "id": "ci:main" },
        "authority_class": "integration_signal", "delivery_surface": "cli",
        "admission_context": "local_process", "trigger_kind": "external_event",
        "body": { "type": "text", "text": "red" }, "work_item_id": work, "resource": "github:org/repo#12",
        "correlation_id": "c1", "expires_at": "2026-01-02T04:34:09.000Z", "attempt": 1,
        "created_at": "2026-01-02T03:04:09.000Z",
    });
    assert_eq!(record(&sandbox, format!("inbox/3-{id}.json")), expected);
}

#[test]
fn each_origin_has_its_own_kind_and_authority_class() {
    let sandbox = started("true");
    for (origin, kind, authority) in [
        ("operator", "operator_prompt", "operator_instruction"),
        ("channel", "channel_event", "external_evidence"),
        ("webhook", "webhook_event", "integration_signal"),
        ("callback", "callback_event", "integration_signal"),
    ] {
        let found = message(&sandbox, &enqueue(&sandbox, &["x", "--origin", origin]));
        assert_includes(&found, json!({ "kind": kind, "authority_class": authority }));
        let by_kind = message(&sandbox, &enqueue(&sandbox, &["x", "--kind", kind]));
        assert_eq!(by_kind["origin"]["kind"], origin);
    }
    let control = message(&sandbox, &enqueue(&sandbox, &["x", "--kind", "control"]));
    assert_eq!(control["origin"]["kind"], "operator");
}

#[test]
fn kinds_and_origins_that_do_not_match_are_refused() {
    let sandbox = started("true");
    let before = tree(&sandbox.agent("ada"));
    let mismatches = [
        ("webhook", "operator_prompt"),
        ("channel", "webhook_event"),
        ("operator", "callback_event"),
        ("webhook", "control"),
    ];
    let mismatches = mismatches.map(|(origin, kind)| {
        let message = format!("a message from `{origin}` can't be of kind `{kind}`");
        (["--origin", origin, "--kind", kind].to_vec(), "kind_origin_mismatch", message)
    });
    let not_allowed = [
        ("--origin system", "origin_not_allowed", "`system` is the runtime's own origin"),
        ("--origin timer", "origin_not_allowed", "`timer` is the runtime's own origin"),
        ("--origin task", "origin_not_allowed", "`task` is the runtime's own origin"),
        ("--kind internal_followup", "origin_not_allowed", "`system` is the runtime's own origin"),
        ("--origin webhook --priority interject", "priority_not_allowed", "only the operator can interject"),
        (
            "--origin channel:chat --priority interject",
            "priority_not_allowed",
            "only the operator can interject",
        ),
    ];
    let not_allowed = not_allowed.map(|(args, kind, message)| (words(args), kind, message.to_owned()));
    for (args, kind, message) in mismatches.into_iter().chain(not_allowed) {
        let ran = sandbox.cmd(["enqueue", "ada", "x", "--json"].iter().chain(&args).copied()).output();
        let failed = failure(&ran);
        assert_eq!((ran.code(), &failed["kind"], &failed["message"]), (4, &json!(kind), &json!(message)));
        assert!(failed["hint"].is_string(), "{args:?}");
    }
    assert_eq!(before, tree(&sandbox.agent("ada")));
}

#[test]
fn invalid_arguments_are_wrong_usage() {
    let sandbox = started("true");
    for line in [
        "enqueue ada x --ttl 5x",
        "enqueue ada x --ttl -5s",
        "enqueue ada x --priority urgent",
        "enqueue ada x --work-item 1",
        "enqueue ada x --body-json 1",
        "enqueue ada x --batch",
        "enqueue",
        "wake ada --wait 1",
        "enqueue ada x --origin stranger",
        "enqueue ada x --kind timer_tick",
        "enqueue ada x --kind system_tick",
        "enqueue ada x --kind task_result",
        "enqueue ada x --kind task_status",
    ] {
        let ran = sandbox.cmd(words(line)).output();
        assert_eq!((ran.code(), ran.stdout.as_str()), (2, ""), "{line}: {ran}");
    }
    assert_eq!(inbox(&sandbox), Vec::<String>::new());
}

#[test]
fn messages_are_taken_by_priority_then_first_in_first_out() {
    let sandbox = started("true");
    let sent = "6 background, 4 normal, 2 next, 7 background, 1 interject, 3 next, 5 normal";
    for (text, priority) in sent.split(", ").filter_map(|message| message.split_once(' ')) {
        enqueue(&sandbox, &[text, "--priority", priority]);
    }
    assert_eq!(queued(&sandbox), ["1", "2", "3", "4", "5", "6", "7"]);
    let expected = json!({
        "pending": 7, "by_priority": { "interject": 1, "next": 2, "normal": 2, "background": 2 },
        "oldest_at": "2026-01-02T03:04:08.000Z", "dropped_files": 0, "rejected": 0, "dead": 0,
    });
    assert_eq!(sandbox.json(["get", "ada"])["queue"], expected);
    for text in ["1", "2", "3", "4", "5", "6", "7"] {
        let taken = step(&sandbox);
        assert_eq!(body(&message(&sandbox, taken["message_id"].as_str().unwrap())), text);
    }
}

#[test]
fn a_batch_keeps_its_order_and_takes_its_flags_as_defaults() {
    let sandbox = started("true");
    let lines = "{\"text\": \"1\"}\n\n{\"text\": \"2\", \"origin\": \"channel:chat\", \"resource\": \"own\"}\r\n   \n\
                 {\"body\": {\"n\": 3}, \"kind\": \"webhook_event\", \"origin\": \"webhook\", \"ttl\": \"1m\"}\n{\"text\": \"4\"}";
    let ran = sandbox
        .cmd(words("enqueue ada --batch --origin callback:cb --resource all --correlation-id c --json"))
        .stdin(lines)
        .exits(0);
    let answers = objects(&ran.stdout);
    let found: Vec<Value> =
        answers.iter().map(|answer| message(&sandbox, answer["message_id"].as_str().unwrap())).collect();
    assert_eq!(found.iter().map(body).collect::<Vec<_>>(), ["1", "2", "(json)", "4"]);
    assert_eq!(texts(&found, "kind"), ["callback_event", "channel_event", "webhook_event", "callback_event"]);
    assert_eq!(texts(&found, "resource"), ["all", "own", "all", "all"]);
    assert_eq!(texts(&found, "correlation_id"), ["c", "c", "c", "c"]);
    assert_eq!(found[2]["expires_at"], "2026-01-02T03:05:08.000Z");
    assert_eq!(queued(&sandbox), ["1", "2", "(json)", "4"]);
}

#[test]
fn a_batch_without_a_message_or_with_a_bad_line_admits_nothing() {
    let sandbox = started("true");
    for empty in ["", "\n \n"] {
        enqueue_batch(&sandbox, empty).check();
    }
    for (line, status, message, hint) in [
        (
            r#"{"txt": "2"}"#,
            2,
            ", column 6: unknown field `txt`, expected one of `text`, `body`, `kind`, `origin`, `priority`, `dedupe_key`, `ttl`, `expires_at`, `resource`, `work_item_id`, `wait_id`, `correlation_id`, `allow_empty`",
            "",
        ),
        (r#"{"text": "#, 2, ", column 0: not JSON: EOF while parsing a value", ""),
        (r#""text""#, 2, ", column 6: invalid type: string \"text\", expected struct Submission", ""),
        ("{}", 4, ": neither `text` nor `body`: a message has one of them", ""),
        (r#"{"text": "a", "body": 1}"#, 4, ": both `text` and `body`: a message has one of them", ""),
        (
            r#"{"text": "a", "origin": "webhook", "priority": "interject"}"#,
            4,
            ": only the operator can interject",
            "the highest priority for everybody else is `next`; ",
        ),
    ] {
        enqueue_batch(&sandbox, &format!("{{\"text\": \"1\"}}\n\n{line}\n{{\"text\": \"4\"}}\n"))
            .status(status)
            .complains(&format!(
                "dormouse: line 3 of the batch{message}\nhint: {hint}nothing was admitted\n"
            ));
    }
    assert_eq!(inbox(&sandbox), Vec::<String>::new());
    assert_eq!(names(&sandbox.agent("ada").join("tmp")), Vec::<String>::new());
}

#[test]
fn a_batch_drops_a_second_line_with_the_same_dedupe_key() {
    let sandbox = started("true");
    let ran = sandbox
        .cmd(["enqueue", "ada", "--batch", "--json"])
        .stdin("{\"text\":\"1\",\"dedupe_key\":\"k\"}\n{\"text\":\"2\"}\n{\"text\":\"3\",\"dedupe_key\":\"k\"}\n")
        .output();
    let answers = objects(&ran.stdout);
    let duplicates: Vec<&Value> = answers.iter().map(|answer| &answer["duplicate"]).collect();
    assert_eq!(duplicates, [false, false, true]);
    assert_eq!(answers[0]["message_id"], answers[2]["message_id"]);
    assert_eq!(queued(&sandbox), ["1", "2"]);
}

#[test]
fn a_duplicate_prints_the_id_and_status_of_the_first_message() {
    let sandbox = started(WAIT_FOR_GO);
    let first = enqueue_once(&sandbox, "one", "k");
    let id = first["message_id"].as_str().unwrap();
    let answer = |status: &str, duplicate: bool| json!({ "agent": "ada", "message_id": id, "status": status, "duplicate": duplicate });
    assert_eq!(first, answer("queued", false));
    let repeat = || enqueue_once(&sandbox, "one", "k");
    assert_eq!(repeat(), answer("queued", true));
    let tick = tick_until_running(&sandbox);
    assert_eq!(repeat(), answer("dequeued", true));
    end_turn(&sandbox, tick);
    assert_eq!(repeat(), answer("processed", true));
    assert_eq!(sandbox.run(["enqueue", "ada", "one", "--dedupe-key", "k"]), format!("{id}\n"));
    assert_eq!(enqueue_once(&sandbox, "other", "K")["duplicate"], false);
}

#[test]
fn a_repeat_after_the_window_is_a_new_message() {
    let sandbox = started("true");
    let first = enqueue_once(&sandbox, "x", "k");
    sandbox.pass(24 * 3600 - 2);
    assert_eq!(enqueue_once(&sandbox, "x", "k")["duplicate"], true);
    let next = enqueue_once(&sandbox, "x", "k");
    assert_eq!(next["duplicate"], false);
    assert_ne!(first["message_id"], next["message_id"]);
    extend_policy(&sandbox, "ada", "\n[limits]\ndedupe_window = \"1m\"\n");
    sandbox.pass(60);
    assert_eq!(enqueue_once(&sandbox, "x", "k")["duplicate"], false);
    sandbox.pass(57);
    assert_eq!(enqueue_once(&sandbox, "x", "k")["duplicate"], true);
}

#[test]
fn a_message_that_is_queued_for_longer_than_the_window_is_no_copy_of_a_later_one() {
    let sandbox = started_with("true", "\n[limits]\ndedupe_window = \"1h\"\n");
    assert_eq!(enqueue_once(&sandbox, "one", "k")["duplicate"], false);
    sandbox.pass(3600);
    let second = enqueue_once(&sandbox, "two", "k");
    assert_eq!(second["duplicate"], false);
    assert_eq!(decisions(&sandbox), [TURN_COMPLETED, TURN_COMPLETED, SLEEP]);
    // The dedupe key still belongs to the second message after the first message has ended.
    sandbox.pass(3000);
    let again = enqueue_once(&sandbox, "two", "k");
    assert_includes(&again, json!({ "duplicate": true, "message_id": second["message_id"] }));
}

#[test]
fn dedupe_keys_still_count_after_the_cache_was_deleted() {
    let sandbox = started("true");
    let queued = enqueue_once(&sandbox, "x", "queued");
    let done = sandbox.json(["enqueue", "ada", "x", "--dedupe-key", "done", "--priority", "next"]);
    step(&sandbox);
    fs::remove_dir_all(sandbox.agent("ada").join("cache")).unwrap();
    for (first, key, status) in [(done, "done", "processed"), (queued, "queued", "queued")] {
        let expected = json!({ "message_id": first["message_id"], "status": status, "duplicate": true });
        assert_includes(&enqueue_once(&sandbox, "x", key), expected);
    }
}

#[test]
fn a_checkout_of_an_older_state_has_only_the_keys_of_its_records() {
    let sandbox = started_in_git();
    let lost = enqueue_once(&sandbox, "x", "k");
    step(&sandbox);
    git(&sandbox, &["stash", "--quiet", "--include-untracked"]);
    let again = enqueue_once(&sandbox, "x", "k");
    assert_eq!(again["duplicate"], false, "the message of the key is not in these records");
    assert_ne!(again["message_id"], lost["message_id"]);
}

/// Returns a sandbox with an agent in git, and the path of a clone.
fn with_clone() -> (Sandbox, String) {
    let sandbox = started_in_git();
    let clone = sandbox.root().join("clone").to_str().unwrap().to_owned();
    git(&sandbox, &["clone", "--quiet", ".", &clone]);
    (sandbox, clone)
}

/// Commits everything in the project and in its clone, and merges the clone into the project.
fn merge(sandbox: &Sandbox, clone: &str) {
    commit_all(sandbox, "here");
    git_in(sandbox, Path::new(clone), &["add", "--all"]);
    git_in(sandbox, Path::new(clone), &["commit", "--quiet", "-m", "there"]);
    git(sandbox, &["pull", "--quiet", "--no-rebase", "--no-edit", clone, "main"]);
}

#[test]
fn of_two_messages_with_one_key_from_two_clones_one_is_dropped() {
    let (sandbox, clone) = with_clone();
    let first = enqueue_once(&sandbox, "here", "k");
    let second = sandbox.json(["-C", &clone, "enqueue", "ada", "there", "--dedupe-key", "k"]);
    assert_eq!(second["duplicate"], false);
    merge(&sandbox, &clone);
    fs::remove_dir_all(sandbox.agent("ada").join("cache")).unwrap();
    assert_eq!(inbox(&sandbox).len(), 2);
    assert_eq!(decision(&step(&sandbox)), TURN_COMPLETED);
    let foreseen = decision(&sandbox.json(["tick", "ada", "--dry-run"]));
    assert_eq!((foreseen.as_str(), decision(&step(&sandbox)).as_str()), (SLEEP, SLEEP));
    let kept = message(&sandbox, first["message_id"].as_str().unwrap());
    let other = message(&sandbox, second["message_id"].as_str().unwrap());
    assert_eq!(kept["status"], "processed");
    assert_includes(&other, json!({ "status": "dropped", "settlement.reason": "duplicate" }));
}

#[test]
fn arrivals_and_policies_of_two_clones_merge_without_a_conflict() {
    let (sandbox, clone) = with_clone();
    say(&sandbox, "here");
    sandbox.run(["-C", &clone, "enqueue", "ada", "there"]);
    sandbox.run(["-C", &clone, "wake", "ada"]);
    edit_file(&Path::new(&clone).join(".dormouse/agents/ada/agent.toml"), |text| {
        format!("description = \"changed\"\n{text}")
    });
    merge(&sandbox, &clone);
    assert_eq!(queued(&sandbox), ["here", "there"]);
    assert_eq!(field(&sandbox, "description"), "changed");
    sandbox.run(["doctor"]);
}

#[test]
fn a_message_past_its_ttl_is_dropped() {
    let sandbox = started("true");
    let short = enqueue(&sandbox, &["short", "--ttl", "1s"]);
    let long = enqueue(&sandbox, &["long", "--ttl", "1d"]);
    assert_eq!(sandbox.json(["tick", "ada", "--dry-run"])["message_id"], long.as_str());
    assert_eq!(step(&sandbox)["message_id"], long.as_str());
    let dropped = message(&sandbox, &short);
    assert_includes(&dropped, json!({ "status": "dropped", "settlement.reason": "ttl_expired" }));
    let events = sandbox.json_lines(["events", "ada", "--kind", "message_settled"]);
    assert_eq!(
        events[0]["data"],
        json!({ "message_id": short, "kind": "operator_prompt", "status": "dropped", "reason": "ttl_expired" })
    );
    assert_eq!(field(&sandbox, "counters.messages_dropped"), "1");
}

#[test]
fn many_expired_messages_are_dropped_in_one_step() {
    let sandbox = started("true");
    let lines: String = (0..200).map(|n| format!("{{\"text\":\"{n}\",\"ttl\":\"1s\"}}\n")).collect();
    enqueue_batch(&sandbox, &lines).output();
    let fresh = say(&sandbox, "fresh");
    sandbox.pass(5);
    assert_eq!(step(&sandbox)["message_id"], fresh.as_str());
    assert_eq!(field(&sandbox, "counters.messages_dropped"), "200");
    assert_eq!(field(&sandbox, "queue.pending"), "0");
}

#[test]
fn while_stopped_messages_are_admitted_and_kept() {
    let sandbox = started("true");
    sandbox.run(["stop", "ada"]);
    let warning = "dormouse: ada is stopped: it takes this up after `dormouse start ada`\n";
    for (flags, expected) in [("", warning), ("--dedupe-key k", warning), ("--dedupe-key k -q", "")] {
        let ran = sandbox.cmd([vec!["enqueue", "ada", "x"], words(flags)].concat()).output();
        assert_eq!(ran.stderr, expected, "{flags}");
    }
    assert_eq!(decision(&step(&sandbox)), "stop (stopped)");
    assert_eq!(field(&sandbox, "queue.pending"), "2");
    assert_eq!(field(&sandbox, "status"), "stopped");
}

#[test]
fn a_control_message_is_reduced_and_the_next_turn_finds_it() {
    let sandbox = started("cp \"$DORMOUSE_CONTEXT\" context");
    let control = enqueue(&sandbox, &["mind the gap", "--kind", "control"]);
    let reduced = step(&sandbox);
    assert_eq!(decision(&reduced), "reduce_message_only (control)");
    assert_includes(&reduced, json!({ "model_reentry": false, "message_id": control }));
    assert_eq!(message(&sandbox, &control)["status"], "processed");
    let dropped = say(&sandbox, "never mind");
    // A dropped message does not count as processed without a turn, even with the reason `reduced`.
    sandbox.run(["queue", "drop", &dropped, "--reason", "reduced"]);
    step_on(&sandbox, "go");
    let context = || -> Value { json_in(sandbox.project().join("context")) };
    assert_eq!(context()["reduced"]["count"], 1);
    assert_eq!(body(&context()["reduced"]["messages"][0]), "mind the gap");
    step_on(&sandbox, "again");
    assert_eq!(context()["reduced"], json!({ "count": 0, "messages": [] }), "one turn finds each message");
}

#[test]
fn the_context_has_the_newest_fifty_reduced_messages_and_the_number_of_all() {
    let sandbox = started("cp \"$DORMOUSE_CONTEXT\" context");
    let lines: String = (0..60).map(|n| format!("{{\"text\":\"{n}\",\"kind\":\"control\"}}\n")).collect();
    enqueue_batch(&sandbox, &lines).output();
    say(&sandbox, "go");
    decisions(&sandbox);
    let context: Value = json_in(sandbox.project().join("context"));
    assert_eq!(context["reduced"]["count"], 60);
    let told: Vec<&str> = context["reduced"]["messages"].as_array().unwrap().iter().map(body).collect();
    let expected: Vec<String> = (10..60).map(|n| n.to_string()).collect();
    assert_eq!(told, expected);
}

#[test]
fn a_blank_event_from_outside_runs_no_turn() {
    let sandbox = started("true");
    for (args, expected) in [
        (&["--origin", "webhook", "  "][..], "reduce_message_only (webhook_event)"),
        (&["--origin", "channel", ""], "reduce_message_only (channel_event)"),
        (&["--origin", "webhook", "--body-json", "{}"], "start_model_turn (webhook_event) completed"),
        (&["--origin", "callback", "x"], "start_model_turn (callback_event) completed"),
        (&[""], TURN_COMPLETED),
    ] {
        sandbox.run(["enqueue", "ada", "--allow-empty"].iter().chain(args).copied());
        assert_eq!(decision(&step(&sandbox)), expected, "{args:?}");
    }
}

#[test]
fn a_wake_hint_without_content_runs_no_turn() {
    let sandbox = started("true");
    decisions(&sandbox);
    assert_eq!(field(&sandbox, "status"), "asleep");
    let hint = sandbox.json(["wake", "ada", "--source", "cron"]);
    let id = hint["hint_id"].as_str().unwrap();
    let why = "the hint ends no wait, and no work is runnable; the next turn is told of it";
    assert_eq!(hint, json!({ "agent": "ada", "hint_id": id, "runs": "nothing", "why": why }));
    let emitted = step(&sandbox);
    assert_eq!(decision(&emitted), "emit_system_tick (wake_hint)");
    assert_eq!(emitted["status"], "awake_idle");
    let reduced = step(&sandbox);
    assert_eq!(decision(&reduced), "reduce_message_only (system_tick)");
    assert_includes(&reduced, json!({ "liveness_only": true, "continuation.class": "liveness_only" }));
    assert_eq!(decision(&step(&sandbox)), SLEEP);
}

#[test]
fn a_wake_hint_that_matches_a_wait_runs_a_turn_with_its_reason() {
    let sandbox = started("cp \"$DORMOUSE_CONTEXT\" context");
    sandbox.run(["wait", "-a", "ada", "--on", "external", "--reason", "r", "--resource", "job:7"]);
    let hint = sandbox.run(["wake", "ada", "the build is red", "--source", "ci", "--resource", "job:7"]);
    let expected = ["emit_system_tick (wake_hint)", "start_model_turn (system_tick) completed", SLEEP];
    assert_eq!(decisions(&sandbox), expected);
    let context: Value = json_in(sandbox.project().join("context"));
    assert_includes(
        &context["message"],
        json!({
            "body.text": "", "body_is": "evidence", "authority_class": "integration_signal",
            "hint.source": "ci", "hint.reason": "the build is red",
            "origin": { "kind": "system", "id": "ci" }, "resource": "job:7", "causation_id": hint.trim_end(),
            "idempotency_key": format!("wake_hint:resource:job:7:{}", hint.trim_end()),
        }),
    );
    let admitted = sandbox.json_lines(["events", "ada", "--kind", "message_admitted"]);
    assert_includes(&admitted[0]["data"], json!({ "hint.reason": "the build is red", "resource": "job:7" }));
}

#[test]
fn pending_hints_of_one_scope_are_merged_and_counted() {
    let sandbox = started("true");
    for flags in ["cron", "cron --reason second", "cron look", "mail", "cron --resource r"] {
        sandbox.run([vec!["wake", "ada", "--source"], words(flags)].concat());
    }
    assert_eq!(inbox(&sandbox).len(), 5);
    let all = decisions(&sandbox);
    let ticks = all.iter().filter(|line| line.starts_with("emit_system_tick")).count();
    assert_eq!(ticks, 3, "three scopes: {all:?}");
    let events = sandbox.json_lines(["events", "ada", "--kind", "wake_hint_coalesced"]);
    let counts: Vec<&Value> = events.iter().map(|event| &event["data"]["count"]).collect();
    assert_eq!(counts, [2, 3]);
    assert_eq!(field(&sandbox, "counters.turns"), "0", "none of them ends a wait");
    let admitted = sandbox.json_lines(["events", "ada", "--kind", "message_admitted"]);
    assert_eq!(admitted[0]["data"]["hint"]["reason"], "second; look");
}

#[test]
fn a_queued_message_precedes_a_hint() {
    let sandbox = started("true");
    sandbox.run(["wake", "ada"]);
    say(&sandbox, "first");
    assert_eq!(
        decisions(&sandbox),
        [TURN_COMPLETED, "emit_system_tick (wake_hint)", "reduce_message_only (system_tick)", SLEEP]
    );
}

#[test]
fn a_pending_hint_and_hints_while_stopped_are_recorded_as_ignored() {
    let sandbox = started("true");
    let pending = sandbox.run(["wake", "ada"]).trim_end().to_owned();
    sandbox.run(["stop", "ada"]);
    let expected = "dormouse: ada: no turn will run: it is stopped, and ignores the hint\n";
    sandbox.cmd(["wake", "ada"]).stdout("msg_#1\n").complains(expected);
    assert_eq!(decision(&step(&sandbox)), "stop (stopped)");
    sandbox.run(["start", "ada"]);
    assert_eq!(decision(&step(&sandbox)), SLEEP);
    let ignored = sandbox.json_lines(["events", "ada", "--kind", "wake_hint_ignored"]);
    assert_eq!(texts(&ignored, "data.hint_id"), [pending, sandbox.id("msg_#1")]);
    assert_eq!(ignored[1]["data"]["reason"], "stopped");
}

#[test]
fn an_invalid_file_is_moved_to_rejected_with_the_reason() {
    let sandbox = started("true");
    let inbox = sandbox.agent("ada").join("inbox");
    for (name, content) in [
        ("a.json", "{\"txt\": 1}"),
        ("b", "plain"),
        ("c.json", "{\"text\":\"x\",\"kind\":\"task_result\"}"),
        ("d.json", "{\"text\":\"x\",\"origin\":\"webhook\",\"priority\":\"interject\"}"),
    ] {
        fs::write(inbox.join(name), content).unwrap();
    }
    symlink("/etc/passwd", inbox.join("e.json")).unwrap();
    fs::write(inbox.join(".hidden"), "left alone").unwrap();
    sandbox
        .cmd(["tick", "ada"])
        .stdout("ada  sleep (nothing to do)\n")
        .stderr(
            "dormouse: ada: message rejected a.json: not a message: unknown field `txt`, expected one of `text`, `body`, `kind`, `origin`, `priority`, `dedupe_key`, `ttl`, `expires_at`, `resource`, `work_item_id`, `wait_id`, `correlation_id`, `allow_empty` at line 1 column 6 (it is in inbox/rejected/)\n\
             dormouse: ada: message rejected b: not a message: expected value at line 1 column 1 (it is in inbox/rejected/)\n\
             dormouse: ada: message rejected c.json: `task` is the runtime's own origin (it is in inbox/rejected/)\n\
             dormouse: ada: message rejected d.json: a dropped file can't speak as `webhook`: inbox.drops_as = \"channel:file\" (it is in inbox/rejected/)\n\
             dormouse: ada: message rejected e.json: a symbolic link: dormouse follows none inside a state directory (it is in inbox/rejected/)\n",
        )
        .status(7)
        .check();
    assert_eq!(names(&inbox), [".hidden", "rejected"]);
    assert_eq!(
        names(&inbox.join("rejected")),
        words(
            "a.json a.json.reason b b.reason c.json c.json.reason d.json d.json.reason e.json \
             e.json.reason",
        )
    );
    assert_eq!(fs::read_to_string(inbox.join("rejected/a.json")).unwrap(), "{\"txt\": 1}");
    assert_eq!(
        fs::read_to_string(inbox.join("rejected/b.reason")).unwrap(),
        "not a message: expected value at line 1 column 1\n"
    );
    assert_eq!(sandbox.json_lines(["events", "ada", "--kind", "message_rejected"]).len(), 5);
    assert_eq!(decision(&step(&sandbox)), "stay_idle (already_asleep)");
}

#[test]
fn a_message_of_a_turn_has_the_agent_as_origin_and_the_run_as_source() {
    let sandbox = Sandbox::new();
    let enqueue = own_name();
    add(&sandbox, "ada", &format!("{enqueue} enqueue bob 'please look' --json > answer"));
    add(&sandbox, "bob", "true");
    let cause = say(&sandbox, "go");
    let stepped = step(&sandbox);
    assert_eq!(stepped["terminal"], "completed", "{stepped}");
    let answer = json_in(sandbox.project().join("answer"));
    let expected = json!({
        "agent": "bob", "kind": "internal_followup", "origin": { "kind": "system", "id": "ada" },
        "authority_class": "runtime_instruction", "delivery_surface": "runtime_system",
        "admission_context": "runtime_owned",
        "source_refs": [format!("ada/{}", stepped["run_id"].as_str().unwrap())], "causation_id": cause,
        "hops": 1,
    });
    assert_includes(&message(&sandbox, answer["message_id"].as_str().unwrap()), expected);
    sandbox.cmd(["tick", "bob"]).prints("bob  start_model_turn (a message from an agent) → completed\n");
}

#[test]
fn a_turn_can_not_send_messages_of_another_origin() {
    let own = own_name();
    let sandbox = started(&format!(
        "for flags in '--origin operator' '--kind control' '--kind operator_prompt' '--origin timer' '--priority interject'; do \
         {own} enqueue ada x $flags --json; echo $?; done > answers 2>/dev/null"
    ));
    step_on(&sandbox, "go");
    let answers = fs::read_to_string(sandbox.project().join("answers")).unwrap();
    let (failures, statuses): (Vec<&str>, Vec<&str>) =
        answers.lines().partition(|line| line.starts_with('{'));
    let kinds = words(
        "origin_not_allowed kind_not_allowed origin_not_allowed origin_not_allowed priority_not_allowed",
    );
    assert_eq!(texts(&objects(&format!("{}\n", failures.join("\n"))), "error.kind"), kinds);
    assert_eq!(statuses, ["4"; 5]);
    assert_eq!(field(&sandbox, "queue.pending"), "0");
}

#[test]
fn chains_of_messages_between_turns_end_at_the_hop_limit() {
    let sandbox = Sandbox::new();
    let own = own_name();
    add(&sandbox, "ada", &format!("{own} enqueue bob ping 2>>refused; true"));
    add(&sandbox, "bob", &format!("{own} enqueue ada pong 2>>refused; true"));
    for name in ["ada", "bob"] {
        extend_policy(&sandbox, name, "\n[limits]\nmax_hops = 3\n");
    }
    say(&sandbox, "start");
    for _ in 0..6 {
        sandbox.run(["tick", "--all"]);
    }
    assert_eq!(sandbox.json(["get", "ada"])["counters"]["turns"], 2);
    assert_eq!(sandbox.json(["get", "bob"])["counters"]["turns"], 2);
    let expected = "dormouse: this would be hop 4 of a chain of messages between turns; limits.max_hops = 3\n\
                    hint: the chain started with one message from outside: let the operator look at it\n";
    assert_eq!(fs::read_to_string(sandbox.project().join("refused")).unwrap(), expected);
}

#[test]
fn a_leftover_process_of_an_ended_turn_can_not_send_messages_for_the_turn() {
    let sandbox = started("echo $DORMOUSE_RUN > run");
    step_on(&sandbox, "go");
    let run = fs::read_to_string(sandbox.project().join("run")).unwrap();
    sandbox
        .cmd(["enqueue", "ada", "late"])
        .env("DORMOUSE_AGENT", "ada")
        .env("DORMOUSE_RUN", run.trim_end())
        .status(4)
        .complains(
            "dormouse: run_#1 is no longer the current run of `ada`\n\
             hint: its turn is over: unset DORMOUSE_RUN to call this from outside\n",
        );
}

#[test]
fn queue_list_has_a_limit_and_prints_the_number_of_all_messages() {
    let sandbox = started("true");
    let lines: String = (0..30).map(|n| format!("{{\"text\":\"{n}\"}}\n")).collect();
    enqueue_batch(&sandbox, &lines).output();
    let ran = sandbox.cmd(["queue", "list", "-a", "ada", "--limit", "2"]).output();
    assert_eq!((ran.code(), ran.stdout.lines().count()), (0, 2));
    assert_eq!(ran.stderr, "dormouse: 2 of 30; --limit 0 lists all\n");
    assert_eq!(queued(&sandbox).len(), 30);
    let ran = sandbox.cmd(["queue", "list", "--json", "--limit", "1"]).env("DORMOUSE_AGENT", "ada").output();
    assert_eq!(body(&objects(&ran.stdout)[0]), "0");
}

#[test]
fn a_message_is_found_by_any_unambiguous_part_of_its_id() {
    let sandbox = started("true");
    let (one, two) = (say(&sandbox, "one"), say(&sandbox, "two"));
    let tail = &one[one.len() - 12..];
    assert_eq!(body(&message(&sandbox, tail)), "one");
    assert_eq!(body(&message(&sandbox, &one)), "one");
    assert_eq!(body(&sandbox.json(["queue", "show", &one, "-a", "ada"])), "one");
    step(&sandbox);
    assert_eq!(body(&message(&sandbox, tail)), "one", "also in the archive");
    for (part, status, expected) in [
        ("msg_019b", 4, "`msg_019b` could be any of 2: msg_#1, msg_#2\nhint: give more of the id\n"),
        ("abc", 2, "`abc` is too short for an id: give at least four digits of it, or `latest`\n"),
        ("nothing", 3, "no message `nothing`\nhint: `dormouse queue list` shows the ids\n"),
    ] {
        sandbox.cmd(["queue", "show", part]).status(status).complains(&format!("dormouse: {expected}"));
    }
    assert_eq!((sandbox.id("msg_#1"), sandbox.id("msg_#2")), (one, two));
    let ran = sandbox.cmd(["queue", "show", "nothing", "--json"]).output();
    assert_eq!(
        failure(&ran),
        json!({ "kind": "no_record", "message": "no message `nothing`", "hint": "`dormouse queue list` shows the ids", "exit_status": 3 })
    );
}

#[test]
fn queue_show_prints_the_attempts_and_the_end_of_a_message() {
    let sandbox = started_with("echo broken >&2; exit 1", "\n[recovery]\nmax_attempts = 2\n");
    let id = say(&sandbox, "the text");
    let expected = "msg_#1  normal  queued  a message from you  the text\ncreated 2026-01-02T03:04:08.000Z (1s ago)\n\nthe text\n";
    sandbox.cmd(["queue", "show", &id]).prints(expected);
    step(&sandbox);
    sandbox.run(["recover", "ada"]);
    step(&sandbox);
    sandbox.cmd(["queue", "show", &id]).prints(
        "msg_#1  normal  aborted, attempt 2  a message from you  the text\n\
         created 2026-01-02T03:04:08.000Z (5s ago)\n\
         attempt 1 failed: exit status 1: broken\n\
         attempt 2 failed: exit status 1: broken\n\
         aborted: gave up after 2 attempts: exit status 1: broken\n\nthe text\n",
    );
}

/// Returns a sandbox whose agent has one dead letter, and the id of that message.
fn with_dead_letter() -> (Sandbox, String) {
    let sandbox =
        started_with("test -e good || { echo broken >&2; exit 1; }", "\n[recovery]\nmax_attempts = 1\n");
    let id = say(&sandbox, "poison");
    assert_eq!(decision(&step(&sandbox)), TURN_FAILED);
    (sandbox, id)
}

#[test]
fn a_dead_letter_is_listed_with_its_reason() {
    let (sandbox, id) = with_dead_letter();
    let expected = "msg_#1  normal  aborted  a message from you  poison\n    ! gave up after 1 attempt: exit status 1: broken\n";
    sandbox.cmd(["queue", "dead", "-a", "ada"]).prints(expected);
    let dead = sandbox.json(["queue", "dead", "-a", "ada"]);
    assert_includes(&dead, json!({ "id": id, "status": "aborted" }));
    assert_eq!(dead["failures"][0]["reason"], "exit status 1: broken");
    assert_eq!(field(&sandbox, "queue.dead"), "1");
}

#[test]
fn a_requeued_dead_letter_runs_again_from_its_first_attempt() {
    let (sandbox, id) = with_dead_letter();
    fs::write(sandbox.project().join("good"), "").unwrap();
    let expected = json!({ "agent": "ada", "message_id": id, "action": "requeued" });
    assert_eq!(sandbox.json(["queue", "requeue", &id]), expected);
    sandbox.cmd(["queue", "dead", "-a", "ada"]).check();
    assert_eq!(field(&sandbox, "queue.dead"), "0");
    sandbox.cmd(["queue", "requeue", &id]).status(4).complains("dormouse: msg_#1 is still in the queue\n");
    assert_eq!(decisions(&sandbox), ["start_recovery (retry)", TURN_COMPLETED, SLEEP]);
    assert_eq!(field(&sandbox, "last_turn.attempt"), "1");
    sandbox.cmd(["queue", "requeue", &id]).status(4).complains(
        "dormouse: msg_#1 was processed: it does not run again\nhint: to run it again, enqueue it again\n",
    );
    sandbox.run(["doctor"]);
}

#[test]
fn a_dead_letter_that_is_dropped_keeps_the_operators_reason() {
    let (sandbox, id) = with_dead_letter();
    sandbox.cmd(["queue", "drop", &id, "--reason", "not worth it"]).prints("dropped msg_#1\n");
    let dropped = message(&sandbox, &id);
    assert_includes(&dropped, json!({ "status": "dropped", "settlement.reason": "not worth it" }));
    assert_eq!(field(&sandbox, "queue.dead"), "0");
    let expected = "dormouse: msg_#1 is dropped: there is nothing to drop\n";
    sandbox.cmd(["queue", "drop", &id]).status(4).complains(expected);
    sandbox.run(["doctor"]);
}

#[test]
fn a_queued_message_can_be_dropped_and_requeued() {
    let sandbox = started("true");
    let id = say(&sandbox, "x");
    sandbox.run(["queue", "drop", &id, "--reason", "wrong agent"]);
    assert_eq!(field(&sandbox, "queue.pending"), "0");
    assert_eq!(message(&sandbox, &id)["settlement"]["reason"], "wrong agent");
    sandbox.run(["queue", "requeue", &id]);
    assert_eq!(step(&sandbox)["message_id"], id.as_str());
}

#[test]
fn the_message_of_a_running_turn_is_not_dropped() {
    let sandbox = started(WAIT_FOR_GO);
    let id = say(&sandbox, "x");
    let tick = tick_until_running(&sandbox);
    assert_eq!(message(&sandbox, &id)["status"], "dequeued");
    let expected = "dormouse: msg_#1 is being worked on\nhint: `dormouse stop` ends its turn\n";
    sandbox.cmd(["queue", "drop", &id]).status(4).complains(expected);
    end_turn(&sandbox, tick);
}

#[test]
fn a_deferred_message_can_be_dropped_and_the_agent_takes_the_next() {
    let sandbox = started("cat | grep -q later && exit 75 || true");
    let id = say(&sandbox, "later");
    step(&sandbox);
    say(&sandbox, "now");
    sandbox.cmd(["queue", "drop", &id]).prints("dropped msg_#1\n");
    assert_eq!(message(&sandbox, &id)["status"], "dropped");
    let done: Vec<String> = (0..2).map(|_| decision(&step(&sandbox))).collect();
    assert_eq!(done, ["start_recovery (after_stop)", TURN_COMPLETED]);
}

#[test]
fn a_copy_without_empty_directories_works_like_the_original() {
    let sandbox = started("cat \"$DORMOUSE_CONTEXT\"");
    let id = say(&sandbox, "hello");
    let copy = sandbox.root().join("copy");
    fs::create_dir_all(copy.join(".dormouse")).unwrap();
    copy_tree(&sandbox.store(), &copy.join(".dormouse"));
    for empty in words("tmp cache work waits timers tasks runs ledger archive hooks") {
        let _ = fs::remove_dir_all(copy.join(".dormouse/agents/ada").join(empty));
    }
    let there = copy.to_str().unwrap();
    let ran = sandbox.cmd(["-C", there, "tick", "ada", "--json"]).output();
    assert_includes(&objects(&ran.stdout)[0], json!({ "message_id": id, "terminal": "completed" }));
    sandbox.run(["-C", there, "doctor"]);
    assert_eq!(only_file(&sandbox, "inbox").file_name().unwrap().to_str().unwrap(), format!("2-{id}.json"));
}
