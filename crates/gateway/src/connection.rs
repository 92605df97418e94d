//! The life of one WebSocket: challenge, authentication, then requests and events until one side closes.
//!
//! One task reads and answers requests, another writes the send queue to the socket. Requests are answered
//! concurrently, so a slow one does not delay others. When the connection ends, its pending responses are dropped; runs
//! continue.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::{
    FutureExt, SinkExt, StreamExt,
    stream::{FuturesUnordered, SplitSink, SplitStream},
};
use homard_proto::{
    ErrorShape, Extra, Generation,
    event::{Challenge, Tick},
    frame::{self, IncomingFrame, Request, Response},
};
use homard_runtime::task;
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument;

use crate::{
    broadcaster::Audience,
    client::Client,
    handshake::{self, AuthenticatedClient, ConnectionFacts},
    hello::{self, HelloSnapshot},
    methods::health,
    origin_check::RequestOrigin,
    preauth::{self, PendingConnection},
    presence::PresenceEntry,
    router,
    scope::Scope,
    send_queue::{self, CloseReason, SendQueue, WriterAction},
    server::ServerState,
};

/// Interval of `tick` events. Clients disconnect if they receive nothing for twice as long.
pub(crate) const TICK_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of WebSocket pings to clients of protocol 4.
const PING_INTERVAL: Duration = Duration::from_secs(25);
/// Deadline for the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time a client has to receive the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time a client that sent too much has to finish sending and read the close frame.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between an `accepted` response and the run's events, for clients that need it. OpenClaw's TUI shows "waiting"
/// after the response; if it reads the end of the run at the same time, it shows that forever.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of concurrent requests per client.
const MAX_CONCURRENT_REQUESTS: usize = 256;

/// A peer whose request passed the origin check.
#[derive(Debug)]
pub(crate) struct AdmittedPeer {
    /// The connection and its pre-authentication limits.
    pub(crate) connection: Arc<PendingConnection>,
    pub(crate) origin: RequestOrigin,
}

impl AdmittedPeer {
    /// Client address, also behind a proxy.
    pub(crate) fn address(&self) -> IpAddr {
        self.origin.address
    }

    /// Marks the connection as authenticated; pre-authentication limits no longer apply.
    pub(crate) fn mark_authenticated(&self) {
        self.connection.mark_authenticated();
    }
}

/// Number of bytes that are flushed together, unless one message is longer. Small, because a socket's buffer keeps the
/// largest size it ever needed.
const FLUSH_BYTES: usize = 4_096;

/// Runs a connection from the challenge to the close frame.
pub(crate) async fn run(server: Arc<ServerState>, socket: WebSocket, peer: AdmittedPeer) {
    let (sink, stream) = socket.split();
    let queue = Arc::new(SendQueue::new());
    let writer = AbortOnDropHandle::new(task::spawn("socket writer", write(sink, queue.clone())));
    let mut reader = SocketReader { stream, connection: peer.connection.clone(), is_oversized: false };
    let reason = serve_client(&server, &mut reader, &queue, &peer).await;
    queue.close(reason);
    // A peer that does not read its close frame in time is dropped.
    if reader.is_oversized {
        Box::pin(timeout(LINGER_TIMEOUT, linger(writer, &peer.connection))).await.ok();
    } else {
        timeout(CLOSE_TIMEOUT, async { tokio::join!(writer, reader.close()) }).await.ok();
    }
}

/// Sends the close frame to a peer that may still be sending an oversized message. A client that does not read while it
/// sends must be able to finish first.
async fn linger(writer: AbortOnDropHandle<()>, connection: &PendingConnection) {
    let finish_sending = async {
        // A writer that panicked will not send anything more.
        writer.await.ok();
        connection.finish_sending().await;
    };
    tokio::join!(finish_sending, connection.discard());
}

