//! Scheduled jobs in OpenClaw's format: `cron/jobs.json`, and the run history of each job in `cron/runs/<job>.jsonl`.
//!
//! The file is replaced as a whole; its previous version stays beside it as `jobs.json.bak`. A file that cannot be
//! parsed is never overwritten: a copy is set aside, and nothing is scheduled until an operator has fixed it.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_stdx::sync::Mutex;
use homard_store::Error;
use serde_json::{Map, Value, json};

use crate::disk;

/// Size in bytes from which a run history is truncated.
const MAX_HISTORY_BYTES: u64 = 2_000_000;
/// Number of lines that truncation keeps.
const KEPT_HISTORY_LINES: usize = 2_000;

/// Cron files of a state directory. Only the process that holds the directory's lock may use them.
#[derive(Debug, Clone)]
pub struct CronFiles {
    file: PathBuf,
    /// Held during writes. Contains the file's members other than `jobs`, once the file was read.
    other_members: Arc<Mutex<Option<Map<String, Value>>>>,
}

impl CronFiles {
    /// Creates a handle for the cron files of this state directory. Does not touch the disk.
    pub fn new(state_dir: &Path) -> Self {
        Self::at(state_dir.join("cron").join("jobs.json"))
    }

    /// Creates a handle for this job file; the run histories are beside it.
    pub fn at(file: PathBuf) -> Self {
        Self { file, other_members: Arc::default() }
    }

    /// Returns the path of the job file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }

    /// Reads the jobs. `now_ms` names the copy of a file that cannot be parsed.
    pub async fn load(&self, now_ms: u64) -> Result<Vec<Value>, Error> {
        self.blocking(move |files| files.read(now_ms)).await
    }

    /// Replaces the jobs. Fails until the file was read.
    pub async fn save(&self, jobs: Vec<Value>) -> Result<(), Error> {
        self.blocking(move |files| files.write(jobs)).await
    }

    /// Appends a line to a job's run history.
    pub async fn append(&self, job: &str, line: Value) -> Result<(), Error> {
        let job = job.to_owned();
        self.blocking(move |files| files.add_line(&job, &line)).await
    }

    /// Returns a job's run history, oldest first. Lines that are not JSON are skipped.
    pub async fn runs(&self, job: &str) -> Result<Vec<Value>, Error> {
        let job = job.to_owned();
        self.blocking(move |files| {
            let bytes = disk::read(&files.history_path(&job)?)?.unwrap_or_default();
            Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
        })
        .await
    }

    async fn blocking<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    {
        let files = self.clone();
        match tokio::task::spawn_blocking(move || work(&files)).await {
            Ok(outcome) => outcome,
            Err(reason) => Err(Error::Disk(format!("an operation on the schedule files did not complete: {reason}"))),
        }
    }

    fn read(&self, now_ms: u64) -> Result<Vec<Value>, Error> {
        let path = self.path();
        let mut other_members = self.other_members.lock();
        let Some(bytes) = disk::read(path)? else {
            *other_members = Some(Map::from_iter([("version".to_owned(), json!(1))]));
            return Ok(Vec::new());
        };
        match parse_jobs(&bytes) {
            Ok((jobs, others)) => {
                *other_members = Some(others);
                Ok(jobs)
            }
            Err(reason) => {
                *other_members = None;
                disk::set_aside_once(path, "corrupt", &bytes, now_ms)?;
                Err(Error::Corrupt(format!(
                    "{path} cannot be read: {reason}; no jobs are scheduled. A copy was saved next to the file. Correct \
                     the file, restore {path}.bak, or move it away; then restart the gateway",
                    path = path.display()
                )))
            }
        }
    }

    fn write(&self, jobs: Vec<Value>) -> Result<(), Error> {
        let path = self.path();
        let other_members = self.other_members.lock();
        let Some(mut file) = other_members.clone() else {
            return Err(Error::Corrupt(format!("{} could not be read and is not overwritten", path.display())));
        };
        file.insert("jobs".to_owned(), jobs.into());
        let bytes = serde_json::to_vec_pretty(&file).map_err(|reason| disk::not_serializable(&reason))?;
        self.make_folder(self.folder())?;
        if let Some(before) = disk::read(path)? {
            if before == bytes {
                return Ok(());
            }
            let backup = path.with_added_extension("bak");
            disk::replace(&backup, &before)?;
        }
        disk::replace(path, &bytes)
    }

    /// Returns the path of a job's run history. The job id is validated because it comes from a file that users may
    /// edit.
    fn history_path(&self, job: &str) -> Result<PathBuf, Error> {
        let is_plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
        if job.is_empty() || job.len() > 200 || job.starts_with('.') || !job.chars().all(is_plain) {
            return Err(Error::Disk(format!("job id {job:?} is not a valid file name")));
        }
        Ok(self.folder().join("runs").join(format!("{job}.jsonl")))
    }

    fn add_line(&self, job: &str, line: &Value) -> Result<(), Error> {
        let path = self.history_path(job)?;
        let _writing = self.other_members.lock();
        self.make_folder(&self.folder().join("runs"))?;
        let length = disk::length(&path)?;
        let is_torn = length > 0 && disk::read_from(&path, length - 1)? != b"\n";
        let line = format!("{}{line}\n", if is_torn { "\n" } else { "" });
        let append = || {
            let mut file = disk::private().append(true).create(true).open(&path)?;
            file.write_all(line.as_bytes())?;
            file.sync_data()
        };
        append().map_err(disk::failed("write to", &path))?;
        match length {
            0 => disk::sync_folder(&self.folder().join("runs")),
            1..=MAX_HISTORY_BYTES => Ok(()),
            _ => truncate_history(&path),
        }
    }

