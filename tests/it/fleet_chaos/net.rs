//! Network hosts on one kernel, by namespaces. Each host has its own interfaces, name, machine id,
//! boot id and uptime. A packet filter in its own network cuts its line to the server by dropping
//! packets.
//!
//! The namespaces have no names. Threads create them, and this process holds them open. They end
//! with this process and the last process in them, and so do the virtual cables between them. The
//! network of the server is one of them, so a fleet uses no part of the network of the tests, and
//! all fleets may use the same addresses.
//!
//! The packet filter is nf_tables. `tc netem` loses packets, too, but many small kernels lack it,
//! and it makes no resets. An interface that is down would tell its machine so, unlike a cut line.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::server::{Namespace, enter};

/// Traffic that passes between a machine and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    Whole,
    /// No packet arrives at either end, and neither gets an error.
    Cut,
    /// Packets of the machine arrive, and answers do not.
    Mute,
}

/// First address of the simulated hosts, in a range for network benchmarks that is never routed.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// Number of hosts that this process has created, from which each new host gets its addresses.
static HOSTS: AtomicU32 = AtomicU32::new(0);

/// Creates a network for a server and its hosts. Returns `None` and prints a note if this process
/// may not create one; panics if root runs the tests with `CI` set.
pub fn network() -> Option<Namespace> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    // The first attempt shows if this process may create hosts. If so, later failures are errors.
    let tried = TRIED.get_or_init(|| {
        let host = Host::on(&new_network()?)?;
        [Line::Cut, Line::Mute, Line::Whole].into_iter().try_for_each(|line| host.set(line))
    });
    let Err(why) = tried else { return Some(new_network().unwrap()) };
    let must = std::env::var_os("CI").is_some() && rustix::process::geteuid().is_root();
    assert!(!must, "where root runs the tests for CI fleets have hosts (packages iproute2, nftables): {why}");
    println!("the machines of this fleet share a network, and proxies cut their lines: {why}");
    None
}

fn new_network() -> Result<Namespace, String> {
    with_own(libc::CLONE_NEWNET, || {
        let network = own("net")?;
        run(&[], &["ip", "link", "set", "lo", "up"], "")?;
        Ok(network)
    })
}

/// Runs a function in a network namespace. A socket stays in the network in which it was created.
pub fn within<T: Send>(network: &Namespace, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            enter(std::slice::from_ref(network)).unwrap();
            act()
        });
        there.join().unwrap()
    })
}

/// Simulated network host, in namespaces of its own.
pub struct Host {
    namespaces: Vec<Namespace>,
    /// Network to which the host's virtual cable leads. In it the server has the address `server`.
    pub network: Namespace,
    pub server: Ipv4Addr,
    pub name: String,
    /// Firewall mark of new connections; connections with an older mark are reset.
    mark: AtomicU32,
}

impl Host {
    /// Creates a host with a virtual cable to this network.
    pub fn on(network: &Namespace) -> Result<Host, String> {
        let number = HOSTS.fetch_add(1, Ordering::Relaxed);
        let address = |offset| Ipv4Addr::from(FIRST + 4 * number + offset);
        let (server, own_address, name) = (address(1), address(2), format!("host-{number}"));
        let kinds = libc::CLONE_NEWNET | libc::CLONE_NEWUTS | libc::CLONE_NEWNS | libc::CLONE_NEWTIME;
        let namespaces = with_own(kinds, || become_host(number, &name))?;
        let inner = format!("/proc/{}/fd/{}", std::process::id(), namespaces[0].as_raw_fd());
        let outer_end = format!(
            "link add {name} type veth peer name eth0 netns {inner}\naddress add {server}/30 dev {name}\n\
             link set {name} up\n"
        );
        let own_end = format!("link set lo up\naddress add {own_address}/30 dev eth0\nlink set eth0 up\n");
        let batch = ["ip", "-batch", "-"];
        run(std::slice::from_ref(network), &batch, &outer_end)?;
        run(&namespaces, &batch, &own_end)?;
        let host = Host { namespaces, network: Arc::clone(network), server, name, mark: AtomicU32::new(1) };
        host.set(Line::Whole)?;
        Ok(host)
    }

    /// Mounts a directory at another path in the host.
    pub fn bind(&self, dir: &Path, place: &Path) -> Result<(), String> {
        run(&self.namespaces, &["mount", "--bind", &dir.to_string_lossy(), &place.to_string_lossy()], "")
    }

    /// Sets this simulated host's machine id. Does nothing on a system without `/etc/machine-id`.
    pub fn has_machine_id(&self, id: &str) -> Result<(), String> {
        let place = Path::new("/etc/machine-id");
        if !place.exists() {
            return Ok(());
        }
        let dir = tempfile::tempdir().map_err(|error| said("a directory", &error))?;
        let file = dir.path().join("id");
        fs::write(&file, format!("{id}\n")).map_err(|error| said("an id", &error))?;
        // The mounted file has no name any more, so another one can't be mounted over it.
        let _ = run(&self.namespaces, &["umount", "/etc/machine-id"], "");
        self.bind(&file, place)
    }

