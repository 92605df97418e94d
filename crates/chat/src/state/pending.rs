//! Messages that are not yet part of the conversation.

use serde_json::{Value, json};

use crate::composer::Draft;

/// State of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingState {
    /// There was no connection.
    Unsent,
    /// The gateway did not answer yet.
    Sent,
    /// A run begins with it.
    Starting,
    /// Offered to the active run, which reads it at its next step.
    Steering,
    /// It waits, with its position if that is known.
    Queued(Option<u64>),
    /// It waits, and is sent together with others.
    Collected,
    /// The active run ends for it.
    Interrupting,
    /// The user takes it back.
    Recalling,
}

impl PendingState {
    /// Reads the disposition of a message.
    pub(crate) fn of_disposition(payload: &Value) -> Self {
        match payload["disposition"].as_str() {
            Some("steered") => Self::Steering,
            Some("queued") => Self::Queued(payload["position"].as_u64()),
            Some("collected") => Self::Collected,
            Some("interrupted") => Self::Interrupting,
            Some(_) | None => Self::Starting,
        }
    }

    /// What the state means for the user.
    pub(crate) fn label(self) -> String {
        match self {
            Self::Unsent => "not sent yet".to_owned(),
            Self::Sent | Self::Starting => String::new(),
            Self::Steering => "steers the run at its next step".to_owned(),
            Self::Queued(Some(position)) => format!("queued as number {position}, after this run"),
            Self::Queued(None) => "queued, after this run".to_owned(),
            Self::Collected => "queued, sent together with others".to_owned(),
            Self::Interrupting => "interrupts the run".to_owned(),
            Self::Recalling => "taking it back".to_owned(),
        }
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingMessage {
    pub(crate) run: String,
    pub(crate) session: String,
    pub(crate) draft: Draft,
    /// Directory in which the tools work.
    pub(crate) cwd: Option<String>,
    /// Queue mode, if the user chose one.
    pub(crate) queue_mode: Option<&'static str>,
    pub(crate) state: PendingState,
    /// True if it was sent before, so that the gateway may have it.
    pub(crate) was_sent: bool,
}

impl PendingMessage {
    /// True if the gateway may not have the message.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        matches!(self.state, PendingState::Unsent | PendingState::Sent)
    }

    /// Parameters of `chat.send`. They are the same whenever the message is sent again.
    pub(crate) fn params(&self) -> Value {
        let mut params = json!({
            "sessionKey": self.session, "message": self.draft.text, "idempotencyKey": self.run, "deliver": false,
        });
        if let Some(mode) = self.queue_mode {
            params["queueMode"] = mode.into();
        }
        if let Some(cwd) = &self.cwd {
            params["cwd"] = cwd.as_str().into();
        }
        if !self.draft.images.is_empty() {
            let attachment = |image: &crate::composer::Image| json!({"type": "image", "mimeType": image.mime, "fileName": image.name, "content": image.content});
            params["attachments"] = self.draft.images.iter().map(attachment).collect();
        }
        params
    }
}
