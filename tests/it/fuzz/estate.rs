//! State directory with a record of every kind, made by real commands. The fuzz tests mutate copies
//! of this directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;

use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};

use super::commands::{Ids, agent_of};
use super::judge::Touched;
use super::tree::{Node, Owner, Tree};
use crate::harness::{Sandbox, dormouse};
use crate::setup::{eventually, extend_policy, has_journal, json_in, words};

/// Time of the tested commands: later than all commands that made the tested state directory.
pub const NOW: &str = "2026-01-02T06:00:00Z";

/// Turn whose outcome is the file `outcome.json` in the working directory, if the file exists.
const TURN: &str = "cat outcome.json >\"$DORMOUSE_OUTCOME\" 2>/dev/null\necho did it\n";

/// Turn that is killed together with its tick.
const KILLED: &str = "echo saved | {dormouse} checkpoint -\n\
    echo '{\"brief\": \"never told\"}' >\"$DORMOUSE_OUTCOME\"\n\
    {dormouse} non-preemptible begin --deadline 1h\n\
    touch \"$HOME/up\"\nsleep 1000\n";

const OUTCOME: &str = r#"{"brief": "looked at it", "usage": {"input_tokens": 1200, "output_tokens": 300, "cost_usd": 0.25, "model": "m"},
 "actions": [
  {"do": "work.add", "objective": "from an outcome", "todo": [{"text": "one", "done": true}], "plan": "prose", "pick": true},
  {"do": "wait", "kind": "external", "resource": "github:org/repo#12", "reason": "review", "recheck_after": "6h"},
  {"do": "timer.add", "cron": "0 9 * * 1", "time_zone": "Europe/Berlin", "text": "weekly"},
  {"do": "enqueue", "agent": "bob", "text": "for bob"},
  {"do": "enqueue", "text": "for later", "in": "1h"}
 ]}
"#;

/// Directory that is copied: `project` with the state directory, `home`, `outside`, and `bin`,
/// whose few programs are harmless if a mutated record names them.
pub struct Estate {
    /// Owner of the directory, which removes it when dropped.
    _sandbox: Sandbox,
    pub root: PathBuf,
}

