//! Fingerprint of a command that a decision is bound to. If anything in it has changed, the decision is invalid.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Fingerprint of a command, taken when the approval is requested and again before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandFingerprint {
    /// Argument vector, with the absolute path of the program first.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: DirIdentity,
    /// Digest of the whole environment; see [`digest`].
    pub env: String,
    /// Programs and files that the command names.
    pub files: Vec<FileIdentity>,
    /// Key of the session that runs the command.
    pub session: String,
    /// Id of the run that runs the command.
    pub run: String,
    /// Name of the sandbox profile of the command.
    pub profile: String,
    /// Digest of the settings of the git repository that the command uses, if any.
    #[serde(default)]
    pub repository: Option<String>,
}

/// A directory and its identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirIdentity {
    /// Path of the directory.
    pub path: String,
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// A file and its identity. A change of its content changes its ctime, which cannot be set by programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Path of the file.
    pub path: String,
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time (mtime), in nanoseconds since the epoch.
    pub written: i64,
    /// Status change time (ctime), in nanoseconds since the epoch.
    pub changed: i64,
}

impl CommandFingerprint {
    /// Returns the first difference, as a text for people.
    pub fn difference(&self, current: &Self) -> Option<&'static str> {
        let Self { argv, cwd, env, files, session, run, profile, repository } = self;
        let same = [
            (argv == &current.argv, "the command"),
            (cwd == &current.cwd, "its working directory"),
            (env == &current.env, "its environment"),
            (files == &current.files, "a program or file that it names"),
            (session == &current.session, "its session"),
            (run == &current.run, "its run"),
            (profile == &current.profile, "its sandbox"),
            (repository == &current.repository, "the config, a hook or the attributes of the git repository"),
        ];
        same.into_iter().find(|(is_same, _)| !is_same).map(|(_, part)| part)
    }
}

/// Digests an environment, regardless of order. The values are not stored, because they may be secrets.
pub fn digest<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut variables: Vec<_> = variables.into_iter().collect();
    variables.sort_unstable();
    let mut digest = Sha256::new();
    for text in variables.iter().flat_map(|(name, value)| [name, value]) {
        // With lengths, so that bytes cannot shift between adjacent texts.
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    hex::encode(digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_an_environment_ignores_the_order() {
        assert_eq!(digest([("A", "1"), ("B", "2")]), digest([("B", "2"), ("A", "1")]));
        for other in [vec![("A", "1")], vec![("A", "1B"), ("", "2")], vec![("A", "2"), ("B", "1")], vec![]] {
            assert_ne!(digest([("A", "1"), ("B", "2")]), digest(other.clone()), "{other:?}");
        }
    }
}
