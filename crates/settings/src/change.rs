//! Changes the config file: only valid files are written, and no concurrent change is lost.

use std::{fmt, path::PathBuf};

use homard_audit::{AuditKind, AuditRecord};
use homard_config::{
    ConfigProblem, LoadedConfig, diff,
    edit::{self, EditError},
    path::Path,
    redact,
    write::{WriteError, write},
};
use serde_json::{Value, json};

use super::Config;
use crate::{audit_log, paths::Paths};

/// Maximum attempts of a user's change if others change the file at the same time.
const MAX_ATTEMPTS: usize = 100;

/// Who makes a change.
#[derive(Debug, Clone, Copy)]
pub enum ChangeAuthor<'a> {
    /// A user at the command line, who means the current file. Existing errors may remain.
    User,
    /// A client, which names the hash of the file that it has read. Errors may remain only in parts that are already
    /// disabled, such as a channel whose variable is not set.
    Client(Option<&'a str>),
}

/// A change that was made.
#[derive(Debug)]
pub struct ConfigChange {
    /// The keys that changed.
    pub changed: Vec<String>,
    /// Path of the backup of the previous version.
    pub backup: Option<PathBuf>,
    /// The new config.
    pub after: LoadedConfig<Config>,
    /// Warnings that are new.
    pub warnings: Vec<ConfigProblem>,
}

/// Why nothing was changed.
#[derive(Debug)]
pub enum ConfigChangeError {
    /// The file is not the one that the client read, or the client does not name one.
    Stale,
    /// The file cannot be read.
    Unreadable(String),
    /// The text cannot be edited in this way.
    Edit(EditError),
    /// The value to remove does not exist.
    Missing,
    /// The redaction placeholder is used where there was no secret.
    Hidden(Vec<Path>),
    /// The errors that the file would have.
    Invalid(Vec<ConfigProblem>),
    /// It could not be written.
    Write(WriteError),
}

impl fmt::Display for ConfigChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Clients match this text.
            Self::Stale => f.write_str("config base hash required; re-run config.get and retry"),
            Self::Unreadable(why) => write!(f, "the config cannot be changed: {why}"),
            Self::Edit(error) => write!(f, "{error}"),
            Self::Missing => f.write_str("the value was not found in the config file"),
            Self::Hidden(paths) => {
                let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
                let sentinel = redact::REDACTED;
                write!(f, "{sentinel} is the placeholder of a redacted secret, but {} has no secret", paths.join(", "))
            }
            Self::Invalid(problems) => {
                f.write_str("nothing was changed, because the config would not be valid:")?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
            Self::Write(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ConfigChangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write(WriteError::Disk { source, .. }) => Some(source),
            Self::Write(WriteError::Conflict | WriteError::Refused(_))
            | Self::Stale
            | Self::Unreadable(_)
            | Self::Edit(_)
            | Self::Missing
            | Self::Hidden(_)
            | Self::Invalid(_) => None,
        }
    }
}

impl From<EditError> for ConfigChangeError {
    fn from(error: EditError) -> Self {
        Self::Edit(error)
    }
}

/// Edits the file's text and writes the result if it is valid.
pub fn change(
    paths: &Paths,
    author: ChangeAuthor<'_>,
    edit: impl Fn(&str) -> Result<String, ConfigChangeError>,
) -> Result<ConfigChange, ConfigChangeError> {
    for _ in 0..MAX_ATTEMPTS {
        match (try_change(&paths.config, author, &edit), author) {
            (Ok(outcome), ChangeAuthor::User | ChangeAuthor::Client(_)) => {
                record_change(paths, author, &outcome);
                return Ok(outcome);
            }
            (Err(ConfigChangeError::Write(WriteError::Conflict)), ChangeAuthor::User) => {}
            (Err(ConfigChangeError::Write(WriteError::Conflict)), ChangeAuthor::Client(_)) => {
                return Err(ConfigChangeError::Stale);
            }
            (outcome, ChangeAuthor::User | ChangeAuthor::Client(_)) => return outcome,
        }
    }
    Err(ConfigChangeError::Write(WriteError::Conflict))
}

/// Records in the audit log which keys changed, without their values.
fn record_change(paths: &Paths, author: ChangeAuthor<'_>, change: &ConfigChange) {
    let actor = match author {
        ChangeAuthor::User => "command line",
        ChangeAuthor::Client(_) => "client",
    };
    let record = AuditRecord::new(AuditKind::ConfigWritten).actor(actor).with("keys", &change.changed.join(" "));
    audit_log::note(paths, record.with("now", &change.after.hash));
}

