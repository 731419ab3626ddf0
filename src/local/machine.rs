//! Identity of this machine and of its boot, and the file systems of its directories, as far as the
//! system reports them.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::model::digest::{digits, hex};

/// Returns the id of this machine, if it has one; many containers have none. The id is a hash,
/// because the system's own id should not be published.
pub fn id() -> Option<&'static str> {
    static ID: OnceLock<Option<String>> = OnceLock::new();
    ID.get_or_init(|| hash_of(Path::new("/etc/machine-id"), "dormouse ")).as_deref()
}

/// Returns the line of `/proc/self/mountinfo` for the file system of a directory. `None` if the
/// kernel does not report it.
pub fn mount_of(dir: &Path) -> Option<String> {
    let found = rustix::fs::statx(CWD, dir, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let id = (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then(|| found.stx_mnt_id.to_string())?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find(|line| line.split(' ').next() == Some(id.as_str())).map(str::to_owned)
}

/// Returns the pid namespace of this process: each container of a machine has its own. Empty if the
/// system does not report it.
pub fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns 128 random bits in hexadecimal.
pub fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(digits(&bytes))
}

/// True if a process of this machine is stopped by a signal, or by a debugger.
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program name is in parentheses, and may contain parentheses itself.
    let state = stat.rsplit(|byte| *byte == b')').next().and_then(|fields| fields.get(1));
    stat.contains(&b')') && matches!(state, Some(b'T' | b't'))
}

/// Returns the host name of this machine.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the id of this boot, unique among all boots of all machines: 32 hexadecimal digits.
/// `None` if the system has no boot id.
pub fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    BOOT.get_or_init(|| hash_of(Path::new("/proc/sys/kernel/random/boot_id"), "dormouse boot ")).as_deref()
}

fn hash_of(path: &Path, purpose: &str) -> Option<String> {
    let own = fs::read(path).ok()?;
    let own = own.trim_ascii();
    (!own.is_empty()).then(|| hex(&[purpose.as_bytes(), own], 32))
}
