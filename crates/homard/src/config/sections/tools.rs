//! `tools`: which tools agents have, and their settings.

use std::collections::BTreeMap;

use homard_agent::policy::{self, Profile};
use homard_tools::house::Visibility;
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::config::Text;

/// What agents may do. What is denied is denied, whoever else allows it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Tools {
    /// A set of tools to begin with: minimal, coding, messaging, full. Default: full.
    pub(crate) profile: Option<Word<Profile>>,
    /// The only tools that may be used: names, `group:` names, or patterns with `*`.
    pub(crate) allow: Option<Vec<String>>,
    /// Tools that may be used besides those of the profile.
    pub(crate) also_allow: Option<Vec<String>>,
    /// Tools that may not be used.
    pub(crate) deny: Option<Vec<String>>,
    /// The same for models of one provider, by `provider` or `provider/model`.
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) by_provider: BTreeMap<String, Policy>,
    /// How commands run.
    #[serde(deserialize_with = "super::object")]
    pub(crate) exec: Exec,
    /// Sandboxed sessions.
    #[serde(deserialize_with = "super::object")]
    pub(crate) sandbox: SandboxTools,
    /// Agents that work for others.
    #[serde(deserialize_with = "super::object")]
    pub(crate) subagents: Subagents,
    /// What runs see of other sessions.
    #[serde(deserialize_with = "super::object")]
    pub(crate) sessions: Sessions,
    /// Whether agents may talk to one another.
    #[serde(deserialize_with = "super::object")]
    pub(crate) agent_to_agent: AgentToAgent,
    /// Messages to chats.
    #[serde(deserialize_with = "super::object")]
    pub(crate) message: Message,
    /// The web.
    #[serde(deserialize_with = "super::object")]
    pub(crate) web: Web,
}

/// Messages to chats, by the `message` tool and by jobs that agents make.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Message {
    /// Chats that agents may write to, besides the one that is answered and those that the config or a pairing names: `telegram:7`, `telegram/work:7`, `telegram:@channel`, `telegram:*`, `*`. Default: none.
    pub(crate) allow_to: Vec<String>,
    /// Whether a conversation may write to others.
    #[serde(deserialize_with = "super::object")]
    pub(crate) cross_context: CrossContext,
    /// One call that writes to many.
    #[serde(deserialize_with = "super::object")]
    pub(crate) broadcast: Broadcast,
}

/// Whether a conversation may write to others.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CrossContext {
    /// To others on its platform. Default: true.
    pub(crate) allow_within_provider: Option<bool>,
    /// To other platforms. Default: false.
    pub(crate) allow_across_providers: Option<bool>,
}

/// One call that writes to many.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Broadcast {
    /// Whether that may be. Default: true.
    pub(crate) enabled: Option<bool>,
}

/// Messages of an agent to chats.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AgentMessage {
    /// Chats that this agent may write to, besides those that all agents may. Default: none.
    pub(crate) allow_to: Vec<String>,
}

/// What runs see of other sessions.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Sessions {
    /// self, tree for those that it started, agent for all of its agent, all. Default: tree.
    pub(crate) visibility: Option<Word<Visibility>>,
}

/// Whether agents may talk to one another.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct AgentToAgent {
    /// Whether any may. Default: false.
    pub(crate) enabled: bool,
    /// Which: ids, or patterns with `*`. Default: all.
    pub(crate) allow: Vec<String>,
}

/// Which tools an agent may use, beside what `tools` says.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AgentTools {
    /// A set of tools to begin with, in place of that of all.
    pub(crate) profile: Option<Word<Profile>>,
    /// The only tools that may be used.
    pub(crate) allow: Option<Vec<String>>,
    /// Tools that may be used besides those of the profile.
    pub(crate) also_allow: Option<Vec<String>>,
    /// Tools that may not be used.
    pub(crate) deny: Option<Vec<String>>,
    /// The same for models of one provider, by `provider` or `provider/model`.
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) by_provider: BTreeMap<String, Policy>,
    /// Tools that senders other than the owner may use, besides their default ones. Give such an agent a workspace of its own: with `read` they reach all of it. Default: none.
    pub(crate) non_owner_allow: Vec<String>,
    /// Its sandboxed sessions.
    #[serde(deserialize_with = "super::object")]
    pub(crate) sandbox: SandboxTools,
    /// Its messages to chats.
    #[serde(deserialize_with = "super::object")]
    pub(crate) message: AgentMessage,
    /// How its commands run.
    #[serde(deserialize_with = "super::object")]
    pub(crate) exec: AgentExec,
}

