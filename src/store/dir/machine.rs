//! Which machine this is, which boot of it, and what its directories lie on, as far as that can be
//! known.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::model::digest::hex;

/// Identifies this machine, if it has an id; many containers have none. The id is given as a hash,
/// because the system's own id should not be published.
pub fn id() -> Option<&'static str> {
    static ID: OnceLock<Option<String>> = OnceLock::new();
    ID.get_or_init(|| hash_of(Path::new("/etc/machine-id"), "dormouse ")).as_deref()
}

/// The file systems that other machines may write to without this one hearing of it, by the numbers
/// of statfs(2): NFS, SMB, CIFS, SMB2, 9P, FUSE, Ceph, AFS, Lustre, OCFS2, GFS2, and those of
/// VirtualBox and Parallels.
const REMOTE: [u64; 13] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x6573_5546,
    0x00c3_6400,
    0x5346_414f,
    0x0bd0_0bd0,
    0x7461_636f,
    0x0116_1970,
    0x786f_4256,
    0x7c7c_6673,
];

/// True if other machines may write there without notice to this one.
pub fn is_remote(dir: &Path) -> bool {
    // The number is signed on some machines.
    let kind = rustix::fs::statfs(dir).map(|found| found.f_type as u64 & 0xffff_ffff);
    kind.is_ok_and(|kind| REMOTE.contains(&kind))
}

/// The line of `/proc/self/mountinfo` for the file system of a directory. `None`: the kernel does
/// not say which it is.
pub fn mount_of(dir: &Path) -> Option<String> {
    let found = rustix::fs::statx(CWD, dir, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let id = (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then(|| found.stx_mnt_id.to_string())?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find(|line| line.split(' ').next() == Some(id.as_str())).map(str::to_owned)
}

/// The pid namespace of this process: containers of one machine have one each. Empty if the system
/// does not say.
pub fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Fills a buffer with random bytes.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    fs::File::open("/dev/urandom")?.read_exact(bytes)
}

/// True if a process of this machine is stopped by a signal, or by a debugger.
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program stands in parentheses, and may have some itself.
    let state = stat.rsplit(|byte| *byte == b')').next().and_then(|fields| fields.get(1));
    stat.contains(&b')') && matches!(state, Some(b'T' | b't'))
}

/// The name of this machine.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Identifies this boot of the machine among all boots of all machines: 32 hexadecimal digits.
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
