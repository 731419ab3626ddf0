//! Fuzz test of records in a database that another program changes: texts that are no records,
//! columns that contradict the texts, and rows that are missing, doubled, or of another agent.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::chance::Chance;
use super::commands::Documented;
use super::judge;
use super::mutate::{self, Pool};
use super::run::{Line, Ran};
use super::{Amount, amount, asked};
use crate::fleet::Machine;
use crate::harness::{copy_tree, dormouse};
use crate::server::{Session, server};
use crate::setup::words;

const SCHEMA: &str = "fuzzed";

/// Tables with the data of agents.
const TABLES: &str =
    "meta agent state due inbox record plan dedupe lease archive event trigger_key trigger_use";

/// Columns with texts: table, column, column of the agent's number, and file name extension of such
/// a text.
const TEXTS: &[(&str, &str, &str, &str)] = &[
    ("state", "body", "agent_id", "json"),
    ("inbox", "body", "agent_id", "json"),
    ("record", "body", "agent_id", "json"),
    ("archive", "body", "agent_id", "json"),
    ("event", "body", "agent_id", "json"),
    ("dedupe", "body", "agent_id", "json"),
    ("agent", "identity", "id", "json"),
    ("agent", "policy", "id", "toml"),
];

/// SQL that changes columns and rows of `ada`; `$` is its `agent_id`, and `?` selects a random row.
const HARMS: &[&str] = &[
    "UPDATE @.state SET revision = revision + 1000 WHERE agent_id = $",
    "UPDATE @.state SET revision = -1 WHERE agent_id = $",
    "UPDATE @.state SET revision = 9223372036854775807 WHERE agent_id = $",
    "UPDATE @.state SET fence = 9223372036854775807 WHERE agent_id = $",
    "UPDATE @.state SET fence = -5 WHERE agent_id = $",
    "UPDATE @.state SET body = (SELECT body FROM @.state WHERE agent_id <> $ LIMIT 1) WHERE agent_id = $",
    "DELETE FROM @.state WHERE agent_id = $",
    "UPDATE @.state SET agent_id = 99999 WHERE agent_id = $",
    "INSERT INTO @.due VALUES ($, 'a''b', -9223372036854775808) ON CONFLICT (agent_id) DO UPDATE SET due_at = excluded.due_at",
    "INSERT INTO @.due VALUES ($, '', 9223372036854775807) ON CONFLICT (agent_id) DO UPDATE SET due_at = excluded.due_at",
    "DELETE FROM @.due",
    "INSERT INTO @.due VALUES (99999, '', 0)",
    "UPDATE @.inbox SET prio = 99 WHERE agent_id = $ AND ?",
    "UPDATE @.inbox SET prio = -1 WHERE agent_id = $ AND ?",
    "UPDATE @.inbox SET prio = -32768 WHERE agent_id = $ AND ?",
    "UPDATE @.inbox SET id = gen_random_uuid() WHERE agent_id = $ AND ?",
    "UPDATE @.inbox SET by = E'a\\n\\x1b[31mb' WHERE agent_id = $ AND ?",
    "UPDATE @.inbox SET agent_id = 99999 WHERE agent_id = $ AND ?",
    "INSERT INTO @.inbox SELECT agent_id, 3, id, by, body FROM @.inbox WHERE agent_id = $ ON CONFLICT DO NOTHING",
    "INSERT INTO @.inbox SELECT agent_id, 1, gen_random_uuid(), NULL, body FROM @.inbox WHERE agent_id = $",
    "INSERT INTO @.inbox SELECT $, 1, gen_random_uuid(), NULL, '{}' FROM generate_series(1, 3000)",
    "DELETE FROM @.inbox WHERE agent_id = $ AND ?",
    "INSERT INTO @.inbox SELECT agent_id, 2, ('00000000-0000-7000-8000-' || right(id, 12))::uuid, NULL, body \
     FROM @.archive WHERE kind = 'message' AND agent_id = $",
    "UPDATE @.record SET kind = 'odd' WHERE agent_id = $ AND ?",
    "UPDATE @.record SET kind = 'timer' WHERE agent_id = $ AND kind = 'work'",
    "UPDATE @.record SET id = '../../x' WHERE agent_id = $ AND ?",
    "UPDATE @.record SET id = 'work_00000000000070008000000000000001' WHERE agent_id = $ AND ?",
    "UPDATE @.record SET id = E'a\\nb\\x1b[31m' WHERE agent_id = $ AND ?",
    "DELETE FROM @.record WHERE agent_id = $ AND ?",
    "DELETE FROM @.record WHERE agent_id = $",
    "INSERT INTO @.record SELECT agent_id, kind, id || 'x', body FROM @.record WHERE agent_id = $",
    "UPDATE @.plan SET body = '\\xff00fe' WHERE agent_id = $",
    "UPDATE @.plan SET id = '..' WHERE agent_id = $",
    "DELETE FROM @.plan WHERE agent_id = $",
    "UPDATE @.dedupe SET admitted_at = -9223372036854775808 WHERE agent_id = $",
    "UPDATE @.dedupe SET admitted_at = 9223372036854775807, revision = -1 WHERE agent_id = $",
    "UPDATE @.dedupe SET key_sha = '\\x00' WHERE agent_id = $ AND ?",
    "INSERT INTO @.lease VALUES ($, 'run', 77, '', '', -1, 9223372036854775807, true)",
    "INSERT INTO @.lease VALUES ($, 'run', -77, E'x\\ny', '../..', 9223372036854775807, 0, true)",
    "INSERT INTO @.lease VALUES ($, 'odd', 9223372036854775807, 'x', 'y', 1, 0)",
    "INSERT INTO @.lease VALUES (99999, 'run', 1, 'x', 'y', 1, 9223372036854775807, true)",
    "UPDATE @.archive SET at = 0 WHERE agent_id = $ AND ?",
    "UPDATE @.archive SET at = 9223372036854775807 WHERE agent_id = $ AND ?",
    "UPDATE @.archive SET at = -9223372036854775808 WHERE agent_id = $ AND ?",
    "UPDATE @.archive SET id = NULL WHERE agent_id = $ AND ?",
    "UPDATE @.archive SET id = 'x' WHERE agent_id = $ AND ?",
    "UPDATE @.archive SET kind = '../odd' WHERE agent_id = $ AND ?",
    "UPDATE @.archive SET kind = 'run' WHERE agent_id = $ AND kind = 'message'",
    "UPDATE @.archive SET revision = 9223372036854775807 WHERE agent_id = $ AND ?",
    "DELETE FROM @.archive WHERE agent_id = $ AND ?",
    "INSERT INTO @.archive (agent_id, kind, at, revision, id, body) SELECT agent_id, kind, at, revision, id, body FROM @.archive \
     WHERE agent_id = $",
    "UPDATE @.event SET at = 9223372036854775807 WHERE agent_id = $ AND ?",
    "UPDATE @.event SET number = -1 WHERE agent_id = $ AND ?",
    "UPDATE @.event SET number = 1 WHERE agent_id = $",
    "UPDATE @.event SET revision = -1 WHERE agent_id = $ AND ?",
    "DELETE FROM @.event WHERE agent_id = $ AND ?",
    "INSERT INTO @.event (agent_id, number, at, revision, body) SELECT agent_id, number, at, revision, body FROM @.event \
     WHERE agent_id = $",
    "UPDATE @.agent SET room = '../bob', takes = -5 WHERE id = $",
    "UPDATE @.agent SET room = E'x\\n/../../..', takes = 9223372036854775807 WHERE id = $",
    "UPDATE @.fence_floor SET fence = -9223372036854775808",
    "UPDATE @.trigger_key SET sha = E'x\\n\\x1b[31m', key = '\\xff' WHERE agent_id = $",
    "INSERT INTO @.trigger_key VALUES (99999, '../x', '', '\\x00'), ($, E'\\x1b[31m', '', '')",
    "INSERT INTO @.trigger_use VALUES ($, 'x', 9223372036854775807, -1)",
    "UPDATE @.agent SET name = '../ada' WHERE id = $",
    "UPDATE @.agent SET name = '' WHERE id = $",
    "UPDATE @.agent SET name = E'ada\\n\\x1b[31m' WHERE id = $",
    "UPDATE @.agent SET pool = E'a''\\nb' WHERE id = $",
    "UPDATE @.agent SET is_shut = true WHERE id = $",
    "DELETE FROM @.agent WHERE id = $",
    "UPDATE @.meta SET value = '2' WHERE key = 'format'",
    "UPDATE @.meta SET value = E'x\\n\\x1b[31m' WHERE key = 'format'",
    "DELETE FROM @.meta",
];

