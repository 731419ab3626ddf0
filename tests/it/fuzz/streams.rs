//! Fuzz test of `import`: it refuses a mutated export stream (a tar archive) and leaves no files,
//! or makes a valid agent of the stream. It writes nowhere else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use super::chance::Chance;
use super::estate::{Estate, NOW};
use super::mutate::{self, Pool};
use super::{Amount, amount, asked};
use crate::harness::{Ran, Sandbox};
use crate::setup::{names, tree};

const BLOCK: usize = 512;
const SUM: &str = "dormouse-export.sha256";
const LONG_PATH: &[u8] = b"././@LongLink";

/// Entry of an exported archive: a file of the agent, or a file that `export` adds.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    path: Vec<u8>,
    kind: u8,
    mode: u32,
    written_at: u64,
    content: Vec<u8>,
}

/// Parses the files in an exported archive, without the last one, which has the checksum.
fn entries(bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (mut at, mut long) = (0, None);
    while bytes[at..at + BLOCK].iter().any(|byte| *byte != 0) {
        let header = Header::from_byte_slice(&bytes[at..at + BLOCK]);
        let length = header.entry_size().unwrap() as usize;
        let content = bytes[at + BLOCK..at + BLOCK + length].to_vec();
        at += BLOCK + length.div_ceil(BLOCK) * BLOCK;
        if header.entry_type() == EntryType::GNULongName {
            long = Some(content[..content.len() - 1].to_vec());
            continue;
        }
        entries.push(Entry {
            path: long.take().unwrap_or_else(|| header.path_bytes().to_vec()),
            kind: header.entry_type().as_byte(),
            mode: header.mode().unwrap(),
            written_at: header.mtime().unwrap(),
            content,
        });
    }
    entries.pop();
    entries
}

/// Writes the entries as an export archive with a correct checksum.
fn stream(entries: &[Entry]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(block).collect();
    let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let sum = Entry { path: SUM.into(), content: format!("{sum}\n").into_bytes(), ..entries[0].clone() };
    bytes.extend(block(&sum));
    bytes.extend([0; 2 * BLOCK]);
    bytes
}

fn block(entry: &Entry) -> Vec<u8> {
    let plain = |path: &[u8], kind: u8, content: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::new(kind));
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(content.len() as u64);
        header.set_mtime(entry.written_at);
        // The tar library refuses some paths, so the test writes them into the header itself.
        let field = &mut header.as_old_mut().name;
        let most = path.len().min(field.len());
        field[..most].copy_from_slice(&path[..most]);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    };
    let file = plain(&entry.path, entry.kind, &entry.content);
    if entry.path.len() <= 100 {
        return file;
    }
    let content = [&entry.path[..], b"\0"].concat();
    let name = Entry { path: LONG_PATH.into(), kind: b'L', mode: 0o644, written_at: 0, content };
    [block(&name), file].concat()
}

/// File names that lead out of the agent's directory, or that no export archive may contain.
const NAMES: &[&str] = &[
    "../../../../home/.profile",
    "/etc/cron.d/x",
    "..",
    "",
    "a//b",
    "./state.json",
    "state.json/",
    "lock",
    "run.lock",
    "journal.jsonl",
    "keys/trig_1.abc",
    "tmp/x",
    "cache/open",
    "inbox.moved/x",
    ".git/config",
    ".gitattributes",
    "inbox/.hidden",
    "hooks/../../../dormouse.toml",
    "work/..",
    "runs/x/\u{1b}[2J",
    "ledger/2026-01.jsonl",
    "archive/2026-01/message.jsonl",
    "state.json/x",
    "agent.toml",
    "quarantine/..data",
    "tasks/task_1.lock",
    "waits/a\nb.json",
];

