//! `chat.inject`: appends a message to a session that no model wrote.

use homard_proto::{
    ErrorShape, Extra,
    event::{ChatEvent, ChatState},
    method::{Params, chat::InjectParams},
};
use serde_json::json;

use crate::{
    broadcaster::Audience,
    message_feed::StoredMessage,
    methods::{session_key_of_agent, sessions::change::error_response},
    router::{RpcCall, RpcResult},
};

/// Appends the message to the session's transcript and publishes it.
pub(crate) async fn inject(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let InjectParams { session_key, agent_id, message, label } = call.params()?;
    let key = session_key_of_agent(&call.server, InjectParams::METHOD, &session_key, agent_id.as_deref())?;
    let message_text = message.trim();
    if message_text.is_empty() {
        return Err(ErrorShape::invalid("invalid chat.inject params: message must not be blank"));
    }
    let label = label.as_deref().map(str::trim).filter(|label| !label.is_empty());
    let text = label.map_or_else(|| message_text.to_owned(), |label| format!("[{label}]\n\n{message_text}"));
    let injected = call.server.hub.sessions().inject(&key, text).await.map_err(|error| error_response(&error))?;
    let (entry, message_json) = (&injected.entry, &injected.message);
    let event = ChatEvent {
        run_id: format!("inject-{entry}"),
        session_key: key.to_string(),
        agent_id: key.agent().map(ToString::to_string),
        seq: 0,
        state: ChatState::Final,
        delta_text: None,
        replace: None,
        message: Some(
            json!({"role": "assistant", "content": message_json.content, "timestamp": message_json.timestamp}),
        ),
        stop_reason: Some("injected".to_owned()),
        error_message: None,
        extra: Extra::new(),
    };
    let projector = &call.server.projector;
    projector.publish("chat", &json!(event), Audience::READERS);
    projector.message_stored(&key, &injected.session, StoredMessage::Entry(entry.clone()));
    projector.drain().await;
    Ok(json!({"ok": true, "messageId": entry}).into())
}
