//! Local time zone: that of `TZ`, else that of the machine. An unknown zone is an error, because
//! timers would fire at unintended times of day if the zone were guessed.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::model::zone::Zone;

use super::Clock;

/// Directory of zone files. The part of a path after this directory is the name of a zone.
const ZONES: &str = "zoneinfo/";

const LOCALTIME: &str = "etc/localtime";
const TIMEZONE: &str = "etc/timezone";

const YEAR: i64 = 366 * 24 * 3600;

/// Seconds from now in which a zone file may list changes one by one; later only its rule holds.
const LISTED: i64 = 100 * YEAR;

/// Maximum number of symbolic links that are followed; a longer chain counts as a cycle.
const LINKS: usize = 16;

/// Returns the local time zone of this process, or the reason why it is unknown.
pub fn find() -> Result<Zone, String> {
    let now = Clock { pinned: None }.now().as_millis() / 1000;
    zone(std::env::var_os("TZ").as_deref(), Path::new("/"), now)
}

/// Returns the zone for the value of `TZ`, on the machine whose files are below `root`.
fn zone(tz: Option<&OsStr>, root: &Path, now: i64) -> Result<Zone, String> {
    let Some(tz) = tz else { return machine(root, now) };
    let shown = tz.to_string_lossy();
    let problem = |problem: &str| format!("TZ is `{shown}`, and {problem}");
    let said = shown.strip_prefix(':').unwrap_or(&shown);
    if said.is_empty() {
        return Ok(Zone::UTC);
    }
    let Some(path) = said.strip_prefix('/') else {
        return said
            .parse()
            .map_err(|_| problem("no time zone is written like that: set it to one such as Europe/Berlin"));
    };
    match of_file(&root.join(path), root, now) {
        Some(found) => found.map_err(|error| problem(&error)),
        None => Err(problem("that file is not there")),
    }
}

/// Returns the zone of a machine: UTC without a setting, as in the C library.
fn machine(root: &Path, now: i64) -> Result<Zone, String> {
    if let Some(found) = of_file(&root.join(LOCALTIME), root, now) {
        return found.map_err(|error| format!("{error}; set TZ to a zone such as Europe/Berlin"));
    }
    match debian_zone(root) {
        None => Ok(Zone::UTC),
        Some(name) => {
            name.parse().map_err(|_| format!("/{TIMEZONE} names `{name}`, which is not a time zone"))
        }
    }
}

fn debian_zone(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join(TIMEZONE)).ok()?;
    let name = text.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the zone of a file: the zone in its path or in a link's target, else the zone of its
/// content. `None` if the path does not exist.
fn of_file(path: &Path, root: &Path, now: i64) -> Option<Result<Zone, String>> {
    let mut at: PathBuf = path.to_owned();
    let mut is_link = false;
    for _ in 0..LINKS {
        if let Some(zone) = named_by(&at) {
            return Some(Ok(zone));
        }
        let Ok(target) = fs::read_link(&at) else { break };
        is_link = true;
        at = match target.strip_prefix("/") {
            Ok(below) => root.join(below),
            Err(_) => at.parent().unwrap_or(root).join(target),
        };
    }
    match fs::read(&at) {
        Ok(bytes) => {
            Some(of_content(&bytes, root, now).map_err(|problem| format!("{}: {problem}", path.display())))
        }
        Err(error) if error.kind() == ErrorKind::NotFound && !is_link => None,
        Err(error) => Some(Err(format!("{}: {error}", path.display()))),
    }
}

fn named_by(path: &Path) -> Option<Zone> {
    let path = std::str::from_utf8(path.as_os_str().as_bytes()).ok()?;
    let (_, name) = path.rsplit_once(ZONES)?;
    name.strip_prefix("posix/").unwrap_or(name).parse().ok()
}

