//! Tests that complete streams are read as they were written, and damaged or hostile streams are
//! refused.

use super::*;

fn name(word: &str) -> AgentName {
    word.parse().unwrap()
}

fn meta(agent: &str, path: &str, length: u64) -> Meta {
    Meta { agent: name(agent), path: path.into(), length, is_executable: false, written_at: 1_767_323_045 }
}

/// Returns a stream with files of agents.
fn stream(agents: &[&str], files: &[(Meta, &[u8])]) -> Vec<u8> {
    let agents: Vec<AgentName> = agents.iter().map(|agent| name(agent)).collect();
    let mut writer = StreamWriter::begin(Vec::new(), "out", &agents).unwrap();
    for (meta, content) in files {
        writer.file(meta, *content, Path::new("file")).unwrap();
    }
    writer.finish().unwrap()
}

/// Reads a stream, and returns every file with its content.
fn read(bytes: &[u8]) -> Result<Vec<(Meta, Vec<u8>)>> {
    let mut reader = StreamReader::begin(bytes, "in")?;
    let mut files = Vec::new();
    while let Some(meta) = reader.next()? {
        let mut content = Vec::new();
        reader.copy(|bytes| {
            content.extend_from_slice(bytes);
            Ok(())
        })?;
        files.push((meta, content));
    }
    Ok(files)
}

fn an_estate() -> Vec<(Meta, Vec<u8>)> {
    let long = format!("runs/{}/{}", "r".repeat(200), "x".repeat(250));
    let mut hook = meta("ada", "hooks/on-startup", 600);
    hook.is_executable = true;
    vec![
        (meta("ada", "agent.toml", 0), Vec::new()),
        (hook, vec![b'h'; 600]),
        (meta("ada", "inbox/from-2-x/2-y.json", 512), vec![b'i'; 512]),
        (meta("ada", "inbox/from-2-x.json", 1), vec![b'j']),
        (meta("ada", &long, 70_000), vec![b'l'; 70_000]),
        (meta("bob", "agent.toml", 3), b"abc".to_vec()),
    ]
}

fn estate() -> Vec<u8> {
    let files = an_estate();
    let files: Vec<(Meta, &[u8])> = files.iter().map(|(meta, bytes)| (meta.clone(), &bytes[..])).collect();
    stream(&["ada", "bob"], &files)
}

#[test]
fn an_export_is_read_back_unchanged() {
    assert_eq!(read(&estate()).unwrap(), an_estate());
}

#[test]
fn the_tar_crate_reads_an_export() {
    let bytes = estate();
    let mut archive = tar::Archive::new(&bytes[..]);
    let paths: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    assert_eq!(paths.len(), an_estate().len() + 2);
    assert_eq!(paths[0], CONTENTS);
    assert!(paths[5].ends_with(&"x".repeat(250)), "{}", paths[5]);
}

#[test]
fn a_truncated_or_extended_export_is_refused() {
    let bytes = estate();
    for length in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let error = read(&bytes[..length]).unwrap_err();
        assert!(matches!(error.kind(), "damaged" | "not_an_export"), "{length}: {error}");
    }
    for more in [&b"x"[..], &[0; 512]] {
        assert_eq!(read(&[&bytes, more].concat()).unwrap_err().kind(), "damaged");
    }
}

