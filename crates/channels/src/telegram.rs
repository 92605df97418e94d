//! Telegram, through its Bot API.
//!
//! Start with [`Telegram`]; then `poll` (how updates come in), [`webhook`] (the other way), `update` (what they mean), `send`
//! (how words go out) and `markup` (what becomes of Markdown). `api` is the way there.

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

/// The number of the topic that every group with topics has.
const GENERAL: i64 = 1;

/// How one bot is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the config calls the account.
    pub account: String,
    /// The bot's token.
    pub token: Secret,
    /// The server of the Bot API; [`ROOT`] unless one runs one's own.
    pub root: String,
    /// How updates come in.
    pub intake: Intake,
    /// How many characters a message should have at most.
    pub text_limit: usize,
    /// Whether an address in a message is shown with a preview.
    pub has_previews: bool,
    /// The menu of commands: words without `/`, and what they do. An empty one leaves the bot's menu as it is.
    pub commands: Vec<(String, String)>,
    /// How patient the connection is.
    pub pace: Pace,
}

impl Settings {
    /// A bot as it is set up without any wishes.
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

/// How updates come in.
#[derive(Debug, Clone)]
pub enum Intake {
    /// We ask for them.
    Polling,
    /// Telegram brings them to an address of ours.
    Webhook {
        /// The address, as Telegram reaches it.
        url: String,
        /// What Telegram says with each of them, so that we know it is Telegram.
        secret: Secret,
    },
}

/// How patient a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long a question for updates is left open.
    pub hold: Duration,
    /// How long to wait after the first failure; twice as long after each more.
    pub first_wait: Duration,
    /// How long to wait at most.
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

/// A bot.
#[derive(Debug)]
pub struct Telegram {
    api: Api,
    settings: Settings,
    /// Who we are, once Telegram said so.
    me: OnceCell<Me>,
}

/// Who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Me {
    pub(crate) id: i64,
    pub(crate) username: Option<String>,
    name: String,
    reads_groups: bool,
}

impl Telegram {
    /// A bot; nothing is asked yet. Refused if the settings cannot be right.
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

    /// Learns who we are, and says what we understand and how updates shall come; else which method failed and why.
    async fn announce(&self) -> Result<&Me, (&'static str, Trouble)> {
        let me = self.me().await.map_err(|trouble| ("getMe", trouble))?;
        if !self.settings.commands.is_empty() {
            let menu: Vec<Value> = self.settings.commands.iter().map(|(word, does)| menu_item(word, does)).collect();
            // A menu that Telegram does not like is no reason to be deaf.
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

/// A command as Telegram takes it: lower case, digits and underscores, with a description that is not too long.
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
