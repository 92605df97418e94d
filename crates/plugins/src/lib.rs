//! Other people's programs that take part in the loop: found, judged, started, watched over and spoken to.
//!
//! Start with [`Plugins`]: it looks for plugins ([`discover`]), decides which are on ([`decide`]) and gives what they add
//! to the house ([`Extensions`]). A plugin is a process: a command in any language, or a guest of the one Node process
//! that runs OpenClaw's own. It is started when it is first needed, speaks JSON-RPC over its standard input and output,
//! and may do what its manifest declares. One that hangs, ends or floods is ended and started again, and takes nobody
//! with it.

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
