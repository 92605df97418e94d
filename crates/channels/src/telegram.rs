//! Telegram, through its Bot API.
//!
//! Start with [`Telegram`]; then `poll` (receiving by long polling), [`webhook`] (receiving by webhook), `update`
//! (parsing updates), `send` (sending) and `markup` (Markdown conversion). `api` is the HTTP client.

mod api;
mod markup;
mod multipart;
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
    api::{Api, Trouble, Twice},
    poll::Backoff,
    target::Target,
};
use crate::{
    Act, Attachment, Channel, Failure, Flavour, Manner, Note, Outgoing, Place, Probe, Receipt, Road, Secret, Sink,
    Source, http::Lost,
};

/// Id of the general topic, which every forum group has.
const GENERAL: i64 = 1;

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
    pub intake: Intake,
    /// Recommended maximum length of a message in characters.
    pub text_limit: usize,
    /// Show link previews.
    pub has_previews: bool,
    /// Command menu: names without `/`, and descriptions. If empty, the bot's menu is left unchanged.
    pub commands: Vec<(String, String)>,
    /// Timing of the connection.
    pub pace: Pace,
}

impl Settings {
    /// Creates settings with default values.
    pub fn new(account: impl Into<String>, token: Secret) -> Self {
        Self {
            account: account.into(),
            token,
            root: ROOT.to_owned(),
            intake: Intake::Polling,
            text_limit: 4000,
            has_previews: true,
            commands: Vec::new(),
            pace: Pace::default(),
        }
    }
}

/// How updates are received.
#[derive(Debug, Clone)]
pub enum Intake {
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
pub struct Pace {
    /// Duration of a long poll.
    pub hold: Duration,
    /// Delay after the first failure; doubled after each further one.
    pub first_wait: Duration,
    /// Maximum delay.
    pub longest_wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(30),
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
        }
    }
}

/// A Telegram bot.
#[derive(Debug)]
pub struct Telegram {
    api: Api,
    settings: Settings,
    /// The bot's own identity, once known.
    me: OnceCell<Me>,
}

/// The bot's own identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Me {
    pub(crate) id: i64,
    pub(crate) username: Option<String>,
    name: String,
    reads_groups: bool,
}

impl Telegram {
    /// Creates a bot without contacting Telegram. Fails if the settings are invalid.
    pub fn new(road: Road, settings: Settings) -> Result<Self, Failure> {
        if let Intake::Webhook { url, secret } = &settings.intake {
            webhook::check(url, secret)?;
        }
        let api = Api::new(road, &settings.root, settings.token.clone())?;
        Ok(Self { api, settings, me: OnceCell::new() })
    }

    async fn me(&self) -> Result<&Me, Trouble> {
        self.me.get_or_try_init(|| self.ask_me()).await
    }

    async fn ask_me(&self) -> Result<Me, Trouble> {
        let me = self.api.call("getMe", &json!({})).await?;
        Ok(Me {
            id: me["id"].as_i64().ok_or(Trouble::Garbled(200))?,
            username: me["username"].as_str().map(str::to_owned),
            name: me["first_name"].as_str().unwrap_or_default().to_owned(),
            reads_groups: me["can_read_all_group_messages"] == true,
        })
    }

    /// Fetches the bot's identity, sets the command menu and the way updates are received; on error returns the method
    /// that failed.
    async fn announce(&self) -> Result<&Me, (&'static str, Trouble)> {
        let me = self.me().await.map_err(|trouble| ("getMe", trouble))?;
        if !self.settings.commands.is_empty() {
            let menu: Vec<Value> = self.settings.commands.iter().map(|(word, does)| menu_item(word, does)).collect();
            // A rejected menu must not prevent receiving.
            if let Err(trouble) = self.api.call("setMyCommands", &json!({ "commands": menu })).await {
                let failure = trouble.into_failure("setMyCommands", Twice::Harmless);
                tracing::warn!(account = self.settings.account, %failure, "the menu of commands was not set");
            }
        }
        let (method, params) = match &self.settings.intake {
            Intake::Polling => ("deleteWebhook", json!({ "drop_pending_updates": false })),
            Intake::Webhook { url, secret } => {
                let params = json!({ "url": url, "secret_token": secret.expose(), "allowed_updates": update::KINDS });
                ("setWebhook", params)
            }
        };
        self.api.call(method, &params).await.map_err(|trouble| (method, trouble))?;
        Ok(me)
    }
}

