//! Tolerant parser of the front matter of a skill file.
//!
//! JSON5 literals are parsed as such, and the remainder as YAML. If that fails (a colon in a description is enough),
//! every `key:` at the start of a line is parsed separately, and finally taken as plain text: an invalid line affects
//! only itself.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Maximum number of chunks that [`literal`] appends to the first one to complete a JSON5 object. After each of them
/// the text is parsed again, so this limits the work for an object that is never closed.
const KEYS_IN_A_LITERAL: usize = 64;

/// Limit on the expansion of YAML aliases: a few lines of them can expand to gigabytes.
const MAX_ALIAS_EXPANSION: usize = 1_000;

/// Content between the two `---` of a file.
#[derive(Debug, PartialEq)]
pub struct FrontMatter {
    /// Its keys, or why it is not YAML.
    yaml: Result<Map<String, Value>, String>,
    /// The same content, split at its keys.
    chunks: Vec<KeyChunk>,
}

/// A line `key: …` and the lines up to the next one.
#[derive(Debug, PartialEq)]
struct KeyChunk {
    key: String,
    text: String,
}

impl FrontMatter {
    /// Parses a file's text; `None` if it has no front matter.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n");
        let block = between_marks(&text)?;
        // With the marker, an error names the line of the file.
        Some(Self { yaml: yaml(&format!("---\n{block}")), chunks: chunks(block) })
    }

    /// Returns the YAML error if it is not valid YAML.
    pub fn yaml_error(&self) -> Option<&str> {
        self.yaml.as_ref().err().map(String::as_str)
    }

    /// Returns the value of a key, regardless of how its words are joined.
    pub fn get(&self, key: &str) -> Option<Value> {
        let at = self.chunks.iter().position(|chunk| is_same(&chunk.key, key));
        let chunks = at.map_or(&[][..], |at| &self.chunks[at..]);
        // A JSON5 value is tried before YAML, which would read its comments as parts of keys.
        let literal = chunks.first().and_then(|chunk| json(after_key(&chunk.text)));
        literal.or_else(|| match &self.yaml {
            Ok(fields) => lookup(fields, key).cloned(),
            Err(_) => value(chunks),
        })
    }
}

/// Finds a key: `user-invocable`, `user_invocable` and `userInvocable` are equal.
pub fn lookup<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).or_else(|| fields.iter().find(|(name, _)| is_same(name, key)).map(|(_, value)| value))
}

/// Parses a JSON object or array, with all JSON5 extensions; `None` for any other text.
pub(crate) fn json(text: &str) -> Option<Value> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) {
        return None;
    }
    jsonc_parser::parse_to_serde_value(text, &jsonc_parser::ParseOptions::default()).ok()
}

fn is_same(one: &str, other: &str) -> bool {
    fn letters(key: &str) -> impl Iterator<Item = char> {
        key.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase())
    }
    letters(one).eq(letters(other))
}

/// Returns the front matter: the lines between the first `---` and the next one. Without a second `---`, it ends before
/// the first blank line.
fn between_marks(text: &str) -> Option<&str> {
    let (first, rest) = text.trim_start().split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut first_blank = None;
    let mut offset = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some(&rest[..offset]);
        }
        if line.trim().is_empty() {
            first_blank.get_or_insert(offset);
        }
        offset += line.len();
    }
    Some(&rest[..first_blank.unwrap_or(rest.len())])
}

/// Parses a YAML mapping; an empty text is an empty mapping. The error is one line.
fn yaml(text: &str) -> Result<Map<String, Value>, String> {
    let attempt = |text: &str| {
        let mut options = serde_saphyr::Options::default();
        // Only `true` and `false` are booleans. Otherwise the words of YAML 1.1 would be, too, and the values of
        // `name: on` and `description: y` would not be texts. `as_bool` accepts such words where a boolean is expected.
        options.strict_booleans = true;
        options.alias_limits.max_total_replayed_events = MAX_ALIAS_EXPANSION;
        options.with_snippet = false;
        serde_saphyr::from_str_with_options::<Value>(text, options)
    };
    // YAML forbids tabs for indentation, but editors insert them.
    let parsed = attempt(text).or_else(|error| match without_tabs(text) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(text) => attempt(&text),
    });
    match parsed {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("not a mapping".to_owned()),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// Replaces every indenting tab by two spaces.
fn without_tabs(text: &str) -> Cow<'_, str> {
    if !text.contains('\t') {
        return Cow::Borrowed(text);
    }
    let lines = text.split_inclusive('\n').map(|line| {
        let content = line.trim_start_matches([' ', '\t']);
        line[..line.len() - content.len()].replace('\t', "  ") + content
    });
    Cow::Owned(lines.collect())
}

/// Splits front matter before each line that starts with a key. Lines before the first key are dropped.
fn chunks(block: &str) -> Vec<KeyChunk> {
    let mut chunks: Vec<KeyChunk> = Vec::new();
    for line in block.split_inclusive('\n') {
        match (key_of(line), chunks.last_mut()) {
            (Some(key), _) => chunks.push(KeyChunk { key: key.to_owned(), text: line.to_owned() }),
            (None, Some(last)) => last.text.push_str(line),
            (None, None) => {}
        }
    }
    chunks
}

/// Returns the key of a line `key: …`; `None` for other lines, also indented ones.
fn key_of(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once(':')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_key = !key.is_empty() && key.chars().all(is_word);
    // `https://…` at the start of a line is not a key.
    (is_key && rest.starts_with(|c: char| c.is_whitespace() || matches!(c, '{' | '[' | '"' | '\''))).then_some(key)
}

