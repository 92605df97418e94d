//! Reasoning parameters for Claude: older models get a token budget, newer ones an effort.

use homard_model::{ModelSpec, ReasoningLevel, Request};
use serde::Serialize;

/// Output token limit for a model whose limit is unknown; the API requires one in every request.
const MAX_OUTPUT: u64 = 8_192;
/// Default maximum of output tokens in addition to reasoning.
const DEFAULT_OUTPUT: u64 = 32_000;
/// Minimum budget that the API accepts, and the tokens left for text.
const MIN_BUDGET: u64 = 1_024;

/// Request fields about reasoning.
#[derive(Serialize, Debug, PartialEq, Eq, Default)]
pub(super) struct Thinking {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
}

#[derive(Serialize, Debug, PartialEq, Eq)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ThinkingMode {
    Enabled {
        budget_tokens: u64,
    },
    Adaptive {
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
}

#[derive(Serialize, Debug, PartialEq, Eq)]
struct OutputConfig {
    effort: &'static str,
}

/// Returns the maximum of output tokens and the reasoning parameters.
///
/// With a budget, an answer that is continued after tool calls must start with its reasoning. `may_budget` is false if
/// it does not, because another model wrote it or reasoning was off.
pub(super) fn plan(spec: &ModelSpec, request: &Request, may_budget: bool) -> (u64, Thinking) {
    let model_limit = if spec.max_output == 0 { MAX_OUTPUT } else { spec.max_output };
    let output = request.max_output.unwrap_or(model_limit.min(DEFAULT_OUTPUT));
    let level = request.thinking.clamp(&spec.thinking);
    if level == ReasoningLevel::Off {
        return (output, Thinking::default());
    }
    let generation = generation(&spec.model);
    if generation >= [4, 6] {
        let output_config = Some(OutputConfig { effort: effort(level, generation) });
        // Newer models do not return their reasoning unless asked.
        let display = (generation > [4, 6]).then_some("summarized");
        return (output, Thinking { thinking: Some(ThinkingMode::Adaptive { display }), output_config });
    }
    // Reasoning counts as output, so the limit is raised accordingly.
    let limit = output.saturating_add(budget(level)).min(model_limit.max(output));
    let budget_tokens = budget(level).min(limit.saturating_sub(MIN_BUDGET));
    if !may_budget || budget_tokens < MIN_BUDGET {
        return (output, Thinking::default());
    }
    (limit, Thinking { thinking: Some(ThinkingMode::Enabled { budget_tokens }), output_config: None })
}

fn budget(level: ReasoningLevel) -> u64 {
    match level {
        ReasoningLevel::Off => 0,
        ReasoningLevel::Minimal => MIN_BUDGET,
        ReasoningLevel::Low => 2_048,
        ReasoningLevel::Medium => 8_192,
        ReasoningLevel::High => 16_384,
        ReasoningLevel::Xhigh => 32_768,
    }
}

/// Returns the name of the effort. The highest one was called `max` at first.
fn effort(level: ReasoningLevel, generation: [u32; 2]) -> &'static str {
    match level {
        ReasoningLevel::Off | ReasoningLevel::Minimal | ReasoningLevel::Low => "low",
        ReasoningLevel::Medium => "medium",
        ReasoningLevel::High => "high",
        ReasoningLevel::Xhigh if generation == [4, 6] => "max",
        ReasoningLevel::Xhigh => "xhigh",
    }
}

/// Returns the generation in a model's name, such as 4.6 in `claude-opus-4-6-20260205`; zero if there is none.
fn generation(model: &str) -> [u32; 2] {
    let Some((_, version)) = model.split_once("claude-") else { return [0, 0] };
    // Old names have the numbers before the family, and a number of many digits is a date.
    let numbers = version.split(['-', '.', '@', ':']).skip_while(|part| part.parse::<u32>().is_err());
    let mut numbers = numbers.map_while(|part| part.parse().ok().filter(|number| *number < 100));
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_read_from_names() {
        for (name, expected) in [
            ("claude-opus-4-6", [4, 6]),
            ("claude-opus-4-6-20260205", [4, 6]),
            ("anthropic/claude-sonnet-4.6", [4, 6]),
            ("claude-sonnet-4-20250514", [4, 0]),
            ("claude-haiku-4-5@20251001", [4, 5]),
            ("claude-fable-5", [5, 0]),
            ("us.anthropic.claude-sonnet-5-5-v1:0", [5, 5]),
            ("claude-3-5-sonnet-20241022", [3, 5]),
            ("claude-mythos-preview", [0, 0]),
            ("MiniMax-M2", [0, 0]),
        ] {
            assert_eq!(generation(name), expected, "{name}");
        }
    }

    #[test]
    fn a_reasoning_budget_leaves_tokens_for_text() {
        let planned = |max_output, requested, thinking| {
            let spec = ModelSpec {
                max_output,
                thinking: homard_model::thinking::DEFAULT_LEVELS.to_vec(),
                ..ModelSpec::default()
            };
            plan(&spec, &Request { max_output: requested, thinking, ..Request::default() }, true)
        };
        let enabled =
            |budget_tokens| Thinking { thinking: Some(ThinkingMode::Enabled { budget_tokens }), output_config: None };
        assert_eq!(planned(64_000, None, ReasoningLevel::Low), (34_048, enabled(2_048)));
        assert_eq!(planned(64_000, Some(1_000), ReasoningLevel::High), (17_384, enabled(16_360)));
        assert_eq!(planned(8_192, None, ReasoningLevel::High), (8_192, enabled(7_168)));
        assert_eq!(planned(1_500, None, ReasoningLevel::High), (1_500, Thinking::default()));
        assert_eq!(planned(0, None, ReasoningLevel::Off), (8_192, Thinking::default()));
    }
}
