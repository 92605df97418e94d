//! Tests of cooldowns and of their stored form.

use std::{sync::mpsc, time::Duration};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "no")
}

fn until(standing: &ProfileHealth, model: &str, now: u64) -> Option<u64> {
    standing.cooldown("p", model, now).map(|rest| rest.until)
}

// Case 174, with the shorter cooldowns of later versions.
#[test]
fn cooldowns_grow_with_failures_in_a_row() {
    let (mut standing, mut now) = (ProfileHealth::default(), 1_000);
    for expected in [30_000, 60_000, 300_000, 300_000] {
        standing.failed("p", "m", &error(ErrorKind::RateLimit), now);
        let rest = Cooldown { until: now + expected, reason: "rate_limit".to_owned() };
        assert_eq!(standing.cooldown("p", "m", now), Some(rest));
        now += expected;
        assert_eq!(standing.cooldown("p", "m", now), None);
    }
}

// Case 175, with the shorter time of later versions.
#[test]
fn an_account_without_money_is_left_alone_for_ten_minutes() {
    let mut standing = ProfileHealth::default();
    standing.failed("p", "m", &error(ErrorKind::Billing), 0);
    let expected = json!({"p": {
        "disabledUntil": 600_000, "disabledReason": "billing", "errorCount": 1, "failureCounts": {"billing": 1}, "lastFailureAt": 0,
    }});
    assert_eq!(serde_json::to_value(&standing).unwrap(), expected);
    assert_eq!((until(&standing, "m", 1), until(&standing, "other", 1)), (Some(600_000), Some(600_000)));
}

#[test]
fn a_failure_of_one_model_leaves_the_others_alone_and_is_shown_where_openclaw_looks() {
    let mut standing = ProfileHealth::default();
    standing.failed("p", "m", &error(ErrorKind::Timeout), 5);
    let expected = json!({"p": {
        "cooldownUntil": 30_005, "cooldownReason": "timeout", "cooldownModel": "m", "errorCount": 0,
        "failureCounts": {"timeout": 1}, "lastFailureAt": 5,
        "models": {"m": {
            "cooldownUntil": 30_005, "cooldownReason": "timeout", "errorCount": 1, "failureCounts": {"timeout": 1},
            "lastFailureAt": 5,
        }},
    }});
    assert_eq!(serde_json::to_value(&standing).unwrap(), expected);
    assert_eq!((until(&standing, "m", 6), until(&standing, "other", 6)), (Some(30_005), None));
}

#[test]
fn a_wrong_key_rests_all_its_models_and_a_forbidden_model_only_itself() {
    let mut standing = ProfileHealth::default();
    let forbidden = Error { status: Some(403), ..error(ErrorKind::Auth) };
    standing.failed("p", "m", &forbidden, 0);
    assert_eq!((until(&standing, "m", 0), until(&standing, "other", 0)), (Some(30_000), None));
    standing.failed("p", "m", &error(ErrorKind::Auth), 10);
    assert_eq!((until(&standing, "m", 10), until(&standing, "other", 10)), (Some(30_010), Some(30_010)));
}

#[test]
fn failures_at_once_count_once() {
    let mut standing = ProfileHealth::default();
    for now in 0..20 {
        standing.failed("p", "m", &error(ErrorKind::Server), now);
    }
    assert_eq!(until(&standing, "m", 20), Some(30_000));
    assert_eq!(standing.get("p").unwrap().failure_counts, BTreeMap::from([("unknown".to_owned(), 20)]));
}

#[test]
fn nobody_is_called_before_the_time_that_it_asked_for() {
    let mut standing = ProfileHealth::default();
    let asks = |seconds| Error { retry_after: Some(Duration::from_secs(seconds)), ..error(ErrorKind::RateLimit) };
    standing.failed("p", "m", &asks(7_200), 0);
    assert_eq!(until(&standing, "m", 0), Some(7_200_000));
    standing.failed("p", "m", &asks(u64::MAX), 0);
    assert_eq!(until(&standing, "m", 0), Some(FORGET_AFTER));
}

#[test]
fn failures_are_forgotten_after_a_day_without() {
    let mut standing = ProfileHealth::default();
    standing.failed("p", "m", &error(ErrorKind::Auth), 0);
    standing.failed("p", "m", &error(ErrorKind::Auth), 30_000);
    assert_eq!(until(&standing, "m", 30_000), Some(90_000));
    let later = 30_001 + FORGET_AFTER;
    standing.failed("p", "m", &error(ErrorKind::Auth), later);
    assert_eq!(until(&standing, "m", later), Some(later + 30_000));
}

