//! Creation of a state directory.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::cap_fs::{self, Root};
use crate::error::{IoContext, Result};
use crate::model::bound::MAX_SETTINGS;
use crate::model::settings::Durability;

use super::anchor::Anchor;
use super::files::Disk;
use super::{StateDir, config, git, layout};

impl StateDir {
    /// Creates a state directory, or completes one without settings. Returns false, and changes
    /// nothing, if readable settings exist. `url`: database for the records; `None`: files.
    pub fn init(anchor: &Anchor, url: Option<&str>) -> Result<bool> {
        let path = anchor.path();
        // `exists` follows symbolic links, which is safe because the user chose this path.
        if !path.exists() {
            refuse_root_in_the_way(anchor.home())?;
            make_dirs(path).context("make directory", path)?;
        }
        let opened = Root::open(path).context("open", path)?;
        let root = opened.cap();
        let marker = root.join(layout::CONFIG);
        if let Some(bytes) = marker.read(MAX_SETTINGS)? {
            config::store_config(&marker, &bytes)?;
            return Ok(false);
        }
        let disk = Disk::new(Durability::Full);
        for dir in [layout::AGENTS, layout::HOOKS] {
            root.join(dir).make_dir()?;
        }
        // The settings file makes the directory a state directory, so it is written last: after a
        // kill before that, `init` can be repeated.
        let settings = match url {
            Some(url) => {
                DEFAULT_CONFIG.replace("[store]\n", &format!("[store]\nurl = {}\n", toml::Value::from(url)))
            }
            None => DEFAULT_CONFIG.to_owned(),
        };
        let files = git::FILES.iter().copied().chain([(layout::CONFIG, settings.as_str())]);
        // Another process may create the same directory at the same time.
        let this = std::process::id();
        git::keep_inboxes(&opened, disk)?;
        for (name, content) in files {
            let temporary = root.join(format!("{name}.new-{this}"));
            disk.replace(&temporary, &root.join(name), content.as_bytes())?;
        }
        let above = anchor.home();
        std::fs::File::open(above).and_then(|above| above.sync_all()).context("sync directory", above)?;
        Ok(true)
    }
}

/// Creates a directory and its missing parents, each for the user alone, whatever the umask.
fn make_dirs(path: &Path) -> std::io::Result<()> {
    let make = || match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(0o700)),
    };
    match (make(), path.parent()) {
        (Err(error), Some(above)) if error.kind() == ErrorKind::NotFound => {
            make_dirs(above)?;
            make()
        }
        (made, _) => made,
    }
}

/// Refuses to let root create a state directory below a directory of another user, who would find
/// it there and could not use it.
fn refuse_root_in_the_way(home: &Path) -> Result<()> {
    let found = home.ancestors().find_map(|dir| Some((dir, dir.metadata().ok()?.uid())));
    match found {
        Some((dir, owner)) if rustix::process::geteuid().is_root() && owner != 0 => {
            Err(cap_fs::not_owner(dir, owner))
        }
        Some(_) | None => Ok(()),
    }
}

const DEFAULT_CONFIG: &str = "\
# The settings of this state directory. `dormouse man` explains each.
format = 1

[store]
# \"full\" survives a power cut; \"process\" leaves out the syncs and survives a kill.
durability = \"full\"

# How many turns may run at once, of all agents together; any number unless set.
# [scheduler]
# max_running = 4
# An agent that finds none of these slots asks a turn for its own that is less urgent by this much; off unless set.
# preempt_margin = 10

# Whose users may put messages into the inboxes: a group in which you are too. `dormouse doctor --repair` sets the rights.
# [sharing]
# group = \"ci\"

# What every agent starts from; its own agent.toml goes over it.
# [defaults.turn]
# timeout = \"30m\"
";
