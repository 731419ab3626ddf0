//! Tests what commands draw on a terminal while they work: their progress, and the age of a running
//! turn.

use std::io::{Read, Write};
use std::process::Command;

use crate::harness::{Cmd, Sandbox, each_in_parallel};
use crate::setup::{add, pseudo_terminal, say, started};

/// Text of a terminal's screen after each piece of output, and at the end.
struct Seen {
    screens: Vec<String>,
    end: String,
}

impl Seen {
    #[track_caller]
    fn shows(&self, text: &str) -> &Seen {
        let is_shown = self.screens.iter().any(|screen| screen.contains(text));
        assert!(is_shown, "no `{text}` in {:#?}", self.screens);
        self
    }

    #[track_caller]
    fn draws_nothing(&self) {
        for drawn in ["so far", " of 4 agents"] {
            assert!(!self.screens.iter().any(|screen| screen.contains(drawn)), "{:#?}", self.screens);
        }
    }
}

/// Runs a command in the foreground of a terminal. When the screen shows `key.0`, `key.1` is typed.
fn on_terminal(cmd: Cmd<'_>, term: &str, key: Option<(&str, &[u8])>) -> Seen {
    let command = cmd.into_command();
    let mut leader = Command::new("setsid");
    // The tests may have inherited an ignored SIGINT from a shell that runs them in the background.
    leader
        .args(["--ctty", "--wait", "env", "--default-signal=INT"])
        .arg(command.get_program())
        .args(command.get_args());
    leader.env_clear().env("TERM", term).current_dir(command.get_current_dir().unwrap());
    leader.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run(leader, key)
}

fn run(mut command: Command, mut key: Option<(&str, &[u8])>) -> Seen {
    let (mut ours, theirs) = pseudo_terminal(80, 24);
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut terminal = vt100::Parser::new(24, 80, 0);
    let mut screens = Vec::new();
    let mut piece = [0; 4096];
    // The loop ends when no process has the terminal open any more, because the read then fails.
    while let Ok(length @ 1..) = ours.read(&mut piece) {
        terminal.process(&piece[..length]);
        screens.push(terminal.screen().contents());
        if let Some((awaited, typed)) = key
            && screens.last().is_some_and(|screen| screen.contains(awaited))
        {
            ours.write_all(typed).unwrap();
            key = None;
        }
    }
    child.wait().unwrap();
    Seen { screens, end: terminal.screen().contents() }
}

/// Adds an agent with a queued message, whose turn takes 400 ms.
fn add_slow(sandbox: &Sandbox, name: &str) {
    add(sandbox, name, "sleep 0.4");
    sandbox.run(["enqueue", name, "work"]);
}

/// Runs a script in the foreground of a terminal, with the path of dormouse in `$0` and `word` in
/// `$1`. `key` is as in [`on_terminal`].
fn shell(sandbox: &Sandbox, script: &str, word: &str, key: Option<(&str, &[u8])>) -> Seen {
    let words = vec!["-c".into(), script.into(), sandbox.dormouse().into(), word.into()];
    on_terminal(sandbox.program("sh", words), "xterm", key)
}

/// Sandbox with four agents whose turns are slow.
fn four() -> Sandbox {
    let sandbox = Sandbox::new();
    ["ada", "bob", "cy", "dot"].into_iter().for_each(|name| add_slow(&sandbox, name));
    sandbox
}

#[test]
fn tick_all_shows_its_progress_on_a_terminal() {
    let sandbox = four();
    let seen = on_terminal(sandbox.cmd(["tick", "--all"]), "xterm", None);
    seen.shows("] 2 of 4 agents").shows("] 3 of 4 agents");
    assert_eq!(seen.end.lines().count(), 4, "{}", seen.end);
    assert!(!seen.end.contains("of 4 agents"), "{}", seen.end);
    for screen in &seen.screens {
        let is_mixed = |line: &&str| line.contains("start_model_turn") && line.contains("agents");
        assert_eq!(screen.lines().find(is_mixed), None);
    }
}

/// Returns the number that precedes `words` on a screen.
fn count_of(screen: &str, words: &str) -> Option<u32> {
    screen.split_once(words)?.0.rsplit(' ').next()?.parse().ok()
}

#[test]
fn tick_all_with_jobs_shows_progress_without_mixing_lines() {
    let sandbox = four();
    ["eve", "fay"].into_iter().for_each(|name| add_slow(&sandbox, name));
    let seen = on_terminal(sandbox.cmd(["tick", "--all", "--jobs", "2", "--verbose"]), "xterm", None);
    // The progress bar counts jobs that end at once in one update, so it may skip a number.
    let counts: Vec<u32> =
        seen.screens.iter().filter_map(|screen| count_of(screen, " of 6 agents")).collect();
    assert!(counts.is_sorted() && counts.iter().any(|count| (1..6).contains(count)), "{counts:?}");
    assert!(!seen.end.contains("of 6 agents"), "{}", seen.end);
    let steps = seen.end.lines().filter(|line| line.contains("start_model_turn")).count();
    assert_eq!(steps, 6, "{}", seen.end);
    for screen in &seen.screens {
        let is_mixed = |line: &&str| {
            line.contains("of 6 agents") && (line.contains("dormouse") || line.contains("start_model_turn"))
        };
        assert_eq!(screen.lines().find(is_mixed), None);
    }
}

