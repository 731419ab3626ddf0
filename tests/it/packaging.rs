//! Tests the released archive and Debian package: installs, uses and removes them in a temporary
//! root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{dormouse, write_program};
use crate::setup::{commands, words};

/// Runs a command that must succeed, and returns its standard output.
fn run(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}: {}\n{said}", ran.status);
    String::from_utf8(ran.stdout).unwrap()
}

/// Copies the program without symbols, so that it is packed faster.
fn stripped(dir: &Path) -> PathBuf {
    let path = dir.join("stripped");
    run(Command::new("strip").arg("-o").arg(&path).arg(dormouse()));
    path
}

fn release_script() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/release.sh"))
}

fn release(program: &Path, out: &Path) -> Command {
    let mut command = release_script();
    command.arg("--binary").arg(program).arg(out);
    command.env("SOURCE_DATE_EPOCH", "1767323045").env("CARGO_DEB_FLAGS", "--fast");
    command
}

/// Returns the file of a release whose name has this ending.
fn made(out: &Path, ending: &str) -> PathBuf {
    let mut found = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    found.find(|path| path.to_str().unwrap().ends_with(ending)).unwrap()
}

fn files_below(root: &Path) -> Vec<String> {
    let entries = walkdir::WalkDir::new(root).sort_by_file_name().into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| !entry.file_type().is_dir());
    files.map(|entry| entry.path().strip_prefix(root).unwrap().display().to_string()).collect()
}

#[test]
fn a_release_can_be_installed_used_and_removed() {
    needs!("cargo-deb", "dpkg", "strip", "tar", "gzip", "sha256sum", "git");
    let dir = tempfile::tempdir().unwrap();
    let program = stripped(dir.path());
    let (one, other) = (dir.path().join("one"), dir.path().join("other place"));
    let sums = run(&mut release(&program, &one));
    // A second release has the same bytes, although the time zone, the language and the umask
    // differ.
    let mut again = Command::new("sh");
    let words = release(&program, &other);
    again.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(words.get_program()).args(words.get_args());
    again.envs(words.get_envs().filter_map(|(name, value)| Some((name, value?))));
    again.envs([("TZ", "Asia/Kolkata"), ("LC_ALL", "de_DE.UTF-8")]);
    assert_eq!(run(&mut again), sums);
    run(Command::new("sha256sum").args(["--check", "--strict"]).arg(made(&one, ".sha256")).current_dir(&one));

    let unpacked = dir.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    run(Command::new("tar").arg("-xzf").arg(made(&one, ".tar.gz")).arg("-C").arg(&unpacked));
    let top = fs::read_dir(&unpacked).unwrap().next().unwrap().unwrap().path();
    assert!(run(Command::new(top.join("dormouse")).arg("--version")).starts_with("dormouse "));
    for path in ["README.md", "LICENSE-MIT", "man/dormouse-tick.1", "completions/_dormouse"] {
        assert!(top.join(path).is_file(), "{path}");
    }

    if rustix::process::geteuid().is_root() {
        is_installed_and_removed(&made(&one, ".deb"), &dir.path().join("root"));
    }
}

