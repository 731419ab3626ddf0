//! Execution §10: the effect of a stop on a run.

use super::commands::Command;
use super::recovery::Stopped;
use super::{Millis, Model, Word};

impl Model {
    /// Puts a held message back into the queue (`stop --requeue`).
    pub fn requeue_held(&mut self) {
        if let Some(held) = self.release_held() {
            self.retry = None;
            self.requeue_claimed(held.message, held.continuation);
        }
    }

    /// Ends a run by a stop. A turn that exits with 0 completes, any other turn is aborted.
    pub fn finish_stop(
        &mut self,
        now: Millis,
        how: Stopped,
        requeue: bool,
        actions: &[Command],
    ) -> Option<Word> {
        self.run.as_ref()?;
        let yielded = self.run.as_ref().is_some_and(|run| run.yielded);
        if how == Stopped::Finishes && !yielded {
            // The turn has done its work, so it does not run again even if its outcome is refused.
            if self.carry_out_all(now, actions).is_err() {
                return self.fail(now, "failed", true, None);
            }
            self.complete_turn();
            self.enter("completed", None);
            return Some("completed");
        }
        let run = self.end_run("aborted")?;
        match how {
            Stopped::Killed => self.enter("failed", Some("shutdown_timeout")),
            Stopped::Dies | Stopped::Finishes => self.enter("completed", None),
        }
        self.retry = None;
        if requeue {
            self.requeue_claimed(run.message, run.continuation);
        } else {
            self.end_message(run.message, "aborted");
        }
        Some("aborted")
    }
}
