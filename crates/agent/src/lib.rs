//! The loop: a message comes in, a model is asked, tools are run, a reply goes out, everything is kept.
//!
//! One task per session, the lane, owns everything that touches that session. A run is a straight-line function. What
//! happens in it goes on its [`tape`]; whoever wants to know reads the tape and cannot change the run. This crate
//! refuses to know HTTP, WebSockets, channel names, config files, the environment and SQLite.
//!
//! Start with [`hub`], the front door; then `lane` (when a run may go), `run` (what a run does) and [`wire`] (how it is told).
#![warn(missing_docs)]

pub mod task;
pub mod tool;
