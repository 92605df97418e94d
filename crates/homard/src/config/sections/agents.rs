//! `agents`: the agents, their models, workspaces and timeouts.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use homard_model::Level;
use homard_proto::AgentId;
use homard_reply::blocks::Break;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    compaction::Compaction,
    memory::MemorySearch,
    pruning::ContextPruning,
    replies::{BlockChunk, BlockCoalesce, HumanDelay, Switch},
    sandbox::Sandbox,
    schedule::Heartbeat,
    tools::AgentTools,
    word::Word,
};
use crate::config::Text;

/// Who answers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Agents {
    /// What holds for every agent that does not say otherwise.
    #[serde(deserialize_with = "super::object")]
    pub(crate) defaults: Defaults,
    /// The agents. Without any there is one that is called `main`.
    #[serde(deserialize_with = "super::objects")]
    pub(in crate::config) list: Vec<Agent>,
    /// The agents by their ids, as newer versions of OpenClaw write them. They come after those of the list.
    #[serde(deserialize_with = "super::named_objects")]
    pub(in crate::config) entries: BTreeMap<String, Agent>,
    /// What is said of an agent that nobody mentions.
    #[serde(skip)]
    nobody: Agent,
}

/// An agent with its section of the config.
#[derive(Debug, Clone)]
pub(crate) struct Member<'a> {
    pub(crate) id: AgentId,
    /// True if it receives messages that name no agent.
    pub(crate) is_default: bool,
    pub(crate) said: &'a Agent,
}

impl Agents {
    /// Returns all agents in order; never empty.
    pub(crate) fn members(&self) -> Vec<Member<'_>> {
        let listed = self.list.iter().map(|agent| (agent.id.as_ref().map_or("", Text::as_str), agent));
        let named: Vec<_> = listed.chain(self.entries.iter().map(|(id, agent)| (id.as_str(), agent))).collect();
        let first = named.iter().position(|(_, agent)| agent.default).unwrap_or(0);
        let named = named.into_iter().enumerate();
        let mut all: Vec<_> = named
            .map(|(at, (id, said))| Member { id: AgentId::normalize(id), is_default: at == first, said })
            .collect();
        if all.is_empty() {
            all.push(Member { id: AgentId::main(), is_default: true, said: &self.nobody });
        }
        all
    }

    /// Returns an agent by its id; without one, the default agent.
    pub(crate) fn member(&self, id: Option<&str>) -> Option<Member<'_>> {
        let wanted = id.map(AgentId::normalize);
        let is_meant = |member: &Member<'_>| wanted.as_ref().map_or(member.is_default, |id| *id == member.id);
        self.members().into_iter().find(is_meant)
    }
}

