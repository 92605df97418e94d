//! Extractive summary without a model: quotations chosen by rules, within a fixed size.

use std::{collections::HashSet, sync::Arc};

use homard_model::tokens::estimate;
use homard_proto::message::Message;

use crate::{
    cut,
    summary::{NO_HISTORY, TURN_SEPARATOR},
};

/// Maximum number of characters quoted of a message.
const MAX_QUOTE_CHARS: usize = 300;

/// Number of last statements that are quoted.
const MAX_STATEMENTS: usize = 5;

/// Maximum length of a name, path, address or number in bytes.
const MAX_NAME_BYTES: usize = 120;

/// An assistant's lines that contain one of these are quoted.
const KEYWORDS: [&str; 13] = [
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

/// Tags around an earlier summary written by a model.
const EARLIER: (&str, &str) = ("<earlier-summary>", "</earlier-summary>");

const EARLIER_HEADING: &str = "## Earlier summary";
const GOAL: &str = "## Goal";
const REQUESTS: &str = "## Requests";
const NAMES: &str = "## Names and numbers";
const DECISIONS: &str = "## Decisions";
const STATEMENTS_HEADING: &str = "## Last statements";

/// Returns an extract of at most `budget` tokens: the earlier summary, truncated, and quotations from the messages. If
/// the earlier summary is itself an extract, its quotations are merged with the new ones, so the structure is the same.
pub(crate) fn extract(messages: &[Arc<Message>], previous: Option<&str>, budget: u64) -> String {
    let mut quotes = previous.map(ExtractQuotes::read).unwrap_or_default();
    quotes.add(messages);
    quotes.write(budget)
}

/// Quotations by kind.
#[derive(Debug, Default)]
struct ExtractQuotes {
    /// Earlier summaries written by a model.
    earlier: Vec<String>,
    goal: Option<String>,
    requests: QuoteList,
    names: QuoteList,
    decisions: QuoteList,
    statements: QuoteList,
}

/// Quotations of one kind, oldest first, and the number of omitted ones.
#[derive(Debug, Default)]
struct QuoteList {
    texts: Vec<String>,
    missing: usize,
}

impl ExtractQuotes {
    /// Parses a summary: text written by a model, and quotations.
    fn read(summary: &str) -> Self {
        let mut quotes = Self::default();
        for part in summary.split(TURN_SEPARATOR).map(str::trim).filter(|part| !part.is_empty() && *part != NO_HISTORY)
        {
            match part.strip_prefix(LEAD) {
                Some(quoted) => quotes.read_quoted(quoted.trim_start()),
                None => quotes.earlier.push(part.to_owned()),
            }
        }
        quotes
    }

    /// Parses an earlier extract in the format of [`Self::write`]: adds the quotations below each heading to its list.
    fn read_quoted(&mut self, mut text: &str) {
        if let Some(rest) = text.strip_prefix(EARLIER_HEADING).map(str::trim_start)
            && let Some((earlier, rest)) = rest.strip_prefix(EARLIER.0).and_then(|rest| rest.split_once(EARLIER.1))
        {
            self.earlier.push(earlier.trim().to_owned());
            text = rest;
        }
        let mut heading = "";
        let mut goal = String::new();
        for line in text.lines() {
            if [GOAL, REQUESTS, NAMES, DECISIONS, STATEMENTS_HEADING].contains(&line) {
                heading = line;
                continue;
            }
            match heading {
                GOAL => goal = format!("{goal}{line}\n"),
                REQUESTS => self.requests.read(line),
                NAMES => line.split(", ").for_each(|name| self.names.read(name)),
                DECISIONS => self.decisions.read(line),
                STATEMENTS_HEADING => self.statements.read(line),
                _ => {}
            }
        }
        self.add_request(goal.trim());
    }

    /// Adds a user's request; the first one is the goal.
    fn add_request(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match &self.goal {
            None => self.goal = Some(text.to_owned()),
            Some(_) => self.requests.texts.push(quoted(text)),
        }
    }

    fn add(&mut self, messages: &[Arc<Message>]) {
        let requests: Vec<String> = messages.iter().filter_map(|message| user_text(message)).collect();
        let statements: Vec<String> = messages.iter().filter_map(|message| assistant_text(message)).collect();
        requests.iter().for_each(|text| self.add_request(text.trim()));
        let mut seen: HashSet<String> = self.names.texts.iter().cloned().collect();
        self.names.texts.extend(identifiers(&requests).filter(|name| seen.insert(name.clone())));
        let decisions = statements.iter().flat_map(|text| text.lines()).filter(|line| has_keyword(line)).map(quoted);
        self.decisions.texts.extend(decisions);
        self.statements.texts.extend(statements.iter().map(|text| quoted(text)));
        // Only the last statements count, not the number of earlier ones.
        let excess = self.statements.texts.len().saturating_sub(MAX_STATEMENTS);
        self.statements.texts.drain(..excess);
        self.statements.missing = 0;
    }

    /// Writes the extract. Each section gets a share of the budget; the last statements get what is left.
    fn write(&self, budget: u64) -> String {
        let mut writer = ExtractWriter { text: LEAD.to_owned(), left: budget.saturating_sub(estimate(LEAD)) };
        if !self.earlier.is_empty() {
            let tags = format!("{}\n\n{}", EARLIER.0, EARLIER.1);
            let earlier_budget = ExtractWriter::usable_share(writer.left / 2).saturating_sub(estimate(&tags));
            let earlier = self.earlier.join("\n\n").replace(EARLIER.1, "<\\/earlier-summary>");
            let earlier = cut::lines(&earlier, earlier_budget);
            if !earlier.trim().is_empty() {
                writer.write(EARLIER_HEADING, &format!("{}\n{earlier}\n{}", EARLIER.0, EARLIER.1), 0);
            }
        }
        let all = writer.left;
        if let Some(goal) = &self.goal {
            writer.write(GOAL, &cut::lines(goal, ExtractWriter::usable_share(all / 5)), 0);
        }
        writer.newest(REQUESTS, all * 3 / 10, &self.requests);
        let (names, missing) =
            fitting_lines(self.names.texts.iter().cloned(), ExtractWriter::usable_share(all * 3 / 20));
        writer.write(NAMES, &names.join(", "), missing + self.names.missing);
        writer.newest(DECISIONS, all * 3 / 20, &self.decisions);
        writer.newest(STATEMENTS_HEADING, writer.left, &self.statements);
        // Every section stays within its share; this handles a budget that does not even hold the first line.
        cut::lines(&writer.text, budget)
    }
}

impl QuoteList {
    /// Parses a line that was quoted before.
    fn read(&mut self, line: &str) {
        let missing = line.strip_prefix('(').and_then(|line| line.strip_suffix(" more)")?.parse::<usize>().ok());
        match missing {
            Some(missing) => self.missing += missing,
            // A note that the summary was cut here is not a quotation either.
            None if line.trim().is_empty() || line.starts_with("[…") => {}
            None => self.texts.push(line.to_owned()),
        }
    }
}

fn user_text(message: &Message) -> Option<String> {
    let Message::User(user) = message else { return None };
    Some(user.content.text()).filter(|text| !text.trim().is_empty())
}

fn assistant_text(message: &Message) -> Option<String> {
    let Message::Assistant(assistant) = message else { return None };
    Some(assistant.text()).filter(|text| !text.trim().is_empty())
}

fn quoted(text: &str) -> String {
    format!("- {}", cut::one_line(text, MAX_QUOTE_CHARS))
}

fn has_keyword(line: &str) -> bool {
    // No sentence is that long.
    if line.len() > 2_000 {
        return false;
    }
    let line = line.to_lowercase();
    KEYWORDS.iter().any(|word| line.contains(word))
}

/// Returns paths, addresses, numbers and other names that cannot be guessed, each once, in order of appearance.
fn identifiers(texts: &[String]) -> impl Iterator<Item = String> {
    let mut seen = HashSet::new();
    let candidates = texts.iter().flat_map(|text| text.split(|c: char| c.is_whitespace() || !c.is_ascii()));
    let candidates = candidates.map(|word| word.trim_matches(|c: char| ",;:!?()[]{}<>\"'`*".contains(c)));
    let candidates = candidates.map(|word| word.trim_end_matches('.'));
    candidates.filter(move |word| is_identifier(word) && seen.insert(*word)).map(str::to_owned)
}

fn is_identifier(word: &str) -> bool {
    let has_letters = word.bytes().any(|byte| byte.is_ascii_alphanumeric());
    let is_distinctive = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'/' | b'\\' | b'@' | b'_' | b'.');
    (2..=MAX_NAME_BYTES).contains(&word.len()) && has_letters && word.bytes().any(is_distinctive)
}

