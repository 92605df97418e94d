//! Prompt section with the skills: the complete list, or names only.

use super::{StableInput, non_empty, sanitize, tool};
use crate::input::Wording;

/// Maximum characters of the list in a lean prompt.
const LEAN_SKILLS_CHARS: usize = 600;

/// A skill in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownSkill {
    /// Name.
    pub(crate) name: String,
    /// Its text in the prompt.
    pub(crate) text: String,
}

pub(super) fn all(stable: &StableInput<'_>) -> Option<String> {
    // The list is kept as it is, with its blank lines and indentation.
    let block = stable.skills.trim_matches('\n').trim_end();
    if block.trim().is_empty() {
        return None;
    }
    let read = tool(stable.tools, "read").map_or_else(|| "read".to_owned(), sanitize);
    Some(format!(
        "## Skills (mandatory)\n\
         Look through the descriptions below before you answer.\n\
         - If one skill fits the task, open the file at its <location> with {read} and do as it says.\n\
         - If several fit, begin with the closest; open one at a time.\n\
         - If none fits, open none.\n\
         {block}"
    ))
}

pub(super) fn names(stable: &StableInput<'_>) -> Option<String> {
    let shown = shown_skills(stable.skills, Wording::Lean);
    let left_out = entries(stable.skills).count() - shown.len();
    if shown.is_empty() && left_out == 0 {
        return None;
    }
    let read = tool(stable.tools, "read").map_or_else(|| "read".to_owned(), sanitize);
    let head = format!("## Skills\nIf one of these fits the task, open its file with {read} first and do as it says.");
    let more = (left_out > 0).then(|| format!("- and {left_out} more"));
    let lines = [head].into_iter().chain(shown.into_iter().map(|skill| skill.text)).chain(more);
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Returns the text of each skill in the prompt.
pub(crate) fn shown_skills(block: &str, wording: Wording) -> Vec<ShownSkill> {
    match wording {
        Wording::Rich => {
            entries(block).map(|(name, text)| ShownSkill { name, text: format!("<skill>{text}</skill>") }).collect()
        }
        Wording::Lean => {
            let mut remaining = LEAN_SKILLS_CHARS;
            let lines = entries(block).map(|(name, text)| {
                let location = tag(text, "location").map_or_else(String::new, |location| format!(": {location}"));
                ShownSkill { text: format!("- {name}{location}"), name }
            });
            let fits = |skill: &ShownSkill| {
                let after = remaining.checked_sub(skill.text.chars().count());
                remaining = after.unwrap_or(remaining);
                after.is_some()
            };
            lines.take_while(fits).collect()
        }
    }
}

/// Iterates over the skills of a list, each with its name and text.
fn entries(block: &str) -> impl Iterator<Item = (String, &str)> {
    block.split("<skill>").skip(1).filter_map(|rest| {
        let (text, _) = rest.split_once("</skill>")?;
        Some((tag(text, "name")?, text))
    })
}

/// Returns the value of an XML tag, unescaped and on one line.
fn tag(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&amp;", "&")];
    let value = escapes.iter().fold(value.to_owned(), |value, (escape, plain)| value.replace(escape, plain));
    non_empty(Some(&value)).map(sanitize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str) -> String {
        format!(
            "  <skill>\n    <name>{name}</name>\n    <description>About {name}</description>\n    \
             <location>~/s/{name}/SKILL.md</location>\n  </skill>\n"
        )
    }

    #[test]
    fn a_lean_skill_list_has_names_and_locations() {
        let block = format!("Intro.\n\n<available_skills>\n{}{}</available_skills>", skill("a&amp;b"), skill("c"));
        let shown = shown_skills(&block, Wording::Lean);
        let expected = [("a&b", "- a&b: ~/s/a&b/SKILL.md"), ("c", "- c: ~/s/c/SKILL.md")];
        assert_eq!(shown, expected.map(|(name, text)| ShownSkill { name: name.to_owned(), text: text.to_owned() }));
    }

    #[test]
    fn a_lean_skill_list_is_limited() {
        let many: String = (0..200).map(|number| skill(&format!("skill-{number:03}"))).collect();
        let shown = shown_skills(&many, Wording::Lean);
        let chars: usize = shown.iter().map(|skill| skill.text.chars().count()).sum();
        let one = "- skill-000: ~/s/skill-000/SKILL.md".len();
        assert_eq!((shown.len(), chars), (LEAN_SKILLS_CHARS / one, LEAN_SKILLS_CHARS / one * one));
    }

    #[test]
    fn text_without_a_skill_list_has_no_skills() {
        for block in ["", "words", "<skill>", "<skill></skill>", "<skill><name> </name></skill>"] {
            assert_eq!(shown_skills(block, Wording::Rich), [], "{block}");
        }
    }
}
