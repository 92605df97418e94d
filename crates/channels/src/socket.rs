//! WebSocket connections of chat platforms, over the HTTP client: with its certificates and its proxy.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use reqwest::{
    Method, Request, Upgraded, Url,
    header::{CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use crate::http::{HttpClients, RequestError, is_loopback};

/// Timeout for connecting and the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for sending a frame.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum size of a received message.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// A WebSocket connection.
#[derive(Debug)]
pub(crate) struct MessageSocket(WebSocketStream<Upgraded>);

/// What was received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SocketEvent {
    /// A text message.
    Text(String),
    /// The connection has ended.
    Closed {
        /// Close code, if the server sent one.
        code: Option<u16>,
        /// Why, as a short text.
        why: String,
    },
}

impl MessageSocket {
    /// Connects to a `wss:` URL, or to a `ws:` URL on this machine.
    pub(crate) async fn connect(clients: &HttpClients, url: &Url) -> Result<Self, RequestError> {
        let unsent = |reason: &str| RequestError::Unsent(reason.to_owned());
        let scheme = match url.scheme() {
            "wss" => "https",
            "ws" if is_loopback(url) => "http",
            _ => return Err(unsent("the address of the WebSocket is not a wss: URL")),
        };
        // A special scheme can only be replaced in the text.
        let address = url.as_str().replacen(url.scheme(), scheme, 1);
        let url = Url::parse(&address).map_err(|_invalid| unsent("the address of the WebSocket is not valid"))?;
        let key = generate_key();
        let mut request = Request::new(Method::GET, url);
        let key_value = HeaderValue::from_str(&key).map_err(|_invalid| unsent("invalid WebSocket key"))?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(HeaderName::from_static("sec-websocket-version"), HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_KEY, key_value);
        let (connection, headers) = clients.upgrade(request, HANDSHAKE_TIMEOUT).await?;
        let accepted = headers.get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
            return Err(RequestError::Unanswered("the server's WebSocket handshake is not valid".to_owned()));
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        Ok(Self(WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await))
    }

    /// Receives the next message. The future may be dropped without loss.
    pub(crate) async fn next(&mut self) -> SocketEvent {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return SocketEvent::Text(text.as_str().to_owned()),
                Some(Ok(Message::Close(frame))) => {
                    let code = frame.as_ref().map(|frame| u16::from(frame.code));
                    let why = frame.map(|frame| frame.reason.as_str().to_owned()).filter(|why| !why.is_empty());
                    return SocketEvent::Closed { code, why: why.unwrap_or_else(|| "the server closed it".to_owned()) };
                }
                // Pings are answered by the protocol implementation.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_))) => {}
                Some(Err(error)) => return SocketEvent::Closed { code: None, why: error.to_string() },
                None => return SocketEvent::Closed { code: None, why: "the connection ended".to_owned() },
            }
        }
    }

    /// Sends a text message; an error says why the connection is unusable.
    pub(crate) async fn send(&mut self, text: String) -> Result<(), String> {
        let sent = tokio::time::timeout(SEND_TIMEOUT, self.0.send(Message::Text(text.into()))).await;
        sent.map_err(|_elapsed| "sending timed out".to_owned())?.map_err(|error| error.to_string())
    }

    /// Closes the connection with a code. The peer may be gone already, so that nothing can go wrong here.
    pub(crate) async fn close(mut self, code: u16) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: "".into() };
        if let Ok(Err(error)) = tokio::time::timeout(SEND_TIMEOUT, self.0.close(Some(frame))).await {
            tracing::trace!(%error, "the WebSocket was closed already");
        }
    }
}
