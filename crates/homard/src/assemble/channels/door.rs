//! HTTP endpoints for platforms: `/channels/telegram` and `/channels/webhook/<account>`.

use async_trait::async_trait;
use homard_channels::{
    Batch, Sink,
    telegram::webhook::HEADER,
    webhook::{inbound::Headers, signature},
};
use homard_gateway::{Door, Foreign, HttpAnswered, HttpAsked, Scope};
use homard_proto::ErrorShape;
use serde_json::{Value, json};

use super::{Channels, build::Built};
use crate::config::channels::DEFAULT_ACCOUNT;

/// Path prefix before the channel's name.
const ROOT: &str = "/channels/";

/// HTTP routes and methods that plugins and channels add to the gateway.
#[derive(Debug)]
pub(crate) struct Doors<F> {
    pub(crate) plugins: F,
    pub(crate) channels: Channels,
}

#[async_trait]
impl<F: Foreign> Foreign for Doors<F> {
    fn methods(&self) -> Vec<String> {
        self.plugins.methods()
    }

    fn needs(&self, method: &str) -> Option<Scope> {
        self.plugins.needs(method)
    }

    async fn call(&self, method: &str, params: Value, client: Value) -> Result<Value, ErrorShape> {
        self.plugins.call(method, params, client).await
    }

    fn door(&self, path: &str) -> Option<Door> {
        // The channel authenticates requests with its own secret.
        if place(path).is_some_and(|place| self.channels.has(place)) {
            Some(Door::Open)
        } else {
            self.plugins.door(path)
        }
    }

    fn largest(&self, path: &str) -> usize {
        if place(path).is_some() { homard_channels::webhook::inbound::LARGEST } else { self.plugins.largest(path) }
    }

    async fn answer(&self, asked: HttpAsked) -> Option<HttpAnswered> {
        let path = asked.url.split('?').next().unwrap_or_default().to_owned();
        match place(&path).filter(|place| self.channels.has(*place)) {
            Some(place) => Some(self.channels.visited(place, &asked).await),
            None => self.plugins.answer(asked).await,
        }
    }
}

/// Returns the channel and the account that a path names.
fn place(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(ROOT)?.trim_end_matches('/');
    match rest.split_once('/') {
        Some((channel, account)) if !account.contains('/') => Some((channel, account)),
        Some(_) => None,
        None => Some((rest, DEFAULT_ACCOUNT)),
    }
}

impl Channels {
    /// Processes a platform's request. It is answered with 200 only after the events are on disk.
    async fn visited(&self, place: (&str, &str), asked: &HttpAsked) -> HttpAnswered {
        let header = |name: &str| {
            asked.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
        };
        if asked.method != "POST" {
            return answer(405, &json!({"error": "send it with POST"}));
        }
        let Some(account) = self.account(place) else {
            return answer(404, &json!({"error": "there is no such channel"}));
        };
        let batch: Result<Batch, (u16, String)> = match &account.built {
            Built::Telegram(telegram) => telegram
                .delivered(header(HEADER), &asked.body)
                .map_err(|rejected| (rejected.status(), "it is not taken".to_owned())),
            Built::Webhook(webhook) => {
                let headers =
                    Headers { timestamp: header(signature::TIMESTAMP), signature: header(signature::SIGNATURE) };
                webhook.delivered(headers, &asked.body).map_err(|rejected| (rejected.status(), rejected.advice()))
            }
        };
        let (status, why) = match batch {
            Err(rejected) => rejected,
            Ok(batch) => match account.desk() {
                None => (503, "the gateway is not ready; send it again later".to_owned()),
                Some(desk) => match desk.take(batch).await {
                    Ok(()) => return answer(200, &json!({"ok": true})),
                    Err(unstored) => (503, unstored.to_string()),
                },
            },
        };
        tracing::debug!(channel = place.0, account = place.1, status, why, "a delivery was not taken");
        answer(status, &json!({"error": why}))
    }
}

fn answer(status: u16, body: &Value) -> HttpAnswered {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    HttpAnswered { status, headers, body: body.to_string().into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_channel_and_an_account() {
        assert_eq!(place("/channels/telegram"), Some(("telegram", "default")));
        assert_eq!(place("/channels/webhook/door/"), Some(("webhook", "door")));
        assert_eq!([place("/channels"), place("/channels/a/b/c"), place("/other/telegram")], [None; 3]);
    }
}
