//! R12, R84 and the prompt-cache contract: the wire formats over real HTTP, against a provider with every kind of
//! fault.
//!
//! `PROVIDER_SEEDS=<number>` sets the number of seeded runs; a failure names its seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

#[path = "providers/cache.rs"]
mod cache;
#[path = "providers/fixture.rs"]
mod fixture;
#[path = "providers/runs.rs"]
mod runs;
#[path = "providers/seeds.rs"]
mod seeds;
#[path = "providers/streams.rs"]
mod streams;
