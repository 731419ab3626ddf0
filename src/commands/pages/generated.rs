//! Generated texts. `cargo test generated` writes this file and those that it includes.

macro_rules! committed {
    ($path:expr) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path))
    };
}

macro_rules! texts {
    ($dir:literal, $ending:literal: $($name:literal)*) => {
        &[$(($name, committed!(concat!($dir, $name, $ending)))),*]
    };
}

pub const BASH: &str = committed!("completions/dormouse.bash");
pub const ZSH: &str = committed!("completions/_dormouse");
pub const FISH: &str = committed!("completions/dormouse.fish");
pub const MAN: &[(&str, &str)] = texts! { "man/", ".1":
    "dormouse-ask" "dormouse-await" "dormouse-briefs" "dormouse-check-outcome"
    "dormouse-checkpoint" "dormouse-clone" "dormouse-completions" "dormouse-create"
    "dormouse-doctor" "dormouse-edit" "dormouse-enqueue" "dormouse-events" "dormouse-explain"
    "dormouse-export" "dormouse-fail" "dormouse-gc" "dormouse-get" "dormouse-import"
    "dormouse-ingress" "dormouse-init" "dormouse-list" "dormouse-logs" "dormouse-man"
    "dormouse-merge-driver" "dormouse-metrics" "dormouse-next-wake"
    "dormouse-non-preemptible-begin" "dormouse-non-preemptible-end" "dormouse-non-preemptible"
    "dormouse-preempt" "dormouse-queue-dead" "dormouse-queue-drop" "dormouse-queue-list"
    "dormouse-queue-rejected" "dormouse-queue-requeue" "dormouse-queue-show" "dormouse-queue"
    "dormouse-recover" "dormouse-rename" "dormouse-report" "dormouse-resume" "dormouse-rm"
    "dormouse-run-list" "dormouse-run-show" "dormouse-run" "dormouse-safe-point" "dormouse-schema"
    "dormouse-service" "dormouse-start" "dormouse-state" "dormouse-stop" "dormouse-sync"
    "dormouse-task-input" "dormouse-task-list" "dormouse-task-output" "dormouse-task-start"
    "dormouse-task-status" "dormouse-task-stop" "dormouse-task" "dormouse-tick"
    "dormouse-timer-add" "dormouse-timer-cancel" "dormouse-timer-list" "dormouse-timer"
    "dormouse-trigger-create" "dormouse-trigger-deliver" "dormouse-trigger-list"
    "dormouse-trigger-revoke" "dormouse-trigger-rotate" "dormouse-trigger-show" "dormouse-trigger"
    "dormouse-usage" "dormouse-wait-cancel" "dormouse-wait-list" "dormouse-wait-show"
    "dormouse-wait" "dormouse-wake" "dormouse-watch" "dormouse-work-add" "dormouse-work-block"
    "dormouse-work-complete" "dormouse-work-list" "dormouse-work-pick" "dormouse-work-plan"
    "dormouse-work-show" "dormouse-work-unblock" "dormouse-work-update" "dormouse-work"
    "dormouse-yield" "dormouse"
};
pub const SCHEMAS: &[(&str, &str)] = texts! { "schemas/", ".json":
    "agent" "brief" "context" "dedupe" "event" "identity" "message" "outcome" "run" "state"
    "submission" "task" "timer" "trigger" "wait" "wake_hint" "work"
};

#[cfg(test)]
mod tests;
