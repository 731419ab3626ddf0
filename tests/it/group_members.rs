//! Tests what the members of `[sharing] group` may do with the program. The tests use several real
//! users.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use serde_json::{Value, json};

use crate::setup::{assert_includes, eventually, failure, json_in, names, objects, tree};
use crate::sharing::{
    GROUP, OWNER, SENDER, STRANGER, Shared, assert_is_senders, mode, sender, shared, unshared,
};

/// User number of another member of the group.
const OTHER: u32 = 60_005;

/// Returns mode, owner and group of a path.
fn rights(path: &Path) -> (u32, u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.permissions().mode() & 0o7777, found.uid(), found.gid())
}

impl Shared {
    /// Runs a command with `--json` as this user, who names the state directory.
    pub fn guest(&self, user: u32, args: &[&str]) -> crate::harness::Ran {
        let state = self.state();
        let named = ["--json", "-C", state.to_str().unwrap()];
        self.dormouse(user, &named.iter().chain(args).copied().collect::<Vec<_>>())
    }

    /// Runs a member's `enqueue` with these arguments, and returns the id of the message.
    #[track_caller]
    fn enqueue(&self, user: u32, args: &[&str]) -> String {
        let ran = self.guest(user, &[&["enqueue", "a"], args].concat()).exits(0);
        objects(&ran.stdout)[0]["message_id"].as_str().unwrap().to_owned()
    }

    /// Makes steps until the agent rests, and returns the record of a message.
    #[track_caller]
    fn settled(&self, id: &str) -> Value {
        self.owner(&["tick", "a", "--until-idle"]);
        self.owner(&["queue", "show", id])
    }

    /// Returns the findings of `doctor`: kinds, and paths relative to the state directory.
    fn findings(&self, user: u32, repair: bool) -> Vec<(String, String)> {
        let args: &[&str] = if repair { &["--json", "doctor", "--repair"] } else { &["--json", "doctor"] };
        let ran = self.dormouse(user, args);
        let found = objects(&ran.stdout).into_iter().filter(|object| object["kind"].is_string());
        let word = |object: &Value, key: &str| object[key].as_str().unwrap().to_owned();
        let state = self.state();
        let mut found: Vec<(String, String)> = found
            .map(|object| {
                let path = word(&object, "path");
                let path = Path::new(&path).strip_prefix(&state).unwrap().display().to_string();
                (word(&object, "kind"), path)
            })
            .collect();
        found.sort();
        found
    }

    /// Returns the names in the inbox, including hidden files.
    fn inbox_names(&self) -> Vec<String> {
        names(&self.inbox())
    }
}

#[test]
fn a_message_of_a_member_has_that_user_as_its_origin() {
    let Some(shared) = shared() else { return };
    let id = shared.enqueue(SENDER, &["build it"]);
    let arrived = shared.inbox_names();
    assert_eq!(arrived.len(), 1, "{arrived:?}");
    let path = shared.inbox().join(&arrived[0]);
    assert_eq!(rights(&path), (0o640, SENDER, GROUP));
    // The record names its sender as the origin. Readers would ignore any other origin.
    let written = json_in(&path);
    assert_is_senders(&written);
    let found = shared.settled(&id);
    assert_is_senders(&found);
    assert_includes(&found, json!({ "body.text": "build it", "settlement.status": "processed" }));
    assert_eq!(shared.inbox_names(), Vec::<String>::new(), "the owner can't remove the member's file");
    // Another member sends a wake hint, and the first member several messages at once.
    shared.guest(OTHER, &["wake", "a", "look", "--reason", "new commits"]).exits(0);
    shared.owner(&["tick", "a"]);
    let found = shared.step();
    assert_eq!(found["hint"]["source"], format!("uid:{OTHER}"), "{found}");
    assert_eq!((&found["hint"]["reason"], &found["body"]["text"]), (&json!("new commits: look"), &json!("")));
    let batch = shared
        .shell(
            SENDER,
            "printf '{\"text\": \"1\"}\\n\\n{\"text\": \"2\", \"priority\": \"next\"}\\n' | \
         ../../../../../dormouse -C ../../.. enqueue a --batch --resource r",
        )
        .exits(0);
    assert_eq!(shared.inbox_names().len(), 2, "the inbox has other files than the messages");
    for (id, text) in batch.stdout.lines().zip(["1", "2"]) {
        let found = shared.settled(id);
        assert_is_senders(&found);
        assert_eq!((found["body"]["text"].as_str(), found["resource"].as_str()), (Some(text), Some("r")));
    }
    assert_eq!(shared.findings(OWNER, false), []);
}

