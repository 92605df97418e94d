//! Renders Markdown to lines, also while it is streamed.
//!
//! A text is rendered by top-level blocks. While it grows, only its last block can change: the lines before it are
//! [stable](StreamedMarkdown::stable_lines), and are rendered once.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::{
    highlight::Highlighter,
    style::{Color, Line, TextStyle, prefixed},
};

const CODE: TextStyle = TextStyle::of(Color::Cyan);
const LINK: TextStyle = TextStyle { underline: true, ..TextStyle::PLAIN };
/// Indentation of code blocks.
const CODE_INDENT: &str = "  ";
/// Maximum width of a rule.
const MAX_RULE: usize = 40;
/// Minimum width of a table's column, if the table is too wide.
const MIN_COLUMN: usize = 6;

/// A Markdown text that grows.
#[derive(Debug, Clone, Default)]
pub struct StreamedMarkdown {
    source: String,
    /// Columns for which the lines were rendered.
    columns: usize,
    /// Start of the last top-level block.
    stable_until: usize,
    /// Lines of the blocks before it.
    stable: Vec<Line>,
    /// Lines of the last block.
    last: Vec<Line>,
    is_rendered: bool,
}

impl StreamedMarkdown {
    /// Creates a text.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }

    /// The Markdown source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Sets the text. Returns false if stable lines were discarded, because the text does not continue the old one.
    pub fn set(&mut self, source: &str) -> bool {
        if source == self.source {
            return true;
        }
        let continues = source.get(..self.stable_until) == Some(&self.source[..self.stable_until]);
        source.clone_into(&mut self.source);
        self.is_rendered = false;
        if !continues {
            self.stable_until = 0;
            self.stable.clear();
        }
        continues
    }

    /// Renders the text. Returns all lines.
    pub fn lines(&mut self, columns: usize) -> impl Iterator<Item = &Line> {
        if self.columns != columns {
            (self.columns, self.stable_until, self.is_rendered) = (columns, 0, false);
            self.stable.clear();
        }
        if !self.is_rendered {
            self.render();
        }
        self.stable.iter().chain(&self.last)
    }

    /// Number of lines that do not change if text is appended. Valid after [`lines`](Self::lines).
    pub fn stable_lines(&self) -> usize {
        self.stable.len()
    }

    fn render(&mut self) {
        self.is_rendered = true;
        let source = &self.source[self.stable_until..];
        let mut blocks = render_blocks(source, self.columns);
        // The beginning of a line may look like a block of its own, and continue the block before it when it is complete.
        let line_start = source.rfind('\n').map_or(0, |at| at + 1);
        let unstable = if blocks.last().is_some_and(|last| last.start >= line_start) { 2 } else { 1 };
        let rest = blocks.split_off(blocks.len().saturating_sub(unstable));
        for block in blocks {
            append_block(&mut self.stable, block.lines);
        }
        self.stable_until += rest.first().map_or(0, |block| block.start);
        self.last.clear();
        for block in rest {
            let is_first = self.stable.is_empty() && self.last.is_empty();
            if !is_first && !block.lines.is_empty() {
                self.last.push(Line::default());
            }
            self.last.extend(block.lines);
        }
    }
}

/// Renders a complete text.
pub fn render(source: &str, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for block in render_blocks(source, columns) {
        append_block(&mut lines, block.lines);
    }
    lines
}

fn append_block(lines: &mut Vec<Line>, block: Vec<Line>) {
    if !lines.is_empty() && !block.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(block);
}

/// A top-level block and where it begins.
struct RenderedBlock {
    start: usize,
    lines: Vec<Line>,
}

