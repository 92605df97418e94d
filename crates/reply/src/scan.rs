//! Removes tags, directives and leaked tool calls from a streamed text. Code, inline or fenced, is left alone. Each
//! character is processed as it arrives; only undecided text is kept for a second pass.

use crate::{
    directive::{self, Directive},
    fence::Lines,
    leaked_calls::{self, LeakMarker, LeakParser, LeakStep},
    parse_stream::{MessageDirectives, ParseRules},
    payload::ReplyTo,
    tags::{self, Tag, TagMatch, TagName, TagSide},
};

/// Maximum length of a tag or directive.
const MAX_CONSTRUCT: usize = 256;

/// Scanner of a streamed text.
#[derive(Debug, Default)]
pub(crate) struct StreamScanner {
    rules: ParseRules,
    /// Text for the user, since it was last taken.
    pub(crate) visible: String,
    /// Reasoning, since it was last taken.
    pub(crate) reasoning: String,
    is_thinking: bool,
    has_reasoning: bool,
    /// True between `<final>` tags.
    is_final: bool,
    code: CodeState,
    /// Code state of the text before the current reasoning, restored after it.
    around: CodeState,
    /// Text that may become a tag or directive.
    candidate: String,
    leak_parser: Option<LeakParser>,
    leaks: LeakState,
    gap: DirectiveGap,
}

/// Whether the end of a text is inside code.
#[derive(Debug, Default)]
struct CodeState {
    fences: Lines,
    /// Number of consecutive backticks at the end.
    ticks: usize,
    /// Number of backticks that opened a possible inline code span. It is code only if as many close it on the same
    /// line: a stray backtick must not expose reasoning.
    open: usize,
    /// Text of the possible code span from the first backtick, `<` or `[` on, which are scanned differently outside
    /// code. It is held back until the span ends, and then emitted unchanged if it is code, or else scanned.
    held: String,
    /// Last emitted character.
    last: Option<char>,
}

/// Whether the text may contain leaked tool calls, which are removed.
#[derive(Debug, Default, PartialEq, Eq)]
enum LeakState {
    /// An `<invoke>` block may be a leaked call.
    #[default]
    Possible,
    /// An `<invoke>` block turned out to be text: the message is about calls.
    Denied,
    /// A tag was seen that shows that the provider leaks calls, so every `<invoke>` block is one.
    Sure,
    /// The message ended. Text that was held back is scanned again, but not for leaked calls.
    Over,
}

/// Position at which a directive was removed.
#[derive(Debug, Default)]
struct DirectiveGap {
    /// True if a space is held back.
    has_space: bool,
    /// True if a directive directly precedes this position.
    is_fresh: bool,
}

/// A construct that is not text.
enum Construct {
    Tag(Tag),
    Directive(Directive),
    Leak(LeakMarker),
}

