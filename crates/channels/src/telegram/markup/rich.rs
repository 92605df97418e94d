//! Text with styles, parsed from Markdown.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::escaped;
use crate::table::Table;

/// Maximum nesting depth of styles; deeper ones are ignored.
const MAX_DEPTH: usize = 8;

/// Maximum length of a URL; a longer one is written as text.
const MAX_URL_BYTES: usize = 2048;

/// Text with styles.
#[derive(Debug, Default)]
pub(super) struct RichText {
    /// The plain text.
    pub(super) text: String,
    /// Styled ranges, in order and without gaps.
    runs: Vec<StyledRange>,
}

/// A range with the same styles.
#[derive(Debug)]
pub(super) struct StyledRange {
    /// End offset in bytes.
    end: usize,
    /// Styles from the outermost to the innermost.
    pub(super) styles: Vec<Style>,
}

/// A style that Telegram supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Style {
    Quote,
    Bold,
    Italic,
    Strike,
    Link(String),
    Code,
    Pre(Option<String>),
}

impl Style {
    pub(super) fn opening(&self) -> String {
        match self {
            Self::Quote => "<blockquote>".to_owned(),
            Self::Bold => "<b>".to_owned(),
            Self::Italic => "<i>".to_owned(),
            Self::Strike => "<s>".to_owned(),
            Self::Link(url) => format!("<a href=\"{}\">", escaped(url)),
            Self::Code => "<code>".to_owned(),
            Self::Pre(Some(language)) => format!("<pre><code class=\"language-{}\">", escaped(language)),
            Self::Pre(None) => "<pre>".to_owned(),
        }
    }

    pub(super) fn closing(&self) -> &'static str {
        match self {
            Self::Quote => "</blockquote>",
            Self::Bold => "</b>",
            Self::Italic => "</i>",
            Self::Strike => "</s>",
            Self::Link(_) => "</a>",
            Self::Code => "</code>",
            Self::Pre(Some(_)) => "</code></pre>",
            Self::Pre(None) => "</pre>",
        }
    }

    pub(super) fn url(&self) -> Option<&str> {
        match self {
            Self::Link(url) => Some(url),
            Self::Quote | Self::Bold | Self::Italic | Self::Strike | Self::Code | Self::Pre(_) => None,
        }
    }

    fn is_code(&self) -> bool {
        matches!(self, Self::Code | Self::Pre(_))
    }
}

impl RichText {
    /// Parses Markdown.
    pub(super) fn read(markdown: &str) -> Self {
        let mut writer = MarkdownConverter::default();
        for event in Parser::new_ext(
            markdown,
            Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS,
        ) {
            writer.handle_event(event);
        }
        writer.rich
    }

    /// Returns the ranges between two offsets.
    pub(super) fn runs_in(&self, start: usize, end: usize) -> impl Iterator<Item = (&StyledRange, &str)> {
        let first = self.runs.partition_point(|run| run.end <= start);
        let mut from = start;
        self.runs[first..].iter().map_while(move |run| {
            let text = (from < end).then(|| &self.text[from..run.end.min(end)])?;
            from = run.end;
            Some((run, text))
        })
    }

    /// True if an offset is in a code block.
    pub(super) fn is_code_at(&self, at: usize) -> bool {
        let run = self.runs.get(self.runs.partition_point(|run| run.end <= at));
        run.is_some_and(|run| run.styles.iter().any(Style::is_code))
    }

    /// Upper bound on the bytes of HTML for some text at an offset, in a part that begins at `start`; tags are counted
    /// where they open.
    pub(super) fn cost(&self, start: usize, at: usize, text: &str) -> usize {
        let first = self.runs.partition_point(|run| run.end <= at);
        let begins = at == start || (first > 0 && self.runs[first - 1].end == at);
        let tags =
            |run: &StyledRange| run.styles.iter().map(|style| style.opening().len() + style.closing().len()).sum();
        let tags: usize = self.runs.get(first).filter(|_| begins).map(tags).unwrap_or(0);
        escaped(text).len() + tags
    }

