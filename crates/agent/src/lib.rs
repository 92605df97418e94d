//! The agent loop: accepts messages, asks models, runs tools, delivers replies and stores everything.
//!
//! One task per session, the lane, owns everything that touches that session. A run is a straight-line function. Its
//! events go on its [`tape`]; readers of the tape cannot change the run. This crate does not depend on HTTP,
//! WebSockets, channel names, config files, the environment or SQLite.
//!
//! Start with [`hub`], the entry point; then `lane` (when a run starts), `run` (what a run does) and [`wire`] (how
//! events are projected for clients). [`intake`] turns a request into an [`hub::Inbound`].
#![warn(missing_docs)]

pub mod access;
pub mod approved_commands;
pub mod auto_reset;
pub mod delivery;
pub mod external;
pub mod hub;
pub mod intake;
pub mod profile;
pub mod sandboxing;
pub mod tape;
pub mod tool;
pub mod wire;

mod compact_session;
mod context;
mod history;
mod hooks;
mod lane;
mod run;
mod writer;

use homard_events::{replies, timeline};

pub use context::background::CommandOrigin;
pub use event::{
    AbortReason, CompactionEvent, Outcome, QueueEvent, ReplyEvent, RequestEvent, RunEnd, RunEvent, StoredEvent,
    TapeEvent, ToolEvent,
};
pub use homard_budget as budget;
pub use homard_compact::prune::Settings as Pruning;
pub use homard_delivery::{channel_sender, reply_settings};
pub use homard_events::{activity, event, replies::payload_of, session_row as row};
pub use hub::{FencedStore, Hub, HubEvent, HubRules, Inbound, InboundOptions, InboundReply, InboundSender};
pub use lane::mutations::{ChangeError, DeletedSession, InjectedMessage, Patch};
pub use profile::{Agents, Profile, RunSettings, ToolMode};
pub use run::{CONTINUE_NUDGE, FLUSH_PROMPT, REPLY_NUDGE, guard::RunBounds};
pub use tape::{Cursor, Subscriber, Tape};
