//! What a model is sent: the system prompt and the history.
//!
//! [`config`] is the prompt configuration of an agent, [`input`] the input of one prompt, [`sections`] renders it.
//! [`conversation`] builds the messages from the history: [`history_limits`], [`timestamps`] and [`notes`] transform it,
//! and [`client_results`] moves the results of client tools to their calls. [`context_budget`] checks that everything
//! fits, [`shortening`] says what a small model gets instead, and [`report`] how long the parts are.
//!
//! Values in, values out: this crate does not know runs, sessions or the hub.
#![warn(missing_docs)]

pub mod client_results;
pub mod compact_tools;
pub mod config;
pub mod context_budget;
pub mod conversation;
pub mod history_limits;
pub mod input;
pub mod notes;
pub mod report;
pub mod sections;
pub mod shortening;
pub mod timestamps;

pub use config::PromptConfig;
