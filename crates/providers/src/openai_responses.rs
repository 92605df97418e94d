//! OpenAI Responses API: a conversation is a list of items, and an answer adds items.

mod body;
mod chunk;
mod decode;
mod encode;
mod item;

pub(crate) use decode::Decoder;
pub(crate) use encode::encode;

use crate::{
    Target,
    wire::{Place, bearer},
};

/// Returns the request path.
pub(crate) fn place(_target: &Target) -> Place {
    Place { path: "responses".to_owned(), query: None }
}

/// Returns the authorization header.
pub(crate) fn headers(target: &Target) -> Vec<(&'static str, String)> {
    bearer(target)
}
