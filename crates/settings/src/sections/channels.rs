//! `channels`: chat platforms, and who may write to agents there.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use homard_channels::access::{DmPolicy, GroupPolicy};
use homard_reply::thread::ThreadMode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

use super::word::{FixedValues, Word};
use crate::Text;

pub use homard_proto::identity::DEFAULT_ACCOUNT;

/// Keys of an account's credentials.
const CREDENTIALS: [&str; 4] = ["botToken", "token", "tokenFile", "secret"];

/// Defines the two places for account settings: the channel itself, and each of its accounts.
macro_rules! accounts {
    ($($(#[$meta:meta])+ $field:ident: $type:ty,)+) => {
        /// Settings of a channel. They apply to all of its accounts.
        #[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
        #[serde(default, rename_all = "camelCase")]
        pub struct Channel {
            /// Maximum number of the user's turns of a direct chat in the context; 0 for all. Default: 0.
            pub dm_history_limit: Option<usize>,
            /// Direct chats by the peer's id.
            #[serde(deserialize_with = "super::named_objects")]
            pub dms: BTreeMap<String, Chat>,
            /// Accounts by name, if there are several.
            #[serde(deserialize_with = "super::named_objects")]
            pub accounts: BTreeMap<String, Account>,
            $($(#[$meta])+ pub $field: Option<$type>,)+
            /// Keys that reference an environment variable which is not set, with the error.
            #[serde(skip)]
            pub faults: Vec<(String, String)>,
        }

        /// Settings of an account. Unset keys are taken from the channel.
        #[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
        #[serde(default, rename_all = "camelCase")]
        pub struct Account {
            $($(#[$meta])+ pub $field: Option<$type>,)+
            /// Error that makes the account unusable, if it references an environment variable which is not set.
            #[serde(skip)]
            pub fault: Option<String>,
        }

        impl Channel {
            /// Returns an account completed with the channel's settings.
            fn filled(&self, own: &Account) -> Account {
                let fault = own.fault.clone().or_else(|| self.inherited_fault(own));
                Account { $($field: own.$field.clone().or_else(|| self.$field.clone()),)+ fault }
            }
        }
    };
}

accounts! {
    /// Enable this channel or account. Default: true.
    enabled: bool,
    /// Display name.
    name: String,
    /// Telegram: bot token. Default: the variable TELEGRAM_BOT_TOKEN, for the only account.
    bot_token: Text,
    /// Discord: bot token. Default: the variable DISCORD_BOT_TOKEN, for the only account.
    token: Text,
    /// Path of a file that contains the bot token.
    token_file: Text,
    /// Base URL of the platform's API, if it is not the usual one: Telegram's Bot API server, or Discord's API.
    api_root: String,
    /// Telegram: public URL to which Telegram pushes updates. If not set, updates are polled.
    webhook_url: String,
    /// Telegram: secret that Telegram sends with each update: 16 to 256 letters, digits, `_` and `-`.
    webhook_secret: Text,
    /// Telegram: show a preview of links in messages. Default: true.
    link_preview: bool,
    /// Discord: hide the previews of links in messages. Default: false.
    suppress_embeds: bool,
    /// Discord: servers whose messages are read, by id; `*` for all others.
    guilds: BTreeMap<String, Guild>,
    /// Discord: direct messages, in the form of older versions.
    dm: DirectMessages,
    /// Discord: maximum number of lines in a message; a longer text is split. Default: 17.
    max_lines_per_message: usize,
    /// Discord: slash commands.
    commands: ChannelCommands,
    /// Discord: how slash commands are acknowledged.
    slash_command: SlashCommand,
    /// Webhook: shared secret for the signatures of both sides, 16 characters or more.
    secret: Text,
    /// Webhook: URL to which replies are sent. If not set, the peer can only send messages.
    url: Text,
    /// Who may send direct messages: pairing, allowlist, open or disabled. Default: pairing.
    dm_policy: Word<DmPolicy>,
    /// Sender ids that may write, never names; `*` for everyone.
    allow_from: Vec<Id>,
    /// Who may write in groups: allowlist, open or disabled. Default: allowlist.
    group_policy: Word<GroupPolicy>,
    /// Sender ids that may write in groups. Default: the value of `allowFrom`.
    group_allow_from: Vec<Id>,
    /// Groups whose messages are read, by id; `*` for all others.
    groups: BTreeMap<String, Group>,
    /// Maximum number of earlier group messages, not addressed to the agent, that are passed on together with a message
    /// that is addressed to it. Default: 50.
    history_limit: usize,
    /// Which messages of a reply quote the message that they answer: off for none, first or all. Default: off.
    reply_to_mode: Word<ThreadMode>,
    /// Maximum number of characters per outgoing message.
    text_chunk_limit: usize,
    /// Send replies in blocks while they are generated. Default: the agent's setting.
    block_streaming: bool,
    /// Show a reply while it is generated, in one message that is edited: off, partial for each new piece of text, block for steps of at least 200 characters. Default: off.
    streaming: Streaming,
    /// Older name of `streaming`.
    stream_mode: Streaming,
    /// Which reactions of people are reported to the agent with the next message: off, own for reactions to its messages, all. Default: own.
    reaction_notifications: Word<Reactions>,
    /// Maximum size of a received file in megabytes. Default: 5.
    media_max_mb: f64,
    /// Recipient of messages that name none.
    default_to: String,
}

/// Which reactions the agent sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reactions {
    Off,
    /// Reactions to the agent's own messages.
    Own,
    All,
}

super::word::words! {
    Reactions: "off" => Self::Off, "own" => Self::Own, "all" => Self::All;
}

/// How a message is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamingMode {
    /// By words.
    Words,
    /// By sentences or lines.
    Blocks,
}

/// How a reply is streamed, if it is: a word, a boolean, or an object with a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streaming(pub Option<StreamingMode>);

impl Streaming {
    const WORDS: [&'static str; 3] = ["off", "partial", "block"];

    fn parse(word: &str) -> Option<Self> {
        match word.trim() {
            "off" => Some(Self(None)),
            // `progress` also shows tools in OpenClaw, which is unsupported here.
            "partial" | "progress" => Some(Self(Some(StreamingMode::Words))),
            "block" => Some(Self(Some(StreamingMode::Blocks))),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Streaming {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Streaming;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "one of {}", Streaming::WORDS.join(", "))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Streaming, E> {
                Streaming::parse(word).ok_or_else(|| E::invalid_value(de::Unexpected::Str(word), &self))
            }

            fn visit_bool<E: de::Error>(self, is_enabled: bool) -> Result<Streaming, E> {
                Ok(Streaming(is_enabled.then_some(StreamingMode::Words)))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Streaming, A::Error> {
                let mut streaming = Streaming(None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "mode" => streaming = map.next_value()?,
                        _ => drop(map.next_value::<de::IgnoredAny>()?),
                    }
                }
                Ok(streaming)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl JsonSchema for Streaming {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Streaming".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let description = "One of off, partial and block; true is partial, false is off.";
        let mode = json_schema!({"type": ["string", "boolean"], "description": description});
        json_schema!({"type": ["string", "boolean", "object"], "properties": {"mode": mode}})
    }
}

impl Account {
    /// Returns who may send direct messages.
    pub fn direct_policy(&self) -> DmPolicy {
        let older = self.dm.as_ref();
        if older.and_then(|older| older.enabled) == Some(false) {
            return DmPolicy::Disabled;
        }
        self.dm_policy.or_else(|| older?.policy).map(|word| word.0).unwrap_or_default()
    }

    /// Returns the senders that may write direct messages.
    pub fn direct_senders(&self) -> Option<&Vec<Id>> {
        self.allow_from.as_ref().or_else(|| self.dm.as_ref()?.allow_from.as_ref())
    }

    /// Returns how replies are streamed, if they are.
    pub fn streaming_mode(&self) -> Option<StreamingMode> {
        self.streaming.or(self.stream_mode).and_then(|streaming| streaming.0)
    }
}

/// Settings of a direct chat.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Chat {
    /// Maximum number of the user's turns in the context; 0 for all.
    pub history_limit: Option<usize>,
}

/// Settings of a group.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Group {
    /// Read messages of this group. Default: true.
    pub enabled: Option<bool>,
    /// Only respond to messages that are addressed to the agent. Default: true.
    pub require_mention: Option<bool>,
    /// Sender ids that may write in this group.
    pub allow_from: Option<Vec<Id>>,
    /// Topics by id.
    #[serde(deserialize_with = "super::named_objects")]
    pub topics: BTreeMap<String, Topic>,
}

/// Settings of a Discord server.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Guild {
    /// Only respond to messages that are addressed to the agent. Default: true.
    pub require_mention: Option<bool>,
    /// Do not respond to messages that mention only others. Default: false.
    pub ignore_other_mentions: Option<bool>,
    /// User ids that may write on this server. Default: all members, unless `roles` is set.
    pub users: Option<Vec<Id>>,
    /// Ids of roles whose members may write on this server.
    pub roles: Option<Vec<Id>>,
    /// Channels whose messages are read, by id; `*` for all others. Default: all channels.
    #[serde(deserialize_with = "super::named_objects")]
    pub channels: BTreeMap<String, GuildChannel>,
}

/// Settings of a channel of a Discord server, and of its threads. Unset keys are taken from the server.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GuildChannel {
    /// Read messages of this channel. Default: true.
    pub enabled: Option<bool>,
    /// Older name of `enabled`.
    pub allow: Option<bool>,
    /// Only respond to messages that are addressed to the agent.
    pub require_mention: Option<bool>,
    /// Do not respond to messages that mention only others.
    pub ignore_other_mentions: Option<bool>,
    /// User ids that may write in this channel.
    pub users: Option<Vec<Id>>,
    /// Ids of roles whose members may write in this channel.
    pub roles: Option<Vec<Id>>,
}

/// Direct messages, as older versions configured them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DirectMessages {
    /// Read direct messages. Default: true.
    pub enabled: Option<bool>,
    /// Older name of `dmPolicy`.
    pub policy: Option<Word<DmPolicy>>,
    /// Older name of `allowFrom`.
    pub allow_from: Option<Vec<Id>>,
}

/// Commands that the platform offers while a user types.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ChannelCommands {
    /// Register the commands with the platform. Default: true.
    pub native: Option<Switch>,
}

/// Acknowledgements of slash commands.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SlashCommand {
    /// Only the user who invoked the command sees the acknowledgement. Default: true.
    pub ephemeral: Option<bool>,
}

/// A boolean, or `auto` for the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch(pub Option<bool>);

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Switch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or auto")
            }

            fn visit_bool<E: de::Error>(self, is_enabled: bool) -> Result<Switch, E> {
                Ok(Switch(Some(is_enabled)))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Switch, E> {
                match word.trim() {
                    "auto" => Ok(Switch(None)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Switch {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Switch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["boolean", "string"], "description": "true, false or auto."})
    }
}

/// Settings of a topic in a group. Unset keys are taken from the group.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Topic {
    /// Read messages of this topic.
    pub enabled: Option<bool>,
    /// Only respond to messages that are addressed to the agent.
    pub require_mention: Option<bool>,
    /// Sender ids that may write in this topic.
    pub allow_from: Option<Vec<Id>>,
}