/// Commands that run on the mutated rows. Words in braces are ids of ada's records.
const COMMANDS: &[&str] = &[
    "start ada",
    "stop ada --grace 0s",
    "enqueue ada hello",
    "enqueue ada hello --dedupe-key one",
    "enqueue ada later --in 1h",
    "enqueue ada now --priority interject",
    "enqueue ada about --work-item {work} --wait {wait}",
    "enqueue ada hello --await --timeout 20ms",
    "wake ada look",
    "tick ada",
    "tick ada --until-idle --max-steps 4",
    "tick ada --dry-run",
    "tick --all",
    "get ada",
    "list",
    "explain ada",
    "state ada --history",
    "next-wake ada",
    "next-wake --all",
    "queue list -a ada",
    "queue show {msg}",
    "queue dead -a ada",
    "queue rejected -a ada",
    "work add objective -a ada --pick",
    "work list -a ada",
    "work show {work}",
    "work update {work} --todo two",
    "work plan {work}",
    "wait list -a ada",
    "wait cancel {wait}",
    "timer list -a ada",
    "timer cancel {timer}",
    "task list -a ada --ended",
    "task status {task}",
    "task output {task}",
    "trigger list -a ada --revoked",
    "trigger show {trig}",
    "trigger revoke {trig}",
    "run list -a ada --limit 0",
    "run show {run}",
    "briefs ada --limit 0",
    "report ada -o -",
    "events ada --limit 5",
    "metrics",
    "gc ada",
    "export ada -o ../ada.tar",
    "rename ada new",
    "init",
    "doctor",
    "doctor --repair",
    "recover ada",
    "preempt ada",
];

