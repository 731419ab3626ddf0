//! Tests of wake sources: every kind of wait with every message that can refer to the wait,
//! compared with a second implementation of the table in contract, semantics §5.

use crate::rules::waits::{WakeSource, satisfied};

use super::*;

use WaitKind::{External, Operator, System, Task, Timer};

const RESOURCE: &str = "github:org/repo#12";

fn from(kind: OriginKind, id: &str) -> Origin {
    Origin { kind, id: (!id.is_empty()).then(|| id.to_owned()) }
}

/// Kind of a message or hint. Events and hints may have no content.
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

/// Records that a message or hint names, by their numbers. Wait 1 is the tested wait; trigger 2
/// belongs to wait 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names {
    wait: Option<u32>,
    resource: Option<&'static str>,
    trigger: Option<u32>,
    item: Option<u32>,
    task: Option<u32>,
    /// Origin of an event, or source of a hint.
    source: &'static str,
}

const NOTHING: Names =
    Names { wait: None, resource: None, trigger: None, item: None, task: None, source: "channel:irc" };

fn names(word: Word) -> Vec<Names> {
    let mut all = Vec::new();
    let is_result = matches!(word, Word::Result { .. });
    let from_outside = matches!(word, Word::Event { .. } | Word::Hint { .. });
    let tasks = if is_result { optional(&[1, 2]) } else { vec![None] };
    let sources: &[&str] = if from_outside {
        &["channel:irc", "webhook:github", "webhook:gitlab", "webhook", "webhook:"]
    } else {
        &["channel:irc"]
    };
    for wait in optional(&[1, 9]) {
        for resource in optional(&[RESOURCE, "mail"]) {
            for trigger in optional(&[1, 2, 3]) {
                for item in optional(&[1, 2]) {
                    for task in &tasks {
                        for source in sources {
                            all.push(Names { wait, resource, trigger, item, task: *task, source });
                        }
                    }
                }
            }
        }
    }
    all
}

/// Returns the origin of a message. A message made from a hint has the origin `system` with the
/// hint's source as its id.
fn origin(word: Word, source: &str) -> Origin {
    match word {
        Word::Event { .. } => source.parse().expect("an origin"),
        Word::Hint { .. } => from(OriginKind::System, source),
        Word::Operator => from(OriginKind::Operator, ""),
        Word::Result { .. } => from(OriginKind::Task, ""),
        Word::Fire => from(OriginKind::Timer, ""),
        Word::Followup | Word::Tick | Word::Scheduler(_) => from(OriginKind::System, ""),
    }
}

fn trigger(word: Word, names: Names, origin: &Origin) -> TurnTrigger<'_> {
    let (kind, source, contentful) = match word {
        Word::Operator => (TriggerKind::OperatorInput, TriggerSource::Said, true),
        Word::Event { contentful } => (TriggerKind::ExternalEvent, TriggerSource::Said, contentful),
        Word::Hint { contentful } => (TriggerKind::SystemTick, TriggerSource::WakeHint, contentful),
        Word::Result { .. } => (TriggerKind::TaskResult, TriggerSource::Said, true),
        Word::Fire => (TriggerKind::TimerFire, TriggerSource::Said, true),
        Word::Followup => (TriggerKind::InternalFollowup, TriggerSource::Said, true),
        Word::Tick => (TriggerKind::SystemTick, TriggerSource::Said, true),
        Word::Scheduler(tick) => (TriggerKind::SystemTick, TriggerSource::Scheduler(tick), true),
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
    TurnTrigger {
        kind,
        source,
        contentful,
        task_id: names.task.map(task_id),
        task_status,
        wait_id: names.wait.map(wait_id),
        work_item_id: names.item.map(work_id),
        trigger_id: names.trigger.map(trigger_id),
        resource: names.resource,
        origin,
    }
}

/// Returns variants of wait 1 with each combination of the optional fields that its kind allows.
fn waits_of(kind: WaitKind) -> Vec<Wait> {
    let mut all = Vec::new();
    let has_subject = matches!(kind, External | System);
    let resources: &[Option<&str>] = if kind == Task { &[None] } else { &[None, Some(RESOURCE)] };
    let sources: &[Option<&str>] =
        if has_subject { &[None, Some("webhook:github"), Some("webhook")] } else { &[None] };
    let triggers: &[Option<u32>] = if has_subject { &[None, Some(1)] } else { &[None] };
    for resource in resources {
        for source in sources {
            for trigger in triggers {
                for item in [None, Some(1)] {
                    let plain = wait(1, kind);
                    all.push(Wait {
                        resource: resource.map(str::to_owned).or(plain.resource.clone()),
                        source: source.map(str::to_owned),
                        trigger_id: trigger.map(trigger_id),
                        work_item_id: item.map(work_id),
                        ..plain
                    });
                }
            }
        }
    }
    all
}

