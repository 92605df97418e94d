//! Replies to `/status` and `/help`.

use std::time::Duration;

use homard_proto::{RunId, SessionKey, session::Record};
use homard_queue::settings::QueueSettings;

use super::{
    levels::{DefaultLevels, LevelSetting},
    new_transcript::Triggers,
};

/// Inputs of command replies.
#[derive(Debug, Clone, Copy)]
pub struct StatusInput<'a> {
    /// Homard's version.
    pub version: &'a str,
    /// Current model, as `provider/model`.
    pub model: &'a str,
    /// Models that may be chosen, as `provider/model`; empty if any may be.
    pub models: &'a [String],
    /// Key of the session.
    pub key: &'a SessionKey,
    /// Record of the session.
    pub record: &'a Record,
    /// Tokens of its next request; `None` if there is no message yet.
    pub tokens: Option<u64>,
    /// What its prompt omits or truncates, and which setting changes that.
    pub shortened: Option<&'a str>,
    /// Queue settings.
    pub queue: QueueSettings,
    /// Number of queued messages.
    pub queued: usize,
    /// The active run and its duration so far.
    pub active_run: Option<(&'a RunId, Duration)>,
    /// Words that start a new transcript.
    pub triggers: &'a Triggers,
    /// Default levels.
    pub levels: DefaultLevels,
    /// True if its model supports the thinking level `xhigh`.
    pub has_xhigh: bool,
}

/// Builds the reply to `/status`.
pub(super) fn status(input: &StatusInput<'_>) -> String {
    let StatusInput { version, model, key, record, queue, queued, .. } = input;
    let run = match input.active_run {
        Some((run, elapsed)) => format!("{run}, active for {}", format_duration(elapsed)),
        None => "none".to_owned(),
    };
    let shortened = input.shortened.map(|shortened| format!("Prompt: {shortened}"));
    let lines = [
        format!("Homard {version}"),
        format!("Model: {model}{}", last_model(model, record)),
        format!("Session: {key} (id {})", record.session_id),
        format!("Context: {}; compactions: {}", context(input.tokens, record.context_tokens), compactions(record)),
        format!(
            "Thinking: {}; verbose: {}; reasoning: {}",
            LevelSetting::Thinking.current(input),
            LevelSetting::Verbose.current(input),
            LevelSetting::Reasoning.current(input)
        ),
        format!("Queue: {queue}; waiting: {queued}"),
        format!("Run: {run}"),
    ];
    lines.into_iter().chain(shortened).collect::<Vec<_>>().join("\n")
}

/// Names the model of the last answer, if it differs from the chosen one.
fn last_model(chosen: &str, record: &Record) -> String {
    let used = record.model_provider.as_deref().zip(record.model.as_deref());
    let used = used.map(|(provider, model)| format!("{provider}/{model}")).filter(|used| used != chosen);
    used.map(|used| format!(" (the last answer came from {used})")).unwrap_or_default()
}

fn context(tokens: Option<u64>, window: Option<u64>) -> String {
    match (tokens, window) {
        (Some(used), Some(window)) if window > 0 => {
            // In a wider type, so that wrong values cannot overflow.
            let percent = u128::from(used) * 100 / u128::from(window);
            format!("{used} of {window} tokens ({percent} %)")
        }
        (Some(used), _) => format!("{used} tokens"),
        (None, Some(window)) => format!("nothing yet of {window} tokens"),
        (None, None) => "nothing yet".to_owned(),
    }
}

fn compactions(record: &Record) -> u64 {
    record.extra.get("compactionCount").and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// Formats a duration in its two largest units.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} m {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} m"),
    }
}

/// A command in lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInfo {
    /// Names, the usual one first.
    pub names: Vec<String>,
    /// Arguments, such as `[level]`; empty if there are none.
    pub arguments: &'static str,
    /// Description.
    pub meaning: String,
}

/// Returns every command, in the order of the help.
pub fn all_commands(triggers: &Triggers) -> Vec<CommandInfo> {
    let row =
        |names: Vec<String>, arguments, meaning: &str| CommandInfo { names, arguments, meaning: meaning.to_owned() };
    let level = |level: LevelSetting, meaning: &str| {
        row(level.commands().iter().map(|&name| name.to_owned()).collect(), "[level]", meaning)
    };
    let plain = |names: &[&str], arguments, meaning: &str| {
        row(names.iter().map(|&name| name.to_owned()).collect(), arguments, meaning)
    };
    let commands = [
        row(triggers.names().to_vec(), "[message]", "start a new transcript; the message becomes its first message"),
        plain(&["/stop"], "", "stop the run and clear the queue; during a run, the word stop alone does the same"),
        plain(&["/queue"], "[mode] [option:value]", "what happens to messages that arrive during a run"),
        level(LevelSetting::Thinking, "how much the model reasons before it answers"),
        level(LevelSetting::Verbose, "how much you see of tool calls"),
        level(LevelSetting::Reasoning, "whether you see the model's reasoning"),
        plain(&["/model"], "[provider/model]", "which model answers"),
        plain(&["/approve"], "<id> <decision>", "decide on a pending command: allow-once, allow-always or deny"),
        level(LevelSetting::Usage, "whether replies show their token usage"),
        plain(&["/compact"], "[focus]", "compact the conversation; undo it with homard sessions compactions"),
        plain(&["/context"], "[detail|json]", "show the context that precedes the conversation"),
        plain(&["/status"], "", "show the state of this session"),
        plain(&["/help", "/commands"], "", "show this list"),
    ];
    commands.into_iter().filter(|command| !command.names.is_empty()).collect()
}

