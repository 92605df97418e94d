//! The interactive terminal chat of `homard` and `homard chat`.
//!
//! A pure state machine ([`state::State`]) consumes events (keys, pastes, the terminal's size, frames of the gateway,
//! the time) and returns effects (requests to the gateway, files to read). [`view`] renders the state to lines, and
//! [`screen`] writes lines as escape sequences below the scrollback of the terminal. [`terminal`] connects them to a
//! real terminal. Frames of the gateway come and go through a [`link::Link`], which the crate `chat-link` implements;
//! this crate knows neither sockets nor the agent loop.
//!
//! Start reading at [`state`], then [`view`].
#![warn(missing_docs)]

pub mod state;

mod approval;
mod command;
mod completion;
pub mod composer;
pub mod input_history;
pub mod link;
mod pager;
mod picker;
mod spinner;
mod transcript;

pub mod view;

pub mod highlight;
pub mod markdown;
pub mod sanitize;
pub mod style;

pub mod screen;
pub mod terminal;
