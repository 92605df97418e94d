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
use homard_agent::task;
use homard_proto::{
    ErrorShape, Extra, Generation,
    event::{Challenge, Tick},
    frame::{self, Inbound, Request, Response},
};
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument;

use crate::{
    admit::Knock,
    client::Client,
    handshake::{self, Facts, Session},
    hello,
    lobby::{self, Guest},
    methods::health,
    news::Audience,
    outbox::{self, Farewell, Next, Outbox},
    presence::Stay,
    router,
    scope::Scope,
    server::Server,
};

/// Interval of `tick` events. Clients disconnect if they receive nothing for twice as long.
pub(crate) const TICK: Duration = Duration::from_secs(30);
/// Interval of WebSocket pings to clients of protocol 4.
const PING: Duration = Duration::from_secs(25);
/// Deadline for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time a client has to receive the close frame.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time a client that sent too much has to finish sending and read the close frame.
const LINGER: Duration = Duration::from_secs(5);
/// Pause between an `accepted` response and the run's events, for clients that need it. OpenClaw's TUI shows "waiting"
/// after the response; if it reads the end of the run at the same time, it shows that forever.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of concurrent requests per client.
const QUESTIONS: usize = 256;

/// A peer whose request passed the origin check.
#[derive(Debug)]
pub(crate) struct Visitor {
    /// The connection and its pre-authentication limits.
    pub(crate) guest: Arc<Guest>,
    pub(crate) knock: Knock,
}

impl Visitor {
    /// Client address, also behind a proxy.
    pub(crate) fn address(&self) -> IpAddr {
        self.knock.address
    }

    /// Marks the connection as authenticated; pre-authentication limits no longer apply.
    pub(crate) fn welcome(&self) {
        self.guest.welcome();
    }
}

/// Number of bytes that are flushed together, unless one message is longer. Small, because a socket's buffer keeps the
/// largest size it ever needed.
const HANDFUL: usize = 4_096;

/// Runs a connection from the challenge to the close frame.
pub(crate) async fn run(server: Arc<Server>, socket: WebSocket, visitor: Visitor) {
    let (sink, stream) = socket.split();
    let outbox = Arc::new(Outbox::new());
    let writer = AbortOnDropHandle::new(task::spawn("socket writer", write(sink, outbox.clone())));
    let mut inbox = Inbox { stream, guest: visitor.guest.clone(), is_refused: false };
    let farewell = converse(&server, &mut inbox, &outbox, &visitor).await;
    outbox.close(farewell);
    // A peer that does not read its close frame in time is dropped.
    if inbox.is_refused {
        Box::pin(timeout(LINGER, linger(writer, &visitor.guest))).await.ok();
    } else {
        timeout(LAST_WORDS, async { tokio::join!(writer, inbox.close()) }).await.ok();
    }
}

/// Sends the close frame to a peer that may still be sending an oversized message. A client that does not read while it
/// sends must be able to finish first.
async fn linger(writer: AbortOnDropHandle<()>, guest: &Guest) {
    let sending = async {
        // A writer that panicked will not send anything more.
        writer.await.ok();
        guest.finish_sending().await;
    };
    tokio::join!(sending, guest.discard());
}

/// Writes the send queue to the socket, batching messages that are ready together.
async fn write(mut sink: SplitSink<WebSocket, Message>, outbox: Arc<Outbox>) {
    let mut unflushed = None;
    loop {
        let done = match outbox.next(unflushed.is_some()).await {
            Next::Send(message, size) => {
                let is_enough = unflushed.is_some_and(|held| held + size > HANDFUL);
                let ready = if is_enough { flush(&mut sink, &outbox, &mut unflushed).await } else { Ok(()) };
                *unflushed.get_or_insert(0) += size;
                match ready {
                    Ok(()) => sink.feed(message).await,
                    Err(_) => ready,
                }
            }
            Next::Flush => flush(&mut sink, &outbox, &mut unflushed).await,
            Next::Pause => {
                let flushed = flush(&mut sink, &outbox, &mut unflushed).await;
                sleep(PAUSE).await;
                flushed
            }
            Next::End(message) => {
                // The peer may have closed already.
                sink.send(message).await.ok();
                return;
            }
        };
        if let Err(error) = done {
            tracing::debug!(%error, "a client is gone");
            return outbox.give_up(Farewell::new(1006, ""));
        }
    }
}

/// Flushes the batch and releases its bytes from the send queue's accounting.
async fn flush(
    sink: &mut SplitSink<WebSocket, Message>,
    outbox: &Outbox,
    unflushed: &mut Option<usize>,
) -> Result<(), axum::Error> {
    let flushed = sink.flush().await;
    outbox.sent(unflushed.take().unwrap_or_default());
    flushed
}

/// Result of reading from the socket.
enum Heard {
    Said(Bytes),
    /// No further message will be read; the connection is closed with this frame.
    Over(Farewell),
}

