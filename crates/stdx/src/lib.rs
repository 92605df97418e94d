//! Additions to the standard library that several crates need: locks, file replacement, texts, times, random numbers,
//! secrets, a circuit breaker, and the inputs of fuzz tests.
//!
//! Nothing here knows about agents: this crate depends on no other crate of Homard.
#![warn(missing_docs)]

mod circuit_breaker;
pub mod file;
pub mod fuzz;
mod rng;
mod secret;
pub mod sync;
pub mod text;
pub mod time;

pub use circuit_breaker::CircuitBreaker;
pub use rng::SeededRng;
pub use secret::Secret;