/// Writes the send queue to the socket, batching messages that are ready together.
async fn write(mut sink: SplitSink<WebSocket, Message>, queue: Arc<SendQueue>) {
    let mut unflushed = None;
    loop {
        let result = match queue.next(unflushed.is_some()).await {
            WriterAction::Send(message, size) => {
                let must_flush = unflushed.is_some_and(|pending| pending + size > FLUSH_BYTES);
                let flushed = if must_flush { flush(&mut sink, &queue, &mut unflushed).await } else { Ok(()) };
                *unflushed.get_or_insert(0) += size;
                match flushed {
                    Ok(()) => sink.feed(message).await,
                    Err(_) => flushed,
                }
            }
            WriterAction::Flush => flush(&mut sink, &queue, &mut unflushed).await,
            WriterAction::Pause => {
                let flushed = flush(&mut sink, &queue, &mut unflushed).await;
                sleep(ACCEPT_PAUSE).await;
                flushed
            }
            WriterAction::End(message) => {
                // The peer may have closed already.
                sink.send(message).await.ok();
                return;
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "failed to write to a client");
            return queue.abandon(CloseReason::new(1006, ""));
        }
    }
}

/// Flushes the batch and releases its bytes from the send queue's accounting.
async fn flush(
    sink: &mut SplitSink<WebSocket, Message>,
    queue: &SendQueue,
    unflushed: &mut Option<usize>,
) -> Result<(), axum::Error> {
    let flushed = sink.flush().await;
    queue.release(unflushed.take().unwrap_or_default());
    flushed
}

/// Result of reading from the socket.
enum SocketRead {
    Message(Bytes),
    /// No further message will be read; the connection is closed with this frame.
    Closed(CloseReason),
}

/// The receiving half of a connection.
struct SocketReader {
    stream: SplitStream<WebSocket>,
    connection: Arc<PendingConnection>,
    /// True if the peer sent an oversized message and may still be sending it. The WebSocket is no longer read; the
    /// bytes are discarded below it.
    is_oversized: bool,
}

impl SocketReader {
    /// Returns the next message of at most `limit` bytes. Cancel safe.
    async fn read(&mut self, limit: usize) -> SocketRead {
        loop {
            let frame = match self.stream.next().await {
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(Message::Close(_))) | None => return SocketRead::Closed(CloseReason::new(1000, "")),
                Some(Err(error)) => {
                    // The error type is opaque; only its text shows the kind.
                    let is_too_large = self.connection.is_exhausted() || error.to_string().contains("too long");
                    return SocketRead::Closed(if is_too_large {
                        self.reject_oversized(limit)
                    } else {
                        CloseReason::new(1002, "")
                    });
                }
            };
            return if frame.len() > limit {
                SocketRead::Closed(self.reject_oversized(limit))
            } else {
                SocketRead::Message(frame)
            };
        }
    }

    /// Returns the close frame for an oversized message.
    fn reject_oversized(&mut self, limit: usize) -> CloseReason {
        self.is_oversized = true;
        tracing::warn!(address = %self.connection.address(), limit, "closing a connection: message too large");
        CloseReason::new(1009, &format!("message too large: the limit is {limit} bytes"))
    }

    /// Waits until the peer has closed its side: dropping a socket with unread bytes would discard the close frame. The
    /// caller applies a timeout.
    async fn close(&mut self) {
        while let Some(Ok(_)) = self.stream.next().await {}
    }
}

