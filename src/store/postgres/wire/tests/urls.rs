//! Tests of valid and refused URLs.

use std::os::unix::fs::PermissionsExt;

use super::super::super::Url;
use super::super::WireFault;
use super::super::password::Sources;
use crate::store::is_url;

#[test]
fn the_shown_form_of_a_url_parses_to_the_same_url() {
    for (text, shown) in [
        ("postgres://db/agents", "postgres://db/agents?schema=dormouse"),
        ("postgresql://me@DB.Example:5432/agents?schema=team", "postgres://me@db.example/agents?schema=team"),
        (
            "postgres://a%20b@[::1]:77/x%2Dy?sslmode=require",
            "postgres://a%20b@[::1]:77/x-y?schema=dormouse&sslmode=require",
        ),
        ("postgres:///agents", "postgres:///agents?schema=dormouse"),
        ("postgres://u@:5433/d?host=/tmp/s", "postgres://u@:5433/d?schema=dormouse&host=/tmp/s"),
        ("postgres://%2Ftmp%2Fs/d", "postgres:///d?schema=dormouse&host=/tmp/s"),
        ("postgres://localhost/d?sslmode=disable", "postgres://localhost/d?schema=dormouse"),
        (
            "postgres://h/d?sslrootcert=/a b&connect_timeout=3",
            "postgres://h/d?schema=dormouse&sslrootcert=/a%20b&connect_timeout=3000ms",
        ),
        ("postgres://h/d?connect_timeout=10s", "postgres://h/d?schema=dormouse"),
    ] {
        let url = Url::parse(text).unwrap();
        assert_eq!(url.shown(), shown, "{text}");
        assert_eq!(Url::parse(shown).unwrap(), url, "{text}");
        assert!(is_url(text));
    }
    assert!(!is_url("/srv/postgres") && !is_url("postgres"));
    assert_eq!(Url::parse("postgres://h/d?schema=_a1").unwrap().schema(), "_a1");
}

#[test]
fn an_invalid_url_is_refused_with_a_hint() {
    for (text, says) in [
        ("postgres://me:hunter2@db/agents", "PGPASSWORD"),
        ("postgres://db/agents?password=hunter2", "PGPASSWORD"),
        ("postgres://db/agents?sslkey=x", "`sslkey` is no parameter"),
        ("postgres://db/agents?schema=Team", "`Team` is no schema"),
        ("postgres://db/agents?schema=1a", "no schema"),
        ("postgres://db/agents?schema=pg_x", "the server's own"),
        ("postgres://db/agents?schema=a&schema=b", "given twice"),
        ("postgres://db/agents?schema=", "no value"),
        ("postgres://db", "name the database"),
        ("postgres://db/a/b", "name the database"),
        ("postgres://a,b/d", "one host"),
        ("postgres://db:0/d", "a port"),
        ("postgres://db:+1/d", "a port"),
        ("postgres://db:70000/d", "a port"),
        ("postgres://d b/d", "no host"),
        ("postgres://db/d%zz", "hexadecimal"),
        ("postgres://db/d%00", "control characters"),
        ("postgres://db/d%ff", "UTF-8"),
        ("postgres://db/d?sslmode=prefer", "one of disable"),
        ("postgres:///d?sslmode=require", "a unix socket has no TLS"),
        ("postgres://db/d?sslmode=require&sslrootcert=/x", "no meaning"),
        ("postgres://db/d?connect_timeout=soon", "a time like 10s"),
        ("postgres://db/d?connect_timeout=0", "a time like 10s"),
        ("postgres://[::1/d", "brackets"),
        ("mysql://db/d", "begins with postgres://"),
    ] {
        let said = Url::parse(text).unwrap_err();
        assert!(said.contains(says), "{text}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    assert!(Url::parse(&format!("postgres://db/d?schema={}", "a".repeat(63))).is_ok());
    assert!(Url::parse(&format!("postgres://db/d?schema={}", "a".repeat(64))).is_err());
}

#[test]
fn a_password_is_read_from_a_private_plain_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pass");
    let write = |text: &str, mode: u32| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let find = |url: &str| {
        let found = Sources::of(None, Some(&path)).find(&Url::parse(url).unwrap(), "me");
        found.map(|password| String::from_utf8(password).unwrap())
    };
    let unfit = |url: &str| match find(url) {
        Err(WireFault::Unfit(says)) => says,
        other => panic!("{other:?}"),
    };
    assert!(unfit("postgres://db/d").contains("PGPASSWORD"));
    write(
        "# db:5432:d:me:no\nother:*:*:*:no\n\nDB:5432:x:me:no\ndb:5432:d:me:a\\:b\\\\c\n*:*:*:*:last\n",
        0o600,
    );
    assert_eq!(find("postgres://db/d").unwrap(), "a:b\\c");
    assert_eq!(find("postgres://db:1/d").unwrap(), "last");
    write("localhost:*:*:me:here\n", 0o600);
    assert_eq!(find("postgres:///d?host=/tmp/s").unwrap(), "here");
    assert!(unfit("postgres://db/d").contains("chmod 0600"));
    write("*:*:*:*:open\n", 0o640);
    assert!(unfit("postgres://db/d").contains("has mode 0640"));
    let both = Sources::of(Some("first"), Some(&path));
    assert_eq!(both.find(&Url::parse("postgres://db/d").unwrap(), "me").unwrap(), b"first");
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(unfit("postgres://db/d").contains("no plain file"));
}