/// Mutates an export archive once. Returns the archive and the mutation in words.
fn change(entries: &[Entry], chance: &mut Chance) -> (Vec<u8>, String) {
    let mut changed = entries.to_vec();
    // The first entry is the table of contents and no file of the agent, so it is not mutated.
    let at = 1 + chance.below(entries.len() - 1);
    let other = 1 + chance.below(entries.len() - 1);
    let shown = String::from_utf8_lossy(&entries[at].path).into_owned();
    let words = match chance.below(16) {
        0 => {
            let mut bytes = stream(entries);
            let place = chance.below(bytes.len());
            match chance.below(4) {
                0 => bytes.truncate(place),
                1 => bytes[place] ^= 1 << chance.below(8),
                2 => drop(bytes.drain(place..(place + BLOCK).min(bytes.len()))),
                _ => {
                    let end = (place + BLOCK * chance.below(4)).min(bytes.len());
                    let more = bytes[place..end].to_vec();
                    bytes.splice(place..place, more);
                }
            }
            return (bytes, format!("changed at byte {place}"));
        }
        1 => {
            changed.remove(at);
            format!("without {shown}")
        }
        2 => {
            changed.insert(at, entries[at].clone());
            format!("{shown} is there twice")
        }
        3 => {
            changed.swap(at, other);
            format!("{shown} has another place")
        }
        4 => {
            changed[at].content = entries[other].content.clone();
            format!("{shown} has another's content")
        }
        5 | 6 => {
            let path = chance.pick(NAMES);
            let agent = shown.split('/').nth(1).unwrap_or_default().to_owned();
            let path = match chance.below(4) {
                0 => (*path).to_owned(),
                _ => format!("agents/{agent}/{path}"),
            };
            changed[at].path = path.clone().into_bytes();
            changed[1..].sort_by_key(|entry| in_order(&entry.path));
            format!("{shown} is called {path:?}")
        }
        7 => {
            changed[at].kind = *chance.pick(b"0123456789gxLKSDV\0");
            format!("{shown} is of kind {:?}", char::from(changed[at].kind))
        }
        8 => {
            changed[at].mode = *chance.pick(&[0o4755, 0o700, 0o777, 0, 0o2600]);
            changed[at].written_at = *chance.pick(&[0, 1, 8 << 30, (8 << 30) - 1]);
            format!("{shown} has other rights and times")
        }
        9 => {
            let length = *chance.pick(&[100, 255, 256, 3000, 3073, 5000]);
            let name = format!("{shown}/{}", "x".repeat(length));
            changed[at].path = name.into_bytes();
            format!("{shown} has a name of {length} bytes behind it")
        }
        10 => {
            changed[0].content = match chance.below(4) {
                0 => b"{\"schema\":\"dormouse/export/1\",\"agents\":[\"../x\"]}\n".to_vec(),
                1 => b"{\"schema\":\"dormouse/export/2\",\"agents\":[\"ada\"]}\n".to_vec(),
                2 => b"{\"schema\":\"dormouse/export/1\",\"agents\":[\"zoe\"]}\n".to_vec(),
                _ => vec![b'['; 100_000],
            };
            "with another table of contents".to_owned()
        }
        _ => {
            let contents: Vec<&[u8]> = entries.iter().map(|entry| entry.content.as_slice()).collect();
            let pool =
                Pool { ids: &["msg_01a2052d07e270008000aa356c902785".to_owned()], contents: &contents };
            let path = PathBuf::from(&shown);
            let (content, words) = mutate::mutate(&path, &entries[at].content, &pool, chance);
            changed[at].content = content;
            format!("{shown} is {words}")
        }
    };
    (stream(&changed), words)
}

/// Returns the key by which `export` sorts files in an archive: the names in the path, in order.
fn in_order(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect()
}

/// Returns the faults after the import of a mutated export archive.
fn judge(sandbox: &Sandbox, ran: &Ran) -> Vec<String> {
    let mut wrong = Vec::new();
    let there = names(&sandbox.store().join("agents"));
    if ran.stderr.contains("panicked") || ![Some(0), Some(1), Some(4), Some(6)].contains(&ran.status.code()) {
        wrong.push("it did not end as it should".to_owned());
    }
    match ran.status.code() {
        Some(0) => {
            let found = sandbox.cmd(["doctor"]).env("DORMOUSE_NOW", NOW).output();
            if found.status.code() != Some(0) {
                wrong.push(format!("doctor: {}{}", found.stdout, found.stderr));
            }
        }
        _ if !there.is_empty() => wrong.push(format!("it has left {there:?}")),
        _ => {}
    }
    wrong
}