/// What holds for every agent that does not say otherwise.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Defaults {
    /// The model that answers, and who else if it does not: `"provider/model"`, or `{primary, fallbacks}`.
    pub(crate) model: Option<Choice>,
    /// The model that looks at pictures for the tool `image`, and who else if it does not answer. Default: the agent's own, if it sees.
    pub(crate) image_model: Option<Choice>,
    /// The models that may be chosen for a session, by name; any if there are none.
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) models: BTreeMap<String, Listed>,
    /// The folder that agents live in. The default agent has the folder itself, others one beside it whose name ends with `-<id>`. Default: `workspace` in the state directory.
    pub(crate) workspace: Option<Text>,
    /// Which sessions work apart from the agent's workspace.
    #[serde(deserialize_with = "super::object")]
    pub(crate) sandbox: Sandbox,
    /// The repository that the prompt names, if it is not the workspace.
    pub(crate) repo_root: Option<Text>,
    /// Whether a new workspace is left without starter files. Default: false.
    pub(crate) skip_bootstrap: Option<bool>,
    /// How many characters of one workspace file go into a prompt. Default: 20000.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    pub(crate) bootstrap_max_chars: Option<u64>,
    /// How many characters of all workspace files go into a prompt. Default: 60000.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    pub(crate) bootstrap_total_max_chars: Option<u64>,
    /// How long the prompt is: `rich`, `lean` (short instructions, six tools, 2,500 characters of workspace files), `bare` (the agent's name), or `auto`: `lean` for models with a context window below 32,000 tokens, else `rich`. Default: `auto`.
    pub(crate) prompt_style: Option<Word<Style>>,
    /// The skills that agents may use, by name; all if nothing is said.
    pub(crate) skills: Option<Vec<String>>,
    /// The user's time zone, such as `Europe/Berlin`. Default: the machine's.
    pub(crate) user_timezone: Option<String>,
    /// How many tokens of context a model has at most, whatever else is known of it.
    pub(crate) context_tokens: Option<u64>,
    /// How hard models think when a session says nothing: off, minimal, low, medium, high, xhigh. Default: low if the model can, else off.
    pub(crate) thinking_default: Option<Word<Level>>,
    /// How much of tools is told when a session says nothing: off, on, full. Default: off.
    pub(crate) verbose_default: Option<Word<Verbose>>,
    /// Whether the model's reasoning is shown when a session says nothing: off, on, stream. Default: off.
    pub(crate) reasoning_default: Option<Word<Reasoning>>,
    /// Whether answers go out to chats in blocks while they are written: off, on. Default: off.
    pub(crate) block_streaming_default: Option<Word<Switch>>,
    /// When blocks may go: text_end, while the words come, or message_end, when the message is complete. Default: text_end.
    pub(crate) block_streaming_break: Option<Word<Break>>,
    /// How long blocks are, and where they end.
    #[serde(deserialize_with = "super::object")]
    pub(crate) block_streaming_chunk: BlockChunk,
    /// How small blocks become one message.
    #[serde(deserialize_with = "super::object")]
    pub(crate) block_streaming_coalesce: BlockCoalesce,
    /// How long to wait between two blocks, as if somebody typed them.
    #[serde(deserialize_with = "super::object")]
    pub(crate) human_delay: HumanDelay,
    /// When a chat shows that an answer is being written: never, instant, thinking, message. Default: instant where somebody waits for it, message in groups.
    pub(crate) typing_mode: Option<Word<super::typing::Mode>>,
    /// How often that is shown again, in seconds. Default: 6.
    #[serde(deserialize_with = "super::number::at_least_one")]
    #[schemars(range(min = 1))]
    pub(crate) typing_interval_seconds: Option<u64>,
    /// How long a run may take, in seconds; 0 for as long as it takes. Default: 600.
    pub(crate) timeout_seconds: Option<u64>,
    /// What a run may do before it is ended.
    #[serde(deserialize_with = "super::object")]
    pub(crate) run_limits: RunLimits,
    /// How long models that fail are asked again.
    #[serde(deserialize_with = "super::object")]
    pub(crate) retry: Retry,
    /// When a long conversation is made short, and how.
    #[serde(deserialize_with = "super::object")]
    pub(crate) compaction: Compaction,
    /// Which old tool results are left out of requests. The transcript keeps them.
    #[serde(deserialize_with = "super::object")]
    pub(crate) context_pruning: ContextPruning,
    /// How many runs of conversations are at work at once. Default: 4.
    pub(crate) max_concurrent: Option<usize>,
    /// Runs that agents start themselves.
    #[serde(deserialize_with = "super::object")]
    pub(crate) subagents: Subagents,
    /// What agents look after by themselves, and when.
    #[serde(deserialize_with = "super::object")]
    pub(crate) heartbeat: Heartbeat,
    /// How what agents have written down is searched.
    #[serde(deserialize_with = "super::object")]
    pub(crate) memory_search: MemorySearch,
}

/// A model that may be chosen.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Listed {
    /// A short name for it.
    pub(crate) alias: Option<String>,
}

/// How long a run retries, over all models that it asks, before it fails with the last error.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Retry {
    /// How long while a person waits for the answer (`homard agent`, chat clients, channels, HTTP), in seconds; 0 to never ask the same model again. Default: 60.
    pub(crate) max_total_seconds: Option<u64>,
    /// How long otherwise (cron, heartbeats, sub-agents, webhooks), in seconds. Default: 300.
    pub(crate) unattended_max_total_seconds: Option<u64>,
}

/// What a run may do before it is ended with the reason.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RunLimits {
    /// How often its model may be asked. Default: 250.
    pub(crate) turns: Option<u32>,
    /// How many tool calls it may make. Default: 1000.
    pub(crate) tool_calls: Option<u32>,
    /// How often in a row it may make the same call and get the same result. Default: 10.
    pub(crate) repeats: Option<u32>,
    /// How many calls in a row may fail. Default: 50.
    pub(crate) errors: Option<u32>,
    /// What it may cost, in US dollars. Default: no limit.
    pub(crate) cost_usd: Option<f64>,
}