    fn make_folder(&self, folder: &Path) -> Result<(), Error> {
        if disk::make_folder(folder)? {
            for above in folder.ancestors().skip(1).take(2) {
                disk::sync_folder(above)?;
            }
        }
        Ok(())
    }
}

/// Parses a job file into its jobs and its other members.
fn parse_jobs(bytes: &[u8]) -> Result<(Vec<Value>, Map<String, Value>), String> {
    let file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let Value::Object(mut file) = file else { return Err("not an object".to_owned()) };
    match file.shift_remove("jobs") {
        Some(Value::Array(jobs)) => Ok((jobs, file)),
        Some(_) => Err("\"jobs\" is not a list".to_owned()),
        None => Err("\"jobs\" is missing".to_owned()),
    }
}

/// Truncates a run history to its last lines.
fn truncate_history(path: &Path) -> Result<(), Error> {
    let text = fs::read(path).map_err(disk::failed("read", path))?;
    let lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let recent = lines[lines.len().saturating_sub(KEPT_HISTORY_LINES)..].concat();
    if recent.len() == text.len() { Ok(()) } else { disk::replace(path, &recent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, CronFiles) {
        let state = tempfile::tempdir().unwrap();
        let files = CronFiles::new(state.path());
        (state, files)
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[tokio::test]
    async fn jobs_are_stored_in_openclaws_format_with_a_backup() {
        let (state, files) = files();
        assert_eq!(files.load(1).await, Ok(Vec::new()));
        files.save(Vec::new()).await.unwrap();
        assert_eq!(text(files.path()), "{\n  \"version\": 1,\n  \"jobs\": []\n}");
        files.save(vec![json!({"id": "j1"})]).await.unwrap();
        assert_eq!(text(&state.path().join("cron/jobs.json.bak")), "{\n  \"version\": 1,\n  \"jobs\": []\n}");
        let again = CronFiles::new(state.path());
        assert_eq!(again.load(2).await, Ok(vec![json!({"id": "j1"})]));
    }

    #[tokio::test]
    async fn other_members_of_the_file_are_kept() {
        let (state, files) = files();
        fs::create_dir(state.path().join("cron")).unwrap();
        fs::write(files.path(), r#"{"version": 7, "jobs": [], "by": "another"}"#).unwrap();
        files.load(1).await.unwrap();
        files.save(vec![json!(1)]).await.unwrap();
        let written: Value = serde_json::from_str(&text(files.path())).unwrap();
        assert_eq!(written, json!({"version": 7, "by": "another", "jobs": [1]}));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_set_aside_and_never_written_over() {
        let (state, files) = files();
        assert!(matches!(files.save(Vec::new()).await, Err(Error::Corrupt(_))));
        fs::create_dir(state.path().join("cron")).unwrap();
        for (broken, reason) in [
            ("{\"jobs\": [", "EOF while parsing a list at line 1 column 10"),
            ("[]", "not an object"),
            ("{\"jobs\": 7}", "\"jobs\" is not a list"),
            ("{}", "\"jobs\" is missing"),
        ] {
            fs::write(files.path(), broken).unwrap();
            let Err(Error::Corrupt(error)) = files.load(5).await else { panic!("{broken}") };
            assert!(error.contains(reason), "{error}");
            assert!(matches!(files.save(vec![json!(1)]).await, Err(Error::Corrupt(_))));
            assert_eq!(text(files.path()), broken);
        }
        assert!(text(&state.path().join("cron/jobs.json.corrupt-5")).starts_with("{\"jobs\": ["));
    }

    #[tokio::test]
    async fn history_is_appended_also_after_a_torn_line() {
        let (state, files) = files();
        files.append("j1", json!({"n": 1})).await.unwrap();
        let path = state.path().join("cron/runs/j1.jsonl");
        fs::write(&path, "{\"n\":1}\n{\"n\":").unwrap();
        files.append("j1", json!({"n": 2})).await.unwrap();
        assert_eq!(files.runs("j1").await, Ok(vec![json!({"n": 1}), json!({"n": 2})]));
        assert_eq!(files.runs("nobody").await, Ok(Vec::new()));
        for hostile in ["../jobs", "a/b", ".hidden", "", "a\\b", "a\0"] {
            assert!(files.append(hostile, json!(1)).await.is_err(), "{hostile:?}");
        }
    }

    #[tokio::test]
    async fn a_long_history_keeps_its_last_lines() {
        let (state, files) = files();
        fs::create_dir_all(state.path().join("cron/runs")).unwrap();
        let long = format!("{{\"n\":\"{}\"}}\n", "x".repeat(1_000)).repeat(2_500);
        fs::write(state.path().join("cron/runs/j1.jsonl"), long).unwrap();
        files.append("j1", json!({"n": "last"})).await.unwrap();
        let lines = files.runs("j1").await.unwrap();
        assert_eq!((lines.len(), lines.last()), (KEPT_HISTORY_LINES, Some(&json!({"n": "last"}))));
    }
}