fn render_blocks(source: &str, columns: usize) -> Vec<RenderedBlock> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut blocks = Vec::new();
    let mut depth = 0_usize;
    let mut writer = Writer::new(columns);
    for (event, range) in Parser::new_ext(source, options).into_offset_iter() {
        if depth == 0 {
            writer = Writer::new(columns);
            // A block begins with its line: an indented block must keep its indentation.
            let start = source[..range.start].rfind('\n').map_or(0, |at| at + 1);
            blocks.push(RenderedBlock { start, lines: Vec::new() });
        }
        match &event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Text(_)
            | Event::Code(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::Html(_)
            | Event::InlineHtml(_)
            | Event::FootnoteReference(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_) => {}
        }
        writer.event(event);
        if depth == 0
            && let Some(block) = blocks.last_mut()
        {
            block.lines = std::mem::take(&mut writer).finish();
        }
    }
    blocks
}

/// Container of blocks.
#[derive(Debug)]
enum Container {
    Quote,
    /// A list, with the number of its next item if it is numbered.
    List(Option<u64>),
    /// An item, with its marker until a line was written.
    Item {
        marker: Option<String>,
        indent: usize,
    },
}

/// A table while its cells are read.
#[derive(Debug, Default)]
struct TableBuilder {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Line>>,
}

/// Writes the lines of one top-level block.
#[derive(Debug, Default)]
struct Writer {
    columns: usize,
    lines: Vec<Line>,
    containers: Vec<Container>,
    /// Inline text of the current block: one line for each line break.
    inline: Vec<Line>,
    style: TextStyle,
    styles: Vec<TextStyle>,
    /// Target of the open link, and its text so far.
    link: Option<(String, String)>,
    code: Option<(Highlighter, String)>,
    table: Option<TableBuilder>,
    /// True if a block has just ended, so that the next one in the same container is set off from it.
    needs_gap: bool,
}

impl Writer {
    fn new(columns: usize) -> Self {
        Self { columns, ..Self::default() }
    }

