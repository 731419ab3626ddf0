//! Tests that a trigger's secret is shown once, in one place, to the caller who asked for it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Ran, Sandbox, each_in_parallel};
use crate::output::on_terminal;
use crate::setup::{HOOKS, edit_file, failure, hook, json_in, mode, names, only_file, record, started, tree};
use crate::triggers::sha256;

/// Returns the words of a text that can be secrets: 64 hexadecimal digits.
fn words(text: &str) -> Vec<String> {
    let digits = |c: char| !c.is_ascii_hexdigit();
    text.split(digits).filter(|word| word.len() == 64).map(str::to_owned).collect()
}

/// Returns the recorded SHA-256 of the secret of an agent's trigger.
fn kept(sandbox: &Sandbox, agent: &str) -> String {
    let dir = sandbox.agent(agent).join("triggers");
    json_in(dir.join(&names(&dir)[0]))["secret_sha256"].as_str().unwrap().to_owned()
}

/// Checks that a file has the secret of an agent's trigger, and is readable for its owner alone.
#[track_caller]
fn assert_holds(sandbox: &Sandbox, file: &Path, agent: &str) {
    let word = fs::read_to_string(file).unwrap();
    assert_eq!(word.len(), 65, "a secret and a line break: {word:?}");
    assert_eq!(sha256(word.trim_end()), kept(sandbox, agent));
    assert_eq!(mode(file), 0o600);
}

#[test]
fn create_shows_the_secret_on_a_terminal_and_a_hint_in_a_pipe() {
    let sandbox = Sandbox::new();
    let shown = on_terminal(&sandbox, &["create", "ada", "--", "true"], &[]);
    assert_eq!(sha256(&words(&shown)[0]), kept(&sandbox, "ada"), "{shown}");
    sandbox.cmd(["create", "bob", "--", "true"]).prints(
        "created bob\ntrigger trig_#1\n\
         secret  not shown in a pipe: --secret-file FILE keeps it, or --json shows it\n",
    );
    for args in [&["create", "cyd", "--", "true"][..], &["-q", "create", "dan", "--", "true"]] {
        let ran = sandbox.cmd(args.iter().copied()).output();
        assert_eq!(words(&format!("{}{}", ran.stdout, ran.stderr)), Vec::<String>::new(), "{ran}");
    }
    let quiet = on_terminal(&sandbox, &["create", "eve", "--quiet", "--", "true"], &[]);
    assert_eq!(words(&quiet), Vec::<String>::new(), "{quiet}");
    assert!(quiet.starts_with("created eve\ntrigger trig_"), "{quiet}");
}

#[test]
fn create_shows_the_secret_in_json_but_not_with_quiet() {
    let sandbox = Sandbox::new();
    let made = sandbox.json(["create", "ada", "--", "true"]);
    assert_eq!(sha256(made["trigger_secret"].as_str().unwrap()), kept(&sandbox, "ada"));
    let made = sandbox.json(["create", "bob", "-q", "--", "true"]);
    assert_eq!((&made["agent"], &made["trigger_secret"]), (&json!("bob"), &Value::Null));
    assert_eq!(words(&made.to_string()), Vec::<String>::new());
}

#[test]
fn a_secret_in_a_file_is_not_printed() {
    let sandbox = Sandbox::new();
    for (number, flags) in
        [&[][..], &["--json"], &["--quiet"], &["--quiet", "--json"]].into_iter().enumerate()
    {
        let (agent, file) = (format!("agent{number}"), format!("secret{number}"));
        let ran =
            sandbox.cmd(["create", &agent, "--secret-file", &file].iter().chain(flags).copied()).output();
        assert_eq!((ran.code(), words(&ran.stdout)), (0, Vec::new()), "{ran}");
        assert_holds(&sandbox, &sandbox.project().join(&file), &agent);
        if flags.contains(&"--json") {
            let object: Value = serde_json::from_str(&ran.stdout).unwrap();
            assert_eq!((&object["secret_file"], object.get("trigger_secret")), (&json!(file), None));
        }
    }
    let shown = on_terminal(&sandbox, &["create", "eve", "--secret-file", "s", "--", "true"], &[]);
    assert!(shown.ends_with("secret  in s\n"), "{shown}");
    assert_eq!(words(&shown), Vec::<String>::new());
    assert_holds(&sandbox, &sandbox.project().join("s"), "eve");
}

