//! Removes tags, directives and leaked tool calls from a streamed text. Code, inline or fenced, is left alone. Each
//! character is processed as it arrives; only undecided text is kept for a second pass.

use crate::{
    directive::{self, Directive},
    fence::Lines,
    leak::{self, Marker, Remnant, Step},
    payload::ReplyTo,
    spoken::{Found, Rules},
    tags::{self, Edge, Look, Name, Tag},
};

/// Maximum length of a tag or directive.
const LONGEST: usize = 256;

/// Scanner of a streamed text.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    rules: Rules,
    /// Text for the user, since it was last taken.
    pub(crate) said: String,
    /// Reasoning, since it was last taken.
    pub(crate) thought: String,
    is_thinking: bool,
    has_thought: bool,
    /// True between `<final>` tags.
    is_final: bool,
    code: Code,
    /// Code state of the text around reasoning.
    around: Code,
    /// Text that may become a tag or directive.
    candidate: String,
    remnant: Option<Remnant>,
    leaks: Leaks,
    joint: Joint,
}

/// Code state of a text.
#[derive(Debug, Default)]
struct Code {
    fences: Lines,
    /// Number of consecutive backticks at the end.
    ticks: usize,
    /// Number of backticks that opened a possible inline code span. It is code only if as many close it on the same
    /// line: a stray backtick must not expose reasoning.
    open: usize,
    /// The part of it that is read differently if it is not code.
    held: String,
    last: Option<char>,
}

/// Whether calls leak into the text.
#[derive(Debug, Default, PartialEq, Eq)]
enum Leaks {
    /// A block may be a leaked call.
    #[default]
    Possible,
    /// A block turned out to be text: this message only writes about calls.
    Denied,
    /// The provider's own tag was seen.
    Sure,
    /// The message ended, and nothing is tried twice.
    Over,
}

/// Position at which a directive was removed.
#[derive(Debug, Default)]
struct Joint {
    /// True if a space is held back.
    has_space: bool,
    /// True if a directive directly precedes this position.
    is_fresh: bool,
}

/// A construct that is not text.
enum Mark {
    Tag(Tag),
    Directive(Directive),
    Leak(Marker),
}

impl Scan {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Processes the next piece.
    pub(crate) fn push(&mut self, text: &str, found: &mut Found) {
        for c in text.chars() {
            self.take(c, found);
        }
    }

    /// Ends the text and decides about what was kept.
    pub(crate) fn finish(&mut self, found: &mut Found) {
        loop {
            if let Some(remnant) = self.remnant.take() {
                self.leaks = Leaks::Over;
                self.push(&remnant.finish(), found);
            } else if !self.candidate.is_empty() {
                self.refuse(found);
            } else if self.code.open > 0 && !self.code.held.is_empty() {
                self.end_span(found);
            } else {
                break;
            }
        }
        if std::mem::take(&mut self.joint.has_space) {
            self.said.push(' ');
        }
    }

    fn take(&mut self, c: char, found: &mut Found) {
        if let Some(remnant) = &mut self.remnant {
            match remnant.push(c) {
                Step::More => {}
                Step::Gone => self.remnant = None,
                Step::Proved => (self.remnant, self.leaks) = (None, Leaks::Sure),
                Step::Not(text) => {
                    self.remnant = None;
                    self.push(&text, found);
                }
                Step::Denied(text) => {
                    (self.remnant, self.leaks) = (None, Leaks::Denied);
                    self.push(&text, found);
                }
            }
        } else if !self.candidate.is_empty() {
            self.candidate.push(c);
            self.judge(found);
        } else if self.code.open > 0 {
            self.take_in_span(c, found);
        } else {
            self.take_plain(c, found);
        }
    }

