//! Tests of histories that providers would reject.

use std::collections::{HashMap, HashSet, VecDeque};

use homard_proto::message::{
    Assistant, Content, ImageBlock, StopReason, TextBlock, ThinkingBlock, ToolCall, ToolResult, User, join_text,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    pair::{NO_RESULT, missing},
    policy::IdForm,
    *,
};
use homard_proto::message::Block;

use StopReason::{Aborted, Error, Stop, ToolUse};

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::User(User::text(text, 0)))
}

fn assistant_message(content: Vec<Block>, stop_reason: StopReason) -> Arc<Message> {
    Arc::new(Message::Assistant(Assistant { content, stop_reason, ..Assistant::default() }))
}

fn calls(ids: &[&str], stop_reason: StopReason) -> Arc<Message> {
    let call =
        |id: &&str| ToolCall { id: (*id).to_owned(), name: "t".to_owned(), arguments: json!({}), extra: Map::new() };
    assistant_message(ids.iter().map(|id| Block::ToolCall(call(id))).collect(), stop_reason)
}

fn assistant_text(text: &str) -> Arc<Message> {
    assistant_message(vec![Block::text(text)], Stop)
}

fn result(id: &str, text: &str) -> Arc<Message> {
    let Message::ToolResult(mut result) = missing(id, "t", 0) else { unreachable!() };
    result.content = vec![Block::text(text)];
    Arc::new(Message::ToolResult(result))
}

/// Formats a history as one line: a user's text, `a(ids)` or `a:text` for assistant messages, `r(id:text)` for results,
/// with `?` for a generated text.
fn format_history(history: &[Arc<Message>]) -> String {
    let format_message = |message: &Arc<Message>| match &**message {
        Message::User(user) => user.content.text(),
        Message::Assistant(assistant) if assistant.tool_calls().next().is_none() => format!("a:{}", assistant.text()),
        Message::Assistant(assistant) => {
            format!("a({})", assistant.tool_calls().map(|call| call.id.as_str()).collect::<Vec<_>>().join(","))
        }
        Message::ToolResult(result) => {
            let text = join_text(&result.content);
            format!("r({}:{})", result.tool_call_id, if text == NO_RESULT { "?" } else { &text })
        }
        Message::Other(_) => "o".to_owned(),
    };
    history.iter().map(format_message).collect::<Vec<_>>().join(" ")
}

fn repaired(history: &[Arc<Message>]) -> String {
    format_history(&view(history))
}

fn openai() -> ProviderPolicy {
    ProviderPolicy::of("openai-completions", "openai", "gpt")
}

fn anthropic() -> ProviderPolicy {
    ProviderPolicy::of("anthropic-messages", "anthropic", "claude")
}

fn gemini() -> ProviderPolicy {
    ProviderPolicy::of("google-generative-ai", "google", "gemini")
}

fn mistral() -> ProviderPolicy {
    ProviderPolicy::of("openai-completions", "mistral", "large")
}

/// One policy of every kind.
fn policies() -> Vec<ProviderPolicy> {
    vec![
        openai(),
        anthropic(),
        gemini(),
        mistral(),
        ProviderPolicy::of("openai-responses", "openai", "gpt"),
        ProviderPolicy::of("google-antigravity", "google-antigravity", "claude"),
        ProviderPolicy::of("openai-completions", "openrouter", "gemini"),
    ]
}

// Case 91.
#[test]
fn a_result_moves_behind_its_call() {
    let history = [calls(&["1"], ToolUse), user("u"), result("1", "x")];
    assert_eq!(repaired(&history), "a(1) r(1:x) u");
}

// Pitfall 35: a mirrored message must not come between a call and its result.
#[test]
fn a_result_moves_before_messages_written_meanwhile() {
    let history = [calls(&["1"], ToolUse), assistant_text("mirror"), result("1", "x"), user("u")];
    assert_eq!(repaired(&history), "a(1) r(1:x) a:mirror u");
}

// Case 92, in memory; calls that a run leaves open are answered in the transcript when it ends.
#[test]
fn a_missing_result_is_generated_once() {
    assert_eq!(repaired(&[calls(&["1", "2"], ToolUse), result("2", "y"), user("u")]), "a(1,2) r(1:?) r(2:y) u");
}

