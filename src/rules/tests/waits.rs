//! What ends a wait: every kind of wait against everything that can name it, and what becomes of the wait from the moment at which a step takes the message up.

use crate::model::closure::{ClosureOutcome, WaitingReason};
use crate::model::continuation::TriggerKind;
use crate::model::id::{TriggerId, WaitId};
use crate::model::message::{Origin, OriginKind, SchedulerTick};
use crate::model::task::TaskStatus;
use crate::model::wait::{Wait, WaitKind, WaitStatus};
use crate::rules::continuation::{Source, Trigger};
use crate::rules::waits::satisfied;

use super::{closure, message_id, task_id, wait, wait_id, wait_on, work_id};

use WaitKind::{External, Operator, System, Task, Timer};

const RESOURCE: &str = "github:org/repo#12";

fn trigger_id(number: u128) -> TriggerId {
    TriggerId(uuid::Uuid::from_u128(number))
}

fn from(kind: OriginKind, id: &str) -> Origin {
    Origin { kind, id: (!id.is_empty()).then(|| id.to_owned()) }
}

/// How a message names a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Wait,
    Resource,
    Source,
    Trigger,
    Item,
    Task,
    Nothing,
}

pub const WAYS: [By; 7] = [By::Wait, By::Resource, By::Source, By::Trigger, By::Item, By::Task, By::Nothing];

/// Who speaks, and with or without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Operator,
    Event { contentful: bool },
    Hint { contentful: bool },
    Result { ended: bool },
    Fire,
    Followup,
    Tick,
    Scheduler(SchedulerTick),
}

const WORDS: [Word; 13] = [
    Word::Operator,
    Word::Event { contentful: true },
    Word::Event { contentful: false },
    Word::Hint { contentful: true },
    Word::Hint { contentful: false },
    Word::Result { ended: true },
    Word::Result { ended: false },
    Word::Fire,
    Word::Followup,
    Word::Tick,
    Word::Scheduler(SchedulerTick::Other),
    Word::Scheduler(SchedulerTick::Expiry),
    Word::Scheduler(SchedulerTick::Recheck),
];

/// A wait that everything can name, as far as its kind has such a field.
fn named(kind: WaitKind) -> Wait {
    let has_subject = matches!(kind, External | System);
    Wait {
        resource: match kind {
            Task => Some(task_id(1).to_string()),
            External | System => Some(RESOURCE.to_owned()),
            Operator | Timer => None,
        },
        source: has_subject.then(|| "webhook:github".to_owned()),
        trigger_id: has_subject.then(|| trigger_id(1)),
        ..wait_on(1, kind, 1)
    }
}

fn trigger(word: Word, by: By, origin: &Origin) -> Trigger<'_> {
    let (kind, source, contentful) = match word {
        Word::Operator => (TriggerKind::OperatorInput, Source::Said, true),
        Word::Event { contentful } => (TriggerKind::ExternalEvent, Source::Said, contentful),
        Word::Hint { contentful } => (TriggerKind::SystemTick, Source::WakeHint, contentful),
        Word::Result { .. } => (TriggerKind::TaskResult, Source::Said, true),
        Word::Fire => (TriggerKind::TimerFire, Source::Said, true),
        Word::Followup => (TriggerKind::InternalFollowup, Source::Said, true),
        Word::Tick => (TriggerKind::SystemTick, Source::Said, true),
        Word::Scheduler(tick) => (TriggerKind::SystemTick, Source::Scheduler(tick), true),
    };
    let task_status = match word {
        Word::Result { ended: true } => Some(TaskStatus::Failed),
        Word::Result { ended: false } => Some(TaskStatus::Running),
        Word::Operator
        | Word::Event { .. }
        | Word::Hint { .. }
        | Word::Fire
        | Word::Followup
        | Word::Tick
        | Word::Scheduler(_) => None,
    };
    Trigger {
        kind,
        source,
        contentful,
        task_id: (by == By::Task).then(|| task_id(1)),
        task_status,
        wait_id: (by == By::Wait).then(|| wait_id(1)),
        work_item_id: (by == By::Item).then(|| work_id(1)),
        trigger_id: (by == By::Trigger).then(|| trigger_id(1)),
        resource: (by == By::Resource).then_some(RESOURCE),
        origin,
    }
}

/// Where a word comes from: from the wait's source only where that is how it names the wait.
fn origin(word: Word, by: By) -> Origin {
    let from_source = by == By::Source;
    match word {
        Word::Event { .. } if from_source => from(OriginKind::Webhook, "github"),
        Word::Event { .. } => from(OriginKind::Channel, "irc"),
        Word::Hint { .. } if from_source => from(OriginKind::System, "webhook:github"),
        Word::Hint { .. } => from(OriginKind::System, "cron"),
        Word::Operator => from(OriginKind::Operator, ""),
        Word::Result { .. } => from(OriginKind::Task, ""),
        Word::Fire => from(OriginKind::Timer, ""),
        Word::Followup | Word::Tick | Word::Scheduler(_) => from(OriginKind::System, ""),
    }
}

