//! Tests `watch` on a pseudo-terminal: its screens, its keys, and the state of the terminal after
//! its end.

pub mod terminal;

use std::fs;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::Sandbox;
use crate::setup::{add, eventually, extend_policy, say, started, started_with, step_on, words};

use terminal::Terminal;

/// A screen of 80 columns and 24 rows shows the whole question, its options and the command for the
/// answer.
#[test]
fn a_question_is_shown_whole() {
    let question =
        "Which branch should I release: main, with the new importer, or the release branch of last Friday?";
    let turn = format!("dormouse wait --on operator --reason '{question}' --option main --option friday");
    let sandbox = started(&turn).with_real_clock();
    add(&sandbox, "bob", "true");
    say(&sandbox, "go");
    sandbox.cmd(["tick", "ada"]).output();
    let mut terminal = Terminal::watch(&sandbox, &[]);
    let is_whole = |text: &str| {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        words.contains(question)
            && words.contains("(main / friday)")
            && words.contains("dormouse enqueue ada --wait wait_")
            && words.contains(" TEXT")
    };
    terminal.becomes("the question", is_whole);
    terminal.press("\r");
    terminal.becomes("the question of one agent", |text| text.contains("attention") && is_whole(text));
    terminal.quits("q");
}

/// Policy without a second attempt.
const FAILS: &str = "\n[recovery]\nmax_attempts = 1\n";

/// Agent `ada` with a dead letter. Its turns fail until the file `good` exists.
fn with_dead_letter() -> Sandbox {
    let sandbox = started_with("test -e good", FAILS).with_real_clock();
    step_on(&sandbox, "x");
    sandbox
}

#[test]
fn watch_lists_agents_with_attention_first_and_follows_changes() {
    let sandbox = started("true").with_real_clock();
    add(&sandbox, "bob", "exit 1");
    extend_policy(&sandbox, "bob", FAILS);
    let mut terminal = Terminal::watch(&sandbox, &[]);
    let first = terminal.shows("bob");
    assert!(first.find("ada").unwrap() < first.find("bob").unwrap(), "{first}");
    assert!(first.starts_with("2 agents  0 at work  0 to look at  0 messages"), "{first}");
    for column in ["AGENT", "POSTURE", "QUEUE", "TURN", "LAST TURN", "DUE"] {
        assert!(first.contains(column), "{first}");
    }
    assert!(!first.contains("NOTE") && first.contains("nothing to do"), "{first}");
    sandbox.run(["enqueue", "ada", "hello"]);
    let text = terminal.shows("has_queued_input");
    assert!(text.contains("1 message"), "{text}");
    sandbox.run(["enqueue", "bob", "hello"]);
    sandbox.cmd(["tick", "bob"]).output();
    terminal.becomes("the attention", |text| {
        text.contains("1 to look at") && text.find("! bob").is_some_and(|at| at < text.find("  ada").unwrap())
    });
    // The agent that was chosen stays chosen when the order changes.
    terminal.press_until("k", "dead letter: exit status 1");
    sandbox.run(["create", "eve", "--shell", "true"]);
    terminal.shows("eve");
    terminal.press_until("/E", "show agents with: E_");
    terminal.press("v\r");
    terminal.becomes("one agent", |text| text.contains("  eve") && !text.contains("  ada"));
    terminal.press_until("x\x1b", "  ada");
    // A removed agent disappears, and the row of an agent that can't be read shows the error.
    fs::remove_dir_all(sandbox.agent("eve")).unwrap();
    terminal.becomes("no eve", |text| !text.contains("eve"));
    let state = sandbox.agent("ada").join("state.json");
    let whole = fs::read(&state).unwrap();
    fs::remove_file(sandbox.agent("ada").join("journal.jsonl")).unwrap();
    fs::write(sandbox.root().join("torn"), "{").unwrap();
    fs::rename(sandbox.root().join("torn"), &state).unwrap();
    terminal.shows("can't be read");
    fs::write(sandbox.root().join("whole"), whole).unwrap();
    fs::rename(sandbox.root().join("whole"), &state).unwrap();
    terminal.becomes("ada again", |text| !text.contains("can't be read"));
    terminal.quits("q");
}

