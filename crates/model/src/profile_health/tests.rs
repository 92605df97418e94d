//! Tests of cooldowns and of their stored form.

use std::{sync::mpsc, time::Duration};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "no")
}

fn until(health: &ProfileHealth, model: &str, now: u64) -> Option<u64> {
    health.cooldown("p", model, now).map(|cooldown| cooldown.until)
}

// Case 174, with the shorter cooldowns of later versions.
#[test]
fn cooldowns_grow_with_failures_in_a_row() {
    let (mut health, mut now) = (ProfileHealth::default(), 1_000);
    for expected in [30_000, 60_000, 300_000, 300_000] {
        health.failed("p", "m", &error(ErrorKind::RateLimit), now);
        let cooldown = Cooldown { until: now + expected, reason: "rate_limit".to_owned() };
        assert_eq!(health.cooldown("p", "m", now), Some(cooldown));
        now += expected;
        assert_eq!(health.cooldown("p", "m", now), None);
    }
}

// Case 175, with the shorter time of later versions.
#[test]
fn an_account_without_credit_is_disabled_for_ten_minutes() {
    let mut health = ProfileHealth::default();
    health.failed("p", "m", &error(ErrorKind::Billing), 0);
    let expected = json!({"p": {
        "disabledUntil": 600_000, "disabledReason": "billing", "errorCount": 1, "failureCounts": {"billing": 1}, "lastFailureAt": 0,
    }});
    assert_eq!(serde_json::to_value(&health).unwrap(), expected);
    assert_eq!((until(&health, "m", 1), until(&health, "other", 1)), (Some(600_000), Some(600_000)));
}

#[test]
fn a_failure_of_one_model_is_scoped_and_stored_for_openclaw() {
    let mut health = ProfileHealth::default();
    health.failed("p", "m", &error(ErrorKind::Timeout), 5);
    let expected = json!({"p": {
        "cooldownUntil": 30_005, "cooldownReason": "timeout", "cooldownModel": "m", "errorCount": 0,
        "failureCounts": {"timeout": 1}, "lastFailureAt": 5,
        "models": {"m": {
            "cooldownUntil": 30_005, "cooldownReason": "timeout", "errorCount": 1, "failureCounts": {"timeout": 1},
            "lastFailureAt": 5,
        }},
    }});
    assert_eq!(serde_json::to_value(&health).unwrap(), expected);
    assert_eq!((until(&health, "m", 6), until(&health, "other", 6)), (Some(30_005), None));
}

#[test]
fn a_wrong_key_cools_down_all_models_and_a_forbidden_model_only_itself() {
    let mut health = ProfileHealth::default();
    let forbidden = Error { status: Some(403), ..error(ErrorKind::Auth) };
    health.failed("p", "m", &forbidden, 0);
    assert_eq!((until(&health, "m", 0), until(&health, "other", 0)), (Some(30_000), None));
    health.failed("p", "m", &error(ErrorKind::Auth), 10);
    assert_eq!((until(&health, "m", 10), until(&health, "other", 10)), (Some(30_010), Some(30_010)));
}

#[test]
fn failures_during_a_cooldown_count_once() {
    let mut health = ProfileHealth::default();
    for now in 0..20 {
        health.failed("p", "m", &error(ErrorKind::Server), now);
    }
    assert_eq!(until(&health, "m", 20), Some(30_000));
    assert_eq!(health.get("p").unwrap().failure_counts, BTreeMap::from([("unknown".to_owned(), 20)]));
}

#[test]
fn a_requested_delay_extends_the_cooldown_up_to_a_day() {
    let mut health = ProfileHealth::default();
    let rate_limited =
        |seconds| Error { retry_after: Some(Duration::from_secs(seconds)), ..error(ErrorKind::RateLimit) };
    health.failed("p", "m", &rate_limited(7_200), 0);
    assert_eq!(until(&health, "m", 0), Some(7_200_000));
    health.failed("p", "m", &rate_limited(u64::MAX), 0);
    assert_eq!(until(&health, "m", 0), Some(FORGET_AFTER));
}

