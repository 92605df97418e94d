//! Tests of whole compactions, for arbitrary conversations and model answers.

use homard_proto::message::Assistant;
use proptest::prelude::*;

use super::*;
use crate::{
    Settings,
    measure::TokenScale,
    sample::{CHECKPOINT, TURN, assistant, call, filler, image, lines, result, user},
};
use ScriptedAnswer::{Empty, Failed, Garbage, Good, Overflow};

fn input(messages: Vec<Message>, window: u64) -> CompactionInput {
    CompactionInput {
        lines: lines(messages),
        kept: None,
        previous: None,
        limits: Settings::default().limits(window, 1_000, TokenScale::ONE),
        focus: None,
        summary_windows: vec![window],
        mode: CompactionMode::Default,
    }
}

/// An answer of the model.
#[derive(Debug, Clone, Copy)]
enum ScriptedAnswer {
    Good,
    Empty,
    Garbage,
    Failed,
    Overflow,
}

/// Runs a compaction to its end with a model that repeats the answers of a script.
fn run(compaction: &mut Compaction, script: &[ScriptedAnswer]) -> (CompactionStep, usize) {
    let mut request_count = 0;
    loop {
        let CompactionStep::Ask(request) = compaction.step() else { return (compaction.step(), request_count) };
        let good = if request.user.contains("beginning of a turn") { TURN } else { CHECKPOINT };
        compaction.answer(match script[request_count % script.len()] {
            Good => Ok(good),
            Empty => Ok(""),
            Garbage => Ok("garbage"),
            Failed => Err(SummaryFailure::Failed),
            Overflow => Err(SummaryFailure::Overflow),
        });
        request_count += 1;
    }
}

fn done(input: CompactionInput, script: &[ScriptedAnswer]) -> FinishedCompaction {
    match run(&mut Compaction::new(input, Ladder::default()), script) {
        (CompactionStep::Done(outcome), _) => *outcome,
        other => panic!("{other:?}"),
    }
}

fn turns(count: usize, size: usize) -> Vec<Message> {
    let turn = |index| [user(&format!("request {index}")), assistant(&filler(size))];
    (0..count).flat_map(turn).collect()
}

#[test]
fn a_summary_is_enough_for_most_conversations() {
    let outcome = done(input(turns(100, 2_000), 200_000), &[Good]);
    assert_eq!(
        (outcome.method, &outcome.strategies[..]),
        (Some(SummaryMethod::Staged), &[CompactionStrategy::Summary][..])
    );
    assert_eq!(outcome.summary, CHECKPOINT);
    assert_eq!(outcome.kept, 182, "nine turns of two thousand tokens each are kept");
    assert!(outcome.after < 25_000 && outcome.before > 200_000, "{outcome:?}");
}

/// Acceptance D16: previously, two models were asked before it turned out that there was nothing to gain.
#[test]
fn a_short_conversation_is_not_compacted_and_no_model_is_called() {
    let limits = |keep| CompactionLimits { keep, ..Settings::default().limits(20_000, 1_000, TokenScale::ONE) };
    for (size, script) in [(100, [Good]), (400, [Good]), (400, [Garbage])] {
        let messages = turns(8, size);
        // All but the first turn is recent.
        let input =
            CompactionInput { limits: limits(total_tokens(&lines(messages[2..].to_vec()))), ..input(messages, 20_000) };
        let (step, request_count) = run(&mut Compaction::new(input, Ladder::default()), &script);
        assert_eq!((step, request_count), (CompactionStep::Nothing(NothingToCompact::Short), 0), "{size}");
    }
}

#[test]
fn an_optional_summary_is_shorter_than_its_source() {
    for size in [700, 1_500, 4_000] {
        for script in [[Good], [Empty], [Garbage], [Failed]] {
            let limits =
                CompactionLimits { keep: 1_000, ..Settings::default().limits(200_000, 1_000, TokenScale::ONE) };
            let outcome = done(CompactionInput { limits, ..input(turns(3, size), 200_000) }, &script);
            assert!(outcome.after < outcome.before, "{outcome:?}");
        }
    }
}

