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
    HouseRules, No, chosen, given, parse, refused,
    sight::{self, Sight},
};

/// Shows the state of a session.
#[derive(Debug, Clone)]
pub struct SessionStatus {
    rules: Arc<HouseRules>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    session_key: Option<String>,
    model: Option<String>,
}

impl SessionStatus {
    /// Creates the tool with these rules.
    pub fn new(rules: Arc<HouseRules>) -> Self {
        Self { rules }
    }

    async fn look(&self, cx: &ToolCx, arguments: Value) -> Result<ToolResult, No> {
        let arguments: Arguments = parse(arguments)?;
        let sight = Sight::of(cx, &self.rules).await?;
        let key = match given(arguments.session_key.as_deref()) {
            Some(text) => sight.find(text)?,
            None => cx.session.clone(),
        };
        let changed = match given(arguments.model.as_deref()) {
            Some(model) => {
                set_model(cx, &sight, &key, model).await?;
                true
            }
            None => false,
        };
        let text = sight.hub.status(&key).await.map_err(No::error)?.ok_or_else(|| sight::missing(&key))?;
        let details = json!({"ok": true, "sessionKey": key, "changedModel": changed, "statusText": text});
        Ok(ToolResult::text(text).with_details(details))
    }
}

/// Sets the model of a session, effective from its next run.
async fn set_model(cx: &ToolCx, sight: &Sight<'_>, key: &SessionKey, name: &str) -> Result<(), No> {
    if !cx.origin.is_admin() {
        let why = "only the owner chooses models, through a connection with operator.admin: ask without model";
        return Err(No::Forbidden(why.to_owned()));
    }
    let Some((_, record)) = sight.row(key) else { return Err(sight::missing(key)) };
    let (provider, model) = if name.eq_ignore_ascii_case("default") {
        (Value::Null, Value::Null)
    } else {
        let agent = key.agent().cloned().unwrap_or_else(|| sight.agent());
        let (provider, model) = chosen(sight.hub, &agent, name).map_err(No::Error)?;
        (provider.into(), model.into())
    };
    let changes = Extra::from_iter([("providerOverride".to_owned(), provider), ("modelOverride".to_owned(), model)]);
    let patch = Patch { expected: Some(record.session_id.clone()), changes };
    sight.hub.patch(key, patch).await.map_err(No::error)?;
    Ok(())
}

#[async_trait]
impl Tool for SessionStatus {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "session_status".to_owned(),
            description:
                "Say how a conversation stands: its model, how full its context is, its levels, what waits, and \
                          what time it is now. With model, another one answers there from the next run on."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "sessionKey": {"type": "string", "description": "The conversation; this one by default"},
                    "model": {"type": "string", "description": "The model that answers from now on, as provider/model, or default"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Idempotent
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.look(&cx, arguments).await.unwrap_or_else(|no| refused("session_status", &no))
    }
}
