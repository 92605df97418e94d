//! `chat.inject`: appends a message to a session that no model wrote.

use homard_proto::{
    ErrorShape, Extra,
    event::{Chat, ChatState},
    method::{Params, chat::InjectParams},
};
use serde_json::json;

use crate::{
    message_feed::StoredMessage,
    methods::{keyed, sessions::change::refusal},
    news::Audience,
    router::{Answer, Call},
};

/// Appends the message to the session's transcript and publishes it.
pub(crate) async fn inject(mut call: Call) -> Result<Answer, ErrorShape> {
    let InjectParams { session_key, agent_id, message, label } = call.params()?;
    let key = keyed(&call.server, InjectParams::METHOD, &session_key, agent_id.as_deref())?;
    let words = message.trim();
    if words.is_empty() {
        return Err(ErrorShape::invalid("invalid chat.inject params: message must not be blank"));
    }
    let label = label.as_deref().map(str::trim).filter(|label| !label.is_empty());
    let text = label.map_or_else(|| words.to_owned(), |label| format!("[{label}]\n\n{words}"));
    let injected = call.server.hub.inject(&key, text).await.map_err(|error| refusal(&error))?;
    let (entry, said) = (&injected.entry, &injected.message);
    let told = Chat {
        run_id: format!("inject-{entry}"),
        session_key: key.to_string(),
        agent_id: key.agent().map(ToString::to_string),
        seq: 0,
        state: ChatState::Final,
        delta_text: None,
        replace: None,
        message: Some(json!({"role": "assistant", "content": said.content, "timestamp": said.timestamp})),
        stop_reason: Some("injected".to_owned()),
        error_message: None,
        extra: Extra::new(),
    };
    let projector = &call.server.projector;
    projector.tell("chat", &json!(told), Audience::READERS);
    projector.message_stored(&key, &injected.session, StoredMessage::Line(entry.clone()));
    projector.drain().await;
    Ok(json!({"ok": true, "messageId": entry}).into())
}
