//! `sessions.subscribe` and `sessions.messages.subscribe`: subscriptions to session changes and messages.

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

/// Subscribes the connection to changes and messages of all sessions.
pub(crate) async fn subscribe(call: Call) -> Result<Answer, ErrorShape> {
    follow(call, true)
}

/// Ends the subscription to all sessions.
pub(crate) async fn unsubscribe(call: Call) -> Result<Answer, ErrorShape> {
    follow(call, false)
}

fn follow(mut call: Call, wants: bool) -> Result<Answer, ErrorShape> {
    let SubscribeParams {} = call.params()?;
    call.client.follow(wants);
    Ok(json!({"subscribed": wants}).into())
}

/// Subscribes the connection to the messages of a session.
pub(crate) async fn follow_messages(mut call: Call) -> Result<Answer, ErrorShape> {
    let key = named(&mut call)?;
    if !call.client.read_along(key.clone()) {
        let why = format!("this connection follows {READS} conversations; end some with sessions.messages.unsubscribe");
        return Err(ErrorShape::invalid(why));
    }
    Ok(json!({"subscribed": true, "key": key}).into())
}

/// Unsubscribes from the messages of a session; a subscription to all sessions is not affected.
pub(crate) async fn leave_messages(mut call: Call) -> Result<Answer, ErrorShape> {
    let key = named(&mut call)?;
    call.client.look_away(&key);
    Ok(json!({"subscribed": false, "key": key}).into())
}

fn named(call: &mut Call) -> Result<SessionKey, ErrorShape> {
    let MessagesParams { key, agent_id } = call.params()?;
    meant::<MessagesParams>(&call.server, &key, agent_id.as_deref())
}
