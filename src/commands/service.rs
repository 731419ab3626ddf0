//! Command `service`: prints configuration for a service manager that ticks a state directory.

use std::path::Path;

use serde_json::json;

use crate::cli::{self, ServiceManager};
use crate::engine::session::Session;
use crate::error::{Error, IoContext, Result, Status};

use super::args::answer_verbatim;

/// Configuration file to install.
struct ServiceFile {
    path: String,
    text: String,
}

/// Settings that every format of configuration uses.
struct ServiceSpec {
    program: String,
    dir: String,
    /// Name of the service, derived from the parent directory of the state directory.
    name: String,
    /// Owner of the state directory.
    owner: String,
    user: bool,
    jobs: u32,
}

pub fn service(session: &mut Session, args: cli::ServiceArgs) -> Result<Status> {
    let store = session.store()?;
    if args.user {
        // The user's service manager runs commands as that user, who must own the state directory.
        store.local().refuse_stranger()?;
    }
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    let dir = store.anchor().path();
    let dir = std::path::absolute(dir).context("find", dir)?;
    let home = dir.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let plain: String = home.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let service = ServiceSpec {
        program: word(&program)?,
        dir: word(&dir)?,
        name: if plain.is_empty() { "dormouse".to_owned() } else { format!("dormouse-{plain}") },
        owner: store.local().owner(),
        user: args.user,
        jobs: args.jobs,
    };
    let files = match (args.manager, args.follow) {
        (ServiceManager::Systemd, true) => vec![service.following()],
        (ServiceManager::Systemd, false) => vec![service.round(), service.timer()],
        (ServiceManager::Cron, false) => vec![service.crontab()],
        (ServiceManager::Launchd, false) => vec![service.property_list()],
        (ServiceManager::Cron | ServiceManager::Launchd, true) => {
            return Err(Error::usage(
                "--follow: only systemd keeps a process that stays; a machine without it can run `dormouse tick --all --follow` in any way",
            ));
        }
    };
    for file in files {
        // The text is installed as printed, so nothing is escaped.
        answer_verbatim(session, &json!({ "path": file.path, "text": file.text }), &file.text)?;
    }
    Ok(Status::Done)
}

