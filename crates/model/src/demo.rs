//! `homard/demo`: the offline model used when no provider is configured.
//!
//! It is a table of phrases (`phrase`), not a language model, and says so. It drives the real loop: it calls the real
//! tools and answers from their results. It is deterministic.

mod phrase;
#[cfg(test)]
mod tests;

use std::task::Poll;

use futures_util::stream;
use homard_proto::message::{Message, StopReason, ToolResult, Usage, join_text};
use serde_json::{Value, json};

use crate::{
    EventStream, Model, ModelEvent, ModelSpec, Request,
    stream::{AnswerEnd, CallDelta},
};
use phrase::{DetectedIntent, Intent};

/// File of the notes in the agent's workspace.
const NOTES: &str = "notes.md";

/// Maximum size of old notes that are written back: less than the `read` tool returns at once, so that nothing is lost.
const NOTES_LINES: usize = 1900;
const NOTES_BYTES: usize = 40_000;

const HELP: &str = "\
I am Homard's built-in demo model. I am not a language model: I recognise a few plain requests and do them with the real tools.

- What files are here?
- Read README.md
- Search for TODO in src
- Write a note: buy milk
- Save 'hello' to hello.txt
- Replace 'hello' with 'goodbye' in hello.txt
- Run `uname -a`
- What time is it?

To use a real model, run: homard setup.";

const UNKNOWN: &str = "\
I am Homard's built-in demo model, not a language model, so I cannot answer this; say `help` to see what I can do. \
To use a real model, run `homard setup`: it asks for a key or finds a local server. More about models: `homard docs models`.";

/// The offline model.
#[derive(Debug)]
pub struct Demo {
    spec: ModelSpec,
}

impl Default for Demo {
    fn default() -> Self {
        let spec = ModelSpec {
            provider: "homard".to_owned(),
            model: "demo".to_owned(),
            api: "homard-demo".to_owned(),
            context_window: 32_000,
            max_output: 4096,
            accepts_images: false,
            ..ModelSpec::default()
        };
        Self { spec }
    }
}