impl Estate {
    pub fn make() -> Estate {
        let sandbox = Sandbox::in_memory();
        let run = |line: &str| sandbox.run(words(line)).trim_end().to_owned();
        let tick = |line: &str| drop(sandbox.cmd(words(line)).output());
        surroundings(&sandbox);
        run("init");

        // ada has an open record of every kind, and some ended records.
        run("create ada --description reviews -- sh ../bin/turn");
        extend_policy(
            &sandbox,
            "ada",
            "\n[limits]\nchain_pause = \"1m\"\n\n[timeouts]\nshutdown = \"10s\"\n",
        );
        run("start ada");
        run("enqueue ada first --dedupe-key pr-11 --correlation-id c-11");
        tick("tick ada");
        fs::remove_file(sandbox.project().join("outcome.json")).unwrap();
        let over = run("work add over -a ada --plan prose --pick");
        run("wait -a ada --on external --reason reviewer --resource github:org/repo#11 --recheck 6h");
        run(&format!("work complete {over} --result approved"));
        run("timer add fired -a ada --in 1s");
        let cancelled = run("timer add cancelled -a ada --in 1h");
        run(&format!("timer cancel {cancelled}"));
        let asked = run("wait -a ada --on operator --whole-agent --reason asked");
        run(&format!("wait cancel {asked}"));
        run("task start -a ada --summary tests -- false");
        eventually("the end of the task", || run("task list -a ada").is_empty().then_some(()));
        tick("tick ada --until-idle");
        let focus = run("work add focus -a ada --todo ask --plan prose --pick");
        run(&format!("wait -a ada --work-item {focus} --on operator --reason colour"));
        let build = run("work add build -a ada");
        let task = run(&format!("task start -a ada --work-item {build} --timeout 1h -- sleep 1000"));
        let piped = run("task start -a ada --interactive -- sleep 1000");
        run(&format!("wait -a ada --work-item {build} --on task --resource {task} --reason build"));
        run(&format!("wait -a ada --work-item {build} --on system --recheck 60d --reason system"));
        run("work add blocked -a ada --blocked-by release --recheck 60d");
        run("timer add later -a ada --in 90d");
        run("timer add often -a ada --every 60d --catch-up all");
        let june = ["--cron", "0 9 1 6 *", "--tz", "Europe/Berlin"];
        sandbox.run(["timer", "add", "june", "-a", "ada"].into_iter().chain(june));
        run("enqueue ada put-off --in 60d --dedupe-key later");
        for text in ["one", "two", "three"] {
            run(&format!("enqueue ada {text}"));
        }
        segment(&sandbox.agent("ada").join("inbox"));
        run("enqueue ada now --priority interject");
        run("enqueue ada --origin webhook:github --body-json {\"number\":14} --resource github:org/repo#14");
        run("enqueue ada slow --priority background --ttl 90d --dedupe-key slow");
        run("wake ada --resource github:org/repo#13 look");
        called_in(&sandbox);

        // bob has a dead letter, a message that failed once, and hooks. cyd is a stopped child, eve
        // defers its message, and fin is idle.
        run("create bob -- false");
        extend_policy(
            &sandbox,
            "bob",
            "\n[recovery]\nstrategy = \"fixed\"\nbase = \"60d\"\nmax_delay = \"60d\"\nmax_attempts = 2\n",
        );
        run("start bob");
        run("enqueue bob never-works --dedupe-key dead");
        for _ in 0..2 {
            tick("tick bob");
            run("recover bob");
        }
        run("enqueue bob fails-once");
        tick("tick bob");
        hook(&sandbox.agent("bob").join("hooks/on-startup"));
        hook(&sandbox.store().join("hooks/on-state-change"));
        run("create cyd --parent ada -- sh ../bin/turn");
        run("start cyd");
        run("task start -a ada --delegate cyd hello");
        run("stop cyd --requeue");
        sandbox.run(["create", "eve", "--", "sh", "-c", "exit 75"]);
        run("start eve");
        run("enqueue eve not-now");
        tick("tick eve");
        run("create fin -- sh ../bin/turn");
        run("start fin");
        tick("tick fin --until-idle");
        drop_files(&sandbox);
        killed_turn(&sandbox);
        interrupted_transaction(&sandbox);

        fs::write(sandbox.project().join("outcome.json"), OUTCOME).unwrap();
        for task in [task, piped] {
            lose(&sandbox, &task);
        }
        let root = sandbox.root().to_owned();
        Estate { _sandbox: sandbox, root }
    }
}

