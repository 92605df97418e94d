//! Validates requests as vendors do: above all, rejects tool calls without results and results without calls.

use std::collections::HashSet;

use serde_json::Value;

use super::dialect::Dialect;

/// Returns what is wrong with a request's body; empty if a vendor would accept it. Ids in `own`, which the provider
/// issued, may have any format.
pub fn wrong(dialect: Dialect, body: &Value, own: &HashSet<String>) -> Vec<String> {
    let Some(conversation) = body[dialect.conversation()].as_array() else {
        return vec![format!("there is no conversation in {body}")];
    };
    let mut found = Found { wrong: Vec::new(), open: Vec::new(), ids: HashSet::new(), own };
    if conversation.is_empty() {
        found.tell("the conversation is empty");
    }
    match dialect {
        Dialect::Anthropic => anthropic(conversation, &mut found),
        Dialect::Chat => chat(conversation, &mut found),
        Dialect::Responses => responses(conversation, &mut found),
        Dialect::Gemini => gemini(conversation, &mut found),
    }
    if !found.open.is_empty() {
        found.tell(format!("calls are open at the end: {:?}", found.open));
    }
    found.wrong
}

/// State of the validation.
struct Found<'a> {
    wrong: Vec<String>,
    /// Calls whose results are still missing.
    open: Vec<String>,
    /// Ids of all calls.
    ids: HashSet<String>,
    own: &'a HashSet<String>,
}

impl Found<'_> {
    fn tell(&mut self, what: impl Into<String>) {
        self.wrong.push(what.into());
    }

    /// Records a call; its id must be a word of limited length, and unique.
    fn call(&mut self, id: &Value, longest: usize) {
        let id = id.as_str().unwrap_or_default();
        let is_word = id.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'));
        let is_fitting = is_word && (1..=longest).contains(&id.len());
        // The agent loop appends this suffix to tell duplicate call ids of one answer apart.
        if !is_fitting && !self.own.contains(id.trim_end_matches("_again")) {
            self.tell(format!("{id:?} is no id of a call"));
        }
        if !self.ids.insert(id.to_owned()) {
            self.tell(format!("two calls are {id:?}"));
        }
        self.open.push(id.to_owned());
    }

    fn result(&mut self, id: &Value) {
        let id = id.as_str().unwrap_or_default();
        match self.open.iter().position(|open| open == id) {
            Some(at) => drop(self.open.remove(at)),
            None => self.tell(format!("the result {id:?} has no call before it")),
        }
    }

    /// Reports an error if calls are still open before something that must not come between a call and its result.
    fn nothing_open(&mut self, before: &str) {
        if !self.open.is_empty() {
            self.tell(format!("{before} comes before the results of {:?}", self.open));
            self.open.clear();
        }
    }
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn anthropic(messages: &[Value], found: &mut Found<'_>) {
    let mut last = "assistant";
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role == last || !["user", "assistant"].contains(&role) {
            found.tell(format!("{role:?} speaks after {last:?}"));
        }
        last = if role == "user" { "user" } else { "assistant" };
        if list(&message["content"]).next().is_none() {
            found.tell("a message says nothing");
        }
        if role == "assistant" {
            found.nothing_open("an answer");
        }
        for block in list(&message["content"]) {
            match block["type"].as_str().unwrap_or_default() {
                "tool_use" => {
                    if !block["input"].is_object() {
                        found.tell(format!("arguments that are no object: {block}"));
                    }
                    found.call(&block["id"], 64);
                }
                "tool_result" => found.result(&block["tool_use_id"]),
                "text" if is_blank(&block["text"]) => found.tell("a blank text"),
                "thinking" if is_blank(&block["signature"]) => found.tell("thoughts without a signature"),
                // User content must come after all results.
                _ if role == "user" => found.nothing_open("a word"),
                _ => {}
            }
        }
        if role == "user" {
            found.nothing_open("the end of a user's message");
        }
    }
}

fn chat(messages: &[Value], found: &mut Found<'_>) {
    for message in messages {
        match message["role"].as_str().unwrap_or_default() {
            "tool" => {
                found.result(&message["tool_call_id"]);
                if message["content"].as_str().is_none_or(str::is_empty) {
                    found.tell(format!("a result says nothing: {message}"));
                }
            }
            "assistant" => {
                found.nothing_open("an answer");
                if message["content"].is_null() && list(&message["tool_calls"]).next().is_none() {
                    found.tell("an answer says nothing");
                }
                for call in list(&message["tool_calls"]) {
                    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                    if !serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object()) {
                        found.tell(format!("arguments that are no object: {call}"));
                    }
                    found.call(&call["id"], 40);
                }
            }
            role => found.nothing_open(role),
        }
    }
}