// Case 93; pitfall 37, pitfall 101, pitfall 102.
#[test]
fn a_repeated_result_counts_once_and_a_reused_id_keeps_both() {
    let history =
        [calls(&["1"], ToolUse), result("1", "x"), result("1", "again"), calls(&["1"], ToolUse), result(" 1 ", "y")];
    assert_eq!(repaired(&history), "a(1) r(1:x) a(1) r(1:y)");
}

#[test]
fn a_result_belongs_to_the_nearest_call_without_one() {
    let history = [calls(&["1"], ToolUse), calls(&["1"], ToolUse), result("1", "x"), user("u"), result("1", "y")];
    assert_eq!(repaired(&history), "a(1) r(1:y) a(1) r(1:x) u");
    let twice = [calls(&["1", "1"], ToolUse), result("1", "x"), result("1", "y")];
    assert_eq!(repaired(&twice), "a(1,1) r(1:x) r(1:y)");
}

// Pitfall 38, pitfall 39: remains of other programs.
#[test]
fn failed_messages_their_results_and_stray_results_are_dropped() {
    let history = [result("0", "stray"), user("u"), calls(&["1"], Error), result("1", "x"), calls(&["2"], Aborted)];
    assert_eq!(repaired(&history), "u");
    let reused = [calls(&["1"], ToolUse), calls(&["1"], Error), result("1", "of the broken one"), user("u")];
    assert_eq!(repaired(&reused), "a(1) r(1:?) u");
}

#[test]
fn ids_get_the_shape_that_the_provider_wants() {
    let history = [calls(&["call_1|fc_a", "ok"], ToolUse), result("call_1|fc_a", "x"), result("ok", "y")];
    let ids = |policy| format_history(&for_model(&history, &policy));
    assert_eq!(ids(openai()), "a(call_1|fc_a,ok) r(call_1|fc_a:x) r(ok:y)");
    assert_eq!(ids(anthropic()), "a(call_1fc_a,ok) r(call_1fc_a:x) r(ok:y)");
    assert_eq!(
        ids(gemini()),
        "(The beginning of this conversation is not shown.) a(call1fca,ok) r(call1fca:x) r(ok:y)"
    );
    assert_eq!(ids(mistral()), "a(call1fca0,ok0000000) r(call1fca0:x) r(ok0000000:y)");
}

// Pitfall 41.
#[test]
fn colliding_ids_stay_distinct_and_a_valid_id_is_kept() {
    let history =
        [user("u"), calls(&["a|b", "a:b", "ab"], ToolUse), result("a|b", "1"), result("a:b", "2"), result("ab", "3")];
    assert_eq!(format_history(&for_model(&history, &gemini())), "u a(ab2,ab3,ab) r(ab2:1) r(ab3:2) r(ab:3)");
    assert_eq!(
        format_history(&for_model(&history, &mistral())),
        "u a(ab0000000,ab0000002,ab0000003) r(ab0000000:1) r(ab0000002:2) r(ab0000003:3)"
    );
}

#[test]
fn a_reused_id_is_renamed_only_if_the_provider_rejects_it() {
    let history = [calls(&["1"], ToolUse), result("1", "x"), calls(&["1"], ToolUse), result("1", "y")];
    assert_eq!(format_history(&for_model(&history, &openai())), "a(1) r(1:x) a(1) r(1:y)");
    assert_eq!(format_history(&for_model(&history, &anthropic())), "a(1) r(1:x) a(12) r(12:y)");
    let twice = [calls(&["1", "1", ""], ToolUse)];
    assert_eq!(format_history(&for_model(&twice, &openai())), "a(1,1_2,call) r(1:?) r(1_2:?) r(call:?)");
}

#[test]
fn ten_thousand_uses_of_one_id_stay_distinct() {
    let turn = [calls(&["call_0"], ToolUse), result("call_0", "x")];
    let history: Vec<_> = std::iter::repeat_n(turn, 10_000).flatten().collect();
    let ids: HashSet<_> = for_model(&history, &mistral()).iter().filter_map(|message| answered(message)).collect();
    assert_eq!(ids.len(), 10_000);
}

fn answered(message: &Message) -> Option<String> {
    match message {
        Message::ToolResult(result) => Some(result.tool_call_id.clone()),
        Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
    }
}

