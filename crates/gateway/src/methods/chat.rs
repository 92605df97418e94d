//! `chat.*`: sending messages, reading the history, and injecting messages.

pub(crate) mod history;
pub(crate) mod inject;
pub(crate) mod resume;
pub(crate) mod send;
mod strip_envelope;
