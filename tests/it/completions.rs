//! Completions, as the shells themselves ask for them. A shell that is not installed is left out, and said.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Sandbox, dormouse};
use crate::setup::started;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("completions").join(name)
}

/// What this shell prints for a script of its own; `None` where there is no such shell.
fn in_shell(sandbox: &Sandbox, shell: &str, options: &[&str], text: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap();
    let dirs = std::iter::once(dormouse().parent().unwrap().to_owned()).chain(std::env::split_paths(&path));
    let run = Command::new(shell)
        .args(options)
        .args(["-c", text])
        .current_dir(sandbox.project())
        .env_clear()
        .env("PATH", std::env::join_paths(dirs).unwrap())
        .env("HOME", sandbox.home())
        .env("TZ", "UTC")
        .env("TERM", "dumb")
        .output();
    match run {
        Ok(output) => {
            assert!(output.status.success(), "{shell}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{shell}: {text}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{shell}");
            eprintln!("left out: it needs {shell}");
            None
        }
    }
}

fn bash(sandbox: &Sandbox, words: &[&str]) -> Option<Vec<String>> {
    let file = script("dormouse.bash");
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let text = format!(
        "source {}; complete -p dormouse >/dev/null || exit 1
         COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9
         _clap_complete_dormouse dormouse \"${{COMP_WORDS[COMP_CWORD]}}\" x
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        file.display(),
        quoted.join(" "),
        words.len() - 1
    );
    let said = in_shell(sandbox, "bash", &["--norc", "--noprofile"], &text)?;
    Some(said.lines().map(str::to_owned).collect())
}

/// fish prints what it would show: the word, and what it stands for.
fn fish(sandbox: &Sandbox, line: &str) -> Option<Vec<String>> {
    let text = format!("source {}; complete -C'{line}'", script("dormouse.fish").display());
    let said = in_shell(sandbox, "fish", &["--no-config"], &text)?;
    Some(said.lines().map(str::to_owned).collect())
}