/// Pitfall 47: however the model answers, a compaction leaves enough space for another turn.
#[test]
fn a_window_of_sixteen_thousand_keeps_space_for_a_turn() {
    let input = CompactionInput {
        limits: Settings::default().limits(16_384, 6_000, TokenScale::ONE),
        ..input(turns(40, 300), 16_384)
    };
    let limits = input.limits;
    for script in [[Good], [Empty], [Garbage], [Failed], [Overflow]] {
        let outcome = done(input.clone(), &script);
        assert!(outcome.after + limits.space / 4 <= limits.threshold, "{outcome:?}");
    }
}

/// Case 156.
#[test]
fn one_huge_result_is_truncated() {
    let messages = vec![user("read it"), call("a"), result("a", &filler(120_000))];
    let input = CompactionInput {
        limits: Settings::default().limits(120_000, 1_000, TokenScale::ONE),
        ..input(messages, 120_000)
    };
    let outcome = done(input, &[Good]);
    assert_eq!((outcome.kept, outcome.method), (0, None));
    assert_eq!(outcome.strategies, [CompactionStrategy::Summary, CompactionStrategy::Results]);
    assert_eq!(outcome.details, json!({"resultChars": 144_000}));
    assert!(outcome.after < 40_000, "{outcome:?}");
}

/// Case 157.
#[test]
fn a_turn_of_many_calls_is_split_and_its_request_quoted() {
    let mut messages = vec![user("old"), assistant("old"), user("count all of them, please")];
    for index in 0..60 {
        let id = format!("c{index}");
        messages.extend([call(&id), result(&id, &filler(1_000))]);
    }
    let outcome = done(input(messages.clone(), 64_000), &[Good]);
    assert!(matches!(messages[outcome.kept], Message::Assistant(_)), "{}", outcome.kept);
    assert!(outcome.summary.contains("\n\n# Context of the turn that goes on\n\n## Request"), "{}", outcome.summary);
    assert!(outcome.summary.ends_with("word for word:\ncount all of them, please\n</latest-request>"));
}

#[test]
fn a_request_stays_quoted_during_its_turn() {
    let mut messages = Vec::new();
    for index in 0..60 {
        let id = format!("c{index}");
        messages.extend([call(&id), result(&id, &filler(1_000))]);
    }
    let previous = PreviousCompaction { text: CHECKPOINT.to_owned(), details: json!({"request": "count them"}) };
    let input = CompactionInput { previous: Some(previous), kept: Some(2), ..input(messages.clone(), 64_000) };
    let outcome = done(input.clone(), &[Good]);
    assert!(outcome.summary.contains("\ncount them\n</latest-request>"), "{}", outcome.summary);
    messages.push(user("stop"));
    let outcome = done(CompactionInput { lines: lines(messages), ..input }, &[Good]);
    assert!(!outcome.summary.contains("latest-request"), "{}", outcome.summary);
}

/// Runs a compaction with two models; `answer` gets the model's index and the number of its request.
fn run_two(
    input: CompactionInput,
    answer: impl Fn(usize, usize) -> Result<&'static str, SummaryFailure>,
) -> (FinishedCompaction, [usize; 2]) {
    let mut compaction = Compaction::new(input, Ladder::default());
    let mut request_counts = [0; 2];
    loop {
        match compaction.step() {
            CompactionStep::Ask(_) => {
                let model = compaction.model_index();
                compaction.answer(answer(model, request_counts[model]));
                request_counts[model] += 1;
            }
            CompactionStep::Done(outcome) => return (*outcome, request_counts),
            end @ (CompactionStep::Nothing(_) | CompactionStep::GaveUp(_)) => panic!("{end:?}"),
        }
    }
}

