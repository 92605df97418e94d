//! Decides which workspace files may be loaded while commands run in it.
//!
//! A command must not influence the agent that started it. It can create a file that is part of prompts, which is
//! removed only when the command ends; until then a [`LoadGate`] excludes the file.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// What may be loaded of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadRule {
    /// The file as it is.
    File,
    /// Another file of the workspace, by its path there: the symlink to it may have been replaced.
    Target(PathBuf),
    /// Only this text: it was written by a tool, and the file may have been changed since.
    Text(String),
    /// Nothing: a running command may have created it.
    Nothing,
}

/// Function that returns the load rule of a path.
pub type LoadRules<'a> = dyn Fn(&Path) -> LoadRule + 'a;

/// Decides which workspace files may be loaded while commands run.
pub trait LoadGate: fmt::Debug + Send + Sync {
    /// Calls `load` once with the rule for each path. No command starts or ends until it returns, so the rules hold for
    /// everything read meanwhile.
    fn hold(&self, load: &mut dyn FnMut(&LoadRules<'_>));
}
