//! Retention periods of ended turns, tasks and messages: `[retention]` of the settings files.

use serde::{Deserialize, Deserializer};
use smart_default::SmartDefault;

use super::id::Malformed;
use super::policy::Size;
use super::run::Terminal;
use super::text;
use super::time::{Span, Time};

/// Retention period of an ended record; absent: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep(pub Option<Span>);

const DAY: u64 = 24 * 3600;

impl Keep {
    pub const fn days(days: u64) -> Keep {
        Keep(Some(Span::from_secs(days * DAY)))
    }

    /// True if a record that ended at `over_at` is past its retention period.
    pub fn is_past(self, over_at: Time, now: Time) -> bool {
        self.0.is_some_and(|span| over_at.after(span) <= now)
    }

    /// Returns the longer of two retention periods; unlimited if one of them is.
    pub fn longer(self, other: Keep) -> Keep {
        Keep(self.0.zip(other.0).map(|(one, other)| one.max(other)))
    }

    /// Returns the shorter of two retention periods; unlimited only if both are.
    pub fn shorter(self, other: Keep) -> Keep {
        Keep(self.0.into_iter().chain(other.0).min())
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |number| Err(format!("`{number}` has no unit: write \"{number}d\""));
        text::setting("a duration such as \"30d\", or \"forever\"", deserializer, number, |text| {
            if text == "forever" {
                return Ok(Keep(None));
            }
            let span = text.parse().map(|span| Keep(Some(span)));
            span.map_err(|error: Malformed| format!("{error}, or \"forever\""))
        })
    }
}

names! {
    /// Runs whose turn input (`context.json` and prompt) is kept in the run directory.
    #[derive(Default)]
    "choice of runs" ContextOf {
        None = "none",
        /// Runs that failed, timed out, were aborted or interrupted.
        #[default]
        Failed = "failed",
        All = "all",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Retention {
    /// Retention of the directories of runs that completed.
    #[default(Keep::days(30))]
    pub runs: Keep,
    /// Retention of the directories of runs that failed, were ended or were interrupted.
    #[default(Keep::days(90))]
    pub failed_runs: Keep,
    /// Retention of the directories of ended tasks.
    #[default(Keep::days(30))]
    pub tasks: Keep,
    /// Maximum total size of the directories of ended runs and tasks; the oldest are deleted first.
    #[default(Size(100 << 20))]
    pub output: Size,
    /// Retention of months of the archive and of the ledger, from the end of each month.
    #[default(Keep(None))]
    pub archive: Keep,
    /// Runs whose turn input (`context.json` and prompt) is kept as long as the run directory.
    pub context: ContextOf,
}

impl Retention {
    /// Returns the retention period for the directory of a run with this end.
    pub fn of_run(&self, terminal: Terminal) -> Keep {
        if has_failed(terminal) { self.failed_runs } else { self.runs }
    }

    /// True if the turn input (`context.json` and prompt) of a run with this end is kept.
    pub fn keeps_context(&self, terminal: Terminal) -> bool {
        match self.context {
            ContextOf::None => false,
            ContextOf::Failed => has_failed(terminal),
            ContextOf::All => true,
        }
    }
}

fn has_failed(terminal: Terminal) -> bool {
    terminal.is_failure() || terminal == Terminal::Aborted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Retention, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn every_key_has_a_default_and_errors_explain_invalid_values() {
        assert_eq!(read(""), Ok(Retention::default()));
        let all = "runs = \"1d\"\nfailed_runs = \"forever\"\ntasks = \"0s\"\noutput = \"1 MiB\"\narchive = \"1y\"\n\
                   context = \"all\"\n";
        let read_all = read(all).expect("settings");
        assert_eq!((read_all.runs, read_all.failed_runs), (Keep::days(1), Keep(None)));
        assert_eq!((read_all.tasks, read_all.output), (Keep::days(0), Size(1 << 20)));
        assert_eq!(read_all.context, ContextOf::All);
        for (text, says) in [
            ("runs = 30", "`30` has no unit: write \"30d\""),
            ("runs = \"soon\"", "soon"),
            ("archive = \"never\"", "or \"forever\""),
            ("context = \"some\"", "expected one of none, failed, all"),
            ("logs = \"1d\"", "unknown field `logs`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_record_expires_at_the_end_of_its_retention_period() {
        let at = |days: u64| Time::from_millis(0).after(Span::from_secs(days * DAY));
        assert!(!Keep::days(30).is_past(at(0), at(29)));
        assert!(Keep::days(30).is_past(at(0), at(30)));
        assert!(!Keep(None).is_past(at(0), at(10_000)));
        assert_eq!(Keep::days(1).longer(Keep(None)), Keep(None));
        assert_eq!(Keep::days(1).shorter(Keep(None)), Keep::days(1));
        assert_eq!(Keep::days(1).longer(Keep::days(2)), Keep::days(2));
    }
}
