//! `agents`: the agents, their models, workspaces and timeouts.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use homard_model::ReasoningLevel;
use homard_proto::AgentId;
use homard_reply::blocks::BlockBreak;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    compaction::Compaction,
    memory::MemorySearch,
    pruning::ContextPruning,
    replies::{BlockChunk, BlockCoalesce, HumanDelay, OnOff},
    sandbox::Sandbox,
    schedule::Heartbeat,
    tools::AgentTools,
    word::Word,
};
use crate::Text;

/// The agents and their default settings.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Agents {
    /// Defaults for all agents. Settings of an agent take precedence.
    #[serde(deserialize_with = "super::object")]
    pub defaults: Defaults,
    /// List of agents. If no agent is configured, there is one with the id `main`.
    #[serde(deserialize_with = "super::objects")]
    pub list: Vec<Agent>,
    /// Agents by id, the form that newer versions of OpenClaw write. They are appended to the list.
    #[serde(deserialize_with = "super::named_objects")]
    pub entries: BTreeMap<String, Agent>,
    /// Settings of the implicit agent `main`.
    #[serde(skip)]
    nobody: Agent,
}

/// An agent with its section of the config.
#[derive(Debug, Clone)]
pub struct ConfiguredAgent<'a> {
    pub id: AgentId,
    /// True if it receives messages that name no agent.
    pub is_default: bool,
    pub config: &'a Agent,
}

impl Agents {
    /// Returns all agents in order; never empty.
    pub fn members(&self) -> Vec<ConfiguredAgent<'_>> {
        let listed = self.list.iter().map(|agent| (agent.id.as_ref().map_or("", Text::as_str), agent));
        let named: Vec<_> = listed.chain(self.entries.iter().map(|(id, agent)| (id.as_str(), agent))).collect();
        let default_index = named.iter().position(|(_, agent)| agent.default).unwrap_or(0);
        let named = named.into_iter().enumerate();
        let mut all: Vec<_> = named
            .map(|(at, (id, config))| ConfiguredAgent {
                id: AgentId::normalize(id),
                is_default: at == default_index,
                config,
            })
            .collect();
        if all.is_empty() {
            all.push(ConfiguredAgent { id: AgentId::main(), is_default: true, config: &self.nobody });
        }
        all
    }

    /// Returns an agent by its id; without one, the default agent.
    pub fn member(&self, id: Option<&str>) -> Option<ConfiguredAgent<'_>> {
        let wanted_id = id.map(AgentId::normalize);
        let is_match =
            |member: &ConfiguredAgent<'_>| wanted_id.as_ref().map_or(member.is_default, |id| *id == member.id);
        self.members().into_iter().find(is_match)
    }
}

