//! Builds channels from the config.

use std::{path::Path, sync::Arc};

use homard_channel_host::{ChannelHost, HostedChannel};
use homard_channels::{
    Channel, HttpClients, Secret,
    telegram::{self, Telegram, UpdateMode},
    webhook::{self, Webhook},
};
use homard_command::CommandInfo;
use homard_runtime::Ambient;
use homard_settings::{
    Text,
    channels::{Account, DEFAULT_ACCOUNT},
    paths,
};

/// A channel with its concrete type.
#[derive(Debug, Clone)]
pub(super) enum BuiltChannel {
    Telegram(Arc<Telegram>),
    Webhook(Arc<Webhook>),
    Hosted(Arc<HostedChannel>),
}

impl BuiltChannel {
    /// Returns the channel as a trait object.
    pub(crate) fn channel(&self) -> Arc<dyn Channel> {
        match self {
            Self::Telegram(telegram) => telegram.clone(),
            Self::Webhook(webhook) => webhook.clone(),
            Self::Hosted(hosted) => hosted.clone(),
        }
    }

    /// Returns the process that serves the channel, if it is a hosted one.
    pub(crate) fn host(&self) -> Option<&Arc<ChannelHost>> {
        match self {
            Self::Hosted(hosted) => Some(hosted.host()),
            Self::Telegram(_) | Self::Webhook(_) => None,
        }
    }
}

/// Builds the channel of an account without connecting to it. An error says what is missing and how to fix it.
pub(crate) fn build(
    clients: &HttpClients,
    channel: &str,
    name: &str,
    account: &Account,
    commands: &[CommandInfo],
) -> Result<BuiltChannel, String> {
    match channel {
        "telegram" => telegram(clients, name, account, commands).map(Arc::new).map(BuiltChannel::Telegram),
        "webhook" => webhook(clients, name, account).map(Arc::new).map(BuiltChannel::Webhook),
        _ => Err(format!("unsupported channel \"{channel}\"")),
    }
}

fn telegram(
    clients: &HttpClients,
    name: &str,
    account: &Account,
    commands: &[CommandInfo],
) -> Result<Telegram, String> {
    let defaults = telegram::Settings::new(name, Secret::from(token(name, account)?));
    let intake = match (&account.webhook_url, &account.webhook_secret) {
        (None, _) => UpdateMode::Polling,
        (Some(url), secret) => UpdateMode::Webhook {
            url: url.trim().to_owned(),
            secret: Secret::from(secret.as_ref().map_or("", Text::as_str)),
        },
    };
    let menu = commands.iter().filter_map(|listed| Some((listed.names.first()?.clone(), listed.meaning.clone())));
    let settings = telegram::Settings {
        root: account.api_root.clone().unwrap_or(defaults.root),
        update_mode: intake,
        text_limit: account.text_chunk_limit.unwrap_or(defaults.text_limit),
        has_previews: account.link_preview.unwrap_or(defaults.has_previews),
        commands: menu.collect(),
        ..defaults
    };
    Telegram::new(clients.clone(), settings).map_err(|failure| failure.to_string())
}

/// Returns the bot's token from the config, a file, or the environment.
fn token(name: &str, account: &Account) -> Result<String, String> {
    if let Some(token) = &account.bot_token {
        return Ok(token.as_str().trim().to_owned());
    }
    if let Some(file) = &account.token_file {
        let path = paths::expand(Path::new(file.as_str()), paths::home().as_deref());
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("the token file {} cannot be read: {error}", path.display()))?;
        return Ok(text.trim().to_owned());
    }
    let variable = paths::env("TELEGRAM_BOT_TOKEN").and_then(|token| token.into_string().ok());
    variable.filter(|_| name == DEFAULT_ACCOUNT).map(|token| token.trim().to_owned()).ok_or_else(|| {
        "the bot token is missing; get one from @BotFather and run: homard channels add telegram --token TOKEN"
            .to_owned()
    })
}

fn webhook(clients: &HttpClients, name: &str, account: &Account) -> Result<Webhook, String> {
    let secret = account.secret.as_ref().ok_or("the secret is missing; generate one with: openssl rand -hex 32")?;
    let url = account.url.as_ref().map(|url| url.as_str().to_owned());
    let defaults = webhook::Settings::new(name, Secret::from(secret.as_str()), url);
    let settings =
        webhook::Settings { text_limit: account.text_chunk_limit.unwrap_or(defaults.text_limit), ..defaults };
    let ambient = Ambient::system();
    Webhook::new(clients.clone(), settings, Box::new(move || ambient.now_ms())).map_err(|failure| failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use homard_settings::Config;

    #[test]
    fn texts_and_previews_are_those_of_the_config() {
        let text = "{channels: {telegram: {botToken: '1:a', textChunkLimit: 50, linkPreview: false},
            webhook: {secret: '0123456789abcdef', textChunkLimit: 60}}}";
        let config = Config::parse(text).unwrap();
        let account = |channel: &str| config.channels[channel].resolved_accounts().remove(DEFAULT_ACCOUNT).unwrap();
        let clients = HttpClients::default();
        let telegram = telegram(&clients, DEFAULT_ACCOUNT, &account("telegram"), &[]).unwrap().capabilities();
        assert_eq!((telegram.text_limit, telegram.has_previews), (50, false));
        let webhook = webhook(&clients, DEFAULT_ACCOUNT, &account("webhook")).unwrap().capabilities();
        assert_eq!(webhook.text_limit, 60);
    }
}
