//! Broadcasts events from other crates to connected clients.

use homard_proto::Generation;
use serde_json::Value;

use crate::{client::Client, projector::Projector, scope::Scope};

/// Which clients receive an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audience {
    /// Required scope; `None` for all clients.
    pub needs: Option<Scope>,
    /// Oldest protocol version that knows the event.
    pub since: Generation,
}

impl Audience {
    /// All clients with the read scope, in both protocol versions.
    pub(crate) const READERS: Self = Self { needs: Some(Scope::Read), since: Generation::Three };

    pub(crate) fn includes(self, client: &Client) -> bool {
        client.generation >= self.since && self.needs.is_none_or(|scope| client.scopes.allow(scope))
    }
}

/// Handle for broadcasting events, in one total order with all other events.
#[derive(Debug, Clone)]
pub struct News(Projector);

impl News {
    pub(crate) fn new(projector: Projector) -> Self {
        Self(projector)
    }

    /// Sends an event to all connected clients in the audience, without waiting. Before the gateway serves and after it
    /// has stopped there are none.
    pub fn tell(&self, event: &'static str, payload: &Value, audience: Audience) {
        self.0.tell(event, payload, audience);
    }
}
