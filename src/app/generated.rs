//! The generated texts. `cargo test generated` makes this file and those that it names.

macro_rules! committed {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path))
    };
}

pub const BASH: &str = committed!("completions/dormouse.bash");
pub const ZSH: &str = committed!("completions/_dormouse");
pub const FISH: &str = committed!("completions/dormouse.fish");
pub const MAN: &[(&str, &str)] = &[
    ("dormouse-await", committed!("man/dormouse-await.1")),
    ("dormouse-briefs", committed!("man/dormouse-briefs.1")),
    ("dormouse-completions", committed!("man/dormouse-completions.1")),
    ("dormouse-create", committed!("man/dormouse-create.1")),
    ("dormouse-doctor", committed!("man/dormouse-doctor.1")),
    ("dormouse-enqueue", committed!("man/dormouse-enqueue.1")),
    ("dormouse-events", committed!("man/dormouse-events.1")),
    ("dormouse-explain", committed!("man/dormouse-explain.1")),
    ("dormouse-get", committed!("man/dormouse-get.1")),
    ("dormouse-init", committed!("man/dormouse-init.1")),
    ("dormouse-list", committed!("man/dormouse-list.1")),
    ("dormouse-man", committed!("man/dormouse-man.1")),
    ("dormouse-next-wake", committed!("man/dormouse-next-wake.1")),
    ("dormouse-queue-dead", committed!("man/dormouse-queue-dead.1")),
    ("dormouse-queue-drop", committed!("man/dormouse-queue-drop.1")),
    ("dormouse-queue-list", committed!("man/dormouse-queue-list.1")),
    ("dormouse-queue-requeue", committed!("man/dormouse-queue-requeue.1")),
    ("dormouse-queue-show", committed!("man/dormouse-queue-show.1")),
    ("dormouse-queue", committed!("man/dormouse-queue.1")),
    ("dormouse-recover", committed!("man/dormouse-recover.1")),
    ("dormouse-run-list", committed!("man/dormouse-run-list.1")),
    ("dormouse-run-show", committed!("man/dormouse-run-show.1")),
    ("dormouse-run", committed!("man/dormouse-run.1")),
    ("dormouse-schema", committed!("man/dormouse-schema.1")),
    ("dormouse-start", committed!("man/dormouse-start.1")),
    ("dormouse-state", committed!("man/dormouse-state.1")),
    ("dormouse-stop", committed!("man/dormouse-stop.1")),
    ("dormouse-task-input", committed!("man/dormouse-task-input.1")),
    ("dormouse-task-list", committed!("man/dormouse-task-list.1")),
    ("dormouse-task-output", committed!("man/dormouse-task-output.1")),
    ("dormouse-task-start", committed!("man/dormouse-task-start.1")),
    ("dormouse-task-status", committed!("man/dormouse-task-status.1")),
    ("dormouse-task-stop", committed!("man/dormouse-task-stop.1")),
    ("dormouse-task", committed!("man/dormouse-task.1")),
    ("dormouse-tick", committed!("man/dormouse-tick.1")),
    ("dormouse-timer-add", committed!("man/dormouse-timer-add.1")),
    ("dormouse-timer-cancel", committed!("man/dormouse-timer-cancel.1")),
    ("dormouse-timer-list", committed!("man/dormouse-timer-list.1")),
    ("dormouse-timer", committed!("man/dormouse-timer.1")),
    ("dormouse-wait-cancel", committed!("man/dormouse-wait-cancel.1")),
    ("dormouse-wait-list", committed!("man/dormouse-wait-list.1")),
    ("dormouse-wait", committed!("man/dormouse-wait.1")),
    ("dormouse-wake", committed!("man/dormouse-wake.1")),
    ("dormouse-work-add", committed!("man/dormouse-work-add.1")),
    ("dormouse-work-block", committed!("man/dormouse-work-block.1")),
    ("dormouse-work-complete", committed!("man/dormouse-work-complete.1")),
    ("dormouse-work-list", committed!("man/dormouse-work-list.1")),
    ("dormouse-work-pick", committed!("man/dormouse-work-pick.1")),
    ("dormouse-work-plan", committed!("man/dormouse-work-plan.1")),
    ("dormouse-work-show", committed!("man/dormouse-work-show.1")),
    ("dormouse-work-unblock", committed!("man/dormouse-work-unblock.1")),
    ("dormouse-work-update", committed!("man/dormouse-work-update.1")),
    ("dormouse-work", committed!("man/dormouse-work.1")),
    ("dormouse", committed!("man/dormouse.1")),
];
pub const SCHEMAS: &[(&str, &str)] = &[
    ("agent", committed!("schemas/agent.json")),
    ("brief", committed!("schemas/brief.json")),
    ("dedupe", committed!("schemas/dedupe.json")),
    ("event", committed!("schemas/event.json")),
    ("identity", committed!("schemas/identity.json")),
    ("message", committed!("schemas/message.json")),
    ("run", committed!("schemas/run.json")),
    ("state", committed!("schemas/state.json")),
    ("submission", committed!("schemas/submission.json")),
    ("task", committed!("schemas/task.json")),
    ("timer", committed!("schemas/timer.json")),
    ("trigger", committed!("schemas/trigger.json")),
    ("wait", committed!("schemas/wait.json")),
    ("wake_hint", committed!("schemas/wake_hint.json")),
    ("work", committed!("schemas/work.json")),
];

#[cfg(test)]
mod tests;
