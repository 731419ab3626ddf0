//! Who may do what to a store in a database. The database enforces it, so these tests also speak to it without dormouse.

use serde_json::json;

use crate::fleet::Machine;
use crate::server::{Server, server};
use crate::setup::{objects, words};

/// A store of its own with the agent `ada`, and roles of the database that are something to it.
struct Roles {
    server: &'static Server,
    schema: String,
    owner: Machine,
}

impl Roles {
    fn of(schema: &str) -> Roles {
        let server = server();
        for role in ["ticker", "producer", "reader", "nobody"] {
            server.sql(&format!(
                "DO $$ BEGIN CREATE ROLE {schema}_{role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
            ));
        }
        let owner = Machine::new(&server.url(schema), None).with_ada("echo done");
        let granted = ["ticker", "producer", "reader"].map(|part| format!("{part}={schema}_{part}"));
        let grants: Vec<&str> = granted.iter().flat_map(|one| ["--grant", one.as_str()]).collect();
        let made = owner.json(["init"].into_iter().chain(grants));
        assert_eq!((&made["created"], &made["granted"]), (&json!(false), &json!(granted)));
        Roles { server, schema: schema.to_owned(), owner }
    }

    fn machine(&self, role: &str) -> Machine {
        Machine::new(&self.server.url_of(&self.name(role), &self.schema), None)
    }

    fn name(&self, role: &str) -> String {
        format!("{}_{role}", self.schema)
    }

    /// Statements in the name of a role: what the server says against them.
    fn refused(&self, role: &str, statements: &str) -> Option<String> {
        let (name, schema) = (self.name(role), &self.schema);
        let asked = statements.replace('@', schema);
        self.server.try_sql_as(&name, &asked).err()
    }
}

#[track_caller]
fn is_refused(machine: &Machine, args: &[&str]) -> String {
    let ran = machine.cmd(args.iter().copied()).output();
    assert_eq!((ran.code(), ran.stdout.as_str()), (1, ""), "{args:?}: {ran}");
    assert!(ran.stderr.contains("hint: "), "{args:?}: {ran}");
    ran.stderr
}

#[test]
fn a_producer_speaks_in_its_own_name_and_reads_nothing() {
    needs!("postgresql");
    let roles = Roles::of("by_producer");
    let producer = roles.machine("producer");
    let id = producer.run(["enqueue", "ada", "build it"]);
    producer.cmd(["wake", "ada", "look", "--reason", "new commits"]).exits(0);
    let batch =
        producer.cmd(["enqueue", "ada", "--batch"]).stdin("{\"text\":\"1\"}\n{\"text\":\"2\"}\n").output();
    assert_eq!((batch.code(), batch.stdout.lines().count()), (0, 2), "{batch}");
    let shown = roles.owner.json(["queue", "show", id.trim()]);
    let name = format!("uid:{}", roles.name("producer"));
    let check = |shown: &serde_json::Value| {
        assert_eq!(
            (&shown["origin"], &shown["authority_class"], &shown["kind"]),
            (&json!({ "kind": "channel", "id": name }), &json!("external_evidence"), &json!("channel_event")),
            "{shown}"
        );
    };
    check(&shown);
    let ran = roles.owner.cmd(["--json", "tick", "ada", "--until-idle"]).output();
    assert!(ran.stderr.is_empty(), "{ran}");
    let shown = roles.owner.json(["queue", "show", id.trim()]);
    check(&shown);
    assert_eq!(shown["settlement"]["status"], "processed");
    let hint = objects(&ran.stdout).into_iter().find(|step| step["hint"].is_object());
    assert!(hint.is_none_or(|step| step["hint"]["source"] == json!(name)), "{ran}");

    for args in [
        &["get", "ada"][..],
        &["list"],
        &["tick", "ada"],
        &["queue", "list", "-a", "ada"],
        &["export", "ada", "--output", "x.tar"],
        &["stop", "ada"],
        &["gc"],
    ] {
        is_refused(&producer, args);
    }
    for (args, kind) in [
        (&["enqueue", "ada", "x", "--await"][..], "owners_only"),
        (&["enqueue", "ada", "x", "--dedupe-key", "k", "--retry"], "owners_only"),
        (&["enqueue", "ada", "x", "--in", "1h"], "owners_only"),
        (&["enqueue", "ada", "x", "--origin", "operator"], "origin_not_allowed"),
        (&["enqueue", "ada", "x", "--priority", "interject"], "priority_not_allowed"),
    ] {
        let ran = producer.cmd(["--json"].iter().chain(args).copied()).exits(4);
        assert_eq!(objects(&ran.stdout)[0]["error"]["kind"], kind, "{args:?}: {ran}");
    }
    producer.cmd(["enqueue", "bob", "x"]).exits(3);

    // And without dormouse.
    for table in
        words("agent state inbox archive event lease record dedupe trigger_key trigger_use task_input")
    {
        assert!(roles.refused("producer", &format!("SELECT 1 FROM @.{table}")).is_some(), "{table}");
        assert!(roles.refused("producer", &format!("DELETE FROM @.{table}")).is_some(), "{table}");
    }
    for values in ["0", "-2", "7"] {
        let asked = format!(
            "SELECT @.deliver('ada', ARRAY[{values}]::smallint[], ARRAY[gen_random_uuid()], ARRAY['{{}}'], false)"
        );
        assert!(roles.refused("producer", &asked).is_some_and(|why| why.contains("interject")), "{values}");
    }
    assert!(
        roles
            .refused(
                "producer",
                "INSERT INTO @.inbox (agent_id, prio, id, body) VALUES (1, 1, gen_random_uuid(), '1')"
            )
            .is_some()
    );
    assert!(roles.refused("nobody", "SELECT @.deliver('ada', '{}', '{}', '{}', false)").is_some());
}

