//! OpenAI Chat Completions API, which most servers provide.

mod body;
mod chunk;
mod decode;
mod encode;

pub(crate) use decode::Decoder;
pub(crate) use encode::encode;
