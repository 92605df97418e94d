//! Plugins: discovery, authorisation, process supervision and communication.
//!
//! Start with [`Plugins`]: it discovers plugins ([`discover`]), decides which are enabled ([`decide`]) and returns what
//! they register ([`Extensions`]). A plugin is a process: a command in any language, or one of several in the Node
//! process that runs OpenClaw's plugins. It is started on first use, speaks JSON-RPC over its standard input and
//! output, and may do only what its manifest declares. A process that hangs, ends or floods is killed and restarted
//! without affecting anything else.

pub mod internal;

mod absent;
mod admit;
mod discover;
mod door;
mod enable;
mod error;
mod fingerprint;
mod hook;
mod host;
mod large;
mod link;
mod manifest;
mod node;
mod offer;
mod plugin;
mod plugins;
mod process;
mod register;
mod rpc;
mod scripts;
mod serve;
mod settings;
mod strikes;
mod supervisor;
mod tool;
mod tree;

pub use admit::Reserved;
pub use discover::{Candidate, Found, Origin, Roots, discover};
pub use enable::{Verdict, decide};
pub use error::Error;
pub use fingerprint::fingerprint;
pub use host::{Ask, Deaf, Host};
pub use manifest::{Declared, Manifest, NAMES, Rights, config_problems};
pub use node::which as which_node;
pub use offer::{CommandOffer, HookOffer, ListenerOffer, MethodOffer, Offers, RouteOffer, ServiceOffer, ToolOffer};
pub use plugins::{Extensions, Plugins, Setup, State, Status};
pub use scripts::Node;
pub use serve::{Command, CommandCx, HttpAnswer, HttpAsk, Method, MethodAnswer, Route, Service};
pub use settings::{Entry, Guard, HookSettings, Install, Load, Settings, Slots};
pub use supervisor::Timing;
pub use tool::{PluginTool, ToolCall};
