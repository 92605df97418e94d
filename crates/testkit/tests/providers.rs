//! R12, R84 and the prompt-cache contract: the wires over real HTTP, against a provider that can do anything wrong.
//!
//! `PROVIDER_SEEDS=<number>` makes the seeded runs as many; what fails names its seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

#[path = "providers/cache.rs"]
mod cache;
#[path = "providers/house.rs"]
mod house;
#[path = "providers/runs.rs"]
mod runs;
#[path = "providers/seeds.rs"]
mod seeds;
#[path = "providers/streams.rs"]
mod streams;