/// The tools of sandboxed sessions.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct SandboxTools {
    /// Which they may use. A list that is not written is the usual one: commands, files, pictures and sessions, but no memory and no web.
    #[serde(deserialize_with = "super::object")]
    pub(crate) tools: Policy,
}

/// Which tools may be used.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Policy {
    /// A set of tools to begin with: minimal, coding, messaging, full.
    pub(crate) profile: Option<Word<Profile>>,
    /// The only tools that may be used.
    pub(crate) allow: Option<Vec<String>>,
    /// Tools that may be used besides those of the profile.
    pub(crate) also_allow: Option<Vec<String>>,
    /// Tools that may not be used.
    pub(crate) deny: Option<Vec<String>>,
}

/// How commands run.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Exec {
    /// Which commands may run: deny for none, allowlist for those that were agreed to, full for all. Default: full, within the sandbox.
    pub(crate) security: Option<Word<Security>>,
    /// Whether somebody is asked: off, on-miss for those that are not on the list, always. Default: off, and on-miss with an allowlist.
    pub(crate) ask: Option<Word<Ask>>,
    /// Programs that need no agreement to work on what they are given by others, of jq, grep, cut, sort, uniq, head, tail, tr, wc. Default: all of these.
    pub(crate) safe_bins: Option<Vec<String>>,
    /// Variables that calls may set for a command besides the usual, such as NODE_ENV, PORT and RUST_LOG. Names in full.
    pub(crate) allow_env: Vec<String>,
    /// What holds commands.
    #[serde(deserialize_with = "super::object")]
    pub(crate) sandbox: Sandbox,
    /// How much of the machine a command in the sandbox may use. 0 is without a limit.
    #[serde(deserialize_with = "super::object")]
    pub(crate) limits: Limits,
    /// How long a call waits before the command goes on in the background, in milliseconds. Default: 10000.
    pub(crate) background_ms: Option<u64>,
    /// How long a command may take, in seconds: at most 86400. Default: 1800.
    #[serde(alias = "timeoutSeconds")]
    pub(crate) timeout_sec: Option<u64>,
    /// How long a command that is over is kept for `process`, in milliseconds. Default: 1800000.
    pub(crate) cleanup_ms: Option<u64>,
    /// Whether the end of a command in the background wakes its session. Default: true.
    pub(crate) notify_on_exit: Option<bool>,
}

/// How an agent's commands run.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AgentExec {
    /// Which commands may run, if less than for all.
    pub(crate) security: Option<Word<Security>>,
    /// Whether somebody is asked, if more than for all.
    pub(crate) ask: Option<Word<Ask>>,
}

/// What holds commands.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Sandbox {
    /// How much commands may do: read-only, workspace to change what is in it, guarded for the same once somebody agreed, full for no sandbox. Default: workspace.
    pub(crate) mode: Option<Word<Mode>>,
    /// Whether commands reach the network. Default: false.
    pub(crate) network: Option<bool>,
    /// Files and folders that may be read although they are hidden, such as ~/documents. ~ opens the home directory, but for known credentials.
    pub(crate) extra_read: Vec<Text>,
    /// Folders that may be changed besides the workspace.
    pub(crate) extra_write: Vec<Text>,
    /// Files and folders that are hidden besides the usual: keys, tokens, and Homard's own state.
    pub(crate) masked: Vec<Text>,
}

/// How much of the machine a command may use.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Limits {
    /// Memory of each process of a command, and of all of them together, in MiB. Default: three quarters of the machine's.
    pub(crate) memory_mb: Option<u64>,
    /// Processes and threads that a command may start. Default: 1024.
    pub(crate) processes: Option<u64>,
    /// Size of the largest file that a command may write, in MiB. Default: 8192.
    pub(crate) file_mb: Option<u64>,
    /// Size of each temporary directory of a command in tier A, in MiB; needs bubblewrap 0.7. Default: 2048, or a quarter of the machine's memory if that is less.
    pub(crate) tmp_mb: Option<u64>,
    /// Space that a command must leave free on the disk of the workspace, in MiB. Default: 1024, or half of what is free when it starts if that is less.
    pub(crate) disk_free_mb: Option<u64>,
}

