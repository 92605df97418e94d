//! A model server that answers at full speed: OpenAI chat completions over HTTP/1.1, one thread per connection.
//!
//! The last user message says how many chunks it streams: `chunks=20`; also how many milliseconds it waits before:
//! `wait=5`, and before each chunk: `pace=10`; and how many bytes a chunk has at least: `size=500`. A message that
//! contains `hang` gets no answer.

use std::{
    io::{self, BufRead, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;

/// Default number of chunks.
const DEFAULT_CHUNKS: u64 = 20;

/// A running server. It ends with this program.
#[derive(Debug)]
pub(super) struct BenchModel {
    port: u16,
    served: Arc<AtomicUsize>,
    longest: Arc<AtomicUsize>,
}

impl BenchModel {
    /// Listens on a free loopback port.
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (served, longest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counters = (Arc::clone(&served), Arc::clone(&longest));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (served, longest) = counters.clone();
                // A client that disconnects early is not an error.
                thread::spawn(move || serve(&stream, &served, &longest).ok());
            }
        });
        Ok(Self { port, served, longest })
    }

    /// Returns its port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the size of the largest request so far, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
    }

    /// Returns the number of completions that were started.
    pub(super) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// Answers the requests of one connection until it is closed.
fn serve(stream: &TcpStream, served: &AtomicUsize, longest: &AtomicUsize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some((path, body)) = read_request(&mut reader)? {
        if path == "/v1/chat/completions" {
            served.fetch_add(1, Ordering::Relaxed);
            longest.fetch_max(body.len(), Ordering::Relaxed);
            let text = last_user_text(&body).unwrap_or_default();
            if text.contains("hang") {
                // Waits until the gateway disconnects.
                reader.read_line(&mut String::new())?;
                return Ok(());
            }
            thread::sleep(Duration::from_millis(number(&text, "wait=").unwrap_or(0)));
            let size = number(&text, "size=").unwrap_or(0).try_into().unwrap_or(0);
            let pieces = completion(number(&text, "chunks=").unwrap_or(DEFAULT_CHUNKS), size);
            match number(&text, "pace=") {
                None => writer.write_all(pieces.concat().as_bytes())?,
                Some(pace) => {
                    for piece in pieces {
                        thread::sleep(Duration::from_millis(pace));
                        writer.write_all(piece.as_bytes())?;
                    }
                }
            }
        } else {
            writer.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
        }
    }
    Ok(())
}

/// Reads the path and body of the next request; `None` at the end of the connection.
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

/// Returns the content of the last user message, be it a text or blocks.
fn last_user_text(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut messages = body["messages"].as_array().into_iter().flatten().rev();
    messages.find(|message| message["role"] == "user").map(|message| message["content"].to_string())
}

/// Returns the number after the last occurrence of a name.
fn number(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(name)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns a complete response in pieces: the head, each event in a chunk of its own, and the end.
fn completion(chunks: u64, size: usize) -> Vec<String> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let deltas = (0..chunks).map(|n| {
        let token = format!("tok{n} ");
        event(&format!(r#"[{{"index":0,"delta":{{"content":"{token:>size$}"}},"finish_reason":null}}]"#), "null")
    });
    let usage = format!(r#"{{"prompt_tokens":10,"completion_tokens":{chunks},"total_tokens":{}}}"#, chunks + 10);
    let last = [
        event(r#"[{"index":0,"delta":{},"finish_reason":"stop"}]"#, "null"),
        event("[]", &usage),
        http_chunk("data: [DONE]\n\n") + "0\r\n\r\n",
    ];
    [head.to_owned()].into_iter().chain(deltas).chain(last).collect()
}

fn event(choices: &str, usage: &str) -> String {
    http_chunk(&format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"fake-1\",\
         \"choices\":{choices},\"usage\":{usage}}}\n\n"
    ))
}

fn http_chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_user_message_controls_the_answer() {
        let settings = |messages: Value| {
            let text = last_user_text(json!({"messages": messages}).to_string().as_bytes()).unwrap();
            (number(&text, "chunks="), number(&text, "wait="))
        };
        let first = json!({"role": "user", "content": "chunks=3"});
        assert_eq!(settings(json!([first])), (Some(3), None));
        assert_eq!(settings(json!([first, {"role": "assistant", "content": "chunks=4"}])), (Some(3), None));
        let blocks = json!({"role": "user", "content": [{"type": "text", "text": "[now] wait=7 chunks=250"}]});
        assert_eq!(settings(json!([first, blocks])), (Some(250), Some(7)));
        assert_eq!(settings(json!([{"role": "user", "content": "hello"}])), (None, None));
    }

    #[test]
    fn an_answer_has_one_event_per_chunk() {
        let answer = completion(2, 0).concat();
        let events: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let choices = |event: &str| serde_json::from_str::<Value>(event).map(|event| event["choices"].clone()).ok();
        assert_eq!(
            events.iter().map(|event| choices(event)).collect::<Vec<_>>(),
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
