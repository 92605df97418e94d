//! Formats the outcome of a trace, section by section: the text of a snapshot.

use homard_agent::{Outcome, delivery::DeliveryReport, tape::TapeState};
use homard_model::ReasoningLevel;
use homard_proto::{
    message::{Block, Content, Message, StopReason, Usage},
    transcript::{Entry, Kind},
};
use homard_reply::payload::{Kind as ReplyKind, Payload};
use homard_store::DeliveryState;
use serde_json::{Value, json};

use crate::{
    channel_sender::AcceptedMessage,
    client::RecordedResponse,
    invariants,
    recorder::RecordedPayload,
    runner::{EPOCH_MS, TraceResult},
    script::RecordedRequest,
    tools::StartedCall,
    trace::TraceAct,
};

/// Formats a snapshot with the sections `# answers`, `# events`, `# model saw`, `# sent` and `# transcript`. Further
/// sections appear only if they apply: hook invocations, channels, and the tools that were actually started if there
/// was a restart, because events also report tools whose result was already known.
///
/// Omitted because they are the same in every trace: a payload's session and agent (the invariants check them), the
/// model's name in a stored answer, and token counts of zero. Long texts are abridged.
pub fn format_snapshot(result: &TraceResult) -> String {
    let mut lines = vec!["# answers".to_owned()];
    lines.extend(result.calls.iter().flat_map(|call| answers(&call.act, &call.frames)));
    lines.push("\n# events".to_owned());
    lines.extend(events(result));
    lines.push("\n# model saw".to_owned());
    lines.extend(requests(&result.requests));
    if !result.log.restarts.is_empty() {
        lines.push("\n# tools started".to_owned());
        lines.extend(result.started_calls.iter().map(started));
    }
    if !result.hook_invocations.is_empty() {
        lines.push("\n# hooks".to_owned());
        // The order of simultaneous invocations is arbitrary, but that of each participant is not.
        let mut invocations: Vec<_> = result.hook_invocations.iter().collect();
        invocations.sort_by_key(|invocation| (invocation.at, &invocation.name));
        lines.extend(
            invocations
                .iter()
                .map(|invocation| format!("{}ms {} {}", invocation.at.as_millis(), invocation.name, invocation.what)),
        );
    }
    lines.push("\n# sent".to_owned());
    lines.extend(result.log.runs.iter().map(|recorded_run| {
        let cut_short = if invariants::is_interrupted(result, recorded_run) { "cut short, " } else { "" };
        format!("{} {cut_short}{}", recorded_run.tape.run(), format_state(&recorded_run.tape.state()))
    }));
    if result.channels.has_any {
        lines.push("\n# channels heard".to_owned());
        lines.extend(result.channels.accepted_messages.iter().map(format_accepted));
        lines.push("\n# deliveries".to_owned());
        lines.extend(result.log.delivered.iter().map(|(at, report)| delivered(at.as_millis(), report)));
        let pending = result
            .channels
            .outbox
            .iter()
            .filter(|row| !row.state.is_final() && !matches!(row.state, DeliveryState::Unknown { .. }));
        lines.extend(pending.map(|row| format!("{} waits", row.delivery.id)));
    }
    lines.push("\n# transcript".to_owned());
    for (key, session) in &result.sessions {
        lines.push(format!("{key} {}", json!(session.record)));
        lines.extend(session.entries.iter().map(format_entry));
    }
    for (key, session, entries) in &result.past_transcripts {
        lines.push(format!("{key} had {session}"));
        lines.extend(entries.iter().map(format_entry));
    }
    result.replace_path(&lines.join("\n"))
}

fn answers(act: &TraceAct, frames: &[RecordedResponse]) -> Vec<String> {
    let mut lines = vec![format!("{}ms {}", act.at.as_millis(), act.text)];
    for RecordedResponse { at, three, four } in frames {
        let at = at.as_millis();
        if three == four {
            lines.push(format!("  {at}ms {four}"));
        } else {
            lines.push(format!("  {at}ms p4 {four}"));
            lines.push(format!("  {at}ms p3 {three}"));
        }
    }
    lines
}