// Pitfall 40.
#[test]
fn a_call_without_arguments_gets_an_empty_object_and_another_spelling_counts() {
    let blocks = json!([{"type": "toolCall", "id": "1", "name": "t"}, {"type": "toolCall", "id": "2", "name": "t", "input": {"a": 1}},
                        {"type": "toolCall", "id": "3", "name": "t", "arguments": "{\"a\""}]);
    let history = [assistant_message(serde_json::from_value(blocks).unwrap(), ToolUse)];
    let repaired_history = for_model(&history, &openai());
    let Message::Assistant(assistant) = &*repaired_history[0] else { panic!("{repaired_history:?}") };
    let arguments: Vec<_> = assistant.tool_calls().map(|call| call.arguments.clone()).collect();
    assert_eq!(arguments, [json!({}), json!({"a": 1}), json!({})]);
}

#[test]
fn consecutive_user_messages_are_merged_if_required() {
    let unmerged =
        Arc::new(Message::User(User { content: Content::Text("b".to_owned()), timestamp: 1, extra: Map::new() }));
    let history = [user("a"), unmerged, assistant_text("x"), user("c")];
    assert_eq!(format_history(&for_model(&history, &anthropic())), "ab a:x c");
    assert_eq!(format_history(&for_model(&history, &openai())), "a b a:x c");
}

// Case 95, in memory.
#[test]
fn consecutive_answers_are_merged_and_a_user_comes_first_if_required() {
    let history =
        [assistant_text("x"), calls(&["1"], ToolUse), result("1", "r"), assistant_text("y"), assistant_text("z")];
    assert_eq!(
        format_history(&for_model(&history, &gemini())),
        "(The beginning of this conversation is not shown.) a(1) r(1:r) a:yz"
    );
}

#[test]
fn blank_content_is_dropped_if_the_provider_rejects_it() {
    let history = [
        user("u"),
        assistant_text(" \n"),
        user(" "),
        assistant_message(Vec::new(), Stop),
        calls(&["1"], ToolUse),
        result("1", " "),
    ];
    assert_eq!(format_history(&for_model(&history, &anthropic())), "u a(1) r(1:(no output))");
    assert_eq!(format_history(&for_model(&history, &openai())), "u a: \n   a(1) r(1: )");
}

#[test]
fn an_image_that_no_model_accepts_is_replaced_by_text() {
    let picture =
        |data: String| Block::Image(ImageBlock { data, mime_type: "image/png".to_owned(), extra: Map::new() });
    let content = Content::Blocks(vec![Block::text("see "), picture("A".repeat(12 << 20)), picture("AAAA".to_owned())]);
    let history = [Arc::new(Message::User(User { content, timestamp: 0, extra: Map::new() }))];
    let repaired_history = for_model(&history, &openai());
    let Message::User(user) = &*repaired_history[0] else { panic!("{repaired_history:?}") };
    let Content::Blocks(blocks) = &user.content else { panic!("{user:?}") };
    assert_eq!(user.content.text(), "see (an image of 9 MiB was left out: models accept at most 5 MiB)");
    assert_eq!(blocks[2], picture("AAAA".to_owned()));
}

fn reasoning(text: &str, signature: Option<&str>) -> Block {
    let thinking_signature = signature.map(str::to_owned);
    Block::Thinking(ThinkingBlock { thinking: text.to_owned(), thinking_signature, extra: Map::new() })
}

/// Returns the blocks of one assistant message after the repair; `by` is the model that wrote it.
fn repaired_blocks(blocks: Vec<Block>, policy: &ProviderPolicy, author: [&str; 3]) -> Vec<Block> {
    let assistant = Assistant {
        content: blocks,
        api: author[0].to_owned(),
        provider: author[1].to_owned(),
        model: author[2].to_owned(),
        ..Assistant::default()
    };
    let history = for_model(&[user("u"), Arc::new(Message::Assistant(assistant))], policy);
    match history.get(1).map(|message| &**message) {
        Some(Message::Assistant(assistant)) => assistant.content.clone(),
        None => Vec::new(),
        Some(other) => panic!("{other:?}"),
    }
}

const CLAUDE: [&str; 3] = ["anthropic-messages", "anthropic", "claude"];
const ELSE: [&str; 3] = ["openai-completions", "local", "other"];

