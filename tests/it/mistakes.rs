//! Tests the answers to mistakes of new users. Each answer names the solution, and no mistake
//! changes the state directory.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

use crate::harness::{Cmd, Sandbox, dormouse, each_in_parallel};
use crate::setup::{changes, started, tree};
use crate::sharing::{OWNER, STRANGER, mode, unshared};

/// Wrong command of a user, and the answer of the program.
struct Mistake {
    /// Shell script that prepares the state directory. `$IT` is the last line of its output.
    before: &'static str,
    /// The command as a user writes it in a shell.
    line: &'static str,
    status: i32,
    /// The part of the answer that tells the user what to do.
    cure: &'static str,
}

const fn wrong(line: &'static str, status: i32, cure: &'static str) -> Mistake {
    Mistake { before: "", line, status, cure }
}

const fn after(before: &'static str, line: &'static str, status: i32, cure: &'static str) -> Mistake {
    Mistake { before, line, status, cure }
}

/// Returns a command that runs a shell script, in which `dormouse` is the program under test.
fn shell<'s>(sandbox: &'s Sandbox, flag: &str, script: &str) -> Cmd<'s> {
    let script = format!("A=.dormouse/agents/ada\ndormouse() {{ \"$D\" $FLAG \"$@\"; }}\n{script}");
    sandbox
        .program("sh", vec!["-c".into(), script.into()])
        .env("D", dormouse())
        .env("FLAG", flag)
        .env("NO_COLOR", "1")
}

/// Returns the message and the hint of each failure in an answer, and the text of all other
/// objects.
fn words_of_json(stdout: &str) -> String {
    let said = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        match value.get("error") {
            Some(error) => {
                [&error["message"], &error["hint"]].map(|word| word.as_str().unwrap_or("")).join("\n")
            }
            None => value.to_string(),
        }
    };
    stdout.lines().map(said).collect::<Vec<_>>().join("\n")
}

/// Makes the mistake, once with text and once with JSON. Returns what is wrong with the answer.
fn make(mistake: &Mistake, template: &Sandbox) -> Option<String> {
    let Mistake { before, line, status, cure } = mistake;
    let sandbox = template.copy();
    let prepared = shell(&sandbox, "", &format!("set -e\n{before}")).exits(0);
    let it = prepared.stdout.lines().last().unwrap_or_default();
    for flag in ["", "--json"] {
        let files = tree(&sandbox.project());
        let ran = shell(&sandbox, flag, line).env("IT", it).output();
        let mut changed = changes(&files, &tree(&sandbox.project()));
        // A lock file changes, because it names its last holder.
        changed.retain(|path| !path.ends_with("lock") && !path.ends_with("run.lock"));
        let said = match flag {
            "" => format!("{}{}", ran.stdout, ran.stderr),
            _ if *status == 0 => continue,
            _ => words_of_json(&ran.stdout),
        };
        // A successful command may change records.
        let changed = if *status == 0 { Vec::new() } else { changed };
        if !changed.is_empty() || ran.code() != *status || !said.contains(cure) {
            return Some(format!(
                "{line} {flag}\nlacks `{cure}`, or has a wrong status, or changes {changed:?}: {ran}"
            ));
        }
    }
    None
}

#[test]
fn every_mistake_is_answered_with_its_solution() {
    let template = started("true");
    let wrong = Mutex::new(Vec::new());
    each_in_parallel(MISTAKES, |mistake| wrong.lock().unwrap().extend(make(mistake, &template)));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), MISTAKES.len(), wrong.join("\n"));
}

/// Preparation: writes an unknown key into the policy.
const WRONG_KEY: &str = "echo 'shel = true' >> $A/agent.toml";

/// Preparation: processes a message, and prints its id.
const PROCESSED: &str = "dormouse enqueue ada hello > id; dormouse tick ada > /dev/null; cat id";

