//! Values that must not be seen: what tools say is cleared of them before it is stored, shown or told to a model.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD},
};
use homard_proto::message::Block;
use serde_json::Value;

use crate::tool::ToolResult;

/// What stands where a secret was.
const MASK: &str = "[secret]";

/// Shorter values are not looked for: they would be found in ordinary words.
const SHORTEST: usize = 8;

/// Where programs may break a line in the middle of a secret, as `base64` does.
const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// Values that must not be seen. Clones are cheap; debug output has none of them.
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<AhoCorasick>>);

impl Secrets {
    /// These values, as they are and as tools write them: in base64, in hex, percent-encoded and as in JSON.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let values = values.into_iter().filter(|value| value.len() >= SHORTEST);
        let patterns: BTreeSet<String> = values.flat_map(|value| spellings(&value)).collect();
        if patterns.is_empty() {
            return Self::default();
        }
        // The longest at a place, so that a key is not half hidden by one that it begins with.
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns);
        match built {
            Ok(found) => Self(Some(Arc::new(found))),
            Err(error) => {
                tracing::error!(%error, "secrets cannot be looked for in what tools say");
                Self::default()
            }
        }
    }

    /// A text without them, also where they are broken over several lines.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(found) = &self.0 else { return text.into() };
        let (mut joined, mut breaks) = (String::with_capacity(text.len()), Vec::new());
        for line in text.split(LINE_ENDS) {
            joined.push_str(line);
            breaks.push(joined.len());
        }
        let place = |at: usize| at + breaks.partition_point(|line_end| *line_end <= at);
        let mut clear = String::new();
        let mut last = 0;
        for secret in found.find_iter(&joined) {
            clear.push_str(&text[last..place(secret.start())]);
            clear.push_str(MASK);
            last = place(secret.end() - 1) + 1;
        }
        if last == 0 {
            return text.into();
        }
        clear.push_str(&text[last..]);
        clear.into()
    }

    /// What a tool said, without them.
    pub fn mask_result(&self, mut result: ToolResult) -> ToolResult {
        if self.0.is_none() {
            return result;
        }
        for block in &mut result.content {
            if let Block::Text(text) = block
                && let Cow::Owned(clear) = self.mask(&text.text)
            {
                text.text = clear;
            }
        }
        if let Some(details) = &mut result.details {
            self.mask_value(details);
        }
        result
    }

    fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(clear) = self.mask(text) {
                    *text = clear;
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.mask_value(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.mask_value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.as_ref().map_or(0, |found| found.patterns_len());
        write!(f, "Secrets({count} spellings)")
    }
}

/// A value as it is, and as tools write it.
fn spellings(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let percent: String = bytes
        .iter()
        .map(|byte| if is_plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    let json = Value::from(value).to_string();
    let mut all =
        vec![value.replace(LINE_ENDS, ""), hex.to_uppercase(), hex, percent, json[1..json.len() - 1].to_owned()];
    // Within a longer text, base64 writes it in one of three ways; what it shares with its neighbours is left out.
    for skip in 0..3 {
        let Some(rest) = bytes.get(skip..) else { continue };
        let whole = &rest[..rest.len() / 3 * 3];
        if whole.len() >= SHORTEST {
            all.push(BASE64_STANDARD_NO_PAD.encode(whole));
            all.push(BASE64_URL_SAFE_NO_PAD.encode(whole));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "sk-canary/1+\"quoted\"-0123456789";

    #[test]
    fn a_secret_is_found_however_it_is_spelled() {
        let secrets = Secrets::new([KEY.to_owned(), "short".to_owned()]);
        for before in ["", "a", "ab", "abc"] {
            let text = format!("{before}{KEY} and more");
            for spelled in [
                text.clone(),
                Value::from(text.clone()).to_string(),
                BASE64_STANDARD_NO_PAD.encode(&text),
                BASE64_URL_SAFE_NO_PAD.encode(&text),
                text.bytes().map(|byte| format!("{byte:02x}")).collect(),
                text.bytes().map(|byte| format!("{byte:02X}")).collect(),
            ] {
                assert!(secrets.mask(&spelled).contains(MASK), "{spelled}");
            }
        }
        assert_eq!(secrets.mask("a short text"), "a short text");
        assert_eq!(secrets.mask(&format!("x={KEY}; y={KEY}")), "x=[secret]; y=[secret]");
        assert_eq!(format!("{secrets:?}"), "Secrets(8 spellings)");
    }

    #[test]
    fn a_secret_is_found_across_lines_and_what_is_around_it_stays() {
        let secrets = Secrets::new([KEY.to_owned(), "-----BEGIN\nabcdef\n-----END".to_owned()]);
        let (one, two) = KEY.split_at(9);
        let text = format!("été\n\n{KEY}\nKEY={one}\r\n{two}\n\nand\n{one}\n");
        assert_eq!(secrets.mask(&text), format!("été\n\n[secret]\nKEY=[secret]\n\nand\n{one}\n"));
        assert_eq!(secrets.mask("a\n-----BEGIN\nabcdef\n-----END\nb\n"), "a\n[secret]\nb\n");
        for width in 1..20 {
            let encoded = BASE64_STANDARD_NO_PAD.encode(format!("a{KEY} and more"));
            let lines: Vec<_> = encoded.as_bytes().chunks(width).map(String::from_utf8_lossy).collect();
            assert!(secrets.mask(&lines.join("\n")).contains(MASK), "{width}");
        }
    }

    #[test]
    fn the_longer_of_two_that_begin_alike_is_hidden_whole() {
        let secrets = Secrets::new(["sk-12345678".to_owned(), "sk-1234567890".to_owned()]);
        assert_eq!(secrets.mask("sk-1234567890!"), "[secret]!");
    }

    #[test]
    fn a_result_is_cleared_in_all_its_parts() {
        let secrets = Secrets::new([KEY.to_owned()]);
        let result = ToolResult::text(format!("KEY={KEY}")).with_details(json!({"tail": [KEY], "n": 1}));
        let clear = ToolResult::text("KEY=[secret]").with_details(json!({"tail": ["[secret]"], "n": 1}));
        assert_eq!(secrets.mask_result(result), clear);
    }
}