/// Installs the package in a root that only has the files of dpkg, uses the program, and removes
/// the package.
fn is_installed_and_removed(package: &Path, root: &Path) {
    for path in ["var/lib/dpkg/updates", "var/lib/dpkg/info"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = || {
        let mut command = Command::new("dpkg");
        command.arg("--root").arg(root).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    };
    run(dpkg().arg("--install").arg(package));
    let files = files_below(root);
    let pages = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("man")).unwrap();
    let pages = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let pages = pages.filter(|name| name.ends_with(".1")).map(|name| format!("usr/share/man/man1/{name}.gz"));
    let others = words(
        "usr/bin/dormouse usr/lib/systemd/user/dormouse@.service \
         usr/share/bash-completion/completions/dormouse usr/share/doc/dormouse/copyright \
         usr/share/fish/vendor_completions.d/dormouse.fish usr/share/zsh/vendor-completions/_dormouse",
    );
    for path in pages.chain(others.into_iter().map(str::to_owned)) {
        assert!(files.contains(&path), "{path}: {files:#?}");
    }
    let program = root.join("usr/bin/dormouse");
    let project = root.join("project");
    fs::create_dir(&project).unwrap();
    for args in commands("init, create ada -- true, start ada, enqueue ada x, tick ada, doctor") {
        run(Command::new(&program).args(args).current_dir(&project).env_remove("DORMOUSE_DIR"));
    }
    fs::remove_dir_all(&project).unwrap();
    is_a_unit(root, &program);

    run(dpkg().args(["--purge", "dormouse"]));
    let left: Vec<String> = files_below(root).into_iter().filter(|path| !path.starts_with("var/")).collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// Verifies the unit template with systemd, for a state directory whose path has a space.
fn is_a_unit(root: &Path, program: &Path) {
    needs!("systemd-analyze", "systemd-escape");
    let text = fs::read_to_string(root.join("usr/lib/systemd/user/dormouse@.service")).unwrap();
    let text = text.replace("/usr/bin/dormouse", program.to_str().unwrap());
    let instance = run(Command::new("systemd-escape").args(["--path", "/srv/our agents/.dormouse"]));
    let home = tempfile::tempdir().unwrap();
    let unit = home.path().join(format!("dormouse@{}.service", instance.trim()));
    fs::write(&unit, text).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--user", "--man=no"]).arg(&unit).env("XDG_RUNTIME_DIR", home.path());
    let ran = verify.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !said.contains("dormouse"), "{}\n{said}", ran.status);
}

#[test]
fn the_release_script_prints_its_usage_and_names_a_missing_program() {
    let dir = tempfile::tempdir().unwrap();
    let none = release_script().output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).starts_with("usage: "));
    let program = dir.path().join("no such program");
    let missing = release(&program, &dir.path().join("out")).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no such program"), "{missing:?}");
    assert!(!dir.path().join("out").exists());
}

/// Replaces cargo: records the flags and the linker of a build, and makes the files that a build
/// makes.
const CARGO: &str = r#"#!/bin/sh
case $1 in
build)
    printf '%s' "$CARGO_ENCODED_RUSTFLAGS" | tr '\037' '\n' >"$NOTES/flags"
    env | sed -n 's/_LINKER=/ /p' >"$NOTES/linker"
    mkdir -p "$CARGO_TARGET_DIR/riscv64gc-unknown-linux-gnu/release"
    echo program >"$CARGO_TARGET_DIR/riscv64gc-unknown-linux-gnu/release/dormouse"
    ;;
deb) echo package >"$NOTES/out/one.deb" && echo "$NOTES/out/one.deb" ;;
esac
"#;

#[test]
fn a_cross_build_gets_its_compiler_flags_and_its_linker() {
    needs!("cargo-deb", "tar", "gzip", "sha256sum", "git");
    let dir = tempfile::tempdir().unwrap();
    let (notes, bin) = (dir.path().join("notes"), dir.path().join("bin"));
    fs::create_dir_all(notes.join("out")).unwrap();
    fs::create_dir(&bin).unwrap();
    write_program(&bin.join("cargo"), CARGO);
    let path = std::env::var("PATH").unwrap();
    run(release_script()
        .args(["--target", "riscv64gc-unknown-linux-gnu"])
        .arg(notes.join("out"))
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("NOTES", &notes)
        .env("SOURCE_DATE_EPOCH", "1767323045"));
    let flags = fs::read_to_string(notes.join("flags")).unwrap();
    assert!(flags.starts_with("-C\ntarget-feature=+crt-static\n-C\nrelocation-model=static\n"), "{flags}");
    let has_empty = flags.split('\n').any(str::is_empty);
    assert!(!has_empty, "rustc takes an empty flag for a file: {flags:?}");
    let expected = "CARGO_TARGET_RISCV64GC_UNKNOWN_LINUX_GNU riscv64gc-linux-gnu-gcc\n";
    assert_eq!(fs::read_to_string(notes.join("linker")).unwrap(), expected);
}