#[test]
fn reasoning_is_returned_signed_to_its_model_and_as_text_to_others() {
    let signed = || vec![reasoning("hm", Some("c2ln")), Block::text("x")];
    assert_eq!(repaired_blocks(signed(), &anthropic(), CLAUDE), signed());
    assert_eq!(repaired_blocks(signed(), &anthropic(), ELSE), [Block::text("hm"), Block::text("x")]);
    let unsigned = vec![reasoning("hm", None), reasoning(" ", None), Block::text("x")];
    assert_eq!(repaired_blocks(unsigned, &anthropic(), CLAUDE), [Block::text("hm"), Block::text("x")]);
    let redacted = json!([{"type": "thinking", "thinking": "[]", "thinkingSignature": "s", "redacted": true}]);
    let redacted: Vec<Block> = serde_json::from_value(redacted).unwrap();
    assert_eq!(repaired_blocks(redacted.clone(), &anthropic(), CLAUDE), redacted);
    assert_eq!(repaired_blocks(redacted, &anthropic(), ELSE), []);
}

#[test]
fn trailing_reasoning_is_not_sent_to_openai_responses() {
    let gpt = ["openai-responses", "openai", "gpt"];
    let policy = ProviderPolicy::of(gpt[0], gpt[1], gpt[2]);
    let kept = || vec![reasoning("a", Some("{}")), Block::text("x")];
    let mut blocks = kept();
    blocks.push(reasoning("b", Some("{}")));
    assert_eq!(repaired_blocks(blocks, &policy, gpt), kept());
    assert_eq!(repaired_blocks(vec![reasoning("b", Some("{}"))], &policy, gpt), []);
}

fn signed_text(seal: &str) -> Block {
    let extra = json!({"thoughtSignature": seal, "other": 1}).as_object().cloned().unwrap();
    Block::Text(TextBlock { text: "x".to_owned(), extra })
}

fn unsigned_text() -> Block {
    Block::Text(TextBlock { text: "x".to_owned(), extra: json!({"other": 1}).as_object().cloned().unwrap() })
}

#[test]
fn signatures_that_the_provider_rejects_are_removed() {
    let author = ["google-generative-ai", "google", "gemini"];
    assert_eq!(repaired_blocks(vec![signed_text("msg_1")], &gemini(), author), [unsigned_text()]);
    assert_eq!(repaired_blocks(vec![signed_text("c2ln")], &gemini(), author), [signed_text("c2ln")]);
    assert_eq!(repaired_blocks(vec![signed_text("c2ln")], &gemini(), ELSE), [unsigned_text()]);
    let routed = ["openai-completions", "openrouter", "gemini"];
    let policy = ProviderPolicy::of(routed[0], routed[1], routed[2]);
    assert_eq!(repaired_blocks(vec![signed_text("not base64")], &policy, routed), [unsigned_text()]);
    assert_eq!(repaired_blocks(vec![signed_text("c2ln")], &policy, routed), [signed_text("c2ln")]);
    let claude = ["google-antigravity", "google-antigravity", "claude"];
    let policy = ProviderPolicy::of(claude[0], claude[1], claude[2]);
    let blocks = vec![reasoning("a", Some("c2ln")), reasoning("b", Some("?")), reasoning("c", None), Block::text("x")];
    assert_eq!(repaired_blocks(blocks, &policy, claude), [reasoning("a", Some("c2ln")), Block::text("x")]);
}

/// Returns what a provider with these rules would reject in a paired history.
fn rejection(history: &[Arc<Message>], policy: &ProviderPolicy) -> Option<String> {
    let mut due = VecDeque::new();
    let mut used = HashSet::new();
    for message in history {
        match &**message {
            Message::ToolResult(result) if due.pop_front() == Some(result.tool_call_id.clone()) => {}
            Message::ToolResult(result) => return Some(format!("{} answers nothing", result.tool_call_id)),
            Message::Assistant(assistant) if due.is_empty() => {
                if policy.ids == IdForm::Any {
                    used.clear();
                }
                for call in assistant.tool_calls() {
                    if !used.insert(call.id.clone()) {
                        return Some(format!("{} is used twice", call.id));
                    }
                    due.push_back(call.id.clone());
                }
            }
            Message::User(_) if due.is_empty() => {}
            Message::User(_) | Message::Assistant(_) | Message::Other(_) => {
                return Some(format!("{due:?} not answered"));
            }
        }
    }
    (!due.is_empty()).then(|| format!("{due:?} not answered"))
}

fn any_block() -> impl Strategy<Value = Block> {
    let signature = prop_oneof![Just(None), Just(Some("c2ln")), Just(Some("msg_1"))];
    prop_oneof![
        "[ p-q]{0,2}".prop_map(Block::text),
        (0..3u8, signature).prop_map(|(length, signature)| reasoning(&"h".repeat(length.into()), signature)),
        Just(signed_text("msg_1")),
        Just(Block::Other(json!({"type": "hologram"}))),
    ]
}

