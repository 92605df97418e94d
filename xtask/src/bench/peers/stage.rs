//! What all measurements stand on, and the figures that they bring.

use std::path::PathBuf;

use anyhow::Result;

use super::peer::{Ground, Home, Peer};
use crate::bench::model::Model;

/// What a model takes, in tokens, unless a measurement needs another one.
pub(super) const WINDOW: u32 = 128_000;

/// A figure: the line that it belongs to, and its value.
pub(super) type Figure = (&'static str, f64);

/// What all measurements stand on.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) model: Model,
    /// For what is too long for a home.
    pub(super) folder: PathBuf,
}

impl Stage {
    /// A home with the usual config.
    pub(super) fn home<'a>(&self, peer: &'a Peer, ground: Ground) -> Result<Home<'a>> {
        peer.home(ground, self.model.port(), WINDOW)
    }
}

/// As disks are sold, and as processes are told of in other tables.
pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
