//! Environment shared by all measurements, and the values that they return.

use std::path::PathBuf;

use anyhow::Result;

use super::peer::{Peer, PeerHome, StorageKind};
use crate::bench::model::BenchModel;

/// Default context window in tokens.
pub(super) const WINDOW: u32 = 128_000;

/// A value and the key of its line.
pub(super) type PeerValue = (&'static str, f64);

/// Environment shared by all measurements.
#[derive(Debug)]
pub(super) struct PeerEnvironment {
    pub(super) model: BenchModel,
    /// For files that must not be in a home.
    pub(super) folder: PathBuf,
}

impl PeerEnvironment {
    /// Creates a home with the default config.
    pub(super) fn home<'a>(&self, peer: &'a Peer, storage: StorageKind) -> Result<PeerHome<'a>> {
        peer.home(storage, self.model.port(), WINDOW)
    }
}

/// Converts to decimal megabytes, as used by disk vendors and other benchmarks.
pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
