//! Reasoning parameters for Gemini: older models get a token budget, newer ones a level.

use homard_model::{ModelSpec, ReasoningLevel};

use super::{body::Thinking, is_old};

/// Returns the reasoning parameters; `None` for models without reasoning.
pub(super) fn config(spec: &ModelSpec, wanted: ReasoningLevel, limit: Option<u64>) -> Option<Thinking> {
    // Newer models cannot turn reasoning off, only reduce it to the minimum.
    let lowest = *spec.thinking.iter().min()?;
    let level = wanted.clamp(&spec.thinking);
    let include_thoughts = level != ReasoningLevel::Off;
    Some(if is_old(&spec.model) {
        let thinking_budget = Some(budget(&spec.model, level, limit));
        Thinking { include_thoughts, thinking_budget, ..Thinking::default() }
    } else {
        let thinking_level = Some(level_name(if include_thoughts { level } else { lowest }));
        Thinking { include_thoughts, thinking_level, ..Thinking::default() }
    })
}

fn level_name(level: ReasoningLevel) -> &'static str {
    match level {
        // Reasoning cannot be switched off.
        ReasoningLevel::Off | ReasoningLevel::Minimal => "MINIMAL",
        ReasoningLevel::Low => "LOW",
        ReasoningLevel::Medium => "MEDIUM",
        // There is no higher level.
        ReasoningLevel::High | ReasoningLevel::Xhigh => "HIGH",
    }
}

/// Returns the reasoning budget in tokens. It is part of the output limit, so half of that is left for the answer.
fn budget(model: &str, level: ReasoningLevel, limit: Option<u64>) -> u64 {
    let model = model.to_ascii_lowercase();
    let is_pro = model.contains("pro");
    let (min, max) = match (is_pro, model.contains("lite")) {
        (true, _) => (128, 32_768),
        (false, true) => (512, 24_576),
        (false, false) => (1, 24_576),
    };
    let tokens = match level {
        // The Pro models always reason.
        ReasoningLevel::Off if is_pro => min,
        ReasoningLevel::Off => return 0,
        ReasoningLevel::Minimal => 512,
        ReasoningLevel::Low => 2_048,
        ReasoningLevel::Medium => 8_192,
        ReasoningLevel::High | ReasoningLevel::Xhigh => max,
    };
    tokens.min(limit.map_or(max, |limit| limit / 2)).max(min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_for(
        model: &str,
        supported: &[ReasoningLevel],
        wanted: ReasoningLevel,
        limit: Option<u64>,
    ) -> Option<Thinking> {
        config(
            &ModelSpec { model: model.to_owned(), thinking: supported.to_vec(), ..ModelSpec::default() },
            wanted,
            limit,
        )
    }

    fn by_level(include_thoughts: bool, level: &'static str) -> Option<Thinking> {
        Some(Thinking { include_thoughts, thinking_level: Some(level), thinking_budget: None })
    }

    fn by_budget(include_thoughts: bool, budget: u64) -> Option<Thinking> {
        Some(Thinking { include_thoughts, thinking_level: None, thinking_budget: Some(budget) })
    }

    #[test]
    fn newer_models_take_a_level_and_always_reason() {
        use ReasoningLevel::{High, Low, Medium, Minimal, Off, Xhigh};
        let flash = [Low, Medium, High];
        assert_eq!(config_for("gemini-3.8-flash", &flash, Minimal, None), by_level(true, "LOW"));
        assert_eq!(config_for("gemini-3.8-flash", &flash, Medium, None), by_level(true, "MEDIUM"));
        assert_eq!(config_for("gemini-3.8-flash", &flash, Xhigh, None), by_level(true, "HIGH"));
        assert_eq!(config_for("gemini-3.8-flash", &flash, Off, None), by_level(false, "LOW"));
        assert_eq!(
            config_for("gemini-flash-latest", homard_model::thinking::DEFAULT_LEVELS, Off, None),
            by_level(false, "MINIMAL")
        );
        assert_eq!(config_for("gemini-3-pro-preview", &[Low, High], Medium, None), by_level(true, "HIGH"));
    }

    #[test]
    fn older_models_take_a_budget_that_leaves_room_for_the_answer() {
        use ReasoningLevel::{High, Low, Minimal, Off};
        let levels = homard_model::thinking::DEFAULT_LEVELS;
        assert_eq!(config_for("gemini-2.5-flash", levels, Off, None), by_budget(false, 0));
        assert_eq!(config_for("gemini-2.5-pro", levels, Off, None), by_budget(false, 128));
        assert_eq!(config_for("gemini-2.5-flash-lite", levels, Minimal, Some(100)), by_budget(true, 512));
        assert_eq!(config_for("gemini-2.5-pro", levels, High, Some(65_536)), by_budget(true, 32_768));
        assert_eq!(config_for("gemini-2.5-flash", levels, High, None), by_budget(true, 24_576));
        assert_eq!(config_for("gemini-2.5-flash", levels, Low, Some(1_000)), by_budget(true, 500));
    }

    #[test]
    fn a_model_without_reasoning_gets_no_parameters() {
        assert_eq!(config_for("gemini-2.0-flash", &[], ReasoningLevel::High, None), None);
    }
}