const MISTAKES: &[Mistake] = &[
    // Names of commands that other programs have
    wrong("dormouse status", 2, "`dormouse list` shows all agents"),
    wrong("dormouse ps", 2, "`dormouse run list` shows turns"),
    wrong("dormouse ls", 2, "`dormouse list` shows all agents"),
    wrong("dormouse agents", 2, "`dormouse list` shows all agents"),
    wrong("dormouse show ada", 2, "`dormouse get AGENT` shows an agent"),
    wrong("dormouse describe ada", 2, "`dormouse get AGENT` shows an agent"),
    wrong("dormouse send ada hello", 2, "`dormouse enqueue AGENT TEXT` sends a message"),
    wrong("dormouse say ada hello", 2, "`dormouse enqueue AGENT TEXT` sends a message"),
    wrong("dormouse message ada hello", 2, "`dormouse enqueue AGENT TEXT` sends a message"),
    wrong("dormouse add bob", 2, "`dormouse create AGENT` makes an agent"),
    wrong("dormouse new bob", 2, "`dormouse create AGENT` makes an agent"),
    wrong("dormouse delete ada", 2, "`dormouse rm AGENT` deletes an agent"),
    wrong("dormouse destroy ada", 2, "`dormouse rm AGENT` deletes an agent"),
    wrong("dormouse kill ada", 2, "`dormouse stop AGENT --now` stops the agent"),
    wrong("dormouse cancel ada", 2, "`dormouse queue drop ID` drops a message"),
    wrong("dormouse retry ada", 2, "`dormouse recover AGENT` retries now"),
    wrong("dormouse requeue ada", 2, "`dormouse queue requeue ID` a dead letter"),
    wrong("dormouse set ada timeout 10m", 2, "`dormouse edit AGENT` changes the command"),
    wrong("dormouse config ada", 2, "`dormouse edit AGENT` changes the command"),
    wrong("dormouse update ada", 2, "`dormouse edit AGENT` changes the command"),
    wrong("dormouse unlock ada", 2, "`dormouse recover AGENT` settles an interrupted turn"),
    wrong("dormouse version", 2, "`dormouse --version`"),
    wrong("dormouse tail ada", 2, "`dormouse logs -f AGENT`"),
    wrong("dormouse restart ada", 2, "`dormouse stop AGENT && dormouse start AGENT`"),
    wrong("dormouse unpause ada", 2, "`dormouse start AGENT` starts a stopped agent"),
    wrong("dormouse log ada", 2, "`dormouse logs AGENT`"),
    wrong("dormouse history ada", 2, "`dormouse events AGENT`"),
    wrong("dormouse run ada", 2, "`dormouse tick AGENT` runs a step"),
    wrong("dormouse exec ada", 2, "`dormouse tick AGENT` runs a step"),
    wrong("dormouse schedule ada", 2, "`dormouse timer add`"),
    wrong("dormouse daemon", 2, "`dormouse service`"),
    wrong("dormouse lits", 2, "list"),
    wrong("dormouse enqeue ada hello", 2, "enqueue"),
    wrong("dormouse queue ls ada", 2, "`dormouse queue` has the commands list, show"),
    wrong("dormouse queue delete msg_1", 2, "requeue, drop"),
    wrong("dormouse timer delete timer_1", 2, "`dormouse timer` has the commands add, list, cancel"),
    wrong("dormouse task kill task_1", 2, "`dormouse task` has the commands start"),
    wrong("dormouse work done work_1", 2, "`dormouse work` has the commands add"),
    wrong("dormouse list ada", 2, "`dormouse get NAME` shows one agent"),
    wrong("dormouse tick ada --untill-idle", 2, "--until-idle"),
    // Words in the wrong order, and commands before those that they need
    wrong("dormouse enqueue 'hello world' ada", 2, "the agent's name comes first, and has no spaces"),
    wrong("dormouse enqueue hello ada", 3, "there is ada"),
    wrong("dormouse ask 'what is open?' ada", 2, "the agent's name comes first, and has no spaces"),
    wrong("dormouse enqueue --agent ada hello", 2, "name the agent as a word: `dormouse enqueue AGENT"),
    wrong("dormouse tick -a ada", 2, "name the agent as a word: `dormouse tick AGENT"),
    wrong("dormouse enqueue ada -- hello --priority next", 2, "options come before `--`"),
    wrong("dormouse enqueue ada hello -- --json", 2, "options come before `--`"),
    wrong("dormouse create bob true", 2, "put the turn command after `--`"),
    wrong("dormouse create bob --shell echo hello", 2, "put the line in quotes"),
    wrong("dormouse create bob --shell true -- true", 2, "--shell"),
    after("rm -r .dormouse", "dormouse enqueue ada hello", 3, "`dormouse init`"),
    after("rm -r .dormouse", "dormouse list", 3, "`dormouse init`"),
    after("rm -r .dormouse", "dormouse tick --all", 3, "`dormouse init`"),
    after("rm -r $A", "dormouse enqueue ada hello", 3, "`dormouse create`"),
    after("dormouse create bob -- true", "dormouse tick bob", 0, "`dormouse start bob`"),
    after("dormouse create bob -- true", "dormouse ask bob hello", 4, "`dormouse start bob`"),
    after("dormouse stop ada", "dormouse ask ada hello", 4, "`dormouse start ada`"),
    wrong("dormouse tick", 2, "<AGENT>"),
    wrong("dormouse wait --on external --reason why", 2, "name it as a word or with --agent"),
    wrong("dormouse yield", 4, "call it from the turn command"),
    wrong("dormouse safe-point", 4, "call it from the turn command"),
    wrong("dormouse checkpoint notes", 4, "call it from the turn command"),
    wrong("dormouse work add fix", 2, "name it as a word or with --agent"),
    wrong("dormouse resume ada", 4, "`dormouse tick ada` runs its next step"),
    wrong("dormouse recover ada", 4, "`dormouse tick ada` runs its next step"),
    wrong("dormouse recover ada", 4, "`ada` has nothing to recover"),
    wrong("dormouse await ada", 2, "--posture <POSTURE>"),
    // Texts without the necessary quotes
    wrong("dormouse enqueue ada hello world", 2, "put a text of several words in quotes"),
    wrong("dormouse ask ada what is open", 2, "put a text of several words in quotes"),
    wrong("dormouse enqueue ada ''", 4, "--allow-empty"),
    wrong("dormouse enqueue ada '   '", 4, "--allow-empty"),
    wrong("dormouse enqueue ada", 2, "give the text, `-` for stdin"),
    wrong("dormouse enqueue ada '- buy milk'", 2, "put `--` before a text that begins with `-`"),
    wrong("dormouse enqueue ada -hello", 2, "put `--` before a text that begins with `-`"),
    wrong("dormouse ask ada --verbosely", 2, "--verbose"),
    wrong("dormouse enqueue ada --body-json \"{'a': 1}\"", 2, "JSON needs double quotes"),
    wrong("dormouse enqueue ada --body-json hello", 2, "leave out --body-json"),
    wrong("dormouse enqueue ada --body-json '{\"a\": 1' ", 2, "leave out --body-json"),
    wrong("dormouse enqueue ada @notes.txt", 1, "`@FILE` is the text in a file"),
    wrong("printf '\\377' | dormouse enqueue ada -", 2, "encode other data"),
    wrong("echo hello | dormouse enqueue ada --batch", 2, "line 1"),
    wrong("dormouse tick ada,bob", 2, "is not an agent name"),
    // Agents, records, files and programs that do not exist
    wrong("dormouse -C nowhere list", 3, "correct --dir or DORMOUSE_DIR, or make it with `dormouse init /"),
    wrong(
        "DORMOUSE_DIR=nowhere dormouse list",
        3,
        "correct --dir or DORMOUSE_DIR, or make it with `dormouse init /",
    ),
    wrong("dormouse -C / list", 3, "`dormouse init"),
    wrong("dormouse get adda", 3, "did you mean `ada`?"),
    wrong("dormouse stop zoe", 3, "there is ada"),
    wrong("dormouse queue show msg_1234", 3, "`dormouse queue list` shows the ids"),
    wrong("dormouse queue requeue msg_1234", 3, "`dormouse queue dead` shows the ids"),
    wrong("dormouse queue requeue ada", 2, "`dormouse queue dead ada` shows the ids"),
    wrong("dormouse queue drop 12", 2, "at least four digits"),
    wrong("dormouse queue show ada", 2, "`dormouse queue list ada` shows the ids"),
    wrong("dormouse await ada --message msg_1234", 3, "`dormouse queue list` shows the ids"),
    wrong("dormouse run show run_1234", 3, "`dormouse run list` shows the ids"),
    wrong("dormouse run show latest -a ada", 3, "`dormouse run list` shows the ids"),
    wrong("dormouse work show work_1234", 3, "`dormouse work list` shows the ids"),
    wrong("dormouse wait cancel wait_1234", 3, "`dormouse wait list` shows the ids"),
    wrong("dormouse timer cancel timer_1234", 3, "`dormouse timer list` shows the ids"),
    wrong("dormouse task stop task_1234", 3, "`dormouse task list` shows the ids"),
    wrong("dormouse trigger revoke trig_1234", 3, "`dormouse trigger list` shows the ids"),
    wrong("dormouse get ada queue.lenght", 2, "pending"),
    wrong("dormouse man tikc", 3, "`dormouse --help` lists the commands"),
    wrong("dormouse create bob --from bob.toml", 1, "bob.toml: no such file"),
    wrong("dormouse import ada.tar", 1, "ada.tar: no such file"),
    wrong("dormouse check-outcome outcome.json", 1, "outcome.json: no such file"),
    wrong("EDITOR=no-such-editor dormouse edit ada", 1, "set VISUAL or EDITOR"),
    wrong("dormouse edit ada", 2, "set VISUAL or EDITOR"),
    wrong("PATH=/nowhere dormouse sync", 1, "install git"),
    wrong("dormouse sync", 1, "`git init`"),
    after(
        "dormouse trigger list ada --json | sed 's/.*\"\\(trig_[0-9a-f]*\\)\".*/\\1/'",
        "dormouse trigger deliver $IT --secret-file secret hello",
        1,
        "can't read secret: no such file",
    ),
    after(
        "echo wrong > secret; dormouse trigger list ada --json | sed 's/.*\"\\(trig_[0-9a-f]*\\)\".*/\\1/'",
        "dormouse trigger deliver $IT --secret-file secret hello",
        4,
        "`dormouse trigger rotate`",
    ),
    // Wrong durations, times, numbers and other values
    wrong("dormouse enqueue ada --in 10 hello", 2, "write 500ms, 90s, 10m, 1h30m or 2d"),
    wrong("dormouse enqueue ada --in 'ten minutes' hello", 2, "write 500ms, 90s, 10m, 1h30m or 2d"),
    wrong("dormouse enqueue ada --in=-5m hello", 2, "write 500ms, 90s, 10m, 1h30m or 2d"),
    wrong("dormouse gc --keep 5", 2, "write 500ms, 90s, 10m, 1h30m or 2d"),
    wrong("dormouse enqueue ada --at 2020-01-01 hello", 4, "--past-ok"),
    wrong(
        "dormouse enqueue ada --at '2026-02-32 10:00' hello",
        2,
        "a local date and time (2026-01-31 09:00)",
    ),
    wrong("dormouse enqueue ada --at 25:00 hello", 2, "a local date and time (2026-01-31 09:00)"),
    wrong("dormouse events ada --since long ago", 2, "words (tomorrow 9:00"),
    wrong("dormouse timer add ada --cron '0 0 9 * * *' hello", 2, "--seconds"),
    wrong("dormouse timer add ada --cron '0 9 * *' hello", 2, "five fields: minute hour day month weekday"),
    wrong(
        "dormouse timer add ada --cron '0 25 * * *' hello",
        2,
        "`25` is not a valid hour: write a number from 0 to 23",
    ),
    wrong("dormouse timer add ada --cron '0 9 * * *' --tz Mars hello", 2, "Europe/Berlin"),
    wrong("dormouse timer add ada --every 0s hello", 2, "the shortest is 1s"),
    wrong("dormouse timer add ada hello", 2, "--in <DURATION>"),
    wrong("dormouse enqueue ada --priority high hello", 2, "interject, next, normal, background"),
    wrong("dormouse enqueue ada --origin human hello", 2, "unknown origin `human`: expected one of operator"),
    wrong("dormouse enqueue ada --kind mail hello", 2, "operator_prompt"),
    wrong("dormouse tick ada --jobs 0", 2, "--jobs"),
    wrong("dormouse list --posture sleepy", 2, "[possible values: stopped, active_turn"),
    wrong("DORMOUSE_NOW=today dormouse list", 2, "DORMOUSE_NOW"),
    wrong("dormouse create two/words -- true", 2, "a-z 0-9 . _ -"),
    wrong("dormouse create 'two words' -- true", 2, "a-z 0-9 . _ -"),
    wrong("dormouse create Bob -- true", 2, "a-z 0-9 . _ -"),
    wrong("dormouse create .. -- true", 2, "no `..`"),
    wrong("dormouse rename ada Bob", 2, "a-z 0-9 . _ -"),
    wrong("dormouse explain ada bob", 2, "name one agent"),
    wrong("dormouse stop ada --all", 2, "--all"),
    wrong("dormouse queue list ada -a bob", 2, "name the agent once"),
    wrong("dormouse list --jsno", 2, "--json"),
    wrong("dormouse schema massage", 2, "message"),
    // Errors in files that a user or another program has written
    after(WRONG_KEY, "dormouse tick ada", 6, "`dormouse edit ada`"),
    after(WRONG_KEY, "dormouse doctor", 6, "correct it with `dormouse edit ada`"),
    after(WRONG_KEY, "dormouse clone ada bob", 6, "`dormouse edit ada`"),
    after(WRONG_KEY, "dormouse start ada", 6, "expected one of `command`, `shell`"),
    after("echo 'timeout = 10' > $A/agent.toml", "dormouse tick ada", 6, "`timeouts`"),
    after(
        "printf '[timeouts]\\nhook = \"10\"\\n' >> $A/agent.toml",
        "dormouse tick ada",
        6,
        "agent.toml:8:8: `10` is not a duration: write",
    ),
    after(
        "printf '[recovery]\\nmax_attempts = \"3\"\\n' >> $A/agent.toml",
        "dormouse tick ada",
        6,
        "agent.toml:8:16",
    ),
    after("echo '[turn' >> $A/agent.toml", "dormouse enqueue ada hello", 6, "agent.toml:7:6"),
    after("echo 'durabilty = 1' >> .dormouse/dormouse.toml", "dormouse list", 6, "edit this file"),
    after("echo '[retention]\nruns = 5' >> .dormouse/dormouse.toml", "dormouse list", 6, "edit this file"),
    after("echo '{' > $A/state.json", "dormouse tick ada", 6, "restore it from git, a backup or an export"),
    after("echo done > outcome.json", "dormouse check-outcome outcome.json", 6, "not JSON"),
    after(
        "echo '{\"acts\": []}' > outcome.json",
        "dormouse check-outcome outcome.json",
        6,
        "`dormouse schema outcome`",
    ),
    after("echo hello > ada.tar", "dormouse import ada.tar", 4, "`dormouse export NAME` writes one"),
    after("echo hello > file", "dormouse init file", 1, "file/.dormouse: not a directory"),
    wrong("dormouse report -o nowhere/report.html", 1, "nowhere/report.html: no such file or directory"),
    // Commands that the records or the machine do not allow now
    wrong("dormouse create ada -- true", 4, "`dormouse get ada`, or change it with `dormouse edit ada`"),
    after("dormouse create bob -- true", "dormouse rename ada bob", 4, "`dormouse get bob`"),
    after("dormouse create bob -- true", "dormouse clone ada bob", 4, "`dormouse get bob`"),
    after("dormouse create bob 2>/dev/null", "dormouse start bob", 4, "command = [\"./turn.sh\"]"),
    after("dormouse enqueue ada hello", "dormouse queue requeue $IT", 4, "is still in the queue"),
    after(PROCESSED, "dormouse queue requeue $IT", 4, "enqueue it again"),
    after(PROCESSED, "dormouse queue drop $IT", 4, "is processed"),
    wrong(
        "flock $A/lock $D $FLAG stop ada --lock-timeout 10ms",
        5,
        "try again, or wait longer with --lock-timeout",
    ),
    wrong("(ulimit -f 0; dormouse create bob -- true)", 1, "`ulimit -f`"),
    // Arguments that are wrong whatever the records contain: the exit status is 2
    wrong("dormouse wait ada --on timer --reason why", 2, "--in or --at"),
    wrong("dormouse wait ada --on task --reason why", 2, "--resource"),
    wrong("dormouse wait ada --on system --reason why", 2, "--recheck"),
    wrong("dormouse wait ada --on external --reason ''", 2, "the reason is empty"),
    wrong("dormouse wait ada --on external --in 1h --reason why", 2, "of kind `timer`"),
    wrong("dormouse wait ada --on operator --source ci --reason why", 2, "of kind `external` or `system`"),
    wrong("dormouse wait ada --on external --recheck 0s --reason why", 2, "the shortest is 1s"),
    wrong("dormouse wait ada --on rain --reason why", 2, "operator, task, external, timer, system"),
    wrong("dormouse work add ada ''", 2, "say what is to be done"),
    wrong("dormouse work add ada fix --recheck 1h", 2, "--blocked-by"),
    wrong("dormouse timer add ada --in 1h --name '' hello", 2, "1 to 100 bytes"),
    wrong("dormouse timer add ada --in 1h --catch-up once --grace 1m hello", 2, "--catch-up skip"),
    wrong("dormouse timer add ada --in 1h --every 1h hello", 2, "--every"),
    wrong("dormouse trigger create ada --resource ''", 2, "the resource of a trigger is blank"),
    wrong("dormouse trigger create ada --verify md5", 2, "hmac_sha256"),
    wrong("dormouse fail ada --reason ''", 2, "say why the attempt has failed"),
    wrong("dormouse create bob --shell ''", 2, "--shell: the line is empty"),
    wrong("dormouse create bob -- ''", 2, "the name of the program is empty"),
    wrong("dormouse create bob --profile night -- true", 2, "[profiles.night] into dormouse.toml"),
    wrong("dormouse rename ada ada", 2, "`ada` is its name already"),
    wrong("dormouse export ada --move ''", 2, "--move"),
    wrong("dormouse init postgres://localhost/x --grant boss=ada", 2, "`ticker`, `producer` or `reader`"),
    wrong("dormouse tick ada --max-steps 5", 2, "--until-idle"),
    wrong("dormouse tick ada --follow --dry-run", 2, "--dry-run"),
    wrong("dormouse enqueue ada --batch hello", 2, "--batch"),
    wrong("dormouse enqueue ada hello --in 1h --at 10:00", 2, "--at"),
    wrong("dormouse enqueue ada hello --timeout 1m", 2, "--await"),
    wrong("dormouse enqueue ada hello --past-ok", 2, "--at"),
    wrong("dormouse state ada --can sleeping", 2, "runnable"),
    wrong("dormouse list --columns name", 2, "posture"),
    wrong("dormouse events ada --kind error", 2, "attention"),
    wrong("dormouse --lock-timeout never list", 2, "write 500ms, 90s, 10m, 1h30m or 2d"),
    wrong("dormouse list -q -v", 2, "--verbose"),
    wrong("dormouse completions tcsh", 2, "bash, zsh, fish"),
    wrong("dormouse completions", 2, "<SHELL>"),
    wrong("dormouse schema party", 2, "wake_hint"),
    wrong("dormouse service docker", 2, "systemd, cron, launchd"),
];

