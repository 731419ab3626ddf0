//! Execution §10: what a stop does to a run.

use super::commands::Command;
use super::messages::Setbacks;
use super::recovery::Stopped;
use super::{Millis, Model, Word};

impl Model {
    /// A message that is held stays where it is, unless it is to go back into the queue.
    pub fn requeue_held(&mut self) {
        if let Some(held) = self.release_held() {
            self.retry = None;
            for message in self.queue.iter_mut().filter(|message| message.born == held.message) {
                message.continuation = Some(held.continuation.clone());
                message.setbacks = Setbacks::default();
            }
        }
    }

    /// A turn that ends by itself with exit status 0 has done its work; any other one is aborted.
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
            // It has done its work: if its outcome can't be taken, it does not run again either.
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
            for message in self.queue.iter_mut().filter(|message| message.born == run.message) {
                message.continuation = Some(run.continuation.clone());
                message.setbacks = Setbacks::default();
            }
        } else {
            self.end_message(run.message, "aborted");
        }
        Some("aborted")
    }
}
