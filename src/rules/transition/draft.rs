//! Draft of a transaction: working copies of the records, and their changes.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::model::agent::Status;
use crate::model::attention::{Attention, AttentionMark, AttentionSubject, PendingTransition, Subject};
use crate::model::bound::RECORD;
use crate::model::decision::DecisionReport;
use crate::model::dedupe::DedupeEntry;
use crate::model::event::{Boundary, Event, EventKind, EventSchema};
use crate::model::execution::{Execution, ExecutionState};
use crate::model::id::{EventId, MessageId, RunId};
use crate::model::message::{Message, MessageStatus};
use crate::model::preemption::Checkpoint;
use crate::model::record::size;
use crate::model::records::Records;
use crate::model::refusal::Refusal;
use crate::model::run::Run;
use crate::model::stamp::Stamp;
use crate::model::state::{HeldRun, Outbox};
use crate::model::time::Time;
use crate::model::transaction::{Archived, Delete, Put, Transaction};

use crate::rules::due::next_due;
use crate::rules::execution;
use crate::rules::notification::{failure, with_run};
use crate::rules::stall::questions;

/// Collects the changes of one transition. `records` has the values after the commit.
#[serde_with::apply(_ => #[new(default)])]
#[derive(Debug, Clone, derive_new::new)]
pub struct Draft {
    #[serde_with(skip_apply)]
    pub records: Records,
    #[serde_with(skip_apply)]
    pub stamp: Stamp,
    puts: Vec<Put>,
    deletes: Vec<Delete>,
    archived: Vec<Archived>,
    events: Vec<Event>,
    raised: Vec<Attention>,
    transitions: Vec<PendingTransition>,
    resting: Option<DecisionReport>,
    touched: bool,
}

impl Draft {
    pub fn now(&self) -> Time {
        self.stamp.now
    }

    /// Returns the id of the current run, if the agent has a run.
    pub fn run_id(&self) -> Option<RunId> {
        self.records.state.current_run.as_ref().map(|run| run.run_id)
    }

    pub fn is_empty(&self) -> bool {
        !self.touched
    }

    /// Marks the draft as changed, so that it is committed even without an event.
    pub fn touch(&mut self) {
        self.touched = true;
    }

    pub fn put(&mut self, put: Put) {
        self.touched = true;
        self.puts.push(put);
    }

    /// Returns the records that the draft writes so far.
    #[cfg(test)]
    pub fn puts(&self) -> &[Put] {
        &self.puts
    }

    /// Returns the total size in bytes of the changes since `before`, a former copy of this draft.
    /// Refuses a single record above the size limit of a record.
    pub fn made_since(&self, before: &Draft) -> Result<u64, Refusal> {
        let mut written = HashSet::new();
        let puts = self.puts[before.puts.len()..].iter().rev();
        let puts = puts.filter(|put| written.insert(put.name())).map(Put::size);
        let archived = self.archived[before.archived.len()..].iter().map(size);
        let (state, state_before) = (size(&self.records.state), size(&before.records.state));
        let grown = (state > state_before).then_some(state);
        let mut together = 0;
        for size in puts.chain(archived).chain(grown) {
            RECORD.check(size)?;
            together += size;
        }
        let events = self.events[before.events.len()..].iter().map(size);
        Ok(together + events.sum::<u64>())
    }

    pub fn delete(&mut self, delete: Delete) {
        self.touched = true;
        self.deletes.push(delete);
    }

    pub fn archive(&mut self, archived: Archived) {
        self.touched = true;
        self.archived.push(archived);
    }

    /// Returns the run that this transaction settles, if any.
    pub fn settled_run(&self) -> Option<&Run> {
        let mut newest_first = self.archived.iter().rev();
        newest_first.find_map(|archived| if let Archived::Run(run) = archived { Some(&**run) } else { None })
    }

