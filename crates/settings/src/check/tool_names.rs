//! Warns about names in tool lists that are probably misspelt.
//!
//! A plugin or an MCP server may provide a tool of any name, so a name is reported only if it is similar to a built-in
//! one.

use std::collections::BTreeMap;

use homard_config::{nearest, path::Path};
use homard_policy::tools as policy;

use super::{FoundProblems, key};
use crate::{Config, tools::Policy};

/// Returns names in tool lists that are similar to a tool's, and unknown groups.
pub(crate) fn tool_name_warnings(config: &Config) -> Vec<(Path, String)> {
    let tools = key("tools");
    let mut non_owner_warnings = Vec::new();
    let mut scopes = vec![(tools.clone(), config.tools.to_policy())];
    scopes.extend(by_provider(&tools, &config.tools.by_provider));
    scopes.push((tools.key("subagents").key("tools"), config.tools.subagents.tools.to_policy()));
    for (path, _, agent) in config.all_agents() {
        let path = path.key("tools");
        scopes.push((path.clone(), agent.tools.to_policy()));
        scopes.extend(by_provider(&path, &agent.tools.by_provider));
        non_owner_warnings.extend(list_warnings(&path.key("nonOwnerAllow"), &agent.tools.non_owner_allow));
    }
    scopes.iter().flat_map(|(path, policy)| policy_warnings(path, policy)).chain(non_owner_warnings).collect()
}

fn by_provider(path: &Path, policies: &BTreeMap<String, Policy>) -> impl Iterator<Item = (Path, policy::ToolPolicy)> {
    let path = path.key("byProvider");
    policies.iter().map(move |(name, policy)| (path.key(name), policy.to_policy()))
}

fn policy_warnings(path: &Path, policy: &policy::ToolPolicy) -> FoundProblems {
    let lists = [("allow", &policy.allow), ("alsoAllow", &policy.also_allow), ("deny", &policy.deny)];
    lists.into_iter().flat_map(|(name, list)| list_warnings(&path.key(name), list)).collect()
}

fn list_warnings(path: &Path, list: &[String]) -> FoundProblems {
    let warning = |(at, entry): (usize, &String)| Some((path.index(at), entry_warning(entry.trim())?));
    list.iter().enumerate().filter_map(warning).collect()
}

/// Returns what is wrong with an entry of a list.
fn entry_warning(entry: &str) -> Option<String> {
    // Tools of MCP servers are named `<server>__<tool>`.
    if policy::is_known(entry) || entry.contains('*') || entry.contains("__") {
        return None;
    }
    let help = |similar: &str| format!("; did you mean {similar:?}?");
    if entry.to_lowercase().starts_with("group:") {
        let similar = nearest(entry, policy::known().filter(|name| name.starts_with("group:")));
        return Some(format!("is {entry:?}, which is not a tool group{}", similar.map(help).unwrap_or_default()));
    }
    let similar = nearest(entry, policy::known().filter(|name| is_similar(entry, name)))?;
    Some(format!("is {entry:?}, which is not a tool{}", help(similar)))
}

/// Returns true if every part of the name is similar: `memory_store` is not a misspelt `memory_search`.
fn is_similar(a: &str, b: &str) -> bool {
    let parts = |name: &str| -> Vec<String> { name.split(['_', '-']).map(str::to_owned).collect() };
    let (a, b) = (parts(a), parts(b));
    if a.len() != b.len() {
        return a.concat() == b.concat();
    }
    a.iter().zip(&b).all(|(a, b)| nearest(a, std::iter::once(b.as_str())).is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path as File;

    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let loaded = Config::read(File::new("homard.json"), text);
        assert!(loaded.is_valid(), "{text}");
        loaded.warnings.iter().map(|problem| problem.to_string().split_once(": ").unwrap().1.to_owned()).collect()
    }

    #[test]
    fn misspelt_tools_are_reported_in_every_list() {
        let text = "{
            tools: {allow: ['raed', 'exec'], deny: ['Web_Serach'], byProvider: {google: {deny: ['webfetch']}},
                    subagents: {tools: {allow: ['group:everything']}}},
            agents: {list: [{id: 'a', tools: {alsoAllow: ['sesions_spawn'], nonOwnerAllow: ['raed'], byProvider: {'x/y': {allow: ['group:fss']}}}}],
                     entries: {b: {tools: {deny: ['exce']}}}}}";
        let message = |kind: &str, similar: &str| format!("which is not a {kind}; did you mean {similar:?}?");
        assert_eq!(
            messages(text),
            [
                format!("tools.allow[0] is \"raed\", {}", message("tool", "read")),
                format!("tools.deny[0] is \"Web_Serach\", {}", message("tool", "web_search")),
                format!("tools.byProvider.google.deny[0] is \"webfetch\", {}", message("tool", "web_fetch")),
                "tools.subagents.tools.allow[0] is \"group:everything\", which is not a tool group".to_owned(),
                format!(
                    "agents.list[0].tools.alsoAllow[0] is \"sesions_spawn\", {}",
                    message("tool", "sessions_spawn")
                ),
                format!("agents.list[0].tools.nonOwnerAllow[0] is \"raed\", {}", message("tool", "read")),
                format!(
                    "agents.list[0].tools.byProvider[\"x/y\"].allow[0] is \"group:fss\", {}",
                    message("tool group", "group:fs")
                ),
                format!("agents.entries.b.tools.deny[0] is \"exce\", {}", message("tool", "exec")),
            ]
        );
    }

    #[test]
    fn possible_tools_of_servers_and_plugins_are_not_reported() {
        let names = "'github__raed', 'mem*', 'lobster', 'llm-task', 'memory_store', 'memory_forget', 'x_search', '', \
                     ' EXEC ', 'bash', 'group:plugins', 'image_generate'";
        assert_eq!(messages(&format!("{{tools: {{allow: [{names}], deny: [{names}]}}}}")), [""; 0]);
    }

    #[test]
    fn an_unknown_profile_is_a_problem() {
        let loaded = Config::read(File::new("homard.json"), "{tools: {profile: 'codding'}}");
        let problems: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, ["line 1, column 19: tools.profile must be one of minimal, coding, messaging, full"]);
    }
}
