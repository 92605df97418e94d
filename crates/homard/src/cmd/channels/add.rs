//! `homard channels add` and `remove`: edit a section of the config.

use anyhow::Result;
use homard_config::{edit, path::Path};
use homard_settings::{
    Config,
    channel_kinds::{CHANNEL_KINDS, is_hosted, label},
    channels::DEFAULT_ACCOUNT,
    paths::Paths,
};
use homard_setup::edit_config;
use serde_json::{Value, json};

use super::hosted;
use crate::{cli_error::CliError, render};

/// A channel to be set up.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// Channel, such as telegram, discord, webhook, irc or matrix
    channel: String,
    /// Channels of OpenClaw's packages: a key of the channel's section and its value; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    values: Vec<String>,
    /// Telegram, Discord: bot token, from @BotFather or from the Discord Developer Portal
    #[arg(long, value_name = "TEXT")]
    token: Option<String>,
    /// Telegram, Discord: file that contains the token, to keep it out of the config
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<String>,
    /// Webhook: shared signing secret
    #[arg(long, value_name = "TEXT")]
    secret: Option<String>,
    /// Webhook: URL that replies are sent to
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Account name, if there are several
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
}

/// A channel to be taken out.
#[derive(Debug, clap::Args)]
pub(super) struct Remove {
    /// Channel, such as telegram
    channel: String,
    /// Only this account [default: all accounts]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
}

/// The token of a platform's bot: its key, its form, and where to get it.
struct BotToken {
    key: &'static str,
    is_token: fn(&str) -> bool,
    malformed: &'static str,
    missing: &'static str,
}

const TELEGRAM: BotToken = BotToken {
    key: "botToken",
    is_token: |token| {
        let parts = token.split_once(':');
        parts.is_some_and(|(id, rest)| id.bytes().all(|byte| byte.is_ascii_digit()) && rest.len() > 10)
    },
    malformed: "--token does not look like a bot's token, such as 123456:ABC…; copy the whole line from @BotFather",
    missing: "--token is missing; send /newbot to @BotFather in Telegram, and pass the token from its reply",
};

const DISCORD: BotToken = BotToken {
    key: "token",
    is_token: |token| {
        let fits = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        };
        let parts: Vec<&str> = token.split('.').collect();
        parts.len() == 3 && parts.into_iter().all(fits)
    },
    malformed: "--token does not look like a bot's token, which has three parts with dots between them; on the page Bot \
                of the Discord Developer Portal, press Reset Token and copy what it shows",
    missing: "--token is missing; create an application at https://discord.com/developers/applications, press Reset \
              Token on its page Bot, and pass what it shows; see: homard docs discord",
};

/// Returns the normalized name of a known channel.
fn known_channel(channel: &str) -> Result<String, CliError> {
    let name = channel.trim().to_lowercase();
    if CHANNEL_KINDS.iter().any(|(known, _)| *known == name) {
        return Ok(name);
    }
    let all: Vec<_> = CHANNEL_KINDS.iter().map(|(known, _)| *known).collect();
    Err(CliError::usage(format!("unknown channel \"{name}\"; supported channels are {}", all.join(", "))))
}

fn section(channel: &str, account: Option<&str>) -> Result<Path, CliError> {
    let section_path = Path::root().key("channels").key(channel);
    match account.map(str::trim) {
        None | Some(DEFAULT_ACCOUNT) => Ok(section_path),
        Some(name) if !name.is_empty() && !name.contains([':', '/', ' ']) => Ok(section_path.key("accounts").key(name)),
        Some(name) => Err(CliError::usage(format!(
            "invalid --account \"{name}\": the name must not be empty or contain a colon, slash or space"
        ))),
    }
}

