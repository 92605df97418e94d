//! What the official clients send, as `cargo xtask conform` recorded it.
