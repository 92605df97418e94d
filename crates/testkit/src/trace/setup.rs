//! Parser for `set` lines: the initial state.

use std::{collections::BTreeMap, time::Duration};

use homard_agent::{
    Bounds, ChannelLimits, HistoryLimits, Pruning, Setting, ToolMode,
    command::{self, Command, Order, Triggers, queue::Overrides},
    courier::Manner,
    delivery::Delivery,
    freshness::{Freshness, Mode, Rule},
    hub::QueueRules,
    setting::{Pictures, Style},
    tool::Toolbox,
};
use homard_model::{Level, Spec};
use homard_proto::{AgentId, SessionKey, session, transcript::Entry};
use homard_reply::pace::Delay;
use homard_store::ToolClass;
use jiff::tz::TimeZone;

use super::scan::{Scanner, Wrong};
use crate::{
    folder::Contents,
    script,
    tools::{Definition, usual},
};

/// Initial state of a trace.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Time limit of a run.
    pub timeout: Duration,
    /// Limits of a run.
    pub bounds: Bounds,
    /// Maximum number of retries of a model request.
    pub retries: u32,
    /// Time between the end of a process and its restart.
    pub down: Duration,
    /// How the tool calls of one message are executed.
    pub tool_mode: ToolMode,
    /// Number of concurrency slots.
    pub slots: usize,
    /// Queue rules.
    pub queue: QueueRules,
    /// Limits on the history shown to the model.
    pub history: HistoryLimits,
    /// True if sessions get a new transcript every day.
    pub is_reset_daily: bool,
    /// Agents besides `main`.
    pub agents: Vec<AgentId>,
    /// Tools of every agent.
    pub tools: Vec<Definition>,
    /// Real tools instead of those.
    pub toolbox: Option<Toolbox>,
    /// Existing sessions.
    pub sessions: Vec<(SessionKey, session::Record)>,
    /// Entries of their transcripts.
    pub lines: Vec<(SessionKey, Entry)>,
    /// The model that reads the script.
    pub model: Spec,
    /// Fallback models.
    pub fallbacks: Vec<Spec>,
    /// Name of the compaction model; `None` means the run's model.
    pub sums: Option<String>,
    /// Pruning of old tool results.
    pub pruning: Option<Pruning>,
    /// Files of the workspace that all agents share. If empty there is no workspace, unless `setting` names one.
    pub files: Vec<(String, Contents)>,
    /// Other inputs of prompts.
    pub setting: Setting,
    /// Default reasoning level.
    pub thinking: Option<Level>,
    /// Default verbosity of tool output.
    pub verbose: Option<&'static str>,
    /// Default visibility of reasoning.
    pub reasoning: Option<&'static str>,
    /// Channels and their properties.
    pub channels: BTreeMap<String, Manner>,
    /// Delivery settings.
    pub delivery: Delivery,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(600),
            bounds: Bounds::default(),
            retries: 0,
            down: Duration::ZERO,
            tool_mode: ToolMode::default(),
            slots: 4,
            queue: QueueRules::default(),
            history: HistoryLimits::default(),
            is_reset_daily: false,
            agents: Vec::new(),
            tools: usual(),
            toolbox: None,
            sessions: Vec::new(),
            lines: Vec::new(),
            model: script::usual(),
            fallbacks: Vec::new(),
            sums: None,
            pruning: None,
            files: Vec::new(),
            setting: Setting { pictures: Some(Pictures::default()), ..Setting::default() },
            thinking: None,
            verbose: None,
            reasoning: None,
            channels: BTreeMap::new(),
            delivery: Delivery::default(),
        }
    }
}

impl Setup {
    /// Returns the rules for automatic resets.
    pub(crate) fn freshness(&self) -> Freshness {
        let daily = Rule { mode: Some(Mode::Daily), ..Rule::default() };
        Freshness { all: self.is_reset_daily.then_some(daily), ..Freshness::default() }
    }

