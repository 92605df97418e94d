//! Tests of cuts, and properties that hold for every text.
use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

use super::*;

fn bounds(min: usize, max: usize, prefer: CutPreference) -> ChunkBounds {
    ChunkBounds { min, max, prefer }
}

fn paragraphs(min: usize, max: usize) -> ChunkBounds {
    bounds(min, max, CutPreference::Paragraph)
}

/// Returns the blocks of a text that is cut while it arrives.
fn streamed(bounds: ChunkBounds, deltas: &[&str]) -> Vec<String> {
    let mut chunker = Chunker::new(bounds);
    let mut blocks: Vec<String> = deltas.iter().flat_map(|delta| chunker.push(delta)).collect();
    blocks.extend(chunker.finish());
    blocks
}

/// Returns the blocks of a text that is cut when it is complete.
fn whole(bounds: ChunkBounds, text: &str) -> Vec<String> {
    let mut chunker = Chunker::new(bounds);
    chunker.hold(text);
    chunker.finish()
}

/// Case 223, case 224: recorded results of OpenClaw, with the reasons for deviations.
#[test]
fn recorded_blocks_match_openclaw() {
    use CutPreference::{Paragraph, Sentence};
    let complete_cases: &[(&str, ChunkBounds, &str, &[&str])] = &[
        (
            "para force short",
            bounds(5, 40, Paragraph),
            "Hello there.\n\nSecond para.",
            &["Hello there.\n\nSecond para."],
        ),
        (
            "para force long",
            bounds(5, 20, Paragraph),
            "First para here.\n\nSecond para here.\n\nThird.",
            &["First para here.", "Second para here.", "Third."],
        ),
        (
            "sentence",
            bounds(5, 30, Sentence),
            "One. Two! Three? Four five six seven eight nine ten.",
            &["One. Two! Three?", "Four five six seven eight", "nine ten."],
        ),
        (
            "hard cut no space",
            bounds(5, 10, Paragraph),
            "abcdefghijklmnopqrstuvwxyz",
            &["abcdefghij", "klmnopqrst", "uvwxyz"],
        ),
        (
            // Cut at line ends, no empty fenced block, no line break after the closing fence, and no block longer than
            // allowed including it. OpenClaw: "```js\nconst a = 1;\nconst \n```\n",
            // "```js\nb = 2;\nconst c = 3;\n```\n", "```js\n\n```", "Done".
            "fence split",
            bounds(5, 25, Paragraph),
            "```js\nconst a = 1;\nconst b = 2;\nconst c = 3;\n```\nDone",
            &["```js\nconst a = 1;\n```", "```js\nconst b = 2;\n```", "```js\nconst c = 3;\n```", "Done"],
        ),
        (
            // Cut at line ends. OpenClaw: "~~~\nline one\nline two\nline thr\n~~~\n", "~~~\nee\n~~~", "end".
            "tilde fence",
            bounds(5, 30, Paragraph),
            "~~~\nline one\nline two\nline three\n~~~\nend",
            &["~~~\nline one\nline two\n~~~", "~~~\nline three\n~~~", "end"],
        ),
        ("leading blank", bounds(3, 10, Paragraph), "\n\n\n\n   hello world again", &["hello", "world", "again"]),
        (
            // Counted in characters. OpenClaw, with two units for each: two, two, one.
            "emoji cut",
            bounds(2, 4, Paragraph),
            "😀😀😀😀😀",
            &["😀😀😀😀", "😀"],
        ),
        // OpenClaw cuts the third in half.
        ("emoji odd max", bounds(2, 5, Paragraph), "😀😀😀😀😀", &["😀😀😀😀😀"]),
    ];
    for (name, bounds, text, blocks) in complete_cases {
        assert_eq!(whole(*bounds, text), *blocks, "{name}");
    }
}

// Case 225.
#[test]
fn recorded_streamed_blocks_match_openclaw() {
    use CutPreference::{Newline, Paragraph};
    let streamed_cases: &[(&str, ChunkBounds, &[&str], &[&str])] = &[
        (
            // No blank lines at the start of a block, which leaves space for a word. OpenClaw: "First para.",
            // "\n\nSecond para that goes on", "and on."
            "para stream",
            bounds(10, 30, Paragraph),
            &["First para.", "\n\nSecond ", "para that goes on and on."],
            &["First para.", "Second para that goes on and", "on."],
        ),
        (
            "newline stream under max",
            bounds(5, 40, Newline),
            &["one two three four", "\nfive"],
            &["one two three four", "five"],
        ),
        (
            "fence kept whole",
            bounds(10, 60, Paragraph),
            &["Intro text.\n\n```js\nlet x = 1;\n```\n\nAfter."],
            &["Intro text.\n\n```js\nlet x = 1;\n```", "After."],
        ),
    ];
    for (name, bounds, deltas, blocks) in streamed_cases {
        assert_eq!(streamed(*bounds, deltas), *blocks, "{name}");
    }
    assert!(Chunker::new(bounds(50, 80, Paragraph)).push("short").is_empty(), "below min not forced");
    assert_eq!(Chunker::new(bounds(5, 40, Newline)).push("one two three four"), [""; 0], "newline stream under max");
}

