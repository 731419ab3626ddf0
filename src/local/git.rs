//! Files that configure git for a state directory: ignored paths, merge drivers, and a file that
//! keeps git from mistaking one inbox for another.

use std::sync::Arc;

use crate::cap_fs::Root;
use crate::error::Result;

use super::files::Disk;
use super::layout::AgentDir;
use super::{LocalAgent, StateDir, files, layout};

/// Content of the `.gitkeep` of every inbox. If all messages of one agent are gone and another
/// agent has new messages, git may take the first inbox for a directory that was renamed, and then
/// merges messages that a clone has enqueued for the first agent into the second inbox. A file that
/// stays in the inbox prevents that.
pub const KEPT: &str = "\
This file keeps the inbox in git, and keeps git from taking it for a directory that was renamed
when its messages have gone and others have come elsewhere. Leave it here.
";

/// Names of the files for git, each with the content that `init` writes.
pub const FILES: [(&str, &str); 2] = [(".gitignore", IGNORE), (".gitattributes", ATTRIBUTES)];

const IGNORE: &str = "\
# Locks, journals, temporary files, caches and run logs: the machine's own, never in git.
*.new-*
agents/.new-*
agents/*/lock
agents/*/run.lock
agents/*/tasks/*.lock
agents/*/tasks/*/
agents/*/journal.jsonl
agents/*/tmp/
agents/*/cache/
agents/*/runs/*/leader
agents/*/runs/*/end.json
agents/*/runs/*/end.json.new
agents/*/runs/*/*.log
owner-*
slots/
workspaces/
";

const ATTRIBUTES: &str = "\
# The same record is the same bytes in every clone, whatever its settings make of other files.
* -text -filter -ident
# Lines that two clones have added are all kept.
*.jsonl merge=union
";

/// Writes a `.gitkeep` into every inbox that lacks one: `init` may complete a state directory that
/// has agents already.
pub fn keep_inboxes(root: &Arc<Root>, disk: Disk) -> Result<()> {
    let agents = root.cap().join(layout::AGENTS).entries()?;
    let names =
        agents.iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.to_str()?.parse().ok());
    for name in names {
        let dir = AgentDir::new(root, &name);
        if !dir.join(layout::KEPT).exists()? {
            let temporary = dir.join(layout::TMP).join("gitkeep");
            disk.replace(&temporary, &dir.join(layout::KEPT), KEPT.as_bytes())?;
        }
    }
    Ok(())
}

impl StateDir {
    /// True if the state directory is in a git repository.
    pub fn is_in_git(&self) -> bool {
        self.anchor.path().ancestors().any(|dir| dir.join(".git").symlink_metadata().is_ok())
    }

    /// Returns the lines that `init` writes to a file for git today and that the file lacks.
    pub fn missing_for_git(&self, name: &str, wanted: &str) -> Result<Vec<String>> {
        let found = files::read(&self.cap().join(name))?.unwrap_or_default();
        Ok(missing(&String::from_utf8_lossy(&found), wanted))
    }

    /// Adds these lines to the beginning of a file for git, so that lines that people have written
    /// override them.
    pub fn add_for_git(&self, name: &str, lines: &[String]) -> Result<()> {
        let path = self.cap().join(name);
        let mut text: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
        text.extend(files::read(&path)?.unwrap_or_default());
        let temporary = self.cap().join(format!("{name}.new-{}", std::process::id()));
        self.disk.replace(&temporary, &path, &text)
    }
}

/// Returns the lines of `wanted` whose pattern does not occur in a text. A pattern in a comment was
/// disabled by a person, and counts as present.
fn missing(text: &str, wanted: &str) -> Vec<String> {
    let pattern = |line: &str| {
        let line = line.trim_start_matches(|c: char| c == '#' || c.is_whitespace());
        line.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let known: Vec<String> = text.lines().map(pattern).collect();
    let lines = wanted.lines().filter(|line| !line.starts_with('#'));
    lines.filter(|line| !known.contains(&pattern(line))).map(str::to_owned).collect()
}

impl LocalAgent<'_> {
    /// True if git tracks this file of the agent. Runs git only in a repository.
    pub fn is_tracked(&self, name: &str) -> bool {
        self.state_dir.is_in_git() && (self.state_dir.opener.is_tracked)(&self.dir.join(name))
    }

    /// Writes the `.gitkeep` of the agent's inbox.
    pub fn keep_inbox(&self) -> Result<()> {
        self.replace_file(&self.dir.join(layout::KEPT), KEPT.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_line_is_missing_unless_its_pattern_is_present_or_disabled() {
        assert_eq!(missing("", ATTRIBUTES), ["* -text -filter -ident", "*.jsonl merge=union"]);
        let none: [&str; 0] = [];
        for text in [ATTRIBUTES, "*.jsonl merge=binary\n", "# *.jsonl merge=union", "x\r\n*.jsonl  -text\r\n"]
        {
            let text = format!("* -text -filter -ident\n{text}\n");
            assert_eq!(missing(&text, ATTRIBUTES), none, "{text:?}");
        }
        let older = IGNORE.replace("*.new-*\nagents/.new-*", "agents/.new-*").replace("slots/\n", "!slots\n");
        assert_eq!(missing(&older, IGNORE), ["*.new-*", "slots/"]);
    }
}
