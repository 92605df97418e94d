//! The context of a run: what is gathered for its prompt, and the messages that do not come from a sender.

pub(crate) mod attachments;
pub(crate) mod background;
pub(crate) mod gather;
pub(crate) mod strict;
