//! Model selection for a run: the agent's own candidates, or the model chosen for the session.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use homard_model::{
    Error, ErrorKind, Model, ReasoningLevel,
    candidates::{Candidates, PreferredCredential},
    failover::{Failover, FailoverTerms},
    retry::RetryLimits,
};
use homard_proto::{Extra, RunId, session::Record};
use homard_stdx::time::millis;
use serde_json::Value;

use crate::{
    Inbound,
    profile::{Profile, RetryTime},
};

/// Fields of a session's record with its model and credential overrides.
const MODEL: &str = "modelOverride";
const PROVIDER: &str = "providerOverride";
const CREDENTIAL: &str = "authProfileOverride";
const SOURCE: &str = "authProfileOverrideSource";

/// Model candidates and deadline of a run, and why no model can be asked, if so.
pub(super) struct ModelChoice {
    pub(super) failover: Failover,
    pub(super) deadline: Option<u64>,
    pub(super) model_error: Option<Error>,
}

/// What the model selection needs to know about a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelRequirements<'a> {
    /// Id of the run.
    pub(crate) run: &'a RunId,
    /// Thinking level that the message asks for.
    pub(crate) thinking: Option<&'a str>,
    /// True if a person waits for the reply.
    pub(crate) is_attended: bool,
}

impl<'a> From<&'a Inbound> for ModelRequirements<'a> {
    fn from(inbound: &'a Inbound) -> Self {
        let (thinking, is_attended) = (inbound.session.thinking.as_deref(), inbound.is_attended());
        Self { run: &inbound.id.run, thinking, is_attended }
    }
}

/// Selects the model candidates for a run of a session.
pub(super) fn choose(
    profile: &Profile,
    record: &mut Record,
    ModelRequirements { run, thinking: requested, is_attended }: ModelRequirements<'_>,
    at: u64,
    limit: Option<Duration>,
) -> ModelChoice {
    let (candidates, mut model_error) = match model_override(profile, record) {
        Some(Ok(candidates)) => (candidates, None),
        Some(Err(error)) => (profile.candidates.clone(), Some(error)),
        None => (profile.candidates.clone(), None),
    };
    let deadline = limit.map(|limit| at.saturating_add(millis(limit)));
    let mut seed = DefaultHasher::new();
    run.as_str().hash(&mut seed);
    let spec = candidates.first().spec();
    let level_name = record.thinking_level.as_deref().unwrap_or(profile.levels(spec).thinking);
    let mut level = ReasoningLevel::parse(level_name).unwrap_or_default();
    if level == ReasoningLevel::Xhigh && !spec.thinking.contains(&level) {
        // Not every model has the highest level: a message that asks for it now gets an error; a session that has it
        // already continues with `high`.
        if requested == Some(level.as_str()) {
            let text = format!("{}/{} does not support the thinking level xhigh; use high", spec.provider, spec.model);
            model_error.get_or_insert(Error::new(ErrorKind::Rejected, text));
        }
        level = ReasoningLevel::High;
        record.thinking_level = record.thinking_level.take().map(|_| level.as_str().to_owned());
    }
    let RetryTime { attended, unattended } = profile.retry.time;
    let limits = RetryLimits { total: if is_attended { attended } else { unattended }, ..profile.retry.limits };
    let terms = FailoverTerms { preferred: preferred(record), level, deadline, limits, seed: seed.finish() };
    ModelChoice { failover: Failover::begin(candidates, terms, at), deadline, model_error }
}

/// Returns the session's model as `provider/model`: the run's override, else the session's, else the agent's.
pub(crate) fn model_name(profile: &Profile, record: &Record) -> String {
    let text = |name: &str| record.extra.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(name) = &profile.run.model {
        return name.clone();
    }
    let spec = profile.spec();
    let provider = text(PROVIDER).filter(|_| text(MODEL).is_some()).unwrap_or(&spec.provider);
    format!("{provider}/{}", text(MODEL).unwrap_or(&spec.model))
}

/// Returns the session's model: its override, or the agent's own.
pub(crate) fn model(profile: &Profile, record: &Record) -> Arc<dyn Model> {
    match model_override(profile, record) {
        Some(Ok(candidates)) => candidates.first().clone(),
        Some(Err(_)) | None => profile.candidates.first().clone(),
    }
}

/// Returns the candidates of the session's model override; an error if that model does not exist.
fn model_override(profile: &Profile, record: &Record) -> Option<Result<Candidates, Error>> {
    let name = model_name(profile, record);
    let spec = profile.spec();
    if name == format!("{}/{}", spec.provider, spec.model) {
        return None;
    }
    let unavailable = |why| {
        let text = match profile.run.model {
            Some(_) => format!("{name} was chosen for this run, but {why}; send the message again with another model"),
            None => format!("{name} was chosen for this session, but {why}; choose another with /model"),
        };
        Error::new(ErrorKind::Rejected, text)
    };
    Some((profile.resolve_model)(&name).map_err(unavailable))
}

/// Resolves a model name or alias to `(provider, model)`, if it can be chosen for a session.
pub(super) fn resolve_model(profile: &Profile, name: &str) -> Result<(String, String), String> {
    let candidates = (profile.resolve_model)(name).map_err(|why| format!("{name} cannot be chosen: {why}"))?;
    let spec = candidates.first().spec();
    Ok((spec.provider.clone(), spec.model.clone()))
}

/// Replaces the model in changes of a record by its resolved name; an error if it does not exist. Every way to choose a
/// model goes through this function or [`resolve_model`].
pub(super) fn resolve_override(profile: &Profile, changes: &mut Extra) -> Result<(), String> {
    let text = |name: &str| changes.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let Some(model) = text(MODEL) else { return Ok(()) };
    let name = text(PROVIDER).map_or_else(|| model.to_owned(), |provider| format!("{provider}/{model}"));
    let agent_spec = profile.spec();
    let is_agent_model = name == format!("{}/{}", agent_spec.provider, agent_spec.model);
    let (provider, model) = if is_agent_model {
        (agent_spec.provider.clone(), agent_spec.model.clone())
    } else {
        resolve_model(profile, &name)?
    };
    changes.insert(PROVIDER.to_owned(), provider.into());
    changes.insert(MODEL.to_owned(), model.into());
    Ok(())
}

fn preferred(record: &Record) -> PreferredCredential {
    let text = |name: &str| record.extra.get(name).and_then(Value::as_str);
    match (text(CREDENTIAL), text(SOURCE)) {
        (Some(id), Some("user")) => PreferredCredential::Pinned(id.into()),
        (Some(id), _) => PreferredCredential::Sticky(id.into()),
        (None, _) => PreferredCredential::Any,
    }
}

/// Records the credential that the session prefers from now on, unless a person chose one.
pub(super) fn prefer_credential(record: &mut Record, credential: &Arc<str>) {
    if record.extra.get(SOURCE).and_then(Value::as_str) == Some("user") {
        return;
    }
    record.extra.insert(CREDENTIAL.to_owned(), credential.as_ref().into());
    record.extra.insert(SOURCE.to_owned(), "auto".into());
}