/// Conformance case 127.
#[test]
fn blocks_end_at_paragraphs_past_the_minimum() {
    let text = "Hi.\n\nHello you.\n\nBye.\n \nGood night.";
    assert_eq!(streamed(paragraphs(5, 20), &[text]), ["Hi.\n\nHello you.", "Bye.\n \nGood night."]);
}

/// Conformance case 128 and pitfall 56.
#[test]
fn a_long_fence_is_closed_and_opened_again_with_the_same_line() {
    let text = "```rust\nlet a;\nlet b;\nlet c;\nlet long = 4;\n```\n";
    let blocks = ["let a;", "let b;", "let c;", "let long", " = 4;"].map(|line| format!("```rust\n{line}\n```"));
    assert_eq!(streamed(paragraphs(5, 20), &[text]), blocks);
    let text = "a\n  ~~~~ toml a\nx = 1\n  y = 2\n\nz = 3\n  ~~~~";
    let blocks = ["a\n  ~~~~ toml a\nx = 1", "  ~~~~ toml a\n  y = 2\n", "  ~~~~ toml a\nz = 3"];
    assert_eq!(whole(paragraphs(5, 30), text), blocks.map(|block| format!("{block}\n  ~~~~")));
}

/// Conformance case 129. Both paragraphs fit in one block, so `finish` does not cut between them.
#[test]
fn held_text_is_cut_at_the_end_only_and_rarely() {
    let mut chunker = Chunker::new(paragraphs(5, 40));
    chunker.hold("Hello there.\n\n");
    chunker.hold("Second para.");
    assert_eq!(chunker.finish(), ["Hello there.\n\nSecond para."]);
    assert_eq!(chunker.finish(), [""; 0]);
}

#[test]
fn a_block_goes_out_as_soon_as_its_end_is_certain() {
    let mut chunker = Chunker::new(paragraphs(5, 100));
    assert_eq!(chunker.push("Hello there.\n\n"), [""; 0], "code may follow");
    assert_eq!(chunker.push("``"), [""; 0]);
    assert_eq!(chunker.push("x`` is"), ["Hello there."]);
    assert_eq!(chunker.push(" code.\n\n"), [""; 0]);
    assert_eq!(chunker.push("```\nlet"), [""; 0], "this stays with its code");
    assert_eq!(chunker.push(" x;\n```\n\nDone"), ["``x`` is code.\n\n```\nlet x;\n```"]);
    assert_eq!(chunker.finish(), ["Done"]);
}

#[test]
fn a_number_does_not_end_a_sentence() {
    let mut chunker = Chunker::new(bounds(3, 100, CutPreference::Sentence));
    assert_eq!(chunker.push("Pi is 3."), [""; 0]);
    assert_eq!(chunker.push("14. E"), ["Pi is 3.14."]);
}

/// Pitfall 55.
#[test]
fn no_cut_falls_into_a_grapheme() {
    assert_eq!(whole(paragraphs(2, 9), "ab👨‍👩‍👧‍👦👨‍👩‍👧‍👦"), ["ab👨‍👩‍👧‍👦", "👨‍👩‍👧‍👦"]);
    assert_eq!(whole(paragraphs(2, 3), "abe\u{301}de\u{301}"), ["ab", "e\u{301}d", "e\u{301}"]);
    assert_eq!(whole(paragraphs(2, 3), "🇩🇪🇫🇷🇧🇪"), ["🇩🇪", "🇫🇷", "🇧🇪"]);
    assert_eq!(whole(paragraphs(2, 6), "ab cd \u{308}xyz"), ["ab", "cd \u{308}xy", "z"], "a space with a mark on it");
    assert_eq!(whole(paragraphs(1, 2), "👨‍👩‍👧"), ["👨\u{200d}", "👩\u{200d}", "👧"], "it alone is too long");
}

/// A block is not taken for a repetition of an equal one before it.
#[test]
fn equal_blocks_are_all_returned() {
    assert_eq!(streamed(paragraphs(2, 20), &["ok\n\nok\n\nok"]), ["ok", "ok", "ok"]);
}

