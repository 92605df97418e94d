//! Log of what model requests contain besides the conversation: the system prompt by section, and the tools.
//!
//! A timeline stores only the id of a request's prompt, which is the digest of its content. The texts are stored once,
//! each in a file that is named by its digest, so a request whose prompt is known writes nothing. The log explains runs;
//! it is not needed to resume them. Therefore its files are not synced, a damaged one counts as missing, and the ones
//! that were not used for the longest time are deleted when the log is full.
//!
//! Start reading at [`RequestLog::keep`] and `files.rs`.
#![warn(missing_docs)]

mod files;
mod id;

use std::{collections::HashSet, fmt, io, path::PathBuf, sync::Arc};

use homard_stdx::sync::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use files::PromptFiles;
pub use id::PromptId;

/// Default maximum size of the files in bytes.
pub const DEFAULT_MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Maximum number of prompts that wait to be written. Further ones are not kept, so that a slow disk cannot fill the
/// memory.
const MAX_WAITING: usize = 16;

/// Number of prompts that this process remembers as written, so that it need not look for their files.
const MAX_REMEMBERED: usize = 4_096;

/// What a model receives besides the conversation. Secrets have to be masked already.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LoggedPrompt {
    /// Sections of the system prompt in order.
    pub sections: Vec<LoggedSection>,
    /// Tools in order.
    pub tools: Vec<LoggedTool>,
}

/// A section of a system prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedSection {
    /// Name.
    pub name: String,
    /// Text.
    pub text: String,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedTool {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// JSON schema of the arguments.
    pub parameters: Value,
}

/// The log. Clones share it. The default one is disabled: it keeps nothing.
#[derive(Clone, Default)]
pub struct RequestLog(Option<Arc<LogInner>>);

struct LogInner {
    files: Mutex<PromptFiles>,
    /// Prompts that this process has written, or is about to write.
    written: Mutex<HashSet<PromptId>>,
    /// Number of prompts that wait to be written.
    waiting: watch::Sender<usize>,
}

/// What is stored: texts and lists of them under their ids.
type Blobs = Vec<(PromptId, Vec<u8>)>;

/// What a prompt consists of: what is stored under its id.
#[derive(Serialize, Deserialize)]
struct PromptManifest {
    /// Name and text of each section.
    sections: Vec<(String, PromptId)>,
    tools: PromptId,
}

impl RequestLog {
    /// Opens a log in a folder, which is created when the first prompt is kept. With a maximum size of 0 it is disabled.
    /// `now_ms` returns the time in milliseconds since the epoch.
    pub fn open(folder: PathBuf, max_bytes: u64, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        if max_bytes == 0 {
            return Self::default();
        }
        let files = Mutex::new(PromptFiles::new(folder, max_bytes, Box::new(now_ms)));
        Self(Some(Arc::new(LogInner { files, written: Mutex::default(), waiting: watch::Sender::new(0) })))
    }

    /// True if it keeps anything.
    pub fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps a prompt and returns its id; `None` if it is not kept. The files are written in the background. Must be
    /// called in a Tokio runtime.
    pub fn keep(&self, prompt: &LoggedPrompt) -> Option<PromptId> {
        let inner = self.0.as_ref()?;
        let (id, blobs) = blobs(prompt)?;
        let mut written = inner.written.lock();
        if written.contains(&id) {
            return Some(id);
        }
        if *inner.waiting.borrow() >= MAX_WAITING {
            tracing::warn!("the prompt of a model request is not kept, because earlier ones are still being written");
            return None;
        }
        if written.len() >= MAX_REMEMBERED {
            written.clear();
        }
        written.insert(id);
        drop(written);
        inner.waiting.send_modify(|waiting| *waiting += 1);
        let inner = Arc::clone(inner);
        tokio::task::spawn_blocking(move || inner.write(id, &blobs));
        Some(id)
    }

    /// Reads a prompt, after those that are being written; `None` if it was not kept, or no longer is.
    pub async fn read(&self, id: PromptId) -> io::Result<Option<LoggedPrompt>> {
        let Some(inner) = self.0.clone() else { return Ok(None) };
        inner.settled().await;
        tokio::task::spawn_blocking(move || inner.read(id)).await.map_err(io::Error::other)?
    }
}

impl LogInner {
    /// Waits until nothing is being written.
    async fn settled(&self) {
        let mut waiting = self.waiting.subscribe();
        // The sender lives as long as this, so the wait cannot fail.
        drop(waiting.wait_for(|waiting| *waiting == 0).await);
    }

    fn write(&self, id: PromptId, blobs: &[(PromptId, Vec<u8>)]) {
        match self.files.lock().put(blobs) {
            Ok(removed) if removed.is_empty() => {}
            // A prompt that uses a removed text has to be written again.
            Ok(_) => self.written.lock().retain(|written| *written == id),
            Err(error) => {
                tracing::warn!(%error, "cannot keep the prompt of a model request");
                self.written.lock().remove(&id);
            }
        }
        self.waiting.send_modify(|waiting| *waiting -= 1);
    }

