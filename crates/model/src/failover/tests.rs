//! Tests of the candidate order and of the combined error.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    candidates::tests::{candidate, roster},
    profile_health::HealthTracker,
};

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, format!("{kind:?}"))
}

fn begin(ranks: &[&str], terms: FailoverTerms) -> (Failover, Arc<HealthTracker>) {
    let book = Arc::new(HealthTracker::default());
    (Failover::begin(roster(ranks, book.clone()), terms, 0), book)
}

fn asked(failover: &Failover) -> String {
    format!("{:?}", failover.candidate())
}

fn told(failover: &Failover) -> Vec<String> {
    failover.notes().iter().map(ToString::to_string).collect()
}

fn note(name: &str, fate: CandidateOutcome, reason: &str, why: &str) -> CandidateNote {
    CandidateNote { candidate: candidate(name), outcome: fate, reason: reason.to_owned(), why: why.to_owned() }
}

// Case 174, case 213: a rate limit without a retry delay moves on to the next at once and starts a cooldown.
#[test]
fn a_rate_limited_profile_gives_way_to_the_next_and_rests() {
    let (mut failover, book) = begin(&["p/m as a, p/m as b"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::RateLimit), 0), FailoverStep::Next);
    assert_eq!(asked(&failover), "p/m as b");
    assert_eq!(failover.notes(), [note("p/m as a", CandidateOutcome::Failed, "rate_limit", "RateLimit")]);
    failover.succeeded(10);
    assert_eq!(book.snapshot().cooldown("a", "m", 10).unwrap().until, 30_000);
    assert_eq!(failover.sticky().map(|profile| &**profile), Some("b"));
}

// Case 176.
#[test]
fn a_pinned_profile_is_not_rotated_but_the_next_model_is_asked() {
    let terms = FailoverTerms { preferred: PreferredCredential::Pinned("b".into()), ..FailoverTerms::default() };
    let (mut failover, _) = begin(&["p/m as a, p/m as b", "q/n as c"], terms);
    assert_eq!(asked(&failover), "p/m as b");
    assert_eq!(failover.failed(&error(ErrorKind::Auth), 0), FailoverStep::Next);
    assert_eq!(asked(&failover), "q/n as c");
}

// Case 177. A candidate in cooldown is tried only if no other is left.
#[test]
fn a_provider_that_rests_is_passed_over_with_a_reason_and_asked_last() {
    let book = Arc::new(HealthTracker::default());
    book.change(|standing| standing.failed("a", "m", &error(ErrorKind::RateLimit), 0));
    let mut failover = Failover::begin(roster(&["p/m as a", "q/n as c"], book), FailoverTerms::default(), 1);
    assert_eq!(asked(&failover), "q/n as c");
    let passed = note("p/m as a", CandidateOutcome::Skipped, "rate_limit", "not tried, in cooldown for another 30 s");
    assert_eq!(failover.notes(), [passed]);
    assert_eq!(failover.failed(&error(ErrorKind::Billing), 2), FailoverStep::Next);
    assert_eq!(asked(&failover), "p/m as a");
    let FailoverStep::End(all) = failover.failed(&error(ErrorKind::Auth), 3) else { panic!("somebody is left") };
    assert!(all.message.starts_with("no model answered: q/n: Billing (billing) | p/m: Auth (auth); "), "{all}");
}

#[test]
fn a_wrong_address_or_api_is_asked_once_and_gives_way_to_the_next() {
    let (mut failover, book) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::Misconfigured), 0), FailoverStep::Next);
    assert_eq!(asked(&failover), "q/n as c");
    assert_eq!(failover.notes(), [note("p/m as a", CandidateOutcome::Failed, "model_not_found", "Misconfigured")]);
    assert!(book.snapshot().cooldown("a", "m", 1).is_some());
    assert!(
        matches!(failover.failed(&error(ErrorKind::Misconfigured), 1), FailoverStep::End(_)),
        "nobody is asked again"
    );
}

// Case 178.
#[test]
fn a_wrong_question_is_asked_once() {
    for kind in [ErrorKind::Rejected, ErrorKind::ContentFilter] {
        let (mut failover, book) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
        assert_eq!(failover.failed(&error(kind), 0), FailoverStep::End(error(kind)));
        assert_eq!(book.snapshot(), crate::profile_health::ProfileHealth::default());
    }
}

