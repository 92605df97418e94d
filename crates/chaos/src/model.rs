//! The scripted model: a minimal HTTP server on loopback that speaks OpenAI's Chat Completions.

use std::{net::Ipv4Addr, sync::Arc};

use anyhow::{Context, Result, bail};
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    script::{self, ChaosAnswer},
    state::{ChaosState, KillMoment},
};

/// Maximum size of a request.
const MAX_REQUEST: usize = 64 << 20;

/// The running server. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct ScriptedServer {
    pub port: u16,
    _serving: AbortOnDropHandle<()>,
}

impl ScriptedServer {
    /// Listens on a free loopback port.
    pub(crate) async fn start(state: Arc<ChaosState>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot start the scripted model")?;
        let port = listener.local_addr()?.port();
        let serving = task::spawn("model", async move {
            loop {
                // A failed accept only affects its client.
                let Ok((stream, _)) = listener.accept().await else { continue };
                let state = state.clone();
                // Ends with its connection: the gateway was killed, or has the response.
                drop(task::spawn("answer", async move { serve(stream, &state).await.ok() }));
            }
        });
        Ok(Self { port, _serving: AbortOnDropHandle::new(serving) })
    }
}

/// Answers one request.
async fn serve(mut stream: TcpStream, state: &ChaosState) -> Result<()> {
    stream.set_nodelay(true)?;
    let request = read(&mut stream).await?;
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    state.record_request(script::unpaired(messages));
    let Some((id, answers)) = parse_run(messages) else { bail!("the request is not part of the script") };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    write_answer(&mut stream, state, script::answer(&id, answers)).await?;
    stream.shutdown().await?;
    Ok(())
}

async fn write_answer(stream: &mut TcpStream, state: &ChaosState, answer: ChaosAnswer) -> Result<()> {
    let count = answer.words.len();
    for (number, word) in answer.words.into_iter().enumerate() {
        stream.write_all(event(&json!({"content": word}), None).as_bytes()).await?;
        let is_last = number + 1 == count && answer.call.is_none();
        state.publish(if is_last { KillMoment::LastDelta } else { KillMoment::TextDelta });
        if !answer.pause.is_zero() {
            tokio::time::sleep(answer.pause).await;
        }
    }
    let finish = match answer.call {
        Some((id, name, arguments)) => {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            let calls = json!([{"index": 0, "id": id, "type": "function", "function": function}]);
            stream.write_all(event(&json!({"tool_calls": calls}), None).as_bytes()).await?;
            "tool_calls"
        }
        None => "stop",
    };
    stream.write_all(event(&json!({}), Some(finish)).as_bytes()).await?;
    stream.write_all(b"data: [DONE]\n\n").await?;
    Ok(())
}

fn event(delta: &Value, finish: Option<&str>) -> String {
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    format!("data: {}\n\n", json!({"id": "chaos", "object": "chat.completion.chunk", "choices": choices}))
}

/// Returns the run that a request belongs to, and the number of its previous answers.
fn parse_run(messages: &[Value]) -> Option<(String, usize)> {
    let last = messages.iter().rposition(|message| message["role"] == "user")?;
    let content = &messages[last]["content"];
    let parts = || content.as_array().into_iter().flatten();
    let text =
        content.as_str().map_or_else(|| parts().filter_map(|part| part["text"].as_str()).collect(), str::to_owned);
    let answers = messages[last..].iter().filter(|message| message["role"] == "assistant").count();
    Some((script::id_in(&text)?.to_owned(), answers))
}

/// Reads the body of a request.
async fn read(stream: &mut TcpStream) -> Result<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 {
            bail!("the client closed the connection");
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<usize>()?;
        }
    }
    anyhow::ensure!(length <= MAX_REQUEST, "request too large: {length} bytes");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_identifies_its_run_and_progress() {
        let user = |id: &str| json!({"role": "user", "content": format!("[now] {}", script::message(id))});
        let assistant = json!({"role": "assistant", "content": "x"});
        assert_eq!(parse_run(&[user("1-1"), assistant.clone(), user("1-2")]), Some(("1-2".to_owned(), 0)));
        let blocks = json!({"role": "user", "content": [{"type": "text", "text": script::message("1-3")}]});
        assert_eq!(parse_run(&[blocks, assistant, json!({"role": "tool"})]), Some(("1-3".to_owned(), 1)));
        assert_eq!(parse_run(&[json!({"role": "user", "content": "hello"})]), None);
    }
}
