//! Validation of request fields other than the messages. Invalid values are rejected by field name even if the field is
//! not used, as OpenAI does, so that mistakes of the caller become visible.

use homard_agent::intake;
use serde_json::Value;

use super::refusal::{Refusal, text};

/// Constraint on a field. Every field may be omitted or `null`.
#[derive(Debug, Clone, Copy)]
enum Must {
    Flag,
    /// A number within these bounds.
    Number(f64, f64),
    /// An integer within these bounds.
    Whole(i64, i64),
    Text,
    List,
    Object,
    /// One of these strings.
    Word(&'static [&'static str]),
    /// A string or a list of strings.
    Texts,
    /// Not supported; the text says what to do instead.
    Absent(&'static str),
}

type Field = (&'static str, Must);

/// Fields of both APIs.
const BOTH: &[Field] = &[
    ("model", Must::Text),
    ("user", Must::Text),
    ("stream", Must::Flag),
    ("stream_options", Must::Object),
    ("stream_options.include_usage", Must::Flag),
    ("temperature", Must::Number(0.0, 2.0)),
    ("top_p", Must::Number(0.0, 1.0)),
    ("top_logprobs", Must::Whole(0, 20)),
    ("parallel_tool_calls", Must::Flag),
    ("store", Must::Flag),
    ("metadata", Must::Object),
    ("reasoning", Must::Object),
    ("service_tier", Must::Text),
    ("tools", Must::List),
];

/// Further fields of `/v1/chat/completions`.
const CHAT: &[Field] = &[
    ("n", Must::Whole(1, 1)),
    ("max_tokens", Must::Whole(1, i64::MAX)),
    ("max_completion_tokens", Must::Whole(1, i64::MAX)),
    ("presence_penalty", Must::Number(-2.0, 2.0)),
    ("frequency_penalty", Must::Number(-2.0, 2.0)),
    ("seed", Must::Whole(i64::MIN, i64::MAX)),
    ("stop", Must::Texts),
    ("logprobs", Must::Flag),
    ("logit_bias", Must::Object),
    ("modalities", Must::List),
    ("response_format", Must::Object),
    ("audio", Must::Absent("agents answer in words here")),
    ("functions", Must::Absent("send your functions in tools")),
    ("function_call", Must::Absent("say it with tool_choice")),
];

/// Further fields of `/v1/responses`.
const RESPONSES: &[Field] = &[
    ("background", Must::Flag),
    ("instructions", Must::Text),
    ("previous_response_id", Must::Text),
    ("max_output_tokens", Must::Whole(1, i64::MAX)),
    ("max_tool_calls", Must::Whole(1, i64::MAX)),
    ("include", Must::List),
    ("text", Must::Object),
    ("text.format", Must::Object),
    ("truncation", Must::Word(&["auto", "disabled"])),
    (
        "conversation",
        Must::Absent("name a session with user, previous_response_id or the header x-openclaw-session-key"),
    ),
    ("prompt", Must::Absent("send its text as instructions")),
];

/// Checks the fields of a request to `/v1/chat/completions`.
pub(super) fn check_chat(body: &Value) -> Result<(), Refusal> {
    check(body, CHAT)?;
    let kinds = body["modalities"].as_array().into_iter().flatten();
    if kinds.into_iter().any(|kind| kind != "text") {
        return Err(Refusal::part("modalities", "must be [\"text\"]: agents answer in words here"));
    }
    Ok(())
}

/// Checks the fields of a request to `/v1/responses`.
pub(super) fn check_responses(body: &Value) -> Result<(), Refusal> {
    check(body, RESPONSES)
}

fn check(body: &Value, own: &[Field]) -> Result<(), Refusal> {
    for (name, must) in BOTH.iter().chain(own) {
        let value = name.split('.').fold(body, |value, part| &value[part]);
        if !value.is_null() && !must.holds(value) {
            return Err(Refusal::part(name, &must.told()));
        }
    }
    Ok(())
}

impl Must {
    fn holds(self, value: &Value) -> bool {
        match self {
            Self::Flag => value.is_boolean(),
            Self::Number(least, most) => value.as_f64().is_some_and(|number| (least..=most).contains(&number)),
            Self::Whole(least, most) => value.as_i64().is_some_and(|number| (least..=most).contains(&number)),
            Self::Text => value.is_string(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Texts => {
                value.is_string() || value.as_array().is_some_and(|texts| texts.iter().all(Value::is_string))
            }
            Self::Absent(_) => false,
        }
    }

    fn told(self) -> String {
        match self {
            Self::Flag => "must be true or false".to_owned(),
            Self::Number(least, most) => format!("must be a number from {least} to {most}"),
            Self::Whole(1, 1) => "must be 1: an agent gives one answer".to_owned(),
            Self::Whole(i64::MIN, i64::MAX) => "must be a whole number".to_owned(),
            Self::Whole(least, i64::MAX) => format!("must be a whole number of at least {least}"),
            Self::Whole(least, most) => format!("must be a whole number from {least} to {most}"),
            Self::Text => "must be a text".to_owned(),
            Self::List => "must be a list".to_owned(),
            Self::Object => "must be an object".to_owned(),
            Self::Word(words) => format!("must be {}", words.join(" or ")),
            Self::Texts => "must be a text or a list of texts".to_owned(),
            Self::Absent(instead) => format!("is not supported; {instead}"),
        }
    }
}

/// Returns the requested reasoning effort as a thinking level. The field names of both APIs are accepted in either.
pub(super) fn thinking(body: &Value) -> Result<Option<String>, Refusal> {
    for (value, name) in
        [(&body["reasoning_effort"], "reasoning_effort"), (&body["reasoning"]["effort"], "reasoning.effort")]
    {
        let Some(word) = text(value, name)? else { continue };
        let level = if word == "none" { Some("off") } else { intake::thinking(word) };
        let must = "must be none, minimal, low, medium, high or xhigh";
        return level.map(|level| Some(level.to_owned())).ok_or_else(|| Refusal::part(name, must));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(checked: Result<(), Refusal>) -> String {
        checked.unwrap_err().message().to_owned()
    }

    #[test]
    fn what_a_field_must_be_is_said_with_its_name() {
        for (body, why) in [
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
            (json!({"stop": [1]}), "stop must be a text or a list of texts"),
            (json!({"tools": {}}), "tools must be a list"),
            (json!({"metadata": []}), "metadata must be an object"),
            (json!({"modalities": ["text", "audio"]}), "modalities must be [\"text\"]: agents answer in words here"),
            (json!({"functions": []}), "functions is not supported; send your functions in tools"),
        ] {
            assert_eq!(wrong(check_chat(&body)), why);
        }
        for (body, why) in [
            (json!({"max_output_tokens": -5}), "max_output_tokens must be a whole number of at least 1"),
            (json!({"truncation": "middle"}), "truncation must be auto or disabled"),
            (json!({"text": {"format": "json"}}), "text.format must be an object"),
            (
                json!({"conversation": "conv_1"}),
                "conversation is not supported; name a session with user, previous_response_id or the header \
                 x-openclaw-session-key",
            ),
        ] {
            assert_eq!(wrong(check_responses(&body)), why);
        }
    }

    #[test]
    fn what_is_left_out_or_null_or_within_its_bounds_is_fine() {
        let names = || BOTH.iter().chain(CHAT).chain(RESPONSES).filter(|(name, _)| !name.contains('.'));
        let nothing: Value =
            names().map(|(name, _)| ((*name).to_owned(), Value::Null)).collect::<serde_json::Map<_, _>>().into();
        let chat = json!({
            "stream": true, "stream_options": {"include_usage": true}, "temperature": 2, "top_p": 0.5, "n": 1,
            "max_tokens": 1, "seed": -7, "stop": ["a"], "modalities": ["text"], "presence_penalty": -2, "unknown": {},
        });
        for body in [json!({}), nothing, chat] {
            assert_eq!((check_chat(&body), check_responses(&body)), (Ok(()), Ok(())), "{body}");
        }
    }

    #[test]
    fn either_spelling_says_how_hard_to_think() {
        let thinks = |body: Value| thinking(&body).map_err(|refusal| refusal.message().to_owned());
        let level = |level: &str| Ok(Some(level.to_owned()));
        assert_eq!(thinks(json!({})), Ok(None));
        assert_eq!(thinks(json!({"reasoning_effort": null, "reasoning": {}})), Ok(None));
        assert_eq!(thinks(json!({"reasoning_effort": "high"})), level("high"));
        assert_eq!(thinks(json!({"reasoning": {"effort": "minimal"}})), level("minimal"));
        assert_eq!(thinks(json!({"reasoning_effort": "none"})), level("off"));
        let must = "must be none, minimal, low, medium, high or xhigh";
        assert_eq!(thinks(json!({"reasoning_effort": "very"})), Err(format!("reasoning_effort {must}")));
        assert_eq!(thinks(json!({"reasoning": {"effort": "very"}})), Err(format!("reasoning.effort {must}")));
        assert_eq!(thinks(json!({"reasoning_effort": 3})), Err("reasoning_effort must be a text".to_owned()));
    }
}
