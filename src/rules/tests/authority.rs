//! Tests of the rights of a turn over other agents.

use crate::model::agent::{AgentKind, Identity, Visibility};
use crate::model::policy::Reach;
use crate::rules::authority::{agent, check_accepts, may_start, reaches};

use super::*;

fn name(word: &str) -> AgentName {
    word.parse().unwrap()
}

fn identity(word: &str, parent: Option<&str>, visibility: Visibility) -> Identity {
    Identity {
        name: name(word),
        kind: if parent.is_some() { AgentKind::Child } else { AgentKind::Named },
        visibility,
        owner: parent.map(name),
        parent: parent.map(name),
        profile: None,
        former_names: Vec::new(),
        created_at: now(),
        extra: Default::default(),
    }
}

#[test]
fn a_turn_reaches_only_its_children_unless_its_policy_allows_all() {
    let kid = identity("kid", Some("boss"), Visibility::Private);
    let grandkid = identity("grandkid", Some("kid"), Visibility::Private);
    let ada = identity("ada", None, Visibility::Public);
    let boss = identity("boss", None, Visibility::Public);
    for (target, reached) in [(&kid, true), (&grandkid, false), (&ada, false), (&boss, false)] {
        let found = reaches(&name("boss"), Reach::Children, target, "tick");
        let refused = found.err().map(|refusal| refusal.kind);
        assert_eq!(refused, (!reached).then_some("not_own_child"), "{}", target.name);
        assert_eq!(reaches(&name("boss"), Reach::All, target, "tick"), Ok(()));
    }
}

#[test]
fn an_agent_starts_only_agents_that_were_stopped_by_either_of_the_two() {
    let (boss, cleo) = (agent(&name("boss")), agent(&name("cleo")));
    let itself = agent(&state(Status::Stopped, ExecutionState::Runnable).agent);
    let rows: [(Option<&Origin>, &Origin, bool); 8] = [
        (None, &OPERATOR, true),
        (None, &boss, false),
        (Some(&OPERATOR), &boss, false),
        (Some(&boss), &boss, true),
        (Some(&cleo), &boss, false),
        (Some(&itself), &boss, true),
        (Some(&boss), &OPERATOR, true),
        (Some(&OPERATOR), &OPERATOR, true),
    ];
    for (stopped_by, by, allowed) in rows {
        let mut state = state(Status::Stopped, ExecutionState::Runnable);
        state.stopped_by = stopped_by.cloned();
        assert_eq!(may_start(&state, by).is_ok(), allowed, "{stopped_by:?} {by}");
    }
}

#[test]
fn a_private_agent_accepts_messages_from_its_parent_and_itself_alone() {
    let kid = identity("kid", Some("boss"), Visibility::Private);
    let orphan = identity("orphan", None, Visibility::Private);
    let open = identity("open", Some("boss"), Visibility::Public);
    for (target, speaker, is_accepted) in [
        (&kid, "boss", true),
        (&kid, "kid", true),
        (&kid, "ada", false),
        (&orphan, "orphan", true),
        (&orphan, "ada", false),
        (&open, "ada", true),
    ] {
        assert_eq!(check_accepts(target, &name(speaker)).is_ok(), is_accepted, "{} {speaker}", target.name);
    }
}
