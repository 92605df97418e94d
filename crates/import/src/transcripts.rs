//! Checks transcripts, and decides about each by comparison with the existing one.

use std::{fs, io::ErrorKind, path::Path};

use serde::{Deserialize, de::IgnoredAny};

/// What the import does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportAction {
    /// There is none here yet.
    New,
    /// It continues the existing one.
    Updated,
    /// It exists unchanged.
    Same,
    /// The existing one is kept.
    Kept,
    /// It cannot be used.
    Broken,
}

/// The decision about a transcript.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TranscriptDecision {
    pub(super) fate: ImportAction,
    /// A warning for the user.
    pub remark: Option<String>,
}

/// Decides about one transcript.
pub(crate) fn decide(from: &Path, to: &Path) -> TranscriptDecision {
    let broken =
        |why: &str| TranscriptDecision { fate: ImportAction::Broken, remark: Some(format!("not imported: {why}")) };
    let source = match fs::read(from) {
        Ok(source) => source,
        Err(reason) => return broken(&format!("cannot be read ({reason})")),
    };
    if !source.split(|&byte| byte == b'\n').next().is_some_and(is_header) {
        return broken("the first line is not a session header");
    }
    match fs::read(to) {
        Ok(existing) if existing == source => TranscriptDecision { fate: ImportAction::Same, remark: None },
        Ok(existing) if source.starts_with(&existing) => {
            TranscriptDecision { fate: ImportAction::Updated, remark: damage_warning(&source) }
        }
        Ok(existing) if existing.starts_with(complete_part(&source)) => {
            TranscriptDecision { fate: ImportAction::Kept, remark: None }
        }
        Ok(_) => TranscriptDecision {
            fate: ImportAction::Kept,
            remark: Some(
                "not imported: the session continued in both places; the existing transcript is kept".to_owned(),
            ),
        },
        Err(reason) if reason.kind() == ErrorKind::NotFound => {
            TranscriptDecision { fate: ImportAction::New, remark: damage_warning(&source) }
        }
        Err(reason) => TranscriptDecision {
            fate: ImportAction::Kept,
            remark: Some(format!("the existing transcript cannot be read ({reason})")),
        },
    }
}

/// Returns the transcript up to its last complete line: an incomplete one is moved aside when the session is resumed.
fn complete_part(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)]
}

/// Returns a warning about damaged lines; they are imported unchanged and skipped by readers.
fn damage_warning(bytes: &[u8]) -> Option<String> {
    let is_json = |line: &[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let complete = complete_part(bytes);
    let lines = complete.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let invalid = lines.filter(|line| !is_json(line)).count();
    let tail = &bytes[complete.len()..];
    let is_truncated = !tail.is_empty() && !is_json(tail);
    match (invalid, is_truncated) {
        (0, false) => None,
        (0, true) => Some("ignoring the incomplete last line".to_owned()),
        (invalid, false) => Some(format!("ignoring invalid lines ({invalid})")),
        (invalid, true) => Some(format!("ignoring invalid lines ({invalid}) and the incomplete last line")),
    }
}

fn is_header(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct First {
        r#type: String,
    }
    serde_json::from_slice(line).is_ok_and(|header: First| header.r#type == "session")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "{\"type\":\"session\"}\n";

    fn decided(source: &str, existing: Option<&str>) -> (ImportAction, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, source).unwrap();
        if let Some(existing) = existing {
            fs::write(&to, existing).unwrap();
        }
        let decision = decide(&from, &to);
        (decision.fate, decision.remark)
    }

    #[test]
    fn a_transcript_is_imported_unless_the_existing_one_diverged() {
        let longer = format!("{HEADER}{{\"a\":1}}\n");
        assert_eq!(decided(&longer, None), (ImportAction::New, None));
        assert_eq!(decided(&longer, Some(&longer)), (ImportAction::Same, None));
        assert_eq!(decided(&longer, Some(HEADER)), (ImportAction::Updated, None));
        assert_eq!(decided(HEADER, Some(&longer)), (ImportAction::Kept, None));
        let truncated = format!("{HEADER}{{\"a\":1}}\n{{\"b");
        assert_eq!(
            decided(&truncated, Some(&longer)),
            (ImportAction::Updated, Some("ignoring the incomplete last line".to_owned()))
        );
        let continued = format!("{longer}{{\"c\":1}}\n");
        assert_eq!(decided(&truncated, Some(&continued)), (ImportAction::Kept, None));
        let other = format!("{HEADER}{{\"b\":1}}\n");
        let remark = "not imported: the session continued in both places; the existing transcript is kept";
        assert_eq!(decided(&longer, Some(&other)), (ImportAction::Kept, Some(remark.to_owned())));
    }

    #[test]
    fn damage_is_reported() {
        let warning_for = |text: &str| decided(text, None);
        let no_header = (ImportAction::Broken, Some("not imported: the first line is not a session header".to_owned()));
        assert_eq!(warning_for("garbage\n"), no_header);
        assert_eq!(warning_for(""), no_header);
        let (action, warning) = warning_for(&format!("{HEADER}{{\n\u{0}\n{{}}\n{{\"x\""));
        assert_eq!(
            (action, warning.as_deref()),
            (ImportAction::New, Some("ignoring invalid lines (2) and the incomplete last line"))
        );
        assert_eq!(warning_for(&format!("{HEADER}{{}}")), (ImportAction::New, None));
    }
}
