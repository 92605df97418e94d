//! Images: found in a text, loaded from below a folder, and fitted to the limits of models. Other files that come with
//! a message are stored in a folder of the workspace ([`InboundFolder`]).
//!
//! This crate does not depend on sessions, models or the network. Everything here blocks: [`load()`] reads a file and
//! [`fit()`] computes, so call them where blocking is fine. Start with [`find()`], which defines what counts as a
//! reference; a failure is a value for the caller to log, never a reason to end a run.
#![warn(missing_docs)]

mod find;
mod fit;
mod image;
mod inbound;
mod kind;
mod load;

pub use find::find;
pub use fit::{FitError, ImageLimits, fit};
pub use image::FittedImage;
pub use inbound::{InboundFile, InboundFolder, sanitize};
pub use kind::image_type;
pub use load::{ImageRoot, LoadError, load};
