//! Dropped files: files that people or other programs put into an inbox. A step admits
//! each as a message or moves it to `inbox/rejected/`.
//!
//! A file that can't be admitted is moved to `inbox/rejected/` with a file that has the reason. An
//! immovable file stays in the inbox, and every step skips it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use crate::cap_fs::{CapPath, Content};
use crate::error::{Error, Result};
use crate::local::files::{self, fault_of_file};
use crate::local::layout::{self, AgentDir};
use crate::local::{LocalAgent, authors};
use crate::model::digest::hex;
use crate::model::id::MessageId;
use crate::model::state::State;
use crate::model::time::Time;

use super::inbox::{Dropped, Name, QuarantineOutcome, is_own, parse_name};
use super::view::View;
use super::{DirTxn, quarantine};

/// Maximum bytes of the name of a file that people submit; this program adds a prefix and a suffix.
const LONGEST_NAME: usize = 200;

/// Maximum bytes of the name that the program makes from a longer name. Above `LONGEST_NAME`, so
/// that a shortened name can be recognized.
const LONGEST_TAKEN: usize = 240;

/// Prefix of the name of a submitted file that a step has claimed.
const TAKEN: &str = "taken~";

/// Suffix of the name of the file that says why another file was rejected.
const REASON: &str = ".reason";

/// Name of a submitted file once a step has claimed it. The rename keeps a later submission of the
/// same name from replacing it, and a step from removing a file that it has not read.
fn taken_name(given: &Path) -> PathBuf {
    let mut name = OsString::from(TAKEN);
    name.push(cut(given.as_os_str(), LONGEST_TAKEN));
    PathBuf::from(name)
}

/// Returns the name that a claimed file had when it was submitted, possibly shortened; `None` if
/// the file is not claimed yet.
fn given_name(taken: &Path) -> Option<&Path> {
    let name = taken.as_os_str().as_bytes().strip_prefix(TAKEN.as_bytes())?;
    Some(Path::new(OsStr::from_bytes(name)))
}

/// Shortens a name to at most `most` bytes: a hash of the name replaces its end.
fn cut(name: &OsStr, most: usize) -> OsString {
    let bytes = name.as_bytes();
    if bytes.len() <= most {
        return name.to_owned();
    }
    let hash = hex(&[bytes], 16);
    let mut kept = most - hash.len() - 1;
    // Don't cut within a UTF-8 character.
    while kept > 0 && bytes[kept] & 0xC0 == 0x80 {
        kept -= 1;
    }
    let mut name = bytes[..kept].to_vec();
    // Pad to exactly `most` bytes, so that the name can be recognized as shortened.
    name.resize(most - hash.len(), b'~');
    name.extend_from_slice(hash.as_bytes());
    OsString::from_vec(name)
}

/// Returns the message id of a submitted file. The id depends on the file alone, so that a file
/// that is admitted twice, because of a crash in between, makes one message.
fn identity(cap: &CapPath, bytes: &[u8]) -> Result<MessageId> {
    let found = cap.look()?.ok_or_else(|| Error::gone("look at", cap))?;
    let seconds = u64::try_from(found.st_mtime).unwrap_or(0);
    let millis = seconds.saturating_mul(1000).saturating_add(found.st_mtime_nsec / 1_000_000);
    let mut hash = Sha256::new();
    let name = Path::new(cap.name());
    hash.update(given_name(name).unwrap_or(name).as_os_str().as_encoded_bytes());
    hash.update(bytes);
    let random: [u8; 10] = std::array::from_fn({
        let digest = hash.finalize();
        move |at| digest[at]
    });
    Ok(MessageId(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()))
}

/// Content of a file that a person or another program has put into an inbox.
#[derive(Debug)]
pub struct HandWritten {
    pub bytes: Vec<u8>,
    /// Author of the file, if that is not the owner of the state directory.
    pub user: Option<String>,
    /// Id of the message that the file makes.
    pub id: MessageId,
}

/// Result of claiming a file in the inbox by a rename.
#[derive(Debug)]
pub enum TakenFile {
    /// The step has renamed the file to this name: no other process changes it from now on.
    As(Dropped),
    /// The file is gone, or has to wait for a claimed file of the same name.
    NotNow,
    /// The file can't be renamed, for this reason.
    Not(String),
}

/// Returns the time when a submitted file was put into the inbox: its ctime, since a rename keeps
/// the mtime. `None` if the file is gone.
pub fn dropped_at(agent: &AgentDir, file: &Dropped) -> Result<Option<Time>> {
    let found = agent.join(layout::INBOX).join(&file.place).look()?;
    Ok(found.map(|found| Time::from_millis(found.st_ctime * 1000)))
}

