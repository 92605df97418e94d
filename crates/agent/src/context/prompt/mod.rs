//! The system prompt: one table of sections, in the order in which OpenClaw has them, and a pure function that writes it.
//!
//! There is one deviation from that order: what may change from one run to the next comes after everything that does not,
//! so that a provider finds the beginning of the last request again. The clock is nowhere in it; see
//! [`zone`](super::zone). No empty line is written, except where a file, the skills or a caller's words have one.

mod channel;
mod house;
pub(super) mod pages;
mod replies;
mod rules;
pub(super) mod skills;
mod tools;
mod turn;

#[cfg(test)]
pub(super) mod tests;

use std::{borrow::Cow, path::Path, sync::Arc};

use homard_model::ToolSpec;
use homard_store::PromptMode;

use super::scene::{Scene, Stable, Wording};
use crate::secrets::Secrets;

/// A system prompt, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// All of it.
    pub(crate) text: Arc<str>,
    /// How many bytes at its beginning stay the same from one run to the next.
    pub(crate) stable: usize,
    /// Its sections, in order. Their characters are all that there are: a line break counts for the section after it.
    pub(crate) parts: Vec<Part>,
}

impl Prompt {
    /// The prompt without secrets, with the same division into what stays and what does not.
    pub(crate) fn masked(self, secrets: &Secrets) -> Self {
        let (stable, rest) = self.text.split_at(self.stable);
        match (secrets.mask(stable), secrets.mask(rest)) {
            (Cow::Borrowed(_), Cow::Borrowed(_)) => self,
            (stable, rest) => Self { text: format!("{stable}{rest}").into(), stable: stable.len(), ..self },
        }
    }
}

/// A section of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its name.
    pub(crate) name: &'static str,
    /// How many characters it has.
    pub(crate) chars: usize,
    /// Whether it is at the beginning that stays the same.
    pub(crate) is_stable: bool,
}

/// The section that holds the files of the workspace.
pub(super) const PROJECT_CONTEXT: &str = "Project Context";
/// The section that holds the skills.
pub(super) const SKILLS: &str = "Skills";
/// The section that lists the tools.
pub(super) const TOOLING: &str = "Tooling";

/// A section that may be in a prompt.
struct Section {
    name: &'static str,
    /// The mode that tells the least and still has it.
    least: PromptMode,
    rich: Writer,
    /// `None` where a lean prompt does without it.
    lean: Option<Writer>,
}

/// What writes a section, if there is something to write.
#[derive(Clone, Copy)]
enum Writer {
    /// From what stays: at the beginning.
    Stable(fn(&Stable<'_>) -> Option<String>),
    /// From anything: at the end.
    Turn(fn(&Scene<'_>) -> Option<String>),
}

/// Which sections there are, in which modes, and in which words.
const SECTIONS: &[Section] = &{
    use PromptMode::{Full, Minimal, None as Nothing};
    use Writer::{Stable, Turn};
    const fn section(name: &'static str, least: PromptMode, rich: Writer, lean: Option<Writer>) -> Section {
        Section { name, least, rich, lean }
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
        section("Model Aliases", Full, Stable(house::aliases), None),
        section("Workspace", Minimal, Stable(house::workspace), Some(Stable(house::short_workspace))),
        section("Documentation", Full, Stable(house::documentation), None),
        section("Sandbox", Minimal, Stable(house::sandbox), Some(Stable(house::sandbox))),
        section("User Identity", Full, Stable(house::owners), None),
        section("Current Date & Time", Minimal, Stable(house::time), Some(Stable(house::time))),
        section("Workspace Files (injected)", Minimal, Stable(house::files), None),
        section("Reply Tags", Full, Stable(replies::tags), None),
        section("Messaging", Full, Stable(channel::messaging), None),
        section("This Channel", Full, Turn(channel::hints), None),
        section("Voice (TTS)", Full, Stable(replies::voice), None),
        section("Extra", Minimal, Turn(turn::extra), Some(Turn(turn::extra))),
        section("Reactions", Minimal, Turn(channel::reactions), None),
        section("Reasoning Format", Minimal, Stable(replies::format), Some(Stable(replies::format))),
        section(PROJECT_CONTEXT, Minimal, Stable(pages::all), Some(Stable(pages::short))),
        section("Silent Replies", Full, Stable(replies::silence), None),
        section("Heartbeats", Full, Stable(replies::heartbeats), None),
        section("Runtime", Minimal, Turn(turn::runtime), Some(Turn(turn::short_runtime))),
    ]
};

/// Writes the prompt of a scene: the same scene always gives the same bytes.
pub(crate) fn write(scene: &Scene<'_>) -> Prompt {
    let writer = |section: &'static Section| match scene.wording {
        Wording::Rich => Some((section.name, section.rich)),
        Wording::Lean => Some((section.name, section.lean?)),
    };
    let chosen = || SECTIONS.iter().filter(|section| section.least <= scene.mode).filter_map(writer);
    let mut draft = Draft::default();
    for (name, writer) in chosen() {
        if let Writer::Stable(write) = writer {
            draft.add(name, true, write(&scene.stable));
        }
    }
    let stable = draft.text.len();
    for (name, writer) in chosen() {
        if let Writer::Turn(write) = writer {
            draft.add(name, false, write(scene));
        }
    }
    Prompt { text: draft.text.into(), stable, parts: draft.parts }
}

/// A prompt that is being written.
#[derive(Default)]
struct Draft {
    text: String,
    parts: Vec<Part>,
}

impl Draft {
    fn add(&mut self, name: &'static str, is_stable: bool, section: Option<String>) {
        let Some(section) = section else { return };
        let start = self.text.len();
        // The line break belongs to what follows, so that the beginning does not depend on whether anything does.
        if start > 0 {
            self.text.push('\n');
        }
        self.text.push_str(&section);
        self.parts.push(Part { name, chars: self.text[start..].chars().count(), is_stable });
    }
}

/// How long a value within a line may be, in characters.
const VALUE: usize = 1_000;

/// A value within a line: whatever it holds, it starts no other line.
fn line(value: &str) -> String {
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let value = value.trim().chars().map(|c| if is_break(c) { ' ' } else { c });
    value.take(VALUE).collect()
}

/// A value within a line, if there is one.
fn known(value: Option<&str>) -> Option<String> {
    value.map(line).filter(|value| !value.is_empty())
}

/// A path within a line.
fn path(path: &Path) -> String {
    line(&path.to_string_lossy())
}

/// What somebody else wrote, if it says something.
fn words(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// A tool by its name in any case, as it is really called.
fn tool<'a>(tools: &'a [ToolSpec], name: &str) -> Option<&'a str> {
    tools.iter().map(|tool| tool.name.as_str()).find(|own| own.eq_ignore_ascii_case(name))
}

/// The first lines of a list, and how many are left out.
fn capped(items: impl ExactSizeIterator<Item = String>, most: usize) -> Vec<String> {
    let more = items.len().saturating_sub(most);
    items.take(most).chain((more > 0).then(|| format!("- and {more} more"))).collect()
}