impl Channel {
    /// Returns the accounts, each completed with the channel's settings.
    ///
    /// A channel without named accounts has a default one, and so has a channel with a credential of its own beside its
    /// named accounts.
    pub fn resolved_accounts(&self) -> BTreeMap<String, Account> {
        let named = self.accounts.iter().map(|(name, account)| (name.trim().to_lowercase(), self.filled(account)));
        let mut accounts: BTreeMap<String, Account> = named.collect();
        let has_own = [&self.bot_token, &self.token, &self.token_file, &self.secret].iter().any(|text| text.is_some());
        let has_broken_credential = self.faults.iter().any(|(key, _)| CREDENTIALS.contains(&key.as_str()));
        if accounts.is_empty() || has_own || has_broken_credential {
            accounts.entry(DEFAULT_ACCOUNT.to_owned()).or_insert_with(|| self.filled(&Account::default()));
        }
        accounts
    }

    /// Returns why an account cannot be used because of a fault in the channel's settings. An account with its own
    /// credential does not need the channel's.
    fn inherited_fault(&self, own: &Account) -> Option<String> {
        let has_own = [&own.bot_token, &own.token, &own.token_file, &own.secret].iter().any(|text| text.is_some());
        let counts = |(key, _): &&(String, String)| !has_own || !CREDENTIALS.contains(&key.as_str());
        self.faults.iter().find(counts).map(|(_, why)| why.clone())
    }
}