/// Reads a file that a person or another program has put into the inbox. The inner error is the
/// reason why the file is malformed. `None` if the file is gone.
pub fn read(agent: &AgentDir, file: &Dropped) -> Result<Option<std::result::Result<HandWritten, String>>> {
    let cap = &agent.join(layout::INBOX).join(&file.place);
    let name = Path::new(cap.name());
    if given_name(name).unwrap_or(name).as_os_str().len() > LONGEST_NAME {
        return Ok(Some(Err(format!("its name is too long: a name may have {LONGEST_NAME} bytes"))));
    }
    let Content { bytes, owner, .. } = match cap.read_owned(files::MAX_RECORD) {
        Ok(Some(content)) => content,
        Ok(None) => return Ok(None),
        Err(error) => return fault_of_file(error).map(|why| Some(Err(why))),
    };
    let user = authors::other(cap, owner);
    match identity(cap, &bytes) {
        Ok(id) => Ok(Some(Ok(HandWritten { bytes, user, id }))),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl DirTxn<'_> {
    /// Claims a submitted file by renaming it: from then on no other process changes the file.
    pub fn claim_submission(&self, file: &Dropped) -> Result<TakenFile> {
        let name = file.place.as_path();
        if given_name(name).is_some() {
            return Ok(TakenFile::As(file.clone()));
        }
        let (dir, taken) = (self.agent.local.dir.join(layout::INBOX), Dropped { place: taken_name(name) });
        // The directory `rejected/`, which a step has made meanwhile, is no submitted file.
        if name == Path::new(layout::REJECTED) && is_ours(&dir.join(name))? {
            return Ok(TakenFile::NotNow);
        }
        if dir.join(&taken.place).exists()? {
            // An earlier file of this name that a step has claimed is admitted first if possible.
            let comes_first = self.listed()?.drops.contains(&taken);
            let why = || TakenFile::Not("another file of its name lies in its way".to_owned());
            return Ok(if comes_first { TakenFile::NotNow } else { why() });
        }
        match files::move_if_there(&dir.join(name), &dir.join(&taken.place)) {
            Ok(true) => Ok(TakenFile::As(taken)),
            Ok(false) => Ok(TakenFile::NotNow),
            Err(error) => fault_of_file(error).map(TakenFile::Not),
        }
    }

    /// Moves a malformed file from the inbox to `rejected/`, with a file that has the reason.
    pub(super) fn try_to_quarantine(&self, path: &Path, reason: &str) -> Result<QuarantineOutcome> {
        let disk = self.agent.local.disk();
        let inbox = self.agent.local.dir.join(layout::INBOX);
        let rejected = inbox.join(layout::REJECTED);
        self.clear_the_way(&inbox, &rejected)?;
        rejected.make_dirs()?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = given_name(Path::new(name)).map_or(name, Path::as_os_str);
        let place = files::free_place(&rejected, name, REASON)?;
        let name = place.name();
        // The reason is written first: even if the step is killed, each rejected file has a reason.
        self.write_reason(&rejected, name, reason)?;
        let from = inbox.join(path);
        let moved = files::move_if_there(&from, &place);
        if !matches!(moved, Ok(true)) {
            rejected.join(reason_name(name)).remove()?;
        }
        if !moved? {
            return Ok(QuarantineOutcome::Gone);
        }
        disk.sync_dir(&rejected)?;
        disk.sync_dir(&from.parent())?;
        Ok(QuarantineOutcome::Moved(name.to_string_lossy().into_owned()))
    }

    /// Renames a file, a link or another user's directory at the path of `rejected/`, so that a
    /// step handles it like any other file in the inbox.
    fn clear_the_way(&self, inbox: &CapPath, rejected: &CapPath) -> Result<()> {
        if is_ours(rejected)? {
            return Ok(());
        }
        let taken = taken_name(Path::new(layout::REJECTED));
        let place = files::free_place(inbox, taken.as_os_str(), REASON)?;
        files::move_if_there(rejected, &place).map(drop)
    }

    fn write_reason(&self, rejected: &CapPath, name: &OsStr, reason: &str) -> Result<()> {
        let staged = self.agent.local.dir.join(layout::TMP).join("reason");
        let note = rejected.join(reason_name(name));
        self.agent.local.disk().replace(&staged, &note, format!("{reason}\n").as_bytes())
    }
}

impl LocalAgent<'_> {
    /// Removes a submitted file after its message was admitted.
    pub fn remove_submission(&self, taken: &Dropped) -> Result<()> {
        self.dir.join(layout::INBOX).join(&taken.place).remove()
    }

    /// Moves a file from `rejected/` back into the inbox for the next step. Does nothing for an
    /// immovable file, which is still in the inbox. Returns false if the file is gone. The caller
    /// holds the agent's lock.
    pub fn bring_back(&self, one: &Rejected) -> Result<bool> {
        if one.stays {
            return Ok(true);
        }
        let (name, disk) = (&one.name, self.disk());
        let (inbox, rejected) = (self.dir.join(layout::INBOX), rejected_dir(self));
        let place = files::free_place(&inbox, &name_in_inbox(name), REASON)?;
        let is_there = files::move_if_there(&rejected.join(name), &place)?;
        disk.sync_dir(&inbox)?;
        rejected.join(reason_name(name)).remove()?;
        disk.sync_dir(&rejected)?;
        Ok(is_there)
    }

    /// Removes a malformed file or directory, and its reason file, under the agent's lock.
    pub fn remove_rejected(&self, one: &Rejected) -> Result<()> {
        if one.stays {
            return self.dir.join(layout::INBOX).join(&one.name).remove_tree();
        }
        let rejected = rejected_dir(self);
        rejected.join(&one.name).remove_tree()?;
        rejected.join(reason_name(&one.name)).remove()?;
        self.disk().sync_dir(&rejected)
    }
}

