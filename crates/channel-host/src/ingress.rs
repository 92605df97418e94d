//! Rows of the ingress queue of an account, on disk: an append-only log of changes, which is rewritten when most of it
//! is old. The queue itself, with claims and order, is in the Node process.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use homard_stdx::{file, sync::Mutex};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of rows that are not finished. Beyond that the platform has to send them again.
const MAX_WAITING: usize = 5000;
/// Maximum number of finished rows, which make later copies of an event duplicates.
const MAX_FINISHED: usize = 20_000;
/// Maximum size of a row in bytes.
const MAX_ROW_BYTES: usize = 1 << 20;
/// Maximum size of all rows in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Number of lines from which the log may be rewritten.
const MIN_REWRITE_LINES: usize = 1000;

/// Durable rows of one account's ingress queue.
#[derive(Debug)]
pub struct IngressStore {
    path: PathBuf,
    log: Mutex<IngressLog>,
}

#[derive(Debug, Default)]
struct IngressLog {
    rows: BTreeMap<String, Row>,
    /// Size of all rows.
    bytes: usize,
    /// Lines in the file.
    lines: usize,
    /// Opened with the first change.
    file: Option<File>,
}

#[derive(Debug, Clone, PartialEq)]
struct Row {
    value: Value,
    bytes: usize,
}

/// One line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Put(Value),
    Remove(String),
}

impl IngressStore {
    /// Reads the rows. A line that was cut off by a crash was not confirmed and is ignored.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let text = file::missing_is_none(fs::read(&path))?.unwrap_or_default();
        let mut log = IngressLog::default();
        let mut invalid = 0;
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            log.lines += 1;
            match serde_json::from_slice(line) {
                Ok(change) => log.apply(change),
                Err(_) => invalid += 1,
            }
        }
        if invalid > 0 {
            tracing::warn!(path = %path.display(), invalid, "ignored invalid lines in the log of received events");
        }
        let is_torn = !text.is_empty() && !text.ends_with(b"\n");
        let store = Self { path, log: Mutex::new(log) };
        if is_torn || invalid > 0 {
            store.rewrite(&mut store.log.lock())?;
        }
        Ok(store)
    }

    /// Returns all rows.
    pub fn rows(&self) -> Vec<Value> {
        self.log.lock().rows.values().map(|row| row.value.clone()).collect()
    }

    /// Stores rows and removes others; returns when the change is on disk. An error says why it is not.
    pub fn write(&self, rows: Vec<Value>, removed: Vec<String>) -> Result<(), String> {
        let mut log = self.log.lock();
        let waiting = log.rows.values().filter(|row| is_waiting(&row.value)).count();
        let is_new = |row: &&Value| is_waiting(row) && id_of(row).is_some_and(|id| !log.rows.contains_key(id));
        if waiting + rows.iter().filter(is_new).count() > MAX_WAITING {
            return Err(format!("{MAX_WAITING} received events are already queued"));
        }
        let mut text = Vec::new();
        let changes: Vec<_> =
            rows.into_iter().map(Change::Put).chain(removed.into_iter().map(Change::Remove)).collect();
        for change in &changes {
            let before = text.len();
            serde_json::to_writer(&mut text, change).map_err(|error| error.to_string())?;
            text.push(b'\n');
            if matches!(change, Change::Put(row) if id_of(row).is_none()) {
                return Err("a row has no id".to_owned());
            }
            if text.len() - before > MAX_ROW_BYTES {
                return Err(format!("a received event exceeds {MAX_ROW_BYTES} bytes"));
            }
        }
        if log.bytes + text.len() > MAX_BYTES {
            return Err(format!("the received events exceed {MAX_BYTES} bytes"));
        }
        let failed = |error: io::Error| format!("{} cannot be written: {error}", self.path.display());
        if let Err(error) = self.append(&mut log, &text) {
            // The file may end in a part of a line; the next change starts from a rewritten file.
            log.file = None;
            self.rewrite(&mut log).map_err(failed)?;
            return Err(failed(error));
        }
        log.lines += changes.len();
        changes.into_iter().for_each(|change| log.apply(change));
        log.forget_finished();
        if log.lines > MIN_REWRITE_LINES && log.lines > 4 * log.rows.len() {
            self.rewrite(&mut log).map_err(failed)?;
        }
        Ok(())
    }

    fn append(&self, log: &mut IngressLog, text: &[u8]) -> io::Result<()> {
        if log.file.is_none() {
            let is_new = !self.path.exists();
            let folder = self.path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            log.file = Some(OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?);
            if is_new {
                file::sync_folder(folder)?;
            }
        }
        let Some(file) = &mut log.file else { return Err(io::Error::other("the log is not open")) };
        file.write_all(text)?;
        file.sync_data()
    }

    fn rewrite(&self, log: &mut IngressLog) -> io::Result<()> {
        let mut text = Vec::new();
        for row in log.rows.values() {
            serde_json::to_writer(&mut text, &Change::Put(row.value.clone()))?;
            text.push(b'\n');
        }
        file::replace(&self.path, &text)?;
        (log.file, log.lines) = (None, log.rows.len());
        Ok(())
    }
}

