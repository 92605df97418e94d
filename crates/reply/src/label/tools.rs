//! Table of tools with an emoji, a display name, and the identifying arguments.

/// Display data of a tool.
pub(super) struct ToolLabel {
    pub(super) name: &'static str,
    pub(super) emoji: &'static str,
    pub(super) label: &'static str,
    /// Arguments that identify a call: the first one present is used.
    pub(super) key_arguments: &'static [&'static str],
}

/// A tool that is not in the table: of a plugin or another server.
pub(super) const UNKNOWN: ToolLabel = ToolLabel {
    name: "",
    emoji: "🧩",
    label: "",
    key_arguments: &["path", "file_path", "filePath", "command", "query", "url", "pattern", "name", "id"],
};

const fn tool(
    name: &'static str,
    emoji: &'static str,
    label: &'static str,
    key_arguments: &'static [&'static str],
) -> ToolLabel {
    ToolLabel { name, emoji, label, key_arguments }
}

const PATH: &[&str] = &["path", "file_path", "filePath"];
const SESSION: &[&str] = &["label", "sessionKey", "sessionId"];
const CONVERSATION: &[&str] = &["conversationRef"];

/// All known tools, in alphabetical order.
pub(super) const TOOLS: &[ToolLabel] = &[
    tool("agents_list", "👥", "Agents", &[]),
    tool("agents_wait", "⏳", "Wait for agents", &["ids"]),
    tool("apply_patch", "🩹", "Patch", &[]),
    tool("ask_user", "❓", "Question", &[]),
    tool("automations", "⏰", "Automations", &["jobId", "id"]),
    tool("browser", "🌍", "Browser", &["targetUrl", "url", "ref", "selector"]),
    tool("canvas", "🎨", "Canvas", &["url", "target", "node"]),
    tool("computer", "🖥️", "Computer", &["app"]),
    tool("conversations_list", "🗂️", "Conversations", &["query", "channel"]),
    tool("conversations_send", "📨", "Send to conversation", CONVERSATION),
    tool("conversations_turn", "🗣️", "Ask conversation", CONVERSATION),
    tool("create_goal", "🎯", "New goal", &["objective"]),
    tool("cron", "⏰", "Cron", &["jobId", "id"]),
    tool("dashboard", "📊", "Dashboard", &["title", "name"]),
    tool("dir_fetch", "📥", "Fetch directory", PATH),
    tool("dir_list", "📂", "List directory", PATH),
    tool("edit", "✏️", "Edit", PATH),
    tool("exec", "🛠️", "Exec", &["command", "cmd"]),
    tool("file_fetch", "📥", "Fetch file", PATH),
    tool("file_write", "📤", "Put file", PATH),
    tool("find", "🔎", "Find", &["pattern", "path"]),
    tool("gateway", "🛰️", "Gateway", &["path"]),
    tool("get_goal", "🎯", "Goal", &[]),
    tool("grep", "🔎", "Grep", &["pattern"]),
    tool("image", "🖼️", "Image", &["image", "path", "url"]),
    tool("intent", "🔔", "Intent", &["description", "id"]),
    tool("ls", "📂", "List", PATH),
    tool("memory_get", "📔", "Memory", PATH),
    tool("memory_search", "🧠", "Search memory", &["query"]),
    tool("message", "✉️", "Message", &["target", "to", "targets", "channel"]),
    tool("mobile_ui", "📱", "Phone", &["mobileAction", "node"]),
    tool("node_inference", "🤖", "Node model", &["model", "node"]),
    tool("nodes", "📡", "Nodes", &["invokeCommand", "node"]),
    tool("openclaw", "🦞", "OpenClaw", &[]),
    tool("pdf", "📄", "PDF", &["pdf", "pdfs"]),
    tool("plugins", "🔌", "Plugins", &["packageName", "pluginId", "query"]),
    tool("portal", "🚪", "Portal", &["title", "path", "port"]),
    tool("process", "⚙️", "Process", &["sessionId"]),
    tool("progress_card", "📋", "Progress", &[]),
    tool("read", "📖", "Read", PATH),
    tool("secrets", "🔑", "Secrets", &["name"]),
    tool("session_status", "📈", "Session status", &["sessionKey"]),
    tool("sessions", "🗃️", "Sessions", SESSION),
    tool("sessions_history", "📜", "Session history", SESSION),
    tool("sessions_list", "🗃️", "List sessions", &["search", "label"]),
    tool("sessions_search", "🔎", "Search sessions", &["query"]),
    tool("sessions_send", "📨", "Send to session", SESSION),
    tool("sessions_spawn", "🐣", "Start sub-agent", &["label", "taskName", "agentId"]),
    tool("sessions_yield", "⏸️", "Wait", &[]),
    tool("skill_workshop", "🎓", "Skills", &["skill_name", "name", "query"]),
    tool("subagents", "🐣", "Sub-agents", &["taskId", "taskIds"]),
    tool("talk_voice", "🎙️", "Voice", &["voice"]),
    tool("terminal", "⌨️", "Terminal", &["sessionId"]),
    tool("theme", "🌗", "Theme", &["id", "mode"]),
    tool("transcripts", "📝", "Transcripts", &["title", "selector"]),
    tool("tts", "🔊", "Speech", &[]),
    tool("update_goal", "🎯", "Update goal", &["status"]),
    tool("view_image", "🖼️", "Look at picture", &["path", "paths"]),
    tool("web_fetch", "🌐", "Fetch page", &["url"]),
    tool("web_search", "🔍", "Search the web", &["query"]),
    tool("write", "📝", "Write", PATH),
];
