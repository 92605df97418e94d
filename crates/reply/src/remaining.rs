//! Determines what remains to be sent of an answer after a part of it was sent in blocks.
//!
//! Blocks are cut at whitespace, merged with other whitespace, and get fence lines that the model did not write. The
//! texts are therefore compared without whitespace and fence lines. What is not found counts as not sent: better twice
//! than never.

use std::ops::Range;

use crate::{
    fence::{self, Fence},
    payload::{Kind, Payload},
};

/// Returns the parts of `messages` that no block in `delivered` contains, in order; payloads without remaining content are
/// dropped.
pub(crate) fn remaining(messages: Vec<Payload>, delivered: &[Payload]) -> Vec<Payload> {
    let blocks: Vec<_> = delivered.iter().filter(|block| block.kind == Kind::Answer).collect();
    let letters = LetterIndex::of(&messages);
    let covered = letters.covered(&blocks);
    let payloads = messages.into_iter().enumerate().map(|(index, payload)| {
        let text = letters.remainder(index, &payload.text, &covered);
        let is_new = |media: &String| !blocks.iter().any(|block| block.media.contains(media));
        Payload { text, media: payload.media.into_iter().filter(is_new).collect(), ..payload }
    });
    payloads.filter(|payload| !payload.is_empty()).collect()
}

/// Letters of several texts, concatenated.
struct LetterIndex {
    all: String,
    words: Vec<Word>,
    /// Range of each text.
    texts: Vec<Range<usize>>,
}

/// Start of a word: in the letters, and in its text.
struct Word {
    letter: usize,
    byte: usize,
}

impl LetterIndex {
    fn of(messages: &[Payload]) -> Self {
        let mut letters = Self { all: String::new(), words: Vec::new(), texts: Vec::new() };
        for payload in messages {
            let first = letters.all.len();
            for (byte, word) in words(&payload.text) {
                letters.words.push(Word { letter: letters.all.len(), byte });
                letters.all.push_str(word);
            }
            letters.texts.push(first..letters.all.len());
        }
        letters
    }

    /// Returns the ranges covered by blocks, in order.
    fn covered(&self, blocks: &[&Payload]) -> Vec<Range<usize>> {
        let mut covered = Vec::new();
        let mut at = 0;
        for block in blocks {
            let block: String = words(&block.text).map(|(_, word)| word).collect();
            if let Some(range) = self.find(&block, at).filter(|range| !range.is_empty()) {
                at = range.end;
                covered.push(range);
            }
        }
        covered
    }

    /// Finds a block at `at` or later: preferably as whole words, else directly at `at`.
    fn find(&self, block: &str, at: usize) -> Option<Range<usize>> {
        let found = self.all[at..].match_indices(block).map(|(start, _)| at + start..at + start + block.len());
        let is_whole =
            |range: &Range<usize>| self.is_edge(range.end) && (range.start == at || self.is_edge(range.start));
        // A block may also end in the middle of a word that is too long.
        let direct = self.all[at..].starts_with(block).then(|| at..at + block.len());
        found.into_iter().find(is_whole).or(direct)
    }

    fn is_edge(&self, letter: usize) -> bool {
        letter == self.all.len() || self.words.binary_search_by_key(&letter, |word| word.letter).is_ok()
    }

    /// Returns the byte offset of a letter in its text.
    fn byte(&self, letter: usize) -> usize {
        let next = self.words.partition_point(|word| word.letter <= letter);
        self.words.get(next.saturating_sub(1)).map_or(0, |word| word.byte + letter - word.letter)
    }

    /// Returns the remainder of a text: all of it unchanged, or the pieces around what was sent.
    fn remainder(&self, index: usize, text: &str, covered: &[Range<usize>]) -> String {
        let Some(text_range) = self.texts.get(index) else { return text.to_owned() };
        let sent = covered.iter().map(|range| range.start.max(text_range.start)..range.end.min(text_range.end));
        let mut sent = sent.filter(|range| !range.is_empty()).peekable();
        if sent.peek().is_none() {
            return text.to_owned();
        }
        let fences = fence::spans(text);
        let mut pieces = Vec::new();
        let (mut letter, mut byte) = (text_range.start, 0);
        for range in sent {
            if letter < range.start {
                pieces.push(piece(text, byte..self.byte(range.start), &fences));
            }
            // After the last letter; the next one may be far from it.
            let last = self.all[..range.end].char_indices().next_back().map_or(0, |(last, _)| last);
            (letter, byte) = (range.end, self.byte(last) + range.end - last);
        }
        if letter < text_range.end {
            pieces.push(piece(text, byte..text.len(), &fences));
        }
        pieces.join("\n\n")
    }
}

