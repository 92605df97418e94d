//! Messages of commits: an imperative subject of at most 72 characters, and a body where the change is large.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::shell;

/// Commits up to this one are not checked.
const CHECKED_SINCE: &str = "4cf19ded3b27";

/// The longest subject, in characters.
const LONGEST_SUBJECT: usize = 72;

/// Changed lines above which a commit needs a body.
const EXPLAINED: usize = 50;

/// Endings of verbs that are not imperatives.
const NOT_IMPERATIVE: [&str; 2] = ["ing", "ed"];

/// Imperatives that have one of the endings of [`NOT_IMPERATIVE`].
const IMPERATIVES: [&str; 6] = ["bring", "embed", "feed", "need", "seed", "shed"];

/// Reports the problems of each commit since [`CHECKED_SINCE`]. A clone without that commit is not checked.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let base = Command::new("git").args(["cat-file", "-e", CHECKED_SINCE]).current_dir(root).output();
    if !base.is_ok_and(|base| base.status.success()) {
        return Ok(Vec::new());
    }
    let mut git = Command::new("git");
    let range = format!("{CHECKED_SINCE}..HEAD");
    // One record for each commit: its id, subject and body; then a line for each file with the lines added and removed.
    git.args(["log", "--no-merges", "--numstat", "--format=%x01%h%x02%s%x02%b%x02", &range]).current_dir(root);
    let log = String::from_utf8_lossy(&shell::output(&mut git)?).into_owned();
    Ok(log.split('\u{1}').filter_map(problem).collect())
}

/// Returns the problem of a commit of the log, if it has one.
fn problem(commit: &str) -> Option<String> {
    let mut parts = commit.split('\u{2}');
    let (id, subject, body, files) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let length = subject.chars().count();
    if length > LONGEST_SUBJECT {
        return Some(format!("commit {id}: the subject has {length} characters; at most {LONGEST_SUBJECT}"));
    }
    let summary = subject.split_once(": ").map_or(subject, |(_, summary)| summary);
    let verb = summary.split_whitespace().next().unwrap_or_default().to_lowercase();
    let is_not_imperative =
        NOT_IMPERATIVE.iter().any(|ending| verb.ends_with(ending)) && !IMPERATIVES.contains(&verb.as_str());
    if is_not_imperative {
        return Some(format!("commit {id}: `{summary}` begins with `{verb}`; use the imperative"));
    }
    let number = |field: Option<&str>| field.and_then(|field| field.parse::<usize>().ok()).unwrap_or(0);
    let changed = |line: &str| {
        let mut fields = line.split('\t');
        number(fields.next()) + number(fields.next())
    };
    let lines: usize = files.lines().map(changed).sum();
    (lines > EXPLAINED && body.trim().is_empty())
        .then(|| format!("commit {id}: changes {lines} lines, but has no body that explains why"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(subject: &str, body: &str, lines: usize) -> Option<String> {
        problem(&format!("abc\u{2}{subject}\u{2}{body}\u{2}\n\n{lines}\t0\ta.rs\n-\t-\tb.png\n"))
    }

    #[test]
    fn subjects_are_short_and_imperative() {
        assert_eq!(complaint("tools: put back protected files", "", 50), None);
        assert_eq!(complaint("tools: embed a font", "", 1), None);
        assert_eq!(
            complaint("tools: added a font", "", 1).as_deref(),
            Some("commit abc: `added a font` begins with `added`; use the imperative")
        );
        let long = "x".repeat(73);
        assert_eq!(complaint(&long, "", 1).as_deref(), Some("commit abc: the subject has 73 characters; at most 72"));
    }

    #[test]
    fn large_changes_have_a_body() {
        assert_eq!(complaint("tools: add a font", "Because.", 51), None);
        assert_eq!(
            complaint("tools: add a font", " \n", 51).as_deref(),
            Some("commit abc: changes 51 lines, but has no body that explains why")
        );
    }
}
