//! Trims a streamed text at both ends: whitespace and the control tokens, `HEARTBEAT_OK` at either end, `NO_REPLY` at
//! the end or as the whole text. A possible end is held back; everything else is passed on at once.

use crate::{heartbeat, silent, tags::starts_with_ignore_case};

/// Trims a streamed text.
#[derive(Debug, Default)]
pub(crate) struct Trimmer {
    /// Text that may turn out to be the end.
    held: String,
    state: TrimState,
    /// Control tokens in `held`.
    tokens: TrimTokens,
    /// Last character that was passed on; `None` before the text starts.
    last: Option<char>,
    has_heartbeat: bool,
}

/// Control tokens that were found.
#[derive(Debug, Clone, Copy, Default)]
struct TrimTokens {
    silent: bool,
    heartbeat: bool,
}

/// Position in a possible end.
#[derive(Debug, Clone, Copy, Default)]
enum TrimState {
    /// In normal text; nothing is held back.
    #[default]
    Text,
    /// Before a token: whitespace, then possibly decoration.
    Before { is_decorated: bool },
    /// This far into a token.
    Word(&'static str, usize),
    /// In a simple HTML tag around a token; its offset in `held`.
    Tag(usize),
    /// After a token: decoration, punctuation, whitespace.
    After,
}

impl Trimmer {
    /// Processes the next piece; certain text is appended to `out`.
    pub(crate) fn push(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            self.take(c, out);
        }
    }

    /// Returns the whitespace at the end of the text so far, which is held back because the text may end with it.
    pub(crate) fn trailing(&self) -> &str {
        &self.held[..self.held.len() - self.held.trim_start().len()]
    }

    /// True if the text, should it end here, is `NO_REPLY` and nothing else.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_end() && self.last.is_none() && self.tokens.silent
    }

    /// True if the text, should it end here, has `HEARTBEAT_OK` at one of its ends.
    pub(crate) fn is_heartbeat(&self) -> bool {
        self.has_heartbeat || (self.is_end() && self.tokens.heartbeat)
    }

    /// Ends the text. The held text is dropped if it is an end to be removed; otherwise it is appended to `out`,
    /// without trailing whitespace and, if it is the whole text, without a leading `HEARTBEAT_OK`.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if self.is_end() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let rest = if self.last.is_none() { heartbeat::strip_start(&held) } else { None };
        self.has_heartbeat |= rest.is_some();
        out.push_str(rest.unwrap_or(&held).trim_end());
    }

    /// True if `held` is an end to be removed: only tokens, decoration and whitespace.
    fn is_end(&self) -> bool {
        let is_complete = match self.state {
            TrimState::Word(word, at) => at == word.len(),
            TrimState::After => true,
            TrimState::Text | TrimState::Before { .. } | TrimState::Tag(_) => false,
        };
        is_complete && (self.tokens.silent || self.tokens.heartbeat)
    }

    fn take(&mut self, c: char, out: &mut String) {
        if self.last.is_none() && self.held.is_empty() && c.is_whitespace() {
            return;
        }
        let Some(next) = self.step(c) else { return self.release(c, out) };
        self.held.push(c);
        self.state = next;
        if let TrimState::Word(word, at) = next
            && at == word.len()
        {
            self.tokens.silent |= word == silent::TOKEN;
            self.tokens.heartbeat |= word == heartbeat::TOKEN;
        }
    }

    /// Releases `held`, which was not the end.
    fn release(&mut self, c: char, out: &mut String) {
        let mut held = std::mem::take(&mut self.held);
        (self.state, self.tokens) = (TrimState::Text, TrimTokens::default());
        if self.last.is_none() && !held.is_empty() {
            held.push(c);
            if let Some(rest) = heartbeat::strip_start(&held) {
                self.has_heartbeat = true;
                return self.push(rest, out);
            }
            held.pop();
        }
        out.push_str(&held);
        self.last = held.chars().next_back().or(self.last);
        match self.step(c) {
            Some(next) => {
                self.held.push(c);
                self.state = next;
            }
            None => {
                out.push(c);
                self.last = Some(c);
            }
        }
    }

    /// Returns the next state; `None` if `held` and this character cannot be an end.
    fn step(&self, c: char) -> Option<TrimState> {
        match self.state {
            TrimState::Text if c.is_whitespace() => Some(TrimState::Before { is_decorated: false }),
            TrimState::Text if self.last.is_some_and(is_joined) => None,
            TrimState::Text | TrimState::Before { .. } if is_decoration(c) && !is_closing(c) => {
                Some(TrimState::Before { is_decorated: true })
            }
            TrimState::Text => self.begin(c),
            TrimState::Before { is_decorated } if c.is_whitespace() => (!is_decorated).then_some(self.state),
            TrimState::Before { .. } => self.begin(c),
            TrimState::Word(word, at) if at < word.len() => {
                self.fits(word, at, c).then_some(TrimState::Word(word, at + 1))
            }
            TrimState::Word(..) if c == '<' || is_gap(c) => self.after(c),
            TrimState::Word(..) => None,
            TrimState::After => self.after(c),
            TrimState::Tag(start) => {
                let tag = &self.held[start..];
                let is_after = self.tokens.silent || self.tokens.heartbeat;
                match c {
                    '>' if is_tag(tag) && is_after => Some(TrimState::After),
                    '>' if is_tag(tag) => Some(TrimState::Before { is_decorated: true }),
                    '/' if tag == "<" => Some(self.state),
                    _ => could_be_tag(tag, c).then_some(self.state),
                }
            }
        }
    }

    fn after(&self, c: char) -> Option<TrimState> {
        if is_gap(c) { Some(TrimState::After) } else { self.begin(c) }
    }

    /// Returns the state after `c`, if a control token or a tag can start with it.
    fn begin(&self, c: char) -> Option<TrimState> {
        let tokens = [silent::TOKEN, heartbeat::TOKEN];
        if c == '<' {
            return Some(TrimState::Tag(self.held.len()));
        }
        tokens.into_iter().find(|word| self.fits(word, 0, c)).map(|word| TrimState::Word(word, 1))
    }

    /// True if a token continues with this character. As the whole text, `NO_REPLY` is case-insensitive.
    fn fits(&self, word: &str, at: usize, c: char) -> bool {
        let expected = word.as_bytes().get(at).map(|byte| char::from(*byte));
        let any_case = self.last.is_none() && word == silent::TOKEN;
        expected.is_some_and(|expected| c == expected || (any_case && c.eq_ignore_ascii_case(&expected)))
    }
}

