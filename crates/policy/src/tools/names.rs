//! Tool names: aliases, groups, patterns, and lists of them.

use std::collections::BTreeMap;

/// Aliases and their canonical names.
const ALIASES: &[(&str, &str)] =
    &[("bash", "exec"), ("apply-patch", "apply_patch"), ("automations", "cron"), ("view_image", "image")];

/// All tools that a config may name without a plugin, by group. The tools under the empty name have no group.
const SECTIONS: &[(&str, &[&str])] = &[
    ("group:fs", &["read", "write", "edit", "apply_patch", "ls", "find", "grep"]),
    ("group:runtime", &["exec", "process", "terminal"]),
    ("group:web", &["web_search", "web_fetch"]),
    ("group:memory", &["memory_search", "memory_get"]),
    (
        "group:sessions",
        &[
            "sessions_list",
            "sessions_history",
            "sessions_send",
            "sessions_spawn",
            "session_status",
            "sessions",
            "sessions_search",
            "sessions_yield",
            "subagents",
            "agents_wait",
            "transcripts",
        ],
    ),
    ("group:ui", &["browser", "canvas", "computer", "dashboard", "mobile_ui", "portal", "theme"]),
    ("group:automation", &["cron", "gateway"]),
    ("group:messaging", &["message", "conversations_list", "conversations_send", "conversations_turn"]),
    ("group:nodes", &["nodes", "dir_fetch", "dir_list", "file_fetch", "file_write", "node_inference"]),
    ("group:agents", &["agents_list"]),
    ("group:media", &["image", "pdf", "talk_voice", "tts"]),
    (
        "",
        &[
            "ask_user",
            "create_goal",
            "get_goal",
            "intent",
            "openclaw",
            "plugins",
            "progress_card",
            "secrets",
            "skill_workshop",
            "update_goal",
            "whatsapp_login",
        ],
    ),
];

/// Groups with all built-in tools except files and commands.
const ALL: [&str; 2] = ["group:openclaw", "group:moltbot"];

/// Group with all tools of plugins.
const PLUGINS: &str = "group:plugins";

/// Returns the canonical name.
pub(super) fn canonical(name: &str) -> String {
    let name = clean(name);
    match ALIASES.iter().find(|(alias, _)| *alias == name) {
        Some((_, canonical_name)) => (*canonical_name).to_owned(),
        None => name,
    }
}

fn clean(name: &str) -> String {
    name.trim().to_lowercase()
}

/// Returns the tools of a built-in group.
fn group(name: &str) -> Option<Vec<&'static str>> {
    match name {
        // All except files and commands, which such a broad group should not allow implicitly.
        all if ALL.contains(&all) => {
            let others = SECTIONS.iter().filter(|(section, _)| !["group:fs", "group:runtime"].contains(section));
            Some(others.flat_map(|(_, tools)| *tools).copied().collect())
        }
        // The section with the empty name contains the tools without a group and is not a group itself.
        "" => None,
        name => SECTIONS.iter().find(|(section, _)| *section == name).map(|(_, tools)| tools.to_vec()),
    }
}

/// Iterates over all names that lists may contain without plugins and MCP servers: tools, aliases and groups.
pub fn known() -> impl Iterator<Item = &'static str> {
    let sections = SECTIONS.iter().flat_map(|(section, tools)| std::iter::once(section).chain(*tools));
    let groups = ALL.iter().chain([&PLUGINS]);
    let others = ALIASES.iter().map(|(alias, _)| alias);
    sections.chain(groups).chain(others).copied().filter(|name| !name.is_empty())
}

/// True if an entry of a list is one of the names of [`known`].
pub fn is_known(entry: &str) -> bool {
    let name = clean(entry);
    known().any(|known| known == name)
}

fn is_native(name: &str) -> bool {
    SECTIONS.iter().any(|(_, tools)| tools.contains(&name))
}

/// True if a pattern with `*` matches the whole name.
fn glob_matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// A tool with its own and its canonical name.
#[derive(Debug)]
pub(super) struct ToolName {
    own: String,
    pub(super) canonical: String,
}

