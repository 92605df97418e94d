//! Parser for `set` lines: the initial state.

use std::{collections::BTreeMap, time::Duration};

use homard_agent::{
    Pruning, RunBounds, ToolMode,
    auto_reset::{AutoReset, ResetMode, ResetRule},
    channel_sender::ChannelTraits,
    hub::QueueDefaults,
    reply_settings::DeliverySettings,
    tool::Toolbox,
};
use homard_command::{self as command, Command, QueueCommand, Triggers};
use homard_model::{ModelSpec, ReasoningLevel};
use homard_prompt::{
    PromptConfig,
    config::{PictureSources, PromptStyle},
    history_limits::{ChannelLimits, HistoryLimits},
};
use homard_proto::{AgentId, SessionKey, session, transcript::Entry};
use homard_queue::settings::QueueOverrides;
use homard_reply::pace::BlockDelay;
use homard_store::ToolClass;
use jiff::tz::TimeZone;

use super::scan::{LineScanner, SyntaxMessage};
use crate::{
    script,
    tools::{ToolDefinition, default_tools},
    workspace::FileContents,
};

/// Initial state of a trace.
#[derive(Debug, Clone)]
pub struct TraceSetup {
    /// Time limit of a run.
    pub timeout: Duration,
    /// Limits of a run.
    pub bounds: RunBounds,
    /// Maximum number of retries of a model request.
    pub retries: u32,
    /// Time between the end of a process and its restart.
    pub downtime: Duration,
    /// How the tool calls of one message are executed.
    pub tool_mode: ToolMode,
    /// Number of concurrency slots.
    pub slots: usize,
    /// Queue rules.
    pub queue: QueueDefaults,
    /// Limits on the history shown to the model.
    pub history: HistoryLimits,
    /// True if sessions get a new transcript every day.
    pub is_reset_daily: bool,
    /// Agents besides `main`.
    pub agents: Vec<AgentId>,
    /// Tools of every agent.
    pub tools: Vec<ToolDefinition>,
    /// Real tools instead of those.
    pub toolbox: Option<Toolbox>,
    /// What the store contains.
    pub stored: StoredSessions,
    /// Models of every agent.
    pub models: TraceModels,
    /// Pruning of old tool results.
    pub pruning: Option<Pruning>,
    /// Files of the workspace that all agents share. If empty there is no workspace, unless `setting` names one.
    pub files: Vec<(String, FileContents)>,
    /// Other inputs of prompts.
    pub setting: PromptConfig,
    /// Default levels of every agent.
    pub levels: DefaultLevels,
    /// Channels and their properties.
    pub channels: BTreeMap<String, ChannelTraits>,
    /// Delivery settings.
    pub delivery: DeliverySettings,
}

/// Sessions that exist before a trace begins.
#[derive(Debug, Clone, Default)]
pub struct StoredSessions {
    /// Their records.
    pub sessions: Vec<(SessionKey, session::Record)>,
    /// Entries of their transcripts.
    pub entries: Vec<(SessionKey, Entry)>,
}

/// Models of a trace.
#[derive(Debug, Clone)]
pub struct TraceModels {
    /// The model that reads the script.
    pub first: ModelSpec,
    /// Fallback models.
    pub fallbacks: Vec<ModelSpec>,
    /// Name of the compaction model; `None` means the run's model.
    pub compaction: Option<String>,
}

/// Default levels of an agent.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultLevels {
    /// Reasoning level.
    pub thinking: Option<ReasoningLevel>,
    /// Verbosity of tool output.
    pub verbose: Option<&'static str>,
    /// Visibility of reasoning.
    pub reasoning: Option<&'static str>,
}

impl Default for TraceSetup {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(600),
            bounds: RunBounds::default(),
            retries: 0,
            downtime: Duration::ZERO,
            tool_mode: ToolMode::default(),
            slots: 4,
            queue: QueueDefaults::default(),
            history: HistoryLimits::default(),
            is_reset_daily: false,
            agents: Vec::new(),
            tools: default_tools(),
            toolbox: None,
            stored: StoredSessions::default(),
            models: TraceModels { first: script::default_spec(), fallbacks: Vec::new(), compaction: None },
            pruning: None,
            files: Vec::new(),
            setting: PromptConfig { pictures: Some(PictureSources::default()), ..PromptConfig::default() },
            levels: DefaultLevels::default(),
            channels: BTreeMap::new(),
            delivery: DeliverySettings::default(),
        }
    }
}

impl TraceSetup {
    /// Returns the rules for automatic resets.
    pub(crate) fn auto_reset(&self) -> AutoReset {
        let daily = ResetRule { mode: Some(ResetMode::Daily), ..ResetRule::default() };
        AutoReset { all: self.is_reset_daily.then_some(daily), ..AutoReset::default() }
    }

