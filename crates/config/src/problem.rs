//! Problems of a config, with their locations. They name keys and files, never values, which may be secrets.

use std::{fmt, path::PathBuf};

/// Maximum number of problems of one kind: after fixing that many, the user runs the check again anyway.
pub(crate) const MAX_PROBLEMS: usize = 50;

/// Location in a file, counted from one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLocation {
    /// Included file, relative to the config's folder if it is there; `None` for the config file itself.
    pub file: Option<PathBuf>,
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}, ", file.display())?;
        }
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A problem or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Key, as in `agents.list[0].id`; empty for the file as a whole.
    pub path: String,
    /// Location, if known.
    pub location: Option<SourceLocation>,
    /// Message that continues the path, such as `must be a list`. A complete sentence if the path is empty.
    pub message: String,
    /// Advice, if there is any.
    pub help: Option<String>,
}

/// Something that prevents a part of a config from running, or all of it, although the file is valid: an unset
/// variable, a dangling reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// Part that cannot run because of it; `None` for everything.
    pub part: Option<crate::path::Path>,
    /// The problem.
    pub problem: ConfigProblem,
}

impl ConfigFault {
    /// True if this is the same fault, wherever it is written.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.problem.path, &self.problem.message) == (&other.problem.path, &other.problem.message)
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl ConfigProblem {
    /// Sorts by location; problems without one come first.
    pub(crate) fn sort(problems: &mut [Self]) {
        problems.sort_by(|one, other| one.location.cmp(&other.location));
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.location {
            write!(f, "{place}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{} ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_its_location_key_and_help() {
        let mut problem = ConfigProblem {
            path: "gateway.prot".to_owned(),
            location: Some(SourceLocation { file: None, line: 2, column: 19 }),
            message: "is not a known key".to_owned(),
            help: Some("did you mean \"port\"?".to_owned()),
        };
        assert_eq!(problem.to_string(), "line 2, column 19: gateway.prot is not a known key; did you mean \"port\"?");
        problem.location = Some(SourceLocation { file: Some("more/a.json".into()), line: 1, column: 1 });
        problem.help = None;
        assert_eq!(problem.to_string(), "more/a.json, line 1, column 1: gateway.prot is not a known key");
    }

    #[test]
    fn problems_are_sorted_by_location() {
        let at = |location| ConfigProblem { path: String::new(), location, message: String::new(), help: None };
        let location =
            |file: Option<&str>, line| Some(SourceLocation { file: file.map(PathBuf::from), line, column: 1 });
        let mut problems = [location(Some("a"), 1), location(None, 2), None, location(None, 1)].map(at);
        ConfigProblem::sort(&mut problems);
        assert_eq!(problems, [None, location(None, 1), location(None, 2), location(Some("a"), 1)].map(at));
    }
}
