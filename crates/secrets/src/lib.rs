//! Masking of secrets: tool results and arguments, system prompts and replies are masked before they are stored, shown
//! or sent.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD},
};
use homard_proto::message::Block;
use serde_json::Value;

/// Replacement for a secret.
const MASK: &str = "[secret]";

/// Minimum length of a secret; shorter values would match ordinary words.
const MIN_SECRET_LEN: usize = 8;

/// Characters that may be inserted into a secret without changing how it reads: programs break lines and group digits,
/// and a reply can be spelled with blanks or invisible characters.
const IGNORED: [char; 12] =
    ['\n', '\r', ' ', '\t', '\u{a0}', '\u{ad}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{202f}', '\u{feff}'];

/// Parts of a name, in upper case, that mark its value as a secret.
const SECRET_NAME_PARTS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

/// Base32 alphabet, in lower case.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Returns true if a variable or an argument with this name has a secret value.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_uppercase();
    SECRET_NAME_PARTS.iter().any(|part| name.contains(part))
}

/// Secret values. Clones are cheap; debug output shows none of them.
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<SecretPatterns>>);

/// Search patterns: every secret in plain form and in the encodings of [`spellings`], normalized.
struct SecretPatterns {
    /// Finds the patterns in a normalized text.
    search: AhoCorasick,
    /// The patterns themselves, sorted, so that [`partial_match_start`](Self::partial_match_start) can find one by its
    /// beginning.
    spellings: Vec<String>,
}

impl Secrets {
    /// Matches these values literally and in all encodings of `spellings`, regardless of case and `IGNORED` characters.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let values = values.into_iter().filter(|value| value.len() >= MIN_SECRET_LEN);
        let patterns: BTreeSet<String> = values.flat_map(|value| spellings(&value)).collect();
        if patterns.is_empty() {
            return Self::default();
        }
        // Leftmost-longest, so that a key is not half masked by a shorter one with the same prefix.
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns);
        match built {
            Ok(search) => Self(Some(Arc::new(SecretPatterns { search, spellings: patterns.into_iter().collect() }))),
            Err(error) => {
                tracing::error!(%error, "failed to build the secret filter; secrets in tool results are not masked");
                Self::default()
            }
        }
    }

    /// Masks secrets in a text, also if they are broken over several lines.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(patterns) = &self.0 else { return text.into() };
        match patterns.mask_until(text, text.len()) {
            (Cow::Borrowed(_), _) => text.into(),
            (Cow::Owned(masked), _) => masked.into(),
        }
    }

    /// Returns a masker for a text that arrives in pieces.
    pub fn stream(&self) -> MaskedStream {
        MaskedStream { secrets: self.clone(), pending: String::new() }
    }

    /// True if a value contains a text in which a secret was masked.
    pub fn is_masked(value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains(MASK),
            Value::Array(values) => values.iter().any(Self::is_masked),
            Value::Object(fields) => fields.values().any(Self::is_masked),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Returns a masked copy of a value; `None` if it contains no secret.
    pub fn masked_value(&self, value: &Value) -> Option<Value> {
        self.0.as_ref()?;
        let mut masked = value.clone();
        self.mask_value(&mut masked);
        (masked != *value).then_some(masked)
    }

    /// Masks the blocks of a message, including arguments of calls.
    pub fn mask_blocks(&self, content: &mut [Block]) {
        if self.0.is_none() {
            return;
        }
        for block in content {
            match block {
                Block::ToolCall(call) => self.mask_value(&mut call.arguments),
                Block::Text(_) | Block::Thinking(_) | Block::Image(_) | Block::Other(_) => self.mask_text_block(block),
            }
        }
    }

    /// Masks a block of text or reasoning. Changed reasoning loses its signature, which would no longer match.
    pub fn mask_text_block(&self, block: &mut Block) {
        match block {
            Block::Text(text) => self.mask_string(&mut text.text),
            Block::Thinking(thinking) => {
                if let Cow::Owned(masked) = self.mask(&thinking.thinking) {
                    thinking.thinking = masked;
                    thinking.thinking_signature = None;
                }
            }
            Block::ToolCall(_) | Block::Image(_) | Block::Other(_) => {}
        }
    }

    /// Masks a text in place.
    pub fn mask_string(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.mask(text) {
            *text = masked;
        }
    }

    /// Masks all texts of a value in place.
    pub fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_string(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.mask_value(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.mask_value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl SecretPatterns {
    /// Masks the secrets that start before the byte `until`. Returns the masked text and the number of bytes it covers;
    /// a secret that starts before `until` is replaced as a whole.
    fn mask_until<'a>(&self, text: &'a str, until: usize) -> (Cow<'a, str>, usize) {
        let (normalized, positions) = normalize(text);
        let mut masked = String::new();
        let mut last = 0;
        for secret in self.search.find_iter(&normalized) {
            let start = positions.in_text(secret.start());
            if start >= until {
                break;
            }
            masked.push_str(&text[last..start]);
            masked.push_str(MASK);
            last = positions.in_text(secret.end() - 1) + 1;
        }
        if last == 0 {
            return (text[..until].into(), until);
        }
        let end = until.max(last);
        masked.push_str(&text[last..end]);
        (masked.into(), end)
    }

    /// Returns the start of the longest suffix that may be the beginning of a secret.
    fn partial_match_start(&self, text: &str) -> Option<usize> {
        let (normalized, positions) = normalize(text);
        let is_prefix = |end: &str| {
            let next = self.spellings.partition_point(|spelling| spelling.as_str() <= end);
            self.spellings.get(next).is_some_and(|spelling| spelling.starts_with(end))
        };
        let starts = normalized.char_indices().map(|(at, _)| at);
        starts.into_iter().find(|at| is_prefix(&normalized[*at..])).map(|at| positions.in_text(at))
    }
}

/// Masks a text that arrives in pieces: a possible beginning of a secret is held back until the next piece.
#[derive(Debug)]
pub struct MaskedStream {
    secrets: Secrets,
    pending: String,
}

impl MaskedStream {
    /// Adds a piece. Returns the masked text that can be shown; what may be the beginning of a secret is held back.
    pub fn push<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        let Some(patterns) = &self.secrets.0 else { return piece.into() };
        self.pending.push_str(piece);
        let mut shown = String::new();
        loop {
            let until = patterns.partial_match_start(&self.pending).unwrap_or(self.pending.len());
            let (masked, consumed) = patterns.mask_until(&self.pending, until);
            shown.push_str(&masked);
            self.pending.drain(..consumed);
            // If a masked secret extended beyond `until`, the text after it is searched again: it may be the beginning
            // of another secret.
            if consumed <= until {
                return shown.into();
            }
        }
    }

    /// Returns the text that was held back, at the end of the stream.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        self.secrets.mask(&rest).into_owned()
    }
}

