//! Validates requests as vendors do: above all, rejects tool calls without results and results without calls.

use std::collections::HashSet;

use serde_json::Value;

use super::dialect::WireFormat;

/// Returns what is wrong with a request's body; empty if a vendor would accept it. Ids in `own`, which the provider
/// issued, may have any format.
pub fn violations(dialect: WireFormat, body: &Value, own: &HashSet<String>) -> Vec<String> {
    let Some(conversation) = body[dialect.conversation()].as_array() else {
        return vec![format!("there is no conversation in {body}")];
    };
    let mut check = RequestCheck { violations: Vec::new(), open_calls: Vec::new(), ids: HashSet::new(), own };
    if conversation.is_empty() {
        check.report("the conversation is empty");
    }
    match dialect {
        WireFormat::Anthropic => anthropic(conversation, &mut check),
        WireFormat::Chat => chat(conversation, &mut check),
        WireFormat::Responses => responses(conversation, &mut check),
        WireFormat::Gemini => gemini(conversation, &mut check),
    }
    if !check.open_calls.is_empty() {
        check.report(format!("calls are open at the end: {:?}", check.open_calls));
    }
    check.violations
}

/// State of the validation.
struct RequestCheck<'a> {
    violations: Vec<String>,
    /// Ids of calls whose results have not been found yet.
    open_calls: Vec<String>,
    /// Ids of all calls.
    ids: HashSet<String>,
    own: &'a HashSet<String>,
}

impl RequestCheck<'_> {
    fn report(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Records a call; its id must be a word of limited length, and unique.
    fn call(&mut self, id: &Value, max_length: usize) {
        let id = id.as_str().unwrap_or_default();
        let is_word = id.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'));
        let is_fitting = is_word && (1..=max_length).contains(&id.len());
        // The agent loop appends this suffix to tell duplicate call ids of one answer apart.
        if !is_fitting && !self.own.contains(id.trim_end_matches("_again")) {
            self.report(format!("{id:?} is no id of a call"));
        }
        if !self.ids.insert(id.to_owned()) {
            self.report(format!("two calls are {id:?}"));
        }
        self.open_calls.push(id.to_owned());
    }

    fn result(&mut self, id: &Value) {
        let id = id.as_str().unwrap_or_default();
        match self.open_calls.iter().position(|open| open == id) {
            Some(at) => drop(self.open_calls.remove(at)),
            None => self.report(format!("the result {id:?} has no call before it")),
        }
    }

    /// Reports an error if calls are still open before something that must not come between a call and its result.
    fn require_no_open_calls(&mut self, before: &str) {
        if !self.open_calls.is_empty() {
            self.report(format!("{before} comes before the results of {:?}", self.open_calls));
            self.open_calls.clear();
        }
    }
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn anthropic(messages: &[Value], check: &mut RequestCheck<'_>) {
    let mut last = "assistant";
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role == last || !["user", "assistant"].contains(&role) {
            check.report(format!("{role:?} speaks after {last:?}"));
        }
        last = if role == "user" { "user" } else { "assistant" };
        if list(&message["content"]).next().is_none() {
            check.report("a message says nothing");
        }
        if role == "assistant" {
            check.require_no_open_calls("an answer");
        }
        for block in list(&message["content"]) {
            match block["type"].as_str().unwrap_or_default() {
                "tool_use" => {
                    if !block["input"].is_object() {
                        check.report(format!("arguments that are no object: {block}"));
                    }
                    check.call(&block["id"], 64);
                }
                "tool_result" => check.result(&block["tool_use_id"]),
                "text" if is_blank(&block["text"]) => check.report("a blank text"),
                "thinking" if is_blank(&block["signature"]) => check.report("thoughts without a signature"),
                // User content must come after all results.
                _ if role == "user" => check.require_no_open_calls("a word"),
                _ => {}
            }
        }
        if role == "user" {
            check.require_no_open_calls("the end of a user's message");
        }
    }
}

fn chat(messages: &[Value], check: &mut RequestCheck<'_>) {
    for message in messages {
        match message["role"].as_str().unwrap_or_default() {
            "tool" => {
                check.result(&message["tool_call_id"]);
                if message["content"].as_str().is_none_or(str::is_empty) {
                    check.report(format!("a result says nothing: {message}"));
                }
            }
            "assistant" => {
                check.require_no_open_calls("an answer");
                if message["content"].is_null() && list(&message["tool_calls"]).next().is_none() {
                    check.report("an answer says nothing");
                }
                for call in list(&message["tool_calls"]) {
                    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                    if !serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object()) {
                        check.report(format!("arguments that are no object: {call}"));
                    }
                    check.call(&call["id"], 40);
                }
            }
            role => check.require_no_open_calls(role),
        }
    }
}

