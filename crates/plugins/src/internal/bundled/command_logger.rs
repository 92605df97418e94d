//! `command-logger`: appends every command to `logs/commands.log` in the state directory.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use homard_hooks::{HookError, InternalEvent, Listener, ListenerResult};
use homard_stdx::sync::Mutex;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

/// Size at which the file is rotated; one old file is kept.
const MAX_LOG_BYTES: u64 = 5 * 1024 * 1024;

/// Maximum length of a logged value in characters.
const MAX_VALUE_CHARS: usize = 512;

/// The `command-logger` hook.
pub(super) struct CommandLogger {
    events: Vec<String>,
    log: Arc<CommandLog>,
}

struct CommandLog {
    path: PathBuf,
    max_bytes: u64,
    /// Serialises writers, so that the file is not rotated twice.
    lock: Mutex<()>,
}

impl CommandLogger {
    pub(super) fn new(events: Vec<String>, state: &Path) -> Self {
        let path = state.join("logs").join("commands.log");
        Self { events, log: Arc::new(CommandLog { path, max_bytes: MAX_LOG_BYTES, lock: Mutex::default() }) }
    }
}

impl CommandLog {
    fn write(&self, line: &str) -> io::Result<()> {
        let _turn = self.lock.lock();
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let length = fs::metadata(&self.path).map_or(0, |meta| meta.len());
        if length > 0 && length + line.len() as u64 > self.max_bytes {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        }
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        file.write_all(line.as_bytes())
    }
}

#[async_trait]
impl Listener for CommandLogger {
    fn name(&self) -> &'static str {
        super::BundledHook::CommandLogger.name()
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        let (log, line) = (self.log.clone(), line(event));
        let failed = |error: String| HookError::Failed(format!("{}: {error}", self.log.path.display()));
        let written = spawn_blocking(move || log.write(&line)).await.map_err(|error| failed(error.to_string()))?;
        written.map_err(|error| failed(error.to_string()))?;
        Ok(ListenerResult::default())
    }
}

fn line(event: &InternalEvent) -> String {
    let time = i64::try_from(event.timestamp).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let truncate = |text: &str| text.chars().take(MAX_VALUE_CHARS).collect::<String>();
    let context_value =
        |key: &str| event.context.get(key).and_then(Value::as_str).map_or_else(|| "unknown".to_owned(), truncate);
    let line = json!({
        "timestamp": format!("{:.3}", time.unwrap_or(Timestamp::UNIX_EPOCH)),
        "action": truncate(&event.action),
        "sessionKey": truncate(&event.session_key),
        "senderId": context_value("senderId"),
        "source": context_value("commandSource"),
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn command_event(context: &Value) -> InternalEvent {
        InternalEvent {
            kind: "command".to_owned(),
            action: "new".to_owned(),
            session_key: "agent:main:main".to_owned(),
            context: context.as_object().unwrap().clone(),
            timestamp: 1_794_709_957_598,
            messages: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_command_is_logged_as_one_line() {
        let state = tempfile::tempdir().unwrap();
        let logger = CommandLogger::new(Vec::new(), state.path());
        logger
            .handle(&command_event(&json!({"senderId": "me\n{}", "commandSource": "webchat", "cfg": {"token": "x"}})))
            .await
            .unwrap();
        logger.handle(&command_event(&json!({}))).await.unwrap();
        let path = state.path().join("logs/commands.log");
        let line =
            r#"{"timestamp":"2026-11-15T02:32:37.598Z","action":"new","sessionKey":"agent:main:main","senderId":"#;
        let expected =
            format!("{line}\"me\\n{{}}\",\"source\":\"webchat\"}}\n{line}\"unknown\",\"source\":\"unknown\"}}\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_large_log_is_rotated_once() {
        let state = tempfile::tempdir().unwrap();
        let log = CommandLog { path: state.path().join("commands.log"), max_bytes: 10, lock: Mutex::default() };
        for line in ["aaaa\n", "bbbb\n", "cccc\n", "dddddddddddddddd\n", "e\n"] {
            log.write(line).unwrap();
        }
        let read = |name: &str| fs::read_to_string(state.path().join(name)).unwrap();
        assert_eq!([read("commands.log"), read("commands.log.1")], ["e\n", "dddddddddddddddd\n"]);
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 2);
    }
}
