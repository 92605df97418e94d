//! `tools`: which tools agents have, and their settings.

use std::collections::BTreeMap;

use homard_policy::tools::{self as policy, ToolProfile};
use homard_tools::session_tools::Visibility;
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::Text;

/// Tool policies and settings of tools. A tool that is denied at any level is not available.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Tools {
    /// Base set of tools: minimal, coding, messaging, full. Default: full.
    pub profile: Option<Word<ToolProfile>>,
    /// The only tools that may be used: names, `group:` names, or patterns with `*`.
    pub allow: Option<Vec<String>>,
    /// Tools that may be used in addition to those of the profile.
    pub also_allow: Option<Vec<String>>,
    /// Tools that may not be used.
    pub deny: Option<Vec<String>>,
    /// Tool policy per provider or model, by `provider` or `provider/model`.
    #[serde(deserialize_with = "super::named_objects")]
    pub by_provider: BTreeMap<String, Policy>,
    /// Settings of the `exec` tool.
    #[serde(deserialize_with = "super::object")]
    pub exec: Exec,
    /// Tool policy of sandboxed sessions.
    #[serde(deserialize_with = "super::object")]
    pub sandbox: SandboxTools,
    /// Tool policy of sub-agents.
    #[serde(deserialize_with = "super::object")]
    pub subagents: Subagents,
    /// Access of runs to other sessions.
    #[serde(deserialize_with = "super::object")]
    pub sessions: Sessions,
    /// Messages between agents.
    #[serde(deserialize_with = "super::object")]
    pub agent_to_agent: AgentToAgent,
    /// Messages to chats.
    #[serde(deserialize_with = "super::object")]
    pub message: Message,
    /// Web tools.
    #[serde(deserialize_with = "super::object")]
    pub web: Web,
}

/// Messages to chats, by the `message` tool and by jobs that agents create.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Message {
    /// Chats that agents may write to, in addition to the current one and those that the config or a pairing names:
    /// `telegram:7`, `telegram/work:7`, `telegram:@channel`, `telegram:*`, `*`. Default: none.
    pub allow_to: Vec<String>,
    /// Messages from one chat to others.
    #[serde(deserialize_with = "super::object")]
    pub cross_context: CrossContext,
    /// Calls that send a message to several chats.
    #[serde(deserialize_with = "super::object")]
    pub broadcast: Broadcast,
}

/// Messages from one chat to others.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CrossContext {
    /// Allow messages to other chats on the same platform. Default: true.
    pub allow_within_provider: Option<bool>,
    /// Allow messages to other platforms. Default: false.
    pub allow_across_providers: Option<bool>,
}

/// Calls that send a message to several chats.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Broadcast {
    /// Allow such calls. Default: true.
    pub enabled: Option<bool>,
}

/// Messages of an agent to chats.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentMessage {
    /// Chats that this agent may write to, in addition to those that all agents may. Default: none.
    pub allow_to: Vec<String>,
}

/// Access of runs to other sessions.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Sessions {
    /// Sessions that a run can see: self, tree for itself and those that it started, agent for all of its agent, all. Default: tree.
    pub visibility: Option<Word<Visibility>>,
}

/// Messages between agents.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentToAgent {
    /// Allow messages between agents. Default: false.
    pub enabled: bool,
    /// Agents that take part: ids, or patterns with `*`. Default: all.
    pub allow: Vec<String>,
}

/// Tool policy of an agent, in addition to `tools`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentTools {
    /// Base set of tools, instead of `tools.profile`.
    pub profile: Option<Word<ToolProfile>>,
    /// The only tools that may be used.
    pub allow: Option<Vec<String>>,
    /// Tools that may be used in addition to those of the profile.
    pub also_allow: Option<Vec<String>>,
    /// Tools that may not be used.
    pub deny: Option<Vec<String>>,
    /// Tool policy per provider or model, by `provider` or `provider/model`.
    #[serde(deserialize_with = "super::named_objects")]
    pub by_provider: BTreeMap<String, Policy>,
    /// Tools that senders other than the owner may use, in addition to their default ones. Give such an agent a workspace of its own: with `read` they can read all of it. Default: none.
    pub non_owner_allow: Vec<String>,
    /// Tool policy of its sandboxed sessions.
    #[serde(deserialize_with = "super::object")]
    pub sandbox: SandboxTools,
    /// Its messages to chats.
    #[serde(deserialize_with = "super::object")]
    pub message: AgentMessage,
    /// Settings of its `exec` tool.
    #[serde(deserialize_with = "super::object")]
    pub exec: AgentExec,
}