/// Creates files outside the state directory, which no command may change.
fn surroundings(sandbox: &Sandbox) {
    let root = sandbox.root();
    for dir in ["outside", "outside/dir", "outside/dir/inbox", "bin"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    for file in ["outside/file", "outside/dir/authorized_keys", "home/.profile", "project/notes.txt"] {
        fs::write(root.join(file), "nobody touches this\n").unwrap();
    }
    fs::write(root.join("bin/turn"), TURN).unwrap();
    fs::write(root.join("bin/killed"), KILLED.replace("{dormouse}", &dormouse().display().to_string()))
        .unwrap();
    for program in ["sh", "cat", "true", "false", "sleep"] {
        let places = ["/bin", "/usr/bin"].map(|dir| Path::new(dir).join(program));
        symlink(places.iter().find(|place| place.exists()).unwrap(), root.join("bin").join(program)).unwrap();
    }
    fs::write(sandbox.project().join("outcome.json"), OUTCOME).unwrap();
}

/// Delivers messages to ada through triggers of every kind, which all have the same secret.
fn called_in(sandbox: &Sandbox) {
    let run = |line: &str| sandbox.run(words(line)).trim_end().to_owned();
    let make = |line: &str| {
        let made = run(&format!("trigger create -a ada --json {line}"));
        let made: serde_json::Value = serde_json::from_str(&made).unwrap();
        made["id"].as_str().unwrap().to_owned()
    };
    let hook = run("wait -a ada --on external --whole-agent --reason hook --expires 60d");
    let of_wait = make(&format!("--wait {hook}"));
    let of_resource = make("--resource github:org/repo#12 --source webhook:github --verify hmac_sha256");
    let hinting = make("--mode wake_hint --source callback:ci");
    let gone = make("--resource gone");
    run(&format!("wait -a ada --on system --whole-agent --recheck 60d --reason named --trigger {hinting}"));
    let triggers = sandbox.agent("ada").join("triggers");
    let hash: String = Sha256::digest("secret").iter().map(|byte| format!("{byte:02x}")).collect();
    for entry in fs::read_dir(&triggers).unwrap().flatten() {
        let mut record: serde_json::Value = json_in(entry.path());
        record["secret_sha256"] = hash.clone().into();
        fs::write(entry.path(), format!("{record:#}\n")).unwrap();
    }
    let said = |line: &str| {
        let ran = sandbox.cmd(words(line)).stdin("secret\n").output();
        assert!(ran.status.success(), "{ran}");
    };
    for to in [&of_wait, &of_resource, &gone] {
        said(&format!("trigger deliver {to} hello --secret-file -"));
        said(&format!("trigger deliver {to} {{\"a\":[1]}} --secret-file - --dedupe-key twice"));
    }
    said(&format!("trigger deliver {hinting} --secret-file -"));
    said(&format!("trigger deliver {hinting} look --secret-file - --dedupe-key twice"));
    run(&format!("trigger revoke {gone}"));
    let request = format!(
        "POST /agents/ada/triggers/{of_resource} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\
         Content-Type: text/plain\r\nX-GitHub-Delivery: one\r\nContent-Length: 5\r\n\r\nhello"
    );
    sandbox.cmd(["ingress"]).stdin(request).output().shows(" 202 ");
}

/// Moves the messages of priority 2 into a subdirectory, as a step does if the inbox is long.
fn segment(inbox: &Path) {
    let mut names: Vec<OsString> =
        fs::read_dir(inbox).unwrap().flatten().map(|entry| entry.file_name()).collect();
    names.retain(|name| name.to_string_lossy().starts_with("2-"));
    names.sort();
    let dir = inbox.join(names[0].to_string_lossy().trim_end_matches(".json"));
    fs::create_dir(&dir).unwrap();
    for name in names {
        fs::rename(inbox.join(&name), dir.join(&name)).unwrap();
    }
}

/// Writes files as other programs drop them: files that a step will admit, and files that a step
/// has rejected.
fn drop_files(sandbox: &Sandbox) {
    let inbox = sandbox.agent("fin").join("inbox");
    fs::create_dir_all(inbox.join("rejected")).unwrap();
    fs::write(inbox.join("rejected/bad.json"), "not JSON\n").unwrap();
    fs::write(inbox.join("rejected/bad.json.reason"), "expected value\n").unwrap();
    let inbox = sandbox.agent("ada").join("inbox");
    fs::write(
        inbox.join("ci-1.json"),
        "{\"text\": \"dropped\", \"origin\": \"channel:ci\", \"ttl\": \"5h\"}\n",
    )
    .unwrap();
    fs::write(
        inbox.join("ci-2.json"),
        "{\"body\": {\"a\": [1, 2]}, \"origin\": \"webhook:ci\", \"priority\": \"background\", \"dedupe_key\": \"k\"}\n",
    )
    .unwrap();
}

fn hook(path: &Path) {
    fs::write(path, "#!/bin/sh\ncat >/dev/null\nexit 0\n").unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
}

/// Makes the agent kim, whose tick was killed during a turn with a checkpoint, an outcome and an
/// open critical section.
fn killed_turn(sandbox: &Sandbox) {
    sandbox.run(words("create kim -- sh ../bin/killed"));
    sandbox.run(words("start kim"));
    sandbox.run(words("enqueue kim long"));
    let mut tick = sandbox.cmd(words("tick kim")).into_command();
    let mut tick = tick.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the turn", || sandbox.home().join("up").exists().then_some(()));
    tick.kill().unwrap();
    tick.wait().unwrap();
    fs::remove_file(sandbox.home().join("up")).unwrap();
    let policy = sandbox.agent("kim").join("agent.toml");
    let text = fs::read_to_string(&policy).unwrap().replace("bin/killed", "bin/turn");
    fs::write(policy, text).unwrap();
}

/// Makes the agent jon with a command that was killed after its commit and before its files were
/// changed.
fn interrupted_transaction(sandbox: &Sandbox) {
    sandbox.run(words("create jon -- sh ../bin/turn"));
    sandbox.run(words("start jon"));
    let line =
        "-qq -e trace=rename,renameat,renameat2 -e inject=rename,renameat,renameat2:signal=SIGKILL:when=1";
    let mut line: Vec<OsString> = words(line).into_iter().map(OsString::from).collect();
    line.push(dormouse().into());
    line.extend(words("work add interrupted -a jon --plan prose").into_iter().map(OsString::from));
    let ran = sandbox.program("strace", line).output();
    assert!(has_journal(&sandbox.agent("jon")), "no interrupted transaction: {ran}");
}

/// Kills the supervisor of a task, as a crash of the machine does.
fn lose(sandbox: &Sandbox, task: &str) {
    let path = sandbox.agent("ada").join(format!("tasks/{task}.json"));
    let pid = || {
        let task: serde_json::Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        Pid::from_raw(task["supervisor_pid"].as_i64()? as i32)
    };
    let pid = eventually("the supervisor", pid);
    kill_process(pid, Signal::KILL).unwrap();
    eventually("its end", || fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).is_err().then_some(()));
}