/// Builds a menu entry in the form that Telegram accepts: lower case, digits and underscores, with a limited
/// description.
fn menu_item(word: &str, does: &str) -> Value {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let word: String = word.trim_start_matches('/').chars().take(32).map(fits).collect();
    let does: String = does.chars().take(256).collect();
    json!({ "command": word, "description": does })
}

#[async_trait]
impl Channel for Telegram {
    fn manner(&self) -> Manner {
        Manner {
            channel: "telegram",
            text_limit: self.settings.text_limit.clamp(1, markup::LIMIT),
            flavour: Flavour::Styled,
            has_blocks: true,
            has_threads: true,
            has_reactions: true,
            has_polls: true,
            has_edits: true,
            is_idempotent: false,
            has_previews: self.settings.has_previews,
        }
    }

    fn recipient(&self, to: &str) -> Result<String, Failure> {
        let chat = Target::parse(&Place { to: to.to_owned(), thread: None })?.chat;
        Ok(chat.as_str().map_or_else(|| chat.to_string(), str::to_owned))
    }

    async fn receive(&self, cursor: Option<String>, sink: &dyn Sink) -> Failure {
        let mut backoff = Backoff::new(self.settings.pace);
        let me = loop {
            match self.announce().await {
                Ok(me) => break me,
                Err((method, trouble)) => {
                    if let Err(failure) = backoff.bear(trouble, method, sink).await {
                        return failure;
                    }
                }
            }
        };
        match self.settings.intake {
            Intake::Polling => poll::run(self, me, cursor.as_deref(), sink).await,
            Intake::Webhook { .. } => {
                sink.note(Note::Up);
                pending().await
            }
        }
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Receipt, Failure> {
        send::send(self, outgoing).await
    }

    async fn act(&self, act: Act) -> Result<Receipt, Failure> {
        send::act(self, act).await
    }

    async fn fetch(&self, attachment: &Attachment, most: usize) -> Result<Vec<u8>, Failure> {
        let too_large =
            || Failure::Refused(format!("Telegram: the file has more than {most} bytes, which is the limit"));
        let id = match &attachment.source {
            Source::Platform(id) => id,
            Source::Bytes(bytes) => return if bytes.len() > most { Err(too_large()) } else { Ok(bytes.clone()) },
            Source::Url(_) => return Err(Failure::Unsupported { channel: "telegram", action: "load an address" }),
        };
        let failed = |trouble: Trouble| {
            let is_large = trouble == Trouble::Lost(Lost::TooLong);
            if is_large { too_large() } else { trouble.into_failure("getFile", Twice::Harmless) }
        };
        let file = self.api.call("getFile", &json!({ "file_id": id })).await.map_err(failed)?;
        if file["file_size"].as_u64().is_some_and(|size| size > most as u64) {
            return Err(too_large());
        }
        let path = file["file_path"].as_str().ok_or_else(|| failed(Trouble::Garbled(200)))?;
        self.api.download(path, most).await.map_err(failed)
    }

    async fn probe(&self) -> Result<Probe, Failure> {
        let me = self.ask_me().await.map_err(|trouble| trouble.into_failure("getMe", Twice::Harmless))?;
        let privacy = "privacy mode is on: in groups the bot sees only what speaks to it; send /setprivacy to @BotFather \
                       to change that";
        let hints = if me.reads_groups { Vec::new() } else { vec![privacy.to_owned()] };
        Ok(Probe { id: me.id.to_string(), username: me.username, name: me.name, hints })
    }
}
