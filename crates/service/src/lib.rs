//! A gateway as a service: unit files, the protocol of service managers, sockets that outlive a process, and a supervisor
//! for machines without a service manager.
//!
//! Knows nothing about agents, the configuration or clients, and reads neither environment nor clock: the caller passes
//! what it found. Start with [`spec`] (what a service is), then [`systemd`] and [`launchd`] (its files), [`manager`]
//! (installs, starts and inspects it), [`supervisor`] (restarts it where there is no manager), [`notify`] and
//! [`activation`] (what systemd expects from it and gives it) and [`handover`] (a new process takes over the sockets).
#![warn(missing_docs)]

pub mod activation;
mod command;
mod error;
pub mod handover;
pub mod launchd;
pub mod manager;
pub mod notify;
pub mod spec;
pub mod supervisor;
pub mod systemd;

pub use error::Error;
