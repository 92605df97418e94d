//! Hooks and listeners of plugins.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use homard_hooks::{Answer, BootstrapFile, Context, Event, Heard, Hook, HookError, Listener, Registration, Signal};
use serde::{Deserialize, Serialize};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{
    Error,
    settings::Guard,
    supervisor::{Address, Delivery, Paper, Question, Worker},
};

/// Share of a deadline that the plugin gets. The rest is a margin, so that the timeout is detected here.
pub(crate) const SHARE: f64 = 0.98;

/// One hook of a plugin.
#[derive(Debug)]
pub(crate) struct PluginHook {
    pub(crate) worker: Arc<Worker>,
    pub(crate) address: Address,
    pub(crate) registration: Registration,
    /// True once a warning about unreadable results was logged.
    pub(crate) is_warned: AtomicBool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Invocation<'a> {
    #[serde(rename = "ref")]
    reference: &'a Value,
    event: &'a RawValue,
    ctx: &'a Context,
    deadline_ms: u64,
}

#[async_trait]
impl Hook for PluginHook {
    fn name(&self) -> &str {
        self.address.plugin()
    }

    fn registrations(&self) -> Vec<Registration> {
        vec![self.registration.clone()]
    }

    async fn call(&self, event: Event, context: Context) -> Result<Answer, HookError> {
        let deadline = self.registration.deadline.unwrap_or_else(|| self.registration.point.deadline());
        let within = deadline.mul_f64(SHARE);
        let question = Question {
            plugin: &self.address.plugin,
            method: "hook.invoke",
            within,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let answer = self.worker.ask(question, |up| {
            let unwritten = |error: serde_json::Error| Error::Failed(format!("the event cannot be written: {error}"));
            let reference = up.reference(&self.address)?;
            let (event, lent) = up.link.shelf().write(&event).map_err(unwritten)?;
            let deadline_ms = within.as_millis() as u64;
            let invocation = Invocation { reference, event: &event, ctx: &context, deadline_ms };
            Ok(Paper { params: to_raw_value(&invocation).map_err(unwritten)?, lent: Some(lent) })
        });
        match answer.await {
            Ok(answer) if self.registration.is_guard || is_shaped(&answer) => read(&answer),
            Ok(_) => {
                if !self.is_warned.swap(true, Ordering::Relaxed) {
                    let (plugin, point) = (self.address.plugin(), self.registration.point.name());
                    tracing::warn!(plugin, point, "a hook is passed over: {SHAPE}");
                }
                Ok(Answer::nothing())
            }
            Err(Error::Late(_)) => Err(HookError::Late(deadline)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Error for a result of another shape.
const SHAPE: &str = "it must answer {\"result\": null} or {\"result\": {…}}, and did not";

fn is_shaped(answer: &Value) -> bool {
    matches!(answer.get("result"), Some(Value::Null | Value::Object(_)))
}

/// Parses the result of a hook.
fn read(answer: &Value) -> Result<Answer, HookError> {
    match answer.get("result") {
        Some(Value::Null) => Ok(Answer::nothing()),
        Some(result @ Value::Object(_)) => Answer::deserialize(result)
            .map_err(|error| HookError::Failed(format!("it answered something that cannot be read: {error}"))),
        Some(_) | None => Err(HookError::Failed(SHAPE.to_owned())),
    }
}

/// A listener of a plugin.
#[derive(Debug)]
pub(crate) struct PluginListener {
    pub(crate) worker: Arc<Worker>,
    pub(crate) address: Address,
    pub(crate) events: Vec<String>,
    pub(crate) guard: Guard,
}

#[async_trait]
impl Listener for PluginListener {
    fn name(&self) -> &str {
        self.address.plugin()
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    fn is_guard(&self, event: &str) -> bool {
        self.guard.covers(event)
    }

    async fn hear(&self, signal: &Signal) -> Result<Heard, HookError> {
        let within = self.deadline().mul_f64(SHARE);
        let question = Question {
            plugin: &self.address.plugin,
            method: "internalHook.emit",
            within,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let write =
            |up: &crate::supervisor::Up| Paper::plain(&json!({"ref": up.reference(&self.address)?, "event": signal}));
        heard(&self.worker.ask(question, write).await?)
    }
}

/// Parses the result of a listener.
pub(crate) fn heard(answer: &Value) -> Result<Heard, HookError> {
    let messages = answer.get("messages").and_then(Value::as_array).into_iter().flatten();
    let messages = messages.filter_map(|message| message.as_str().map(str::to_owned)).collect();
    let files =
        answer.get("context").and_then(|context| context.get("bootstrapFiles")).filter(|files| !files.is_null());
    let bootstrap_files = files
        .map(Vec::<BootstrapFile>::deserialize)
        .transpose()
        .map_err(|error| HookError::Failed(format!("it gave back files that cannot be read: {error}")))?;
    Ok(Heard { messages, bootstrap_files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_object_or_nothing() {
        assert_eq!(read(&json!({"result": null})), Ok(Answer::nothing()));
        assert_eq!(read(&json!({"result": {"block": true, "blockReason": "no", "more": 1}})), Ok(Answer::block("no")));
        assert!(matches!(read(&json!({"result": {"block": "yes"}})), Err(HookError::Failed(_))));
        for wrong in [json!({}), json!(null), json!({"block": true}), json!({"result": "block"}), json!({"result": []})]
        {
            assert_eq!(read(&wrong), Err(HookError::Failed(SHAPE.to_owned())), "{wrong}");
            assert!(!is_shaped(&wrong), "{wrong}");
        }
    }

    #[test]
    fn what_was_heard_may_bring_files() {
        let files = json!([{"name": "A.md", "path": "/a", "content": "x", "missing": false}]);
        let told = heard(&json!({"messages": ["hi", 5], "context": {"bootstrapFiles": files}})).unwrap();
        assert_eq!(told.messages, ["hi"]);
        assert_eq!(told.bootstrap_files.unwrap()[0].name, "A.md");
        assert_eq!(heard(&json!({"messages": [], "context": {}})), Ok(Heard::default()));
        assert!(heard(&json!({"context": {"bootstrapFiles": [1]}})).is_err());
    }
}