/// A member can't read dedupe keys, so a step drops the second message with a key. The keys of each
/// member are separate from those of other senders.
#[test]
fn a_member_sends_once_under_a_key() {
    let Some(shared) = shared() else { return };
    let keyed = ["build it", "--dedupe-key", "k"];
    let [first, second, other] = [SENDER, SENDER, OTHER].map(|user| shared.enqueue(user, &keyed));
    let owners = shared.owner(&[&["enqueue", "a"], &keyed[..]].concat());
    for (id, status) in [
        (&*first, "processed"),
        (&*second, "dropped"),
        (&*other, "processed"),
        (owners["message_id"].as_str().unwrap(), "processed"),
    ] {
        assert_eq!(shared.settled(id)["settlement"]["status"], status, "{id}");
    }
}

/// A refused command of a member of the group of the state directory writes nothing.
#[test]
fn members_can_not_use_options_that_need_more_than_the_inbox() {
    let Some(shared) = shared() else { return };
    let before = tree(&shared.state());
    for (args, kind) in [
        (&["enqueue", "a", "x", "--in", "1h"][..], "owners_only"),
        (&["enqueue", "a", "x", "--dedupe-key", "k", "--retry"], "owners_only"),
        (&["enqueue", "a", "x", "--await"], "owners_only"),
        (&["enqueue", "a", "x", "--at", "2040-01-01T00:00:00Z"], "owners_only"),
        (&["enqueue", "a", "x", "--work-item", "work_0198"], "owners_only"),
        (&["enqueue", "a", "x", "--wait", "wait_0198"], "owners_only"),
        (&["wake", "a", "--wait", "wait_0198"], "owners_only"),
        (&["enqueue", "a", "x", "--origin", "operator"], "origin_not_allowed"),
        (&["enqueue", "a", "x", "--origin", "channel:uid:root"], "origin_not_allowed"),
        (&["enqueue", "a", "x", "--origin", "webhook:ci"], "origin_not_allowed"),
        (&["wake", "a", "--source", "operator"], "origin_not_allowed"),
        (&["enqueue", "a", "x", "--kind", "control"], "kind_origin_mismatch"),
        (&["enqueue", "a", "x", "--priority", "interject"], "priority_not_allowed"),
        (&["enqueue", "a", " "], "blank_message"),
        (&["enqueue", "nobody", "x"], "no_agent"),
    ] {
        let ran = shared.guest(SENDER, args).fails(if kind == "no_agent" { 3 } else { 4 }, kind);
        assert!(kind == "no_agent" || failure(&ran)["hint"].is_string(), "{args:?}: {ran}");
    }
    for line in [
        r#"{"text": "x", "origin": "operator"}"#,
        r#"{"text": "x", "kind": "control"}"#,
        r#"{"text": "x", "wait_id": "wait_0198c9f0000070008000000000000001"}"#,
        r#"{"text": "x", "work_item_id": "work_0198c9f0000070008000000000000001"}"#,
        r#"{"text": "x", "priority": "interject"}"#,
    ] {
        let batch = shared.shell(
            SENDER,
            &format!("(echo '{{\"text\": \"good\"}}'; echo '{line}') | ../../../../../dormouse -C ../../.. enqueue a --batch"),
        );
        batch.exits(4).warns("line 2 of the batch").warns("nothing was admitted");
    }
    // Group members may not read records of the agent, so commands that read these must fail.
    for args in [
        &["ask", "a", "x"][..],
        &["tick", "a"],
        &["stop", "a", "--now"],
        &["queue", "list", "-a", "a"],
        &["list"],
    ] {
        shared.guest(SENDER, args).fails(1, "not_allowed");
    }
    assert_eq!(tree(&shared.state()), before);
}

