//! Workspace of an agent: its starter files, and the files that are part of every prompt.
//!
//! It works on a given folder and given limits, and does not depend on the config, the environment or the format of a
//! prompt. All disk access blocks. Start with [`page`] (what a prompt gets), then [`bootstrap`] (how it is read) and
//! [`starter`] (how a workspace is created).
#![warn(missing_docs)]

pub mod page;

pub mod bootstrap;
mod file;
pub mod load;
mod text;

pub mod identity;
pub mod starter;

pub use bootstrap::{Audience, Limits, Reader, page as page_of};
pub use identity::Identity;
pub use load::{LoadGate, LoadRule, LoadRules};
pub use page::{Body, Page};
pub use starter::{Error, Made, Problem, Starter, make};