#[test]
fn commands_handle_changed_rows_as_documented() {
    needs!("postgresql");
    let (amount, began) = (amount(100), Instant::now());
    let is_over = |number: u64| match amount {
        Amount::Cases(cases) => number >= cases,
        Amount::For(time) => began.elapsed() >= time,
    };
    let seed = asked("FUZZ_SEED").map_or(1, |seed| seed.parse().expect("DORMOUSE_FUZZ_SEED is a number"));
    let only = asked("FUZZ_CASE").map(|case| case.parse().expect("DORMOUSE_FUZZ_CASE is a number"));
    let mut rows = Rows::make();
    assert_it_can_object(&mut rows);
    let mut failures = Vec::new();
    let mut number = only.unwrap_or(0);
    while only.map_or(!is_over(number), |only: u64| number == only) {
        failures.extend(rows.case(seed, number));
        assert!(failures.len() < super::FAILURES, "{}", failures.join("\n"));
        number += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("rows: {number} cases, seed {seed}, {} with a text that is no record", rows.unreadable);
}

/// Asserts that the checks of this file notice an overwritten unreadable record, damage that
/// `doctor` does not report, and a change of another agent.
fn assert_it_can_object(rows: &mut Rows) {
    let damage = rows.damage_text(("record", "body", "agent_id", "json"), b"{\"schema\":\"odd\"}").unwrap();
    assert_eq!(rows.objections(&damage), Vec::<String>::new());
    // The restored rows look as if a command had overwritten the unreadable row.
    rows.restore();
    let wrong = rows.objections(&damage);
    assert_eq!(
        wrong,
        ["the row of `record` is gone or overwritten", "doctor finds nothing in what ada consists of"]
    );
    rows.session.ask(&format!("UPDATE {SCHEMA}.state SET revision = revision + 1"));
    assert_eq!(rows.objections(&Damage::default()), ["the rows of bob have changed"]);
    rows.restore();
}

/// Store with a copy of its original rows.
struct Rows {
    machine: Machine,
    session: Session,
    /// Id of the agent ada in the database.
    ada: String,
    /// Ids of the records of ada.
    ids: Vec<String>,
    bob: Vec<String>,
    documented: Documented,
    /// Original files of this machine's local directory for the database.
    kept: tempfile::TempDir,
    unreadable: usize,
}

/// Mutation of the rows, with its description.
#[derive(Default)]
struct Damage {
    words: String,
    /// Row whose text no reader can take for a record: its table, and the row as text.
    unreadable: Option<(&'static str, String)>,
}

impl Rows {
    /// Creates `ada` with a record of every kind, and the idle agent `bob`.
    fn make() -> Rows {
        let server = server();
        let machine = Machine::new(&server.url(SCHEMA), None).with_ada("echo done");
        let run = |line: &str| machine.run(line.split(' ')).trim_end().to_owned();
        run("create bob -q -- true");
        run("start bob -q");
        run("enqueue ada first --dedupe-key one");
        run("tick --all --until-idle -q");
        let work = run("work add objective -a ada --todo one --plan prose --pick");
        run("work add over -a ada");
        run(&format!("wait -a ada --work-item {work} --on external --reason why --resource r --recheck 60d"));
        run("timer add later -a ada --in 90d");
        run("task start -a ada -- true");
        run("trigger create -a ada --verify hmac_sha256 -q");
        crate::setup::eventually("the end of the task", || run("task list -a ada").is_empty().then_some(()));
        run("tick --all --until-idle -q");
        for text in ["one", "two", "three"] {
            run(&format!("enqueue ada {text}"));
        }
        run("enqueue ada put-off --in 60d --dedupe-key later");
        run("enqueue ada slow --priority background");
        run("wake ada look");
        let mut session = server.session();
        session.ask(&format!("CREATE SCHEMA {SCHEMA}_kept"));
        for table in words(TABLES) {
            session.ask(&format!("CREATE TABLE {SCHEMA}_kept.{table} AS TABLE {SCHEMA}.{table}"));
        }
        session.ask(&format!(
            "CREATE FUNCTION {SCHEMA}_kept.try(harm text) RETURNS text LANGUAGE plpgsql AS $$ \
             BEGIN EXECUTE harm; RETURN ''; EXCEPTION WHEN others THEN RETURN SQLERRM; END $$"
        ));
        let ada = session.ask(&format!("SELECT id FROM {SCHEMA}.agent WHERE name = 'ada'")).remove(0);
        let ids = session.ask(&format!(
            "SELECT id FROM {SCHEMA}.record WHERE agent_id = {ada} \
             UNION ALL SELECT id FROM {SCHEMA}.archive WHERE agent_id = {ada} AND id IS NOT NULL \
             UNION ALL SELECT 'msg_' || replace(id::text, '-', '') FROM {SCHEMA}.inbox WHERE agent_id = {ada} AND prio >= 0"
        ));
        let kept = tempfile::tempdir().unwrap();
        copy_tree(&machine.anchor(), kept.path());
        let documented = Documented::read();
        let mut rows = Rows { machine, session, ada, ids, bob: Vec::new(), documented, kept, unreadable: 0 };
        rows.bob = rows.of_bob();
        rows
    }

    /// Mutates the rows, runs a command, checks the result, and restores the rows. Returns the
    /// failure.
    fn case(&mut self, seed: u64, number: u64) -> Option<String> {
        let mut chance = Chance::new(seed, number);
        let damage = if chance.one_in(2) { self.harm(&mut chance) } else { self.mutate(&mut chance) }?;
        let line = self.line(&mut chance);
        let ran = self.run(&line);
        let mut wrong = judge::of_its_end(&line, &ran, &self.documented);
        let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
        if ran.status.code() == Some(6)
            && !stderr.is_empty()
            && !stderr.contains("ada")
            && !stderr.contains("store")
        {
            wrong.push("it does not say whose record is damaged".to_owned());
        }
        if ran.stuck.is_none() {
            wrong.extend(self.objections(&damage));
        }
        if chance.one_in(4) && ran.stuck.is_none() && !damage.words.contains("@.meta") {
            wrong.extend(self.keeps_bob_from_work());
        }
        self.unreadable += usize::from(damage.unreadable.is_some());
        self.restore();
        let words: Vec<_> = line.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let stderr: String = stderr.chars().take(400).collect();
        let shown = || {
            format!(
                "case {number}, seed {seed}: {}: `dormouse {}`: {}\n    {:?} {stderr}",
                damage.words,
                words.join(" "),
                wrong.join("; "),
                ran.status.code()
            )
        };
        (!wrong.is_empty()).then(shown)
    }

    /// Executes a random statement of [`HARMS`]. Returns `None` if the database refuses it.
    fn harm(&mut self, chance: &mut Chance) -> Option<Damage> {
        let harm = *chance.pick(HARMS);
        let table = harm.split("@.").nth(1).unwrap().split(' ').next().unwrap();
        let drawn = format!(
            "ctid = (SELECT ctid FROM @.{table} t WHERE agent_id = $ ORDER BY md5(ctid::text || '{}') LIMIT 1)",
            chance.next()
        );
        let sql = harm.replace('?', &drawn).replace('@', SCHEMA).replace('$', &self.ada);
        let refused = self.attempt(&sql);
        refused.is_none().then(|| Damage { words: harm.to_owned(), unreadable: None })
    }

    /// Mutates a random text of ada. Returns `None` if there is none or the database refuses it.
    fn mutate(&mut self, chance: &mut Chance) -> Option<Damage> {
        let place = *chance.pick(TEXTS);
        let (table, column, of, ending) = place;
        let texts = self.session.ask(&format!(
            "SELECT encode(convert_to({column}::text, 'UTF8'), 'hex') FROM {SCHEMA}.{table} WHERE {of} = {} \
             ORDER BY md5(ctid::text || '{}') LIMIT 2",
            self.ada,
            chance.next()
        ));
        let texts: Vec<Vec<u8>> = texts.iter().map(|hex| bytes_of(hex)).collect();
        let contents: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let pool = Pool { ids: &self.ids, contents: &contents };
        let old = contents.first()?;
        let (new, words) = mutate::mutate(Path::new(&format!("x.{ending}")), old, &pool, chance);
        let mut damage = self.replace(place, old, &new)?;
        damage.words = format!("{table}.{column}: {words}");
        Some(damage)
    }

    /// Replaces one text of ada in the table and column of `place`, an entry of [`TEXTS`].
    fn damage_text(&mut self, place: (&'static str, &str, &str, &str), new: &[u8]) -> Option<Damage> {
        let (table, column, of, _) = place;
        let hex = self.session.ask(&format!(
            "SELECT encode(convert_to({column}::text, 'UTF8'), 'hex') FROM {SCHEMA}.{table} WHERE {of} = {} LIMIT 1",
            self.ada
        ));
        self.replace(place, &bytes_of(hex.first()?), new)
    }

    fn replace(&mut self, place: (&'static str, &str, &str, &str), old: &[u8], new: &[u8]) -> Option<Damage> {
        let (table, column, of, ending) = place;
        let text = |bytes: &[u8]| format!("convert_from(decode('{}', 'hex'), 'UTF8')", hex_of(bytes));
        // A JSON column stores no invalid JSON, so such a text is stored as a JSON string.
        let forms = if ending == "json" {
            vec![
                format!("{}::json", text(new)),
                format!("to_json({})", text(new)),
                "to_json('torn'::text)".to_owned(),
            ]
        } else {
            vec![text(new)]
        };
        for form in forms {
            let row = format!("{of} = {} AND {column}::text = {}", self.ada, text(old));
            let sql = format!(
                "UPDATE {SCHEMA}.{table} SET {column} = {form} WHERE ctid = (SELECT ctid FROM {SCHEMA}.{table} WHERE {row} LIMIT 1)"
            );
            if self.attempt(&sql).is_some() {
                continue;
            }
            let newest = self.newest(table, column, of);
            let is_unreadable = ending == "json" && table != "dedupe" && is_no_record(old, &newest);
            let unreadable = is_unreadable.then(|| (table, self.digest_of_newest(table, of)));
            return Some(Damage { words: String::new(), unreadable });
        }
        None
    }

    /// Returns the text of ada that was written last. `of`: column with the agent's number.
    fn newest(&mut self, table: &str, column: &str, of: &str) -> Vec<u8> {
        let asked = format!(
            "SELECT encode(convert_to({column}::text, 'UTF8'), 'hex') FROM {SCHEMA}.{table} WHERE {of} = {} \
             ORDER BY xmin::text::bigint DESC LIMIT 1",
            self.ada
        );
        bytes_of(&self.session.ask(&asked).remove(0))
    }

    fn digest_of_newest(&mut self, table: &str, of: &str) -> String {
        let asked = format!(
            "SELECT md5(t::text) FROM {SCHEMA}.{table} t WHERE {of} = {} ORDER BY xmin::text::bigint DESC LIMIT 1",
            self.ada
        );
        self.session.ask(&asked).remove(0)
    }

    /// Runs a statement. Returns the error of the server.
    fn attempt(&mut self, sql: &str) -> Option<String> {
        let hex = hex_of(sql.as_bytes());
        let said = self
            .session
            .ask(&format!("SELECT {SCHEMA}_kept.try(convert_from(decode('{hex}', 'hex'), 'UTF8'))"));
        Some(said.join("\n")).filter(|said| !said.is_empty())
    }

    fn line(&self, chance: &mut Chance) -> Line {
        let words = chance.pick(COMMANDS).split(' ').map(|word| {
            let kind = word.strip_prefix('{').and_then(|word| word.strip_suffix('}'));
            let Some(kind) = kind else { return word.into() };
            let of_kind: Vec<&String> =
                self.ids.iter().filter(|id| id.starts_with(&format!("{kind}_"))).collect();
            chance.pick(&of_kind).as_str().into()
        });
        let mut args: Vec<std::ffi::OsString> = words.collect();
        if chance.one_in(2) {
            args.insert(0, "--json".into());
        }
        self.words(args)
    }

    fn words(&self, args: Vec<std::ffi::OsString>) -> Line {
        Line { args, dir: self.machine.sandbox.project(), ..Line::default() }
    }

    fn run(&self, line: &Line) -> Ran {
        let command = self.machine.cmd([]).into_command();
        let mut limited = Command::new("timeout");
        limited
            .args(["-s", "KILL", "60"])
            .arg(dormouse())
            .args(&line.args)
            .env_clear()
            .current_dir(&line.dir);
        for (name, value) in command.get_envs() {
            limited.env(name, value.unwrap_or_default());
        }
        let output = limited.stdin(Stdio::null()).output().unwrap();
        // `timeout` ends with this status if it had to kill the command.
        let stuck = (output.status.code() == Some(137)).then(|| "it did not end in a minute".to_owned());
        let (stdout, stderr) = (output.stdout, output.stderr);
        Ran { status: output.status, stdout, stderr, peak_kib: 0, stuck, was_told: false, left: Vec::new() }
    }

    /// Returns the faults: a damaged row was lost or not reported, or rows of bob have changed.
    fn objections(&mut self, damage: &Damage) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some((table, digest)) = &damage.unreadable {
            let there = format!("SELECT count(*) FROM {SCHEMA}.{table} t WHERE md5(t::text) = '{digest}'");
            if self.session.ask(&there) == ["0"] {
                wrong.push(format!("the row of `{table}` is gone or overwritten"));
            }
            let doctor = self.run(&self.words(vec!["--json".into(), "doctor".into()]));
            let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
            let mut findings = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let is_about_ada = |finding: &Value| finding.to_string().contains("agents/ada/");
            if doctor.status.code() != Some(6) || !findings.any(|finding| is_about_ada(&finding)) {
                wrong.push("doctor finds nothing in what ada consists of".to_owned());
            }
        }
        if self.of_bob() != self.bob {
            wrong.push("the rows of bob have changed".to_owned());
        }
        wrong
    }

    /// Returns the failure of a step of bob, which must get its turn whatever the rows of ada are.
    fn keeps_bob_from_work(&mut self) -> Option<String> {
        for words in
            [&["enqueue", "bob", "hello"][..], &["tick", "--all", "--until-idle", "--max-steps", "4"]]
        {
            self.run(&self.words(words.iter().map(Into::into).collect()));
        }
        let done = "SELECT count(*) FROM @.archive WHERE kind = 'message' AND agent_id = \
                    (SELECT id FROM @_kept.agent WHERE name = 'bob')";
        let is_done = self.session.ask(&done.replace('@', SCHEMA)) == ["1"];
        (!is_done).then(|| "bob gets no turn".to_owned())
    }

    fn of_bob(&mut self) -> Vec<String> {
        let of = |table: &str| {
            format!(
                "SELECT md5(t::text) FROM {SCHEMA}.{table} t WHERE agent_id = (SELECT id FROM {SCHEMA}_kept.agent WHERE name = 'bob')"
            )
        };
        let all: Vec<String> = ["state", "inbox", "record", "archive", "event"].map(of).into();
        let mut rows = self.session.ask(&all.join(" UNION ALL "));
        rows.sort();
        rows
    }

    fn restore(&mut self) {
        let back = |table: &&str| {
            format!(
                "DELETE FROM {SCHEMA}.{table}; INSERT INTO {SCHEMA}.{table} OVERRIDING SYSTEM VALUE SELECT * FROM {SCHEMA}_kept.{table}"
            )
        };
        let all: Vec<String> = words(TABLES).iter().map(back).collect();
        self.session.ask(&format!("BEGIN; {}; COMMIT", all.join("; ")));
        let anchor = self.machine.anchor();
        fs::remove_dir_all(&anchor).unwrap();
        fs::create_dir(&anchor).unwrap();
        copy_tree(self.kept.path(), &anchor);
    }
}

/// True if no reader can take this text for a record of the kind that the row had.
fn is_no_record(old: &[u8], new: &[u8]) -> bool {
    let schema = |bytes: &[u8]| {
        let value: Option<Value> = serde_json::from_slice(bytes).ok();
        value.filter(Value::is_object).map(|value| value["schema"].as_str().map(str::to_owned))
    };
    schema(new).is_none_or(|new| Some(new) != schema(old))
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap()).collect()
}