/// Returns the zone of a compiled zone file: the zone that `/etc/timezone` names, else the rule at
/// the file's end. Error unless one of them has the UTC offsets of the file from a year ago on.
fn of_content(bytes: &[u8], root: &Path, now: i64) -> Result<Zone, String> {
    let (file, rule) =
        Zone::compiled(bytes).ok_or("is not a compiled time zone with a rule for years to come")?;
    let named = debian_zone(root).and_then(|name| name.parse().ok());
    named
        .into_iter()
        .chain([rule])
        .find(|zone| file.agrees(zone, now - YEAR, now + LISTED))
        .ok_or_else(|| "is a compiled time zone without a name, and no rule describes it".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const NOW: i64 = 1_780_000_000;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Machine {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir(root.path().join("etc")).unwrap();
            Machine(root)
        }

        fn link(self, target: &str) -> Machine {
            symlink(target, self.0.path().join(LOCALTIME)).unwrap();
            self
        }

        fn content(self, bytes: &[u8]) -> Machine {
            fs::write(self.0.path().join(LOCALTIME), bytes).unwrap();
            self
        }

        fn debian(self, name: &str) -> Machine {
            fs::write(self.0.path().join(TIMEZONE), name).unwrap();
            self
        }

        fn zone(&self, tz: Option<&str>) -> String {
            match zone(tz.map(OsStr::new), self.0.path(), NOW) {
                Ok(zone) => zone.to_string(),
                Err(problem) => format!("! {problem}").replace(&*self.0.path().to_string_lossy(), ""),
            }
        }
    }

    /// Returns a TZif file: an empty 32-bit block, then a 64-bit block with `changes`, each with
    /// time, offset in seconds, whether it is summer time, and name.
    fn compiled(changes: &[(i64, i32, bool, &str)], rule: &str) -> Vec<u8> {
        let header = |times: u32, types: u32| {
            let counts = [0, 0, 0, times, types, 5 * types].map(u32::to_be_bytes).concat();
            [b"TZif2".as_slice(), &[0; 15], &counts].concat()
        };
        let count = u32::try_from(changes.len()).unwrap();
        let mut bytes = [header(0, 1), vec![0; 6], b"LMT\0\0".to_vec(), header(count, count.max(1))].concat();
        bytes.extend(changes.iter().flat_map(|(at, ..)| at.to_be_bytes()));
        bytes.extend(0..u8::try_from(count).unwrap());
        let kinds = changes.iter().zip((0..).step_by(5));
        bytes.extend(kinds.flat_map(|((_, offset, is_summer, _), name)| {
            [offset.to_be_bytes().as_slice(), &[u8::from(*is_summer), name]].concat()
        }));
        bytes.extend(changes.iter().flat_map(|(.., name)| format!("{name:\0<5}").into_bytes()));
        if changes.is_empty() {
            bytes.extend(b"\0\0\0\0\0\0LMT\0\0");
        }
        bytes.extend(format!("\n{rule}\n").bytes());
        bytes
    }

    const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
    const BERLIN_CHANGES: [(i64, i32, bool, &str); 2] =
        [(828_234_000, 7200, true, "CEST"), (846_378_000, 3600, false, "CET")];

    #[test]
    fn tz_overrides_the_time_zone_of_the_machine() {
        let machine = Machine::new().link("/usr/share/zoneinfo/Asia/Tokyo");
        for (tz, expected) in [
            ("Europe/Berlin", "Europe/Berlin"),
            (":Europe/Berlin", "Europe/Berlin"),
            ("", "UTC"),
            (":", "UTC"),
            (BERLIN, BERLIN),
            ("<+0330>-3:30", "<+0330>-3:30"),
            ("EST5EDT", "EST5EDT"),
            ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
            (":/usr/share/zoneinfo/posix/Europe/Berlin", "Europe/Berlin"),
            (":/etc/localtime", "Asia/Tokyo"),
        ] {
            assert_eq!(machine.zone(Some(tz)), expected, "{tz}");
        }
        for tz in ["Europe/Nowhere", "CET-1CEST", "nonsense", "/etc/nothing", "/usr/share/zoneinfo/Nowhere"] {
            assert!(machine.zone(Some(tz)).starts_with(&format!("! TZ is `{tz}`, and ")), "{tz}");
        }
        assert_eq!(machine.zone(None), "Asia/Tokyo");
    }

    #[test]
    fn the_machine_zone_is_read_from_localtime_or_etc_timezone() {
        let berlin = compiled(&BERLIN_CHANGES, BERLIN);
        // Morocco changes its offset each Ramadan, which the rule of its file does not describe.
        let listed = [
            (1_711_850_400, 3600, false, "+01"),
            (1_771_120_800, 0, true, "+00"),
            (1_774_144_800, 3600, false, "+01"),
            (1_801_965_600, 0, true, "+00"),
            (1_804_989_600, 3600, false, "+01"),
        ];
        let casablanca = compiled(&listed, "<+01>-1");
        for (machine, expected) in [
            (Machine::new(), "UTC"),
            (Machine::new().link("../usr/share/zoneinfo/Europe/Berlin"), "Europe/Berlin"),
            (Machine::new().link("/etc/zoneinfo/Europe/Berlin").debian("Asia/Tokyo\n"), "Europe/Berlin"),
            (Machine::new().debian("Europe/Berlin\n"), "Europe/Berlin"),
            (Machine::new().content(&berlin).debian("Europe/Berlin\n"), "Europe/Berlin"),
            (Machine::new().content(&berlin).debian("Etc/UTC\n"), BERLIN),
            (Machine::new().content(&berlin), BERLIN),
            (Machine::new().content(&compiled(&[], "UTC0")), "UTC0"),
            (Machine::new().debian("Nowhere\n"), "! /etc/timezone names `Nowhere`, which is not a time zone"),
        ] {
            assert_eq!(machine.zone(None), expected);
        }
        for refused in [
            Machine::new().content(b"nonsense"),
            Machine::new().content(&berlin[..berlin.len() - 9]),
            Machine::new().content(b""),
            Machine::new().content(&casablanca),
            Machine::new().link("localtime"),
            Machine::new().link("/nowhere"),
        ] {
            let problem = refused.zone(None);
            assert!(problem.starts_with("! /etc/localtime: ") && problem.contains("set TZ"), "{problem}");
        }
    }

    #[test]
    fn a_damaged_compiled_zone_never_panics_and_a_truncated_zone_is_refused() {
        let whole = compiled(&BERLIN_CHANGES, BERLIN);
        for length in 0..whole.len() {
            assert!(Zone::compiled(&whole[..length]).is_none(), "{length}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            if let Some((file, _)) = Zone::compiled(&damaged) {
                file.agrees(&Zone::UTC, NOW, NOW + LISTED);
            }
        }
    }
}