fn any_message() -> impl Strategy<Value = Arc<Message>> {
    let id = || prop_oneof![Just("1"), Just("a|b"), Just("a:b"), Just("ab"), Just(" ab "), Just("")];
    let stop = prop_oneof![4 => Just(ToolUse), 1 => Just(Error), 1 => Just(Aborted)];
    let author = prop_oneof![Just(CLAUDE), Just(ELSE), Just(["google-generative-ai", "google", "gemini"])];
    let answer = (proptest::collection::vec(any_block(), 0..3), proptest::collection::vec(id(), 0..3), stop, author);
    prop_oneof![
        "[a-c ]{1,2}".prop_map(|text| user(&text)),
        answer.prop_map(|(mut content, ids, stop_reason, author)| {
            let Message::Assistant(assistant) = &*calls(&ids, ToolUse) else { unreachable!() };
            content.extend(assistant.content.iter().cloned());
            let (api, provider, model) = (author[0].to_owned(), author[1].to_owned(), author[2].to_owned());
            Arc::new(Message::Assistant(Assistant {
                content,
                stop_reason,
                api,
                provider,
                model,
                ..Assistant::default()
            }))
        }),
        (id(), "[x-z]").prop_map(|(id, text)| result(id, &text)),
    ]
}

/// Returns all text of user messages, in order.
fn user_text(history: &[Arc<Message>]) -> String {
    let texts = history.iter().map(|message| match &**message {
        Message::User(user) => user.content.text().replace([' ', '\n'], ""),
        Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => String::new(),
    });
    texts.collect::<String>().replace("(Thebeginningofthisconversationisnotshown.)", "")
}

/// Returns the old and new id of each call of the paired history.
fn renamed(before: &[Arc<Message>], after: &[Arc<Message>]) -> Vec<(String, String)> {
    let ids = |history: &[Arc<Message>]| history.iter().filter_map(|message| answered(message)).collect::<Vec<_>>();
    ids(before).into_iter().zip(ids(after)).collect()
}

proptest! {
    #[test]
    fn every_history_becomes_valid_for_every_provider_and_a_valid_one_stays(
        history in proptest::collection::vec(any_message(), 0..14),
    ) {
        for policy in policies() {
            let repaired_history = for_model(&history, &policy);
            prop_assert_eq!(rejection(&repaired_history, &policy), None, "{:?}", policy);
            prop_assert_eq!(&for_model(&repaired_history, &policy), &repaired_history, "{:?}", policy);
            prop_assert_eq!(user_text(&repaired_history), user_text(&history), "{:?}", policy);
            let names = renamed(&view(&history), &repaired_history);
            let unique: HashMap<_, _> = names.iter().rev().map(|(before, after)| (after, before)).collect();
            prop_assert!(policy.ids == IdForm::Any || unique.len() == names.len(), "{:?} {:?}", policy, names);
        }
    }

    #[test]
    fn the_lenient_policy_does_not_change_a_valid_history(
        turns in proptest::collection::vec((proptest::collection::hash_set("[a-z|:]{1,3}", 0..3), "[a-c]"), 0..6),
    ) {
        let mut history = Vec::new();
        for (ids, text) in &turns {
            history.push(user(text));
            if !ids.is_empty() {
                let ids: Vec<_> = ids.iter().map(String::as_str).collect();
                history.push(calls(&ids, ToolUse));
                history.extend(ids.iter().map(|id| result(id, "x")));
            }
            history.push(assistant_text(text));
        }
        let repaired_history = for_model(&history, &openai());
        prop_assert_eq!(repaired_history.len(), history.len());
        prop_assert!(repaired_history.iter().zip(&history).all(|(repaired_history, message)| Arc::ptr_eq(repaired_history, message)));
    }
}

#[test]
fn unknown_roles_are_dropped_and_details_do_not_matter() {
    let other = Arc::new(Message::Other(json!({"role": "oracle"}).as_object().cloned().unwrap()));
    let details = Value::from(7);
    let Message::ToolResult(result) = missing("1", "t", 0) else { unreachable!() };
    let with_details = Arc::new(Message::ToolResult(ToolResult { details: Some(details), ..result }));
    let history = [other, calls(&["1"], ToolUse), with_details.clone()];
    assert_eq!(for_model(&history, &openai()), [calls(&["1"], ToolUse), with_details]);
}
