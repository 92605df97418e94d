//! Rules about senders: which tools a run may use ([`tools`]), and which agent answers a channel message in which session
//! ([`routing`]). Pure; does not depend on the agent loop or the configuration file.
#![warn(missing_docs)]

pub mod routing;
pub mod tools;
