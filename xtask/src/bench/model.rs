//! A model server that answers at full speed: OpenAI chat completions over HTTP/1.1, one thread a connection.
//!
//! How many chunks it streams stands in the last user message: `chunks=20`. One that begins with `hang` gets no answer.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::Value;

/// What is streamed when no message says how much.
const DEFAULT_CHUNKS: usize = 20;

/// The running server. It ends with this program.
#[derive(Debug)]
pub(super) struct Model {
    port: u16,
    served: Arc<AtomicUsize>,
}

impl Model {
    /// Listens on a free port of loopback.
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let served = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&served);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                // A client that goes away mid-way is no concern of the server's.
                thread::spawn(move || serve(&stream, &counter).ok());
            }
        });
        Ok(Self { port, served })
    }

    /// Where it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// How many completions it has begun.
    pub(super) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// Answers one connection's requests until it closes.
fn serve(stream: &TcpStream, served: &AtomicUsize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some((path, body)) = read_request(&mut reader)? {
        if path == "/v1/chat/completions" {
            served.fetch_add(1, Ordering::Relaxed);
            if last_user_text(&body).is_some_and(|text| text.contains("hang")) {
                // Until the gateway goes away.
                reader.read_line(&mut String::new())?;
                return Ok(());
            }
            writer.write_all(completion(chunks_asked_for(&body)).as_bytes())?;
        } else {
            writer.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
        }
    }
    Ok(())
}

/// The path and body of the next request, or `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((path, body)))
}

/// What the last user message says, be it a text or blocks.
fn last_user_text(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut messages = body["messages"].as_array().into_iter().flatten().rev();
    messages.find(|message| message["role"] == "user").map(|message| message["content"].to_string())
}

fn chunks_asked_for(body: &[u8]) -> usize {
    let last = last_user_text(body);
    let asked = last.as_deref().and_then(|text| text.rsplit_once("chunks=")).map(|(_, rest)| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(DEFAULT_CHUNKS)
    });
    asked.unwrap_or(DEFAULT_CHUNKS)
}

/// A whole answer, each event in a chunk of its own.
fn completion(chunks: usize) -> String {
    let mut answer = String::with_capacity(220 * (chunks + 4));
    answer.push_str(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
         transfer-encoding: chunked\r\n\r\n",
    );
    for n in 0..chunks {
        event(&mut answer, &format!(r#"[{{"index":0,"delta":{{"content":"tok{n} "}},"finish_reason":null}}]"#), "null");
    }
    event(&mut answer, r#"[{"index":0,"delta":{},"finish_reason":"stop"}]"#, "null");
    let usage = format!(r#"{{"prompt_tokens":10,"completion_tokens":{chunks},"total_tokens":{}}}"#, chunks + 10);
    event(&mut answer, "[]", &usage);
    http_chunk(&mut answer, "data: [DONE]\n\n");
    answer.push_str("0\r\n\r\n");
    answer
}

fn event(answer: &mut String, choices: &str, usage: &str) {
    let data = format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"fake-1\",\
         \"choices\":{choices},\"usage\":{usage}}}\n\n"
    );
    http_chunk(answer, &data);
}

fn http_chunk(answer: &mut String, data: &str) {
    // Writing to a `String` cannot fail.
    write!(answer, "{:x}\r\n{data}\r\n", data.len()).ok();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_user_message_says_how_many_chunks() {
        let asked = |messages: Value| chunks_asked_for(json!({"messages": messages}).to_string().as_bytes());
        let first = json!({"role": "user", "content": "chunks=3"});
        assert_eq!(asked(json!([first])), 3);
        assert_eq!(asked(json!([first, {"role": "assistant", "content": "chunks=4"}])), 3);
        let blocks = json!({"role": "user", "content": [{"type": "text", "text": "[now] chunks=250"}]});
        assert_eq!(asked(json!([first, blocks])), 250);
        assert_eq!(asked(json!([{"role": "user", "content": "hello"}])), DEFAULT_CHUNKS);
    }

    #[test]
    fn an_answer_is_one_event_a_chunk() {
        let answer = completion(2);
        let events: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let told = |event: &str| serde_json::from_str::<Value>(event).map(|event| event["choices"].clone()).ok();
        assert_eq!(
            events.iter().map(|event| told(event)).collect::<Vec<_>>(),
            [
                Some(json!([{"index": 0, "delta": {"content": "tok0 "}, "finish_reason": null}])),
                Some(json!([{"index": 0, "delta": {"content": "tok1 "}, "finish_reason": null}])),
                Some(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])),
                Some(json!([])),
                None,
            ]
        );
        assert_eq!(events.last(), Some(&"[DONE]"));
        assert!(answer.ends_with("0\r\n\r\n"));
    }
}
