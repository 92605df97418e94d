//! Integration tests of plugins as real processes.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod examples;
mod faults;
mod log;
mod node;
mod plugin;
mod support;
