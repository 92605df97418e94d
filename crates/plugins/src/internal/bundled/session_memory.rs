//! `session-memory`: when a new session begins, saves the end of the old one in the `memory` directory of the
//! workspace.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use homard_hooks::{HookError, InternalEvent, Listener, ListenerResult};
use jiff::{Timestamp, Zoned, tz::TimeZone};
use serde_json::{Map, Value};
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    BundledServices, TextFunction, WriteFile,
    transcript::{self, TranscriptMessage},
    workspace,
};

/// Default and maximum number of messages saved.
const MESSAGE_LIMITS: (usize, usize) = (15, 200);

/// Maximum length of each message in characters.
const MAX_MESSAGE_CHARS: usize = 4000;

/// Number of characters shown to the model that chooses a file name.
const MAX_NAMING_CHARS: usize = 2000;

/// Timeout for choosing a name.
const NAMING_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum length of a name in characters.
const MAX_SLUG_CHARS: usize = 30;

/// Maximum number of files with the same name.
const MAX_SAME_NAME: usize = 100;

/// The `session-memory` hook.
pub(super) struct SessionMemory {
    events: Vec<String>,
    state: PathBuf,
    workspace: PathBuf,
    messages: usize,
    slug: Option<TextFunction>,
    write: Option<WriteFile>,
}

impl SessionMemory {
    pub(super) fn new(
        events: Vec<String>,
        (state, workspace): (PathBuf, PathBuf),
        config: &Map<String, Value>,
        house: &BundledServices,
    ) -> Self {
        let (usual, most) = MESSAGE_LIMITS;
        let messages = config.get("messages").and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
        let wants_slug = config.get("llmSlug") == Some(&Value::Bool(true));
        Self {
            events,
            state,
            workspace,
            messages: messages.filter(|count| *count > 0).unwrap_or(usual).min(most),
            slug: house.slug.clone().filter(|_| wants_slug),
            write: house.write.clone(),
        }
    }

    /// Asks a model for a file name that describes the conversation; `None` if there is no model or it fails.
    async fn name(&self, said: &[TranscriptMessage]) -> Option<String> {
        let text: String = lines(said).chars().take(MAX_NAMING_CHARS).collect();
        let ask = self.slug.as_ref()?;
        let question = format!(
            "Say in one or two English words what this conversation is about. Answer with those words only, in lower \
             case, with a hyphen between them.\n\n{text}"
        );
        match timeout(NAMING_TIMEOUT, ask(question)).await {
            Ok(Ok(answer)) => slug(&answer),
            Ok(Err(why)) => {
                tracing::info!(why, "failed to name a memory file with a model; using the time instead");
                None
            }
            Err(_) => None,
        }
    }
}

#[async_trait]
impl Listener for SessionMemory {
    fn name(&self) -> &'static str {
        super::BundledHook::SessionMemory.name()
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    fn deadline(&self) -> Duration {
        2 * NAMING_TIMEOUT
    }

