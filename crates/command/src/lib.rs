//! Chat commands: what a message asks of its session instead of a model. No I/O: a command is a value, and so are its
//! changes.
//!
//! Only the owner may give commands. From anyone else such a message is plain text, and a text that begins with a slash
//! and is not a command reaches the model unchanged.

pub mod approve;
pub mod context;
mod directive;
mod help;
pub mod levels;
mod new_transcript;
pub mod stop;

use homard_proto::{
    Extra,
    message::{Assistant, Block},
    session::RecordField,
};

use directive::QueueDirective;

pub use approve::ApproveCommand;
pub use context::ContextDetail;
pub use directive::{InlineQueue, QueueCommand};
pub use help::{CommandInfo, StatusInput, all_commands};
pub use levels::{DefaultLevels, LevelSetting};
pub use new_transcript::Triggers;
pub use stop::StopForm;

/// Names that are reserved for present or future commands, so that no skill may use them.
pub const RESERVED: &[&str] = &[
    "abort",
    "activation",
    "agents",
    "allowlist",
    "approve",
    "bash",
    "btw",
    "commands",
    "compact",
    "config",
    "context",
    "debug",
    "elevated",
    "exec",
    "export",
    "help",
    "kill",
    "mcp",
    "model",
    "models",
    "new",
    "plugins",
    "queue",
    "reason",
    "reasoning",
    "reset",
    "restart",
    "send",
    "session",
    "skill",
    "status",
    "steer",
    "stop",
    "subagents",
    "t",
    "think",
    "thinking",
    "tools",
    "tts",
    "usage",
    "v",
    "verbose",
    "whoami",
];

/// Principal whose commands are executed.
pub const OWNER: &str = "owner";

/// `api` of messages that Homard itself writes.
pub const OWN_API: &str = "homard";

/// Names of the built-in commands, without the slash. Other commands must not have one of them.
pub const NAMES: [&str; 21] = [
    "new",
    "reset",
    "stop",
    "queue",
    "think",
    "thinking",
    "t",
    "verbose",
    "v",
    "reasoning",
    "reason",
    "usage",
    "model",
    "compact",
    "context",
    "approve",
    "status",
    "help",
    "commands",
    "skill",
    "send",
];

/// A chat command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Starts a new transcript.
    NewTranscript {
        /// Reply, without a model.
        answer: &'static str,
    },
    /// Starts a new transcript with this first message.
    NewTranscriptWith(String),
    /// Stops the session's runs.
    Stop(StopForm),
    /// Shows or changes queue settings.
    Queue(QueueCommand),
    /// Changes a level, or shows it if the word is empty.
    Level(LevelSetting, String),
    /// Changes the model, or shows it if the name is empty.
    Model(String),
    /// Compacts the session. The text is what the summary should emphasize.
    Compact(Option<String>),
    /// Shows the context report.
    Context(ContextDetail),
    /// Decides an exec approval; `Err` is the usage text.
    Approve(Result<ApproveCommand, String>),
    /// A plugin's command: its name and arguments.
    Plugin(String, String),
    /// Shows the status of the session.
    Status,
    /// Lists the commands.
    Help,
}

/// Result of a command: changes to the session's record, and the reply.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandResult {
    /// Changed fields; empty for a command that only reads, or failed.
    pub fields: Vec<RecordField>,
    /// Reply, without a model.
    pub reply: String,
}

impl CommandResult {
    pub fn reply_only(reply: String) -> Self {
        Self { fields: Vec::new(), reply }
    }

    /// Returns the fields for a patch of the record.
    pub fn changes(&self) -> Extra {
        self.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone().unwrap_or_default())).collect()
    }
}

impl Command {
    /// Returns the name for hooks.
    pub fn name(&self) -> &str {
        match self {
            Self::NewTranscript { .. } | Self::NewTranscriptWith(_) => "new",
            Self::Stop(_) => "stop",
            Self::Queue(_) => "queue",
            Self::Level(LevelSetting::Thinking, _) => "think",
            Self::Level(LevelSetting::Verbose, _) => "verbose",
            Self::Level(LevelSetting::Reasoning, _) => "reasoning",
            Self::Level(LevelSetting::Usage, _) => "usage",
            Self::Model(_) => "model",
            Self::Compact(_) => "compact",
            Self::Context(_) => "context",
            Self::Approve(_) => "approve",
            Self::Plugin(name, _) => name,
            Self::Status => "status",
            Self::Help => "help",
        }
    }

