//! Tests of the candidate order and of the combined error.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    candidates::tests::{candidate, chain},
    profile_health::HealthTracker,
};

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, format!("{kind:?}"))
}

fn begin(ranks: &[&str], terms: FailoverTerms) -> (Failover, Arc<HealthTracker>) {
    let tracker = Arc::new(HealthTracker::default());
    (Failover::begin(chain(ranks, tracker.clone()), terms, 0), tracker)
}

fn current(failover: &Failover) -> String {
    format!("{:?}", failover.candidate())
}

fn note_lines(failover: &Failover) -> Vec<String> {
    failover.notes().iter().map(ToString::to_string).collect()
}

fn note(name: &str, outcome: CandidateOutcome, reason: &str, why: &str) -> CandidateNote {
    CandidateNote { candidate: candidate(name), outcome, reason: reason.to_owned(), why: why.to_owned() }
}

// Case 174, case 213: a rate limit without a retry delay moves on to the next at once and starts a cooldown.
#[test]
fn a_rate_limited_profile_is_followed_by_the_next_and_cools_down() {
    let (mut failover, tracker) = begin(&["p/m as a, p/m as b"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::RateLimit), 0), FailoverStep::Next);
    assert_eq!(current(&failover), "p/m as b");
    assert_eq!(failover.notes(), [note("p/m as a", CandidateOutcome::Failed, "rate_limit", "RateLimit")]);
    failover.succeeded(10);
    assert_eq!(tracker.snapshot().cooldown("a", "m", 10).unwrap().until, 30_000);
    assert_eq!(failover.sticky().map(|profile| &**profile), Some("b"));
}

// Case 176.
#[test]
fn a_pinned_profile_is_not_rotated_but_the_next_model_is_tried() {
    let terms = FailoverTerms { preferred: PreferredCredential::Pinned("b".into()), ..FailoverTerms::default() };
    let (mut failover, _) = begin(&["p/m as a, p/m as b", "q/n as c"], terms);
    assert_eq!(current(&failover), "p/m as b");
    assert_eq!(failover.failed(&error(ErrorKind::Auth), 0), FailoverStep::Next);
    assert_eq!(current(&failover), "q/n as c");
}

// Case 177, pitfall 70. A candidate in cooldown is tried only if no other is left.
#[test]
fn a_provider_in_cooldown_is_skipped_with_a_reason_and_tried_last() {
    let tracker = Arc::new(HealthTracker::default());
    tracker.change(|health| health.failed("a", "m", &error(ErrorKind::RateLimit), 0));
    let mut failover = Failover::begin(chain(&["p/m as a", "q/n as c"], tracker), FailoverTerms::default(), 1);
    assert_eq!(current(&failover), "q/n as c");
    let skipped = note("p/m as a", CandidateOutcome::Skipped, "rate_limit", "not tried, in cooldown for another 30 s");
    assert_eq!(failover.notes(), [skipped]);
    assert_eq!(failover.failed(&error(ErrorKind::Billing), 2), FailoverStep::Next);
    assert_eq!(current(&failover), "p/m as a");
    let FailoverStep::End(all) = failover.failed(&error(ErrorKind::Auth), 3) else { panic!("a model is left") };
    assert!(all.message.starts_with("no model answered: q/n: Billing (billing) | p/m: Auth (auth); "), "{all}");
}

#[test]
fn a_wrong_address_or_api_is_tried_once_then_the_next() {
    let (mut failover, tracker) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::Misconfigured), 0), FailoverStep::Next);
    assert_eq!(current(&failover), "q/n as c");
    assert_eq!(failover.notes(), [note("p/m as a", CandidateOutcome::Failed, "model_not_found", "Misconfigured")]);
    assert!(tracker.snapshot().cooldown("a", "m", 1).is_some());
    assert!(
        matches!(failover.failed(&error(ErrorKind::Misconfigured), 1), FailoverStep::End(_)),
        "nobody is asked again"
    );
}

// Case 178.
#[test]
fn an_invalid_request_is_sent_once() {
    for kind in [ErrorKind::Rejected, ErrorKind::ContentFilter] {
        let (mut failover, tracker) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
        assert_eq!(failover.failed(&error(kind), 0), FailoverStep::End(error(kind)));
        assert_eq!(tracker.snapshot(), crate::profile_health::ProfileHealth::default());
    }
}

