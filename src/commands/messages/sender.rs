//! Sender of the messages of one command, and the limits of `enqueue` and `wake` for a member of
//! the sharing group, equal to those of a file that the member writes into the inbox.

use crate::cli;
use crate::commands::args::parse_optional;
use crate::engine::authority::{self, owners_only};
use crate::engine::context::Context;
use crate::error::Result;
use crate::model::author::source;
use crate::model::continuation::TriggerKind;
use crate::model::message::{MessageKind, Origin, OriginKind};
use crate::model::policy::Policy;
use crate::model::refusal::Refusal;
use crate::model::submission::{Caller, Speaker};
use crate::rules::admission::kinds;
use crate::store::{Agent, Store};

/// Sender of a message, and the sender's limits.
pub struct Sender {
    pub policy: Policy,
    /// Turn or task that runs this command.
    pub caller: Option<Caller>,
    /// Member of the sharing group that runs this command.
    pub user: Option<String>,
    /// Trigger kind of the messages, if it differs from the default of the message kind.
    pub trigger: Option<TriggerKind>,
}

impl Sender {
    /// Returns the sender. Error if the agent accepts no message from it, or it may not use a flag.
    pub fn of(Context { session, agent }: Context<'_>, said: &cli::MessageArgs) -> Result<Sender> {
        let store = agent.store();
        let (with_work, with_wait) = (said.work_item.is_some(), said.wait.is_some());
        let needs = [("--retry", said.retry), ("--work-item", with_work), ("--wait", with_wait)];
        judge(store.guest(), said.origin.as_deref(), said.kind, needs)?;
        let policy = policy(store, agent)?;
        let user = store.guest().map(str::to_owned);
        let caller = if user.is_none() { session.caller(store)? } else { None };
        let check = |caller: &Caller| authority::check_accepts(agent, &caller.agent);
        let trigger = caller.as_ref().map_or(Ok(None), check)?;
        parse_optional::<Origin>("--origin", said.origin.as_deref())?;
        Ok(Sender { policy, caller, user, trigger })
    }

    pub fn speaker(&self) -> Speaker<'_> {
        match (&self.user, &self.caller) {
            (Some(user), _) => Speaker::User(user),
            (None, Some(caller)) => Speaker::Work(caller),
            (None, None) => Speaker::Outside,
        }
    }
}

/// Refuses values that only the state directory's owner may set. `needs`: fields, true if set.
pub fn judge(
    user: Option<&str>,
    origin: Option<&str>,
    kind: Option<MessageKind>,
    needs: impl IntoIterator<Item = (&'static str, bool)>,
) -> Result<(), Refusal> {
    let Some(user) = user else { return Ok(()) };
    check_name(user, origin)?;
    if let Some(kind) = kind.filter(|kind| !kinds(OriginKind::Channel).contains(kind)) {
        let message = format!("a message from `channel` can't be of kind `{kind}`");
        return Err(Refusal::new("kind_origin_mismatch", message).hint("leave out the kind"));
    }
    needs.into_iter().find(|(_, asked)| *asked).map_or(Ok(()), |(what, _)| Err(owners_only(what)))
}

/// Refuses a sender name other than the member's own.
pub fn check_name(user: &str, named: Option<&str>) -> Result<(), Refusal> {
    let Some(named) = named else { return Ok(()) };
    let message = format!("`{named}`: the file is yours, so it is of `{}`", source(user));
    Err(Refusal::new("origin_not_allowed", message)
        .hint("leave it out: a file speaks in the name of the user who owns it"))
}

/// Returns the agent's policy, or the default policy if a group member may not read the agent's.
pub fn policy(store: &Store, agent: &Agent<'_>) -> Result<Policy> {
    match agent.policy() {
        Err(error) if store.guest().is_some() && error.kind() == "not_allowed" => {
            store.local().policy_from(&agent.settings(), "")
        }
        policy => policy,
    }
}
