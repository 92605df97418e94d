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
use homard_stdx::text::{beginning, truncate};
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
        state: PathBuf,
        workspace: PathBuf,
        config: &Map<String, Value>,
        services: &BundledServices,
    ) -> Self {
        let (default_count, max_count) = MESSAGE_LIMITS;
        let messages = config.get("messages").and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
        let wants_slug = config.get("llmSlug") == Some(&Value::Bool(true));
        Self {
            events,
            state,
            workspace,
            messages: messages.filter(|count| *count > 0).unwrap_or(default_count).min(max_count),
            slug: services.slug.clone().filter(|_| wants_slug),
            write: services.write.clone(),
        }
    }

    /// Asks a model for a file name that describes the conversation; `None` if there is no model or it fails.
    async fn name(&self, messages: &[TranscriptMessage]) -> Option<String> {
        let text = lines(messages);
        let text = beginning(&text, MAX_NAMING_CHARS);
        let ask_model = self.slug.as_ref()?;
        let prompt = format!(
            "Say in one or two English words what this conversation is about. Answer with those words only, in lower \
             case, with a hyphen between them.\n\n{text}"
        );
        match timeout(NAMING_TIMEOUT, ask_model(prompt)).await {
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

    /// Saves the last messages of the old transcript as a memory file. The name is chosen by a model or is the time.
    /// A `write` service records that no command wrote the file.
    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        let Some((id, file)) = old_transcript(event, &self.state) else { return Ok(ListenerResult::default()) };
        let max_messages = self.messages;
        let path = file.clone();
        let messages = spawn_blocking(move || transcript::tail(&path, max_messages)).await.map_err(broken)?;
        let messages = match messages {
            Ok(messages) => messages,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(&file, &error)),
        };
        if messages.is_empty() {
            return Ok(ListenerResult::default());
        }
        let at = time(event.timestamp);
        let name = self.name(&messages).await.unwrap_or_else(|| at.strftime("%H%M").to_string());
        let text = memory(event, &id, &messages, &at);
        let (folder, name) = (workspace(event, &self.workspace), format!("{}-{name}", at.strftime("%Y-%m-%d")));
        let (target_dir, write) = (folder.clone(), self.write.clone());
        let saved = spawn_blocking(move || {
            let mut saved = Err(io::Error::other("the file was not written"));
            let mut save_file = || {
                saved = save(&target_dir, &name, &text);
                saved.as_ref().ok().map(|path| (path.clone(), text.clone()))
            };
            match &write {
                Some(write) => write(&target_dir, &mut save_file),
                None => drop(save_file()),
            }
            saved
        });
        let saved = saved.await.map_err(broken)?;
        let saved = saved.map_err(|error| failed(&folder.join("memory"), &error))?;
        tracing::info!(file = %saved.display(), "saved the end of a conversation");
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
fn old_transcript(event: &InternalEvent, state: &Path) -> Option<(String, PathBuf)> {
    let entries = ["previousSessionEntry", "sessionEntry"].iter().filter_map(|key| event.context.get(*key));
    let mut entries = entries.filter_map(|entry| Some((entry, entry["sessionId"].as_str()?)));
    let (entry, id) = entries.next()?;
    let agent = event.context.get("agentId").and_then(Value::as_str);
    let agent = agent.or_else(|| event.session_key.strip_prefix("agent:")?.split(':').next()).unwrap_or("main");
    if let Some(file) = event.context.get("sessionFile").and_then(Value::as_str) {
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

fn memory(event: &InternalEvent, id: &str, messages: &[TranscriptMessage], at: &Zoned) -> String {
    let source = event.context.get("commandSource").and_then(Value::as_str).unwrap_or("unknown");
    format!(
        "# Session: {} UTC\n\n- **Session Key**: {}\n- **Session ID**: {id}\n- **Source**: {source}\n\n## Conversation \
         Summary\n\n{}\n",
        at.strftime("%Y-%m-%d %H:%M:%S"),
        event.session_key,
        lines(messages)
    )
}

fn lines(messages: &[TranscriptMessage]) -> String {
    let line =
        |messages: &TranscriptMessage| format!("{}: {}", messages.role, truncate(&messages.text, MAX_MESSAGE_CHARS));
    messages.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Converts a model's answer to a file name.
fn slug(answer: &str) -> Option<String> {
    let lower_case = answer.to_lowercase();
    let lower_case = lower_case.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug: String = lower_case.collect::<Vec<_>>().join("-").chars().take(MAX_SLUG_CHARS).collect();
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
