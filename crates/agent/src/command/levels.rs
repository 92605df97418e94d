//! Session settings with one value: thinking level, verbosity, reasoning, usage, model.

use super::{CommandResult, StatusInput, command_arguments, quoted};
use crate::intake;

/// A setting with levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelSetting {
    /// Thinking level.
    Thinking,
    /// Verbosity of tool output.
    Verbose,
    /// Visibility of reasoning.
    Reasoning,
    /// Token usage in replies.
    Usage,
}

/// Default levels of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultLevels {
    /// Thinking level.
    pub thinking: &'static str,
    /// Verbosity of tool output.
    pub verbose: &'static str,
    /// Visibility of reasoning.
    pub reasoning: &'static str,
}

impl Default for DefaultLevels {
    fn default() -> Self {
        Self { thinking: "off", verbose: "off", reasoning: "off" }
    }
}

impl DefaultLevels {
    fn of(&self, level: LevelSetting) -> &'static str {
        match level {
            LevelSetting::Thinking => self.thinking,
            LevelSetting::Verbose => self.verbose,
            LevelSetting::Reasoning => self.reasoning,
            LevelSetting::Usage => "off",
        }
    }
}

impl LevelSetting {
    const ALL: [Self; 4] = [Self::Thinking, Self::Verbose, Self::Reasoning, Self::Usage];

    /// Parses a command into its setting and value.
    pub(super) fn parse(text: &str) -> Option<(Self, &str)> {
        let found = |level: Self| level.commands().iter().find_map(|name| command_arguments(text.trim(), name));
        Self::ALL.into_iter().find_map(|level| Some((level, found(level)?.trim())))
    }

    /// Returns the levels, weakest first where there is an order.
    pub fn values(self) -> &'static [&'static str] {
        match self {
            Self::Thinking => &intake::THINKING_LEVELS,
            Self::Verbose => &["off", "on", "full"],
            Self::Reasoning => &["off", "on", "stream"],
            Self::Usage => &["off", "tokens", "full"],
        }
    }

    /// Parses a level or one of its aliases, in any case.
    pub fn level(self, word: &str) -> Option<&'static str> {
        let word = word.trim().to_lowercase();
        match (self, word.as_str()) {
            (Self::Thinking, word) => intake::thinking(word),
            (Self::Verbose | Self::Reasoning, "true" | "yes") => Some("on"),
            (Self::Usage, "on" | "true" | "yes") => Some("tokens"),
            (Self::Verbose | Self::Reasoning | Self::Usage, "false" | "no") => Some("off"),
            (Self::Verbose, "all") => Some("full"),
            (Self::Reasoning, "live") => Some("stream"),
            (Self::Verbose | Self::Reasoning | Self::Usage, word) => {
                self.values().iter().find(|known| **known == word).copied()
            }
        }
    }

    pub(super) fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Thinking => &["/think", "/thinking", "/t"],
            Self::Verbose => &["/verbose", "/v"],
            Self::Reasoning => &["/reasoning", "/reason"],
            Self::Usage => &["/usage"],
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Thinking => "Thinking",
            Self::Verbose => "Verbose",
            Self::Reasoning => "Reasoning",
            Self::Usage => "Usage",
        }
    }

    /// Returns the field in a session's record.
    fn field(self) -> &'static str {
        match self {
            Self::Thinking => "thinkingLevel",
            Self::Verbose => "verboseLevel",
            Self::Reasoning => "reasoningLevel",
            Self::Usage => "responseUsage",
        }
    }

    /// Returns the current level of a session.
    pub(super) fn current<'a>(self, facts: &StatusInput<'a>) -> &'a str {
        let kept = match self {
            Self::Thinking => facts.record.thinking_level.as_deref(),
            Self::Verbose => facts.record.verbose_level.as_deref(),
            Self::Reasoning | Self::Usage => facts.record.extra.get(self.field()).and_then(|level| level.as_str()),
        };
        kept.unwrap_or(facts.levels.of(self))
    }

    /// Returns the changes to the session and the reply for a value.
    pub(super) fn change(self, word: &str, facts: &StatusInput<'_>) -> CommandResult {
        let is_there = |word: &&&str| facts.has_xhigh || self != Self::Thinking || **word != "xhigh";
        let choices = self.values().iter().filter(is_there).copied().collect::<Vec<_>>().join(", ");
        let title = self.title();
        if word.is_empty() {
            return CommandResult::reply_only(format!(
                "{title}: {}\nChoose one of {choices}, or default.",
                self.current(facts)
            ));
        }
        if word.eq_ignore_ascii_case("default") {
            let reply = format!("{title}: {} (default)", facts.levels.of(self));
            return CommandResult { fields: vec![(self.field(), None)], reply };
        }
        let Some(level) = self.level(word) else {
            let title = title.to_lowercase();
            return CommandResult::reply_only(format!(
                "{} is not a {title} level: choose one of {choices}.",
                quoted(word)
            ));
        };
        if level == "xhigh" && !facts.has_xhigh {
            return CommandResult::reply_only(format!(
                "{} does not support the thinking level xhigh: choose one of {choices}.",
                facts.model
            ));
        }
        // `off` is stored as no level, unless the default is not `off`.
        let is_kept = level != "off" || self == Self::Verbose || facts.levels.of(self) != "off";
        CommandResult {
            fields: vec![(self.field(), is_kept.then(|| level.into()))],
            reply: format!("{title}: {level}"),
        }
    }
}