/// True if a token after this character is part of something longer, such as a path.
fn is_joined(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '/' | '\\' | '-' | '=' | '#' | '$' | '@' | '&' | '+' | '%')
}

/// True for quotes, emphasis and brackets around a token.
fn is_decoration(c: char) -> bool {
    matches!(c, '*' | '_' | '`' | '~' | '"' | '\'' | '(' | ')' | '[' | ']' | '“' | '”' | '‘' | '’' | '«' | '»')
}

/// True for decoration that can only follow a token.
fn is_closing(c: char) -> bool {
    matches!(c, ')' | ']' | '”' | '»')
}

/// True for characters that may follow a token at the end.
fn is_gap(c: char) -> bool {
    is_decoration(c)
        || c.is_whitespace()
        || matches!(c, '.' | '!' | '?' | ',' | ':' | ';' | '…' | '。' | '-' | '–' | '—')
}

/// HTML tags that only decorate a token.
const TAGS: [&str; 11] = ["b", "i", "p", "u", "br", "em", "div", "pre", "code", "span", "strong"];

fn is_tag(opening: &str) -> bool {
    TAGS.iter().any(|tag| tag.eq_ignore_ascii_case(name(opening)))
}

fn could_be_tag(opening: &str, next: char) -> bool {
    let name = name(opening);
    let goes_on = |tag: &str| tag[name.len()..].starts_with(next.to_ascii_lowercase());
    TAGS.iter().any(|tag| starts_with_ignore_case(tag, name) && goes_on(tag))
}

fn name(opening: &str) -> &str {
    opening.trim_start_matches('<').trim_start_matches('/')
}

/// Strips the decoration at the start of a text.
pub(crate) fn strip_decoration(text: &str) -> &str {
    let mut text = text.trim_start_matches(is_decoration);
    while let Some((tag, rest)) = text.split_once('>')
        && tag.starts_with('<')
        && is_tag(tag)
    {
        text = rest.trim_start_matches(is_decoration);
    }
    text
}