/// Builds the reply to `/help`.
pub(super) fn help(triggers: &Triggers) -> String {
    let mut lines = vec!["Commands:".to_owned()];
    for CommandInfo { names, arguments, meaning } in all_commands(triggers) {
        let usage = [names.join(", ").as_str(), arguments].join(" ");
        lines.push(format!("{}: {meaning}", usage.trim_end()));
    }
    lines.push("A setting without a value shows the current value and the choices; default resets it.".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::TestSession, *};

    #[test]
    fn help_names_every_command() {
        let expected = "\
Commands:
/new, /reset [message]: start a new transcript; the message becomes its first message
/stop: stop the run and clear the queue; during a run, the word stop alone does the same
/queue [mode] [option:value]: what happens to messages that arrive during a run
/think, /thinking, /t [level]: how much the model reasons before it answers
/verbose, /v [level]: how much you see of tool calls
/reasoning, /reason [level]: whether you see the model's reasoning
/model [provider/model]: which model answers
/approve <id> <decision>: decide on a pending command: allow-once, allow-always or deny
/usage [level]: whether replies show their token usage
/compact [focus]: compact the conversation; undo it with homard sessions compactions
/context [detail|json]: show the context that precedes the conversation
/status: show the state of this session
/help, /commands: show this list
A setting without a value shows the current value and the choices; default resets it.";
        assert_eq!(TestSession::new(json!({})).execute("/help"), (json!({}), expected.to_owned()));
    }

    #[test]
    fn help_lists_the_configured_triggers() {
        let second = |words: &[&str]| help(&Triggers::new(words)).lines().nth(1).unwrap().to_owned();
        assert_eq!(second(&["Anew"]), "anew [message]: start a new transcript; the message becomes its first message");
        let stop = "/stop: stop the run and clear the queue; during a run, the word stop alone does the same";
        assert_eq!(second(&[]), stop);
    }

    #[test]
    fn status_of_a_busy_session() {
        let record = json!({
            "totalTokens": 50_100, "contextTokens": 200_000, "compactionCount": 2,
            "thinkingLevel": "high", "verboseLevel": "full", "reasoningLevel": "stream",
        });
        let expected = "\
Homard 1.2.3
Model: anthropic/opus
Session: agent:main:main (id s-1)
Context: 50100 of 200000 tokens (25 %); compactions: 2
Thinking: high; verbose: full; reasoning: stream
Queue: steer debounce:500ms cap:20 drop:summarize; waiting: 2
Run: run-1, active for 1 m 5 s";
        let session = TestSession { is_busy: true, ..TestSession::new(record) };
        assert_eq!(session.execute("/status"), (json!({}), expected.to_owned()));
    }

    #[test]
    fn status_of_a_new_session() {
        let expected = "\
Homard 1.2.3
Model: anthropic/opus
Session: agent:main:main (id s-1)
Context: nothing yet; compactions: 0
Thinking: off; verbose: off; reasoning: off
Queue: steer debounce:500ms cap:20 drop:summarize; waiting: 0
Run: none";
        assert_eq!(TestSession::new(json!({})).execute("/status"), (json!({}), expected.to_owned()));
    }

    /// Acceptance D13: after a fallback only the trace named the model that had answered.
    #[test]
    fn status_shows_the_fallback_model_of_the_last_answer() {
        let model_line = |model: &str| {
            let (_, reply) = TestSession::new(json!({"modelProvider": "anthropic", "model": model})).execute("/status");
            reply.lines().nth(1).map(str::to_owned)
        };
        assert_eq!(
            model_line("haiku").as_deref(),
            Some("Model: anthropic/opus (the last answer came from anthropic/haiku)")
        );
        assert_eq!(model_line("opus").as_deref(), Some("Model: anthropic/opus"));
    }

    #[test]
    fn status_shows_what_the_prompt_omits() {
        let session = TestSession::new(json!({}));
        let input = StatusInput { shortened: Some("it is lean; set it to rich"), ..session.status_input() };
        assert!(status(&input).ends_with("Run: none\nPrompt: it is lean; set it to rich"));
    }

    #[test]
    fn the_context_size_is_formatted_as_far_as_known() {
        assert_eq!(context(Some(7), Some(0)), "7 tokens");
        assert_eq!(context(None, Some(9)), "nothing yet of 9 tokens");
        let full = context(Some(u64::MAX), Some(u64::MAX));
        assert_eq!(full, "18446744073709551615 of 18446744073709551615 tokens (100 %)");
    }

    #[test]
    fn durations_are_formatted_in_two_units() {
        let formatted = [0, 59, 60, 3_599, 3_600, 90_061].map(|seconds| format_duration(Duration::from_secs(seconds)));
        assert_eq!(formatted, ["0 s", "59 s", "1 m 0 s", "59 m 59 s", "1 h 0 m", "25 h 1 m"]);
    }
}