/// True if `rejected` is a directory and belongs to the owner.
fn is_ours(rejected: &CapPath) -> Result<bool> {
    Ok(rejected.is_dir()? && is_own(rejected)?)
}

fn rejected_dir(agent: &LocalAgent<'_>) -> CapPath {
    agent.dir.join(layout::INBOX).join(layout::REJECTED)
}

fn reason_name(name: &OsStr) -> OsString {
    let mut name = name.to_owned();
    name.push(REASON);
    name
}

/// Returns the name under which a rejected file is moved back into the inbox. A message or hint
/// loses a number that was appended to its name, and a name that is too long is shortened.
fn name_in_inbox(name: &OsStr) -> OsString {
    let unnumbered = name
        .to_str()
        .and_then(|name| name.rsplit_once('.'))
        .filter(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some((record, _)) = unnumbered
        && matches!(parse_name(record.as_bytes(), false), Name::Message(_) | Name::Hint(_))
    {
        return OsString::from(record);
    }
    cut(name, LONGEST_NAME)
}

/// Inbox file that no step could admit as a message.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// Name in `rejected/`, or in the inbox if the file can't be moved.
    name: OsString,
    /// Reason of the rejection; `None` if a person has put the file there by hand.
    pub reason: Option<String>,
    /// Time of the last change, or of the move to `rejected/`.
    pub at: Time,
    pub size: u64,
    /// True if the file is still in the inbox because it can't be moved.
    pub stays: bool,
}

impl Rejected {
    /// Name of the file in output and in arguments.
    pub fn name(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }

    fn new(name: OsString, reason: Option<String>, there: &Stat, stays: bool) -> Rejected {
        Rejected {
            name,
            reason,
            at: files::changed_at(there),
            size: u64::try_from(there.st_size).unwrap_or(0),
            stays,
        }
    }
}

/// Returns the sorted names of the files in `rejected/`; none unless `has_rejected`.
pub fn rejected_names(view: &View<'_>, has_rejected: bool) -> Result<Vec<OsString>> {
    if !has_rejected {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    view.agent.join(layout::INBOX).join(layout::REJECTED).each_entry(|name, _| {
        names.push(OsString::from_vec(name.to_vec()));
        true
    })?;
    let known: HashSet<OsString> = names.iter().cloned().collect();
    // A rejected file whose own name ends in `.reason` is kept if it has a reason file.
    names.retain(|name| !name.as_bytes().ends_with(REASON.as_bytes()) || known.contains(&reason_name(name)));
    names.sort();
    Ok(names)
}

/// True if `rejected/` is empty.
pub fn nothing_rejected(view: &View<'_>) -> Result<bool> {
    let dir = view.agent.join(layout::INBOX).join(layout::REJECTED);
    Ok(rejected_names(view, is_ours(&dir)?)?.is_empty())
}

/// Returns the files that could not be admitted, with the reasons: those in `rejected/` and the
/// immovable files in the inbox.
pub fn rejected(view: &View<'_>, state: &State) -> Result<Vec<Rejected>> {
    let inbox = view.agent.join(layout::INBOX);
    let dir = inbox.join(layout::REJECTED);
    let mut found = Vec::new();
    for one in quarantine::passed_over(state) {
        if let Some(there) = inbox.join(&one.file).look()? {
            let (name, reason) = (OsString::from(&one.file), Some(one.reason));
            found.push(Rejected::new(name, reason, &there, true));
        }
    }
    for name in rejected_names(view, dir.is_dir()?)? {
        let path = dir.join(&name);
        let Some(there) = path.look()? else { continue };
        let reason = match files::read(&dir.join(reason_name(&name))) {
            Ok(bytes) => bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()),
            Err(error) => Some(fault_of_file(error)?),
        };
        found.push(Rejected::new(name, reason, &there, false));
    }
    Ok(found)
}