    /// Appends an event to the event log. `run_id` is the run that the event is about, if any.
    pub fn event(&mut self, kind: EventKind, run_id: Option<RunId>, data: Value) {
        self.touched = true;
        let state = &mut self.records.state;
        state.counters.events += 1;
        self.events.push(Event {
            schema: EventSchema::V1,
            seq: state.counters.events,
            id: EventId(self.stamp.mint()),
            at: self.stamp.now,
            kind,
            agent: state.agent.clone(),
            run_id,
            data,
        });
    }

    /// Raises an attention: logs an event, and marks the agent until a person acknowledges it.
    /// Attentions of one transaction with equal subject and reason are merged and counted.
    pub fn raise(&mut self, subject: Subject, about: AttentionSubject, reason: impl Into<String>) {
        let attention = self.logged(Attention::new(subject, about, reason.into(), self.stamp.now));
        let mark = &mut self.records.state.attention;
        let is_alike = |other: &Attention| (other.subject, &other.reason) == (subject, &attention.reason);
        if let Some(alike) = self.raised.iter_mut().find(|other| is_alike(other)) {
            alike.count += 1;
            if let Some(mark) = mark {
                mark.count = mark.count.saturating_add(1);
                let marked = mark.newest.iter_mut().filter(|other| other.seq == alike.seq);
                marked.for_each(|other| other.count += 1);
            }
            return;
        }
        *mark = Some(AttentionMark::with(mark.take(), attention.clone()));
        self.raised.push(attention);
    }

    /// Logs an attention, and returns it with the sequence number of its event.
    fn logged(&mut self, attention: Attention) -> Attention {
        let mut data = json!(attention.about);
        data["subject"] = json!(attention.subject);
        data["reason"] = json!(attention.reason);
        if attention.subject == Subject::Asked {
            data["options"] = json!(attention.options);
        }
        self.event(EventKind::Attention, attention.about.run_id, data);
        Attention { seq: self.records.state.counters.events, ..attention }
    }

    /// Raises an attention for every open question of which no person was notified. Called when a
    /// turn ends and when the agent comes to rest.
    pub fn ask(&mut self) {
        if matches!(self.records.state.status, Status::Booting | Status::Stopped) {
            return;
        }
        let open = questions(&self.records, self.stamp.now);
        let mut asked = std::mem::take(&mut self.records.state.asked);
        for question in &open {
            if asked.iter().any(|told| told.about == question.about) {
                continue;
            }
            // A turn that repeats its question replaces the wait; no person is notified again.
            let is_repeated = |told: &&mut Attention| {
                let is_open = open.iter().any(|question| question.about == told.about);
                let old = (told.about.work_item_id, &told.reason, &told.options);
                !is_open && old == (question.about.work_item_id, &question.reason, &question.options)
            };
            match asked.iter_mut().find(is_repeated) {
                Some(told) => {
                    self.touched = true;
                    told.about = question.about.clone();
                }
                None => asked.push(self.raise_question(question)),
            }
        }
        self.records.state.asked = asked;
    }

    /// Removes ended questions from the reported questions. A replaced or cancelled question stays
    /// until the run ends, because the turn may repeat it; an answered question is removed.
    fn forget_questions(&mut self) {
        if self.records.state.asked.is_empty() {
            return;
        }
        let open = questions(&self.records, self.stamp.now);
        let is_live = self.records.state.current_run.is_some();
        let waits = &self.records.waits;
        let is_answered = |about: &AttentionSubject| {
            waits.iter().any(|wait| Some(wait.id) == about.wait_id && wait.resolved_by.is_some())
        };
        self.records.state.asked.retain(|told| {
            open.iter().any(|question| question.about == told.about) || is_live && !is_answered(&told.about)
        });
    }

    /// Raises an attention for a question, unless this draft already reports its answer as lost.
    fn raise_question(&mut self, question: &Attention) -> Attention {
        let lost = self.raised.iter().filter(|told| told.subject == Subject::AnswerLost);
        if lost.filter_map(|told| told.about.wait_id).any(|wait| Some(wait) == question.about.wait_id) {
            return Attention { seq: self.records.state.counters.events, ..question.clone() };
        }
        let attention = self.logged(question.clone());
        self.raised.push(attention.clone().shown(&self.records.state.agent));
        attention
    }

