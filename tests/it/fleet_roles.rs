//! Tests the permissions of database roles on a store.
//!
//! The database enforces them, so the tests also send statements without dormouse.

use serde_json::json;

use crate::fleet::Machine;
use crate::server::{Server, server};
use crate::setup::{assert_includes, objects, words};

/// Store with the agent `ada`, one role for each kind of grant, and one without a grant.
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

    /// Executes statements as a role, with `@` for the schema. Returns the error of the server.
    fn refused(&self, role: &str, statements: &str) -> Option<String> {
        self.server.try_sql_as(&self.name(role), &statements.replace('@', &self.schema)).err()
    }
}

#[track_caller]
fn is_refused(machine: &Machine, args: &[&str]) {
    let ran = machine.cmd(args.iter().copied()).output();
    assert_eq!((ran.code(), ran.stdout.as_str()), (1, ""), "{args:?}: {ran}");
    assert!(ran.stderr.contains("hint: "), "{args:?}: {ran}");
}

#[test]
fn a_producer_sends_in_its_own_name_and_reads_nothing() {
    needs!("postgresql");
    let roles = Roles::of("by_producer");
    let producer = roles.machine("producer");
    let id = producer.id(["enqueue", "ada", "build it"]);
    producer.cmd(["wake", "ada", "look", "--reason", "new commits"]).exits(0);
    let batch =
        producer.cmd(["enqueue", "ada", "--batch"]).stdin("{\"text\":\"1\"}\n{\"text\":\"2\"}\n").output();
    assert_eq!((batch.code(), batch.stdout.lines().count()), (0, 2), "{batch}");
    let name = format!("uid:{}", roles.name("producer"));
    let shown = || {
        let shown = roles.owner.json(["queue", "show", &id]);
        let origin = json!({ "kind": "channel", "id": name });
        assert_includes(
            &shown,
            json!({ "origin": origin, "authority_class": "external_evidence", "kind": "channel_event" }),
        );
        shown
    };
    shown();
    let ran = roles.owner.cmd(["--json", "tick", "ada", "--until-idle"]).output();
    assert!(ran.stderr.is_empty(), "{ran}");
    assert_eq!(shown()["settlement"]["status"], "processed");
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
        producer.cmd(["--json"].iter().chain(args).copied()).fails(4, kind);
    }
    producer.cmd(["enqueue", "bob", "x"]).exits(3);

    // The server also refuses SQL statements that a producer sends without dormouse.
    for table in words("agent state inbox archive event lease record dedupe trigger_key trigger_use") {
        assert!(roles.refused("producer", &format!("SELECT 1 FROM @.{table}")).is_some(), "{table}");
        assert!(roles.refused("producer", &format!("DELETE FROM @.{table}")).is_some(), "{table}");
    }
    for values in ["0", "-2", "7"] {
        let asked = format!(
            "SELECT @.deliver('ada', ARRAY[{values}]::smallint[], ARRAY[gen_random_uuid()], ARRAY['{{}}'], false)"
        );
        assert!(roles.refused("producer", &asked).is_some_and(|why| why.contains("interject")), "{values}");
    }
    let insert = "INSERT INTO @.inbox (agent_id, prio, id, body) VALUES (1, 1, gen_random_uuid(), '1')";
    assert!(roles.refused("producer", insert).is_some());
    assert!(roles.refused("nobody", "SELECT @.deliver('ada', '{}', '{}', '{}', false)").is_some());
}

/// A producer can't read dedupe keys, so a step drops the second message with a key. The keys of a
/// producer are separate from those of other senders.
#[test]
fn a_producer_sends_once_under_a_key() {
    needs!("postgresql");
    let roles = Roles::of("by_key");
    let producer = roles.machine("producer");
    let keyed = ["enqueue", "ada", "build it", "--dedupe-key", "k"];
    let first = producer.id(keyed);
    let second = producer.id(keyed);
    roles.owner.run(["tick", "ada", "--until-idle"]);
    let third = producer.id(keyed);
    let owners = roles.owner.json(keyed);
    assert_eq!(owners["duplicate"], false, "a producer can't use up the key of another");
    roles.owner.run(["tick", "ada", "--until-idle"]);
    for (id, status) in [
        (&*first, "processed"),
        (&*second, "dropped"),
        (&*third, "dropped"),
        (owners["message_id"].as_str().unwrap(), "processed"),
    ] {
        assert_eq!(roles.owner.json(["queue", "show", id])["settlement"]["status"], status, "{id}");
    }
}

