//! Tests that the shell blocks of every page can be pasted from top to bottom into an interactive
//! shell.
//!
//! The commands are typed on a pseudo-terminal, in bash and in zsh: at the pace of a person, who
//! waits for the prompt, and all at once. Each command must end with status 0, and the shell must
//! stay in its first directory. If a page shows a line `exit status N`, the shell must print that
//! line.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::docs::{Typed, blocks, documents, read, root};
use crate::harness::{Sandbox, dormouse};
use crate::server::server;
use crate::setup::eventually;
use crate::watching::terminal::Terminal;

/// Commands that these tests do not type: the page, the beginning of the command, and the reason.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("README.md", "cargo install", "compiles for minutes"),
    ("README.md", "sh examples/quickstart.sh", "run by `examples::quickstart`"),
    ("README.md", "cargo test", "runs these tests"),
    ("docs/OPERATION.md", "sh examples/", "run by `examples`"),
    ("docs/PERFORMANCE.md", "cargo bench", "measures for minutes"),
    ("docs/PERFORMANCE.md", "DORMOUSE_BENCH_", "measures for minutes"),
    ("examples/container/README.md", "cp ", "needs docker"),
    ("examples/container/README.md", "docker ", "needs docker"),
    ("examples/fleet/README.md", "cp ", "needs docker"),
    ("examples/fleet/README.md", "openssl ", "needs docker"),
    ("examples/fleet/README.md", "docker ", "needs docker"),
];

/// First and second prompt (`PS1`, `PS2`) of the shell. No page contains them.
const PROMPTS: [&str; 2] = ["@ready@ ", "@more@ "];

#[derive(Clone, Copy, Debug)]
enum Pace {
    Person,
    Machine,
}

/// Returns the commands of a page that are typed. Scripts in `examples/` are replaced by a check
/// that they are executable, because the tests in `examples` run them.
fn typed(page: &str) -> Vec<Typed> {
    let text = read(page);
    let blocks =
        blocks(&text).into_iter().filter(|block| ["console", "sh"].contains(&block.language.as_str()));
    let is_run = |typed: &Typed| {
        !LEFT_OUT.iter().any(|(on, begins, _)| *on == page && typed.command.starts_with(begins))
    };
    let looked_for = |mut typed: Typed| {
        if let Some(script) = typed.command.split(' ').next().filter(|word| word.starts_with("examples/")) {
            typed.command = format!("test -x {script}");
        }
        typed
    };
    blocks.flat_map(|block| block.commands()).filter(is_run).map(looked_for).collect()
}

fn pages() -> Vec<String> {
    let is_page =
        |path: &String| path == "README.md" || ["docs/", "examples/"].iter().any(|dir| path.starts_with(dir));
    documents().into_iter().filter(is_page).collect()
}

/// Sandbox of a new user: an empty project, and a home with a git identity and the test's prompts.
fn beginning() -> Sandbox {
    let sandbox = Sandbox::empty().with_real_clock();
    fs::write(sandbox.home().join(".gitconfig"), "[user]\nname = Kim\nemail = kim@example.com\n").unwrap();
    let hook = "echo \"$? $PWD\" >> ~/prompts";
    let prompts = format!("PS1='{}' PS2='{}'\n", PROMPTS[0], PROMPTS[1]);
    fs::write(sandbox.home().join(".bashrc"), format!("PROMPT_COMMAND='{hook}'\n{prompts}")).unwrap();
    fs::write(sandbox.home().join(".zshrc"), format!("precmd() {{ {hook} }}\n{prompts}")).unwrap();
    symlink(root().join("examples"), sandbox.project().join("examples")).unwrap();
    sandbox
}

/// Returns the URL of a schema in a database that has the roles of docs/FLEET.md.
fn database(schema: &str) -> String {
    for role in ["worker", "ci", "board"] {
        let create = format!(
            "CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;"
        );
        server().sql(&format!("DO $$ BEGIN {create} END $$"));
    }
    server().url(schema)
}

