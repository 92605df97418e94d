//! A fake model for clients: OpenAI chat completions by a rule, with a record of the requests.

use std::{
    io::{self, BufRead, BufReader, Write},
    iter,
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// Its answers.
#[derive(Debug, Clone)]
pub(super) enum RuleAnswer {
    /// Text.
    Text(String),
    /// Text, word by word, with this delay before each.
    Slowly(String, Duration),
    /// A tool call, with arguments in JSON.
    Call(&'static str, &'static str),
    /// An error with this status and message.
    Fail(u16, &'static str),
}

/// A running server. It ends with this program.
#[derive(Debug)]
pub(super) struct RuleModel {
    port: u16,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl RuleModel {
    /// Listens on a free loopback port, and answers by the rule.
    pub(super) fn start(rule: fn(&Value) -> RuleAnswer) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let recorded = Arc::clone(&recorded);
                // A client that disconnects early is detected by its missing requests.
                thread::spawn(move || serve(&stream, &recorded, rule).ok());
            }
        });
        Ok(Self { port, requests })
    }

    /// Returns the config that uses it.
    pub(super) fn config(&self) -> Value {
        let model = json!({
            "id": "fake-1", "name": "Fake One", "reasoning": false, "input": ["text"],
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
            "contextWindow": 40_000, "maxTokens": 4_096,
        });
        let url = format!("http://127.0.0.1:{}/v1", self.port);
        let provider = json!({"baseUrl": url, "apiKey": "none", "api": "openai-completions", "models": [model]});
        json!({
            "models": {"mode": "merge", "providers": {"fake": provider}},
            "agents": {"defaults": {"model": {"primary": "fake/fake-1"}}},
        })
    }

    /// Returns the bodies of all requests so far.
    pub(super) fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers one request, and closes the connection.
fn serve(mut stream: &TcpStream, requests: &Mutex<Vec<Value>>, rule: fn(&Value) -> RuleAnswer) -> io::Result<()> {
    let body: Value = serde_json::from_slice(&read_body(&mut BufReader::new(stream))?)?;
    let rule_answer = rule(&body);
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(body);
    if let RuleAnswer::Fail(status, why) = rule_answer {
        let body = json!({"error": {"message": why, "type": "invalid_request_error"}}).to_string();
        let (length, kind) = (body.len(), "content-type: application/json");
        let head = format!("HTTP/1.1 {status} No\r\n{kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        return stream.write_all(format!("{head}{body}").as_bytes());
    }
    let pause = match &rule_answer {
        RuleAnswer::Slowly(_, pause) => *pause,
        RuleAnswer::Text(_) | RuleAnswer::Call(..) | RuleAnswer::Fail(..) => Duration::ZERO,
    };
    for part in answer(rule_answer) {
        stream.write_all(part.as_bytes())?;
        thread::sleep(pause);
    }
    Ok(())
}

fn read_body(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut length = 0;
    for line in reader.by_ref().lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// Returns the chunks of an answer, in order.
fn answer(rule_answer: RuleAnswer) -> Vec<String> {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19});
    let (deltas, reason): (Vec<_>, _) = match rule_answer {
        RuleAnswer::Text(text) | RuleAnswer::Slowly(text, _) => {
            let words = text.split_inclusive(' ');
            (words.map(|word| json!({"content": word})).collect(), "stop")
        }
        RuleAnswer::Call(name, arguments) => {
            let call = json!({
                "index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments},
            });
            (vec![json!({"tool_calls": [call]})], "tool_calls")
        }
        RuleAnswer::Fail(..) => (Vec::new(), "stop"),
    };
    let chunks = deltas.into_iter().map(|delta| json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let end = json!([{"index": 0, "delta": {}, "finish_reason": reason}]);
    let events = chunks.chain([end]).map(|choices| (choices, Value::Null)).chain([(json!([]), usage)]);
    let events = events.map(|(choices, usage)| {
        let event = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-1",
            "choices": choices, "usage": usage,
        });
        format!("data: {event}\n\n")
    });
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    iter::once(head.to_owned()).chain(events).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_length_of_its_header() {
        let mut request = "POST /v1 HTTP/1.1\r\nContent-Length: 2\r\nhost: a:1\r\n\r\n{}and more".as_bytes();
        assert_eq!(read_body(&mut request).unwrap(), b"{}");
    }
}
