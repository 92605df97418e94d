//! The system prompt: a table of sections in OpenClaw's order, and a pure function that renders it.
//!
//! There is one deviation from that order: sections that may change from run to run follow all others, so that the
//! provider's prompt cache matches the beginning. The current time is not included; see
//! [`timestamps`](super::timestamps). No blank lines are written, except those inside a file, the skills or a caller's
//! text.

mod channel;
mod environment;
pub(super) mod files;
mod replies;
mod rules;
pub(super) mod skills;
mod tools;
mod turn;

#[cfg(test)]
pub(super) mod tests;

use std::{borrow::Cow, path::Path, sync::Arc};

use homard_model::ToolSpec;
use homard_secrets::Secrets;
use homard_store::PromptMode;

use crate::input::{PromptContext, StableInput, Wording};

/// A rendered system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPrompt {
    /// The text.
    pub text: Arc<str>,
    /// Length in bytes of the prefix that is stable from run to run.
    pub stable: usize,
    /// Sections in order. Their character counts add up to the total: a line break counts for the section after it.
    pub parts: Vec<PromptSection>,
}

impl SystemPrompt {
    /// Masks secrets and keeps the division into stable and changing text.
    pub fn masked(self, secrets: &Secrets) -> Self {
        let (stable, rest) = self.text.split_at(self.stable);
        match (secrets.mask(stable), secrets.mask(rest)) {
            (Cow::Borrowed(_), Cow::Borrowed(_)) => self,
            (stable, rest) => Self { text: format!("{stable}{rest}").into(), stable: stable.len(), ..self },
        }
    }
}

/// A section of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptSection {
    /// Name.
    pub name: &'static str,
    /// Number of characters.
    pub chars: usize,
    /// True if it is in the stable prefix.
    pub(crate) is_stable: bool,
}

/// Section with the workspace files.
pub(super) const PROJECT_CONTEXT: &str = "Project Context";
/// Section with the skills.
pub(super) const SKILLS: &str = "Skills";
/// Section with the tools.
pub(super) const TOOLING: &str = "Tooling";

/// An entry of the table of sections.
struct SectionDef {
    name: &'static str,
    /// The smallest mode that includes it.
    min_mode: PromptMode,
    rich: SectionRenderer,
    /// `None` if a lean prompt omits it.
    lean: Option<SectionRenderer>,
}

