//! Validation of request fields other than the messages. Invalid values are rejected by field name even if the field is
//! not used, as OpenAI does, so that mistakes of the caller become visible.

use serde_json::Value;

use super::error::{ApiError, text};

/// Constraint on a field. Every field may be omitted or `null`.
#[derive(Debug, Clone, Copy)]
enum Constraint {
    Bool,
    /// A number within these bounds.
    Number(f64, f64),
    /// An integer within these bounds.
    Integer(i64, i64),
    String,
    List,
    Object,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A string or a list of strings.
    Strings,
    /// Not supported; the text says what to do instead.
    Unsupported(&'static str),
}

type FieldRule = (&'static str, Constraint);

/// Fields of both APIs.
const COMMON_FIELDS: &[FieldRule] = &[
    ("model", Constraint::String),
    ("user", Constraint::String),
    ("stream", Constraint::Bool),
    ("stream_options", Constraint::Object),
    ("stream_options.include_usage", Constraint::Bool),
    ("temperature", Constraint::Number(0.0, 2.0)),
    ("top_p", Constraint::Number(0.0, 1.0)),
    ("top_logprobs", Constraint::Integer(0, 20)),
    ("parallel_tool_calls", Constraint::Bool),
    ("store", Constraint::Bool),
    ("metadata", Constraint::Object),
    ("reasoning", Constraint::Object),
    ("service_tier", Constraint::String),
    ("tools", Constraint::List),
];

/// Further fields of `/v1/chat/completions`.
const CHAT_FIELDS: &[FieldRule] = &[
    ("n", Constraint::Integer(1, 1)),
    ("max_tokens", Constraint::Integer(1, i64::MAX)),
    ("max_completion_tokens", Constraint::Integer(1, i64::MAX)),
    ("presence_penalty", Constraint::Number(-2.0, 2.0)),
    ("frequency_penalty", Constraint::Number(-2.0, 2.0)),
    ("seed", Constraint::Integer(i64::MIN, i64::MAX)),
    ("stop", Constraint::Strings),
    ("logprobs", Constraint::Bool),
    ("logit_bias", Constraint::Object),
    ("modalities", Constraint::List),
    ("response_format", Constraint::Object),
    ("audio", Constraint::Unsupported("agents answer with text only")),
    ("functions", Constraint::Unsupported("send your functions in tools")),
    ("function_call", Constraint::Unsupported("use tool_choice")),
];

/// Further fields of `/v1/responses`.
const RESPONSES_FIELDS: &[FieldRule] = &[
    ("background", Constraint::Bool),
    ("instructions", Constraint::String),
    ("previous_response_id", Constraint::String),
    ("max_output_tokens", Constraint::Integer(1, i64::MAX)),
    ("max_tool_calls", Constraint::Integer(1, i64::MAX)),
    ("include", Constraint::List),
    ("text", Constraint::Object),
    ("text.format", Constraint::Object),
    ("truncation", Constraint::OneOf(&["auto", "disabled"])),
    (
        "conversation",
        Constraint::Unsupported(
            "select a session with user, previous_response_id or the header x-openclaw-session-key",
        ),
    ),
    ("prompt", Constraint::Unsupported("send the prompt's text as instructions")),
];

/// Checks the fields of a request to `/v1/chat/completions`.
pub(super) fn check_chat(body: &Value) -> Result<(), ApiError> {
    check(body, CHAT_FIELDS)?;
    let kinds = body["modalities"].as_array().into_iter().flatten();
    if kinds.into_iter().any(|kind| kind != "text") {
        return Err(ApiError::invalid_field("modalities", "must be [\"text\"]: agents answer with text only"));
    }
    Ok(())
}

/// Checks the fields of a request to `/v1/responses`.
pub(super) fn check_responses(body: &Value) -> Result<(), ApiError> {
    check(body, RESPONSES_FIELDS)
}

fn check(body: &Value, rules: &[FieldRule]) -> Result<(), ApiError> {
    for (name, rule) in COMMON_FIELDS.iter().chain(rules) {
        let value = name.split('.').fold(body, |value, part| &value[part]);
        if !value.is_null() && !rule.holds(value) {
            return Err(ApiError::invalid_field(name, &rule.message()));
        }
    }
    Ok(())
}

impl Constraint {
    fn holds(self, value: &Value) -> bool {
        match self {
            Self::Bool => value.is_boolean(),
            Self::Number(min, max) => value.as_f64().is_some_and(|number| (min..=max).contains(&number)),
            Self::Integer(min, max) => value.as_i64().is_some_and(|number| (min..=max).contains(&number)),
            Self::String => value.is_string(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
            Self::OneOf(values) => value.as_str().is_some_and(|text| values.contains(&text)),
            Self::Strings => {
                value.is_string() || value.as_array().is_some_and(|texts| texts.iter().all(Value::is_string))
            }
            Self::Unsupported(_) => false,
        }
    }

    fn message(self) -> String {
        match self {
            Self::Bool => "must be true or false".to_owned(),
            Self::Number(min, max) => format!("must be a number from {min} to {max}"),
            Self::Integer(1, 1) => "must be 1: an agent gives one answer".to_owned(),
            Self::Integer(i64::MIN, i64::MAX) => "must be a whole number".to_owned(),
            Self::Integer(min, i64::MAX) => format!("must be a whole number of at least {min}"),
            Self::Integer(min, max) => format!("must be a whole number from {min} to {max}"),
            Self::String => "must be a string".to_owned(),
            Self::List => "must be a list".to_owned(),
            Self::Object => "must be an object".to_owned(),
            Self::OneOf(values) => format!("must be {}", values.join(" or ")),
            Self::Strings => "must be a string or a list of strings".to_owned(),
            Self::Unsupported(hint) => format!("is not supported; {hint}"),
        }
    }
}

/// Returns the requested reasoning effort as a thinking level. The field names of both APIs are accepted in either.
pub(super) fn thinking(body: &Value) -> Result<Option<String>, ApiError> {
    for (value, name) in
        [(&body["reasoning_effort"], "reasoning_effort"), (&body["reasoning"]["effort"], "reasoning.effort")]
    {
        let Some(effort) = text(value, name)? else { continue };
        let level = if effort == "none" { Some("off") } else { homard_command::levels::thinking(effort) };
        let problem = "must be none, minimal, low, medium, high or xhigh";
        return level.map(|level| Some(level.to_owned())).ok_or_else(|| ApiError::invalid_field(name, problem));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message_of(checked: Result<(), ApiError>) -> String {
        checked.unwrap_err().message().to_owned()
    }

    #[test]
    fn invalid_fields_are_rejected_by_name() {
        for (body, message) in [
            (json!({"stream": "yes"}), "stream must be true or false"),
            (json!({"stream": 1}), "stream must be true or false"),
            (json!({"stream_options": true}), "stream_options must be an object"),
            (json!({"stream_options": {"include_usage": "no"}}), "stream_options.include_usage must be true or false"),
            (json!({"temperature": 2.1}), "temperature must be a number from 0 to 2"),
            (json!({"temperature": -0.1}), "temperature must be a number from 0 to 2"),
            (json!({"temperature": "0.5"}), "temperature must be a number from 0 to 2"),
            (json!({"top_p": 7}), "top_p must be a number from 0 to 1"),
            (json!({"max_tokens": -1}), "max_tokens must be a whole number of at least 1"),
            (json!({"max_tokens": 0}), "max_tokens must be a whole number of at least 1"),
            (json!({"max_completion_tokens": 1.5}), "max_completion_tokens must be a whole number of at least 1"),
            (json!({"top_logprobs": 21}), "top_logprobs must be a whole number from 0 to 20"),
            (json!({"seed": "x"}), "seed must be a whole number"),
            (json!({"n": 2}), "n must be 1: an agent gives one answer"),
            (json!({"n": 0}), "n must be 1: an agent gives one answer"),
            (json!({"n": "1"}), "n must be 1: an agent gives one answer"),
            (json!({"stop": [1]}), "stop must be a string or a list of strings"),
            (json!({"tools": {}}), "tools must be a list"),
            (json!({"metadata": []}), "metadata must be an object"),
            (json!({"modalities": ["text", "audio"]}), "modalities must be [\"text\"]: agents answer with text only"),
            (json!({"functions": []}), "functions is not supported; send your functions in tools"),
        ] {
            assert_eq!(message_of(check_chat(&body)), message);
        }
        for (body, message) in [
            (json!({"max_output_tokens": -5}), "max_output_tokens must be a whole number of at least 1"),
            (json!({"truncation": "middle"}), "truncation must be auto or disabled"),
            (json!({"text": {"format": "json"}}), "text.format must be an object"),
            (
                json!({"conversation": "conv_1"}),
                "conversation is not supported; select a session with user, previous_response_id or the header \
                 x-openclaw-session-key",
            ),
        ] {
            assert_eq!(message_of(check_responses(&body)), message);
        }
    }

    #[test]
    fn missing_null_and_in_range_fields_are_accepted() {
        let names =
            || COMMON_FIELDS.iter().chain(CHAT_FIELDS).chain(RESPONSES_FIELDS).filter(|(name, _)| !name.contains('.'));
        let nulls: Value =
            names().map(|(name, _)| ((*name).to_owned(), Value::Null)).collect::<serde_json::Map<_, _>>().into();
        let chat = json!({
            "stream": true, "stream_options": {"include_usage": true}, "temperature": 2, "top_p": 0.5, "n": 1,
            "max_tokens": 1, "seed": -7, "stop": ["a"], "modalities": ["text"], "presence_penalty": -2, "unknown": {},
        });
        for body in [json!({}), nulls, chat] {
            assert_eq!((check_chat(&body), check_responses(&body)), (Ok(()), Ok(())), "{body}");
        }
    }

    #[test]
    fn both_fields_set_the_reasoning_effort() {
        let level_of = |body: Value| thinking(&body).map_err(|error| error.message().to_owned());
        let level = |level: &str| Ok(Some(level.to_owned()));
        assert_eq!(level_of(json!({})), Ok(None));
        assert_eq!(level_of(json!({"reasoning_effort": null, "reasoning": {}})), Ok(None));
        assert_eq!(level_of(json!({"reasoning_effort": "high"})), level("high"));
        assert_eq!(level_of(json!({"reasoning": {"effort": "minimal"}})), level("minimal"));
        assert_eq!(level_of(json!({"reasoning_effort": "none"})), level("off"));
        let problem = "must be none, minimal, low, medium, high or xhigh";
        assert_eq!(level_of(json!({"reasoning_effort": "very"})), Err(format!("reasoning_effort {problem}")));
        assert_eq!(level_of(json!({"reasoning": {"effort": "very"}})), Err(format!("reasoning.effort {problem}")));
        assert_eq!(level_of(json!({"reasoning_effort": 3})), Err("reasoning_effort must be a string".to_owned()));
    }
}
