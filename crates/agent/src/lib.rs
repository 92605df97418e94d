//! The loop: a message comes in, a model is asked, tools are run, a reply goes out, everything is kept.
//!
//! One task per session, the lane, owns everything that touches that session. A run is a straight-line function. What
//! happens in it goes on its [`tape`]; whoever wants to know reads the tape and cannot change the run. This crate
//! refuses to know HTTP, WebSockets, channel names, config files, the environment and SQLite.
//!
//! Start with [`hub`], the front door; then `lane` (when a run may go), `run` (what a run does) and [`wire`] (how it is
//! told). [`intake`] turns a request into something that the hub takes.
#![warn(missing_docs)]

pub mod access;
pub mod activity;
pub mod ambient;
pub mod approval;
pub mod command;
pub mod courier;
pub mod delivery;
pub mod event;
pub mod external;
pub mod freshness;
pub mod hub;
pub mod intake;
pub mod policy;
pub mod post;
pub mod profile;
pub mod purse;
pub mod routing;
pub mod row;
pub mod sandboxing;
pub mod schedule;
pub mod secrets;
pub mod tape;
pub mod task;
pub mod tool;
pub mod wire;

mod context;
mod conversation;
mod course;
mod hooks;
mod lane;
mod replies;
mod run;
mod shorten;
mod writer;

pub use ambient::Ambient;
pub use context::{
    background::CommandOrigin,
    client_results,
    history::{ChannelLimits, HistoryLimits},
    notes::spelled_out,
    setting::{self, Setting},
    shortening,
};
pub use event::{AbortReason, End, Event, Outcome, RunEvent};
pub use homard_compact::prune::Settings as Pruning;
pub use hub::{Hub, HubEvent, Inbound, Rules};
pub use lane::{
    chores::{ChangeError, Deleted, InjectedMessage, Patch},
    inbox::Placed,
    slots::{Class, Load, Slots},
};
pub use profile::{Agents, Profile, ToolMode};
pub use replies::payload_of;
pub use run::{CUT, FLUSH, PLEA, guard::Bounds};
pub use tape::{Cursor, Follower, Tape};