#[test]
fn a_missing_model_fails_over_to_the_next() {
    let (mut failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    let not_found = Error { status: Some(404), ..error(ErrorKind::Rejected) };
    assert_eq!(failover.failed(&not_found, 0), FailoverStep::Next);
    assert_eq!(note_lines(&failover), ["p/m: Rejected (model_not_found)"]);
}

// Case 179, and 17 candidates of which only the last works.
#[test]
fn every_candidate_is_tried_and_each_failure_has_a_reason() {
    let ranks: Vec<_> = (0..17).map(|n| format!("p{n}/m as k{n}")).collect();
    let ranks: Vec<_> = ranks.iter().map(String::as_str).collect();
    let kinds = [ErrorKind::Auth, ErrorKind::Billing, ErrorKind::Timeout, ErrorKind::RateLimit];
    let (mut failover, _) = begin(&ranks, FailoverTerms { deadline: Some(600_000), ..FailoverTerms::default() });
    for n in 0..16 {
        assert_eq!(failover.failed(&error(kinds[n % 4]), n as u64), FailoverStep::Next);
    }
    assert_eq!((current(&failover).as_str(), failover.notes().len()), ("p16/m as k16", 16));
    assert_eq!(failover.sticky(), None);
    let FailoverStep::End(all) = failover.failed(&error(ErrorKind::Auth), 17) else { panic!("a model is left") };
    assert_eq!((all.kind, all.message.matches(" | ").count()), (ErrorKind::Auth, 16));
    assert!(all.message.contains("p1/m: Billing (billing) | p2/m: Timeout (timeout) | p3/m: RateLimit (rate_limit)"));
    assert!(all.message.contains("`homard models status`"), "{all}");
}

// Case 180.
#[test]
fn a_rejected_level_is_replaced_by_each_offered_one_once() {
    let refusal = Error::new(ErrorKind::Rejected, "reasoning effort: supported values are: 'high', 'low'");
    let (mut failover, _) =
        begin(&["p/m as a", "q/n as c"], FailoverTerms { level: ReasoningLevel::Medium, ..FailoverTerms::default() });
    // The model has low and high, so medium was sent as high.
    assert_eq!(failover.failed(&refusal, 0), FailoverStep::RetryWithLevel(ReasoningLevel::Low));
    assert_eq!((failover.level(), current(&failover).as_str()), (ReasoningLevel::Low, "p/m as a"));
    assert_eq!(failover.failed(&error(ErrorKind::Auth), 0), FailoverStep::Next);
    assert_eq!((failover.level(), current(&failover).as_str()), (ReasoningLevel::Medium, "q/n as c"));
    assert_eq!(failover.failed(&refusal, 0), FailoverStep::RetryWithLevel(ReasoningLevel::Low));
    assert!(matches!(failover.failed(&refusal, 0), FailoverStep::End(_)));
}

// Case 214, pitfall 94.
#[test]
fn the_only_candidate_is_retried_until_the_budget_is_spent_then_cools_down() {
    let (mut failover, tracker) = begin(&["p/m as a"], FailoverTerms::default());
    let mut now = 0;
    for _ in 0..4 {
        let FailoverStep::RetryAfter(wait) = failover.failed(&error(ErrorKind::RateLimit), now) else {
            panic!("gave up too early")
        };
        now += wait.delay.as_millis() as u64;
    }
    let FailoverStep::End(end) = failover.failed(&error(ErrorKind::RateLimit), now) else { panic!("went on too long") };
    assert_eq!(end.message, format!("RateLimit (5 attempts in {} s)", now / 1_000));
    assert_eq!(tracker.snapshot().get("a").unwrap().cooldown_until, Some(now + 30_000));
}

#[test]
fn the_final_error_has_the_last_status_and_the_reason_of_each_candidate() {
    let (mut failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    let busy = |provider: &str, status: u16| Error {
        status: Some(status),
        ..Error::new(
            ErrorKind::Overloaded,
            format!("{provider} (host): HTTP {status}: busy; {}", ErrorKind::Overloaded.advice()),
        )
    };
    let mut now = 0;
    let mut last_error = None;
    for _ in 0..20 {
        failover.requested(now);
        let failure = if current(&failover) == "p/m as a" { busy("p", 503) } else { busy("q", 529) };
        match failover.failed(&failure, now) {
            FailoverStep::RetryAfter(wait) => now += wait.delay.as_millis() as u64,
            FailoverStep::Next => {}
            FailoverStep::End(error) => {
                last_error = Some(error);
                break;
            }
            step @ (FailoverStep::RetryWithLevel(_) | FailoverStep::Compact) => panic!("{step:?}"),
        }
    }
    assert!(now <= 60_000, "{now}");
    let last_error = last_error.unwrap();
    assert_eq!(last_error.status, Some(529));
    let first = "no model answered: p/m (host): HTTP 503: busy (4 attempts in ";
    assert!(last_error.message.starts_with(first), "{last_error}");
    assert!(
        last_error.message.contains(" s) (overloaded) | q/n (host): HTTP 529: busy (5 attempts in "),
        "{last_error}"
    );
}

#[test]
fn a_silent_attempt_counts_from_its_request() {
    let (mut failover, _) = begin(&["p/m as a"], FailoverTerms::default());
    failover.requested(0);
    assert!(matches!(failover.failed(&error(ErrorKind::Timeout), 120_000), FailoverStep::End(_)));
    // A candidate that streamed for minutes before it was cut off is retried.
    let (mut failover, _) = begin(&["p/m as a"], FailoverTerms::default());
    failover.requested(0);
    failover.responded();
    assert!(matches!(failover.failed(&error(ErrorKind::Truncated), 200_000), FailoverStep::RetryAfter(_)));
}

#[test]
fn a_long_requested_wait_is_part_of_the_error() {
    let (mut failover, _) = begin(&["p/m as a"], FailoverTerms::default());
    let limited = Error { retry_after: Some(Duration::from_secs(90)), ..error(ErrorKind::RateLimit) };
    let FailoverStep::End(end) = failover.failed(&limited, 0) else { panic!("waits too long") };
    assert_eq!(end.message, "RateLimit (the provider asks to wait 90 s)");
}

#[test]
fn a_rejected_key_is_not_tried_with_another_model() {
    let (mut failover, _) = begin(&["p/m as a", "p/n as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::Auth), 0), FailoverStep::Next);
    assert_eq!(current(&failover), "q/n as c");
    let skipped = note(
        "p/n as a",
        CandidateOutcome::Skipped,
        "auth",
        "not tried, because a request with the credential a just failed",
    );
    assert_eq!(failover.notes(), [note("p/m as a", CandidateOutcome::Failed, "auth", "Auth"), skipped]);
}

// Case 165, pitfall 69.
#[test]
fn a_run_timeout_counts_as_a_failure_of_the_model() {
    let (mut failover, tracker) =
        begin(&["p/m as a"], FailoverTerms { deadline: Some(1_000), ..FailoverTerms::default() });
    failover.timed_out(1_000);
    assert_eq!(tracker.snapshot().cooldown("a", "m", 1_000).unwrap().reason, "timeout");
    assert_eq!(note_lines(&failover), ["p/m: the run timed out (timeout)"]);
}

// Pitfall 69.
#[test]
fn no_candidate_is_tried_after_the_deadline() {
    let (mut failover, _) =
        begin(&["p/m as a", "q/n as c"], FailoverTerms { deadline: Some(1_000), ..FailoverTerms::default() });
    let FailoverStep::End(all) = failover.failed(&error(ErrorKind::Auth), 1_000) else { panic!("asked too late") };
    assert!(all.message.contains("p/m: Auth (auth) | q/n: not tried, no time was left (timeout); "), "{all}");
}

// Case 167: elapsed time is lost; the remaining time is shared.
#[test]
fn the_idle_timeout_is_a_share_of_the_remaining_time() {
    let (mut failover, _) = begin(
        &["p/m as a", "q/n as c", "r/o as d"],
        FailoverTerms { deadline: Some(90_000), ..FailoverTerms::default() },
    );
    assert_eq!(failover.idle(0), Duration::from_secs(30));
    assert_eq!(failover.failed(&error(ErrorKind::Timeout), 30_000), FailoverStep::Next);
    assert_eq!(failover.idle(70_000), Duration::from_secs(10));
    assert_eq!(failover.idle(89_000), MIN_IDLE);
    let (failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.idle(0), crate::spec::CLOUD_IDLE_TIMEOUT);
}

#[test]
fn an_overflow_leads_to_compaction_not_failover() {
    let (mut failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::Overflow), 0), FailoverStep::Compact);
    assert_eq!((current(&failover).as_str(), failover.notes()), ("p/m as a", &[][..]));
    // The caller decides what happens if compaction does not help.
    assert_eq!(failover.give_up(&error(ErrorKind::Overflow), 1), error(ErrorKind::Overflow));
}

// Case 182: a fallback answers for the rest of the run, and does not become the session's preference.
#[test]
fn a_fallback_stays_for_the_run_and_failed_candidates_may_be_tried_later() {
    let (mut failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::Auth), 0), FailoverStep::Next);
    failover.succeeded(5);
    assert_eq!((current(&failover).as_str(), failover.sticky()), ("q/n as c", None));
    assert_eq!(failover.failed(&error(ErrorKind::Billing), 100_000), FailoverStep::Next);
    assert_eq!(current(&failover), "p/m as a");
    let FailoverStep::End(all) = failover.failed(&error(ErrorKind::Auth), 100_001) else { panic!("a model is left") };
    assert!(all.message.starts_with("no model answered: q/n: Billing (billing) | p/m: Auth (auth); "), "{all}");
}

