//! Tests of streamed messages: recorded cases, and the property that the split into deltas does not matter.

use proptest::prelude::*;

use super::*;

fn plain(text: &str) -> ParsedReply {
    parse_message(text, ParseRules::default())
}

fn reply(text: &str) -> ParsedReply {
    ParsedReply { text: text.to_owned(), ..ParsedReply::default() }
}

fn replying(text: &str, to: ReplyTo) -> ParsedReply {
    ParsedReply { found: MessageDirectives { reply_to: Some(to), ..MessageDirectives::default() }, ..reply(text) }
}

fn with_media(text: &str, media: &[&str]) -> ParsedReply {
    let media = media.iter().map(|item| (*item).to_owned()).collect();
    ParsedReply { found: MessageDirectives { media, ..MessageDirectives::default() }, ..reply(text) }
}

/// Returns the visible text after each delta, and at the end.
fn stream(rules: ParseRules, deltas: &[&str]) -> Vec<String> {
    let mut parser = MessageParser::new(rules);
    let mut visible: Vec<String> = deltas.iter().map(|delta| parser.push(delta).text).collect();
    visible.push(parser.finish().text);
    visible
}

#[test]
fn recorded_directives_are_removed() {
    let id = |id: &str| ReplyTo::Id(id.to_owned());
    let cases = [
        ("Hi [[reply_to_current]]", replying("Hi", ReplyTo::Current)),
        ("[[ reply_to: 42 ]] yo", replying("yo", id("42"))),
        ("[[reply_to:1]] a [[reply_to:2]]", replying("a", id("2"))),
        ("MEDIA:/home/user/tmp\ncaption", reply("MEDIA:/home/user/tmp\ncaption")),
        ("MEDIA:\"/home/user/tmp b.png\"", reply("MEDIA:\"/home/user/tmp b.png\"")),
        ("MEDIA:/home/user/tmp b.png", reply("MEDIA:/home/user/tmp b.png")),
        ("MEDIA: https://x/y.png https://x/z.png", with_media("", &["https://x/y.png", "https://x/z.png"])),
        ("```\nMEDIA:/home/user/tmp\n```", reply("```\nMEDIA:/home/user/tmp\n```")),
        ("text MEDIA:/home/user/tmp", reply("text MEDIA:/home/user/tmp")),
        ("MEDIA:foo.png", reply("MEDIA:foo.png")),
        ("a\n\n\nb\nMEDIA:/x.png\n\nc", reply("a\n\n\nb\nMEDIA:/x.png\n\nc")),
        // Fixed: OpenClaw removes the indent of every line. Pitfall 53.
        (
            "[[reply_to_current]] code:\n    indented\n\n  two",
            replying("code:\n    indented\n\n  two", ReplyTo::Current),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(plain(text), expected, "{text:?}");
    }
    let mut voice = with_media("", &["./v.ogg"]);
    voice.found.is_voice = true;
    assert_eq!(plain("[[audio_as_voice]]\nMEDIA:./v.ogg"), voice);
}

// Case 150.
#[test]
fn recorded_media_lines_are_removed() {
    let cases = [
        ("MEDIA:./a.png", with_media("", &["./a.png"])),
        ("MEDIA:./a b.png", with_media("", &["./a b.png"])),
        ("MEDIA:\"./a b.png\"", with_media("", &["./a b.png"])),
        ("MEDIA:./../x", reply("MEDIA:./../x")),
        ("MEDIA:file:///x.png", reply("MEDIA:file:///x.png")),
        ("MEDIA:/home/user/tmp", reply("MEDIA:/home/user/tmp")),
        // Fixed: OpenClaw collapses the spaces and empty lines of the remaining text.
        (
            "text\n\nMEDIA:https://h/a.png\n\n  indented\n\nend",
            with_media("text\n\n\n  indented\n\nend", &["https://h/a.png"]),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(plain(text), expected, "{text:?}");
    }
}

// Case 138, pitfall 51.
#[test]
fn recorded_streams_show_no_partial_directive() {
    let cases: [(&[&str], &[&str]); 5] = [
        (&["[[reply_to_cur", "rent]] Hi"], &["", "Hi", ""]),
        (&["[[reply_to_current]]", "Hello"], &["", "Hello", ""]),
        // Deviation: the space before the brackets is kept; OpenClaw loses it.
        (&["Hello [["], &["Hello", " [["]),
        (&["NO_REPLY"], &["", ""]),
        (&["N", "O", "_REPLY", "ING"], &["", "", "", "NO_REPLYING", ""]),
    ];
    for (deltas, visible) in cases {
        assert_eq!(stream(ParseRules::default(), deltas), visible, "{deltas:?}");
    }
}

#[test]
fn only_undecided_text_is_held_back() {
    let cases: [(&[&str], &[&str]); 9] = [
        (&["Hel", "lo wor", "ld"], &["Hel", "lo wor", "ld", ""]),
        (&["if a < b", " and c<d> [e] [[f]]"], &["if a < b", " and c<d> [e] [[f]]", ""]),
        (&["a \n", "\n b \n"], &["a", " \n\n b", ""]),
        (&["a <th", "ree"], &["a", " <three", ""]),
        (&["a\nMED", "IC"], &["a", "\nMEDIC", ""]),
        (&["Use `x`", " and `y"], &["Use `x", "` and `y", ""]),
        (&["Done. NO_", "REPLY", "."], &["Done.", "", "", ""]),
        (&["Here. NO_REPLY", " is a word"], &["Here.", " NO_REPLY is a word", ""]),
        (&["HEARTBEAT_OK", " all", " good HEARTBEAT_OK"], &["", "all", " good", ""]),
    ];
    for (deltas, visible) in cases {
        assert_eq!(stream(ParseRules::default(), deltas), visible, "{deltas:?}");
    }
}

// Case 131.
#[test]
fn reasoning_is_never_shown() {
    let with_reasoning = |text: &str, thinking: &str| ParsedReply { thinking: thinking.to_owned(), ..reply(text) };
    let cases = [
        ("<think>a\nb</think>\n\nHi", with_reasoning("Hi", "a\nb")),
        ("x <Thinking >a</ thinking><thought>b</thought>y", with_reasoning("x y", "a\nb")),
        ("Hi <think>all of\n\nthis", with_reasoning("Hi", "all of\n\nthis")),
        ("Hi</think> you<think/>!", reply("Hi you!")),
        ("a ` stray <think>b</think> tick", with_reasoning("a ` stray  tick", "b")),
        ("`` a ` <think>b\n", with_reasoning("`` a `", "b\n")),
        ("\\`<think>b</think>`", with_reasoning("\\``", "b")),
        ("<think>[[reply_to:1]]\nMEDIA:./x</think>NO", with_reasoning("NO", "[[reply_to:1]]\nMEDIA:./x")),
        (
            "<think>```\n</think>\n```\n</think>```\n<think>\n```",
            with_reasoning("```\n<think>\n```", "```\n</think>\n```\n"),
        ),
        ("<final>Hi</final> there", reply("Hi there")),
    ];
    for (text, expected) in cases {
        assert_eq!(plain(text), expected, "{text:?}");
    }
}

// Case 133.
#[test]
fn code_is_left_alone() {
    for code in [
        "```xml\n<think>a</think>\n[[reply_to_current]]\n```\nb",
        "~~~\n<final>",
        "Write `<think>` or `` ` [[audio_as_voice]] `` or `[Tool Call: x]`.",
    ] {
        assert_eq!(plain(code), reply(code));
    }
    // The preceding reasoning does not hide a fence.
    assert_eq!(plain("<think></think>```\n<think>\n```").text, "```\n<think>\n```");
}

// Case 132.
#[test]
fn enforced_final_tags_hide_everything_else() {
    let rules = ParseRules { enforce_final: true };
    let cases = [
        ("Let me see. <final>Hi</final> Bye", "Hi"),
        ("`stray <final>Hi <think>no</think>you", "Hi you"),
        ("nothing", ""),
        ("<think>a <final> b</think>c", ""),
        ("<final>a</final>x<final> b</final>", "a b"),
        ("`<final>` x", ""),
    ];
    for (text, visible) in cases {
        assert_eq!(parse_message(text, rules).text, visible, "{text:?}");
    }
    assert_eq!(stream(rules, &["a<fi", "nal>b", "c</fin", "al>d"]), ["", "b", "c", "", ""]);
}

// Pitfall 50, case 141.
#[test]
fn a_token_is_removed_at_the_end_and_kept_in_the_middle() {
    let cases = [
        ("Here is the plan. NO_REPLY", "Here is the plan."),
        ("Done NO_REPLY!!", "Done"),
        ("Done.\n\n**NO_REPLY**\n", "Done."),
        ("say NO_REPLY to it", "say NO_REPLY to it"),
        ("NO_REPLY: done", "NO_REPLY: done"),
        ("mail to no_reply", "mail to no_reply"),
        ("see docs/NO_REPLY", "see docs/NO_REPLY"),
        ("Done. NO_REPLY HEARTBEAT_OK.", "Done."),
        ("Done. NO_REPLY NO_", "Done. NO_REPLY NO_"),
    ];
    for (text, visible) in cases {
        assert_eq!(plain(text).text, visible, "{text:?}");
    }
    let found = plain("[[reply_to_current]] no_reply\nMEDIA:./a.png").found;
    assert_eq!((found.is_silent, found.media), (true, vec!["./a.png".to_owned()]));
}

#[test]
fn a_directive_is_removed_with_one_space() {
    let cases = [
        ("a [[reply_to_current]] b", "a b"),
        ("a[[reply_to_current]] b", "a b"),
        ("a [[reply_to_current]]\n  b", "a\n  b"),
        ("a\n[[reply_to_current]]\nb", "a\n\nb"),
        ("a [[reply_to_current]][[audio_as_voice]] b", "a b"),
        ("a  [[reply_to_current]]  b", "a   b"),
        ("a [[reply_to:]] [[x]] [[reply_to", "a [[reply_to:]] [[x]] [[reply_to"),
    ];
    for (text, visible) in cases {
        assert_eq!(plain(text).text, visible, "{text:?}");
    }
}

#[test]
fn leaked_calls_are_removed() {
    let leaks = [
        ("a <minimax:tool_call>\n<invoke name=\"x\">\n<p>1</p></invoke>\n</minimax:tool_call> b", "a \n\n b"),
        ("a\n<invoke name=\"x\">1</invoke>\n<invoke>2</invoke>\n</minimax:tool_call>", "a"),
        ("<minimax:tool_call><invoke>cut", ""),
        ("a [Tool Call: read (ID: 7)]\nArguments: {\"p\": \"}\\\"\", \"q\": {}}\nb", "a \nb"),
        ("[Tool Call: x][Tool Call: y]\n\nb", "b"),
        ("[Tool Result for ID 7]\n{\"a\": [1]} b", "b"),
        ("[Tool Result for ID 7]\n[\"a\",\n1]\n\nb", "b"),
        ("[Tool Result for ID 7]\nthree files\nfound\n\nThere are three.", "There are three."),
        ("[Tool Result for ID 7]\nthree\n[Tool Call: y]", ""),
    ];
    for (text, visible) in leaks {
        assert_eq!(plain(text), reply(visible), "{text:?}");
    }
    // Unterminated JSON may be followed by an answer.
    assert_eq!(plain("[Tool Call: x] {\"a\": \n\nThe answer").text, "{\"a\": \n\nThe answer");
    for text in ["Write <invoke>x</invoke> here", "<invoke>a<invoke>b</invoke>", "[Tool Caller]", "[Tool Call: x\n]"] {
        assert_eq!(plain(text), reply(text));
    }
    assert_eq!(plain("<invoke>a<think>b</think></invoke> c").text, "<invoke>a</invoke> c");
}

/// Not timed: superlinear cost would take minutes.
#[test]
fn long_messages_are_parsed_in_linear_time() {
    let unit = [
        "<",
        "[[",
        "<think",
        "`<",
        "` `` <",
        "<invoke>",
        "<invoke></invoke>",
        "[Tool Call: x]{",
        "NO_REPLY ",
        " ",
        "*",
    ]
    .into_iter()
    .chain(["\n", "MEDIA:", "HEARTBEAT_OK ", "<b>", "[[reply_to:", "[[reply_to_current]] ", "```", "word "]);
    for unit in unit {
        let text = unit.repeat(60_000 / unit.len());
        let mut parser = MessageParser::new(ParseRules::default());
        let mut visible: String = text.split_inclusive(|_| true).map(|delta| parser.push(delta).text).collect();
        visible.push_str(&parser.finish().text);
        assert_eq!(visible, plain(&text).text, "{unit}");
    }
}

const PIECES: &[&str] = &[
    "<think>",
    "</think>",
    "< THINKING a=1>",
    "</thought>",
    "<final>",
    "</final>",
    "<think/>",
    "<b>",
    "</b>",
    "<",
    ">",
    "[[reply_to_current]]",
    "[[ reply_to: 42 ]]",
    "[[reply_to:",
    "[[audio_as_voice]]",
    "[[",
    "]]",
    "[",
    "]",
    "```",
    "```\n",
    "~~~\n",
    "`",
    "``",
    "\\",
    "\n",
    "\n\n",
    " ",
    " ",
    "\t",
    "\r\n",
    "NO_REPLY",
    "no_reply",
    "NO_",
    "HEARTBEAT_OK",
    "HEART",
    "**",
    "_",
    "\"",
    ".",
    "!",
    "-",
    "MEDIA:",
    "MEDIA:./a.png",
    "MEDIA: https://x/y b\n",
    "\nMEDIA:\"./a b\"",
    "<invoke>",
    "<invoke name=\"x\">",
    "</invoke>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "[Tool Call: x]",
    "[Tool Result for ID 1]",
    "Arguments:",
    "{\"a\":1}",
    "{",
    "}",
    "word",
    "Nope",
    "é",
    "👩‍👩‍👧",
    "日本",
    "x",
];

/// Texts rich in special constructs.
fn rich() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..24).prop_map(|pieces| pieces.concat())
}