/// Copy of the directory that a worker mutates and restores.
pub struct Copy {
    pub store: Tree,
    /// Files outside the state directory. No command may change them.
    pub around: Tree,
    pub ids: Ids,
    /// Paths of the state directory by kind, and the path of the next turn's outcome.
    pub kinds: BTreeMap<String, Vec<PathBuf>>,
}

/// Paths of a worker's copy that a mutation or a command has changed.
pub struct Changes {
    pub store: Vec<PathBuf>,
    pub around: Vec<PathBuf>,
}

/// Paths of the state directory and of the next turn's outcome in a worker's copy.
pub const STORE: &str = "project/.dormouse";
pub const TURNS_OUTCOME: &str = "project/outcome.json";

impl Copy {
    pub fn make(estate: &Path, root: &Path, owner: Owner, number: u64) -> Copy {
        let around = Tree::make(root, owner, Tree::read(estate), Some(Path::new(STORE)));
        let nodes = with_runs_of_its_own(Tree::read(&estate.join(STORE)), number);
        let store = Tree::make(&root.join(STORE), owner, nodes, None);
        let contents = store.nodes().iter().filter_map(|(path, node)| match node {
            Node::File { bytes, .. } => Some((path.as_path(), bytes.as_slice())),
            Node::Dir { .. } | Node::Link(_) | Node::Fifo | Node::Socket => None,
        });
        let ids = Ids::of(contents);
        let mut kinds: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for (path, node) in store.nodes() {
            kinds.entry(kind(path, node)).or_default().push(path.clone());
        }
        kinds.insert("an outcome".to_owned(), vec![PathBuf::from(TURNS_OUTCOME)]);
        Copy { store, around, ids, kinds }
    }

    /// Returns the paths that have changed since [`Copy::make`] or the last [`Copy::restore`].
    pub fn changes(&self) -> Changes {
        Changes { store: self.store.changes(), around: self.around.changes() }
    }

