//! Limits of a run: number of model answers, tool calls and repetitions, so that every run ends.
//!
//! No I/O: it counts what it is given and reports when a limit is reached.

use std::hash::{DefaultHasher, Hash, Hasher};

use homard_proto::message::{Block, ToolResult};
use serde_json::Value;

/// Limits of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunBounds {
    /// Maximum number of model answers.
    pub turns: u32,
    /// Maximum number of tool calls.
    pub calls: u32,
    /// Maximum number of consecutive equal calls with equal results.
    pub repeats: u32,
    /// Maximum number of consecutive failed calls.
    pub errors: u32,
    /// Maximum cost in US dollars.
    pub cost: Option<f64>,
}

impl Default for RunBounds {
    /// Far above what useful work needs, low enough to limit the cost of a runaway run.
    fn default() -> Self {
        Self { turns: 250, calls: 1_000, repeats: 10, errors: 50, cost: None }
    }
}

/// Counts the model answers, tool calls and cost of a run, and reports when one of the [`RunBounds`] is reached.
#[derive(Debug, Default)]
pub(crate) struct RunGuard {
    turns: u32,
    calls: u32,
    cost: f64,
    /// Fingerprint of the last call and its result, and its number of consecutive occurrences.
    last: Option<(u64, u32)>,
    errors: u32,
}

impl RunGuard {
    /// Counts an answer of the model and its cost.
    pub(crate) fn answered(&mut self, cost: f64) {
        self.turns += 1;
        self.cost += cost;
    }

    /// Counts a finished tool call.
    pub(crate) fn called(&mut self, name: &str, arguments: &Value, result: &ToolResult) {
        self.calls += 1;
        self.errors = if result.is_error { self.errors + 1 } else { 0 };
        let digest = fingerprint(name, arguments, result);
        let times = self.last.filter(|(last, _)| *last == digest).map_or(0, |(_, times)| times);
        self.last = Some((digest, times + 1));
    }

    /// Returns why the model is not asked again; `None` while no limit is reached.
    pub(crate) fn reached_limit(&self, bounds: &RunBounds) -> Option<String> {
        let RunBounds { turns, calls, repeats, errors, cost } = *bounds;
        let repeated = self.last.map_or(0, |(_, times)| times);
        // Reports the actual count, not the limit: one answer may contain many calls.
        let (reason, key) = if self.turns >= turns {
            (format!("{} model requests were made", self.turns), "turns")
        } else if self.calls >= calls {
            (format!("{} tool calls were made", self.calls), "toolCalls")
        } else if repeated >= repeats {
            (format!("the same call with the same result was made {repeated} times in a row"), "repeats")
        } else if self.errors >= errors {
            (format!("{} calls in a row failed", self.errors), "errors")
        } else if cost.is_some_and(|limit| self.cost >= limit) {
            (format!("it cost {:.2} dollars", self.cost), "costUsd")
        } else {
            return None;
        };
        Some(format!(
            "the run was ended because {reason}; send \"continue\" to resume, or raise agents.defaults.runLimits.{key}"
        ))
    }
}

/// Hashes what makes two calls equal. Details are left out, because they contain times and process ids.
fn fingerprint(name: &str, arguments: &Value, result: &ToolResult) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, arguments.to_string(), result.is_error).hash(&mut hasher);
    for block in &result.content {
        match block {
            Block::Text(text) => text.text.hash(&mut hasher),
            Block::Image(image) => image.data.hash(&mut hasher),
            Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => {}
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(text: &str, is_error: bool) -> ToolResult {
        let content = json!([{"type": "text", "text": text}]);
        serde_json::from_value(json!({
            "role": "toolResult", "toolCallId": "c", "toolName": "t", "content": content, "isError": is_error,
        }))
        .unwrap()
    }

    fn limit_reason(guard: &RunGuard, bounds: RunBounds) -> Option<String> {
        guard.reached_limit(&bounds).map(|text| text.split(';').next().unwrap_or_default().to_owned())
    }

    #[test]
    fn each_limit_has_its_own_reason() {
        let bounds = RunBounds { turns: 3, calls: 4, repeats: 2, errors: 3, cost: Some(0.5) };
        let mut guard = RunGuard::default();
        assert_eq!(limit_reason(&guard, bounds), None);
        guard.answered(0.6);
        assert_eq!(limit_reason(&guard, bounds).unwrap(), "the run was ended because it cost 0.60 dollars");
        guard.called("read", &json!({"path": "a"}), &result("x", true));
        guard.called("read", &json!({"path": "a"}), &result("x", true));
        let text = "the run was ended because the same call with the same result was made 2 times in a row";
        assert_eq!(limit_reason(&guard, bounds).unwrap(), text);
        guard.called("read", &json!({"path": "b"}), &result("x", true));
        assert_eq!(limit_reason(&guard, bounds).unwrap(), "the run was ended because 3 calls in a row failed");
        guard.called("read", &json!({"path": "c"}), &result("x", false));
        assert_eq!(limit_reason(&guard, bounds).unwrap(), "the run was ended because 4 tool calls were made");
        guard.answered(0.0);
        guard.answered(0.0);
        assert_eq!(limit_reason(&guard, bounds).unwrap(), "the run was ended because 3 model requests were made");
    }

    #[test]
    fn the_reason_contains_the_actual_count_not_the_limit() {
        let bounds = RunBounds { calls: 2, repeats: 9, ..RunBounds::default() };
        let mut guard = RunGuard::default();
        (0..3).for_each(|_| guard.called("read", &json!({"path": "a"}), &result("x", false)));
        assert_eq!(limit_reason(&guard, bounds).unwrap(), "the run was ended because 3 tool calls were made");
        let bounds = RunBounds { repeats: 2, ..RunBounds::default() };
        let text = "the run was ended because the same call with the same result was made 3 times in a row";
        assert_eq!(limit_reason(&guard, bounds).unwrap(), text);
    }

    #[test]
    fn another_call_another_result_or_a_success_resets_the_counters() {
        let bounds = RunBounds { repeats: 2, errors: 2, ..RunBounds::default() };
        let mut guard = RunGuard::default();
        for (path, text, is_error) in [("a", "1", true), ("a", "2", false), ("b", "2", true), ("a", "2", false)] {
            guard.called("read", &json!({"path": path}), &result(text, is_error));
            assert_eq!(guard.reached_limit(&bounds), None, "{path} {text}");
        }
    }
}