#[test]
fn an_unusable_secret_file_stays_unchanged_and_no_agent_is_made() {
    let sandbox = Sandbox::new();
    let project = sandbox.project();
    fs::write(project.join("there"), "mine").unwrap();
    fs::create_dir(project.join("dir")).unwrap();
    symlink("there", project.join("link")).unwrap();
    symlink("nowhere", project.join("dangling")).unwrap();
    symlink(".dormouse/hooks", project.join("into")).unwrap();
    let before = tree(&project);
    for (file, status, kind) in [
        ("there", 4, "secret_file_exists"),
        ("dir", 4, "secret_file_exists"),
        ("link", 4, "secret_file_exists"),
        ("dangling", 4, "secret_file_exists"),
        ("/dev/stdout", 4, "secret_file_exists"),
        ("gone/secret", 1, "io"),
        ("there/secret", 1, "io"),
        ("-", 2, "usage"),
        ("", 2, "usage"),
        (".dormouse/secret", 2, "usage"),
        ("into/secret", 2, "usage"),
        ("dir/../.dormouse/agents/secret", 2, "usage"),
    ] {
        let ran = sandbox.cmd(["--json", "create", "ada", "--secret-file", file, "--", "true"]).output();
        let failed = failure(&ran);
        assert_eq!((ran.code(), &failed["kind"]), (status, &json!(kind)), "{file}: {ran}");
        assert!(failed["hint"].is_string() || kind == "io" || file.is_empty(), "{file}: {ran}");
        assert_eq!(tree(&project), before, "{file}");
    }
}

#[test]
fn a_failed_create_leaves_no_secret_file() {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "ada", "--", "true"]);
    for args in [
        &["create", "ada", "--secret-file", "s", "--", "true"][..],
        &["create", "Bob", "--secret-file", "s", "--", "true"],
        &["create", "bob", "--secret-file", "s", "--parent", "nobody", "--", "true"],
        &["create", "bob", "--secret-file", "s", "--from", "nothing"],
        &["create", "bob", "--secret-file", "s", "--profile", "none"],
    ] {
        let ran = sandbox.cmd(args.iter().copied()).output();
        assert_ne!(ran.code(), 0, "{args:?}");
        assert!(!sandbox.project().join("s").exists(), "{args:?}: {ran}");
    }
}

/// Interrupts a command that creates a trigger with its secret in the file `s`, at each of its
/// system calls, by a kill and by disk errors. `is_made` returns true if the trigger exists, and
/// checks its secret.
fn cut_anywhere(template: &Sandbox, words: &[&str], is_made: impl Fn(&Sandbox, &Path) -> bool + Sync) {
    use crate::strace::{self, Harm};
    let points = strace::record(&template.copy(), words, "").points();
    assert!(points.iter().any(|call| call.rest.contains("\"s\"")), "the file is not among the calls");
    let harms = [Harm::Kill, Harm::Error("ENOSPC"), Harm::ErrorsFrom("EIO")];
    let cases: Vec<_> = points.iter().flat_map(|call| harms.map(|harm| (call, harm))).collect();
    each_in_parallel(&cases, |(call, harm)| {
        let is_impossible = matches!(harm, Harm::ErrorsFrom(_)) && call.act() == "open";
        let harmless = ["exit_group", "poll", "wait4", "flock"].contains(&call.name.as_str());
        if is_impossible || (*harm != Harm::Kill && harmless) {
            return;
        }
        let sandbox = template.copy();
        let Ran { status, .. } = strace::harm(&sandbox, words, "", call, *harm).ran;
        let file = sandbox.project().join("s");
        let made = is_made(&sandbox, &file);
        let tidied = *harm == Harm::Kill || call.act() == "unlink";
        assert!(made || tidied || !file.exists(), "{harm:?} at {call}: a file is left: {status}");
    });
}

/// Interrupts `create`: it may leave a file with an unused secret, but no agent without a secret.
#[test]
fn an_interrupted_create_leaves_no_agent_without_its_secret() {
    needs!("strace");
    cut_anywhere(&Sandbox::new(), &["create", "ada", "--secret-file", "s", "--", "true"], |sandbox, file| {
        let made = sandbox.agent("ada").exists();
        if made {
            assert_holds(sandbox, file, "ada");
        }
        made
    });
}

