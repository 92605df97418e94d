//! The answers, one file a family.

pub(crate) mod absent;
pub(crate) mod agent;
pub(crate) mod agents;
pub(crate) mod chat;
pub(crate) mod commands;
pub(crate) mod cron;
pub(crate) mod devices;
pub(crate) mod follow;
pub(crate) mod health;
pub(crate) mod house;
pub(crate) mod logs;
pub(crate) mod machine;
pub(crate) mod models;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod startup;
mod submit;
pub(crate) mod tasks;
pub(crate) mod usage;

use std::fmt::Display;

use homard_proto::{ErrorShape, SessionKey};

use crate::server::Server;

/// What a caller is told when the store could not be asked.
pub(crate) fn unavailable(error: impl Display) -> ErrorShape {
    ErrorShape::unavailable(error.to_string())
}

/// The session that a request means by a key.
fn session_key(server: &Server, method: &str, text: &str) -> Result<SessionKey, ErrorShape> {
    SessionKey::parse(text, server.hub.agents().default_id())
        .map_err(|error| ErrorShape::invalid(format!("invalid {method} params: sessionKey: {error}")))
}
