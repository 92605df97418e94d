//! Lines that attach media: `MEDIA:` at the start of a line, outside code fences, followed by URLs or relative paths. A
//! path that leaves its folder is never accepted, because a model may be tricked into naming one.

use crate::fence::Lines;

const KEYWORD: &str = "MEDIA:";
/// Maximum length of a URL or path.
const MAX: usize = 4096;
/// Maximum length of a line that is held back; a longer one is text.
const MAX_LINE: usize = 4 * MAX;

/// Extracts media lines from a streamed text.
#[derive(Debug, Default)]
pub(crate) struct MediaLines {
    fences: Lines,
    held: String,
    state: LineState,
}

/// Position in a line.
#[derive(Debug, Clone, Copy)]
enum LineState {
    /// Before the keyword, or this far into it.
    Start(usize),
    /// After the keyword.
    Media,
    /// In a line of text.
    Text,
}

impl Default for LineState {
    fn default() -> Self {
        Self::Start(0)
    }
}

impl MediaLines {
    /// Processes the next piece; text is appended to `out`, media to `media`.
    pub(crate) fn push(&mut self, text: &str, out: &mut String, media: &mut Vec<String>) {
        for c in text.chars() {
            if c == '\n' {
                self.end_line("\n", out, media);
            } else {
                self.take(c, out);
            }
            self.fences.push(c);
        }
    }

    /// Ends the text.
    pub(crate) fn finish(&mut self, out: &mut String, media: &mut Vec<String>) {
        self.end_line("", out, media);
    }

    fn take(&mut self, c: char, out: &mut String) {
        let next = match self.state {
            LineState::Start(0) if self.fences.is_inside() => LineState::Text,
            LineState::Start(0) if c.is_whitespace() => LineState::Start(0),
            LineState::Start(at) if KEYWORD[at..].starts_with(c) => {
                if at + 1 == KEYWORD.len() {
                    LineState::Media
                } else {
                    LineState::Start(at + 1)
                }
            }
            LineState::Media if self.held.len() < MAX_LINE => LineState::Media,
            LineState::Start(_) | LineState::Media | LineState::Text => LineState::Text,
        };
        self.state = next;
        match next {
            LineState::Start(_) | LineState::Media => self.held.push(c),
            LineState::Text => {
                out.push_str(&self.held);
                self.held.clear();
                out.push(c);
            }
        }
    }

    fn end_line(&mut self, end: &str, out: &mut String, media: &mut Vec<String>) {
        let line = std::mem::take(&mut self.held);
        let found = if matches!(self.state, LineState::Media) { read(&line) } else { None };
        self.state = LineState::default();
        match found {
            Some(found) => {
                media.extend(found.media);
                if !found.rest.is_empty() {
                    out.push_str(&found.rest);
                    out.push_str(end);
                }
            }
            None => {
                out.push_str(&line);
                out.push_str(end);
            }
        }
    }
}

/// Content of a media line.
#[derive(Debug, PartialEq, Eq)]
struct MediaItems {
    media: Vec<String>,
    /// Items that may not be sent; they stay as text.
    rest: String,
}

/// Parses a media line; a line without a safe item is text.
fn read(line: &str) -> Option<MediaItems> {
    let value = line.trim_start().strip_prefix(KEYWORD)?.trim();
    let mut found = MediaItems { media: Vec::new(), rest: String::new() };
    for (gap, item) in items(value).filter(|(_, item)| !bare(item).is_empty()) {
        match safe(bare(item)) {
            Some(source) => found.media.push(source.to_owned()),
            None => {
                let gap = if found.rest.is_empty() { None } else { gap.chars().next() };
                found.rest.extend(gap);
                found.rest.push_str(item);
            }
        }
    }
    let has_one = found.media.len() == 1 && !found.rest.is_empty();
    // One path with spaces in its name.
    if let Some(path) = safe(bare(value)).filter(|_| has_one && value.starts_with("./")) {
        return Some(MediaItems { media: vec![path.to_owned()], rest: String::new() });
    }
    (!found.media.is_empty()).then_some(found)
}

/// Returns the items of a value, each with the whitespace before it: separated by whitespace, unless quoted.
fn items(value: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = value;
    std::iter::from_fn(move || {
        let (gap, start) = rest.split_at(rest.len() - rest.trim_start().len());
        rest = start;
        let quote = rest.chars().next()?;
        let quoted = if matches!(quote, '"' | '\'' | '`') { rest[1..].find(quote).map(|at| at + 2) } else { None };
        let end = quoted.or_else(|| rest.find(char::is_whitespace)).unwrap_or(rest.len());
        let (item, after) = rest.split_at(end);
        rest = after;
        Some((gap, item))
    })
}

/// Strips the quotes and brackets around an item.
fn bare(item: &str) -> &str {
    item.trim_start_matches(['`', '"', '\'', '[', '{', '('])
        .trim_end_matches(['`', '"', '\'', '\\', '}', ')', ']', ','])
        .trim()
}

/// Returns a URL or path if it may be sent.
fn safe(source: &str) -> Option<&str> {
    let is_web = ["http://", "https://"].iter().any(|scheme| {
        let rest = source.get(scheme.len()..).filter(|_| crate::tags::starts_with_ignore_case(source, scheme));
        rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
    });
    let is_local = source.len() > 2 && source.starts_with("./") && !source.contains("..");
    let is_plain = source.chars().count() <= MAX && !source.contains(char::is_control);
    (is_plain && (is_web || is_local)).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> (String, Vec<String>) {
        let (mut lines, mut out, mut media) = (MediaLines::default(), String::new(), Vec::new());
        lines.push(text, &mut out, &mut media);
        lines.finish(&mut out, &mut media);
        (out, media)
    }

    fn stays(text: &str) {
        assert_eq!(split(text), (text.to_owned(), vec![]));
    }

    // Case 150, pitfall 108.
    #[test]
    fn a_media_line_is_removed_with_its_line_break() {
        let media = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        assert_eq!(split("a\n  MEDIA: ./b.png\r\n\nc"), ("a\n\nc".to_owned(), media(&["./b.png"])));
        assert_eq!(split("MEDIA:\"./a b.png\" 'https://x/y'"), (String::new(), media(&["./a b.png", "https://x/y"])));
        assert_eq!(split("MEDIA:`./a.png`,"), (String::new(), media(&["./a.png"])));
    }

    // Pitfall 109.
    #[test]
    fn unsafe_sources_stay_as_text() {
        for text in [
            "MEDIA:/etc/passwd",
            "MEDIA:./../x",
            "MEDIA:../x\nb",
            "MEDIA:~/x",
            "MEDIA:file://./x",
            "MEDIA:https://",
            "MEDIA:javascript:1",
            "MEDIA:./a\u{0}b",
            "MEDIA:",
            "media:./a.png",
            "see MEDIA:./a.png",
        ] {
            stays(text);
        }
        stays(&format!("MEDIA:./{}", "x".repeat(MAX)));
        stays(&format!("MEDIA:./{}", "x".repeat(2 * MAX_LINE)));
        let (text, media) = split("MEDIA: /etc/passwd https://x/y  ~/z\nb");
        assert_eq!((&*text, media), ("/etc/passwd ~/z\nb", vec!["https://x/y".to_owned()]));
    }

    // Pitfall 54.
    #[test]
    fn a_line_in_a_code_fence_is_code() {
        stays("```\nMEDIA:./a.png\n```");
        stays("~~~\n\nMEDIA:./a.png");
        assert_eq!(split("```\n```\nMEDIA:./a.png").1, ["./a.png"]);
    }
}