#[test]
fn the_detail_view_shows_open_records_and_the_output_of_the_turn() {
    let turn =
        "printf 'it has begun\\n  and is half w'; while [ ! -e go ]; do sleep 0.02; done; echo ay done";
    let sandbox = started(turn).with_real_clock();
    add(&sandbox, "bob", "true");
    sandbox.run(["work", "add", "-a", "ada", "paint the fence"]);
    let wait = ["wait", "-a", "bob", "--on", "external", "--reason", "a review", "--resource", "github:1"];
    sandbox.run(wait.iter().chain(&["--expires", "1d"]).copied());
    say(&sandbox, "the first");
    say(&sandbox, "the second");
    let mut terminal = Terminal::of_size(&sandbox, &["ada"], &[], 120, 40);
    let text = terminal.shows("has_queued_input");
    assert!(text.contains("NOTE") && !text.contains("bob"), "{text}");
    terminal.press_until("t", "1 at work");
    terminal.press_until("\r", "\n  and is half w");
    let parts =
        "posture, active_turn, the first, Queue: 1, the second, Work: 1, paint the fence, Last events";
    for part in parts.split(", ") {
        terminal.shows(part);
    }
    terminal.press_until("q", "quit? y/n");
    terminal.press("n");
    fs::write(sandbox.project().join("go"), "").unwrap();
    terminal.shows("tick ada: start_model_turn");
    let text = terminal.shows("Output of the last turn");
    assert!(text.contains("and is half way done"), "{text}");
    terminal.press_until("\x1b", "POSTURE");
    // Without a running turn, `q` asks nothing.
    terminal.quits("q");
    let mut terminal = Terminal::watch(&sandbox, &["bob"]);
    terminal.shows("waiting_for_external");
    let text = terminal.press_until("\r", "Waits: 1");
    assert!(text.contains("a review") && text.contains("(github:1)"), "{text}");
    fs::remove_dir_all(sandbox.agent("bob")).unwrap();
    terminal.shows("no agent `bob`");
    terminal.quits("q");
}

#[test]
fn keys_run_commands_and_ask_before_stop_preempt_and_requeue() {
    let sandbox = with_dead_letter();
    let mut terminal = Terminal::watch(&sandbox, &[]);
    terminal.shows("1 to look at");
    // At 80 columns the last line names every key that acts on an agent.
    terminal.shows("q quit  Enter  / find  t tick  s start  S stop  p preempt  r recover  R requeue");
    terminal.press_until("S", "stop ada? y/n");
    terminal.press_until("n", "q quit");
    assert_ne!(sandbox.json(["get", "ada"])["status"], "stopped");
    terminal.press_until("Sy", "stop ada: stop");
    terminal.shows("stopped");
    assert_eq!(sandbox.json(["get", "ada"])["status"], "stopped");
    terminal.press_until("p", "preempt ada? y/n");
    terminal.press("y");
    // The screen shows the refusal of the command.
    terminal.becomes("the refusal", |text| text.contains("preempt ada: ") && !text.contains("y/n"));
    terminal.press_until("s", "start ada: start");
    fs::write(sandbox.project().join("good"), "").unwrap();
    terminal.press_until("R", "requeue ada? y/n");
    terminal.press_until("y", "has_queued_input");
    terminal.press_until("t", "tick ada: start_recovery");
    terminal.press("t");
    terminal.becomes("the turn", |text| {
        text.contains("tick ada: start_model_turn") && text.contains("completed")
    });
    terminal.press_until("Ry", "ada has no dead letter");
    terminal.press("ry");
    terminal.becomes("the recovery", |text| text.contains("recover ada: "));
    // Pasted text presses no key.
    terminal.press("\x1b[200~Syq\x1b[201~");
    terminal.quits("\x03");
    assert_ne!(sandbox.json(["get", "ada"])["status"], "stopped");
}

#[test]
fn watch_adapts_to_any_screen_size() {
    let sandbox = with_dead_letter();
    for number in 1..30 {
        sandbox.run(["create", &format!("agent-{number}"), "--shell", "true"]);
    }
    let mut terminal = Terminal::of_size(&sandbox, &[], &[], 40, 10);
    let text = terminal.becomes("all", |text| text.contains("1 to look at") && text.contains("1-6 of 30"));
    assert!(text.contains("! ada") && text.contains("agent-5") && !text.contains("agent-6"), "{text}");
    assert!(text.contains("POSTURE") && !text.contains("DUE"), "{text}");
    let text = terminal.press_until("G", "25-30 of 30");
    assert!(text.contains("agent-29"), "{text}");
    let text = terminal.press_until("k\x1b[5~", "23-28 of 30");
    assert!(!text.contains("agent-29"), "{text}");
    terminal.resize(120, 40);
    terminal.becomes("all of them", |text| {
        text.contains("NOTE") && text.contains("agent-29") && text.contains("! ada")
    });
    terminal.resize(12, 3);
    terminal.shows("too small");
    terminal.resize(80, 24);
    terminal.shows("POSTURE");
    terminal.press_until("g", "1-");
    terminal.resize(60, 8);
    terminal.press_until("\r", "posture");
    terminal.press("\x1b[6~\x1b[6~");
    terminal.becomes("a later page", |text| !text.contains("posture"));
    terminal.press("G");
    terminal.becomes("the end", |text| text.contains("created") && !text.contains("posture"));
    terminal.quits("q");
}

