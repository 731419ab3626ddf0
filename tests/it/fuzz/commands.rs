//! Fills in commands that run on a mutated directory, and reads which exit statuses each may have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::chance::Chance;

/// Ids in the records of a state directory, by agent and by the prefix of the id.
#[derive(Debug, Default)]
pub struct Ids {
    pub all: Vec<String>,
    by_agent: BTreeMap<(String, String), Vec<String>>,
}

impl Ids {
    /// Collects the ids in the names and contents of files.
    pub fn of<'a>(files: impl Iterator<Item = (&'a Path, &'a [u8])>) -> Ids {
        let mut found: BTreeSet<(String, String)> = BTreeSet::new();
        for (path, bytes) in files {
            let Some(agent) = agent_of(path) else { continue };
            for text in [path.to_string_lossy(), String::from_utf8_lossy(bytes)] {
                ids_in(&text, |id| {
                    found.insert((agent.clone(), id.to_owned()));
                });
            }
        }
        let mut ids = Ids::default();
        for (agent, id) in found {
            let word = id.split('_').next().unwrap_or_default().to_owned();
            ids.by_agent.entry((agent, word)).or_default().push(id.clone());
            ids.all.push(id);
        }
        ids
    }
}

/// Returns the name of the agent that owns a file.
pub fn agent_of(path: &Path) -> Option<String> {
    let below = path.strip_prefix("agents").ok()?;
    Some(below.iter().next()?.to_string_lossy().into_owned())
}

fn ids_in(text: &str, mut each: impl FnMut(&str)) {
    for (at, _) in text.match_indices('_') {
        let before = text[..at].rfind(|c: char| !c.is_ascii_lowercase()).map_or(0, |before| before + 1);
        let id = text.get(before..at + 33).unwrap_or_default();
        if before < at
            && id.get(at - before + 1..).is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            each(id);
        }
    }
}

/// Replaces the words in braces by random values. Returns the words of the command and its stdin.
pub fn draw(template: &str, path: &Path, ids: &Ids, chance: &mut Chance) -> (Vec<String>, Vec<u8>) {
    let (line, stdin) = template.split_once(" << ").unwrap_or((template, ""));
    let agent = match agent_of(path) {
        Some(agent) if !chance.one_in(10) => agent,
        _ => (*chance.pick(&["ada", "bob", "cyd", "eve", "jon", "kim"])).to_owned(),
    };
    let mut of_file = Vec::new();
    ids_in(&path.to_string_lossy(), |id| of_file.push(id.to_owned()));
    let mut id = |word: &str| -> String {
        let named: Vec<&String> = of_file.iter().filter(|id| id.starts_with(word)).collect();
        if !named.is_empty() && !chance.one_in(3) {
            return (*chance.pick(&named)).clone();
        }
        let others = ids.by_agent.get(&(agent.clone(), word.to_owned()));
        let others = others.filter(|_| !chance.one_in(20)).unwrap_or(&ids.all);
        chance.pick(others).clone()
    };
    let stdin = match stdin.split_once("{agent}/triggers/{trigger}") {
        Some((before, after)) => format!("{before}{agent}/triggers/{}{after}", id("trig")),
        None => stdin.to_owned(),
    };
    let words = line.trim_start_matches('@').split(' ');
    let words = words.map(|word| match word {
        "{agent}" => agent.clone(),
        "{new}" => "new".to_owned(),
        "{message}" | "{dead}" => id("msg"),
        "{work}" => id("work"),
        "{wait}" => id("wait"),
        "{timer}" => id("timer"),
        "{task}" => id("task"),
        "{trigger}" => id("trig"),
        "{run}" => id("run"),
        word => word.to_owned(),
    });
    (words.collect(), stdin.into_bytes())
}

/// Exit statuses of every command according to its manual page, and true if the command may also
/// end with the status of a command that it runs.
pub struct Documented(BTreeMap<String, (BTreeSet<i32>, bool)>);

impl Documented {
    pub fn read() -> Documented {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/sections");
        let mut pages = BTreeMap::new();
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap();
            let name = entry.path().file_stem().unwrap().to_string_lossy().into_owned();
            let (_, section) = text.split_once(".SH \"EXIT STATUS\"").unwrap_or_default();
            let section = section.split("\n.SH").next().unwrap_or_default();
            let mut statuses = BTreeSet::new();
            for line in section.lines().filter_map(|line| line.strip_prefix(".B ")) {
                statuses.extend(line.split([' ', ',', '\\']).filter_map(|word| word.parse::<i32>().ok()));
            }
            assert!(statuses.contains(&0), "{name}: no exit statuses");
            pages.insert(name, (statuses, section.contains("126")));
        }
        Documented(pages)
    }

    /// True if the manual page allows this exit status.
    pub fn allows(&self, words: &[String], status: i32) -> bool {
        // A command that runs a program after `--` ends with the exit status of that program.
        let runs = |of: &(BTreeSet<i32>, bool)| of.1 && words.iter().any(|word| word == "--");
        self.of(words).is_none_or(|of| of.0.contains(&status) || runs(of))
    }

    fn of(&self, words: &[String]) -> Option<&(BTreeSet<i32>, bool)> {
        let name = words.first()?;
        let below = words.iter().skip(1).find_map(|word| self.0.get(&format!("{name}-{word}")));
        below.or_else(|| self.0.get(name))
    }
}
