//! Checks transcripts, and decides about each by comparison with the existing one.

use std::{fs, io::ErrorKind, path::Path};

use serde::{Deserialize, de::IgnoredAny};

/// What the import does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
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
pub(super) struct Look {
    pub(super) fate: Fate,
    /// A warning for the user.
    pub(super) remark: Option<String>,
}

/// Decides about one transcript.
pub(super) fn look(from: &Path, to: &Path) -> Look {
    let broken = |why: &str| Look { fate: Fate::Broken, remark: Some(format!("not imported: {why}")) };
    let theirs = match fs::read(from) {
        Ok(theirs) => theirs,
        Err(reason) => return broken(&format!("it cannot be read ({reason})")),
    };
    if !theirs.split(|&byte| byte == b'\n').next().is_some_and(is_header) {
        return broken("it does not begin with a session header");
    }
    match fs::read(to) {
        Ok(ours) if ours == theirs => Look { fate: Fate::Same, remark: None },
        Ok(ours) if theirs.starts_with(&ours) => Look { fate: Fate::Updated, remark: flaws(&theirs) },
        Ok(ours) if ours.starts_with(whole(&theirs)) => Look { fate: Fate::Kept, remark: None },
        Ok(_) => Look {
            fate: Fate::Kept,
            remark: Some("not imported: it went on both here and there; the one here stays".to_owned()),
        },
        Err(reason) if reason.kind() == ErrorKind::NotFound => Look { fate: Fate::New, remark: flaws(&theirs) },
        Err(reason) => Look { fate: Fate::Kept, remark: Some(format!("the one here cannot be read ({reason})")) },
    }
}

/// Returns the transcript up to its last complete line: an incomplete one is moved aside when the session is resumed.
fn whole(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)]
}

/// Returns a warning about damaged lines; they are imported unchanged and skipped by readers.
fn flaws(bytes: &[u8]) -> Option<String> {
    let is_json = |line: &[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let whole = whole(bytes);
    let lines = whole.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let garbled = lines.filter(|line| !is_json(line)).count();
    let tail = &bytes[whole.len()..];
    let torn = !tail.is_empty() && !is_json(tail);
    match (garbled, torn) {
        (0, false) => None,
        (0, true) => Some("its last line is torn and does not count".to_owned()),
        (garbled, false) => Some(format!("{garbled} of its lines make no sense and do not count")),
        (garbled, true) => {
            Some(format!("{garbled} of its lines make no sense, the last one is torn; they do not count"))
        }
    }
}

fn is_header(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct First {
        r#type: String,
    }
    serde_json::from_slice(line).is_ok_and(|first: First| first.r#type == "session")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "{\"type\":\"session\"}\n";

    fn decided(theirs: &str, ours: Option<&str>) -> (Fate, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, theirs).unwrap();
        if let Some(ours) = ours {
            fs::write(&to, ours).unwrap();
        }
        let look = look(&from, &to);
        (look.fate, look.remark)
    }

    #[test]
    fn a_transcript_is_imported_unless_the_one_here_went_another_way() {
        let grown = format!("{HEADER}{{\"a\":1}}\n");
        assert_eq!(decided(&grown, None), (Fate::New, None));
        assert_eq!(decided(&grown, Some(&grown)), (Fate::Same, None));
        assert_eq!(decided(&grown, Some(HEADER)), (Fate::Updated, None));
        assert_eq!(decided(HEADER, Some(&grown)), (Fate::Kept, None));
        let torn = format!("{HEADER}{{\"a\":1}}\n{{\"b");
        assert_eq!(
            decided(&torn, Some(&grown)),
            (Fate::Updated, Some("its last line is torn and does not count".to_owned()))
        );
        let went_on = format!("{grown}{{\"c\":1}}\n");
        assert_eq!(decided(&torn, Some(&went_on)), (Fate::Kept, None));
        let other = format!("{HEADER}{{\"b\":1}}\n");
        let remark = "not imported: it went on both here and there; the one here stays";
        assert_eq!(decided(&grown, Some(&other)), (Fate::Kept, Some(remark.to_owned())));
    }

    #[test]
    fn what_is_damaged_is_told() {
        let remark = |text: &str| decided(text, None);
        let no_header = (Fate::Broken, Some("not imported: it does not begin with a session header".to_owned()));
        assert_eq!(remark("garbage\n"), no_header);
        assert_eq!(remark(""), no_header);
        let (fate, told) = remark(&format!("{HEADER}{{\n\u{0}\n{{}}\n{{\"x\""));
        assert_eq!(
            (fate, told.as_deref()),
            (Fate::New, Some("2 of its lines make no sense, the last one is torn; they do not count"))
        );
        assert_eq!(remark(&format!("{HEADER}{{}}")), (Fate::New, None));
    }
}
