//! Tests of whole compactions, for arbitrary conversations and model answers.

use homard_proto::message::Assistant;
use proptest::prelude::*;

use super::*;
use crate::{
    Settings,
    measure::Scale,
    sample::{CHECKPOINT, TURN, assistant, call, image, lines, result, user, words},
};

fn task(messages: Vec<Message>, window: u64) -> Task {
    Task {
        lines: lines(messages),
        kept: None,
        previous: None,
        limits: Settings::default().limits(window, 1_000, Scale::ONE),
        focus: None,
        summary_windows: vec![window],
        mode: Mode::Default,
    }
}

/// Runs a compaction to its end with a model that repeats the answers of a script.
fn run(compaction: &mut Compaction, script: &[u8]) -> (Step, usize) {
    let mut asked = 0;
    loop {
        let Step::Ask(ask) = compaction.step() else { return (compaction.step(), asked) };
        let good = if ask.user.contains("beginning of a turn") { TURN } else { CHECKPOINT };
        compaction.answer(match script[asked % script.len()] {
            0 => Ok(good),
            1 => Ok(""),
            2 => Ok("garbage"),
            3 => Err(Refused::Failed),
            _ => Err(Refused::Overflow),
        });
        asked += 1;
    }
}

fn done(task: Task, script: &[u8]) -> Outcome {
    match run(&mut Compaction::new(task, Ladder::default()), script) {
        (Step::Done(outcome), _) => *outcome,
        other => panic!("{other:?}"),
    }
}

fn turns(count: usize, size: usize) -> Vec<Message> {
    let turn = |at| [user(&format!("request {at}")), assistant(&words(size))];
    (0..count).flat_map(turn).collect()
}

#[test]
fn a_summary_is_enough_for_most_conversations() {
    let outcome = done(task(turns(100, 2_000), 200_000), &[0]);
    assert_eq!((outcome.way, &outcome.rungs[..]), (Some(Way::Staged), &[Rung::Summary][..]));
    assert_eq!(outcome.summary, CHECKPOINT);
    assert_eq!(outcome.kept, 182, "nine turns of two thousand tokens each are kept");
    assert!(outcome.after < 25_000 && outcome.before > 200_000, "{outcome:?}");
}

/// Acceptance D16: previously, two models were asked before it turned out that there was nothing to gain.
#[test]
fn a_short_conversation_is_left_alone_without_asking_a_model() {
    let limits = |keep| Limits { keep, ..Settings::default().limits(20_000, 1_000, Scale::ONE) };
    for (size, script) in [(100, [0]), (400, [0]), (400, [2])] {
        let messages = turns(8, size);
        // All but the first turn is recent.
        let task = Task { limits: limits(weight(&lines(messages[2..].to_vec()))), ..task(messages, 20_000) };
        let (step, asked) = run(&mut Compaction::new(task, Ladder::default()), &script);
        assert_eq!((step, asked), (Step::Nothing(Nothing::Short), 0), "{size}");
    }
}

#[test]
fn a_summary_that_nothing_forces_is_shorter_than_what_it_stands_for() {
    for size in [700, 1_500, 4_000] {
        for script in [[0], [1], [2], [3]] {
            let limits = Limits { keep: 1_000, ..Settings::default().limits(200_000, 1_000, Scale::ONE) };
            let outcome = done(Task { limits, ..task(turns(3, size), 200_000) }, &script);
            assert!(outcome.after < outcome.before, "{outcome:?}");
        }
    }
}

/// Pitfall 47.
#[test]
fn a_window_of_sixteen_thousand_is_left_with_room_for_a_turn() {
    let task = Task { limits: Settings::default().limits(16_384, 6_000, Scale::ONE), ..task(turns(40, 300), 16_384) };
    let limits = task.limits;
    for script in [[0], [1], [2], [3], [4]] {
        let outcome = done(task.clone(), &script);
        assert!(outcome.after + limits.room / 4 <= limits.threshold, "{outcome:?}");
    }
}

/// Case 156.
#[test]
fn one_huge_result_is_shown_shorter() {
    let messages = vec![user("read it"), call("a"), result("a", &words(120_000))];
    let task = Task { limits: Settings::default().limits(120_000, 1_000, Scale::ONE), ..task(messages, 120_000) };
    let outcome = done(task, &[0]);
    assert_eq!((outcome.kept, outcome.way), (0, None));
    assert_eq!(outcome.rungs, [Rung::Summary, Rung::Results]);
    assert_eq!(outcome.details, json!({"resultChars": 144_000}));
    assert!(outcome.after < 40_000, "{outcome:?}");
}

