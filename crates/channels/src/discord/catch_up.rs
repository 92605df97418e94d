//! Fetches the messages that a channel received while there was no session.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{directory::ChannelKind, event, receive::Receiver};
use crate::{ChannelError, ChannelEvent};

/// Messages per request.
const PAGE: usize = 100;

/// Stores the messages of a channel after the last stored one, oldest first.
pub(super) async fn run(receiver: &mut Receiver<'_>, channel: &str) -> Result<(), ChannelError> {
    let mut roles = BTreeMap::new();
    while let Some(last) = receiver.cursor.last_message(channel) {
        let (after, limit) = (last.to_string(), PAGE.to_string());
        let (path, query) = (["channels", channel, "messages"], [("after", after.as_str()), ("limit", limit.as_str())]);
        let page = receiver.ask("get missed messages", &path, &query).await?;
        let Some(Value::Array(mut messages)) = page else { return Ok(()) };
        let count = messages.len();
        let id = |message: &Value| message["id"].as_str().and_then(|id| id.parse::<u64>().ok()).unwrap_or(0);
        messages.retain(|message| id(message) > last);
        messages.sort_by_key(id);
        if messages.is_empty() {
            return Ok(());
        }
        for message in &mut messages {
            store(receiver, channel, message, &mut roles).await?;
        }
        if count < PAGE {
            return Ok(());
        }
    }
    Ok(())
}

/// Stores a fetched message. Unlike that of an event, it has no server and no roles.
async fn store(
    receiver: &mut Receiver<'_>,
    channel: &str,
    message: &mut Value,
    roles: &mut BTreeMap<String, Value>,
) -> Result<(), ChannelError> {
    let Some(id) = message["id"].as_str().map(str::to_owned) else { return Ok(()) };
    let kind = receiver.discord.directory().get(channel).map(|known| known.kind.clone());
    let author = message["author"]["id"].as_str().unwrap_or_default().to_owned();
    if let Some(ChannelKind::Server(server) | ChannelKind::Thread { server, .. }) = kind
        && receiver.discord.settings.needs_roles
        && message["webhook_id"].is_null()
    {
        if !roles.contains_key(&author) {
            let path = ["guilds", &server, "members", &author];
            let member = receiver.ask("get a member", &path, &[]).await?;
            roles.insert(author.clone(), member.unwrap_or_default());
        }
        message["member"] = roles.get(&author).cloned().unwrap_or_default();
    }
    let incoming = receiver.convert(message, event::message).await?;
    receiver.cursor.advance(channel, &id);
    receiver.store(incoming.map(|incoming| ChannelEvent::Message(Box::new(incoming)))).await;
    Ok(())
}
