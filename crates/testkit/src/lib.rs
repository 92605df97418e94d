//! Test support: the scripted model, scripted tools, a store with faults, and the runner of golden traces.
//!
//! A behaviour is one file, `tests/traces/<topic>/<behaviour>.trace`: what arrives, what the model answers, what tools
//! do. The runner executes it against the real [`Hub`](homard_agent::Hub) with a paused clock, checks the invariants
//! that hold for every trace, and compares the events with the snapshot beside the file. This crate does not use the
//! machine's clock, nor the disk except for [`workspace`], the workspace of a trace; only the fakes use sockets and know
//! vendors.
//!
//! Start with [`trace`] (the lines of a file), then [`runner`] (runs it), [`invariants`] (checks it) and
//! [`snapshot`] (the snapshot's sections). [`sweep`] runs every trace with a crash at every commit, [`simulation`]
//! generates random traces. [`script`], [`tools`], [`faults`] and [`power_failure`] (what a disk may contain after a power
//! failure) are also for the tests of other crates. [`fake_provider`] is a model provider over real HTTP, for the tests
//! of the wire formats; [`fake_telegram`] and [`fake_webhook`] are chat platforms, and [`channel_double`] is what the suite of
//! all channels needs of one.
//!
//! # Adding a case
//!
//! Write the file, run `INSTA_UPDATE=always cargo test -p homard-testkit --test traces`, **read the snapshot**, and
//! commit both files. Without that variable a different snapshot fails the test and the new one is written beside it as
//! `.snap.new`; if `CI` is set, nothing is written. To run one case: `cargo test -p homard-testkit --test traces --
//! <part of its path>`.

#![warn(missing_docs)]

pub mod channel_double;
pub mod channel_sender;
pub mod fake_discord;
pub mod fake_provider;
pub mod fake_telegram;
pub mod fake_webhook;
pub mod faults;
pub mod hooks;
pub mod invariants;
pub mod power_failure;
pub mod runner;
pub mod script;
pub mod simulation;
pub mod snapshot;
pub mod sweep;
pub mod tools;
pub mod trace;
pub mod workspace;

mod client;
mod clock;
mod fake_form;
mod fake_http;
mod recorder;

pub use fake_discord::FakeDiscord;
pub use fake_provider::FakeProvider;
pub use fake_telegram::FakeTelegram;
pub use fake_webhook::FakeWebhook;
pub use faults::{CrashPoint, FaultyStore, StoreFault};
pub use runner::{TraceResult, play};
pub use script::{AnswerStep, ScriptedAnswer, ScriptedModel};
pub use trace::Trace;