/// Returns the lines that fit, up to the first that does not, and the number of omitted ones.
fn fitting_lines(lines: impl Iterator<Item = String>, mut left: u64) -> (Vec<String>, usize) {
    let mut fitting = Vec::new();
    let mut missing = 0;
    for line in lines {
        let cost = estimate(&line) + 1;
        if missing == 0 && cost <= left {
            left -= cost;
            fitting.push(line);
        } else {
            missing += 1;
        }
    }
    (fitting, missing)
}

/// Builds the text of an extract and tracks the remaining token budget.
struct ExtractWriter {
    text: String,
    left: u64,
}

impl ExtractWriter {
    /// Returns the tokens of a section's share without its heading and its last line.
    fn usable_share(share: u64) -> u64 {
        share.saturating_sub(20)
    }

    /// Writes the newest lines that fit, oldest first.
    fn newest(&mut self, heading: &str, share: u64, quoted: &QuoteList) {
        let (mut lines, missing) = fitting_lines(quoted.texts.iter().rev().cloned(), Self::usable_share(share));
        lines.reverse();
        self.write(heading, &lines.join("\n"), missing + quoted.missing);
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
<earlier-summary>
## Goal
old
</earlier-summary>

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
    fn an_extract_of_an_extract_is_flat() {
        let first = extract(
            &[user("Port /srv/app to Rust."), assistant("We decided to keep SQLite."), user("use port 8080")],
            Some("## Goal\nold"),
            2_000,
        );
        let turn = extract(&[user("now the tests"), assistant("Looking.")], None, 500);
        let second = extract(
            &[user("and /srv/app/docs on port 8080"), assistant("Fixed the docs.")],
            Some(&format!("{first}{TURN_SEPARATOR}{turn}")),
            2_000,
        );
        let expected = "\
(No model summed this up: these are quotations.)

## Earlier summary
<earlier-summary>
## Goal
old
</earlier-summary>

## Goal
Port /srv/app to Rust.

## Requests
- use port 8080
- now the tests
- and /srv/app/docs on port 8080

## Names and numbers
/srv/app, 8080, /srv/app/docs

## Decisions
- We decided to keep SQLite.
- Fixed the docs.

## Last statements
- We decided to keep SQLite.
- Looking.
- Fixed the docs.";
        assert_eq!(second, expected);
        assert_eq!(extract(&[], Some(&second), 2_000), second, "nothing new is nothing new");
    }

    #[test]
    fn omitted_quotations_stay_counted() {
        let requests = |range: std::ops::Range<usize>| -> Vec<_> {
            range.map(|number| user(&format!("request {number} about the harbour"))).collect()
        };
        let first = extract(&requests(0..100), None, 300);
        let second = extract(&requests(100..200), Some(&first), 300);
        let third = extract(&requests(200..201), Some(&second), 300);
        let count_requests = |text: &str| {
            let listed = text.lines().filter(|line| line.starts_with("- request")).count();
            let section = text.split(REQUESTS).nth(1).and_then(|text| text.split("\n\n").next()).unwrap_or_default();
            let more = section.lines().find_map(|line| line.strip_prefix('(')?.strip_suffix(" more)")?.parse().ok());
            listed + more.unwrap_or(0_usize)
        };
        // The first is the goal.
        assert_eq!([&first, &second, &third].map(|text| count_requests(text)), [99, 199, 200]);
        assert!(third.contains("## Goal\nrequest 0 ") && third.contains("- request 200 "), "{third}");
        assert_eq!([&first, &second, &third].map(|text| text.matches("## ").count()), [3; 3], "{third}");
    }

    #[test]
    fn the_newest_requests_are_kept_within_the_budget() {
        let messages: Vec<_> = (0..400).map(|number| user(&format!("request {number} about the harbour"))).collect();
        let text = extract(&messages, None, 300);
        assert!(text.contains("request 0 about") && text.contains("request 399 about"), "{text}");
        assert!(estimate(&text) <= 300, "{text}");
    }
}
