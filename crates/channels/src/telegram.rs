//! Telegram, through its Bot API.
//!
//! Start with [`Telegram`]; then `poll` (receiving by long polling), [`webhook`] (receiving by webhook), `update`
//! (parsing updates), `send` (sending) and `markup` (Markdown conversion). `api` is the HTTP client.

mod api;
mod markup;
mod poll;
mod send;
mod target;
mod update;
pub mod webhook;

use std::{future::pending, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use self::api::ROOT;
use self::{
    api::{Api, ApiCallError, FILE_DOWNLOAD},
    poll::PollBackoff,
    target::TelegramTarget,
};
use crate::{
    AccountIdentity, Attachment, AttachmentSource, Channel, ChannelAction, ChannelCapabilities, ChannelError,
    ConnectionState, Destination, HttpClients, MarkdownRendering, Outgoing, Receipt, Secret, Sink,
    http::{RepeatEffect, RequestError},
};

/// Id of the general topic, which every forum group has.
const GENERAL_TOPIC: i64 = 1;

/// Settings of a bot.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Account name in the config.
    pub account: String,
    /// Bot token.
    pub token: Secret,
    /// Server of the Bot API; [`ROOT`] unless self-hosted.
    pub root: String,
    /// How updates are received.
    pub update_mode: UpdateMode,
    /// Recommended maximum length of a message in characters.
    pub text_limit: usize,
    /// Show link previews.
    pub has_previews: bool,
    /// Command menu: names without `/`, and descriptions. If empty, the bot's menu is left unchanged.
    pub commands: Vec<(String, String)>,
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
            update_mode: UpdateMode::Polling,
            text_limit: 4000,
            has_previews: true,
            commands: Vec::new(),
            timing: ConnectionTiming::default(),
        }
    }
}

/// How updates are received.
#[derive(Debug, Clone)]
pub enum UpdateMode {
    /// By long polling.
    Polling,
    /// By webhook: Telegram sends them to a URL.
    Webhook {
        /// The public URL.
        url: String,
        /// Secret that Telegram sends with each update, as proof of origin.
        secret: Secret,
    },
}

/// Timing of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionTiming {
    /// Duration of a long poll.
    pub poll_timeout: Duration,
    /// Delay after the first failure; doubled after each further one.
    pub initial_backoff: Duration,
    /// Maximum delay.
    pub max_backoff: Duration,
}

impl Default for ConnectionTiming {
    fn default() -> Self {
        Self {
            poll_timeout: Duration::from_secs(30),
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
        }
    }
}

/// A Telegram bot.
#[derive(Debug)]
pub struct Telegram {
    api: Api,
    settings: Settings,
    /// The bot's own identity, once known.
    identity: OnceCell<BotIdentity>,
}

/// The bot's own identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BotIdentity {
    pub(crate) id: i64,
    pub(crate) username: Option<String>,
    name: String,
    can_read_groups: bool,
}

impl Telegram {
    /// Creates a bot without contacting Telegram. Fails if the settings are invalid.
    pub fn new(clients: HttpClients, settings: Settings) -> Result<Self, ChannelError> {
        if let UpdateMode::Webhook { url, secret } = &settings.update_mode {
            webhook::check(url, secret)?;
        }
        let api = Api::new(clients, &settings.root, settings.token.clone())?;
        Ok(Self { api, settings, identity: OnceCell::new() })
    }

    async fn identity(&self) -> Result<&BotIdentity, ApiCallError> {
        self.identity.get_or_try_init(|| self.fetch_identity()).await
    }

    async fn fetch_identity(&self) -> Result<BotIdentity, ApiCallError> {
        let me = self.api.call("getMe", &json!({})).await?;
        Ok(BotIdentity {
            id: me["id"].as_i64().ok_or(ApiCallError::InvalidResponse(200))?,
            username: me["username"].as_str().map(str::to_owned),
            name: me["first_name"].as_str().unwrap_or_default().to_owned(),
            can_read_groups: me["can_read_all_group_messages"] == true,
        })
    }

