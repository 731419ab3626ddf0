//! Tests the completions of bash, fish and zsh in those of these shells that are installed.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::docs::root;
use crate::harness::{Sandbox, dormouse};
use crate::setup::{started, started_with, words};

fn script(name: &str) -> PathBuf {
    root().join("completions").join(name)
}

/// Runs a script in a shell. Returns the lines of its output; `None` if the shell is not installed.
fn in_shell(sandbox: &Sandbox, shell: &str, options: &[&str], text: &str) -> Option<Vec<String>> {
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
            Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{shell}");
            assert!(!crate::missing_tools::has(&[shell]));
            None
        }
    }
}

/// Quotes the words of a line for a shell.
fn quoted(line: &str) -> String {
    line.split(' ').map(|word| format!("'{word}' ")).collect()
}

fn bash(sandbox: &Sandbox, line: &str) -> Option<Vec<String>> {
    bash_at(sandbox, line, "9")
}

/// Returns the completions of bash. `key`: its `COMP_TYPE`; 9 completes, 63 lists all completions.
fn bash_at(sandbox: &Sandbox, line: &str, key: &str) -> Option<Vec<String>> {
    let text = format!(
        "source {}; complete -p dormouse >/dev/null || exit 1
         COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE={key}
         _clap_complete_dormouse dormouse \"${{COMP_WORDS[COMP_CWORD]}}\" x
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script("dormouse.bash").display(),
        quoted(line),
        line.split(' ').count() - 1
    );
    in_shell(sandbox, "bash", &["--norc", "--noprofile"], &text)
}

/// Returns the completions of fish: the word, a tab and its description.
fn fish(sandbox: &Sandbox, line: &str) -> Option<Vec<String>> {
    let text = format!("source {}; complete -C'{line}'", script("dormouse.fish").display());
    in_shell(sandbox, "fish", &["--no-config"], &text)
}