/// Formats payloads in order of time, with the payload's own timestamp if it differs from the time of arrival.
fn events(result: &TraceResult) -> Vec<String> {
    let log = &result.log;
    // Order of lines with the same number of payloads before them.
    const TAPE_ONLY: u8 = 0;
    const RESTART: u8 = 1;
    const PAYLOAD: u8 = 2;
    let mut lines: Vec<_> = (0..)
        .zip(&log.payloads)
        .map(|(position, recorded)| (position, PAYLOAD, recorded.at, event(recorded)))
        .collect();
    lines.extend(log.restarts.iter().map(|(at, position)| {
        let line = format!("{}ms -- restart --", at.as_millis());
        (*position, RESTART, *at, line)
    }));
    lines.extend(log.tape_only.iter().map(|(at, position, run, text)| {
        let line = format!("{}ms {} ({text})", at.as_millis(), log.runs[*run].tape.run());
        (*position, TAPE_ONLY, *at, line)
    }));
    lines.sort_by_key(|(position, kind, at, _)| (*position, *at, *kind));
    lines.sort_by_key(|(_, _, at, _)| *at);
    lines.into_iter().map(|(_, _, _, line)| line).collect()
}

fn event(recorded: &RecordedPayload) -> String {
    let payload = &recorded.payload;
    let ts = u128::from(payload.ts.saturating_sub(EPOCH_MS));
    let at = recorded.at.as_millis();
    let late = if ts == at { String::new() } else { format!(" (ts {ts}ms)") };
    let stream = json!(payload.stream);
    let seq = payload.seq.unwrap_or_default();
    let (run, stream) = (&payload.run_id, stream.as_str().unwrap_or_default());
    format!("{at}ms {run} {seq} {stream}{late} {}", abridged(&payload.data))
}

fn started(started_call: &StartedCall) -> String {
    let StartedCall { at, run, call, tool, .. } = started_call;
    format!("{}ms {run} {call} {tool}", at.as_millis())
}

fn format_accepted(accepted: &AcceptedMessage) -> String {
    let message = &accepted.message;
    let channel = message.channel.as_deref().unwrap_or_default();
    let mut line =
        format!("{}ms {channel}:{} {} {}", accepted.at.as_millis(), message.to, message.id, quoted(&message.text));
    let parts = [("account", &message.account), ("thread", &message.thread), ("reply to", &message.reply_to)];
    for (name, value) in parts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        line.push_str(&format!(" ({name} {value})"));
    }
    message.media.iter().for_each(|media| line.push_str(&format!(" {media:?}")));
    line
}

fn delivered(at: u128, report: &DeliveryReport) -> String {
    let state = match &report.state {
        DeliveryState::Sent { provider_id, .. } => format!("sent as {}", provider_id.as_deref().unwrap_or("?")),
        DeliveryState::Dead { .. } => "dead".to_owned(),
        DeliveryState::Unknown { .. } => "unknown".to_owned(),
        state @ (DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. }) => {
            format!("not over: {state:?}")
        }
    };
    let why = report.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{at}ms {} {state}{why}", report.id)
}

fn requests(recorded: &[RecordedRequest]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut prompts = Vec::new();
    let mut before = None;
    for (number, RecordedRequest { at, model, request }) in (1..).zip(recorded) {
        let by = if model == "script-1" { String::new() } else { format!(" {model}") };
        let thinks = request.thinking != ReasoningLevel::Off;
        let level = if thinks { format!(" thinking {}", request.thinking.as_str()) } else { String::new() };
        lines.push(format!("{number} at {}ms{by}{level}", at.as_millis()));
        let tools: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        let first: String = request.system.chars().take(40).collect();
        // The text of prompts has its own tests; here it only matters whether it changed.
        let known = prompts.iter().position(|prompt| *prompt == request.system);
        let prompt = known.unwrap_or_else(|| {
            prompts.push(request.system.clone());
            prompts.len() - 1
        });
        let limit = if request.allow_calls { "" } else { " (none may be called)" };
        let system_line = format!("  system {} {}, tools {}{limit}", prompt + 1, json!(first), tools.join(" "));
        // Printed only when it changed.
        if before.as_ref() != Some(&system_line) {
            lines.push(system_line.clone());
        }
        before = Some(system_line);
        lines.extend(request.messages.iter().map(|message| format!("  {}", format_message(message))));
    }
    lines
}

