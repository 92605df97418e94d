//! Processing of the text that users read: takes a model's text as it is streamed and returns the user-visible text in
//! well-cut pieces, and at the end of a run the replies. Pure: no I/O, no clock.

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