/// Case 157.
#[test]
fn a_turn_of_many_calls_is_split_and_its_request_quoted() {
    let mut messages = vec![user("old"), assistant("old"), user("count all of them, please")];
    for at in 0..60 {
        let id = format!("c{at}");
        messages.extend([call(&id), result(&id, &words(1_000))]);
    }
    let outcome = done(task(messages.clone(), 64_000), &[0]);
    assert!(matches!(messages[outcome.kept], Message::Assistant(_)), "{}", outcome.kept);
    assert!(outcome.summary.contains("\n\n# Context of the turn that goes on\n\n## Request"), "{}", outcome.summary);
    assert!(outcome.summary.ends_with("word for word:\ncount all of them, please\n</latest-request>"));
}

#[test]
fn a_request_stays_quoted_while_its_turn_goes_on() {
    let mut messages = Vec::new();
    for at in 0..60 {
        let id = format!("c{at}");
        messages.extend([call(&id), result(&id, &words(1_000))]);
    }
    let previous = Previous { text: CHECKPOINT.to_owned(), details: json!({"request": "count them"}) };
    let on = Task { previous: Some(previous), kept: Some(2), ..task(messages.clone(), 64_000) };
    let outcome = done(on.clone(), &[0]);
    assert!(outcome.summary.contains("\ncount them\n</latest-request>"), "{}", outcome.summary);
    messages.push(user("stop"));
    let outcome = done(Task { lines: lines(messages), ..on }, &[0]);
    assert!(!outcome.summary.contains("latest-request"), "{}", outcome.summary);
}

/// Runs a compaction with two models; `answer` gets the model's index and the number of its request.
fn run_two(task: Task, answer: impl Fn(usize, usize) -> Result<&'static str, Refused>) -> (Outcome, [usize; 2]) {
    let mut compaction = Compaction::new(task, Ladder::default());
    let mut asked = [0; 2];
    loop {
        match compaction.step() {
            Step::Ask(_) => {
                let whom = compaction.asked();
                compaction.answer(answer(whom, asked[whom]));
                asked[whom] += 1;
            }
            Step::Done(outcome) => return (*outcome, asked),
            end @ (Step::Nothing(_) | Step::GaveUp(_)) => panic!("{end:?}"),
        }
    }
}

#[test]
fn the_next_model_is_asked_before_anything_is_quoted() {
    let two = |first, second| Task { summary_windows: vec![first, second], ..task(turns(100, 2_000), 200_000) };
    // The first model fails midway; its text is not mixed with that of the second.
    let (outcome, asked) = run_two(two(200_000, 64_000), |whom, number| match (whom, number) {
        (0, 1..) => Err(Refused::Failed),
        _ => Ok(CHECKPOINT),
    });
    assert_eq!((outcome.way, outcome.summary.as_str(), asked[0]), (Some(Way::Staged), CHECKPOINT, 3));
    assert!(asked[1] > 3, "{asked:?}");
    // A model whose window is unknown or too small cannot be used.
    let (outcome, asked) = run_two(two(0, 64_000), |_, _| Ok(CHECKPOINT));
    assert_eq!((outcome.way, asked[0]), (Some(Way::Staged), 0));
    // No third attempt is made.
    let (outcome, asked) = run_two(two(200_000, 64_000), |_, _| Ok("garbage"));
    assert_eq!((outcome.way, asked[0]), (Some(Way::Extract), 2));
    assert!(outcome.summary.contains("these are quotations"), "{}", outcome.summary);
}

#[test]
fn what_is_short_is_left_alone() {
    let (step, _) = run(&mut Compaction::new(task(turns(3, 10), 64_000), Ladder::default()), &[0]);
    assert_eq!(step, Step::Nothing(Nothing::Short));
    let compacted = Task { kept: Some(6), ..task(turns(3, 10), 64_000) };
    let (step, _) = run(&mut Compaction::new(compacted, Ladder::default()), &[0]);
    assert_eq!(step, Step::Nothing(Nothing::Compacted));
}

/// Case 155.
#[test]
fn a_provider_that_is_never_content_is_asked_a_fourth_time_by_nobody() {
    let mut ladder = Ladder::default();
    let (mut scale, mut messages, mut attempts) = (Scale::ONE, turns(100, 2_000), Vec::new());
    while ladder.recover() {
        let limits = Settings::default().limits(200_000, 1_000, scale);
        let mut compaction = Compaction::new(Task { limits, ..task(messages.clone(), 200_000) }, ladder);
        let (Step::Done(outcome), _) = run(&mut compaction, &[0]) else { panic!("it must come to an end") };
        (ladder, scale) = (compaction.ladder(), scale.after_overflow());
        messages.drain(..outcome.kept);
        attempts.push(outcome.rungs);
    }
    let expected = [vec![Rung::Summary], vec![Rung::Results, Rung::Half], vec![Rung::Unit]];
    assert_eq!(attempts, expected);
}

