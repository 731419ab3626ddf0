//! Hook files of one agent, for copying to another agent.

use crate::error::Result;

use super::LocalAgent;
use super::files::MAX_RECORD;
use super::layout;

/// File in the `hooks/` of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFile {
    pub name: String,
    /// True if the owner of the file may execute it.
    pub is_program: bool,
    pub content: Vec<u8>,
}

impl LocalAgent<'_> {
    /// Writes hooks into the local agent directory, replacing hooks of the same names.
    pub fn furnish(&self, hooks: &[HookFile]) -> Result<()> {
        if hooks.is_empty() {
            return Ok(());
        }
        self.make_local_dir()?;
        let dir = self.dir.join(layout::HOOKS);
        for hook in hooks {
            let cap = dir.join(&hook.name);
            self.replace_file(&cap, &hook.content)?;
            cap.set_mode(if hook.is_program { 0o700 } else { 0o600 })?;
        }
        Ok(())
    }

    /// Returns the plain files among the agent's own hooks, sorted by name, and the names of other
    /// entries, for display.
    pub fn own_hooks(&self) -> Result<(Vec<HookFile>, Vec<String>)> {
        let dir = self.dir.join(layout::HOOKS);
        let (mut hooks, mut others) = (Vec::new(), Vec::new());
        for entry in dir.entries()? {
            let cap = dir.join(&entry.name);
            let shown = entry.name.to_string_lossy().into_owned();
            let stat = cap.look()?.filter(|_| !entry.is_dir);
            match (entry.name.into_string(), stat) {
                (Ok(name), Some(stat)) if cap.is_file()? => {
                    let content = cap.read(MAX_RECORD)?.unwrap_or_default();
                    hooks.push(HookFile { name, is_program: stat.st_mode & 0o100 != 0, content });
                }
                (Ok(_) | Err(_), Some(_) | None) => others.push(shown),
            }
        }
        Ok((hooks, others))
    }
}