    fn finish(mut self) -> Vec<Line> {
        self.flush_inline();
        self.lines
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.text(&text),
            },
            Event::Code(code) | Event::InlineMath(code) | Event::DisplayMath(code) => {
                let style = TextStyle { color: CODE.color, ..self.style };
                self.push(&code, style);
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                for (index, line) in html.trim_end_matches('\n').split('\n').enumerate() {
                    if index > 0 {
                        self.inline.push(Line::default());
                    }
                    self.push(line, TextStyle::DIM);
                }
            }
            Event::FootnoteReference(name) => self.push(&format!("[{name}]"), TextStyle::DIM),
            Event::SoftBreak | Event::HardBreak => self.inline.push(Line::default()),
            Event::Rule => {
                let width = self.available().min(MAX_RULE);
                self.block(vec![Line::of("─".repeat(width), TextStyle::DIM)]);
            }
            Event::TaskListMarker(is_done) => self.push(if is_done { "[x] " } else { "[ ] " }, self.style),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => {}
            Tag::Heading { level, .. } => {
                let underline = level == HeadingLevel::H1;
                self.push_style(TextStyle { bold: true, underline, ..self.style });
            }
            Tag::BlockQuote(_) => {
                self.flush_inline();
                self.separate();
                self.containers.push(Container::Quote);
            }
            Tag::CodeBlock(kind) => {
                self.flush_inline();
                let language = match &kind {
                    CodeBlockKind::Fenced(language) => language,
                    CodeBlockKind::Indented => "",
                };
                self.code = Some((Highlighter::new(language), String::new()));
            }
            Tag::List(number) => {
                self.flush_inline();
                // A list within an item follows its text at once.
                if !matches!(self.containers.last(), Some(Container::Item { .. })) {
                    self.separate();
                }
                self.needs_gap = false;
                self.containers.push(Container::List(number));
            }
            Tag::Item => {
                let marker = match self.containers.last_mut() {
                    Some(Container::List(Some(number))) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(Container::List(None) | Container::Quote | Container::Item { .. }) | None => "• ".to_owned(),
                };
                let indent = marker.chars().count();
                self.containers.push(Container::Item { marker: Some(marker), indent });
                self.needs_gap = false;
            }
            Tag::Table(alignments) => self.table = Some(TableBuilder { alignments, rows: Vec::new() }),
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => self.inline.clear(),
            Tag::Emphasis => self.push_style(TextStyle { italic: true, ..self.style }),
            Tag::Strong => self.push_style(TextStyle { bold: true, ..self.style }),
            Tag::Strikethrough => self.push_style(TextStyle { strike: true, ..self.style }),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some((dest_url.into_string(), String::new()));
                self.push_style(TextStyle { underline: LINK.underline, ..self.style });
            }
            Tag::HtmlBlock
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush_inline(),
            TagEnd::Heading(_) => {
                self.pop_style();
                self.flush_inline();
            }
            TagEnd::BlockQuote(_) | TagEnd::List(_) => {
                self.flush_inline();
                self.containers.pop();
                self.needs_gap = true;
            }
            TagEnd::Item => {
                self.flush_inline();
                if let Some(Container::Item { marker: Some(_), .. }) = self.containers.last() {
                    // An item without text still has its marker.
                    self.needs_gap = false;
                    self.block(vec![Line::default()]);
                }
                self.containers.pop();
                self.needs_gap = false;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline).into_iter().reduce(|mut cell, line| {
                    cell.push(" ", TextStyle::PLAIN);
                    cell.extend(line);
                    cell
                });
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell.unwrap_or_default());
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    let lines = table.render(self.available());
                    self.block(lines);
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.pop_style(),
            TagEnd::Link | TagEnd::Image => {
                self.pop_style();
                if let Some((url, text)) = self.link.take()
                    && url != text
                    && url.strip_prefix("mailto:") != Some(&text)
                    && !url.is_empty()
                {
                    self.push(&format!(" ({url})"), TextStyle::DIM);
                }
            }
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn end_code(&mut self) {
        let Some((mut highlighter, code)) = self.code.take() else { return };
        let columns = self.available().saturating_sub(CODE_INDENT.len()).max(1);
        let mut lines = Vec::new();
        for line in code.trim_end_matches('\n').split('\n') {
            let indent = Line::plain(CODE_INDENT);
            lines.extend(prefixed(highlighter.line(line).split(columns), &indent, &indent));
        }
        self.block(lines);
    }

    fn text(&mut self, text: &str) {
        if let Some((_, link_text)) = &mut self.link {
            link_text.push_str(text);
        }
        self.push(text, self.style);
    }

    fn push(&mut self, text: &str, style: TextStyle) {
        if self.inline.is_empty() {
            self.inline.push(Line::default());
        }
        if let Some(line) = self.inline.last_mut() {
            line.push(text.replace('\n', " "), style);
        }
    }

    fn push_style(&mut self, style: TextStyle) {
        self.styles.push(std::mem::replace(&mut self.style, style));
    }

    fn pop_style(&mut self) {
        self.style = self.styles.pop().unwrap_or_default();
    }

    /// Columns that the open containers leave.
    fn available(&self) -> usize {
        let used = self.containers.iter().map(|container| match container {
            Container::Quote => 2,
            Container::List(_) => 0,
            Container::Item { indent, .. } => *indent,
        });
        self.columns.saturating_sub(used.sum()).max(1)
    }

    fn flush_inline(&mut self) {
        if self.table.is_some() || self.inline.is_empty() {
            return;
        }
        let columns = self.available();
        let lines = std::mem::take(&mut self.inline);
        self.block(lines.iter().flat_map(|line| line.wrap(columns)).collect());
    }

    /// Writes an empty line before the next block, if one precedes it in the same container.
    fn separate(&mut self) {
        if std::mem::take(&mut self.needs_gap) {
            let gap = self.prefix(false);
            self.lines.push(trimmed(gap));
        }
    }

    /// Writes a block within the open containers.
    fn block(&mut self, lines: Vec<Line>) {
        self.separate();
        for line in lines {
            let mut prefixed = self.prefix(true);
            prefixed.extend(line);
            self.lines.push(trimmed(prefixed));
        }
        self.needs_gap = true;
    }

    /// Prefix of a line in the open containers. A marker is used once.
    fn prefix(&mut self, takes_marker: bool) -> Line {
        let mut prefix = Line::default();
        for container in &mut self.containers {
            match container {
                Container::Quote => prefix.push("│ ", TextStyle::DIM),
                Container::List(_) => {}
                Container::Item { marker, indent } => match marker.take_if(|_| takes_marker) {
                    Some(marker) => prefix.push(marker, TextStyle::DIM),
                    None => prefix.push(" ".repeat(*indent), TextStyle::PLAIN),
                },
            }
        }
        prefix
    }
}

