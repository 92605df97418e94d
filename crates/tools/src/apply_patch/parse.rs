//! Parser for the patch format that models write.
//!
//! ```text
//! *** Begin Patch
//! *** Add File: new.txt
//! +every line of it
//! *** Update File: old.txt
//! *** Move to: other.txt
//! @@ a line above, to say where
//!  a line that stays
//! -a line that goes
//! +a line that comes
//! *** End of File
//! *** Delete File: gone.txt
//! *** End Patch
//! ```

/// One file operation of a patch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PatchOp {
    /// Creates the file.
    Add { path: String, content: String },
    /// Removes the file.
    Delete { path: String },
    /// Changes the file and optionally moves it.
    Update { path: String, to: Option<String>, hunks: Vec<Hunk> },
}

/// A group of lines that change together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Anchor lines from `@@`, each searched for below the previous one.
    pub(super) anchors: Vec<String>,
    /// Context, removed and added lines.
    pub(super) lines: Vec<HunkLine>,
    /// True if the hunk must match the end of the file.
    pub(super) is_last: bool,
}

/// A line of a hunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HunkLine {
    /// Context.
    Keep(String),
    /// Removed.
    Remove(String),
    /// Added.
    Add(String),
}

/// Why a text is not a valid patch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PatchSyntaxError {
    /// Line number, counted from 1.
    pub(super) line: usize,
    /// What is wrong in that line.
    pub(super) message: String,
}

/// Parses a patch.
pub(super) fn parse(input: &str) -> Result<Vec<PatchOp>, PatchSyntaxError> {
    let mut lines: Vec<&str> = input.trim().split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let mut at = 0;
    // Some models wrap the patch in a shell here-document.
    if let [first, .., last] = lines.as_slice()
        && matches!(*first, "<<EOF" | "<<'EOF'" | "<<\"EOF\"")
        && last.trim() == "EOF"
    {
        lines.pop();
        at = 1;
    }
    while lines.last().is_some_and(|last| last.trim().is_empty()) {
        lines.pop();
    }
    let mut parser = PatchParser { lines, at };
    if parser.next().is_none_or(|line| line.trim() != "*** Begin Patch") {
        return Err(PatchSyntaxError { line: at + 1, message: "a patch begins with *** Begin Patch".to_owned() });
    }
    if parser.lines.pop().is_none_or(|line| line.trim() != "*** End Patch") || parser.lines.len() <= at {
        let line = parser.lines.len() + 1;
        return Err(PatchSyntaxError { line, message: "a patch ends with *** End Patch".to_owned() });
    }
    let mut steps = Vec::new();
    while parser.peek().is_some() {
        steps.extend(parser.step()?);
    }
    Ok(steps)
}

struct PatchParser<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> PatchParser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// Returns an error for the current line.
    fn error(&self, message: impl Into<String>) -> PatchSyntaxError {
        PatchSyntaxError { line: self.at + 1, message: message.into() }
    }

    /// Returns the path after `marker` if the current line starts with it.
    fn path(&mut self, marker: &str) -> Result<Option<String>, PatchSyntaxError> {
        let Some(path) = self.peek().and_then(|line| line.trim().strip_prefix(marker)) else { return Ok(None) };
        if path.trim().is_empty() {
            return Err(self.error("a path is missing"));
        }
        self.at += 1;
        Ok(Some(path.trim().to_owned()))
    }

    /// Parses the next file operation; `None` for a blank line between two.
    fn step(&mut self) -> Result<Option<PatchOp>, PatchSyntaxError> {
        if self.peek().is_some_and(|line| line.trim().is_empty()) {
            self.at += 1;
            return Ok(None);
        }
        if let Some(path) = self.path("*** Add File:")? {
            let mut content = String::new();
            while let Some(line) = self.peek().and_then(|line| line.strip_prefix('+')) {
                content.push_str(line);
                content.push('\n');
                self.at += 1;
            }
            return match self.peek() {
                Some(line) if !line.starts_with("***") && !line.trim().is_empty() => {
                    Err(self.error("every line of a new file starts with +"))
                }
                Some(_) | None => Ok(Some(PatchOp::Add { path, content })),
            };
        }
        if let Some(path) = self.path("*** Delete File:")? {
            return Ok(Some(PatchOp::Delete { path }));
        }
        let Some(path) = self.path("*** Update File:")? else {
            return Err(self.error("expected *** Add File: path, *** Update File: path or *** Delete File: path"));
        };
        let to = self.path("*** Move to:")?;
        let hunks = self.hunks()?;
        if hunks.is_empty() && to.is_none() {
            return Err(self.error(format!("no hunks and no *** Move to for {path}")));
        }
        Ok(Some(PatchOp::Update { path, to, hunks }))
    }

    fn hunks(&mut self) -> Result<Vec<Hunk>, PatchSyntaxError> {
        let mut hunks = Vec::new();
        while let Some(line) = self.peek() {
            if line.starts_with("***") {
                break;
            }
            // Blank lines are skipped between hunks only; inside a hunk they are context lines.
            if line.trim().is_empty() {
                self.at += 1;
                continue;
            }
            hunks.push(self.hunk()?);
        }
        Ok(hunks)
    }

    fn hunk(&mut self) -> Result<Hunk, PatchSyntaxError> {
        let mut hunk = Hunk::default();
        while let Some(above) = self.peek().and_then(|line| line.strip_prefix("@@")) {
            hunk.anchors.extend(anchor(above));
            self.at += 1;
        }
        while let Some(line) = self.peek() {
            if line.trim_end() == "*** End of File" {
                self.at += 1;
                hunk.is_last = true;
                break;
            }
            if line.starts_with("***") || line.starts_with("@@") {
                break;
            }
            let mut rest = line.chars();
            let kind = rest.next();
            let text = rest.as_str().to_owned();
            hunk.lines.push(match kind {
                Some(' ') | None => HunkLine::Keep(text),
                Some('-') => HunkLine::Remove(text),
                Some('+') => HunkLine::Add(text),
                Some(_) => return Err(self.error("a line to change starts with a space, - or +")),
            });
            self.at += 1;
        }
        if hunk.lines.is_empty() {
            return Err(self.error("expected the lines to change after @@"));
        }
        Ok(hunk)
    }
}

