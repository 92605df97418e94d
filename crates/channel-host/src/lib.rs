//! The channel host: runs OpenClaw's channel packages in supervised Node processes, one per channel, as [`Channel`]s.
//!
//! The real `openclaw` package serves a channel package as its library; no OpenClaw gateway runs. A package speaks to its
//! platform. Homard stores what arrives ([`ingress`](IngressStore)) before it is confirmed to the platform, decides who is
//! answered, and sends the replies through the package. A package that hangs, ends or floods harms its own channel only.
//!
//! Start with [`HostedChannel`] (the channel), then `host` (the process and what it may request), `facts` (inbound
//! messages) and [`install`] (`homard channels add`). The Node side is in `node/`; start there with `host.mjs`.
//!
//! [`Channel`]: homard_channels::Channel
#![warn(missing_docs)]

mod channel;
mod facts;
mod host;
mod ingress;
pub mod install;
mod memory;
mod node;
mod outgoing;
mod packages;
mod scripts;

pub use channel::HostedChannel;
pub use homard_plugins::{PluginHttpCall, PluginHttpReply, ProcessTiming, ProgramCommand};
pub use host::{ChannelHost, HostSettings};
pub use ingress::IngressStore;
pub use node::{NODE_VERSION, NodeVersion};
pub use packages::{HostedPackage, NeededKey, OPENCLAW_VERSIONS, PACKAGES, fits, package};