const KINDS: [ErrorKind; 10] = [
    ErrorKind::Connect,
    ErrorKind::Timeout,
    ErrorKind::RateLimit,
    ErrorKind::Overloaded,
    ErrorKind::Server,
    ErrorKind::Auth,
    ErrorKind::Billing,
    ErrorKind::Malformed,
    ErrorKind::Truncated,
    ErrorKind::Timeout,
];

/// Outcome of the next request: an answer, or this failure with this retry delay.
fn outcome() -> impl Strategy<Value = Option<(ErrorKind, Option<u64>)>> {
    let failure = (proptest::sample::select(&KINDS[..]), proptest::option::of(0..90_u64));
    proptest::option::weighted(0.95, failure)
}

proptest! {
    #[test]
    fn each_candidate_is_tried_once_and_none_is_lost(
        outcomes in proptest::collection::vec((outcome(), 0..5_000_u64), 1..200),
        keys in proptest::collection::vec(0..6_usize, 1..18),
        cooldowns in proptest::collection::vec((0..6_usize, 0..18_usize), 0..6),
        deadline in proptest::option::of(1..400_000_u64),
        seed in any::<u64>(),
    ) {
        let ranks: Vec<_> = keys.iter().enumerate().map(|(n, key)| format!("p/m{n} as k{key}")).collect();
        let ranks: Vec<_> = ranks.iter().map(String::as_str).collect();
        let tracker = Arc::new(HealthTracker::default());
        for (key, model) in cooldowns {
            let (key, model) = (format!("k{key}"), format!("m{model}"));
            tracker.change(|health| health.failed(&key, &model, &error(ErrorKind::RateLimit), 0));
        }
        let terms = FailoverTerms { deadline, seed, ..FailoverTerms::default() };
        let mut failover = Failover::begin(chain(&ranks, tracker.clone()), terms, 0);
        let (mut now, mut notes_start, mut retries) = (0, 0, 0);
        let mut tried = vec![current(&failover)];
        for (outcome, elapsed) in outcomes {
            now += elapsed;
            let Some((kind, seconds)) = outcome else {
                failover.succeeded(now);
                prop_assert!(tracker.snapshot().cooldown(&failover.candidate().profile, &failover.candidate().model.spec().model, now).is_none());
                (notes_start, retries, tried) = (failover.notes().len(), 0, vec![current(&failover)]);
                continue;
            };
            let failure = Error { retry_after: seconds.map(Duration::from_secs), ..error(kind) };
            match failover.failed(&failure, now) {
                FailoverStep::RetryAfter(wait) => {
                    now += wait.delay.as_millis() as u64;
                    retries += 1;
                    prop_assert!(deadline.is_none_or(|deadline| now < deadline));
                    prop_assert!(retries <= 17);
                }
                FailoverStep::Next => {
                    prop_assert!(!tried.contains(&current(&failover)), "{tried:?}");
                    prop_assert!(deadline.is_none_or(|deadline| now < deadline));
                    tried.push(current(&failover));
                }
                FailoverStep::End(_) => {
                    let noted: BTreeSet<_> = failover.notes()[notes_start..].iter().map(|note| format!("{:?}", note.candidate)).collect();
                    prop_assert_eq!(noted, ranks.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>());
                    break;
                }
                step @ (FailoverStep::RetryWithLevel(_) | FailoverStep::Compact) => prop_assert!(false, "{step:?}"),
            }
        }
    }
}
