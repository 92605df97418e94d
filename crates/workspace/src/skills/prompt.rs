//! List of skills for the system prompt.

use std::path::Path;

use homard_stdx::text::fit;

use crate::skills::{
    skill::{Skill, on_one_line},
    skill_set::SkillSet,
};

/// Maximum number of characters of a description.
const DESCRIPTION_CHARS: usize = 1_024;

const INTRO: &str = "\
Skills are instructions for particular kinds of work.
When one fits the request, read the file at its location before you act, and follow it.
A relative path in that file starts from the folder in which the file lies.";

/// Limits of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptLimits {
    /// Maximum number of skills.
    pub max_skills: usize,
    /// Maximum number of characters in total.
    pub chars: usize,
}

impl Default for PromptLimits {
    fn default() -> Self {
        Self { max_skills: 150, chars: 30_000 }
    }
}

/// Returns the list of skills for a system prompt; empty if there is nothing to list.
///
/// If it is too long, descriptions are omitted; if it still is, it states how many skills are omitted.
pub fn block(skills: &SkillSet, limits: &PromptLimits, home: Option<&Path>) -> String {
    let visible: Vec<_> = skills.usable().filter(|skill| !skill.is_hidden_from_model).collect();
    let listed = &visible[..visible.len().min(limits.max_skills)];
    if listed.is_empty() {
        return String::new();
    }
    for detail in [Detail::Full, Detail::Short] {
        let items: Vec<_> = listed.iter().map(|skill| item(skill, detail, home)).collect();
        let list = framed(&items, visible.len() - listed.len());
        if length(&list) <= limits.chars {
            return list;
        }
    }
    // The longest possible last line is assumed, so that the real one fits.
    let Some(mut remaining) = limits.chars.checked_sub(length(&framed(&[], visible.len()))) else {
        return String::new();
    };
    let mut items: Vec<_> = listed.iter().map(|skill| item(skill, Detail::Short, home)).collect();
    items.retain(|item| {
        let after = remaining.checked_sub(length(item));
        remaining = after.unwrap_or(remaining);
        after.is_some()
    });
    if items.is_empty() { String::new() } else { framed(&items, visible.len() - items.len()) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Full,
    Short,
}

fn item(skill: &Skill, detail: Detail, home: Option<&Path>) -> String {
    let mut item = format!("  <skill>\n    <name>{}</name>\n", escaped(&skill.name));
    if detail == Detail::Full {
        let description = fit(&on_one_line(&skill.description), DESCRIPTION_CHARS);
        item.push_str(&format!("    <description>{}</description>\n", escaped(&description)));
    }
    let location = match home.and_then(|home| skill.file.strip_prefix(home).ok()) {
        Some(relative) => format!("~/{}", relative.display()),
        None => skill.file.display().to_string(),
    };
    item + &format!("    <location>{}</location>\n  </skill>\n", escaped(&location))
}

fn framed(items: &[String], omitted: usize) -> String {
    let list = format!("{INTRO}\n\n<available_skills>\n{}</available_skills>", items.concat());
    match omitted {
        0 => list,
        1 => list + "\n1 more skill is not listed here.",
        more => list + &format!("\n{more} more skills are not listed here."),
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Escapes XML special characters, and replaces line breaks by spaces.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' | '\r' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