/// The receiving half of a connection.
struct Inbox {
    stream: SplitStream<WebSocket>,
    guest: Arc<Guest>,
    /// True if the peer sent an oversized message and may still be sending it. The WebSocket is no longer read; the
    /// bytes are discarded below it.
    is_refused: bool,
}

impl Inbox {
    /// Returns the next message of at most `limit` bytes. Cancel safe.
    async fn hear(&mut self, limit: usize) -> Heard {
        loop {
            let said = match self.stream.next().await {
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(Message::Close(_))) | None => return Heard::Over(Farewell::new(1000, "")),
                Some(Err(error)) => {
                    // The error type is opaque; only its text shows the kind.
                    let is_too_large = self.guest.is_spent() || error.to_string().contains("too long");
                    return Heard::Over(if is_too_large { self.refuse(limit) } else { Farewell::new(1002, "") });
                }
            };
            return if said.len() > limit { Heard::Over(self.refuse(limit)) } else { Heard::Said(said) };
        }
    }

    /// Returns the close frame for an oversized message.
    fn refuse(&mut self, limit: usize) -> Farewell {
        self.is_refused = true;
        tracing::warn!(address = %self.guest.address(), limit, "a client was sent away: its message is too large");
        Farewell::new(1009, &format!("message too large: at most {limit} bytes are taken"))
    }

    /// Waits until the peer has closed its side: dropping a socket with unread bytes would discard the close frame. The
    /// caller applies a timeout.
    async fn close(&mut self) {
        while let Some(Ok(_)) = self.stream.next().await {}
    }
}

/// Runs the handshake, then serves requests; returns the close frame.
async fn converse(server: &Arc<Server>, inbox: &mut Inbox, outbox: &Arc<Outbox>, visitor: &Visitor) -> Farewell {
    // Boxed, so that the handshake's memory is freed afterwards and an idle connection stays small.
    let known = tokio::select! {
        biased;
        () = server.stop.cancelled() => return Farewell::new(1012, "service restart"),
        known = Box::pin(get_to_know(server, inbox, outbox, visitor)) => known,
    };
    let (client, revoked) = match known {
        Ok(known) => known,
        Err(farewell) => return farewell,
    };
    let span = tracing::info_span!("client", id = client.id, protocol = client.generation.number());
    let _joined = server.projector.join(client.clone());
    let gone = async {
        match &revoked {
            Some(revoked) => revoked.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let farewell = tokio::select! {
        biased;
        () = gone => Farewell::new(1008, "device token revoked"),
        farewell = serve(server, inbox, &client).instrument(span) => farewell,
    };
    if let Some(revoked) = revoked {
        // Marks the connection as ended, so that the registry drops its entry.
        revoked.cancel();
    }
    farewell
}

/// Performs the handshake and sends `hello-ok`. The token, if any, is cancelled when the client's device is revoked.
async fn get_to_know(
    server: &Arc<Server>,
    inbox: &mut Inbox,
    outbox: &Arc<Outbox>,
    visitor: &Visitor,
) -> Result<(Arc<Client>, Option<CancellationToken>), Farewell> {
    let (request, session, token) = match timeout(HANDSHAKE, greet(server, inbox, outbox, visitor)).await {
        Ok(greeted) => greeted?,
        Err(_) => return Err(Farewell::new(1000, "")),
    };
    visitor.welcome();
    let revoked = session.params.device.as_ref().map(|device| server.devices.follow(&device.id));
    let stay = server.presence.enter(&session.params, visitor.address(), server.hub.ambient().now_ms());
    let client = welcome(server, outbox, (&request, session, stay), token.as_deref()).await;
    Ok((client, revoked))
}

/// Sends the challenge and verifies the `connect` request.
async fn greet(
    server: &Server,
    inbox: &mut Inbox,
    outbox: &Outbox,
    visitor: &Visitor,
) -> Result<(String, Session, Option<String>), Farewell> {
    let ambient = server.hub.ambient();
    let nonce = ambient.nonce();
    let challenge = Challenge { nonce: nonce.clone(), ts: ambient.now_ms(), extra: Extra::new() };
    outbox.tell_unnumbered("connect.challenge", &json!(challenge).to_string());
    let said = match inbox.hear(lobby::FRAME).await {
        Heard::Said(said) => said,
        Heard::Over(farewell) => return Err(farewell),
    };
    let request = match frame::read(&said) {
        Inbound::Request(request) => request,
        Inbound::Malformed(_) => return Err(Farewell::new(1008, "invalid request frame")),
        // As OpenClaw does it: a peer that does not speak the protocol gets a plain close.
        Inbound::NotJson(_) => {
            tracing::warn!(address = %visitor.guest.address(), bytes = said.len(), "closed an unauthenticated connection: its first message is not JSON");
            return Err(Farewell::new(1000, ""));
        }
    };
    let Request { id, method, params, .. } = request;
    let refuse = |refusal: handshake::Refusal| {
        tracing::warn!(address = %visitor.guest.address(), why = refusal.error.message, "a client was refused");
        outbox.respond(&Response::error(id.as_str(), (*refusal.error).clone()));
        refusal.farewell()
    };
    if method != "connect" {
        let error = ErrorShape::invalid("invalid handshake: first request must be connect");
        return Err(refuse(error.into()));
    }
    let facts = Facts {
        nonce: &nonce,
        now_ms: ambient.now_ms(),
        now: Instant::now(),
        address: visitor.knock.address,
        caller: visitor.knock.caller,
        is_direct: visitor.knock.is_direct,
        used: &server.used_signatures,
    };
    let session = handshake::judge(params, facts, &server.bouncer, &server.devices).map_err(&refuse)?;
    let token = recognise(server, &session, facts).await.map_err(&refuse)?;
    Ok((id, session, token))
}

/// Pairs the device of an authenticated connection, or registers a pairing request for the owner to approve. The
/// returned token lets the device authenticate without the secret next time.
async fn recognise(server: &Server, session: &Session, facts: Facts<'_>) -> Result<Option<String>, handshake::Refusal> {
    let Some(device) = &session.params.device else { return Ok(None) };
    if !session.has_secret {
        return Ok(None);
    }
    if !facts.is_direct && !server.devices.allows(&device.id, &device.public_key, &session.scopes) {
        let name = server.hub.ambient().nonce();
        let Some(request) = server.devices.request(&session.params, name, facts.now_ms) else { return Ok(None) };
        let audience = Audience { needs: Some(Scope::Pairing), since: Generation::Three };
        server.projector.tell("device.pair.requested", &request.shown(), audience);
        return Err(handshake::not_paired(session.generation, &request.id));
    }
    let (devices, session, now_ms) = (server.devices.clone(), session.clone(), facts.now_ms);
    let ambient = server.hub.ambient();
    let unguessable = format!("{}{}", ambient.nonce(), ambient.nonce());
    // Blocking: the list is written to disk.
    let done = tokio::task::spawn_blocking(move || {
        devices.admit(&session.params, &session.scopes, now_ms);
        let device = session.params.device.as_ref()?;
        // Clients of protocol 3 would send the token to other gateways, too.
        let takes_tokens = session.generation == Generation::Four;
        takes_tokens.then(|| devices.issue(&device.id, &unguessable, now_ms)).flatten()
    });
    Ok(done.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a device was not put on the list");
        None
    }))
}

