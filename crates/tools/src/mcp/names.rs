//! What tools of servers are called: `<server>__<tool>`, in letters that every provider of models takes.

use std::collections::BTreeSet;

/// What stands between the name of a server and that of its tool.
const BETWEEN: &str = "__";

/// How long the part for the server may be.
const MOST_PREFIX: usize = 30;

/// How long a name may be: what providers take.
const MOST: usize = 64;

/// What a server is called in the names of its tools; nobody else is.
pub(super) fn prefix(server: &str, taken: &mut BTreeSet<String>) -> String {
    alone(&fitting(server, "mcp"), MOST_PREFIX, taken)
}

/// What a tool is called; no other is.
pub(super) fn tool(prefix: &str, tool: &str, taken: &mut BTreeSet<String>) -> String {
    alone(&format!("{prefix}{BETWEEN}{}", fitting(tool, "tool")), MOST, taken)
}

/// In plain letters, and with a letter first.
fn fitting(name: &str, otherwise: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' };
    let name: String = name.trim().chars().map(plain).collect();
    match name.chars().next() {
        None => otherwise.to_owned(),
        Some(first) if first.is_ascii_alphabetic() => name,
        Some(_) => format!("{otherwise}-{name}"),
    }
}

/// Cut to its length, and numbered if there is one already. Names that differ only in case are one to some providers.
fn alone(name: &str, most: usize, taken: &mut BTreeSet<String>) -> String {
    let cut = |end: &str| format!("{}{end}", &name[..name.len().min(most - end.len())]);
    let mut found = cut("");
    for number in 2.. {
        if taken.insert(found.to_lowercase()) {
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
    fn names_are_plain_and_of_one_tool_each() {
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
    fn long_names_are_cut_and_stay_different() {
        let mut taken = BTreeSet::new();
        let long = "x".repeat(100);
        let server = prefix(&long, &mut BTreeSet::new());
        let names = [tool(&server, &long, &mut taken), tool(&server, &long, &mut taken)];
        let x = |times| "x".repeat(times);
        assert_eq!(names, [format!("{}__{}", x(30), x(32)), format!("{}__{}-2", x(30), x(30))]);
    }
}