/// What zsh would show: the completion system is loaded, and only its last function prints instead.
fn zsh(sandbox: &Sandbox, words: &[&str]) -> Option<Vec<String>> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let text = format!(
        "fpath=({} $fpath); autoload -Uz compinit; compinit -u -D
         [[ $_comps[dormouse] == _dormouse ]] || exit 1
         function _describe() {{ print -rl -- \"${{(@P)3}}\" }}
         words=({}); CURRENT={}
         _dormouse",
        script("_dormouse").parent().unwrap().display(),
        quoted.join(" "),
        words.len()
    );
    let said = in_shell(sandbox, "zsh", &["-f"], &text)?;
    Some(said.lines().map(str::to_owned).collect())
}

/// An agent whose records say what a shell could trip over.
fn hostile() -> (Sandbox, String, String) {
    let sandbox = started("true");
    let evil = "$(touch pwned) `touch pwned`; touch pwned\n:colon\t'quote\" \u{1b}[31m *";
    sandbox.run(["create", "adamant", "--", "true"]);
    let message = sandbox.cmd(["enqueue", "ada", "-"]).stdin(evil).output().stdout.trim_end().to_owned();
    let item = sandbox.run(["work", "add", "-a", "ada", evil]).trim_end().to_owned();
    (sandbox, message, item)
}

#[test]
fn shells_know_agents_and_ids_and_nothing_of_them_is_run() {
    let (sandbox, message, item) = hostile();
    if let Some(found) = bash(&sandbox, &["dormouse", "tick", "ad"]) {
        assert_eq!(found, ["ada", "adamant"]);
        assert_eq!(bash(&sandbox, &["dormouse", "queue", "drop", "msg_"]).unwrap(), [message.as_str()]);
        assert_eq!(bash(&sandbox, &["dormouse", "list", "--posture", "wait"]).unwrap().len(), 3);
        assert_eq!(
            bash(&sandbox, &["dormouse", "state", "ada", "--can", "run"]).unwrap(),
            ["runnable", "running"]
        );
        assert_eq!(bash(&sandbox, &["dormouse", "create", "ad"]).unwrap(), [""; 1], "a name that is free");
    }
    if let Some(found) = fish(&sandbox, "dormouse tick ad") {
        assert_eq!(found, ["ada", "adamant"]);
        let found = fish(&sandbox, "dormouse work show wo").unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{item}\t$(touch pwned)")), "{found:?}");
        assert!(!found[0].contains('\u{1b}'));
        assert!(fish(&sandbox, "dormouse qu").unwrap()[0].starts_with("queue\t"));
    }
    if let Some(found) = zsh(&sandbox, &["dormouse", "tick", "ad"]) {
        assert_eq!(found, ["ada", "adamant"]);
        let found = zsh(&sandbox, &["dormouse", "queue", "show", "msg_"]).unwrap();
        assert!(found.len() == 1 && found[0].starts_with(&format!("{message}:$(touch pwned)")), "{found:?}");
    }
    assert!(!sandbox.project().join("pwned").exists() && !sandbox.home().join("pwned").exists());
}

/// What the program answers a completion function of bash.
fn asked(sandbox: &Sandbox, words: &[&str]) -> String {
    let line = ["--"].iter().chain(words).copied();
    let ran = sandbox
        .cmd(line)
        .env("DORMOUSE_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran}");
    ran.stdout
}

#[test]
fn ids_are_those_of_the_agent_and_the_directory_that_the_line_names() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    let of = |agent: &str| sandbox.run(["work", "add", "-a", agent, "x"]).trim_end().to_owned();
    let (ada, bob) = (of("ada"), of("bob"));
    assert_eq!(asked(&sandbox, &["dormouse", "work", "show", "-a", "bob", "work_"]), bob);
    assert_eq!(asked(&sandbox, &["dormouse", "work", "show", "--agent=ada", "work_"]), ada);
    assert_eq!(asked(&sandbox, &["dormouse", "work", "show", "work_"]).lines().count(), 2);
    let elsewhere = Sandbox::empty();
    assert_eq!(asked(&elsewhere, &["dormouse", "tick", "a"]), "");
    let dir = sandbox.project().to_str().unwrap().to_owned();
    assert_eq!(asked(&elsewhere, &["dormouse", "-C", &dir, "tick", "b"]), "bob");
    // What is damaged proposes nothing, and breaks nothing.
    fs::write(sandbox.agent("ada").join("state.json"), "{").unwrap();
    assert_eq!(asked(&sandbox, &["dormouse", "work", "show", "work_"]), bob);
    // No shell, no line.
    for (shell, words) in [("tcsh", vec!["--", "dormouse", ""]), ("bash", vec![]), ("fish", vec!["--"])] {
        let ran = sandbox.cmd(words).env("DORMOUSE_COMPLETE", shell).output();
        assert_eq!((ran.code(), ran.stdout.as_str()), (2, ""), "{ran}");
    }
}

#[test]
fn ten_thousand_agents_are_listed_at_a_key() {
    let sandbox = started("true");
    for number in 0..10_000 {
        fs::create_dir(sandbox.agent(&format!("agent-{number}"))).unwrap();
    }
    assert_eq!(asked(&sandbox, &["dormouse", "tick", "agent-999"]).lines().count(), 11);
    // A name needs no look into its directory: a key is answered by one listing.
    let trace = sandbox.home().join("trace");
    let words = ["-qq", "-e", "trace=/open.*", "-o"].map(OsString::from);
    let words = words.into_iter().chain([trace.clone().into(), dormouse().into()]);
    let words = words.chain(["--", "dormouse", "tick", "agent-999"].map(OsString::from));
    let asking = sandbox.program("strace", words.collect()).env("DORMOUSE_COMPLETE", "bash");
    let ran = asking.env("_CLAP_COMPLETE_INDEX", "2").output();
    assert_eq!(ran.stdout.lines().count(), 11, "{ran}");
    let opened = fs::read_to_string(&trace).unwrap();
    let of_agents = opened.lines().filter(|call| call.contains("agent-9")).count();
    assert!(of_agents <= 11, "{opened}");
}
