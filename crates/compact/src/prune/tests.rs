//! Tests of pruning, and of its stability across requests.

use homard_proto::message::Message;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sample::{assistant, call, image, lines, result, user};

const MINUTE: u64 = 60_000;

/// Builds a conversation with one result of this many characters in each turn.
fn conversation(results: &[usize]) -> Vec<NamedMessage> {
    let turn = |(index, &size): (usize, &usize)| {
        let id = format!("c{index}");
        [user("go"), call(&id), result(&id, &"0123456789".repeat(size / 10)), assistant("done")]
    };
    let lines = lines(results.iter().enumerate().flat_map(turn));
    lines.into_iter().map(|line| NamedMessage { name: line.entry, message: line.message }).collect()
}

fn at(minutes: u64) -> CacheTimes {
    CacheTimes { touched: Some(10 * MINUTE), now: (10 + minutes) * MINUTE }
}

fn text(message: &Message) -> String {
    let Message::ToolResult(result) = message else { panic!("{message:?}") };
    result_text(result)
}

fn originals(lines: &[NamedMessage]) -> Vec<Arc<Message>> {
    lines.iter().map(|line| line.message.clone()).collect()
}

/// Case 164.
#[test]
fn old_results_lose_their_middle_once_the_cache_has_expired() {
    let lines = conversation(&[10_000, 10_000, 10_000, 10_000]);
    let pruned = prune(&lines, &ResultCuts::default(), at(6), &Settings::default(), 25_000);
    let half = "0123456789".repeat(150);
    let short = format!("{half}\n...\n{half}\n\n[Shortened: the first 1500 and last 1500 of 10000 characters.]");
    let shown: Vec<_> = [2, 6, 10, 14].map(|index| text(&pruned.messages[index])).to_vec();
    let whole = "0123456789".repeat(1_000);
    // The third-last assistant message ends the third turn; the last result is after it.
    assert_eq!(shown, [short.clone(), short.clone(), short, whole]);
    assert!(pruned.has_changed);
    assert_eq!(originals(&lines), originals(&conversation(&[10_000; 4])), "the transcript stays");
}

#[test]
fn nothing_is_cut_before_the_cache_expires_or_below_the_ratio() {
    let lines = conversation(&[10_000; 4]);
    let never = CacheTimes { touched: None, now: 99 * MINUTE };
    for (times, window) in [(at(4), 25_000), (never, 25_000), (at(6), 50_000)] {
        let pruned = prune(&lines, &ResultCuts::default(), times, &Settings::default(), window);
        assert_eq!(
            pruned,
            PrunedRequest { messages: originals(&lines), cuts: ResultCuts::default(), has_changed: false }
        );
    }
}

#[test]
fn above_half_of_the_window_the_oldest_results_are_omitted() {
    let lines = conversation(&[4_000; 30]);
    // 120000 characters for 40000 tokens are 0.75; eleven results must be omitted to get below a half.
    let pruned = prune(&lines, &ResultCuts::default(), at(6), &Settings::default(), 40_000);
    let left_out: Vec<_> = (0..30).map(|turn| text(&pruned.messages[4 * turn + 2]) == DEFAULT_PLACEHOLDER).collect();
    assert_eq!(left_out, [vec![true; 11], vec![false; 19]].concat());
}

#[test]
fn the_placeholder_is_configurable() {
    let lines = conversation(&[4_000; 30]);
    let settings = Settings { placeholder: "(gone)".to_owned(), ..Settings::default() };
    let pruned = prune(&lines, &ResultCuts::default(), at(6), &settings, 40_000);
    assert_eq!(text(&pruned.messages[2]), "(gone)");
    let again = prune(&lines, &pruned.cuts, at(1), &settings, 40_000);
    assert_eq!(again.messages, pruned.messages);
}