fn responses(items: &[Value], found: &mut Found<'_>) {
    let mut last = "";
    for item in items {
        let kind = item["type"].as_str().unwrap_or("message");
        match kind {
            "function_call" => found.call(&item["call_id"], 64),
            "function_call_output" => found.result(&item["call_id"]),
            // Calls of one answer are adjacent, except for reasoning between them.
            "reasoning" => {}
            _ if item["role"] == "user" => found.nothing_open("a user"),
            _ => {}
        }
        if last == "reasoning" && !(matches!(kind, "function_call" | "reasoning") || item["role"] == "assistant") {
            found.tell("reasoning led to nothing");
        }
        last = kind;
    }
    if last == "reasoning" {
        found.tell("reasoning led to nothing");
    }
}

fn gemini(contents: &[Value], found: &mut Found<'_>) {
    if contents.first().is_some_and(|content| content["role"] != "user") {
        found.tell("a user must begin");
    }
    // Names of the open calls: they matter as much as ids, which older models do not have.
    let mut names: Vec<&Value> = Vec::new();
    for content in contents {
        let parts: Vec<&Value> = list(&content["parts"]).collect();
        if parts.is_empty() {
            found.tell("a content without parts");
        }
        let results: Vec<_> =
            parts.iter().map(|part| &part["functionResponse"]).filter(|part| !part.is_null()).collect();
        let answered: Vec<_> = results.iter().map(|result| &result["name"]).collect();
        if answered != names {
            found.tell(format!("the results of {names:?} are {answered:?}"));
        }
        if !results.is_empty() && results.len() != parts.len() {
            found.tell("results do not stand alone");
        }
        results.iter().filter(|result| !result["id"].is_null()).for_each(|result| found.result(&result["id"]));
        found.nothing_open("a content");
        let calls: Vec<_> = parts.iter().map(|part| &part["functionCall"]).filter(|part| !part.is_null()).collect();
        if !calls.is_empty() && content["role"] != "model" {
            found.tell("a user makes calls");
        }
        names = calls.iter().map(|call| &call["name"]).collect();
        calls.iter().filter(|call| !call["id"].is_null()).for_each(|call| found.call(&call["id"], 64));
    }
    if !names.is_empty() {
        found.tell(format!("calls are open at the end: {names:?}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(dialect: Dialect, body: &Value) -> Vec<String> {
        super::wrong(dialect, body, &HashSet::new())
    }

    /// Returns a valid conversation: a user message, an answer with two calls, their results.
    fn good(dialect: Dialect) -> Value {
        match dialect {
            Dialect::Anthropic => json!({"messages": [
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
            Dialect::Chat => json!({"messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "function": {"name": "x", "arguments": "{}"}},
                    {"id": "b", "function": {"name": "y", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "a", "content": "1"},
                {"role": "tool", "tool_call_id": "b", "content": "2"},
            ]}),
            Dialect::Responses => json!({"input": [
                {"role": "user", "content": "Hi"},
                {"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "y", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "1"},
                {"type": "function_call_output", "call_id": "b", "output": "2"},
            ]}),
            Dialect::Gemini => json!({"contents": [
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
        assert_eq!(Dialect::ALL.map(|dialect| wrong(dialect, &good(dialect))), [const { Vec::<String>::new() }; 4]);
    }

    #[test]
    fn a_conversation_without_one_of_its_parts_is_refused() {
        for dialect in Dialect::ALL {
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
        for dialect in Dialect::ALL {
            for (from, to) in [("\"b\"", "\"a\""), ("\"b\"", "\"call_b|fc_b\"")] {
                let bad = serde_json::from_str(&good(dialect).to_string().replace(from, to)).unwrap();
                assert_ne!(wrong(dialect, &bad), Vec::<String>::new(), "{dialect:?} with {to}");
            }
        }
    }

    #[test]
    fn an_id_of_any_shape_is_taken_back_by_whoever_gave_it() {
        let odd = serde_json::from_str(&good(Dialect::Chat).to_string().replace("\"b\"", "\"functions.y:0\"")).unwrap();
        assert_eq!(wrong(Dialect::Chat, &odd), ["\"functions.y:0\" is no id of a call"]);
        let own = HashSet::from(["functions.y:0".to_owned()]);
        assert_eq!(super::wrong(Dialect::Chat, &odd, &own), Vec::<String>::new());
    }
}
