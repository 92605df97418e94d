//! The config file: found, read, and checked section by section. Keys are OpenClaw's; those not known here are let be.

mod file;
mod sections;
mod text;

pub(crate) use sections::{Config, agents, schedule::span};
pub(crate) use text::Text;