// Pitfall 106.
#[test]
fn indent_stays_and_blank_lines_stay_inside_fences_only() {
    let list = "- one thing\n\n\n    - and another\n";
    assert_eq!(streamed(paragraphs(5, 20), &[list]), ["- one thing", "    - and another"]);
    let code = "```py\nif x:\n\n\n\n    return 1\n```";
    assert_eq!(whole(paragraphs(5, 25), code), ["```py\nif x:\n\n\n\n```", "```py\n    return 1\n```"]);
}

#[test]
fn text_before_a_fence_that_does_not_fit_is_cut_off() {
    let text = "Look at this:\n```js\nlet a = 1;\nlet b = 2;\n```";
    assert_eq!(whole(paragraphs(5, 40), text), ["Look at this:", "```js\nlet a = 1;\nlet b = 2;\n```"]);
    let blocks = ["A few words", "```js\nlet ab = 1;\n```"];
    assert_eq!(whole(paragraphs(20, 22), "A few words\n```js\nlet ab = 1;\n```"), blocks, "rather short than torn");
}

// Pitfall 105.
#[test]
fn no_fenced_block_is_empty() {
    let tail = ["```js\n12345678901\n```"; 1];
    assert_eq!(whole(paragraphs(5, 21), "```js\n12345678901\n\n\n```"), tail);
    assert_eq!(
        streamed(paragraphs(5, 21), &["```js\n12345678901\n\n\n```\n\n\nBye"]),
        ["```js\n12345678901\n```", "Bye"]
    );
    let blank = format!("```\n{}x\n```", "\n".repeat(50));
    assert_eq!(whole(paragraphs(5, 20), &blank), ["```\n\n\nx\n```"]);
}

#[test]
fn a_fence_whose_lines_leave_no_room_is_cut_like_any_text() {
    assert_eq!(whole(paragraphs(1, 7), "```\nab\ncd\n```\nefgh"), ["```\nab", "cd\n```", "efgh"]);
    let blocks = ["```a-long", "-language", "let x", "```\nx"];
    assert_eq!(whole(paragraphs(1, 9), "```a-long-language\nlet x\n```\nx"), blocks);
}

#[test]
fn a_long_opening_line_does_not_multiply_blocks() {
    let text = format!("```{}\n{}\n```", "x".repeat(90), "code ".repeat(40));
    assert_eq!(whole(paragraphs(50, 100), &text).len(), 3);
}

#[test]
fn long_texts_are_cut_in_linear_time() {
    // Quadratic cost would take minutes here.
    let text = "word ".repeat(200_000);
    let mut chunker = Chunker::new(paragraphs(800, 1200));
    let mut blocks: Vec<String> = text.split_inclusive(' ').flat_map(|delta| chunker.push(delta)).collect();
    blocks.extend(chunker.finish());
    assert_eq!(blocks, whole(paragraphs(800, 1200), &text));
    let lines = "a\n".repeat(50_000);
    assert_eq!(whole(bounds(1, 60_000, CutPreference::Newline), &lines).len(), 20_001);
}

/// A text of words, blank lines, fences and other difficult parts.
fn any_text() -> impl Strategy<Value = String> {
    const PARTS: &[&str] = &[
        "word",
        "ähm",
        "a",
        "Done.",
        "Why?",
        "3.14",
        "unbreakablylongword",
        " ",
        " ",
        "  ",
        "\n",
        "\n",
        "\n\n",
        "\n \n",
        "\t",
        "    ",
        "- ",
        "`x`",
        "``",
        "```",
        "\n```\n",
        "\n```rust\n",
        "\n~~~~\n",
        "\n   ~~~ a b\n",
        "😀",
        "👨‍👩‍👧",
        "e\u{301}",
        "🇩🇪",
        "\r\n",
    ];
    prop::collection::vec(prop::sample::select(PARTS), 0..60).prop_map(|parts| parts.concat())
}

/// A text whose fences are all closed, without lines that look like fences.
fn tidy_text() -> impl Strategy<Value = String> {
    let words = "([a-z]{1,12}[.]? ){1,12}";
    let code = (prop::sample::select(&["```", "```rust", "  ~~~~ a"]), prop::collection::vec("[ a-z]{0,20}", 0..8))
        .prop_map(|(opening, lines)| {
            let closing: String = opening.chars().filter(|c| " `~".contains(*c)).collect();
            format!("{opening}\nx{}\n{}", lines.join("\n"), closing.trim_end())
        });
    let part = prop_oneof![words.prop_map(|words| words), code];
    prop::collection::vec((part, "\n{1,3}"), 0..8)
        .prop_map(|parts| parts.into_iter().map(|(part, newlines)| part + &newlines).collect())
}