impl Model for Demo {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        let mut events = events(&request).into_iter();
        let mut has_yielded = true;
        // Each word needs its own poll, so that readers see a stream and not a single block.
        Box::pin(stream::poll_fn(move |cx| {
            has_yielded = !has_yielded;
            if has_yielded {
                return Poll::Ready(events.next());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

/// Next action.
#[derive(Debug, PartialEq)]
enum DemoStep {
    Call(&'static str, Value),
    Say(String),
}

fn events(request: &Request) -> Vec<ModelEvent> {
    let bytes: usize = request.messages.iter().map(|message| message_text(message).len()).sum();
    let input = (request.system.len() + bytes) as u64 / 4;
    let done = |stop, output: usize| {
        let output = output as u64 / 4;
        ModelEvent::Done(AnswerEnd {
            stop,
            usage: Usage { input, output, total_tokens: input + output, ..Usage::default() },
        })
    };
    match next_step(request) {
        DemoStep::Call(tool, arguments) => {
            let arguments = arguments.to_string();
            let done = done(StopReason::ToolUse, arguments.len());
            // No two requests of a session have the same length, so call ids are unique.
            let id = Some(format!("demo_{}", request.messages.len()));
            vec![ModelEvent::Call(CallDelta { index: 0, id, name: Some(tool.to_owned()), arguments }), done]
        }
        DemoStep::Say(text) => {
            let mut events: Vec<_> =
                text.split_inclusive(char::is_whitespace).map(|word| ModelEvent::Text(word.to_owned())).collect();
            events.push(done(StopReason::Stop, text.len()));
            events
        }
    }
}

fn next_step(request: &Request) -> DemoStep {
    let messages = &request.messages;
    let last_user = messages.iter().rposition(|message| matches!(**message, Message::User(_)));
    let text = last_user.map(|at| message_text(&messages[at])).unwrap_or_default();
    let results: Vec<_> = messages[last_user.unwrap_or(0)..].iter().filter_map(|message| result(message)).collect();
    match step(&phrase::detect_intent(newest(without_notes(&text))), &results) {
        DemoStep::Call(tool, _) if !request.tools.iter().any(|spec| spec.name == tool) => {
            DemoStep::Say(format!("I would need the tool `{tool}` for this, and it is not available here."))
        }
        step @ (DemoStep::Call(..) | DemoStep::Say(_)) => step,
    }
}

/// Returns the next step of an intent, given the results of the previous steps.
fn step(detected: &DetectedIntent, results: &[&ToolResult]) -> DemoStep {
    let DetectedIntent { intent, path, text, with } = detected;
    match (intent, results) {
        (Intent::Help, _) => DemoStep::Say(HELP.to_owned()),
        (Intent::Unknown, _) => DemoStep::Say(UNKNOWN.to_owned()),
        (Intent::List, []) => DemoStep::Call("ls", json!({"path": path})),
        (Intent::Read, []) => DemoStep::Call("read", json!({"path": path})),
        (Intent::Search, []) => {
            DemoStep::Call("grep", json!({"pattern": text, "literal": true, "path": path, "limit": 50}))
        }
        (Intent::Edit, []) => DemoStep::Call("edit", json!({"path": path, "oldText": text, "newText": with})),
        (Intent::Run, []) => DemoStep::Call("exec", json!({"command": text})),
        (Intent::Date, []) => DemoStep::Call("exec", json!({"command": "date"})),
        (Intent::Write, []) => DemoStep::Call("write", json!({"path": path, "content": as_lines(text)})),
        (Intent::Note, []) => DemoStep::Call("read", json!({"path": NOTES})),
        (Intent::Note, [old]) => match with_note(old, text) {
            Ok(content) => DemoStep::Call("write", json!({"path": NOTES, "content": content})),
            Err(why) => DemoStep::Say(why),
        },
        (_, [.., last]) => DemoStep::Say(report(detected, last)),
    }
}

/// Builds the reply from the last result.
fn report(detected: &DetectedIntent, last: &ToolResult) -> String {
    let output = join_text(&last.content);
    if last.is_error {
        return format!("That did not work: {output}");
    }
    match detected.intent {
        Intent::Write => format!("Wrote {}.", detected.path),
        Intent::Note => format!("Noted in {NOTES}."),
        Intent::Edit => format!("Replaced it in {}.", detected.path),
        Intent::Search if matches!(output.trim(), "" | "(no matches)") => {
            format!("Nothing mentions {}.", detected.text)
        }
        Intent::List | Intent::Read | Intent::Search | Intent::Run | Intent::Date => output,
        Intent::Help | Intent::Unknown => String::new(),
    }
}

/// Appends a note. Notes that were not read completely are left alone, because writing would lose the remainder.
fn with_note(old: &ToolResult, note: &str) -> Result<String, String> {
    let output = join_text(&old.content);
    let old_notes = match (old.is_error, output.as_str()) {
        (true, error) if error.contains("does not exist") => "",
        (true, error) => return Err(format!("{NOTES} cannot be read, so nothing was written: {error}")),
        (false, "(empty file)") => "",
        (false, notes) => notes,
    };
    if old_notes.len() > NOTES_BYTES || old_notes.lines().count() > NOTES_LINES || old_notes.contains('\u{fffd}') {
        return Err(format!("{NOTES} is too long for me, or not plain text, so nothing was written. Start a new one."));
    }
    Ok(as_lines(old_notes) + &as_lines(&format!("- {note}")))
}

/// Makes a non-empty text end with a line break.
fn as_lines(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Returns the user's text without the bracketed notes that the loop prepends.
fn without_notes(text: &str) -> &str {
    match text.split_once("]\n\n") {
        Some((notes, rest)) if notes.starts_with('[') => rest,
        Some(_) | None => text,
    }
}

/// Returns the newest request from a conversation summary that quotes it.
fn newest(text: &str) -> &str {
    let quoted = text.rsplit_once("<latest-request>").and_then(|(_, rest)| rest.split_once("</latest-request>"));
    quoted.and_then(|(quoted, _)| quoted.trim().split_once('\n')).map_or(text, |(_, request)| request.trim())
}

fn message_text(message: &Message) -> String {
    match message {
        Message::User(user) => user.content.text(),
        Message::Assistant(assistant) => assistant.text(),
        Message::ToolResult(result) => join_text(&result.content),
        Message::Other(_) => String::new(),
    }
}

fn result(message: &Message) -> Option<&ToolResult> {
    match message {
        Message::ToolResult(result) => Some(result),
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
    }
}