    /// Returns the attentions that this draft raises.
    pub fn raised(&self) -> &[Attention] {
        &self.raised
    }

    /// Acknowledges the stored attentions for which `is_seen` returns true. Returns how many were.
    pub fn acknowledge(&mut self, is_seen: impl Fn(&Attention) -> bool) -> u64 {
        let before = self.records.state.attention.take();
        let count = before.as_ref().map_or(0, |mark| mark.count);
        self.seen(count, before.and_then(|mark| mark.without(is_seen)))
    }

    /// Acknowledges every stored attention. Returns how many were unacknowledged.
    pub fn acknowledge_all(&mut self) -> u64 {
        let before = self.records.state.attention.take();
        self.seen(before.map_or(0, |mark| mark.count), None)
    }

    fn seen(&mut self, before: u64, left: Option<AttentionMark>) -> u64 {
        let count = before - left.as_ref().map_or(0, |mark| mark.count);
        self.records.state.attention = left;
        if count > 0 {
            self.event(EventKind::AttentionAcknowledged, None, json!({ "count": count }));
        }
        count
    }

    /// Enters an execution state and logs the cause. Error when no edge leads there.
    pub fn enter(
        &mut self,
        to: ExecutionState,
        task_id: Option<MessageId>,
        cause: &str,
    ) -> Result<(), Refusal> {
        let from = self.records.state.execution.state;
        execution::check(from, to)?;
        let has_reason =
            [ExecutionState::Failed, ExecutionState::WaitingResources, ExecutionState::Suspended];
        let reason = has_reason.contains(&to).then(|| cause.to_owned());
        self.records.state.execution = Execution { state: to, since: self.stamp.now, task_id, reason };
        let run_id = self.run_id();
        let of_recovery = [from, to].contains(&ExecutionState::Recovering);
        let failure = failure(&self.records.state).filter(|_| of_recovery);
        let data = json!({ "from": from, "to": to, "cause": cause, "failure": failure });
        self.event(EventKind::StateTransition, run_id, without_nulls(data));
        let (seq, cause) = (self.records.state.counters.events, cause.to_owned());
        let transition =
            PendingTransition { seq, from, to, cause, task_id: None, run_id, failure, again: false };
        self.transitions.push(transition);
        Ok(())
    }

    /// Removes the notifications `sent`, and marks those whose hook was `killed`, both given by
    /// sequence number. Keeps the stored decision of a resting agent.
    pub fn strike_off(&mut self, sent: &[u64], killed: &[u64]) {
        self.touched = true;
        self.resting = self.records.state.resting.clone();
        let pending = &mut self.records.state.notifications;
        pending.retain(|one| !sent.contains(&one.seq()));
        let interrupted = pending.iter_mut().filter(|one| killed.contains(&one.seq()));
        interrupted.for_each(|one| *one.again() = true);
    }

    /// Stores a held run; its message stays claimed.
    pub fn hold(&mut self, held: HeldRun) {
        self.touched = true;
        let inbox = &mut self.records.inbox;
        if inbox.head.as_ref().is_some_and(|head| head.id == held.message_id) {
            inbox.claimed = inbox.head.take();
        }
        self.records.state.held = Some(held);
    }

    /// Sets the status to `awake_idle`, unless the agent is stopped.
    pub fn becomes_idle(&mut self) {
        if self.records.state.status != Status::Stopped {
            self.set_status(Status::AwakeIdle, Boundary::MessageAdmission);
        }
    }

    /// Changes the status. Adds both statuses and the boundary (kind of change) to the last event.
    pub fn set_status(&mut self, status: Status, boundary: Boundary) {
        let previous = std::mem::replace(&mut self.records.state.status, status);
        if previous == status {
            return;
        }
        self.touched = true;
        if let Some(Value::Object(data)) = self.events.last_mut().map(|event| &mut event.data) {
            // Two changes of the status within one event are recorded as one change.
            data.entry("previous_status").or_insert_with(|| json!(previous));
            data.insert("next_status".to_owned(), json!(status));
            data.insert("boundary".to_owned(), json!(boundary));
        }
    }