/// Returns the anchor line after `@@`, if any. Line numbers, as `diff` writes them, are ignored.
fn anchor(above: &str) -> Option<String> {
    let above = above.strip_prefix(' ').unwrap_or(above);
    let line = match above.split_once(" @@") {
        Some((numbers, line)) if numbers.starts_with('-') && numbers.contains(" +") => line.trim_start(),
        Some(_) | None => above,
    };
    (!line.trim().is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(input: &str) -> (usize, String) {
        let PatchSyntaxError { line, message } = parse(input).unwrap_err();
        (line, message)
    }

    #[test]
    fn every_kind_of_operation_is_parsed() {
        let patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n+\n\n*** Update File: a b.txt\n*** Move to: c.txt\n\
                     @@ class A\n@@ fn b\n stays\n-goes\n+comes\n\n@@\n+last\n*** End of File\n*** Delete File: d\n\
                     *** End Patch\n";
        let keep = |line: &str| HunkLine::Keep(line.to_owned());
        let first = Hunk {
            anchors: vec!["class A".to_owned(), "fn b".to_owned()],
            lines: vec![
                keep("stays"),
                HunkLine::Remove("goes".to_owned()),
                HunkLine::Add("comes".to_owned()),
                keep(""),
            ],
            is_last: false,
        };
        let second = Hunk { anchors: Vec::new(), lines: vec![HunkLine::Add("last".to_owned())], is_last: true };
        let steps = vec![
            PatchOp::Add { path: "new.txt".to_owned(), content: "one\n\n".to_owned() },
            PatchOp::Update { path: "a b.txt".to_owned(), to: Some("c.txt".to_owned()), hunks: vec![first, second] },
            PatchOp::Delete { path: "d".to_owned() },
        ];
        assert_eq!(parse(patch).as_ref(), Ok(&steps));
        assert_eq!(parse(&patch.replace('\n', "\r\n")).as_ref(), Ok(&steps));
        assert_eq!(parse(&format!("<<'EOF'\n{patch}EOF\n")).as_ref(), Ok(&steps));
    }

    #[test]
    fn line_numbers_are_ignored() {
        assert_eq!(anchor(" -1,3 +1,4 @@"), None);
        assert_eq!(anchor(" -1,3 +1,4 @@ fn a()"), Some("fn a()".to_owned()));
        assert_eq!(anchor(" - list @@ x"), Some("- list @@ x".to_owned()));
        assert_eq!(anchor(""), None);
        assert_eq!(anchor("   indented"), Some("  indented".to_owned()));
    }

    #[test]
    fn syntax_errors_name_their_line() {
        assert_eq!(wrong(""), (1, "a patch begins with *** Begin Patch".to_owned()));
        assert_eq!(wrong("*** Begin Patch"), (1, "a patch ends with *** End Patch".to_owned()));
        assert_eq!(wrong("*** Begin Patch\n*** Delete File: a"), (2, "a patch ends with *** End Patch".to_owned()));
        for (middle, line, message) in [
            ("*** Delete File: ", 2, "a path is missing"),
            ("*** Add File: a\n+a\nb", 4, "every line of a new file starts with +"),
            ("*** Update File: a\n@@\n-a\nb", 5, "a line to change starts with a space, - or +"),
            ("*** Update File: a\n@@", 4, "expected the lines to change after @@"),
            ("*** Update File: a", 3, "no hunks and no *** Move to for a"),
            ("nonsense", 2, "expected *** Add File: path, *** Update File: path or *** Delete File: path"),
        ] {
            let patch = format!("*** Begin Patch\n{middle}\n*** End Patch");
            assert_eq!(wrong(&patch), (line, message.to_owned()), "{middle}");
        }
        assert_eq!(parse("*** Begin Patch\n*** End Patch"), Ok(Vec::new()));
    }
}