/// Maps positions in a text without ignored characters to the original: for each run of kept characters, its start in
/// both.
struct PositionMap(Vec<(usize, usize)>);

impl PositionMap {
    /// Returns the position in the original text.
    fn in_text(&self, at: usize) -> usize {
        let run = self.0.partition_point(|(start, _)| *start <= at);
        let (start, in_text) = run.checked_sub(1).and_then(|run| self.0.get(run)).copied().unwrap_or_default();
        in_text + (at - start)
    }
}

/// Removes the [`IGNORED`] characters and converts ASCII letters to lower case. Also returns a map from positions in
/// the result to positions in `text`.
fn normalize(text: &str) -> (String, PositionMap) {
    let (mut normalized, mut positions) = (String::with_capacity(text.len()), Vec::new());
    let mut at = 0;
    for part in text.split_inclusive(IGNORED) {
        let kept = part.trim_end_matches(IGNORED);
        if !kept.is_empty() {
            positions.push((normalized.len(), at));
            normalized.push_str(kept);
        }
        at += part.len();
    }
    normalized.make_ascii_lowercase();
    (normalized, PositionMap(positions))
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.as_ref().map_or(0, |patterns| patterns.spellings.len());
        write!(f, "Secrets({count} spellings)")
    }
}

/// Returns a value in plain form and in common encodings, in lower case and without ignored characters: JSON,
/// percent-encoding, hex, character codes, base64, base32, reversed and rot13.
fn spellings(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let encode_bytes = |format_byte: &dyn Fn(u8) -> String, separator: &str| {
        bytes.iter().map(|byte| format_byte(*byte)).collect::<Vec<_>>().join(separator)
    };
    let hex = |byte: u8| format!("{byte:02x}");
    let percent = |byte: u8| {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        if is_plain { char::from(byte).to_string() } else { format!("%{byte:02x}") }
    };
    let json = Value::from(value).to_string();
    let mut all = vec![
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        encode_bytes(&percent, ""),
        encode_bytes(&|byte| format!("%{byte:02x}"), ""),
        encode_bytes(&hex, ""),
        encode_bytes(&hex, ":"),
        encode_bytes(&hex, "-"),
        encode_bytes(&|byte| format!("0x{byte:02x}"), ","),
        encode_bytes(&|byte| format!("\\x{byte:02x}"), ""),
        encode_bytes(&|byte| format!("&#{byte};"), ""),
        encode_bytes(&|byte| byte.to_string(), ","),
        encode_bytes(&|byte| byte.to_string(), ""),
        value.chars().rev().collect(),
        value.chars().map(rot13).collect(),
    ];
    // Inside a longer text, base64 and base32 have three or five alignments; the characters that depend on neighbouring
    // bytes are left out.
    for (size, encoders) in [(3, &[standard as fn(&[u8]) -> String, url_safe][..]), (5, &[base32])] {
        for skip in 0..size {
            let Some(rest) = bytes.get(skip..) else { continue };
            let aligned = &rest[..rest.len() / size * size];
            if aligned.len() >= MIN_SECRET_LEN {
                all.extend(encoders.iter().map(|encode| encode(aligned)));
            }
        }
    }
    all.iter().map(|spelling| normalize(spelling).0).filter(|spelling| spelling.len() >= MIN_SECRET_LEN).collect()
}