impl Add {
    /// Returns the settings to write, by key.
    fn settings(&self, channel: &str) -> Result<Vec<(&'static str, Value)>, CliError> {
        let credential =
            |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let (token, file) = (credential(&self.token), credential(&self.token_file));
        let (secret, url) = (credential(&self.secret), credential(&self.url));
        match channel {
            "telegram" | "discord" => {
                if secret.is_some() || url.is_some() {
                    let message = format!("--secret and --url are for webhook; {channel} takes --token");
                    return Err(CliError::usage(message));
                }
                let bot = if channel == "telegram" { &TELEGRAM } else { &DISCORD };
                match (token, file) {
                    (Some(token), _) if !token.starts_with("${") && !(bot.is_token)(&token) => {
                        Err(CliError::usage(bot.malformed))
                    }
                    (Some(token), _) => Ok(vec![(bot.key, json!(token))]),
                    (None, Some(file)) => Ok(vec![("tokenFile", json!(file))]),
                    (None, None) => Err(CliError::usage(bot.missing)),
                }
            }
            _ => {
                if token.is_some() || file.is_some() {
                    return Err(CliError::usage(
                        "--token is for telegram and discord; webhook takes --secret and --url",
                    ));
                }
                let secret = secret.filter(|secret| secret.starts_with("${") || secret.len() >= 16);
                let secret = secret.ok_or_else(|| {
                    CliError::usage("--secret must have 16 characters or more; generate one with: openssl rand -hex 32")
                })?;
                Ok([("secret", json!(secret))].into_iter().chain(url.map(|url| ("url", json!(url)))).collect())
            }
        }
    }

    /// Adds the channel to the config.
    pub(super) async fn run(&self, wants_json: bool) -> Result<()> {
        let paths = Paths::find()?;
        let channel = known_channel(&self.channel)?;
        let section_path = section(&channel, self.account.as_deref())?;
        if is_hosted(&channel) {
            let credentials = [&self.token, &self.token_file, &self.secret, &self.url];
            if credentials.iter().any(|option| option.is_some()) {
                let message = format!(
                    "--token, --token-file, --secret and --url are not for {channel}; it takes --set KEY=VALUE"
                );
                return Err(CliError::usage(message).into());
            }
            return hosted::add(&paths, &channel, &section_path, &self.values, wants_json).await;
        }
        if !self.values.is_empty() {
            let message = format!("--set is for the channels of OpenClaw's packages; {channel} has options of its own");
            return Err(CliError::usage(message).into());
        }
        let settings = self.settings(&channel)?;
        let change = edit_config(&paths, |text| {
            let text = settings
                .iter()
                .try_fold(text.to_owned(), |text, (name, value)| edit::set(&text, &section_path.key(name), value))?;
            edit::set(&text, &section_path.key("enabled"), &json!(true))
        })?;
        if wants_json {
            let account = self.account.as_deref().unwrap_or(DEFAULT_ACCOUNT);
            return Ok(render::print_json(&json!({
                "ok": true, "channel": channel, "accountId": account, "changed": change.changed, "path": paths.config,
            }))?);
        }
        render::print(&format!("configured {} in {}", label(&channel), paths.config.display()))?;
        render::print("a running gateway connects automatically; start one with: homard gateway run")?;
        let next = match channel.as_str() {
            "telegram" => {
                "next: send a message to your bot in Telegram, and approve the pairing code from its reply: homard pairing approve telegram CODE"
            }
            "discord" => {
                "next: enable the Message Content Intent and invite the bot (see: homard docs discord), send it a direct message, and approve the pairing code from its reply: homard pairing approve discord CODE"
            }
            _ => "next: add the permitted senders to allowFrom; see: homard docs webhook",
        };
        Ok(render::print(next)?)
    }
}

impl Remove {
    /// Removes the channel from the config.
    pub(super) async fn run(&self, wants_json: bool) -> Result<()> {
        let paths = Paths::find()?;
        let channel = known_channel(&self.channel)?;
        let section_path = match self.account.as_deref() {
            None => Path::root().key("channels").key(&channel),
            account => section(&channel, account)?,
        };
        let source = Config::read_file(&paths.config).source;
        if homard_config::path::get(&source, &section_path).is_none() {
            return Err(CliError::new("config", format!("{section_path} is not in {}", paths.config.display())).into());
        }
        let change = edit_config(&paths, |text| Ok(edit::unset(text, &section_path)?.0))?;
        if is_hosted(&channel) && self.account.is_none() {
            hosted::remove(&paths, &channel).await?;
        }
        if wants_json {
            return Ok(render::print_json(&json!({"ok": true, "channel": channel, "changed": change.changed}))?);
        }
        render::print(&format!(
            "removed {section_path} from {}; a running gateway disconnects automatically",
            paths.config.display()
        ))?;
        Ok(render::print(&format!("approved senders stay approved; list them with: homard pairing list {channel}"))?)
    }
}