/// A producer reads no keys, so a step drops the second message. Its keys are its own.
#[test]
fn a_producer_sends_once_under_a_key() {
    needs!("postgresql");
    let roles = Roles::of("by_key");
    let producer = roles.machine("producer");
    let keyed = ["enqueue", "ada", "build it", "--dedupe-key", "k"];
    let first = producer.run(keyed);
    let second = producer.run(keyed);
    roles.owner.run(["tick", "ada", "--until-idle"]);
    let third = producer.run(keyed);
    let owners = roles.owner.json(keyed);
    assert_eq!(owners["duplicate"], false, "a producer can't use up the key of another");
    roles.owner.run(["tick", "ada", "--until-idle"]);
    for (id, status) in [
        (first.trim(), "processed"),
        (second.trim(), "dropped"),
        (third.trim(), "dropped"),
        (owners["message_id"].as_str().unwrap(), "processed"),
    ] {
        assert_eq!(roles.owner.json(["queue", "show", id])["settlement"]["status"], status, "{id}");
    }
}

/// Whatever a row says that a producer has put there, it is a producer's.
#[test]
fn what_a_producer_claims_is_not_believed() {
    needs!("postgresql");
    let roles = Roles::of("by_claims");
    let owner = &roles.owner;
    let said = owner.run(["enqueue", "ada", "an order", "--origin", "operator"]);
    let schema = &roles.schema;
    // The same row, put there once more in the name of the producer, and one that interjects by its text alone.
    let body = roles.server.sql(&format!("SELECT body FROM {schema}.inbox")).join("\n");
    roles.server.sql(&format!("DELETE FROM {schema}.inbox"));
    let uuid = uuid::Uuid::parse_str(said.trim().trim_start_matches("msg_")).unwrap();
    let other = |number: u128| uuid::Uuid::from_u128(uuid.as_u128() + number);
    let as_other = |number| body.replace(said.trim(), &format!("msg_{}", other(number).simple()));
    let deliver = |prio: u8, id: uuid::Uuid, body: &str| {
        let asked = format!(
            "SELECT @.deliver('ada', ARRAY[{prio}]::smallint[], ARRAY['{id}']::uuid[], ARRAY[$b${body}\n$b$], false)"
        );
        assert_eq!(roles.refused("producer", &asked), None);
    };
    deliver(2, uuid, &body);
    deliver(1, other(1), &as_other(1).replace("\"normal\"", "\"interject\""));
    let ran = owner.cmd(["--json", "tick", "ada", "--until-idle"]).output();
    assert!(ran.code() == 7 && ran.stderr.contains("its content is 0-"), "{ran}");
    let shown = owner.json(["queue", "show", said.trim()]);
    assert_eq!(
        (&shown["origin"]["id"], &shown["authority_class"], &shown["settlement"]["status"]),
        (&json!(format!("uid:{}", roles.name("producer"))), &json!("external_evidence"), &json!("processed"))
    );
    assert_eq!(owner.json_lines(["run", "list", "-a", "ada", "--limit", "0"]).len(), 1, "one turn");
    // It travels as what it is.
    roles.server.sql(&format!("DELETE FROM {schema}.inbox"));
    deliver(2, other(2), &as_other(2));
    owner.run(["export", "ada", "--output", "ada.tar", "-q"]);
    let path = owner.sandbox.project().join("ada.tar");
    let there = crate::travel::elsewhere();
    crate::travel::imported(&there, &std::fs::read(path).unwrap(), &[]);
    let queued = there.json(["queue", "list", "-a", "ada"]);
    assert_eq!(queued["origin"]["id"], json!(format!("uid:{}", roles.name("producer"))), "{queued}");
}

