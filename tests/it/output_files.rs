//! Tests the files of `--output`: each is written completely or not at all, without other files.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use predicates::str::contains;
use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};

use crate::harness::{Sandbox, each_in_parallel};
use crate::setup::{names, started};
use crate::strace::{self, Harm};

/// Commands with `--output`.
const COMMANDS: [&[&str]; 3] =
    [&["export", "ada", "-o", "out/it"], &["metrics", "-o", "out/it"], &["report", "-o", "out/it"]];

fn sandbox() -> Sandbox {
    let sandbox = started("true");
    fs::create_dir(sandbox.project().join("out")).unwrap();
    sandbox
}

fn out(sandbox: &Sandbox) -> std::path::PathBuf {
    sandbox.project().join("out")
}

/// True if the file at `path` contains the complete output of the command `words`.
fn is_whole(path: &Path, words: &[&str]) -> bool {
    let bytes = fs::read(path).unwrap();
    match words[0] {
        "export" => bytes.ends_with(&[0; 1024]),
        "metrics" => {
            let text = String::from_utf8(bytes).unwrap();
            let last = text.lines().last().unwrap_or_default();
            text.ends_with('\n') && last.starts_with("dormouse_agent_lock_wait_seconds_total{agent=\"ada\"} ")
        }
        _ => String::from_utf8(bytes).unwrap().trim_end().ends_with("</html>"),
    }
}

#[test]
fn a_killed_command_leaves_a_whole_output_file_or_the_former_or_none() {
    needs!("strace");
    let nothing = sandbox();
    let former = nothing.copy();
    fs::write(out(&former).join("it"), "former").unwrap();
    for words in COMMANDS {
        for template in [&nothing, &former] {
            let points = strace::record(&template.copy(), words, "").points();
            assert!(points.len() > 4, "{words:?}");
            each_in_parallel(&points, |call| {
                let sandbox = template.copy();
                strace::harm(&sandbox, words, "", call, Harm::Kill);
                let there = names(&out(&sandbox));
                let it = out(&sandbox).join("it");
                // A temporary file may be left only if the command was replacing a former file,
                // which must be intact.
                let is_former = fs::read(&it).is_ok_and(|bytes| bytes == b"former");
                let is_alone = there.iter().all(|name| name == "it");
                assert!(is_alone || is_former, "{words:?} killed at {call}: {there:?}");
                assert!(!it.exists() || is_former || is_whole(&it, words), "{words:?} killed at {call}");
                sandbox.run(words.iter().copied());
                assert_eq!(names(&out(&sandbox)), ["it"], "{words:?} killed at {call}");
                assert!(is_whole(&it, words), "{words:?} killed at {call}");
            });
        }
    }
}

#[test]
fn an_output_file_is_written_without_support_for_o_tmpfile() {
    needs!("strace");
    let template = sandbox();
    for words in COMMANDS {
        let points = strace::record(&template.copy(), words, "").points();
        let Some(nameless) = points.iter().find(|call| call.rest.contains("O_TMPFILE")) else { continue };
        let sandbox = template.copy();
        let harmed = strace::harm(&sandbox, words, "", nameless, Harm::Error("EOPNOTSUPP"));
        assert_eq!(harmed.ran.code(), 0, "{}", harmed.ran);
        assert_eq!(names(&out(&sandbox)), ["it"]);
        assert!(is_whole(&out(&sandbox).join("it"), words));
    }
}

#[test]
fn a_command_does_not_replace_the_temporary_file_of_another() {
    let sandbox = sandbox();
    fs::write(out(&sandbox).join("it"), "former").unwrap();
    let beside = out(&sandbox).join("it.new-dormouse");
    let held = File::create(&beside).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    sandbox.cmd(["metrics", "-o", "out/it"]).assert().code(5).stderr(contains("it.new-dormouse"));
    assert_eq!(fs::read_to_string(out(&sandbox).join("it")).unwrap(), "former");
    drop(held);
    sandbox.run(["metrics", "-o", "out/it"]);
    assert_eq!(names(&out(&sandbox)), ["it"]);
    // The command must not delete a symbolic link that has the name of its temporary file.
    symlink("elsewhere", &beside).unwrap();
    sandbox.cmd(["metrics", "-o", "out/it"]).exits(1);
    assert_eq!(names(&out(&sandbox)), ["it", "it.new-dormouse"]);
}

#[test]
fn output_to_a_pipe_does_not_replace_the_pipe() {
    let sandbox = sandbox();
    let pipe = out(&sandbox).join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    symlink("pipe", out(&sandbox).join("it")).unwrap();
    let before = fs::metadata(&pipe).unwrap().ino();
    let text = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut text = String::new();
            File::open(&pipe).unwrap().read_to_string(&mut text).unwrap();
            text
        });
        sandbox.run(["metrics", "-o", "out/it"]);
        reader.join().unwrap()
    });
    assert!(text.contains("dormouse_"), "{text}");
    assert_eq!(fs::metadata(&pipe).unwrap().ino(), before);
    assert_eq!(names(&out(&sandbox)), ["it", "pipe"]);
}
