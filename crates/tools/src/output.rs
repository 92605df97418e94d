//! Captured output of a command: its beginning and its end; the middle is dropped.

use std::{collections::VecDeque, iter::Peekable, str::Chars};

/// Bytes kept of the beginning.
const HEAD_BYTES: usize = 100_000;

/// Bytes kept of the end.
const TAIL_BYTES: usize = 100_000;

/// Captured output. Between calls it never holds more than the configured number of bytes.
#[derive(Debug)]
pub(crate) struct OutputBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
    limits: (usize, usize),
}

impl Default for OutputBuffer {
    fn default() -> Self {
        Self::with_limits(HEAD_BYTES, TAIL_BYTES)
    }
}

impl OutputBuffer {
    /// Creates a buffer that keeps this many bytes of the beginning and of the end.
    pub(crate) fn with_limits(head: usize, tail: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), dropped: 0, limits: (head, tail) }
    }

    /// Appends output.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let free = self.limits.0 - self.head.len();
        let (first, rest) = bytes.split_at(free.min(bytes.len()));
        self.head.extend(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.limits.1);
        self.tail.drain(..excess);
        self.dropped += excess as u64;
    }

    /// Returns the kept output without trailing white space, with a notice where something was dropped.
    pub(crate) fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let text = if self.dropped == 0 {
            printable(&[&self.head, front, back].concat())
        } else {
            let notice = format!("\n\n[{} bytes of output are left out here]\n\n", self.dropped);
            printable(&self.head) + &notice + &printable(&[front, back].concat())
        };
        text.trim_end().to_owned()
    }

    /// Returns the kept output and resets the buffer.
    pub(crate) fn take(&mut self) -> Self {
        let (head, tail) = self.limits;
        std::mem::replace(self, Self::with_limits(head, tail))
    }

    /// True if output was dropped.
    pub(crate) fn is_truncated(&self) -> bool {
        self.dropped > 0
    }

    /// Returns about the last `count` bytes.
    pub(crate) fn tail(&self, count: usize) -> String {
        let from_tail = self.tail.range(self.tail.len().saturating_sub(count)..);
        let from_head = self.head.len().saturating_sub(count.saturating_sub(self.tail.len()));
        let bytes: Vec<u8> = self.head[from_head..].iter().chain(from_tail).copied().collect();
        let char_start = bytes.iter().position(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
        printable(&bytes[char_start..]).trim_end().to_owned()
    }
}

/// Converts output to text without terminal control sequences, since it may be printed on a terminal.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut chars = text.chars().peekable();
    let mut filtered = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut chars),
            '\n' | '\r' | '\t' => filtered.push(c),
            c if c.is_control() => {}
            c => filtered.push(c),
        }
    }
    filtered
}

/// Skips the rest of an escape sequence: `[…letter`, `]…bell`, `P…escape`, or one or two characters.
fn skip_sequence(chars: &mut Peekable<Chars<'_>>) {
    match chars.peek().copied() {
        Some('[') => {
            chars.next();
            while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
            chars.next_if(|c| matches!(c, '@'..='~'));
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            // An unterminated sequence ends with the line, so that it cannot swallow the following output.
            while chars.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}' | '\n')).is_some() {}
            if chars.next_if(|c| matches!(c, '\u{7}' | '\u{1b}')) == Some('\u{1b}') {
                chars.next_if_eq(&'\\');
            }
        }
        Some(' '..='/') => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
        }
        Some('0'..='~') => {
            chars.next();
        }
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_fits_is_kept_unchanged() {
        let mut output = OutputBuffer::default();
        output.push("one \u{1b}[31mtwo\0\n".as_bytes());
        output.push(&"é".repeat(60_000).into_bytes());
        output.push(b"\tend \n\n");
        assert_eq!(output.text(), format!("one two\n{}\tend", "é".repeat(60_000)));
        assert_eq!(output.tail(10), "é\tend");
    }

    #[test]
    fn terminal_control_sequences_are_removed() {
        let mut output = OutputBuffer::default();
        output.push(b"a\x1b[1;31mb\x1b]0;title\x07c\x1b]8;;http://x\x1b\\d\x1b(Be\x1b7f\x1b]open\ng\x1b");
        assert_eq!(output.text(), "abcdef\ng");
    }

    #[test]
    fn the_middle_of_long_output_is_dropped() {
        let mut output = OutputBuffer::default();
        for _ in 0..1000 {
            output.push(&[b'x'; 1000]);
            assert!(output.head.len() + output.tail.len() <= HEAD_BYTES + TAIL_BYTES);
        }
        output.push(b"end");
        let expected = format!(
            "{}\n\n[800003 bytes of output are left out here]\n\n{}end",
            "x".repeat(100_000),
            "x".repeat(99_997)
        );
        assert_eq!(output.text(), expected);
        assert_eq!(output.tail(5), "xxend");
    }
}
