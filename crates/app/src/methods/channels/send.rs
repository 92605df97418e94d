//! `send` and `poll`: immediate messages. The response has the result, and repeated requests are deduplicated.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use homard_agent::channel_sender::SendError;
use homard_channels::{Destination, Media, Outgoing, Poll};
use homard_gateway::MethodRequest;
use homard_proto::{
    ErrorShape,
    method::channels::{PollParams, SendParams},
};
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{ChannelMethods, unavailable};

/// Maximum number of remembered requests.
const MAX_REMEMBERED: usize = 1000;

/// Results of requests by idempotency key.
#[derive(Debug, Clone, Default)]
pub(super) struct SendResults(Arc<Mutex<VecDeque<SendEntry>>>);

#[derive(Debug, Clone)]
struct SendEntry {
    key: String,
    params: Value,
    outcome: Arc<OnceCell<Result<Value, ErrorShape>>>,
}

impl SendResults {
    /// Returns the cell for the result of a request, shared by its repetitions.
    fn outcome(&self, key: &str, params: &Value) -> Result<Arc<OnceCell<Result<Value, ErrorShape>>>, ErrorShape> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|known| known.key == key) {
            if known.params != *params {
                let why = format!("idempotency_conflict: {key} was already used for another request");
                return Err(ErrorShape::invalid(why));
            }
            return Ok(known.outcome.clone());
        }
        if all.len() >= MAX_REMEMBERED {
            all.pop_front();
        }
        let outcome = Arc::default();
        all.push_back(SendEntry { key: key.to_owned(), params: params.clone(), outcome: Arc::clone(&outcome) });
        Ok(outcome)
    }

    /// Forgets a request that had no effect, so that it can be repeated.
    fn forget(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| known.key != key);
    }
}

pub(crate) async fn send(mut request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let params: SendParams = request.params()?;
    let known = json!(params);
    let SendParams {
        to,
        message,
        media_url,
        media_urls,
        channel,
        account_id,
        thread_id,
        reply_to_id,
        silent,
        idempotency_key,
    } = params;
    let media: Vec<_> = media_url.into_iter().chain(media_urls).map(Media::Url).collect();
    if message.trim().is_empty() && media.is_empty() {
        return Err(ErrorShape::invalid("invalid send params: message or mediaUrl is missing"));
    }
    let outgoing = Outgoing {
        id: format!("send-{idempotency_key}"),
        destination: Destination { to, thread: thread_id },
        reply_to: reply_to_id,
        text: message,
        media,
        is_silent: silent,
        ..Outgoing::default()
    };
    let request = SendRequest { method: "send", id: &idempotency_key, params: known, channel, account: account_id };
    send_once(context, request, outgoing).await
}

pub(crate) async fn poll(mut request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let params: PollParams = request.params()?;
    let known = json!(params);
    let PollParams { to, question, options, max_selections, channel, account_id, thread_id, idempotency_key } = params;
    let poll = Poll { question, options, is_multiple: max_selections.is_some_and(|max| max > 1) };
    let outgoing = Outgoing {
        id: format!("poll-{idempotency_key}"),
        destination: Destination { to, thread: thread_id },
        poll: Some(poll),
        ..Outgoing::default()
    };
    let request = SendRequest { method: "poll", id: &idempotency_key, params: known, channel, account: account_id };
    send_once(context, request, outgoing).await
}

/// A request to send a message, as the client made it.
struct SendRequest<'a> {
    method: &'a str,
    /// Idempotency key.
    id: &'a str,
    params: Value,
    channel: Option<String>,
    account: Option<String>,
}

/// Sends the message unless the same request was made before. Completes even if the client disconnects.
async fn send_once(context: ChannelMethods, request: SendRequest<'_>, outgoing: Outgoing) -> Result<Value, ErrorShape> {
    let SendRequest { method, id, params, channel, account } = request;
    let key = format!("{method}:{id}");
    let outcome = context.results.outcome(&key, &params)?;
    let run = id.to_owned();
    let task = task::spawn("send", async move {
        let result = outcome.get_or_init(|| async {
            let chat = outgoing.destination.to.clone();
            let result = context.channels.send_now(channel.as_deref(), account.as_deref(), outgoing).await;
            let (channel, receipt) = result.map_err(|error| {
                if !matches!(error, SendError::Unknown(_)) {
                    context.results.forget(&key);
                }
                error_shape(&error)
            })?;
            Ok(json!({"runId": run, "channel": channel, "chatId": chat, "messageId": receipt.message}))
        });
        result.await.clone()
    });
    task.await.map_err(unavailable)?
}

fn error_shape(error: &SendError) -> ErrorShape {
    let text = error.to_string();
    match error {
        SendError::NoChannel(channel) => {
            ErrorShape::invalid(format!("unsupported channel: {channel}; set it up with: homard channels add"))
        }
        SendError::NoChannels | SendError::Ambiguous(_) | SendError::Unsupported { .. } | SendError::Refused(_) => {
            ErrorShape::invalid(text)
        }
        SendError::Unavailable { .. } => ErrorShape { retryable: Some(true), ..ErrorShape::unavailable(text) },
        SendError::Unknown(_) => ErrorShape { retryable: Some(false), ..ErrorShape::unavailable(text) },
    }
}
