//! Tests of the cut for conversations of different shapes.

use homard_proto::message::Message;
use proptest::prelude::*;

use super::*;
use crate::sample::{assistant, call, filler, lines, result, user};

fn planned(messages: Vec<Message>, keep: u64) -> Result<CompactionPlan, NothingToCompact> {
    plan(&History { lines: &lines(messages), kept: None }, Keep::Recent(keep))
}

#[test]
fn whole_turns_are_cut_between_turns() {
    let messages = vec![user(&filler(500)), assistant("a"), user("b"), assistant("c")];
    let expected = CompactionPlan { history: 0..2, prefix: 2..2, kept: 2, request: None };
    assert_eq!(planned(messages, 100), Ok(expected));
}

#[test]
fn a_turn_that_is_too_long_is_split_and_its_request_quoted() {
    let mut messages = vec![user("old"), assistant("old"), user("do it")];
    for id in ["a", "b", "c"] {
        messages.extend([call(id), result(id, &filler(400))]);
    }
    let expected = CompactionPlan { history: 0..2, prefix: 2..7, kept: 7, request: Some(2) };
    assert_eq!(planned(messages, 500), Ok(expected));
}

#[test]
fn a_turn_is_kept_whole_if_it_is_not_much_too_long() {
    let mut messages = vec![user(&filler(900)), assistant("old"), user("do it")];
    for id in ["a", "b"] {
        messages.extend([call(id), result(id, &filler(400))]);
    }
    let expected = CompactionPlan { history: 0..2, prefix: 2..2, kept: 2, request: None };
    assert_eq!(planned(messages, 500), Ok(expected));
}

#[test]
fn the_turn_before_the_newest_is_kept_whole_if_both_are_not_much_too_long() {
    let answered =
        |size| vec![user("old"), assistant("old"), user("tell me"), assistant(&filler(size)), assistant("so")];
    let plan_with = |size, newest: Vec<Message>| planned([answered(size), newest].concat(), 500);
    let expected = CompactionPlan { history: 0..2, prefix: 2..2, kept: 2, request: None };
    // A request without an answer, and one with an answer.
    assert_eq!(plan_with(900, vec![user("yes, do that")]), Ok(expected.clone()));
    assert_eq!(plan_with(500, vec![user("yes, do that"), assistant(&filler(400))]), Ok(expected));
    // Too long together: only the newer one is kept.
    let expected = CompactionPlan { history: 0..5, prefix: 5..5, kept: 5, request: None };
    assert_eq!(plan_with(900, vec![user("yes, do that"), assistant(&filler(400))]), Ok(expected));
}

#[test]
fn the_beginning_of_an_older_split_turn_is_summarized_separately() {
    let messages = vec![
        user("first"),
        assistant("a"),
        user("second"),
        assistant(&filler(400)),
        assistant(&filler(60)),
        user("third"),
        assistant("c"),
    ];
    let expected = CompactionPlan { history: 0..2, prefix: 2..4, kept: 4, request: None };
    assert_eq!(planned(messages, 100), Ok(expected));
}

#[test]
fn a_call_is_never_separated_from_its_results() {
    let messages =
        vec![user("go"), call("a"), result("a", &filler(300)), user("wait, also this"), result("b", &filler(300))];
    // The user wrote between two results: that is inside the unit.
    let expected = CompactionPlan { history: 0..0, prefix: 0..1, kept: 1, request: None };
    assert_eq!(planned(messages, 10), Ok(expected));
}

#[test]
fn the_last_unit_is_always_kept() {
    let messages = vec![user("go"), assistant("a"), user("more"), call("a"), result("a", &filler(5_000))];
    let expected = CompactionPlan { history: 0..2, prefix: 3..3, kept: 3, request: Some(2) };
    assert_eq!(planned(messages, 100), Ok(expected));
}

#[test]
fn a_turn_whose_request_was_summarized_before_is_history() {
    let messages = vec![call("a"), result("a", &filler(300)), call("b"), result("b", "b")];
    let expected = CompactionPlan { history: 0..2, prefix: 2..2, kept: 2, request: None };
    assert_eq!(planned(messages, 100), Ok(expected));
}

#[test]
fn keeping_nothing_quotes_the_request() {
    let lines = lines([user("a"), assistant("b"), user("c")]);
    let expected = CompactionPlan { history: 0..2, prefix: 3..3, kept: 3, request: Some(2) };
    assert_eq!(plan(&History { lines: &lines, kept: None }, Keep::None), Ok(expected));
}

#[test]
fn short_or_just_compacted_histories_are_not_compacted() {
    let lines = lines([user("a"), assistant("b")]);
    let plan_recent = |lines, kept| plan(&History { lines, kept }, Keep::Recent(100));
    assert_eq!(plan_recent(&lines, None), Err(NothingToCompact::Short));
    assert_eq!(plan_recent(&lines, Some(1)), Err(NothingToCompact::Short));
    assert_eq!(plan_recent(&lines, Some(2)), Err(NothingToCompact::Compacted));
    assert_eq!(plan_recent(&[], Some(0)), Err(NothingToCompact::Compacted));
    assert_eq!(plan_recent(&[], None), Err(NothingToCompact::Short));
}

proptest! {
    #[test]
    fn a_cut_is_between_units_and_covers_all_lines(
        kinds in prop::collection::vec((0u8..4, 1usize..300), 0..40),
        keep in 0u64..1_000,
    ) {
        let messages = kinds.iter().map(|&(kind, size)| match kind {
            0 => user(&filler(size)),
            1 => assistant(&filler(size)),
            2 => call("c"),
            _ => result("c", &filler(size)),
        });
        let lines = lines(messages);
        let history = History { lines: &lines, kept: None };
        let Ok(planned_cut) = plan(&history, Keep::Recent(keep)) else { return Ok(()) };
        prop_assert_eq!(planned_cut.history.start, 0);
        // Between the two there is only the request, which is quoted.
        let gap = planned_cut.prefix.start - planned_cut.history.end;
        prop_assert!(gap == 0 || (gap == 1 && planned_cut.request == Some(planned_cut.history.end)));
        prop_assert_eq!(planned_cut.prefix.end, planned_cut.kept);
        let results_first = lines[planned_cut.kept..]
            .iter()
            .take_while(|line| !matches!(*line.message, Message::Assistant(_)))
            .any(|line| matches!(*line.message, Message::ToolResult(_)));
        prop_assert!(!results_first, "{:?}", planned_cut);
        let newest = lines.iter().rposition(|line| matches!(*line.message, Message::User(_)));
        prop_assert!(newest.is_none_or(|newest| newest >= planned_cut.kept || planned_cut.request == Some(newest)));
        // Planning again changes nothing.
        let again = plan(
            &History { lines: &lines[planned_cut.kept..], kept: Some(lines.len() - planned_cut.kept) },
            Keep::Recent(keep),
        );
        prop_assert_eq!(again, Err(NothingToCompact::Compacted));
    }
}