#[test]
fn the_next_model_is_tried_before_quotations() {
    let two =
        |first, second| CompactionInput { summary_windows: vec![first, second], ..input(turns(100, 2_000), 200_000) };
    // The first model fails midway; its text is not mixed with that of the second.
    let (outcome, request_counts) = run_two(two(200_000, 64_000), |model, number| match (model, number) {
        (0, 1..) => Err(SummaryFailure::Failed),
        _ => Ok(CHECKPOINT),
    });
    assert_eq!(
        (outcome.method, outcome.summary.as_str(), request_counts[0]),
        (Some(SummaryMethod::Staged), CHECKPOINT, 3)
    );
    assert!(request_counts[1] > 3, "{request_counts:?}");
    // A model whose window is unknown or too small cannot be used.
    let (outcome, request_counts) = run_two(two(0, 64_000), |_, _| Ok(CHECKPOINT));
    assert_eq!((outcome.method, request_counts[0]), (Some(SummaryMethod::Staged), 0));
    // No third attempt is made.
    let (outcome, request_counts) = run_two(two(200_000, 64_000), |_, _| Ok("garbage"));
    assert_eq!((outcome.method, request_counts[0]), (Some(SummaryMethod::Extract), 2));
    assert!(outcome.summary.contains("these are quotations"), "{}", outcome.summary);
}

#[test]
fn what_is_short_is_left_alone() {
    let (step, _) = run(&mut Compaction::new(input(turns(3, 10), 64_000), Ladder::default()), &[Good]);
    assert_eq!(step, CompactionStep::Nothing(NothingToCompact::Short));
    let compacted = CompactionInput { kept: Some(6), ..input(turns(3, 10), 64_000) };
    let (step, _) = run(&mut Compaction::new(compacted, Ladder::default()), &[Good]);
    assert_eq!(step, CompactionStep::Nothing(NothingToCompact::Compacted));
}

/// Case 155.
#[test]
fn no_fourth_attempt_after_three_overflows() {
    let mut ladder = Ladder::default();
    let (mut scale, mut messages, mut attempts) = (TokenScale::ONE, turns(100, 2_000), Vec::new());
    while ladder.recover() {
        let limits = Settings::default().limits(200_000, 1_000, scale);
        let mut compaction = Compaction::new(CompactionInput { limits, ..input(messages.clone(), 200_000) }, ladder);
        let (CompactionStep::Done(outcome), _) = run(&mut compaction, &[Good]) else {
            panic!("it must come to an end")
        };
        (ladder, scale) = (compaction.ladder(), scale.after_overflow());
        messages.drain(..outcome.kept);
        attempts.push(outcome.strategies);
    }
    let expected = [
        vec![CompactionStrategy::Summary],
        vec![CompactionStrategy::Results, CompactionStrategy::Half],
        vec![CompactionStrategy::Unit],
    ];
    assert_eq!(attempts, expected);
}

/// A call that does not fit even alone: no message is kept, and the summary quotes the request of the user.
#[test]
fn a_call_that_is_too_long_is_replaced_by_quotations() {
    let write = crate::sample::calls(&[("a", "write", json!({"path": "a.txt", "content": filler(30_000)}))]);
    let messages = vec![user("write it"), write, result("a", "ok")];
    let outcome = done(input(messages, 16_384), &[Good]);
    assert_eq!((outcome.kept, outcome.strategies.last()), (3, Some(&CompactionStrategy::Bare)));
    assert!(outcome.summary.ends_with("word for word:\nwrite it\n</latest-request>"), "{}", outcome.summary);
    assert_eq!(outcome.details["modifiedFiles"], json!(["a.txt"]));
}

#[test]
fn a_request_that_alone_is_too_long_loses_its_middle() {
    let request = format!("begin {} end", filler(30_000));
    let outcome = done(input(vec![assistant("hello"), user(&request)], 16_384), &[Good]);
    assert_eq!((outcome.kept, outcome.strategies.last()), (2, Some(&CompactionStrategy::Bare)));
    let quoted = outcome.details["request"].as_str().unwrap();
    assert!(quoted.starts_with("begin word") && quoted.ends_with("word end"), "{quoted}");
    assert!(quoted.contains(" bytes left out …]"), "{quoted}");
}