/// Runs that agents start themselves.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Subagents {
    /// How many of them are at work at once. Default: 8.
    pub(crate) max_concurrent: Option<usize>,
    /// Which other agents may be started: ids, or `*` for any. Default: none.
    pub(crate) allow_agents: Vec<String>,
    /// How deep they may start one another; 1 is not at all. Default: 1.
    pub(crate) max_spawn_depth: Option<usize>,
    /// How many that one session started are at work at once. Default: 5.
    pub(crate) max_children_per_agent: Option<usize>,
    /// The model that answers, as `provider/model`. Default: the agent's own.
    pub(crate) model: Option<Text>,
    /// How hard it thinks. Default: as the agent's own.
    pub(crate) thinking: Option<Word<Level>>,
    /// How long one may take, in seconds; 0 for the agent's own limit. Default: 0.
    pub(crate) run_timeout_seconds: Option<u64>,
}

/// An agent.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Agent {
    /// Its id: letters, digits, `_` and `-`.
    pub(crate) id: Option<Text>,
    /// Whether it answers messages that name no agent. Default: the first in the list does.
    pub(crate) default: bool,
    /// Its name for people.
    pub(crate) name: Option<String>,
    /// The folder that it lives in.
    pub(crate) workspace: Option<Text>,
    /// Which of its sessions work apart from that; what it does not say, the defaults do.
    #[serde(deserialize_with = "super::object")]
    pub(crate) sandbox: Sandbox,
    /// Where its credentials are. Default: `agents/<id>/agent` in the state directory.
    pub(crate) agent_dir: Option<Text>,
    /// Its model, and who else answers if that one does not.
    pub(crate) model: Option<Choice>,
    /// The skills that it may use, by name; all if nothing is said, none if the list is empty.
    pub(crate) skills: Option<Vec<String>>,
    /// How hard its model thinks when a session says nothing.
    pub(crate) thinking_default: Option<Word<Level>>,
    /// How much of its tools is told when a session says nothing.
    pub(crate) verbose_default: Option<Word<Verbose>>,
    /// Whether its model's reasoning is shown when a session says nothing.
    pub(crate) reasoning_default: Option<Word<Reasoning>>,
    /// How long it waits between two blocks; what it does not say, the defaults do.
    #[serde(deserialize_with = "super::maybe_object")]
    pub(crate) human_delay: Option<HumanDelay>,
    /// What it looks after by itself, and when.
    #[serde(deserialize_with = "super::maybe_object")]
    pub(crate) heartbeat: Option<Heartbeat>,
    /// Who it is for people.
    #[serde(deserialize_with = "super::object")]
    pub(crate) identity: Identity,
    /// Which tools it may use, beside what `tools` says.
    #[serde(deserialize_with = "super::object")]
    pub(crate) tools: AgentTools,
}

/// Who an agent is for people.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Identity {
    /// Its name.
    pub(crate) name: Option<String>,
    /// What it is like.
    pub(crate) theme: Option<String>,
    /// Its sign.
    pub(crate) emoji: Option<String>,
    /// Its picture: a path in the workspace, or an address.
    pub(crate) avatar: Option<String>,
}

/// Length of the system prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Auto,
    Rich,
    Lean,
    Bare,
}

/// Verbosity of tool output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verbose(pub(crate) &'static str);

/// Visibility of the model's reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reasoning(pub(crate) &'static str);

super::word::words! {
    Style: "auto" => Self::Auto, "rich" => Self::Rich, "lean" => Self::Lean, "bare" => Self::Bare;
    Verbose: "off" => Self("off"), "on" => Self("on"), "full" => Self("full");
    Reasoning: "off" => Self("off"), "on" => Self("on"), "stream" => Self("stream");
    Level:
        "off" => Self::Off, "minimal" => Self::Minimal, "low" => Self::Low,
        "medium" => Self::Medium, "high" => Self::High, "xhigh" => Self::Xhigh;
}

/// A model and its fallbacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Choice {
    pub(crate) primary: Option<Text>,
    /// `None` differs from an empty list: an agent may have its own primary model with the shared fallbacks.
    pub(crate) fallbacks: Option<Vec<Text>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(default)]
#[derive(Default)]
struct ChoiceFields {
    /// The model that answers.
    primary: Option<Text>,
    /// Who answers if it does not, in this order.
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
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
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