impl StreamScanner {
    pub(crate) fn new(rules: ParseRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Processes the next piece.
    pub(crate) fn push(&mut self, text: &str, found: &mut MessageDirectives) {
        for c in text.chars() {
            self.take(c, found);
        }
    }

    /// Ends the text and decides about what was kept.
    pub(crate) fn finish(&mut self, found: &mut MessageDirectives) {
        loop {
            if let Some(leak_parser) = self.leak_parser.take() {
                self.leaks = LeakState::Over;
                self.push(&leak_parser.finish(), found);
            } else if !self.candidate.is_empty() {
                self.treat_as_text(found);
            } else if self.code.open > 0 && !self.code.held.is_empty() {
                self.end_span(found);
            } else {
                break;
            }
        }
        if std::mem::take(&mut self.gap.has_space) {
            self.visible.push(' ');
        }
    }

    fn take(&mut self, c: char, found: &mut MessageDirectives) {
        if let Some(leak_parser) = &mut self.leak_parser {
            match leak_parser.push(c) {
                LeakStep::More => {}
                LeakStep::Gone => self.leak_parser = None,
                LeakStep::Proved => (self.leak_parser, self.leaks) = (None, LeakState::Sure),
                LeakStep::Not(text) => {
                    self.leak_parser = None;
                    self.push(&text, found);
                }
                LeakStep::Denied(text) => {
                    (self.leak_parser, self.leaks) = (None, LeakState::Denied);
                    self.push(&text, found);
                }
            }
        } else if !self.candidate.is_empty() {
            self.candidate.push(c);
            self.examine(found);
        } else if self.code.open > 0 {
            self.take_in_span(c, found);
        } else {
            self.take_plain(c, found);
        }
    }

    fn take_plain(&mut self, c: char, found: &mut MessageDirectives) {
        let is_fenced = self.code.fences.is_inside();
        let is_escaped = self.code.ticks == 0 && self.code.last == Some('\\');
        if c == '`' && !is_fenced && !is_escaped {
            self.code.ticks += 1;
            return self.emit(c);
        }
        let ticks = std::mem::take(&mut self.code.ticks);
        if ticks > 0 && !is_fenced && c != '\n' {
            self.code.open = ticks;
            return self.take_in_span(c, found);
        }
        if !is_fenced && (c == '<' || (c == '[' && !self.is_thinking)) {
            self.candidate.push(c);
        } else {
            self.emit(c);
        }
    }

    /// Processes a character of a possible code span: emits it, or holds it back if it is or follows a
    /// backtick, `<` or `[`.
    fn take_in_span(&mut self, c: char, found: &mut MessageDirectives) {
        let code = &mut self.code;
        if c == '`' {
            code.ticks += 1;
            code.held.push(c);
        } else if code.ticks == code.open || c == '\n' {
            self.end_span(found);
            self.take(c, found);
        } else if !code.held.is_empty() || matches!(c, '<' | '[') {
            code.ticks = 0;
            code.held.push(c);
        } else {
            self.emit(c);
        }
    }

    /// Ends a possible code span: emits the held text unchanged if the span is code, and else scans it.
    fn end_span(&mut self, found: &mut MessageDirectives) {
        let held = std::mem::take(&mut self.code.held);
        let open = std::mem::take(&mut self.code.open);
        if std::mem::take(&mut self.code.ticks) == open {
            held.chars().for_each(|c| self.emit(c));
        } else {
            self.push(&held, found);
        }
    }

    /// Examines what may become a tag or directive.
    fn examine(&mut self, found: &mut MessageDirectives) {
        let candidate = &self.candidate;
        let result = if candidate.len() > MAX_CONSTRUCT {
            TagMatch::NoMatch
        } else if candidate.starts_with('<') {
            tags::match_tag(candidate).map(Construct::Tag)
        } else if candidate.starts_with("[[") {
            directive::match_directive(candidate).map(Construct::Directive)
        } else {
            leaked_calls::match_marker(candidate).map(Construct::Leak)
        };
        match result {
            TagMatch::Partial => {}
            TagMatch::NoMatch => self.treat_as_text(found),
            TagMatch::Match(Construct::Tag(tag)) => self.meet_tag(tag, found),
            TagMatch::Match(Construct::Directive(directive)) => {
                self.candidate.clear();
                self.gap.is_fresh = true;
                found.note(directive);
            }
            TagMatch::Match(Construct::Leak(marker)) => {
                self.candidate.clear();
                self.leak_parser = (self.leaks != LeakState::Over).then(|| LeakParser::after(marker));
            }
        }
    }

    /// Treats the candidate as text: emits its first character and processes the others again.
    fn treat_as_text(&mut self, found: &mut MessageDirectives) {
        let text = std::mem::take(&mut self.candidate);
        let mut rest = text.chars();
        if let Some(first) = rest.next() {
            self.emit(first);
        }
        self.push(rest.as_str(), found);
    }

    fn meet_tag(&mut self, tag: Tag, found: &mut MessageDirectives) {
        match (tag.name, tag.side) {
            (TagName::Think, TagSide::Open) if !self.is_thinking => {
                self.is_thinking = true;
                self.around = std::mem::take(&mut self.code);
                if self.has_reasoning {
                    self.reasoning.push('\n');
                }
            }
            (TagName::Think, TagSide::Close) if self.is_thinking => {
                self.is_thinking = false;
                self.code = std::mem::take(&mut self.around);
            }
            (TagName::Final, TagSide::Open | TagSide::Close) if !self.is_thinking => {
                self.is_final = tag.side == TagSide::Open;
                if self.rules.enforce_final {
                    self.code = CodeState::default();
                }
            }
            (TagName::Think | TagName::Final, _) => {}
            (TagName::Calls, _) if !self.is_thinking => self.leaks = LeakState::Sure,
            (TagName::Invoke, TagSide::Open)
                if !self.is_thinking && matches!(self.leaks, LeakState::Possible | LeakState::Sure) =>
            {
                let tag = std::mem::take(&mut self.candidate);
                self.leak_parser = Some(LeakParser::invoke(tag, self.leaks == LeakState::Sure));
            }
            (TagName::Invoke, TagSide::Close | TagSide::Empty) if self.leaks == LeakState::Sure => {}
            (TagName::Calls | TagName::Invoke, _) => return self.treat_as_text(found),
        }
        self.candidate.clear();
    }

    fn emit(&mut self, c: char) {
        if self.is_thinking {
            self.reasoning.push(c);
            self.has_reasoning = true;
        } else if self.is_final || !self.rules.enforce_final {
            if std::mem::take(&mut self.gap.is_fresh) && self.gap.swallows(c, self.code.last) {
                return;
            }
            if std::mem::take(&mut self.gap.has_space) {
                self.visible.push(' ');
            }
            if c == ' ' {
                self.gap.has_space = true;
            } else {
                self.visible.push(c);
            }
        }
        self.code.fences.push(c);
        self.code.last = Some(c);
    }
}

impl DirectiveGap {
    /// True if a space is removed with a directive: the one after it if there was whitespace before it as well, or the
    /// one before it if a line ends after it.
    fn swallows(&mut self, next: char, before: Option<char>) -> bool {
        if next == '\n' {
            self.has_space = false;
        }
        next == ' ' && before.is_none_or(char::is_whitespace)
    }
}

impl<T> TagMatch<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> TagMatch<U> {
        match self {
            Self::NoMatch => TagMatch::NoMatch,
            Self::Partial => TagMatch::Partial,
            Self::Match(construct) => TagMatch::Match(f(construct)),
        }
    }
}

impl MessageDirectives {
    /// An explicit reply target takes precedence over the current message; of several the last one counts.
    fn note(&mut self, directive: Directive) {
        match directive {
            Directive::Voice => self.is_voice = true,
            Directive::ReplyTo(ReplyTo::Current) => {
                self.reply_to.get_or_insert(ReplyTo::Current);
            }
            Directive::ReplyTo(ReplyTo::Id(id)) => self.reply_to = Some(ReplyTo::Id(id)),
        }
    }
}
