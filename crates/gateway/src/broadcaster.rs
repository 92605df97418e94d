//! Broadcasts events from other crates to connected clients.

use homard_proto::Generation;
use serde_json::Value;

use crate::{client::Client, projector::Projector, scope::Scope};

/// Which clients receive an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audience {
    /// Required scope; `None` for all clients.
    pub scope: Option<Scope>,
    /// Oldest protocol version that knows the event.
    pub min_protocol: Generation,
}

impl Audience {
    /// All clients with the read scope, in both protocol versions.
    pub(crate) const READERS: Self = Self { scope: Some(Scope::Read), min_protocol: Generation::Three };

    pub(crate) fn includes(self, client: &Client) -> bool {
        client.generation >= self.min_protocol && self.scope.is_none_or(|scope| client.scopes.allow(scope))
    }
}

/// Handle for broadcasting events, in one total order with all other events.
#[derive(Debug, Clone)]
pub struct Broadcaster(Projector);

impl Broadcaster {
    pub(crate) fn new(projector: Projector) -> Self {
        Self(projector)
    }

    /// Sends an event to all connected clients in the audience, without waiting. No client is connected before
    /// the gateway serves and after it has stopped; the event is dropped then.
    pub fn publish(&self, event: &'static str, payload: &Value, audience: Audience) {
        self.0.publish(event, payload, audience);
    }
}