/// Tool policy of sandboxed sessions.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SandboxTools {
    /// Tools that they may use. A list that is not set has a default: commands, files, images and sessions, but no memory and no web.
    #[serde(deserialize_with = "super::object")]
    pub tools: Policy,
}

/// Tool policy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Policy {
    /// Base set of tools: minimal, coding, messaging, full.
    pub profile: Option<Word<ToolProfile>>,
    /// The only tools that may be used.
    pub allow: Option<Vec<String>>,
    /// Tools that may be used in addition to those of the profile.
    pub also_allow: Option<Vec<String>>,
    /// Tools that may not be used.
    pub deny: Option<Vec<String>>,
}

/// Settings of the `exec` tool.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Exec {
    /// Commands that may run: deny for none, allowlist for approved ones, full for all. Default: full, within the sandbox.
    pub security: Option<Word<Security>>,
    /// When approval is requested: off, on-miss for commands that are not on the allowlist, always. Default: off, and on-miss with an allowlist.
    pub ask: Option<Word<Ask>>,
    /// Programs that need no approval as long as they only process standard input; possible values are jq, grep, cut,
    /// sort, uniq, head, tail, tr, wc. Default: all of these.
    pub safe_bins: Option<Vec<String>>,
    /// Full names of environment variables that calls may set for a command, in addition to the default ones such as
    /// NODE_ENV, PORT and RUST_LOG.
    pub allow_env: Vec<String>,
    /// Sandbox of commands.
    #[serde(deserialize_with = "super::object")]
    pub sandbox: Sandbox,
    /// Resource limits of a command in the sandbox. 0 disables a limit.
    #[serde(deserialize_with = "super::object")]
    pub limits: Limits,
    /// Time in milliseconds that a call waits before the command continues in the background. Default: 10000.
    pub background_ms: Option<u64>,
    /// Timeout of a command in seconds: at most 86400. Default: 1800.
    #[serde(alias = "timeoutSeconds")]
    pub timeout_sec: Option<u64>,
    /// Time in milliseconds that a finished command is kept for `process`. Default: 1800000.
    pub cleanup_ms: Option<u64>,
    /// Start a run in the session when a background command finishes. Default: true.
    pub notify_on_exit: Option<bool>,
}

/// Settings of an agent's `exec` tool.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentExec {
    /// Commands that may run; has an effect only if stricter than `tools.exec.security`.
    pub security: Option<Word<Security>>,
    /// When approval is requested; has an effect only if stricter than `tools.exec.ask`.
    pub ask: Option<Word<Ask>>,
}

/// Sandbox of commands.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Sandbox {
    /// Access of commands: read-only, workspace to change files in it, guarded for the same with approval, full for no sandbox. Default: workspace.
    pub mode: Option<Word<Mode>>,
    /// Allow commands to use the network. Default: false.
    pub network: Option<bool>,
    /// Hidden files and directories that commands may read, such as ~/documents. ~ opens the home directory, except known credentials.
    pub extra_read: Vec<Text>,
    /// Directories that commands may change, in addition to the workspace.
    pub extra_write: Vec<Text>,
    /// Files and directories to hide, in addition to the default ones: keys, tokens, and Homard's own state.
    pub masked: Vec<Text>,
}

/// Resource limits of a command.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Limits {
    /// Maximum memory of each process of a command, and of all of them together, in MiB. Default: three quarters of the machine's.
    pub memory_mb: Option<u64>,
    /// Maximum number of processes and threads of a command. Default: 1024.
    pub processes: Option<u64>,
    /// Maximum size of a file that a command may write, in MiB. Default: 8192.
    pub file_mb: Option<u64>,
    /// Size of each temporary directory of a command in tier A, in MiB; needs bubblewrap 0.7. Default: 2048, or a quarter of the machine's memory if that is less.
    pub tmp_mb: Option<u64>,
    /// Space that a command must leave free on the disk of the workspace, in MiB. Default: 1024, or half of what is free when it starts if that is less.
    pub disk_free_mb: Option<u64>,
}

/// Tool policy of sub-agents.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Subagents {
    /// Tools that they may use, if stricter than the policy of the run that started them.
    #[serde(deserialize_with = "super::object")]
    pub tools: Policy,
}

