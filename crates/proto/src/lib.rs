//! Data types of everything that crosses a process boundary or is stored on disk.
//!
//! Pure data and pure functions: no tokio, clocks, files or agent loop. Start with [`id`] (identifiers), then
//! [`message`] and [`transcript`] (stored data), then [`frame`], [`method`] and [`event`] (the wire protocol).
#![warn(missing_docs)]

pub mod code;
pub mod event;
pub mod frame;
pub mod id;
pub mod identity;
pub mod json;
pub mod message;
pub mod method;
pub mod route;
pub mod schema;
pub mod session;
pub mod transcript;

pub use code::{Code, ErrorShape};
pub use id::{AgentId, CallId, EntryId, RunId, SessionId, SessionKey};
pub use identity::{ChannelAccount, IdIssuer, Identity, SenderPattern};
pub use route::Route;

/// Unknown fields of a record, kept unchanged.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// Generation of OpenClaw's protocol on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// Protocol 3, as in 2026.2.9.
    Three,
    /// Protocol 4, as in 2026.9.6.
    Four,
}

impl Generation {
    /// Returns the newest generation within a client's range, or `None` if it contains none of them.
    pub fn negotiate(min: u64, max: u64) -> Option<Self> {
        match max.min(4) {
            4 if min <= 4 => Some(Self::Four),
            3 if min <= 3 => Some(Self::Three),
            _ => None,
        }
    }

    /// Returns the protocol number for `hello-ok`.
    pub fn number(self) -> u64 {
        match self {
            Self::Three => 3,
            Self::Four => 4,
        }
    }
}
