//! Handlers in JavaScript and TypeScript, run by the Node process.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_hooks::{HookError, InternalEvent, Listener, ListenerResult};
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use super::SCRIPT_DEADLINE;
use crate::hook::DEADLINE_SHARE;

/// A handler to be loaded.
#[derive(Clone, PartialEq, Eq)]
pub struct Script {
    /// Name of the hook.
    pub name: String,
    /// Path of the module.
    pub path: PathBuf,
    /// Name of the exported function.
    pub export: String,
    /// Events it subscribes to.
    pub events: Vec<String>,
    /// Environment variables for it; may be secrets.
    pub env: BTreeMap<String, String>,
}

/// Omits the values of variables, which may be secrets.
impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").field("name", &self.name).field("path", &self.path).finish_non_exhaustive()
    }
}

/// A handler loaded in one instance of the Node process. It is not valid in the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedScript {
    pub(crate) start: u64,
    pub(crate) name: String,
    pub(crate) handle: Value,
}

/// A runner of scripts: the Node process.
#[async_trait]
pub trait ScriptRunner: Send + Sync {
    /// Loads handlers; for each, in order, returns a handle or an error.
    async fn load(&self, scripts: &[Script], timeout: Duration)
    -> Result<Vec<Result<LoadedScript, String>>, HookError>;

    /// Passes an event to a handler. `None` if the process that loaded it is gone: the event was not sent, and the
    /// handler has to be loaded again.
    async fn emit(
        &self,
        script: &LoadedScript,
        event: &InternalEvent,
        timeout: Duration,
    ) -> Result<Option<ListenerResult>, HookError>;
}

/// A hook whose handler is a script. It is loaded at the first event, and again after every restart of the process.
pub(super) struct ScriptListener {
    script: Script,
    scripts: Arc<dyn ScriptRunner>,
    deadline: Duration,
    loaded: Mutex<Option<LoadedScript>>,
}

impl ScriptListener {
    pub(super) fn new(script: Script, scripts: Arc<dyn ScriptRunner>, deadline: Duration) -> Self {
        Self { script, scripts, deadline, loaded: Mutex::default() }
    }

    async fn loaded(&self, timeout: Duration) -> Result<LoadedScript, HookError> {
        let mut loaded = self.loaded.lock().await;
        if let Some(script) = &*loaded {
            return Ok(script.clone());
        }
        let results = self.scripts.load(std::slice::from_ref(&self.script), timeout).await?;
        let load_error =
            |reason: String| HookError::Failed(format!("{} cannot be loaded: {reason}", self.script.path.display()));
        let script = results
            .into_iter()
            .next()
            .unwrap_or_else(|| Err("the Node host returned no result".to_owned()))
            .map_err(load_error)?;
        Ok(loaded.insert(script).clone())
    }
}

#[async_trait]
impl Listener for ScriptListener {
    fn name(&self) -> &str {
        &self.script.name
    }

    fn events(&self) -> &[String] {
        &self.script.events
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        let deadline = Instant::now() + self.deadline.min(SCRIPT_DEADLINE).mul_f64(DEADLINE_SHARE);
        let remaining = || deadline.saturating_duration_since(Instant::now());
        loop {
            let script = self.loaded(remaining()).await?;
            if let Some(result) = self.scripts.emit(&script, event, remaining()).await? {
                return Ok(result);
            }
            self.loaded.lock().await.take_if(|known| *known == script);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Lock;

    use serde_json::Map;

    use super::*;

    /// Loads everything but `broken.js`, records its calls, and acts as a new process after every `stop`.
    #[derive(Default)]
    struct RecordingHost(Lock<(u64, Vec<String>)>);

    #[async_trait]
    impl ScriptRunner for RecordingHost {
        async fn load(&self, scripts: &[Script], _: Duration) -> Result<Vec<Result<LoadedScript, String>>, HookError> {
            let mut recorded = self.0.lock().unwrap();
            let (start, name) = (recorded.0, scripts[0].name.clone());
            recorded.1.push(format!("load {name}"));
            let is_broken = scripts[0].path.ends_with("broken.js");
            let script = LoadedScript { start, name, handle: Value::Null };
            Ok(vec![if is_broken { Err("it has no default export".to_owned()) } else { Ok(script) }])
        }

        async fn emit(
            &self,
            script: &LoadedScript,
            event: &InternalEvent,
            _: Duration,
        ) -> Result<Option<ListenerResult>, HookError> {
            let mut recorded = self.0.lock().unwrap();
            if script.start != recorded.0 {
                return Ok(None);
            }
            recorded.1.push(format!("emit {}", event.action));
            if event.action == "stop" {
                recorded.0 += 1;
                return Err(HookError::Unavailable("it ended".to_owned()));
            }
            Ok(Some(ListenerResult { messages: vec!["aye".to_owned()], bootstrap_files: None }))
        }
    }

    fn listener(file: &str, scripts: Arc<RecordingHost>) -> ScriptListener {
        let script = Script {
            name: "tide".to_owned(),
            path: file.into(),
            export: "default".to_owned(),
            events: vec!["command".to_owned()],
            env: BTreeMap::new(),
        };
        ScriptListener::new(script, scripts, Duration::from_secs(1))
    }

    fn command_event(action: &str) -> InternalEvent {
        InternalEvent {
            kind: "command".to_owned(),
            action: action.to_owned(),
            session_key: "agent:main:main".to_owned(),
            context: Map::new(),
            timestamp: 0,
            messages: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_script_is_loaded_once_per_process_and_no_event_is_lost_after_a_restart() {
        let recorded = Arc::new(RecordingHost::default());
        let listener = listener("/h/handler.js", recorded.clone());
        assert_eq!(listener.handle(&command_event("new")).await.unwrap().messages, ["aye"]);
        listener.handle(&command_event("reset")).await.unwrap();
        listener.handle(&command_event("stop")).await.unwrap_err();
        // The first event in the new process is handled, too: acceptance D9.
        assert_eq!(listener.handle(&command_event("new")).await.unwrap().messages, ["aye"]);
        let seen = recorded.0.lock().unwrap().1.join(", ");
        assert_eq!(seen, "load tide, emit new, emit reset, emit stop, load tide, emit new");
    }

    #[tokio::test]
    async fn a_script_that_cannot_be_loaded_fails_with_a_reason() {
        let error = listener("/h/broken.js", Arc::default()).handle(&command_event("new")).await.unwrap_err();
        assert_eq!(error.to_string(), "/h/broken.js cannot be loaded: it has no default export");
    }
}
