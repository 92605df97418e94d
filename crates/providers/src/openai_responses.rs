//! OpenAI Responses API: a conversation is a list of items, and an answer adds items.

mod body;
mod chunk;
mod decode;
mod encode;
mod item;

pub(crate) use decode::Decoder;
pub(crate) use encode::encode;

use crate::{
    ModelTarget,
    wire::{RequestPath, bearer},
};

/// Returns the request path.
pub(crate) fn request_path(_target: &ModelTarget) -> RequestPath {
    RequestPath { path: "responses".to_owned(), query: None }
}

/// Returns the authorization header.
pub(crate) fn headers(target: &ModelTarget) -> Vec<(&'static str, String)> {
    bearer(target)
}
