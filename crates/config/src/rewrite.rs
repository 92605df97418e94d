//! Changes a text to another value with the smallest edits.

use std::collections::HashSet;

use jsonc_parser::{
    CollectOptions, ast,
    common::{Range, Ranged},
    parse_to_ast,
};
use serde_json::{Map, Value};

use crate::{
    layout::{LineStyle, SourceLayout},
    tree::OPTIONS,
};

/// Changes the text from `old` to `new`; what both have in common is kept byte for byte. `None` if it cannot be parsed.
pub(crate) fn rewrite(text: &str, old: &Value, new: &Value) -> Option<String> {
    let (bom, text) = text.split_at(if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 });
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).ok()?;
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let Some(root) = parsed.value else {
        let style = TextStyle { text, end, unit: "  " };
        let gap = if text.trim().is_empty() {
            ""
        } else if text.ends_with(['\n', '\r']) {
            text
        } else {
            &format!("{text}{end}")
        };
        return Some(format!("{bom}{gap}{}{end}", style.render(new, TOP)));
    };
    let style = TextStyle { text, end, unit: unit(text, &root).unwrap_or("  ") };
    let value = style.value(&root, old, new, TOP);
    Some(format!("{bom}{}{value}{}", &text[..root.start()], &text[root.end()..]))
}

/// The current file and its style.
struct TextStyle<'a> {
    text: &'a str,
    /// Line break.
    end: &'a str,
    /// One level of indentation.
    unit: &'a str,
}

/// Line that contains a value.
#[derive(Clone, Copy)]
struct ValueLine<'a> {
    indent: &'a str,
    /// True if its siblings are on lines of their own.
    is_wrapped: bool,
}

const TOP: ValueLine<'static> = ValueLine { indent: "", is_wrapped: true };

impl TextStyle<'_> {
    fn value(&self, node: &ast::Value<'_>, old: &Value, new: &Value, line: ValueLine<'_>) -> String {
        match (node, old, new) {
            (ast::Value::Object(node), Value::Object(old), Value::Object(new)) => self.object(node, old, new, line),
            (ast::Value::Array(node), Value::Array(old), Value::Array(new)) => self.array(node, old, new, line),
            _ if old == new => node.text(self.text).to_owned(),
            _ => self.render(new, line),
        }
    }

    fn object(
        &self,
        node: &ast::Object<'_>,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        line: ValueLine<'_>,
    ) -> String {
        let mut layout = self.layout(node, node.properties.iter().map(Ranged::range));
        let mut seen = HashSet::new();
        for (at, property) in node.properties.iter().enumerate().rev() {
            let name = property.name.as_str();
            let is_repeated = !seen.insert(name);
            match (old.get(name), new.get(name)) {
                (_, None) => layout.remove(at),
                // Of two equal keys the later one counts; the earlier one is left alone.
                (Some(old), Some(new)) if !is_repeated => {
                    let before = &self.text[property.start()..property.value.start()];
                    let value = self.value(&property.value, old, new, item_line(&layout, at, line));
                    layout.items[at] = format!("{before}{value}");
                }
                (_, Some(_)) => {}
            }
        }
        for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            let name = Value::from(name.as_str());
            let end = layout.items.len();
            self.insert(&mut layout, end, line, |line| format!("{name}: {}", self.render(value, line)));
        }
        format!("{{{}}}", layout.text())
    }

    fn array(&self, node: &ast::Array<'_>, old: &[Value], new: &[Value], line: ValueLine<'_>) -> String {
        let mut layout = self.layout(node, node.elements.iter().map(Ranged::range));
        let is_equal = |(old, new): &(&Value, &Value)| old == new;
        let head = old.iter().zip(new).take_while(is_equal).count();
        let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(is_equal).count();
        let (last, new_last) = (old.len() - tail, new.len() - tail);
        for at in head..last.min(new_last) {
            layout.items[at] = self.value(&node.elements[at], &old[at], &new[at], item_line(&layout, at, line));
        }
        for at in (new_last..last).rev() {
            layout.remove(at);
        }
        for (at, value) in new.iter().enumerate().take(new_last).skip(last) {
            self.insert(&mut layout, at, line, |line| self.render(value, line));
        }
        format!("[{}]", layout.text())
    }

    fn layout(&self, node: &impl Ranged, items: impl Iterator<Item = Range>) -> SourceLayout {
        let start = node.start() + 1;
        SourceLayout::new(&self.text[start..node.end() - 1], items.map(|item| (item.start - start, item.end - start)))
    }

    fn insert(
        &self,
        layout: &mut SourceLayout,
        at: usize,
        line: ValueLine<'_>,
        item: impl FnOnce(ValueLine<'_>) -> String,
    ) {
        let is_wrapped = layout.is_wrapped() || layout.is_blank() && line.is_wrapped;
        let inner = (0..layout.items.len()).rev().find_map(|at| layout.indent(at)).map(str::to_owned);
        let inner = inner.unwrap_or_else(|| format!("{}{}", line.indent, self.unit));
        let indent = if is_wrapped { &inner } else { line.indent };
        let lines = LineStyle { end: self.end, outer: line.indent, inner: &inner };
        layout.insert(at, item(ValueLine { indent, is_wrapped }), is_wrapped.then_some(lines));
    }

    /// Renders a value as strict JSON, over several lines if its siblings are.
    fn render(&self, value: &Value, line: ValueLine<'_>) -> String {
        let mut text = String::new();
        // JSON has no line breaks inside strings, so each one belongs to the layout.
        for part in format!("{value:#}").lines() {
            let bare = part.trim_start_matches(' ');
            if line.is_wrapped && !text.is_empty() {
                let depth = (part.len() - bare.len()) / 2;
                text.push_str(&format!("{}{}{}", self.end, line.indent, self.unit.repeat(depth)));
            } else if text.ends_with(',') {
                text.push(' ');
            }
            text.push_str(bare);
        }
        text
    }
}

/// Returns the line of an item: its own, or that of its bracket.
fn item_line<'a>(layout: &'a SourceLayout, at: usize, line: ValueLine<'a>) -> ValueLine<'a> {
    ValueLine { indent: layout.indent(at).unwrap_or(line.indent), is_wrapped: layout.is_wrapped() }
}

/// Returns one level of indentation, from the first member of the file.
fn unit<'a>(text: &'a str, root: &ast::Value<'_>) -> Option<&'a str> {
    let first = match root {
        ast::Value::Object(object) => object.properties.first()?.start(),
        ast::Value::Array(array) => array.elements.first()?.start(),
        ast::Value::StringLit(_)
        | ast::Value::NumberLit(_)
        | ast::Value::BooleanLit(_)
        | ast::Value::NullKeyword(_) => {
            return None;
        }
    };
    let before = &text[..first];
    let line = before.trim_end_matches([' ', '\t']);
    (line.ends_with(['\n', '\r']) && line.len() < before.len()).then(|| &before[line.len()..])
}
