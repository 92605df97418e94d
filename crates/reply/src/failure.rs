//! Explains errors to users, with advice.
//!
//! Only errors are explained. An answer about errors is an answer: a text counts as an error because of its origin or a
//! provider's own error format, never because of its subject. No error discards a conversation: the text names
//! `/compact` and `/new`, and the user decides.

use serde_json::Value;

/// Maximum number of characters shown of an unknown error.
const MAX_CHARS: usize = 600;

const OVERFLOW: &[&str] = &[
    "request_too_large",
    "request exceeds the maximum size",
    "context length exceeded",
    "context_length_exceeded",
    "context overflow:",
    "context window exceeds limit",
    "exceeded model token limit",
    "exceeds model context window",
    "exceeds the available context size",
    "exceeds the context window",
    "greater than the context length",
    "input is too long for requested model",
    "maximum context length",
    "maximum prompt length is",
    "model_context_window_exceeded",
    "prompt is too long",
    "reduce the length of the messages",
    "token limit exceeded",
];
const ORDER: &[&str] = &["incorrect role information", "roles must alternate", "function call turn"];
const NO_CREDIT: &[&str] =
    &["payment required", "insufficient credits", "insufficient_quota", "credit balance", "plans & billing"];

/// Returns the message for an error that ended a run. A provider's raw error is explained; Homard's own messages, which
/// name the model and a remedy, are left unchanged.
pub fn user_message(error: &str) -> String {
    if error.trim().is_empty() || is_error_text(error) { explain(error) } else { error.trim().to_owned() }
}

/// Explains an error to the user. The text must be an error, not an answer.
pub fn explain(error: &str) -> String {
    let error = error.trim();
    let lower = error.to_lowercase();
    let mentions = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
    if mentions(&["unknown tool", "tool not found"]) {
        return format!(
            "{}. The tools of an agent are set in the config, under tools; in a sandbox, fewer are available.",
            truncate(error).trim_end_matches('.')
        );
    }
    if is_overflow(&lower) {
        return "This conversation has become too long for the model. Shorten it with /compact, or start a new one with \
                /new."
            .to_owned();
    }
    if mentions(ORDER) || is_about_roles(&lower) {
        return "The model does not accept the order of the messages in this conversation. Try again; if that does not \
                help, start a new one with /new."
            .to_owned();
    }
    if is_about_input(&lower) {
        return "A tool call in this conversation has lost its input, and the model rejects it. Start a new \
                conversation with /new; this one is kept."
            .to_owned();
    }
    // Checked before the error type: some providers report an empty account as an invalid request.
    if is_about_billing(&lower) {
        return "The account at the provider has no credit left. Add credit there, or choose another model with /model."
            .to_owned();
    }
    let report = ProviderError::read(error);
    let kind = report.as_ref().and_then(|report| report.kind.as_deref());
    if kind != Some("invalid_request_error") && lower.contains("overloaded") {
        return "The model is overloaded at the moment. Try again a little later, or choose another one with /model."
            .to_owned();
    }
    match report.or_else(|| ProviderError::of_status(error)) {
        Some(report) => report.explain(),
        None if error.is_empty() => {
            "The model failed without an error message. Try again, or choose another one with /model.".to_owned()
        }
        None => truncate(&dedup_paragraphs(error)),
    }
}

/// True if an assistant's text is nothing but an error in a provider's own format. Prose about errors and other JSON is
/// not.
pub fn is_error_text(text: &str) -> bool {
    ProviderError::read(text.trim()).is_some()
}

fn is_overflow(lower: &str) -> bool {
    let is_large = words(lower).any(|word| word == "413") && lower.contains("too large");
    let is_long = lower.contains("request size exceeds")
        && ["context window", "context length"].iter().any(|phrase| lower.contains(phrase));
    is_large || is_long || OVERFLOW.iter().any(|phrase| lower.contains(phrase))
}

/// True if a status 400 is about roles.
fn is_about_roles(lower: &str) -> bool {
    let mut words = words(lower);
    words.any(|word| word == "400") && words.any(|word| matches!(word, "role" | "roles"))
}

