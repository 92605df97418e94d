//! The words of Homard: everything that crosses a process boundary or lands on disk.
//!
//! Pure data and pure functions. This crate refuses to know tokio, clocks, files and the loop.
//! Start with [`id`] (what names things), then [`message`] and [`transcript`] (what is kept),
//! then [`frame`], [`method`] and [`event`] (what is said on the wire).
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

/// An open JSON object: the fields of a record that this version does not know, kept as they came.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// Which generation of OpenClaw's protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// Protocol 3, as spoken by 2026.2.9.
    Three,
    /// Protocol 4, as spoken by 2026.9.6.
    Four,
}

impl Generation {
    /// Picks the newest generation inside a client's range, or `None` when the range holds neither.
    pub fn negotiate(min: u64, max: u64) -> Option<Self> {
        match max.min(4) {
            4 if min <= 4 => Some(Self::Four),
            3 if min <= 3 => Some(Self::Three),
            _ => None,
        }
    }

    /// The number that goes into `hello-ok`.
    pub fn number(self) -> u64 {
        match self {
            Self::Three => 3,
            Self::Four => 4,
        }
    }
}
