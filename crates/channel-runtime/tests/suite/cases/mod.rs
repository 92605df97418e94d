//! The cases, by what they are about.

pub(crate) mod connection;
pub(crate) mod delivery;
pub(crate) mod direct;
pub(crate) mod drafts;
pub(crate) mod messages;
pub(crate) mod pairing;
pub(crate) mod texts;