#[test]
fn a_call_that_alone_is_too_long_is_quoted_away() {
    let write = crate::sample::calls(&[("a", "write", json!({"path": "a.txt", "content": words(30_000)}))]);
    let messages = vec![user("write it"), write, result("a", "ok")];
    let outcome = done(task(messages, 16_384), &[0]);
    assert_eq!((outcome.kept, outcome.rungs.last()), (3, Some(&Rung::Bare)));
    assert!(outcome.summary.ends_with("word for word:\nwrite it\n</latest-request>"), "{}", outcome.summary);
    assert_eq!(outcome.details["modifiedFiles"], json!(["a.txt"]));
}

#[test]
fn a_request_that_alone_is_too_long_loses_its_middle() {
    let request = format!("begin {} end", words(30_000));
    let outcome = done(task(vec![assistant("hello"), user(&request)], 16_384), &[0]);
    assert_eq!((outcome.kept, outcome.rungs.last()), (2, Some(&Rung::Bare)));
    let quoted = outcome.details["request"].as_str().unwrap();
    assert!(quoted.starts_with("begin word") && quoted.ends_with("word end"), "{quoted}");
    assert!(quoted.contains(" bytes left out …]"), "{quoted}");
}

#[test]
fn thousands_of_calls_are_asked_about_a_few_times() {
    let mut messages = vec![user("count all of them")];
    for at in 0..5_000 {
        let id = format!("c{at}");
        messages.extend([call(&id), result(&id, &words(20))]);
    }
    let (step, asked) = run(&mut Compaction::new(task(messages, 32_000), Ladder::default()), &[0]);
    let Step::Done(outcome) = step else { panic!("{step:?}") };
    assert_eq!(outcome.rungs, [Rung::Summary]);
    assert!((2..=14).contains(&asked), "{asked}");
    assert!(outcome.summary.contains("\ncount all of them\n</latest-request>"), "{}", outcome.summary);
}

#[test]
fn no_room_is_an_error_that_says_what_to_do() {
    let limits = Settings::default().limits(16_384, 12_000, Scale::ONE);
    let task = Task { limits, ..task(turns(9, 900), 16_384) };
    let (step, _) = run(&mut Compaction::new(task, Ladder::default()), &[0]);
    let Step::GaveUp(why) = step else { panic!("{step:?}") };
    assert_eq!(
        why.to_string(),
        "the instructions and tools alone take about 12000 of the 12288 tokens that this model may be sent: choose a \
         model with a larger context window, shorten the files of the workspace, or allow fewer tools"
    );
}

/// A message of a generated conversation: its kind, its kind of text, its size.
fn message(at: usize, (kind, script, size): (u8, u8, usize)) -> Vec<Message> {
    let text = match script {
        0 => words(size),
        1 => "漢字かな".repeat(size / 4),
        2 => "fn main() { let x = \"a/b.rs:12\"; }\n".repeat(size / 16),
        3 => "😀🦞".repeat(size / 6),
        _ => "x".repeat(size * 3),
    };
    let id = format!("c{at}");
    match kind {
        0 => vec![user(&format!("request {at} {text}"))],
        1 => vec![assistant(&text)],
        2 => vec![call(&id), result(&id, &text)],
        3 => {
            let ids: Vec<_> = (0..12).map(|nth| format!("{id}-{nth}")).collect();
            let calls = ids.iter().map(|id| (id.as_str(), "exec", json!({"command": text.get(..40)})));
            let asked = crate::sample::calls(&calls.collect::<Vec<_>>());
            std::iter::once(asked).chain(ids.iter().map(|id| result(id, &text))).collect()
        }
        4 => vec![Message::User(User {
            content: Content::Blocks(vec![Block::text(text), image()]),
            ..User::text("", 0)
        })],
        _ => vec![crate::sample::calls(&[(&id, "write", json!({"path": "a", "content": text}))]), result(&id, "ok")],
    }
}

