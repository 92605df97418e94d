//! Problems of a config, with their locations. They name keys and files, never values, which may be secrets.

use std::{fmt, path::PathBuf};

/// Maximum number of problems of one kind: after fixing that many, the user runs the check again anyway.
pub(crate) const MOST: usize = 50;

/// Location in a file, counted from one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Included file, relative to the config's folder if it is there; `None` for the config file itself.
    pub file: Option<PathBuf>,
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}, ", file.display())?;
        }
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A problem or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Key, as in `agents.list[0].id`; empty for the file as a whole.
    pub path: String,
    /// Location, if known.
    pub place: Option<Place>,
    /// Predicate: `must be a list`. A complete sentence if the path is empty.
    pub what: String,
    /// Advice, if there is any.
    pub help: Option<String>,
}

/// Something that prevents a part of a config from running, or all of it, although the file is valid: an unset
/// variable, a dangling reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Part that cannot run because of it; `None` for everything.
    pub part: Option<crate::path::Path>,
    /// The problem.
    pub problem: Problem,
}

impl Fault {
    /// True if this is the same fault, wherever it is written.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.problem.path, &self.problem.what) == (&other.problem.path, &other.problem.what)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl Problem {
    /// Sorts by location; problems without one come first.
    pub(crate) fn sort(problems: &mut [Self]) {
        problems.sort_by(|one, other| one.place.cmp(&other.place));
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{} ", self.path)?;
        }
        f.write_str(&self.what)?;
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
    fn a_problem_names_its_place_its_key_and_the_way_out() {
        let mut problem = Problem {
            path: "gateway.prot".to_owned(),
            place: Some(Place { file: None, line: 2, column: 19 }),
            what: "is not a known key".to_owned(),
            help: Some("did you mean \"port\"?".to_owned()),
        };
        assert_eq!(problem.to_string(), "line 2, column 19: gateway.prot is not a known key; did you mean \"port\"?");
        problem.place = Some(Place { file: Some("more/a.json".into()), line: 1, column: 1 });
        problem.help = None;
        assert_eq!(problem.to_string(), "more/a.json, line 1, column 1: gateway.prot is not a known key");
    }

    #[test]
    fn problems_are_told_in_the_order_of_the_files() {
        let at = |place| Problem { path: String::new(), place, what: String::new(), help: None };
        let place = |file: Option<&str>, line| Some(Place { file: file.map(PathBuf::from), line, column: 1 });
        let mut problems = [place(Some("a"), 1), place(None, 2), None, place(None, 1)].map(at);
        Problem::sort(&mut problems);
        assert_eq!(problems, [None, place(None, 1), place(None, 2), place(Some("a"), 1)].map(at));
    }
}
