//! Tests the files of `--output`: each is written completely or not at all.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

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
        for (template, had_former) in [(&nothing, false), (&former, true)] {
            let points = strace::record(&template.copy(), words, "").points();
            assert!(points.len() > 4, "{words:?}");
            each_in_parallel(&points, |call| {
                let sandbox = template.copy();
                strace::harm(&sandbox, words, "", call, Harm::Kill);
                let there = names(&out(&sandbox));
                let it = out(&sandbox).join("it");
                let is_former = fs::read(&it).is_ok_and(|bytes| bytes == b"former");
                let temporary = there.iter().filter(|name| *name != "it");
                let is_known = |name: &String| name.starts_with("it.new-");
                assert!(temporary.clone().all(is_known), "{words:?} killed at {call}: {there:?}");
                assert!(temporary.count() <= 1, "{words:?} killed at {call}: {there:?}");
                assert!(it.exists() || !had_former, "{words:?} killed at {call}: {there:?}");
                assert!(!it.exists() || is_former || is_whole(&it, words), "{words:?} killed at {call}");
                sandbox.run(words.iter().copied());
                assert!(is_whole(&it, words), "{words:?} killed at {call}");
            });
        }
    }
}

#[test]
fn a_command_that_fails_to_write_its_output_leaves_the_former_file_alone() {
    needs!("strace");
    let template = sandbox();
    fs::write(out(&template).join("it"), "former").unwrap();
    for words in COMMANDS {
        let points = strace::record(&template.copy(), words, "").points();
        let rename = points.iter().rfind(|call| call.rest.contains("it.new-")).unwrap();
        assert!(rename.name.contains("rename"), "{words:?}: {rename}");
        let sandbox = template.copy();
        let harmed = strace::harm(&sandbox, words, "", rename, Harm::Error("EIO"));
        assert_eq!(harmed.ran.code(), 1, "{}", harmed.ran);
        assert_eq!(names(&out(&sandbox)), ["it"], "{words:?}");
        assert_eq!(fs::read_to_string(out(&sandbox).join("it")).unwrap(), "former", "{words:?}");
    }
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