/// Returns the changes to the session and the reply for a model name.
pub(super) fn change_model(name: &str, facts: &StatusInput<'_>) -> CommandResult {
    let keep = |provider: Option<&str>, model: Option<&str>, reply: String| CommandResult {
        fields: vec![("providerOverride", provider.map(Into::into)), ("modelOverride", model.map(Into::into))],
        reply,
    };
    let choices = match facts.models {
        [] => "write it as provider/model".to_owned(),
        models => format!("choose one of {}", models.join(", ")),
    };
    if name.is_empty() {
        return CommandResult::reply_only(format!("Model: {}\nTo change it, {choices}, or default.", facts.model));
    }
    if name.eq_ignore_ascii_case("default") {
        return keep(None, None, "Model: default, from the next run on".to_owned());
    }
    let known = facts.models.iter().find(|known| known.eq_ignore_ascii_case(name)).map(String::as_str);
    let unlisted = (facts.models.is_empty() && !name.contains(char::is_whitespace)).then_some(name);
    match known.or(unlisted).and_then(|name| name.split_once('/')) {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
            keep(Some(provider), Some(model), format!("Model: {provider}/{model}, from the next run on"))
        }
        _ => CommandResult::reply_only(format!("{} is not an available model: {choices}.", quoted(name))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::tests::Scene, *};

    fn scene() -> Scene {
        Scene::new(json!({"thinkingLevel": "high", "reasoningLevel": "stream"}))
    }

    fn told(text: &str) -> (Value, String) {
        scene().told(text)
    }

    fn says(reply: &str) -> (Value, String) {
        (json!({}), reply.to_owned())
    }

    #[test]
    fn each_setting_has_its_commands() {
        for (level, commands) in [
            (LevelSetting::Thinking, ["/think", "/thinking", "/T"].as_slice()),
            (LevelSetting::Verbose, &["/verbose", "/v", "/Verbose"]),
            (LevelSetting::Reasoning, &["/reasoning", "/reason"]),
            (LevelSetting::Usage, &["/usage"]),
        ] {
            for command in commands {
                assert_eq!(LevelSetting::parse(command), Some((level, "")), "{command}");
                for text in [format!("{command} on"), format!("{command}:on"), format!(" {command} : on ")] {
                    assert_eq!(LevelSetting::parse(&text), Some((level, "on")), "{text:?}");
                }
            }
        }
        for text in ["/tt", "/think-hard", "/vi x", "think high", "x /think high"] {
            assert_eq!(LevelSetting::parse(text), None, "{text}");
        }
    }

    #[test]
    fn each_level_has_its_words() {
        for (level, meant, words) in [
            (LevelSetting::Thinking, "off", "off OFF"),
            (LevelSetting::Thinking, "minimal", "minimal min think"),
            (LevelSetting::Thinking, "low", "low on enable enabled thinkhard"),
            (LevelSetting::Thinking, "medium", "medium mid med harder thinkharder"),
            (LevelSetting::Thinking, "high", "high ultra ultrathink highest max"),
            (LevelSetting::Thinking, "xhigh", "xhigh x-high"),
            (LevelSetting::Verbose, "off", "off false no"),
            (LevelSetting::Verbose, "on", "on true Yes"),
            (LevelSetting::Verbose, "full", "full all"),
            (LevelSetting::Reasoning, "off", "off false no"),
            (LevelSetting::Reasoning, "on", "on true yes"),
            (LevelSetting::Reasoning, "stream", "stream Live"),
            (LevelSetting::Usage, "off", "off no"),
            (LevelSetting::Usage, "tokens", "tokens on"),
            (LevelSetting::Usage, "full", "FULL"),
        ] {
            for word in words.split(' ') {
                assert_eq!(level.level(word), Some(meant), "{level:?} {word}");
            }
        }
        let unknown =
            [(LevelSetting::Thinking, "yes"), (LevelSetting::Verbose, "stream"), (LevelSetting::Reasoning, "all")];
        assert_eq!(unknown.map(|(level, word)| level.level(word)), [None; 3]);
    }

    #[test]
    fn a_level_is_kept_in_its_own_word_and_off_clears_it() {
        let kept = |field: &str, value: Value, reply: &str| (json!({field: value}), reply.to_owned());
        assert_eq!(told("/think Ultra"), kept("thinkingLevel", json!("high"), "Thinking: high"));
        assert_eq!(told("/t:off"), kept("thinkingLevel", Value::Null, "Thinking: off"));
        assert_eq!(told("/thinking default"), kept("thinkingLevel", Value::Null, "Thinking: off (default)"));
        assert_eq!(told("/v all"), kept("verboseLevel", json!("full"), "Verbose: full"));
        assert_eq!(told("/v off"), kept("verboseLevel", json!("off"), "Verbose: off"));
        assert_eq!(told("/verbose DEFAULT"), kept("verboseLevel", Value::Null, "Verbose: off (default)"));
        assert_eq!(told("/usage default"), kept("responseUsage", Value::Null, "Usage: off (default)"));
        assert_eq!(told("/usage on"), kept("responseUsage", json!("tokens"), "Usage: tokens"));
        assert_eq!(told("/reason live"), kept("reasoningLevel", json!("stream"), "Reasoning: stream"));
        assert_eq!(told("/reasoning off"), kept("reasoningLevel", Value::Null, "Reasoning: off"));
    }

    #[test]
    fn without_a_word_the_level_and_the_choices_are_told() {
        let levels = "off, minimal, low, medium, high, xhigh";
        assert_eq!(told("/think"), says(&format!("Thinking: high\nChoose one of {levels}, or default.")));
        assert_eq!(told("/v"), says("Verbose: off\nChoose one of off, on, full, or default."));
        assert_eq!(told("/reason"), says("Reasoning: stream\nChoose one of off, on, stream, or default."));
    }

    #[test]
    fn a_wrong_level_is_named_with_the_choices() {
        let levels = "off, minimal, low, medium, high, xhigh";
        assert_eq!(told("/t 7"), says(&format!("\"7\" is not a thinking level: choose one of {levels}.")));
        assert_eq!(told("/v high"), says("\"high\" is not a verbose level: choose one of off, on, full."));
        assert_eq!(
            told("/reason on and\non"),
            says("\"on and on\" is not a reasoning level: choose one of off, on, stream.")
        );
    }

    #[test]
    fn a_model_is_kept_with_its_provider() {
        let kept = |provider: Value, model: Value, reply: &str| {
            (json!({"providerOverride": provider, "modelOverride": model}), reply.to_owned())
        };
        let chosen = kept(json!("openai"), json!("gpt/x"), "Model: openai/gpt/x, from the next run on");
        assert_eq!(told("/model openai/gpt/x"), chosen);
        let cleared = kept(Value::Null, Value::Null, "Model: default, from the next run on");
        assert_eq!(told("/model: default"), cleared);
        let scene = Scene { models: vec!["openai/gpt/x".to_owned(), "a/b".to_owned()], ..scene() };
        assert_eq!(scene.told("/model OpenAI/GPT/x"), chosen);
    }

    #[test]
    fn a_model_that_is_none_is_named_with_the_choices() {
        for name in ["big", "a/", "/b", "a/b c"] {
            let reply = format!("\"{name}\" is not an available model: write it as provider/model.");
            assert_eq!(told(&format!("/model {name}")), says(&reply));
        }
        assert_eq!(
            told("/model"),
            says("Model: anthropic/opus\nTo change it, write it as provider/model, or default.")
        );
        let scene = Scene { models: vec!["openai/gpt".to_owned(), "a/b".to_owned()], ..scene() };
        assert_eq!(scene.told("/model c/d"), says("\"c/d\" is not an available model: choose one of openai/gpt, a/b."));
        assert_eq!(
            scene.told("/model"),
            says("Model: anthropic/opus\nTo change it, choose one of openai/gpt, a/b, or default.")
        );
    }
}