/// Defaults for all agents.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Defaults {
    /// Primary model and its fallbacks: `"provider/model"`, or `{primary, fallbacks}`.
    pub model: Option<Choice>,
    /// Model and fallbacks for the tool `image`. Default: the agent's own model, if it supports image input.
    pub image_model: Option<Choice>,
    /// Models that can be selected for a session, by name. If empty, any model can be selected.
    #[serde(deserialize_with = "super::named_objects")]
    pub models: BTreeMap<String, SelectableModel>,
    /// Workspace directory of the agents. The default agent uses the directory itself, other agents a sibling directory whose name ends with `-<id>`. Default: `workspace` in the state directory.
    pub workspace: Option<Text>,
    /// Which sessions are sandboxed, with a workspace of their own.
    #[serde(deserialize_with = "super::object")]
    pub sandbox: Sandbox,
    /// Repository root named in the system prompt, if it is not the workspace.
    pub repo_root: Option<Text>,
    /// Create new workspaces without starter files. Default: false.
    pub skip_bootstrap: Option<bool>,
    /// Maximum number of characters of one workspace file in the system prompt. Default: 20000.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    pub bootstrap_max_chars: Option<u64>,
    /// Maximum number of characters of all workspace files in the system prompt. Default: 60000.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    pub bootstrap_total_max_chars: Option<u64>,
    /// Length of the system prompt: `rich`, `lean` (short instructions, six tools, 2,500 characters of workspace files), `bare` (the agent's name), or `auto`: `lean` for models with a context window below 32,000 tokens, else `rich`. Default: `auto`.
    pub prompt_style: Option<Word<Style>>,
    /// Skills that agents may use, by name. If not set, all skills are available.
    pub skills: Option<Vec<String>>,
    /// Time zone of the user, such as `Europe/Berlin`. Default: the machine's.
    pub user_timezone: Option<String>,
    /// Maximum context window of all models in tokens, even if a model supports more.
    pub context_tokens: Option<u64>,
    /// Reasoning level if the session sets none: off, minimal, low, medium, high, xhigh. Default: low if the model supports reasoning, else off.
    pub thinking_default: Option<Word<ReasoningLevel>>,
    /// Verbosity of tool output if the session sets none: off, on, full. Default: off.
    pub verbose_default: Option<Word<Verbose>>,
    /// Visibility of the model's reasoning if the session sets none: off, on, stream. Default: off.
    pub reasoning_default: Option<Word<Reasoning>>,
    /// Send replies to chats in blocks while they are generated: off, on. Default: off.
    pub block_streaming_default: Option<Word<OnOff>>,
    /// When blocks are sent: text_end, while the text is generated, or message_end, when the message is complete. Default: text_end.
    pub block_streaming_break: Option<Word<BlockBreak>>,
    /// Size limits and boundaries of blocks.
    #[serde(deserialize_with = "super::object")]
    pub block_streaming_chunk: BlockChunk,
    /// How small blocks are merged into one message.
    #[serde(deserialize_with = "super::object")]
    pub block_streaming_coalesce: BlockCoalesce,
    /// Pause between two blocks, to imitate a person who types.
    #[serde(deserialize_with = "super::object")]
    pub human_delay: HumanDelay,
    /// When a chat shows the typing indicator: never; instant, from the start of the run; thinking, from the first
    /// reasoning, text or tool call; message, from the first text or tool call. Default: instant if the sender expects
    /// a reply, else message.
    pub typing_mode: Option<Word<super::typing::Mode>>,
    /// Refresh interval of the typing indicator in seconds. Default: 6.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    pub typing_interval_seconds: Option<u64>,
    /// Maximum duration of a run in seconds; 0 for no limit. Default: 600.
    pub timeout_seconds: Option<u64>,
    /// Limits at which a run is ended.
    #[serde(deserialize_with = "super::object")]
    pub run_limits: RunLimits,
    /// How long failed model requests are retried.
    #[serde(deserialize_with = "super::object")]
    pub retry: Retry,
    /// Compaction of long sessions.
    #[serde(deserialize_with = "super::object")]
    pub compaction: Compaction,
    /// Pruning: which old tool results are omitted from requests. The transcript keeps them.
    #[serde(deserialize_with = "super::object")]
    pub context_pruning: ContextPruning,
    /// Maximum number of concurrent runs. Sub-agents, scheduled runs and heartbeats are limited separately. Default: 4.
    pub max_concurrent: Option<usize>,
    /// Sub-agents: runs that agents start themselves.
    #[serde(deserialize_with = "super::object")]
    pub subagents: Subagents,
    /// Heartbeat: runs that a timer starts, so that agents can look after open tasks.
    #[serde(deserialize_with = "super::object")]
    pub heartbeat: Heartbeat,
    /// Search in the memory files of agents.
    #[serde(deserialize_with = "super::object")]
    pub memory_search: MemorySearch,
}

/// A model that can be selected.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SelectableModel {
    /// Short name of the model.
    pub alias: Option<String>,
}

/// Maximum time that a run spends on retries, over all candidate models, before it fails with the last error.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Retry {
    /// Limit in seconds while a person waits for the reply (`homard agent`, chat clients, channels, HTTP); 0 to never retry the same model. Default: 60.
    pub max_total_seconds: Option<u64>,
    /// Limit in seconds for unattended runs (cron, heartbeats, sub-agents, webhooks). Default: 300.
    pub unattended_max_total_seconds: Option<u64>,
}

/// Limits at which a run is ended with an error that names the limit.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RunLimits {
    /// Maximum number of model requests. Default: 250.
    pub turns: Option<u32>,
    /// Maximum number of tool calls. Default: 1000.
    pub tool_calls: Option<u32>,
    /// Maximum number of consecutive identical tool calls with identical results. Default: 10.
    pub repeats: Option<u32>,
    /// Maximum number of consecutive failed tool calls. Default: 50.
    pub errors: Option<u32>,
    /// Maximum cost in US dollars. Default: no limit.
    pub cost_usd: Option<f64>,
}

/// Sub-agents: runs that agents start themselves.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Subagents {
    /// Maximum number of concurrent sub-agent runs. Default: 8.
    pub max_concurrent: Option<usize>,
    /// Ids of other agents that may be started as sub-agents, or `*` for any. Default: none.
    pub allow_agents: Vec<String>,
    /// Maximum nesting depth; with 1, sub-agents cannot start sub-agents. Default: 1.
    pub max_spawn_depth: Option<usize>,
    /// Maximum number of concurrent sub-agents started by one session. Default: 5.
    pub max_children_per_agent: Option<usize>,
    /// Model of sub-agents, as `provider/model`. Default: the agent's own.
    pub model: Option<Text>,
    /// Reasoning level of sub-agents. Default: the agent's own level.
    pub thinking: Option<Word<ReasoningLevel>>,
    /// Maximum duration of a sub-agent run in seconds; 0 for the agent's own limit. Default: 0.
    pub run_timeout_seconds: Option<u64>,
}