#[test]
fn no_progress_is_drawn_with_quiet_or_without_a_terminal() {
    let cases = [
        ("dumb", &[][..]),
        ("", &[]),
        ("xterm", &["-q"]),
        ("dumb", &["--jobs", "2"]),
        ("xterm", &["--jobs", "2", "-q"]),
    ];
    each_in_parallel(&cases, |(term, flags)| {
        let sandbox = four();
        let seen = on_terminal(sandbox.cmd(["tick", "--all"].iter().chain(*flags)), term, None);
        seen.draws_nothing();
    });
    // A command in the background does not own its terminal, and must draw nothing on it.
    let sandbox = four();
    run(sandbox.cmd(["tick", "--all"]).env("TERM", "xterm").into_command(), None).draws_nothing();
    for flags in [&[][..], &["--json"]] {
        let sandbox = four();
        let ran = sandbox.cmd(["tick", "--all"].iter().chain(flags)).env("TERM", "xterm").output();
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""));
        assert!(!ran.stdout.contains('\x1b'), "{ran}");
    }
}

#[test]
fn a_turn_in_the_foreground_shows_its_age_until_it_ends() {
    let sandbox = started("sleep 2.5");
    say(&sandbox, "work");
    let seen = on_terminal(sandbox.cmd(["tick", "ada", "--json"]), "xterm", None);
    let age = |age| format!("ada: its turn runs, {age} so far (dormouse logs -f ada)");
    seen.shows(&age("1s")).shows(&age("2s"));
    assert!(seen.end.starts_with(r#"{"agent":"ada","decision":"start_model_turn""#), "{}", seen.end);
    assert!(!seen.end.contains("so far"), "{}", seen.end);
    // With several agents, the line shows the progress bar, then the age of the turn.
    let sandbox = four();
    add(&sandbox, "eve", "sleep 1.5");
    sandbox.run(["enqueue", "eve", "work"]);
    on_terminal(sandbox.cmd(["tick", "--all"]), "xterm", None)
        .shows("] 4 of 5 agents  eve: its turn runs, 1s");
}

#[test]
fn the_age_of_a_turn_does_not_mix_with_the_output() {
    let script = "printf part; sleep 1.5; echo ial; sleep 1.5; echo done > \"$DORMOUSE_OUTCOME.x\"; echo end";
    let sandbox = started(script);
    let seen = on_terminal(sandbox.cmd(["ask", "ada", "work"]), "xterm", None);
    seen.shows("partial\nada: its turn runs");
    for line in seen.screens.iter().flat_map(|screen| screen.lines()) {
        assert!(line.starts_with("ada: ") || !line.contains("so far"), "a line is broken: {line}");
    }
    assert_eq!(seen.end.trim_end(), "partial\nend");
    assert!(!seen.end.contains("so far"), "{}", seen.end);
}

#[test]
fn ask_does_not_repeat_an_answer_that_the_turn_has_printed_last() {
    for (script, shown) in [
        ("echo all is well", "all is well"),
        ("printf 'all is well'", "all is well"),
        ("echo looking; echo all is well", "looking\nall is well"),
        ("echo all is well; sleep 0.2; echo hm >&2", "all is well\nhm\nall is well"),
        (
            "echo not all is well; echo '{\"brief\":\"all is well\"}' > \"$DORMOUSE_OUTCOME\"",
            "not all is well\nall is well",
        ),
    ] {
        let sandbox = started(script);
        let seen = on_terminal(sandbox.cmd(["ask", "ada", "how is it?"]), "xterm", None);
        assert_eq!(seen.end.trim_end(), shown, "{script}");
        let seen = on_terminal(sandbox.cmd(["ask", "ada", "how is it?", "-q"]), "xterm", None);
        assert_eq!(seen.end.trim_end(), "all is well", "{script}");
    }
}

#[test]
fn an_interrupted_turn_is_reported_below_its_age() {
    let sandbox = started("sleep 30");
    say(&sandbox, "work");
    let seen = on_terminal(sandbox.cmd(["tick", "ada"]), "xterm", Some(("1s so far", b"\x03")));
    // The echo of the key has moved the cursor to the next line, so the command can't erase the
    // line with the age.
    let ended = "ada  start_model_turn (a message from you) → interrupted: ";
    assert!(seen.end.contains(ended) && !seen.end.contains("2s so far"), "{}", seen.end);
}

#[test]
fn a_batch_leaves_a_clean_line_unless_a_signal_ends_it() {
    let sandbox = started("true").with_real_clock();
    // The terminal is closed when the shell ends, so the shell must survive SIGINT.
    let script = r#"trap : INT; for n in $(seq $1); do echo "{\"text\":\"$n\"}"; sleep 0.3; done | "$0" enqueue ada --batch; echo ended with $?"#;
    // The test interrupts the first batch, which would take a minute.
    for (key, count, status) in [(&b"\x03"[..], "200", 130), (b"", "8", 0)] {
        let seen = shell(&sandbox, script, count, Some((" messages", key)));
        assert!(status != 0 || !seen.end.contains("messages"), "{}", seen.end);
        assert!(seen.end.contains(&format!("ended with {status}")), "{}", seen.end);
    }
}

#[test]
fn a_batch_from_a_slow_producer_is_counted() {
    let sandbox = started("true").with_real_clock();
    let script =
        r#"for n in 1 2 3 4; do echo "{\"text\":\"$n\"}"; sleep 0.4; done | "$0" enqueue ada --batch"#;
    let seen = shell(&sandbox, script, "", None);
    seen.shows("3 messages");
    assert_eq!(seen.end.lines().filter(|line| line.starts_with("msg_")).count(), 4, "{}", seen.end);
    assert!(!seen.end.contains("messages"), "{}", seen.end);
}
