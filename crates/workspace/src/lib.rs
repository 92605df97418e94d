//! Workspace of an agent: its starter files, the files that are part of every prompt, and skills.
//!
//! It works on a given folder and given limits, and does not depend on the config, the environment or the format of a
//! prompt. All disk access blocks. Start with [`page`] (what a prompt gets), then [`bootstrap`] (how it is read) and
//! [`starter`] (how a workspace is created); [`skills`] stands alone.
#![warn(missing_docs)]

pub mod page;

pub mod bootstrap;
mod file;
pub mod load;
mod text;

pub mod identity;
pub mod starter;

pub mod skills;

pub use bootstrap::{Audience, BootstrapLimits, BootstrapReader, page as page_of};
pub use identity::AgentPersona;
pub use load::{LoadGate, LoadRule, LoadRules};
pub use page::{PageBody, PromptPage};
pub use starter::{CreatedWorkspace, Error, Starter, StarterProblem, create};