#[test]
fn keys_of_the_detail_view_apply_to_its_agent() {
    let sandbox = started("true").with_real_clock();
    add(&sandbox, "bob", "true");
    let mut terminal = Terminal::of_size(&sandbox, &[], &[], 80, 50);
    terminal.shows("bob");
    terminal.press("j\r");
    terminal.becomes("bob", |text| text.starts_with("bob") && text.contains("Esc back"));
    terminal.press_until("S", "stop bob? y/n");
    terminal.press_until("n\x1b", "POSTURE");
    terminal.press_until("S", "stop bob? y/n");
    terminal.quits("nq");
}

/// A change of the size and a key arrive in different ways, a signal and the input. Neither may be
/// lost.
#[test]
fn a_key_that_is_pressed_during_a_resize_is_not_lost() {
    let sandbox = started("true").with_real_clock();
    let mut terminal = Terminal::watch(&sandbox, &[]);
    // An escape and a letter that are read at once mean Alt and the letter, so the test waits for a
    // screen between them.
    let all = |terminal: &Terminal| {
        terminal.becomes("all agents", |text| text.contains("POSTURE") && text.contains("q quit"));
    };
    for round in 0..40 {
        all(&terminal);
        terminal.resize(80 + round % 2, 24);
        terminal.press("\r");
        terminal.becomes("the detail view", |text| text.contains("Esc back"));
        terminal.press("\x1b");
    }
    all(&terminal);
    terminal.quits("q");
}

#[test]
fn watch_restores_the_terminal_at_every_end() {
    let sandbox = started("true").with_real_clock();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let terminal = Terminal::watch(&sandbox, &[]);
        terminal.shows("ada");
        terminal.signal(signal);
        assert_eq!(terminal.ends(), Some(0), "{signal:?}");
    }
    let mut terminal = Terminal::watch(&sandbox, &[]);
    terminal.shows("ada");
    terminal.close();
    terminal.ends();
    // Ctrl-Z and SIGTSTP do not stop the program.
    let mut terminal = Terminal::watch(&sandbox, &[]);
    terminal.shows("ada");
    terminal.press("\x1a");
    terminal.signal(Signal::TSTP);
    terminal.press_until("S", "stop ada? y/n");
    terminal.quits("nq");
}

#[test]
fn watch_without_a_terminal_names_other_commands() {
    let sandbox = started("true").with_real_clock();
    let ran = sandbox.cmd(["watch"]).exits(2);
    for said in ["needs a terminal", "`dormouse list`", "--json", "`dormouse logs -f`"] {
        assert!(ran.stderr.contains(said), "{ran}");
    }
    sandbox.cmd(["watch", "--json"]).exits(2).shows("\"usage\"");
    for (args, env, said, status) in [
        (&[][..], ("TERM", "dumb"), "`dormouse list`", 2),
        (&["--json"], ("TERM", "xterm"), "--json", 2),
        (&["nobody"], ("TERM", "xterm"), "no agent `nobody`", 3),
        (&["No Name"], ("TERM", "xterm"), "No Name", 2),
        (&["-C", "/"], ("TERM", "xterm"), "state directory", 3),
        (&[], ("DORMOUSE_NOW", "2026-01-02T03:04:05Z"), "DORMOUSE_NOW", 2),
    ] {
        let terminal = Terminal::of_size(&sandbox, args, &[env], 80, 24);
        terminal.shows(said);
        assert_eq!(terminal.ends(), Some(status), "{args:?}");
    }
}

