//! The config file: parsed with locations, includes and variables; validated against typed sections; edited with its
//! comments preserved.
#![warn(missing_docs)]

mod check;
mod cross;
mod file;
mod include;
mod known;
pub mod last_good;
mod problem;
mod read;
pub mod schema;
mod shape;
mod tree;
mod variables;

pub mod diff;
pub mod edit;
mod layout;
pub mod path;
pub mod redact;
mod rewrite;
pub mod write;

pub use cross::{Findings, PartFault, Sections};
pub use known::nearest;
pub use last_good::{ConfigSource, SavedCopy, UsableConfig, read_or_last_good};
pub use problem::{ConfigFault, ConfigProblem, SourceLocation};
pub use read::{LoadedConfig, ReadEnvironment, read, read_text};
pub use variables::SecretReference;
