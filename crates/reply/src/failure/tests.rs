//! Tests of error explanations, and of texts that are no errors.

use super::*;

const LONG: &str =
    "This conversation has become too long for the model. Shorten it with /compact, or start a new one with /new.";
const MIXED: &str = "The model does not accept the order of the messages in this conversation. Try again; if that does \
                     not help, start a new one with /new.";
const LOST: &str = "A tool call in this conversation has lost its input, and the model rejects it. Start a new \
                    conversation with /new; this one is kept.";
const BUSY: &str =
    "The model is overloaded at the moment. Try again a little later, or choose another one with /model.";
const EMPTY: &str =
    "The account at the provider has no credit left. Add credit there, or choose another model with /model.";

#[test]
fn errors_get_the_first_matching_explanation() {
    for (error, expected) in [
        (
            r#"413 {"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            LONG,
        ),
        ("anthropic: HTTP 400: prompt is too long: 213462 tokens > 200000 maximum; use /compact", LONG),
        ("This model's maximum context length is 8192 tokens", LONG),
        ("HTTP 413: payload too large", LONG),
        ("Request size exceeds model context window", LONG),
        (
            r#"400 {"type":"error","error":{"type":"invalid_request_error","message":"messages: roles must alternate"}}"#,
            MIXED,
        ),
        ("400 Incorrect role information", MIXED),
        ("HTTP 400: unexpected role `tool`", MIXED),
        ("messages.3.content.1.tool_use.input: Field required", LOST),
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, BUSY),
        ("Your credit balance is too low to access the API. Go to Plans & Billing.", EMPTY),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
            EMPTY,
        ),
        ("402 something", EMPTY),
        ("billing: upgrade your plan", EMPTY),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too high."},"request_id":"req_1"}"#,
            "The provider rejected the request: max_tokens: too high (invalid_request_error, request req_1). Check the model's \
             name and its settings, or choose another one with /model.",
        ),
        (
            "429 too many requests",
            "The provider rejected the request: too many requests (HTTP 429). Wait a little, or choose another model with \
             /model.",
        ),
        (
            "HTTP 500 internal server error",
            "The provider rejected the request: internal server error (HTTP 500). Try again in a moment, or choose another \
             model with /model.",
        ),
        (
            r#"Error: {"error":{"code":403,"message":"denied","status":"PERMISSION_DENIED"}}"#,
            "The provider rejected the request: denied (HTTP 403, PERMISSION_DENIED). Check the API key and its permissions.",
        ),
        (
            "unknown tool: browser",
            "unknown tool: browser. The tools of an agent are set in the config, under tools; in a sandbox, fewer \
             are available.",
        ),
        ("demo: no answer came; try again", "demo: no answer came; try again"),
        ("gone\n\ngone\n\nfor good", "gone\n\nfor good"),
        (" ", "The model failed without an error message. Try again, or choose another one with /model."),
    ] {
        assert_eq!(explain(error), expected, "{error}");
    }
}

/// Which of OpenClaw's recorded errors mean a context overflow.
#[test]
fn recorded_overflow_errors_are_recognized() {
    for (error, is_long) in [
        ("prompt is too long: 213462 tokens > 200000", true),
        ("429 too many requests", false),
        ("Your credit balance is too low", false),
        ("overloaded_error", false),
        ("invalid x-api-key 401", false),
        ("request timed out", false),
        ("tool_use.id: String should match pattern", false),
        ("image exceeds 5 MB", false),
        ("context overflow is a topic", false),
        ("Context overflow: x", true),
        ("session expired yesterday", false),
        ("HTTP 500 internal server error", false),
        ("400 roles must alternate", false),
    ] {
        assert_eq!(explain(error) == LONG, is_long, "{error}");
    }
}

#[test]
fn an_explanation_is_not_explained_again() {
    for explanation in [LONG, MIXED, LOST, BUSY, EMPTY, &explain(""), &explain("429 too many requests")] {
        assert_eq!(explain(explanation), explanation);
    }
}

#[test]
fn a_long_error_is_cut() {
    let error = "é".repeat(MAX_CHARS + 1);
    assert_eq!(explain(&error), format!("{}…", "é".repeat(MAX_CHARS)));
    assert_eq!(explain(&error[2..]), &error[2..]);
}

#[test]
fn only_a_providers_own_format_is_an_error() {
    for text in [
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#,
        r#"Error: 429 {"error":{"message":"slow down","type":"rate_limit_error","code":null}}"#,
        r#"{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED"}}"#,
    ] {
        assert!(is_error_text(text), "{text}");
    }
    for text in [
        "Context overflow: what it is and how to avoid it",
        "Your billing plan has no credits; upgrade it to go on.",
        "roles must alternate between user and assistant.",
        "404 Not Found is what a server says.",
        "Error: the file does not exist.",
        r#"{"error":"not found"}"#,
        r#"{"error":{"message":"no such user","code":17}}"#,
        r#"The log says {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}} is what I see."#,
    ] {
        assert!(!is_error_text(text), "{text}");
    }
}
