//! Copy of a directory in memory: compares the directory with the copy by its metadata, and
//! restores it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, FileType, Mode};

/// File, directory, link or special file, with its mode and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Dir { mode: u32 },
    File { mode: u32, bytes: Rc<Vec<u8>> },
    Link(PathBuf),
    Fifo,
    Socket,
}

/// Metadata by which the tests notice a change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    mode: u32,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// The entries of a directory are compared themselves, so its inode, size and time don't count.
    fn of(found: &Metadata) -> Stamp {
        let of_file = |number| if found.is_dir() { 0 } else { number };
        Stamp {
            inode: of_file(found.ino()),
            mode: found.mode(),
            size: of_file(found.size()),
            changed: if found.is_dir() { (0, 0) } else { (found.ctime(), found.ctime_nsec()) },
        }
    }
}

/// Owner of the files, if the tests run as root.
pub type Owner = Option<u32>;

/// All nodes below a directory.
pub struct Tree {
    root: PathBuf,
    owner: Owner,
    nodes: BTreeMap<PathBuf, Node>,
    stamps: BTreeMap<PathBuf, Stamp>,
    /// Path below `root` that the tree leaves out.
    except: Option<PathBuf>,
}

impl Tree {
    /// Reads all nodes below `root`. Their paths are relative to `root`.
    pub fn read(root: &Path) -> BTreeMap<PathBuf, Node> {
        let mut nodes = BTreeMap::new();
        each_below(root, Path::new(""), &None, &mut |path, found| {
            if let Some(node) = look(&root.join(path), found) {
                nodes.insert(path.to_owned(), node);
            }
        });
        nodes
    }

    /// Creates these nodes below `root`, which must not exist, without those below `except`.
    pub fn make(
        root: &Path,
        owner: Owner,
        mut nodes: BTreeMap<PathBuf, Node>,
        except: Option<&Path>,
    ) -> Tree {
        fs::create_dir(root).unwrap();
        fs::set_permissions(root, Permissions::from_mode(0o700)).unwrap();
        own(root, owner);
        nodes.retain(|path, _| except.is_none_or(|except| !path.starts_with(except)));
        let except = except.map(Path::to_owned);
        let mut tree = Tree { root: root.to_owned(), owner, nodes, stamps: BTreeMap::new(), except };
        tree.restore(&[]);
        tree
    }

    pub fn nodes(&self) -> &BTreeMap<PathBuf, Node> {
        &self.nodes
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the paths on disk that are missing, changed or new compared with the copy in memory.
    pub fn changes(&self) -> Vec<PathBuf> {
        let mut changes = Vec::new();
        let mut seen = 0;
        each_below(&self.root, Path::new(""), &self.except, &mut |path, found| match self.stamps.get(path) {
            Some(stamp) => {
                seen += 1;
                if *stamp != Stamp::of(found) {
                    changes.push(path.to_owned());
                }
            }
            None => changes.push(path.to_owned()),
        });
        if seen < self.stamps.len() {
            // Missing paths are found by listing the directory, because a path may seem to exist
            // behind a link that replaced a directory.
            let mut there = BTreeSet::new();
            each_below(&self.root, Path::new(""), &self.except, &mut |path, _| {
                there.insert(path.to_owned());
            });
            changes.extend(self.stamps.keys().filter(|path| !there.contains(*path)).cloned());
        }
        changes
    }

    /// Restores the paths in `wrong`, even those whose metadata seems unchanged.
    pub fn restore(&mut self, wrong: &[PathBuf]) {
        for path in wrong {
            open_up(&self.root.join(path));
        }
        for path in wrong {
            self.stamps.remove(path);
            match (self.nodes.get(path), fs::symlink_metadata(self.root.join(path))) {
                (Some(Node::Dir { .. }), Ok(found)) if found.is_dir() => {}
                (_, Ok(found)) => remove(&self.root.join(path), &found),
                (_, Err(_)) => {}
            }
        }
        if self.stamps.len() == self.nodes.len() {
            return;
        }
        // Paths are sorted by name, so a directory is made before its entries.
        let missing: Vec<(&PathBuf, &Node)> =
            self.nodes.iter().filter(|(path, _)| !self.stamps.contains_key(*path)).collect();
        for (path, node) in missing {
            let place = self.root.join(path);
            put(&place, node, self.owner).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
            self.stamps.insert(path.clone(), Stamp::of(&fs::symlink_metadata(&place).unwrap()));
        }
    }
}

/// Calls `each` with every path below `dir`, a directory before its entries.
fn each_below(root: &Path, dir: &Path, except: &Option<PathBuf>, each: &mut impl FnMut(&Path, &Metadata)) {
    // A directory that its owner can't read gets another mode, which the caller restores.
    let entries = fs::read_dir(root.join(dir)).or_else(|error| {
        let _ = fs::set_permissions(root.join(dir), Permissions::from_mode(0o700));
        fs::read_dir(root.join(dir)).map_err(|_| error)
    });
    for entry in entries.into_iter().flatten().flatten() {
        let path = dir.join(entry.file_name());
        if except.as_ref() == Some(&path) {
            continue;
        }
        let Ok(found) = entry.metadata() else { continue };
        each(&path, &found);
        if found.is_dir() {
            each_below(root, &path, except, each);
        }
    }
}

/// Reads a node; the content of a file over 64 MiB is left out. `None` if the node can't be read.
pub fn look(path: &Path, found: &Metadata) -> Option<Node> {
    let kind = found.file_type();
    let mode = found.mode() & 0o7777;
    Some(if kind.is_dir() {
        Node::Dir { mode }
    } else if kind.is_symlink() {
        Node::Link(fs::read_link(path).ok()?)
    } else if kind.is_fifo() {
        Node::Fifo
    } else if kind.is_socket() {
        Node::Socket
    } else if found.len() > 64 << 20 {
        Node::File { mode, bytes: Rc::new(Vec::new()) }
    } else {
        let bytes = fs::read(path).or_else(|_| {
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            let read = fs::read(path);
            fs::set_permissions(path, Permissions::from_mode(mode))?;
            read
        });
        Node::File { mode, bytes: Rc::new(bytes.ok()?) }
    })
}

/// Makes a node where no file is; a directory may exist.
pub fn put(path: &Path, node: &Node, owner: Owner) -> io::Result<()> {
    let mode = match node {
        Node::Dir { mode } => {
            if !path.is_dir() {
                fs::create_dir(path)?;
            }
            Some(*mode)
        }
        Node::File { mode, bytes } => {
            fs::write(path, bytes.as_slice())?;
            Some(*mode)
        }
        Node::Link(target) => {
            symlink(target, path)?;
            None
        }
        Node::Fifo => {
            rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            None
        }
        Node::Socket => {
            rustix::fs::mknodat(CWD, path, FileType::Socket, Mode::RUSR | Mode::WUSR, 0)?;
            None
        }
    };
    own(path, owner);
    match mode {
        Some(mode) => fs::set_permissions(path, Permissions::from_mode(mode)),
        None => Ok(()),
    }
}

fn own(path: &Path, owner: Owner) {
    if let Some(owner) = owner {
        std::os::unix::fs::lchown(path, Some(owner), Some(owner)).unwrap();
    }
}

/// Lets the owner change the entries of a directory, so that it can be restored.
fn open_up(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.mode() & 0o700 != 0o700) {
        let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    }
}

/// Removes a node of any type.
pub fn remove(path: &Path, found: &Metadata) {
    if found.is_dir() {
        open_up(path);
        each_below(path, Path::new(""), &None, &mut |below, _| open_up(&path.join(below)));
        fs::remove_dir_all(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    } else {
        fs::remove_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