/// Checks the items of OpenAI's Responses API. Reasoning must be followed by the call or message that it led to.
fn responses(items: &[Value], check: &mut RequestCheck<'_>) {
    let mut prev = "";
    for item in items {
        let kind = item["type"].as_str().unwrap_or("message");
        match kind {
            "function_call" => check.call(&item["call_id"], 64),
            "function_call_output" => check.result(&item["call_id"]),
            // Calls of one answer may have reasoning between them, so open calls are allowed here.
            "reasoning" => {}
            _ if item["role"] == "user" => check.require_no_open_calls("a user"),
            _ => {}
        }
        if prev == "reasoning" && !(matches!(kind, "function_call" | "reasoning") || item["role"] == "assistant") {
            check.report("reasoning led to nothing");
        }
        prev = kind;
    }
    if prev == "reasoning" {
        check.report("reasoning led to nothing");
    }
}

fn gemini(contents: &[Value], check: &mut RequestCheck<'_>) {
    if contents.first().is_some_and(|content| content["role"] != "user") {
        check.report("a user must begin");
    }
    // Names of the open calls: they matter as much as ids, which older models do not have.
    let mut names: Vec<&Value> = Vec::new();
    for content in contents {
        let parts: Vec<&Value> = list(&content["parts"]).collect();
        if parts.is_empty() {
            check.report("a content without parts");
        }
        let results: Vec<_> =
            parts.iter().map(|part| &part["functionResponse"]).filter(|part| !part.is_null()).collect();
        let answered: Vec<_> = results.iter().map(|result| &result["name"]).collect();
        if answered != names {
            check.report(format!("the results of {names:?} are {answered:?}"));
        }
        if !results.is_empty() && results.len() != parts.len() {
            check.report("results do not stand alone");
        }
        results.iter().filter(|result| !result["id"].is_null()).for_each(|result| check.result(&result["id"]));
        check.require_no_open_calls("a content");
        let calls: Vec<_> = parts.iter().map(|part| &part["functionCall"]).filter(|part| !part.is_null()).collect();
        if !calls.is_empty() && content["role"] != "model" {
            check.report("a user makes calls");
        }
        names = calls.iter().map(|call| &call["name"]).collect();
        calls.iter().filter(|call| !call["id"].is_null()).for_each(|call| check.call(&call["id"], 64));
    }
    if !names.is_empty() {
        check.report(format!("calls are open at the end: {names:?}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_request(dialect: WireFormat, body: &Value) -> Vec<String> {
        super::violations(dialect, body, &HashSet::new())
    }

    /// Returns a valid conversation: a user message, an answer with two calls, their results.
    fn good(dialect: WireFormat) -> Value {
        match dialect {
            WireFormat::Anthropic => json!({"messages": [
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "x", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "y", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": []},
                    {"type": "tool_result", "tool_use_id": "b", "content": []},
                ]},
            ]}),
            WireFormat::Chat => json!({"messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "function": {"name": "x", "arguments": "{}"}},
                    {"id": "b", "function": {"name": "y", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "a", "content": "1"},
                {"role": "tool", "tool_call_id": "b", "content": "2"},
            ]}),
            WireFormat::Responses => json!({"input": [
                {"role": "user", "content": "Hi"},
                {"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "y", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "1"},
                {"type": "function_call_output", "call_id": "b", "output": "2"},
            ]}),
            WireFormat::Gemini => json!({"contents": [
                {"role": "user", "parts": [{"text": "Hi"}]},
                {"role": "model", "parts": [
                    {"functionCall": {"id": "a", "name": "x", "args": {}}},
                    {"functionCall": {"id": "b", "name": "y", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "a", "name": "x", "response": {}}},
                    {"functionResponse": {"id": "b", "name": "y", "response": {}}},
                ]},
            ]}),
        }
    }

    #[test]
    fn a_valid_conversation_is_accepted() {
        assert_eq!(
            WireFormat::ALL.map(|dialect| check_request(dialect, &good(dialect))),
            [const { Vec::<String>::new() }; 4]
        );
    }

    #[test]
    fn a_conversation_without_one_of_its_parts_is_refused() {
        for dialect in WireFormat::ALL {
            let good = good(dialect);
            let list = good[dialect.conversation()].as_array().unwrap();
            for at in 1..list.len() {
                let mut bad = good.clone();
                bad[dialect.conversation()].as_array_mut().unwrap().remove(at);
                assert_ne!(check_request(dialect, &bad), Vec::<String>::new(), "{dialect:?} without {at}");
            }
        }
    }

    #[test]
    fn an_id_that_is_used_twice_or_joined_is_refused() {
        for dialect in WireFormat::ALL {
            for (from, to) in [("\"b\"", "\"a\""), ("\"b\"", "\"call_b|fc_b\"")] {
                let bad = serde_json::from_str(&good(dialect).to_string().replace(from, to)).unwrap();
                assert_ne!(check_request(dialect, &bad), Vec::<String>::new(), "{dialect:?} with {to}");
            }
        }
    }

    #[test]
    fn a_provider_accepts_its_own_ids_in_any_format() {
        let odd =
            serde_json::from_str(&good(WireFormat::Chat).to_string().replace("\"b\"", "\"functions.y:0\"")).unwrap();
        assert_eq!(check_request(WireFormat::Chat, &odd), ["\"functions.y:0\" is no id of a call"]);
        let own = HashSet::from(["functions.y:0".to_owned()]);
        assert_eq!(super::violations(WireFormat::Chat, &odd, &own), Vec::<String>::new());
    }
}
