//! Tests that text from outside can neither control a terminal nor mislead a reader. The tests put
//! a hostile text into each field that a person can set and each file that a directory can have,
//! then run each command that shows such texts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox};
use crate::output::on_terminal;
use crate::setup::{
    Beside, add, extend_policy, failure, json_in, lives, objects, only_file, started, step, words,
};

/// Text with sequences that change colour, title and cursor of a terminal, with characters that
/// change the direction of writing, and with invisible characters of every kind.
const EVIL: &str = "evil\x1b[31mred\x1b]0;owned\x07\x08\r\x0b\x7f\u{85}\u{9b}2J\
    \u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\
    \u{200b}\u{200c}\u{200d}\u{2060}\u{2062}\u{feff}\u{ad}\u{34f}\u{115f}\u{180e}\u{3164}\u{fff9}\u{e0041}\u{2028}\u{2029}end";

/// Sequences that the program itself writes for colours: no others may reach a terminal.
const PAINT: [&str; 5] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m"];

/// True for characters that the contract forbids to show. Does not use the table of the program.
fn is_bad(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || (!c.is_ascii() && EVIL.contains(c))
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

#[track_caller]
fn assert_clean(shown: &str, of: &str) {
    let bad: BTreeSet<char> = shown.chars().filter(|c| is_bad(*c)).collect();
    assert!(bad.is_empty(), "{of}: {bad:?} in {shown:?}");
    // These commands print a text of several lines as it is, so a line may begin with `forged`.
    let is_whole = ["[\"queue\", \"show\"", "[\"work\", \"show\"", "[\"work\", \"plan\"", "last_turn.reason"];
    if is_whole.iter().any(|words| of.contains(words)) {
        return;
    }
    let forged = shown.lines().any(|line| line.starts_with("forged"));
    assert!(!forged, "{of}: outside text begins a line: {shown:?}");
}

#[track_caller]
fn assert_painted_clean(shown: &str, of: &str) {
    assert!(!shown.contains("\x1b[31mred"), "{of}: outside text has a colour of its own: {shown:?}");
    let plain = PAINT.iter().fold(shown.to_owned(), |text, sequence| text.replace(sequence, ""));
    assert_clean(&plain, of);
}

/// Runs a command into pipes, into pipes with colours, and on a terminal, and checks each output.
#[track_caller]
fn look(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let of = format!("{args:?}");
    let ran = sandbox.cmd(args.iter().copied()).output();
    assert_clean(&ran.stdout, &of);
    assert_clean(&ran.stderr, &of);
    let global = args.iter().position(|word| *word == "--").unwrap_or(args.len());
    let painted: Vec<&str> =
        args[..global].iter().chain(["--color", "always"].iter()).chain(&args[global..]).copied().collect();
    let painted = sandbox.cmd(painted).output();
    assert_painted_clean(&painted.stdout, &of);
    assert_painted_clean(&painted.stderr, &of);
    assert_painted_clean(&on_terminal(sandbox, args, &[]), &of);
    ran
}

/// Returns a hostile text of two lines, of which the second resembles output of the program.
fn two_lines() -> String {
    format!("{EVIL}\nforged {EVIL}")
}

/// State directory with the hostile text in all fields of its records.
struct Planted {
    sandbox: Sandbox,
    /// Id of a processed message. The following fields are ids of other records.
    message: String,
    dead: String,
    run: String,
    work: String,
    done: String,
    task: String,
}

fn planted() -> Planted {
    let sandbox = Sandbox::new();
    let evil = two_lines();
    let name = evil.as_str();
    let settings = sandbox.store().join("dormouse.toml");
    let text = fs::read_to_string(&settings).unwrap();
    let key = json!(EVIL).to_string();
    let key = key.replace('\u{7f}', "\\u007F").replace('\u{85}', "\\u0085").replace('\u{9b}', "\\u009B");
    fs::write(&settings, format!("{text}\n[profiles.{key}]\ndescription = {key}\n")).unwrap();
    fs::write(sandbox.project().join("evil"), name).unwrap();
    let turn = "cat evil; cat evil >&2; \
        if test -e outcome; then cat outcome >$DORMOUSE_OUTCOME; fi; test ! -e fail";
    sandbox.run(["create", "ada", "--description", name, "--profile", EVIL, "--shell", turn]);
    sandbox.run(["start", "ada"]);
    let run = |args: &[&str]| sandbox.cmd(args.iter().copied()).output().stdout.trim_end().to_owned();

    // The hostile name is put into a completed turn, a dead letter, and a message of every origin.
    let outcome = json!({ "brief": name, "usage": { "model": name } });
    fs::write(sandbox.project().join("outcome"), outcome.to_string()).unwrap();
    let body = json!({ name: name }).to_string();
    let origin = format!("webhook:{EVIL}");
    let flags = ["--resource", name, "--correlation-id", name, "--dedupe-key", name];
    let message = run(&[&["enqueue", "ada", "--body-json", &body, "--origin", &origin], &flags[..]].concat());
    assert!(message.starts_with("msg_"), "{message}");
    let first = step(&sandbox)["run_id"].as_str().unwrap().to_owned();
    fs::remove_file(sandbox.project().join("outcome")).unwrap();
    extend_policy(&sandbox, "ada", "\n[recovery]\nmax_attempts = 1\n");
    fs::write(sandbox.project().join("fail"), "").unwrap();
    let dead = run(&["enqueue", "ada", name]);
    run(&["tick", "ada"]);
    for flags in [&["--ttl", "1s"][..], &["--origin", &format!("channel:{EVIL}")], &["--in", "2h"]] {
        run(&[&["enqueue", "ada", name], flags].concat());
    }
    let dropped = run(&["enqueue", "ada", name]);
    run(&["queue", "drop", &dropped, "--reason", name]);
    run(&["wake", "ada", name, "--source", name, "--resource", name, "--reason", name]);

    // The hostile name is put into a record of every kind.
    let work = run(&["work", "add", name, "-a", "ada", "--todo", name, "--plan", name, "--blocked-by", name]);
    let done = run(&["work", "add", name, "-a", "ada", "--pick"]);
    run(&["work", "complete", &done, "--result", name]);
    let wait = ["wait", "-a", "ada", "--whole-agent", "--on", "external", "--reason", name];
    run(&[&wait[..], &["--resource", name, "--source", name, "--no-fallback", name]].concat());
    run(&["timer", "add", "-a", "ada", "--in", "3h", name]);
    run(&["trigger", "create", "-a", "ada", "--resource", name]);
    let task = run(&["task", "start", "-a", "ada", "--summary", name, "--", "cat", "evil", name]);
    run(&["await", "ada", "--status", "asleep", "--timeout", "0s"]);
    run(&["task", "start", "-a", "ada", "--", name]);

    // The hostile name is put on malformed inbox files, an empty agent directory, and a broken
    // hook.
    let inbox = sandbox.agent("ada").join("inbox");
    let drop = |file: &str, text: &str| fs::write(inbox.join(file), text).unwrap();
    drop(&short("drop"), name);
    drop("kind.json", &json!({ "text": "x", "kind": name }).to_string());
    drop("field.json", &json!({ "text": "x", name: 1 }).to_string());
    drop("item.json", &json!({ "text": "x", "work_item_id": name }).to_string());
    fs::create_dir(sandbox.store().join("agents").join(short("agent"))).unwrap();
    fs::write(sandbox.store().join("hooks").join(short("hook")), "").unwrap();
    run(&["tick", "ada"]);
    run(&["tick", "ada"]);
    Planted { message, dead, run: first, work, done, task, sandbox }
}

/// Returns a short hostile file name, since names are limited to 255 bytes.
fn short(what: &str) -> String {
    format!("{what}\x1b[31mred\r\u{9b}\u{202e}\u{200b}\u{feff}\nforged")
}

/// Commands that show records. Words in capital letters are placeholders.
const SHOWING: &str = "\
    list; get ada; get ada last_turn.reason; get ada last_turn; get ada identity; \
    get ada advisories; explain ada; state ada; state ada --hooks; queue list -a ada; \
    queue show MESSAGE; queue show DEAD; queue dead -a ada; queue rejected -a ada; \
    run list -a ada; run show RUN; briefs ada; events ada; work list -a ada; \
    work list -a ada --state completed; work show WORK; work show DONE; work plan WORK; \
    wait list -a ada; timer list -a ada; task list -a ada; task list -a ada --ended; \
    task status TASK; next-wake ada; await ada --message DEAD; \
    usage; usage --by model; usage --since EVIL; logs; logs ada --since 2020-01-01; \
    logs --since EVIL; watch EVIL; run show latest; metrics; metrics -o EVIL; report -o -; \
    report -o EVIL; report EVIL; report --since EVIL; doctor; gc --dry-run; gc; \
    trigger list -a ada; tick ada --dry-run; tick --all -v";

/// Commands with a hostile argument, which their output repeats.
const QUOTING: &str = "\
    get EVIL; get ada EVIL; queue show EVIL; run show EVIL; list --posture EVIL; \
    events ada --kind EVIL; events ada --since EVIL; enqueue ada x --origin EVIL; \
    enqueue ada x --kind EVIL; enqueue ada x --ttl EVIL; enqueue ada x --at EVIL; \
    enqueue ada x --work-item EVIL; enqueue ada --body-json EVIL; \
    timer add -a ada --cron EVIL x; timer add -a ada --cron EVERY_MINUTE --tz EVIL x; \
    wait -a ada --on task --resource EVIL --reason x; work add x -a EVIL; \
    create EVIL -- true; create bob --profile EVIL -- true; create bob --from EVIL; \
    create bob --template EVIL; clone ada EVIL; clone ada bob --secret-file EVIL; \
    edit EVIL; check-outcome EVIL; task start -a ada --delegate EVIL x; \
    trigger create -a ada --source EVIL; trigger create -a ada --wait EVIL; \
    trigger show EVIL; trigger deliver EVIL x --secret-file EVIL; export EVIL; \
    rename EVIL bob; rename ada EVIL; rm EVIL; rm ada -o EVIL --dry-run --force; \
    import EVIL; import --as EVIL; sync EVIL; tick ada --push EVIL; -C EVIL service cron; \
    schema EVIL; man EVIL; completions EVIL; merge-driver EVIL EVIL EVIL EVIL; \
    -C EVIL list; init -q nowhere EVIL; --lock-timeout EVIL list; EVIL; list EVIL; \
    --nonsense EVIL; help EVIL";

#[test]
fn no_command_prints_control_or_invisible_characters() {
    let planted = planted();
    let Planted { message, dead, run, work, done, task, sandbox } = &planted;
    let evil = two_lines();
    let words_of = |line: &'static str| -> Vec<&str> {
        let word = |word: &'static str| match word {
            "MESSAGE" => message,
            "DEAD" => dead,
            "RUN" => run,
            "WORK" => work,
            "DONE" => done,
            "TASK" => task,
            "EVIL" => &evil,
            "EVERY_MINUTE" => "* * * * *",
            word => word,
        };
        line.split_whitespace().map(word).collect()
    };
    let commands: Vec<Vec<&str>> = SHOWING.split(';').chain(QUOTING.split(';')).map(words_of).collect();
    for args in &commands {
        look(sandbox, args);
    }
    for (name, value) in [("DORMOUSE_DIR", EVIL), ("DORMOUSE_NOW", EVIL), ("DORMOUSE_AGENT", EVIL)] {
        let ran = sandbox.cmd(["queue", "list"]).env(name, value).output();
        assert_ne!(ran.code(), 0, "{name}: {ran}");
        assert_clean(&ran.stderr, name);
    }
    // The other commands print no text from outside.
    let shows_nothing = words(
        "ask ingress start stop recover fail preempt resume safe-point checkpoint yield non-preemptible \
         wake",
    );
    let mut known: BTreeSet<&str> = commands.iter().flatten().copied().collect();
    known.extend(shows_nothing);
    let help = sandbox.run(["--help"]);
    let listed =
        help.lines().skip_while(|line| !line.starts_with("Usage:")).take_while(|line| *line != "Options:");
    let names: Vec<&str> =
        listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert!(names.len() > 50, "{help}");
    for command in names {
        assert!(known.contains(command), "`{command}` shows something: give it its line here");
    }
}

