//! Credentials: those of model providers, the shared secret of a gateway and its clients, and the gateway's certificate.
//!
//! All of them live in files of the state directory that only their owner can read. Nothing is sent from here, except
//! to the endpoint that renews an expiring token. Start with [`auth_profiles`]; then [`gateway_secret`] and
//! [`certificate`].

pub mod auth_profiles;
pub mod certificate;
mod error;
pub mod gateway_secret;

pub use error::Error;
