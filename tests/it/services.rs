//! `service`: what it prints is what systemd, cron and launchd can read, with any path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Sandbox, dormouse};
use crate::setup::{eventually, objects};

/// A state directory below this name, with an agent.
fn below(name: &str) -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::empty().with_real_clock();
    let home = sandbox.project().join(name);
    fs::create_dir(&home).unwrap();
    let dir = home.join(".dormouse").display().to_string();
    sandbox.run(["init", &dir]);
    sandbox.run(["-C", &dir, "create", "ada", "--shell", "echo done >> \"$HOME/turns\""]);
    sandbox.run(["-C", &dir, "start", "ada"]);
    (sandbox, dir.into())
}

fn files(sandbox: &Sandbox, dir: &Path, args: &[&str]) -> Vec<(String, String)> {
    let mut all = vec!["-C", dir.to_str().unwrap(), "--json", "service"];
    all.extend(args);
    let ran = sandbox.cmd(all).output();
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran}");
    let text = |file: &serde_json::Value, field: &str| file[field].as_str().unwrap().to_owned();
    objects(&ran.stdout).iter().map(|file| (text(file, "path"), text(file, "text"))).collect()
}

fn has(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is missing (package {package})");
    }
    found
}

const PLAIN: &str = "agents";
const AWKWARD: &str = r#"our agents' 50% "best" $HOME \x & <co>"#;

#[test]
fn systemd_accepts_its_units() {
    if !has("systemd-analyze", "systemd") {
        return;
    }
    for name in [PLAIN, AWKWARD] {
        let (sandbox, dir) = below(name);
        for args in [
            &["systemd"][..],
            &["systemd", "--follow"],
            &["systemd", "--user", "--jobs", "4"],
            &["systemd", "--user", "--follow"],
        ] {
            let units = sandbox
                .home()
                .join(format!("units{}", args.len() + usize::from(args.contains(&"--follow")) * 8));
            fs::create_dir_all(&units).unwrap();
            let mut verify = Command::new("systemd-analyze");
            verify.args(["verify", "--man=no"]).args(args.contains(&"--user").then_some("--user"));
            for (path, text) in files(&sandbox, &dir, args) {
                let unit = units.join(path.rsplit('/').next().unwrap());
                fs::write(&unit, text).unwrap();
                verify.arg(unit);
            }
            verify.env("XDG_RUNTIME_DIR", sandbox.home());
            let ran = verify.output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            let ours: Vec<&str> = said.lines().filter(|line| line.contains("dormouse")).collect();
            assert!(ran.status.success() && ours.is_empty(), "{args:?} {name}: {}\n{said}", ran.status);
        }
    }
}

/// The command of a crontab as cron hands it to the shell.
fn command_of(crontab: &str, fields: usize) -> String {
    let line = crontab.lines().find(|line| line.starts_with('*')).unwrap();
    let mut rest = line;
    for _ in 0..fields {
        rest = rest.trim_start().split_once(' ').unwrap().1;
    }
    assert!(!rest.replace("\\%", "").contains('%'), "cron ends the line there: {rest}");
    rest.replace("\\%", "%")
}

#[test]
fn what_cron_runs_is_silent_and_does_its_work() {
    for name in [PLAIN, AWKWARD] {
        let (sandbox, dir) = below(name);
        let dir_word = dir.to_str().unwrap();
        let machine = files(&sandbox, &dir, &["cron"]);
        assert!(machine[0].0.starts_with("/etc/cron.d/dormouse-"), "{machine:?}");
        let (_, crontab) = files(&sandbox, &dir, &["cron", "--user"]).remove(0);
        assert_eq!(command_of(&crontab, 5), command_of(&machine[0].1, 6));
        let command = command_of(&crontab, 5);
        // cron's environment.
        let run = || {
            let mut sh = Command::new("sh");
            sh.args(["-c", &command]).current_dir(sandbox.home()).env_clear();
            sh.env("HOME", sandbox.home()).env("LOGNAME", "x").env("SHELL", "/bin/sh");
            sh.env("PATH", "/usr/local/bin:/usr/bin:/bin").output().unwrap()
        };
        sandbox.run(["-C", dir_word, "enqueue", "ada", "x"]);
        for turns in [1, 1] {
            let ran = run();
            assert!(ran.status.success() && ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran:?}");
            let done = fs::read_to_string(sandbox.home().join("turns")).unwrap();
            assert_eq!(done.lines().count(), turns);
        }
        // Mail comes with what needs a person.
        fs::write(dir.join("agents/ada/state.json"), "{").unwrap();
        let ran = run();
        assert!(!ran.status.success() && ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
}

/// Debian's own cron runs the line, in a directory of its own where that can be.
#[test]
fn debians_cron_runs_it() {
    let cron = Path::new("/usr/sbin/cron");
    if !cron.exists() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it needs root and /usr/sbin/cron (package cron)");
        return;
    }
    if std::env::var_os("DORMOUSE_CRON").is_none() {
        eprintln!("skipped: it takes over a minute and starts a cron: set DORMOUSE_CRON");
        return;
    }
    let (sandbox, dir) = below(PLAIN);
    sandbox.run(["-C", dir.to_str().unwrap(), "enqueue", "ada", "x"]);
    let (_, text) = files(&sandbox, &dir, &["cron"]).remove(0);
    let crontab = sandbox.home().join("crontab");
    fs::write(&crontab, format!("HOME={}\n{text}", sandbox.home().display())).unwrap();
    let script = format!(
        "for dir in /etc/cron.d /var/spool/cron /run; do mount -t tmpfs none $dir || exit; done
         cp '{}' /etc/cron.d/dormouse-test && exec cron -f",
        crontab.display()
    );
    let mut run = Command::new("unshare");
    run.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script]);
    let mut child = run.spawn().unwrap();
    eventually("cron has run it", || sandbox.home().join("turns").exists().then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn launchds_list_says_what_is_meant() {
    if !has("python3", "python3") {
        return;
    }
    for name in [PLAIN, AWKWARD] {
        let (sandbox, dir) = below(name);
        let (path, text) = files(&sandbox, &dir, &["launchd", "--user"]).remove(0);
        assert!(path.starts_with("~/Library/LaunchAgents/dormouse-") && path.ends_with(".plist"), "{path}");
        let list = sandbox.home().join("list");
        fs::write(&list, text).unwrap();
        let read = "import plistlib,sys,json; print(json.dumps(plistlib.load(open(sys.argv[1],'rb'))))";
        let ran = Command::new("python3").args(["-c", read]).arg(&list).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let list: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let words: Vec<&str> =
            list["ProgramArguments"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let program = dormouse().canonicalize().unwrap();
        assert_eq!(words[..4], [program.to_str().unwrap(), "--dir", dir.to_str().unwrap(), "tick"]);
        assert_eq!(list["StartInterval"], 60);
    }
}

#[test]
fn what_no_file_can_say_is_refused() {
    let (sandbox, dir) = below("two\nlines");
    let dir = dir.to_str().unwrap();
    for manager in ["systemd", "cron", "launchd"] {
        assert_eq!(sandbox.cmd(["-C", dir, "service", manager]).output().code(), 4, "{manager}");
    }
    let (sandbox, dir) = below(PLAIN);
    for manager in ["cron", "launchd"] {
        let ran = sandbox.cmd(["-C", dir.to_str().unwrap(), "service", manager, "--follow"]).output();
        assert_eq!(ran.code(), 2, "{ran}");
    }
    assert_eq!(sandbox.cmd(["service", "cron"]).output().code(), 3);
}
