//! The binary itself, from the outside: every test starts it in a home of its own and ends what it started.
#![cfg(test)]

mod agent;
mod agents;
mod approvals;
mod calls;
mod channels;
mod chaos;
mod completions;
mod config;
mod context;
mod cron;
mod docs;
mod doctor;
mod drops;
mod edge;
mod home;
mod hooks;
mod import;
mod many;
mod mcp;
mod models;
mod owner_tools;
mod plugins;
mod probe;
mod provider;
mod puppet;
mod reload;
mod replies;
mod sandbox;
mod skills;
mod socket;
mod stops;
mod tools;
mod variables;
mod watch;
mod webhooks;
