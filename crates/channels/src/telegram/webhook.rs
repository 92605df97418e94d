//! Receives updates by webhook.

use serde_json::Value;

use super::{Telegram, UpdateMode, update};
use crate::{Batch, ChannelError, Secret};

/// Header that contains the secret.
pub const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";

/// Maximum size of an update.
pub const MAX_UPDATE_BYTES: usize = 1 << 20;

/// Why an update is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateRejection {
    /// The secret is wrong.
    WrongSecret,
    /// The update is too large.
    TooLarge,
    /// The body is not an update.
    Invalid,
    /// The bot's own identity is not known yet; Telegram will retry.
    NotReady,
}

impl UpdateRejection {
    /// Returns the HTTP status of the response.
    pub fn status(self) -> u16 {
        match self {
            Self::WrongSecret => 401,
            Self::TooLarge => 413,
            Self::Invalid => 400,
            Self::NotReady => 503,
        }
    }
}

impl Telegram {
    /// Parses an update. `secret` is the value of its [`SECRET_HEADER`], if present.
    ///
    /// The caller must respond with 200 only after the sink has stored the batch, since Telegram would otherwise not
    /// retry. The batch may have no events.
    pub fn parse_delivery(&self, secret: Option<&str>, body: &[u8]) -> Result<Batch, UpdateRejection> {
        let expected = match &self.settings.update_mode {
            UpdateMode::Webhook { secret, .. } => secret,
            UpdateMode::Polling => return Err(UpdateRejection::WrongSecret),
        };
        if !expected.equals(secret.unwrap_or_default()) {
            return Err(UpdateRejection::WrongSecret);
        }
        if body.len() > MAX_UPDATE_BYTES {
            return Err(UpdateRejection::TooLarge);
        }
        let update: Value = serde_json::from_slice(body).map_err(|_garbled| UpdateRejection::Invalid)?;
        if update::update_id(&update).is_none() {
            return Err(UpdateRejection::Invalid);
        }
        let me = self.identity.get().ok_or(UpdateRejection::NotReady)?;
        let event = update::read(&update, me, &self.settings.account);
        Ok(Batch { events: event.into_iter().collect(), cursor: None })
    }
}

/// Rejects settings that Telegram would reject or that would not authenticate updates.
pub(super) fn check(url: &str, secret: &Secret) -> Result<(), ChannelError> {
    let refused = |reason: &str| Err(ChannelError::Refused(reason.to_owned()));
    if !url.starts_with("https://") {
        return refused("channels.telegram.webhookUrl must begin with https://, which Telegram requires");
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let secret = secret.expose();
    if !(16..=256).contains(&secret.len()) || !secret.bytes().all(fits) {
        return refused("channels.telegram.webhookSecret must be 16 to 256 letters, digits, _ and -");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        HttpClients,
        telegram::{BotIdentity, Settings},
    };

    const SECRET: &str = "a-good-long-secret";

    /// A bot that receives updates by webhook. `is_known` says whether its own identity is known.
    fn bot(is_known: bool) -> Telegram {
        let mut settings = Settings::new("main", Secret::from("1:abc"));
        settings.update_mode = UpdateMode::Webhook { url: "https://x.y/hook".to_owned(), secret: Secret::from(SECRET) };
        let bot = Telegram::new(HttpClients::default(), settings).unwrap();
        if is_known {
            let me = BotIdentity { id: 1, username: None, name: String::new(), can_read_groups: true };
            bot.identity.set(me).unwrap();
        }
        bot
    }

    fn update() -> Vec<u8> {
        let chat = json!({"id": 7, "type": "private"});
        let message = json!({"message_id": 3, "date": 1, "chat": chat, "from": {"id": 7}, "text": "hi"});
        json!({"update_id": 5, "message": message}).to_string().into_bytes()
    }

    #[test]
    fn only_requests_with_the_secret_are_accepted() {
        let bot = bot(true);
        let ids = |batch: Batch| batch.events.iter().map(|event| event.id().to_owned()).collect::<Vec<_>>();
        assert_eq!(bot.parse_delivery(Some(SECRET), &update()).map(ids), Ok(vec!["5".to_owned()]));
        for invalid in [None, Some(""), Some("a-good-long-secreT"), Some("a-good-long-secret ")] {
            assert_eq!(bot.parse_delivery(invalid, &update()), Err(UpdateRejection::WrongSecret));
        }
        let polling = Telegram::new(HttpClients::default(), Settings::new("main", Secret::from("1:abc"))).unwrap();
        assert_eq!(polling.parse_delivery(Some(""), &update()), Err(UpdateRejection::WrongSecret));
    }

    #[test]
    fn invalid_updates_are_rejected() {
        let deliver = |body: &[u8]| bot(true).parse_delivery(Some(SECRET), body).map_err(UpdateRejection::status);
        assert_eq!(deliver(b"{"), Err(400));
        assert_eq!(deliver(b"{\"message\": {}}"), Err(400));
        assert_eq!(deliver(&vec![b' '; MAX_UPDATE_BYTES + 1]), Err(413));
        // An update of an unknown type is accepted without events; Telegram would send a rejected one again.
        assert_eq!(
            deliver(b"{\"update_id\": 6, \"news\": {}}"),
            Ok(Batch::default()),
            "news that nobody knows are taken"
        );
        assert_eq!(bot(false).parse_delivery(Some(SECRET), &update()), Err(UpdateRejection::NotReady));
    }

    #[test]
    fn a_weak_secret_or_an_http_url_is_rejected() {
        let is_accepted = |url: &str, secret: &str| check(url, &Secret::from(secret)).is_ok();
        assert!(is_accepted("https://x.y/hook", SECRET));
        assert!(!is_accepted("http://x.y/hook", SECRET));
        assert!(!["", "short", "a secret with spaces"].into_iter().any(|secret| is_accepted("https://x.y", secret)));
    }
}