/// Removes spaces from the end of a line.
fn trimmed(mut line: Line) -> Line {
    while let Some(last) = line.spans.last_mut() {
        last.text.truncate(last.text.trim_end_matches(' ').len());
        if !last.text.is_empty() {
            break;
        }
        line.spans.pop();
    }
    line
}

impl TableBuilder {
    fn render(self, columns: usize) -> Vec<Line> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        if count == 0 {
            return Vec::new();
        }
        let natural: Vec<_> = (0..count)
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).map(Line::width).max().unwrap_or(0).max(1))
            .collect();
        let widths = fit(natural, columns.saturating_sub(3 * (count - 1)));
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<_> =
                (0..count).map(|column| row.get(column).cloned().unwrap_or_default().wrap(widths[column])).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or_default();
            for part in 0..height {
                let mut line = Line::default();
                for (column, cell) in cells.iter().enumerate() {
                    if column > 0 {
                        line.push(" │ ", TextStyle::DIM);
                    }
                    let text = cell.get(part).cloned().unwrap_or_default();
                    let space = widths[column].saturating_sub(text.width());
                    let left = match self.alignments.get(column) {
                        Some(Alignment::Right) => space,
                        Some(Alignment::Center) => space / 2,
                        Some(Alignment::Left | Alignment::None) | None => 0,
                    };
                    line.push(" ".repeat(left), TextStyle::PLAIN);
                    for span in text.spans {
                        let style = if index == 0 { TextStyle { bold: true, ..span.style } } else { span.style };
                        line.push(span.text, style);
                    }
                    line.push(" ".repeat(space - left), TextStyle::PLAIN);
                }
                lines.push(line);
            }
            if index == 0 {
                let rules: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(Line::of(rules.join("─┼─"), TextStyle::DIM));
            }
        }
        lines
    }
}