/// Scripts that prepare a broken turn command, and the message of `create`, `start` and `tick`.
const SCRIPTS: &[(&str, &str)] = &[
    ("printf '#!/bin/sh\\n' > turn.sh", "./turn.sh is not executable: `chmod +x ./turn.sh`"),
    (
        "printf '#!/bin/sh\\r\\n' > turn.sh",
        "./turn.sh is not executable: `chmod +x ./turn.sh`; it has Windows line ends",
    ),
    (
        "printf '#!/bin/sh\\r\\ntrue\\r\\n' > turn.sh; chmod +x turn.sh",
        "./turn.sh has Windows line ends, which its interpreter can't read: `sed -i 's/\\r$//' /",
    ),
    (
        "printf '#!/usr/bin/no-such-python\\n' > turn.sh; chmod +x turn.sh",
        "asks for /usr/bin/no-such-python, which is not there: install it, or change its first line",
    ),
    (
        "mkdir scripts; touch scripts/turn.sh; chmod +x scripts/turn.sh; cd scripts",
        "/project): put it there, or give its whole path",
    ),
    ("mkdir turn.sh", "./turn.sh is a directory, not a program"),
];

#[test]
fn a_turn_command_that_can_not_start_is_named_by_create_start_and_tick() {
    let template = started("true");
    for (before, cure) in SCRIPTS {
        let sandbox = template.copy();
        let script = format!("set -e\n{before}\ndormouse create bob -- ./turn.sh\ndormouse start bob");
        let ran = shell(&sandbox, "", &script).output();
        assert_eq!((ran.code(), ran.stderr.matches(cure).count()), (0, 2), "{before}: {ran}");
        let ran = shell(&sandbox, "", "dormouse enqueue bob hello; dormouse tick bob").output();
        assert!(ran.code() == 7 && ran.stdout.contains(cure), "{before}: {ran}");
    }
    let script = "printf '#!/usr/bin/env no-such-python\\n' > turn.sh; chmod +x turn.sh; dormouse create joe -- ./turn.sh;\
        dormouse create bob -- 'echo hello'; dormouse create eve -- no-such-program";
    let ran = shell(&template, "", script).output();
    assert!(ran.stderr.contains("write each word by itself, or use --shell"), "{ran}");
    assert!(ran.stderr.contains("asks for no-such-python, which is not in the PATH: install it"), "{ran}");
    assert!(ran.stderr.contains("no-such-program is not in the PATH"), "{ran}");
    let script = "printf '#!/bin/sh\\r\\n' > here.sh; dormouse create joy -- here.sh; dormouse create jo -- ././here.sh";
    let ran = shell(&template, "", script).output();
    assert!(ran.stderr.contains("here.sh is not in the PATH: write ./here.sh for the file"), "{ran}");
    assert!(ran.stderr.contains("/project/here.sh`") && !ran.stderr.contains("/project/./"), "{ran}");
}

