//! Tests of the cut for conversations of different shapes.

use homard_proto::message::Message;
use proptest::prelude::*;

use super::*;
use crate::sample::{assistant, call, lines, result, user, words};

fn planned(messages: Vec<Message>, keep: u64) -> Result<CompactionPlan, NothingToCompact> {
    plan(&History { lines: &lines(messages), kept: None }, Keep::Recent(keep))
}

#[test]
fn whole_turns_are_cut_between_turns() {
    let messages = vec![user(&words(500)), assistant("a"), user("b"), assistant("c")];
    let expected = CompactionPlan { history: 0..2, prefix: 2..2, kept: 2, request: None };
    assert_eq!(planned(messages, 100), Ok(expected));
}

#[test]
fn a_turn_that_is_too_long_is_split_and_its_request_quoted() {
    let mut messages = vec![user("old"), assistant("old"), user("do it")];
    for id in ["a", "b", "c"] {
        messages.extend([call(id), result(id, &words(400))]);
    }
    let expected = CompactionPlan { history: 0..2, prefix: 2..7, kept: 7, request: Some(2) };
    assert_eq!(planned(messages, 500), Ok(expected));
}

#[test]
fn a_turn_is_kept_whole_if_it_is_not_much_too_long() {
    let mut messages = vec![user(&words(900)), assistant("old"), user("do it")];
    for id in ["a", "b"] {
        messages.extend([call(id), result(id, &words(400))]);
    }
    let expected = CompactionPlan { history: 0..2, prefix: 2..2, kept: 2, request: None };
    assert_eq!(planned(messages, 500), Ok(expected));
}

#[test]
fn the_turn_before_the_newest_is_kept_whole_if_both_are_not_much_too_long() {
    let answered =
        |size| vec![user("old"), assistant("old"), user("tell me"), assistant(&words(size)), assistant("so")];
    let with = |size, newest: Vec<Message>| planned([answered(size), newest].concat(), 500);
    let expected = CompactionPlan { history: 0..2, prefix: 2..2, kept: 2, request: None };
    // A request without an answer, and one with an answer.
    assert_eq!(with(900, vec![user("yes, do that")]), Ok(expected.clone()));
    assert_eq!(with(500, vec![user("yes, do that"), assistant(&words(400))]), Ok(expected));
    // Too long together: only the newer one is kept.
    let expected = CompactionPlan { history: 0..5, prefix: 5..5, kept: 5, request: None };
    assert_eq!(with(900, vec![user("yes, do that"), assistant(&words(400))]), Ok(expected));
}

#[test]
fn an_older_turn_that_is_split_has_its_beginning_summed_up_apart() {
    let messages = vec![
        user("first"),
        assistant("a"),
        user("second"),
        assistant(&words(400)),
        assistant(&words(60)),
        user("third"),
        assistant("c"),
    ];
    let expected = CompactionPlan { history: 0..2, prefix: 2..4, kept: 4, request: None };
    assert_eq!(planned(messages, 100), Ok(expected));
}

#[test]
fn a_call_is_never_parted_from_its_results() {
    let messages =
        vec![user("go"), call("a"), result("a", &words(300)), user("wait, also this"), result("b", &words(300))];
    // The user wrote between two results: that is inside the unit.
    let expected = CompactionPlan { history: 0..0, prefix: 0..1, kept: 1, request: None };
    assert_eq!(planned(messages, 10), Ok(expected));
}

#[test]
fn the_last_unit_stays_however_large_it_is() {
    let messages = vec![user("go"), assistant("a"), user("more"), call("a"), result("a", &words(5_000))];
    let expected = CompactionPlan { history: 0..2, prefix: 3..3, kept: 3, request: Some(2) };
    assert_eq!(planned(messages, 100), Ok(expected));
}

#[test]
fn a_turn_whose_request_was_summed_up_before_is_history() {
    let messages = vec![call("a"), result("a", &words(300)), call("b"), result("b", "b")];
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
fn what_is_short_or_just_compacted_is_left_alone() {
    let lines = lines([user("a"), assistant("b")]);
    let of = |lines, kept| plan(&History { lines, kept }, Keep::Recent(100));
    assert_eq!(of(&lines, None), Err(NothingToCompact::Short));
    assert_eq!(of(&lines, Some(1)), Err(NothingToCompact::Short));
    assert_eq!(of(&lines, Some(2)), Err(NothingToCompact::Compacted));
    assert_eq!(of(&[], Some(0)), Err(NothingToCompact::Compacted));
    assert_eq!(of(&[], None), Err(NothingToCompact::Short));
}

proptest! {
    #[test]
    fn a_cut_is_between_units_and_the_parts_are_all_there_is(
        kinds in prop::collection::vec((0u8..4, 1usize..300), 0..40),
        keep in 0u64..1_000,
    ) {
        let messages = kinds.iter().map(|&(kind, size)| match kind {
            0 => user(&words(size)),
            1 => assistant(&words(size)),
            2 => call("c"),
            _ => result("c", &words(size)),
        });
        let lines = lines(messages);
        let history = History { lines: &lines, kept: None };
        let Ok(made) = plan(&history, Keep::Recent(keep)) else { return Ok(()) };
        prop_assert_eq!(made.history.start, 0);
        // Between the two there is only the request, which is quoted.
        let gap = made.prefix.start - made.history.end;
        prop_assert!(gap == 0 || (gap == 1 && made.request == Some(made.history.end)));
        prop_assert_eq!(made.prefix.end, made.kept);
        let results_first = lines[made.kept..]
            .iter()
            .take_while(|line| !matches!(*line.message, Message::Assistant(_)))
            .any(|line| matches!(*line.message, Message::ToolResult(_)));
        prop_assert!(!results_first, "{:?}", made);
        let newest = lines.iter().rposition(|line| matches!(*line.message, Message::User(_)));
        prop_assert!(newest.is_none_or(|newest| newest >= made.kept || made.request == Some(newest)));
        // Planning again changes nothing.
        let again = plan(&History { lines: &lines[made.kept..], kept: Some(lines.len() - made.kept) }, Keep::Recent(keep));
        prop_assert_eq!(again, Err(NothingToCompact::Compacted));
    }
}