    fn push(&mut self, text: &str, styles: &[Style]) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        let end = self.text.len();
        match self.runs.last_mut() {
            Some(run) if run.styles == styles => run.end = end,
            Some(_) | None => self.runs.push(StyledRange { end, styles: styles.to_vec() }),
        }
    }
}

/// Converts Markdown parser events to styled text.
#[derive(Default)]
struct MarkdownConverter {
    rich: RichText,
    /// Open styles; `None` for one that is not shown.
    styles: Vec<Option<Style>>,
    /// Open lists, with the number of the next item; `None` for a list without numbers.
    lists: Vec<Option<u64>>,
    table: Option<Table>,
    /// Number of line breaks to write before the next text.
    gap: usize,
    /// List marker to write before the next text; empty if there is none.
    marker: String,
}

impl MarkdownConverter {
    fn handle_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.push_text(&text),
            // Raw HTML is shown as text.
            Event::Html(text) | Event::InlineHtml(text) => self.push_text(&text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.styles.push(Some(Style::Code));
                self.push_text(&text);
                self.styles.pop();
            }
            Event::SoftBreak | Event::HardBreak => self.push_text("\n"),
            Event::Rule => {
                self.block();
                self.push_text("———");
                self.block();
            }
            Event::TaskListMarker(is_done) => self.marker.push_str(if is_done { "☑ " } else { "☐ " }),
            Event::FootnoteReference(text) => self.push_text(&format!("[{text}]")),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.block(),
            Tag::Heading { .. } => {
                self.block();
                self.styles.push(Some(Style::Bold));
            }
            Tag::BlockQuote(_) => {
                self.block();
                // Telegram does not support nested quotes.
                let is_nested = self.styles.contains(&Some(Style::Quote));
                self.styles.push((!is_nested).then_some(Style::Quote));
            }
            Tag::CodeBlock(kind) => {
                self.block();
                self.styles.push(Some(Style::Pre(language(&kind))));
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.block();
                }
                self.lists.push(first);
            }
            Tag::Item => self.start_item(),
            Tag::Table(_) => {
                self.block();
                self.table = Some(Table::default());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.begin_row();
                }
            }
            Tag::TableCell => {
                if let Some(table) = &mut self.table {
                    table.begin_cell();
                }
            }
            Tag::Emphasis => self.styles.push(Some(Style::Italic)),
            Tag::Strong => self.styles.push(Some(Style::Bold)),
            Tag::Strikethrough => self.styles.push(Some(Style::Strike)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => self.styles.push(link(&dest_url)),
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => self.styles.push(None),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.block(),
            TagEnd::CodeBlock => {
                self.rich.trim_line_end();
                self.styles.pop();
                self.block();
            }
            TagEnd::Heading(_) | TagEnd::BlockQuote(_) => {
                self.styles.pop();
                self.block();
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if self.lists.is_empty() {
                    self.block();
                }
            }
            // An empty item still takes a line.
            TagEnd::Item => self.push_text(""),
            TagEnd::Table => {
                let table = self.table.take().unwrap_or_default();
                self.styles.push(Some(Style::Pre(None)));
                self.push_text(&table.write());
                self.styles.pop();
                self.block();
            }
            TagEnd::TableHead | TagEnd::TableRow | TagEnd::TableCell => {}
            TagEnd::Emphasis
            | TagEnd::Strong
            | TagEnd::Strikethrough
            | TagEnd::Link
            | TagEnd::Image
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {
                self.styles.pop();
            }
        }
    }

    /// Begins or ends a block: the next text is preceded by a blank line, in lists by a line break. Directly after a
    /// list marker it has no effect.
    fn block(&mut self) {
        if self.marker.is_empty() {
            self.gap = self.gap.max(if self.lists.is_empty() { 2 } else { 1 });
        }
    }

    /// Starts a list item on a new line: prepares its marker, which is written before the text of the item.
    fn start_item(&mut self) {
        // Writes the marker of the outer item, if that has no text before its nested list.
        self.push_text("");
        self.gap = self.gap.max(1);
        let depth = self.lists.len().clamp(1, MAX_DEPTH) - 1;
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            Some(None) | None => "• ".to_owned(),
        };
        self.marker = "  ".repeat(depth) + &marker;
    }

    /// Adds text to the current table cell, or else writes it with the open styles, after the pending line breaks and
    /// list marker.
    fn push_text(&mut self, text: &str) {
        if let Some(table) = &mut self.table {
            table.push(text);
            return;
        }
        if text.is_empty() && self.marker.is_empty() {
            return;
        }
        let styles = self.visible_styles();
        let gap = std::mem::take(&mut self.gap);
        if !self.rich.text.is_empty() {
            let existing = self.rich.text.len() - self.rich.text.trim_end_matches('\n').len();
            // A gap within a quote belongs to the quote and has no other style.
            let is_quoted = styles.first() == Some(&Style::Quote) && self.rich.ends_in(&Style::Quote);
            let outer = if is_quoted { &styles[..1] } else { &[] };
            self.rich.push(&"\n".repeat(gap.saturating_sub(existing)), outer);
        }
        let marker = std::mem::take(&mut self.marker);
        let quote: Vec<Style> = styles.iter().filter(|style| **style == Style::Quote).cloned().collect();
        self.rich.push(&marker, &quote);
        self.rich.push(text, &styles);
    }

    /// Returns the open styles that Telegram can show: code excludes other styles, and links do not nest.
    fn visible_styles(&self) -> Vec<Style> {
        let open = || self.styles.iter().flatten();
        if let Some(code) = open().find(|style| style.is_code()) {
            let link = open().find(|style| style.url().is_some() && *code == Style::Code);
            return vec![link.unwrap_or(code).clone()];
        }
        let mut visible: Vec<Style> = Vec::new();
        for style in open().take(MAX_DEPTH) {
            let is_redundant =
                visible.iter().any(|other| other == style || (other.url().is_some() && style.url().is_some()));
            if !is_redundant {
                visible.push(style.clone());
            }
        }
        // The quote has to be outermost, even if it was nested in the source.
        visible.sort_by_key(|style| *style != Style::Quote);
        visible
    }
}

