//! Dev-only: the scripted model, scripted tools, a store with faults, and the runner of golden traces.
//!
//! A behaviour is one file, `tests/traces/<room>/<behaviour>.trace`: what arrives, what the model says, what tools do.
//! The runner plays it against the real [`Hub`](homard_agent::Hub) on a paused clock, checks the laws that hold for
//! every trace, and compares what happened with the snapshot beside the file. This crate refuses to know the machine's
//! clock, and the disk except for [`folder`], the workspace of a trace; only the fakes know sockets and vendors.
//!
//! Start with [`trace`] (the lines of a file), then [`mod@play`] (the virtual world), [`laws`] (what must always hold) and
//! [`mod@tell`] (the snapshot's sections). [`sweep`] plays every trace with a death at every commit, [`simulation`] makes
//! traces by chance. [`script`], [`tools`], [`faults`] and [`powercut`] (what a disk may hold when the power went) are
//! also for the tests of other crates. [`fake_provider`] is a model over real HTTP, for the tests of the wires; [`fake_telegram`]
//! and [`fake_webhook`] are chat platforms.
//!
//! # Adding a case
//!
//! Write the file, run `INSTA_UPDATE=always cargo test -p homard-testkit --test traces`, **read the snapshot**, and put
//! both files into the commit. Without that variable a snapshot that differs fails the test and the new one is written
//! beside it as `.snap.new`; where `CI` is set nothing is written. One case: `cargo test -p homard-testkit --test
//! traces -- <part of its path>`.

#![warn(missing_docs)]

pub mod chance;
pub mod courier;
pub mod fake_provider;
pub mod fake_telegram;
pub mod fake_webhook;
pub mod faults;
pub mod folder;
pub mod hooks;
pub mod laws;
pub mod play;
pub mod powercut;
pub mod script;
pub mod simulation;
pub mod sweep;
pub mod tell;
pub mod tools;
pub mod trace;

mod caller;
mod clock;
mod fake_http;
mod watch;

pub use fake_provider::FakeProvider;
pub use fake_telegram::FakeTelegram;
pub use fake_webhook::FakeWebhook;
pub use faults::{Death, Fault, FaultyStore};
pub use play::{Played, play};
pub use script::{Script, Step, Turn};
pub use trace::Trace;
