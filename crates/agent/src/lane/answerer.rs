//! Who answers a run: the agent's own models, or the one that somebody chose for the session.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use homard_model::{
    Error, ErrorKind, Level,
    failover::{Failover, Terms},
    roster::{Preferred, Roster},
};
use homard_proto::{RunId, session::Record};
use serde_json::Value;

use crate::profile::Profile;

/// The members of a record that name the model and the credential of its session.
const MODEL: &str = "modelOverride";
const PROVIDER: &str = "providerOverride";
const CREDENTIAL: &str = "authProfileOverride";
const SOURCE: &str = "authProfileOverrideSource";

/// Who answers a run, when its time is up, and why nobody can, if so.
pub(super) struct Answerer {
    pub(super) failover: Failover,
    pub(super) deadline: Option<u64>,
    pub(super) trouble: Option<Error>,
}

/// Chooses who answers a run of a session.
pub(super) fn choose(
    profile: &Profile,
    record: &Record,
    run: &RunId,
    (at, limit): (u64, Option<Duration>),
) -> Answerer {
    let (roster, trouble) = match chosen(profile, record) {
        Some(Ok(roster)) => (roster, None),
        Some(Err(error)) => (profile.roster.clone(), Some(error)),
        None => (profile.roster.clone(), None),
    };
    let deadline = limit.map(|limit| at.saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
    let mut seed = DefaultHasher::new();
    run.as_str().hash(&mut seed);
    let asked = record.thinking_level.as_deref().and_then(Level::parse);
    let level = asked.unwrap_or(if roster.first().spec().thinking.is_empty() { Level::Off } else { Level::Low });
    let terms = Terms { preferred: preferred(record), level, deadline, limits: profile.limits, seed: seed.finish() };
    Answerer { failover: Failover::begin(roster, terms, at), deadline, trouble }
}

/// The name of the model that answers in a session, as `provider/model`.
pub(super) fn name(profile: &Profile, record: &Record) -> String {
    let text = |name: &str| record.extra.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let spec = profile.spec();
    let provider = text(PROVIDER).filter(|_| text(MODEL).is_some()).unwrap_or(&spec.provider);
    format!("{provider}/{}", text(MODEL).unwrap_or(&spec.model))
}

/// The model that somebody chose for the session; an error if there is none of that name.
fn chosen(profile: &Profile, record: &Record) -> Option<Result<Roster, Error>> {
    let name = name(profile, record);
    let spec = profile.spec();
    if name == format!("{}/{}", spec.provider, spec.model) {
        return None;
    }
    let no_such = |why| {
        Error::new(
            ErrorKind::Rejected,
            format!("{name} was chosen for this session, but {why}; choose another with /model"),
        )
    };
    Some((profile.choose)(&name).map_err(no_such))
}

fn preferred(record: &Record) -> Preferred {
    let text = |name: &str| record.extra.get(name).and_then(Value::as_str);
    match (text(CREDENTIAL), text(SOURCE)) {
        (Some(id), Some("user")) => Preferred::Pinned(id.into()),
        (Some(id), _) => Preferred::Sticky(id.into()),
        (None, _) => Preferred::Any,
    }
}

/// Notes which credential the session prefers from here on, unless a person chose one.
pub(super) fn prefer(record: &mut Record, credential: &Arc<str>) {
    if record.extra.get(SOURCE).and_then(Value::as_str) == Some("user") {
        return;
    }
    record.extra.insert(CREDENTIAL.to_owned(), credential.as_ref().into());
    record.extra.insert(SOURCE.to_owned(), "auto".into());
}