fn is_about_input(lower: &str) -> bool {
    let fields = ["tool_use.input", "tool_use.arguments", "tool_call.input", "tool_call.arguments"];
    let found = fields.iter().find_map(|field| lower.split_once(field));
    found.is_some_and(|(_, rest)| ["required", "missing"].iter().any(|word| rest.contains(word)))
}

fn is_about_billing(lower: &str) -> bool {
    let mentions_billing =
        lower.contains("billing") && ["upgrade", "credits", "payment", "plan"].iter().any(|word| lower.contains(word));
    mentions_billing || words(lower).any(|word| word == "402") || NO_CREDIT.iter().any(|phrase| lower.contains(phrase))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// A parsed provider error.
struct ProviderError {
    status: Option<u16>,
    /// The provider's name for the kind of error.
    kind: Option<String>,
    message: String,
    request: Option<String>,
}

impl ProviderError {
    /// Parses a provider's error object, possibly after a status or a word such as `Error:`.
    fn read(text: &str) -> Option<Self> {
        let (head, body) = text.split_at(text.find('{')?);
        let mut status = None;
        for word in head.split([' ', ':']).filter(|word| !word.is_empty()) {
            match word.to_ascii_lowercase().as_str() {
                "error" | "http" | "api" | "llm" => {}
                word => status = Some(error_status(word)?),
            }
        }
        let outer: Value = serde_json::from_str(body).ok()?;
        let error = outer.get("error")?;
        let text = |from: &Value, name: &str| from.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = text(error, "type").filter(|kind| kind.ends_with("_error") || kind == "insufficient_quota");
        // Google's format: a number, and a name in capitals.
        let code = error.get("code").and_then(Value::as_u64).and_then(|code| error_status(&code.to_string()));
        let kind = kind.or_else(|| text(error, "status").filter(|_| code.is_some()))?;
        let request = text(&outer, "request_id").or_else(|| text(error, "request_id"));
        Some(Self { status: status.or(code), kind: Some(kind), message: text(error, "message")?, request })
    }

    /// Parses an HTTP status followed by a message, such as `HTTP 429: too many requests`.
    fn of_status(text: &str) -> Option<Self> {
        let bare = text.get(..4).filter(|head| head.eq_ignore_ascii_case("http")).map_or(text, |_| &text[4..]);
        let (status, rest) = bare.trim_start().split_at_checked(3)?;
        let is_separated = rest.starts_with([' ', ':']);
        let message = rest.trim_start_matches([' ', ':']).to_owned();
        let status = error_status(status).filter(|_| is_separated && !message.is_empty())?;
        Some(Self { status: Some(status), kind: None, message, request: None })
    }

    fn explain(&self) -> String {
        let status = self.status.map(|status| format!("HTTP {status}"));
        let request = self.request.as_ref().map(|id| format!("request {id}"));
        let details: Vec<_> = [status, self.kind.clone(), request].into_iter().flatten().collect();
        let message = truncate(&dedup_paragraphs(self.message.trim()));
        let message = message.trim_end_matches('.');
        format!("The provider rejected the request: {message} ({}). {}", details.join(", "), self.advice())
    }

    fn advice(&self) -> &'static str {
        let kind = self.kind.as_deref().unwrap_or_default();
        match (kind, self.status) {
            ("rate_limit_error" | "RESOURCE_EXHAUSTED", _) | (_, Some(429)) => {
                "Wait a little, or choose another model with /model."
            }
            ("authentication_error" | "permission_error", _) | (_, Some(401 | 403)) => {
                "Check the API key and its permissions."
            }
            ("invalid_request_error" | "not_found_error", _) | (_, Some(400 | 404 | 422)) => {
                "Check the model's name and its settings, or choose another one with /model."
            }
            _ => "Try again in a moment, or choose another model with /model.",
        }
    }
}

/// Parses an HTTP error status.
fn error_status(text: &str) -> Option<u16> {
    text.parse().ok().filter(|status| (400..600).contains(status))
}

/// Removes consecutive duplicate paragraphs.
fn dedup_paragraphs(text: &str) -> String {
    let mut paragraphs: Vec<_> = text.split("\n\n").collect();
    paragraphs.dedup_by_key(|paragraph| paragraph.trim());
    paragraphs.join("\n\n")
}

/// Truncates an error message.
pub(crate) fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