/// Runs the handshake, then serves requests; returns the close frame.
async fn serve_client(
    server: &Arc<ServerState>,
    reader: &mut SocketReader,
    queue: &Arc<SendQueue>,
    peer: &AdmittedPeer,
) -> CloseReason {
    // Boxed, so that the handshake's memory is freed afterwards and an idle connection stays small.
    let handshake = tokio::select! {
        biased;
        () = server.stop.cancelled() => return CloseReason::new(1012, "service restart"),
        handshake = Box::pin(perform_handshake(server, reader, queue, peer)) => handshake,
    };
    let (client, revoked) = match handshake {
        Ok(handshake) => handshake,
        Err(reason) => return reason,
    };
    let span = tracing::info_span!("client", id = client.id, protocol = client.generation.number());
    let _joined = server.projector.join(client.clone());
    let revocation = async {
        match &revoked {
            Some(revoked) => revoked.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let reason = tokio::select! {
        biased;
        () = revocation => CloseReason::new(1008, "device token revoked"),
        reason = serve(server, reader, &client).instrument(span) => reason,
    };
    if let Some(revoked) = revoked {
        // Marks the connection as ended, so that the registry drops its entry.
        revoked.cancel();
    }
    reason
}

/// Performs the handshake and sends `hello-ok`. The token, if any, is cancelled when the client's device is revoked.
async fn perform_handshake(
    server: &Arc<ServerState>,
    reader: &mut SocketReader,
    queue: &Arc<SendQueue>,
    peer: &AdmittedPeer,
) -> Result<(Arc<Client>, Option<CancellationToken>), CloseReason> {
    let accepted = match timeout(HANDSHAKE_TIMEOUT, authenticate(server, reader, queue, peer)).await {
        Ok(result) => result?,
        Err(_) => return Err(CloseReason::new(1000, "")),
    };
    peer.mark_authenticated();
    let params = &accepted.session.params;
    let revoked = params.device.as_ref().map(|device| server.devices.register_connection(&device.id));
    let presence_entry = server.presence.add(params, peer.address(), server.hub.ambient().now_ms());
    let client = welcome(server, queue, accepted, presence_entry).await;
    Ok((client, revoked))
}

/// A `connect` request that was accepted.
struct AcceptedConnect {
    /// Id of the request.
    request: String,
    session: AuthenticatedClient,
    /// Token with which the device authenticates next time.
    token: Option<String>,
}

/// Sends the challenge and verifies the `connect` request.
async fn authenticate(
    server: &ServerState,
    reader: &mut SocketReader,
    queue: &SendQueue,
    peer: &AdmittedPeer,
) -> Result<AcceptedConnect, CloseReason> {
    let ambient = server.hub.ambient();
    let nonce = ambient.nonce();
    let challenge = Challenge { nonce: nonce.clone(), ts: ambient.now_ms(), extra: Extra::new() };
    queue.send_unnumbered("connect.challenge", &json!(challenge).to_string());
    let text = match reader.read(preauth::MAX_FRAME).await {
        SocketRead::Message(text) => text,
        SocketRead::Closed(reason) => return Err(reason),
    };
    let request = match frame::read(&text) {
        IncomingFrame::Request(request) => request,
        IncomingFrame::Malformed(_) => return Err(CloseReason::new(1008, "invalid request frame")),
        // As OpenClaw does it: a peer that does not speak the protocol gets a plain close.
        IncomingFrame::NotJson(_) => {
            tracing::warn!(address = %peer.connection.address(), bytes = text.len(), "closed an unauthenticated connection: its first message is not JSON");
            return Err(CloseReason::new(1000, ""));
        }
    };
    let Request { id, method, params, .. } = request;
    let reject = |rejection: handshake::HandshakeError| {
        tracing::warn!(address = %peer.connection.address(), why = rejection.error.message, "handshake rejected");
        queue.respond(&Response::error(id.as_str(), (*rejection.error).clone()));
        rejection.close_reason()
    };
    if method != "connect" {
        let error = ErrorShape::invalid("invalid handshake: first request must be connect");
        return Err(reject(error.into()));
    }
    let facts = ConnectionFacts {
        nonce: &nonce,
        now_ms: ambient.now_ms(),
        now: Instant::now(),
        address: peer.origin.address,
        caller: peer.origin.caller,
        is_direct: peer.origin.is_direct,
        used_signatures: &server.used_signatures,
        login_codes: &server.login_codes,
    };
    let session = handshake::verify(params, facts, &server.auth, &server.devices).map_err(&reject)?;
    let token = pair_device(server, &session, facts).await.map_err(&reject)?;
    Ok(AcceptedConnect { request: id, session, token })
}

/// Pairs the device of an authenticated connection, or registers a pairing request for the owner to approve. The
/// returned token lets the device authenticate without the secret next time.
async fn pair_device(
    server: &ServerState,
    session: &AuthenticatedClient,
    facts: ConnectionFacts<'_>,
) -> Result<Option<String>, handshake::HandshakeError> {
    let Some(device) = &session.params.device else { return Ok(None) };
    if !session.has_secret {
        return Ok(None);
    }
    // A login code was issued to the owner a moment ago, for this browser.
    let is_approved = facts.is_direct || session.has_login_code;
    if !is_approved && !server.devices.allows(&device.id, &device.public_key, &session.scopes) {
        let request_id = server.hub.ambient().nonce();
        let Some(request) = server.devices.request(&session.params, request_id, facts.now_ms) else { return Ok(None) };
        let audience = Audience { scope: Some(Scope::Pairing), min_protocol: Generation::Three };
        server.projector.publish("device.pair.requested", &request.to_json(), audience);
        return Err(handshake::not_paired(session.generation, &request.id));
    }
    let (devices, session, now_ms) = (server.devices.clone(), session.clone(), facts.now_ms);
    let ambient = server.hub.ambient();
    let random = format!("{}{}", ambient.nonce(), ambient.nonce());
    // Blocking: the list is written to disk.
    let pairing = tokio::task::spawn_blocking(move || {
        devices.pair(&session.params, &session.scopes, now_ms);
        let device = session.params.device.as_ref()?;
        // Clients of protocol 3 would send the token to other gateways, too.
        let accepts_tokens = session.generation == Generation::Four;
        accepts_tokens.then(|| devices.issue(&device.id, &random, now_ms)).flatten()
    });
    Ok(pairing.await.unwrap_or_else(|error| {
        tracing::error!(%error, "failed to pair a device");
        None
    }))
}

/// Sends the hello response and a health snapshot.
async fn welcome(
    server: &ServerState,
    queue: &Arc<SendQueue>,
    AcceptedConnect { request, session, token }: AcceptedConnect,
    presence_entry: Option<PresenceEntry>,
) -> Arc<Client> {
    queue.set_limit(send_queue::queue_limit(session.generation));
    let health = health::report(server).await.unwrap_or_else(|error| json!({"ok": false, "error": error.message}));
    let payload: Arc<str> = health.to_string().into();
    let (presence, state) = hello::visible_presence(server, &session);
    let snapshot = HelloSnapshot { health: &health, presence, state };
    let hello = hello::ok(server, &session, token.as_deref(), &server.hub.ambient().nonce(), snapshot);
    queue.respond(&Response::ok(request.as_str(), json!(hello)));
    queue.try_send_state("health", payload, state);
    Arc::new(Client::new(server, session, queue.clone(), state.presence, presence_entry))
}

/// Serves requests until one side closes.
async fn serve(server: &Arc<ServerState>, reader: &mut SocketReader, client: &Arc<Client>) -> CloseReason {
    let limit = hello::max_frame(client.generation);
    let mut answers = FuturesUnordered::new();
    let (mut tick, mut ping) = (every(TICK_INTERVAL), every(PING_INTERVAL));
    loop {
        tokio::select! {
            biased;
            () = server.stop.cancelled() => {
                client.send_queue.send("shutdown", json!({"reason": "the gateway is stopping"}).to_string().into());
                return CloseReason::new(1012, "service restart");
            }
            () = client.send_queue.abandoned() => return CloseReason::new(1008, "slow consumer"),
            Some(()) = answers.next() => {}
            _ = tick.tick() => {
                let payload = json!(Tick { ts: server.hub.ambient().now_ms() });
                client.send_queue.try_send("tick", payload.to_string().into());
            }
            _ = ping.tick(), if client.generation == Generation::Four => client.send_queue.ping(),
            read = client.send_queue.wait_for_space().then(|()| reader.read(limit)) => match read {
                SocketRead::Closed(reason) => return reason,
                SocketRead::Message(text) => match frame::read(&text) {
                    IncomingFrame::Request(request) if answers.len() < MAX_CONCURRENT_REQUESTS => {
                        let span = tracing::debug_span!("rpc", method = request.method, id = request.id);
                        answers.push(router::dispatch(server.clone(), client.clone(), request).instrument(span));
                    }
                    IncomingFrame::Request(request) => client.send_queue.respond(&overloaded(request)),
                    IncomingFrame::Malformed(response) | IncomingFrame::NotJson(response) => client.send_queue.respond(&response),
                },
            },
        }
    }
}

fn every(period: Duration) -> Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

fn overloaded(request: Request) -> Response {
    let why = format!("this connection has {MAX_CONCURRENT_REQUESTS} pending requests; wait for some of the responses");
    let error = ErrorShape { retryable: Some(true), retry_after_ms: Some(1000), ..ErrorShape::unavailable(why) };
    Response::error(request.id, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F: Future>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_uses_little_memory() {
        let size = size(run);
        assert!(size <= 2_048, "{size} bytes");
    }
}
