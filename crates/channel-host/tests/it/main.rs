//! Tests of the channel host with a fake package, which needs no download.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

mod channel;
mod hostile;
mod real;
mod support;
