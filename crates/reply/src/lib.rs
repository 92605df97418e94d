//! Processing of the text that users read: takes a model's text as it is streamed and returns the user-visible text in
//! well-cut pieces, and at the end of a run the replies. Pure: no I/O, no clock.

pub mod blocks;
pub mod chunk;
pub mod coalesce;
mod directive;
pub mod failure;
pub mod fence;
pub mod footer;
pub mod heartbeat;
pub mod label;
mod leaked_calls;
mod media_line;
pub mod pace;
pub mod parse_stream;
pub mod payload;
pub mod reasoning;
pub mod reasoning_tags;
mod remaining;
mod scan;
pub mod sent;
pub mod shape;
pub mod silent;
mod tags;
pub mod thread;
mod trim;