/// Returns wait 9, which has trigger 2.
fn other() -> Wait {
    Wait { resource: Some("elsewhere".to_owned()), trigger_id: Some(trigger_id(2)), ..wait(9, External) }
}

/// Returns the wake sources that a message matches, by the table of contract, semantics §5. Of the
/// wait, only its resource, its trigger and its item are read.
fn speaks_as(word: Word, names: Names, wait: &Wait) -> Vec<String> {
    let from_outside = matches!(word, Word::Event { .. } | Word::Hint { .. });
    if matches!(word, Word::Scheduler(_) | Word::Result { ended: false }) {
        return Vec::new();
    }
    let mut spoken = Vec::new();
    // Any message or hint that names a wait matches `wait:ID`. Only operator waits do not list that
    // source.
    spoken.extend(names.wait.map(|number| format!("wait:{}", wait_id(number))));
    if word == Word::Fire && names.wait == Some(1) {
        spoken.push("timer".to_owned());
    }
    if word == (Word::Result { ended: true }) {
        spoken.extend(names.task.map(|number| format!("task:{}", task_id(number))));
    }
    let of_item = names.item.map(work_id) == wait.work_item_id;
    if from_outside {
        spoken.extend(names.resource.map(|resource| format!("resource:{resource}")));
        spoken.extend(names.trigger.map(|number| format!("trigger:{}", trigger_id(number))));
        if names.resource.is_none() || wait.resource.is_none() {
            spoken.push(format!("source:{}", names.source));
            spoken.extend(names.source.split_once(':').map(|(kind, _)| format!("source:{kind}")));
        }
    }
    // Trigger 3 belongs to no wait, so a delivery through trigger 3 names no wait.
    let names_nothing = names.resource.is_none()
        && names.wait.is_none()
        && !(names.trigger == Some(2) || names.trigger == Some(1) && wait.trigger_id.is_some());
    if word == (Word::Event { contentful: true }) && names_nothing && (names.item.is_none() || of_item) {
        spoken.push("external_event".to_owned());
    }
    let names_wait = names.wait == Some(1);
    let names_item = names.item.is_some() && of_item;
    let names_none = names.wait.is_none() && names.item.is_none();
    if word == Word::Operator && (names_wait || names_item || names_none) {
        spoken.push("operator".to_owned());
    }
    spoken
}

/// Returns the wake sources that the contract lists for a wait.
fn listed(wait: &Wait) -> Vec<String> {
    let resource = wait.resource.iter().map(|resource| format!("resource:{resource}"));
    let trigger = wait.trigger_id.iter().map(|id| format!("trigger:{id}"));
    let source = wait.source.iter().map(|source| format!("source:{source}"));
    let named: Vec<String> = resource.chain(trigger).chain(source).collect();
    let by_id = format!("wait:{}", wait.id);
    match wait.kind {
        Operator => vec!["operator".to_owned()],
        Task => vec![format!("task:{}", task_id(1)), by_id],
        Timer => vec!["timer".to_owned(), by_id],
        External if named.is_empty() => vec!["external_event".to_owned(), by_id],
        External | System => [named, vec![by_id]].concat(),
    }
}

#[test]
fn a_message_ends_a_wait_exactly_if_a_listed_wake_source_is_one_of_its_names() {
    for kind in WaitKind::ALL {
        for wait in waits_of(*kind) {
            let listed = listed(&wait);
            let shown: Vec<String> = WakeSource::of(&wait).iter().map(WakeSource::to_string).collect();
            assert_eq!(shown, listed, "{wait:?}");
            let waits = [wait, other()];
            let wait = &waits[0];
            let mut unmet = listed.clone();
            for word in WORDS {
                for names in names(word) {
                    let origin = origin(word, names.source);
                    let spoken = speaks_as(word, names, wait);
                    let said = trigger(word, names, &origin);
                    let expected = spoken.iter().any(|name| listed.contains(name));
                    let case = format!("{word:?} {names:?} speaks as {spoken:?}: {wait:?}");
                    assert_eq!(satisfied(&said.message(), &waits).contains(&wait_id(1)), expected, "{case}");
                    if !matches!(word, Word::Event { .. }) {
                        let other = TurnTrigger { contentful: !said.contentful, ..said };
                        let found = satisfied(&other.message(), &waits).contains(&wait_id(1));
                        assert_eq!(found, expected, "the content does not matter: {case}");
                    }
                    unmet.retain(|source| !spoken.contains(source));
                }
            }
            assert_eq!(unmet, Vec::<String>::new(), "sources that no message matches: {wait:?}");
        }
    }
}

