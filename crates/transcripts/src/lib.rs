//! The messages of sessions: from the gateway, or from the state directory if none runs. Both return the same.
//!
//! Start with [`MessageSource`]. Messages are prepared for people by [`ShownMessage`], searched by [`search`], and
//! exported by [`markdown`] and [`html`]; the arguments of tool calls are found by [`calls_of`] and masked by
//! [`ArgumentMask`]. Which session is meant, and what is printed, is for the caller.

mod export;
mod search;
mod shown;
mod tool_calls;

use std::path::Path;

use homard_agent::row::newest_first;
use homard_client::{ConnectResult, GatewayClient, GatewayTarget};
use homard_gateway::displayed_messages;
use homard_journal::Journal;
use homard_proto::{AgentId, SessionKey};
use homard_runtime::Ambient;
use homard_store::{StoreReader, branch};
use serde_json::{Value, json};

pub use self::{
    export::{html, markdown},
    search::search,
    shown::{ShownMessage, message_text, plain},
    tool_calls::{ArgumentMask, RecordedCall, calls_of},
};

/// Maximum number of messages in a page of the gateway.
const PAGE: usize = 1000;

/// Why messages cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No gateway answers, and the state is not on this machine.
    #[error("no gateway answers at {0}")]
    NotRunning(String),
    /// The text does not name a session.
    #[error("session key: {0}")]
    Key(String),
    /// No gateway answers, and the state directory cannot be opened.
    #[error("no gateway answers at {url}, and the state directory cannot be read directly")]
    Locked {
        /// The address of the gateway.
        url: String,
        /// Why it cannot be opened.
        #[source]
        source: homard_store::Error,
    },
    /// The state directory cannot be read.
    #[error(transparent)]
    Store(#[from] homard_store::Error),
    /// The gateway did not return messages.
    #[error(transparent)]
    Client(#[from] homard_client::Error),
}

/// Where messages are read.
#[derive(Debug)]
pub enum MessageSource {
    /// A running gateway.
    Gateway(Box<GatewayClient>),
    /// The state directory, and the agent of session keys that name none.
    State(Box<Journal>, AgentId),
    /// There is no state directory yet.
    Nothing,
}

/// A session with its messages, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// Its key, as it was asked for.
    pub key: String,
    /// The id of its transcript.
    pub session_id: String,
    /// Number of all its messages.
    pub total: usize,
    /// The newest ones, as in `chat.history`.
    pub messages: Vec<Value>,
}

impl Conversation {
    /// Returns the document that `--json` prints.
    pub fn document(&self) -> Value {
        json!({
            "ok": true, "key": self.key, "sessionId": self.session_id, "totalMessages": self.total,
            "messages": self.messages,
        })
    }
}

impl MessageSource {
    /// Connects to the gateway or, if none runs, opens the state directory. Session keys without an agent are those of
    /// `default_agent`.
    pub async fn open(target: &GatewayTarget, state: &Path, default_agent: AgentId) -> Result<Self, Error> {
        if let ConnectResult::Gateway(client) = GatewayClient::connect(target, &["operator.read"], &[]).await? {
            return Ok(Self::Gateway(client));
        }
        if !target.is_own {
            return Err(Error::NotRunning(target.url.clone()));
        }
        // Reading must not create the directory.
        if !state.exists() {
            return Ok(Self::Nothing);
        }
        let journal = Journal::open(state, || Ambient::system().now_ms())
            .map_err(|source| Error::Locked { url: target.url.clone(), source })?;
        Ok(Self::State(Box::new(journal), default_agent))
    }

    /// Returns true if messages come from a running gateway.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Gateway(..))
    }

    /// Returns the keys of all sessions, the most recently updated first.
    pub async fn keys(&mut self) -> Result<Vec<String>, Error> {
        match self {
            Self::Gateway(client) => {
                let params = json!({"includeGlobal": true, "includeUnknown": true, "archived": "all"});
                let listed = client.call("sessions.list", params).await?;
                let rows = listed["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
                Ok(rows.iter().filter_map(|row| row["key"].as_str().map(str::to_owned)).collect())
            }
            Self::State(journal, _) => {
                let mut sessions = journal.list().await?;
                sessions.sort_by(|(a_key, a), (b_key, b)| newest_first(a_key, a, b_key, b));
                Ok(sessions.iter().map(|(key, _)| key.to_string()).collect())
            }
            Self::Nothing => Ok(Vec::new()),
        }
    }

    /// Returns a session with its newest messages, all without a limit; `None` if there is no such session.
    pub async fn conversation(&mut self, key: &str, limit: Option<usize>) -> Result<Option<Conversation>, Error> {
        let limit = limit.unwrap_or(usize::MAX);
        let requested = key.to_owned();
        match self {
            Self::Gateway(client) => from_gateway(client, key, limit).await,
            Self::State(journal, agent) => {
                let key = SessionKey::parse(key, agent).map_err(|error| Error::Key(error.to_string()))?;
                let Some(session) = journal.load(&key).await? else { return Ok(None) };
                let mut messages = displayed_messages(&branch::all_message_entries(&session.entries));
                let total = messages.len();
                messages.drain(..total.saturating_sub(limit));
                let session_id = session.record.session_id.to_string();
                Ok(Some(Conversation { key: requested, session_id, total, messages }))
            }
            Self::Nothing => Ok(None),
        }
    }

    /// Closes the state directory. Without this, it would count as a crash.
    pub async fn close(self) -> Result<(), Error> {
        match self {
            Self::State(journal, _) => Ok(journal.flush().await?),
            Self::Gateway(..) | Self::Nothing => Ok(()),
        }
    }
}

/// Reads pages, newest first, until there are enough messages.
async fn from_gateway(client: &mut GatewayClient, key: &str, limit: usize) -> Result<Option<Conversation>, Error> {
    let mut found: Option<Conversation> = None;
    let mut offset = 0;
    loop {
        let loaded = found.as_ref().map_or(0, |conversation| conversation.messages.len());
        let params = json!({"sessionKey": key, "limit": (limit - loaded).clamp(1, PAGE), "offset": offset});
        let mut page = client.call("chat.history", params).await?;
        let Some(session_id) = page["sessionId"].as_str().map(str::to_owned) else { return Ok(None) };
        let mut messages = page["messages"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let total = page["totalMessages"].as_u64().and_then(|total| usize::try_from(total).ok()).unwrap_or_default();
        let conversation =
            found.get_or_insert_with(|| Conversation { key: key.to_owned(), session_id, total, messages: Vec::new() });
        // Messages that came in between shift the pages.
        if let Some(oldest) = conversation.messages.first().map(sequence_number) {
            messages.retain(|message| sequence_number(message) < oldest);
        }
        conversation.messages.splice(..0, messages);
        let next = page["nextOffset"].as_u64().and_then(|next| usize::try_from(next).ok());
        match next {
            Some(next) if next > offset && conversation.messages.len() < limit => offset = next,
            Some(_) | None => return Ok(found),
        }
    }
}

/// Returns the position of a message in its session.
pub fn sequence_number(message: &Value) -> u64 {
    message["__openclaw"]["seq"].as_u64().unwrap_or_default()
}
