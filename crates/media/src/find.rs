//! Finds references to images in a text.
//!
//! Two tags explicitly mark an image: `[media attached: path (type) | url]` and `[Image: source: path]`. Besides them,
//! a reference is a `file://` URL or a path with a `/` in it and an image extension. A path with spaces is recognized
//! between quotes or brackets. Other URLs are remote and skipped as a whole.
//!
//! Only the text is examined, never the disk: the files need not exist.

/// Maximum number of images per text.
const MAX_IMAGES: usize = 20;

/// Maximum length of a path in bytes; no system opens a longer one.
const MAX_PATH_BYTES: usize = 4096;

/// Maximum nesting depth of brackets that are matched; keeps the search linear.
const MAX_NESTING: usize = 8;

const EXTENSIONS: [&str; 10] = [".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tiff", ".tif", ".heic", ".heif"];

/// Delimiters of an enclosed path. If both are equal, it is a quote that must not follow a word directly.
const PAIRS: [(char, char); 11] = [
    ('"', '"'),
    ('\'', '\''),
    ('`', '`'),
    ('“', '”'),
    ('‘', '’'),
    ('«', '»'),
    ('「', '」'),
    ('(', ')'),
    ('[', ']'),
    ('{', '}'),
    ('<', '>'),
];

/// Returns the paths of the images that a text refers to, each once, in order, at most 20.
///
/// A path is absolute, relative or starts with `~/`; a `file://` URL is converted to a path.
pub fn find(text: &str) -> Vec<String> {
    let mut found = FoundPaths(Vec::new());
    for line in text.lines() {
        scan(line, &mut found);
    }
    found.0
}

struct FoundPaths(Vec<String>);

impl FoundPaths {
    fn add(&mut self, path: String) {
        if self.0.len() < MAX_IMAGES && path.len() <= MAX_PATH_BYTES && !self.0.contains(&path) {
            self.0.push(path);
        }
    }
}

/// Adds the references in a line. At each position the first parser that matches returns the length it consumed.
fn scan(line: &str, found: &mut FoundPaths) {
    let mut rest = line;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let step = tag(rest, found)
            .or_else(|| enclosed(rest, before, found))
            .or_else(|| url(rest, found))
            .or_else(|| word(rest, found))
            .unwrap_or(first.len_utf8());
        before = rest[..step].chars().next_back().unwrap_or(' ');
        rest = &rest[step..];
    }
}

/// Parses a tag that marks an image; its path needs no `/`. Returns the length of the tag.
fn tag(rest: &str, found: &mut FoundPaths) -> Option<usize> {
    let inner = inside(rest, '[', ']')?;
    let path = if let Some(media) = strip_start(inner, "media attached") {
        media.split_once(':')?.1
    } else {
        strip_start(strip_start(inner, "image:")?.trim_start(), "source:")?
    };
    // The path may be followed by the type, in parentheses, and by the URL, after `|`.
    let path = path.split('|').next().unwrap_or(path);
    let notes = path.match_indices('(').map(|(at, _)| &path[..at]);
    let path = std::iter::once(path).chain(notes.rev()).map(str::trim).find(|path| has_image_extension(path));
    if let Some(path) = path.and_then(|path| if path.contains("://") { local(path) } else { Some(path.to_owned()) }) {
        found.add(path);
    }
    Some(inner.len() + 2)
}

/// Parses a path between quotes or brackets at the start of `rest`; `before` is the character before that.
///
/// Returns the length including the delimiters if the enclosed text is certainly one path. Returns `None` otherwise,
/// even if the text was added as a possible path: the enclosed words are then examined one by one.
fn enclosed(rest: &str, before: char, found: &mut FoundPaths) -> Option<usize> {
    let (open, close) = PAIRS.into_iter().find(|(open, _)| rest.starts_with(*open))?;
    // A quote that directly follows a word is an apostrophe or a closing quote.
    if open == close && before.is_alphanumeric() {
        return None;
    }
    let inner = inside(rest, open, close)?;
    let path = inner.trim();
    let length = open.len_utf8() + inner.len() + close.len_utf8();
    if !has_image_extension(path) || has_several_paths(path) || path.starts_with("//") {
        return None;
    }
    if path.contains("://") {
        found.add(local(path)?);
        return Some(length);
    }
    let is_certainly_path = is_anchored(path) || (path.contains('/') && !path.contains(char::is_whitespace));
    if is_certainly_path {
        found.add(path.to_owned());
        return Some(length);
    }
    // Quoted text with spaces is either a path or a sentence that ends with one. The text is added in case it is a
    // path; the words are examined in case it is a sentence.
    if path.contains('/') && !matches!(open, '(' | '[' | '{' | '<') {
        found.add(path.to_owned());
    }
    None
}

