//! Recognizes leaked tool calls and results: those that a provider sends as text of the answer instead of as structured
//! data. They follow `[Tool Call: …]`, `[Tool Result for ID …]` and `<invoke>`.
//!
//! This module reads one of them to its end. The text is held back meanwhile, and released if it turns out not to be a
//! leaked call.

use crate::tags::{TagMatch, starts_with_ignore_case};

/// Kind of a marker in square brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeakMarker {
    /// `[Tool Call: …]`
    Call,
    /// `[Tool Result for ID …]`
    Result,
}

/// Parses a text that starts with `[`. Must be called after each character: only the last one is checked for the end.
pub(crate) fn match_marker(candidate: &str) -> TagMatch<LeakMarker> {
    let known = [("[Tool Call:", LeakMarker::Call), ("[Tool Result for ID", LeakMarker::Result)];
    let found = known.iter().find(|(opening, _)| starts_with_ignore_case(candidate, opening));
    match found {
        _ if candidate.ends_with('\n') => TagMatch::NoMatch,
        Some((_, marker)) if candidate.ends_with(']') => TagMatch::Match(*marker),
        Some(_) => TagMatch::Partial,
        None if known.iter().any(|(opening, _)| starts_with_ignore_case(opening, candidate)) => TagMatch::Partial,
        None => TagMatch::NoMatch,
    }
}

/// Parser of one leaked call or result.
#[derive(Debug)]
pub(crate) struct LeakParser {
    /// Text consumed so far.
    held: String,
    state: LeakParserState,
}

/// State of the parser: the part of a leaked call or result that the next character belongs to.
#[derive(Debug)]
enum LeakParserState {
    /// After the marker, before the JSON or the plain text. Whitespace and `Arguments:` may precede the JSON.
    Gap(LeakMarker),
    /// Inside the JSON of the arguments or the result; `depth` is the number of open brackets.
    Json { depth: usize, in_string: bool, is_escaped: bool },
    /// The plain text of a result, up to an empty line.
    PlainText,
    /// Inside `<invoke>`; `is_sure` is true if the provider is known to leak calls.
    Invoke { is_sure: bool },
    /// After `</invoke>`, which ends at this offset in `held`. If [`PROOF`] follows, the block is a leaked call.
    Proof(usize),
}

/// Effect of a character.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeakStep {
    /// The leaked call or result continues.
    More,
    /// The leaked call or result ended with this character and is dropped.
    Gone,
    /// The leaked call ended with this character and is dropped. [`PROOF`] showed that this provider leaks calls.
    Proved,
    /// The leaked call or result ended before these characters, or there was none: they are text of the answer.
    Not(String),
    /// Like `Not`, and the answer is about calls, so later `<invoke>` blocks in it are text, too.
    Denied(String),
}

/// Maximum amount of whitespace inside a leaked call or result.
const GAP: usize = 64;
/// Closing tag that MiniMax writes after leaked calls.
const PROOF: &str = "</minimax:tool_call>";
const INVOKE: &str = "<invoke";

impl LeakParser {
    /// Starts to read the leaked call or result after its marker.
    pub(crate) fn after(marker: LeakMarker) -> Self {
        Self { held: String::new(), state: LeakParserState::Gap(marker) }
    }

    /// Starts to read the leaked call after the given opening `<invoke>` tag.
    pub(crate) fn invoke(tag: String, is_sure: bool) -> Self {
        Self { held: tag, state: LeakParserState::Invoke { is_sure } }
    }