#[test]
fn a_truncated_result_has_one_note_about_its_length() {
    let mut lines = conversation(&[10_000; 4]);
    let Message::ToolResult(mut stored) = (*lines[2].message).clone() else { panic!() };
    stored.content.push(Block::text(notice::stored_note(90_000, 10_000)));
    lines[2].message = Arc::new(Message::ToolResult(stored));
    let pruned = prune(&lines, &ResultCuts::default(), at(6), &Settings::default(), 25_000);
    let half = "0123456789".repeat(150);
    let short = format!("{half}\n...\n{half}\n\n[Shortened: characters 1 to 1500 and 8501 to 10000 of 90000.]");
    assert_eq!(text(&pruned.messages[2]), short);
}

#[test]
fn small_results_are_not_omitted() {
    let lines = conversation(&[4_000; 10]);
    let pruned = prune(&lines, &ResultCuts::default(), at(6), &Settings::default(), 10_000);
    assert!(!pruned.has_changed);
}

#[test]
fn images_and_denied_tools_are_not_pruned() {
    let mut lines = conversation(&[10_000; 4]);
    let Message::ToolResult(mut with_image) = result("c0", &"x".repeat(9_000)) else { panic!() };
    with_image.content.push(image());
    lines[2].message = Arc::new(Message::ToolResult(with_image));
    let cuts = |settings: Settings| {
        let pruned = prune(&lines, &ResultCuts::default(), at(6), &settings, 20_000);
        serde_json::to_value(pruned.cuts).unwrap()
    };
    let middle = json!({"middle": {"head": 1500, "tail": 1500}});
    assert_eq!(cuts(Settings::default()), json!({"l10": middle, "l6": middle}));
    let named = |allow: &[&str], deny: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        cuts(Settings { allow: owned(allow), deny: owned(deny), ..Settings::default() })
    };
    assert_eq!(named(&["EX*"], &[]), json!({"l10": middle, "l6": middle}));
    assert_eq!(named(&["read"], &[]), json!({}));
    assert_eq!(named(&["exec"], &["*e*c"]), json!({}));
}

#[test]
fn tool_patterns_match_names() {
    let cases = [("*", "a"), ("a*c", "abc"), ("a*b*c", "aXbXc"), ("*a", "ba"), ("abc", "abc"), ("a**", "a")];
    assert!(cases.iter().all(|(pattern, name)| matches(pattern, name)));
    let cases = [("a*a", "a"), ("abc", "abcd"), ("*a", "ab"), ("a*b*c", "acb"), ("", "a")];
    assert!(cases.iter().all(|(pattern, name)| !matches(pattern, name)));
}

#[test]
fn pruning_applies_only_to_providers_with_a_cache() {
    assert!(applies("Anthropic", "claude") && applies("openrouter", "anthropic/claude"));
    assert!(!applies("openai", "anthropic/claude") && !applies("openrouter", "google/gemini"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cuts_are_stable_across_requests(
        sizes in prop::collection::vec(0usize..12_000, 1..40),
        more in prop::collection::vec(0usize..12_000, 0..10),
        window in 1_000u64..100_000,
    ) {
        let settings = Settings::default();
        let first = prune(&conversation(&sizes), &ResultCuts::default(), at(6), &settings, window);
        // Stored with the session and read again after a restart.
        let stored: ResultCuts = serde_json::from_value(serde_json::to_value(&first.cuts).unwrap()).unwrap();
        let longer = conversation(&[sizes, more].concat());
        let next = prune(&longer, &stored, at(1), &settings, window);
        prop_assert_eq!(&next.messages[..first.messages.len()], &first.messages[..]);
        prop_assert!(!next.has_changed);
        prop_assert_eq!(&next.cuts, &first.cuts);
        // Once the cache has expired more may be cut, but a second pass finds nothing.
        let later = prune(&longer, &stored, at(6), &settings, window);
        let again = prune(&longer, &later.cuts, at(1), &settings, window);
        prop_assert_eq!(again.messages, later.messages);
    }
}
