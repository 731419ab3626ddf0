//! Tests `task input` of tasks whose records are in a database.

use serde_json::json;

use crate::fleet::Machine;
use crate::setup::failure;

#[test]
fn only_the_machine_of_a_task_sends_it_input() {
    needs!("postgresql");
    let [one, other] = Machine::two("told_task");
    let lines = "read a; echo 1 $a; head -c 300000 >/dev/null; read b; echo 2 $b";
    let id = one.id(["task", "start", "-a", "ada", "--interactive", "--", "sh", "-c", lines]);
    let sent = one.json(["task", "input", &id, "from here"]);
    assert_eq!((&sent["bytes"], &sent["task_id"]), (&json!(10), &json!(id)));
    let refusal =
        failure(&other.cmd(["--json", "task", "input", &id, "from there"]).fails(4, "task_elsewhere"));
    assert!(refusal["message"].as_str().unwrap().starts_with(&format!("{id} runs ")), "{refusal}");
    let long = "0123456789".repeat(30_000);
    let ran = one.cmd(["task", "input", &id, "-"]).stdin(long.as_str()).output();
    assert_eq!((ran.code(), ran.stdout.trim_end()), (0, "wrote 300000 bytes"), "{ran}");
    one.run(["task", "input", &id, "the end"]);
    assert_eq!(other.ended_task(&id)["status"], "completed");
    assert_eq!(one.run(["task", "output", &id]), "1 from here\n2 the end\n");
    failure(&other.cmd(["--json", "task", "input", &id, "late"]).fails(4, "task_ended"));
}
