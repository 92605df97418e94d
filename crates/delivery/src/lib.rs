//! Outgoing channel messages: where they go ([`plan`]), how a run's reply becomes messages ([`run_output`]), and the
//! interface of the platforms ([`channel_sender`]).
//!
//! Stores and sends nothing: `homard-agent` puts messages into the outbox and delivers them in order.
#![warn(missing_docs)]

pub mod channel_sender;
pub mod notice;
pub mod payload;
pub mod plan;
pub mod reply_settings;
pub mod run_output;

mod result;

pub use plan::{DEFAULT_CHANNEL, DeliveryRequest, INTERNAL, LAST};
pub use result::{DeliveryReport, DeliveryResult};
