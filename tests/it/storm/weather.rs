//! Disturbances of the stress test: kills processes, and fills the disk.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::Signal;

use super::history::{Luck, What};
use super::world::{World, pause};

/// Kills a random process of the stress test every 50 ms.
pub fn lightning(world: &World, luck: &mut Luck) {
    while !world.is_over() {
        std::thread::sleep(Duration::from_millis(50));
        let processes = world.processes();
        for process in processes.iter().filter(|process| process.name.contains("dormouse")) {
            world.memory.fetch_max(process.peak, Ordering::Relaxed);
        }
        if processes.is_empty() {
            continue;
        }
        let struck = &processes[luck.below(processes.len() as u64) as usize];
        // A killed git leaves its lock, which blocks all git commands until the lock is removed, so
        // git is killed rarely.
        if struck.name.starts_with("git") && !luck.one_in(4) {
            continue;
        }
        let signal = if luck.one_in(10) { Signal::TERM } else { Signal::KILL };
        world.send(struck, signal);
    }
}

/// Fills the disk now and then for a while, by shrinking it to its content.
pub fn flood(world: &World, luck: &mut Luck) {
    while world.has_disk && !world.is_over() {
        pause(world, 1000 + luck.below(4000));
        let nobody_moves_files = world.room.write().unwrap();
        world.history.note(What::Disk { is_full: true });
        let disk = world.disk();
        let mut is_full = false;
        for _ in 0..20 {
            let used = rustix::fs::statvfs(&disk)
                .map(|found| (found.f_blocks - found.f_bfree) * found.f_frsize)
                .unwrap();
            is_full = remount(world, used);
            if is_full {
                break;
            }
        }
        if is_full {
            pause(world, 50 + luck.below(500));
        }
        assert!(remount(world, 2 << 30), "the disk can't be made larger again");
        world.history.note(What::Disk { is_full: false });
        drop(nobody_moves_files);
    }
}

fn remount(world: &World, bytes: u64) -> bool {
    let mut mount = Command::new("mount");
    mount.arg("-o").arg(format!("remount,size={bytes}")).arg(world.disk());
    // The kernel refuses to make the disk smaller than its content, which may have grown.
    mount.output().unwrap().status.success()
}
