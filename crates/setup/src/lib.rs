//! Setting up an agent's models and credentials: what exists on this machine, what a server offers, and the changes of the
//! config that follow.
//!
//! It parses no arguments and prints nothing: questions and their answers go through [`Answers`]. Start with [`wizard`],
//! the questions of `homard setup` from the first to the last; then [`ModelsContext`], the input of everything else.
//! `questions` asks, `detect` finds, `plan` computes the new config, `provider` and `model_choice` edit one part of it,
//! `credentials` stores keys, `sign_in` obtains tokens, `channel` tests a bot, `status` and `inventory` say what is configured.

mod channel;
mod context;
pub mod credentials;
mod detect;
mod error;
pub mod inventory;
pub mod model_choice;
mod plan;
pub mod provider;
mod questions;
pub mod sign_in;
pub mod status;
pub mod wizard;

pub use self::{
    context::{ModelsContext, edit_config},
    error::Error,
    questions::{Answers, confirm},
};
