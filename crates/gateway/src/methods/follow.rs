//! `sessions.subscribe` and `sessions.messages.subscribe`: who wants to hear what becomes of conversations.

use homard_proto::{
    ErrorShape,
    method::follow::{MessagesParams, SubscribeParams},
};
use serde_json::json;

use super::sessions::change::meant;
use crate::router::{Answer, Call};

/// From here on the connection hears when conversations change.
pub(crate) async fn subscribe(call: Call) -> Result<Answer, ErrorShape> {
    follow(call, true)
}

/// From here on it does not.
pub(crate) async fn unsubscribe(call: Call) -> Result<Answer, ErrorShape> {
    follow(call, false)
}

fn follow(mut call: Call, wants: bool) -> Result<Answer, ErrorShape> {
    let SubscribeParams {} = call.params()?;
    call.client.follow(wants);
    Ok(json!({"subscribed": wants}).into())
}

/// The connection hears of this conversation, as everybody who may read hears of all of them.
pub(crate) async fn follow_messages(call: Call) -> Result<Answer, ErrorShape> {
    messages(call, true)
}

/// It need not hear of it any more; nothing is kept back from those who do not listen.
pub(crate) async fn leave_messages(call: Call) -> Result<Answer, ErrorShape> {
    messages(call, false)
}

fn messages(mut call: Call, wants: bool) -> Result<Answer, ErrorShape> {
    let params: MessagesParams = call.params()?;
    let key = meant::<MessagesParams>(&call.server, &params.key, params.agent_id.as_deref())?;
    Ok(json!({"subscribed": wants, "key": key}).into())
}