#[test]
fn json_keeps_every_character_and_is_json() {
    let planted = planted();
    let Planted { message, dead, run, work, sandbox, .. } = &planted;
    let evil = two_lines();
    for args in [
        &["list"][..],
        &["get", "ada"],
        &["explain", "ada"],
        &["queue", "list", "-a", "ada"],
        &["queue", "dead", "-a", "ada"],
        &["queue", "show", dead],
        &["run", "show", run],
        &["events", "ada"],
        &["work", "show", work],
        &["get", &evil],
    ] {
        let ran = sandbox.cmd(["--json"].iter().chain(args).copied()).output();
        assert!(!objects(&ran.stdout).is_empty(), "{args:?}: {ran}");
        let control = ran.stdout.bytes().any(|byte| byte < 0x20 && byte != b'\n');
        assert!(!control, "{args:?}: JSON with a control character: {ran}");
        assert_clean(&ran.stderr, &format!("{args:?}"));
    }
    let show = |args: &[&str]| sandbox.json(args.iter().copied());
    assert_eq!(show(&["queue", "show", dead])["body"]["text"], json!(evil));
    assert_eq!(show(&["queue", "show", message])["body"]["value"][&evil], json!(evil));
    assert_eq!(show(&["run", "show", run])["brief"], json!(evil));
    assert_eq!(show(&["work", "plan", work])["plan"], json!(evil));
    // The text form of an object must be the JSON that `--json` prints.
    let text = sandbox.run(["get", "ada", "last_turn"]);
    assert_clean(&text, "get ada last_turn");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), show(&["get", "ada", "last_turn"]));
    let said = failure(&sandbox.cmd(["--json", "get", "ada", &evil]).output());
    assert!(said["message"].as_str().unwrap().contains(&evil), "{said}");
}

