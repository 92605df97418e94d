//! What the user reads. A model's words go in as they come; out come the words that are meant for the user, cut into good
//! pieces, and at the end of a run the replies. No room here does I/O or looks at a clock.

pub mod blocks;
pub mod chunk;
pub mod coalesce;
mod directive;
mod edge;
pub mod failure;
pub mod fence;
pub mod footer;
pub mod heartbeat;
pub mod label;
mod leak;
mod media_line;
pub mod pace;
pub mod payload;
pub mod reasoning;
mod rest;
mod scan;
pub mod sent;
pub mod shape;
pub mod silent;
pub mod spoken;
mod tags;
pub mod thoughts;
pub mod thread;
