//! Names of MCP tools: `<server>__<tool>`, in characters that all model providers accept.

use std::collections::BTreeSet;

/// Separator between server and tool.
const SEPARATOR: &str = "__";

/// Maximum length of the server part.
const MAX_PREFIX: usize = 30;

/// Maximum length of a name that providers accept.
const MAX_NAME: usize = 64;

/// Returns a unique prefix for a server's tools.
pub(super) fn prefix(server: &str, used: &mut BTreeSet<String>) -> String {
    unique(&sanitize(server, "mcp"), MAX_PREFIX, used)
}

/// Returns a unique name for a tool.
pub(super) fn tool(prefix: &str, tool: &str, used: &mut BTreeSet<String>) -> String {
    unique(&format!("{prefix}{SEPARATOR}{}", sanitize(tool, "tool")), MAX_NAME, used)
}

/// Replaces unsupported characters and ensures that the name begins with a letter.
fn sanitize(name: &str, otherwise: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' };
    let name: String = name.trim().chars().map(plain).collect();
    match name.chars().next() {
        None => otherwise.to_owned(),
        Some(first) if first.is_ascii_alphabetic() => name,
        Some(_) => format!("{otherwise}-{name}"),
    }
}

/// Truncates a name, and numbers it if it is taken. Some providers ignore case, so names must differ in more than that.
fn unique(name: &str, max: usize, used: &mut BTreeSet<String>) -> String {
    let cut = |end: &str| format!("{}{end}", &name[..name.len().min(max - end.len())]);
    let mut found = cut("");
    for number in 2.. {
        if used.insert(found.to_lowercase()) {
            break;
        }
        found = cut(&format!("-{number}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_unique() {
        let mut servers = BTreeSet::new();
        let prefixes: Vec<String> =
            ["git hub", "Git-Hub", "", "9to5", "日本"].iter().map(|name| prefix(name, &mut servers)).collect();
        assert_eq!(prefixes, ["git-hub", "Git-Hub-2", "mcp", "mcp-9to5", "mcp---"]);
        let mut tools = BTreeSet::new();
        let names: Vec<String> =
            ["list.all", "list-all", "_x", ""].iter().map(|name| tool("a", name, &mut tools)).collect();
        assert_eq!(names, ["a__list-all", "a__list-all-2", "a__tool-_x", "a__tool"]);
    }

    #[test]
    fn long_names_are_truncated_and_stay_unique() {
        let mut used = BTreeSet::new();
        let long = "x".repeat(100);
        let server = prefix(&long, &mut BTreeSet::new());
        let names = [tool(&server, &long, &mut used), tool(&server, &long, &mut used)];
        let x = |times| "x".repeat(times);
        assert_eq!(names, [format!("{}__{}", x(30), x(32)), format!("{}__{}-2", x(30), x(30))]);
    }
}