#[test]
fn commands_of_other_users_fail_with_the_path() {
    let Some(shared) = shared() else { return };
    let before = tree(&shared.state());
    for args in [&["enqueue", "a", "x"][..], &["wake", "a"], &["get", "a"]] {
        let ran = shared.guest(STRANGER, args).fails(1, "not_allowed");
        let error = failure(&ran);
        let named = Path::new(error["path"].as_str().unwrap());
        assert!(named.starts_with(shared.state()) && error["hint"].is_string(), "{ran}");
    }
    // Without `-C` the command of a member does not use the owner's state directory.
    let found = shared.dormouse(SENDER, &["--json", "enqueue", "a", "x"]);
    assert!(found.code() != 0, "{found}");
    assert_eq!(tree(&shared.state()), before);
}

/// A member can't read the files of the owner, and can't change, replace or remove the files of the
/// owner or of other members.
#[test]
fn members_touch_nothing_but_their_own_files() {
    let Some(shared) = shared() else { return };
    let own = shared.owner(&["enqueue", "a", "secret"]);
    let others = shared.enqueue(OTHER, &["from another"]);
    let before = tree(&shared.state());
    for script in [
        format!("cat *{}*", own["message_id"].as_str().unwrap()),
        format!("echo x >> $(ls *{others}*)"),
        format!("truncate -s 0 *{others}*"),
        format!("rm -f *{others}* && ! ls *{others}*"),
        format!("mv *{others}* .hidden"),
        format!("cp /dev/null .aside && mv -f .aside $(ls *{others}*) ; end=$?; rm -f .aside; exit $end"),
        format!("chmod 666 *{others}*"),
        "rm -f .gitkeep && ! ls .gitkeep".to_owned(),
        "mv ../inbox ../elsewhere".to_owned(),
        "ls ..".to_owned(),
        "touch ../x".to_owned(),
        "touch ../../x".to_owned(),
        "cat ../agent.toml".to_owned(),
        "cat ../lock".to_owned(),
        "ls ../tmp".to_owned(),
        "ls ../../../hooks".to_owned(),
        "cat ../../../.gitignore".to_owned(),
        "echo x >> ../../../dormouse.toml".to_owned(),
        "flock -n .. true".to_owned(),
    ] {
        let ran = shared.shell(SENDER, &script);
        assert_ne!(ran.code(), 0, "{script}: {ran}");
    }
    assert_eq!(tree(&shared.state()), before);
    // Members need to read the settings.
    shared.shell(SENDER, "cat ../../../dormouse.toml").exits(0);
}

/// Neither the files of a member in the inbox nor the locks on them block the owner's next step.
#[test]
fn no_file_or_lock_of_a_member_stops_the_agent() {
    let Some(shared) = shared() else { return };
    shared.shell(
        SENDER,
        "mkfifo pipe .new-pipe && ln -s /etc/passwd link && ln -s ../state.json 2-msg_0198c9f0000070008000000000000001.json && \
         ln -s nowhere .new-link && mkdir -m 000 .new-closed && echo x > .new-open && chmod 000 .new-open && \
         mkdir -p .new-deep/a/b && touch .new-deep/a/b/c && chmod 700 .new-deep && echo '{' > garbage && \
         echo '{\"text\": \"from a program\"}' > shared.json && chmod 660 shared.json && chgrp 60004 shared.json",
    ).exits(0);
    // A process of the member locks the inbox and a file in it during the steps of the owner.
    let mut holder = std::process::Command::new("setpriv")
        .args([format!("--reuid={SENDER}"), format!("--regid={SENDER}"), format!("--groups={GROUP}")])
        .args(["--", "flock", shared.inbox().to_str().unwrap(), "flock", "shared.json", "sleep", "60"])
        .current_dir(shared.inbox())
        .spawn()
        .unwrap();
    let said = shared.owner(&["enqueue", "a", "go on"]);
    // The status is 7 because the step has quarantined files.
    shared.dormouse(OWNER, &["tick", "a", "--until-idle"]).exits(7);
    let found = shared.owner(&["queue", "show", said["message_id"].as_str().unwrap()]);
    assert_eq!(found["settlement"]["status"], "processed");
    let log = shared.owner(&["events", "a"]);
    assert!(log.is_object());
    let archive =
        fs::read_dir(shared.state().join("agents/a/archive")).unwrap().next().unwrap().unwrap().path();
    let archive = fs::read_to_string(archive.join("message.jsonl")).unwrap();
    assert!(archive.contains("from a program"), "the step has not taken a file of mode 660");
    shared.dormouse(OWNER, &["stop", "a", "--now"]).exits(0);
    holder.kill().unwrap();
    holder.wait().unwrap();
    // Hidden files that the owner may not remove stay, and are ignored.
    let left = shared.inbox_names();
    assert!(left.iter().all(|name| name == "rejected" || name.starts_with(".new-")), "{left:?}");
    shared.dormouse(OWNER, &["start", "a"]).exits(0);
    let id = shared.enqueue(OTHER, &["still"]);
    assert_eq!(shared.settled(&id)["settlement"]["status"], "processed");
}

