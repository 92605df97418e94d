//! Discord, through its gateway and its HTTP API.
//!
//! Start with [`Discord`]; then `receive` (sessions), `gateway` (one connection), `dispatch` (its events), `catch_up`
//! (messages that were missed), `event` and `interaction` (parsing), `send` (sending) and `split` (long texts). `api` is
//! the HTTP client, `limits` its rate limits, `directory` what is known of channels, `cursor` the position after a
//! restart.

mod api;
mod catch_up;
mod cursor;
mod directory;
mod dispatch;
mod event;
mod gateway;
mod interaction;
mod limits;
mod receive;
mod send;
mod split;
mod target;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use reqwest::Method;
use serde_json::json;
use tokio::sync::OnceCell;

pub use self::api::ROOT;
use self::{
    api::{Api, ApiCallError},
    directory::{Directory, KnownChannel},
    target::DiscordTarget,
};
use crate::{
    AccountIdentity, Attachment, AttachmentSource, Channel, ChannelAction, ChannelCapabilities, ChannelError,
    HttpClients, MarkdownRendering, Outgoing, Receipt, Secret, Sink,
    http::{RepeatEffect, RequestError},
};

/// Permissions that the bot needs, for its invite link: view channels, send messages there and in threads, embed links,
/// attach files, read the message history, add reactions, and create polls.
const PERMISSIONS: u64 = 1 << 10 | 1 << 11 | 1 << 38 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 6 | 1 << 49;

/// Flags of an application that may receive the text of messages.
const MESSAGE_CONTENT_FLAGS: u64 = 1 << 18 | 1 << 19;

/// Settings of a bot.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Account name in the config.
    pub account: String,
    /// Bot token.
    pub token: Secret,
    /// Address of the API; [`ROOT`] except in tests. It names the gateway's.
    pub root: String,
    /// Recommended maximum length of a message in characters.
    pub text_limit: usize,
    /// Maximum number of lines in a message; a longer text is split.
    pub max_lines: usize,
    /// Show link previews.
    pub has_previews: bool,
    /// Slash commands: names without `/`, and descriptions. If `None`, the registered ones are left unchanged.
    pub commands: Option<Vec<(String, String)>>,
    /// Only the user who invoked a slash command sees its acknowledgement.
    pub has_ephemeral_commands: bool,
    /// The access rules name roles, so the roles of senders must be known.
    pub needs_roles: bool,
    /// Timing of the connection.
    pub timing: ConnectionTiming,
}

impl Settings {
    /// Creates settings with default values.
    pub fn new(account: impl Into<String>, token: Secret) -> Self {
        Self {
            account: account.into(),
            token,
            root: ROOT.to_owned(),
            text_limit: split::MAX_MESSAGE,
            max_lines: 17,
            has_previews: true,
            commands: None,
            has_ephemeral_commands: true,
            needs_roles: false,
            timing: ConnectionTiming::default(),
        }
    }
}

/// Timing of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionTiming {
    /// Delay after the first failure; doubled after each further one.
    pub initial_backoff: Duration,
    /// Maximum delay.
    pub max_backoff: Duration,
}

impl Default for ConnectionTiming {
    fn default() -> Self {
        Self { initial_backoff: Duration::from_secs(1), max_backoff: Duration::from_secs(60) }
    }
}

/// A Discord bot.
#[derive(Debug)]
pub struct Discord {
    api: Api,
    settings: Settings,
    /// The bot's own identity, once known.
    identity: OnceCell<BotIdentity>,
    directory: Mutex<Directory>,
}

/// The bot's own identity.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BotIdentity {
    id: String,
    username: Option<String>,
    name: String,
}

