//! `homard channels add` and `remove`: edit a section of the config.

use anyhow::Result;
use homard_config::{edit, path::Path};
use serde_json::{Value, json};

use super::edit_config;
use crate::{
    assemble::channels::{KINDS, label},
    config::{Config, channels::DEFAULT_ACCOUNT},
    failure::Failure,
    paths::Paths,
    render,
};

/// A channel to be set up.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// Channel: telegram or webhook
    channel: String,
    /// Telegram: bot token from @BotFather
    #[arg(long, value_name = "TEXT")]
    token: Option<String>,
    /// Telegram: file that contains the token, to keep it out of the config
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
    /// Channel: telegram or webhook
    channel: String,
    /// Only this account [default: all accounts]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
}

/// Returns the normalized name of a known channel.
fn known(channel: &str) -> Result<String, Failure> {
    let name = channel.trim().to_lowercase();
    if KINDS.iter().any(|(known, _)| *known == name) {
        return Ok(name);
    }
    let all: Vec<_> = KINDS.iter().map(|(known, _)| *known).collect();
    Err(Failure::usage(format!("there is no channel \"{name}\"; there are {}", all.join(" and "))))
}

fn section(channel: &str, account: Option<&str>) -> Result<Path, Failure> {
    let place = Path::root().key("channels").key(channel);
    match account.map(str::trim) {
        None | Some(DEFAULT_ACCOUNT) => Ok(place),
        Some(name) if !name.is_empty() && !name.contains([':', '/', ' ']) => Ok(place.key("accounts").key(name)),
        Some(name) => Err(Failure::usage(format!("--account \"{name}\" must be a word without : and /"))),
    }
}

impl Add {
    /// Returns the settings to write, by key.
    fn settings(&self, channel: &str) -> Result<Vec<(&'static str, Value)>, Failure> {
        let given =
            |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let (token, file) = (given(&self.token), given(&self.token_file));
        let (secret, url) = (given(&self.secret), given(&self.url));
        match channel {
            "telegram" => {
                if secret.is_some() || url.is_some() {
                    return Err(Failure::usage("--secret and --url are for webhook; telegram takes --token"));
                }
                let looks_right = |token: &String| {
                    token.starts_with("${")
                        || token
                            .split_once(':')
                            .is_some_and(|(id, rest)| id.bytes().all(|b| b.is_ascii_digit()) && rest.len() > 10)
                };
                match (token, file) {
                    (Some(token), _) if !looks_right(&token) => Err(Failure::usage(
                        "--token does not look like a bot's token, such as 123456:ABC…; copy the whole line from @BotFather",
                    )),
                    (Some(token), _) => Ok(vec![("botToken", json!(token))]),
                    (None, Some(file)) => Ok(vec![("tokenFile", json!(file))]),
                    (None, None) => Err(Failure::usage(
                        "--token is missing; send /newbot to @BotFather in Telegram, and give the token that it answers with",
                    )),
                }
            }
            _ => {
                if token.is_some() || file.is_some() {
                    return Err(Failure::usage("--token is for telegram; webhook takes --secret and --url"));
                }
                let secret = secret.filter(|secret| secret.starts_with("${") || secret.len() >= 16);
                let secret = secret.ok_or_else(|| {
                    Failure::usage("--secret must have 16 characters or more; make one with: openssl rand -hex 32")
                })?;
                Ok([("secret", json!(secret))].into_iter().chain(url.map(|url| ("url", json!(url)))).collect())
            }
        }
    }

    /// Adds the channel to the config.
    pub(super) fn run(&self, wants_json: bool) -> Result<()> {
        let paths = Paths::find()?;
        let channel = known(&self.channel)?;
        let place = section(&channel, self.account.as_deref())?;
        let settings = self.settings(&channel)?;
        let done = edit_config(&paths, |text| {
            let text = settings
                .iter()
                .try_fold(text.to_owned(), |text, (name, value)| edit::set(&text, &place.key(name), value))?;
            edit::set(&text, &place.key("enabled"), &json!(true))
        })?;
        if wants_json {
            let account = self.account.as_deref().unwrap_or(DEFAULT_ACCOUNT);
            return Ok(render::print_json(&json!({
                "ok": true, "channel": channel, "accountId": account, "changed": done.changed, "path": paths.config,
            }))?);
        }
        render::print(&format!("{} is set up, in {}", label(&channel), paths.config.display()))?;
        render::print("a gateway that runs connects by itself; start one with: homard gateway run")?;
        let next = match channel.as_str() {
            "telegram" => {
                "next: write to your bot in Telegram, and approve the code that it answers with: homard pairing approve telegram CODE"
            }
            _ => "next: list who may write in allowFrom; see docs/channels/webhook.md",
        };
        Ok(render::print(next)?)
    }
}

impl Remove {
    /// Removes the channel from the config.
    pub(super) fn run(&self, wants_json: bool) -> Result<()> {
        let paths = Paths::find()?;
        let channel = known(&self.channel)?;
        let place = match self.account.as_deref() {
            None => Path::root().key("channels").key(&channel),
            account => section(&channel, account)?,
        };
        let said = Config::read_file(&paths.config).source;
        if homard_config::path::get(&said, &place).is_none() {
            return Err(Failure::new("config", format!("{place} is not in {}", paths.config.display())).into());
        }
        let done = edit_config(&paths, |text| Ok(edit::unset(text, &place)?.0))?;
        if wants_json {
            return Ok(render::print_json(&json!({"ok": true, "channel": channel, "changed": done.changed}))?);
        }
        render::print(&format!(
            "{place} is out of {}; a gateway that runs disconnects by itself",
            paths.config.display()
        ))?;
        Ok(render::print(&format!("who was approved stays approved: see homard pairing list {channel}"))?)
    }
}
