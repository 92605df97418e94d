//! Handlers in JavaScript and TypeScript, which somebody else runs.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_hooks::{Heard, HookError, Listener, Signal};
use tokio::sync::Mutex;

/// A handler that is to be loaded.
#[derive(Clone, PartialEq, Eq)]
pub struct Script {
    /// The hook's name.
    pub name: String,
    /// The module.
    pub path: PathBuf,
    /// The name under which it exports the function.
    pub export: String,
    /// What it listens to.
    pub events: Vec<String>,
    /// Variables for it; they may be secrets.
    pub env: BTreeMap<String, String>,
}

/// Shows no values of variables: they may be secrets.
impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").field("name", &self.name).field("path", &self.path).finish_non_exhaustive()
    }
}

/// Somebody who runs scripts: a Node process.
#[async_trait]
pub trait Scripts: Send + Sync {
    /// Loads handlers. For each, in order: what it is called from then on, or what is wrong with it.
    async fn load(&self, scripts: &[Script]) -> Result<Vec<Result<String, String>>, HookError>;

    /// Has one hear a signal. [`HookError::Gone`] if it must be loaded again.
    async fn emit(&self, handler: &str, signal: &Signal) -> Result<Heard, HookError>;
}

/// A hook whose handler is a script. It is loaded when there is something to hear for the first time.
pub(super) struct ScriptListener {
    script: Script,
    scripts: Arc<dyn Scripts>,
    deadline: Duration,
    loaded: Mutex<Option<String>>,
}

impl ScriptListener {
    pub(super) fn new(script: Script, scripts: Arc<dyn Scripts>, deadline: Duration) -> Self {
        Self { script, scripts, deadline, loaded: Mutex::default() }
    }

    async fn handler(&self) -> Result<String, HookError> {
        let mut loaded = self.loaded.lock().await;
        if let Some(handler) = &*loaded {
            return Ok(handler.clone());
        }
        let all = self.scripts.load(std::slice::from_ref(&self.script)).await?;
        let wrong =
            |what: String| HookError::Failed(format!("{} cannot be loaded: {what}", self.script.path.display()));
        let handler =
            all.into_iter().next().unwrap_or_else(|| Err("nobody answered for it".to_owned())).map_err(wrong)?;
        Ok(loaded.insert(handler).clone())
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

    async fn hear(&self, signal: &Signal) -> Result<Heard, HookError> {
        let handler = self.handler().await?;
        let heard = self.scripts.emit(&handler, signal).await;
        if let Err(HookError::Gone(_)) = &heard {
            // Its process ended, and what it was called there means nothing to the next one.
            self.loaded.lock().await.take_if(|known| *known == handler);
        }
        heard
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Lock;

    use serde_json::Map;

    use super::*;

    /// Loads everything but `broken.js`, counts, and is gone once.
    #[derive(Default)]
    struct Played(Lock<Vec<String>>);

    #[async_trait]
    impl Scripts for Played {
        async fn load(&self, scripts: &[Script]) -> Result<Vec<Result<String, String>>, HookError> {
            let mut seen = self.0.lock().unwrap();
            seen.push(format!("load {}", scripts[0].name));
            let handler = format!("ref-{}", seen.len());
            let is_broken = scripts[0].path.ends_with("broken.js");
            Ok(vec![if is_broken { Err("it has no default export".to_owned()) } else { Ok(handler) }])
        }

        async fn emit(&self, handler: &str, signal: &Signal) -> Result<Heard, HookError> {
            let mut seen = self.0.lock().unwrap();
            seen.push(format!("emit {handler} {}", signal.action));
            if signal.action == "stop" {
                return Err(HookError::Gone("it ended".to_owned()));
            }
            Ok(Heard { messages: vec!["aye".to_owned()], bootstrap_files: None })
        }
    }

    fn listener(file: &str, scripts: Arc<Played>) -> ScriptListener {
        let script = Script {
            name: "tide".to_owned(),
            path: file.into(),
            export: "default".to_owned(),
            events: vec!["command".to_owned()],
            env: BTreeMap::new(),
        };
        ScriptListener::new(script, scripts, Duration::from_secs(1))
    }

    fn signal(action: &str) -> Signal {
        Signal {
            kind: "command".to_owned(),
            action: action.to_owned(),
            session_key: "agent:main:main".to_owned(),
            context: Map::new(),
            timestamp: 0,
            messages: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_script_is_loaded_once_and_again_when_its_process_is_gone() {
        let played = Arc::new(Played::default());
        let listener = listener("/h/handler.js", played.clone());
        assert_eq!(listener.hear(&signal("new")).await.unwrap().messages, ["aye"]);
        listener.hear(&signal("reset")).await.unwrap();
        listener.hear(&signal("stop")).await.unwrap_err();
        listener.hear(&signal("new")).await.unwrap();
        let seen = played.0.lock().unwrap().join(", ");
        assert_eq!(seen, "load tide, emit ref-1 new, emit ref-1 reset, emit ref-1 stop, load tide, emit ref-5 new");
    }

    #[tokio::test]
    async fn a_script_that_cannot_be_loaded_says_why() {
        let told = listener("/h/broken.js", Arc::default()).hear(&signal("new")).await.unwrap_err();
        assert_eq!(told.to_string(), "/h/broken.js cannot be loaded: it has no default export");
    }
}