    /// Parses what follows `set`.
    pub(super) fn read(&mut self, scan: &mut Scanner<'_>) -> Result<(), Wrong> {
        match scan.peek() {
            "channel" => scan.word("").and_then(|_| self.channel(scan)),
            "session" | "line" | "tool" | "file" | "link" | "picture" | "huge" => {
                self.thing(scan)?;
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
    fn channel(&mut self, scan: &mut Scanner<'_>) -> Result<(), Wrong> {
        let name = scan.word("the channel's name")?.to_owned();
        let mut manner = Manner::default();
        while !scan.is_empty() {
            let before = scan.clone();
            let (name, value) = scan.setting()?;
            match (name, value.as_str()) {
                ("limit", _) => manner.text_limit = Some(number(&before, &value)?),
                ("idempotent", "yes") => manner.is_idempotent = true,
                ("blocks", "yes") => manner.takes_blocks = Some(true),
                ("blocks", "no") => manner.takes_blocks = Some(false),
                ("tags", "yes") => manner.allows_tags = true,
                ("threads", "reply") => manner.threads_by_reply = true,
                ("to", _) => manner.usual_to = Some(value),
                ("replies", word) => match homard_reply::thread::Mode::parse(word) {
                    Some(mode) => manner.replies = mode,
                    None => return before.wrong("`off`, `first` or `all`"),
                },
                _ => {
                    return before.wrong(
                        "`limit=`, `idempotent=yes`, `blocks=`, `replies=`, `tags=yes`, `threads=reply` or `to=`",
                    );
                }
            }
        }
        self.channels.insert(name, manner);
        Ok(())
    }

    /// Parses an item: a session, transcript entry, tool or file.
    fn thing(&mut self, scan: &mut Scanner<'_>) -> Result<(), Wrong> {
        match scan.word("")? {
            "session" => {
                let key = key(scan)?;
                let record = serde_json::from_value(scan.json()?);
                self.sessions.push((key, record.map_err(|error| format!("expected a session's record: {error}"))?));
            }
            "line" => {
                let key = key(scan)?;
                let line = serde_json::from_value(scan.json()?);
                self.lines.push((key, line.map_err(|error| format!("expected a line of a transcript: {error}"))?));
            }
            "tool" => {
                let name = scan.word("the tool's name")?.to_owned();
                let class = class(scan)?;
                self.tools.push(Definition { name, class, parameters: scan.json()? });
            }
            kind => {
                let name = scan.quoted()?;
                let contents = match kind {
                    "file" => Contents::Text(scan.quoted()?),
                    "link" => Contents::Link(scan.quoted()?.into()),
                    "picture" => Contents::Picture,
                    _ => Contents::Huge,
                };
                self.files.push((name, contents));
            }
        }
        Ok(())
    }

    fn setting(&mut self, scan: &mut Scanner<'_>) -> Result<(), Wrong> {
        let before = scan.clone();
        let (name, value) = scan.setting()?;
        match (name, value.as_str()) {
            ("timeout", _) => self.timeout = Scanner::new(&value).time()?,
            ("idle", _) => self.model.idle = Scanner::new(&value).time()?,
            ("turns", _) => self.bounds.turns = number(&before, &value)?,
            ("calls", _) => self.bounds.calls = number(&before, &value)?,
            ("repeats", _) => self.bounds.repeats = number(&before, &value)?,
            ("errors", _) => self.bounds.errors = number(&before, &value)?,
            ("cost", _) => self.bounds.cost = Some(number(&before, &value)?),
            ("retries", _) => self.retries = number(&before, &value)?,
            ("down", _) => self.down = Scanner::new(&value).time()?,
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
            ("api", _) => self.model.api = value,
            ("provider", _) => self.model.provider = value,
            ("window", _) => self.model.context_window = number(&before, &value)?,
            ("sees", "no") => self.model.sees = false,
            ("thinks", _) => self.model.thinking = levels(&value)?,
            ("fallback", _) => {
                let context_window = number(&before, &value)?;
                let model = format!("script-{}", self.fallbacks.len() + 2);
                self.fallbacks.push(Spec { model, context_window, ..script::usual() });
            }
            ("sums", _) => self.sums = Some(value),
            ("pruning", _) => {
                let ttl = u64::try_from(Scanner::new(&value).time()?.as_millis()).unwrap_or(u64::MAX);
                self.pruning = Some(Pruning { ttl, ..Pruning::default() });
            }
            _ => return self.prompting(&before, name, &value),
        }
        Ok(())
    }

    /// Parses a setting of prompts and models.
    fn prompting(&mut self, before: &Scanner<'_>, name: &str, value: &str) -> Result<(), Wrong> {
        let word = |level: command::Level| match level.level(value) {
            Some(word) => Ok(Some(word)),
            None => before.wrong("a level"),
        };
        match (name, value) {
            ("style", "rich") => self.setting.style = Style::Rich,
            ("style", "lean") => self.setting.style = Style::Lean,
            ("style", "bare") => self.setting.style = Style::Bare,
            ("zone", name) => {
                self.setting.zone =
                    Some(TimeZone::get(name).map_err(|error| format!("expected a time zone: {error}"))?);
            }
            ("pictures", "confined") => self.setting.pictures = Some(Pictures { home: None, is_confined: true }),
            ("thinking", _) => self.thinking = Some(levels(value)?.first().copied().unwrap_or_default()),
            ("blocks", "yes") => self.delivery.sends_blocks = true,
            ("delay", "natural") => self.delivery.delay = Delay::Natural,
            ("prefix", text) => self.delivery.prefix = Some(text.to_owned()),
            ("verbose", _) => self.verbose = word(command::Level::Verbose)?,
            ("reasoning", _) => self.reasoning = word(command::Level::Reasoning)?,
            _ => {
                return before.wrong(
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

fn number<T: std::str::FromStr>(before: &Scanner<'_>, value: &str) -> Result<T, Wrong> {
    value.parse().or_else(|_| before.wrong("a number"))
}

fn levels(words: &str) -> Result<Vec<Level>, Wrong> {
    let level = |word| Level::parse(word).ok_or_else(|| format!("expected a thinking level, found `{word}`"));
    words.split_whitespace().map(level).collect()
}

/// Parses what is typed after `/queue`.
fn overrides(words: &str) -> Result<Overrides, Wrong> {
    match command::parse(&format!("/queue {words}"), &Triggers::default()).command {
        Some(Command::Queue(Order::Set(overrides))) => Ok(overrides),
        _ => Err(format!("expected what is typed behind /queue, found `{words}`")),
    }
}

fn key(scan: &mut Scanner<'_>) -> Result<SessionKey, Wrong> {
    SessionKey::parse(scan.word("a session key")?, &AgentId::main()).map_err(|error| error.to_string())
}

fn class(scan: &mut Scanner<'_>) -> Result<ToolClass, Wrong> {
    let before = scan.clone();
    match scan.word("`read`, `idempotent` or `effect`")? {
        "read" => Ok(ToolClass::Read),
        "idempotent" => Ok(ToolClass::Idempotent),
        "effect" => Ok(ToolClass::Effect),
        _ => before.wrong("`read`, `idempotent` or `effect`"),
    }
}