#[test]
fn a_command_of_the_wrong_user_is_answered_with_the_right_user() {
    let Some(shared) = unshared(OWNER) else { return };
    for line in [&["init"][..], &["create", "ada", "--", "true"], &["start", "ada"]] {
        shared.owner(line);
    }
    let refused = |user: u32, line: &[&str], status: i32, cure: &str| {
        for flag in [None, Some("--json")] {
            let line: Vec<&str> = flag.into_iter().chain(line.iter().copied()).collect();
            let before = tree(&shared.state());
            let ran = shared.dormouse(user, &line);
            let said = if flag.is_some() { words_of_json(&ran.stdout) } else { ran.stderr.clone() };
            assert!(ran.code() == status && said.contains(cure), "{line:?} lacks `{cure}`: {ran}");
            let mut changed = changes(&before, &tree(&shared.state()));
            // `enqueue` makes the directory of temporary files writable, which is no fault.
            changed.retain(|path| !path.ends_with("tmp"));
            assert_eq!(changed, [""; 0].map(Path::new), "{line:?}");
        }
    };
    let as_owner = format!("sudo -u '#{OWNER}' dormouse");
    for line in
        [&["list"][..], &["enqueue", "ada", "hello"], &["tick", "ada"], &["start", "ada"], &["rm", "ada"]]
    {
        refused(0, line, 4, &as_owner);
        refused(STRANGER, line, 1, "run this as the owner");
    }
    let dirs = || tree(&shared.sandbox.project()).into_keys().filter(|path| path.is_dir());
    dirs().for_each(|dir| mode(&dir, 0o500));
    for line in [&["enqueue", "ada", "hello"][..], &["create", "bob", "--", "true"]] {
        refused(OWNER, line, 1, "give yourself the right with `chmod`");
    }
    let modes = || dirs().map(|dir| dir.metadata().unwrap().permissions().mode()).collect::<Vec<_>>();
    let before = modes();
    let ran = shared.dormouse(OWNER, &["doctor", "--repair"]);
    assert!(ran.stdout.contains("no step of ada can run: can't write into ") && modes() == before, "{ran}");
    mode(&shared.state().join("agents/ada/lock"), 0o400);
    let ran = shared.dormouse(OWNER, &["doctor"]);
    assert!(ran.code() == 0 && ran.stdout.contains("no step of ada can run: can't open "), "{ran}");
    assert!(ran.stdout.contains(": no damage, "), "{ran}");
    // The end of the test must be able to remove the directories.
    dirs().for_each(|dir| mode(&dir, 0o700));
}

#[test]
fn an_error_on_a_full_disk_names_the_remedy_and_changes_nothing() {
    needs!("strace");
    let sandbox = started("true");
    for (calls, line) in [("mkdirat,mkdir", "create bob -- true"), ("write", "enqueue ada hello")] {
        let before = tree(&sandbox.project());
        let line = format!(
            "strace -qq -o /dev/null -e trace={calls} -e inject={calls}:error=ENOSPC:when=1 \"$D\" --json {line}"
        );
        let ran = shell(&sandbox, "", &line).output();
        let said = words_of_json(&ran.stdout);
        assert!(
            ran.code() == 1 && said.contains("free disk space and try again; no record is half-written"),
            "{ran}"
        );
        assert!(said.contains(".dormouse/agents/"), "{ran}");
        assert_eq!(changes(&before, &tree(&sandbox.project())), [""; 0].map(Path::new), "{line}");
    }
}
