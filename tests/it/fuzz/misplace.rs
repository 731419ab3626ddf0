//! Mutations of a file as a whole: its type, name, permissions and place.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::chance::Chance;
use super::tree::{self, Node, Tree};

/// Mutation in words, and a file that must stay open while the command runs.
pub struct Misplaced {
    pub words: String,
    pub open: Option<File>,
    /// Other paths that the mutation changed: a replaced file, or a new file in the same directory.
    pub others: Vec<PathBuf>,
}

/// Replaces a file or directory by something else.
pub fn misplace(tree: &Tree, path: &Path, chance: &mut Chance) -> io::Result<Misplaced> {
    let place = tree.root().join(path);
    let old = tree.nodes()[path].clone();
    let is_dir = matches!(old, Node::Dir { .. });
    let gone = || fs::symlink_metadata(&place).map(|found| tree::remove(&place, &found));
    let put = |node: &Node| tree::put(&place, node, tree.owner());
    let file = |bytes: &[u8]| Node::File { mode: 0o600, bytes: Rc::new(bytes.to_vec()) };
    let (mut open, mut others) = (None, Vec::new());
    let below = |place: PathBuf| place.strip_prefix(tree.root()).map(Path::to_owned).ok();
    let words = match chance.below(16) {
        0 => {
            gone()?;
            "not there".to_owned()
        }
        1 => {
            gone()?;
            put(&if is_dir { file(b"{}\n") } else { Node::Dir { mode: 0o700 } })?;
            if is_dir { "a file" } else { "a directory" }.to_owned()
        }
        2 => {
            gone()?;
            put(&Node::Dir { mode: 0o700 })?;
            tree::put(&place.join("something"), &file(b"{}\n"), tree.owner())?;
            "a directory with something in it".to_owned()
        }
        3 | 4 => {
            gone()?;
            let outside = tree.root().parent().unwrap_or(tree.root()).parent().unwrap_or(tree.root());
            let targets = [
                outside.join("outside/dir"),
                outside.join("outside/file"),
                outside.join("outside/new"),
                place.clone(),
                PathBuf::from(place.file_name().unwrap_or_default()),
                PathBuf::from("../bob"),
                PathBuf::from("."),
                PathBuf::from("/dev/zero"),
                PathBuf::from("/proc/self/fd/1"),
            ];
            let target = chance.pick(&targets).clone();
            put(&Node::Link(target.clone()))?;
            format!("a link to {}", target.display())
        }
        5 => {
            // The file gets another name, and a link to the new name takes its place.
            let beside = with_name(&place, b"moved-away");
            fs::rename(&place, &beside)?;
            symlink(beside.file_name().unwrap_or_default(), &place)?;
            others.extend(below(beside));
            "a link to where it is now".to_owned()
        }
        6 | 7 => {
            gone()?;
            put(&Node::Fifo)?;
            let has_writer = chance.one_in(2);
            if has_writer {
                open = Some(File::options().read(true).write(true).open(&place)?);
            }
            format!("a pipe {} a writer", if has_writer { "with" } else { "without" })
        }
        8 => {
            gone()?;
            put(&Node::Socket)?;
            "a socket".to_owned()
        }
        9 | 10 => {
            let mode = *chance.pick(&[0o000, 0o200, 0o400, 0o444, 0o500, 0o777, 0o4755]);
            fs::set_permissions(&place, Permissions::from_mode(mode))?;
            format!("of mode {mode:o}")
        }
        11 if !is_dir => {
            let size = *chance.pick(&[65 << 20, 1_500 << 20]);
            // An earlier mutation may have put a pipe at this path, so the file is created again.
            gone()?;
            put(&file(&content(&old)))?;
            File::options().write(true).open(&place)?.set_len(size)?;
            format!("a sparse file of {size} bytes")
        }
        12 if is_dir => {
            let bytes = some_content(tree, chance);
            for number in 0..200 {
                tree::put(&place.join(format!("more-{number}.json")), &file(&bytes), tree.owner())?;
            }
            "with 200 files more".to_owned()
        }
        13 => {
            let names: [&[u8]; 12] = [
                b"new\nline.json",
                b"\x1b[2J\xff.json",
                &[b'n'; 250],
                b".json",
                b"-rf",
                "e\u{301}\u{1f600}\u{202e}.json".as_bytes(),
                b"taken~one",
                b"0-msg_.json",
                b"2-msg_019b77000000700080000000000000000.json",
                b"w-msg_zzzz.json",
                b"..json",
                b" ",
            ];
            let name = *chance.pick(&names);
            let beside = if is_dir { place.join(OsStr::from_bytes(name)) } else { with_name(&place, name) };
            let bytes = if chance.one_in(2) { some_content(tree, chance) } else { content(&old) };
            tree::put(&beside, &file(&bytes), tree.owner())?;
            others.extend(below(beside));
            format!("beside a file named {:?}", OsStr::from_bytes(name))
        }
        14 => {
            let name = place.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let beside = with_name(&place, name.as_bytes());
            fs::rename(&place, &beside)?;
            others.extend(below(beside));
            "in capital letters".to_owned()
        }
        _ => {
            // The mutated file takes the place of a random other file.
            let all: Vec<&PathBuf> = tree
                .nodes()
                .keys()
                .filter(|other| !other.starts_with(path) && !path.starts_with(other))
                .collect();
            let other = *chance.pick(&all);
            let target = tree.root().join(other);
            if let Ok(found) = fs::symlink_metadata(&target) {
                tree::remove(&target, &found);
            }
            fs::rename(&place, &target)?;
            others.push(other.clone());
            format!("now {}", other.display())
        }
    };
    Ok(Misplaced { words, open, others })
}

fn with_name(path: &Path, name: &[u8]) -> PathBuf {
    path.with_file_name(OsStr::from_bytes(name))
}

fn content(node: &Node) -> Vec<u8> {
    match node {
        Node::File { bytes, .. } => bytes.to_vec(),
        Node::Dir { .. } | Node::Link(_) | Node::Fifo | Node::Socket => b"{}\n".to_vec(),
    }
}

/// Returns the content of a random file of the tree.
fn some_content(tree: &Tree, chance: &mut Chance) -> Vec<u8> {
    let files: Vec<&Node> = tree.nodes().values().filter(|node| matches!(node, Node::File { .. })).collect();
    content(files[chance.below(files.len())])
}
