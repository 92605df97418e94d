//! Tests of the candidate order.

use futures_util::{StreamExt, stream};

use super::*;
use crate::{Error, ErrorKind, EventStream, ModelEvent, ModelSpec, ReasoningLevel, Request};

/// A model that has only a name: the order is decided without requests.
struct NamedModel(ModelSpec);

impl Model for NamedModel {
    fn spec(&self) -> &ModelSpec {
        &self.0
    }

    fn stream(&self, _: Request) -> EventStream {
        stream::empty::<ModelEvent>().boxed()
    }
}

/// Builds a candidate from `anthropic/claude as anthropic:work`, with an API key and the levels low and high.
pub(crate) fn candidate(name: &str) -> Candidate {
    let (model, profile) = name.split_once(" as ").unwrap();
    let (provider, model) = model.split_once('/').unwrap();
    let spec = ModelSpec {
        provider: provider.to_owned(),
        model: model.to_owned(),
        thinking: vec![ReasoningLevel::Low, ReasoningLevel::High],
        ..ModelSpec::default()
    };
    Candidate { model: Arc::new(NamedModel(spec)), profile: profile.into(), credential: Credential::ApiKey }
}

/// Builds a chain of candidates: each string is a rank, with comma-separated candidates in the given order.
pub(crate) fn chain(ranks: &[&str], tracker: Arc<HealthTracker>) -> Candidates {
    let rank = |list: &&str| CandidateRank {
        candidates: list.split(", ").map(candidate).collect(),
        order: CredentialOrder::Configured,
    };
    Candidates::new(ranks.iter().map(rank).collect(), tracker).unwrap()
}

fn profiles(order: &[Candidate]) -> Vec<&str> {
    order.iter().map(|candidate| &*candidate.profile).collect()
}

fn record_failure(tracker: &HealthTracker, profile: &str, now: u64) {
    tracker.change(|health| health.failed(profile, "m", &Error::new(ErrorKind::RateLimit, "no"), now));
}

#[test]
fn a_configured_order_is_kept_and_cooldowns_come_last_by_their_end() {
    let tracker = Arc::new(HealthTracker::default());
    let chain = chain(&["p/m as c, p/m as a, p/m as b", "q/n as d"], tracker.clone());
    assert_eq!(profiles(&chain.order(0, &PreferredCredential::Any)), ["c", "a", "b", "d"]);
    record_failure(&tracker, "c", 20);
    record_failure(&tracker, "a", 10);
    assert_eq!(profiles(&chain.order(30, &PreferredCredential::Any)), ["b", "d", "a", "c"]);
    assert_eq!(profiles(&chain.order(30_010, &PreferredCredential::Any)), ["a", "b", "d", "c"]);
}

#[test]
fn round_robin_sorts_by_kind_then_least_recently_used() {
    let tracker = Arc::new(HealthTracker::default());
    let with = |name: &str, credential| Candidate { credential, ..candidate(name) };
    let candidates = vec![
        with("p/m as key", Credential::ApiKey),
        with("p/m as used", Credential::Token),
        with("p/m as used before", Credential::Token),
        with("p/m as fresh", Credential::Token),
        with("p/m as login", Credential::Oauth),
    ];
    tracker.change(|health| {
        health.succeeded("used", "m", 9);
        health.succeeded("used before", "m", 8);
    });
    let chain =
        Candidates::new(vec![CandidateRank { candidates, order: CredentialOrder::RoundRobin }], tracker).unwrap();
    assert_eq!(profiles(&chain.order(10, &PreferredCredential::Any)), ["login", "fresh", "used before", "used", "key"]);
}

#[test]
fn a_sticky_credential_comes_first_unless_it_is_in_cooldown() {
    let tracker = Arc::new(HealthTracker::default());
    let chain = chain(&["p/m as a, p/m as b", "p/n as a, p/n as b"], tracker.clone());
    let sticky = PreferredCredential::Sticky("b".into());
    assert_eq!(profiles(&chain.order(0, &sticky)), ["b", "a", "b", "a"]);
    record_failure(&tracker, "b", 0);
    assert_eq!(profiles(&chain.order(0, &sticky)), ["a", "b", "a", "b"]);
}

// Pitfall 72.
#[test]
fn a_pinned_credential_is_the_only_one_of_its_provider_and_ignores_cooldowns() {
    let tracker = Arc::new(HealthTracker::default());
    let chain = chain(&["p/m as a, p/m as b", "q/n as c, q/n as d"], tracker.clone());
    record_failure(&tracker, "b", 0);
    assert_eq!(profiles(&chain.order(0, &PreferredCredential::Pinned("b".into()))), ["b", "c", "d"]);
    assert_eq!(profiles(&chain.order(0, &PreferredCredential::Pinned("gone".into()))), ["a", "c", "d", "b"]);
}

#[test]
fn duplicates_are_removed_and_an_empty_list_is_none() {
    let twice = chain(&["p/m as a", "q/n as c", "p/m as a, p/m as b"], Arc::default());
    assert_eq!(profiles(&twice.order(0, &PreferredCredential::Any)), ["a", "c", "b"]);
    assert!(
        Candidates::new(
            vec![CandidateRank { candidates: Vec::new(), order: CredentialOrder::Configured }],
            Arc::default()
        )
        .is_none()
    );
}
