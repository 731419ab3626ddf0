//! Tests `service`: systemd, cron and launchd accept the printed files, for any directory name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Sandbox, dormouse, write_program};
use crate::missing_tools::leave_out;
use crate::setup::{Beside, eventually, names, objects, wait_for};

/// Creates a state directory, with an agent, in a directory with the given name.
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

/// Returns path and text of each printed file. Without `--json` the command prints the same texts.
fn files(sandbox: &Sandbox, dir: &Path, args: &[&str]) -> Vec<(String, String)> {
    let printed = |json: &[&str]| {
        let words = [&["-C", dir.to_str().unwrap()], json, &["service"], args].concat();
        let ran = sandbox.cmd(words).output();
        // If two files are printed as text, a note on stderr says where the second one begins.
        let has_second = json.is_empty() && ran.stdout.contains("\n[Timer]\n");
        assert_eq!((ran.code(), ran.stderr.contains("two files")), (0, has_second), "{ran}");
        assert!(has_second || ran.stderr.is_empty(), "{ran}");
        ran.stdout
    };
    let text = |file: &serde_json::Value, field: &str| file[field].as_str().unwrap().to_owned();
    let files: Vec<(String, String)> =
        objects(&printed(&["--json"])).iter().map(|file| (text(file, "path"), text(file, "text"))).collect();
    assert_eq!(printed(&[]), files.iter().map(|(_, text)| text.as_str()).collect::<String>());
    files
}

const PLAIN: &str = "agents";
/// Directory name with special characters of all file formats: systemd units, crontab, plist.
const AWKWARD: &str = "our agents' 50% \"best\" $HOME \\x & <co> a---b \\% \u{ad}é ;#!";