    async fn handle(&self, signal: &InternalEvent) -> Result<ListenerResult, HookError> {
        let Some((id, file)) = old_transcript(signal, &self.state) else { return Ok(ListenerResult::default()) };
        let most = self.messages;
        let path = file.clone();
        let said = spawn_blocking(move || transcript::tail(&path, most)).await.map_err(broken)?;
        let said = match said {
            Ok(said) => said,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(&file, &error)),
        };
        if said.is_empty() {
            return Ok(ListenerResult::default());
        }
        let at = time(signal.timestamp);
        let name = self.name(&said).await.unwrap_or_else(|| at.strftime("%H%M").to_string());
        let text = memory(signal, &id, &said, &at);
        let (folder, name) = (workspace(signal, &self.workspace), format!("{}-{name}", at.strftime("%Y-%m-%d")));
        let (place, write) = (folder.clone(), self.write.clone());
        let kept = spawn_blocking(move || {
            let mut kept = Err(io::Error::other("the file was not written"));
            let mut work = || {
                kept = save(&place, &name, &text);
                kept.as_ref().ok().map(|path| (path.clone(), text.clone()))
            };
            match &write {
                Some(write) => write(&place, &mut work),
                None => drop(work()),
            }
            kept
        });
        let kept = kept.await.map_err(broken)?;
        let kept = kept.map_err(|error| failed(&folder.join("memory"), &error))?;
        tracing::info!(file = %kept.display(), "saved the end of a conversation");
        Ok(ListenerResult::default())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn broken(error: tokio::task::JoinError) -> HookError {
    HookError::Failed(error.to_string())
}

fn failed(path: &Path, error: &io::Error) -> HookError {
    HookError::Failed(format!("{}: {error}", path.display()))
}

/// Returns id and transcript path of the session that has ended.
fn old_transcript(signal: &InternalEvent, state: &Path) -> Option<(String, PathBuf)> {
    let entries = ["previousSessionEntry", "sessionEntry"].iter().filter_map(|key| signal.context.get(*key));
    let mut entries = entries.filter_map(|entry| Some((entry, entry["sessionId"].as_str()?)));
    let (entry, id) = entries.next()?;
    let agent = signal.context.get("agentId").and_then(Value::as_str);
    let agent = agent.or_else(|| signal.session_key.strip_prefix("agent:")?.split(':').next()).unwrap_or("main");
    if let Some(file) = signal.context.get("sessionFile").and_then(Value::as_str) {
        return Some((id.to_owned(), PathBuf::from(file)));
    }
    // Only the file name is used, because the state directory may have been moved.
    let name = entry["sessionFile"].as_str().and_then(|file| Path::new(file).file_name()?.to_str());
    let name = name.map_or_else(|| format!("{id}.jsonl"), ToOwned::to_owned);
    let is_plain = |part: &str| !part.is_empty() && !part.contains(['/', '\0']) && part != "." && part != "..";
    let file = state.join("agents").join(agent).join("sessions").join(&name);
    (is_plain(agent) && is_plain(&name)).then(|| (id.to_owned(), file))
}

fn time(ms: u64) -> Zoned {
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC)
}

fn memory(signal: &InternalEvent, id: &str, said: &[TranscriptMessage], at: &Zoned) -> String {
    let source = signal.context.get("commandSource").and_then(Value::as_str).unwrap_or("unknown");
    format!(
        "# Session: {} UTC\n\n- **Session Key**: {}\n- **Session ID**: {id}\n- **Source**: {source}\n\n## Conversation \
         Summary\n\n{}\n",
        at.strftime("%Y-%m-%d %H:%M:%S"),
        signal.session_key,
        lines(said)
    )
}

fn lines(said: &[TranscriptMessage]) -> String {
    let line = |said: &TranscriptMessage| {
        let mut text: String = said.text.chars().take(MAX_MESSAGE_CHARS).collect();
        if text.len() < said.text.len() {
            text.push('…');
        }
        format!("{}: {text}", said.role)
    };
    said.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Converts a model's answer to a file name.
fn slug(answer: &str) -> Option<String> {
    let words = answer.to_lowercase();
    let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug: String = words.collect::<Vec<_>>().join("-").chars().take(MAX_SLUG_CHARS).collect();
    let slug = slug.trim_matches('-');
    (!slug.is_empty()).then(|| slug.to_owned())
}

/// Writes a file atomically under the first free name. Blocks.
fn save(workspace: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let folder = workspace.join("memory");
    fs::create_dir_all(&folder)?;
    if !fs::canonicalize(&folder)?.starts_with(fs::canonicalize(workspace)?) {
        return Err(io::Error::other("it is a link that leads out of the workspace"));
    }
    let mut file = tempfile::Builder::new().prefix(".memory-").tempfile_in(&folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    for number in 1..=MAX_SAME_NAME {
        let end = if number == 1 { String::new() } else { format!("-{number}") };
        let path = folder.join(format!("{name}{end}.md"));
        match file.persist_noclobber(&path) {
            Ok(_) => {
                fs::File::open(&folder)?.sync_all()?;
                return Ok(path);
            }
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => file = error.file,
            Err(error) => return Err(error.error),
        }
    }
    Err(io::Error::other(format!("{MAX_SAME_NAME} files named {name} exist already")))
}

#[cfg(test)]
mod tests;
