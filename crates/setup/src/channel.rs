//! The offer of a chat channel: the token of a Telegram bot, which is tested before it is written.

use std::time::Duration;

use homard_channels::{
    Channel as _, HttpClients, Secret,
    telegram::{self, Telegram},
};
use homard_settings::{channel_kinds::label, channels::DEFAULT_ACCOUNT};
use homard_stdx::text::strip_controls;
use tokio::time::timeout;

use crate::{
    Error, ModelsContext,
    provider::variable_value,
    questions::{self, Answers},
    wizard::SetupOptions,
};

/// Time within which Telegram answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Name of the channel in the config.
pub(crate) const TELEGRAM: &str = "telegram";

/// Offers to connect a Telegram bot. Returns its token once the bot has answered; `None` if none is to be written.
pub(crate) async fn telegram_token(
    options: &SetupOptions,
    answers: &mut dyn Answers,
    setup: &ModelsContext,
) -> Result<Option<String>, Error> {
    if let Some(variable) = &options.telegram_token_from_env {
        let token = variable_value(variable)?;
        check_token(&token)?;
        let bot = bot_name(setup, &token).await.map_err(Error::Channel)?;
        answers.tell(&bot);
        return Ok(Some(token));
    }
    if options.is_unattended {
        return Ok(None);
    }
    if has_telegram(setup) {
        answers
            .tell(&format!("{} is configured already; test it with: homard channels status --probe", label(TELEGRAM)));
        return Ok(None);
    }
    let choices = ["none now", "Telegram"];
    if questions::choose(answers, "Which chat app should reach the agent?", &choices)? == 0 {
        return Ok(None);
    }
    answers.tell("Send /newbot to @BotFather in Telegram, and copy the token from its reply.");
    loop {
        let typed = answers.secret("Bot token, empty for none")?;
        let token = typed.trim();
        if token.is_empty() {
            return Ok(None);
        }
        if let Err(error) = check_token(token) {
            answers.tell(&error.to_string());
            continue;
        }
        match bot_name(setup, token).await {
            Ok(bot) => {
                answers.tell(&bot);
                return Ok(Some(token.to_owned()));
            }
            Err(why) => answers.tell(&why),
        }
    }
}

/// Checks that a text can be the token of a bot.
fn check_token(token: &str) -> Result<(), Error> {
    let is_token = token
        .split_once(':')
        .is_some_and(|(id, rest)| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) && rest.len() > 10);
    if is_token && !token.contains(char::is_whitespace) {
        return Ok(());
    }
    let text = "this does not look like a bot's token, such as 123456:ABC…; copy the whole line from @BotFather";
    Err(Error::Usage(text.to_owned()))
}

/// Returns true if the config has the token of a bot.
pub(crate) fn has_telegram(setup: &ModelsContext) -> bool {
    let channel = setup.config.channels.iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(TELEGRAM));
    let mut accounts = channel.map(|(_, channel)| channel.resolved_accounts()).unwrap_or_default().into_values();
    accounts.any(|account| account.bot_token.is_some() || account.token_file.is_some())
}

/// Asks Telegram for the name of the bot, at the server that the config names. Returns a sentence, or why it failed.
async fn bot_name(setup: &ModelsContext, token: &str) -> Result<String, String> {
    let defaults = telegram::Settings::new(DEFAULT_ACCOUNT, Secret::from(token));
    let channel = setup.config.channels.iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(TELEGRAM));
    let root = channel.and_then(|(_, channel)| channel.api_root.clone()).unwrap_or(defaults.root);
    let settings = telegram::Settings { root, ..defaults };
    let bot = Telegram::new(HttpClients::default(), settings).map_err(|error| error.to_string())?;
    let answer = timeout(PROBE_TIMEOUT, bot.identity()).await;
    let identity = match answer {
        Ok(identity) => identity.map_err(|error| strip_controls(&error.to_string()))?,
        Err(_) => return Err(format!("Telegram did not answer within {} s", PROBE_TIMEOUT.as_secs())),
    };
    let name = identity.username.map_or(identity.name, |name| format!("@{name}"));
    let hints = identity.hints.into_iter().map(|hint| format!("\n{hint}")).collect::<String>();
    Ok(strip_controls(&format!("The bot {name} answered.{hints}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_number_and_a_secret() {
        assert!(check_token("123456:fake-Token_of_the_testkit").is_ok());
        for text in ["", "123456", "123456:short", "bot:fake-Token_of_the_testkit", "12:fake Token_of_the_testkit"] {
            assert!(check_token(text).is_err(), "{text}");
        }
    }
}