/// Sends the hello response and a health snapshot.
async fn welcome(
    server: &Server,
    outbox: &Arc<Outbox>,
    (request, session, stay): (&str, Session, Option<Stay>),
    token: Option<&str>,
) -> Arc<Client> {
    outbox.set_limit(outbox::limit(session.generation));
    let health = health::report(server).await.unwrap_or_else(|error| json!({"ok": false, "error": error.message}));
    let payload: Arc<str> = health.to_string().into();
    let (here, state) = hello::here(server, &session);
    let hello = hello::ok(server, (&session, token), &server.hub.ambient().nonce(), (&health, here, state));
    outbox.respond(&Response::ok(request, json!(hello)));
    outbox.tell_state_if_room("health", payload, state);
    Arc::new(Client::new(server, session, outbox.clone(), (state.presence, stay)))
}

/// Serves requests until one side closes.
async fn serve(server: &Arc<Server>, inbox: &mut Inbox, client: &Arc<Client>) -> Farewell {
    let limit = hello::max_frame(client.generation);
    let mut answers = FuturesUnordered::new();
    let (mut tick, mut ping) = (every(TICK), every(PING));
    loop {
        tokio::select! {
            biased;
            () = server.stop.cancelled() => {
                client.outbox.tell("shutdown", json!({"reason": "the gateway is stopping"}).to_string().into());
                return Farewell::new(1012, "service restart");
            }
            () = client.outbox.lost() => return Farewell::new(1008, "slow consumer"),
            Some(()) = answers.next() => {}
            _ = tick.tick() => {
                let payload = json!(Tick { ts: server.hub.ambient().now_ms() });
                client.outbox.tell_if_room("tick", payload.to_string().into());
            }
            _ = ping.tick(), if client.generation == Generation::Four => client.outbox.ping(),
            heard = client.outbox.room().then(|()| inbox.hear(limit)) => match heard {
                Heard::Over(farewell) => return farewell,
                Heard::Said(said) => match frame::read(&said) {
                    Inbound::Request(request) if answers.len() < QUESTIONS => {
                        let span = tracing::debug_span!("rpc", method = request.method, id = request.id);
                        answers.push(router::answer(server.clone(), client.clone(), request).instrument(span));
                    }
                    Inbound::Request(request) => client.outbox.respond(&overloaded(request)),
                    Inbound::Malformed(response) | Inbound::NotJson(response) => client.outbox.respond(&response),
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
    let why = format!("{QUESTIONS} requests of this connection are not answered yet; wait for some of them");
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
    fn a_connection_takes_little_room_while_it_only_listens() {
        let size = size(run);
        assert!(size <= 2_048, "{size} bytes");
    }
}