#[test]
fn systemd_accepts_its_units() {
    needs!("systemd-analyze");
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

/// Returns the command of a crontab that cron passes to the shell.
fn command_of(crontab: &str, fields: usize) -> String {
    let line = crontab.lines().find(|line| line.starts_with('*')).unwrap();
    let mut rest = line;
    for _ in 0..fields {
        rest = rest.trim_start().split_once(' ').unwrap().1;
    }
    // Cron removes the backslash before a percent sign, and keeps all other backslashes.
    let (mut command, mut is_kept) = (String::new(), false);
    for c in rest.chars() {
        assert!(c != '%' || is_kept, "cron ends the line there: {rest}");
        if c == '%' {
            command.pop();
        }
        command.push(c);
        is_kept = c == '\\' && !is_kept;
    }
    command
}

#[test]
fn the_printed_cron_command_ticks_and_prints_nothing() {
    for name in [PLAIN, AWKWARD] {
        let (sandbox, dir) = below(name);
        let dir_word = dir.to_str().unwrap();
        let machine = files(&sandbox, &dir, &["cron"]);
        assert!(machine[0].0.starts_with("/etc/cron.d/dormouse-"), "{machine:?}");
        let (_, crontab) = files(&sandbox, &dir, &["cron", "--user"]).remove(0);
        assert_eq!(command_of(&crontab, 5), command_of(&machine[0].1, 6));
        let command = command_of(&crontab, 5);
        let run_like_cron = || {
            let mut sh = Command::new("sh");
            sh.args(["-c", &command]).current_dir(sandbox.home()).env_clear();
            sh.env("HOME", sandbox.home()).env("LOGNAME", "x").env("SHELL", "/bin/sh");
            sh.env("PATH", "/usr/local/bin:/usr/bin:/bin").output().unwrap()
        };
        sandbox.run(["-C", dir_word, "enqueue", "ada", "x"]);
        for turns in [1, 1] {
            let ran = run_like_cron();
            assert!(ran.status.success() && ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran:?}");
            let done = fs::read_to_string(sandbox.home().join("turns")).unwrap();
            assert_eq!(done.lines().count(), turns);
        }
        // Cron sends a mail if a command prints anything, so a damaged agent must print an error.
        fs::write(dir.join("agents/ada/state.json"), "{").unwrap();
        let ran = run_like_cron();
        assert!(!ran.status.success() && ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
}

/// Runs a script as root in new PID and mount namespaces, which end with it. If that is impossible,
/// reports the test as left out, and returns `None`.
fn apart(sandbox: &Sandbox, script: &str) -> Option<Beside> {
    let unshare = |script: &str| {
        let mut words: Vec<std::ffi::OsString> = Vec::new();
        words.extend(
            ["--mount", "--pid", "--cgroup", "--fork", "--kill-child", "--mount-proc", "sh", "-ec"]
                .map(Into::into),
        );
        words.push(script.into());
        sandbox.program("unshare", words)
    };
    let tried = rustix::process::geteuid().is_root()
        && unshare("mount -t tmpfs none /run").into_command().output().is_ok_and(|ran| ran.status.success());
    if !tried {
        leave_out("needs root, and mounts of its own (unshare)");
        return None;
    }
    Some(Beside::start(unshare(script)))
}

/// Lets Debian's cron run the printed crontab: cron starts a second tick while a turn takes more
/// than a minute, sends no mail without output, and sends mail on errors.
#[test]
fn the_cron_of_debian_runs_the_printed_crontab() {
    needs!("cron");
    if std::env::var_os("CI").is_none() && std::env::var_os("DORMOUSE_CRON").is_none() {
        return leave_out("takes two minutes: set DORMOUSE_CRON");
    }
    let (busy, busy_dir) = below(PLAIN);
    let (idle, idle_dir) = below("idle");
    let (damaged, damaged_dir) = below(AWKWARD);
    fs::write(damaged_dir.join("agents/ada/state.json"), "{").unwrap();
    let home = busy.home();
    let turn = format!(
        "env > '{0}/env'; echo begun >> '{0}/turns'; until test -e '{0}/go'; do sleep 0.1; done",
        home.display()
    );
    let busy_word = busy_dir.to_str().unwrap();
    busy.run(["-C", busy_word, "create", "bob", "--shell", &turn]);
    busy.run(["-C", busy_word, "start", "bob"]);
    for text in ["one", "two"] {
        busy.run(["-C", busy_word, "enqueue", "bob", text]);
    }
    for (name, sandbox, dir) in
        [("busy", &busy, &busy_dir), ("idle", &idle, &idle_dir), ("damaged", &damaged, &damaged_dir)]
    {
        let (path, text) = files(sandbox, dir, &["cron"]).remove(0);
        // Cron ignores a file in `cron.d` whose name has a dot or another special character.
        let file = path.rsplit('/').next().unwrap();
        assert!(file.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{path}");
        fs::write(home.join(format!("cron-{name}")), text).unwrap();
    }
    let sendmail = home.join("sendmail");
    write_program(
        &sendmail,
        &format!("#!/bin/sh\ncat > '{0}/mail-'$$.new\nmv '{0}/mail-'$$.new '{0}/mail-'$$\n", home.display()),
    );
    let script = format!(
        "cp /usr/sbin/cron '{0}/cron'
         for dir in /etc/cron.d /var/spool/cron /run /usr/sbin; do mount -t tmpfs none $dir; done
         mkdir /var/spool/cron/crontabs
         : > '{0}/none' && if test -e /etc/crontab; then mount --bind '{0}/none' /etc/crontab; fi
         cp '{0}/sendmail' '{0}/cron' /usr/sbin/
         for file in busy idle damaged; do cp '{0}/cron-'$file /etc/cron.d/dormouse-$file; done
         exec env -i PATH=/usr/bin:/bin /usr/sbin/cron -f",
        home.display()
    );
    let Some(_cron) = apart(&busy, &script) else { return };
    let mails = || {
        let names = names(&home).into_iter();
        let mails = names.filter(|name| name.starts_with("mail-") && !name.ends_with(".new"));
        mails.map(|name| fs::read_to_string(home.join(name)).unwrap()).collect::<Vec<_>>()
    };
    // Cron mails the damaged agent's error each minute, so two mails mean two ticks of `bob`.
    eventually("cron has come by twice", || (mails().len() >= 2).then_some(()));
    let turns = || fs::read_to_string(home.join("turns")).unwrap().lines().count();
    assert_eq!(turns(), 1);
    fs::write(home.join("go"), "").unwrap();
    eventually("both messages are done", || {
        let seen = busy.json(["-C", busy_word, "get", "bob"]);
        (seen["queue"]["pending"] == 0 && seen["current_run"].is_null()).then_some(())
    });
    assert_eq!(turns(), 2);
    for mail in mails() {
        assert!(mail.contains("state.json") && mail.contains("Subject: Cron <root@"), "{mail}");
    }
    let env = fs::read_to_string(home.join("env")).unwrap();
    assert!(env.lines().any(|line| line.starts_with("PATH=/usr/local/bin:/usr/bin:/bin")), "{env}");
    assert!(!env.contains("CARGO"), "{env}");
}

/// Lets a separate systemd start the printed service, watch it, and restart it when it hangs.
#[test]
fn a_systemd_runs_the_printed_service() {
    let systemd = Path::new("/lib/systemd/systemd");
    needs!("systemctl");
    if Path::new("/run/systemd/system").exists() {
        return leave_out("this machine has a systemd, which is not to be disturbed");
    }
    let (sandbox, dir) = below(AWKWARD);
    let home = sandbox.home();
    let (path, text) = files(&sandbox, &dir, &["systemd", "--user", "--follow"]).remove(0);
    let unit = path.rsplit('/').next().unwrap();
    let units = home.join(".config/systemd/user");
    fs::create_dir_all(&units).unwrap();
    let hurried = text.replace("WatchdogSec=60", "WatchdogSec=1").replace("RestartSec=5", "RestartSec=0");
    assert_ne!(hurried, text);
    fs::write(units.join(unit), hurried).unwrap();
    let script = format!(
        "mount -t tmpfs none /run && mkdir -p -m 700 /run/systemd/system /run/user
         export XDG_RUNTIME_DIR=/run/user
         {} --user --unit=basic.target >'{1}/log' 2>&1 &
         until systemctl --user is-active -q basic.target 2>/dev/null; do
             kill -0 $! 2>/dev/null || exec sleep 1000
             sleep 0.1
         done
         touch '{1}/is-up'
         trap 'rmdir /sys/fs/cgroup/*/app.slice/* /sys/fs/cgroup/*/app.slice 2>/dev/null' EXIT
         pid() {{ systemctl --user show -p MainPID --value {unit}; }}
         systemctl --user start {unit}; first=$(pid)
         systemctl --user reload {unit}
         sleep 2.5
         test \"$first\" = \"$(pid)\" && echo kept
         kill -STOP $first
         until systemctl --user show -p NRestarts --value {unit} | grep -qx 1; do sleep 0.1; done; echo watched
         touch '{1}/again'
         until test -e '{1}/turns'; do sleep 0.1; done
         systemctl --user stop {unit} && systemctl --user show -p Result,ActiveState {unit}
         systemctl --user exit; wait",
        systemd.display(),
        home.display(),
    );
    let Some(inside) = apart(&sandbox, &script) else { return };
    let is_up = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        home.join("is-up").exists()
    });
    if !is_up {
        return leave_out("no systemd can run here");
    }
    wait_for(&home.join("again"));
    sandbox.run(["-C", dir.to_str().unwrap(), "enqueue", "ada", "x"]);
    let ran = inside.end();
    assert_eq!(ran.stdout, "kept\nwatched\nResult=success\nActiveState=inactive\n", "{ran}");
}

#[test]
fn the_launchd_property_list_is_valid_and_runs_tick() {
    needs!("python3");
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
fn service_refuses_a_path_with_a_newline_and_follow_without_systemd() {
    let (sandbox, dir) = below("two\nlines");
    let dir = dir.to_str().unwrap();
    for manager in ["systemd", "cron", "launchd"] {
        assert_eq!(sandbox.cmd(["-C", dir, "service", manager]).output().code(), 4, "{manager}");
    }
    let (sandbox, dir) = below(PLAIN);
    for manager in ["cron", "launchd"] {
        sandbox.cmd(["-C", dir.to_str().unwrap(), "service", manager, "--follow"]).exits(2);
    }
    assert_eq!(sandbox.cmd(["service", "cron"]).output().code(), 3);
}
