//! Changes the config file: only valid files are written, and no concurrent change is lost.

use std::{fmt, path::PathBuf};

use homard_audit::{Fact, What};
use homard_config::{
    Loaded, Problem, diff,
    edit::{self, EditError},
    path::Path,
    redact,
    write::{WriteError, write},
};
use serde_json::{Value, json};

use super::Config;
use crate::{audit, paths::Paths};

/// Maximum attempts of a user's change if others change the file at the same time.
const TRIES: usize = 100;

/// Who makes a change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'a> {
    /// A user at the command line, who means the current file. Existing errors may remain.
    Person,
    /// A client, which names the hash of the file that it has read. Errors may remain only in parts that are already
    /// disabled, such as a channel whose variable is not set.
    Client(Option<&'a str>),
}

/// A change that was made.
#[derive(Debug)]
pub(crate) struct Change {
    /// The keys that changed.
    pub(crate) changed: Vec<String>,
    /// Path of the backup of the previous version.
    pub(crate) backup: Option<PathBuf>,
    /// The new config.
    pub(crate) after: Loaded<Config>,
    /// Warnings that are new.
    pub(crate) warnings: Vec<Problem>,
}

/// Why nothing was changed.
#[derive(Debug)]
pub(crate) enum Refusal {
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
    Invalid(Vec<Problem>),
    /// It could not be written.
    Write(WriteError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Clients match this text.
            Self::Stale => f.write_str("config base hash required; re-run config.get and retry"),
            Self::Unreadable(why) => write!(f, "the config cannot be changed: {why}"),
            Self::Edit(error) => write!(f, "{error}"),
            Self::Missing => f.write_str("there is no such value in the config file"),
            Self::Hidden(paths) => {
                let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
                let sentinel = redact::REDACTED;
                write!(f, "{sentinel} stands for a secret that is not shown, and {} has none", paths.join(", "))
            }
            Self::Invalid(problems) => {
                f.write_str("nothing was changed, because the config would not be valid:")?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
            Self::Write(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Refusal {
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

impl From<EditError> for Refusal {
    fn from(error: EditError) -> Self {
        Self::Edit(error)
    }
}

/// Edits the file's text and writes the result if it is valid.
pub(crate) fn change(
    paths: &Paths,
    by: By<'_>,
    edit: impl Fn(&str) -> Result<String, Refusal>,
) -> Result<Change, Refusal> {
    for _ in 0..TRIES {
        match (once(&paths.config, by, &edit), by) {
            (Ok(done), By::Person | By::Client(_)) => {
                note(paths, by, &done);
                return Ok(done);
            }
            (Err(Refusal::Write(WriteError::Conflict)), By::Person) => {}
            (Err(Refusal::Write(WriteError::Conflict)), By::Client(_)) => return Err(Refusal::Stale),
            (done, By::Person | By::Client(_)) => return done,
        }
    }
    Err(Refusal::Write(WriteError::Conflict))
}

/// Records in the audit log which keys changed, without their values.
fn note(paths: &Paths, by: By<'_>, done: &Change) {
    let who = match by {
        By::Person => "command line",
        By::Client(_) => "client",
    };
    let fact = Fact::new(What::ConfigWritten).by(who).with("keys", &done.changed.join(" "));
    audit::note(paths, fact.with("now", &done.after.hash));
}

fn once(file: &std::path::Path, by: By<'_>, edit: &dyn Fn(&str) -> Result<String, Refusal>) -> Result<Change, Refusal> {
    let before = Config::read_file(file);
    let text = match (&before.text, before.problems.first()) {
        (Some(text), _) => text.as_str(),
        (None, None) => "",
        (None, Some(problem)) => return Err(Refusal::Unreadable(problem.to_string())),
    };
    if let By::Client(base) = by
        && before.text.is_some()
        && !base.is_some_and(|base| base.trim().eq_ignore_ascii_case(&before.hash))
    {
        return Err(Refusal::Stale);
    }
    let new = with_secrets(edit(text)?, text)?;
    let after = Config::read(file, &new);
    let was_there =
        |told: &[Problem], one: &Problem| told.iter().any(|old| (&old.path, &old.what) == (&one.path, &one.what));
    let may_stay = |problem: &&Problem| matches!(by, By::Person) && was_there(&before.problems, problem);
    let problems = after.problems.iter().filter(|problem| !may_stay(problem));
    let known = before.wrong();
    let faults = after.faults.iter().map(|fault| &fault.problem).filter(|fault| !was_there(&known, fault));
    let wrong: Vec<_> = problems.chain(faults).cloned().collect();
    if !wrong.is_empty() {
        return Err(Refusal::Invalid(wrong));
    }
    let written = write(file, Some(&before.hash), &new, |_| Ok(())).map_err(Refusal::Write)?;
    let changed = diff::changed(&before.source, &after.source).iter().map(ToString::to_string).collect();
    let warnings = after.warnings.iter().filter(|warning| !was_there(&before.warnings, warning)).cloned().collect();
    Ok(Change { changed, backup: written.backup, after, warnings })
}

/// Replaces redaction placeholders by the secrets of the old text.
fn with_secrets(new: String, old: &str) -> Result<String, Refusal> {
    if !new.contains(redact::REDACTED) {
        return Ok(new);
    }
    let mut value = edit::value(&new)?;
    redact::restore(&mut value, &edit::value(old)?).map_err(Refusal::Hidden)?;
    // Edits the old text, so that a secret keeps its spelling there.
    Ok(edit::replace(old, &value)?)
}

/// Returns a problem as JSON.
pub(crate) fn issue(problem: &Problem) -> Value {
    let help = problem.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    let mut issue = json!({"path": problem.path, "message": format!("{}{help}", problem.what)});
    if let Some(place) = &problem.place {
        issue["line"] = place.line.into();
        issue["column"] = place.column.into();
        if let Some(file) = &place.file {
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
    fn changed(text: &str, by: By<'_>, path: &str, value: &Value) -> (Result<Vec<String>, String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("homard.json");
        fs::write(&file, text).unwrap();
        let path: Path = path.parse().unwrap();
        let paths = Paths { state: folder.path().to_owned(), config: file.clone() };
        let done = change(&paths, by, |text| Ok(edit::set(text, &path, value)?));
        (done.map(|change| change.changed).map_err(|refusal| refusal.to_string()), fs::read_to_string(file).unwrap())
    }

    #[test]
    fn a_person_may_leave_what_was_wrong_and_a_client_may_not() {
        let text = "{gateway: {prot: 1}}";
        let (done, after) = changed(text, By::Person, "gateway.port", &json!(2));
        assert_eq!((done, after.as_str()), (Ok(vec!["gateway.port".to_owned()]), "{gateway: {prot: 1, \"port\": 2}}"));
        let (done, after) = changed(text, By::Person, "gateway.bnid", &json!("x"));
        let wrong = "nothing was changed, because the config would not be valid:\n  \
                     line 1, column 21: gateway.bnid is not a known key; did you mean \"bind\"?";
        assert_eq!((done, after.as_str()), (Err(wrong.to_owned()), text));
        let hash = homard_config::write::hash(text.as_bytes());
        let (done, after) = changed(text, By::Client(Some(&hash)), "gateway.port", &json!(2));
        assert!(done.unwrap_err().contains("gateway.prot is not a known key"));
        assert_eq!(after, text);
    }

    #[test]
    fn a_client_says_what_it_read() {
        let stale = Err("config base hash required; re-run config.get and retry".to_owned());
        for base in [None, Some(""), Some("abc")] {
            assert_eq!(changed("{}", By::Client(base), "gateway.port", &json!(2)), (stale.clone(), "{}".to_owned()));
        }
        let hash = homard_config::write::hash(b"{}");
        let (done, _) = changed("{}", By::Client(Some(&hash)), "gateway.port", &json!(2));
        assert_eq!(done, Ok(vec!["gateway.port".to_owned()]));
    }

    #[test]
    fn what_stands_for_a_secret_is_that_secret() {
        let text = "{gateway: {auth: {token: 'hush'}, /* mine */ port: 1}}";
        let shown = json!({"auth": {"token": redact::REDACTED}, "port": 2});
        let (done, after) = changed(text, By::Person, "gateway", &shown);
        assert_eq!((done, after), (Ok(vec!["gateway.port".to_owned()]), text.replace('1', "2")));
        let (done, after) = changed(text, By::Person, "gateway.auth.password", &json!(redact::REDACTED));
        let wrong = "__OPENCLAW_REDACTED__ stands for a secret that is not shown, and gateway.auth.password has none";
        assert_eq!((done, after.as_str()), (Err(wrong.to_owned()), text));
    }
}