/// Web tools.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Web {
    /// The `web_fetch` tool.
    #[serde(deserialize_with = "super::object")]
    pub fetch: Fetch,
    /// The `web_search` tool.
    #[serde(deserialize_with = "super::object")]
    pub search: Search,
}

/// The `web_fetch` tool.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Fetch {
    /// Enable the tool. Default: true.
    pub enabled: Option<bool>,
    /// Number of characters of a page that are returned. Default: 50000.
    pub max_chars: Option<usize>,
    /// Maximum number of characters that a call may request. Default: 50000.
    pub max_chars_cap: Option<usize>,
    /// Timeout of a request in seconds. Default: 30.
    pub timeout_seconds: Option<u64>,
    /// Time in minutes that a page is cached. Default: 15.
    pub cache_ttl_minutes: Option<f64>,
    /// Maximum number of redirects. Default: 3.
    pub max_redirects: Option<usize>,
}

/// The `web_search` tool.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Search {
    /// Enable the tool. Default: true, if a provider is set up.
    pub enabled: Option<bool>,
    /// Search provider: brave or searxng.
    pub provider: Option<Word<SearchBackend>>,
    /// API key of the provider. Default: the variable `BRAVE_API_KEY`.
    pub api_key: Option<Text>,
    /// A SearXNG server of your own.
    #[serde(deserialize_with = "super::object")]
    pub searxng: Searxng,
    /// Maximum number of results. Default: 5.
    pub max_results: Option<usize>,
    /// Timeout of a search in seconds. Default: 30.
    pub timeout_seconds: Option<u64>,
    /// Time in minutes that a result is cached. Default: 15.
    pub cache_ttl_minutes: Option<f64>,
    /// Error that makes the search unusable, if it references an environment variable which is not set.
    #[serde(skip)]
    pub fault: Option<String>,
}

/// A SearXNG server of your own.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Searxng {
    /// URL of the server, such as `http://127.0.0.1:8888`. Default: the variable `SEARXNG_BASE_URL`.
    pub base_url: Option<Text>,
}

/// Which commands may run, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Security {
    Deny,
    Allowlist,
    Full,
}

/// Web search provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchBackend {
    Brave,
    Searxng,
}

/// When approval is requested, the least often first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    Off,
    OnMiss,
    Always,
}

/// Sandbox mode of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    ReadOnly,
    Workspace,
    /// As `Workspace`, and only commands that are on the allowlist or approved.
    Guarded,
    Full,
}

super::word::words! {
    ToolProfile:
        "minimal" => Self::Minimal, "coding" => Self::Coding, "messaging" => Self::Messaging, "full" => Self::Full;
    SearchBackend: "brave" => Self::Brave, "searxng" => Self::Searxng;
    Visibility: "self" => Self::Own, "tree" => Self::Tree, "agent" => Self::Agent, "all" => Self::All;
    Security: "deny" => Self::Deny, "allowlist" => Self::Allowlist, "full" => Self::Full;
    Ask: "off" => Self::Off, "on-miss" => Self::OnMiss, "always" => Self::Always;
    Mode: "read-only" => Self::ReadOnly, "workspace" => Self::Workspace, "guarded" => Self::Guarded, "full" => Self::Full;
}

/// Builds a tool policy from the four fields of a section.
macro_rules! meant {
    ($said:expr) => {
        policy::ToolPolicy {
            profile: $said.profile.map(|word| word.0),
            allow: $said.allow.clone().unwrap_or_default(),
            also_allow: $said.also_allow.clone().unwrap_or_default(),
            deny: $said.deny.clone().unwrap_or_default(),
        }
    };
}

impl Policy {
    /// Returns the tool policy.
    pub fn to_policy(&self) -> policy::ToolPolicy {
        meant!(self)
    }
}

impl Tools {
    /// Returns the tools that are explicitly allowed for all agents.
    pub fn explicitly_allowed(&self) -> Vec<String> {
        self.allow.iter().chain(&self.also_allow).flatten().cloned().collect()
    }

    /// Returns the tool policy.
    pub fn to_policy(&self) -> policy::ToolPolicy {
        meant!(self)
    }
}

impl AgentTools {
    /// Returns the tool policy.
    pub fn to_policy(&self) -> policy::ToolPolicy {
        meant!(self)
    }
}
