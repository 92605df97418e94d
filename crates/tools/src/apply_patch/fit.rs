//! Applies the hunks of a patch to a text.
//!
//! Lines are compared exactly, then without trailing white space, then without surrounding white space, and finally
//! with quotes, dashes and spaces normalized to ASCII. Each comparison is only used if the previous one found nothing.
//! Context lines keep their original content and line ending.

use std::ops::Range;

use super::parse::{Hunk, HunkLine};
use crate::text::{line_break, to_ascii_punctuation};

/// UTF-8 byte order mark.
const BOM: char = '\u{feff}';

/// Lines that a hunk expects and the file does not contain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnmatchedHunk(pub(super) String);

/// Returns the text with all hunks applied. Each hunk is searched for below the previous one.
pub(super) fn apply(content: &str, hunks: &[Hunk]) -> Result<String, UnmatchedHunk> {
    let (bom, content) = content.strip_prefix(BOM).map_or(("", content), |rest| (&content[..BOM.len_utf8()], rest));
    let broken: Vec<&str> = content.split_inclusive('\n').collect();
    let lines: Vec<&str> = broken.iter().map(|line| strip_line_break(line)).collect();
    let mut fitted_hunks: Vec<(Range<usize>, &[HunkLine])> = Vec::new();
    let mut from = 0;
    for hunk in hunks {
        let (range, changes) = fit(&lines, from, hunk)?;
        // An insertion at the end of the file must not prevent later hunks from matching before it.
        if !range.is_empty() || !hunk.anchors.is_empty() {
            from = range.end;
        }
        fitted_hunks.push((range, changes));
    }
    fitted_hunks.sort_by_key(|(range, _)| range.start);

    let mut text = LineWriter { text: bom.to_owned(), line_break: line_break(content) };
    let mut next_line = 0;
    for (range, changes) in fitted_hunks {
        broken[next_line..range.start].iter().for_each(|line| text.keep(line));
        next_line = range.start;
        for change in changes {
            match change {
                HunkLine::Keep(_) => text.keep(broken[next_line]),
                HunkLine::Remove(_) => {}
                HunkLine::Add(line) => text.add(line),
            }
            next_line += usize::from(!matches!(change, HunkLine::Add(_)));
        }
    }
    broken[next_line..].iter().for_each(|line| text.keep(line));
    Ok(text.text)
}

fn strip_line_break(line: &str) -> &str {
    line.strip_suffix("\r\n").or(line.strip_suffix('\n')).unwrap_or(line)
}

struct LineWriter {
    text: String,
    line_break: &'static str,
}

impl LineWriter {
    /// Appends a line with its own line ending. Only the last line of a file may have none.
    fn keep(&mut self, line: &str) {
        if !self.text.is_empty() && !self.text.ends_with(['\n', BOM]) {
            self.text.push_str(self.line_break);
        }
        self.text.push_str(line);
    }

    fn add(&mut self, line: &str) {
        self.keep(line);
        self.text.push_str(self.line_break);
    }
}

/// Finds the lines that a hunk replaces, at or below `from`; returns their range and the hunk's lines.
fn fit<'a>(lines: &[&str], mut from: usize, hunk: &'a Hunk) -> Result<(Range<usize>, &'a [HunkLine]), UnmatchedHunk> {
    for above in &hunk.anchors {
        from = 1 + find_lines(lines, &[above.as_str()], from, false).ok_or_else(|| UnmatchedHunk(above.clone()))?;
    }
    let mut changes = hunk.lines.as_slice();
    loop {
        let expected: Vec<&str> = changes.iter().filter_map(expected).collect();
        if expected.is_empty() {
            let at = if hunk.anchors.is_empty() || hunk.is_last { lines.len() } else { from };
            return Ok((at..at, changes));
        }
        if let Some(start) = find_lines(lines, &expected, from, hunk.is_last) {
            return Ok((start..start + expected.len(), changes));
        }
        // A trailing blank line often only separates two hunks.
        match changes {
            [rest @ .., HunkLine::Keep(blank)] if blank.trim().is_empty() && !rest.is_empty() => changes = rest,
            _ => break,
        }
    }
    let expected: Vec<&str> = hunk.lines.iter().filter_map(expected).collect();
    Err(UnmatchedHunk(expected.join("\n")))
}

fn expected(line: &HunkLine) -> Option<&str> {
    match line {
        HunkLine::Keep(line) | HunkLine::Remove(line) => Some(line),
        HunkLine::Add(_) => None,
    }
}

