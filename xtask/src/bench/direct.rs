//! A client that reads the model's stream without a gateway: the baseline.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

/// A persistent connection to the model server.
#[derive(Debug)]
pub(super) struct DirectClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl DirectClient {
    /// Connects to a model server on loopback.
    pub(super) async fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.context("cannot reach the model server")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(1 << 20) })
    }

    /// Requests this many chunks and reads them; returns the time.
    pub(super) async fn read(&mut self, chunks: usize) -> Result<Duration> {
        self.request(&format!("chunks={chunks}"), chunks).await
    }

    /// Like [`Self::read`], with another message that requests this many chunks.
    pub(super) async fn request(&mut self, text: &str, chunks: usize) -> Result<Duration> {
        self.request_all(&[json!({"role": "user", "content": text})], chunks).await
    }

    /// Like [`Self::request`], with a whole conversation, whose last message requests this many chunks.
    pub(super) async fn request_all(&mut self, messages: &[Value], chunks: usize) -> Result<Duration> {
        let body = json!({"model": "fake-1", "stream": true, "messages": messages}).to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let start = Instant::now();
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        while !self.buffer.ends_with(b"\r\n0\r\n\r\n") {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the model server closed the connection");
        }
        let elapsed = start.elapsed();
        let received = self.buffer.windows(9).filter(|window| window == b"\"content\"").count();
        ensure!(received == chunks, "requested {chunks} chunks from the model server, but received {received}");
        Ok(elapsed)
    }
}
