//! Hook handlers and webhook transforms in JavaScript, run by the Node process.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_hooks::{Heard, HookError, Signal};
use serde_json::{Value, json};

use crate::{
    Error,
    hook::heard,
    internal::{Script, Scripts},
    supervisor::{Paper, Question, Worker},
};

/// In whose name scripts run: their failures are not those of a plugin.
const NAME: &str = "scripts";

/// How long a script may take: a little less than those wait who have one, so that we notice first.
const LONGEST: Duration = Duration::from_secs(14);

/// The Node process, for those who have scripts. It is started when the first is needed.
#[derive(Debug, Clone)]
pub struct Node(Arc<Worker>);

impl Node {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self(worker)
    }

    async fn ask(&self, method: &str, within: Duration, params: &Value) -> Result<Value, Error> {
        self.0.ask(Question { plugin: NAME, method, within, on_progress: None }, |_| Paper::plain(params)).await
    }

    /// Has a function of a module change what a webhook brought; null means that it is to be passed over.
    pub async fn transform(
        &self,
        module: &str,
        export: Option<&str>,
        ctx: Value,
        within: Duration,
    ) -> Result<Value, Error> {
        let params = json!({"module": module, "export": export, "ctx": ctx});
        let mut answer = self.ask("transform.run", within, &params).await?;
        Ok(answer.get_mut("result").map(Value::take).unwrap_or_default())
    }
}

#[async_trait]
impl Scripts for Node {
    async fn load(&self, scripts: &[Script]) -> Result<Vec<Result<String, String>>, HookError> {
        let entries: Vec<Value> = scripts
            .iter()
            .map(|script| {
                let Script { name, path, export, events, env } = script;
                json!({"name": name, "handlerPath": path, "export": export, "events": events, "env": env})
            })
            .collect();
        let answer = self.ask("internalHook.load", LONGEST, &json!({"entries": entries})).await?;
        let pid = self.0.up().await?.link.pid().unwrap_or_default();
        let told = answer.get("entries").and_then(Value::as_array).cloned().unwrap_or_default();
        let read = |at: usize| match told.get(at) {
            Some(entry) if entry["status"] == "loaded" => Ok(format!("{pid}:{}", entry["ref"])),
            Some(entry) => Err(entry["error"].as_str().unwrap_or("it could not be loaded").to_owned()),
            None => Err("Node said nothing about it".to_owned()),
        };
        Ok((0..scripts.len()).map(read).collect())
    }

    async fn emit(&self, handler: &str, signal: &Signal) -> Result<Heard, HookError> {
        let again = || HookError::Gone("the Node process was started anew".to_owned());
        let (pid, reference) = handler.split_once(':').ok_or_else(again)?;
        if self.0.up().await?.link.pid().unwrap_or_default().to_string() != pid {
            return Err(again());
        }
        let reference: Value = serde_json::from_str(reference).map_err(|_foreign| again())?;
        heard(&self.ask("internalHook.emit", LONGEST, &json!({"ref": reference, "event": signal})).await?)
    }
}