    /// Fetches the bot's identity, sets the command menu and the way updates are received; on error returns the method
    /// that failed.
    async fn initialise(&self) -> Result<&BotIdentity, (&'static str, ApiCallError)> {
        let me = self.identity().await.map_err(|error| ("getMe", error))?;
        if !self.settings.commands.is_empty() {
            let menu: Vec<Value> =
                self.settings.commands.iter().map(|(name, description)| menu_item(name, description)).collect();
            // A rejected menu must not prevent receiving.
            if let Err(error) = self.api.call("setMyCommands", &json!({ "commands": menu })).await {
                let failure = error.into_failure("setMyCommands", RepeatEffect::None);
                tracing::warn!(account = self.settings.account, %failure, "failed to set the command menu");
            }
        }
        let (method, params) = match &self.settings.update_mode {
            UpdateMode::Polling => ("deleteWebhook", json!({ "drop_pending_updates": false })),
            UpdateMode::Webhook { url, secret } => {
                let params =
                    json!({ "url": url, "secret_token": secret.expose(), "allowed_updates": update::UPDATE_KINDS });
                ("setWebhook", params)
            }
        };
        self.api.call(method, &params).await.map_err(|error| (method, error))?;
        Ok(me)
    }
}

/// Builds a menu entry in the form that Telegram accepts: lower case, digits and underscores, with a limited
/// description.
fn menu_item(name: &str, description: &str) -> Value {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = name.trim_start_matches('/').chars().take(32).map(fits).collect();
    let description: String = description.chars().take(256).collect();
    json!({ "command": name, "description": description })
}

#[async_trait]
impl Channel for Telegram {
    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities {
            channel: "telegram",
            text_limit: self.settings.text_limit.clamp(1, markup::MAX_MESSAGE),
            markdown: MarkdownRendering::Styled,
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
        let chat = TelegramTarget::parse(&Destination { to: to.to_owned(), thread: None })?.chat;
        Ok(chat.as_str().map_or_else(|| chat.to_string(), str::to_owned))
    }

    async fn receive(&self, cursor: Option<String>, sink: &dyn Sink) -> ChannelError {
        let mut backoff = PollBackoff::new(self.settings.timing);
        let me = loop {
            match self.initialise().await {
                Ok(me) => break me,
                Err((method, error)) => {
                    if let Err(failure) = backoff.report_and_wait(error, method, sink).await {
                        return failure;
                    }
                }
            }
        };
        match self.settings.update_mode {
            UpdateMode::Polling => poll::run(self, me, cursor.as_deref(), sink).await,
            UpdateMode::Webhook { .. } => {
                sink.report_state(ConnectionState::Up);
                pending().await
            }
        }
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Receipt, ChannelError> {
        send::send(self, outgoing).await
    }

    async fn perform(&self, action: ChannelAction) -> Result<Receipt, ChannelError> {
        send::act(self, action).await
    }

    async fn fetch(&self, attachment: &Attachment, max_bytes: usize) -> Result<Vec<u8>, ChannelError> {
        let too_large = || ChannelError::Refused(format!("Telegram: the file exceeds the limit of {max_bytes} bytes"));
        let id = match &attachment.source {
            AttachmentSource::Platform(id) => id,
            AttachmentSource::Bytes(bytes) => {
                return if bytes.len() > max_bytes { Err(too_large()) } else { Ok(bytes.clone()) };
            }
            AttachmentSource::Url(_) => {
                return Err(ChannelError::Unsupported { channel: "telegram", action: "downloads from a URL" });
            }
        };
        let failed = |method, error: ApiCallError| {
            let is_large = error == ApiCallError::NoResponse(RequestError::TooLong);
            if is_large { too_large() } else { error.into_failure(method, RepeatEffect::None) }
        };
        let file = self.api.call("getFile", &json!({ "file_id": id })).await;
        let file = file.map_err(|error| failed("getFile", error))?;
        if file["file_size"].as_u64().is_some_and(|size| size > max_bytes as u64) {
            return Err(too_large());
        }
        let path = file["file_path"].as_str().ok_or_else(|| failed("getFile", ApiCallError::InvalidResponse(200)))?;
        self.api.download(path, max_bytes).await.map_err(|error| failed(FILE_DOWNLOAD, error))
    }

    async fn identity(&self) -> Result<AccountIdentity, ChannelError> {
        let me = self.fetch_identity().await.map_err(|error| error.into_failure("getMe", RepeatEffect::None))?;
        let privacy = "privacy mode is on: in groups the bot receives only messages that are addressed to it; send \
                       /setprivacy to @BotFather to change that";
        let hints = if me.can_read_groups { Vec::new() } else { vec![privacy.to_owned()] };
        Ok(AccountIdentity { id: me.id.to_string(), username: me.username, name: me.name, hints })
    }
}
