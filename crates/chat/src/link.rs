//! The connection to a gateway, as the chat sees it: requests go out, responses and events come in.
//!
//! The crate `chat-link` implements it over a WebSocket: to a running gateway, or to one that it starts for the chat. It
//! reconnects by itself. Requests that were not answered when the connection broke are forgotten; the chat sends them
//! again if they must not be lost.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::{Receiver, UnboundedSender};

/// A request to the gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcRequest {
    /// Id, which the response repeats.
    pub id: u64,
    /// Method.
    pub method: &'static str,
    /// Parameters.
    pub params: Value,
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    /// Code for programs.
    pub code: String,
    /// Message for users.
    pub message: String,
}

/// Where the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a gateway that was running.
    Gateway,
    /// In a gateway that was started for this chat, because none was running.
    OwnGateway,
}

/// What happens on the connection.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkEvent {
    /// The handshake is complete.
    Connected {
        /// Payload of `hello-ok`.
        hello: Value,
        /// Where the agent runs.
        place: Place,
    },
    /// The connection broke, or could not be established.
    Lost {
        /// Reason.
        why: String,
        /// Time until the next attempt.
        retry_in: Duration,
    },
    /// There will be no connection; the chat ends with this message.
    Failed(String),
    /// A remark for the user.
    Remark(String),
    /// Response to a request.
    Response {
        /// Id of the request.
        id: u64,
        /// Payload or error.
        result: Result<Value, RpcError>,
    },
    /// An event.
    Event {
        /// Name.
        name: String,
        /// Payload.
        payload: Value,
    },
}

/// Both ends of the connection.
#[derive(Debug)]
pub struct Link {
    /// Requests. Unbounded: each is caused by a key or an event, and the connection takes them as they come.
    pub requests: UnboundedSender<RpcRequest>,
    /// Events. Bounded by the implementation, so that a slow terminal slows the reader of the socket.
    pub events: Receiver<LinkEvent>,
}