/// Damages each readable file of an agent in a separate case. Errors must escape what they quote.
#[test]
fn errors_quote_unreadable_text_without_invisible_characters() {
    let sandbox = started("true");
    sandbox.run(["enqueue", "ada", "x"]);
    sandbox.run(["tick", "ada"]);
    sandbox.run(["work", "add", "x", "-a", "ada"]);
    let evil = two_lines();
    let quoted = json!(evil).to_string();
    let work = only_file(&sandbox, "work");
    let ledger = only_file(&sandbox, "ledger");
    let with = |path: &PathBuf, field: &str| {
        let mut record = json_in(path);
        record[field] = json!(evil);
        record.to_string()
    };
    let state = sandbox.agent("ada").join("state.json");
    let identity = sandbox.agent("ada").join("identity.json");
    let policy = sandbox.agent("ada").join("agent.toml");
    let settings = sandbox.store().join("dormouse.toml");
    let cases: Vec<(&PathBuf, String)> = vec![
        (&state, evil.clone()),
        (&state, quoted.clone()),
        (&state, with(&state, "status")),
        (&state, with(&state, "schema")),
        (&state, with(&state, "agent")),
        (&state, with(&state, "revision")),
        (&identity, with(&identity, "name")),
        (&identity, with(&identity, "kind")),
        (&work, with(&work, "plan_status")),
        (&work, with(&work, "id")),
        (&ledger, format!("{quoted}\n{evil}\n")),
        (&policy, evil.clone()),
        (&policy, format!("{evil} = 1\n")),
        (&policy, format!("# {}\n\"{}\" = 1\n", "x", EVIL.replace(|c: char| c.is_control(), ""))),
        (&policy, "[turn]\ncommand = [\"true\"]\ntimeout = \"\u{202e}\u{200b}1h\"\n".to_owned()),
        (&policy, "profile = \"\u{202e}\u{200b}\"\n".to_owned()),
        (&settings, evil.clone()),
        (&settings, "format = \"\u{202e}\u{200b}\"\n".to_owned()),
        (&settings, "format = 1\n\"\u{202e}\u{200b}\" = 1\n".to_owned()),
    ];
    for (path, content) in cases {
        let before = fs::read(path).unwrap();
        fs::write(path, &content).unwrap();
        for args in [
            &["get", "ada"][..],
            &["list", "--json"],
            &["tick", "ada", "--dry-run"],
            &["events", "ada"],
            &["work", "list", "-a", "ada"],
            &["doctor"],
        ] {
            let ran = sandbox.cmd(args.iter().copied()).output();
            let of = format!("{} with {content:?}: {args:?}", path.display());
            assert_clean(&ran.stderr, &of);
            if !args.contains(&"--json") {
                assert_clean(&ran.stdout, &of);
            }
        }
        fs::write(path, before).unwrap();
    }
}

