//! Plugins: discovery, authorisation, process supervision and communication.
//!
//! Start with [`Plugins`]: it discovers plugins ([`discover`]), decides which are enabled ([`decide`]) and returns what
//! they register ([`Extensions`]). A plugin is a process: a command in any language, or one of several in the Node
//! process that runs OpenClaw's plugins. It is started on first use, speaks JSON-RPC over its standard input and
//! output, and may do only what its manifest declares. A process that hangs, ends or floods is killed and restarted
//! without affecting anything else.

pub mod internal;

mod admit;
mod blob_refs;
mod circuit_breaker;
mod copy;
mod discover;
mod enable;
mod endpoints;
mod error;
mod fingerprint;
mod hook;
mod host;
mod host_api;
mod managed;
mod manifest;
mod missing_guards;
mod node;
mod plugin;
mod plugins;
mod process;
mod process_tree;
mod registrations;
mod registry;
mod rpc;
mod rpc_session;
mod scripts;
mod settings;
mod supervisor;
mod tool;

pub use admit::ReservedNames;
pub use copy::{InstalledPlugin, PluginCopyError, inspect, install};
pub use discover::{DiscoveredPlugin, DiscoveredPlugins, PluginOrigin, PluginRoots, discover};
pub use enable::{EnableDecision, decide};
pub use endpoints::{
    CommandInvocation, MethodResponse, PluginCommand, PluginHttpCall, PluginHttpReply, PluginMethod, PluginRoute,
    PluginService, read_http,
};
pub use error::Error;
pub use fingerprint::fingerprint;
pub use host::{Host, HostMethod, NoHost};
pub use managed::{ManagedProcess, Program, ProgramCallError, ProgramCommand, ProgramDown, RunningProgram};
pub use manifest::{DeclaredRights, FILE_NAMES, Manifest, RightDeclaration, config_problems};
pub use node::{find_node as which_node, shared_scripts, write_scripts};
pub use plugins::{Extensions, PluginSetup, PluginStatus, Plugins, ProcessState};
pub use process::find as find_program;
pub use registrations::{
    CommandRegistration, HookRegistration, ListenerRegistration, MethodRegistration, Registrations, RouteRegistration,
    ServiceRegistration, ToolRegistration,
};
pub use scripts::NodeScripts;
pub use settings::{GuardPolicy, HookSettings, InstallRecord, LoadSettings, PluginEntry, Settings, SlotSettings};
pub use supervisor::ProcessTiming;
pub use tool::{PluginTool, PluginToolCall};
