//! What `--fix` does: only what loses nothing.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use homard_agent::Ambient;
use homard_journal::Journal;

/// A repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fix {
    /// Gives a file or folder these permissions.
    Mode(PathBuf, u32),
    /// Removes a file or a folder that nobody needs.
    Remove(PathBuf),
    /// Takes the state directory up as a start does, and puts its transcripts right.
    Journal,
}

/// Does it, and says what was done; an error says why that failed.
pub(super) async fn apply(fix: &Fix, state: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    match fix {
        Fix::Mode(path, mode) => {
            fs::set_permissions(path, Permissions::from_mode(*mode)).map_err(failed)?;
            Ok(format!("{} has mode {mode:o} now", path.display()))
        }
        Fix::Remove(path) => {
            let is_folder = fs::symlink_metadata(path).map_err(failed)?.is_dir();
            if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }.map_err(failed)?;
            Ok(format!("{} was removed", path.display()))
        }
        Fix::Journal => put_right(state).await.map_err(|error| error.to_string()),
    }
}

async fn put_right(state: &Path) -> Result<String, homard_store::Error> {
    let journal = Journal::open(state, || Ambient::system().now_ms())?;
    journal.put_right().await?;
    // Or having looked would count as a crash.
    journal.flush().await?;
    Ok("it was put right; what was taken out is kept beside it".to_owned())
}