/// Returns the completions of zsh, from a `_describe` that prints them instead of showing them.
fn zsh(sandbox: &Sandbox, line: &str) -> Option<Vec<String>> {
    let text = format!(
        "fpath=({} $fpath); autoload -Uz compinit; compinit -u -D
         [[ $_comps[dormouse] == _dormouse ]] || exit 1
         function _describe() {{ print -rl -- \"${{(@P)3}}\" }}
         words=({}); CURRENT={}
         _dormouse",
        script("_dormouse").parent().unwrap().display(),
        quoted(line),
        line.split(' ').count()
    );
    in_shell(sandbox, "zsh", &["-f"], &text)
}

/// Makes an agent whose message and work item contain shell code. Returns their ids.
fn hostile() -> (Sandbox, String, String) {
    let sandbox = started("true");
    let evil = "$(touch pwned) `touch pwned`; touch pwned\n:colon\t'quote\" \u{1b}[31m *";
    sandbox.run(["create", "adamant", "--", "true"]);
    let message = sandbox.cmd(["enqueue", "ada", "-"]).stdin(evil).output().stdout.trim_end().to_owned();
    let item = sandbox.run(["work", "add", "-a", "ada", evil]).trim_end().to_owned();
    (sandbox, message, item)
}

#[test]
fn shells_complete_agents_and_ids_and_run_no_code_in_their_descriptions() {
    let (sandbox, message, item) = hostile();
    if let Some(found) = bash(&sandbox, "dormouse tick ad") {
        assert_eq!(found, ["ada", "adamant"]);
        assert_eq!(bash(&sandbox, "dormouse queue drop msg_").unwrap(), [message.as_str()]);
        assert_eq!(bash(&sandbox, "dormouse list --posture wait").unwrap().len(), 3);
        let states = bash(&sandbox, "dormouse state ada --can run").unwrap();
        assert_eq!(states, ["runnable", "running"]);
        let names = bash(&sandbox, "dormouse create ad").unwrap();
        assert_eq!(names, [""; 1], "`create` takes no name of an existing agent");
    }
    if let Some(found) = fish(&sandbox, "dormouse tick ad") {
        assert_eq!(found, ["ada", "adamant"]);
        let found = fish(&sandbox, "dormouse work show wo").unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{item}\t$(touch pwned)")), "{found:?}");
        assert!(!found[0].contains('\u{1b}'));
        assert!(fish(&sandbox, "dormouse qu").unwrap()[0].starts_with("queue\t"));
    }
    if let Some(found) = zsh(&sandbox, "dormouse tick ad") {
        assert_eq!(found, ["ada", "adamant"]);
        let found = zsh(&sandbox, "dormouse queue show msg_").unwrap();
        assert!(found.len() == 1 && found[0].starts_with(&format!("{message}:$(touch pwned)")), "{found:?}");
    }
    assert!(!sandbox.project().join("pwned").exists() && !sandbox.home().join("pwned").exists());
}

#[test]
fn bash_lists_ids_with_descriptions_and_inserts_them_without() {
    let (sandbox, message, _) = hostile();
    let other = sandbox.run(["enqueue", "ada", "fix it"]).trim_end().to_owned();
    let line = "dormouse queue show msg_";
    let Some(listed) = bash_at(&sandbox, line, "63") else { return };
    assert!(listed.iter().any(|line| *line == format!("{other}  (fix it)")), "{listed:?}");
    assert!(listed.iter().any(|line| line.starts_with(&format!("{message}  ($(touch pwned)"))), "{listed:?}");
    let mut inserted = bash(&sandbox, line).unwrap();
    inserted.sort();
    assert_eq!(inserted, [message.as_str(), &other]);
    // Bash inserts the only completion also when it was asked for a list.
    assert_eq!(bash_at(&sandbox, &format!("dormouse queue show {message}"), "63").unwrap(), [message]);
    assert!(!sandbox.project().join("pwned").exists());
}

/// Asks the program, as the completion function of bash does, to complete the word at `index`.
fn asked_at(sandbox: &Sandbox, line: &str, index: usize) -> String {
    let cmd = sandbox.cmd(["--"].into_iter().chain(line.split(' '))).env("DORMOUSE_COMPLETE", "bash");
    let ran = cmd.env("_CLAP_COMPLETE_INDEX", index.to_string()).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran}");
    ran.stdout
}

/// Asks the program to complete the last word.
fn asked(sandbox: &Sandbox, line: &str) -> String {
    asked_at(sandbox, line, line.split(' ').count() - 1)
}

#[test]
fn ids_are_those_of_the_agent_and_the_directory_that_the_line_names() {
    let sandbox = started("true");
    sandbox.run(["create", "bob", "--", "true"]);
    let of = |agent: &str| sandbox.run(["work", "add", "-a", agent, "x"]).trim_end().to_owned();
    let (ada, bob) = (of("ada"), of("bob"));
    assert_eq!(asked(&sandbox, "dormouse work show -a bob work_"), bob);
    assert_eq!(asked(&sandbox, "dormouse work show --agent=ada work_"), ada);
    assert_eq!(asked(&sandbox, "dormouse work show work_").lines().count(), 2);
    let elsewhere = Sandbox::empty();
    assert_eq!(asked(&elsewhere, "dormouse tick a"), "");
    let line = format!("dormouse -C {} tick b", sandbox.project().display());
    assert_eq!(asked(&elsewhere, &line), "bob");
    // The damaged records of `ada` do not prevent the completions of `bob`.
    fs::write(sandbox.agent("ada").join("state.json"), "{").unwrap();
    assert_eq!(asked(&sandbox, "dormouse work show work_"), bob);
    // An unknown shell or an empty command line is a usage error.
    for (shell, words) in [("tcsh", vec!["--", "dormouse", ""]), ("bash", vec![]), ("fish", vec!["--"])] {
        sandbox.cmd(words).env("DORMOUSE_COMPLETE", shell).output().printed(2, "");
    }
}

/// Returns the completions of the last word of a line.
fn proposed(sandbox: &Sandbox, line: &str) -> Vec<String> {
    asked(sandbox, line).lines().map(str::to_owned).collect()
}

#[test]
fn known_values_of_each_argument_are_proposed() {
    let sandbox = started_with("exit 3", "[recovery]\nmax_attempts = 1\n");
    let id = |line: &[&str]| sandbox.run(line.to_vec()).lines().next().unwrap().to_owned();
    let dead = id(&["enqueue", "ada", "fails"]);
    sandbox.cmd(["tick", "ada"]).output();
    let queued = id(&["enqueue", "ada", "waits"]);
    let done = id(&["work", "add", "ada", "done"]);
    sandbox.run(["work", "complete", done.as_str()]);
    let open = id(&["work", "add", "ada", "open"]);
    let id_in = |line: &str| sandbox.json(words(line))["id"].as_str().unwrap().to_owned();
    let wait = id_in("wait ada --on operator --reason why");
    let trigger = id_in("trigger create ada");
    let own = sandbox.json_lines(["trigger", "list", "ada"])[0]["id"].as_str().unwrap().to_owned();
    let run = id_in("run show latest ada");
    for (line, expected) in [
        ("events ada --kind message_re", vec!["message_rejected", "message_requeued"]),
        ("events ada --kind=run_s", vec!["--kind=run_settled"]),
        ("queue requeue msg_", vec![dead.as_str()]),
        ("queue drop msg_", vec![&queued, &dead]),
        ("queue show msg_", vec![&queued, &dead]),
        ("await ada --message ", vec!["latest", &queued]),
        ("run show l", vec!["latest"]),
        ("queue requeue l", vec!["latest"]),
        ("task output l", vec!["latest"]),
        ("timer cancel l", vec!["latest"]),
        ("trigger revoke l", vec!["latest"]),
        ("run show run_", vec![&run]),
        ("work show work_", vec![&open, &done]),
        ("work pick work_", vec![&open]),
        ("enqueue ada --work-item ", vec!["latest", &open]),
        ("enqueue ada --wait ", vec!["latest", &wait]),
        ("trigger create ada --wait ", vec!["latest", &wait]),
        ("wait cancel w", vec![&wait]),
        ("wake ada --trigger ", vec!["latest", &own, &trigger]),
        ("wait ada --trigger ", vec!["latest", &own, &trigger]),
    ] {
        let found = proposed(&sandbox, &format!("dormouse {line}"));
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn ids_are_those_of_the_agent_that_the_line_names_as_an_argument() {
    let sandbox = started("true");
    for number in 0..40 {
        fs::create_dir(sandbox.agent(&format!("empty-{number}"))).unwrap();
    }
    let item = sandbox.run(["work", "add", "ada", "x"]).trim_end().to_owned();
    // With 41 agents the program reads the records only of an agent that the line names.
    assert_eq!(proposed(&sandbox, "dormouse work show work_"), Vec::<String>::new());
    for line in ["work show -a ada work_", "enqueue ada --work-item work_", "-C . ask ada --work-item work_"]
    {
        assert_eq!(proposed(&sandbox, &format!("dormouse {line}")), [item.as_str()], "{line}");
    }
    // The agent may come after the word to complete.
    assert_eq!(asked_at(&sandbox, "dormouse work show work_ ada", 3), item);
}

#[test]
fn ten_thousand_agents_are_listed_without_a_look_into_their_directories() {
    needs!("strace");
    let sandbox = started("true");
    for number in 0..10_000 {
        fs::create_dir(sandbox.agent(&format!("agent-{number}"))).unwrap();
    }
    assert_eq!(asked(&sandbox, "dormouse tick agent-999").lines().count(), 11);
    // Every shell gets one completion per agent, also for the value of an option.
    assert_eq!(asked(&sandbox, "dormouse tick a").lines().count(), 10_001);
    let with_flag = asked(&sandbox, "dormouse queue list --agent=agent-12");
    assert_eq!(with_flag.lines().filter(|line| line.starts_with("--agent=agent-12")).count(), 111);
    for shell in [bash, zsh, fish] {
        assert!(shell(&sandbox, "dormouse tick agent-12").is_none_or(|found| found.len() == 111));
    }
    // `strace` shows that the program opens no directory of an agent that does not match.
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
