//! Results of hooks, and how the results of several hooks are merged.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::HookPoint;

/// Result of a hook; fields that do not apply to the point are ignored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookResult {
    /// Text inserted before the user's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepend_context: Option<String>,
    /// Text appended to the user's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_context: Option<String>,
    /// Replacement for the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Text inserted before the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepend_system_context: Option<String>,
    /// Text appended to the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_system_context: Option<String>,
    /// Names of the only tools that may be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_allow: Option<Vec<String>>,
    /// Provider to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_override: Option<String>,
    /// Model to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_override: Option<String>,
    /// Changed tool arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Map<String, Value>>,
    /// True to block the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<bool>,
    /// Why the operation is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
    /// Replacement for a tool's result: content and details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Replacement for the message to store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// Replacement for the text to send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// True to cancel the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<bool>,
    /// Reason of the cancellation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
    /// True if the hook replies to the user itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handled: Option<bool>,
    /// The hook's own reply: a string, or an object with `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<Value>,
    /// Why the operation is blocked or cancelled, if neither `block_reason` nor `cancel_reason` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl HookResult {
    /// An empty result.
    pub fn empty() -> Self {
        Self::default()
    }

    /// A result that blocks the operation.
    pub fn block(reason: impl Into<String>) -> Self {
        Self { block: Some(true), block_reason: Some(reason.into()), ..Self::default() }
    }

    /// Returns true if no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the reason if the operation is blocked or cancelled.
    pub fn block_reason(&self) -> Option<&str> {
        let reason = self.block_reason.as_deref().or(self.cancel_reason.as_deref()).or(self.reason.as_deref());
        let is_refused = self.block == Some(true) || self.cancel == Some(true);
        is_refused.then(|| reason.unwrap_or("blocked by a hook"))
    }

    /// Returns the text of the hook's own reply.
    pub fn reply_text(&self) -> Option<&str> {
        let reply = self.reply.as_ref()?;
        reply.as_str().or_else(|| reply.get("text")?.as_str())
    }

    /// True if no further hook needs to be called.
    pub(crate) fn is_final(&self) -> bool {
        self.block_reason().is_some() || self.handled == Some(true)
    }

    /// Names of the fields that are set.
    pub(crate) fn fields(&self) -> Vec<String> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// Merges a later result into this one. A block takes effect; `block: false` does not undo an earlier one.
    pub(crate) fn merge(&mut self, point: HookPoint, next: Self) {
        join(&mut self.prepend_context, next.prepend_context);
        join(&mut self.append_context, next.append_context);
        join(&mut self.prepend_system_context, next.prepend_system_context);
        join(&mut self.append_system_context, next.append_system_context);
        // At `before_prompt_build` the first value applies, at the older `before_agent_start` the last.
        if point == HookPoint::BeforeAgentStart {
            last(&mut self.system_prompt, next.system_prompt);
        } else {
            first(&mut self.system_prompt, next.system_prompt);
        }
        intersect(&mut self.tools_allow, next.tools_allow);
        first(&mut self.provider_override, next.provider_override);
        first(&mut self.model_override, next.model_override);
        if let Some(params) = next.params {
            self.params.get_or_insert_default().extend(params);
        }
        last(&mut self.result, next.result);
        last(&mut self.message, next.message);
        last(&mut self.content, next.content);
        last(&mut self.block, next.block.filter(|value| *value));
        last(&mut self.cancel, next.cancel.filter(|value| *value));
        last(&mut self.handled, next.handled.filter(|value| *value));
        last(&mut self.block_reason, next.block_reason);
        last(&mut self.cancel_reason, next.cancel_reason);
        last(&mut self.reply, next.reply);
        last(&mut self.reason, next.reason);
    }
}

/// Appends a text after a blank line; a blank text is ignored.
fn join(text: &mut Option<String>, next: Option<String>) {
    let Some(next) = next.filter(|next| !next.trim().is_empty()) else { return };
    match text {
        Some(text) => {
            text.push_str("\n\n");
            text.push_str(&next);
        }
        None => *text = Some(next),
    }
}

/// Keeps the first value that is set.
fn first<T>(value: &mut Option<T>, next: Option<T>) {
    if value.is_none() {
        *value = next;
    }
}

/// Keeps the last value that is set.
fn last<T>(value: &mut Option<T>, next: Option<T>) {
    if next.is_some() {
        *value = next;
    }
}

/// Keeps the names that are in both lists; a list that is not set contains every name.
fn intersect(names: &mut Option<Vec<String>>, next: Option<Vec<String>>) {
    match (names.as_mut(), next) {
        (Some(names), Some(next)) => names.retain(|name| next.contains(name)),
        (None, next) => *names = next,
        (Some(_), None) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(value: Value) -> HookResult {
        serde_json::from_value(value).unwrap()
    }

    fn merge_all(point: HookPoint, results: &[Value]) -> Value {
        let mut merged = HookResult::default();
        for value in results {
            merged.merge(point, answer(value.clone()));
        }
        serde_json::to_value(merged).unwrap()
    }

    #[test]
    fn prepended_contexts_are_joined_in_order_with_a_blank_line() {
        let results = [json!({"prependContext": "A"}), json!({"prependContext": " "}), json!({"prependContext": "B"})];
        assert_eq!(merge_all(HookPoint::BeforeAgentStart, &results), json!({"prependContext": "A\n\nB"}));
    }

    #[test]
    fn the_last_system_prompt_applies_at_agent_start_and_the_first_at_prompt_build() {
        let results = [json!({"systemPrompt": "one"}), json!({"systemPrompt": "two"}), json!({})];
        assert_eq!(merge_all(HookPoint::BeforeAgentStart, &results), json!({"systemPrompt": "two"}));
        assert_eq!(merge_all(HookPoint::BeforePromptBuild, &results), json!({"systemPrompt": "one"}));
    }

    #[test]
    fn allowed_tools_are_intersected_and_the_first_model_override_applies() {
        let results = [
            json!({"toolsAllow": ["read", "exec"], "modelOverride": "small"}),
            json!({"toolsAllow": ["exec", "write"], "modelOverride": "large", "providerOverride": "local"}),
        ];
        let expected = json!({"toolsAllow": ["exec"], "modelOverride": "small", "providerOverride": "local"});
        assert_eq!(merge_all(HookPoint::BeforePromptBuild, &results), expected);
    }

    #[test]
    fn arguments_are_merged_and_block_false_does_not_undo_a_block() {
        let results =
            [json!({"params": {"x": 2}}), json!({"block": false, "params": {"y": 4}}), json!({"cancel": false})];
        assert_eq!(merge_all(HookPoint::BeforeToolCall, &results), json!({"params": {"x": 2, "y": 4}}));
        let mut blocked = HookResult::block("not today");
        blocked.merge(HookPoint::BeforeToolCall, answer(json!({"block": false})));
        assert_eq!(blocked.block_reason(), Some("not today"));
    }

    #[test]
    fn a_reply_is_a_text_or_an_object_with_one() {
        assert_eq!(answer(json!({"reply": "hi"})).reply_text(), Some("hi"));
        assert_eq!(answer(json!({"reply": {"text": "hi"}})).reply_text(), Some("hi"));
        assert_eq!(answer(json!({"reply": {"mediaUrl": "x"}})).reply_text(), None);
    }
}