    /// Parses what follows `set`.
    pub(super) fn read(&mut self, scan: &mut LineScanner<'_>) -> Result<(), SyntaxMessage> {
        match scan.peek() {
            "channel" => scan.word("").and_then(|_| self.channel(scan)),
            "session" | "line" | "tool" | "file" | "link" | "picture" | "huge" => {
                self.item(scan)?;
                scan.end()
            }
            _ => {
                while !scan.is_empty() {
                    self.setting(scan)?;
                }
                Ok(())
            }
        }
    }

    /// Parses a channel and its properties.
    fn channel(&mut self, scan: &mut LineScanner<'_>) -> Result<(), SyntaxMessage> {
        let name = scan.word("the channel's name")?.to_owned();
        let mut traits = ChannelTraits::default();
        while !scan.is_empty() {
            let before = scan.clone();
            let (name, value) = scan.setting()?;
            match (name, value.as_str()) {
                ("limit", _) => traits.text_limit = Some(number(&before, &value)?),
                ("idempotent", "yes") => traits.is_idempotent = true,
                ("blocks", "yes") => traits.takes_blocks = Some(true),
                ("blocks", "no") => traits.takes_blocks = Some(false),
                ("tags", "yes") => traits.allows_tags = true,
                ("threads", "reply") => traits.threads_by_reply = true,
                ("to", _) => traits.default_recipient = Some(value),
                ("replies", word) => match homard_reply::thread::ThreadMode::parse(word) {
                    Some(mode) => traits.replies = mode,
                    None => return before.error("`off`, `first` or `all`"),
                },
                _ => {
                    return before.error(
                        "`limit=`, `idempotent=yes`, `blocks=`, `replies=`, `tags=yes`, `threads=reply` or `to=`",
                    );
                }
            }
        }
        self.channels.insert(name, traits);
        Ok(())
    }

    /// Parses an item: a session, transcript entry, tool or file.
    fn item(&mut self, scan: &mut LineScanner<'_>) -> Result<(), SyntaxMessage> {
        match scan.word("")? {
            "session" => {
                let key = key(scan)?;
                let record = serde_json::from_value(scan.json()?);
                self.stored
                    .sessions
                    .push((key, record.map_err(|error| format!("expected a session's record: {error}"))?));
            }
            "line" => {
                let key = key(scan)?;
                let entry = serde_json::from_value(scan.json()?);
                self.stored
                    .entries
                    .push((key, entry.map_err(|error| format!("expected a line of a transcript: {error}"))?));
            }
            "tool" => {
                let name = scan.word("the tool's name")?.to_owned();
                let class = class(scan)?;
                self.tools.push(ToolDefinition { name, class, parameters: scan.json()? });
            }
            kind => {
                let name = scan.quoted()?;
                let contents = match kind {
                    "file" => FileContents::Text(scan.quoted()?),
                    "link" => FileContents::Link(scan.quoted()?.into()),
                    "picture" => FileContents::Picture,
                    _ => FileContents::Huge,
                };
                self.files.push((name, contents));
            }
        }
        Ok(())
    }

    fn setting(&mut self, scan: &mut LineScanner<'_>) -> Result<(), SyntaxMessage> {
        let before = scan.clone();
        let (name, value) = scan.setting()?;
        match (name, value.as_str()) {
            ("timeout", _) => self.timeout = LineScanner::new(&value).time()?,
            ("idle", _) => self.models.first.idle_timeout = LineScanner::new(&value).time()?,
            ("turns", _) => self.bounds.turns = number(&before, &value)?,
            ("calls", _) => self.bounds.calls = number(&before, &value)?,
            ("repeats", _) => self.bounds.repeats = number(&before, &value)?,
            ("errors", _) => self.bounds.errors = number(&before, &value)?,
            ("cost", _) => self.bounds.cost = Some(number(&before, &value)?),
            ("retries", _) => self.retries = number(&before, &value)?,
            ("down", _) => self.downtime = LineScanner::new(&value).time()?,
            ("tools", "sequential") => self.tool_mode = ToolMode::Sequential,
            ("tools", "parallel") => self.tool_mode = ToolMode::Parallel,
            ("slots", _) => self.slots = number(&before, &value)?,
            ("queue", _) => self.queue.all = overrides(&value)?,
            (name, _) if name.starts_with("queue.") => {
                let channel = name.trim_start_matches("queue.").to_owned();
                self.queue.by_channel.insert(channel, overrides(&value)?);
            }
            (name, _) if name.starts_with("history.") => {
                let channel = name.trim_start_matches("history.").to_owned();
                let limits = ChannelLimits { direct: Some(number(&before, &value)?), ..ChannelLimits::default() };
                self.history.insert(channel, limits);
            }
            ("reset", "daily") => self.is_reset_daily = true,
            ("agent", _) => self.agents.push(AgentId::normalize(&value)),
            ("api", _) => self.models.first.api = value,
            ("provider", _) => self.models.first.provider = value,
            ("window", _) => self.models.first.context_window = number(&before, &value)?,
            ("sees", "no") => self.models.first.accepts_images = false,
            ("thinks", _) => self.models.first.thinking = levels(&value)?,
            ("fallback", _) => {
                let context_window = number(&before, &value)?;
                let model = format!("script-{}", self.models.fallbacks.len() + 2);
                self.models.fallbacks.push(ModelSpec { model, context_window, ..script::default_spec() });
            }
            ("sums", _) => self.models.compaction = Some(value),
            ("pruning", _) => {
                let ttl = u64::try_from(LineScanner::new(&value).time()?.as_millis()).unwrap_or(u64::MAX);
                self.pruning = Some(Pruning { ttl, ..Pruning::default() });
            }
            _ => return self.prompting(&before, name, &value),
        }
        Ok(())
    }

