//! Fingerprint of a model request: sizes for the timeline, and the first difference from the previous request, where a
//! provider's prompt cache ends.

use std::hash::{DefaultHasher, Hash, Hasher};

use homard_model::{ModelSpec, Request};
use homard_prompt::sections::PromptSection;
use homard_request_log::{LoggedPrompt, LoggedSection, LoggedTool, PromptId, RequestLog};
use homard_store::timeline::{ModelRequestSpan, PromptStats};

use super::{RunScope, prune};

/// Fingerprint of a session's last request prefix. Small, because every open session keeps one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PromptFingerprint {
    model: (String, String),
    /// Sections of the system prompt.
    sections: Vec<(&'static str, u64)>,
    tools: u64,
    /// Number of messages, and the hash of the last one.
    messages: (usize, u64),
    /// Id of the system prompt and the tools in the request log, if they are kept there.
    id: Option<PromptId>,
}

impl PromptFingerprint {
    fn of(spec: &ModelSpec, parts: &[PromptSection], request: &Request) -> Self {
        let sections = section_texts(parts, &request.system).map(|(name, text)| (name, hashed(text))).collect();
        let names: Vec<_> = request.tools.iter().map(|tool| (&tool.name, &tool.description)).collect();
        Self {
            model: (spec.provider.clone(), spec.model.clone()),
            sections,
            tools: hashed(&names),
            messages: (
                request.messages.len(),
                request.messages.len().checked_sub(1).map_or(0, |last| message_hash(request, last)),
            ),
            id: None,
        }
    }

    /// True if the system prompt and the tools equal those of another request.
    fn has_prompt_of(&self, other: &Self) -> bool {
        self.sections == other.sections && self.tools == other.tools
    }

    /// Returns the first part that differs from the previous request; `None` if messages were only appended.
    fn first_change(&self, previous: &Self, request: &Request) -> Option<String> {
        if self.model != previous.model {
            return Some("model".to_owned());
        }
        if self.tools != previous.tools {
            return Some("tools".to_owned());
        }
        let differs = |index: &usize| self.sections.get(*index) != previous.sections.get(*index);
        if let Some(index) = (0..self.sections.len().max(previous.sections.len())).find(differs) {
            let name = self.sections.get(index).or_else(|| previous.sections.get(index)).map_or("", |(name, _)| name);
            return Some(format!("system prompt: {name}"));
        }
        let (count, last) = previous.messages;
        let is_longer = count == 0 || (request.messages.len() >= count && message_hash(request, count - 1) == last);
        (!is_longer).then(|| "conversation".to_owned())
    }
}

/// Describes a request of this many tokens for the timeline.
pub(super) fn describe_request(
    scope: &mut RunScope,
    spec: &ModelSpec,
    request: &Request,
    tokens: u64,
) -> ModelRequestSpan {
    let shortened = scope.prompt.rendered.as_mut().and_then(|rendered| rendered.shortened.take());
    let parts = scope.prompt.rendered.as_ref().map(|rendered| rendered.prompt.parts.as_slice()).unwrap_or_default();
    let mut fingerprint = PromptFingerprint::of(spec, parts, request);
    let known = scope.context.stats.fingerprint().filter(|previous| fingerprint.has_prompt_of(previous));
    fingerprint.id = match known.and_then(|previous| previous.id) {
        Some(id) => Some(id),
        None => keep(&scope.io.hub.config.rules().request_log, parts, request),
    };
    let id = fingerprint.id.map(|id| id.to_string());
    let previous = scope.context.stats.set_fingerprint(fingerprint.clone());
    let is_new = previous.as_ref().is_none_or(|previous| previous.sections != fingerprint.sections);
    let sections = parts.iter().filter(|_| is_new).map(|part| (part.name.to_owned(), part.chars as u64));
    let prompt = PromptStats {
        sections: sections.collect(),
        system: parts.iter().map(|part| part.chars as u64).sum(),
        tools: request.tools.len() as u64,
        messages: request.messages.len() as u64,
        tokens,
        changed: previous.map_or_else(|| Some(String::new()), |previous| fingerprint.first_change(&previous, request)),
        pruned: prune::pruned_count(scope, spec),
        shortened,
        id,
    };
    ModelRequestSpan {
        provider: spec.provider.clone(),
        model: spec.model.clone(),
        profile: credential_name(&scope.model.failover.candidate().profile),
        prompt,
        ..ModelRequestSpan::default()
    }
}

/// Keeps the system prompt and the tools of a request. Returns their id, if the log keeps them.
fn keep(log: &RequestLog, parts: &[PromptSection], request: &Request) -> Option<PromptId> {
    if !log.is_enabled() {
        return None;
    }
    let sections = section_texts(parts, &request.system)
        .map(|(name, text)| LoggedSection { name: name.to_owned(), text: text.to_owned() });
    let tools = request.tools.iter().map(|tool| LoggedTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
    });
    log.keep(&LoggedPrompt { sections: sections.collect(), tools: tools.collect() })
}

/// Returns the name and the text of each section of a system prompt.
fn section_texts<'a>(parts: &'a [PromptSection], system: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
    let mut rest = system;
    parts.iter().map(move |part| {
        let end = rest.char_indices().nth(part.chars).map_or(rest.len(), |(end, _)| end);
        let (section, remainder) = rest.split_at(end);
        rest = remainder;
        (part.name, section)
    })
}

/// Returns the name of a credential, if it has one.
fn credential_name(profile: &str) -> Option<String> {
    Some(profile.to_owned()).filter(|name| !matches!(name.as_str(), "" | "none"))
}

/// Returns the hash of a message in a request.
fn message_hash(request: &Request, index: usize) -> u64 {
    request.messages.get(index).and_then(|message| serde_json::to_vec(&**message).ok()).map_or(0, |text| hashed(&text))
}

fn hashed(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
