//! Additions to the standard library that several crates need: locks, file replacement, texts, times, random numbers,
//! secrets, and a circuit breaker.
//!
//! Nothing here knows about agents: this crate depends on no other crate of Homard.
#![warn(missing_docs)]

mod circuit_breaker;
pub mod file;
mod rng;
mod secret;
pub mod sync;
pub mod text;
pub mod time;

pub use circuit_breaker::CircuitBreaker;
pub use rng::SeededRng;
pub use secret::Secret;