/// Renderer of a section; returns `None` if there is nothing to write.
#[derive(Clone, Copy)]
enum SectionRenderer {
    /// Uses stable inputs only: written to the prefix.
    Stable(fn(&StableInput<'_>) -> Option<String>),
    /// Uses all inputs: written to the end.
    Turn(fn(&PromptContext<'_>) -> Option<String>),
}

/// All sections with their modes and renderers.
const SECTIONS: &[SectionDef] = &{
    use PromptMode::{Full, Minimal, None as Nothing};
    use SectionRenderer::{Stable, Turn};
    const fn section(
        name: &'static str,
        min_mode: PromptMode,
        rich: SectionRenderer,
        lean: Option<SectionRenderer>,
    ) -> SectionDef {
        SectionDef { name, min_mode, rich, lean }
    }
    [
        section("Identity", Nothing, Stable(rules::identity), Some(Stable(rules::identity))),
        section(TOOLING, Minimal, Stable(tools::tooling), Some(Stable(tools::names))),
        section("Tool Call Style", Minimal, Stable(rules::style), Some(Stable(rules::short_style))),
        section("Safety", Minimal, Stable(rules::safety), Some(Stable(rules::short_safety))),
        section("Homard CLI Quick Reference", Minimal, Stable(rules::cli), None),
        section(SKILLS, Full, Stable(skills::all), Some(Stable(skills::names))),
        section("Memory Recall", Full, Stable(tools::memory), None),
        section("Homard Self-Update", Full, Stable(tools::self_update), None),
        section("Model Aliases", Full, Stable(environment::aliases), None),
        section("Workspace", Minimal, Stable(environment::workspace), Some(Stable(environment::short_workspace))),
        section("Sandbox", Minimal, Stable(environment::sandbox), Some(Stable(environment::sandbox))),
        section("Current Date & Time", Minimal, Stable(environment::time), Some(Stable(environment::time))),
        section("Workspace Files (injected)", Minimal, Stable(environment::files), None),
        section("Reply Tags", Full, Stable(replies::tags), None),
        section("Messaging", Full, Stable(channel::messaging), None),
        section("Extra", Minimal, Turn(turn::extra), Some(Turn(turn::extra))),
        section("Reasoning Format", Minimal, Stable(replies::format), Some(Stable(replies::format))),
        section(PROJECT_CONTEXT, Minimal, Stable(files::all), Some(Stable(files::short))),
        section("Silent Replies", Full, Stable(replies::silence), None),
        section("Heartbeats", Full, Stable(replies::heartbeats), None),
        section("Runtime", Minimal, Turn(turn::runtime), Some(Turn(turn::short_runtime))),
    ]
};

/// Renders a prompt: equal inputs give equal bytes.
pub fn render(context: &PromptContext<'_>) -> SystemPrompt {
    let renderer = |section: &'static SectionDef| match context.wording {
        Wording::Rich => Some((section.name, section.rich)),
        Wording::Lean => Some((section.name, section.lean?)),
    };
    let chosen = || SECTIONS.iter().filter(|section| section.min_mode <= context.mode).filter_map(renderer);
    let mut buffer = PromptBuffer::default();
    for (name, renderer) in chosen() {
        if let SectionRenderer::Stable(write) = renderer {
            buffer.add(name, true, write(&context.stable));
        }
    }
    let stable = buffer.text.len();
    for (name, renderer) in chosen() {
        if let SectionRenderer::Turn(write) = renderer {
            buffer.add(name, false, write(context));
        }
    }
    SystemPrompt { text: buffer.text.into(), stable, parts: buffer.parts }
}

/// A prompt under construction.
#[derive(Default)]
struct PromptBuffer {
    text: String,
    parts: Vec<PromptSection>,
}

impl PromptBuffer {
    fn add(&mut self, name: &'static str, is_stable: bool, section: Option<String>) {
        let Some(section) = section else { return };
        let start = self.text.len();
        // The line break belongs to the next section, so that the prefix does not depend on what follows.
        if start > 0 {
            self.text.push('\n');
        }
        self.text.push_str(&section);
        self.parts.push(PromptSection { name, chars: self.text[start..].chars().count(), is_stable });
    }
}

/// Maximum characters of a value within a line.
const MAX_VALUE_CHARS: usize = 1_000;

/// Sanitizes a value within a line, so that it cannot start another line.
fn sanitize(value: &str) -> String {
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let value = value.trim().chars().map(|c| if is_break(c) { ' ' } else { c });
    value.take(MAX_VALUE_CHARS).collect()
}

/// Sanitizes an optional value; `None` if it is empty.
fn sanitized(value: Option<&str>) -> Option<String> {
    value.map(sanitize).filter(|value| !value.is_empty())
}

/// Sanitizes a path.
fn path(path: &Path) -> String {
    sanitize(&path.to_string_lossy())
}

/// Returns a trimmed text, if it is not empty.
fn non_empty(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Finds a tool by its name in any case. Returns its actual name.
fn tool<'a>(tools: &'a [ToolSpec], name: &str) -> Option<&'a str> {
    tools.iter().map(|tool| tool.name.as_str()).find(|own| own.eq_ignore_ascii_case(name))
}

/// Limits a list to `max` lines, plus one that counts the rest.
fn capped(items: impl ExactSizeIterator<Item = String>, max: usize) -> Vec<String> {
    let more = items.len().saturating_sub(max);
    items.take(max).chain((more > 0).then(|| format!("- and {more} more"))).collect()
}