impl RichText {
    /// Removes the trailing line break, which a code block has before its closing fence.
    fn trim_line_end(&mut self) {
        if self.text.ends_with('\n') {
            self.text.pop();
            let end = self.text.len();
            let before = self.runs.len().checked_sub(2).map_or(0, |before| self.runs[before].end);
            match self.runs.last_mut() {
                Some(run) if end > before => run.end = end,
                Some(_) | None => {
                    self.runs.pop();
                }
            }
        }
    }

    fn ends_in(&self, style: &Style) -> bool {
        self.runs.last().is_some_and(|run| run.styles.first() == Some(style))
    }
}

/// Language of a code block, if it is a plain word.
fn language(kind: &CodeBlockKind<'_>) -> Option<String> {
    match kind {
        CodeBlockKind::Fenced(line) => {
            let word: String = line.split_whitespace().next()?.chars().take(30).collect();
            word.chars().all(|c| c.is_ascii_alphanumeric() || "+-#_.".contains(c)).then_some(word)
        }
        CodeBlockKind::Indented => None,
    }
}

/// Returns a link style if Telegram supports the URL's scheme.
fn link(url: &str) -> Option<Style> {
    let is_supported = ["http://", "https://", "tg://", "mailto:", "tel:"].iter().any(|scheme| url.starts_with(scheme));
    (is_supported && url.len() <= MAX_URL_BYTES && !url.contains(char::is_control)).then(|| Style::Link(url.to_owned()))
}
