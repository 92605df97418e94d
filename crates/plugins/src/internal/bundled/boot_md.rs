//! `boot-md`: runs the instructions in `BOOT.md` when the gateway starts.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use homard_hooks::{HookError, InternalEvent, Listener, ListenerResult};
use tokio::task::spawn_blocking;

use super::{TextFunction, workspace};

/// Name of the file.
const FILE: &str = "BOOT.md";

/// Maximum number of bytes read.
const MAX_BYTES: u64 = 64 * 1024;

/// The `boot-md` hook.
pub(super) struct BootMd {
    pub(super) events: Vec<String>,
    pub(super) workspace: PathBuf,
    pub(super) run: Option<TextFunction>,
}

#[async_trait]
impl Listener for BootMd {
    fn name(&self) -> &'static str {
        super::BundledHook::BootMd.name()
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    /// Time for the run to be accepted; the run itself may take longer.
    fn deadline(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        let folder = workspace(event, &self.workspace);
        let file = folder.join(FILE);
        let failed = |reason: String| HookError::Failed(format!("{}: {reason}", file.display()));
        let text = spawn_blocking(move || read(&folder)).await.map_err(|error| failed(error.to_string()))?;
        let Some(text) = text.map_err(|error| failed(error.to_string()))? else { return Ok(ListenerResult::default()) };
        let Some(run) = &self.run else {
            return Err(failed("no agent is available to run it".to_owned()));
        };
        let message = format!(
            "The gateway has just started. Follow the instructions below, which are the content of {FILE} in your \
             workspace. Your reply is not delivered: to notify someone, use the message tool. When you are done, \
             answer with NO_REPLY.\n\n{text}"
        );
        run(message).await.map_err(failed)?;
        Ok(ListenerResult::default())
    }
}

/// Reads the file; `None` if it is missing or empty.
fn read(workspace: &Path) -> io::Result<Option<String>> {
    let file = match fs::canonicalize(workspace.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.starts_with(fs::canonicalize(workspace)?) {
        return Err(io::Error::other("it is a link that leads out of the workspace"));
    }
    if !file.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than the limit of {MAX_BYTES} bytes")));
    }
    let text = String::from_utf8(bytes).ok().ok_or_else(|| io::Error::other("it is not UTF-8 text"))?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;

    fn startup_event(workspace: &Path) -> InternalEvent {
        InternalEvent {
            kind: "gateway".to_owned(),
            action: "startup".to_owned(),
            session_key: "gateway:startup".to_owned(),
            context: json!({"workspaceDir": workspace}).as_object().unwrap().clone(),
            timestamp: 0,
            messages: Vec::new(),
        }
    }

    /// Returns the prompts sent to the agent and the result, with this text in the file.
    async fn booted(text: Option<&[u8]>) -> (Vec<String>, Result<ListenerResult, String>) {
        let folder = tempfile::tempdir().unwrap();
        if let Some(text) = text {
            fs::write(folder.path().join(FILE), text).unwrap();
        }
        let messages = Arc::new(Mutex::new(Vec::new()));
        let recorder = messages.clone();
        let run: TextFunction = Arc::new(move |message| {
            recorder.lock().unwrap().push(message);
            std::future::ready(Ok(String::new())).boxed()
        });
        let boot = BootMd { events: Vec::new(), workspace: PathBuf::from("/nowhere"), run: Some(run) };
        let result = boot.handle(&startup_event(folder.path())).await;
        let prefix = format!("{}/", folder.path().display());
        let messages = messages.lock().unwrap().clone();
        (messages, result.map_err(|error| error.to_string().replace(&prefix, "")))
    }

    #[tokio::test]
    async fn the_file_is_sent_to_an_agent() {
        let (messages, result) = booted(Some(b"\nLook at the tide.\n")).await;
        assert_eq!(result, Ok(ListenerResult::default()));
        assert_eq!(messages.len(), 1);
        assert!(messages[0].ends_with("answer with NO_REPLY.\n\nLook at the tide."), "{}", messages[0]);
    }

    #[tokio::test]
    async fn an_empty_or_unreadable_file_starts_no_run() {
        assert_eq!(booted(None).await, (Vec::new(), Ok(ListenerResult::default())));
        assert_eq!(booted(Some(b" \n")).await, (Vec::new(), Ok(ListenerResult::default())));
        assert_eq!(booted(Some(&[0xff])).await, (Vec::new(), Err("BOOT.md: it is not UTF-8 text".to_owned())));
        let (messages, result) = booted(Some(&vec![b'x'; 70_000])).await;
        assert_eq!(
            (messages.len(), result.unwrap_err().as_str()),
            (0, "BOOT.md: it is larger than the limit of 65536 bytes")
        );
    }
}