/// True for a character that a line of text or XML can't contain.
fn is_refused(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Returns a path as text. A character that a line can't contain is refused.
fn word(path: &Path) -> Result<String> {
    match path.to_str().filter(|text| !text.chars().any(is_refused)) {
        Some(text) => Ok(text.to_owned()),
        None => Err(Error::refused(
            "path_not_text",
            format!(
                "{}: a path with control characters, or that is not UTF-8, can't stand in such a file",
                path.display()
            ),
        )
        .with_hint("rename it, or name it by a link")),
    }
}

impl ServiceSpec {
    /// Returns the path of a unit file of the user's or the machine's service manager.
    fn unit(&self, ending: &str) -> String {
        let dir = if self.user { "~/.config/systemd/user" } else { "/etc/systemd/system" };
        format!("{dir}/{}.{ending}", self.name)
    }

    fn systemctl(&self) -> &str {
        if self.user { "systemctl --user" } else { "systemctl" }
    }

    fn as_owner(&self) -> String {
        if self.user { String::new() } else { format!("User={}\n", self.owner) }
    }

    fn following(&self) -> ServiceFile {
        let path = self.unit("service");
        let text = format!(
            include_str!("service/following.service"),
            path = path,
            ctl = self.systemctl(),
            name = self.name,
            home = for_specifiers(&self.dir),
            user = self.as_owner(),
            program = for_systemd(&self.program, false),
            dir = for_systemd(&self.dir, true),
            jobs = self.jobs,
            target = if self.user { "default.target" } else { "multi-user.target" },
        );
        ServiceFile { path, text }
    }

    fn round(&self) -> ServiceFile {
        let path = self.unit("service");
        // After each tick, a transient timer is started for the next due time within the minute.
        let wake = format!(
            "at=$$(\"$$0\" --dir \"$$1\" next-wake --all --format systemd) || exit 0; \
             {ctl} --quiet stop {name}-due.timer 2>/dev/null; \
             test -z \"$$at\" || {run} --quiet --collect --unit={name}-due --on-calendar=\"$$at\" \
             --timer-property=AccuracySec=100ms {ctl} --no-block start {name}.service",
            ctl = self.systemctl(),
            run = if self.user { "systemd-run --user" } else { "systemd-run" },
            name = self.name,
        );
        let text = format!(
            include_str!("service/round.service"),
            path = path,
            home = for_specifiers(&self.dir),
            user = self.as_owner(),
            program = for_systemd(&self.program, false),
            dir = for_systemd(&self.dir, true),
            jobs = self.jobs,
            // A unit that runs as another user needs full rights (`+`) to start a timer of the
            // machine's service manager.
            plus = if self.user { "-" } else { "-+" },
            wake = wake,
            argument = for_systemd(&self.program, true),
        );
        ServiceFile { path, text }
    }

    fn timer(&self) -> ServiceFile {
        let path = self.unit("timer");
        let text = format!(
            include_str!("service/round.timer"),
            path = path,
            ctl = self.systemctl(),
            name = self.name,
            home = for_specifiers(&self.dir),
        );
        ServiceFile { path, text }
    }

    fn crontab(&self) -> ServiceFile {
        let path = if self.user { "crontab -e".to_owned() } else { format!("/etc/cron.d/{}", self.name) };
        let text = format!(
            include_str!("service/crontab"),
            path = path,
            user = if self.user { String::new() } else { format!("{} ", self.owner) },
            program = for_cron(&self.program),
            dir = for_cron(&self.dir),
            jobs = if self.jobs > 1 { format!(" --jobs {}", self.jobs) } else { String::new() },
        );
        ServiceFile { path, text }
    }

    fn property_list(&self) -> ServiceFile {
        let place = if self.user { "~/Library/LaunchAgents" } else { "/Library/LaunchDaemons" };
        let path = format!("{place}/{}.plist", self.name);
        let jobs = self.jobs.to_string();
        let words =
            [self.program.as_str(), "--dir", &self.dir, "tick", "--all", "--until-idle", "--jobs", &jobs];
        let user = format!("  <key>UserName</key>\n  <string>{}</string>\n", for_xml(&self.owner));
        let text = format!(
            include_str!("service/launchd.plist"),
            path = for_comment(&path),
            label = for_xml(&self.name),
            words = words.map(|word| format!("    <string>{}</string>\n", for_xml(word))).concat(),
            user = if self.user { "" } else { &user },
        );
        ServiceFile { path, text }
    }
}

/// Escapes percent signs, which begin specifiers in units.
fn for_specifiers(word: &str) -> String {
    word.replace('%', "%%")
}

/// Quotes a word of a systemd command line. A dollar sign begins a variable in an argument.
fn for_systemd(word: &str, is_argument: bool) -> String {
    let word = for_specifiers(word).replace('\\', "\\\\").replace('"', "\\\"");
    if is_argument { format!("\"{}\"", word.replace('$', "$$")) } else { format!("\"{word}\"") }
}

/// Quotes a word of a crontab line: a shell word with escaped percent signs, because cron ends the
/// command at an unescaped percent sign.
fn for_cron(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@".contains(c);
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    // cron removes a backslash before a percent sign, so a pair of quotes separates a literal
    // backslash from the sign.
    let word = word.replace('\'', "'\\''").replace("\\%", "\\''%");
    format!("'{word}'").replace('%', "\\%")
}

/// Escapes a text for an XML comment, which can't contain two hyphens in a row.
fn for_comment(text: &str) -> String {
    text.replace("--", "-&#45;").replace("--", "-&#45;")
}

fn for_xml(word: &str) -> String {
    word.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_their_format() {
        let word = r#"/a b/50% $x "y" \z 'q'"#;
        assert_eq!(for_systemd(word, true), r#""/a b/50%% $$x \"y\" \\z 'q'""#);
        assert_eq!(for_cron(word), r#"'/a b/50\% $x "y" \z '\''q'\'''"#);
        assert_eq!(for_xml("<a & b>"), "&lt;a &amp; b&gt;");
        assert_eq!(for_cron("/srv/agents"), "/srv/agents");
        assert_eq!(for_cron(r"/a\%b%"), r"'/a\''\%b\%'");
        assert_eq!(for_comment("/a---b--c-d"), "/a-&#45;-b-&#45;c-d");
    }
}