impl Discord {
    /// Creates a bot without contacting Discord. Fails if the settings are invalid.
    pub fn new(clients: HttpClients, settings: Settings) -> Result<Self, ChannelError> {
        let api = Api::new(clients, &settings.root, &settings.token)?;
        Ok(Self { api, settings, identity: OnceCell::new(), directory: Mutex::default() })
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn me(&self) -> Result<&BotIdentity, ApiCallError> {
        self.identity.get_or_try_init(|| self.fetch_identity()).await
    }

    async fn fetch_identity(&self) -> Result<BotIdentity, ApiCallError> {
        let me = self.api.get(&["users", "@me"], &[]).await?;
        let text = |name: &str| me[name].as_str().map(str::to_owned);
        Ok(BotIdentity {
            id: text("id").ok_or(ApiCallError::InvalidResponse(200))?,
            username: text("username"),
            name: text("global_name").or_else(|| text("username")).unwrap_or_default(),
        })
    }

    /// Fetches a channel, and remembers it.
    async fn fetch_channel(&self, channel: &str) -> Result<(), ApiCallError> {
        let found = self.api.get(&["channels", channel], &[]).await?;
        let unsupported =
            || ApiCallError::Denied { status: 404, code: 0, message: "unsupported kind of channel".to_owned() };
        let found = KnownChannel::parse(&found, None).ok_or_else(unsupported)?;
        self.directory().add(found);
        Ok(())
    }

    /// Returns the channel of the direct chat with a user, which Discord creates if there is none.
    async fn direct_channel(&self, user: &str) -> Result<String, ApiCallError> {
        if let Some(channel) = self.directory().direct_channel(user) {
            return Ok(channel);
        }
        let body = json!({ "recipient_id": user });
        let created = self.api.send(Method::POST, &["users", "@me", "channels"], &body).await?;
        let channel = created["id"].as_str().ok_or(ApiCallError::InvalidResponse(200))?;
        self.directory().add_direct(channel, user);
        Ok(channel.to_owned())
    }

    /// Returns what the owner should know about the application. A failed request only omits a hint.
    async fn hints(&self, me: &BotIdentity) -> Vec<String> {
        let mut hints = Vec::new();
        let application = self.api.get(&["applications", "@me"], &[]).await;
        if let Ok(application) = &application
            && application["flags"].as_u64().is_some_and(|flags| flags & MESSAGE_CONTENT_FLAGS == 0)
        {
            let hint = "the Message Content Intent is off, so the bot cannot connect: enable it in the Discord Developer \
                        Portal, on the page Bot, below Privileged Gateway Intents";
            hints.push(hint.to_owned());
        }
        let servers = self.api.get(&["users", "@me", "guilds"], &[("limit", "1")]).await;
        if servers.is_ok_and(|servers| servers.as_array().is_some_and(Vec::is_empty)) {
            let id = application.ok().and_then(|application| application["id"].as_str().map(str::to_owned));
            hints.push(format!(
                "the bot is on no server, so it cannot be reached; add it to one with: \
                 https://discord.com/oauth2/authorize?client_id={}&scope=bot+applications.commands&permissions={PERMISSIONS}",
                id.unwrap_or_else(|| me.id.clone())
            ));
        }
        hints
    }
}

#[async_trait]
impl Channel for Discord {
    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities {
            channel: "discord",
            text_limit: self.settings.text_limit.clamp(1, split::MAX_MESSAGE),
            markdown: MarkdownRendering::Markdown,
            has_blocks: true,
            has_threads: true,
            has_reactions: true,
            has_polls: true,
            has_edits: true,
            is_idempotent: false,
            has_previews: self.settings.has_previews,
        }
    }

    fn recipient(&self, to: &str) -> Result<String, ChannelError> {
        Ok(DiscordTarget::parse(to)?.id)
    }

    async fn receive(&self, cursor: Option<String>, sink: &dyn Sink) -> ChannelError {
        receive::run(self, cursor.as_deref(), sink).await
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Receipt, ChannelError> {
        send::send(self, outgoing).await
    }

    async fn perform(&self, action: ChannelAction) -> Result<Receipt, ChannelError> {
        send::act(self, action).await
    }

    async fn fetch(&self, attachment: &Attachment, max_bytes: usize) -> Result<Vec<u8>, ChannelError> {
        let too_large = || ChannelError::Refused(format!("Discord: the file exceeds the limit of {max_bytes} bytes"));
        let place = match &attachment.source {
            AttachmentSource::Platform(place) => place,
            AttachmentSource::Bytes(bytes) => {
                return if bytes.len() > max_bytes { Err(too_large()) } else { Ok(bytes.clone()) };
            }
            AttachmentSource::Url(_) => {
                return Err(ChannelError::Unsupported { channel: "discord", action: "downloads from a URL" });
            }
        };
        let failed = |error: ApiCallError| {
            let is_large = error == ApiCallError::NoResponse(RequestError::TooLong);
            if is_large { too_large() } else { error.into_failure("get an attachment", RepeatEffect::None) }
        };
        let gone = || ChannelError::Refused("Discord: the attachment was deleted".to_owned());
        let parts: Vec<&str> = place.split('/').collect();
        let [channel, message, id] = parts.as_slice() else { return Err(gone()) };
        // The URL in the event may have expired.
        let message = self.api.get(&["channels", channel, "messages", message], &[]).await.map_err(failed)?;
        let mut attachments = message["attachments"].as_array().into_iter().flatten();
        let found = attachments.find(|found| found["id"] == *id).ok_or_else(gone)?;
        if found["size"].as_u64().is_some_and(|size| size > max_bytes as u64) {
            return Err(too_large());
        }
        self.api.download(found["url"].as_str().unwrap_or_default(), max_bytes).await.map_err(failed)
    }

    async fn identity(&self) -> Result<AccountIdentity, ChannelError> {
        let failed = |error: ApiCallError| error.into_failure("get the bot", RepeatEffect::None);
        let me = self.fetch_identity().await.map_err(failed)?;
        let hints = self.hints(&me).await;
        Ok(AccountIdentity { id: me.id, username: me.username, name: me.name, hints })
    }
}
