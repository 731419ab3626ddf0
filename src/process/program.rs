//! Reasons for which a program can't start, with hints, found without starting the program.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// Returns the reason for which the command `argv` can't start in `workdir`, with a hint if there
/// is one. `path`: the `PATH` of the command. `None` if no error is known.
pub fn fault(argv: &[impl AsRef<OsStr>], workdir: &Path, path: Option<&OsStr>) -> Option<String> {
    let name = argv.first()?.as_ref();
    let shown = Path::new(name).display();
    if !name.as_bytes().contains(&b'/') {
        let advice = if name.as_bytes().contains(&b' ') {
            ": write each word by itself, or use --shell".to_owned()
        } else if workdir.join(name).is_file() {
            format!(": write ./{shown} for the file of this name")
        } else {
            String::new()
        };
        let is_missing = in_path(name, workdir, path).is_none();
        return is_missing.then(|| format!("{shown} is not in the PATH{advice}"));
    }
    let place = workdir.join(name);
    if !place.exists() {
        // `components` drops a `.` at the end of the path, which would be odd in the message.
        let workdir: PathBuf = workdir.components().collect();
        let looked = format!("(looked for in {})", workdir.display());
        return Some(format!("{shown} is not there {looked}: put it there, or give its whole path"));
    }
    if place.is_dir() {
        return Some(format!("{shown} is a directory, not a program"));
    }
    let is_closed = rustix::fs::access(&place, Access::EXEC_OK).is_err();
    let closed = is_closed.then(|| format!("is not executable: `chmod +x {shown}`"));
    let faults: Vec<String> = closed.into_iter().chain(script(&place, workdir, path)).collect();
    (!faults.is_empty()).then(|| format!("{shown} {}", faults.join("; it ")))
}

/// Returns the reason for which the interpreter of a script can't start.
fn script(place: &Path, workdir: &Path, path: Option<&OsStr>) -> Option<String> {
    // The kernel, too, reads at most 256 bytes of a script's first line.
    let mut start = Vec::with_capacity(256);
    File::open(place).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    if line.ends_with(b"\r") {
        let shown: PathBuf = place.components().collect();
        let shown = shown.display();
        return Some(format!(
            "has Windows line ends, which its interpreter can't read: `sed -i 's/\\r$//' {shown}`"
        ));
    }
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let interpreter = Path::new(OsStr::from_bytes(words.next()?));
    if !workdir.join(interpreter).exists() {
        return Some(format!(
            "asks for {}, which is not there: install it, or change its first line",
            interpreter.display()
        ));
    }
    let named = words.next().filter(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    let named = OsStr::from_bytes(named);
    let is_missing =
        interpreter.file_name() == Some(OsStr::new("env")) && in_path(named, workdir, path).is_none();
    is_missing.then(|| {
        format!(
            "asks for {}, which is not in the PATH: install it, or change its first line",
            Path::new(named).display()
        )
    })
}

/// Returns the path of the program that a shell would find by this name.
fn in_path(name: &OsStr, workdir: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let dirs = std::env::split_paths(path?);
    dirs.map(|dir| workdir.join(dir).join(name))
        .find(|place| place.is_file() && rustix::fs::access(place, Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn each_reason_why_a_program_cannot_start_has_its_own_text() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str, mode: u32| {
            fs::write(dir.path().join(name), text).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        put("good.sh", "#!/bin/sh\ntrue\n", 0o755);
        put("env.sh", "#!/usr/bin/env -S sh -e\ntrue\n", 0o755);
        put("plain", "true\n", 0o755);
        put("closed.sh", "#!/bin/sh\n", 0o644);
        put("windows.sh", "#!/bin/sh\r\ntrue\r\n", 0o755);
        put("odd.sh", "#!/no/such/interpreter\n", 0o755);
        put("odder.sh", "#!/usr/bin/env no-such-interpreter\n", 0o755);
        put("both.sh", "#!/bin/sh\r\ntrue\r\n", 0o644);
        let rows: [(&str, Option<&str>); 14] = [
            (
                "./both.sh",
                Some(
                    "`chmod +x ./both.sh`; it has Windows line ends, which its interpreter can't read: `sed",
                ),
            ),
            ("echo hi", Some("echo hi is not in the PATH: write each word by itself")),
            ("./good.sh", None),
            ("./env.sh", None),
            ("./plain", None),
            ("sh", None),
            ("/bin/sh", None),
            ("./absent.sh", Some("./absent.sh is not there")),
            ("./closed.sh", Some("./closed.sh is not executable: `chmod +x ./closed.sh`")),
            ("./windows.sh", Some("`sed -i 's/\\r$//'")),
            ("./odd.sh", Some("asks for /no/such/interpreter")),
            ("./odder.sh", Some("asks for no-such-interpreter, which is not in the PATH")),
            ("no-such-program", Some("no-such-program is not in the PATH")),
            ("./", Some("is a directory")),
        ];
        let path = std::env::var_os("PATH");
        for (name, expected) in rows {
            let found = fault(&[name], dir.path(), path.as_deref());
            match expected {
                Some(words) => {
                    assert!(found.as_ref().is_some_and(|found| found.contains(words)), "{name}: {found:?}")
                }
                None => assert_eq!(found, None, "{name}"),
            }
        }
    }
}