#[test]
fn a_ticker_does_everything_and_a_reader_reads() {
    needs!("postgresql");
    let roles = Roles::of("by_parts");
    let (ticker, reader) = (roles.machine("ticker"), roles.machine("reader"));
    ticker.run(["enqueue", "ada", "hello"]);
    assert_eq!(reader.json(["get", "ada"])["queue"]["pending"], 1);
    assert_eq!(ticker.json(["tick", "ada"])["terminal"], "completed");
    ticker.run(["create", "bob", "--shell", "echo done"]);
    ticker.run(["start", "bob"]);
    assert_eq!(reader.json_lines(["list"]).len(), 2);
    assert_eq!(reader.json_lines(["run", "list", "-a", "ada"]).len(), 1);
    // Many steps over one connection ask by functions of the database, which a database may have closed to everybody.
    roles.server.sql(&format!("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {} FROM PUBLIC", roles.schema));
    for _ in 0..4 {
        ticker.run(["enqueue", "bob", "go", "-q"]);
    }
    ticker.run(["tick", "bob", "--until-idle", "-q"]);
    assert_eq!(reader.json(["get", "bob"])["counters"]["messages_processed"], 4);
    // Nothing may be written for it, so a reader that waits looks again and again, and says nothing of that.
    let ran = reader.cmd(["await", "bob", "--status", "stopped", "--timeout", "1s"]).output();
    assert!(ran.code() == 8 && ran.stderr.starts_with("dormouse: timed out after 1s, waiting"), "{ran}");
    ticker.run(["gc", "ada"]);
    ticker.run(["stop", "bob"]);
    ticker.cmd(["rm", "bob"]).exits(0);
    for args in [
        &["enqueue", "ada", "x"][..],
        &["wake", "ada"],
        &["tick", "ada"],
        &["stop", "ada"],
        &["create", "eve", "--shell", "x"],
    ] {
        is_refused(&reader, args);
    }
    assert!(roles.refused("reader", "SELECT @.deliver('ada', '{}', '{}', '{}', false)").is_some());
    // Who reads sees that there is a key, and not the key.
    let made = ticker.json(["trigger", "create", "-a", "ada", "--verify", "hmac_sha256"]);
    assert_eq!(reader.json(["trigger", "show", made["id"].as_str().unwrap()])["verify"], "hmac_sha256");
    assert_eq!(roles.refused("reader", "SELECT agent_id, trigger_id, sha FROM @.trigger_key"), None);
    for asked in ["SELECT key FROM @.trigger_key", "SELECT * FROM @.trigger_key", "TABLE @.trigger_key"] {
        let why = roles.refused("reader", asked).unwrap_or_default();
        assert!(why.contains("permission denied for table trigger_key"), "{asked}: {why}");
    }
    assert_eq!(roles.refused("ticker", "SELECT key FROM @.trigger_key"), None);
    let ran = reader.cmd(["doctor"]).output();
    assert!(ran.stderr.is_empty() && !ran.stdout.contains("permission denied"), "it reads every row: {ran}");
    // Nor what a task is told.
    assert!(roles.refused("reader", "SELECT bytes FROM @.task_input").is_some());
    assert!(roles.refused("ticker", "UPDATE @.meta SET value = '9'").is_some());
    for args in [&["list"][..], &["enqueue", "ada", "x"]] {
        is_refused(&roles.machine("nobody"), args);
    }
    // What a role was before it is no more.
    let part = format!("reader={}", roles.name("ticker"));
    roles.owner.run(["init", "--grant", &part, "-q"]);
    is_refused(&ticker, &["enqueue", "ada", "x"]);
    assert!(roles.refused("ticker", "SELECT key FROM @.trigger_key").is_some());
    assert_eq!(ticker.json(["get", "ada"])["queue"]["pending"], 0);
}

#[test]
fn a_grant_that_means_nothing_is_refused() {
    needs!("postgresql");
    let roles = Roles::of("by_grants");
    for word in ["ticker", "=x", "ticker=", "owner=x"] {
        roles.owner.cmd(["init", "--grant", word]).exits(2);
    }
    let ran = roles.owner.cmd(["init", "--grant", "ticker=no such role"]).output();
    assert!(ran.code() == 1 && ran.stderr.contains("no such role"), "{ran}");
    let directory = crate::travel::elsewhere();
    directory.cmd(["init", "--grant", "ticker=x"]).exits(2);
}
