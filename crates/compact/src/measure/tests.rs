//! Tests of reported and estimated token counts.

use homard_proto::message::{Assistant, Block};

use super::*;
use crate::{
    Settings,
    sample::{assistant, filler, lines, reporting, user},
};

fn threshold() -> u64 {
    Settings::default().limits(200_000, 0, TokenScale::ONE).threshold
}

#[test]
fn the_threshold_is_the_window_without_the_reserve() {
    let over = |input| {
        let lines = lines([user("hi"), reporting(input, 1_000)]);
        measure(&History { lines: &lines, kept: None }, 0).is_over(threshold())
    };
    assert!(over(180_000), "181000 of 200000");
    assert!(!over(178_000), "179000 of 200000");
}

#[test]
fn messages_after_the_reported_usage_are_estimated() {
    let lines = lines([user("hi"), reporting(5_000, 10), user(&filler(300))]);
    let measured = measure(&History { lines: &lines, kept: None }, 0);
    assert_eq!(measured, TokenMeasure { tokens: 5_010 + lines[2].tokens, scale: TokenScale::ONE });
}

#[test]
fn without_reported_usage_everything_is_estimated() {
    let lines = lines([user(&filler(100)), assistant(&filler(50))]);
    let measured = measure(&History { lines: &lines, kept: None }, 700);
    assert_eq!(measured, TokenMeasure { tokens: 700 + lines[0].tokens + lines[1].tokens, scale: TokenScale::ONE });
}

#[test]
fn higher_reported_usage_scales_estimates() {
    let lines = lines([user(&filler(2_000)), reporting(3_000, 0), user(&filler(1_000))]);
    let known = lines[0].tokens + lines[1].tokens;
    let measured = measure(&History { lines: &lines, kept: None }, 0);
    let scale = TokenScale::of(3_000, known);
    assert!(scale > TokenScale::ONE, "{scale:?}");
    assert_eq!(measured, TokenMeasure { tokens: 3_000 + scale.grow(lines[2].tokens), scale });
}

// Pitfall 80.
#[test]
fn usage_before_the_last_compaction_is_ignored() {
    let mut lines = lines([user("hi"), reporting(190_000, 500), user("next")]);
    let estimated = 900 + lines.iter().map(|line| line.tokens).sum::<u64>();
    let measured = measure(&History { lines: &lines, kept: Some(2) }, 900);
    assert_eq!(measured, TokenMeasure { tokens: estimated, scale: TokenScale::ONE });
    assert!(!measured.is_over(threshold()));
    lines.extend(crate::sample::lines([reporting(1_200, 10)]));
    assert_eq!(measure(&History { lines: &lines, kept: Some(2) }, 900).tokens, 1_210);
}

#[test]
fn failed_messages_and_those_without_a_model_report_no_usage() {
    let incomplete = |stop_reason| {
        let usage = Usage { input: 9_000, ..Usage::default() };
        Message::Assistant(Assistant { content: vec![Block::text("x")], usage, stop_reason, ..Assistant::default() })
    };
    let lines = lines([
        reporting(100, 1),
        incomplete(StopReason::Error),
        incomplete(StopReason::Aborted),
        // Written without a model, so its usage is zero.
        assistant("delivered"),
    ]);
    let since: u64 = lines[1..].iter().map(|line| line.tokens).sum();
    assert_eq!(measure(&History { lines: &lines, kept: None }, 0).tokens, 101 + since);
}