fn format_message(message: &Message) -> String {
    match message {
        Message::User(user) => {
            let mut line = format!("user {}", quoted(&user.content.text()));
            if let Content::Blocks(blocks) = &user.content {
                let others = blocks.iter().filter(|block| !matches!(block, Block::Text(_)));
                others.for_each(|block| line.push_str(&format!(" {}", format_block(block))));
            }
            line
        }
        Message::Assistant(answer) => {
            let mut line = "assistant".to_owned();
            answer.content.iter().for_each(|block| line.push_str(&format!(" {}", format_block(block))));
            match answer.stop_reason {
                StopReason::Stop | StopReason::ToolUse => {}
                StopReason::Length | StopReason::Error | StopReason::Aborted => {
                    line.push_str(&format!(" (stopped: {})", json!(answer.stop_reason).as_str().unwrap_or_default()));
                }
            }
            line
        }
        Message::ToolResult(result) => {
            let mut line = format!("result {}", result.tool_call_id);
            result.content.iter().for_each(|block| line.push_str(&format!(" {}", format_block(block))));
            if result.is_error {
                line.push_str(" (error)");
            }
            line
        }
        Message::Other(fields) => format!("other {}", json!(fields)),
    }
}

fn format_block(block: &Block) -> String {
    match block {
        Block::Text(text) => quoted(&text.text),
        Block::Thinking(thinking) => format!("thinking {}", quoted(&thinking.thinking)),
        Block::Image(image) => format!("image {}", image.mime_type),
        Block::ToolCall(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
        Block::Other(value) => format!("other {value}"),
    }
}

/// Formats the state of a run and its replies.
pub(crate) fn format_state(state: &TapeState) -> String {
    let mut line = match state {
        TapeState::Ended(end) => match &end.outcome {
            Outcome::Done => "done".to_owned(),
            Outcome::Aborted(reason) => format!("aborted ({reason:?})"),
            Outcome::Failed(failure) => format!("failed ({})", failure.message),
        },
        TapeState::Broken(why) => format!("broken ({why})"),
        TapeState::Queued => "still queued".to_owned(),
        TapeState::Running => "still at work".to_owned(),
        TapeState::Rejected => "refused".to_owned(),
    };
    if let TapeState::Ended(end) = state {
        // The error of a failed run is printed above.
        let is_printed = |reply: &&Payload| reply.kind != ReplyKind::Error || end.outcome == Outcome::Done;
        for reply in end.replies.iter().filter(is_printed) {
            line.push_str(&format!(" {}", quoted(&reply.text)));
        }
    }
    line
}

fn format_entry(entry: &Entry) -> String {
    let mut line = json!(entry);
    if let Kind::Message(entry_message) = &entry.kind
        && let Message::Assistant(assistant) = &entry_message.message
        && let Some(fields) = line.pointer_mut("/message").and_then(Value::as_object_mut)
    {
        let mut defaults = vec![("api", "scripted"), ("provider", "script"), ("model", "script-1")];
        defaults.retain(|(name, usual)| fields.get(*name).and_then(Value::as_str) == Some(usual));
        defaults.iter().for_each(|(name, _)| drop(fields.shift_remove(*name)));
        if assistant.usage == Usage::default() {
            fields.shift_remove("usage");
        }
    }
    abridged(&line).to_string()
}

/// Length above which the middle of a text is omitted, and length of the parts that are kept.
const ABRIDGE_ABOVE: usize = 1_000;
const ABRIDGED_SIDE: usize = 20;

fn abridged(value: &Value) -> Value {
    match value {
        Value::String(text) => abridge(text).into(),
        Value::Array(items) => items.iter().map(abridged).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), abridged(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn abridge(text: &str) -> String {
    let chars: Vec<_> = text.chars().collect();
    if chars.len() <= ABRIDGE_ABOVE {
        return text.to_owned();
    }
    let side = |part: &[char]| part.iter().collect::<String>();
    let (first, last) = (side(&chars[..ABRIDGED_SIDE]), side(&chars[chars.len() - ABRIDGED_SIDE..]));
    format!("{first}[… {} characters …]{last}", chars.len())
}

fn quoted(text: &str) -> String {
    json!(abridge(text)).to_string()
}
