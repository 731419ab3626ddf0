//! `[retention]` of `dormouse.toml` and `agent.toml`: what is kept of turns that have ended.

use serde::Deserialize;

use super::run::Terminal;

names! {
    /// The runs whose context stays in their directory.
    #[derive(Default)]
    "choice of runs" ContextOf {
        None = "none",
        /// Runs that failed, timed out, were aborted or interrupted.
        #[default]
        Failed = "failed",
        All = "all",
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Retention {
    /// The runs whose context stays in their directory.
    pub context: ContextOf,
}

impl Retention {
    /// Whether the context of a run that has ended in this way is kept.
    pub fn keeps_context(&self, terminal: Terminal) -> bool {
        match self.context {
            ContextOf::None => false,
            ContextOf::Failed => has_failed(terminal),
            ContextOf::All => true,
        }
    }
}

fn has_failed(terminal: Terminal) -> bool {
    match terminal {
        Terminal::Failed | Terminal::TimedOut | Terminal::Aborted | Terminal::Interrupted => true,
        Terminal::Completed | Terminal::Suspended | Terminal::Deferred => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_kept_as_the_policy_says() {
        for (context, kept) in [("none", [false, false]), ("failed", [false, true]), ("all", [true, true])] {
            let retention: Retention = toml::from_str(&format!("context = \"{context}\"")).expect("settings");
            assert_eq!(
                [Terminal::Completed, Terminal::TimedOut].map(|end| retention.keeps_context(end)),
                kept
            );
        }
        let error = toml::from_str::<Retention>("context = \"some\"").expect_err("no such choice");
        assert!(error.message().contains("expected one of none, failed, all"), "{error}");
    }
}
