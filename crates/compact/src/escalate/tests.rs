//! Tests of the strategy ladder and of truncated results.

use homard_proto::message::ToolResult;

use super::*;
use crate::sample::{image, result, user};

#[test]
fn every_strategy_is_used_once() {
    let mut ladder = Ladder::default();
    let used: Vec<_> = std::iter::from_fn(|| ladder.next_strategy()).collect();
    assert_eq!(used, STRATEGIES);
    assert_eq!(ladder.next_strategy(), None);
}

/// Case 155.
#[test]
fn three_overflows_are_recovered() {
    let mut ladder = Ladder::default();
    assert!(!ladder.is_recovery());
    let mut rungs = Vec::new();
    while ladder.recover() {
        rungs.push(ladder.next_strategy());
    }
    assert_eq!(
        rungs,
        [Some(CompactionStrategy::Summary), Some(CompactionStrategy::Results), Some(CompactionStrategy::Unit)]
    );
}

fn blocks(message: &Message) -> &[Block] {
    let Message::ToolResult(ToolResult { content, .. }) = message else { panic!("{message:?}") };
    content
}

#[test]
fn a_result_may_take_three_tenths_of_the_window() {
    assert_eq!([200_000, 16_384, 2_000_000].map(result_chars), [240_000, 19_660, 400_000]);
}

#[test]
fn a_long_result_is_cut_at_a_line() {
    let text = format!("{}\n{}", "word ".repeat(1_000).trim_end(), "word ".repeat(9_000));
    // 5000 characters are 1000 tokens, so that 5100 characters allow 1275 tokens.
    let short = truncate_result(&result("a", &text), 5_100).unwrap();
    let shown = "word ".repeat(1_000);
    let expected = format!(
        "{}\n\n[Cut: the first 4999 of 50000 characters are shown. Ask for a smaller part to see more.]",
        shown.trim_end()
    );
    assert_eq!(blocks(&short), [Block::text(expected)]);
    assert_eq!(truncate_result(&short, 5_100), None, "what was made short is short enough");
}

#[test]
fn a_truncated_result_has_one_note_about_its_length() {
    // Of 90000 characters 50000 were stored; fewer are shown, and then fewer still.
    let Message::ToolResult(mut stored) = result("a", &"word ".repeat(10_000)) else { panic!() };
    stored.content.push(Block::text(notice::stored_note(90_000, 50_000)));
    let short = truncate_result(&Message::ToolResult(stored), 20_000).unwrap();
    let expected = |count: usize, shown: usize| {
        let text = "word ".repeat(count);
        format!("{text}\n\n[Cut: the first {shown} of 90000 characters are shown. Ask for a smaller part to see more.]")
    };
    assert_eq!(blocks(&short), [Block::text(expected(4_000, 20_000))]);
    let shorter = truncate_result(&short, 10_000).unwrap();
    assert_eq!(blocks(&shorter), [Block::text(expected(2_000, 10_000))]);
}

#[test]
fn text_blocks_share_the_limit_and_images_are_kept() {
    let Message::ToolResult(mut whole) = result("a", &"word ".repeat(8_000)) else { panic!() };
    whole.content.extend([image(), Block::text("word ".repeat(2_000))]);
    let short = truncate_result(&Message::ToolResult(whole), 20_000).unwrap();
    let lengths = blocks(&short).iter().map(|block| block.as_text().map(|text| text.matches("word").count()));
    assert_eq!(lengths.collect::<Vec<_>>(), [Some(3_200), None, Some(800)]);
}

#[test]
fn text_with_more_tokens_per_character_gets_fewer_characters() {
    let short = truncate_result(&result("a", &"漢".repeat(50_000)), 40_000).unwrap();
    let tokens: u64 = blocks(&short).iter().filter_map(Block::as_text).map(estimate).sum();
    assert!((9_000..10_100).contains(&tokens), "{tokens}");
}

#[test]
fn short_results_and_other_messages_are_not_truncated() {
    assert_eq!(truncate_result(&user(&"x".repeat(9_999)), 100), None);
    assert_eq!(truncate_result(&result("a", "short"), 100), None);
}
