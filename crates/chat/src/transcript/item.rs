//! The kinds of items of a conversation.

use super::ToolCall;
use crate::{
    markdown::StreamedMarkdown,
    sanitize,
    style::{Color, Line, TextStyle, prefixed},
};

/// Maximum lines of a user's message that are shown.
const MAX_USER_LINES: usize = 20;

/// How much of an item is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The beginning or the end of long outputs.
    Compact,
    /// The same, for the last tool call, which can be expanded.
    Last,
    /// Everything.
    Full,
}

/// How an item is rendered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ItemLayout {
    pub(crate) columns: usize,
    /// Rows that an expanded tool call may take.
    pub(crate) rows: usize,
    pub(crate) now: u64,
    pub(crate) detail: Detail,
}

/// An item.
#[derive(Debug)]
pub(crate) enum TranscriptItem {
    User(UserMessage),
    ModelText(ModelText),
    Reasoning(Reasoning),
    Tool(Box<ToolCall>),
    Notice(Notice),
    /// The place of a message that started a run and has not arrived yet: what follows is not committed before it.
    Awaited {
        run: String,
        /// When it is not awaited any more.
        until: u64,
    },
}

impl TranscriptItem {
    /// True if the item does not change any more.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::User(_) | Self::Notice(_) => true,
            Self::ModelText(answer) => answer.is_settled,
            Self::Reasoning(reasoning) => reasoning.ended_at.is_some(),
            Self::Tool(tool) => tool.is_settled(),
            Self::Awaited { .. } => false,
        }
    }

    /// Ends the item where it is.
    pub(crate) fn settle(&mut self) {
        match self {
            Self::User(_) | Self::Notice(_) | Self::Awaited { .. } => {}
            Self::ModelText(answer) => answer.is_settled = true,
            Self::Reasoning(reasoning) => {
                reasoning.ended_at.get_or_insert(reasoning.updated_at);
            }
            Self::Tool(tool) => tool.interrupt(),
        }
    }

    /// True for items of which several follow each other without a gap.
    pub(super) fn is_compact(&self) -> bool {
        matches!(self, Self::Tool(_) | Self::Reasoning(_))
    }

    /// Renders the item. Returns its lines, and how many of them are stable.
    pub(super) fn lines(&mut self, layout: ItemLayout) -> (Vec<Line>, usize) {
        let ItemLayout { columns, now, detail, .. } = layout;
        match self {
            Self::User(message) => (message.lines(columns, detail), 0),
            Self::ModelText(answer) => {
                let lines: Vec<_> = answer.text.lines(columns).cloned().collect();
                (lines, answer.text.stable_lines())
            }
            Self::Reasoning(reasoning) => (reasoning.lines(columns, now, detail), 0),
            Self::Tool(tool) => (tool.lines(layout), 0),
            Self::Notice(notice) => (notice.lines(columns), 0),
            Self::Awaited { .. } => (Vec::new(), 0),
        }
    }
}

/// A message of the user.
#[derive(Debug)]
pub(crate) struct UserMessage {
    text: String,
}

impl UserMessage {
    /// Creates a message.
    pub(crate) fn of(text: &str) -> Self {
        Self { text: sanitize::clean(text.trim()) }
    }

    fn lines(&self, columns: usize, detail: Detail) -> Vec<Line> {
        let style = TextStyle::BOLD;
        let columns = columns.saturating_sub(2).max(1);
        let mut lines: Vec<_> = self.text.split('\n').flat_map(|line| Line::of(line, style).wrap(columns)).collect();
        if detail != Detail::Full && lines.len() > MAX_USER_LINES {
            let hidden = lines.len() - MAX_USER_LINES + 1;
            lines.truncate(MAX_USER_LINES - 1);
            lines.push(Line::of(format!("… {hidden} more lines"), TextStyle::DIM));
        }
        prefixed(lines, &Line::of("› ", TextStyle { bold: true, ..TextStyle::of(Color::Cyan) }), &Line::plain("  "))
    }
}