/// Each message of a producer has the producer as its origin, whatever its row claims.
#[test]
fn the_origin_that_a_producer_claims_is_ignored() {
    needs!("postgresql");
    let roles = Roles::of("by_claims");
    let owner = &roles.owner;
    let sent = owner.id(["enqueue", "ada", "an order", "--origin", "operator"]);
    let schema = &roles.schema;
    // The producer delivers the operator's row again, and a copy with the priority `interject`.
    let body = roles.server.sql(&format!("SELECT body FROM {schema}.inbox")).join("\n");
    roles.server.sql(&format!("DELETE FROM {schema}.inbox"));
    let uuid = uuid::Uuid::parse_str(sent.trim_start_matches("msg_")).unwrap();
    let other = |number: u128| uuid::Uuid::from_u128(uuid.as_u128() + number);
    let as_other = |number| body.replace(&sent, &format!("msg_{}", other(number).simple()));
    let deliver = |prio: u8, id: uuid::Uuid, body: &str| {
        let asked = format!(
            "SELECT @.deliver('ada', ARRAY[{prio}]::smallint[], ARRAY['{id}']::uuid[], ARRAY[$b${body}\n$b$], false)"
        );
        assert_eq!(roles.refused("producer", &asked), None);
    };
    deliver(2, uuid, &body);
    deliver(1, other(1), &as_other(1).replace("\"normal\"", "\"interject\""));
    owner.cmd(["--json", "tick", "ada", "--until-idle"]).exits(7).warns("its content is 0-");
    let shown = owner.json(["queue", "show", &sent]);
    let name = format!("uid:{}", roles.name("producer"));
    assert_includes(
        &shown,
        json!({ "origin.id": name, "authority_class": "external_evidence", "settlement.status": "processed" }),
    );
    assert_eq!(owner.json_lines(["run", "list", "-a", "ada", "--limit", "0"]).len(), 1, "one turn");
    // Alone in the inbox, a new message must keep its origin through an export and an import.
    roles.server.sql(&format!("DELETE FROM {schema}.inbox"));
    deliver(2, other(2), &as_other(2));
    owner.run(["export", "ada", "--output", "ada.tar", "-q"]);
    let path = owner.sandbox.project().join("ada.tar");
    let there = crate::travel::elsewhere();
    crate::travel::imported(&there, &std::fs::read(path).unwrap(), &[]);
    let queued = there.json(["queue", "list", "-a", "ada"]);
    assert_eq!(queued["origin"]["id"], *name, "{queued}");
}

#[test]
fn the_ticker_role_may_do_everything_and_the_reader_role_only_reads() {
    needs!("postgresql");
    let roles = Roles::of("by_parts");
    let (ticker, reader) = (roles.machine("ticker"), roles.machine("reader"));
    ticker.run(["enqueue", "ada", "hello"]);
    assert_eq!(reader.json(["get", "ada"])["queue"]["pending"], 1);
    assert_eq!(ticker.json(["tick", "ada"])["terminal"], "completed");
    ticker.add("bob", "echo done");
    assert_eq!(reader.json_lines(["list"]).len(), 2);
    assert_eq!(reader.json_lines(["run", "list", "-a", "ada"]).len(), 1);
    // Several steps over one connection call functions of the database. The administrator of the
    // database may have revoked the default permission to call functions.
    roles.server.sql(&format!("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {} FROM PUBLIC", roles.schema));
    for _ in 0..4 {
        ticker.run(["enqueue", "bob", "go", "-q"]);
    }
    ticker.run(["tick", "bob", "--until-idle", "-q"]);
    assert_eq!(reader.json(["get", "bob"])["counters"]["messages_processed"], 4);
    // A reader may not register for notifications, so its `await` polls, and prints no warning.
    let ran = reader.cmd(["await", "bob", "--status", "stopped", "--timeout", "1s"]).exits(8);
    assert!(ran.stderr.starts_with("dormouse: timed out after 1s, waiting"), "{ran}");
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
    // A reader sees that a trigger has a key, but can't read the key.
    let made = ticker.json(["trigger", "create", "-a", "ada", "--verify", "hmac_sha256"]);
    assert_eq!(reader.json(["trigger", "show", made["id"].as_str().unwrap()])["verify"], "hmac_sha256");
    assert_eq!(roles.refused("reader", "SELECT agent_id, trigger_id, sha FROM @.trigger_key"), None);
    for asked in ["SELECT key FROM @.trigger_key", "SELECT * FROM @.trigger_key", "TABLE @.trigger_key"] {
        let why = roles.refused("reader", asked).unwrap_or_default();
        assert!(why.contains("permission denied for table trigger_key"), "{asked}: {why}");
    }
    assert_eq!(roles.refused("ticker", "SELECT key FROM @.trigger_key"), None);
    let ran = reader.cmd(["doctor"]).output();
    assert!(ran.stderr.is_empty() && !ran.stdout.contains("permission denied"), "{ran}");
    assert!(roles.refused("ticker", "UPDATE @.meta SET value = '9'").is_some());
    for args in [&["list"][..], &["enqueue", "ada", "x"]] {
        is_refused(&roles.machine("nobody"), args);
    }
    // A second grant replaces the permissions that the role had before.
    let part = format!("reader={}", roles.name("ticker"));
    roles.owner.run(["init", "--grant", &part, "-q"]);
    is_refused(&ticker, &["enqueue", "ada", "x"]);
    assert!(roles.refused("ticker", "SELECT key FROM @.trigger_key").is_some());
    assert_eq!(ticker.json(["get", "ada"])["queue"]["pending"], 0);
}

#[test]
fn an_invalid_grant_is_refused() {
    needs!("postgresql");
    let roles = Roles::of("by_grants");
    for word in ["ticker", "=x", "ticker=", "owner=x"] {
        roles.owner.cmd(["init", "--grant", word]).exits(2);
    }
    roles.owner.cmd(["init", "--grant", "ticker=no such role"]).exits(1).warns("no such role");
    let directory = crate::travel::elsewhere();
    directory.cmd(["init", "--grant", "ticker=x"]).exits(2);
}