fn is_subsequence(part: &str, whole: &str) -> bool {
    let mut whole = whole.chars();
    part.chars().all(|c| whole.any(|other| other == c))
}

proptest! {
    #[test]
    fn the_split_into_deltas_changes_nothing(
        text in rich(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        enforce_final in any::<bool>(),
    ) {
        let rules = ParseRules { enforce_final };
        let whole = parse_message(&text, rules);
        let mut offsets: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        offsets.push(text.len());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&offsets)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let by_cuts: Vec<&str> = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
        let by_char: Vec<&str> = offsets.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
        for deltas in [by_cuts, by_char] {
            let mut parser = MessageParser::new(rules);
            let mut parts: Vec<ParsedPart> = deltas.iter().map(|delta| parser.push(delta)).collect();
            parts.push(parser.finish());
            let text = parts.iter().map(|part| &*part.text).collect();
            let thinking = parts.iter().map(|part| &*part.thinking).collect();
            prop_assert_eq!(&ParsedReply { text, thinking, found: parser.found().clone() }, &whole);
        }
    }

    #[test]
    fn only_text_of_the_message_is_shown(text in rich(), enforce_final in any::<bool>()) {
        let visible = parse_message(&text, ParseRules { enforce_final }).text;
        prop_assert!(is_subsequence(&visible, &text), "{:?} shows {:?}", text, visible);
        prop_assert_eq!(visible.trim(), &visible);
    }

    #[test]
    fn plain_text_is_unchanged(text in "[a-zA-Z0-9 \t\n.,:;!?(){}\"'*_#|~`👍é語/\\-]{0,80}") {
        prop_assert_eq!(plain(&text), reply(text.trim()));
    }

    #[test]
    fn directives_change_no_other_bytes(
        before in "[a-z \n\t.👍é]{0,12}",
        after in "[a-z \n\t.👍é]{0,12}",
        directive in prop::sample::select(vec!["[[reply_to_current]]", "[[reply_to: 7]]", "[[audio_as_voice]]"]),
    ) {
        let visible = plain(&format!("{before}{directive}{after}")).text;
        let mut allowed = vec![format!("{before}{after}")];
        allowed.extend(before.strip_suffix(' ').map(|before| format!("{before}{after}")));
        allowed.extend(after.strip_prefix(' ').map(|after| format!("{before}{after}")));
        prop_assert!(allowed.iter().any(|text| text.trim() == visible), "{:?} not in {:?}", visible, allowed);
    }

    #[test]
    fn no_reasoning_is_shown_outside_code(before in rich(), after in rich()) {
        // Outside of code, reasoning stays hidden whatever surrounds it.
        let before = before.replace(['`', '~'], "");
        let visible = plain(&format!("{before}\n<think>SECRET</think>\n{after}")).text;
        prop_assert!(!visible.contains("SECRET"), "{:?}", visible);
    }
}
