//! Converts Markdown to Telegram's HTML subset and splits it into messages.
//!
//! The text is first parsed to [`RichText`], text with styles; parts are cut from that and rendered afterwards. A cut can
//! therefore never split a tag, and the plain fallback, used when Telegram rejects the HTML, has the same content.

mod rich;

use unicode_segmentation::UnicodeSegmentation;

use self::rich::{RichText, Style, StyledRange};

/// Maximum length of a message, counted as Telegram does: in UTF-16 units, without tags.
pub(crate) const MAX_MESSAGE: usize = 4096;

/// Maximum length of a caption.
pub(crate) const MAX_CAPTION: usize = 1024;

/// Length of the longest character in UTF-16 units.
const MAX_CHAR_UNITS: usize = 2;

/// Maximum bytes of HTML that Telegram parses, with a margin; the rest would be truncated, including tags.
const MAX_HTML_BYTES: usize = 30_000;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessagePart {
    /// As HTML.
    pub(crate) html: String,
    /// As plain text.
    pub(crate) plain: String,
}

/// Converts a text to parts of at most `limit` characters each; empty if there is no text.
pub(crate) fn parts(markdown: &str, limit: usize) -> Vec<MessagePart> {
    let rich = RichText::read(markdown);
    let limit = limit.clamp(MAX_CHAR_UNITS, MAX_MESSAGE);
    let mut parts = Vec::new();
    let mut start = rich.text.len() - rich.text.trim_start_matches(['\n', '\r']).len();
    let end = rich.text.trim_end().len();
    while start < end {
        let cut = cut(&rich, start, end, limit);
        let text = rich.text[start..cut].trim_end();
        if !text.trim().is_empty() {
            parts.push(write(&rich, start, start + text.len(), limit));
        }
        let rest = &rich.text[cut..end];
        // Line breaks at a cut are dropped; the indentation of a line of code is kept.
        let skipped = rest.len() - rest.trim_start_matches(['\n', '\r']).len();
        let is_code = rich.is_code_at(cut + skipped);
        start = cut + if is_code { skipped } else { rest.len() - rest.trim_start().len() };
    }
    parts
}

/// Returns the end of the part that begins at `start`.
fn cut(rich: &RichText, start: usize, end: usize, limit: usize) -> usize {
    let mut window = start;
    let (mut units, mut bytes) = (0, 0);
    for grapheme in rich.text[start..end].graphemes(true) {
        units += grapheme.encode_utf16().count();
        bytes += rich.cost(start, window, grapheme);
        if units > limit || bytes > MAX_HTML_BYTES {
            break;
        }
        window += grapheme.len();
    }
    if window == end {
        return end;
    }
    if window == start {
        // A single grapheme longer than a message has to be split.
        let mut units = 0;
        let fits = |(_, c): &(usize, char)| {
            units += c.len_utf16();
            units <= limit
        };
        let last_char = rich.text[start..].char_indices().take_while(fits).last();
        return last_char.map_or(end, |(at, c)| start + at + c.len_utf8());
    }
    let text = &rich.text[start..window];
    let middle = text.len() / 2;
    let last_break = |gap: &str| text.rfind(gap).filter(|at| *at > 0 && *at >= middle);
    let boundary = ["\n\n", "\n", " "]
        .into_iter()
        .find_map(last_break)
        .or_else(|| text.rfind(char::is_whitespace).filter(|at| *at > 0));
    boundary.map_or(window, |at| start + at)
}

fn write(rich: &RichText, start: usize, end: usize, limit: usize) -> MessagePart {
    let (mut html, mut plain, mut with_urls) = (String::new(), String::new(), String::new());
    let mut open: Vec<&Style> = Vec::new();
    for (StyledRange { styles, .. }, text) in rich.runs_in(start, end) {
        let shared = open.iter().zip(styles).take_while(|(open, style)| **open == *style).count();
        for style in open.drain(shared..).rev() {
            html.push_str(style.closing());
        }
        for style in &styles[shared..] {
            html.push_str(&style.opening());
            open.push(style);
        }
        html.push_str(&escaped(text));
        plain.push_str(text);
        with_urls.push_str(text);
        if let Some(url) = styles.iter().find_map(Style::url).filter(|url| *url != text) {
            with_urls.push_str(&format!(" ({url})"));
        }
    }
    for style in open.iter().rev() {
        html.push_str(style.closing());
    }
    // In plain text the URL of a link is appended, if it fits.
    let is_short = with_urls.encode_utf16().count() <= limit;
    MessagePart { html, plain: if is_short { with_urls } else { plain } }
}

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
