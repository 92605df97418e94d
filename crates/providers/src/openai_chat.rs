//! OpenAI's Chat Completions, the wire that most servers speak.

mod body;
mod chunk;
mod decode;
mod encode;

pub(crate) use decode::Decoder;
pub(crate) use encode::encode;
