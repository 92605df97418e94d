//! `chat.history`: what was said. What is said goes through [`send`].

pub(crate) mod send;

use homard_proto::{
    ErrorShape, Generation,
    method::{Params, chat::HistoryParams},
};
use serde_json::{Value, json};

use super::{session_key, unavailable};
use crate::router::{Answer, Call};

/// How many messages are told when the caller does not say.
const MESSAGES: usize = 200;
/// How many bytes of messages are told at most.
const BYTES: usize = 6 * 1024 * 1024;

/// What was said in a session, newest last.
pub(crate) async fn history(mut call: Call) -> Result<Answer, ErrorShape> {
    let params: HistoryParams = call.params()?;
    let key = session_key(&call.server, HistoryParams::METHOD, &params.session_key)?;
    let found = call.server.hub.history(&key).await.map_err(unavailable)?;
    let (record, messages) = found.map_or((None, Vec::new()), |(record, messages)| (Some(record), messages));
    let total = messages.len();
    let newest = messages.iter().rev().take(params.limit.unwrap_or(MESSAGES));
    let shown = fitting(newest.map(|message| json!(message)), BYTES);
    let thinking = record.as_ref().and_then(|record| record.thinking_level.as_deref()).unwrap_or("off");
    let mut answer = json!({"sessionKey": params.session_key, "thinkingLevel": thinking});
    if let Some(record) = &record {
        answer["sessionId"] = json!(record.session_id);
        if let Some(level) = &record.verbose_level {
            answer["verboseLevel"] = level.as_str().into();
        }
    }
    if call.client.generation == Generation::Four {
        answer["hasMore"] = (shown.len() < total).into();
        answer["totalMessages"] = total.into();
        answer["pendingInputs"] = json!({"items": [], "total": 0});
    }
    answer["messages"] = shown.into();
    Ok(answer.into())
}

/// As many of the newest messages as fit, oldest first.
fn fitting(newest_first: impl Iterator<Item = Value>, bytes: usize) -> Vec<Value> {
    let mut room = bytes;
    let fits = |message: &Value| {
        let left = room.checked_sub(message.to_string().len());
        room = left.unwrap_or_default();
        left.is_some()
    };
    let mut shown: Vec<_> = newest_first.take_while(fits).collect();
    shown.reverse();
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_messages_are_left_out_when_they_do_not_fit() {
        let newest_first = || ["cc", "b", "aaaa"].into_iter().map(Value::from);
        assert_eq!(fitting(newest_first(), 13), ["aaaa", "b", "cc"].map(Value::from));
        assert_eq!(fitting(newest_first(), 12), ["b", "cc"].map(Value::from));
        assert_eq!(fitting(newest_first(), 3), [] as [Value; 0]);
    }
}
