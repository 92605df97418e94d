//! `sessions.subscribe` and `sessions.messages.subscribe`: who wants to hear what becomes of conversations.

use homard_proto::{
    ErrorShape, SessionKey,
    method::follow::{MessagesParams, SubscribeParams},
};
use serde_json::json;

use super::sessions::change::meant;
use crate::{
    client::READS,
    router::{Answer, Call},
};

/// From here on the connection hears when conversations change, and what is said in them.
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

/// From here on the connection hears what is said in this conversation.
pub(crate) async fn follow_messages(mut call: Call) -> Result<Answer, ErrorShape> {
    let key = named(&mut call)?;
    if !call.client.read_along(key.clone()) {
        let why = format!("this connection follows {READS} conversations; end some with sessions.messages.unsubscribe");
        return Err(ErrorShape::invalid(why));
    }
    Ok(json!({"subscribed": true, "key": key}).into())
}

/// From here on it does not, unless it hears of all conversations.
pub(crate) async fn leave_messages(mut call: Call) -> Result<Answer, ErrorShape> {
    let key = named(&mut call)?;
    call.client.look_away(&key);
    Ok(json!({"subscribed": false, "key": key}).into())
}

fn named(call: &mut Call) -> Result<SessionKey, ErrorShape> {
    let MessagesParams { key, agent_id } = call.params()?;
    meant::<MessagesParams>(&call.server, &key, agent_id.as_deref())
}