/// Narrows the widest columns until a table fits.
fn fit(mut widths: Vec<usize>, columns: usize) -> Vec<usize> {
    let mut excess = widths.iter().sum::<usize>().saturating_sub(columns);
    while excess > 0 {
        let Some(widest) = widths.iter_mut().max() else { break };
        if *widest <= MIN_COLUMN {
            break;
        }
        *widest -= 1;
        excess -= 1;
    }
    widths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(source: &str, columns: usize) -> Vec<String> {
        render(source, columns).iter().map(Line::text).collect()
    }

    #[test]
    fn blocks_are_rendered() {
        assert_eq!(
            texts("# Title\n\nSome *text* with `code`.\nNext line.\n\n---", 40),
            ["Title", "", "Some text with code.", "Next line.", "", "────────────────────────────────────────"]
        );
        assert_eq!(
            texts("- one\n- two words that wrap\n  1. a\n  2. b\n- [x] done\n\nEnd", 16),
            ["• one", "• two words that", "  wrap", "  1. a", "  2. b", "• [x] done", "", "End"]
        );
        assert_eq!(texts("> quoted\n> > twice\n\nx", 20), ["│ quoted", "│", "│ │ twice", "", "x"]);
        assert_eq!(texts("```rust\nlet x = 1;\n\nfoo\n```", 40), ["  let x = 1;", "", "  foo"]);
        assert_eq!(texts("[a](http://x) <http://y>", 40), ["a (http://x) http://y"]);
        assert_eq!(texts("- a\n\n  b\n- c", 40), ["• a", "", "  b", "• c"]);
        assert_eq!(texts("<b>x</b>", 40), ["<b>x</b>"]);
    }

    #[test]
    fn tables_fit_the_width() {
        let table = "| Name | Size |\n|---|---:|\n| a | 1 |\n| long name here | 20 |";
        assert_eq!(
            texts(table, 40),
            ["Name           │ Size", "───────────────┼─────", "a              │    1", "long name here │   20"]
        );
        assert_eq!(
            texts(table, 16),
            ["Name      │ Size", "──────────┼─────", "a         │    1", "long name │   20", "here      │"]
        );
    }

    #[test]
    fn the_beginning_of_a_line_may_continue_the_block_before_it() {
        // At first the last line looks like an item of another list.
        let mut text = StreamedMarkdown::new("a\n\n- x\n*");
        text.lines(40).for_each(drop);
        assert!(text.set("a\n\n- x\n*word"));
        assert_eq!(text.lines(40).map(Line::text).collect::<Vec<_>>(), ["a", "", "• x", "  *word"]);
    }

    #[test]
    fn an_open_code_block_is_shown_as_code() {
        let mut text = StreamedMarkdown::new("Look:\n\n```sh\nls");
        assert_eq!(text.lines(40).map(Line::text).collect::<Vec<_>>(), ["Look:", "", "  ls"]);
        // The last line may still become part of the block before it.
        assert_eq!(text.stable_lines(), 1);
        assert!(text.set("Look:\n\n```sh\nls -l\n```\nx"));
        assert_eq!(text.lines(40).map(Line::text).collect::<Vec<_>>(), ["Look:", "", "  ls -l", "", "x"]);
        assert!(!text.set("Other"));
        assert_eq!(text.lines(40).map(Line::text).collect::<Vec<_>>(), ["Other"]);
    }

    /// Markdown with every construct that may be cut.
    fn source() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "word ",
            "**bold** ",
            "`code` ",
            "\n",
            "\n\n",
            "# ",
            "- ",
            "1. ",
            "> ",
            "```\n",
            "```rust\n",
            "    ",
            "| a | b |\n",
            "|---|---|\n",
            "---\n",
            "[l](u) ",
            "<b>",
            "é日 ",
            "*",
            "_",
            "  - x\n",
        ]);
        prop::collection::vec(piece, 0..25).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn streaming_renders_the_same_as_the_whole_text(source in source(), cuts in prop::collection::vec(0_usize..200, 0..6)) {
            let mut cuts: Vec<_> = cuts.into_iter().filter(|at| source.is_char_boundary(*at)).collect();
            cuts.sort_unstable();
            let mut streamed = StreamedMarkdown::default();
            let mut stable: Vec<Line> = Vec::new();
            for at in cuts.into_iter().chain([source.len()]) {
                prop_assert!(streamed.set(&source[..at]));
                let lines: Vec<_> = streamed.lines(30).cloned().collect();
                prop_assert_eq!(&lines[..stable.len()], &stable[..], "stable lines changed");
                stable = lines[..streamed.stable_lines()].to_vec();
            }
            let streamed: Vec<_> = streamed.lines(30).map(Line::text).collect();
            let whole: Vec<_> = render(&source, 30).iter().map(Line::text).collect();
            prop_assert_eq!(streamed, whole);
        }

        #[test]
        fn lines_fit_the_width(source in source(), columns in 24_usize..60) {
            for line in render(&source, columns) {
                prop_assert!(line.width() <= columns, "{:?}", line.text());
            }
        }
    }
}