/// After a kill at any call, a message is complete or absent, and present if it was acknowledged.
/// The owner's next step that comes to rest removes stale files.
#[test]
fn a_member_may_be_killed_at_every_call() {
    needs!("strace");
    let Some(shared) = shared() else { return };
    let mut left_something = 0;
    let mut cuts = 0;
    for command in ["enqueue a hello", "wake a hello", "enqueue a --batch"] {
        for call in ["openat2", "umask", "mkdirat", "flock", "write", "fsync", "renameat", "unlinkat"] {
            for nth in 1.. {
                let script = format!(
                    "printf '{{\"text\":\"1\"}}\\n{{\"text\":\"2\"}}\\n' | strace -qq -o /dev/null -e inject={call}:signal=KILL:when={nth} \
                     ../../../../../dormouse -C ../../.. {command}"
                );
                let ran = shared.shell(SENDER, &script);
                let is_over = ran.code() == 0;
                assert!(is_over || ran.code() == 137, "{script}: {ran}");
                cuts += usize::from(!is_over);
                let staged = shared.inbox_names().iter().filter(|name| name.starts_with(".new-")).count();
                left_something += staged;
                // Reading commands must ignore a message file that the kill left incomplete.
                shared.dormouse(OWNER, &["queue", "list", "-a", "a"]).exits(0);
                shared.owner(&["wake", "a", "--reason", "look"]);
                shared.dormouse(OWNER, &["--json", "tick", "a", "--until-idle"]).exits(0);
                assert_eq!(shared.inbox_names(), Vec::<String>::new(), "{script}");
                for id in ran.stdout.lines().filter(|_| command.starts_with("enqueue")) {
                    let found = shared.owner(&["queue", "show", id]);
                    assert_eq!(found["settlement"]["status"], "processed", "{script}");
                    assert_is_senders(&found);
                }
                if is_over {
                    break;
                }
            }
        }
    }
    assert!(cuts > 40 && left_something > 5, "{cuts} cuts, {left_something} left");
    assert_eq!(shared.findings(OWNER, false), []);
}

#[test]
fn several_members_at_once_do_not_disturb_each_other() {
    let Some(shared) = shared() else { return };
    let said = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for user in [SENDER, OTHER, OWNER] {
            let (shared, said) = (&shared, &said);
            scope.spawn(move || {
                for number in 0..8 {
                    let id = shared.enqueue(user, &[&format!("{user} {number}")]);
                    said.lock().unwrap().push((user, id));
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..6 {
                shared.dormouse(OWNER, &["tick", "a"]);
            }
        });
    });
    shared.owner(&["tick", "a", "--until-idle"]);
    let said = said.into_inner().unwrap();
    assert_eq!(said.len(), 24);
    for (user, id) in said {
        let found = shared.owner(&["queue", "show", &id]);
        let origin = match user {
            OWNER => json!({ "kind": "operator" }),
            SENDER => json!({ "kind": "channel", "id": sender() }),
            _ => json!({ "kind": "channel", "id": format!("uid:{user}") }),
        };
        assert_includes(&found, json!({ "settlement.status": "processed", "origin": origin }));
    }
}