#[test]
fn watch_obeys_color_settings_and_escapes_text_from_outside() {
    let sandbox = with_dead_letter();
    let tower = format!("a{}b", "\u{301}".repeat(500));
    let hostile =
        format!("\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}gnp\r\u{200b}日本語{tower}{}\nsecond", "x".repeat(5000));
    sandbox.run(["enqueue", "ada", hostile.as_str()]);
    sandbox.run(["work", "add", "-a", "ada", hostile.as_str()]);
    sandbox.run(["stop", "ada", "--reason", hostile.as_str()]);
    for (args, env, is_colored) in [
        (&[][..], ("NO_COLOR", "1"), false),
        (&["--color", "never"], ("TERM", "xterm"), false),
        (&["--color", "always"], ("NO_COLOR", "1"), true),
        (&[], ("TERM", "xterm"), true),
    ] {
        let mut terminal = Terminal::of_size(&sandbox, args, &[env], 80, 40);
        terminal.shows("1 to look at");
        terminal.press("\r");
        let text =
            terminal.becomes("the message", |text| text.contains("Queue: 1") && text.contains("Work: 1"));
        assert!(text.contains("\\u{1b}[2J\\u{1b}]0;owned\\u{7}\\u{202e}gnp"), "{text}");
        assert!(!text.contains("second") && text.contains("Last events"), "{text}");
        terminal.press("q");
        let written = terminal.written();
        assert_eq!(terminal.ends(), Some(0));
        assert!(!written.contains("\u{1b}]0;") && !written.contains('\u{202e}'), "{written:?}");
        assert_eq!(written.contains("38;5;1"), is_colored, "{args:?} {env:?} {written:?}");
    }
}

#[test]
fn an_idle_watch_wakes_only_when_an_age_changes() {
    let sandbox = started("true").with_real_clock();
    sandbox.run(["timer", "add", "-a", "ada", "--in", "1h", "x"]);
    let mut terminal = Terminal::watch(&sandbox, &[]);
    terminal.shows("ada");
    for keys in ["", "\r"] {
        terminal.press(keys);
        // The age of a new event changes once a second, so the screen rests only after a while.
        let is_still = || {
            let before = terminal.switches();
            std::thread::sleep(Duration::from_millis(1000));
            (terminal.switches() - before < 10).then_some(())
        };
        eventually("rest", is_still);
        assert!(is_still().is_some(), "the program wakes although nothing happens");
    }
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn watch_reads_a_thousand_agents_and_shows_each_change() {
    let sandbox = started("true").with_real_clock();
    for number in 0..1000 {
        let name = format!("agent-{number}");
        let dir = sandbox.agent(&name);
        fs::create_dir_all(dir.join("inbox")).unwrap();
        for file in ["identity.json", "agent.toml", "state.json"] {
            let text = fs::read_to_string(sandbox.agent("ada").join(file)).unwrap();
            fs::write(dir.join(file), text.replace("\"ada\"", &format!("\"{name}\""))).unwrap();
        }
    }
    let mut terminal = Terminal::watch(&sandbox, &[]);
    terminal.becomes("all", |text| text.contains("1001 agents") && !text.contains("not read yet"));
    terminal.press_until("G", "985-1001 of 1001");
    sandbox.run(["enqueue", "agent-999", "x"]);
    terminal.shows("has_queued_input");
    terminal.quits("q");
}

#[test]
fn watch_reports_a_missing_state_directory_and_shows_its_return() {
    let sandbox = started("true").with_real_clock();
    let terminal = Terminal::watch(&sandbox, &[]);
    terminal.shows("ada");
    fs::rename(sandbox.store(), sandbox.root().join("away")).unwrap();
    let text = terminal.shows("the screen shows the previous state");
    assert!(text.contains("ada"), "{text}");
    fs::rename(sandbox.root().join("away"), sandbox.store()).unwrap();
    terminal.becomes("it is back", |text| text.starts_with("1 agent "));
    sandbox.run(["enqueue", "ada", "x"]);
    terminal.shows("has_queued_input");
    terminal.quits("q");
}

#[test]
fn watch_without_inotify_warns_and_polls() {
    needs!("strace");
    let sandbox = started("true").with_real_clock();
    let own = sandbox.dormouse();
    let args = words("-qq -o /dev/null -e trace=inotify_add_watch -e inject=inotify_add_watch:error=ENOSPC");
    let args: Vec<&str> = args.into_iter().chain([own.to_str().unwrap(), "watch"]).collect();
    let terminal = Terminal::of_program(&sandbox, "strace", &args, &[], 80, 24);
    terminal.shows("not every agent can be watched here");
    sandbox.run(["enqueue", "ada", "x"]);
    terminal.shows("has_queued_input");
    sandbox.run(["create", "bob", "--shell", "true"]);
    terminal.shows("bob");
    terminal.quits("q");
}