/// Returns the words of a text with their offsets, without those of fence lines.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    let lines = text.split_inclusive('\n').map(move |line| {
        end += line.len();
        (end - line.len(), line)
    });
    lines.filter(|(_, line)| !is_mark(line)).flat_map(|(start, line)| {
        let mut rest = line;
        std::iter::from_fn(move || {
            rest = rest.trim_start();
            let at = start + line.len() - rest.len();
            let word;
            (word, rest) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
            (!word.is_empty()).then_some((at, word))
        })
    })
}

/// True if a line can open or close a fence.
fn is_mark(line: &str) -> bool {
    let line = line.trim();
    let info = line.trim_start_matches(['`', '~']);
    ["```", "~~~"].iter().any(|mark| line.starts_with(mark)) && !info.contains('`')
}

/// Returns a piece of a text, with the lines that complete its fences.
fn piece(text: &str, range: Range<usize>, fences: &[Fence]) -> String {
    let within = |at: usize| fences.iter().find(|fence| fence.start < at && at < fence.end);
    let (open, close) = (within(range.start), within(range.end));
    let raw = text[range].trim_end();
    let blank = &raw[..raw.len() - raw.trim_start().len()];
    let mut body = blank.rfind('\n').map_or_else(|| raw.trim_start(), |line| &raw[line + 1..]);
    let mut open = open.map(|fence| format!("{}\n", fence.open_line)).unwrap_or_default();
    let mut close = close.map(|fence| format!("\n{}{}", fence.indent, fence.marker)).unwrap_or_default();
    let (first, others) = body.split_once('\n').unwrap_or((body, ""));
    if !open.is_empty() && blank.contains('\n') && is_mark(first) {
        // All of the code was sent, and the fence was closed there.
        open.clear();
        body = others.trim_start_matches('\n');
    }
    let (others, last) = body.rsplit_once('\n').unwrap_or(("", body));
    if !close.is_empty() && is_mark(last) {
        // All of the code was sent, with a fence around it.
        close.clear();
        body = others.trim_end();
    }
    format!("{open}{body}{close}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remaining_texts(messages: &[&str], delivered: &[&str]) -> Vec<String> {
        let [messages, delivered] =
            [messages, delivered].map(|texts| texts.iter().map(|text| Payload::answer(*text)).collect::<Vec<_>>());
        remaining(messages, &delivered).into_iter().map(|payload| payload.text).collect()
    }

    /// Cuts a text at line ends, closing and reopening fences.
    fn cut(text: &str, cuts: &[bool]) -> Vec<String> {
        let fences = fence::spans(text);
        let mut blocks = Vec::new();
        let mut block = String::new();
        let mut at = 0;
        for (line, is_cut) in text.split_inclusive('\n').zip(cuts) {
            let within = fences.iter().find(|fence| fence.start < at && at < fence.end);
            if *is_cut {
                let (open, close) = within.map_or((String::new(), String::new()), |fence| {
                    (format!("{}\n", fence.open_line), format!("{}{}", fence.indent, fence.marker))
                });
                blocks.push(block + &close);
                block = open;
            }
            block += line;
            at += line.len();
        }
        blocks.push(block);
        blocks
    }

    #[test]
    fn text_in_blocks_does_not_remain() {
        assert_eq!(remaining_texts(&["One.\n\nTwo. Three."], &["One.", "Two.", "Three."]), [""; 0]);
        assert_eq!(remaining_texts(&["One.", "Two."], &["One.\n\nTwo."]), [""; 0]);
    }

    #[test]
    fn text_after_the_last_block_remains() {
        assert_eq!(remaining_texts(&["One.\n\n  Two. Three.", "Four."], &["One."]), ["  Two. Three.", "Four."]);
        assert_eq!(remaining_texts(&["One. Two"], &["One."]), ["Two"]);
        assert_eq!(remaining_texts(&["abcdef ghi"], &["abc"]), ["def ghi"]);
    }

    // Case 135, pitfall 58.
    #[test]
    fn a_lost_block_between_two_others_remains() {
        assert_eq!(remaining_texts(&["One.\n\nTwo.\n\nThree."], &["One.", "Three."]), ["Two."]);
        assert_eq!(remaining_texts(&["okay then\n\nok\n\nbye"], &["ok"]), ["okay then\n\nbye"]);
    }

    #[test]
    fn a_text_in_no_block_remains_unchanged() {
        let text = "One\n\n    two\n";
        assert_eq!(remaining_texts(&[text], &["Something else"]), [text]);
        assert_eq!(remaining_texts(&[text], &[]), [text]);
    }

    #[test]
    fn equal_texts_are_sent_as_often_as_written() {
        assert_eq!(remaining_texts(&["ok", "ok"], &["ok"]), ["ok"]);
        assert_eq!(remaining_texts(&["ok", "ok"], &["ok", "ok"]), [""; 0]);
    }

    #[test]
    fn closed_fences_are_reopened_in_the_remainder() {
        let text = "Look:\n```rust\nlet a = 1;\n    let b = 2;\n```\nDone.";
        assert_eq!(
            remaining_texts(&[text], &["Look:\n```rust\nlet a = 1;\n```"]),
            ["```rust\n    let b = 2;\n```\nDone."]
        );
        let all = ["Look:\n```rust\nlet a = 1;\n```\n\n```rust\n    let b = 2;\n```"];
        assert_eq!(remaining_texts(&[text], &all), ["Done."]);
        assert_eq!(
            remaining_texts(&[text], &["```rust\n    let b = 2;\n```"]),
            ["Look:\n```rust\nlet a = 1;\n```\n\nDone."]
        );
        let code = "```rust\nlet a = 1;\n    let b = 2;\n```";
        assert_eq!(remaining_texts(&[text], &[code]), ["Look:\n\nDone."]);
    }

    #[test]
    fn only_unsent_media_remain() {
        let payload = |text: &str, media: &[&str]| Payload {
            media: media.iter().map(|&media| media.to_owned()).collect(),
            ..Payload::answer(text)
        };
        let messages = vec![payload("Look", &["./a.png", "./b.png"])];
        assert_eq!(remaining(messages, &[payload("Look", &["./a.png"])]), [payload("", &["./b.png"])]);
    }

    proptest! {
        /// However a text is cut into words and whichever of them arrive: those and the remainder are the text.
        #[test]
        fn blocks_and_remainder_are_the_text(
            words in prop::collection::vec("[a-c]{1,3}", 1..12),
            until in 0usize..12,
            gap in prop::sample::select(vec![" ", "\n", "\n\n"]),
        ) {
            let text = words.join(gap);
            let (sent, rest) = words.split_at(until.min(words.len()));
            let blocks: Vec<_> = sent.iter().map(String::as_str).collect();
            prop_assert_eq!(remaining_texts(&[&text], &blocks).concat(), rest.join(gap));
        }

        /// Blocks and remainder are the text, also with code, whose fences are closed and reopened at cuts.
        #[test]
        fn added_fences_do_not_affect_the_remainder(
            lines in prop::collection::vec(
                prop::sample::select(vec!["one two.", "three", "", "```rs", "```", "~~~", "    let x;", "é `a` b"]),
                0..16,
            ),
            cuts in prop::collection::vec(any::<bool>(), 16),
            until in 0usize..8,
        ) {
            let text = lines.join("\n");
            let blocks = cut(&text, &cuts);
            let blocks: Vec<_> = blocks.iter().take(until).map(String::as_str).collect();
            let letters = |texts: &[&str]| {
                texts.iter().flat_map(|text| words(text)).map(|(_, word)| word).collect::<String>()
            };
            let remaining_texts = remaining_texts(&[&text], &blocks).concat();
            prop_assert_eq!(letters(&blocks) + &letters(&[&remaining_texts]), letters(&[&text]), "{:?} {:?}", blocks, remaining_texts);
        }
    }
}
