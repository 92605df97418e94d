//! `send` and `poll`: immediate messages. The response has the result, and repeated requests are deduplicated: here while
//! one is answered, and by the outbox afterwards and after a restart.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use homard_agent::channel_sender::{Poll, SendError};
use homard_channel_runtime::{DirectError, DirectMessage};
use homard_delivery::payload::{OutboxPayload, is_url};
use homard_gateway::MethodRequest;
use homard_proto::{
    ErrorShape, Route,
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
    let media: Vec<_> = media_url.into_iter().chain(media_urls).collect();
    if message.trim().is_empty() && media.is_empty() {
        return Err(ErrorShape::invalid("invalid send params: message or mediaUrl is missing"));
    }
    // Anything else would name a file of this machine.
    if !media.iter().all(|media| is_url(media)) {
        return Err(ErrorShape::invalid("invalid send params: mediaUrl must be an http(s) URL"));
    }
    let payload =
        OutboxPayload { reply_to: reply_to_id, text: message, media, is_silent: silent, ..OutboxPayload::default() };
    let route = Route { channel, to: Some(to), account: account_id, thread: thread_id };
    let request = SendRequest { method: "send", id: &idempotency_key, params: known };
    send_once(context, request, DirectMessage { key: format!("send-{idempotency_key}"), route, payload }).await
}

pub(crate) async fn poll(mut request: MethodRequest, context: ChannelMethods) -> Result<Value, ErrorShape> {
    let params: PollParams = request.params()?;
    let known = json!(params);
    let PollParams { to, question, options, max_selections, channel, account_id, thread_id, idempotency_key } = params;
    let poll = Poll { question, options, is_multiple: max_selections.is_some_and(|max| max > 1) };
    let payload = OutboxPayload { poll: Some(poll), ..OutboxPayload::default() };
    let route = Route { channel, to: Some(to), account: account_id, thread: thread_id };
    let request = SendRequest { method: "poll", id: &idempotency_key, params: known };
    send_once(context, request, DirectMessage { key: format!("poll-{idempotency_key}"), route, payload }).await
}

/// A request to send a message, as the client made it.
struct SendRequest<'a> {
    method: &'a str,
    /// Idempotency key.
    id: &'a str,
    params: Value,
}

/// Sends the message unless the same request was made before, also by a previous process. Completes even if the client
/// disconnects.
async fn send_once(
    context: ChannelMethods,
    request: SendRequest<'_>,
    message: DirectMessage,
) -> Result<Value, ErrorShape> {
    let SendRequest { method, id, params } = request;
    let key = format!("{method}:{id}");
    let outcome = context.results.outcome(&key, &params)?;
    let run = id.to_owned();
    let task = task::spawn("send", async move {
        let result = outcome.get_or_init(|| async {
            let chat = message.route.to.clone();
            let sent = context.channels.send_once(message).await.map_err(|error| {
                // What had no effect may be repeated, and what was sent meanwhile is found in the outbox.
                context.results.forget(&key);
                direct_error_shape(&error)
            })?;
            Ok(json!({"runId": run, "channel": sent.channel, "chatId": chat, "messageId": sent.message}))
        });
        result.await.clone()
    });
    task.await.map_err(unavailable)?
}

fn direct_error_shape(error: &DirectError) -> ErrorShape {
    match error {
        DirectError::Conflict(_) => ErrorShape::invalid(error.to_string()),
        DirectError::Send(error) => error_shape(error),
        DirectError::Store(error) => ErrorShape::unavailable(error.to_string()),
    }
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
