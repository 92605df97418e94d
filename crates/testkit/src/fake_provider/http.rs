//! Hand-written HTTP/1.1, because a real server library could not violate the protocol.

use std::io;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use super::{
    ProviderReply, RETRY_DELAY,
    dialect::{self, TokenCounts, WireFormat},
    fault::{POSITIONS, ProviderFault, apply_fault},
};
use homard_stdx::SeededRng;

/// Maximum size of a piece of a split answer.
const MAX_PIECE: u64 = 90;

pub(super) struct ProviderHttpRequest {
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

pub(super) struct ProviderConnection(BufReader<TcpStream>);

impl ProviderConnection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Reads the next request; `None` when the client is done.
    pub(super) async fn read(&mut self) -> io::Result<Option<ProviderHttpRequest>> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.0.read_line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let mut body = vec![0; length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0)];
        self.0.read_exact(&mut body).await?;
        Ok(Some(ProviderHttpRequest { path, headers, body: String::from_utf8_lossy(&body).into_owned() }))
    }

    /// Sends a reply. An error means that the connection is unusable, closed by the client or on purpose.
    pub(super) async fn answer(
        &mut self,
        dialect: WireFormat,
        reply: &ProviderReply,
        tokens: TokenCounts,
    ) -> io::Result<()> {
        let body = || {
            let events = apply_fault(reply.fault, dialect, dialect::encode(dialect, &reply.answer, tokens));
            events.into_iter().map(|event| event.text).collect::<String>()
        };
        let body_end = match reply.fault {
            Some(ProviderFault::TooMany(has_retry_after)) => {
                let wait = format!("retry-after-ms: {}\r\n", RETRY_DELAY.as_millis());
                let extra = if has_retry_after { wait.as_str() } else { "" };
                return self.write_response(429, extra, "application/json", &dialect.refusal("rate_limit_error")).await;
            }
            Some(ProviderFault::TooManyForLong) => {
                let body = dialect.refusal("rate_limit_error");
                return self.write_response(429, "retry-after: 900\r\n", "application/json", &body).await;
            }
            Some(ProviderFault::Refused(status)) => {
                return self.write_response(status, "", "application/json", &dialect.refusal("api_error")).await;
            }
            Some(ProviderFault::Page) => {
                return self.write_response(200, "", "text/html", "<h1>Welcome to the hotel</h1>").await;
            }
            Some(ProviderFault::Stall(0)) => return self.wait().await,
            Some(ProviderFault::Cut(0)) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(ProviderFault::Stall(position) | ProviderFault::Cut(position)) => Err(position),
            Some(
                ProviderFault::Garbage(_)
                | ProviderFault::InStream(_)
                | ProviderFault::Twice(_)
                | ProviderFault::Disorder(_),
            )
            | None => Ok(()),
        };
        self.head().await?;
        let body = body();
        match body_end {
            Ok(()) => {
                let mut rest = body.as_str();
                if let Some(gate) = &reply.gate {
                    let events = dialect::encode(dialect, &reply.answer, tokens);
                    let first = events.iter().position(|event| event.is_delta).map_or(0, |at| at + 1);
                    let begin: usize = events[..first].iter().map(|event| event.text.len()).sum();
                    self.body(&rest.as_bytes()[..begin], reply.split).await?;
                    gate.pass().await;
                    rest = &rest[begin..];
                }
                self.body(rest.as_bytes(), reply.split).await?;
                self.write(b"0\r\n\r\n").await
            }
            Err(position) => {
                // The last byte is never sent, so that a cut answer is never complete.
                let end = (body.len() - 1) as u64 * position / POSITIONS;
                self.body(&body.as_bytes()[..end as usize], reply.split).await?;
                match reply.fault {
                    Some(ProviderFault::Stall(_)) => self.wait().await,
                    _ => Err(io::ErrorKind::ConnectionAborted.into()),
                }
            }
        }
    }

    async fn head(&mut self) -> io::Result<()> {
        self.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await
    }

    /// Sends the bytes of a body in arbitrary pieces.
    async fn body(&mut self, mut bytes: &[u8], split: Option<u64>) -> io::Result<()> {
        let mut rng = split.map(SeededRng::new);
        while !bytes.is_empty() {
            let size = rng.as_mut().map_or(bytes.len(), |rng| 1 + rng.below(MAX_PIECE) as usize);
            let (piece, rest) = bytes.split_at(size.min(bytes.len()));
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(piece);
            chunk.extend_from_slice(b"\r\n");
            self.write(&chunk).await?;
            tokio::task::yield_now().await;
            bytes = rest;
        }
        Ok(())
    }

    async fn write_response(&mut self, status: u16, headers: &str, kind: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{headers}\r\n");
        self.write(format!("{head}{body}").as_bytes()).await
    }

    /// Sends nothing until the client disconnects.
    async fn wait(&mut self) -> io::Result<()> {
        self.0.read_u8().await?;
        Err(io::ErrorKind::InvalidData.into())
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes).await
    }
}