/// Contract, semantics §5, row by row, for a wait that is not the one that the closure is about.
pub fn ends(kind: WaitKind, word: Word, by: By) -> bool {
    let from_outside = matches!(word, Word::Event { .. } | Word::Hint { .. });
    let never = matches!(word, Word::Scheduler(_) | Word::Result { ended: false });
    let row = match kind {
        Task => word == Word::Result { ended: true } && by == By::Task,
        External | System => from_outside && matches!(by, By::Resource | By::Trigger | By::Source),
        // What names a wait, a resource or a trigger is still the operator's word, and names no other item.
        Operator => word == Word::Operator,
        Timer => false,
    };
    !never && (by == By::Wait || row)
}

fn after(reason: Option<WaitingReason>, wait: Option<WaitId>) -> crate::model::closure::Closure {
    let outcome = if reason.is_some() { ClosureOutcome::Waiting } else { ClosureOutcome::Completed };
    closure(outcome, reason, wait)
}

#[test]
fn each_kind_of_wait_ends_by_what_names_it_and_by_nothing_else_whatever_the_closure_is_about() {
    let priors: Vec<_> = [None, Some(wait_id(9))]
        .into_iter()
        .flat_map(|wait| {
            let reasons = WaitingReason::ALL.iter().copied().map(Some).chain([None]);
            reasons.map(move |reason| after(reason, wait))
        })
        .collect();
    for kind in WaitKind::ALL {
        for word in WORDS {
            for by in WAYS {
                let origin = origin(word, by);
                let trigger = trigger(word, by, &origin);
                // By any other word, content or none, the wait of a kind is the agent's or an item's.
                let agents = Wait { work_item_id: None, ..named(*kind) };
                for wait in [named(*kind), agents] {
                    let about_its_item = by != By::Item || wait.work_item_id.is_some();
                    let expected = ends(*kind, word, by) && about_its_item;
                    for prior in &priors {
                        let found = satisfied(&trigger, std::slice::from_ref(&wait), prior);
                        let ended = if expected { vec![wait_id(1)] } else { Vec::new() };
                        assert_eq!(found, ended, "{kind} by {word:?} {by:?}, {wait:?} after {prior:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_event_that_names_nothing_ends_the_external_wait_of_the_closure_and_those_without_a_subject() {
    let foremost = after(Some(WaitingReason::AwaitingExternalChange), Some(wait_id(1)));
    let elsewhere = after(Some(WaitingReason::AwaitingOperatorInput), Some(wait_id(1)));
    let nothing = after(None, None);
    let irc = from(OriginKind::Channel, "irc");
    for kind in WaitKind::ALL {
        for (has_resource, has_source, has_trigger) in
            (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0))
        {
            let wait = Wait {
                resource: match kind {
                    Task => Some(task_id(1).to_string()),
                    Operator | External | Timer | System => has_resource.then(|| RESOURCE.to_owned()),
                },
                source: has_source.then(|| "webhook".to_owned()),
                trigger_id: has_trigger.then(|| trigger_id(1)),
                ..wait(1, *kind)
            };
            for word in WORDS {
                for (prior, is_foremost) in [(&foremost, true), (&elsewhere, false), (&nothing, false)] {
                    let has_no_subject = !has_resource && !has_source;
                    let by_anything = *kind == External
                        && word == Word::Event { contentful: true }
                        && (is_foremost || has_no_subject);
                    let by_answer = *kind == Operator && word == Word::Operator;
                    let found =
                        satisfied(&trigger(word, By::Nothing, &irc), std::slice::from_ref(&wait), prior);
                    assert_eq!(
                        !found.is_empty(),
                        by_anything || by_answer,
                        "{word:?}, {wait:?} after {prior:?}"
                    );
                }
            }
            // One that names something else does not. A trigger is a name only where a wait names it.
            let elsewhere = Wait {
                resource: Some("elsewhere".to_owned()),
                trigger_id: Some(trigger_id(2)),
                ..super::wait(7, External)
            };
            for (by, ended) in [(By::Wait, None), (By::Resource, None), (By::Trigger, Some(wait_id(7)))] {
                let mut named = trigger(Word::Event { contentful: true }, by, &irc);
                match by {
                    By::Wait => named.wait_id = Some(wait_id(8)),
                    By::Resource => named.resource = Some("mail"),
                    By::Trigger => named.trigger_id = Some(trigger_id(2)),
                    By::Source | By::Item | By::Task | By::Nothing => {}
                }
                let waits = [wait.clone(), elsewhere.clone()];
                let found = satisfied(&named, &waits, &foremost);
                assert_eq!(found, ended.into_iter().collect::<Vec<_>>(), "{by:?}, {wait:?}");
            }
        }
    }
}

#[test]
fn a_source_is_a_whole_origin_or_its_kind_and_of_a_hint_the_source_that_it_gives() {
    let rows = [
        ("webhook:github", OriginKind::Webhook, "github", true),
        ("webhook", OriginKind::Webhook, "github", true),
        ("webhook:github", OriginKind::Webhook, "gitlab", false),
        ("webhook:github", OriginKind::Webhook, "", false),
        ("github", OriginKind::Webhook, "github", false),
        ("channel", OriginKind::Webhook, "channel", false),
        ("channel:irc", OriginKind::Channel, "irc", true),
    ];
    for (source, kind, id, expected) in rows {
        for waiting in [External, System] {
            let wait = Wait { source: Some(source.to_owned()), ..wait(1, waiting) };
            let origin = from(kind, id);
            for contentful in [false, true] {
                let event = trigger(Word::Event { contentful }, By::Nothing, &origin);
                let found = !satisfied(&event, std::slice::from_ref(&wait), &after(None, None)).is_empty();
                assert_eq!(found, expected, "{source} by {origin}");
                // One that names a resource is about that, whoever says it.
                let other = Trigger { resource: Some("mail"), ..event };
                assert_eq!(satisfied(&other, std::slice::from_ref(&wait), &after(None, None)), []);
            }
        }
    }
    for (source, hinted, expected) in
        [("cron", "cron", true), ("cron", "cron:daily", false), ("system", "cron", false)]
    {
        let wait = Wait { source: Some(source.to_owned()), ..wait(1, External) };
        let origin = from(OriginKind::System, hinted);
        let hint = trigger(Word::Hint { contentful: false }, By::Nothing, &origin);
        let found = !satisfied(&hint, &[wait], &after(None, None)).is_empty();
        assert_eq!(found, expected, "{source} by a hint from {hinted}");
    }
}

#[test]
fn an_event_about_an_item_ends_no_wait_of_another_one_or_of_the_agent() {
    let foremost = after(Some(WaitingReason::AwaitingExternalChange), Some(wait_id(1)));
    let irc = from(OriginKind::Channel, "irc");
    let mut about_two = trigger(Word::Event { contentful: true }, By::Nothing, &irc);
    about_two.work_item_id = Some(work_id(2));
    let of = |item: Option<u32>| Wait { work_item_id: item.map(work_id), ..wait(1, External) };
    for (wait, ended) in [(of(None), vec![]), (of(Some(1)), vec![]), (of(Some(2)), vec![wait_id(1)])] {
        assert_eq!(satisfied(&about_two, std::slice::from_ref(&wait), &foremost), ended, "{wait:?}");
    }
}

#[test]
fn all_that_one_message_satisfies_ends_together_the_agents_and_all_its_items() {
    let about = |wait: Wait| Wait { resource: Some(RESOURCE.to_owned()), ..wait };
    let waits = [
        about(wait(1, External)),
        about(wait_on(2, External, 1)),
        about(wait_on(3, System, 2)),
        Wait { resource: Some("mail".to_owned()), ..wait_on(4, External, 3) },
        wait(5, Operator),
        wait_on(6, Operator, 4),
        wait_on(7, Operator, 5),
        Wait { resource: Some(task_id(1).to_string()), ..wait_on(8, Task, 6) },
        wait(9, Task),
        Wait { resolved_by: Some(message_id(1)), ..about(wait_on(10, External, 7)) },
        Wait { status: WaitStatus::Expired, ..about(wait(11, External)) },
    ];
    let origin = from(OriginKind::Webhook, "ci");
    let prior = after(None, None);
    let ended = |trigger: &Trigger<'_>| satisfied(trigger, &waits, &prior);
    let ids = |numbers: &[u32]| -> Vec<WaitId> { numbers.iter().copied().map(wait_id).collect() };

    for word in [Word::Event { contentful: true }, Word::Hint { contentful: false }] {
        assert_eq!(ended(&trigger(word, By::Resource, &origin)), ids(&[1, 2, 3]), "{word:?}");
    }
    assert_eq!(ended(&trigger(Word::Result { ended: true }, By::Task, &origin)), ids(&[8, 9]));
    let said = trigger(Word::Operator, By::Nothing, &origin);
    assert_eq!(ended(&said), ids(&[5, 6, 7]));
    assert_eq!(ended(&Trigger { work_item_id: Some(work_id(4)), ..said.clone() }), ids(&[6]));
    assert_eq!(ended(&Trigger { wait_id: Some(wait_id(7)), ..said.clone() }), ids(&[7]));
    // An answer to one question is none to the others, be it one that is asked no more.
    for number in [4, 8, 10, 11, 99] {
        let named = Trigger { wait_id: Some(wait_id(number)), ..said.clone() };
        let expected = if number < 10 { ids(&[number]) } else { Vec::new() };
        assert_eq!(ended(&named), expected, "wait {number}");
    }
}