fn any_bounds(max: std::ops::Range<usize>) -> impl Strategy<Value = ChunkBounds> {
    let prefer = prop::sample::select(&[CutPreference::Paragraph, CutPreference::Newline, CutPreference::Sentence]);
    (max, 0..50_usize, prefer).prop_map(|(max, min, prefer)| ChunkBounds { min, max, prefer })
}

/// Splits a text into pieces of these lengths, repeatedly.
fn pieces(text: &str, lengths: &[usize]) -> Vec<String> {
    let mut chars = text.chars().peekable();
    let mut lengths = lengths.iter().cycle();
    let mut pieces = Vec::new();
    while chars.peek().is_some() {
        pieces.push(chars.by_ref().take(*lengths.next().unwrap()).collect());
    }
    pieces
}

fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Removes the blocks from the start of the text, without added fence lines, and returns the remainder; whitespace is
/// ignored.
fn missing_text(text: &str, blocks: &[String]) -> String {
    let mut text = bare(text);
    for block in blocks {
        let without_first = block.split_once('\n').map_or("", |(_, rest)| rest);
        let without_last = block.rsplit_once('\n').map_or("", |(rest, _)| rest);
        let inner = without_first.rsplit_once('\n').map_or("", |(rest, _)| rest);
        let fits =
            [block, without_last, without_first, inner].map(bare).into_iter().find(|part| text.starts_with(part));
        let part = fits.unwrap_or_else(|| panic!("{block:?} is not the start of {text:?}"));
        text = text.split_off(part.len());
    }
    text
}

proptest! {
    #[test]
    fn the_split_into_deltas_does_not_matter(
        text in any_text(), bounds in any_bounds(1..60), lengths in prop::collection::vec(1..9_usize, 1..5),
    ) {
        let pieces = pieces(&text, &lengths);
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(streamed(bounds, &pieces), streamed(bounds, &[&text]));
        let mut chunker = Chunker::new(bounds);
        pieces.iter().for_each(|piece| chunker.hold(piece));
        prop_assert_eq!(chunker.finish(), whole(bounds, &text));
    }

    #[test]
    fn no_block_is_too_long_or_blank(text in any_text(), bounds in any_bounds(1..60)) {
        for block in streamed(bounds, &[&text]).into_iter().chain(whole(bounds, &text)) {
            prop_assert!(block.chars().count() <= bounds.max && !block.trim().is_empty(), "{:?}", block);
        }
    }

    #[test]
    fn without_the_added_fence_lines_the_blocks_are_the_text(text in tidy_text(), bounds in any_bounds(1..80)) {
        for blocks in [streamed(bounds, &[&text]), whole(bounds, &text)] {
            prop_assert_eq!(missing_text(&text, &blocks), "", "in {:?}", blocks);
        }
    }

    #[test]
    fn text_outside_fence_lines_is_neither_lost_nor_doubled(text in any_text(), bounds in any_bounds(1..80)) {
        // Without backticks, the only fence with an info string is `~~~ a b`. Fence lines are repeated when a block is
        // cut, so their characters are not compared.
        let text = text.replace('`', "'");
        let letters = |text: &str| -> String { bare(text).chars().filter(|c| !"~ab".contains(*c)).collect() };
        prop_assert_eq!(letters(&streamed(bounds, &[&text]).concat()), letters(&text));
        prop_assert_eq!(letters(&whole(bounds, &text).concat()), letters(&text));
    }

    #[test]
    fn every_block_has_its_fences_closed_and_not_empty(text in tidy_text(), bounds in any_bounds(30..80)) {
        for block in streamed(bounds, &[&text]).into_iter().chain(whole(bounds, &text)) {
            for fence in crate::fence::spans(&block) {
                let lines: Vec<&str> = block[fence.start..fence.end].lines().collect();
                prop_assert_eq!(lines.last().map(|line| line.trim()), Some(&*fence.marker), "{:?}", block);
                prop_assert!(lines.len() > 1, "{:?}", block);
            }
        }
    }

    #[test]
    fn every_grapheme_stays_whole(text in "([a-z .😀\n]|👍🏽|🇩🇪|e\u{301}|👨‍👩‍👧‍👦){0,80}", bounds in any_bounds(10..40)) {
        let graphemes = |text: &str| -> Vec<String> {
            text.graphemes(true).filter(|grapheme| !grapheme.trim().is_empty()).map(str::to_owned).collect()
        };
        let expected = graphemes(&text);
        let blocks = |blocks: Vec<String>| -> Vec<String> { blocks.iter().flat_map(|block| graphemes(block)).collect() };
        prop_assert_eq!(&blocks(streamed(bounds, &[&text])), &expected);
        prop_assert_eq!(&blocks(whole(bounds, &text)), &expected);
    }
}
