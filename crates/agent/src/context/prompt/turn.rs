//! Prompt sections that may change from run to run: the caller's addition, the machine, the model.

use homard_store::PromptMode;

use super::{super::scene::Scene, known, words};

pub(super) fn extra(scene: &Scene<'_>) -> Option<String> {
    let heading = match scene.mode {
        PromptMode::Full => "## Group Chat Context",
        PromptMode::Minimal | PromptMode::None => "## Subagent Context",
    };
    Some(format!("{heading}\n{}", words(scene.turn.extra)?))
}

pub(super) fn runtime(scene: &Scene<'_>) -> Option<String> {
    let level = known(Some(scene.turn.reasoning)).unwrap_or_else(|| "off".to_owned());
    let seen = match level.as_str() {
        "on" => "the person reads your thoughts before the reply",
        "stream" => "the person reads your thoughts as they come",
        _ => "the person does not see your thoughts",
    };
    let reasoning = format!("Reasoning: {level} ({seen}; /reasoning changes it).");
    Some(format!("{}\n{reasoning}", short_runtime(scene)?))
}

pub(super) fn short_runtime(scene: &Scene<'_>) -> Option<String> {
    let turn = &scene.turn;
    let runtime = &turn.runtime;
    let os = match (known(runtime.os), known(runtime.arch)) {
        (Some(os), Some(arch)) => Some(format!("{os} ({arch})")),
        (os, arch) => os.or(arch),
    };
    let capabilities: Vec<_> = turn.capabilities.iter().filter_map(|capability| known(Some(capability))).collect();
    let capabilities = if capabilities.is_empty() { "none".to_owned() } else { capabilities.join(",") };
    let channel = known(turn.channel);
    let capabilities = channel.is_some().then_some(capabilities);
    let facts = [
        ("agent", known(Some(runtime.agent))),
        ("host", known(runtime.host)),
        ("repo", known(runtime.repo)),
        ("os", os),
        ("model", known(runtime.model)),
        ("default_model", known(runtime.default_model)),
        ("shell", known(runtime.shell)),
        ("channel", channel),
        ("capabilities", capabilities),
        ("thinking", Some(known(Some(turn.thinking)).unwrap_or_else(|| "off".to_owned()))),
    ];
    let facts = facts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    Some(format!("## Runtime\nRuntime: {}", facts.collect::<Vec<_>>().join(" | ")))
}
