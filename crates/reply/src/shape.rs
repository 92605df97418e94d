//! Shapes the final payloads of a run, and checks whether the user would be left without an answer.
//!
//! The order is: error, tool summaries, reasoning, answer, and the failed tool only if the user would otherwise read
//! nothing. Text that was already sent in blocks or by the model's own messages is not repeated; errors always are
//! sent.

use crate::{
    failure,
    parse_stream::{MessageDirectives, ParsedReply},
    payload::{Kind, Payload},
    reasoning, remaining,
};

/// Words of tool errors that a model usually corrects with another call; they are of no use to the user.
const RECOVERABLE: &[&str] = &["required", "missing", "invalid", "must be", "must have", "needs", "requires"];

/// Result of a run.
#[derive(Debug, Clone)]
pub struct RunReplies<'a> {
    /// The model's messages, without tags, directives and tokens, and without those that repeat what it sent with its
    /// tools: [`SentTexts::withhold`](crate::sent::SentTexts::withhold).
    pub messages: Vec<Payload>,
    /// Raw error that ended the run.
    pub error: Option<String>,
    /// Tool summaries to send with the replies; empty if they were sent earlier.
    pub tools: Vec<String>,
    /// Reasoning, if the user wants to read it.
    pub reasoning: Option<String>,
    /// Last tool call that failed.
    pub failure: Option<ToolFailure>,
    /// How the model ended the run.
    pub ending: ModelEnding,
    /// Payloads that the user already received, in order, without prefix.
    pub delivered: &'a [Payload],
    /// True if a tool call of the model has sent a message to the conversation that the run answers.
    pub is_answered: bool,
    /// Whether the run must end with something for the user to read.
    pub expectation: Expectation,
}

/// A tool call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFailure {
    /// Label of the call: [`label::summary`](crate::label::summary).
    pub label: String,
    /// Error message.
    pub error: String,
}

/// How the model ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModelEnding {
    /// With a text, which may be empty.
    #[default]
    Text,
    /// With a request to send no reply, such as `NO_REPLY`.
    Silence,
    /// With calls of client tools: the client runs them and sends the results in a later message.
    Calls,
}

/// Whether a run must end with something for the user to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expectation {
    /// It must. If there is nothing, the status is [`ReplyStatus::Missing`], so that the model can be asked once more.
    #[default]
    Answer,
    /// It must, and the model was already asked once more. If there is still nothing, an error message is sent.
    LastAnswer,
    /// It need not. If the model has nothing to say, nothing is sent, unless a tool failed and the model did not ask
    /// for silence.
    Free,
}

/// What remains to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapedReplies {
    /// Payloads in this order; none of them is empty.
    pub payloads: Vec<Payload>,
    /// What the user will have received.
    pub status: ReplyStatus,
}

/// What the user will have received after the payloads are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStatus {
    /// An answer or an error.
    Answered,
    /// Nothing, and nothing is expected.
    Silent,
    /// Nothing, although an answer is required: ask the model once more, without tools, and shape again with
    /// [`Expectation::LastAnswer`].
    Missing,
}

impl From<ParsedReply> for Payload {
    /// Converts a model's message to a part of the answer, without the reasoning.
    fn from(ParsedReply { text, found, .. }: ParsedReply) -> Self {
        let MessageDirectives { reply_to, is_voice, media, .. } = found;
        Self { kind: Kind::Answer, text, media, reply_to, is_voice }
    }
}

