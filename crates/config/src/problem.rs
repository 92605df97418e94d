//! What is wrong with a config, and where. Names keys and files, never values: those may be secrets.

use std::{fmt, path::PathBuf};

/// How many problems of one kind are looked for: a person who has fixed that many reads again anyway.
pub(crate) const MOST: usize = 50;

/// A place in a file, counted from one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The included file, relative to the config's folder if it lies there; none for the config file itself.
    pub file: Option<PathBuf>,
    /// The line.
    pub line: usize,
    /// The column, in characters.
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

/// One thing that is wrong, or worth a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, as in `agents.list[0].id`; empty where the file as a whole is meant.
    pub path: String,
    /// Where it is written, if that is known.
    pub place: Option<Place>,
    /// The predicate: `must be a list`. A whole sentence where the path is empty.
    pub what: String,
    /// The way out, if there is one to name.
    pub help: Option<String>,
}

/// Something that keeps a part of a config from running, or all of it, although the file can be read: a variable that is not
/// set, a reference that leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What cannot run because of it; `None` if nothing can.
    pub part: Option<crate::path::Path>,
    /// What is wrong.
    pub problem: Problem,
}

impl Fault {
    /// Whether this is the same fault, wherever it is written.
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
    /// In the order of the files; what has no place comes first.
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