fn import(sandbox: &Sandbox, bytes: &[u8], chance: &mut Chance) -> Ran {
    let words: &[&str] = if chance.one_in(4) { &["import", "--as", "copy"] } else { &["import"] };
    sandbox.cmd(words.iter().copied()).env("DORMOUSE_NOW", NOW).stdin(bytes).output()
}

#[test]
fn a_changed_stream_is_refused_or_makes_a_sound_agent() {
    let estate = Estate::make();
    let project = estate.root.join("project");
    let sandbox = Sandbox::in_memory();
    sandbox.run(["init"]);
    let agents = sandbox.store().join("agents");
    let export = |agent: &str| {
        let dir = project.join(".dormouse");
        let words = ["export", agent, "--dir", dir.to_str().unwrap(), "-o", "x.tar"];
        assert_eq!(sandbox.cmd(words).env("DORMOUSE_NOW", NOW).output().status.code(), Some(0), "{agent}");
        let path = sandbox.project().join("x.tar");
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        bytes
    };
    let clear = || names(&agents).iter().for_each(|name| fs::remove_dir_all(agents.join(name)).unwrap());
    let around = |path: &Path| !path.starts_with(sandbox.store());
    let mut streams = Vec::new();
    for agent in ["ada", "bob", "eve", "fin"] {
        let bytes = export(agent);
        assert_eq!(stream(&entries(&bytes)), bytes, "{agent}");
        let ran = sandbox.cmd(["import"]).env("DORMOUSE_NOW", NOW).stdin(bytes.clone()).output();
        if ran.status.code() == Some(0) && judge(&sandbox, &ran).is_empty() {
            streams.push(entries(&bytes));
        }
        clear();
    }
    assert!(streams.len() >= 2, "{} streams arrive as they are", streams.len());
    let mut before = tree(sandbox.root());
    before.retain(|path, _| around(path));
    let seed = asked("FUZZ_SEED").map_or(1, |seed| seed.parse().expect("DORMOUSE_FUZZ_SEED is a number"));
    let only = asked("FUZZ_CASE").map(|case| case.parse::<u64>().expect("DORMOUSE_FUZZ_CASE is a number"));
    let began = Instant::now();
    let (mut taken, mut case) = (0, only.unwrap_or(0));
    loop {
        let goes_on = match (only, amount(1_000)) {
            (Some(only), _) => case == only,
            (None, Amount::Cases(all)) => case < all,
            (None, Amount::For(time)) => began.elapsed() < time,
        };
        if !goes_on {
            break;
        }
        let mut chance = Chance::new(seed, case);
        let (bytes, words) = change(chance.pick(&streams).as_slice(), &mut chance);
        let ran = import(&sandbox, &bytes, &mut chance);
        let mut wrong = judge(&sandbox, &ran);
        let mut after = tree(sandbox.root());
        after.retain(|path, _| around(path));
        let outside: Vec<_> = after.iter().filter(|(path, found)| before.get(*path) != Some(found)).collect();
        if !outside.is_empty() || after.len() != before.len() {
            wrong.push(format!("outside: {:?}", outside.iter().map(|(path, _)| path).collect::<Vec<_>>()));
        }
        assert!(
            wrong.is_empty(),
            "DORMOUSE_FUZZ_SEED={seed} DORMOUSE_FUZZ_CASE={case}: {words}: {}\n{ran}",
            wrong.join("; ")
        );
        taken += u64::from(ran.status.code() == Some(0));
        clear();
        case += 1;
    }
    println!("streams: {case} cases, {taken} taken, seed {seed}, {:.0?}", began.elapsed());
}
