//! What a decision is about. If any of it has changed, what was decided counts for nothing.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Everything that a command is, at the time when somebody is asked and again when it is to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    /// The words that are run, the first of which is the program's whole path.
    pub argv: Vec<String>,
    /// Where.
    pub cwd: FolderSeen,
    /// A digest of its whole environment; see [`digest`].
    pub env: String,
    /// The programs and files that it names.
    pub files: Vec<FileSeen>,
    /// The session.
    pub session: String,
    /// The run.
    pub run: String,
    /// What holds it: the name of its sandbox.
    pub profile: String,
    /// A digest of the settings of the git repository that it uses, if it uses one.
    #[serde(default)]
    pub repository: Option<String>,
}

/// A folder, and which one it really is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderSeen {
    /// Its path.
    pub path: String,
    /// Its file system.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
}

/// A file, and which one it really is. A change of its bytes changes the time of its change, which nobody can set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// Its path.
    pub path: String,
    /// Its file system.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
    /// Its length.
    pub size: u64,
    /// When its bytes were written, in nanoseconds.
    pub written: i64,
    /// When anything about it changed, in nanoseconds.
    pub changed: i64,
}

impl Bound {
    /// What is not as it was, for people.
    pub fn difference(&self, now: &Self) -> Option<&'static str> {
        let Self { argv, cwd, env, files, session, run, profile, repository } = self;
        let same = [
            (argv == &now.argv, "the command"),
            (cwd == &now.cwd, "its folder"),
            (env == &now.env, "its environment"),
            (files == &now.files, "a program or file that it names"),
            (session == &now.session, "its session"),
            (run == &now.run, "its run"),
            (profile == &now.profile, "its sandbox"),
            (repository == &now.repository, "the config, a hook or the attributes of the git repository"),
        ];
        same.into_iter().find(|(is_same, _)| !is_same).map(|(_, what)| what)
    }
}

/// A digest of an environment, whatever its order. The values themselves are not kept: they may be secrets.
pub fn digest<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut variables: Vec<_> = variables.into_iter().collect();
    variables.sort_unstable();
    let mut digest = Sha256::new();
    for text in variables.iter().flat_map(|(name, value)| [name, value]) {
        // With their lengths, so that nothing moves from one to the next.
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_what_it_says_in_any_order() {
        assert_eq!(digest([("A", "1"), ("B", "2")]), digest([("B", "2"), ("A", "1")]));
        for other in [vec![("A", "1")], vec![("A", "1B"), ("", "2")], vec![("A", "2"), ("B", "1")], vec![]] {
            assert_ne!(digest([("A", "1"), ("B", "2")]), digest(other.clone()), "{other:?}");
        }
    }
}
