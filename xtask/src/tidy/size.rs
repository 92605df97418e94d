//! Lengths of files and functions: a list to read, not a limit.

use super::SourceFile;

/// Returns the number of lines of each Rust file.
pub(super) fn files(files: &[SourceFile]) -> Vec<(usize, String)> {
    let sized = |file: &SourceFile| (file.text.lines().count(), file.path.display().to_string());
    files.iter().filter(|file| file.is_rust()).map(sized).collect()
}

/// Returns the number of lines of each function of each Rust file.
pub(super) fn functions(files: &[SourceFile]) -> Vec<(usize, String)> {
    let mut sized = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let path = file.path.display();
        sized.extend(in_text(&file.text).into_iter().map(|(lines, at, name)| (lines, format!("{path}:{at} {name}"))));
    }
    sized
}

/// Returns length, first line and name of each function. Relies on rustfmt: a body ends at the first `}` with the
/// indentation of the line on which the function begins.
fn in_text(text: &str) -> Vec<(usize, usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closes = |line: &&str| line.strip_prefix(indent).is_some_and(|rest| rest == "}");
        let ends_here = line.ends_with('}') || line.ends_with(';');
        let below = if ends_here { Some(0) } else { lines[at..].iter().position(closes) };
        if let Some(below) = below {
            found.push((below + 1, at + 1, name));
        }
    }
    found
}

/// Returns the name of the function that begins on a line, if one does.
fn name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_qualifier = |word: &str| matches!(word, "const" | "async" | "unsafe" | "extern") || word.starts_with("pub");
    if !before.split_whitespace().all(is_qualifier) {
        return None;
    }
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then(|| &after[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_name_to_brace() {
        let text = "impl A {\n    pub(crate) async fn long(&self) {\n        if x {\n        }\n    }\n\n    fn short() {}\n}\n\
                    type F = fn (u8);\nlet s = \"fn no() {\";\nfn top<T>(\n    t: T,\n) {\n}\n";
        assert_eq!(in_text(text), [(4, 2, "long"), (1, 7, "short"), (4, 11, "top")]);
    }
}
