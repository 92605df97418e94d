//! OpenAI's Responses: a conversation is a list of items, and an answer is more of them.

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

/// Where requests go.
pub(crate) fn place(_target: &Target) -> Place {
    Place { path: "responses".to_owned(), query: None }
}

/// How one is let in.
pub(crate) fn headers(target: &Target) -> Vec<(&'static str, String)> {
    bearer(target)
}
