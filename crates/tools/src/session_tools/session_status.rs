//! The `session_status` tool: shows a session's state, the current time and the model, and can change the model.

use std::sync::Arc;

use async_trait::async_trait;
use homard_agent::{
    Patch,
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use homard_proto::{Extra, SessionKey};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    SessionToolError, SessionToolRules, error_result, non_blank, parse, resolve_model,
    visibility::{self, VisibleSessions},
};

/// Shows the state of a session.
#[derive(Debug, Clone)]
pub struct SessionStatus {
    rules: Arc<SessionToolRules>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    session_key: Option<String>,
    model: Option<String>,
}

impl SessionStatus {
    /// Creates the tool with these rules.
    pub fn new(rules: Arc<SessionToolRules>) -> Self {
        Self { rules }
    }

    async fn load(&self, cx: &ToolCx, arguments: Value) -> Result<ToolResult, SessionToolError> {
        let arguments: Args = parse(arguments)?;
        let visible = VisibleSessions::of(cx, &self.rules).await?;
        let key = match non_blank(arguments.session_key.as_deref()) {
            Some(text) => visible.find(text)?,
            None => cx.session.clone(),
        };
        let changed = match non_blank(arguments.model.as_deref()) {
            Some(model) => {
                set_model(cx, &visible, &key, model).await?;
                true
            }
            None => false,
        };
        let text = visible
            .hub
            .sessions()
            .status(&key)
            .await
            .map_err(SessionToolError::error)?
            .ok_or_else(|| visibility::missing(&key))?;
        let details = json!({"ok": true, "sessionKey": key, "changedModel": changed, "statusText": text});
        Ok(ToolResult::text(text).with_details(details))
    }
}

/// Sets the model of a session, effective from its next run.
async fn set_model(
    cx: &ToolCx,
    visible: &VisibleSessions<'_>,
    key: &SessionKey,
    name: &str,
) -> Result<(), SessionToolError> {
    if !cx.origin.is_admin() {
        let reason = "only the owner can set the model, through a connection with operator.admin: leave out model";
        return Err(SessionToolError::Forbidden(reason.to_owned()));
    }
    let Some((_, record)) = visible.row(key) else { return Err(visibility::missing(key)) };
    let (provider, model) = if name.eq_ignore_ascii_case("default") {
        (Value::Null, Value::Null)
    } else {
        let agent = key.agent().cloned().unwrap_or_else(|| visible.agent());
        let (provider, model) = resolve_model(visible.hub, &agent, name).map_err(SessionToolError::Error)?;
        (provider.into(), model.into())
    };
    let changes = Extra::from_iter([("providerOverride".to_owned(), provider), ("modelOverride".to_owned(), model)]);
    let patch = Patch { expected: Some(record.session_id.clone()), changes };
    visible.hub.sessions().patch(key, patch).await.map_err(SessionToolError::error)?;
    Ok(())
}

#[async_trait]
impl Tool for SessionStatus {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "session_status".to_owned(),
            description:
                "Show the status of a session: its model, context usage, thinking and other levels, queued messages, \
                          and the current time. With model, the session uses that model from the next run on."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "sessionKey": {"type": "string", "description": "The session; this one by default"},
                    "model": {"type": "string", "description": "The model to use from the next run on, as provider/model, or default"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Idempotent
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.load(&cx, arguments).await.unwrap_or_else(|no| error_result("session_status", &no))
    }
}
