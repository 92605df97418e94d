//! Checks across values that are valid individually.

use std::{borrow::Cow, collections::BTreeSet, path::PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    check::original_path,
    path::{Path, Step},
    problem::{self, ConfigProblem, SourceLocation},
    schema,
    tree::dotted,
};

/// The typed sections of a config.
pub trait Sections: DeserializeOwned + Default + JsonSchema {
    /// Returns the list of keys in the format of [`schema::key_list`]. A stored list is faster than one generated whenever
    /// a config is read.
    fn keys() -> Cow<'static, str> {
        schema::key_list::<Self>().into()
    }

    /// Returns the part that a value belongs to, if everything else can run without it. An unset variable there
    /// disables only that part.
    fn part_of(_path: &Path) -> Option<Path> {
        None
    }

    /// Disables a part of these sections because of an unset variable.
    fn disable_part(&mut self, _part: &Path, _why: &ConfigProblem) {}

    /// Stores the files that the config was read from, including missing ones.
    fn note_files(&mut self, _files: &[PathBuf]) {}

    /// Returns directories in which agents may write. Files there cannot be included.
    fn agent_directories(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Checks across values that are valid individually, such as duplicate names.
    fn cross_check(&self) -> Findings {
        Findings::default()
    }
}

/// Findings across values: for each the path of the value to change, and a message that continues the path, such as
/// `must be a list`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why the config is invalid.
    pub problems: Vec<(Path, String)>,
    /// Why parts of it cannot be used.
    pub faults: Vec<PartFault>,
    /// Warnings.
    pub warnings: Vec<(Path, String)>,
}

/// Why a part of a config cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartFault {
    /// Part that cannot be used.
    pub part: Path,
    /// Path of the value to change.
    pub path: Path,
    /// Message that continues the path, such as `names an unknown agent`.
    pub what: String,
}

/// Adds locations to findings in the sections deserialized from `tree` without `omitted`. Findings caused only by an
/// omitted value are dropped.
pub(crate) fn with_locations(
    findings: Vec<(Path, String)>,
    tree: &Value,
    omitted: &BTreeSet<Vec<Step>>,
    location: &dyn Fn(&[Step]) -> Option<SourceLocation>,
) -> Vec<ConfigProblem> {
    let located = findings.into_iter().map(|(path, message)| (original_path(path.steps(), tree, omitted), message));
    let is_certain =
        |steps: &[Step]| !omitted.iter().any(|omitted| omitted.starts_with(steps) || steps.starts_with(omitted));
    let certain = located.filter(|(steps, _)| is_certain(steps)).take(problem::MAX_PROBLEMS);
    // A missing value has no location of its own.
    let nearest = |steps: &[Step]| (0..=steps.len()).rev().find_map(|length| location(&steps[..length]));
    certain
        .map(|(steps, message)| ConfigProblem { path: dotted(&steps), location: nearest(&steps), message, help: None })
        .collect()
}
