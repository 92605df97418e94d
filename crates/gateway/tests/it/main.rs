//! The gateway from outside: a real socket, a scripted model, and what clients see.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod doors;
mod frames;
mod handshake;
mod methods;
mod runs;
mod sessions;
mod support;
mod tools;