    /// Restores the original content of the changed and the mutated paths.
    pub fn restore(&mut self, mut changes: Changes, touched: &[Touched]) {
        for Touched { path, .. } in touched {
            let of = if path == Path::new(TURNS_OUTCOME) { &mut changes.around } else { &mut changes.store };
            of.push(path.clone());
        }
        self.store.restore(&changes.store);
        self.around.restore(&changes.around);
    }

    /// Returns the tree that has a mutated path.
    pub fn tree_of(&self, path: &Path) -> &Tree {
        if path == Path::new(TURNS_OUTCOME) { &self.around } else { &self.store }
    }
}

/// Gives each copy its own run ids. A recovery ends all processes of the run it recovers, in
/// whatever directory they work, so copies with equal run ids would disturb each other.
fn with_runs_of_its_own(nodes: BTreeMap<PathBuf, Node>, number: u64) -> BTreeMap<PathBuf, Node> {
    let is_run =
        |path: &&PathBuf| path.iter().count() == 4 && path.iter().nth(2).is_some_and(|dir| dir == "runs");
    let runs: Vec<String> = nodes
        .keys()
        .filter(is_run)
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let anew = |text: &str| {
        runs.iter().fold(text.to_owned(), |text, run| {
            let digits = run.len() - 2;
            text.replace(run, &format!("{}{number:02x}", &run[..digits]))
        })
    };
    let anew_in = |node: Node| match node {
        Node::File { mode, bytes } => match std::str::from_utf8(&bytes) {
            Ok(text) => Node::File { mode, bytes: Rc::new(anew(text).into_bytes()) },
            Err(_) => Node::File { mode, bytes },
        },
        node @ (Node::Dir { .. } | Node::Link(_) | Node::Fifo | Node::Socket) => node,
    };
    nodes
        .into_iter()
        .map(|(path, node)| (PathBuf::from(anew(&path.to_string_lossy())), anew_in(node)))
        .collect()
}

/// Returns the kind of a file in one or two words.
pub fn kind(path: &Path, node: &Node) -> String {
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let name = *parts.last().unwrap_or(&"");
    let is_dir = matches!(node, Node::Dir { .. });
    let below = if agent_of(path).is_some() { &parts[2..] } else { &parts[..] };
    let word = match below {
        [] => "agent",
        ["inbox", "rejected", _] if name.ends_with(".reason") => "reason",
        ["inbox", "rejected", _] => "rejected",
        ["inbox", segment] if is_dir && *segment != "rejected" => "segment",
        ["inbox", name] if name.starts_with("w-") => "hint",
        ["inbox", name] if name.as_bytes().get(1) == Some(&b'-') && name.contains("-msg_") => "message",
        ["inbox", _] if !is_dir => "dropped",
        ["inbox", _, _] => "filed",
        ["work", _] if name.ends_with(".md") => "plan",
        ["work" | "waits" | "timers" | "triggers", _] => below[0].trim_end_matches('s'),
        ["tasks", _] if name.ends_with(".lock") => "task lock",
        ["tasks", _] if !is_dir => "task",
        ["tasks", _] => "output",
        ["runs", _] => "run",
        ["runs" | "tasks", _, name] if name.ends_with(".log") => "log",
        ["runs", _, name] if name.starts_with("checkpoint-") => "checkpoint",
        ["tasks", _, _] => &format!("task's {name}"),
        ["ledger", _] => "ledger",
        ["archive", _] => "month",
        ["archive", _, name] => &format!("archived {}", name.trim_end_matches(".jsonl")),
        ["cache", "dedupe", _, _] => "dedupe entry",
        ["cache", "dedupe", _] => "dedupe day",
        ["hooks", _] => "hook",
        ["slots" | "workspaces", _] => "place lock",
        ["tmp", name] if name.starts_with("apply-") => "staged",
        _ => name,
    };
    if is_dir { format!("{word}/") } else { word.to_owned() }
}
