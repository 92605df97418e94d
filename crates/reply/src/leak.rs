//! Recognizes tool calls that a provider leaked into the text: what follows `[Tool Call: …]`, `[Tool Result for ID …]`
//! and `<invoke>`. This module follows one such remnant to its end; the text is held back meanwhile and released if it
//! was none.

use crate::tags::{Look, begins};

/// Kind of a marker in square brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// `[Tool Call: …]`
    Call,
    /// `[Tool Result for ID …]`
    Result,
}

/// Parses a text that starts with `[`. Must be called after each character: only the last one is checked for the end.
pub(crate) fn look(candidate: &str) -> Look<Marker> {
    let known = [("[Tool Call:", Marker::Call), ("[Tool Result for ID", Marker::Result)];
    let found = known.iter().find(|(opening, _)| begins(candidate, opening));
    match found {
        _ if candidate.ends_with('\n') => Look::Never,
        Some((_, marker)) if candidate.ends_with(']') => Look::Is(*marker),
        Some(_) => Look::Maybe,
        None if known.iter().any(|(opening, _)| begins(opening, candidate)) => Look::Maybe,
        None => Look::Never,
    }
}

/// A remnant in progress.
#[derive(Debug)]
pub(crate) struct Remnant {
    /// Text consumed so far.
    held: String,
    at: At,
}

/// Position in a remnant.
#[derive(Debug)]
enum At {
    /// After a marker: whitespace and `Arguments:` lead to the JSON, if there is any.
    Gap(Marker),
    Json {
        depth: usize,
        in_string: bool,
        is_escaped: bool,
    },
    /// The plain text of a result, up to an empty line.
    Words,
    /// Inside `<invoke>`; `is_sure` if the provider is known to leak calls.
    Invoke {
        is_sure: bool,
    },
    /// After `</invoke>`, which starts at this offset in `held`: a closing tag of the provider would prove it a leak.
    Proof(usize),
}

/// Effect of a character on a remnant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The remnant continues.
    More,
    /// The remnant ended with this character and is dropped.
    Gone,
    /// The remnant ended with this character, and it is proved that this provider leaks calls.
    Proved,
    /// The consumed text, with this character, is text after all.
    Not(String),
    /// Like `Not`, and calls are only written about here.
    Denied(String),
}

/// Maximum amount of whitespace inside a remnant.
const GAP: usize = 64;
const PROOF: &str = "</minimax:tool_call>";
const INVOKE: &str = "<invoke";

impl Remnant {
    /// Creates the remnant after a marker.
    pub(crate) fn after(marker: Marker) -> Self {
        Self { held: String::new(), at: At::Gap(marker) }
    }

    /// Creates the remnant after the given opening `<invoke>` tag.
    pub(crate) fn invoke(tag: String, is_sure: bool) -> Self {
        Self { held: tag, at: At::Invoke { is_sure } }
    }

    /// Processes the next character.
    pub(crate) fn push(&mut self, c: char) -> Step {
        self.held.push(c);
        match &mut self.at {
            At::Gap(marker) => {
                let marker = *marker;
                self.gap(marker, c)
            }
            At::Json { depth, in_string, is_escaped } => {
                match c {
                    _ if *is_escaped => *is_escaped = false,
                    '\\' if *in_string => *is_escaped = true,
                    '"' => *in_string = !*in_string,
                    '{' | '[' if !*in_string => *depth += 1,
                    '}' | ']' if !*in_string => *depth -= 1,
                    _ => {}
                }
                if *depth == 0 { Step::Gone } else { Step::More }
            }
            At::Words => {
                // An empty line, or a next marker on its own line.
                let ends = self.held.ends_with("\n\n") || self.held.ends_with("\n[");
                if ends { Step::Not(self.held.split_off(self.held.len() - 2)) } else { Step::More }
            }
            At::Invoke { is_sure } => {
                let is_sure = *is_sure;
                self.inside_invoke(c, is_sure)
            }
            At::Proof(start) => {
                let start = *start;
                self.proof(start)
            }
        }
    }

    /// Ends the text. Returns what is text after all.
    pub(crate) fn finish(self) -> String {
        match self.at {
            At::Words | At::Invoke { is_sure: true } => String::new(),
            // Unterminated JSON may be followed by an answer.
            At::Gap(_) | At::Json { .. } | At::Invoke { is_sure: false } | At::Proof(_) => self.held,
        }
    }

    fn gap(&mut self, marker: Marker, c: char) -> Step {
        let word = self.held.trim_start();
        let is_label = begins("arguments:", word.trim_end());
        match c {
            '{' if word == "{" || (begins(word, "arguments:") && word[10..].trim_start() == "{") => {
                self.at = At::Json { depth: 1, in_string: false, is_escaped: false };
                Step::More
            }
            _ if is_label && self.held.len() <= GAP && !self.held.ends_with("\n\n") => Step::More,
            // A list, or the next marker: the next character decides.
            '[' if marker == Marker::Result && word == "[" => Step::More,
            _ if self.held.ends_with("\n\n") || word.starts_with("[[") || begins(word, "[t") => {
                Step::Not(std::mem::take(&mut self.held))
            }
            _ if marker == Marker::Result => {
                self.at = At::Words;
                Step::More
            }
            _ => Step::Not(std::mem::take(&mut self.held)),
        }
    }

    fn inside_invoke(&mut self, c: char, is_sure: bool) -> Step {
        match c {
            '>' if ends(&self.held, "</invoke>") && is_sure => Step::Gone,
            '>' if ends(&self.held, "</invoke>") => {
                self.at = At::Proof(self.held.len());
                Step::More
            }
            // A nested call is not a leaked call.
            'e' | 'E' if !is_sure && ends(&self.held, INVOKE) => Step::Denied(std::mem::take(&mut self.held)),
            _ => Step::More,
        }
    }

    fn proof(&mut self, start: usize) -> Step {
        let word = self.held[start..].trim_start();
        if word.eq_ignore_ascii_case(PROOF) {
            return Step::Proved;
        }
        if word.eq_ignore_ascii_case(INVOKE) {
            self.at = At::Invoke { is_sure: false };
            return Step::More;
        }
        let could_be = begins(PROOF, word) || begins(INVOKE, word);
        if could_be && self.held.len() - start <= GAP {
            Step::More
        } else {
            Step::Denied(std::mem::take(&mut self.held))
        }
    }
}

/// True if a text ends with this, ignoring case.
fn ends(text: &str, end: &str) -> bool {
    text.len().checked_sub(end.len()).and_then(|at| text.get(at..)).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}
