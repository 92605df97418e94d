//! Integration tests of the gateway: a real socket, a scripted model, and what clients see.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may")]

mod agents;
mod authority;
mod busy;
mod chat;
mod compactions;
mod cron;
mod edge;
mod exchange;
mod extra_methods;
mod frames;
mod handshake;
mod http;
mod inject;
mod limits;
mod load;
mod log;
mod message_feed;
mod methods;
mod openai;
mod pages;
mod presence;
mod record;
mod resume;
mod runs;
mod security;
mod sessions;
mod streams;
mod support;
mod tools;
mod trace;
mod views;
mod webhooks;
