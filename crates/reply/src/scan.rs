//! Takes tags, directives and tool calls that leaked out of a text that comes in pieces. Whatever lies in code, inline or
//! fenced, is left alone. Each character is looked at as it comes; only what is not yet certain is kept for a second look.

use crate::{
    directive::{self, Directive},
    fence::Lines,
    leak::{self, Marker, Remnant, Step},
    payload::ReplyTo,
    spoken::{Found, Rules},
    tags::{self, Edge, Look, Name, Tag},
};

/// How long a tag or directive may be.
const LONGEST: usize = 256;

/// Reads a text that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    rules: Rules,
    /// What is meant for the user, since it was last taken.
    pub(crate) said: String,
    /// What the model thought, since it was last taken.
    pub(crate) thought: String,
    is_thinking: bool,
    has_thought: bool,
    /// Whether we are between `<final>` tags.
    is_final: bool,
    code: Code,
    /// The code of the text around a thought.
    around: Code,
    /// What may become a tag or directive.
    candidate: String,
    remnant: Option<Remnant>,
    leaks: Leaks,
    joint: Joint,
}

/// Where code is in a stretch of text.
#[derive(Debug, Default)]
struct Code {
    fences: Lines,
    /// How many backticks in a row came last.
    ticks: usize,
    /// How many backticks opened the inline code that we may be in. It is code only if as many close it on the same line: a
    /// stray backtick must not let a thought out.
    open: usize,
    /// The part of it that reads differently if it is no code.
    held: String,
    last: Option<char>,
}

/// What is known about calls that leak into the text.
#[derive(Debug, Default, PartialEq, Eq)]
enum Leaks {
    /// A block may be one.
    #[default]
    Possible,
    /// A block turned out to be text: this message only talks about them.
    Denied,
    /// The provider's own tag was there.
    Sure,
    /// The message ended, and nothing is tried twice.
    Over,
}

/// The place where a directive was taken out.
#[derive(Debug, Default)]
struct Joint {
    /// A space that has not gone out yet.
    has_space: bool,
    /// Whether the last thing before here was a directive.
    is_fresh: bool,
}

/// Something that is not text.
enum Mark {
    Tag(Tag),
    Directive(Directive),
    Leak(Marker),
}

impl Scan {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, text: &str, found: &mut Found) {
        for c in text.chars() {
            self.take(c, found);
        }
    }

    /// The text ended: what was kept for a second look is what it looks like now.
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

    /// Takes a character of what may be inline code. It goes out until something comes that reads differently in text.
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

    /// The inline code was closed, or it was none.
    fn end_span(&mut self, found: &mut Found) {
        let held = std::mem::take(&mut self.code.held);
        let open = std::mem::take(&mut self.code.open);
        if std::mem::take(&mut self.code.ticks) == open {
            held.chars().for_each(|c| self.emit(c));
        } else {
            self.push(&held, found);
        }
    }

    /// Looks at what may become a tag or directive.
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

    /// It is text: its first character goes out, the others are looked at again.
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
    /// A directive takes one space with it: the one behind it if there was white space before it too, or the one before it
    /// if a line ends behind it.
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
    /// An explicit reply target beats the current message; of several the last one counts.
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
