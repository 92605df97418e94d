//! What a command wrote: its beginning and its end, however much came between.

use std::collections::VecDeque;

/// How many bytes of the beginning are kept.
const HEAD: usize = 100_000;

/// How many bytes of the end are kept.
const TAIL: usize = 100_000;

/// What a command wrote. Never holds more than `HEAD + TAIL` bytes between two calls.
#[derive(Debug, Default)]
pub(crate) struct Output {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Output {
    /// Takes what came next.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = HEAD - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
        self.left_out += excess as u64;
    }

    /// All that was kept, without the blank end, and with a notice where something is left out.
    pub(crate) fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let text = if self.left_out == 0 {
            printable(&[&self.head, front, back].concat())
        } else {
            let notice = format!("\n\n[{} bytes of output are left out here]\n\n", self.left_out);
            printable(&self.head) + &notice + &printable(&[front, back].concat())
        };
        text.trim_end().to_owned()
    }

    /// About the last `count` bytes.
    pub(crate) fn last(&self, count: usize) -> String {
        let from_tail = self.tail.range(self.tail.len().saturating_sub(count)..);
        let from_head = self.head.len().saturating_sub(count.saturating_sub(self.tail.len()));
        let bytes: Vec<u8> = self.head[from_head..].iter().chain(from_tail).copied().collect();
        let whole = bytes.iter().position(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
        printable(&bytes[whole..]).trim_end().to_owned()
    }
}

/// As text, without control characters: they would reach somebody's terminal in the end.
fn printable(bytes: &[u8]) -> String {
    let is_wanted = |c: &char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    String::from_utf8_lossy(bytes).chars().filter(is_wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_kept_as_it_came() {
        let mut output = Output::default();
        output.push("one \u{1b}[31mtwo\0\n".as_bytes());
        output.push(&"é".repeat(60_000).into_bytes());
        output.push(b"\tend \n\n");
        assert_eq!(output.text(), format!("one [31mtwo\n{}\tend", "é".repeat(60_000)));
        assert_eq!(output.last(10), "é\tend");
    }

    #[test]
    fn the_middle_of_a_flood_is_left_out() {
        let mut output = Output::default();
        for _ in 0..1000 {
            output.push(&[b'x'; 1000]);
            assert!(output.head.len() + output.tail.len() <= HEAD + TAIL);
        }
        output.push(b"end");
        let expected = format!(
            "{}\n\n[800003 bytes of output are left out here]\n\n{}end",
            "x".repeat(100_000),
            "x".repeat(99_997)
        );
        assert_eq!(output.text(), expected);
        assert_eq!(output.last(5), "xxend");
    }
}
