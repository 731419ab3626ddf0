//! Nothing that was committed is too much to be carried out, under the limits that machines set.

use std::fs;

use crate::harness::{Cmd, Ran, Sandbox, dormouse};

/// An agent `a` that is started, and whose turns run this.
fn sandbox(turn: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(["create", "a", "--", "sh", "-c", turn]);
    sandbox.run(["start", "a"]);
    sandbox
}

/// A command under limits of the system, as `prlimit` names them.
fn under<'s>(sandbox: &'s Sandbox, limits: &[&str], args: &[&str]) -> Cmd<'s> {
    let mut line: Vec<String> = limits.iter().map(|limit| format!("--{limit}")).collect();
    line.push(dormouse().to_string_lossy().into_owned());
    line.extend(args.iter().map(|arg| (*arg).to_owned()));
    sandbox.program("prlimit", line.into_iter().map(Into::into).collect())
}

#[track_caller]
fn must(sandbox: &Sandbox, ran: Ran) -> Ran {
    assert_eq!(ran.code(), 0, "{ran}\nreproduce:\n{}", sandbox.reproduction());
    ran
}

/// A journal that another version wrote, under whatever limits: it is finished under tight ones.
#[test]
fn a_journal_of_thousands_is_carried_out_under_tight_limits() {
    let sandbox = sandbox("true");
    let dir = sandbox.agent("a");
    let state = fs::read_to_string(dir.join("state.json")).unwrap();
    let mut newer: serde_json::Value = serde_json::from_str(&state).unwrap();
    let revision = newer["revision"].as_u64().unwrap();
    newer["revision"] = (revision + 1).into();
    let item = sandbox.run(["work", "add", "one", "--agent", "a"]);
    let item = item.trim();
    let text = fs::read_to_string(dir.join(format!("work/{item}.json"))).unwrap();
    fs::write(dir.join("state.json"), state).unwrap();
    let writes = (0..3000).map(|number| {
        let id = format!("{}{number:012x}", &item[..item.len() - 12]);
        serde_json::json!({ "path": format!("work/{id}.json"), "content": text.replace(item, &id) })
    });
    let last = serde_json::json!({ "path": "state.json", "content": format!("{newer}\n") });
    let journal = serde_json::json!({
        "schema": "dormouse/journal/1",
        "base_revision": revision,
        "writes": writes.chain([last]).collect::<Vec<_>>(),
        "appends": [],
        "deletes": [],
    });
    fs::write(dir.join("journal.json"), format!("{journal}\n")).unwrap();
    must(&sandbox, under(&sandbox, &["nofile=64"], &["stop", "a"]).output());
    assert!(!dir.join("journal.json").exists());
    assert_eq!(fs::read_dir(dir.join("work")).unwrap().count(), 3001);
    sandbox.run(["doctor"]);
}
