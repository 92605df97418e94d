//! Compaction of long conversations: what is cut, how it is summarized, and what is pruned from single requests. Pure:
//! no I/O.
//!
//! This crate does not depend on clocks, files, sessions or model clients. Start with [`compaction`], which performs
//! the work step by step and asks its caller for model answers; [`measure`] decides when it is due, [`plan`] what is
//! cut, [`summary`] how the remainder is summarized, [`escalate`] what follows if that was not enough. [`prune`] is
//! separate: it omits old tool results from single requests.
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

pub use compaction::{Compaction, CompactionInput, FinishedCompaction};
pub use line::{History, HistoryLine};
pub use settings::{CompactionLimits, CompactionMode, Settings};
