//! What a model is told, by size, and what of it is other than the last time: that is where a provider's cache ends.

use std::hash::{DefaultHasher, Hash, Hasher};

use homard_model::{Request, Spec};
use homard_store::timeline::{Asked, Prompt};

use super::RunScope;
use crate::context::prompt::Part;

/// What the last question of a session began with. Small: it is kept with every open session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Prefix {
    model: (String, String),
    /// The sections of the system prompt.
    sections: Vec<(&'static str, u64)>,
    tools: u64,
    /// How many messages, and what the last one was.
    messages: (usize, u64),
}

impl Prefix {
    fn of(spec: &Spec, parts: &[Part], request: &Request) -> Self {
        let mut rest = &*request.system;
        let sections = parts.iter().map(|part| {
            let end = rest.char_indices().nth(part.chars).map_or(rest.len(), |(end, _)| end);
            let (section, others) = rest.split_at(end);
            rest = others;
            (part.name, hashed(section))
        });
        let sections: Vec<_> = sections.collect();
        let names: Vec<_> = request.tools.iter().map(|tool| (&tool.name, &tool.description)).collect();
        Self {
            model: (spec.provider.clone(), spec.model.clone()),
            sections,
            tools: hashed(&names),
            messages: (
                request.messages.len(),
                request.messages.len().checked_sub(1).map_or(0, |last| line(request, last)),
            ),
        }
    }

    /// What is other than in the question before; `None` if there is only more at the end.
    fn changed(&self, before: &Self, request: &Request) -> Option<String> {
        if self.model != before.model {
            return Some("model".to_owned());
        }
        if self.tools != before.tools {
            return Some("tools".to_owned());
        }
        let other = |at: &usize| self.sections.get(*at) != before.sections.get(*at);
        if let Some(at) = (0..self.sections.len().max(before.sections.len())).find(other) {
            let name = self.sections.get(at).or_else(|| before.sections.get(at)).map_or("", |(name, _)| name);
            return Some(format!("system prompt: {name}"));
        }
        let (count, last) = before.messages;
        let is_longer = count == 0 || (request.messages.len() >= count && line(request, count - 1) == last);
        (!is_longer).then(|| "conversation".to_owned())
    }
}

impl RunScope {
    /// What a question is about that takes so many tokens.
    pub(super) fn asked(&mut self, spec: &Spec, request: &Request, tokens: u64) -> Asked {
        let shortened = self.written.as_mut().and_then(|written| written.shortened.take());
        let parts = self.written.as_ref().map(|written| written.prompt.parts.as_slice()).unwrap_or_default();
        let prefix = Prefix::of(spec, parts, request);
        let before = self.margin.ask(prefix.clone());
        let is_new = before.as_ref().is_none_or(|before| before.sections != prefix.sections);
        let sections = parts.iter().filter(|_| is_new).map(|part| (part.name.to_owned(), part.chars as u64));
        let prompt = Prompt {
            sections: sections.collect(),
            system: parts.iter().map(|part| part.chars as u64).sum(),
            tools: request.tools.len() as u64,
            messages: request.messages.len() as u64,
            tokens,
            changed: before.map_or_else(|| Some(String::new()), |before| prefix.changed(&before, request)),
            pruned: self.pruned(spec),
            shortened,
        };
        Asked {
            provider: spec.provider.clone(),
            model: spec.model.clone(),
            profile: named(&self.failover.candidate().profile),
            prompt,
            ..Asked::default()
        }
    }
}

/// The name of a credential, where there is one.
fn named(profile: &str) -> Option<String> {
    Some(profile.to_owned()).filter(|name| !matches!(name.as_str(), "" | "none"))
}

/// What a message of a request says, in a number.
fn line(request: &Request, at: usize) -> u64 {
    request.messages.get(at).and_then(|message| serde_json::to_vec(&**message).ok()).map_or(0, |text| hashed(&text))
}

fn hashed(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
