//! Hooks and listeners of plugins.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use homard_hooks::{
    BootstrapFile, Hook, HookContext, HookError, HookEvent, HookResult, InternalEvent, Listener, ListenerResult,
    Registration,
};
use serde::{Deserialize, Serialize};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{
    Error,
    settings::GuardPolicy,
    supervisor::{CallParams, Delivery, PluginCall, ProcessSupervisor, RegistrationAddress},
};

/// Share of a deadline that the plugin gets. The rest is a margin, so that the timeout is detected here.
pub(crate) const DEADLINE_SHARE: f64 = 0.98;

/// One hook of a plugin.
#[derive(Debug)]
pub(crate) struct PluginHook {
    pub(crate) worker: Arc<ProcessSupervisor>,
    pub(crate) address: RegistrationAddress,
    pub(crate) registration: Registration,
    /// True once a warning about unreadable results was logged.
    pub(crate) is_warned: AtomicBool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Invocation<'a> {
    #[serde(rename = "ref")]
    handle: &'a Value,
    event: &'a RawValue,
    ctx: &'a HookContext,
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

    async fn call(&self, event: HookEvent, context: HookContext) -> Result<HookResult, HookError> {
        let deadline = self.registration.deadline.unwrap_or_else(|| self.registration.point.deadline());
        let timeout = deadline.mul_f64(DEADLINE_SHARE);
        let call = PluginCall {
            plugin: &self.address.plugin,
            method: "hook.invoke",
            timeout,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let answer = self.worker.call(call, |process| {
            let serialise_error =
                |error: serde_json::Error| Error::Failed(format!("failed to serialize the event: {error}"));
            let handle = process.handle(&self.address)?;
            let (event, blobs) = process.session.blobs().write(&event).map_err(serialise_error)?;
            let deadline_ms = timeout.as_millis() as u64;
            let invocation = Invocation { handle, event: &event, ctx: &context, deadline_ms };
            Ok(CallParams { params: to_raw_value(&invocation).map_err(serialise_error)?, blobs: Some(blobs) })
        });
        match answer.await {
            Ok(answer) if self.registration.is_guard || is_shaped(&answer) => parse_hook_result(&answer),
            Ok(_) => {
                if !self.is_warned.swap(true, Ordering::Relaxed) {
                    let (plugin, point) = (self.address.plugin(), self.registration.point.name());
                    tracing::warn!(plugin, point, "hook result ignored: {SHAPE_ERROR}");
                }
                Ok(HookResult::empty())
            }
            Err(Error::Timeout(_)) => Err(HookError::Timeout(deadline)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Error for a result of another shape.
const SHAPE_ERROR: &str = "the hook must return {\"result\": null} or {\"result\": {…}}";

fn is_shaped(answer: &Value) -> bool {
    matches!(answer.get("result"), Some(Value::Null | Value::Object(_)))
}

/// Parses the result of a hook.
fn parse_hook_result(answer: &Value) -> Result<HookResult, HookError> {
    match answer.get("result") {
        Some(Value::Null) => Ok(HookResult::empty()),
        Some(result @ Value::Object(_)) => HookResult::deserialize(result)
            .map_err(|error| HookError::Failed(format!("the hook returned an invalid result: {error}"))),
        Some(_) | None => Err(HookError::Failed(SHAPE_ERROR.to_owned())),
    }
}

/// A listener of a plugin.
#[derive(Debug)]
pub(crate) struct PluginListener {
    pub(crate) worker: Arc<ProcessSupervisor>,
    pub(crate) address: RegistrationAddress,
    pub(crate) events: Vec<String>,
    pub(crate) guard: GuardPolicy,
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

    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        let timeout = self.deadline().mul_f64(DEADLINE_SHARE);
        let call = PluginCall {
            plugin: &self.address.plugin,
            method: "internalHook.emit",
            timeout,
            delivery: Delivery::AtLeastOnce,
            on_progress: None,
        };
        let write = |process: &crate::supervisor::RunningProcess| {
            CallParams::plain(&json!({"ref": process.handle(&self.address)?, "event": event}))
        };
        parse_listener_result(&self.worker.call(call, write).await?)
    }
}

/// Parses the result of a listener.
pub(crate) fn parse_listener_result(answer: &Value) -> Result<ListenerResult, HookError> {
    let messages = answer.get("messages").and_then(Value::as_array).into_iter().flatten();
    let messages = messages.filter_map(|message| message.as_str().map(str::to_owned)).collect();
    let files =
        answer.get("context").and_then(|context| context.get("bootstrapFiles")).filter(|files| !files.is_null());
    let bootstrap_files = files
        .map(Vec::<BootstrapFile>::deserialize)
        .transpose()
        .map_err(|error| HookError::Failed(format!("the hook returned invalid bootstrap files: {error}")))?;
    Ok(ListenerResult { messages, bootstrap_files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_result_is_an_object_or_null() {
        assert_eq!(parse_hook_result(&json!({"result": null})), Ok(HookResult::empty()));
        assert_eq!(
            parse_hook_result(&json!({"result": {"block": true, "blockReason": "no", "more": 1}})),
            Ok(HookResult::block("no"))
        );
        assert!(matches!(parse_hook_result(&json!({"result": {"block": "yes"}})), Err(HookError::Failed(_))));
        for invalid in
            [json!({}), json!(null), json!({"block": true}), json!({"result": "block"}), json!({"result": []})]
        {
            assert_eq!(parse_hook_result(&invalid), Err(HookError::Failed(SHAPE_ERROR.to_owned())), "{invalid}");
            assert!(!is_shaped(&invalid), "{invalid}");
        }
    }

    #[test]
    fn a_listener_result_may_contain_files() {
        let files = json!([{"name": "A.md", "path": "/a", "content": "x", "missing": false}]);
        let result =
            parse_listener_result(&json!({"messages": ["hi", 5], "context": {"bootstrapFiles": files}})).unwrap();
        assert_eq!(result.messages, ["hi"]);
        assert_eq!(result.bootstrap_files.unwrap()[0].name, "A.md");
        assert_eq!(parse_listener_result(&json!({"messages": [], "context": {}})), Ok(ListenerResult::default()));
        assert!(parse_listener_result(&json!({"context": {"bootstrapFiles": [1]}})).is_err());
    }
}