/// Returns the value of the first chunk, if the whole is not valid YAML. The other chunks follow it in the file: they
/// are part of the value if it is a JSON5 literal that was split.
fn value(chunks: &[KeyChunk]) -> Option<Value> {
    let first = chunks.first()?;
    let parsed = parse_alone(&first.text).or_else(|| literal(chunks)).or_else(|| parse_alone(&indented(&first.text)));
    Some(parsed.unwrap_or_else(|| Value::String(plain(&first.text))))
}

/// Parses the text of one chunk as YAML and returns the value of its key; `None` if it is invalid.
fn parse_alone(text: &str) -> Option<Value> {
    let fields = yaml(text).ok()?;
    fields.into_iter().next().map(|(_, value)| value)
}

/// Parses a JSON5 object that was split into several chunks, because its inner keys are at the start of their lines.
fn literal(chunks: &[KeyChunk]) -> Option<Value> {
    let (first, rest) = chunks.split_first()?;
    let mut text = after_key(&first.text).to_owned();
    if !text.trim_start().starts_with('{') {
        return None;
    }
    rest.iter().take(KEYS_IN_A_LITERAL).find_map(|chunk| {
        text.push_str(&chunk.text);
        json(&text)
    })
}

fn after_key(text: &str) -> &str {
    text.split_once(':').map_or("", |(_, rest)| rest)
}

/// Returns the first line and the indented or blank lines directly below it.
fn indented(text: &str) -> String {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    let continuation = lines.take_while(|line| line.starts_with([' ', '\t']) || line.trim().is_empty());
    first.to_owned() + &continuation.collect::<String>()
}

/// Returns the text of a value on one line, without surrounding quotes.
fn plain(text: &str) -> String {
    let text = indented(text);
    let line = after_key(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = ['"', '\''].iter().find_map(|quote| line.strip_prefix(*quote)?.strip_suffix(*quote));
    quoted.map_or_else(|| line.clone(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value_of(text: &str, key: &str) -> Option<Value> {
        FrontMatter::read(text).and_then(|matter| matter.get(key))
    }

    #[test]
    fn a_file_without_marks_has_no_front_matter() {
        assert_eq!(FrontMatter::read("# Title\n---\nname: x\n---\n"), None);
        assert_eq!(FrontMatter::read(""), None);
        assert_eq!(FrontMatter::read("---"), None);
    }

    #[test]
    fn an_invalid_yaml_line_affects_only_itself() {
        let text = "---\nname: x\ndescription: Use when: it rains\nmetadata:\n  openclaw:\n    os: [linux]\n---\n";
        assert_eq!(value_of(text, "description"), Some(json!("Use when: it rains")));
        assert_eq!(value_of(text, "metadata"), Some(json!({"openclaw": {"os": ["linux"]}})));
    }

    #[test]
    fn a_literal_may_have_its_keys_at_the_start_of_a_line() {
        let text = "---\ndescription: a: b\nmetadata: {\nopenclaw: { // ours\nemoji: 'x',\n},\n}\nhomepage: h\n---\n";
        assert_eq!(value_of(text, "metadata"), Some(json!({"openclaw": {"emoji": "x"}})));
        assert_eq!(value_of(text, "homepage"), Some(json!("h")));
    }

    #[test]
    fn a_block_scalar_is_read_beside_an_invalid_line() {
        let text = "---\nname: [x\ndescription: >\n  one\n  two\nother: |\n  a\n  b\n---\n";
        assert_eq!(value_of(text, "description"), Some(json!("one two\n")));
        assert_eq!(value_of(text, "other"), Some(json!("a\nb\n")));
        assert_eq!(value_of(text, "name"), Some(json!("[x")));
    }

    #[test]
    fn an_unclosed_front_matter_ends_at_a_blank_line() {
        let text = "---\nname: x\ndescription: y\n\n# Title\nhomepage: z\n";
        assert_eq!(value_of(text, "description"), Some(json!("y")));
        assert_eq!(value_of(text, "homepage"), None);
    }

    #[test]
    fn deep_nesting_does_not_panic() {
        for (open, close) in [("[", "]"), ("{a:", "}"), ("{\"a\":", "}"), ("- ", ""), ("? ", "")] {
            let deep = format!("---\nmetadata: {}1{}\n---\n", open.repeat(20_000), close.repeat(20_000));
            assert!(value_of(&deep, "metadata").is_some(), "{open}");
        }
    }

    /// Generates arbitrary strings, and sequences of YAML fragments that are mostly invalid.
    fn anything_like_front_matter() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("---\n"),
            Just("name:"),
            Just("metadata:"),
            Just("description: "),
            Just("{"),
            Just("}"),
            Just("["),
            Just("]"),
            Just("\""),
            Just("'"),
            Just("|"),
            Just(">"),
            Just("\n"),
            Just("\r\n"),
            Just("\t"),
            Just("  "),
            Just("&a "),
            Just("*a"),
            Just("<<: "),
            Just("!!binary "),
            Just(": "),
            Just("#"),
            Just(","),
            Just("- "),
            Just("? "),
            Just("é🦞"),
            Just("\u{feff}"),
            Just("\\u12"),
            Just("0x"),
            Just(".inf"),
            Just("%YAML 1.2\n"),
        ];
        prop_oneof![any::<String>(), prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat()),]
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in anything_like_front_matter(), marked in any::<bool>()) {
            let text = if marked { format!("---\n{text}\n---\nbody") } else { text };
            if let Some(matter) = FrontMatter::read(&text) {
                for key in ["name", "description", "metadata"] {
                    let first = matter.get(key);
                    prop_assert_eq!(first, matter.get(key));
                }
            }
        }
    }
}