/// Returns the position of `wanted` at or below `from`; with `is_last`, only at the end of the file.
fn find_lines(lines: &[&str], wanted: &[&str], from: usize, is_last: bool) -> Option<usize> {
    let last = lines.len().checked_sub(wanted.len())?;
    let first = if is_last { last.max(from) } else { from };
    let comparisons: [fn(&str, &str) -> bool; 4] = [
        |a, b| a == b,
        |a, b| a.trim_end() == b.trim_end(),
        |a, b| a.trim() == b.trim(),
        |a, b| a.trim().chars().map(to_ascii_punctuation).eq(b.trim().chars().map(to_ascii_punctuation)),
    ];
    comparisons.iter().find_map(|is_equal| {
        let is_match = |at: &usize| lines[*at..].iter().zip(wanted).all(|(line, wanted)| is_equal(line, wanted));
        (first..=last).find(is_match)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::apply_patch::parse::{PatchOp, parse};

    /// Applies hunks given in patch syntax.
    fn patched(content: &str, hunks: &str) -> Result<String, String> {
        let steps = parse(&format!("*** Begin Patch\n*** Update File: a\n{hunks}\n*** End Patch")).unwrap();
        let [PatchOp::Update { hunks, .. }] = steps.as_slice() else { panic!("not one update: {steps:?}") };
        apply(content, hunks).map_err(|UnmatchedHunk(lines)| lines)
    }

    #[test]
    fn hunks_change_what_they_name_and_nothing_else() {
        for (content, hunks, expected) in [
            ("a\nb\nc\n", " a\n-b\n+B\n c", "a\nB\nc\n"),
            ("a\nb\nc\n", "-a\n+A\n@@\n-c\n+C", "A\nb\nC\n"),
            ("x\na\ny\na\n", "@@ y\n-a\n+b", "x\na\ny\nb\n"),
            ("f\n  g\n    a\nf\n  g\n    a\n", "@@ f\n@@   g\n@@ f\n-    a\n+    b", "f\n  g\n    a\nf\n  g\n    b\n"),
            ("a\nb\na\nb\n", "-a\n+c\n b\n*** End of File", "a\nb\nc\nb\n"),
            ("a\n", "+b", "a\nb\n"),
            ("a\nb\n", "@@ a\n+between", "a\nbetween\nb\n"),
            ("a\nb\n", "+end\n@@\n-a\n+A", "A\nb\nend\n"),
            ("", "+first", "first\n"),
            ("a", " a\n+b", "a\nb\n"),
            ("a\nb", "-a\n b", "b"),
            ("a\nb", " a\n-b\n+c", "a\nc\n"),
            ("only\n", "-only", ""),
            ("a\nb\n\n@@\n", " a\n-b\n+c\n\n", "a\nc\n\n@@\n"),
        ] {
            assert_eq!(patched(content, hunks).as_deref(), Ok(expected), "{content:?} {hunks:?}");
        }
    }

    #[test]
    fn line_breaks_and_the_bom_stay() {
        assert_eq!(patched("a\r\nb\r\nc\r\n", " a\n-b\n+x\n+y").as_deref(), Ok("a\r\nx\r\ny\r\nc\r\n"));
        assert_eq!(patched("a\r\nb\nc\r\n", "-a\n+x\n b").as_deref(), Ok("x\r\nb\nc\r\n"));
        assert_eq!(patched("\u{feff}a\nb\n", "-a\n+x").as_deref(), Ok("\u{feff}x\nb\n"));
        assert_eq!(patched("\u{feff}a\nb\n", "-b\n+x").as_deref(), Ok("\u{feff}a\nx\n"));
    }

    #[test]
    fn comparisons_get_looser_and_context_lines_are_kept() {
        assert_eq!(patched("a  \nb\n", " a\n-b\n+c").as_deref(), Ok("a  \nc\n"));
        assert_eq!(patched("    a\n    b\n", " a\n-b\n+    c").as_deref(), Ok("    a\n    c\n"));
        assert_eq!(patched("‘a’ – b\nx\n", " 'a' - b\n-x\n+y").as_deref(), Ok("‘a’ – b\ny\n"));
        assert_eq!(patched(" a\na\n", "-a\n+b").as_deref(), Ok(" a\nb\n"), "an exact line goes first");
    }

    #[test]
    fn missing_lines_are_reported() {
        assert_eq!(patched("a\nb\n", " a\n-c"), Err("a\nc".to_owned()));
        assert_eq!(patched("a\nb\n", "@@ z\n-b"), Err("z".to_owned()));
        assert_eq!(patched("a\nb\n", "-b\n@@\n-a"), Err("a".to_owned()), "hunks go down");
        assert_eq!(patched("a\nb\n", "-a\n*** End of File"), Err("a".to_owned()));
    }

    proptest! {
        #[test]
        fn any_hunk_fits_or_is_reported(content in "[ab \r\n]{0,30}", hunks in "(@@ ?[ab]?\n)?([ +-][ab][ab ]{0,3}\n){1,5}(@@\n[+-][ab]\n)?") {
            if let Ok(text) = patched(&content, &hunks) {
                prop_assert!(hunks.contains("\n-") || hunks.starts_with('-') || text.len() >= content.len());
            }
        }

        #[test]
        fn context_lines_change_nothing(content in "([ab]{1,2}\r?\n){1,6}", from in 0..6_usize, count in 1..4_usize) {
            let from = from % content.lines().count();
            let lines: Vec<_> = content.lines().skip(from).take(count).map(|line| format!(" {line}")).collect();
            prop_assert_eq!(patched(&content, &lines.join("\n")), Ok(content));
        }

        #[test]
        fn any_text_is_a_patch_or_not(middle in "((\\*\\*\\* (Add File: a|Update File: b|Delete File: c|Move to: d|End of File|End Patch)|@@|[ +-]?[ab]?)\n){0,8}") {
            let patch = format!("*** Begin Patch\n{middle}*** End Patch");
            if let Err(error) = parse(&patch) {
                prop_assert!((1..=patch.lines().count()).contains(&error.line), "{:?}", error);
            }
        }
    }
}
