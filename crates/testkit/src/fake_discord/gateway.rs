//! The gateway of the fake Discord: WebSocket connections that deliver the events of the session.

use std::{io, net::SocketAddr, sync::Arc};

use futures_util::{SinkExt, StreamExt};
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::{Error, Message, protocol::CloseFrame},
};

use super::{DiscordShared, TOKEN, state::SessionEvent};

type Socket = WebSocketStream<TcpStream>;

/// A gateway on a free loopback port. Stops on drop.
#[derive(Debug)]
pub(super) struct FakeGateway {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for FakeGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeGateway {
    pub(super) async fn start(shared: Arc<DiscordShared>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: task::spawn("fake gateway", listen(listener, shared)) })
    }
}

async fn listen(listener: TcpListener, shared: Arc<DiscordShared>) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        if shared.state().gateway.is_offline {
            continue;
        }
        let shared = shared.clone();
        connections.spawn(async move {
            // A client that disconnects early is part of many tests.
            serve(stream, &shared).await.ok();
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, shared: &DiscordShared) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let mut socket = accept_async(stream).await?;
    let (connection, interval) = shared.change(|state| {
        state.gateway.connections += 1;
        (state.gateway.connections, state.gateway.heartbeat_ms)
    });
    send(&mut socket, &json!({"op": 10, "d": {"heartbeat_interval": interval}})).await?;
    let Some(login) = next(&mut socket).await? else { return Ok(()) };
    shared.change(|state| state.gateway.logins.push(login.clone()));
    if login["d"]["token"] != TOKEN {
        return close(&mut socket, 4004).await;
    }
    let refusal = shared.state().gateway.login_close;
    if let Some(code) = refusal {
        return close(&mut socket, code).await;
    }
    let Some(mut sent) = log_in(shared, &login) else {
        send(&mut socket, &json!({"op": 9, "d": false})).await?;
        // A client identifies on the same connection or on a new one; this one is done.
        return close(&mut socket, 1000).await;
    };
    let mut changes = shared.changes.subscribe();
    loop {
        let (events, closed) = {
            let state = shared.state();
            let events = state.gateway.session.iter().flat_map(|session| &session.events);
            let events: Vec<SessionEvent> = events.filter(|event| event.sequence > sent).cloned().collect();
            (events, (connection <= state.gateway.closed.0).then_some(state.gateway.closed.1))
        };
        if let Some(code) = closed {
            return close(&mut socket, code).await;
        }
        for SessionEvent { sequence, name, data } in events {
            send(&mut socket, &json!({"op": 0, "s": sequence, "t": name, "d": data})).await?;
            sent = sequence;
        }
        tokio::select! {
            biased;
            received = next(&mut socket) => {
                let Some(message) = received? else { return Ok(()) };
                if message["op"] == 1 {
                    let is_deaf = shared.change(|state| {
                        (state.gateway.heartbeats, state.gateway.last_heartbeat) = (state.gateway.heartbeats + 1, message["d"].clone());
                        state.gateway.is_deaf
                    });
                    if !is_deaf {
                        send(&mut socket, &json!({"op": 11})).await?;
                    }
                }
            }
            changed = changes.changed() => if changed.is_err() {
                return Ok(());
            },
        }
    }
}

/// Starts or resumes a session. Returns the last event that the client has; `None` if there is nothing to resume.
fn log_in(shared: &DiscordShared, login: &Value) -> Option<u64> {
    shared.change(|state| match login["op"].as_u64() {
        Some(2) => {
            state.identify();
            Some(0)
        }
        Some(6) => {
            let session =
                state.gateway.session.as_ref().filter(|session| login["d"]["session_id"] == session.id.as_str())?;
            let sequence = login["d"]["seq"].as_u64().filter(|sequence| *sequence <= session.events.len() as u64)?;
            state.add_event("RESUMED", json!({}));
            Some(sequence)
        }
        Some(_) | None => None,
    })
}

async fn send(socket: &mut Socket, message: &Value) -> Result<(), Error> {
    socket.send(Message::text(message.to_string())).await
}

/// Returns the next JSON message; `None` when the client is done.
async fn next(socket: &mut Socket) -> Result<Option<Value>, Error> {
    while let Some(message) = socket.next().await {
        match message? {
            Message::Text(text) => return Ok(serde_json::from_str(&text).ok()),
            Message::Close(_) => return Ok(None),
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
    Ok(None)
}

async fn close(socket: &mut Socket, code: u16) -> Result<(), Error> {
    socket.close(Some(CloseFrame { code: code.into(), reason: "as scripted".into() })).await?;
    // Until the client has answered, so that it sees the code.
    while let Some(Ok(_)) = socket.next().await {}
    Ok(())
}