#[test]
fn failures_are_forgotten_after_a_day_without() {
    let mut health = ProfileHealth::default();
    health.failed("p", "m", &error(ErrorKind::Auth), 0);
    health.failed("p", "m", &error(ErrorKind::Auth), 30_000);
    assert_eq!(until(&health, "m", 30_000), Some(90_000));
    let later = 30_001 + FORGET_AFTER;
    health.failed("p", "m", &error(ErrorKind::Auth), later);
    assert_eq!(until(&health, "m", later), Some(later + 30_000));
}

#[test]
fn an_answer_clears_the_profile_and_its_model_but_not_the_other_models() {
    let mut health = ProfileHealth::default();
    for (model, kind) in [("m", ErrorKind::RateLimit), ("other", ErrorKind::Overloaded), ("m", ErrorKind::Billing)] {
        health.failed("p", model, &error(kind), 0);
    }
    health.succeeded("p", "m", 50);
    assert_eq!((until(&health, "m", 50), until(&health, "other", 50)), (None, Some(30_000)));
    health.succeeded("p", "other", 60);
    assert_eq!(serde_json::to_value(&health).unwrap(), json!({"p": {"lastUsed": 60, "errorCount": 0}}));
}

#[test]
fn an_invalid_request_starts_no_cooldown() {
    let mut health = ProfileHealth::default();
    for kind in [ErrorKind::Rejected, ErrorKind::Overflow, ErrorKind::ContentFilter] {
        health.failed("p", "m", &error(kind), 0);
    }
    assert_eq!(health, ProfileHealth::default());
}

#[test]
fn openclaws_stats_are_read_and_unknown_fields_kept() {
    let written = json!({
        "old": {"lastUsed": 7, "cooldownUntil": 100, "errorCount": 2, "failureCounts": {"session_expired": 2}, "x": [1]},
        "new": {"cooldownUntil": 900, "cooldownReason": "rate_limit", "cooldownModel": "m", "errorCount": 3, "blockedUntil": 4},
    });
    let mut health: ProfileHealth = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&health).unwrap(), written);
    assert_eq!(health.cooldown("old", "any", 99), Some(Cooldown { until: 100, reason: "unknown".to_owned() }));
    assert_eq!((health.cooldown("new", "m", 1).unwrap().until, health.cooldown("new", "any", 1)), (900, None));
    health.failed("new", "any", &error(ErrorKind::Billing), 1);
    health.failed("new", "any", &error(ErrorKind::Auth), 1);
    let stats = health.get("new").unwrap();
    assert_eq!((stats.extra.get("blockedUntil"), stats.models["m"].cooldown_until), (Some(&json!(4)), Some(900)));
}

#[test]
fn every_change_is_persisted() {
    let (sender, received) = mpsc::channel();
    let tracker = HealthTracker::new(ProfileHealth::default(), move |health| sender.send(health.clone()).unwrap());
    tracker.change(|health| health.succeeded("p", "m", 1));
    tracker.change(|health| health.failed("p", "m", &error(ErrorKind::Server), 2));
    let received: Vec<_> = received.try_iter().collect();
    assert_eq!(received.len(), 2);
    assert_eq!(received.last(), Some(&tracker.snapshot()));
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
    fn a_failure_never_shortens_a_cooldown_and_stats_round_trip(
        failures in proptest::collection::vec(
            (0..3_usize, proptest::sample::select(&ANY[..]), proptest::option::of(0..4_000_u64), 0..100_000_u64, any::<bool>()),
            0..40,
        ),
    ) {
        let models = ["a", "b", "c"];
        let (mut health, mut now) = (ProfileHealth::default(), 0);
        for (model, kind, seconds, elapsed, is_forbidden) in failures {
            now += elapsed;
            let before = models.map(|model| until(&health, model, now));
            let retry_after = seconds.map(Duration::from_secs);
            let status = is_forbidden.then_some(403);
            let error = Error { retry_after, status, ..error(kind) };
            health.failed("p", models[model], &error, now);
            let after = models.map(|model| until(&health, model, now));
            prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "{before:?} {after:?}");
            prop_assert_eq!(after[model].is_none(), before[model].is_none() && Blame::of(&error) == Blame::Request);
            let stored = serde_json::to_string(&health).unwrap();
            prop_assert_eq!(&serde_json::from_str::<ProfileHealth>(&stored).unwrap(), &health);
        }
    }
}
