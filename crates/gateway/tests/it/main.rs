//! Integration tests of the gateway: a real socket, a scripted model, and what clients see.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod added;
mod agents;
mod authority;
mod busy;
mod chat;
mod compactions;
mod cron;
mod doors;
mod edge;
mod exchange;
mod frames;
mod handshake;
mod limits;
mod load;
mod log;
mod methods;
mod notes;
mod openai;
mod pages;
mod presence;
mod record;
mod resume;
mod runs;
mod said;
mod security;
mod sessions;
mod streams;
mod support;
mod tools;
mod trace;
mod views;
mod webhooks;
