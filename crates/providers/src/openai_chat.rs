//! OpenAI's Chat Completions, the wire that most servers speak.

mod body;
mod chunk;
mod decode;
mod encode;

pub use homard_model::spec::IDLE;

pub(crate) use decode::Decoder;
pub(crate) use encode::encode;
