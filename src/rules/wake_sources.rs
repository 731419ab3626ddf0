//! What would end a wait, for people and scripts (contract, semantics §5). No decision depends on it.

use crate::model::wait::{Wait, WaitKind};

/// What would end a wait or make the agent look at it, the most important first: `task:…`, `resource:…`,
/// `trigger:…`, `source:…`, `external_event` (any that names nothing), `operator`, `timer`, `recheck`,
/// `expiry`.
pub fn wake_sources(wait: &Wait) -> Vec<String> {
    let named = |kind: &str, id: Option<&String>| id.map(|id| format!("{kind}:{id}"));
    let resource = named("resource", wait.resource.as_ref());
    let source = named("source", wait.source.as_ref());
    let trigger = wait.trigger_id.map(|id| format!("trigger:{id}"));
    let by_kind: Vec<Option<String>> = match wait.kind {
        WaitKind::Operator => vec![Some("operator".to_owned())],
        WaitKind::Task => vec![named("task", wait.resource.as_ref())],
        WaitKind::Timer => vec![Some("timer".to_owned())],
        WaitKind::System => vec![resource, trigger, source],
        WaitKind::External => {
            let unnamed = (resource.is_none() && source.is_none()).then(|| "external_event".to_owned());
            vec![resource, trigger, source, unnamed]
        }
    };
    let recheck = wait.recheck_at.filter(|_| wait.rechecked_at.is_none()).map(|_| "recheck".to_owned());
    let expiry = wait.expires_at.map(|_| "expiry".to_owned());
    by_kind.into_iter().chain([recheck, expiry]).flatten().collect()
}
