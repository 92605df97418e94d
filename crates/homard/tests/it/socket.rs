//! A bare WebSocket for clients and gateways.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, Utf8Bytes},
};

pub(crate) type Socket = WebSocketStream<TcpStream>;

pub(crate) async fn send_frame(socket: &mut Socket, frame: &Value) {
    socket.send(Message::text(frame.to_string())).await.unwrap();
}

/// Returns the next frame; `None` if the other side is gone.
pub(crate) async fn next_frame(socket: &mut Socket) -> Option<Value> {
    next_text(socket).await.map(|text| serde_json::from_str(&text).unwrap())
}

/// Returns the text of the next frame, for clients that skip most of them.
pub(crate) async fn next_text(socket: &mut Socket) -> Option<Utf8Bytes> {
    loop {
        match socket.next().await?.ok()? {
            Message::Text(text) => return Some(text),
            Message::Close(_) => return None,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

/// Connects to a gateway as its owner.
pub(crate) async fn connect(port: u16, token: &str) -> Socket {
    connect_as(port, token, 4, &["operator.read", "operator.write"], &[]).await
}

/// Connects to a gateway with this protocol version, these scopes and capabilities.
pub(crate) async fn connect_as(port: u16, token: &str, protocol: u64, scopes: &[&str], caps: &[&str]) -> Socket {
    hello_as(port, token, protocol, scopes, caps).await.0
}

/// Same as `connect_as`; also returns the gateway's hello.
pub(crate) async fn hello_as(port: u16, token: &str, protocol: u64, scopes: &[&str], caps: &[&str]) -> (Socket, Value) {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut socket, _) = client_async(format!("ws://127.0.0.1:{port}"), stream).await.unwrap();
    assert_eq!(next_frame(&mut socket).await.unwrap()["event"], "connect.challenge");
    let client = json!({"id": "test", "mode": "test", "version": "1", "platform": "linux"});
    let params = json!({
        "minProtocol": protocol, "maxProtocol": protocol, "client": client, "scopes": scopes, "caps": caps, "auth": {"token": token},
    });
    send_frame(&mut socket, &json!({"type": "req", "id": "hello", "method": "connect", "params": params})).await;
    let mut hello = next_frame(&mut socket).await.unwrap();
    assert_eq!((&hello["id"], &hello["ok"]), (&json!("hello"), &json!(true)), "{hello}");
    (socket, hello["payload"].take())
}

/// Completes the handshake on a connection; `None` if the gateway closes it.
pub(crate) async fn try_connect_as(
    stream: TcpStream,
    token: &str,
    protocol: u64,
    scopes: &[&str],
) -> Option<(Socket, Value)> {
    let (mut socket, _) = client_async("ws://127.0.0.1", stream).await.ok()?;
    assert_eq!(next_frame(&mut socket).await?["event"], "connect.challenge");
    let client = json!({"id": "test", "mode": "test", "version": "1", "platform": "linux"});
    let params = json!({
        "minProtocol": protocol, "maxProtocol": protocol, "client": client, "scopes": scopes, "auth": {"token": token},
    });
    let request = json!({"type": "req", "id": "hello", "method": "connect", "params": params});
    socket.send(Message::text(request.to_string())).await.ok()?;
    let hello = next_frame(&mut socket).await?;
    assert_eq!(hello["ok"], true, "{hello}");
    Some((socket, hello))
}

/// Sends a frame to a gateway that may be gone.
pub(crate) async fn try_send_frame(socket: &mut Socket, frame: &Value) {
    // The reader finds out that the connection is closed.
    socket.send(Message::text(frame.to_string())).await.ok();
}
