//! Deletion of files of a run that has ended. Its record is archived, so files that repeat the
//! record, or that were needed only while the run was live, are removed.

use std::ffi::OsStr;

use crate::cap_fs::CapPath;
use crate::error::Result;
use crate::model::json;
use crate::model::run::Run;
use crate::model::turn::Outcome;

use super::{CONTEXT, Dir, END, END_NEW, HOOK_LOG, LEADER, MOST, OUTCOME, PROMPT, STDERR, STDOUT};

impl Dir {
    /// Clears the directory of a settled run, and removes it if it is then empty. `keeps_context`:
    /// keep the context of the turn. Idempotent. Only for a process that holds the run's lease, or
    /// held it until the settlement, so that no process of the run uses the directory.
    pub fn clear(&self, run: &Run, keeps_context: bool) -> Result<()> {
        let mut is_empty = true;
        for entry in self.cap.entries()? {
            let cap = self.cap.join(&entry.name);
            if !entry.is_dir && is_stale(&cap, &entry.name, run, keeps_context)? {
                cap.remove()?;
            } else {
                is_empty = false;
            }
        }
        if is_empty {
            // The call fails, and keeps the directory, if a hook has written a file meanwhile.
            let _ = self.cap.remove_dir();
        }
        Ok(())
    }

    /// True if the directory was not cleared: it has files that only a live run needs, or is empty,
    /// and clearing removes an empty directory.
    pub fn is_uncleared(&self) -> Result<bool> {
        let (mut is_empty, mut has_notes) = (true, false);
        self.cap.each_entry(|name, _| {
            is_empty = false;
            has_notes |= [LEADER, END].map(str::as_bytes).contains(&name);
            true
        })?;
        Ok(is_empty || has_notes)
    }
}

/// True if a file in the directory of a settled run can be removed.
fn is_stale(cap: &CapPath, name: &OsStr, run: &Run, keeps_context: bool) -> Result<bool> {
    let Some(name) = name.to_str() else { return Ok(false) };
    match name {
        LEADER | END | END_NEW => Ok(true),
        CONTEXT | PROMPT => Ok(!keeps_context),
        STDOUT => is_empty(cap, run.stdout_bytes),
        STDERR => is_empty(cap, run.stderr_bytes),
        HOOK_LOG => is_empty(cap, None),
        OUTCOME => is_recorded(cap, run),
        // Transactions remove checkpoints (saved progress); unknown files belong to the turn.
        _ => Ok(false),
    }
}

/// True if a log is empty. `came`: bytes of output by the run's record, if they were counted.
fn is_empty(cap: &CapPath, came: Option<u64>) -> Result<bool> {
    match came {
        Some(bytes) => Ok(bytes == 0),
        None => Ok(cap.look()?.is_none_or(|found| found.st_size == 0)),
    }
}

/// True if the run's record has all of its outcome file. False if the file can't be parsed.
fn is_recorded(cap: &CapPath, run: &Run) -> Result<bool> {
    let Some(bytes) = cap.read(MOST)? else { return Ok(true) };
    let Ok(outcome) = json::read::<Outcome>(&bytes) else { return Ok(false) };
    let Outcome { brief, actions, usage, deferred } = outcome;
    let is_told = (brief.is_none() || brief == run.brief) && (usage.is_none() || usage == run.usage);
    Ok(is_told && actions.is_empty() && deferred.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap_fs::at;
    use crate::model::run::Usage;

    fn run() -> Run {
        serde_json::from_str(
            r#"{"id":"run_01900000000070008000000000000001","agent":"ada",
                "message_id":"msg_01900000000070008000000000000001","attempt":1,
                "started_at":"2026-01-02T03:04:05.000Z","ended_at":"2026-01-02T03:04:06.000Z",
                "terminal":"completed","exit":{"how":"code","code":0},"brief":"done",
                "stdout_bytes":0,"stderr_bytes":3,
                "continuation":{"trigger_kind":"operator_input","class":"local_continuation","model_reentry":true,
                "prior_closure_outcome":"completed","matched_waiting_reason":false}}"#,
        )
        .expect("a run")
    }

    #[test]
    fn only_run_files_without_further_information_are_stale() {
        let dir = tempfile::tempdir().expect("a directory");
        let is_stale_file = |name: &str, content: &str, keeps: bool| {
            let cap = at(dir.path()).join(name);
            std::fs::write(cap.path(), content).expect("written");
            let run = Run { usage: Some(Usage { input_tokens: Some(3), ..Usage::default() }), ..run() };
            is_stale(&cap, OsStr::new(name), &run, keeps).expect("looked at")
        };
        for (name, content, expected) in [
            ("leader", "1", true),
            ("end.json", "{}", true),
            ("end.json.new", "", true),
            ("context.json", "{}", true),
            ("prompt.txt", "x", true),
            ("stdout.log", "", true),
            ("stderr.log", "err", false),
            ("hooks.log", "", true),
            ("hooks.log", "said", false),
            ("checkpoint-1", "", false),
            ("notes.txt", "", false),
            ("outcome.json", r#"{"brief":"done","usage":{"input_tokens":3}}"#, true),
            ("outcome.json", "{}", true),
            ("outcome.json", r#"{"brief":"other"}"#, false),
            ("outcome.json", r#"{"usage":{"input_tokens":4}}"#, false),
            ("outcome.json", r#"{"actions":[{"do":"timer.add","in":"1h","text":"x"}]}"#, false),
            ("outcome.json", "not JSON", false),
        ] {
            assert_eq!(is_stale_file(name, content, false), expected, "{name}: {content}");
        }
        assert!(!is_stale_file("context.json", "{}", true), "the policy keeps it");
    }
}