#[test]
fn the_recheck_and_the_expiry_of_an_active_wait_are_wake_sources() {
    for kind in WaitKind::ALL {
        let plain = wait(1, *kind);
        for (recheck, expiry) in [(false, false), (false, true), (true, false), (true, true)] {
            let wait = Wait {
                recheck_at: recheck.then(|| at(1)),
                expires_at: expiry.then(|| at(2)),
                ..plain.clone()
            };
            let sources = WakeSource::of(&wait);
            assert_eq!(sources.contains(&WakeSource::Recheck), recheck, "{wait:?}");
            assert_eq!(sources.contains(&WakeSource::Expiry), expiry, "{wait:?}");
            for over in [
                Wait { resolved_by: Some(message_id(1)), ..wait.clone() },
                Wait { status: WaitStatus::Cancelled, ..wait.clone() },
            ] {
                assert_eq!(WakeSource::of(&over), [], "{over:?}");
            }
        }
    }
}

#[test]
fn a_source_matches_a_whole_origin_or_its_kind_and_for_a_hint_its_source() {
    let rows = [
        ("webhook:github", "webhook:github", true),
        ("webhook", "webhook:github", true),
        ("webhook", "webhook", true),
        ("webhook:github", "webhook:gitlab", false),
        ("webhook:github", "webhook", false),
        ("channel", "webhook:channel", false),
        ("channel:irc", "channel:irc", true),
    ];
    // `cron` is no kind of origin, so only the whole source matches; `system` matches no hint.
    let of_hints = [("cron", "cron", true), ("cron", "cron:daily", false), ("system", "cron", false)];
    let hint = Word::Hint { contentful: false };
    let event = |contentful| Word::Event { contentful };
    let cases = [event(false), event(true), hint].map(|word| rows.map(|row| (word, row)));
    let hinted = of_hints.map(|row| (hint, row));
    for (word, (source, named, expected)) in cases.into_iter().flatten().chain(hinted) {
        for kind in [External, System] {
            let wait = Wait { source: Some(source.to_owned()), ..wait(1, kind) };
            let about = Wait { resource: Some(RESOURCE.to_owned()), ..wait.clone() };
            let origin = origin(word, named);
            let said = trigger(word, NOTHING, &origin);
            let case = format!("{source} by {word:?} from {named}");
            let ends = |said: &TurnTrigger<'_>, wait: &Wait| {
                !satisfied(&said.message(), std::slice::from_ref(wait)).is_empty()
            };
            assert_eq!(ends(&said, &wait), expected, "{case}");
            assert_eq!(ends(&said, &about), expected, "{case}");
            // A message about another resource ends only a wait that names no resource.
            let mail = TurnTrigger { resource: Some("mail"), ..said };
            assert_eq!(ends(&mail, &wait), expected, "{case}");
            assert!(!ends(&mail, &about), "{case}");
        }
    }
}

#[test]
fn one_message_ends_all_waits_that_it_satisfies_of_the_agent_and_of_its_items() {
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
    let ended = |trigger: &TurnTrigger<'_>| satisfied(&trigger.message(), &waits);
    let ids = |numbers: &[u32]| -> Vec<WaitId> { numbers.iter().copied().map(wait_id).collect() };

    for word in [Word::Event { contentful: true }, Word::Hint { contentful: false }] {
        let about = Names { resource: Some(RESOURCE), ..NOTHING };
        assert_eq!(ended(&trigger(word, about, &origin)), ids(&[1, 2, 3]), "{word:?}");
    }
    for status in TaskStatus::ALL {
        let of_task = Names { task: Some(1), ..NOTHING };
        let result = trigger(Word::Result { ended: true }, of_task, &origin);
        let goes_on = matches!(status, TaskStatus::Queued | TaskStatus::Running | TaskStatus::Cancelling);
        let expected = if goes_on { Vec::new() } else { ids(&[8, 9]) };
        assert_eq!(ended(&TurnTrigger { task_status: Some(*status), ..result }), expected, "{status}");
    }
    let said = trigger(Word::Operator, NOTHING, &origin);
    assert_eq!(ended(&said), ids(&[5, 6, 7]));
    assert_eq!(ended(&TurnTrigger { work_item_id: Some(work_id(4)), ..said.clone() }), ids(&[6]));
    assert_eq!(ended(&TurnTrigger { wait_id: Some(wait_id(7)), ..said.clone() }), ids(&[7]));
    // An operator's answer that names another wait ends only the named wait, if it is active.
    for number in [4, 8, 10, 11, 99] {
        let named = TurnTrigger { wait_id: Some(wait_id(number)), ..said.clone() };
        let expected = if number < 10 { ids(&[number]) } else { Vec::new() };
        assert_eq!(ended(&named), expected, "wait {number}");
    }
}
