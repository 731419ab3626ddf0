//! Tests that commands make as many system calls with 10,000 ended records of each kind as with 10.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::Sandbox;
use crate::scenarios::{AGENT, created};
use crate::setup::{names, words};
use crate::strace;

const FEW: usize = 10;
const MANY: usize = 10_000;

/// Makes an agent with an ended and an open work item, wait and timer, and an ended task.
fn lived() -> Sandbox {
    let sandbox = created("true", "").with_real_clock();
    let id = |line: &str| sandbox.run(words(line)).trim_end().to_owned();
    sandbox.run(words("start ada"));
    let item = id("work add over -a ada --plan prose");
    sandbox.run(words(&format!("work complete {item} --result done")));
    let wait = id("wait -a ada --on external --reason over");
    sandbox.run(words(&format!("wait cancel {wait}")));
    sandbox.run(words("timer add -a ada --in 0s over"));
    let task = id("task start -a ada -- true");
    sandbox.run(words(&format!("task stop {task}")));
    sandbox.run(words("tick ada --until-idle"));
    id("work add open -a ada --pick");
    sandbox.run(words("wait -a ada --on external --reason open"));
    sandbox.run(words("timer add -a ada --in 30d open"));
    sandbox.run(words("tick ada --until-idle"));
    sandbox
}

/// Copies the sandbox, and repeats each ended record, with other ids, until there are `count`.
fn after(lived: &Sandbox, count: usize) -> Sandbox {
    let sandbox = lived.copy().with_real_clock();
    let agent = sandbox.agent(AGENT);
    for dir in ["archive", "ledger"] {
        for path in files(&agent.join(dir)) {
            let text = fs::read_to_string(&path).unwrap();
            let line = text.lines().last().unwrap();
            let others = (1..count).map(|number| format!("{}\n", with_id(line, number)));
            fs::write(&path, others.chain([text.clone()]).collect::<String>()).unwrap();
        }
    }
    for dir in ["tasks", "runs"].map(|dir| agent.join(dir)) {
        for name in names(&dir) {
            for other in (1..count).map(|number| dir.join(with_id(&name, number))) {
                if name.ends_with(".lock") {
                    fs::write(other, "").unwrap();
                } else {
                    fs::create_dir_all(other).unwrap();
                }
            }
        }
    }
    // The first step also reads the files that were written above, so this step is not measured.
    sandbox.run(words("enqueue ada warm"));
    sandbox.run(words("tick ada --until-idle"));
    sandbox
}

/// Returns the paths of all files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let paths = names(dir).into_iter().map(|name| dir.join(name));
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Replaces the last 8 hexadecimal digits of the first id in a text by a number.
fn with_id(text: &str, number: usize) -> String {
    let is_id = |at: &usize| {
        text.get(at + 1..at + 33).is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let at = text.match_indices('_').map(|(at, _)| at).find(is_id).unwrap();
    format!("{}{number:08x}{}", &text[..at + 25], &text[at + 33..])
}

#[test]
fn ended_records_cost_no_system_call() {
    needs!("strace");
    let lived = lived();
    let (few, many) = (after(&lived, FEW), after(&lived, MANY));
    let only = |dir: &str| {
        let names = names(&few.agent(AGENT).join(dir));
        names.iter().find_map(|name| name.strip_suffix(".json")).unwrap().to_owned()
    };
    let (item, wait, timer) = (only("work"), only("waits"), only("timers"));
    let mut wrong = Vec::new();
    // Each command acts on the records that the commands before it have left.
    let lines = format!(
        "tick ada; next-wake ada; work add more -a ada; work update {item} --todo one; \
         work block {item} --reason why; work unblock {item} --reason because; work pick {item}; \
         wait -a ada --whole-agent --on operator --reason why; wait cancel {wait}; \
         timer add -a ada --in 0s due; tick ada; timer cancel {timer}; enqueue ada later --in 1h; \
         enqueue ada hello; tick ada; explain ada; work complete {item} --result done"
    );
    for line in lines.split("; ") {
        let [after_few, after_many] = [&few, &many].map(|sandbox| strace::calls(sandbox, &words(line)));
        if after_few != after_many {
            let [few, many] = [&after_few, &after_many].map(|calls| calls.values().sum::<usize>());
            let differ: Vec<_> =
                after_many.iter().filter(|(name, count)| after_few.get(*name) != Some(count)).collect();
            wrong.push(format!("{line}: {few} calls, then {many}: {differ:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