#[test]
fn hostile_names_of_directories_and_lock_holders_are_escaped() {
    let outer = Sandbox::empty();
    let home = outer.project().join(short("home"));
    let dir = home.to_str().unwrap();
    let of = "a directory of that name";
    look(&outer, &["init", dir]);
    outer.cmd(["-C", dir, "create", "ada", "--", "true"]).output();
    let agent = home.join(".dormouse/agents/ada");
    for args in [
        &["-C", dir, "get", "nobody"][..],
        &["-C", dir, "start", "ada"],
        &["-C", dir, "doctor"],
        &["-C", dir, "get", "ada", "current_run"],
    ] {
        look(&outer, args);
    }
    let lock = File::options().write(true).open(agent.join("lock")).unwrap();
    lock.lock().unwrap();
    for held in [two_lines(), json!({ "pid": 1, "host": two_lines(), "command": two_lines() }).to_string()] {
        fs::write(agent.join("lock"), held).unwrap();
        let ran = outer.cmd(["-C", dir, "stop", "ada", "--lock-timeout", "0"]).exits(5);
        assert_clean(&ran.stderr, of);
    }
    fs::write(agent.join("state.json"), "").unwrap();
    look(&outer, &["-C", dir, "get", "ada"]);
    look(&outer, &["-C", dir, "doctor"]);
}