/// Types the commands of a page into a shell, and returns the faults.
fn paste(page: &str, shell: &str, pace: Pace) -> Vec<String> {
    let typed = typed(page);
    if typed.is_empty() {
        return Vec::new();
    }
    let sandbox = beginning();
    let own = dormouse();
    let path = format!("{}:{}", own.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut env = vec![("PATH", path.as_str()), ("DORMOUSE", own.to_str().unwrap())];
    let store;
    if page == "docs/FLEET.md" {
        needs!("postgresql"; Vec::new());
        store = database(&format!("pasting_{shell}_{pace:?}").to_lowercase());
        env.push(("STORE", &store));
    }
    let mut terminal = Terminal::of_program(&sandbox, "env", &[shell, "-i"], &env, 1000, 24);
    let prompts = || fs::read_to_string(sandbox.home().join("prompts")).unwrap_or_default();
    let until_prompt = |number: usize| {
        eventually("the prompt", || (prompts().lines().count() > number).then_some(()));
    };
    until_prompt(0);
    match pace {
        Pace::Machine => {
            let all: Vec<&str> = typed.iter().map(|typed| typed.command.as_str()).collect();
            terminal.press(&(all.join("\n") + "\n"));
            until_prompt(typed.len());
        }
        Pace::Person => {
            for (number, typed) in typed.iter().enumerate() {
                let mut lines = typed.command.lines().peekable();
                while let Some(line) = lines.next() {
                    let before = terminal.written().matches(PROMPTS[1]).count();
                    terminal.press(&format!("{line}\n"));
                    if lines.peek().is_some() {
                        let is_asked = || terminal.written().matches(PROMPTS[1]).count() > before;
                        eventually("the second prompt", || is_asked().then_some(()));
                    }
                }
                until_prompt(number + 1);
            }
        }
    }
    let (prompts, written) = (prompts(), terminal.written().replace(['\r', '\x1b'], ""));
    let here = sandbox.project();
    let mut wrong = Vec::new();
    for (line, typed) in prompts.lines().skip(1).zip(&typed) {
        let (status, dir) = line.split_once(' ').unwrap();
        if status != "0" || Path::new(dir) != here {
            wrong.push(format!("{page}: {shell}: status {status} in {dir}: {}", typed.command));
        }
    }
    let is_status = |line: &&str| line.strip_prefix("exit status ").is_some_and(|n| n.parse::<u8>().is_ok());
    let shown = typed.iter().flat_map(|typed| typed.shown.iter().map(String::as_str)).filter(is_status);
    // The shell ends bracketed paste by an escape sequence, which can precede a line.
    let lines = written.lines().map(|line| line.trim_start_matches("[?2004l"));
    let found: Vec<&str> = lines.filter(is_status).collect();
    let shown: Vec<&str> = shown.collect();
    if shown != found {
        wrong.push(format!("{page}: {shell}: shown {shown:?}, found {found:?}"));
    }
    if !wrong.is_empty() {
        wrong.push(written);
    }
    wrong
}

#[track_caller]
fn every_page(shell: &str, pace: Pace) {
    let wrong: Vec<String> = pages().iter().flat_map(|page| paste(page, shell, pace)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_of_every_page_can_be_pasted_into_bash_line_by_line() {
    needs!("jq");
    every_page("bash", Pace::Person);
}

#[test]
fn commands_of_every_page_can_be_pasted_into_bash_at_once() {
    needs!("jq");
    every_page("bash", Pace::Machine);
}

#[test]
fn commands_of_every_page_can_be_pasted_into_zsh_line_by_line() {
    needs!("jq", "zsh");
    every_page("zsh", Pace::Person);
}

#[test]
fn commands_of_every_page_can_be_pasted_into_zsh_at_once() {
    needs!("jq", "zsh");
    every_page("zsh", Pace::Machine);
}

/// Checks that each entry of [`LEFT_OUT`] is the beginning of a command on its page.
#[test]
fn each_command_that_the_paste_tests_omit_is_on_its_page() {
    for (page, begins, reason) in LEFT_OUT {
        let text = read(page);
        let mut commands = blocks(&text).into_iter().flat_map(|block| block.commands());
        assert!(commands.any(|typed| typed.command.starts_with(begins)), "{page}: `{begins}` ({reason})");
    }
}