impl IngressLog {
    fn apply(&mut self, change: Change) {
        let (id, new) = match change {
            Change::Put(value) => match id_of(&value).map(str::to_owned) {
                Some(id) => (id, Some(value)),
                None => return,
            },
            Change::Remove(id) => (id, None),
        };
        if let Some(old) = self.rows.remove(&id) {
            self.bytes -= old.bytes;
        }
        if let Some(value) = new {
            let bytes = value.to_string().len();
            self.bytes += bytes;
            self.rows.insert(id, Row { value, bytes });
        }
    }

    /// Removes the oldest finished rows beyond the maximum.
    fn forget_finished(&mut self) {
        if self.rows.len() <= MAX_FINISHED {
            return;
        }
        let mut finished: Vec<_> = self
            .rows
            .iter()
            .filter(|(_, row)| !is_waiting(&row.value))
            .map(|(id, row)| (row.value["updatedAt"].as_u64().unwrap_or_default(), id.clone()))
            .collect();
        let excess = finished.len().saturating_sub(MAX_FINISHED);
        finished.sort();
        finished.into_iter().take(excess).for_each(|(_, id)| self.apply(Change::Remove(id)));
    }
}

fn id_of(row: &Value) -> Option<&str> {
    row["id"].as_str().filter(|id| !id.is_empty())
}

fn is_waiting(row: &Value) -> bool {
    row["status"] == "pending"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(id: &str, status: &str) -> Value {
        json!({"id": id, "status": status, "payload": {"text": id}, "updatedAt": 1})
    }

    #[test]
    fn rows_survive_a_restart_and_a_torn_line_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/ingress.jsonl");
        let open = || IngressStore::open(path.clone()).unwrap();
        let store = open();
        store.write(vec![row("1", "pending"), row("2", "pending")], Vec::new()).unwrap();
        store.write(vec![row("1", "completed")], vec!["2".to_owned()]).unwrap();
        assert_eq!(open().rows(), [row("1", "completed")]);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"put\":{\"id\":\"3\"").unwrap();
        let reopened = open();
        assert_eq!(reopened.rows(), [row("1", "completed")]);
        reopened.write(vec![row("4", "pending")], Vec::new()).unwrap();
        assert_eq!(open().rows(), [row("1", "completed"), row("4", "pending")]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let home = tempfile::tempdir().unwrap();
        let store = IngressStore::open(home.path().join("x.jsonl")).unwrap();
        let rows = (0..MAX_WAITING).map(|id| row(&id.to_string(), "pending")).collect();
        store.write(rows, Vec::new()).unwrap();
        assert!(store.write(vec![row("more", "pending")], Vec::new()).unwrap_err().contains("already queued"));
        store.write(vec![row("1", "completed")], Vec::new()).unwrap();
        store.write(vec![row("more", "pending")], Vec::new()).unwrap();
        let large = json!({"id": "large", "status": "completed", "payload": "x".repeat(MAX_ROW_BYTES)});
        assert!(store.write(vec![large], Vec::new()).unwrap_err().contains("exceeds"));
        assert!(store.write(vec![json!({"status": "pending"})], Vec::new()).unwrap_err().contains("no id"));
    }

    #[test]
    fn the_log_is_rewritten_when_most_of_it_is_old() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.jsonl");
        let store = IngressStore::open(path.clone()).unwrap();
        let many = (0..=MIN_REWRITE_LINES).map(|_| row("1", "pending")).collect();
        store.write(many, Vec::new()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
        store.write(vec![row("2", "pending")], Vec::new()).unwrap();
        assert_eq!(IngressStore::open(path).unwrap().rows().len(), 2);
    }
}
