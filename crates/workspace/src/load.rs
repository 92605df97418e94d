//! Which files of a workspace may be loaded while commands run in it.
//!
//! A command must not steer the agent that started it. It can create a file that goes into prompts, which is removed only
//! when the command ends; until then a [`LoadGate`] keeps the file out.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// What may be loaded of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadRule {
    /// The file as it is.
    File,
    /// Another file of the workspace, by its path there: the link that led to it may have been replaced.
    Target(PathBuf),
    /// This text and no other: it was written by a tool, and the file may have been changed since.
    Text(String),
    /// Nothing: a command that still runs may have made it.
    Nothing,
}

/// The rule for each path.
pub type LoadRules<'a> = dyn Fn(&Path) -> LoadRule + 'a;

/// Decides what may be loaded.
pub trait LoadGate: fmt::Debug + Send + Sync {
    /// Calls `load` once with the rule for each path. No command begins or ends until it returns, so the rules hold for
    /// what is read meanwhile.
    fn hold(&self, load: &mut dyn FnMut(&LoadRules<'_>));
}