#[test]
fn an_export_with_a_changed_byte_is_refused() {
    let bytes = estate();
    for at in (0..bytes.len()).step_by(13) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(read(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn a_newer_export_and_a_file_that_is_no_export_have_distinct_errors() {
    for other in [&b""[..], b"hello", &[0; 2048]] {
        assert_eq!(read(other).unwrap_err().kind(), "not_an_export");
    }
    let bytes = estate();
    let newer = String::from_utf8_lossy(&bytes[..1024]).replace("export/1", "export/2").into_bytes();
    assert_eq!(read(&newer).unwrap_err().kind(), "newer_schema");
}

#[test]
fn hostile_headers_are_refused() {
    let refused = |change: &dyn Fn(&mut Header)| {
        let mut bytes = stream(&["ada"], &[(meta("ada", "agent.toml", 0), b"")]);
        // The header of the first file follows the header and the single block of the table of
        // contents.
        let mut header = Header::from_byte_slice(&bytes[1024..1536]).clone();
        change(&mut header);
        header.set_cksum();
        bytes[1024..1536].copy_from_slice(header.as_bytes());
        let error = read(&bytes).unwrap_err();
        assert_eq!(error.kind(), "damaged", "{error}");
        assert!(!error.to_string().contains("match its checksum"), "{error}");
    };
    let set_path = |header: &mut Header, path: &str| {
        let name = &mut header.as_old_mut().name;
        name.fill(0);
        name[..path.len()].copy_from_slice(path.as_bytes());
    };
    for path in [
        "/etc/passwd",
        "agents/ada/../x",
        "agents/ada/./x",
        "agents/ada//x",
        "agents/ada/",
        "agents/ada",
        "agents/Not One/x",
        "agents/bob/agent.toml",
        "agents/../x",
        "x",
        "",
    ] {
        refused(&|header| set_path(header, path));
    }
    for kind in [
        EntryType::Link,
        EntryType::Symlink,
        EntryType::Char,
        EntryType::Block,
        EntryType::Directory,
        EntryType::Fifo,
        EntryType::Continuous,
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::GNUSparse,
        EntryType::XGlobalHeader,
        EntryType::XHeader,
    ] {
        refused(&|header| header.set_entry_type(kind));
    }
    refused(&|header| header.set_size(u64::MAX));
    refused(&|header| header.as_old_mut().mode.fill(b'x'));
    refused(&|header| header.as_old_mut().mtime.fill(b'x'));
    refused(&|header| header.as_old_mut().linkname[0] = b'x');
}

/// An extended header could change the path or the length of the file that follows.
#[test]
fn extended_headers_and_endless_names_are_refused() {
    let entry = |kind: EntryType, length: u64, content: &[u8]| {
        let mut header = header(length);
        header.set_entry_type(kind);
        header.set_path("agents/ada/x").unwrap();
        header.set_cksum();
        let mut bytes = [header.as_bytes(), content].concat();
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    };
    let bytes = stream(&["ada"], &[(meta("ada", "agent.toml", 0), b"")]);
    for (kind, length, content) in [
        (EntryType::XHeader, 10, &b"10 size=1\n"[..]),
        (EntryType::XHeader, 19, b"19 path=agents/ada\n"),
        (EntryType::GNULongName, 1 << 40, b"agents"),
        (EntryType::GNULongLink, 1 << 40, b"agents"),
    ] {
        let more = [&bytes[..1024], &entry(kind, length, content), &bytes[1024..]].concat();
        let error = read(&[&more[..], &vec![b'x'; 1 << 20]].concat()).unwrap_err();
        assert_eq!(error.kind(), "damaged", "{error}");
        assert!(!error.to_string().contains("match its checksum"), "{error}");
    }
}

#[test]
fn an_export_with_repeated_or_unordered_files_is_refused() {
    let one = meta("ada", "work/x", 0);
    let before = meta("ada", "identity.json", 0);
    for files in [vec![one.clone(), one.clone()], vec![one.clone(), before]] {
        let files: Vec<(Meta, &[u8])> = files.into_iter().map(|meta| (meta, &b""[..])).collect();
        let error = read(&stream(&["ada"], &files)).unwrap_err();
        assert!(error.to_string().contains("repeated"), "{error}");
    }
}

#[test]
fn a_file_that_becomes_shorter_ends_the_export() {
    let mut writer = StreamWriter::begin(Vec::new(), "out", &[name("ada")]).unwrap();
    let error = writer.file(&meta("ada", "x", 5), &b"abc"[..], Path::new("x")).unwrap_err();
    assert!(error.to_string().contains("shorter"), "{error}");
}
