//! `chat.*`: what is said, what was said, and what is put into a conversation.

mod envelope;
pub(crate) mod history;
pub(crate) mod inject;
pub(crate) mod resume;
pub(crate) mod send;