impl ToolName {
    pub(super) fn new(name: &str) -> Self {
        Self { own: clean(name), canonical: canonical(name) }
    }
}

/// Whose tools an entry of a list names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryOwner {
    /// Built-in tools, possibly with others.
    Native,
    /// Only tools of plugins.
    Plugin,
    /// No existing tool.
    Unknown,
}

/// An entry of a list and its meaning.
#[derive(Debug)]
pub(super) struct ListEntry {
    /// The entry as written in the config.
    pub(super) written: String,
    pub(super) owner: EntryOwner,
    matcher: EntryMatch,
}

/// The tools that an entry matches. Plugins choose their tool names freely, so only entries of a config are patterns.
#[derive(Debug)]
struct EntryMatch {
    tools: Vec<String>,
    pattern: Option<String>,
}

impl EntryMatch {
    fn names(&self, tool: &ToolName) -> bool {
        self.covers(&tool.canonical) || self.covers(&tool.own)
    }

    fn covers(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool == name)
            || self.pattern.as_deref().is_some_and(|pattern| glob_matches(pattern, name))
    }
}

/// A list of tools in a config.
#[derive(Debug)]
pub(super) struct ToolList(pub(super) Vec<ListEntry>);

impl ToolList {
    /// Returns the first entry that matches a tool.
    pub(super) fn find(&self, tool: &ToolName) -> Option<&ListEntry> {
        self.0.iter().find(|entry| entry.matcher.names(tool))
    }

    /// True if an allowlist admits a tool: permission for `exec` includes `apply_patch`.
    pub(super) fn admits(&self, tool: &ToolName) -> bool {
        self.find(tool).is_some() || tool.canonical == "apply_patch" && self.find(&ToolName::new("exec")).is_some()
    }
}

/// Names that lists may refer to.
#[derive(Debug)]
pub(super) struct ToolNames {
    /// Available tools that do not belong to plugins.
    offered: Vec<ToolName>,
    plugins: BTreeMap<String, Vec<String>>,
}

impl ToolNames {
    /// Builds the names. A plugin cannot use a built-in name, neither for itself nor for a tool.
    pub(super) fn new(tools: &[&str], plugins: &BTreeMap<String, Vec<String>>) -> Self {
        let mut plugin_tools: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, tools) in plugins {
            let tools = tools.iter().map(|tool| canonical(tool)).filter(|tool| !is_native(tool));
            plugin_tools.entry(canonical(id)).or_default().extend(tools);
        }
        let is_plugin_tool = |tool: &str| plugin_tools.values().flatten().any(|name| name == tool);
        let offered =
            tools.iter().map(|tool| ToolName::new(tool)).filter(|tool| !is_plugin_tool(&tool.canonical)).collect();
        Self { offered, plugins: plugin_tools }
    }

    /// Parses a list.
    pub(super) fn list<S: AsRef<str>>(&self, written: impl IntoIterator<Item = S>) -> ToolList {
        ToolList(written.into_iter().map(|written| self.entry(written.as_ref())).collect())
    }

    fn entry(&self, written: &str) -> ListEntry {
        let name = canonical(written);
        let matcher = if let Some(tools) = group(&name) {
            EntryMatch { tools: tools.into_iter().map(str::to_owned).collect(), pattern: None }
        } else if name == PLUGINS {
            EntryMatch { tools: self.plugins.values().flatten().cloned().collect(), pattern: None }
        } else {
            let plugin = self.plugins.get(&name).filter(|_| !is_native(&name));
            EntryMatch { tools: plugin.cloned().unwrap_or_default(), pattern: Some(name) }
        };
        ListEntry { written: written.trim().to_owned(), owner: self.owner(&matcher), matcher }
    }

    fn owner(&self, matcher: &EntryMatch) -> EntryOwner {
        let mut natives = SECTIONS.iter().flat_map(|(_, tools)| *tools);
        if natives.any(|tool| matcher.covers(tool)) || self.offered.iter().any(|tool| matcher.names(tool)) {
            EntryOwner::Native
        } else if self.plugins.values().flatten().any(|tool| matcher.covers(tool)) {
            EntryOwner::Plugin
        } else {
            EntryOwner::Unknown
        }
    }
}