    /// True if it needs `operator.admin`, because the equivalent method does: `sessions.reset`, `sessions.patch`,
    /// `sessions.compact`. The effect of a plugin's command is unknown. The thinking level can be set with `chat.send`.
    pub fn needs_admin(&self) -> bool {
        match self {
            Self::NewTranscript { .. } | Self::NewTranscriptWith(_) | Self::Compact(_) | Self::Plugin(..) => true,
            Self::Queue(command) => command.is_change(),
            Self::Level(LevelSetting::Thinking, _) => false,
            Self::Level(LevelSetting::Verbose | LevelSetting::Reasoning | LevelSetting::Usage, value)
            | Self::Model(value) => !value.trim().is_empty(),
            Self::Stop(_) | Self::Context(_) | Self::Approve(_) | Self::Status | Self::Help => false,
        }
    }

    /// Returns the fixed reply of a command that does not depend on the session.
    pub fn fixed_reply(&self) -> Option<&'static str> {
        match self {
            Self::NewTranscript { answer } => Some(answer),
            Self::NewTranscriptWith(_)
            | Self::Stop(_)
            | Self::Queue(_)
            | Self::Level(..)
            | Self::Model(_)
            | Self::Compact(_)
            | Self::Context(_)
            | Self::Approve(_)
            | Self::Plugin(..)
            | Self::Status
            | Self::Help => None,
        }
    }

    /// Returns the changes and the reply; `None` for commands that need more than a new record: a new transcript, a
    /// stop, or access to the store or the approvals.
    pub fn change(&self, input: &StatusInput<'_>) -> Option<CommandResult> {
        match self {
            Self::NewTranscript { .. }
            | Self::NewTranscriptWith(_)
            | Self::Stop(_)
            | Self::Compact(_)
            | Self::Context(_)
            | Self::Plugin(..)
            | Self::Approve(_) => None,
            Self::Queue(command) => Some(command.change(input)),
            Self::Level(level, value) => Some(level.change(value, input)),
            Self::Model(name) => Some(levels::change_model(name, input)),
            Self::Status => Some(CommandResult::reply_only(help::status(input))),
            Self::Help => Some(CommandResult::reply_only(help::help(input.triggers))),
        }
    }
}

/// A parsed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedMessage {
    /// The command, if the message is one.
    pub command: Option<Command>,
    /// Queue settings for this message, from a `/queue` within its text.
    pub inline: InlineQueue,
    /// Text for the model: the whole message, byte for byte, unless a command or directive was found in it. A bare stop
    /// word is kept, too, for a session without an active run.
    pub text: String,
}

/// Parses a message of the owner: a command, or text for the model, which may contain queue settings.
pub fn parse(text: &str, triggers: &Triggers) -> ParsedMessage {
    let (command, inline, text) = match parse_command(text, triggers) {
        Some(command) => {
            let remaining = match &command {
                Command::NewTranscriptWith(rest) => rest.clone(),
                // Without an active run, a bare stop word is an ordinary message.
                Command::Stop(StopForm::Word) => text.to_owned(),
                Command::NewTranscript { .. }
                | Command::Stop(StopForm::Slash)
                | Command::Queue(_)
                | Command::Level(..)
                | Command::Model(_)
                | Command::Compact(_)
                | Command::Context(_)
                | Command::Approve(_)
                | Command::Plugin(..)
                | Command::Status
                | Command::Help => String::new(),
            };
            (Some(command), InlineQueue::Nothing, remaining)
        }
        None => match directive::find(text) {
            Some(QueueDirective::Alone(queue_command)) => {
                (Some(Command::Queue(queue_command)), InlineQueue::Nothing, String::new())
            }
            Some(QueueDirective::Within(inline, rest)) => (None, inline, rest),
            None => (None, InlineQueue::Nothing, text.to_owned()),
        },
    };
    ParsedMessage { command, inline, text }
}