/// Interrupts `trigger create`, which can fail after the trigger's record was committed.
#[test]
fn an_interrupted_trigger_create_leaves_no_trigger_without_its_secret() {
    needs!("strace");
    let template = started("true");
    let before = names(&template.agent("ada").join("triggers"));
    cut_anywhere(&template, &["trigger", "create", "-a", "ada", "--secret-file", "s"], |sandbox, file| {
        // The next command of the agent completes a transaction that was committed and not applied.
        sandbox.run(["timer", "add", "-a", "ada", "--in", "1d", "later"]);
        let triggers = names(&sandbox.agent("ada").join("triggers"));
        let new = triggers.iter().find(|name| !before.contains(*name));
        if let Some(name) = new {
            let hash = record(sandbox, format!("triggers/{name}"))["secret_sha256"].clone();
            let word = fs::read_to_string(file).unwrap_or_default();
            assert_eq!(hash, sha256(word.trim_end()).as_str(), "{name} has no secret in a file");
        }
        new.is_some()
    });
}

#[test]
fn concurrent_creates_make_one_agent_and_one_secret_per_file() {
    let sandbox = Sandbox::new();
    let numbers: Vec<usize> = (0..12).collect();
    // All commands create one agent, with different files. Those that fail delete their file.
    each_in_parallel(&numbers, |number| {
        let file = format!("s{number}");
        sandbox.cmd(["create", "ada", "--secret-file", &file, "--", "true"]).output();
    });
    let left: Vec<String> =
        names(&sandbox.project()).into_iter().filter(|name| name.starts_with('s')).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_holds(&sandbox, &sandbox.project().join(&left[0]), "ada");
    // All commands write to one file, for different agents.
    each_in_parallel(&numbers, |number| {
        let agent = format!("agent{number}");
        sandbox.cmd(["create", &agent, "--secret-file", "shared", "--", "true"]).output();
    });
    let made: Vec<String> = names(&sandbox.store().join("agents"));
    assert_eq!(made.len(), 2, "{made:?}");
    let other = made.iter().find(|name| *name != "ada").unwrap();
    assert_holds(&sandbox, &sandbox.project().join("shared"), other);
}

/// Searches all files of the state directory, and all output, for the secret of the trigger.
#[test]
fn the_secret_is_in_no_file_hook_turn_or_output() {
    let sandbox = Sandbox::new();
    for name in HOOKS.iter().chain(&["on-attention"]) {
        hook(&sandbox.store(), name, "env; cat; ps -ef 2>/dev/null; tr '\\0' ' ' </proc/$PPID/cmdline");
    }
    let turn = "env; cat; test -e $DORMOUSE_OUTCOME; dormouse create kid -- true; exit 1";
    let made = sandbox.json(["create", "ada", "--shell", turn]);
    let secret = made["trigger_secret"].as_str().unwrap().to_owned();
    let file = sandbox.project().join("s");
    sandbox.run(["create", "bob", "--secret-file", "s", "--shell", turn]);
    let secrets = [secret, fs::read_to_string(&file).unwrap().trim_end().to_owned()];
    fs::remove_file(&file).unwrap();
    let mut said = String::new();
    let mut say = |args: &[&str]| {
        for flags in [&[][..], &["--json"], &["-v"]] {
            let ran = sandbox.cmd(args.iter().chain(flags).copied()).output();
            said.push_str(&format!("{}{}", ran.stdout, ran.stderr));
        }
    };
    for name in ["ada", "bob"] {
        let trigger = names(&sandbox.agent(name).join("triggers"))[0].clone();
        for args in [
            &["start", name][..],
            &["enqueue", name, "x"],
            &["tick", name],
            &["get", name],
            &["get", name, "external_triggers"],
            &["explain", name],
            &["events", name],
            &["state", name],
            &["create", name, "--", "true"],
            &["task", "start", "-a", name, "--", "env"],
            &["stop", name],
            &["doctor"],
        ] {
            say(args);
        }
        // Errors of `get` and `doctor` quote a damaged record: they must not show a secret.
        edit_file(&sandbox.agent(name).join("triggers").join(&trigger), |text| {
            text.replace("active", "sleepy")
        });
        say(&["get", name]);
        say(&["doctor"]);
    }
    for secret in &secrets {
        assert!(!said.contains(secret.as_str()));
        for (path, (_, content, _)) in tree(sandbox.root()) {
            let shows = content.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!shows, "the secret is in {}", path.display());
        }
    }
    assert!(only_file(&sandbox, "ledger").exists());
    // The output of the `create` in a turn is in `stdout.log`, which must not show a secret.
    for (path, (_, content, _)) in tree(&sandbox.store()) {
        let is_trigger = path.components().any(|part| part.as_os_str() == "triggers");
        let found = words(&String::from_utf8_lossy(&content));
        assert!(is_trigger || found.is_empty() || !path.ends_with("stdout.log"), "{}", path.display());
    }
}
