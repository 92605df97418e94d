//! Hook handlers and webhook transforms in JavaScript, run by the Node process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_hooks::{HookError, InternalEvent, ListenerResult};
use serde_json::{Value, json};

use crate::{
    Error,
    hook::parse_listener_result,
    internal::{LoadedScript, Script, ScriptRunner},
    supervisor::{CallParams, Delivery, PluginCall, ProcessSupervisor, RunningProcess},
};

/// Name under which transforms run and handlers are loaded, so that their failures do not count for a plugin.
const SCRIPTS_NAME: &str = "scripts";

/// The Node process as a script runner. It is started on first use.
#[derive(Debug, Clone)]
pub struct NodeScripts(Arc<ProcessSupervisor>);

impl NodeScripts {
    pub(crate) fn new(worker: Arc<ProcessSupervisor>) -> Self {
        Self(worker)
    }

    /// Calls a webhook transform; null means that the request is to be ignored.
    pub async fn transform(
        &self,
        module: &str,
        export: Option<&str>,
        ctx: Value,
        timeout: Duration,
    ) -> Result<Value, Error> {
        let params = json!({"module": module, "export": export, "ctx": ctx});
        let call = PluginCall {
            plugin: SCRIPTS_NAME,
            method: "transform.run",
            timeout,
            delivery: Delivery::AtMostOnce,
            on_progress: None,
        };
        let mut answer = self.0.call(call, |_| CallParams::plain(&params)).await?;
        Ok(answer.get_mut("result").map(Value::take).unwrap_or_default())
    }
}

/// Name under which a handler is loaded and run. Each handler has its own, with its own circuit breaker, so that one that
/// hangs does not disable the others.
fn hook_name(script: &str) -> String {
    format!("hook {script}")
}

#[async_trait]
impl ScriptRunner for NodeScripts {
    async fn load(
        &self,
        scripts: &[Script],
        timeout: Duration,
    ) -> Result<Vec<Result<LoadedScript, String>>, HookError> {
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
            _ => SCRIPTS_NAME.to_owned(),
        };
        let call = PluginCall {
            plugin: &name,
            method: "internalHook.load",
            timeout,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let write = |process: &RunningProcess| {
            loading.store(process.start, Ordering::Relaxed);
            CallParams::plain(&json!({"entries": entries}))
        };
        let answer = self.0.call(call, write).await?;
        let start = loading.load(Ordering::Relaxed);
        let reported = answer.get("entries").and_then(Value::as_array).cloned().unwrap_or_default();
        let read = |at: usize| match reported.get(at) {
            Some(entry) if entry["status"] == "loaded" => {
                let name = scripts[at].name.clone();
                Ok(LoadedScript { start, name, handle: entry["ref"].clone() })
            }
            Some(entry) => Err(entry["error"].as_str().unwrap_or("failed to load").to_owned()),
            None => Err("the Node host returned no result".to_owned()),
        };
        Ok((0..scripts.len()).map(read).collect())
    }

    async fn emit(
        &self,
        script: &LoadedScript,
        event: &InternalEvent,
        timeout: Duration,
    ) -> Result<Option<ListenerResult>, HookError> {
        let name = hook_name(&script.name);
        let is_elsewhere = AtomicBool::default();
        let call = PluginCall {
            plugin: &name,
            method: "internalHook.emit",
            timeout,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let write = |process: &RunningProcess| {
            if process.start != script.start {
                is_elsewhere.store(true, Ordering::Relaxed);
                return Err(Error::Failed("the script is not loaded in this process".to_owned()));
            }
            CallParams::plain(&json!({"ref": script.handle, "event": event}))
        };
        match self.0.call(call, write).await {
            Ok(answer) => parse_listener_result(&answer).map(Some),
            Err(_) if is_elsewhere.load(Ordering::Relaxed) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