#[test]
fn thousands_of_calls_need_few_summary_requests() {
    let mut messages = vec![user("count all of them")];
    for index in 0..5_000 {
        let id = format!("c{index}");
        messages.extend([call(&id), result(&id, &filler(20))]);
    }
    let (step, request_count) = run(&mut Compaction::new(input(messages, 32_000), Ladder::default()), &[Good]);
    let CompactionStep::Done(outcome) = step else { panic!("{step:?}") };
    assert_eq!(outcome.strategies, [CompactionStrategy::Summary]);
    assert!((2..=14).contains(&request_count), "{request_count}");
    assert!(outcome.summary.contains("\ncount all of them\n</latest-request>"), "{}", outcome.summary);
}

#[test]
fn no_space_is_an_error_with_advice() {
    let limits = Settings::default().limits(16_384, 12_000, TokenScale::ONE);
    let input = CompactionInput { limits, ..input(turns(9, 900), 16_384) };
    let (step, _) = run(&mut Compaction::new(input, Ladder::default()), &[Good]);
    let CompactionStep::GaveUp(failure) = step else { panic!("{step:?}") };
    assert_eq!(
        failure.to_string(),
        "the system prompt and the tool definitions alone use about 12000 of the 12288 tokens available for a \
         request to this model: choose a model with a larger context window, shorten the files of the workspace, or \
         allow fewer tools"
    );
}

/// Generates scripts of up to five answers.
fn scripts() -> impl Strategy<Value = Vec<ScriptedAnswer>> {
    prop::collection::vec(prop::sample::select(vec![Good, Empty, Garbage, Failed, Overflow]), 1..6)
}

/// A message of a generated conversation: its kind, its kind of text, its size.
fn message(index: usize, kind: u8, text_kind: u8, size: usize) -> Vec<Message> {
    let text = match text_kind {
        0 => filler(size),
        1 => "漢字かな".repeat(size / 4),
        2 => "fn main() { let x = \"a/b.rs:12\"; }\n".repeat(size / 16),
        3 => "😀🦞".repeat(size / 6),
        _ => "x".repeat(size * 3),
    };
    let id = format!("c{index}");
    match kind {
        0 => vec![user(&format!("request {index} {text}"))],
        1 => vec![assistant(&text)],
        2 => vec![call(&id), result(&id, &text)],
        3 => {
            let ids: Vec<_> = (0..12).map(|nth| format!("{id}-{nth}")).collect();
            let calls = ids.iter().map(|id| (id.as_str(), "exec", json!({"command": text.get(..40)})));
            let call_message = crate::sample::calls(&calls.collect::<Vec<_>>());
            std::iter::once(call_message).chain(ids.iter().map(|id| result(id, &text))).collect()
        }
        4 => vec![Message::User(User {
            content: Content::Blocks(vec![Block::text(text), image()]),
            ..User::text("", 0)
        })],
        _ => vec![crate::sample::calls(&[(&id, "write", json!({"path": "a", "content": text}))]), result(&id, "ok")],
    }
}

