//! Budget of production code: a maximum of lines for each part, which commits may only lower.

use super::{Source, shipped};

/// Part of the program: the paths of its files below `src`, its maximum number of lines, and the
/// number that is to be reached.
struct Room {
    name: &'static str,
    paths: &'static [&'static str],
    ceiling: usize,
    goal: usize,
}

/// Maximum difference between the allowed and the actual number of lines of a part. A commit that
/// removes more lines must lower the allowed number.
const SLACK: usize = 100;

const ROOMS: [Room; 9] = [
    Room { name: "model, rules", paths: &["model/", "rules/"], ceiling: 14_691, goal: 10_800 },
    Room {
        name: "store: interface, typed access",
        paths: &[
            "store/seam/",
            "store/memory/",
            "store/backend",
            "store/mod.rs",
            "store/settings.rs",
            "store/stream.rs",
        ],
        ceiling: 4_633,
        goal: 3_400,
    },
    Room { name: "store/dir", paths: &["store/dir/"], ceiling: 8_313, goal: 6_200 },
    Room { name: "store/postgres", paths: &["store/postgres/"], ceiling: 5_071, goal: 3_900 },
    Room {
        name: "local, process, path opening",
        paths: &["local/", "process/", "cap_fs/"],
        ceiling: 8_076,
        goal: 4_200,
    },
    Room { name: "engine", paths: &["engine/"], ceiling: 6_861, goal: 4_900 },
    Room { name: "commands, cli", paths: &["commands/", "cli/"], ceiling: 11_042, goal: 8_500 },
    Room { name: "report", paths: &["report/"], ceiling: 4_494, goal: 3_300 },
    Room {
        name: "rest",
        paths: &["main.rs", "alone.rs", "clock", "error.rs", "http/"],
        ceiling: 1_103,
        goal: 800,
    },
];

fn belongs(room: &Room, source: &Source) -> bool {
    let below = source.path.trim_start_matches("src/");
    room.paths.iter().any(|path| below.starts_with(path))
}

/// Counts the lines of a file before its unit tests, including comments and empty lines.
fn lines(source: &Source) -> usize {
    source.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count()
}

#[test]
fn no_part_of_the_source_exceeds_its_line_budget() {
    let sources = shipped();
    let mut table = format!("{:<32}{:>8}{:>9}{:>8}\n", "room", "lines", "ceiling", "goal");
    let (mut wrong, mut all) = (Vec::new(), 0);
    for room in &ROOMS {
        let count: usize = sources.iter().filter(|source| belongs(room, source)).map(lines).sum();
        all += count;
        table += &format!("{:<32}{count:>8}{:>9}{:>8}\n", room.name, room.ceiling, room.goal);
        if count > room.ceiling {
            wrong.push(format!("`{}` has {count} lines, more than {}", room.name, room.ceiling));
        } else if count + SLACK < room.ceiling {
            wrong.push(format!("lower the ceiling of `{}` to {count}", room.name));
        }
    }
    table += &format!("{:<32}{all:>8}{:>9}{:>8}", "all", "", 46_000);
    println!("{table}");
    assert!(wrong.is_empty(), "{}\n\n{table}", wrong.join("\n"));
    let homeless = sources.iter().filter(|source| !ROOMS.iter().any(|room| belongs(room, source)));
    let homeless: Vec<&str> = homeless.map(|source| source.path.as_str()).collect();
    assert_eq!(homeless, [""; 0], "each file belongs to a room of the budget");
}
