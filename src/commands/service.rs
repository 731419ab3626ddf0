//! Command `service`: prints configuration for a service manager that ticks a state directory.

use std::path::Path;

use minijinja::value::Serde;
use minijinja::{AutoEscape, UndefinedBehavior, Value};
use serde_json::json;

use crate::cli::{self, ServiceManager};
use crate::engine::session::Session;
use crate::error::{Error, IoContext, Result, Status};
use crate::report::text::templates;
use crate::store::Store;

use super::args::answer_verbatim;

pub fn service(session: &Session, store: &Store, args: cli::ServiceArgs) -> Result<Status> {
    // The user's service manager runs commands as that user, who must own the state directory.
    let is_owner = store.local().root.check_may_change();
    let user = if args.user {
        is_owner.map(|()| true)?
    } else {
        !args.system && is_owner.is_ok() && !rustix::process::geteuid().is_root()
    };
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    let dir = store.anchor().path();
    let dir = std::path::absolute(dir).context("find", dir)?;
    let home = dir.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let plain: String = home.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let name = if plain.is_empty() { "dormouse".to_owned() } else { format!("dormouse-{plain}") };
    let below = |of_user, of_machine| if user { of_user } else { of_machine };
    let unit = |ending| format!("{}/{name}.{ending}", below("~/.config/systemd/user", "/etc/systemd/system"));
    let files = match (args.manager, args.follow) {
        (ServiceManager::Systemd, true) => {
            vec![(unit("service"), include_str!("service/following.service"))]
        }
        (ServiceManager::Systemd, false) => vec![
            (unit("service"), include_str!("service/round.service")),
            (unit("timer"), include_str!("service/round.timer")),
        ],
        (ServiceManager::Cron, false) => {
            let path = if user { "crontab -e".to_owned() } else { format!("/etc/cron.d/{name}") };
            vec![(path, include_str!("service/crontab"))]
        }
        (ServiceManager::Launchd, false) => {
            let parent = below("~/Library/LaunchAgents", "/Library/LaunchDaemons");
            vec![(format!("{parent}/{name}.plist"), include_str!("service/launchd.plist"))]
        }
        (ServiceManager::Cron | ServiceManager::Launchd, true) => {
            return Err(Error::usage("--follow: only systemd keeps a process running")
                .with_hint("start `dormouse tick --all --follow` in another way"));
        }
    };
    let mut spec = json!({
        "program": word(&program)?,
        "dir": word(&dir)?,
        "name": name,
        "owner": store.local().owner(),
        "user": user,
        "ctl": below("systemctl --user", "systemctl"),
        "jobs": args.jobs,
    });
    if files.len() > 1 && !session.out.is_json() {
        session.out.note("these are two files: each begins with a comment that is its path");
    }
    for (path, template) in files {
        spec["path"] = json!(path);
        let text = render(template, &spec).map_err(|error| Error::failed(format!("{path}: {error}")))?;
        // The text is installed as printed, so nothing is escaped.
        answer_verbatim(session, &json!({ "path": path, "text": text }), &text)?;
    }
    Ok(Status::Done)
}

/// Renders a template with the values that it names.
fn render(template: &str, spec: &serde_json::Value) -> Result<String, minijinja::Error> {
    let mut environment = templates(AutoEscape::None, UndefinedBehavior::Strict)?;
    environment.add_filter("specifiers", |text: &str| for_specifiers(text));
    environment.add_filter("command", |word: &str| for_systemd(word, false));
    environment.add_filter("argument", |word: &str| for_systemd(word, true));
    environment.add_filter("cron", |word: &str| for_cron(word));
    environment.add_filter("comment", |text: &str| for_comment(text));
    environment.add_filter("xml", |word: &str| for_xml(word));
    environment.render_str(template, Value::from(Serde(spec)))
}

/// Returns a path as text. A character that a line of text or XML can't contain is refused.
fn word(path: &Path) -> Result<String> {
    let is_refused = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    let text = path.to_str().filter(|text| !text.contains(is_refused));
    text.map(str::to_owned).ok_or_else(|| {
        let why = "a path with control characters, or that is not UTF-8, can't stand in such a file";
        Error::refused("path_not_text", format!("{}: {why}", path.display()))
            .with_hint("rename it, or name it by a link")
    })
}

/// Escapes percent signs, which begin specifiers in unit files of systemd.
fn for_specifiers(word: &str) -> String {
    word.replace('%', "%%")
}

/// Quotes a word of a systemd command line. In an argument, `$` begins a variable.
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
    // cron removes a backslash before a percent sign, unless a pair of quotes separates them.
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