    /// Makes a command run in this host.
    pub fn takes(&self, command: &mut Command) {
        enters(command, self.namespaces.clone());
    }

    pub fn set(&self, line: Line) -> Result<(), String> {
        let (said, heard) = match line {
            Line::Whole => ("", ""),
            Line::Cut => ("drop", "drop"),
            Line::Mute => ("", "drop"),
        };
        let mark = self.mark.load(Ordering::SeqCst);
        // Connections from before the last `break_all` have another mark: both ends get a reset
        // when they send data. New connections pass. A reset is never answered with a reset.
        let is_older = format!("meta l4proto tcp ct mark != {mark} reject with tcp reset");
        let rules = format!(
            "table inet line
             delete table inet line
             table inet line {{
                 chain said {{
                     type filter hook output priority 0
                     oifname lo accept
                     {said}
                     tcp flags rst accept
                     ct state new ct mark set {mark}
                     {is_older}
                 }}
                 chain heard {{
                     type filter hook input priority 0
                     iifname lo accept
                     {heard}
                     tcp flags rst accept
                     {is_older}
                 }}
             }}\n"
        );
        run(&self.namespaces, &["nft", "-f", "-"], &rules)
    }

    /// Resets all present connections at their next packet. New connections pass.
    pub fn break_all(&self) -> Result<(), String> {
        self.mark.fetch_add(1, Ordering::SeqCst);
        self.set(Line::Whole)
    }
}

/// Turns the namespaces of the calling thread into a host. Returns the namespaces, the network
/// first.
fn become_host(number: u32, name: &str) -> Result<Vec<Namespace>, String> {
    // SAFETY: the system call reads `len` bytes of a valid text.
    if unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) } != 0 {
        return Err(said("sethostname", &io::Error::last_os_error()));
    }
    // The monotonic clocks of each host are a million seconds ahead of the host before it. The file
    // for the offsets of a thread exists only in the directory of `/proc` that is named by the
    // thread.
    let ahead = (u64::from(number) + 1) * 1_000_000;
    // SAFETY: the system call has no arguments.
    let offsets = format!("/proc/{}/timens_offsets", unsafe { libc::gettid() });
    fs::write(&offsets, format!("monotonic {ahead} 0\nboottime {ahead} 0\n"))
        .map_err(|error| said(&offsets, &error))?;
    let namespaces: Vec<Namespace> =
        ["net", "uts", "mnt", "time_for_children"].into_iter().map(own).collect::<Result<_, String>>()?;
    // With this setting a file system that the tests unmount is unmounted in the host, too.
    run(&namespaces, &["mount", "--make-rslave", "/"], "")?;
    let dir = tempfile::tempdir().map_err(|error| said("a directory", &error))?;
    let (pid, id) = (std::process::id(), dir.path().join("id"));
    for (text, place) in [
        (format!("{pid:016x}{number:016x}\n"), "/etc/machine-id"),
        (format!("{pid:08x}-0000-4000-8000-{number:012x}\n"), "/proc/sys/kernel/random/boot_id"),
    ] {
        // Many containers have no machine id.
        if !Path::new(place).exists() {
            continue;
        }
        fs::write(&id, text).map_err(|error| said("an id", &error))?;
        run(&namespaces, &["mount", "--bind", &id.to_string_lossy(), place], "")?;
        // The mounted file remains visible after its name is removed.
        fs::remove_file(&id).map_err(|error| said("an id", &error))?;
    }
    Ok(namespaces)
}

/// Runs a function in a thread with new namespaces of these kinds.
fn with_own<T: Send>(kinds: i32, act: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            // SAFETY: the system call changes the calling thread alone, and no memory.
            if unsafe { libc::unshare(kinds) } != 0 {
                return Err(said("unshare", &io::Error::last_os_error()));
            }
            act()
        });
        there.join().unwrap()
    })
}

/// Opens a namespace of the calling thread.
fn own(kind: &str) -> Result<Namespace, String> {
    let path = format!("/proc/thread-self/ns/{kind}");
    let file = File::open(&path).map_err(|error| said(&path, &error))?;
    Ok(Arc::new(OwnedFd::from(file)))
}