#[test]
fn a_model_that_does_not_exist_gives_way_to_the_next() {
    let (mut failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    let gone = Error { status: Some(404), ..error(ErrorKind::Rejected) };
    assert_eq!(failover.failed(&gone, 0), FailoverStep::Next);
    assert_eq!(told(&failover), ["p/m: Rejected (model_not_found)"]);
}

// Case 179, and 17 candidates of which only the last works.
#[test]
fn everybody_is_asked_and_each_failure_has_a_reason() {
    let ranks: Vec<_> = (0..17).map(|n| format!("p{n}/m as k{n}")).collect();
    let ranks: Vec<_> = ranks.iter().map(String::as_str).collect();
    let kinds = [ErrorKind::Auth, ErrorKind::Billing, ErrorKind::Timeout, ErrorKind::RateLimit];
    let (mut failover, _) = begin(&ranks, FailoverTerms { deadline: Some(600_000), ..FailoverTerms::default() });
    for n in 0..16 {
        assert_eq!(failover.failed(&error(kinds[n % 4]), n as u64), FailoverStep::Next);
    }
    assert_eq!((asked(&failover).as_str(), failover.notes().len()), ("p16/m as k16", 16));
    assert_eq!(failover.sticky(), None);
    let FailoverStep::End(all) = failover.failed(&error(ErrorKind::Auth), 17) else { panic!("somebody is left") };
    assert_eq!((all.kind, all.message.matches(" | ").count()), (ErrorKind::Auth, 16));
    assert!(all.message.contains("p1/m: Billing (billing) | p2/m: Timeout (timeout) | p3/m: RateLimit (rate_limit)"));
    assert!(all.message.contains("`homard models status`"), "{all}");
}

// Case 180.
#[test]
fn a_refused_level_is_replaced_by_an_offered_one_each_once() {
    let refusal = Error::new(ErrorKind::Rejected, "reasoning effort: supported values are: 'high', 'low'");
    let (mut failover, _) =
        begin(&["p/m as a", "q/n as c"], FailoverTerms { level: ReasoningLevel::Medium, ..FailoverTerms::default() });
    // The model has low and high, so medium was sent as high.
    assert_eq!(failover.failed(&refusal, 0), FailoverStep::RetryWithLevel(ReasoningLevel::Low));
    assert_eq!((failover.level(), asked(&failover).as_str()), (ReasoningLevel::Low, "p/m as a"));
    assert_eq!(failover.failed(&error(ErrorKind::Auth), 0), FailoverStep::Next);
    assert_eq!((failover.level(), asked(&failover).as_str()), (ReasoningLevel::Medium, "q/n as c"));
    assert_eq!(failover.failed(&refusal, 0), FailoverStep::RetryWithLevel(ReasoningLevel::Low));
    assert!(matches!(failover.failed(&refusal, 0), FailoverStep::End(_)));
}

// Case 214.
#[test]
fn the_only_candidate_is_asked_until_the_budget_is_spent_and_rests_after_the_run() {
    let (mut failover, book) = begin(&["p/m as a"], FailoverTerms::default());
    let mut now = 0;
    for _ in 0..4 {
        let FailoverStep::RetryAfter(wait) = failover.failed(&error(ErrorKind::RateLimit), now) else {
            panic!("gave up too early")
        };
        now += wait.after.as_millis() as u64;
    }
    let FailoverStep::End(end) = failover.failed(&error(ErrorKind::RateLimit), now) else { panic!("went on too long") };
    assert_eq!(end.message, format!("RateLimit (5 attempts in {} s)", now / 1_000));
    assert_eq!(book.snapshot().get("a").unwrap().cooldown_until, Some(now + 30_000));
}

#[test]
fn what_is_told_at_the_end_is_the_last_failure_and_why_each_candidate_failed() {
    let (mut failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    let busy = |provider: &str, status: u16| Error {
        status: Some(status),
        ..Error::new(
            ErrorKind::Overloaded,
            format!("{provider} (host): HTTP {status}: busy; {}", ErrorKind::Overloaded.advice()),
        )
    };
    let mut now = 0;
    let mut told = None;
    for _ in 0..20 {
        failover.requested(now);
        let failure = if asked(&failover) == "p/m as a" { busy("p", 503) } else { busy("q", 529) };
        match failover.failed(&failure, now) {
            FailoverStep::RetryAfter(wait) => now += wait.after.as_millis() as u64,
            FailoverStep::Next => {}
            FailoverStep::End(error) => {
                told = Some(error);
                break;
            }
            step @ (FailoverStep::RetryWithLevel(_) | FailoverStep::Compact) => panic!("{step:?}"),
        }
    }
    assert!(now <= 60_000, "{now}");
    let told = told.unwrap();
    assert_eq!(told.status, Some(529));
    let first = "no model answered: p/m (host): HTTP 503: busy (4 attempts in ";
    assert!(told.message.starts_with(first), "{told}");
    assert!(told.message.contains(" s) (overloaded) | q/n (host): HTTP 529: busy (5 attempts in "), "{told}");
}

#[test]
fn a_silent_attempt_counts_from_when_it_was_asked() {
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
fn a_provider_that_asks_for_a_long_wait_is_quoted() {
    let (mut failover, _) = begin(&["p/m as a"], FailoverTerms::default());
    let limited = Error { retry_after: Some(Duration::from_secs(90)), ..error(ErrorKind::RateLimit) };
    let FailoverStep::End(end) = failover.failed(&limited, 0) else { panic!("waits too long") };
    assert_eq!(end.message, "RateLimit (the provider asks to wait 90 s)");
}

#[test]
fn a_refused_key_is_not_shown_again_for_another_model() {
    let (mut failover, _) = begin(&["p/m as a", "p/n as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::Auth), 0), FailoverStep::Next);
    assert_eq!(asked(&failover), "q/n as c");
    let skipped = note("p/n as a", CandidateOutcome::Skipped, "auth", "not tried, a was just rejected");
    assert_eq!(failover.notes(), [note("p/m as a", CandidateOutcome::Failed, "auth", "Auth"), skipped]);
}

// Case 165.
#[test]
fn a_run_whose_time_is_up_counts_against_the_model() {
    let (mut failover, book) =
        begin(&["p/m as a"], FailoverTerms { deadline: Some(1_000), ..FailoverTerms::default() });
    failover.timed_out(1_000);
    assert_eq!(book.snapshot().cooldown("a", "m", 1_000).unwrap().reason, "timeout");
    assert_eq!(told(&failover), ["p/m: the run timed out (timeout)"]);
}

#[test]
fn nobody_is_asked_after_the_deadline() {
    let (mut failover, _) =
        begin(&["p/m as a", "q/n as c"], FailoverTerms { deadline: Some(1_000), ..FailoverTerms::default() });
    let FailoverStep::End(all) = failover.failed(&error(ErrorKind::Auth), 1_000) else { panic!("asked too late") };
    assert!(all.message.contains("p/m: Auth (auth) | q/n: not tried, no time was left (timeout); "), "{all}");
}

// Case 167: elapsed time is lost; the remaining time is shared.
#[test]
fn silence_is_borne_only_for_a_share_of_the_time() {
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
fn a_conversation_that_is_too_long_is_shortened_not_asked_around() {
    let (mut failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::Overflow), 0), FailoverStep::Compact);
    assert_eq!((asked(&failover).as_str(), failover.notes()), ("p/m as a", &[][..]));
    // The caller decides what happens if compaction does not help.
    assert_eq!(failover.give_up(&error(ErrorKind::Overflow), 1), error(ErrorKind::Overflow));
}

// Case 182: a fallback answers for the rest of the run, and does not become the session's preference.
#[test]
fn a_fallback_stays_for_the_run_and_whoever_failed_may_help_later() {
    let (mut failover, _) = begin(&["p/m as a", "q/n as c"], FailoverTerms::default());
    assert_eq!(failover.failed(&error(ErrorKind::Auth), 0), FailoverStep::Next);
    failover.succeeded(5);
    assert_eq!((asked(&failover).as_str(), failover.sticky()), ("q/n as c", None));
    assert_eq!(failover.failed(&error(ErrorKind::Billing), 100_000), FailoverStep::Next);
    assert_eq!(asked(&failover), "p/m as a");
    let FailoverStep::End(all) = failover.failed(&error(ErrorKind::Auth), 100_001) else { panic!("somebody is left") };
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
    fn each_candidate_has_one_turn_and_none_is_lost(
        outcomes in proptest::collection::vec((outcome(), 0..5_000_u64), 1..200),
        keys in proptest::collection::vec(0..6_usize, 1..18),
        resting in proptest::collection::vec((0..6_usize, 0..18_usize), 0..6),
        deadline in proptest::option::of(1..400_000_u64),
        seed in any::<u64>(),
    ) {
        let ranks: Vec<_> = keys.iter().enumerate().map(|(n, key)| format!("p/m{n} as k{key}")).collect();
        let ranks: Vec<_> = ranks.iter().map(String::as_str).collect();
        let book = Arc::new(HealthTracker::default());
        for (key, model) in resting {
            let (key, model) = (format!("k{key}"), format!("m{model}"));
            book.change(|standing| standing.failed(&key, &model, &error(ErrorKind::RateLimit), 0));
        }
        let terms = FailoverTerms { deadline, seed, ..FailoverTerms::default() };
        let mut failover = Failover::begin(roster(&ranks, book.clone()), terms, 0);
        let (mut now, mut since, mut waits) = (0, 0, 0);
        let mut turns = vec![asked(&failover)];
        for (outcome, took) in outcomes {
            now += took;
            let Some((kind, seconds)) = outcome else {
                failover.succeeded(now);
                prop_assert!(book.snapshot().cooldown(&failover.candidate().profile, &failover.candidate().model.spec().model, now).is_none());
                (since, waits, turns) = (failover.notes().len(), 0, vec![asked(&failover)]);
                continue;
            };
            let failure = Error { retry_after: seconds.map(Duration::from_secs), ..error(kind) };
            match failover.failed(&failure, now) {
                FailoverStep::RetryAfter(wait) => {
                    now += wait.after.as_millis() as u64;
                    waits += 1;
                    prop_assert!(deadline.is_none_or(|deadline| now < deadline));
                    prop_assert!(waits <= 17);
                }
                FailoverStep::Next => {
                    prop_assert!(!turns.contains(&asked(&failover)), "{turns:?}");
                    prop_assert!(deadline.is_none_or(|deadline| now < deadline));
                    turns.push(asked(&failover));
                }
                FailoverStep::End(_) => {
                    let noted: BTreeSet<_> = failover.notes()[since..].iter().map(|note| format!("{:?}", note.candidate)).collect();
                    prop_assert_eq!(noted, ranks.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>());
                    break;
                }
                step @ (FailoverStep::RetryWithLevel(_) | FailoverStep::Compact) => prop_assert!(false, "{step:?}"),
            }
        }
    }
}
