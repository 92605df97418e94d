//! Session settings with one value: thinking level, verbosity, reasoning, usage, model.

use super::{CommandResult, StatusInput, command_arguments, quoted};

/// Thinking levels, weakest first.
pub const THINKING_LEVELS: [&str; 6] = ["off", "minimal", "low", "medium", "high", "xhigh"];

/// Parses a thinking level or one of its aliases.
pub fn thinking(name: &str) -> Option<&'static str> {
    let name = name.trim().to_lowercase();
    let level = match name.as_str() {
        "on" | "enable" | "enabled" | "thinkhard" => "low",
        "min" | "think" => "minimal",
        "mid" | "med" | "harder" | "thinkharder" => "medium",
        "ultra" | "ultrathink" | "highest" | "max" => "high",
        "x-high" => "xhigh",
        other => other,
    };
    THINKING_LEVELS.into_iter().find(|known| *known == level)
}

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
            Self::Thinking => &THINKING_LEVELS,
            Self::Verbose => &["off", "on", "full"],
            Self::Reasoning => &["off", "on", "stream"],
            Self::Usage => &["off", "tokens", "full"],
        }
    }

    /// Parses a level or one of its aliases, in any case.
    pub fn level(self, name: &str) -> Option<&'static str> {
        let name = name.trim().to_lowercase();
        match (self, name.as_str()) {
            (Self::Thinking, name) => thinking(name),
            (Self::Verbose | Self::Reasoning, "true" | "yes") => Some("on"),
            (Self::Usage, "on" | "true" | "yes") => Some("tokens"),
            (Self::Verbose | Self::Reasoning | Self::Usage, "false" | "no") => Some("off"),
            (Self::Verbose, "all") => Some("full"),
            (Self::Reasoning, "live") => Some("stream"),
            (Self::Verbose | Self::Reasoning | Self::Usage, name) => {
                self.values().iter().find(|known| **known == name).copied()
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
    pub(super) fn current<'a>(self, input: &StatusInput<'a>) -> &'a str {
        let stored = match self {
            Self::Thinking => input.record.thinking_level.as_deref(),
            Self::Verbose => input.record.verbose_level.as_deref(),
            Self::Reasoning | Self::Usage => input.record.extra.get(self.field()).and_then(|level| level.as_str()),
        };
        stored.unwrap_or(input.levels.of(self))
    }

    /// Returns the changes to the session and the reply for a value.
    pub(super) fn change(self, name: &str, input: &StatusInput<'_>) -> CommandResult {
        let is_available = |name: &&&str| input.has_xhigh || self != Self::Thinking || **name != "xhigh";
        let choices = self.values().iter().filter(is_available).copied().collect::<Vec<_>>().join(", ");
        let title = self.title();
        if name.is_empty() {
            return CommandResult::reply_only(format!(
                "{title}: {}\nChoose one of {choices}, or default.",
                self.current(input)
            ));
        }
        if name.eq_ignore_ascii_case("default") {
            let reply = format!("{title}: {} (default)", input.levels.of(self));
            return CommandResult { fields: vec![(self.field(), None)], reply };
        }
        let Some(level) = self.level(name) else {
            let title = title.to_lowercase();
            return CommandResult::reply_only(format!(
                "{} is not a {title} level: choose one of {choices}.",
                quoted(name)
            ));
        };
        if level == "xhigh" && !input.has_xhigh {
            return CommandResult::reply_only(format!(
                "{} does not support the thinking level xhigh: choose one of {choices}.",
                input.model
            ));
        }
        // `off` is stored as no level, unless the default is not `off`.
        let is_stored = level != "off" || self == Self::Verbose || input.levels.of(self) != "off";
        CommandResult {
            fields: vec![(self.field(), is_stored.then(|| level.into()))],
            reply: format!("{title}: {level}"),
        }
    }
}