    /// Returns the last checkpoint of a message: of its live or held run, else of its last run.
    pub fn checkpoint_of(&self, message: &Message) -> Option<Checkpoint> {
        let state = &self.records.state;
        let run = state.current_run.as_ref().filter(|run| run.message_id == message.id);
        let held = state.held.as_ref().filter(|held| held.message_id == message.id);
        let run = run.map(|run| run.checkpoint);
        run.or(held.map(|held| held.checkpoint)).unwrap_or(message.checkpoint)
    }

    /// Records a message's status under its `dedupe_key`, to answer a repeated message.
    pub fn note_dedupe(&mut self, message: &Message, status: MessageStatus) {
        let entry = DedupeEntry::of(message, status, self.records.state.revision + 1);
        if let Some(entry) = entry {
            self.put(Put::Dedupe(Box::new(entry)));
        }
    }

    /// Puts a message to another agent into the outbox.
    pub fn send(&mut self, message: Message) {
        self.records.state.outbox.add(&message);
        self.put(Put::Outgoing(Box::new(message)));
    }

    /// Removes delivered messages from the outbox. `left`: size of the remaining outbox.
    pub fn forget_delivered(&mut self, delivered: impl IntoIterator<Item = MessageId>, left: Outbox) {
        self.touched = true;
        self.records.state.outbox = left;
        self.deletes.extend(delivered.into_iter().map(Delete::Outgoing));
    }

    /// Stores the decision that the next step would make, until anything changes or is due.
    pub fn rest(&mut self, report: DecisionReport) {
        self.touched = true;
        self.resting = Some(report);
        self.records.state.rested_at = Some(self.stamp.now);
    }

    /// Updates the records as a commit would (derived fields, ended questions), for a dry run.
    pub fn look_ahead(&mut self) {
        if self.touched {
            self.forget_questions();
            derive(&mut self.records);
        }
    }

    /// Builds the transaction. Error when the execution state does not allow the status.
    pub fn finish(self) -> Result<Transaction, Refusal> {
        self.finish_and_keep().map(|(transaction, _)| transaction)
    }

    /// Builds the transaction like [`Draft::finish`]. Also returns the records after its commit.
    pub fn finish_and_keep(mut self) -> Result<(Transaction, Records), Refusal> {
        self.forget_questions();
        let state = &mut self.records.state;
        if !execution::agrees(state.execution.state, state.status) {
            let (status, execution) = (state.status, state.execution.state);
            let message = format!("status `{status}` does not go with execution state `{execution}`");
            return Err(Refusal::new("status_table", message).hint("run `dormouse doctor`"));
        }
        let base_revision = state.revision;
        state.revision = base_revision + 1;
        state.rested_at = state.rested_at.filter(|_| self.resting.is_some());
        state.resting = self.resting;
        derive(&mut self.records);
        let about = self.events.iter().find_map(|event| event.run_id);
        let transaction = Transaction {
            moves: with_run(self.transitions, &self.records.state, about),
            agent: self.records.state.agent.clone(),
            base_revision,
            state: self.records.state.clone(),
            puts: self.puts,
            deletes: self.deletes,
            archived: self.archived,
            events: self.events,
        };
        Ok((transaction, self.records))
    }
}

/// Returns the data of an event without the fields that are null.
pub(super) fn without_nulls(mut data: Value) -> Value {
    if let Value::Object(fields) = &mut data {
        fields.retain(|_, value| !value.is_null());
    }
    data
}

/// Updates the fields of `state.json` that are derived: next due time, number of open tasks.
fn derive(records: &mut Records) {
    let due = next_due(records);
    let rests = matches!(records.state.status, Status::Asleep | Status::AwaitingTask);
    records.state.next_due_at = due;
    records.state.sleeping_until = due.filter(|_| rests);
    let open = records.tasks.iter().filter(|task| !task.status.is_terminal());
    records.state.open_tasks = open.count() as u64;
}
