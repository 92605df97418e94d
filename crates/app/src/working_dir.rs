//! Checks the working directory of a run before anything starts.
//!
//! Masks hide credentials and Homard's state in every working directory. They are a list, and a home directory holds
//! all other files of the user, too, so a run works there only with the user's explicit consent.

use std::path::{Path, PathBuf};

use homard_settings::{
    Config,
    paths::{self, Paths},
    sandbox_policy,
};

/// Why a directory needs confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Risk {
    Root,
    Home,
    ContainsHome,
    ContainsState,
}

impl Risk {
    pub(crate) fn of(directory: &Path, home: Option<&Path>, state: &Path) -> Option<Self> {
        let canonical = |path: &Path| -> PathBuf { path.canonicalize().unwrap_or_else(|_missing| path.to_owned()) };
        let directory = canonical(directory);
        let home = home.map(canonical);
        if directory.parent().is_none() {
            Some(Self::Root)
        } else if home.as_ref() == Some(&directory) {
            Some(Self::Home)
        } else if home.is_some_and(|home| home.starts_with(&directory)) {
            Some(Self::ContainsHome)
        } else if canonical(state).starts_with(&directory) {
            Some(Self::ContainsState)
        } else {
            None
        }
    }

    /// Returns what the directory is, as part of a sentence.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Root => "the root of the file system",
            Self::Home => "your home directory",
            Self::ContainsHome => "a directory above your home directory",
            Self::ContainsState => "a directory that contains Homard's state directory",
        }
    }
}

/// Returns why runs never work in this directory, if so: it belongs to the state directory.
pub fn refusal(directory: &Path, config: &Config, paths: &Paths) -> Option<String> {
    let canonical = directory.canonicalize().unwrap_or_else(|_gone| directory.to_owned());
    let displayed = directory.display();
    let message = format!("{displayed} belongs to Homard's state directory and cannot be used as a working directory");
    sandbox_policy(config, paths).refuses(&canonical).then_some(message)
}

/// Returns why a directory needs confirmation, if so.
pub fn risk(directory: &Path, paths: &Paths) -> Option<Risk> {
    Risk::of(directory, paths::home().as_deref(), &paths.state)
}

/// Checks a directory named in a gateway request. Returns its real path, or why it is rejected: there is no terminal
/// for a confirmation.
pub fn check_requested(directory: &Path, config: &Config, paths: &Paths) -> Result<PathBuf, String> {
    let displayed = directory.display();
    let canonical = directory.canonicalize().map_err(|error| format!("{displayed} cannot be opened: {error}"))?;
    if !canonical.is_dir() {
        return Err(format!("{displayed} is not a directory"));
    }
    if let Some(refusal) = refusal(&canonical, config, paths) {
        return Err(refusal);
    }
    match risk(&canonical, paths) {
        Some(risk) => Err(format!(
            "{displayed} is {}, and the gateway cannot ask for confirmation; choose another directory, or run the \
             turn without the gateway: homard agent --local --work-here",
            risk.describe()
        )),
        None => Ok(canonical),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn risky_directories_are_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("users/ann");
        let (state, link) = (home.join("apps/.homard"), folder.path().join("link"));
        fs::create_dir_all(state.join("workspace")).unwrap();
        std::os::unix::fs::symlink(&home, &link).unwrap();
        let risk = |path: &Path| Risk::of(path, Some(&home), &state);
        assert_eq!(risk(Path::new("/")), Some(Risk::Root));
        assert_eq!(risk(&home), Some(Risk::Home));
        assert_eq!(risk(&link), Some(Risk::Home));
        assert_eq!(risk(&folder.path().join("users")), Some(Risk::ContainsHome));
        assert_eq!(risk(&home.join("apps")), Some(Risk::ContainsState));
        assert_eq!(risk(&state.join("workspace")), None);
        assert_eq!(Risk::of(&home, None, Path::new("/elsewhere")), None);
    }

    #[test]
    fn a_requested_directory_must_be_outside_the_state_directory() {
        let folder = tempfile::tempdir().unwrap();
        let (state, project) = (folder.path().join("state"), folder.path().join("project"));
        fs::create_dir_all(state.join("workspace")).unwrap();
        fs::create_dir_all(&project).unwrap();
        fs::write(project.join("file"), "").unwrap();
        let paths = Paths { config: state.join("homard.json"), state: state.clone() };
        let judged = |path: &Path| check_requested(path, &Config::default(), &paths);
        assert_eq!(judged(&project), Ok(project.canonicalize().unwrap()));
        for (path, expected) in [
            (project.join("none"), "cannot be opened"),
            (project.join("file"), "is not a directory"),
            (state, "belongs to Homard's state directory"),
            (folder.path().to_owned(), "contains Homard's state directory"),
        ] {
            let error = judged(&path).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