    fn read(&self, id: PromptId) -> io::Result<Option<LoggedPrompt>> {
        let files = self.files.lock();
        let Some(manifest) = files.get(id)? else { return Ok(None) };
        let manifest: PromptManifest = serde_json::from_slice(&manifest)?;
        let mut sections = Vec::new();
        for (name, text) in manifest.sections {
            let Some(text) = files.get(text)? else { return Ok(None) };
            sections.push(LoggedSection { name, text: String::from_utf8_lossy(&text).into_owned() });
        }
        let Some(tools) = files.get(manifest.tools)? else { return Ok(None) };
        Ok(Some(LoggedPrompt { sections, tools: serde_json::from_slice(&tools)? }))
    }
}

/// Returns the id of a prompt, and what is stored for it. The manifest is the last: if it is there, so is the rest.
fn blobs(prompt: &LoggedPrompt) -> Option<(PromptId, Blobs)> {
    let blob = |content: Vec<u8>| (PromptId::of(&content), content);
    let mut blobs: Blobs = prompt.sections.iter().map(|section| blob(section.text.clone().into_bytes())).collect();
    let sections = prompt.sections.iter().zip(&blobs).map(|(section, (id, _))| (section.name.clone(), *id)).collect();
    let tools = blob(serialized(&prompt.tools)?);
    let manifest = blob(serialized(&PromptManifest { sections, tools: tools.0 })?);
    let id = manifest.0;
    blobs.extend([tools, manifest]);
    Some((id, blobs))
}

fn serialized(value: &impl Serialize) -> Option<Vec<u8>> {
    serde_json::to_vec(value)
        .inspect_err(|error| tracing::error!(%error, "cannot serialize the prompt of a model request"))
        .ok()
}

/// Equal if they are the same log.
impl PartialEq for RequestLog {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLog").field("is_enabled", &self.is_enabled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;

    use super::*;

    fn prompt(runtime: &str) -> LoggedPrompt {
        let section = |name: &str, text: &str| LoggedSection { name: name.to_owned(), text: text.to_owned() };
        let tool = LoggedTool {
            name: "read".to_owned(),
            description: "Read a file".to_owned(),
            parameters: json!({"type": "object"}),
        };
        LoggedPrompt { sections: vec![section("Identity", "You are"), section("Runtime", runtime)], tools: vec![tool] }
    }

    fn log(folder: &tempfile::TempDir, max_bytes: u64) -> RequestLog {
        let clock = AtomicU64::new(1_000);
        RequestLog::open(folder.path().join("prompts"), max_bytes, move || clock.fetch_add(1_000, Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_prompt_is_read_by_its_id_also_by_a_later_process() {
        let folder = tempfile::tempdir().unwrap();
        let first = log(&folder, DEFAULT_MAX_BYTES);
        let id = first.keep(&prompt("a")).unwrap();
        first.0.as_ref().unwrap().settled().await;
        assert_eq!(first.read(id).await.unwrap(), Some(prompt("a")));
        let second = log(&folder, DEFAULT_MAX_BYTES);
        assert_eq!(second.read(id).await.unwrap(), Some(prompt("a")));
        assert_eq!(second.keep(&prompt("a")), Some(id));
    }

    #[tokio::test]
    async fn a_text_is_stored_once() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder, DEFAULT_MAX_BYTES);
        let files = || std::fs::read_dir(folder.path().join("prompts")).unwrap().count();
        log.keep(&prompt("a")).unwrap();
        log.0.as_ref().unwrap().settled().await;
        assert_eq!(files(), 4, "two sections, the tools, the manifest");
        log.keep(&prompt("b")).unwrap();
        log.keep(&prompt("a")).unwrap();
        log.0.as_ref().unwrap().settled().await;
        assert_eq!(files(), 6, "a section and a manifest");
    }

    #[tokio::test]
    async fn old_prompts_are_removed_and_can_be_kept_again() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder, 40 * 1024);
        let first = log.keep(&prompt("first")).unwrap();
        log.0.as_ref().unwrap().settled().await;
        for number in 0..12 {
            log.keep(&prompt(&format!("{number} {}", "x".repeat(8 * 1024)))).unwrap();
            log.0.as_ref().unwrap().settled().await;
        }
        assert_eq!(log.read(first).await.unwrap(), None);
        assert_eq!(log.keep(&prompt("first")), Some(first));
        log.0.as_ref().unwrap().settled().await;
        assert_eq!(log.read(first).await.unwrap(), Some(prompt("first")));
    }

    #[tokio::test]
    async fn a_damaged_text_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let first = log(&folder, DEFAULT_MAX_BYTES);
        let id = first.keep(&prompt("a")).unwrap();
        first.0.as_ref().unwrap().settled().await;
        for file in std::fs::read_dir(folder.path().join("prompts")).unwrap() {
            let path = file.unwrap().path();
            if std::fs::read(&path).unwrap() == b"You are" {
                std::fs::write(path, "").unwrap();
            }
        }
        let second = log(&folder, DEFAULT_MAX_BYTES);
        assert_eq!(second.read(id).await.unwrap(), None);
        second.keep(&prompt("a")).unwrap();
        second.0.as_ref().unwrap().settled().await;
        assert_eq!(second.read(id).await.unwrap(), Some(prompt("a")));
    }

    #[tokio::test]
    async fn a_disabled_log_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder, 0);
        assert_eq!(log.keep(&prompt("a")), None);
        assert!(!folder.path().join("prompts").exists());
    }
}
