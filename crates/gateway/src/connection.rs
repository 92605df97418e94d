//! One socket's life: a challenge, a judgement, then questions and news until one side leaves.
//!
//! One task reads and answers, another writes what is in the outbox. Answers are worked on side by side, so a slow one
//! holds up no other. When the connection ends, what it was waiting for is forgotten; the runs go on.

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

/// How often a client hears that we are here. Clients that hear nothing for twice as long leave.
pub(crate) const TICK: Duration = Duration::from_secs(30);
/// How often a client of protocol 4 is pinged.
const PING: Duration = Duration::from_secs(25);
/// How long a client may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to hear the last words.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a client that sent too much may take to finish sending and read why it is closed.
const LINGER: Duration = Duration::from_secs(5);
/// How long a client that needs it has to take in that its message was accepted, before it hears of the run. OpenClaw's TUI
/// then says "waiting"; if it reads the end of the run in the same breath, it says so for ever.
const PAUSE: Duration = Duration::from_millis(50);
/// How many questions of one client are worked on at once.
const QUESTIONS: usize = 256;

/// Somebody at the door.
#[derive(Debug)]
pub(crate) struct Visitor {
    /// The peer.
    pub(crate) guest: Arc<Guest>,
    /// What its headers say of it.
    pub(crate) knock: Knock,
}

impl Visitor {
    /// Where it is, also behind a proxy.
    pub(crate) fn address(&self) -> IpAddr {
        self.knock.address
    }

    /// It has said who it is: the lobby's rules do not bind it any more.
    pub(crate) fn welcome(&self) {
        self.guest.welcome();
    }
}

/// How many bytes leave together, unless one message is longer. A socket keeps as much room as it ever needed, so this is
/// little.
const HANDFUL: usize = 4_096;

/// A connection from its first word to its last.
pub(crate) async fn run(server: Arc<Server>, socket: WebSocket, visitor: Visitor) {
    let (sink, stream) = socket.split();
    let outbox = Arc::new(Outbox::new());
    let writer = AbortOnDropHandle::new(task::spawn("socket writer", write(sink, outbox.clone())));
    let mut inbox = Inbox { stream, guest: visitor.guest.clone(), is_refused: false };
    let farewell = converse(&server, &mut inbox, &outbox, &visitor).await;
    outbox.close(farewell);
    // A peer that does not take its last words is left behind.
    if inbox.is_refused {
        Box::pin(timeout(LINGER, linger(writer, &visitor.guest))).await.ok();
    } else {
        timeout(LAST_WORDS, async { tokio::join!(writer, inbox.close()) }).await.ok();
    }
}

/// Sends the close frame to a peer that may be in the middle of sending something too large. A client that does not read
/// while it sends must be able to finish first.
async fn linger(writer: AbortOnDropHandle<()>, guest: &Guest) {
    let sending = async {
        // A writer that panicked has sent all that it will.
        writer.await.ok();
        guest.finish_sending().await;
    };
    tokio::join!(sending, guest.discard());
}

/// Sends what is in the outbox; what comes together leaves together.
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
                // The peer may have gone before us, and that is fine.
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

/// Sends what was handed over, so that what the peer has does not count as waiting.
async fn flush(
    sink: &mut SplitSink<WebSocket, Message>,
    outbox: &Outbox,
    unflushed: &mut Option<usize>,
) -> Result<(), axum::Error> {
    let flushed = sink.flush().await;
    outbox.sent(unflushed.take().unwrap_or_default());
    flushed
}

/// What came in.
enum Heard {
    /// A message.
    Said(Bytes),
    /// Nothing more will come; this is what there is to say to it.
    Over(Farewell),
}

/// What a client says.
struct Inbox {
    stream: SplitStream<WebSocket>,
    guest: Arc<Guest>,
    /// Whether the peer sent something too large, and may still be sending it. The WebSocket then reads no more: what comes
    /// is discarded below it.
    is_refused: bool,
}

impl Inbox {
    /// The next message of at most so many bytes. Cancel safe.
    async fn hear(&mut self, limit: usize) -> Heard {
        loop {
            let said = match self.stream.next().await {
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(Message::Close(_))) | None => return Heard::Over(Farewell::new(1000, "")),
                Some(Err(error)) => {
                    // The kind of error is hidden behind its text.
                    let is_too_large = self.guest.is_spent() || error.to_string().contains("too long");
                    return Heard::Over(if is_too_large { self.refuse(limit) } else { Farewell::new(1002, "") });
                }
            };
            return if said.len() > limit { Heard::Over(self.refuse(limit)) } else { Heard::Said(said) };
        }
    }

    /// What a peer hears that says more at once than it may.
    fn refuse(&mut self, limit: usize) -> Farewell {
        self.is_refused = true;
        tracing::warn!(address = %self.guest.address(), limit, "a client was sent away: its message is too large");
        Farewell::new(1009, &format!("message too large: at most {limit} bytes are taken"))
    }

    /// Waits until the peer has closed its side: a socket that is dropped with unread bytes takes our last words with
    /// it. Whoever waits for this has a timeout.
    async fn close(&mut self) {
        while let Some(Ok(_)) = self.stream.next().await {}
    }
}

/// Everything between the first word and the last.
async fn converse(server: &Arc<Server>, inbox: &mut Inbox, outbox: &Arc<Outbox>, visitor: &Visitor) -> Farewell {
    // What it takes to get to know each other is let go of after that: whoever only listens costs little.
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
        // Nobody need end what has ended.
        revoked.cancel();
    }
    farewell
}

/// Finds out who a stranger is and says hello. With the client comes what fires when its device is revoked.
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

/// Challenges a stranger and judges its answer.
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

/// Lets the device of a connection belong to the owner, or has it wait until somebody approves it. The token is for the
/// device to show next time.
async fn recognise(server: &Server, session: &Session, facts: Facts<'_>) -> Result<Option<String>, handshake::Refusal> {
    let Some(device) = &session.params.device else { return Ok(None) };
    if !session.has_secret {
        return Ok(None);
    }
    if !facts.is_direct && !server.devices.knows(&device.id, &device.public_key) {
        let name = server.hub.ambient().nonce();
        let Some(request) = server.devices.request(&session.params, name, facts.now_ms) else { return Ok(None) };
        let audience = Audience { needs: Some(Scope::Pairing), since: Generation::Three };
        server.projector.tell("device.pair.requested", &request.shown(), audience);
        return Err(handshake::not_paired(session.generation, &request.id));
    }
    let (devices, session, now_ms) = (server.devices.clone(), session.clone(), facts.now_ms);
    let ambient = server.hub.ambient();
    let unguessable = format!("{}{}", ambient.nonce(), ambient.nonce());
    // The list is written to disk.
    let done = tokio::task::spawn_blocking(move || {
        devices.admit(&session.params, &session.scopes, now_ms);
        let device = session.params.device.as_ref()?;
        // An older client would show it to other gateways, too.
        let takes_tokens = session.generation == Generation::Four;
        takes_tokens.then(|| devices.issue(&device.id, &unguessable, now_ms)).flatten()
    });
    Ok(done.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a device was not put on the list");
        None
    }))
}

/// Says hello, and how things are.
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

/// Answers questions until somebody leaves.
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
