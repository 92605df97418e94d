//! Events from outside the gateway: how others tell all clients something.

use homard_proto::Generation;
use serde_json::Value;

use crate::{client::Client, projector::Projector, scope::Scope};

/// Who is told an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audience {
    /// Only those with this scope; `None` for everybody.
    pub needs: Option<Scope>,
    /// Only those who speak this protocol or a newer one: older clients do not know the event.
    pub since: Generation,
}

impl Audience {
    /// Everybody who may look, in both generations.
    pub(crate) const READERS: Self = Self { needs: Some(Scope::Read), since: Generation::Three };

    pub(crate) fn includes(self, client: &Client) -> bool {
        client.generation >= self.since && self.needs.is_none_or(|scope| client.scopes.allow(scope))
    }
}

/// A handle for telling all clients something, in one order with everything else that they are told.
#[derive(Debug, Clone)]
pub struct News(Projector);

impl News {
    pub(crate) fn new(projector: Projector) -> Self {
        Self(projector)
    }

    /// Tells everybody in the audience who is connected. Nobody waits; before the gateway answers and after it has
    /// stopped nobody is there.
    pub fn tell(&self, event: &'static str, payload: &Value, audience: Audience) {
        self.0.tell(event, payload, audience);
    }
}
