//! Making a long conversation short: what is cut, how it is summed up, what is left out of a request. No room here does I/O.
//!
//! This crate refuses to know clocks, files, sessions and who answers. Start with [`compaction`], which does the whole
//! work step by step and asks its caller for a model's answers; [`measure`] says when it is time, [`plan`] what is cut,
//! [`summary`] how the rest is summed up, [`escalate`] what comes next when that was not enough. [`prune`] is apart: it
//! leaves old tool results out of single requests.
#![warn(missing_docs)]

pub mod compaction;
mod cut;
pub mod escalate;
mod extract;
mod failures;
mod files;
pub mod line;
pub mod measure;
pub mod notice;
pub mod plan;
mod prompt;
pub mod prune;
#[cfg(test)]
mod sample;
mod serialise;
pub mod settings;
pub mod summary;

pub use compaction::{Compaction, Outcome, Task};
pub use line::{History, Line};
pub use settings::{Limits, Mode, Settings};