fn enters(command: &mut Command, namespaces: Vec<Namespace>) {
    let dir = command.get_current_dir().map(|dir| CString::new(dir.as_os_str().as_bytes()).unwrap());
    let entering = move || {
        enter(&namespaces)?;
        // Entering a mount namespace moves the process to the root, so it must return to `dir`.
        match &dir {
            // SAFETY: the system call reads a path that ends with NUL.
            Some(dir) if unsafe { libc::chdir(dir.as_ptr()) } != 0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: the closure runs between fork and exec, makes system calls and allocates nothing.
    unsafe { command.pre_exec(entering) };
}

/// Runs a program in these namespaces. The error has the command and its stderr.
fn run(namespaces: &[Namespace], words: &[&str], stdin: &str) -> Result<(), String> {
    let mut command = Command::new(words[0]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(&words[1..]).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    enters(&mut command, namespaces.to_vec());
    let mut child = command.spawn().map_err(|error| said(words[0], &error))?;
    // The write may fail, because a program that does not read its stdin may have ended already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let ran = child.wait_with_output().map_err(|error| said(words[0], &error))?;
    let talk = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() { Ok(()) } else { Err(format!("{}: {}", words.join(" "), talk.trim_end())) }
}

fn said(what: &str, error: &io::Error) -> String {
    format!("{what}: {error}")
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    const NO_HOSTS: &str = "left out: no hosts can be made here";

    /// Time after which a packet counts as lost.
    const MOMENT: Duration = Duration::from_millis(300);

    fn says(mut from: &TcpStream, word: u8) {
        from.write_all(&[word]).unwrap();
    }

    #[track_caller]
    fn hears(mut to: &TcpStream, word: u8) {
        to.set_read_timeout(Some(crate::server::LONG)).unwrap();
        let mut heard = [0];
        to.read_exact(&mut heard).unwrap();
        assert_eq!(heard[0], word);
    }

    #[track_caller]
    fn hears_nothing(mut to: &TcpStream) {
        to.set_read_timeout(Some(MOMENT)).unwrap();
        assert_eq!(to.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    /// Asserts that the connection is reset when this end sends data. The write may fail, too,
    /// because the late acknowledgement of earlier data may have caused the reset before.
    #[track_caller]
    fn hears_of_the_end(mut of: &TcpStream) {
        of.set_read_timeout(Some(crate::server::LONG)).unwrap();
        let ended = of.write_all(&[0]).and_then(|()| of.read_exact(&mut [0])).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn the_network_of_a_host_can_be_cut_muted_and_reset() {
        needs!("postgresql");
        let Some(network) = network() else { return println!("{NO_HOSTS}") };
        let (host, other) = (Host::on(&network).unwrap(), Host::on(&network).unwrap());
        let listener = within(&network, || TcpListener::bind("0.0.0.0:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        let connect = |from: &Host| {
            let socket = within(&from.namespaces[0], || TcpStream::connect((from.server, port)).unwrap());
            (socket, listener.accept().unwrap().0)
        };
        let (here, there) = connect(&host);
        let elsewhere = connect(&other);
        says(&here, 1);
        hears(&there, 1);
        host.set(Line::Cut).unwrap();
        says(&here, 2);
        says(&there, 3);
        hears_nothing(&here);
        hears_nothing(&there);
        let refused = within(&host.namespaces[0], || {
            TcpStream::connect_timeout(&(host.server, port).into(), MOMENT).unwrap_err()
        });
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "nobody says that it is cut");
        // The other host must still reach the server, because each host has a separate cable.
        says(&elsewhere.0, 1);
        hears(&elsewhere.1, 1);
        // The lost packets are sent again and arrive.
        host.set(Line::Whole).unwrap();
        hears(&there, 2);
        hears(&here, 3);
        host.set(Line::Mute).unwrap();
        says(&here, 4);
        hears(&there, 4);
        says(&there, 5);
        hears_nothing(&here);
        host.set(Line::Whole).unwrap();
        hears(&here, 5);
        host.break_all().unwrap();
        let again = connect(&host);
        hears_of_the_end(&here);
        hears_of_the_end(&there);
        says(&again.0, 6);
        hears(&again.1, 6);
        says(&again.1, 7);
        hears(&again.0, 7);
        says(&elsewhere.0, 2);
        hears(&elsewhere.1, 2);
    }

    #[test]
    fn each_simulated_host_has_its_own_name_boot_id_and_uptime() {
        needs!("postgresql");
        let Some(network) = network() else { return println!("{NO_HOSTS}") };
        let hosts = [Host::on(&network).unwrap(), Host::on(&network).unwrap()];
        let look = |host: Option<&Host>| {
            let mut command = Command::new("sh");
            command.args(["-c", "cd /proc/sys/kernel; cat hostname random/boot_id /etc/machine-id; pwd -P"]);
            command.current_dir("/var");
            if let Some(host) = host {
                host.takes(&mut command);
            }
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let (one, two, outside) = (look(Some(&hosts[0])), look(Some(&hosts[1])), look(None));
        assert_eq!((&one[0], &two[0]), (&hosts[0].name, &hosts[1].name));
        let what = outside.len() - 1;
        assert_eq!((one.len(), two.len()), (what + 1, what + 1));
        for at in 0..what {
            assert!(
                one[at] != two[at] && one[at] != outside[at] && two[at] != outside[at],
                "{one:?} {two:?}"
            );
        }
        let uptime = |host: &Host| {
            let mut command = Command::new("cat");
            host.takes(command.arg("/proc/uptime"));
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            text.split('.').next().unwrap().parse::<u64>().unwrap()
        };
        assert!(uptime(&hosts[1]) >= uptime(&hosts[0]) + 900_000);
    }
}