/// Parses a message that consists of a command only.
fn parse_command(text: &str, triggers: &Triggers) -> Option<Command> {
    if let Some(stop) = StopForm::parse(text) {
        return Some(Command::Stop(stop));
    }
    if let Some(command) = triggers.parse(text) {
        return Some(command);
    }
    if let Some((level, value)) = LevelSetting::parse(text) {
        return Some(Command::Level(level, value.to_owned()));
    }
    let text = text.trim();
    if let Some(name) = command_arguments(text, "/model") {
        return Some(Command::Model(name.trim().to_owned()));
    }
    if let Some(focus) = command_arguments(text, "/compact") {
        return Some(Command::Compact(Some(focus.trim().to_owned()).filter(|focus| !focus.is_empty())));
    }
    if let Some(detail) = command_arguments(text, "/context").and_then(ContextDetail::parse) {
        return Some(Command::Context(detail));
    }
    if let Some(approve) = ApproveCommand::parse(text) {
        return Some(Command::Approve(approve));
    }
    let is_alone = |name: &str| command_arguments(text, name) == Some("");
    if is_alone("/status") {
        return Some(Command::Status);
    }
    (is_alone("/help") || is_alone("/commands")).then_some(Command::Help)
}

/// Returns the text after a command name, which must be followed by the end, whitespace or a colon.
fn command_arguments<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = strip_word(text, name)?;
    let is_name = rest.is_empty() || rest.starts_with(':') || rest.starts_with(char::is_whitespace);
    is_name.then(|| rest.trim_start().strip_prefix(':').unwrap_or(rest))
}

/// Returns the text after a lower-case word, which is matched in any case.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (mut rest, mut expected) = (text.chars(), word.chars().peekable());
    while expected.peek().is_some() {
        for c in rest.next()?.to_lowercase() {
            if expected.next() != Some(c) {
                return None;
            }
        }
    }
    Some(rest.as_str())
}

/// Maximum characters of user text quoted in a reply.
const MAX_QUOTED: usize = 40;

/// Quotes user text in a reply: one line, limited length.
fn quoted(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("\"{}…\"", text[..end].trim_end()),
        None => format!("\"{text}\""),
    }
}

