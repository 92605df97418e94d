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

/// Builds a roster: each text is a rank, with comma-separated candidates in the given order.
pub(crate) fn roster(ranks: &[&str], book: Arc<HealthTracker>) -> Candidates {
    let rank = |names: &&str| CandidateRank {
        candidates: names.split(", ").map(candidate).collect(),
        order: CredentialOrder::Configured,
    };
    Candidates::new(ranks.iter().map(rank).collect(), book).unwrap()
}

fn names(order: &[Candidate]) -> Vec<&str> {
    order.iter().map(|candidate| &*candidate.profile).collect()
}

fn fails(book: &HealthTracker, profile: &str, now: u64) {
    book.change(|standing| standing.failed(profile, "m", &Error::new(ErrorKind::RateLimit, "no"), now));
}

#[test]
fn a_given_order_is_kept_and_whoever_rests_comes_last_by_the_end_of_the_rest() {
    let book = Arc::new(HealthTracker::default());
    let roster = roster(&["p/m as c, p/m as a, p/m as b", "q/n as d"], book.clone());
    assert_eq!(names(&roster.order(0, &PreferredCredential::Any)), ["c", "a", "b", "d"]);
    fails(&book, "c", 20);
    fails(&book, "a", 10);
    assert_eq!(names(&roster.order(30, &PreferredCredential::Any)), ["b", "d", "a", "c"]);
    assert_eq!(names(&roster.order(30_010, &PreferredCredential::Any)), ["a", "b", "d", "c"]);
}

#[test]
fn without_an_order_the_kind_counts_and_then_who_rested_longest() {
    let book = Arc::new(HealthTracker::default());
    let with = |name: &str, credential| Candidate { credential, ..candidate(name) };
    let candidates = vec![
        with("p/m as key", Credential::ApiKey),
        with("p/m as used", Credential::Token),
        with("p/m as used before", Credential::Token),
        with("p/m as fresh", Credential::Token),
        with("p/m as login", Credential::Oauth),
    ];
    book.change(|standing| {
        standing.succeeded("used", "m", 9);
        standing.succeeded("used before", "m", 8);
    });
    let roster = Candidates::new(vec![CandidateRank { candidates, order: CredentialOrder::RoundRobin }], book).unwrap();
    assert_eq!(names(&roster.order(10, &PreferredCredential::Any)), ["login", "fresh", "used before", "used", "key"]);
}

#[test]
fn a_sticky_credential_comes_first_unless_it_rests() {
    let book = Arc::new(HealthTracker::default());
    let roster = roster(&["p/m as a, p/m as b", "p/n as a, p/n as b"], book.clone());
    let sticky = PreferredCredential::Sticky("b".into());
    assert_eq!(names(&roster.order(0, &sticky)), ["b", "a", "b", "a"]);
    fails(&book, "b", 0);
    assert_eq!(names(&roster.order(0, &sticky)), ["a", "b", "a", "b"]);
}

#[test]
fn a_pinned_credential_is_the_only_one_of_its_provider_and_does_not_rest() {
    let book = Arc::new(HealthTracker::default());
    let roster = roster(&["p/m as a, p/m as b", "q/n as c, q/n as d"], book.clone());
    fails(&book, "b", 0);
    assert_eq!(names(&roster.order(0, &PreferredCredential::Pinned("b".into()))), ["b", "c", "d"]);
    assert_eq!(names(&roster.order(0, &PreferredCredential::Pinned("gone".into()))), ["a", "c", "d", "b"]);
}

#[test]
fn who_stands_twice_counts_once_and_nobody_is_no_roster() {
    let twice = roster(&["p/m as a", "q/n as c", "p/m as a, p/m as b"], Arc::default());
    assert_eq!(names(&twice.order(0, &PreferredCredential::Any)), ["a", "c", "b"]);
    assert!(
        Candidates::new(
            vec![CandidateRank { candidates: Vec::new(), order: CredentialOrder::Configured }],
            Arc::default()
        )
        .is_none()
    );
}
