//! Receives updates by webhook.

use serde_json::Value;

use super::{Intake, Telegram, update};
use crate::{Batch, Failure, Secret};

/// Header that contains the secret.
pub const HEADER: &str = "x-telegram-bot-api-secret-token";

/// Maximum size of an update.
pub const LARGEST: usize = 1 << 20;

/// Why an update is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// The secret is wrong.
    Stranger,
    /// It is too large.
    Large,
    /// It is not an update.
    Garbled,
    /// The bot's own identity is not known yet; Telegram will retry.
    Early,
}

impl Rejected {
    /// Returns the HTTP status of the response.
    pub fn status(self) -> u16 {
        match self {
            Self::Stranger => 401,
            Self::Large => 413,
            Self::Garbled => 400,
            Self::Early => 503,
        }
    }
}

impl Telegram {
    /// Parses an update. `secret` is the value of its [`HEADER`], if present.
    ///
    /// The caller must respond with 200 only after the sink has stored the batch, since Telegram would otherwise not
    /// retry. The batch may have no events.
    pub fn delivered(&self, secret: Option<&str>, body: &[u8]) -> Result<Batch, Rejected> {
        let expected = match &self.settings.intake {
            Intake::Webhook { secret, .. } => secret,
            Intake::Polling => return Err(Rejected::Stranger),
        };
        if !expected.is(secret.unwrap_or_default()) {
            return Err(Rejected::Stranger);
        }
        if body.len() > LARGEST {
            return Err(Rejected::Large);
        }
        let update: Value = serde_json::from_slice(body).map_err(|_garbled| Rejected::Garbled)?;
        if update::number(&update).is_none() {
            return Err(Rejected::Garbled);
        }
        let me = self.me.get().ok_or(Rejected::Early)?;
        let event = update::read(&update, me, &self.settings.account);
        Ok(Batch { events: event.into_iter().collect(), cursor: None })
    }
}

/// Rejects settings that Telegram would reject or that would not authenticate updates.
pub(super) fn check(url: &str, secret: &Secret) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::Refused(why.to_owned()));
    if !url.starts_with("https://") {
        return refused("channels.telegram.webhookUrl does not begin with https://, which Telegram asks for");
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
        Road,
        telegram::{Me, Settings},
    };

    const SECRET: &str = "a-good-long-secret";

    fn bot(is_known: bool) -> Telegram {
        let mut settings = Settings::new("main", Secret::from("1:abc"));
        settings.intake = Intake::Webhook { url: "https://x.y/hook".to_owned(), secret: Secret::from(SECRET) };
        let bot = Telegram::new(Road::default(), settings).unwrap();
        if is_known {
            let me = Me { id: 1, username: None, name: String::new(), reads_groups: true };
            bot.me.set(me).unwrap();
        }
        bot
    }

    fn update() -> Vec<u8> {
        let chat = json!({"id": 7, "type": "private"});
        let message = json!({"message_id": 3, "date": 1, "chat": chat, "from": {"id": 7}, "text": "hi"});
        json!({"update_id": 5, "message": message}).to_string().into_bytes()
    }

    #[test]
    fn only_telegram_is_heard() {
        let bot = bot(true);
        let ids = |batch: Batch| batch.events.iter().map(|event| event.id().to_owned()).collect::<Vec<_>>();
        assert_eq!(bot.delivered(Some(SECRET), &update()).map(ids), Ok(vec!["5".to_owned()]));
        for wrong in [None, Some(""), Some("a-good-long-secreT"), Some("a-good-long-secret ")] {
            assert_eq!(bot.delivered(wrong, &update()), Err(Rejected::Stranger));
        }
        let polling = Telegram::new(Road::default(), Settings::new("main", Secret::from("1:abc"))).unwrap();
        assert_eq!(polling.delivered(Some(""), &update()), Err(Rejected::Stranger));
    }

    #[test]
    fn what_is_no_update_is_not_taken() {
        let deliver = |body: &[u8]| bot(true).delivered(Some(SECRET), body).map_err(Rejected::status);
        assert_eq!(deliver(b"{"), Err(400));
        assert_eq!(deliver(b"{\"message\": {}}"), Err(400));
        assert_eq!(deliver(&vec![b' '; LARGEST + 1]), Err(413));
        assert_eq!(
            deliver(b"{\"update_id\": 6, \"news\": {}}"),
            Ok(Batch::default()),
            "news that nobody knows are taken"
        );
        assert_eq!(bot(false).delivered(Some(SECRET), &update()), Err(Rejected::Early));
    }

    #[test]
    fn a_weak_secret_or_a_bare_address_is_refused() {
        let told = |url: &str, secret: &str| check(url, &Secret::from(secret)).is_ok();
        assert!(told("https://x.y/hook", SECRET));
        assert!(!told("http://x.y/hook", SECRET));
        assert!(!["", "short", "a secret with spaces"].into_iter().any(|secret| told("https://x.y", secret)));
    }
}
