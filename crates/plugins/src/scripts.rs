//! Hook handlers and webhook transforms in JavaScript, run by the Node process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_hooks::{Heard, HookError, Signal};
use serde_json::{Value, json};

use crate::{
    Error,
    hook::heard,
    internal::{LoadedScript, Script, Scripts},
    supervisor::{Delivery, Paper, Question, Up, Worker},
};

/// Name under which transforms run and handlers are loaded, so that their failures do not count for a plugin.
const NAME: &str = "scripts";

/// The Node process as a script runner. It is started on first use.
#[derive(Debug, Clone)]
pub struct Node(Arc<Worker>);

impl Node {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self(worker)
    }

    /// Calls a webhook transform; null means that the request is to be ignored.
    pub async fn transform(
        &self,
        module: &str,
        export: Option<&str>,
        ctx: Value,
        within: Duration,
    ) -> Result<Value, Error> {
        let params = json!({"module": module, "export": export, "ctx": ctx});
        let question = Question {
            plugin: NAME,
            method: "transform.run",
            within,
            delivery: Delivery::AtMostOnce,
            on_progress: None,
        };
        let mut answer = self.0.ask(question, |_| Paper::plain(&params)).await?;
        Ok(answer.get_mut("result").map(Value::take).unwrap_or_default())
    }
}

/// Name under which a handler is loaded and run. Each handler has its own, with its own circuit breaker, so that one that
/// hangs does not disable the others.
fn hook_name(script: &str) -> String {
    format!("hook {script}")
}

#[async_trait]
impl Scripts for Node {
    async fn load(&self, scripts: &[Script], within: Duration) -> Result<Vec<Result<LoadedScript, String>>, HookError> {
        let entries: Vec<Value> = scripts
            .iter()
            .map(|script| {
                let Script { name, path, export, events, env } = script;
                json!({"name": name, "handlerPath": path, "export": export, "events": events, "env": env})
            })
            .collect();
        let loading = AtomicU64::default();
        let name = match scripts {
            [script] => hook_name(&script.name),
            _ => NAME.to_owned(),
        };
        let question = Question {
            plugin: &name,
            method: "internalHook.load",
            within,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let write = |up: &Up| {
            loading.store(up.start, Ordering::Relaxed);
            Paper::plain(&json!({"entries": entries}))
        };
        let answer = self.0.ask(question, write).await?;
        let start = loading.load(Ordering::Relaxed);
        let told = answer.get("entries").and_then(Value::as_array).cloned().unwrap_or_default();
        let read = |at: usize| match told.get(at) {
            Some(entry) if entry["status"] == "loaded" => {
                let name = scripts[at].name.clone();
                Ok(LoadedScript { start, name, reference: entry["ref"].clone() })
            }
            Some(entry) => Err(entry["error"].as_str().unwrap_or("it could not be loaded").to_owned()),
            None => Err("Node said nothing about it".to_owned()),
        };
        Ok((0..scripts.len()).map(read).collect())
    }

    async fn emit(&self, script: &LoadedScript, signal: &Signal, within: Duration) -> Result<Option<Heard>, HookError> {
        let name = hook_name(&script.name);
        let is_elsewhere = AtomicBool::default();
        let question = Question {
            plugin: &name,
            method: "internalHook.emit",
            within,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let write = |up: &Up| {
            if up.start != script.start {
                is_elsewhere.store(true, Ordering::Relaxed);
                return Err(Error::Failed("it is not loaded in this process".to_owned()));
            }
            Paper::plain(&json!({"ref": script.reference, "event": signal}))
        };
        match self.0.ask(question, write).await {
            Ok(answer) => heard(&answer).map(Some),
            Err(_) if is_elsewhere.load(Ordering::Relaxed) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