    fn take_plain(&mut self, c: char, found: &mut Found) {
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

    /// Processes a character of a possible code span. It is emitted until a character arrives that is read differently
    /// in text.
    fn take_in_span(&mut self, c: char, found: &mut Found) {
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

    /// Ends a code span, or a text that was not one.
    fn end_span(&mut self, found: &mut Found) {
        let held = std::mem::take(&mut self.code.held);
        let open = std::mem::take(&mut self.code.open);
        if std::mem::take(&mut self.code.ticks) == open {
            held.chars().for_each(|c| self.emit(c));
        } else {
            self.push(&held, found);
        }
    }

    /// Examines what may become a tag or directive.
    fn judge(&mut self, found: &mut Found) {
        let candidate = &self.candidate;
        let look = if candidate.len() > LONGEST {
            Look::Never
        } else if candidate.starts_with('<') {
            tags::look(candidate).map(Mark::Tag)
        } else if candidate.starts_with("[[") {
            directive::look(candidate).map(Mark::Directive)
        } else {
            leak::look(candidate).map(Mark::Leak)
        };
        match look {
            Look::Maybe => {}
            Look::Never => self.refuse(found),
            Look::Is(Mark::Tag(tag)) => self.meet_tag(tag, found),
            Look::Is(Mark::Directive(directive)) => {
                self.candidate.clear();
                self.joint.is_fresh = true;
                found.note(directive);
            }
            Look::Is(Mark::Leak(marker)) => {
                self.candidate.clear();
                self.remnant = (self.leaks != Leaks::Over).then(|| Remnant::after(marker));
            }
        }
    }

    /// Treats the candidate as text: emits its first character and processes the others again.
    fn refuse(&mut self, found: &mut Found) {
        let text = std::mem::take(&mut self.candidate);
        let mut rest = text.chars();
        if let Some(first) = rest.next() {
            self.emit(first);
        }
        self.push(rest.as_str(), found);
    }

    fn meet_tag(&mut self, tag: Tag, found: &mut Found) {
        match (tag.name, tag.edge) {
            (Name::Think, Edge::Open) if !self.is_thinking => {
                self.is_thinking = true;
                self.around = std::mem::take(&mut self.code);
                if self.has_thought {
                    self.thought.push('\n');
                }
            }
            (Name::Think, Edge::Close) if self.is_thinking => {
                self.is_thinking = false;
                self.code = std::mem::take(&mut self.around);
            }
            (Name::Final, Edge::Open | Edge::Close) if !self.is_thinking => {
                self.is_final = tag.edge == Edge::Open;
                if self.rules.enforce_final {
                    self.code = Code::default();
                }
            }
            (Name::Think | Name::Final, _) => {}
            (Name::Calls, _) if !self.is_thinking => self.leaks = Leaks::Sure,
            (Name::Invoke, Edge::Open) if !self.is_thinking && matches!(self.leaks, Leaks::Possible | Leaks::Sure) => {
                let tag = std::mem::take(&mut self.candidate);
                self.remnant = Some(Remnant::invoke(tag, self.leaks == Leaks::Sure));
            }
            (Name::Invoke, Edge::Close | Edge::Empty) if self.leaks == Leaks::Sure => {}
            (Name::Calls | Name::Invoke, _) => return self.refuse(found),
        }
        self.candidate.clear();
    }

    fn emit(&mut self, c: char) {
        if self.is_thinking {
            self.thought.push(c);
            self.has_thought = true;
        } else if self.is_final || !self.rules.enforce_final {
            if std::mem::take(&mut self.joint.is_fresh) && self.joint.swallows(c, self.code.last) {
                return;
            }
            if std::mem::take(&mut self.joint.has_space) {
                self.said.push(' ');
            }
            if c == ' ' {
                self.joint.has_space = true;
            } else {
                self.said.push(c);
            }
        }
        self.code.fences.push(c);
        self.code.last = Some(c);
    }
}

impl Joint {
    /// True if a space is removed with a directive: the one after it if there was whitespace before it as well, or the
    /// one before it if a line ends after it.
    fn swallows(&mut self, next: char, before: Option<char>) -> bool {
        if next == '\n' {
            self.has_space = false;
        }
        next == ' ' && before.is_none_or(char::is_whitespace)
    }
}

impl<T> Look<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> Look<U> {
        match self {
            Self::Never => Look::Never,
            Self::Maybe => Look::Maybe,
            Self::Is(it) => Look::Is(f(it)),
        }
    }
}

impl Found {
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
