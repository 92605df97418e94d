//! A summary that no model wrote: quotations from the conversation, chosen by rules, in a fixed size.

use std::{collections::HashSet, sync::Arc};

use homard_model::tokens::estimate;
use homard_proto::message::Message;

use crate::cut;

/// How much of a message is quoted, in characters.
const QUOTE: usize = 300;

/// How many of the last statements are quoted.
const STATEMENTS: usize = 5;

/// No name, path, address or number is longer, in bytes.
const LONGEST: usize = 120;

/// Lines in which an assistant says one of these are quoted.
const TELLING: [&str; 13] = [
    "decid",
    "decision",
    "instead of",
    "must ",
    "never ",
    "always ",
    "todo",
    "next step",
    "blocked",
    "fixed",
    "because",
    "remember",
    "root cause",
];

const LEAD: &str = "(No model summed this up: these are quotations.)";

/// Quotations from the messages that weigh at most `budget`, after what is left of an earlier summary.
pub(crate) fn extract(messages: &[Arc<Message>], previous: Option<&str>, budget: u64) -> String {
    let mut page = Page { text: LEAD.to_owned(), left: budget.saturating_sub(estimate(LEAD)) };
    if let Some(previous) = previous {
        let share = page.left / 2;
        page.write("## Earlier summary", &cut::lines(previous, Page::room(share)), 0);
    }
    let users: Vec<String> = messages.iter().filter_map(|message| user_words(message)).collect();
    let said: Vec<String> = messages.iter().filter_map(|message| assistant_words(message)).collect();
    let all = page.left;
    if let Some(first) = users.first() {
        page.write("## Goal", &cut::lines(first.trim(), Page::room(all / 5)), 0);
    }
    page.newest("## Requests", all * 3 / 10, users.iter().skip(1).map(|text| quoted(text)));
    let (names, missing) = chosen(identifiers(&users), Page::room(all * 3 / 20));
    page.write("## Names and numbers", &names.join(", "), missing);
    let decisions = said.iter().flat_map(|text| text.lines()).filter(|line| tells(line)).map(quoted);
    page.newest("## Decisions", all * 3 / 20, decisions);
    let last = &said[said.len().saturating_sub(STATEMENTS)..];
    page.newest("## Last statements", page.left, last.iter().map(|text| quoted(text)));
    // Every section keeps to its share; this is for a budget that does not even hold the first line.
    cut::lines(&page.text, budget)
}

fn user_words(message: &Message) -> Option<String> {
    let Message::User(user) = message else { return None };
    Some(user.content.text()).filter(|text| !text.trim().is_empty())
}

fn assistant_words(message: &Message) -> Option<String> {
    let Message::Assistant(said) = message else { return None };
    Some(said.text()).filter(|text| !text.trim().is_empty())
}

fn quoted(text: &str) -> String {
    format!("- {}", cut::one_line(text, QUOTE))
}

fn tells(line: &str) -> bool {
    // No sentence is that long.
    if line.len() > 2_000 {
        return false;
    }
    let line = line.to_lowercase();
    TELLING.iter().any(|word| line.contains(word))
}

/// Paths, addresses, numbers and other names that cannot be guessed, each once, in the order in which they came.
fn identifiers(texts: &[String]) -> impl Iterator<Item = String> {
    let mut seen = HashSet::new();
    let words = texts.iter().flat_map(|text| text.split(|letter: char| letter.is_whitespace() || !letter.is_ascii()));
    let words = words.map(|word| word.trim_matches(|letter: char| ",;:!?()[]{}<>\"'`*".contains(letter)));
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(move |word| is_identifier(word) && seen.insert(*word)).map(str::to_owned)
}

fn is_identifier(word: &str) -> bool {
    let has_letters = word.bytes().any(|letter| letter.is_ascii_alphanumeric());
    let is_telling = |letter: u8| letter.is_ascii_digit() || matches!(letter, b'/' | b'\\' | b'@' | b'_' | b'.');
    (2..=LONGEST).contains(&word.len()) && has_letters && word.bytes().any(is_telling)
}

/// What fits, up to the first that does not, and how many do not.
fn chosen(lines: impl Iterator<Item = String>, mut room: u64) -> (Vec<String>, usize) {
    let mut taken = Vec::new();
    let mut missing = 0;
    for line in lines {
        let cost = estimate(&line) + 1;
        if missing == 0 && cost <= room {
            room -= cost;
            taken.push(line);
        } else {
            missing += 1;
        }
    }
    (taken, missing)
}

/// What is written, and how many tokens may follow.
struct Page {
    text: String,
    left: u64,
}

impl Page {
    /// What a section of that size holds besides its heading and its last line.
    fn room(share: u64) -> u64 {
        share.saturating_sub(20)
    }

    /// The newest lines that fit, oldest first.
    fn newest(&mut self, heading: &str, share: u64, lines: impl DoubleEndedIterator<Item = String>) {
        let (mut lines, missing) = chosen(lines.rev(), Self::room(share));
        lines.reverse();
        self.write(heading, &lines.join("\n"), missing);
    }

    fn write(&mut self, heading: &str, body: &str, missing: usize) {
        if body.is_empty() {
            return;
        }
        let more = if missing > 0 { format!("\n({missing} more)") } else { String::new() };
        let section = format!("\n\n{heading}\n{body}{more}");
        self.left = self.left.saturating_sub(estimate(&section));
        self.text.push_str(&section);
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{Assistant, Block, User};

    use super::*;

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::User(User::text(text, 0)))
    }

    fn assistant(text: &str) -> Arc<Message> {
        Arc::new(Message::Assistant(Assistant { content: vec![Block::text(text)], ..Assistant::default() }))
    }

    #[test]
    fn quotes_what_matters() {
        let messages = [
            user("Port /srv/app to Rust, see https://example.com/a?b=1."),
            assistant("Looking.\nWe decided to keep SQLite.\nFine."),
            user("use port 8080\nplease"),
            assistant("Done."),
        ];
        let expected = "\
(No model summed this up: these are quotations.)

## Earlier summary
## Goal
old

## Goal
Port /srv/app to Rust, see https://example.com/a?b=1.

## Requests
- use port 8080 please

## Names and numbers
/srv/app, https://example.com/a?b=1, 8080

## Decisions
- We decided to keep SQLite.

## Last statements
- Looking. We decided to keep SQLite. Fine.
- Done.";
        assert_eq!(extract(&messages, Some("## Goal\nold"), 2_000), expected);
    }

    #[test]
    fn the_newest_requests_stay_when_there_is_no_room_for_all() {
        let messages: Vec<_> = (0..400).map(|number| user(&format!("request {number} about the harbour"))).collect();
        let text = extract(&messages, None, 300);
        assert!(text.contains("request 0 about") && text.contains("request 399 about"), "{text}");
        assert!(estimate(&text) <= 300, "{text}");
    }
}