fn try_change(
    file: &std::path::Path,
    author: ChangeAuthor<'_>,
    edit: &dyn Fn(&str) -> Result<String, ConfigChangeError>,
) -> Result<ConfigChange, ConfigChangeError> {
    let before = Config::read_file(file);
    let text = match (&before.text, before.problems.first()) {
        (Some(text), _) => text.as_str(),
        (None, None) => "",
        (None, Some(problem)) => return Err(ConfigChangeError::Unreadable(problem.to_string())),
    };
    if let ChangeAuthor::Client(base) = author
        && before.text.is_some()
        && !base.is_some_and(|base| base.trim().eq_ignore_ascii_case(&before.hash))
    {
        return Err(ConfigChangeError::Stale);
    }
    let new = with_secrets(edit(text)?, text)?;
    let after = Config::read(file, &new);
    let is_known = |list: &[ConfigProblem], candidate: &ConfigProblem| {
        list.iter().any(|old| (&old.path, &old.message) == (&candidate.path, &candidate.message))
    };
    let is_tolerated =
        |problem: &&ConfigProblem| matches!(author, ChangeAuthor::User) && is_known(&before.problems, problem);
    let problems = after.problems.iter().filter(|problem| !is_tolerated(problem));
    let known = before.all_problems();
    let faults = after.faults.iter().map(|fault| &fault.problem).filter(|fault| !is_known(&known, fault));
    let new_problems: Vec<_> = problems.chain(faults).cloned().collect();
    if !new_problems.is_empty() {
        return Err(ConfigChangeError::Invalid(new_problems));
    }
    let written = write(file, Some(&before.hash), &new, |_| Ok(())).map_err(ConfigChangeError::Write)?;
    let changed = diff::changed(&before.source, &after.source).iter().map(ToString::to_string).collect();
    let warnings = after.warnings.iter().filter(|warning| !is_known(&before.warnings, warning)).cloned().collect();
    Ok(ConfigChange { changed, backup: written.backup, after, warnings })
}

/// Replaces redaction placeholders by the secrets of the old text.
fn with_secrets(new: String, old: &str) -> Result<String, ConfigChangeError> {
    if !new.contains(redact::REDACTED) {
        return Ok(new);
    }
    let mut value = edit::value(&new)?;
    redact::restore(&mut value, &edit::value(old)?).map_err(ConfigChangeError::Hidden)?;
    // Edits the old text, so that a secret keeps its spelling there.
    Ok(edit::replace(old, &value)?)
}

/// Returns a problem as JSON.
pub fn issue(problem: &ConfigProblem) -> Value {
    let help = problem.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    let mut issue = json!({"path": problem.path, "message": format!("{}{help}", problem.message)});
    if let Some(position) = &problem.location {
        issue["line"] = position.line.into();
        issue["column"] = position.column.into();
        if let Some(file) = &position.file {
            issue["file"] = json!(file);
        }
    }
    issue
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Changes a file; returns the result and the text afterwards.
    fn changed(
        text: &str,
        author: ChangeAuthor<'_>,
        path: &str,
        value: &Value,
    ) -> (Result<Vec<String>, String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("homard.json");
        fs::write(&file, text).unwrap();
        let path: Path = path.parse().unwrap();
        let paths = Paths { state: folder.path().to_owned(), config: file.clone() };
        let outcome = change(&paths, author, |text| Ok(edit::set(text, &path, value)?));
        (outcome.map(|change| change.changed).map_err(|error| error.to_string()), fs::read_to_string(file).unwrap())
    }

    #[test]
    fn a_user_may_leave_existing_problems_and_a_client_may_not() {
        let text = "{gateway: {prot: 1}}";
        let (outcome, after) = changed(text, ChangeAuthor::User, "gateway.port", &json!(2));
        assert_eq!(
            (outcome, after.as_str()),
            (Ok(vec!["gateway.port".to_owned()]), "{gateway: {prot: 1, \"port\": 2}}")
        );
        let (outcome, after) = changed(text, ChangeAuthor::User, "gateway.bnid", &json!("x"));
        let expected = "nothing was changed, because the config would not be valid:\n  \
                     line 1, column 21: gateway.bnid is not a known key; did you mean \"bind\"?";
        assert_eq!((outcome, after.as_str()), (Err(expected.to_owned()), text));
        let hash = homard_config::write::hash(text.as_bytes());
        let (outcome, after) = changed(text, ChangeAuthor::Client(Some(&hash)), "gateway.port", &json!(2));
        assert!(outcome.unwrap_err().contains("gateway.prot is not a known key"));
        assert_eq!(after, text);
    }

    #[test]
    fn a_client_must_send_the_hash_it_read() {
        let stale = Err("config base hash required; re-run config.get and retry".to_owned());
        for base in [None, Some(""), Some("abc")] {
            assert_eq!(
                changed("{}", ChangeAuthor::Client(base), "gateway.port", &json!(2)),
                (stale.clone(), "{}".to_owned())
            );
        }
        let hash = homard_config::write::hash(b"{}");
        let (outcome, _) = changed("{}", ChangeAuthor::Client(Some(&hash)), "gateway.port", &json!(2));
        assert_eq!(outcome, Ok(vec!["gateway.port".to_owned()]));
    }

    #[test]
    fn a_redacted_value_keeps_the_secret() {
        let text = "{gateway: {auth: {token: 'hush'}, /* mine */ port: 1}}";
        let redacted = json!({"auth": {"token": redact::REDACTED}, "port": 2});
        let (outcome, after) = changed(text, ChangeAuthor::User, "gateway", &redacted);
        assert_eq!((outcome, after), (Ok(vec!["gateway.port".to_owned()]), text.replace('1', "2")));
        let (outcome, after) = changed(text, ChangeAuthor::User, "gateway.auth.password", &json!(redact::REDACTED));
        let expected =
            "__OPENCLAW_REDACTED__ is the placeholder of a redacted secret, but gateway.auth.password has no secret";
        assert_eq!((outcome, after.as_str()), (Err(expected.to_owned()), text));
    }
}
