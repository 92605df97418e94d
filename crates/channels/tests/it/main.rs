//! Channels over real HTTP, against fake platforms with injected faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

mod conformance;
mod discord;
mod receive;
mod support;
mod telegram;
mod webhook;