fn standard(bytes: &[u8]) -> String {
    BASE64_STANDARD_NO_PAD.encode(bytes)
}

fn url_safe(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Encodes whole groups of five bytes in base32.
fn base32(bytes: &[u8]) -> String {
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
        (0..8).rev().map(|at| char::from(BASE32[((bits >> (at * 5)) & 31) as usize])).collect::<String>()
    };
    bytes.chunks_exact(5).map(group).collect()
}

fn rot13(c: char) -> char {
    match c {
        'a'..='m' | 'A'..='M' => char::from(c as u8 + 13),
        'n'..='z' | 'N'..='Z' => char::from(c as u8 - 13),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "sk-canary/1+\"quoted\"-0123456789";

    #[test]
    fn a_secret_is_masked_in_common_encodings() {
        let secrets = Secrets::new([KEY.to_owned(), "short".to_owned()]);
        for prefix in ["", "a", "ab", "abc"] {
            let text = format!("{prefix}{KEY} and more");
            for encoded in [
                text.clone(),
                Value::from(text.clone()).to_string(),
                BASE64_STANDARD_NO_PAD.encode(&text),
                BASE64_URL_SAFE_NO_PAD.encode(&text),
                text.bytes().map(|byte| format!("{byte:02x}")).collect(),
                text.bytes().map(|byte| format!("{byte:02X}")).collect(),
            ] {
                assert!(secrets.mask(&encoded).contains(MASK), "{encoded}");
            }
        }
        assert_eq!(secrets.mask("a short text"), "a short text");
        assert_eq!(secrets.mask(&format!("x={KEY}; y={KEY}")), "x=[secret]; y=[secret]");
        assert!(!format!("{secrets:?}").contains("canary"));
    }

    // R71.
    #[test]
    fn a_secret_is_masked_in_the_encodings_that_models_know() {
        let secrets = Secrets::new([KEY.to_owned()]);
        let encode_bytes = |format_byte: &dyn Fn(u8) -> String, separator: &str| {
            KEY.bytes().map(format_byte).collect::<Vec<_>>().join(separator)
        };
        let invisible: String = KEY.chars().flat_map(|c| [c, '\u{200b}']).collect();
        let grouped: Vec<_> =
            encode_bytes(&|byte| format!("{byte:02x}"), "").as_bytes().chunks(4).map(<[u8]>::to_vec).collect();
        let grouped = grouped.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(" ");
        for encoded in [
            KEY.to_uppercase(),
            KEY.chars().map(String::from).collect::<Vec<_>>().join(" "),
            invisible,
            KEY.chars().rev().collect(),
            encode_bytes(&|byte| format!("%{byte:02X}"), ""),
            encode_bytes(&|byte| format!("{byte:02x}"), " "),
            encode_bytes(&|byte| format!("{byte:02X}"), ":"),
            encode_bytes(&|byte| format!("\\x{byte:02x}"), ""),
            encode_bytes(&|byte| byte.to_string(), ", "),
            encode_bytes(&|byte| format!("&#{byte};"), ""),
            grouped,
            "fx-pnanel/1+\"dhbgrq\"-0123456789".to_owned(),
            "ONVS2Y3BNZQXE6JPGEVSE4LVN52GKZBCFUYDCMRTGQ2TMNZYHE======".to_owned(),
        ] {
            let masked = secrets.mask(&encoded);
            assert!(masked.contains(MASK) && masked.len() < encoded.len(), "{encoded}: {masked}");
            let chars: Vec<&str> = encoded.split_inclusive(|_| true).collect();
            assert!(streamed(&secrets, &chars).0.contains(MASK), "{encoded}");
        }
        // A part of it, and ordinary text, are kept.
        for plain in ["sk-canary is a bird", "The quoted price: 0123456789", "a b c d e f"] {
            assert_eq!(secrets.mask(plain), plain);
        }
    }

    #[test]
    fn a_secret_is_masked_across_lines_and_the_surrounding_text_is_kept() {
        let secrets = Secrets::new([KEY.to_owned(), "-----BEGIN\nabcdef\n-----END".to_owned()]);
        let (head, tail) = KEY.split_at(9);
        let text = format!("été\n\n{KEY}\nKEY={head}\r\n{tail}\n\nand\n{head}\n");
        assert_eq!(secrets.mask(&text), format!("été\n\n[secret]\nKEY=[secret]\n\nand\n{head}\n"));
        assert_eq!(secrets.mask("a\n-----BEGIN\nabcdef\n-----END\nb\n"), "a\n[secret]\nb\n");
        for width in 1..20 {
            let encoded = BASE64_STANDARD_NO_PAD.encode(format!("a{KEY} and more"));
            let lines: Vec<_> = encoded.as_bytes().chunks(width).map(String::from_utf8_lossy).collect();
            assert!(secrets.mask(&lines.join("\n")).contains(MASK), "{width}");
        }
    }

    #[test]
    fn the_longer_of_two_secrets_with_the_same_prefix_is_masked_whole() {
        let secrets = Secrets::new(["sk-12345678".to_owned(), "sk-1234567890".to_owned()]);
        assert_eq!(secrets.mask("sk-1234567890!"), "[secret]!");
    }

    /// Masks a text that arrives in these pieces. Returns the result, and the largest number of bytes held back at a
    /// time.
    fn streamed(secrets: &Secrets, pieces: &[&str]) -> (String, usize) {
        let mut stream = secrets.stream();
        let (mut shown, mut max_pending) = (String::new(), 0);
        for piece in pieces {
            shown.push_str(&stream.push(piece));
            max_pending = max_pending.max(stream.pending.len());
        }
        (shown + &stream.finish(), max_pending)
    }

    #[test]
    fn a_secret_is_masked_in_a_stream_wherever_its_pieces_are_cut() {
        let secrets = Secrets::new([KEY.to_owned(), "sk-12345678".to_owned(), "sk-1234567890".to_owned()]);
        let text = format!("été: {KEY}{KEY}!\nsk-12345678, sk-1234567890, sk-12345\r\n67890 sk-canary/ end s");
        let masked = "été: [secret][secret]!\n[secret], [secret], [secret] sk-canary/ end s";
        for width in 1..40 {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(width).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(streamed(&secrets, &pieces).0, masked, "{width}");
        }
        // Text that starts no secret is not held back.
        assert_eq!(streamed(&secrets, &["é", "ü ", "\n", "é"]), ("éü \né".to_owned(), 0));
        assert_eq!(streamed(&Secrets::default(), &["sk-", "12345678"]), ("sk-12345678".to_owned(), 0));
        // One secret inside the beginning of another.
        let nested = Secrets::new(["aaaa-secret-bbbb-cccc".to_owned(), "secret-bbbb".to_owned()]);
        assert_eq!(streamed(&nested, &["aaaa-secret-bb", "bb-cc", "x"]).0, "aaaa-[secret]-ccx");
    }

    #[test]
    fn blocks_of_a_message_are_masked() {
        let secrets = Secrets::new([KEY.to_owned()]);
        let mut content: Vec<Block> = serde_json::from_value(json!([
            {"type": "thinking", "thinking": format!("use {KEY}"), "thinkingSignature": "s"},
            {"type": "thinking", "thinking": "plain", "thinkingSignature": "t"},
            {"type": "text", "text": KEY},
            {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"env": {"X": KEY}, "command": "true"}},
        ]))
        .unwrap();
        secrets.mask_blocks(&mut content);
        assert_eq!(
            serde_json::to_value(&content).unwrap(),
            json!([
                {"type": "thinking", "thinking": "use [secret]"},
                {"type": "thinking", "thinking": "plain", "thinkingSignature": "t"},
                {"type": "text", "text": "[secret]"},
                {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"env": {"X": "[secret]"}, "command": "true"}},
            ])
        );
        assert!(
            Secrets::is_masked(&json!({"env": [{"X": "a [secret]"}]})) && !Secrets::is_masked(&json!({"a": ["b"]}))
        );
    }
}