/// Shapes the payloads that remain to be sent at the end of a run.
pub fn shape(run: RunReplies<'_>) -> ShapedReplies {
    let is_voice = run.messages.iter().chain(run.delivered).any(|payload| payload.is_voice);
    let has_answer = |payloads: &[Payload]| payloads.iter().any(is_answer);
    let was_answered = has_answer(run.delivered) || run.is_answered;
    let error = run.error.as_deref().map(failure::user_message);
    let texts = answers(remaining::remaining(run.messages, run.delivered), run.error.as_deref());

    let errors = error.map(|text| Payload { kind: Kind::Error, ..Payload::answer(text) });
    let tools = run.tools.into_iter().map(|text| Payload { kind: Kind::Tool, ..Payload::answer(text) });
    let reasoning_payload = run.reasoning.as_deref().and_then(reasoning::message);
    let undelivered =
        errors.into_iter().chain(tools).chain(reasoning_payload).filter(|payload| !run.delivered.contains(payload));
    let mut payloads: Vec<_> = undelivered.chain(texts).filter(|payload| !payload.is_empty()).collect();
    for payload in payloads.iter_mut().filter(|payload| !payload.media.is_empty()) {
        payload.is_voice |= is_voice;
    }
    if was_answered || has_answer(&payloads) {
        return ShapedReplies { payloads, status: ReplyStatus::Answered };
    }
    let (fallback, status) = fall_back(run.failure.as_ref(), run.ending, run.expectation);
    // If the run ends silently, its reasoning is not sent either.
    payloads.retain(|payload| payload.kind != Kind::Reasoning || status != ReplyStatus::Silent);
    payloads.extend(fallback);
    ShapedReplies { payloads, status }
}

/// Returns the payload that is sent because the user would otherwise read nothing, if any, and the resulting status.
fn fall_back(
    failure: Option<&ToolFailure>,
    ending: ModelEnding,
    expectation: Expectation,
) -> (Option<Payload>, ReplyStatus) {
    let serious = failure.filter(|failure| !failure.is_recoverable());
    let message = match (ending, expectation) {
        (ModelEnding::Calls, _) | (ModelEnding::Silence, Expectation::Free) => return (None, ReplyStatus::Silent),
        (ModelEnding::Text, Expectation::Free) if serious.is_none() => return (None, ReplyStatus::Silent),
        (ModelEnding::Silence, Expectation::Answer) => None,
        (ModelEnding::Text, Expectation::Answer | Expectation::Free) => serious.map(ToolFailure::text),
        (ModelEnding::Text | ModelEnding::Silence, Expectation::LastAnswer) => Some(failure.map_or_else(
            || "The model ended without an answer. Ask again, or choose another one with /model.".to_owned(),
            ToolFailure::text,
        )),
    };
    match message {
        Some(text) => (Some(Payload { kind: Kind::Error, ..Payload::answer(text) }), ReplyStatus::Answered),
        None => (None, ReplyStatus::Missing),
    }
}

impl ToolFailure {
    fn text(&self) -> String {
        format!("⚠️ {} failed: {}", self.label, failure::truncate(self.error.trim()))
    }

    fn is_recoverable(&self) -> bool {
        let error = self.error.to_lowercase();
        RECOVERABLE.iter().any(|word| error.contains(word))
    }
}

fn is_answer(payload: &Payload) -> bool {
    let is_answer_kind = match payload.kind {
        Kind::Answer | Kind::Error => true,
        Kind::Reasoning | Kind::Tool | Kind::Notice => false,
    };
    is_answer_kind && !payload.is_empty()
}

/// Removes texts that only repeat the error, and explains texts that are errors themselves.
fn answers(texts: Vec<Payload>, error: Option<&str>) -> Vec<Payload> {
    let explained = error.map(failure::user_message);
    let repeats = |text: &str| {
        let is_same = |other: &str| other.trim() == text.trim();
        error.is_some_and(|error| is_same(error) || failure::is_error_text(text))
            || explained.as_deref().is_some_and(is_same)
    };
    let mut texts: Vec<_> = texts
        .into_iter()
        .map(|payload| {
            if repeats(&payload.text) {
                Payload { text: String::new(), ..payload }
            } else if failure::is_error_text(&payload.text) {
                Payload { kind: Kind::Error, text: failure::explain(&payload.text), ..payload }
            } else {
                payload
            }
        })
        .collect();
    texts.retain(|payload| !payload.is_empty());
    texts
}

#[cfg(test)]
mod tests;
