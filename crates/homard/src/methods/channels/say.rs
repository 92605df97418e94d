//! `send` and `poll`: saying something at once. Whoever asks hears what became of it, and the same request is done once.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use homard_agent::{courier::CourierError, task};
use homard_channels::{Media, Outgoing, Place, Poll};
use homard_gateway::Asked;
use homard_proto::{
    ErrorShape,
    method::channels::{PollParams, SendParams},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{House, unavailable};

/// How many requests are remembered.
const KNOWN: usize = 1000;

/// What became of requests, by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Said(Arc<Mutex<VecDeque<Known>>>);

#[derive(Debug, Clone)]
struct Known {
    key: String,
    asked: Value,
    outcome: Arc<OnceCell<Result<Value, ErrorShape>>>,
}

impl Said {
    /// Where the outcome of a request is kept, whoever brings it about.
    fn outcome(&self, key: &str, asked: &Value) -> Result<Arc<OnceCell<Result<Value, ErrorShape>>>, ErrorShape> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|known| known.key == key) {
            if known.asked != *asked {
                let why = format!("idempotency_conflict: {key} was already used for another request");
                return Err(ErrorShape::invalid(why));
            }
            return Ok(known.outcome.clone());
        }
        if all.len() >= KNOWN {
            all.pop_front();
        }
        let outcome = Arc::default();
        all.push_back(Known { key: key.to_owned(), asked: asked.clone(), outcome: Arc::clone(&outcome) });
        Ok(outcome)
    }

    /// Nothing was done, so it may be asked for again.
    fn forget(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| known.key != key);
    }
}

/// `send`.
pub(super) async fn send(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let params: SendParams = asked.params()?;
    let media: Vec<_> = params.media_url.iter().chain(&params.media_urls).cloned().map(Media::Url).collect();
    if params.message.trim().is_empty() && media.is_empty() {
        return Err(ErrorShape::invalid("invalid send params: message or mediaUrl is missing"));
    }
    let outgoing = Outgoing {
        id: format!("send-{}", params.idempotency_key),
        place: Place { to: params.to.clone(), thread: params.thread_id.clone() },
        reply_to: params.reply_to_id.clone(),
        text: params.message.clone(),
        media,
        is_silent: params.silent,
        ..Outgoing::default()
    };
    let route = (params.channel.clone(), params.account_id.clone());
    once(house, ("send", &params.idempotency_key, json!(params)), route, outgoing).await
}

/// `poll`.
pub(super) async fn poll(mut asked: Asked, house: House) -> Result<Value, ErrorShape> {
    let params: PollParams = asked.params()?;
    let poll = Poll {
        question: params.question.clone(),
        options: params.options.clone(),
        is_multiple: params.max_selections.is_some_and(|most| most > 1),
    };
    let outgoing = Outgoing {
        id: format!("poll-{}", params.idempotency_key),
        place: Place { to: params.to.clone(), thread: params.thread_id.clone() },
        poll: Some(poll),
        ..Outgoing::default()
    };
    let route = (params.channel.clone(), params.account_id.clone());
    once(house, ("poll", &params.idempotency_key, json!(params)), route, outgoing).await
}

/// Says it, unless the same request was made before. It comes to its end also when nobody waits any more.
async fn once(
    house: House,
    (method, id, asked): (&str, &str, Value),
    (channel, account): (Option<String>, Option<String>),
    outgoing: Outgoing,
) -> Result<Value, ErrorShape> {
    let key = format!("{method}:{id}");
    let outcome = house.said.outcome(&key, &asked)?;
    let run = id.to_owned();
    let doing = task::spawn("send", async move {
        let said = outcome.get_or_init(|| async {
            let chat = outgoing.place.to.clone();
            let said = house.channels.say((channel.as_deref(), account.as_deref()), outgoing).await;
            let (channel, receipt) = said.map_err(|error| {
                if !matches!(error, CourierError::Unknown(_)) {
                    house.said.forget(&key);
                }
                refusal(&error)
            })?;
            Ok(json!({"runId": run, "channel": channel, "chatId": chat, "messageId": receipt.message}))
        });
        said.await.clone()
    });
    doing.await.map_err(unavailable)?
}

fn refusal(error: &CourierError) -> ErrorShape {
    let text = error.to_string();
    match error {
        CourierError::NoChannel(channel) => {
            ErrorShape::invalid(format!("unsupported channel: {channel}; set it up with: homard channels add"))
        }
        CourierError::Ambiguous(_) | CourierError::Unsupported { .. } | CourierError::Refused(_) => {
            ErrorShape::invalid(text)
        }
        CourierError::Unavailable { .. } => ErrorShape { retryable: Some(true), ..ErrorShape::unavailable(text) },
        CourierError::Unknown(_) => ErrorShape { retryable: Some(false), ..ErrorShape::unavailable(text) },
    }
}
