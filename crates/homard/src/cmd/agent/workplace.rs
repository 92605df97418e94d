//! The directory that a local turn works in, judged before anything starts.
//!
//! Masks hide credentials and Homard's state wherever a run works. They are a list, so a home directory, which holds
//! everything else of the user, too, is only worked in when the user says so.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{assemble::tools::policy, cmd::prompt, config::Config, failure::Failure, paths, paths::Paths};

/// Why a directory needs a yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Risk {
    Root,
    Home,
    ContainsHome,
    ContainsState,
}

impl Risk {
    fn of(directory: &Path, home: Option<&Path>, state: &Path) -> Option<Self> {
        let real = |path: &Path| -> PathBuf { path.canonicalize().unwrap_or_else(|_missing| path.to_owned()) };
        let directory = real(directory);
        let home = home.map(real);
        if directory.parent().is_none() {
            Some(Self::Root)
        } else if home.as_ref() == Some(&directory) {
            Some(Self::Home)
        } else if home.is_some_and(|home| home.starts_with(&directory)) {
            Some(Self::ContainsHome)
        } else if real(state).starts_with(&directory) {
            Some(Self::ContainsState)
        } else {
            None
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Root => "the root of the file system",
            Self::Home => "your home directory",
            Self::ContainsHome => "a directory above your home directory",
            Self::ContainsState => "a directory that contains Homard's state directory",
        }
    }
}

/// Checks that a turn may work in a directory: asks on a terminal where that is risky, and refuses without one.
/// `is_allowed` says that the user has agreed already, by the flag.
pub(super) fn check(directory: &Path, config: &Config, paths: &Paths, is_allowed: bool) -> Result<()> {
    let shown = directory.display();
    let real = directory.canonicalize().unwrap_or_else(|_gone| directory.to_owned());
    if policy(config, paths).refuses(&real) {
        return Err(Failure::usage(format!(
            "{shown} belongs to Homard's state directory, which agents do not work in\n\
             start the command in another directory, or in an agent's workspace"
        ))
        .into());
    }
    let Some(risk) = Risk::of(directory, paths::home().as_deref(), &paths.state).filter(|_| !is_allowed) else {
        return Ok(());
    };
    let what = risk.words();
    let question = format!(
        "{shown} is {what}. The agent can read and change what is in it, except credentials, shell start files and \
         Homard's state.\nWork here?"
    );
    match prompt::confirm(&question)? {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::new("usage", format!("the turn was not started in {shown}")).into()),
        None => Err(Failure::usage(format!(
            "{shown} is {what}, and there is no terminal to ask whether the agent may work in it\n\
             start the command in another directory, or allow this one with --work-here"
        ))
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn c3_risky_directories_are_recognized() {
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
}
