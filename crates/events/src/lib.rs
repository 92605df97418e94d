//! Events of a run, and what is built from them: its timeline, its replies, and the frames that clients get.
//!
//! Pure: this crate publishes and stores nothing. A tape of `homard-agent` makes events visible, the store has the
//! records. Start with [`event`]; then [`wire`], the projection for clients.
#![warn(missing_docs)]

pub mod activity;
pub mod event;
pub mod replies;
pub mod session_row;
pub mod timeline;
pub mod trace;
pub mod wire;

mod result;

pub use result::ToolResult;
