//! A history that every provider takes: each call has exactly one result, right behind it.
//!
//! Crashes, other programs and old versions leave calls without results and results without calls; a provider refuses
//! such a history for ever. The repair is in the copy that the model sees; the transcript stays as it is.

use std::{collections::VecDeque, sync::Arc};

use homard_proto::message::{Assistant, Block, Message, StopReason, ToolResult};

/// What a model reads in place of a result that nobody wrote down.
const NO_RESULT: &str = "No result was recorded for this call. It may or may not have taken effect.";

/// The history without what failed or was broken off, every call paired with one result in the order of the calls.
///
/// A valid history comes back as it is. Messages of people are never lost: one that stands between a call and its result
/// moves behind the result. A result goes to the nearest open call of its id; one without such a call is left out.
pub fn view(history: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut view = Vec::with_capacity(history.len());
    let mut rest = history;
    while let Some((message, after)) = rest.split_first() {
        rest = after;
        match &**message {
            Message::Assistant(said) if is_void(said) => {}
            Message::Assistant(said) if said.tool_calls().next().is_some() => {
                let span = after.iter().position(|next| starts_turn(next)).unwrap_or(after.len());
                view.push(message.clone());
                pair(said, &after[..span], &mut view);
                rest = &after[span..];
            }
            Message::ToolResult(_) => {}
            Message::User(_) | Message::Assistant(_) | Message::Other(_) => view.push(message.clone()),
        }
    }
    view
}

/// Whether an answer failed or was broken off: people may want to see it, a model must not.
fn is_void(said: &Assistant) -> bool {
    matches!(said.stop_reason, StopReason::Error | StopReason::Aborted)
}

fn starts_turn(message: &Message) -> bool {
    matches!(message, Message::Assistant(said) if !is_void(said))
}

/// Puts the results of one message's calls behind it, and then what else was said meanwhile.
fn pair(said: &Assistant, span: &[Arc<Message>], view: &mut Vec<Arc<Message>>) {
    let mut answers: VecDeque<&Arc<Message>> = VecDeque::new();
    let mut others = Vec::new();
    for message in span {
        match &**message {
            Message::ToolResult(_) => answers.push_back(message),
            Message::Assistant(_) => {}
            Message::User(_) | Message::Other(_) => others.push(message.clone()),
        }
    }
    for call in said.tool_calls() {
        let matches = |answer: &Arc<Message>| match &**answer {
            Message::ToolResult(result) => result.tool_call_id.trim() == call.id.trim(),
            Message::User(_) | Message::Assistant(_) | Message::Other(_) => false,
        };
        let found = answers.iter().position(|answer| matches(answer)).and_then(|at| answers.remove(at));
        view.push(found.cloned().unwrap_or_else(|| Arc::new(missing(&call.id, &call.name, said.timestamp))));
    }
    view.append(&mut others);
}

fn missing(call: &str, name: &str, timestamp: u64) -> Message {
    Message::ToolResult(ToolResult {
        tool_call_id: call.to_owned(),
        tool_name: name.to_owned(),
        content: vec![Block::text(NO_RESULT)],
        details: None,
        is_error: true,
        timestamp,
        extra: serde_json::Map::new(),
    })
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{ToolCall, User};
    use proptest::prelude::*;

    use super::*;

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::User(User::text(text, 0)))
    }

    fn calls(ids: &[&str], stop_reason: StopReason) -> Arc<Message> {
        let call = |id: &&str| ToolCall { id: (*id).to_owned(), name: "t".to_owned(), ..ToolCall::default() };
        let content = ids.iter().map(|id| Block::ToolCall(call(id))).collect();
        Arc::new(Message::Assistant(Assistant { content, stop_reason, ..Assistant::default() }))
    }

    fn result(id: &str, text: &str) -> Arc<Message> {
        let Message::ToolResult(mut result) = missing(id, "t", 0) else { unreachable!() };
        result.content = vec![Block::text(text)];
        Arc::new(Message::ToolResult(result))
    }

    /// A history in one line: `u` user, `a(ids)` calls, `r(id:text)` results; `?` for a result that was made up.
    fn told(history: &[Arc<Message>]) -> String {
        let word = |message: &Arc<Message>| match &**message {
            Message::User(user) => user.content.text(),
            Message::Assistant(said) => {
                format!("a({})", said.tool_calls().map(|call| call.id.as_str()).collect::<Vec<_>>().join(","))
            }
            Message::ToolResult(result) => {
                let text = homard_proto::message::join_text(&result.content);
                format!("r({}:{})", result.tool_call_id, if text == NO_RESULT { "?" } else { &text })
            }
            Message::Other(_) => "o".to_owned(),
        };
        history.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn mended(history: &[Arc<Message>]) -> String {
        told(&view(history))
    }

    use StopReason::{Aborted, Error, ToolUse};

    #[test]
    fn a_result_moves_behind_its_call() {
        let history = [calls(&["1"], ToolUse), user("u"), result("1", "x")];
        assert_eq!(mended(&history), "a(1) r(1:x) u");
    }

    #[test]
    fn a_missing_result_is_made_up_once() {
        assert_eq!(mended(&[calls(&["1", "2"], ToolUse), result("2", "y"), user("u")]), "a(1,2) r(1:?) r(2:y) u");
    }

    #[test]
    fn a_repeated_result_counts_once_and_a_reused_id_keeps_both() {
        let history = [
            calls(&["1"], ToolUse),
            result("1", "x"),
            result("1", "again"),
            calls(&["1"], ToolUse),
            result(" 1 ", "y"),
        ];
        assert_eq!(mended(&history), "a(1) r(1:x) a(1) r( 1 :y)");
    }

    #[test]
    fn what_failed_goes_with_its_results_and_strays_go() {
        let history = [result("0", "stray"), user("u"), calls(&["1"], Error), result("1", "x"), calls(&["2"], Aborted)];
        assert_eq!(mended(&history), "u");
    }

    fn any_message() -> impl Strategy<Value = Arc<Message>> {
        let id = || prop_oneof![Just("1"), Just("2"), Just("3")];
        let stop = prop_oneof![4 => Just(ToolUse), 1 => Just(Error), 1 => Just(Aborted)];
        prop_oneof![
            "[a-c]".prop_map(|text| user(&text)),
            (proptest::collection::vec(id(), 0..3), stop).prop_map(|(ids, stop)| calls(&ids, stop)),
            (id(), "[x-z]").prop_map(|(id, text)| result(id, &text)),
        ]
    }

    proptest! {
        #[test]
        fn every_history_becomes_valid_and_a_valid_one_stays(
            history in proptest::collection::vec(any_message(), 0..12),
        ) {
            let once = view(&history);
            prop_assert_eq!(&view(&once), &once);
            let people = |history: &[Arc<Message>]| {
                history.iter().filter(|message| matches!(***message, Message::User(_))).count()
            };
            prop_assert_eq!(people(&once), people(&history));
            let mut due = VecDeque::new();
            for message in &once {
                match &**message {
                    Message::ToolResult(result) => prop_assert_eq!(due.pop_front(), Some(result.tool_call_id.clone())),
                    Message::Assistant(said) => {
                        prop_assert!(due.is_empty());
                        due.extend(said.tool_calls().map(|call| call.id.clone()));
                    }
                    Message::User(_) | Message::Other(_) => prop_assert!(due.is_empty()),
                }
            }
            prop_assert!(due.is_empty());
        }
    }
}
