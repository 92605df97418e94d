//! Pruning of old tool results in requests to providers whose cache has expired: in the request, never in the
//! transcript.

use std::sync::Arc;

use homard_compact::prune::{self, CacheTimes, NamedMessage};
use homard_model::ModelSpec;
use homard_proto::{
    EntryId,
    message::{Message, StopReason, ToolResult},
};

use super::RunScope;

/// Returns the history as sent to this model: earlier cuts are applied in the same way again.
pub(super) fn pruned_history(scope: &RunScope, spec: &ModelSpec) -> Vec<Arc<Message>> {
    let settings = scope.profile.pruning.as_ref().filter(|_| prune::applies(&spec.provider, &spec.model));
    let messages = settings.and_then(|settings| Some((settings, named_messages(&scope.context.history)?)));
    let Some((settings, messages)) = messages else { return scope.context.history.to_vec() };
    let times = CacheTimes { touched: cache_last_used(spec, &scope.context.history), now: scope.io.now() };
    let pruned = prune::prune(&messages, &scope.context.stats.cuts(), times, settings, spec.context_window);
    scope.context.stats.set_cuts(pruned.cuts);
    pruned.messages
}

/// Returns the number of old tool results that are shortened or omitted for this model.
pub(super) fn pruned_count(scope: &RunScope, spec: &ModelSpec) -> u64 {
    let applies = scope.profile.pruning.is_some() && prune::applies(&spec.provider, &spec.model);
    if applies { scope.context.stats.cuts().count() as u64 } else { 0 }
}

/// Returns when the model's cache was last used: the time of its last answer.
fn cache_last_used(spec: &ModelSpec, history: &[Arc<Message>]) -> Option<u64> {
    history.iter().rev().find_map(|message| match &**message {
        Message::Assistant(answer) if spec.wrote(answer) && answer.stop_reason != StopReason::Error => {
            Some(answer.timestamp)
        }
        Message::Assistant(_) | Message::User(_) | Message::ToolResult(_) | Message::Other(_) => None,
    })
}

/// Returns the messages, with a unique name for each tool result. Other messages are never cut and share a name.
fn named_messages(history: &[Arc<Message>]) -> Option<Vec<NamedMessage>> {
    let other = EntryId::parse("other").ok()?;
    let name = |message: &Message| match message {
        Message::ToolResult(result) => name(result),
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => Some(other.clone()),
    };
    history.iter().map(|message| Some(NamedMessage { name: name(message)?, message: message.clone() })).collect()
}

/// Returns a unique name for a tool result: its timestamp and the last 16 characters of its call id. A model may reuse
/// a call id, but not with the same timestamp; long ids differ at the end.
fn name(result: &ToolResult) -> Option<EntryId> {
    let id: Vec<_> = result.tool_call_id.chars().rev().take(16).collect();
    let id: String = id.into_iter().rev().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    EntryId::parse(&format!("{}-{id}", result.timestamp)).ok()
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{Assistant, Block};
    use serde_json::Map;

    use super::*;

    fn result(call: &str, timestamp: u64) -> ToolResult {
        ToolResult {
            tool_call_id: call.to_owned(),
            tool_name: "read".to_owned(),
            content: vec![Block::text("x")],
            details: None,
            is_error: false,
            timestamp,
            extra: Map::new(),
        }
    }

    #[test]
    fn every_tool_result_has_a_unique_name() {
        let names = [("toolu_01Ab", 7), ("call_0123456789abcdef|fc_01234", 7), ("c1", 8), ("c1", 9), ("", 9)]
            .map(|(call, at)| name(&result(call, at)).unwrap().to_string());
        assert_eq!(names, ["7-toolu-01Ab", "7-9abcdef-fc-01234", "8-c1", "9-c1", "9-"]);
    }

    #[test]
    fn only_an_answer_of_the_same_model_uses_its_cache() {
        let spec = ModelSpec { provider: "anthropic".to_owned(), model: "m".to_owned(), ..ModelSpec::default() };
        let answer = |provider: &str, timestamp, stop_reason| {
            let (provider, model) = (provider.to_owned(), "m".to_owned());
            Arc::new(Message::Assistant(Assistant { provider, model, timestamp, stop_reason, ..Assistant::default() }))
        };
        let history = [
            answer("anthropic", 1, StopReason::Stop),
            answer("openai", 2, StopReason::Stop),
            answer("anthropic", 3, StopReason::Error),
        ];
        assert_eq!((cache_last_used(&spec, &history), cache_last_used(&spec, &history[1..])), (Some(1), None));
    }
}