/// Agents that work for others.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Subagents {
    /// Which tools they may use, if less than whoever started them.
    #[serde(deserialize_with = "super::object")]
    pub(crate) tools: Policy,
}

/// The web.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Web {
    /// Pages.
    #[serde(deserialize_with = "super::object")]
    pub(crate) fetch: Fetch,
    /// Searches.
    #[serde(deserialize_with = "super::object")]
    pub(crate) search: Search,
}

/// Pages of the web.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Fetch {
    /// Whether they can be read. Default: true.
    pub(crate) enabled: Option<bool>,
    /// How many characters of a page are shown. Default: 50000.
    pub(crate) max_chars: Option<usize>,
    /// How many may be asked for. Default: 50000.
    pub(crate) max_chars_cap: Option<usize>,
    /// How long a page may take, in seconds. Default: 30.
    pub(crate) timeout_seconds: Option<u64>,
    /// How long a page is kept, in minutes. Default: 15.
    pub(crate) cache_ttl_minutes: Option<f64>,
    /// How often a page may point elsewhere. Default: 3.
    pub(crate) max_redirects: Option<usize>,
}

/// Searches of the web.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Search {
    /// Whether the web can be searched. Default: true, if a provider is set up.
    pub(crate) enabled: Option<bool>,
    /// Who searches: brave or searxng.
    pub(crate) provider: Option<Word<Searcher>>,
    /// The provider's key; else `BRAVE_API_KEY`.
    pub(crate) api_key: Option<Text>,
    /// A SearXNG of one's own.
    #[serde(deserialize_with = "super::object")]
    pub(crate) searxng: Searxng,
    /// How many hits are shown. Default: 5.
    pub(crate) max_results: Option<usize>,
    /// How long a search may take, in seconds. Default: 30.
    pub(crate) timeout_seconds: Option<u64>,
    /// How long an answer is kept, in minutes. Default: 15.
    pub(crate) cache_ttl_minutes: Option<f64>,
    /// Why it must not be used, if a variable that it needs is not set.
    #[serde(skip)]
    pub(crate) fault: Option<String>,
}

/// A SearXNG of one's own.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Searxng {
    /// Where it is, such as `http://127.0.0.1:8888`; else `SEARXNG_BASE_URL`.
    pub(crate) base_url: Option<Text>,
}

/// Which commands may run, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Security {
    Deny,
    Allowlist,
    Full,
}

/// Web search provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Searcher {
    Brave,
    Searxng,
}

/// When approval is requested, the least often first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    Off,
    OnMiss,
    Always,
}

/// Sandbox mode of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    ReadOnly,
    Workspace,
    /// As `Workspace`, and only commands that are on the allowlist or approved.
    Guarded,
    Full,
}

super::word::words! {
    Profile:
        "minimal" => Self::Minimal, "coding" => Self::Coding, "messaging" => Self::Messaging, "full" => Self::Full;
    Searcher: "brave" => Self::Brave, "searxng" => Self::Searxng;
    Visibility: "self" => Self::Own, "tree" => Self::Tree, "agent" => Self::Agent, "all" => Self::All;
    Security: "deny" => Self::Deny, "allowlist" => Self::Allowlist, "full" => Self::Full;
    Ask: "off" => Self::Off, "on-miss" => Self::OnMiss, "always" => Self::Always;
    Mode: "read-only" => Self::ReadOnly, "workspace" => Self::Workspace, "guarded" => Self::Guarded, "full" => Self::Full;
}

/// Builds a tool policy from the four fields of a section.
macro_rules! meant {
    ($said:expr) => {
        policy::Policy {
            profile: $said.profile.map(|word| word.0),
            allow: $said.allow.clone().unwrap_or_default(),
            also_allow: $said.also_allow.clone().unwrap_or_default(),
            deny: $said.deny.clone().unwrap_or_default(),
        }
    };
}

impl Policy {
    /// Returns the tool policy.
    pub(crate) fn meant(&self) -> policy::Policy {
        meant!(self)
    }
}

impl Tools {
    /// Returns the tools that are explicitly allowed for all agents.
    pub(crate) fn named(&self) -> Vec<String> {
        self.allow.iter().chain(&self.also_allow).flatten().cloned().collect()
    }

    /// Returns the tool policy.
    pub(crate) fn meant(&self) -> policy::Policy {
        meant!(self)
    }
}

impl AgentTools {
    /// Returns the tool policy.
    pub(crate) fn meant(&self) -> policy::Policy {
        meant!(self)
    }
}