/// A text of the model, or the reply to a command.
#[derive(Debug)]
pub(crate) struct ModelText {
    /// Run that it belongs to.
    pub(crate) run: String,
    pub(crate) text: StreamedMarkdown,
    pub(crate) is_settled: bool,
}

impl ModelText {
    /// A text that grows.
    pub(crate) fn streamed(run: &str, text: &str) -> Self {
        Self { run: run.to_owned(), text: StreamedMarkdown::new(sanitize::clean(text)), is_settled: false }
    }

    /// A complete text.
    pub(crate) fn complete(run: &str, text: &str) -> Self {
        Self { is_settled: true, ..Self::streamed(run, text) }
    }
}

/// Reasoning of the model, folded.
#[derive(Debug)]
pub(crate) struct Reasoning {
    pub(crate) text: String,
    pub(crate) started_at: u64,
    pub(crate) updated_at: u64,
    pub(crate) ended_at: Option<u64>,
}

impl Reasoning {
    fn lines(&self, columns: usize, now: u64, detail: Detail) -> Vec<Line> {
        let elapsed = self.ended_at.unwrap_or(now).saturating_sub(self.started_at);
        let heading = match self.ended_at {
            Some(_) if elapsed == 0 => "∴ Thought".to_owned(),
            Some(_) => format!("∴ Thought for {}", duration(elapsed)),
            None => format!("∴ Thinking… {}", duration(elapsed)),
        };
        let style = TextStyle { italic: true, ..TextStyle::DIM };
        let mut lines = vec![Line::of(heading, style)];
        let indent = Line::plain("  ");
        let columns = columns.saturating_sub(2).max(1);
        match (detail, self.ended_at) {
            (Detail::Full, _) => {
                for line in self.text.trim().split('\n') {
                    lines.extend(prefixed(Line::of(line, style).wrap(columns), &indent, &indent));
                }
            }
            (Detail::Compact | Detail::Last, None) => {
                let last = self.text.trim().rsplit('\n').find(|line| !line.trim().is_empty());
                let shown = last.map(|line| Line::of(line.trim(), style).truncate(columns));
                lines.extend(shown.map(|line| prefixed(vec![line], &indent, &indent)).into_iter().flatten());
            }
            (Detail::Compact | Detail::Last, Some(_)) => {}
        }
        lines
    }
}

/// A remark of the chat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    mark: &'static str,
    style: TextStyle,
    text: String,
}

impl Notice {
    /// Something that is good to know.
    pub(crate) fn info(text: &str) -> Self {
        Self::of("·", TextStyle::DIM, text)
    }

    /// Something that the user should look at.
    pub(crate) fn warning(text: &str) -> Self {
        Self::of("!", TextStyle::of(Color::Yellow), text)
    }

    /// A failure.
    pub(crate) fn error(text: &str) -> Self {
        Self::of("✗", TextStyle::of(Color::Red), text)
    }

    /// Something that succeeded.
    pub(crate) fn success(text: &str) -> Self {
        Self::of("✓", TextStyle::of(Color::Green), text)
    }

    fn of(mark: &'static str, style: TextStyle, text: &str) -> Self {
        Self { mark, style, text: sanitize::clean(text.trim()) }
    }

    fn lines(&self, columns: usize) -> Vec<Line> {
        let columns = columns.saturating_sub(2).max(1);
        let lines = self.text.split('\n').flat_map(|line| Line::of(line, self.style).wrap(columns)).collect();
        prefixed(lines, &Line::of(format!("{} ", self.mark), self.style), &Line::plain("  "))
    }
}

/// Formats a duration in milliseconds.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        10_000..60_000 => format!("{}s", ms / 1000),
        60_000..3_600_000 => format!("{}m {:02}s", ms / 60_000, ms / 1000 % 60),
        _ => format!("{}h {:02}m", ms / 3_600_000, ms / 60_000 % 60),
    }
}
