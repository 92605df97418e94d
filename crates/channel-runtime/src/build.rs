//! Builds channels from the config.

use std::{path::Path, sync::Arc};

use homard_channel_host::{ChannelHost, HostedChannel};
use homard_channels::{
    Channel, HttpClients, Secret,
    discord::{self, Discord},
    telegram::{self, Telegram, UpdateMode},
    webhook::{self, Webhook},
};
use homard_command::CommandInfo;
use homard_runtime::Ambient;
use homard_settings::{
    Text,
    channels::{Account, DEFAULT_ACCOUNT, Guild, Id},
    paths,
};

/// A channel with its concrete type.
#[derive(Debug, Clone)]
pub(super) enum BuiltChannel {
    Telegram(Arc<Telegram>),
    Discord(Arc<Discord>),
    Webhook(Arc<Webhook>),
    Hosted(Arc<HostedChannel>),
}

impl BuiltChannel {
    /// Returns the channel as a trait object.
    pub(crate) fn channel(&self) -> Arc<dyn Channel> {
        match self {
            Self::Telegram(telegram) => telegram.clone(),
            Self::Discord(discord) => discord.clone(),
            Self::Webhook(webhook) => webhook.clone(),
            Self::Hosted(hosted) => hosted.clone(),
        }
    }

    /// Returns the process that serves the channel, if it is a hosted one.
    pub(crate) fn host(&self) -> Option<&Arc<ChannelHost>> {
        match self {
            Self::Hosted(hosted) => Some(hosted.host()),
            Self::Telegram(_) | Self::Discord(_) | Self::Webhook(_) => None,
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
        "discord" => discord(clients, name, account, commands).map(Arc::new).map(BuiltChannel::Discord),
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
    let defaults = telegram::Settings::new(name, Secret::from(token(name, account, &TELEGRAM_TOKEN)?));
    let intake = match (&account.webhook_url, &account.webhook_secret) {
        (None, _) => UpdateMode::Polling,
        (Some(url), secret) => UpdateMode::Webhook {
            url: url.trim().to_owned(),
            secret: Secret::from(secret.as_ref().map_or("", Text::as_str)),
        },
    };
    let settings = telegram::Settings {
        root: account.api_root.clone().unwrap_or(defaults.root),
        update_mode: intake,
        text_limit: account.text_chunk_limit.unwrap_or(defaults.text_limit),
        has_previews: account.link_preview.unwrap_or(defaults.has_previews),
        commands: menu(commands),
        ..defaults
    };
    Telegram::new(clients.clone(), settings).map_err(|failure| failure.to_string())
}

fn discord(clients: &HttpClients, name: &str, account: &Account, commands: &[CommandInfo]) -> Result<Discord, String> {
    let defaults = discord::Settings::new(name, Secret::from(token(name, account, &DISCORD_TOKEN)?));
    let is_registered = account.commands.as_ref().and_then(|commands| commands.native?.0).unwrap_or(true);
    let has_roles = |roles: &Option<Vec<Id>>| roles.as_ref().is_some_and(|roles| !roles.is_empty());
    let needs_roles =
        |guild: &Guild| has_roles(&guild.roles) || guild.channels.values().any(|channel| has_roles(&channel.roles));
    let settings = discord::Settings {
        root: account.api_root.clone().unwrap_or(defaults.root),
        text_limit: account.text_chunk_limit.unwrap_or(defaults.text_limit),
        max_lines: account.max_lines_per_message.unwrap_or(defaults.max_lines),
        has_previews: !account.suppress_embeds.unwrap_or(false),
        commands: is_registered.then(|| menu(commands)),
        has_ephemeral_commands: account.slash_command.as_ref().and_then(|slash| slash.ephemeral).unwrap_or(true),
        needs_roles: account.guilds.iter().flatten().any(|(_, guild)| needs_roles(guild)),
        ..defaults
    };
    Discord::new(clients.clone(), settings).map_err(|failure| failure.to_string())
}

/// Returns the names and descriptions of the commands that a platform offers.
fn menu(commands: &[CommandInfo]) -> Vec<(String, String)> {
    let listed = commands.iter().filter_map(|listed| Some((listed.names.first()?.clone(), listed.meaning.clone())));
    listed.collect()
}

/// Where the token of a platform's bot is.
struct TokenSource {
    of: fn(&Account) -> Option<&Text>,
    variable: &'static str,
    missing: &'static str,
}

const TELEGRAM_TOKEN: TokenSource = TokenSource {
    of: |account| account.bot_token.as_ref(),
    variable: "TELEGRAM_BOT_TOKEN",
    missing: "the bot token is missing; get one from @BotFather and run: homard channels add telegram --token TOKEN",
};

const DISCORD_TOKEN: TokenSource = TokenSource {
    of: |account| account.token.as_ref(),
    variable: "DISCORD_BOT_TOKEN",
    missing: "the bot token is missing; create a bot in the Discord Developer Portal and run: homard channels add \
              discord --token TOKEN",
};

/// Returns the bot's token from the config, a file, or the environment.
fn token(name: &str, account: &Account, source: &TokenSource) -> Result<String, String> {
    if let Some(token) = (source.of)(account) {
        return Ok(token.as_str().trim().to_owned());
    }
    if let Some(file) = &account.token_file {
        let path = paths::expand(Path::new(file.as_str()), paths::home().as_deref());
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("the token file {} cannot be read: {error}", path.display()))?;
        return Ok(text.trim().to_owned());
    }
    let variable = paths::env(source.variable).and_then(|token| token.into_string().ok());
    let token = variable.filter(|_| name == DEFAULT_ACCOUNT).map(|token| token.trim().to_owned());
    token.ok_or_else(|| source.missing.to_owned())
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
            discord: {token: 'a.b.c', textChunkLimit: 70, suppressEmbeds: true},
            webhook: {secret: '0123456789abcdef', textChunkLimit: 60}}}";
        let config = Config::parse(text).unwrap();
        let account = |channel: &str| config.channels[channel].resolved_accounts().remove(DEFAULT_ACCOUNT).unwrap();
        let clients = HttpClients::default();
        let telegram = telegram(&clients, DEFAULT_ACCOUNT, &account("telegram"), &[]).unwrap().capabilities();
        assert_eq!((telegram.text_limit, telegram.has_previews), (50, false));
        let discord = discord(&clients, DEFAULT_ACCOUNT, &account("discord"), &[]).unwrap().capabilities();
        assert_eq!((discord.text_limit, discord.has_previews), (70, false));
        let webhook = webhook(&clients, DEFAULT_ACCOUNT, &account("webhook")).unwrap().capabilities();
        assert_eq!(webhook.text_limit, 60);
    }
}
