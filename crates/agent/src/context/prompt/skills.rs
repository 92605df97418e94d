//! Prompt section with the skills: the complete list, or names only.

use super::{super::scene::Wording, Stable, line, tool, words};

/// Maximum characters of the list in a lean prompt.
const LEAN: usize = 600;

/// A skill in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::context) struct Told {
    /// Name.
    pub(in crate::context) name: String,
    /// Its text in the prompt.
    pub(in crate::context) text: String,
}

pub(super) fn all(stable: &Stable<'_>) -> Option<String> {
    // The list is kept as it is, with its blank lines and indentation.
    let block = stable.skills.trim_matches('\n').trim_end();
    if block.trim().is_empty() {
        return None;
    }
    let read = tool(stable.tools, "read").map_or_else(|| "read".to_owned(), line);
    Some(format!(
        "## Skills (mandatory)\n\
         Look through the descriptions below before you answer.\n\
         - If one skill fits the task, open the file at its <location> with {read} and do as it says.\n\
         - If several fit, begin with the closest; open one at a time.\n\
         - If none fits, open none.\n\
         {block}"
    ))
}

pub(super) fn names(stable: &Stable<'_>) -> Option<String> {
    let told = told(stable.skills, Wording::Lean);
    let left_out = entries(stable.skills).count() - told.len();
    if told.is_empty() && left_out == 0 {
        return None;
    }
    let read = tool(stable.tools, "read").map_or_else(|| "read".to_owned(), line);
    let head = format!("## Skills\nIf one of these fits the task, open its file with {read} first and do as it says.");
    let more = (left_out > 0).then(|| format!("- and {left_out} more"));
    let lines = [head].into_iter().chain(told.into_iter().map(|skill| skill.text)).chain(more);
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Returns the text of each skill in the prompt.
pub(in crate::context) fn told(block: &str, wording: Wording) -> Vec<Told> {
    match wording {
        Wording::Rich => {
            entries(block).map(|(name, text)| Told { name, text: format!("<skill>{text}</skill>") }).collect()
        }
        Wording::Lean => {
            let mut room = LEAN;
            let lines = entries(block).map(|(name, text)| {
                let place = tag(text, "location").map_or_else(String::new, |place| format!(": {place}"));
                Told { text: format!("- {name}{place}"), name }
            });
            let fits = |skill: &Told| {
                let left = room.checked_sub(skill.text.chars().count());
                room = left.unwrap_or(room);
                left.is_some()
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
    words(Some(&value)).map(line)
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
    fn a_lean_list_has_names_and_places() {
        let block = format!("Intro.\n\n<available_skills>\n{}{}</available_skills>", skill("a&amp;b"), skill("c"));
        let told = told(&block, Wording::Lean);
        let expected = [("a&b", "- a&b: ~/s/a&b/SKILL.md"), ("c", "- c: ~/s/c/SKILL.md")];
        assert_eq!(told, expected.map(|(name, text)| Told { name: name.to_owned(), text: text.to_owned() }));
    }

    #[test]
    fn a_lean_list_is_short_however_many_there_are() {
        let many: String = (0..200).map(|number| skill(&format!("skill-{number:03}"))).collect();
        let told = told(&many, Wording::Lean);
        let chars: usize = told.iter().map(|skill| skill.text.chars().count()).sum();
        let one = "- skill-000: ~/s/skill-000/SKILL.md".len();
        assert_eq!((told.len(), chars), (LEAN / one, LEAN / one * one));
    }

    #[test]
    fn a_list_that_is_none_has_no_skills() {
        for block in ["", "words", "<skill>", "<skill></skill>", "<skill><name> </name></skill>"] {
            assert_eq!(told(block, Wording::Rich), [], "{block}");
        }
    }
}
