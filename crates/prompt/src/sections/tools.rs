//! Prompt sections about tools, and those that depend on certain tools.

use homard_model::ToolSpec;

use super::{StableInput, files, sanitize, tool};

/// Tools that are listed first, in this order; others follow by name.
const LIST_ORDER: [&str; 23] = [
    "read",
    "write",
    "edit",
    "apply_patch",
    "grep",
    "find",
    "ls",
    "exec",
    "process",
    "web_search",
    "web_fetch",
    "browser",
    "canvas",
    "nodes",
    "cron",
    "message",
    "gateway",
    "agents_list",
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "session_status",
    "image",
];

/// Maximum characters of a tool's description in the list.
const MAX_SUMMARY_CHARS: usize = 160;

const NO_TOOLS: &str = "\
## Tooling
You have no tools here: answer from what you know and what you are told.";

pub(super) fn tooling(stable: &StableInput<'_>) -> Option<String> {
    let tools = in_order(stable.tools);
    if tools.is_empty() {
        return Some(NO_TOOLS.to_owned());
    }
    let mut lines = vec![
        "## Tooling".to_owned(),
        "These are your tools, and there are no others. Call each by its name as it is written here.".to_owned(),
    ];
    lines.extend(tools.iter().map(|tool| match summary(&tool.description) {
        summary if summary.is_empty() => format!("- {}", sanitize(&tool.name)),
        summary => format!("- {}: {summary}", sanitize(&tool.name)),
    }));
    if files::has(stable, "TOOLS.md") {
        lines.push("TOOLS.md is about how to use tools here; it does not decide which ones you have.".to_owned());
    }
    if let Some(spawn) = tool(stable.tools, "sessions_spawn") {
        lines.push(format!(
            "Give long or separate work to a sub-agent with {}; it reports when it is done, so do not keep asking.",
            sanitize(spawn)
        ));
    }
    Some(lines.join("\n"))
}

/// Renders the names only: the schemas in the request describe the tools.
pub(super) fn names(stable: &StableInput<'_>) -> Option<String> {
    let names: Vec<_> = in_order(stable.tools).iter().map(|tool| sanitize(&tool.name)).collect();
    Some(match names.as_slice() {
        [] => NO_TOOLS.to_owned(),
        names => format!("## Tooling\nYour tools, and there are no others: {}.", names.join(", ")),
    })
}

pub(super) fn memory(stable: &StableInput<'_>) -> Option<String> {
    let how = match (tool(stable.tools, "memory_search"), tool(stable.tools, "memory_get")) {
        (Some(search), Some(get)) => {
            format!("search it with {}, then read the lines that you need with {}", sanitize(search), sanitize(get))
        }
        (Some(one), None) | (None, Some(one)) => format!("look there with {}", sanitize(one)),
        (None, None) => return None,
    };
    Some(format!(
        "## Memory Recall\n\
         MEMORY.md and memory/*.md hold what was learned before. When a question is about earlier work, decisions, dates, \
         people, wishes or open tasks, {how}, and answer after that. If nothing was found, say that you looked."
    ))
}

pub(super) fn self_update(stable: &StableInput<'_>) -> Option<String> {
    let gateway = sanitize(tool(stable.tools, "gateway")?);
    Some(format!(
        "## Homard Self-Update\n\
         With {gateway} you can read the configuration (config.get, config.schema), change it (config.patch, config.apply) \
         and update Homard (update.run). Change or update only when the person asks for just that. Homard may restart \
         afterwards and then resumes this session."
    ))
}

/// Sorts tools for the list; of names that differ only in case the first is kept.
fn in_order(tools: &[ToolSpec]) -> Vec<&ToolSpec> {
    let mut keyed: Vec<_> = tools.iter().map(|tool| (tool.name.to_lowercase(), tool)).collect();
    let rank = |name: &str| LIST_ORDER.iter().position(|known| *known == name).unwrap_or(LIST_ORDER.len());
    keyed.sort_by(|(a, _), (b, _)| (rank(a), a).cmp(&(rank(b), b)));
    keyed.dedup_by(|(later, _), (kept, _)| later == kept);
    keyed.into_iter().map(|(_, tool)| tool).collect()
}

/// Returns the first sentence of a description, on one line.
fn summary(description: &str) -> String {
    let text = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.match_indices(['.', '!', '?']).map(|(offset, _)| offset + 1).find(|end| {
        // The full stop in "e.g. this" does not end a sentence: the next one begins with a capital.
        text[*end..].strip_prefix(' ').is_some_and(|rest| rest.starts_with(char::is_uppercase))
    });
    let sentence = sanitize(end.map_or(text.as_str(), |end| &text[..end]));
    match sentence.char_indices().nth(MAX_SUMMARY_CHARS) {
        Some((end, _)) => format!("{}…", sentence[..end].trim_end()),
        None => sentence,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_are_sorted_and_deduplicated() {
        let names = ["zeta", "Exec", "alpha", "exec", "image", "read", "Alpha"];
        let tool = |name: &str| ToolSpec { name: name.to_owned(), description: String::new(), parameters: json!({}) };
        let tools = names.map(tool);
        let names_in_order: Vec<_> = in_order(&tools).iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names_in_order, ["read", "Exec", "image", "alpha", "zeta"]);
    }

    #[test]
    fn a_summary_is_the_first_sentence() {
        for (description, expected) in [
            ("Read a file. At most 2000 lines.", "Read a file."),
            ("Read a file", "Read a file"),
            ("List\n  names, e.g. of files! More", "List names, e.g. of files!"),
            ("Version 1.5 of it. Ähnlich.", "Version 1.5 of it."),
            ("", ""),
        ] {
            assert_eq!(summary(description), expected);
        }
        assert_eq!(summary(&"é".repeat(MAX_SUMMARY_CHARS)), "é".repeat(MAX_SUMMARY_CHARS));
        assert_eq!(summary(&"é".repeat(MAX_SUMMARY_CHARS + 1)), format!("{}…", "é".repeat(MAX_SUMMARY_CHARS)));
    }
}
