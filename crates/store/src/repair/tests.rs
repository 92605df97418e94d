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

fn answers(content: Vec<Block>, stop_reason: StopReason) -> Arc<Message> {
    Arc::new(Message::Assistant(Assistant { content, stop_reason, ..Assistant::default() }))
}

fn calls(ids: &[&str], stop_reason: StopReason) -> Arc<Message> {
    let call =
        |id: &&str| ToolCall { id: (*id).to_owned(), name: "t".to_owned(), arguments: json!({}), extra: Map::new() };
    answers(ids.iter().map(|id| Block::ToolCall(call(id))).collect(), stop_reason)
}

fn says(text: &str) -> Arc<Message> {
    answers(vec![Block::text(text)], Stop)
}

fn result(id: &str, text: &str) -> Arc<Message> {
    let Message::ToolResult(mut result) = missing(id, "t", 0) else { unreachable!() };
    result.content = vec![Block::text(text)];
    Arc::new(Message::ToolResult(result))
}

/// Formats a history as one line: a user's text, `a(ids)` or `a:text` for assistant messages, `r(id:text)` for results,
/// with `?` for a generated text.
fn told(history: &[Arc<Message>]) -> String {
    let word = |message: &Arc<Message>| match &**message {
        Message::User(user) => user.content.text(),
        Message::Assistant(said) if said.tool_calls().next().is_none() => format!("a:{}", said.text()),
        Message::Assistant(said) => {
            format!("a({})", said.tool_calls().map(|call| call.id.as_str()).collect::<Vec<_>>().join(","))
        }
        Message::ToolResult(result) => {
            let text = join_text(&result.content);
            format!("r({}:{})", result.tool_call_id, if text == NO_RESULT { "?" } else { &text })
        }
        Message::Other(_) => "o".to_owned(),
    };
    history.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn mended(history: &[Arc<Message>]) -> String {
    told(&view(history))
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
    assert_eq!(mended(&history), "a(1) r(1:x) u");
}

// Pitfall 35: a mirrored message must not come between a call and its result.
#[test]
fn a_result_moves_past_what_was_said_meanwhile() {
    let history = [calls(&["1"], ToolUse), says("mirror"), result("1", "x"), user("u")];
    assert_eq!(mended(&history), "a(1) r(1:x) a:mirror u");
}

// Case 92, in memory; calls that a run leaves open are answered in the transcript when it ends.
#[test]
fn a_missing_result_is_made_up_once() {
    assert_eq!(mended(&[calls(&["1", "2"], ToolUse), result("2", "y"), user("u")]), "a(1,2) r(1:?) r(2:y) u");
}

// Case 93; pitfall 37, pitfall 101, pitfall 102.
#[test]
fn a_repeated_result_counts_once_and_a_reused_id_keeps_both() {
    let history =
        [calls(&["1"], ToolUse), result("1", "x"), result("1", "again"), calls(&["1"], ToolUse), result(" 1 ", "y")];
    assert_eq!(mended(&history), "a(1) r(1:x) a(1) r(1:y)");
}

#[test]
fn a_result_belongs_to_the_nearest_call_without_one() {
    let history = [calls(&["1"], ToolUse), calls(&["1"], ToolUse), result("1", "x"), user("u"), result("1", "y")];
    assert_eq!(mended(&history), "a(1) r(1:y) a(1) r(1:x) u");
    let twice = [calls(&["1", "1"], ToolUse), result("1", "x"), result("1", "y")];
    assert_eq!(mended(&twice), "a(1,1) r(1:x) r(1:y)");
}

// Pitfall 38, pitfall 39: remains of other programs.
#[test]
fn what_failed_goes_with_its_results_and_strays_go() {
    let history = [result("0", "stray"), user("u"), calls(&["1"], Error), result("1", "x"), calls(&["2"], Aborted)];
    assert_eq!(mended(&history), "u");
    let reused = [calls(&["1"], ToolUse), calls(&["1"], Error), result("1", "of the broken one"), user("u")];
    assert_eq!(mended(&reused), "a(1) r(1:?) u");
}

#[test]
fn ids_get_the_shape_that_the_provider_wants() {
    let history = [calls(&["call_1|fc_a", "ok"], ToolUse), result("call_1|fc_a", "x"), result("ok", "y")];
    let ids = |policy| told(&for_model(&history, &policy));
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
fn ids_that_would_become_one_stay_apart_and_one_that_fits_stays() {
    let history =
        [user("u"), calls(&["a|b", "a:b", "ab"], ToolUse), result("a|b", "1"), result("a:b", "2"), result("ab", "3")];
    assert_eq!(told(&for_model(&history, &gemini())), "u a(ab2,ab3,ab) r(ab2:1) r(ab3:2) r(ab:3)");
    assert_eq!(
        told(&for_model(&history, &mistral())),
        "u a(ab0000000,ab0000002,ab0000003) r(ab0000000:1) r(ab0000002:2) r(ab0000003:3)"
    );
}

#[test]
fn an_id_that_is_used_again_is_renamed_only_where_that_is_refused() {
    let history = [calls(&["1"], ToolUse), result("1", "x"), calls(&["1"], ToolUse), result("1", "y")];
    assert_eq!(told(&for_model(&history, &openai())), "a(1) r(1:x) a(1) r(1:y)");
    assert_eq!(told(&for_model(&history, &anthropic())), "a(1) r(1:x) a(12) r(12:y)");
    let twice = [calls(&["1", "1", ""], ToolUse)];
    assert_eq!(told(&for_model(&twice, &openai())), "a(1,1_2,call) r(1:?) r(1_2:?) r(call:?)");
}

#[test]
fn ten_thousand_uses_of_one_id_stay_apart() {
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
    let history = [answers(serde_json::from_value(blocks).unwrap(), ToolUse)];
    let seen = for_model(&history, &openai());
    let Message::Assistant(said) = &*seen[0] else { panic!("{seen:?}") };
    let arguments: Vec<_> = said.tool_calls().map(|call| call.arguments.clone()).collect();
    assert_eq!(arguments, [json!({}), json!({"a": 1}), json!({})]);
}

#[test]
fn users_in_a_row_become_one_where_that_is_wanted() {
    let plain =
        Arc::new(Message::User(User { content: Content::Text("b".to_owned()), timestamp: 1, extra: Map::new() }));
    let history = [user("a"), plain, says("x"), user("c")];
    assert_eq!(told(&for_model(&history, &anthropic())), "ab a:x c");
    assert_eq!(told(&for_model(&history, &openai())), "a b a:x c");
}

// Case 95, in memory.
#[test]
fn answers_in_a_row_become_one_and_a_user_begins_where_that_is_wanted() {
    let history = [says("x"), calls(&["1"], ToolUse), result("1", "r"), says("y"), says("z")];
    assert_eq!(
        told(&for_model(&history, &gemini())),
        "(The beginning of this conversation is not shown.) a(1) r(1:r) a:yz"
    );
}

#[test]
fn what_says_nothing_goes_where_it_is_refused() {
    let history =
        [user("u"), says(" \n"), user(" "), answers(Vec::new(), Stop), calls(&["1"], ToolUse), result("1", " ")];
    assert_eq!(told(&for_model(&history, &anthropic())), "u a(1) r(1:(no output))");
    assert_eq!(told(&for_model(&history, &openai())), "u a: \n   a(1) r(1: )");
}

#[test]
fn a_picture_that_no_model_takes_is_named_instead() {
    let picture =
        |data: String| Block::Image(ImageBlock { data, mime_type: "image/png".to_owned(), extra: Map::new() });
    let content = Content::Blocks(vec![Block::text("see "), picture("A".repeat(12 << 20)), picture("AAAA".to_owned())]);
    let history = [Arc::new(Message::User(User { content, timestamp: 0, extra: Map::new() }))];
    let seen = for_model(&history, &openai());
    let Message::User(user) = &*seen[0] else { panic!("{seen:?}") };
    let Content::Blocks(blocks) = &user.content else { panic!("{user:?}") };
    assert_eq!(user.content.text(), "see (an image of 9 MiB was left out: models accept at most 5 MiB)");
    assert_eq!(blocks[2], picture("AAAA".to_owned()));
}

fn thought(words: &str, seal: Option<&str>) -> Block {
    let thinking_signature = seal.map(str::to_owned);
    Block::Thinking(ThinkingBlock { thinking: words.to_owned(), thinking_signature, extra: Map::new() })
}

/// Returns the blocks of one assistant message after the repair; `by` is the model that wrote it.
fn seen(blocks: Vec<Block>, policy: &ProviderPolicy, by: (&str, &str, &str)) -> Vec<Block> {
    let said = Assistant {
        content: blocks,
        api: by.0.to_owned(),
        provider: by.1.to_owned(),
        model: by.2.to_owned(),
        ..Assistant::default()
    };
    let history = for_model(&[user("u"), Arc::new(Message::Assistant(said))], policy);
    match history.get(1).map(|message| &**message) {
        Some(Message::Assistant(said)) => said.content.clone(),
        None => Vec::new(),
        Some(other) => panic!("{other:?}"),
    }
}

const CLAUDE: (&str, &str, &str) = ("anthropic-messages", "anthropic", "claude");
const ELSE: (&str, &str, &str) = ("openai-completions", "local", "other");

#[test]
fn reasoning_goes_back_sealed_to_its_own_model_and_as_text_to_another() {
    let sealed = || vec![thought("hm", Some("c2ln")), Block::text("x")];
    assert_eq!(seen(sealed(), &anthropic(), CLAUDE), sealed());
    assert_eq!(seen(sealed(), &anthropic(), ELSE), [Block::text("hm"), Block::text("x")]);
    let unsealed = vec![thought("hm", None), thought(" ", None), Block::text("x")];
    assert_eq!(seen(unsealed, &anthropic(), CLAUDE), [Block::text("hm"), Block::text("x")]);
    let redacted = json!([{"type": "thinking", "thinking": "[]", "thinkingSignature": "s", "redacted": true}]);
    let redacted: Vec<Block> = serde_json::from_value(redacted).unwrap();
    assert_eq!(seen(redacted.clone(), &anthropic(), CLAUDE), redacted);
    assert_eq!(seen(redacted, &anthropic(), ELSE), []);
}

#[test]
fn reasoning_behind_which_nothing_was_said_does_not_go_to_responses() {
    let gpt = ("openai-responses", "openai", "gpt");
    let policy = ProviderPolicy::of(gpt.0, gpt.1, gpt.2);
    let kept = || vec![thought("a", Some("{}")), Block::text("x")];
    let mut blocks = kept();
    blocks.push(thought("b", Some("{}")));
    assert_eq!(seen(blocks, &policy, gpt), kept());
    assert_eq!(seen(vec![thought("b", Some("{}"))], &policy, gpt), []);
}

fn sealed_text(seal: &str) -> Block {
    let extra = json!({"thoughtSignature": seal, "other": 1}).as_object().cloned().unwrap();
    Block::Text(TextBlock { text: "x".to_owned(), extra })
}

fn bare_text() -> Block {
    Block::Text(TextBlock { text: "x".to_owned(), extra: json!({"other": 1}).as_object().cloned().unwrap() })
}

#[test]
fn seals_that_the_provider_refuses_are_taken_off() {
    let by = ("google-generative-ai", "google", "gemini");
    assert_eq!(seen(vec![sealed_text("msg_1")], &gemini(), by), [bare_text()]);
    assert_eq!(seen(vec![sealed_text("c2ln")], &gemini(), by), [sealed_text("c2ln")]);
    assert_eq!(seen(vec![sealed_text("c2ln")], &gemini(), ELSE), [bare_text()]);
    let routed = ("openai-completions", "openrouter", "gemini");
    let policy = ProviderPolicy::of(routed.0, routed.1, routed.2);
    assert_eq!(seen(vec![sealed_text("not base64")], &policy, routed), [bare_text()]);
    assert_eq!(seen(vec![sealed_text("c2ln")], &policy, routed), [sealed_text("c2ln")]);
    let claude = ("google-antigravity", "google-antigravity", "claude");
    let policy = ProviderPolicy::of(claude.0, claude.1, claude.2);
    let blocks = vec![thought("a", Some("c2ln")), thought("b", Some("?")), thought("c", None), Block::text("x")];
    assert_eq!(seen(blocks, &policy, claude), [thought("a", Some("c2ln")), Block::text("x")]);
}

/// Returns what a provider with these rules would reject in a paired history.
fn complaint(history: &[Arc<Message>], policy: &ProviderPolicy) -> Option<String> {
    let mut due = VecDeque::new();
    let mut used = HashSet::new();
    for message in history {
        match &**message {
            Message::ToolResult(result) if due.pop_front() == Some(result.tool_call_id.clone()) => {}
            Message::ToolResult(result) => return Some(format!("{} answers nothing", result.tool_call_id)),
            Message::Assistant(said) if due.is_empty() => {
                if policy.ids == IdForm::Any {
                    used.clear();
                }
                for call in said.tool_calls() {
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
    let seal = prop_oneof![Just(None), Just(Some("c2ln")), Just(Some("msg_1"))];
    prop_oneof![
        "[ p-q]{0,2}".prop_map(Block::text),
        (0..3u8, seal).prop_map(|(words, seal)| thought(&"h".repeat(words.into()), seal)),
        Just(sealed_text("msg_1")),
        Just(Block::Other(json!({"type": "hologram"}))),
    ]
}

fn any_message() -> impl Strategy<Value = Arc<Message>> {
    let id = || prop_oneof![Just("1"), Just("a|b"), Just("a:b"), Just("ab"), Just(" ab "), Just("")];
    let stop = prop_oneof![4 => Just(ToolUse), 1 => Just(Error), 1 => Just(Aborted)];
    let by = prop_oneof![Just(CLAUDE), Just(ELSE), Just(("google-generative-ai", "google", "gemini"))];
    let answer = (proptest::collection::vec(any_block(), 0..3), proptest::collection::vec(id(), 0..3), stop, by);
    prop_oneof![
        "[a-c ]{1,2}".prop_map(|text| user(&text)),
        answer.prop_map(|(mut content, ids, stop_reason, by)| {
            let Message::Assistant(said) = &*calls(&ids, ToolUse) else { unreachable!() };
            content.extend(said.content.iter().cloned());
            let (api, provider, model) = (by.0.to_owned(), by.1.to_owned(), by.2.to_owned());
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
fn people(history: &[Arc<Message>]) -> String {
    let words = history.iter().map(|message| match &**message {
        Message::User(user) => user.content.text().replace([' ', '\n'], ""),
        Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => String::new(),
    });
    words.collect::<String>().replace("(Thebeginningofthisconversationisnotshown.)", "")
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
            let once = for_model(&history, &policy);
            prop_assert_eq!(complaint(&once, &policy), None, "{:?}", policy);
            prop_assert_eq!(&for_model(&once, &policy), &once, "{:?}", policy);
            prop_assert_eq!(people(&once), people(&history), "{:?}", policy);
            let names = renamed(&view(&history), &once);
            let fitting: HashMap<_, _> = names.iter().rev().map(|(before, after)| (after, before)).collect();
            prop_assert!(policy.ids == IdForm::Any || fitting.len() == names.len(), "{:?} {:?}", policy, names);
        }
    }

    #[test]
    fn the_lenient_policy_leaves_a_valid_history_alone(
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
            history.push(says(text));
        }
        let seen = for_model(&history, &openai());
        prop_assert_eq!(seen.len(), history.len());
        prop_assert!(seen.iter().zip(&history).all(|(seen, message)| Arc::ptr_eq(seen, message)));
    }
}

#[test]
fn unknown_roles_and_details_are_not_for_models() {
    let other = Arc::new(Message::Other(json!({"role": "oracle"}).as_object().cloned().unwrap()));
    let details = Value::from(7);
    let Message::ToolResult(result) = missing("1", "t", 0) else { unreachable!() };
    let kept = Arc::new(Message::ToolResult(ToolResult { details: Some(details), ..result }));
    let history = [other, calls(&["1"], ToolUse), kept.clone()];
    assert_eq!(for_model(&history, &openai()), [calls(&["1"], ToolUse), kept]);
}
