//! `usage`: consumption of turns in a period, and what is left of the budgets.

use serde_json::json;

use crate::cli::{UsageArgs, UsageBy};
use crate::engine::session::{Session, agents};
use crate::error::{Result, Status};
use crate::report::text::relative;
use crate::report::usage::{Budget, UsageGroup, UsageTable, Used};
use crate::rules::limits::left;

use super::words::time_or_ago;

pub fn usage(session: &mut Session, args: UsageArgs) -> Result<Status> {
    let store = session.store()?;
    let now = session.clock.now();
    let since = time_or_ago("--since", &args.since, now)?;
    let names = agents(&store, &args.agents, args.agents.is_empty())?;
    let group = match args.by {
        UsageBy::Agent => UsageGroup::Agent,
        UsageBy::Day => UsageGroup::Day,
        UsageBy::Model => UsageGroup::Model,
    };
    let mut table =
        UsageTable { group, rows: Default::default(), budgets: Default::default(), total: Used::default() };
    let status = session.each_agent(&names, args.agents.is_empty(), |_, name| {
        let agent = store.agent(name)?;
        let policy = agent.policy()?;
        let (state, runs) = agent.look(|seen, state| Ok((state, seen.runs_since(since)?)))?;
        if group == UsageGroup::Agent {
            table.rows.entry(name.to_string()).or_default();
            let budget = Budget { left: left(&state, &policy.limits, now), limits: policy.limits };
            if budget.left != Default::default() {
                table.budgets.insert(name.to_string(), budget);
            }
        }
        for run in runs.iter().filter(|run| run.ended_at >= since) {
            table.rows.entry(group.of(name, run)).or_default().add(run);
            table.total.add(run);
        }
        Ok(Status::Done)
    });
    if session.out.is_json() {
        for mut object in table.objects() {
            (object["since"], object["until"]) = (json!(since), json!(now));
            session.out.json_line(&object);
        }
        session.out.json_line(&json!({ "since": since, "until": now, "total": table.total }));
    } else if table.rows.is_empty() {
        if status == Status::Done {
            session.out.note(&format!("no turn has ended since {}", since.local()));
        }
    } else {
        let text = table.text(&session.out);
        session.out.line(&format!("turns that ended since {} ({})", since.local(), relative(since, now)));
        session.out.line(&text);
    }
    Ok(status)
}