    /// Parses a setting of prompts and models.
    fn prompting(&mut self, before: &LineScanner<'_>, name: &str, value: &str) -> Result<(), SyntaxMessage> {
        let word = |level: command::LevelSetting| match level.level(value) {
            Some(word) => Ok(Some(word)),
            None => before.error("a level"),
        };
        match (name, value) {
            ("style", "rich") => self.setting.style = PromptStyle::Rich,
            ("style", "lean") => self.setting.style = PromptStyle::Lean,
            ("style", "bare") => self.setting.style = PromptStyle::Bare,
            ("zone", name) => {
                self.setting.zone =
                    Some(TimeZone::get(name).map_err(|error| format!("expected a time zone: {error}"))?);
            }
            ("pictures", "confined") => self.setting.pictures = Some(PictureSources { home: None, is_confined: true }),
            ("thinking", _) => self.levels.thinking = Some(levels(value)?.first().copied().unwrap_or_default()),
            ("blocks", "yes") => self.delivery.sends_blocks = true,
            ("delay", "natural") => self.delivery.delay = BlockDelay::Natural,
            ("prefix", text) => self.delivery.prefix = Some(text.to_owned()),
            ("verbose", _) => self.levels.verbose = word(command::LevelSetting::Verbose)?,
            ("reasoning", _) => self.levels.reasoning = word(command::LevelSetting::Reasoning)?,
            _ => {
                return before.error(
                    "`timeout=`, `idle=`, `retries=`, `down=`, `turns=`, `calls=`, `repeats=`, `errors=`, `cost=`, `tools=sequential`, `slots=`, `queue=`, `history.channel=`, `reset=daily`, \
                     `agent=`, `api=`, `window=`, `sees=no`, `thinks=`, `fallback=`, `sums=`, `pruning=`, `style=`, `zone=`, \
                     `pictures=confined`, `thinking=`, `verbose=`, `reasoning=`, `blocks=yes`, `delay=natural`, `prefix=`, `channel`, `session`, `line`, `tool`, `file`, \
                     `link`, `picture` or `huge`",
                );
            }
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(before: &LineScanner<'_>, value: &str) -> Result<T, SyntaxMessage> {
    value.parse().or_else(|_| before.error("a number"))
}

fn levels(names: &str) -> Result<Vec<ReasoningLevel>, SyntaxMessage> {
    let level = |name| ReasoningLevel::parse(name).ok_or_else(|| format!("expected a thinking level, found `{name}`"));
    names.split_whitespace().map(level).collect()
}

/// Parses what is typed after `/queue`.
fn overrides(arguments: &str) -> Result<QueueOverrides, SyntaxMessage> {
    match command::parse(&format!("/queue {arguments}"), &Triggers::default()).command {
        Some(Command::Queue(QueueCommand::Set(overrides))) => Ok(overrides),
        _ => Err(format!("expected what is typed behind /queue, found `{arguments}`")),
    }
}

fn key(scan: &mut LineScanner<'_>) -> Result<SessionKey, SyntaxMessage> {
    SessionKey::parse(scan.word("a session key")?, &AgentId::main()).map_err(|error| error.to_string())
}

fn class(scan: &mut LineScanner<'_>) -> Result<ToolClass, SyntaxMessage> {
    let before = scan.clone();
    match scan.word("`read`, `idempotent` or `effect`")? {
        "read" => Ok(ToolClass::Read),
        "idempotent" => Ok(ToolClass::Idempotent),
        "effect" => Ok(ToolClass::Effect),
        _ => before.error("`read`, `idempotent` or `effect`"),
    }
}
