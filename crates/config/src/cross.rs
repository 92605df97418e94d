//! What can only be seen between values that are fine each.

use std::{borrow::Cow, collections::BTreeSet, path::PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    check::original,
    path::{Path, Step},
    problem::{self, Place, Problem},
    schema,
    tree::dotted,
};

/// The typed sections of a config.
pub trait Sections: DeserializeOwned + Default + JsonSchema {
    /// The list of its keys, as [`schema::list`] writes it. To have it ready is quicker than to have it written whenever a
    /// config is read.
    fn keys() -> Cow<'static, str> {
        schema::list::<Self>().into()
    }

    /// The part that a value belongs to, if everything else can run without that part. A variable that is not set there
    /// puts only the part out of use.
    fn part_of(_path: &Path) -> Option<Path> {
        None
    }

    /// Notes that a part of these sections must not be used, because of a variable that is not set.
    fn put_out_of_use(&mut self, _part: &Path, _why: &Problem) {}

    /// Notes the files that the config was read from, there or not.
    fn note_files(&mut self, _files: &[PathBuf]) {}

    /// Directories in which agents may write. Files there cannot be included.
    fn agent_directories(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// What can only be seen between values that are fine each, such as two things with one name.
    fn cross_check(&self) -> Findings {
        Findings::default()
    }
}

/// What was found between values: for each the path of the one to change, and the predicate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why the config is not valid.
    pub problems: Vec<(Path, String)>,
    /// Why parts of it cannot be used.
    pub faults: Vec<FoundFault>,
    /// What is worth a word.
    pub warnings: Vec<(Path, String)>,
}

/// Why a part of a config cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFault {
    /// What cannot be used.
    pub part: Path,
    /// The value to change.
    pub path: Path,
    /// The predicate.
    pub what: String,
}

/// Findings in the sections that were read from `tree` without what is `gone`, with their places. What is only there
/// because something else was left out is not told.
pub(crate) fn placed(
    found: Vec<(Path, String)>,
    (tree, gone): (&Value, &BTreeSet<Vec<Step>>),
    place: &dyn Fn(&[Step]) -> Option<Place>,
) -> Vec<Problem> {
    let ways = found.into_iter().map(|(path, what)| (original(path.steps(), tree, gone), what));
    let is_sure = |way: &[Step]| !gone.iter().any(|gone| gone.starts_with(way) || way.starts_with(gone));
    let sure = ways.filter(|(way, _)| is_sure(way)).take(problem::MOST);
    // Something that is missing has no place of its own.
    let nearest = |way: &[Step]| (0..=way.len()).rev().find_map(|length| place(&way[..length]));
    sure.map(|(way, what)| Problem { path: dotted(&way), place: nearest(&way), what, help: None }).collect()
}
