//! Hand-written HTTP/1.1 for the fake chat platforms, because a real server library could not violate the protocol.

use std::{future::Future, io, net::SocketAddr, time::Duration};

use homard_runtime::task;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct FakeHttpRequest {
    /// Request method.
    pub(crate) method: String,
    /// Request path.
    pub(crate) path: String,
    /// Headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Its body.
    pub(crate) body: Vec<u8>,
}

impl FakeHttpRequest {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// How a request is answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FakeHttpReply {
    /// A complete response.
    Complete { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// Closes the connection without a response.
    Cut,
    /// Closes the connection in the middle of a response.
    Truncated,
    /// No response until the client gives up.
    Silence,
}

impl FakeHttpReply {
    /// Builds a JSON response.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self::Complete { status, headers, body: body.to_string().into_bytes() }
    }

    /// Builds an HTML error page like that of a proxy.
    pub(crate) fn page(status: u16) -> Self {
        Self::Complete { status, headers: Vec::new(), body: b"<html><h1>Bad Gateway</h1></html>".to_vec() }
    }
}

/// A server on a free loopback port. Stops on drop.
#[derive(Debug)]
pub(crate) struct FakeHttpServer {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for FakeHttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeHttpServer {
    pub(crate) async fn start<F, A>(answer: F) -> io::Result<Self>
    where
        F: Fn(FakeHttpRequest) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = FakeHttpReply> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: task::spawn("fake platform", listen(listener, answer)) })
    }
}

async fn listen<F, A>(listener: TcpListener, answer: F)
where
    F: Fn(FakeHttpRequest) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = FakeHttpReply> + Send + 'static,
{
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.clone();
        connections.spawn(async move {
            // A client that disconnects early is part of many tests.
            serve(stream, answer).await.ok();
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve<F, A>(stream: TcpStream, answer: F) -> io::Result<()>
where
    F: Fn(FakeHttpRequest) -> A,
    A: Future<Output = FakeHttpReply>,
{
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await? {
        // A client that disconnects gets no response: a dropped poller must not consume updates.
        let reply = tokio::select! {
            biased;
            _ = stream.read_u8() => return Ok(()),
            reply = answer(request) => reply,
        };
        match reply {
            FakeHttpReply::Complete { status, headers, body } => {
                let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
                stream.get_mut().write_all(head.as_bytes()).await?;
                stream.get_mut().write_all(&body).await?;
            }
            FakeHttpReply::Cut => return Ok(()),
            FakeHttpReply::Truncated => {
                stream.get_mut().write_all(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{\"ok\":true,").await?;
                return Ok(());
            }
            FakeHttpReply::Silence => tokio::time::sleep(Duration::from_secs(3600)).await,
        }
    }
    Ok(())
}

/// Reads the next request; `None` when the client is done.
async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<FakeHttpRequest>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(Some(FakeHttpRequest { method, path, headers, body }))
}
