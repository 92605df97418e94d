//! The folder that an agent lives in: its starter files, and the files that go into every prompt.
//!
//! It works on a folder and on numbers that it is given. It refuses to know the config, the environment, and what a
//! prompt looks like. Everything that touches the disk blocks. Start with [`page`] (what a prompt gets), then
//! [`bootstrap`] (how it is read) and [`starter`] (how it begins).
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