fn calls_and_results(lines: &[HistoryLine]) -> (Vec<String>, Vec<String>) {
    let mut pairs = (Vec::new(), Vec::new());
    for line in lines {
        match &*line.message {
            Message::Assistant(assistant) => {
                pairs.0.extend(Assistant::tool_calls(assistant).map(|call| call.id.clone()))
            }
            Message::ToolResult(result) => pairs.1.push(result.tool_call_id.clone()),
            Message::User(_) | Message::Other(_) => {}
        }
    }
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_conversation_is_compacted_within_the_budget(
        small in prop::collection::vec((0u8..6, 0u8..5, 1usize..200), 0..60),
        large in prop::collection::vec((0u8..6, 0u8..5, 1usize..20_000), 0..4),
        position in 0usize..60,
        script in scripts(),
        (window, overhead) in (16_000u64..80_000, 0u64..8_000),
        safeguard in any::<bool>(),
    ) {
        let mut shape = small;
        let position = position.min(shape.len());
        shape.splice(position..position, large);
        let messages: Vec<_> = shape.into_iter().enumerate().flat_map(|(index, (kind, text_kind, size))| message(index, kind, text_kind, size)).collect();
        let limits = Settings::default().limits(window, overhead, TokenScale::ONE);
        let mode = if safeguard { CompactionMode::Safeguard } else { CompactionMode::Default };
        let input = CompactionInput { limits, mode, ..input(messages, window) };
        let before = input.lines.clone();
        let mut compaction = Compaction::new(input, Ladder::default());
        let (step, request_count) = run(&mut compaction, &script);
        // Three passes, two sections, thirteen requests, each sent at most twice.
        prop_assert!(request_count <= 3 * 2 * 13 * 2, "{}", request_count);
        let outcome = match step {
            CompactionStep::Nothing(_) => {
                prop_assert!(total_tokens(&before) <= limits.space);
                return Ok(());
            }
            CompactionStep::Done(outcome) => outcome,
            CompactionStep::Ask(_) | CompactionStep::GaveUp(_) => return Err(TestCaseError::fail(format!("{step:?}"))),
        };
        // What the caller shows in the next request.
        let chars = crate::escalate::kept_chars(&outcome.details);
        let shown: Vec<_> = before[outcome.kept..]
            .iter()
            .map(|line| match chars.and_then(|chars| truncate_result(&line.message, chars)) {
                Some(short) => HistoryLine::new(line.entry.clone(), Arc::new(short)),
                None => line.clone(),
            })
            .collect();
        let used = overhead + estimate(&outcome.summary) + total_tokens(&shown);
        prop_assert!(used <= limits.threshold, "{} of {}: {:?}", used, limits.threshold, outcome.strategies);
        let (calls, results) = calls_and_results(&shown);
        prop_assert_eq!(calls, results);
        let newest = before.iter().rfind(|line| matches!(*line.message, Message::User(_)));
        if let Some(newest) = newest {
            let request = request_of(&newest.message);
            let is_kept = shown.iter().any(|line| line.entry == newest.entry);
            let is_huge = estimate(&request) + 400 > limits.space;
            prop_assert!(is_kept || is_huge || outcome.summary.contains(&request), "{}", outcome.summary);
        }
    }

    #[test]
    fn an_endless_session_is_compacted_repeatedly(
        sizes in prop::collection::vec(1usize..3_000, 30..60),
        script in scripts(),
    ) {
        let limits = Settings::default().limits(16_384, 4_000, TokenScale::ONE);
        let (mut shown, mut previous, mut kept) = (Vec::new(), None::<PreviousCompaction>, None);
        for (index, size) in sizes.into_iter().enumerate() {
            let id = format!("c{index}");
            let request = format!("request {index}");
            shown.extend([user(&request), call(&id), result(&id, &filler(size))]);
            let summary = previous.as_ref().map_or(0, |previous| estimate(&previous.text) + WRAPPER_TOKENS);
            if summary + total_tokens(&lines(shown.clone())) <= limits.space {
                continue;
            }
            let input = CompactionInput { previous: previous.take(), kept, limits, ..input(shown.clone(), 16_384) };
            let (CompactionStep::Done(outcome), _) = run(&mut Compaction::new(input, Ladder::default()), &script) else {
                return Err(TestCaseError::fail("every compaction must come to an end"));
            };
            shown.drain(..outcome.kept);
            if let Some(chars) = crate::escalate::kept_chars(&outcome.details) {
                for message in &mut shown {
                    *message = truncate_result(message, chars).unwrap_or_else(|| message.clone());
                }
            }
            kept = Some(shown.len());
            prop_assert!(outcome.after <= limits.threshold);
            let is_present = shown.contains(&user(&request)) || outcome.summary.contains(&request);
            prop_assert!(is_present, "{}", outcome.summary);
            previous = Some(PreviousCompaction { text: outcome.summary, details: outcome.details });
        }
    }
}
