//! Sender of the messages of one command.

use crate::cli;
use crate::commands::args::parse_optional;
use crate::engine::authority;
use crate::engine::session::Session;
use crate::error::Result;
use crate::model::continuation::TriggerKind;
use crate::model::message::Origin;
use crate::model::policy::Policy;
use crate::model::submission::{Caller, Speaker};
use crate::store::Agent;

use super::guests;

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
    /// Returns the sender. Refuses one that the agent does not accept or that names another origin.
    pub fn of(session: &Session, agent: &Agent<'_>, said: &cli::MessageArgs) -> Result<Sender> {
        let store = agent.store();
        guests::check(store, said)?;
        let policy = guests::policy(store, agent)?;
        let user = store.guest().map(str::to_owned);
        let caller = if user.is_none() { session.caller(store)? } else { None };
        let trigger = match &caller {
            Some(caller) => authority::check_accepts(agent, &caller.agent)?,
            None => None,
        };
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
