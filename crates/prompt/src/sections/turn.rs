//! Prompt sections that may change from run to run: the caller's addition, the machine, the model.

use homard_store::PromptMode;

use super::{non_empty, sanitized};
use crate::input::PromptContext;

/// The caller's addition, under the headings that OpenClaw uses: a full prompt is usually extended for a group chat, a
/// shorter one for a sub-agent.
pub(super) fn extra(context: &PromptContext<'_>) -> Option<String> {
    let heading = match context.mode {
        PromptMode::Full => "## Group Chat Context",
        PromptMode::Minimal | PromptMode::None => "## Subagent Context",
    };
    Some(format!("{heading}\n{}", non_empty(context.turn.extra)?))
}

pub(super) fn runtime(context: &PromptContext<'_>) -> Option<String> {
    let level = sanitized(Some(context.turn.reasoning)).unwrap_or_else(|| "off".to_owned());
    let visibility = match level.as_str() {
        "on" => "the person reads your reasoning before the reply",
        "stream" => "the person reads your reasoning as it is streamed",
        _ => "the person does not see your reasoning",
    };
    let reasoning = format!("Reasoning: {level} ({visibility}; /reasoning changes it).");
    Some(format!("{}\n{reasoning}", short_runtime(context)?))
}

pub(super) fn short_runtime(context: &PromptContext<'_>) -> Option<String> {
    let turn = &context.turn;
    let runtime = &turn.runtime;
    let os = match (sanitized(runtime.os), sanitized(runtime.arch)) {
        (Some(os), Some(arch)) => Some(format!("{os} ({arch})")),
        (os, arch) => os.or(arch),
    };
    let fields = [
        ("agent", sanitized(Some(runtime.agent))),
        ("host", sanitized(runtime.host)),
        ("repo", sanitized(runtime.repo)),
        ("os", os),
        ("model", sanitized(runtime.model)),
        ("default_model", sanitized(runtime.default_model)),
        ("shell", sanitized(runtime.shell)),
        ("channel", sanitized(turn.channel)),
        ("thinking", Some(sanitized(Some(turn.thinking)).unwrap_or_else(|| "off".to_owned()))),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    Some(format!("## Runtime\nRuntime: {}", fields.collect::<Vec<_>>().join(" | ")))
}
