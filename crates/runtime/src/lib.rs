//! Clock, ids and tasks: the only access to the system clock, to randomness and to `tokio::spawn`, so that tests control
//! them.
#![warn(missing_docs)]

pub mod ambient;
pub mod task;

pub use ambient::Ambient;