/// Sender or chat id: a string, or a number as on some platforms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(pub String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: a text or a whole number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                Ok(Id(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Id, E> {
                Ok(Id(number.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
                Ok(Id(number.to_string()))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Id {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"]})
    }
}

impl FixedValues for DmPolicy {
    const WORDS: &'static [&'static str] = &["pairing", "allowlist", "open", "disabled"];

    fn parse(word: &str) -> Option<Self> {
        Self::parse(word)
    }
}

impl FixedValues for GroupPolicy {
    const WORDS: &'static [&'static str] = &["allowlist", "open", "disabled"];

    fn parse(word: &str) -> Option<Self> {
        Self::parse(word)
    }
}

impl FixedValues for ThreadMode {
    const WORDS: &'static [&'static str] = &["off", "first", "all"];

    fn parse(word: &str) -> Option<Self> {
        // `batched` of OpenClaw quotes the first message of a batch.
        if word.trim() == "batched" { Some(Self::First) } else { Self::parse(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn channel(text: &str) -> Channel {
        let config = Config::parse(&format!("{{channels: {{telegram: {text}}}}}")).unwrap();
        config.channels["telegram"].clone()
    }

    #[test]
    fn an_account_inherits_the_settings_of_its_channel() {
        let section =
            channel("{dmPolicy: 'open', allowFrom: ['*'], accounts: {Work: {botToken: 't', allowFrom: [7, 'tg:8']}}}");
        let accounts = section.resolved_accounts();
        assert_eq!(accounts.keys().collect::<Vec<_>>(), ["work"]);
        let work = &accounts["work"];
        assert_eq!(work.dm_policy, Some(Word(DmPolicy::Open)));
        assert_eq!(work.allow_from, Some(vec![Id("7".to_owned()), Id("tg:8".to_owned())]));
    }

    #[test]
    fn a_channel_with_a_token_of_its_own_is_an_account_too() {
        let names = |text| channel(text).resolved_accounts().into_keys().collect::<Vec<_>>();
        assert_eq!(names("{}"), ["default"]);
        assert_eq!(names("{botToken: 'a', accounts: {b: {botToken: 'b'}}}"), ["b", "default"]);
        assert_eq!(names("{accounts: {b: {botToken: 'b'}, c: {}}}"), ["b", "c"]);
    }

    #[test]
    fn the_keys_of_discord_are_read_in_their_present_and_older_form() {
        let text = "{token: 't', guilds: {'1': {users: [7], roles: ['8'], channels: {'2': {allow: false}, '3': {}}}},
            dm: {policy: 'allowlist', allowFrom: ['9']}, replyToMode: 'batched', commands: {native: 'auto'}}";
        let account = channel(text).resolved_accounts().remove("default").unwrap();
        assert_eq!(account.direct_policy(), DmPolicy::Allowlist);
        assert_eq!(account.direct_senders(), Some(&vec![Id("9".to_owned())]));
        assert_eq!(account.reply_to_mode, Some(Word(ThreadMode::First)));
        assert_eq!(account.commands.unwrap().native, Some(Switch(None)));
        let guild = &account.guilds.unwrap()["1"];
        assert_eq!((guild.users.clone(), guild.channels["2"].allow), (Some(vec![Id("7".to_owned())]), Some(false)));
        let off = channel("{dmPolicy: 'open', dm: {enabled: false}}").resolved_accounts().remove("default").unwrap();
        assert_eq!(off.direct_policy(), DmPolicy::Disabled);
        let config = Config::read(std::path::Path::new("x"), "{channels: {discord: {commands: {native: 'yes'}}}}");
        assert!(!config.problems.is_empty() || !config.warnings.is_empty());
    }

    #[test]
    fn streaming_accepts_every_documented_form() {
        let growth = |text| channel(text).resolved_accounts()["default"].streaming_mode();
        for (text, expected) in [
            ("{}", None),
            ("{streaming: 'partial'}", Some(StreamingMode::Words)),
            ("{streaming: true}", Some(StreamingMode::Words)),
            ("{streaming: {mode: 'block', preview: {toolProgress: true}}}", Some(StreamingMode::Blocks)),
            ("{streamMode: 'block'}", Some(StreamingMode::Blocks)),
            ("{streamMode: 'partial', streaming: 'off'}", None),
        ] {
            assert_eq!(growth(text), expected, "{text}");
        }
    }

    #[test]
    fn invalid_values_are_reported() {
        for (text, expected) in [
            ("{streaming: 'fast'}", "channels.telegram.streaming"),
            ("{dmPolicy: 'everybody'}", "channels.telegram.dmPolicy"),
            ("{allowFrom: [true]}", "channels.telegram.allowFrom"),
            ("{groups: []}", "channels.telegram.groups"),
        ] {
            let error = Config::parse(&format!("{{channels: {{telegram: {text}}}}}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
