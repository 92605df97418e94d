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
    let mut found = RequestCheck { violations: Vec::new(), open_calls: Vec::new(), ids: HashSet::new(), own };
    if conversation.is_empty() {
        found.report("the conversation is empty");
    }
    match dialect {
        WireFormat::Anthropic => anthropic(conversation, &mut found),
        WireFormat::Chat => chat(conversation, &mut found),
        WireFormat::Responses => responses(conversation, &mut found),
        WireFormat::Gemini => gemini(conversation, &mut found),
    }
    if !found.open_calls.is_empty() {
        found.report(format!("calls are open at the end: {:?}", found.open_calls));
    }
    found.violations
}

/// State of the validation.
struct RequestCheck<'a> {
    violations: Vec<String>,
    /// Calls whose results are still missing.
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
    fn call(&mut self, id: &Value, longest: usize) {
        let id = id.as_str().unwrap_or_default();
        let is_word = id.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'));
        let is_fitting = is_word && (1..=longest).contains(&id.len());
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

fn anthropic(messages: &[Value], found: &mut RequestCheck<'_>) {
    let mut last = "assistant";
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role == last || !["user", "assistant"].contains(&role) {
            found.report(format!("{role:?} speaks after {last:?}"));
        }
        last = if role == "user" { "user" } else { "assistant" };
        if list(&message["content"]).next().is_none() {
            found.report("a message says nothing");
        }
        if role == "assistant" {
            found.require_no_open_calls("an answer");
        }
        for block in list(&message["content"]) {
            match block["type"].as_str().unwrap_or_default() {
                "tool_use" => {
                    if !block["input"].is_object() {
                        found.report(format!("arguments that are no object: {block}"));
                    }
                    found.call(&block["id"], 64);
                }
                "tool_result" => found.result(&block["tool_use_id"]),
                "text" if is_blank(&block["text"]) => found.report("a blank text"),
                "thinking" if is_blank(&block["signature"]) => found.report("thoughts without a signature"),
                // User content must come after all results.
                _ if role == "user" => found.require_no_open_calls("a word"),
                _ => {}
            }
        }
        if role == "user" {
            found.require_no_open_calls("the end of a user's message");
        }
    }
}

fn chat(messages: &[Value], found: &mut RequestCheck<'_>) {
    for message in messages {
        match message["role"].as_str().unwrap_or_default() {
            "tool" => {
                found.result(&message["tool_call_id"]);
                if message["content"].as_str().is_none_or(str::is_empty) {
                    found.report(format!("a result says nothing: {message}"));
                }
            }
            "assistant" => {
                found.require_no_open_calls("an answer");
                if message["content"].is_null() && list(&message["tool_calls"]).next().is_none() {
                    found.report("an answer says nothing");
                }
                for call in list(&message["tool_calls"]) {
                    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                    if !serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object()) {
                        found.report(format!("arguments that are no object: {call}"));
                    }
                    found.call(&call["id"], 40);
                }
            }
            role => found.require_no_open_calls(role),
        }
    }
}

fn responses(items: &[Value], found: &mut RequestCheck<'_>) {
    let mut last = "";
    for item in items {
        let kind = item["type"].as_str().unwrap_or("message");
        match kind {
            "function_call" => found.call(&item["call_id"], 64),
            "function_call_output" => found.result(&item["call_id"]),
            // Calls of one answer are adjacent, except for reasoning between them.
            "reasoning" => {}
            _ if item["role"] == "user" => found.require_no_open_calls("a user"),
            _ => {}
        }
        if last == "reasoning" && !(matches!(kind, "function_call" | "reasoning") || item["role"] == "assistant") {
            found.report("reasoning led to nothing");
        }
        last = kind;
    }
    if last == "reasoning" {
        found.report("reasoning led to nothing");
    }
}

fn gemini(contents: &[Value], found: &mut RequestCheck<'_>) {
    if contents.first().is_some_and(|content| content["role"] != "user") {
        found.report("a user must begin");
    }
    // Names of the open calls: they matter as much as ids, which older models do not have.
    let mut names: Vec<&Value> = Vec::new();
    for content in contents {
        let parts: Vec<&Value> = list(&content["parts"]).collect();
        if parts.is_empty() {
            found.report("a content without parts");
        }
        let results: Vec<_> =
            parts.iter().map(|part| &part["functionResponse"]).filter(|part| !part.is_null()).collect();
        let answered: Vec<_> = results.iter().map(|result| &result["name"]).collect();
        if answered != names {
            found.report(format!("the results of {names:?} are {answered:?}"));
        }
        if !results.is_empty() && results.len() != parts.len() {
            found.report("results do not stand alone");
        }
        results.iter().filter(|result| !result["id"].is_null()).for_each(|result| found.result(&result["id"]));
        found.require_no_open_calls("a content");
        let calls: Vec<_> = parts.iter().map(|part| &part["functionCall"]).filter(|part| !part.is_null()).collect();
        if !calls.is_empty() && content["role"] != "model" {
            found.report("a user makes calls");
        }
        names = calls.iter().map(|call| &call["name"]).collect();
        calls.iter().filter(|call| !call["id"].is_null()).for_each(|call| found.call(&call["id"], 64));
    }
    if !names.is_empty() {
        found.report(format!("calls are open at the end: {names:?}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(dialect: WireFormat, body: &Value) -> Vec<String> {
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
    fn a_good_conversation_is_taken() {
        assert_eq!(WireFormat::ALL.map(|dialect| wrong(dialect, &good(dialect))), [const { Vec::<String>::new() }; 4]);
    }

    #[test]
    fn a_conversation_without_one_of_its_parts_is_refused() {
        for dialect in WireFormat::ALL {
            let good = good(dialect);
            let list = good[dialect.conversation()].as_array().unwrap();
            for at in 1..list.len() {
                let mut bad = good.clone();
                bad[dialect.conversation()].as_array_mut().unwrap().remove(at);
                assert_ne!(wrong(dialect, &bad), Vec::<String>::new(), "{dialect:?} without {at}");
            }
        }
    }

    #[test]
    fn an_id_that_is_used_twice_or_joined_is_refused() {
        for dialect in WireFormat::ALL {
            for (from, to) in [("\"b\"", "\"a\""), ("\"b\"", "\"call_b|fc_b\"")] {
                let bad = serde_json::from_str(&good(dialect).to_string().replace(from, to)).unwrap();
                assert_ne!(wrong(dialect, &bad), Vec::<String>::new(), "{dialect:?} with {to}");
            }
        }
    }

    #[test]
    fn an_id_of_any_shape_is_taken_back_by_whoever_gave_it() {
        let odd =
            serde_json::from_str(&good(WireFormat::Chat).to_string().replace("\"b\"", "\"functions.y:0\"")).unwrap();
        assert_eq!(wrong(WireFormat::Chat, &odd), ["\"functions.y:0\" is no id of a call"]);
        let own = HashSet::from(["functions.y:0".to_owned()]);
        assert_eq!(super::violations(WireFormat::Chat, &odd, &own), Vec::<String>::new());
    }
}