#[test]
fn an_answer_clears_the_profile_and_its_model_but_not_the_other_models() {
    let mut standing = ProfileHealth::default();
    for (model, kind) in [("m", ErrorKind::RateLimit), ("other", ErrorKind::Overloaded), ("m", ErrorKind::Billing)] {
        standing.failed("p", model, &error(kind), 0);
    }
    standing.succeeded("p", "m", 50);
    assert_eq!((until(&standing, "m", 50), until(&standing, "other", 50)), (None, Some(30_000)));
    standing.succeeded("p", "other", 60);
    assert_eq!(serde_json::to_value(&standing).unwrap(), json!({"p": {"lastUsed": 60, "errorCount": 0}}));
}

#[test]
fn a_wrong_question_is_nobodys_fault() {
    let mut standing = ProfileHealth::default();
    for kind in [ErrorKind::Rejected, ErrorKind::Overflow, ErrorKind::ContentFilter] {
        standing.failed("p", "m", &error(kind), 0);
    }
    assert_eq!(standing, ProfileHealth::default());
}

#[test]
fn what_openclaw_wrote_is_understood_and_its_other_fields_are_kept() {
    let written = json!({
        "old": {"lastUsed": 7, "cooldownUntil": 100, "errorCount": 2, "failureCounts": {"session_expired": 2}, "x": [1]},
        "new": {"cooldownUntil": 900, "cooldownReason": "rate_limit", "cooldownModel": "m", "errorCount": 3, "blockedUntil": 4},
    });
    let mut standing: ProfileHealth = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&standing).unwrap(), written);
    assert_eq!(standing.cooldown("old", "any", 99), Some(Cooldown { until: 100, reason: "unknown".to_owned() }));
    assert_eq!((standing.cooldown("new", "m", 1).unwrap().until, standing.cooldown("new", "any", 1)), (900, None));
    standing.failed("new", "any", &error(ErrorKind::Billing), 1);
    standing.failed("new", "any", &error(ErrorKind::Auth), 1);
    let kept = standing.get("new").unwrap();
    assert_eq!((kept.extra.get("blockedUntil"), kept.models["m"].cooldown_until), (Some(&json!(4)), Some(900)));
}

#[test]
fn whoever_keeps_the_book_hears_of_each_change() {
    let (tell, told) = mpsc::channel();
    let book = HealthTracker::new(ProfileHealth::default(), move |standing| tell.send(standing.clone()).unwrap());
    book.change(|standing| standing.succeeded("p", "m", 1));
    book.change(|standing| standing.failed("p", "m", &error(ErrorKind::Server), 2));
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told.last(), Some(&book.snapshot()));
}

const ANY: [ErrorKind; 12] = [
    ErrorKind::Connect,
    ErrorKind::Timeout,
    ErrorKind::RateLimit,
    ErrorKind::Overloaded,
    ErrorKind::Server,
    ErrorKind::Auth,
    ErrorKind::Billing,
    ErrorKind::Rejected,
    ErrorKind::Overflow,
    ErrorKind::ContentFilter,
    ErrorKind::Malformed,
    ErrorKind::Truncated,
];

proptest! {
    #[test]
    fn a_failure_never_shortens_a_rest_and_what_is_kept_is_read_back(
        failures in proptest::collection::vec(
            (0..3_usize, proptest::sample::select(&ANY[..]), proptest::option::of(0..4_000_u64), 0..100_000_u64, any::<bool>()),
            0..40,
        ),
    ) {
        let models = ["a", "b", "c"];
        let (mut standing, mut now) = (ProfileHealth::default(), 0);
        for (model, kind, seconds, later, is_forbidden) in failures {
            now += later;
            let before = models.map(|model| until(&standing, model, now));
            let retry_after = seconds.map(Duration::from_secs);
            let status = is_forbidden.then_some(403);
            let error = Error { retry_after, status, ..error(kind) };
            standing.failed("p", models[model], &error, now);
            let after = models.map(|model| until(&standing, model, now));
            prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "{before:?} {after:?}");
            prop_assert_eq!(after[model].is_none(), before[model].is_none() && Blame::of(&error) == Blame::Request);
            let kept = serde_json::to_string(&standing).unwrap();
            prop_assert_eq!(&serde_json::from_str::<ProfileHealth>(&kept).unwrap(), &standing);
        }
    }
}