/// Settings of one agent.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Agent {
    /// Id of the agent: letters, digits, `_` and `-`.
    pub id: Option<Text>,
    /// Make this the default agent, which receives messages that name no agent. Default: the first agent in the list is
    /// the default agent.
    pub default: bool,
    /// Display name.
    pub name: Option<String>,
    /// Workspace directory of the agent.
    pub workspace: Option<Text>,
    /// Which of its sessions are sandboxed. Unset keys are taken from `agents.defaults`.
    #[serde(deserialize_with = "super::object")]
    pub sandbox: Sandbox,
    /// Directory of its credentials. Default: `agents/<id>/agent` in the state directory.
    pub agent_dir: Option<Text>,
    /// Primary model of the agent and its fallbacks.
    pub model: Option<Choice>,
    /// Skills that the agent may use, by name. If not set, all skills are available; if the list is empty, none.
    pub skills: Option<Vec<String>>,
    /// Reasoning level if the session sets none.
    pub thinking_default: Option<Word<ReasoningLevel>>,
    /// Verbosity of tool output if the session sets none.
    pub verbose_default: Option<Word<Verbose>>,
    /// Visibility of the model's reasoning if the session sets none.
    pub reasoning_default: Option<Word<Reasoning>>,
    /// Pause between two blocks. Unset keys are taken from `agents.defaults`.
    #[serde(deserialize_with = "super::maybe_object")]
    pub human_delay: Option<HumanDelay>,
    /// Heartbeat of the agent.
    #[serde(deserialize_with = "super::maybe_object")]
    pub heartbeat: Option<Heartbeat>,
    /// Public identity of the agent: name, theme, emoji and avatar.
    #[serde(deserialize_with = "super::object")]
    pub identity: Identity,
    /// Tool policy of the agent, in addition to `tools`.
    #[serde(deserialize_with = "super::object")]
    pub tools: AgentTools,
}

/// Public identity of an agent.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Identity {
    /// Display name.
    pub name: Option<String>,
    /// Description of the agent's character.
    pub theme: Option<String>,
    /// Emoji of the agent.
    pub emoji: Option<String>,
    /// Avatar: a path in the workspace, or a URL.
    pub avatar: Option<String>,
}

/// Length of the system prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Auto,
    Rich,
    Lean,
    Bare,
}

/// Verbosity of tool output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verbose(pub &'static str);

/// Visibility of the model's reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reasoning(pub &'static str);

super::word::words! {
    Style: "auto" => Self::Auto, "rich" => Self::Rich, "lean" => Self::Lean, "bare" => Self::Bare;
    Verbose: "off" => Self("off"), "on" => Self("on"), "full" => Self("full");
    Reasoning: "off" => Self("off"), "on" => Self("on"), "stream" => Self("stream");
    ReasoningLevel:
        "off" => Self::Off, "minimal" => Self::Minimal, "low" => Self::Low,
        "medium" => Self::Medium, "high" => Self::High, "xhigh" => Self::Xhigh;
}

/// A model and its fallbacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    pub primary: Option<Text>,
    /// `None` differs from an empty list: an agent may have its own primary model with the shared fallbacks.
    pub fallbacks: Option<Vec<Text>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(default)]
#[derive(Default)]
struct ChoiceFields {
    /// Primary model, as `provider/model`.
    primary: Option<Text>,
    /// Fallback models, tried in this order if the primary model fails.
    fallbacks: Option<Vec<Text>>,
}

impl JsonSchema for Choice {
    fn schema_name() -> Cow<'static, str> {
        "ModelChoice".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = generator.subschema_for::<ChoiceFields>();
        json_schema!({"anyOf": [{"type": "string"}, fields]})
    }
}

impl Choice {
    /// Returns the names, the primary model first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.primary.iter().chain(self.fallbacks.iter().flatten()).map(Text::as_str)
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Choice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text such as \"provider/model\", or an object with \"primary\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Choice, E> {
                let primary = Text::deserialize(de::value::StrDeserializer::new(text))?;
                Ok(Choice { primary: Some(primary), fallbacks: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Choice, A::Error> {
                let fields = ChoiceFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Choice { primary: fields.primary, fallbacks: fields.fallbacks })
            }
        }

        deserializer.deserialize_any(Either)
    }
}
