//! The actions of `--fix`: only those that lose no data.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use homard_journal::Journal;
use homard_runtime::Ambient;

/// A repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// Sets the permissions of a file or directory.
    Mode(PathBuf, u32),
    /// Removes a file or directory that is not needed.
    Remove(PathBuf),
    /// Opens the state directory as a start does, which repairs its transcripts.
    Journal,
}

/// Applies a repair and describes it; an error says why it failed.
pub async fn apply(fix: &Fix, state: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    match fix {
        Fix::Mode(path, mode) => {
            fs::set_permissions(path, Permissions::from_mode(*mode)).map_err(failed)?;
            Ok(format!("set the mode of {} to {mode:o}", path.display()))
        }
        Fix::Remove(path) => {
            let is_folder = fs::symlink_metadata(path).map_err(failed)?.is_dir();
            if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }.map_err(failed)?;
            Ok(format!("removed {}", path.display()))
        }
        Fix::Journal => repair_journal(state).await.map_err(|error| error.to_string()),
    }
}

async fn repair_journal(state: &Path) -> Result<String, homard_store::Error> {
    let journal = Journal::open(state, || Ambient::system().now_ms())?;
    journal.repair_transcripts().await?;
    // Without a flush, this would count as a crash.
    journal.flush().await?;
    Ok("repaired; removed parts are kept next to the original files".to_owned())
}