/// Parses a URL. Returns its length, so that the path of a remote one is not taken for a local one.
fn url(rest: &str, found: &mut FoundPaths) -> Option<usize> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let scheme = rest.find(|c| !is_scheme(c))?;
    if scheme == 0 || !rest[scheme..].starts_with("://") {
        return None;
    }
    let mut depth = 0_usize;
    let is_end = |c: char| match c {
        '(' | '[' | '{' => {
            depth += 1;
            false
        }
        ')' | ']' | '}' if depth > 0 => {
            depth -= 1;
            false
        }
        ')' | ']' | '}' => true,
        _ => c.is_whitespace() || is_quote(c) || matches!(c, '<' | '>'),
    };
    let url = &rest[..rest.find(is_end).unwrap_or(rest.len())];
    let path = url.split([',', ';', '|']).next().unwrap_or(url);
    if let Some(path) = local(path.trim_end_matches(is_trailing)) {
        found.add(path);
    }
    Some(url.len())
}

/// Parses a word, and adds it if it is a path. Returns the length of the word; `None` at a delimiter.
fn word(rest: &str, found: &mut FoundPaths) -> Option<usize> {
    let word = &rest[..rest.find(is_delimiter).unwrap_or(rest.len())];
    let path = word.trim_end_matches(is_trailing);
    // Markdown emphasis, and the `@` or `!` that some clients put before files.
    let stripped = path.trim_start_matches(['*', '_', '@', '!']);
    let path = if is_anchored(stripped) { stripped } else { path };
    if has_image_extension(path) && path.contains('/') && !path.starts_with("//") {
        found.add(path.to_owned());
    }
    (!word.is_empty()).then_some(word.len())
}

/// Returns the text between the opening character at the start of `rest` and the matching closing one.
fn inside(rest: &str, open: char, close: char) -> Option<&str> {
    let inner = rest.strip_prefix(open)?;
    let mut depth = 0;
    for (at, c) in inner.char_indices() {
        if c == close && depth == 0 {
            return Some(&inner[..at]);
        } else if c == close {
            depth -= 1;
        } else if c == open {
            depth += 1;
        }
        if depth > MAX_NESTING {
            return None;
        }
    }
    None
}

/// Returns the path of a `file://` URL to an image.
fn local(url: &str) -> Option<String> {
    let path = strip_start(url, "file://")?;
    let path = strip_start(path, "localhost").unwrap_or(path);
    let path = decode(path)?;
    (path.starts_with('/') && has_image_extension(&path)).then_some(path)
}

/// Decodes percent-encoding; `None` if it is malformed or not UTF-8.
fn decode(escaped: &str) -> Option<String> {
    let mut pieces = escaped.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (code, plain) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(plain.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// True if it has an image extension and a name before that.
fn has_image_extension(path: &str) -> bool {
    let stem = EXTENSIONS.iter().find_map(|extension| {
        let at = path.len().checked_sub(extension.len())?;
        path.get(at..)?.eq_ignore_ascii_case(extension).then(|| &path[..at])
    });
    stem.is_some_and(|stem| !stem.is_empty() && !stem.ends_with('/'))
}

/// True if it contains several paths, or words and a path.
fn has_several_paths(path: &str) -> bool {
    let words: Vec<_> = path.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '|')).collect();
    let ends_early = words.iter().rev().skip(1).any(|word| has_image_extension(word.trim_end_matches(is_trailing)));
    let starts_late = words.iter().skip(1).any(|word| is_anchored(word) || word.contains("://"));
    ends_early || starts_late
}

/// True if a path is absolute or starts with `./`, `../` or `~/`.
fn is_anchored(path: &str) -> bool {
    ["/", "./", "../", "~/"].iter().any(|start| path.starts_with(start)) && !path.starts_with("//")
}

fn is_delimiter(c: char) -> bool {
    let is_bracket = PAIRS.iter().any(|(open, close)| c == *open || c == *close);
    let is_punctuation = matches!(c, ',' | ';' | '|' | ':' | '=' | '，' | '。' | '、' | '；' | '：' | '！' | '？');
    c.is_whitespace() || is_bracket || is_punctuation || matches!(c, '（' | '）' | '【' | '】' | '《' | '》')
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '“' | '”' | '‘' | '’' | '«' | '»' | '「' | '」')
}

fn is_trailing(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '*' | '_' | '…' | ':')
}

/// Strips a prefix, ignoring case.
fn strip_start<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.get(..start.len())?.eq_ignore_ascii_case(start).then(|| &text[start.len()..])
}

#[cfg(test)]
mod tests;