fn calls_and_results(lines: &[Line]) -> (Vec<String>, Vec<String>) {
    let mut pairs = (Vec::new(), Vec::new());
    for line in lines {
        match &*line.message {
            Message::Assistant(said) => pairs.0.extend(Assistant::tool_calls(said).map(|call| call.id.clone())),
            Message::ToolResult(result) => pairs.1.push(result.tool_call_id.clone()),
            Message::User(_) | Message::Other(_) => {}
        }
    }
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_conversation_ends_under_budget(
        small in prop::collection::vec((0u8..6, 0u8..5, 1usize..200), 0..60),
        large in prop::collection::vec((0u8..6, 0u8..5, 1usize..20_000), 0..4),
        place in 0usize..60,
        script in prop::collection::vec(0u8..5, 1..6),
        (window, overhead) in (16_000u64..80_000, 0u64..8_000),
        safeguard in any::<bool>(),
    ) {
        let mut shape = small;
        let place = place.min(shape.len());
        shape.splice(place..place, large);
        let messages: Vec<_> = shape.into_iter().enumerate().flat_map(|(at, shape)| message(at, shape)).collect();
        let limits = Settings::default().limits(window, overhead, Scale::ONE);
        let mode = if safeguard { Mode::Safeguard } else { Mode::Default };
        let task = Task { limits, mode, ..task(messages, window) };
        let before = task.lines.clone();
        let mut compaction = Compaction::new(task, Ladder::default());
        let (step, asked) = run(&mut compaction, &script);
        // Three passes, two sections, thirteen requests, each sent at most twice.
        prop_assert!(asked <= 3 * 2 * 13 * 2, "{}", asked);
        let outcome = match step {
            Step::Nothing(_) => {
                prop_assert!(weight(&before) <= limits.room);
                return Ok(());
            }
            Step::Done(outcome) => outcome,
            Step::Ask(_) | Step::GaveUp(_) => return Err(TestCaseError::fail(format!("{step:?}"))),
        };
        // What the caller shows in the next request.
        let chars = crate::escalate::kept_chars(&outcome.details);
        let shown: Vec<_> = before[outcome.kept..]
            .iter()
            .map(|line| match chars.and_then(|chars| shorten(&line.message, chars)) {
                Some(short) => Line::new(line.entry.clone(), Arc::new(short)),
                None => line.clone(),
            })
            .collect();
        let taken = overhead + estimate(&outcome.summary) + weight(&shown);
        prop_assert!(taken <= limits.threshold, "{} of {}: {:?}", taken, limits.threshold, outcome.rungs);
        let (calls, results) = calls_and_results(&shown);
        prop_assert_eq!(calls, results);
        let newest = before.iter().rfind(|line| matches!(*line.message, Message::User(_)));
        if let Some(newest) = newest {
            let request = request_of(&newest.message);
            let is_kept = shown.iter().any(|line| line.entry == newest.entry);
            let is_huge = estimate(&request) + 400 > limits.room;
            prop_assert!(is_kept || is_huge || outcome.summary.contains(&request), "{}", outcome.summary);
        }
    }

    #[test]
    fn a_session_that_never_ends_is_compacted_again_and_again(
        sizes in prop::collection::vec(1usize..3_000, 30..60),
        script in prop::collection::vec(0u8..5, 1..6),
    ) {
        let limits = Settings::default().limits(16_384, 4_000, Scale::ONE);
        let (mut shown, mut previous, mut kept) = (Vec::new(), None::<Previous>, None);
        for (at, size) in sizes.into_iter().enumerate() {
            let id = format!("c{at}");
            let request = format!("request {at}");
            shown.extend([user(&request), call(&id), result(&id, &words(size))]);
            let summary = previous.as_ref().map_or(0, |previous| estimate(&previous.text) + WRAPPING);
            if summary + weight(&lines(shown.clone())) <= limits.room {
                continue;
            }
            let task = Task { previous: previous.take(), kept, limits, ..task(shown.clone(), 16_384) };
            let (Step::Done(outcome), _) = run(&mut Compaction::new(task, Ladder::default()), &script) else {
                return Err(TestCaseError::fail("every compaction must come to an end"));
            };
            shown.drain(..outcome.kept);
            if let Some(chars) = crate::escalate::kept_chars(&outcome.details) {
                for message in &mut shown {
                    *message = shorten(message, chars).unwrap_or_else(|| message.clone());
                }
            }
            kept = Some(shown.len());
            prop_assert!(outcome.after <= limits.threshold);
            let is_there = shown.contains(&user(&request)) || outcome.summary.contains(&request);
            prop_assert!(is_there, "{}", outcome.summary);
            previous = Some(Previous { text: outcome.summary, details: outcome.details });
        }
    }
}