/// Returns the changes to the session and the reply for a model name.
pub(super) fn change_model(name: &str, input: &StatusInput<'_>) -> CommandResult {
    let set_model = |provider: Option<&str>, model: Option<&str>, reply: String| CommandResult {
        fields: vec![("providerOverride", provider.map(Into::into)), ("modelOverride", model.map(Into::into))],
        reply,
    };
    let choices = match input.models {
        [] => "write it as provider/model".to_owned(),
        models => format!("choose one of {}", models.join(", ")),
    };
    if name.is_empty() {
        return CommandResult::reply_only(format!("Model: {}\nTo change it, {choices}, or default.", input.model));
    }
    if name.eq_ignore_ascii_case("default") {
        return set_model(None, None, "Model: default, from the next run on".to_owned());
    }
    let known = input.models.iter().find(|known| known.eq_ignore_ascii_case(name)).map(String::as_str);
    let unlisted = (input.models.is_empty() && !name.contains(char::is_whitespace)).then_some(name);
    match known.or(unlisted).and_then(|name| name.split_once('/')) {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
            set_model(Some(provider), Some(model), format!("Model: {provider}/{model}, from the next run on"))
        }
        _ => CommandResult::reply_only(format!("{} is not an available model: {choices}.", quoted(name))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::tests::TestSession, *};

    fn session() -> TestSession {
        TestSession::new(json!({"thinkingLevel": "high", "reasoningLevel": "stream"}))
    }

    fn execute(text: &str) -> (Value, String) {
        session().execute(text)
    }

    fn only_reply(reply: &str) -> (Value, String) {
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
    fn levels_have_aliases() {
        for (level, expected, names) in [
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
            for name in names.split(' ') {
                assert_eq!(level.level(name), Some(expected), "{level:?} {name}");
            }
        }
        let unknown =
            [(LevelSetting::Thinking, "yes"), (LevelSetting::Verbose, "stream"), (LevelSetting::Reasoning, "all")];
        assert_eq!(unknown.map(|(level, name)| level.level(name)), [None; 3]);
    }

    #[test]
    fn a_level_is_stored_by_its_canonical_name_and_off_clears_it() {
        let stored = |field: &str, value: Value, reply: &str| (json!({field: value}), reply.to_owned());
        assert_eq!(execute("/think Ultra"), stored("thinkingLevel", json!("high"), "Thinking: high"));
        assert_eq!(execute("/t:off"), stored("thinkingLevel", Value::Null, "Thinking: off"));
        assert_eq!(execute("/thinking default"), stored("thinkingLevel", Value::Null, "Thinking: off (default)"));
        assert_eq!(execute("/v all"), stored("verboseLevel", json!("full"), "Verbose: full"));
        assert_eq!(execute("/v off"), stored("verboseLevel", json!("off"), "Verbose: off"));
        assert_eq!(execute("/verbose DEFAULT"), stored("verboseLevel", Value::Null, "Verbose: off (default)"));
        assert_eq!(execute("/usage default"), stored("responseUsage", Value::Null, "Usage: off (default)"));
        assert_eq!(execute("/usage on"), stored("responseUsage", json!("tokens"), "Usage: tokens"));
        assert_eq!(execute("/reason live"), stored("reasoningLevel", json!("stream"), "Reasoning: stream"));
        assert_eq!(execute("/reasoning off"), stored("reasoningLevel", Value::Null, "Reasoning: off"));
    }

    #[test]
    fn a_level_command_without_a_value_shows_the_choices() {
        let levels = "off, minimal, low, medium, high, xhigh";
        assert_eq!(execute("/think"), only_reply(&format!("Thinking: high\nChoose one of {levels}, or default.")));
        assert_eq!(execute("/v"), only_reply("Verbose: off\nChoose one of off, on, full, or default."));
        assert_eq!(execute("/reason"), only_reply("Reasoning: stream\nChoose one of off, on, stream, or default."));
    }

    #[test]
    fn an_unknown_level_is_rejected_with_the_choices() {
        let levels = "off, minimal, low, medium, high, xhigh";
        assert_eq!(execute("/t 7"), only_reply(&format!("\"7\" is not a thinking level: choose one of {levels}.")));
        assert_eq!(execute("/v high"), only_reply("\"high\" is not a verbose level: choose one of off, on, full."));
        assert_eq!(
            execute("/reason on and\non"),
            only_reply("\"on and on\" is not a reasoning level: choose one of off, on, stream.")
        );
    }

    #[test]
    fn a_model_is_stored_with_its_provider() {
        let stored = |provider: Value, model: Value, reply: &str| {
            (json!({"providerOverride": provider, "modelOverride": model}), reply.to_owned())
        };
        let chosen = stored(json!("openai"), json!("gpt/x"), "Model: openai/gpt/x, from the next run on");
        assert_eq!(execute("/model openai/gpt/x"), chosen);
        let cleared = stored(Value::Null, Value::Null, "Model: default, from the next run on");
        assert_eq!(execute("/model: default"), cleared);
        let session = TestSession { models: vec!["openai/gpt/x".to_owned(), "a/b".to_owned()], ..session() };
        assert_eq!(session.execute("/model OpenAI/GPT/x"), chosen);
    }

    #[test]
    fn an_unknown_model_is_rejected_with_the_choices() {
        for name in ["big", "a/", "/b", "a/b c"] {
            let reply = format!("\"{name}\" is not an available model: write it as provider/model.");
            assert_eq!(execute(&format!("/model {name}")), only_reply(&reply));
        }
        assert_eq!(
            execute("/model"),
            only_reply("Model: anthropic/opus\nTo change it, write it as provider/model, or default.")
        );
        let session = TestSession { models: vec!["openai/gpt".to_owned(), "a/b".to_owned()], ..session() };
        assert_eq!(
            session.execute("/model c/d"),
            only_reply("\"c/d\" is not an available model: choose one of openai/gpt, a/b.")
        );
        assert_eq!(
            session.execute("/model"),
            only_reply("Model: anthropic/opus\nTo change it, choose one of openai/gpt, a/b, or default.")
        );
    }
}