#[test]
fn a_log_is_printed_unchanged_to_a_pipe_and_escaped_to_a_terminal() {
    let Planted { run, task, sandbox, .. } = planted();
    let said = [two_lines().as_bytes(), b"\xff\xfe\0"].concat();
    fs::write(sandbox.agent("ada").join("runs").join(&run).join("stdout.log"), &said).unwrap();
    fs::write(sandbox.agent("ada").join("tasks").join(&task).join("stdout.log"), &said).unwrap();
    for args in [&["run", "show", &run, "--stdout"][..], &["task", "output", &task]] {
        let piped = sandbox.cmd(args.iter().copied()).into_command().output().unwrap();
        assert_eq!(piped.stdout, said, "{args:?}");
        let shown = on_terminal(&sandbox, args, &[]);
        let bad: Vec<char> = shown.chars().filter(|c| is_bad(*c)).collect();
        assert!(bad.is_empty(), "{args:?}: {bad:?} in {shown:?}");
        let object = sandbox.json(args.iter().copied());
        assert_eq!(object["text"], json!(String::from_utf8_lossy(&said)));
    }
}

#[test]
fn ask_escapes_output_even_if_a_character_arrives_in_two_parts() {
    let sandbox = Sandbox::new();
    // The turn pauses inside of the bytes of U+202E and of an umlaut, to write them in pieces.
    let turn =
        r"printf 'a\342\200'; sleep 0.3; printf '\256b\303'; sleep 0.3; printf '\274c\033[31m\n'; cat evil";
    fs::write(sandbox.project().join("evil"), EVIL).unwrap();
    add(&sandbox, "ada", turn);
    let ran = sandbox.cmd(["ask", "ada", "hello"]).exits(0);
    assert!(ran.stderr.starts_with("a\\u{202e}büc\\u{1b}[31m\n"), "{ran}");
    assert_clean(&ran.stderr, "ask");
    assert_clean(&ran.stdout, "ask");
    // `ask` must also escape the output of a turn that another tick runs.
    add(&sandbox, "bob", &format!("{turn}; touch begun; while test ! -e go; do sleep 0.1; done"));
    let asked =
        Beside::start(sandbox.cmd(["ask", "bob", "hello"])).after_it_made(sandbox.project().join("begun"));
    let listens = sandbox.cmd(["ask", "bob", "again", "--timeout", "300ms"]).output();
    assert_clean(&listens.stderr, "ask beside another");
    let pid = asked.0.id();
    fs::write(sandbox.project().join("go"), "").unwrap();
    let ran = asked.end();
    assert!(!lives(pid));
    assert_clean(&ran.stderr, "ask that runs the turn");
}
