//! Tokenizer for a line.

use std::time::Duration;

use serde_json::Value;

/// Error message: what was expected and what was found.
pub(super) type SyntaxMessage = String;

/// Rest of a line.
#[derive(Debug, Clone)]
pub(super) struct LineScanner<'a> {
    rest: &'a str,
}

impl<'a> LineScanner<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        Self { rest: line.trim() }
    }

    /// Returns the rest of the line.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns an error that says what was expected.
    pub(super) fn error<T>(&self, expected: &str) -> Result<T, SyntaxMessage> {
        let found = if self.is_empty() { "the end of the line".to_owned() } else { format!("`{}`", self.rest) };
        Err(format!("expected {expected}, found {found}"))
    }

    /// Returns the next word without consuming it: up to white space, `;`, `|`, `=` or a quote.
    pub(super) fn peek(&self) -> &'a str {
        let end = self.rest.find(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '=' | '"'));
        &self.rest[..end.unwrap_or(self.rest.len())]
    }

    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str, SyntaxMessage> {
        let word = self.peek();
        if word.is_empty() {
            return self.error(expected);
        }
        self.skip(word.len());
        Ok(word)
    }

    /// Consumes a word or a symbol if it is next.
    pub(super) fn take(&mut self, sign: &str) -> bool {
        let is_next =
            if sign.chars().all(char::is_alphanumeric) { self.peek() == sign } else { self.rest.starts_with(sign) };
        if is_next {
            self.skip(sign.len());
        }
        is_next
    }

    /// Parses a quoted text; `"ab"*3` is `ababab`.
    pub(super) fn quoted(&mut self) -> Result<String, SyntaxMessage> {
        let Some((Value::String(text), length)) = self.value() else { return self.error("a \"text\"") };
        self.skip(length);
        if !self.take("*") {
            return Ok(text);
        }
        let before = self.clone();
        match self.word("a number")?.parse() {
            Ok(times) => Ok(text.repeat(times)),
            Err(_) => before.error("a number"),
        }
    }

    pub(super) fn json(&mut self) -> Result<Value, SyntaxMessage> {
        match self.value() {
            Some((value, length)) => {
                self.skip(length);
                Ok(value)
            }
            None => self.error("JSON"),
        }
    }

    /// Parses a time such as `500ms`.
    pub(super) fn time(&mut self) -> Result<Duration, SyntaxMessage> {
        match self.peek_time() {
            Some(time) => {
                self.skip(self.peek().len());
                Ok(time)
            }
            None => Err(format!("expected a time such as 500ms, 2s, 5m or 48h, found `{}`", self.peek())),
        }
    }

    pub(super) fn peek_time(&self) -> Option<Duration> {
        let word = self.peek();
        let (number, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit())?);
        let number: u64 = number.parse().ok()?;
        match unit {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => Some(Duration::from_secs(number * 60)),
            "h" => Some(Duration::from_secs(number * 3_600)),
            _ => None,
        }
    }

    /// Parses a setting, `name=value`; the value is a word or a quoted text.
    pub(super) fn setting(&mut self) -> Result<(&'a str, String), SyntaxMessage> {
        let name = self.word("a setting such as name=value")?;
        if !self.rest.starts_with('=') {
            return Err(format!("expected `=` after `{name}`, found `{}`", self.rest));
        }
        self.rest = &self.rest[1..];
        let value = if self.rest.starts_with('"') { self.quoted()? } else { self.word("a value")?.to_owned() };
        Ok((name, value))
    }

    /// Fails unless the line is exhausted.
    pub(super) fn end(&self) -> Result<(), SyntaxMessage> {
        if self.is_empty() { Ok(()) } else { self.error("the end of the line") }
    }

    fn value(&self) -> Option<(Value, usize)> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        Some((value, values.byte_offset()))
    }

    fn skip(&mut self, length: usize) {
        // A `=` is not skipped: `setting` looks for it.
        self.rest = self.rest[length..].trim_start();
    }
}