    /// Processes the next character.
    pub(crate) fn push(&mut self, c: char) -> LeakStep {
        self.held.push(c);
        match &mut self.state {
            LeakParserState::Gap(marker) => {
                let marker = *marker;
                self.gap(marker, c)
            }
            LeakParserState::Json { depth, in_string, is_escaped } => {
                match c {
                    _ if *is_escaped => *is_escaped = false,
                    '\\' if *in_string => *is_escaped = true,
                    '"' => *in_string = !*in_string,
                    '{' | '[' if !*in_string => *depth += 1,
                    '}' | ']' if !*in_string => *depth -= 1,
                    _ => {}
                }
                if *depth == 0 { LeakStep::Gone } else { LeakStep::More }
            }
            LeakParserState::PlainText => {
                // An empty line, or a next marker on its own line.
                let ends = self.held.ends_with("\n\n") || self.held.ends_with("\n[");
                if ends { LeakStep::Not(self.held.split_off(self.held.len() - 2)) } else { LeakStep::More }
            }
            LeakParserState::Invoke { is_sure } => {
                let is_sure = *is_sure;
                self.inside_invoke(c, is_sure)
            }
            LeakParserState::Proof(start) => {
                let start = *start;
                self.proof(start)
            }
        }
    }

    /// Ends the parser at the end of the message. Returns the consumed characters that are text of the answer.
    pub(crate) fn finish(self) -> String {
        match self.state {
            LeakParserState::PlainText | LeakParserState::Invoke { is_sure: true } => String::new(),
            // Unterminated JSON may be followed by an answer.
            LeakParserState::Gap(_)
            | LeakParserState::Json { .. }
            | LeakParserState::Invoke { is_sure: false }
            | LeakParserState::Proof(_) => self.held,
        }
    }

    fn gap(&mut self, marker: LeakMarker, c: char) -> LeakStep {
        let word = self.held.trim_start();
        let is_label = starts_with_ignore_case("arguments:", word.trim_end());
        match c {
            '{' if word == "{" || (starts_with_ignore_case(word, "arguments:") && word[10..].trim_start() == "{") => {
                self.state = LeakParserState::Json { depth: 1, in_string: false, is_escaped: false };
                LeakStep::More
            }
            _ if is_label && self.held.len() <= GAP && !self.held.ends_with("\n\n") => LeakStep::More,
            // A list, or the next marker: the next character decides.
            '[' if marker == LeakMarker::Result && word == "[" => LeakStep::More,
            _ if self.held.ends_with("\n\n") || word.starts_with("[[") || starts_with_ignore_case(word, "[t") => {
                LeakStep::Not(std::mem::take(&mut self.held))
            }
            _ if marker == LeakMarker::Result => {
                self.state = LeakParserState::PlainText;
                LeakStep::More
            }
            _ => LeakStep::Not(std::mem::take(&mut self.held)),
        }
    }

    fn inside_invoke(&mut self, c: char, is_sure: bool) -> LeakStep {
        match c {
            '>' if ends_with_ignore_case(&self.held, "</invoke>") && is_sure => LeakStep::Gone,
            '>' if ends_with_ignore_case(&self.held, "</invoke>") => {
                self.state = LeakParserState::Proof(self.held.len());
                LeakStep::More
            }
            // A nested call is not a leaked call.
            'e' | 'E' if !is_sure && ends_with_ignore_case(&self.held, INVOKE) => {
                LeakStep::Denied(std::mem::take(&mut self.held))
            }
            _ => LeakStep::More,
        }
    }

    fn proof(&mut self, start: usize) -> LeakStep {
        let word = self.held[start..].trim_start();
        if word.eq_ignore_ascii_case(PROOF) {
            return LeakStep::Proved;
        }
        if word.eq_ignore_ascii_case(INVOKE) {
            self.state = LeakParserState::Invoke { is_sure: false };
            return LeakStep::More;
        }
        let could_be = starts_with_ignore_case(PROOF, word) || starts_with_ignore_case(INVOKE, word);
        if could_be && self.held.len() - start <= GAP {
            LeakStep::More
        } else {
            LeakStep::Denied(std::mem::take(&mut self.held))
        }
    }
}

/// True if a text ends with this, ignoring case.
fn ends_with_ignore_case(text: &str, end: &str) -> bool {
    text.len().checked_sub(end.len()).and_then(|at| text.get(at..)).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}