/// State directory of the owner with the started agent `a`, which is not shared yet.
fn initialised() -> Option<Shared> {
    let shared = unshared(OWNER)?;
    shared.owner(&["init"]);
    shared.owner(&["create", "a", "--", "true"]);
    shared.owner(&["start", "a"]);
    Some(shared)
}

/// `doctor` reports permissions that differ from `sharing.group`, and `--repair` corrects them.
#[test]
fn doctor_grants_and_revokes_permissions() {
    let Some(shared) = initialised() else { return };
    let state = shared.state();
    let unshared = tree(&state);
    assert_eq!(shared.findings(OWNER, false), []);
    shared.share(format!("\"{GROUP}\""));
    let config = fs::read_to_string(state.join("dormouse.toml")).unwrap();
    let all = ["", "agents", "agents/a", "agents/a/inbox", "dormouse.toml"];
    let of_kind = |kind: &str, paths: &[&str]| {
        paths.iter().map(|path| (kind.to_owned(), (*path).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(shared.findings(OWNER, false), of_kind("sharing", &all));
    // Missing permissions are only a warning.
    shared.dormouse(OWNER, &["doctor"]).exits(0);
    assert_eq!(shared.findings(OWNER, true).len(), 5);
    assert_eq!(shared.findings(OWNER, false), []);
    let check_shared = || {
        for (path, mode) in [("", 0o710), ("agents", 0o710), ("agents/a", 0o710), ("agents/a/inbox", 0o3770)]
        {
            assert_eq!(rights(&state.join(path)), (mode, OWNER, GROUP), "{path}");
        }
        assert_eq!(rights(&state.join("dormouse.toml")), (0o640, OWNER, GROUP));
    };
    check_shared();
    // In a git clone, all files have the modes of the umask.
    for path in all {
        let is_dir = state.join(path).is_dir();
        mode(&state.join(path), if is_dir { 0o755 } else { 0o644 });
        chown(state.join(path), None, Some(OWNER)).unwrap();
    }
    mode(&state.join("agents/a/agent.toml"), 0o644);
    mode(&state.join("agents/a/runs"), 0o755);
    let mut expected = of_kind("sharing", &all);
    expected.extend(of_kind("sharing", &["agents/a/agent.toml", "agents/a/runs"]));
    expected.sort();
    assert_eq!(shared.findings(OWNER, false), expected);
    shared.findings(OWNER, true);
    check_shared();
    assert_eq!(rights(&state.join("agents/a/agent.toml")).0, 0o600, "the group can read the policy");
    assert_eq!(rights(&state.join("agents/a/runs")).0, 0o700);
    // The group may write to a directory other than the inbox, and another group to the inbox.
    chown(state.join("agents/a/work"), None, Some(GROUP)).unwrap();
    mode(&state.join("agents/a/work"), 0o770);
    chown(state.join("agents/a/inbox"), None, Some(STRANGER)).unwrap();
    mode(&state.join("agents/a/inbox"), 0o3770);
    let mut expected = of_kind("sharing", &["agents/a/inbox", "agents/a/work"]);
    expected.extend(of_kind("writable_by_others", &["agents/a/inbox", "agents/a/work"]));
    assert_eq!(shared.findings(OWNER, false), expected);
    shared.dormouse(OWNER, &["doctor"]).exits(6);
    shared.findings(OWNER, true);
    check_shared();
    // Without the table `[sharing]`, `doctor --repair` revokes all permissions of the group.
    fs::write(state.join("dormouse.toml"), config.split("\n[sharing]").next().unwrap()).unwrap();
    assert!(!shared.findings(OWNER, false).is_empty());
    shared.findings(OWNER, true);
    assert_eq!(shared.findings(OWNER, false), []);
    for (path, found) in &unshared {
        if state.join(path).exists() {
            assert_eq!(rights(&state.join(path)).0, found.0 & 0o7777, "{}", path.display());
        }
    }
    shared.guest(SENDER, &["enqueue", "a", "x"]).exits(1);
}

/// `create` shares the inbox of a new agent at once; in a git clone, `doctor --repair` shares it.
#[test]
fn a_new_agent_is_shared_and_so_is_its_clone() {
    let Some(shared) = shared() else { return };
    shared.owner(&["create", "b", "--", "true"]);
    shared.owner(&["start", "b"]);
    assert_eq!(rights(&shared.state().join("agents/b/inbox")), (0o3770, OWNER, GROUP));
    assert_eq!(shared.findings(OWNER, false), []);
    shared.guest(SENDER, &["enqueue", "b", "x"]).exits(0);
    // A git clone is not shared before `doctor --repair`.
    let git = |dir: &str, args: &str| {
        let id = "git -c user.name=o -c user.email=o@o -c init.defaultBranch=main -c safe.directory=*";
        shared
            .run_as(OWNER, Path::new("sh"), &["-c", &format!("umask 022; cd {dir} && {id} {args}")])
            .exits(0);
    };
    git(".", "init -q");
    git(".", "add .");
    git(".", "commit -qm all");
    git(".", "clone -q . clone");
    let clone = shared.sandbox.project().join("clone");
    let in_clone = |user: u32, args: &[&str]| {
        let args: Vec<&str> = ["-C", clone.to_str().unwrap()].iter().chain(args).copied().collect();
        shared.dormouse(user, &args)
    };
    in_clone(SENDER, &["enqueue", "b", "y"]).exits(1);
    in_clone(OWNER, &["doctor"]).exits(0).shows("sharing");
    in_clone(OWNER, &["doctor", "--repair"]);
    in_clone(SENDER, &["enqueue", "b", "y"]).exits(0);
    let again = in_clone(OWNER, &["doctor"]);
    assert!(!again.stdout.contains("sharing"), "{again}");
}

#[test]
fn a_group_that_does_not_exist_or_lacks_the_owner_is_reported() {
    let Some(shared) = initialised() else { return };
    let config = fs::read_to_string(shared.state().join("dormouse.toml")).unwrap();
    let modes = ["", "agents", "agents/a", "agents/a/inbox"];
    let untouched = || modes.map(|path| rights(&shared.state().join(path)));
    let before = untouched();
    for (group, code, kind, word) in [
        ("\"no-such-group\"", 6, "damaged", "sharing.group: this machine has no group `no-such-group`"),
        ("\"\"", 6, "damaged", "sharing.group: this machine has no group ``"),
        ("\"60099\"", 4, "not_in_group", "you are not in the group `60099`"),
    ] {
        fs::write(shared.state().join("dormouse.toml"), &config).unwrap();
        shared.share(group);
        for args in [&["--json", "create", "b", "--", "true"][..], &["--json", "init"]] {
            let ran = shared.dormouse(OWNER, args).fails(code, kind).warns(word).warns("dormouse.toml");
            assert!(failure(&ran)["hint"].is_string(), "{ran}");
        }
        shared.dormouse(OWNER, &["doctor"]).exits(0).shows(word);
        // A git clone may be on a machine without the group, so existing agents must still work.
        shared.owner(&["enqueue", "a", "x"]);
        shared.owner(&["tick", "a", "--until-idle"]);
    }
    assert_eq!(untouched(), before);
    assert_eq!(names(&shared.state().join("agents")), ["a"]);
    for (group, word) in
        [("60099", "invalid type: integer `60099`, expected a string"), ("true", "expected a string")]
    {
        fs::write(shared.state().join("dormouse.toml"), &config).unwrap();
        shared.share(group);
        shared.dormouse(OWNER, &["get", "a"]).exits(6).warns(word).warns("dormouse.toml");
    }
}

/// Root can own a shared state directory without being in the group. The messages of members still
/// have the members as their origin.
#[test]
fn root_may_be_the_owner() {
    let Some(shared) = unshared(0) else { return };
    let root = |args: &[&str]| {
        let ran = shared.dormouse(0, args).exits(0);
        ran.stdout
    };
    root(&["init"]);
    shared.share(format!("\"{GROUP}\""));
    root(&["create", "a", "--", "true"]);
    root(&["start", "a"]);
    assert_eq!(shared.findings(0, false), []);
    let id = shared.enqueue(SENDER, &["x"]);
    root(&["tick", "a", "--until-idle"]);
    let found: Value = serde_json::from_str(&root(&["--json", "queue", "show", &id])).unwrap();
    assert_is_senders(&found);
    assert_eq!(found["settlement"]["status"], "processed");
    assert_eq!(shared.inbox_names(), Vec::<String>::new());
    // With root as the owner, the user `OWNER` is an ordinary member of the group.
    shared.enqueue(OWNER, &["x"]);
}

/// `doctor` reports a member's directory in the inbox as one finding, whatever the directory
/// contains, and `--repair` moves it away.
#[test]
fn a_deep_directory_of_a_member_is_one_finding_and_can_be_repaired() {
    let Some(shared) = shared() else { return };
    let deep = "umask 0; p=x; for i in $(seq 300); do mkdir $p; p=$p/d; done";
    shared.shell(SENDER, deep).exits(0);
    let found = vec![("writable_by_others".to_owned(), "agents/a/inbox/x".to_owned())];
    assert_eq!(shared.findings(OWNER, false), found);
    assert_eq!(shared.findings(OWNER, true), found);
    assert_eq!(shared.findings(OWNER, false), []);
    // A step, like `doctor --repair`, must move such a directory to where only the owner can enter.
    shared.shell(SENDER, deep).exits(0);
    shared.dormouse(OWNER, &["tick", "a"]);
    let kinds: Vec<String> = shared.findings(OWNER, false).into_iter().map(|(kind, _)| kind).collect();
    assert!(!kinds.contains(&"writable_by_others".to_owned()), "{kinds:?}");
}

/// Members can enqueue messages while the owner stops a running turn and starts the agent again.
#[test]
fn members_can_send_while_the_owner_stops_and_starts() {
    let Some(shared) = shared() else { return };
    let policy = shared.state().join("agents/a/agent.toml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, text.replace("[\"true\"]", "[\"sleep\", \"30\"]")).unwrap();
    let first = shared.enqueue(SENDER, &["first"]);
    std::thread::scope(|scope| {
        let tick = scope.spawn(|| shared.dormouse(OWNER, &["tick", "a"]));
        eventually("a turn", || {
            let state = fs::read_to_string(shared.state().join("agents/a/state.json")).unwrap();
            state.contains("current_run").then_some(())
        });
        let second = shared.enqueue(OTHER, &["second"]);
        shared.owner(&["stop", "a", "--now"]);
        tick.join().unwrap();
        let third = shared.enqueue(SENDER, &["third"]);
        fs::write(&policy, &text).unwrap();
        shared.owner(&["start", "a"]);
        shared.owner(&["tick", "a", "--until-idle"]);
        for id in [&second, &third] {
            assert_eq!(shared.owner(&["queue", "show", id])["settlement"]["status"], "processed");
        }
        assert!(shared.owner(&["queue", "show", &first])["settlement"].is_object());
    });
    assert_eq!(shared.findings(OWNER, false), []);
}

/// `tick --commit` commits the step of the owner even if git can't read a file of a member.
#[test]
fn a_step_is_committed_in_spite_of_a_file_that_git_can_not_read() {
    let Some(shared) = shared() else { return };
    let git = |args: &str| {
        let script = format!("git -c user.name=o -c user.email=o@o {args}");
        let ran = shared.run_as(OWNER, Path::new("sh"), &["-c", &script]).exits(0);
        ran.stdout
    };
    for args in ["init -q", "config user.name o", "config user.email o@o", "add .", "commit -qm all"] {
        git(args);
    }
    shared.shell(SENDER, "echo x > .hidden && echo x > visible && chmod 000 .hidden visible").exits(0);
    shared.owner(&["enqueue", "a", "x"]);
    let ran = shared.dormouse(OWNER, &["tick", "a", "--commit", "--lock-timeout", "1s"]);
    let ran = ran.warns("not in git").warns("visible");
    assert!(git("log -1 --format=%s").starts_with("a: start_model_turn"), "{ran}");
    assert_eq!(git("status --porcelain -uno"), "");
}
