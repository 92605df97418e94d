//! Channels over real HTTP, against platforms that can do anything wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

mod conformance;
mod receive;
mod support;
mod telegram;
mod webhook;
