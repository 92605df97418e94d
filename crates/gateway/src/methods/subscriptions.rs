//! `sessions.subscribe` and `sessions.messages.subscribe`: subscriptions to session changes and messages.

use homard_proto::{
    ErrorShape, SessionKey,
    method::subscribe::{MessagesParams, SubscribeParams},
};
use serde_json::json;

use super::sessions::change::resolve_session;
use crate::{
    client::MAX_SUBSCRIPTIONS,
    router::{RpcCall, RpcResult},
};

/// Subscribes the connection to changes and messages of all sessions.
pub(crate) async fn subscribe(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    set_subscribed(call, true)
}

/// Ends the subscription to all sessions.
pub(crate) async fn unsubscribe(call: RpcCall) -> Result<RpcResult, ErrorShape> {
    set_subscribed(call, false)
}

fn set_subscribed(mut call: RpcCall, is_subscribed: bool) -> Result<RpcResult, ErrorShape> {
    let SubscribeParams {} = call.params()?;
    call.client.set_subscribed(is_subscribed);
    Ok(json!({"subscribed": is_subscribed}).into())
}

/// Subscribes the connection to the messages of a session.
pub(crate) async fn subscribe_messages(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let key = session_key(&mut call)?;
    if !call.client.subscribe_messages(key.clone()) {
        let why = format!(
            "this connection is subscribed to {MAX_SUBSCRIPTIONS} sessions, which is the limit; unsubscribe from \
             some with sessions.messages.unsubscribe"
        );
        return Err(ErrorShape::invalid(why));
    }
    Ok(json!({"subscribed": true, "key": key}).into())
}

/// Unsubscribes from the messages of a session; a subscription to all sessions is not affected.
pub(crate) async fn unsubscribe_messages(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let key = session_key(&mut call)?;
    call.client.unsubscribe_messages(&key);
    Ok(json!({"subscribed": false, "key": key}).into())
}

fn session_key(call: &mut RpcCall) -> Result<SessionKey, ErrorShape> {
    let MessagesParams { key, agent_id } = call.params()?;
    resolve_session::<MessagesParams>(&call.server, &key, agent_id.as_deref())
}
