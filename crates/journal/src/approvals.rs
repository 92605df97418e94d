//! Files of the exec approvals: pending requests in `approvals/pending.json`, and the policy in `exec-approvals.json`
//! in OpenClaw's format. Both are replaced as a whole and readable by their owner only.

use std::{
    path::{Path, PathBuf},
    string::FromUtf8Error,
};

use homard_store::Error;
use serde_json::{Value, json};

use crate::disk;

/// Approval files of a state directory. Only the process that holds the directory's lock may use them.
#[derive(Debug, Clone)]
pub struct ApprovalFiles {
    pending: PathBuf,
    policy: PathBuf,
}

impl ApprovalFiles {
    /// Creates a handle for the approval files of this state directory. Does not touch the disk.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            pending: state_dir.join("approvals").join("pending.json"),
            policy: state_dir.join("exec-approvals.json"),
        }
    }

    /// Returns the path of the policy file.
    pub fn path(&self) -> &Path {
        &self.policy
    }

    /// Reads the pending requests. A file that cannot be parsed is set aside and treated as empty: a command without a
    /// recorded approval does not run.
    pub async fn load(&self, now_ms: u64) -> Result<Vec<Value>, Error> {
        self.blocking(move |files| {
            let Some(bytes) = disk::read(&files.pending)? else { return Ok(Vec::new()) };
            match serde_json::from_slice::<Value>(&bytes).map(|mut file| file.get_mut("approvals").map(Value::take)) {
                Ok(Some(Value::Array(approvals))) => Ok(approvals),
                Ok(_) | Err(_) => {
                    disk::set_aside_once(&files.pending, "corrupt", &bytes, now_ms)?;
                    Ok(Vec::new())
                }
            }
        })
        .await
    }

    /// Replaces the pending requests.
    pub async fn save(&self, approvals: Vec<Value>) -> Result<(), Error> {
        self.blocking(move |files| {
            let bytes = serde_json::to_vec_pretty(&json!({"version": 1, "approvals": approvals}))
                .map_err(|reason| disk::not_serializable(&reason))?;
            replace(&files.pending, &bytes)
        })
        .await
    }

    /// Reads the text of the policy file; `None` if it does not exist.
    pub async fn policy(&self) -> Result<Option<String>, Error> {
        self.blocking(|files| {
            let Some(bytes) = disk::read(&files.policy)? else { return Ok(None) };
            let broken = |error: FromUtf8Error| {
                Error::Corrupt(format!("{} is not valid UTF-8: {error}", files.policy.display()))
            };
            String::from_utf8(bytes).map(Some).map_err(broken)
        })
        .await
    }

    /// Replaces the text of the policy file.
    pub async fn set_policy(&self, text: String) -> Result<(), Error> {
        self.blocking(move |files| replace(&files.policy, text.as_bytes())).await
    }

    async fn blocking<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    {
        let files = self.clone();
        match tokio::task::spawn_blocking(move || work(&files)).await {
            Ok(outcome) => outcome,
            Err(reason) => Err(Error::Disk(format!("an operation on the approval files did not complete: {reason}"))),
        }
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if let Some(folder) = path.parent()
        && disk::make_folder(folder)?
    {
        folder.parent().map_or(Ok(()), disk::sync_folder)?;
    }
    disk::replace(path, bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[tokio::test]
    async fn pending_approvals_and_policy_are_restored_and_private() {
        let state = tempfile::tempdir().unwrap();
        let files = ApprovalFiles::new(state.path());
        assert_eq!((files.load(1).await, files.policy().await), (Ok(Vec::new()), Ok(None)));
        files.save(vec![json!({"id": "a"})]).await.unwrap();
        files.set_policy("{}".to_owned()).await.unwrap();
        assert_eq!(files.load(1).await, Ok(vec![json!({"id": "a"})]));
        assert_eq!(files.policy().await, Ok(Some("{}".to_owned())));
        for path in ["approvals/pending.json", "exec-approvals.json"] {
            let mode = fs::metadata(state.path().join(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{path}");
        }
    }

    #[tokio::test]
    async fn a_world_readable_policy_becomes_private_when_written() {
        let state = tempfile::tempdir().unwrap();
        let files = ApprovalFiles::new(state.path());
        fs::write(files.path(), "{}").unwrap();
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o644)).unwrap();
        files.set_policy("{\"version\":1}".to_owned()).await.unwrap();
        assert_eq!(fs::metadata(files.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_broken_file_yields_nothing_and_is_copied() {
        let state = tempfile::tempdir().unwrap();
        let files = ApprovalFiles::new(state.path());
        fs::create_dir(state.path().join("approvals")).unwrap();
        for broken in ["{\"approvals\": [", "[]", "{\"approvals\": 7}", "\u{0}"] {
            fs::write(state.path().join("approvals/pending.json"), broken).unwrap();
            assert_eq!(files.load(5).await, Ok(Vec::new()), "{broken}");
        }
        let copy = fs::read_to_string(state.path().join("approvals/pending.json.corrupt-5")).unwrap();
        assert!(copy.starts_with("{\"approvals\": ["), "{copy}");
    }

    #[tokio::test]
    async fn a_policy_that_is_not_utf8_is_an_error() {
        let state = tempfile::tempdir().unwrap();
        let files = ApprovalFiles::new(state.path());
        fs::write(files.path(), [0xff, 0xfe]).unwrap();
        assert!(matches!(files.policy().await, Err(Error::Corrupt(_))));
    }
}