/// Builds an assistant message that Homard itself writes: no model, no cost.
pub fn homard_message(text: &str, timestamp: u64) -> Assistant {
    Assistant {
        content: vec![Block::text(text)],
        api: OWN_API.to_owned(),
        provider: "homard".to_owned(),
        model: "command".to_owned(),
        timestamp,
        ..Assistant::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use homard_proto::{RunId, SessionKey, session::Record};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use homard_queue::settings::{DropPolicy, QueueMode, QueueOverrides, QueueSettings};

    /// A session to run commands in.
    pub(super) struct TestSession {
        pub(super) key: SessionKey,
        pub(super) record: Record,
        pub(super) run: RunId,
        pub(super) is_busy: bool,
        pub(super) models: Vec<String>,
        pub(super) triggers: Triggers,
    }

    impl TestSession {
        pub(super) fn new(mut record: Value) -> Self {
            record["sessionId"] = "s-1".into();
            Self {
                key: SessionKey::parse("agent:main:main", &homard_proto::AgentId::normalize("main")).unwrap(),
                record: serde_json::from_value(record).unwrap(),
                run: RunId::parse("run-1").unwrap(),
                is_busy: false,
                models: Vec::new(),
                triggers: Triggers::default(),
            }
        }

        pub(super) fn status_input(&self) -> StatusInput<'_> {
            StatusInput {
                version: "1.2.3",
                model: "anthropic/opus",
                models: &self.models,
                key: &self.key,
                record: &self.record,
                tokens: self.record.total_tokens,
                shortened: None,
                queue: QueueSettings::default(),
                queued: if self.is_busy { 2 } else { 0 },
                active_run: self.is_busy.then_some((&self.run, Duration::from_secs(65))),
                triggers: &self.triggers,
                levels: DefaultLevels::default(),
                has_xhigh: true,
            }
        }

        /// Returns the changes and the reply of a text.
        pub(super) fn execute(&self, text: &str) -> (Value, String) {
            let command = parse(text, &self.triggers).command.unwrap();
            let change = command.change(&self.status_input()).unwrap();
            (change.changes().into(), change.reply)
        }
    }

    fn parse_text(text: &str) -> ParsedMessage {
        parse(text, &Triggers::default())
    }

    fn command(command: Command, text: &str) -> ParsedMessage {
        ParsedMessage { command: Some(command), inline: InlineQueue::Nothing, text: text.to_owned() }
    }

    fn untouched(text: &str) -> ParsedMessage {
        ParsedMessage { command: None, inline: InlineQueue::Nothing, text: text.to_owned() }
    }

    #[test]
    fn commands_of_every_family_are_parsed() {
        for (text, expected) in [
            ("/new", Command::NewTranscript { answer: "New session started." }),
            (" /Stop ", Command::Stop(StopForm::Slash)),
            ("/queue", Command::Queue(QueueCommand::Show)),
            ("/think: high", Command::Level(LevelSetting::Thinking, "high".to_owned())),
            ("/v", Command::Level(LevelSetting::Verbose, String::new())),
            ("/model a/b", Command::Model("a/b".to_owned())),
            ("/MODEL", Command::Model(String::new())),
            (
                "/approve a-1 deny",
                Command::Approve(Ok(ApproveCommand {
                    id: "a-1".to_owned(),
                    verdict: homard_approvals::ApprovalDecision::Deny,
                })),
            ),
            ("/status", Command::Status),
            ("/help", Command::Help),
            ("/Commands ", Command::Help),
        ] {
            assert_eq!(parse_text(text), command(expected, ""), "{text:?}");
        }
    }

    #[test]
    fn text_after_a_command_goes_to_the_model() {
        assert_eq!(parse_text("/new  Hi  /t"), command(Command::NewTranscriptWith("Hi  /t".to_owned()), "Hi  /t"));
        assert_eq!(parse_text(" wait "), command(Command::Stop(StopForm::Word), " wait "));
    }

    #[test]
    fn other_text_reaches_the_model_unchanged() {
        for text in [
            "/deploy now",
            "  /deploy\tnow \n",
            "/help me",
            "/status of the build?",
            "/stop it",
            "/tmp/x is full",
            "/v1/models",
            "/models",
            "/thinker",
            "say /think high",
            "what does /queue do?",
            "",
        ] {
            assert_eq!(parse_text(text), untouched(text));
        }
    }

    #[test]
    fn a_change_is_a_patch_in_which_null_clears() {
        let change = CommandResult { fields: vec![("a", Some(1.into())), ("b", None)], reply: String::new() };
        assert_eq!(Value::from(change.changes()), json!({"a": 1, "b": null}));
    }

    #[test]
    fn quoted_user_text_is_short_and_on_one_line() {
        assert_eq!(quoted("a \n b"), "\"a b\"");
        assert_eq!(quoted(&"é".repeat(40)), format!("\"{}\"", "é".repeat(40)));
        assert_eq!(quoted(&"é".repeat(41)), format!("\"{}…\"", "é".repeat(40)));
    }

    #[test]
    fn inline_queue_settings_override_the_session() {
        let session =
            QueueOverrides { mode: Some(QueueMode::Collect), drop: Some(DropPolicy::New), ..QueueOverrides::default() };
        let config = QueueOverrides { cap: Some(3), ..QueueOverrides::default() };
        let settings =
            |text| parse_text(text).inline.settings(&session, &QueueOverrides::default(), &config).to_string();
        assert_eq!(settings("hello"), "collect debounce:500ms cap:3 drop:new");
        assert_eq!(settings("hello /queue abort cap=7"), "interrupt debounce:500ms cap:7 drop:new");
        assert_eq!(settings("/queue reset hello"), "steer debounce:500ms cap:3 drop:summarize");
    }

    /// Texts that look a lot like commands.
    fn near_commands() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            proptest::sample::select(vec![
                "/queue",
                "/QUEUE:",
                "/think",
                "/t",
                "/model",
                "/new",
                "/stop",
                "stop",
                "collect",
                "abort",
                "reset",
                "cap:0",
                "cap=2",
                "debounce:1e9",
                "debounce:2S",
                "drop:",
                " ",
                "\n",
                "  ",
                ":",
                "/",
                "é",
                "K",
            ])
            .prop_map(str::to_owned),
            "\\PC{0,4}",
        ];
        proptest::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn only_directives_are_removed_from_a_text(text in near_commands()) {
            let parsed = parse_text(&text);
            let mut words = text.split_whitespace();
            prop_assert!(parsed.text.split_whitespace().all(|word| words.any(|other| other == word)), "{parsed:?}");
            if parsed.command.is_none() && parsed.inline == InlineQueue::Nothing {
                prop_assert_eq!(parsed.text, text);
            }
        }

        #[test]
        fn a_text_without_a_slash_is_unchanged(text in "[^/]*") {
            let parsed = parse_text(&text);
            prop_assert_eq!(&parsed.text, &text);
            prop_assert_eq!(parsed.command, StopForm::parse(&text).map(Command::Stop));
        }
    }
}
