//! Bodies of HTTP requests: read up to a limit, and discarded if rejected.

use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt;
use tokio::time::timeout;

/// Number of bytes of an oversized body that are read and discarded, so that the client can read the error.
const MAX_DISCARD_BYTES: usize = 8 * 1024 * 1024;
/// Time to read and discard a rejected body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is longer than the limit.
    #[error("the body is too large")]
    TooLarge,
    /// The connection failed.
    #[error("failed to read the body: {0}")]
    Broken(String),
}

/// Reads a body of at most `limit` bytes. Part of the rest of a larger one is read and discarded.
pub(crate) async fn read(body: Body, limit: usize) -> Result<Vec<u8>, BodyError> {
    let (mut bytes, mut count) = (Vec::new(), 0);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| BodyError::Broken(error.to_string()))?;
        count += chunk.len();
        if count > limit.saturating_add(MAX_DISCARD_BYTES) {
            break;
        }
        if count <= limit {
            bytes.extend_from_slice(&chunk);
        }
    }
    if count <= limit { Ok(bytes) } else { Err(BodyError::TooLarge) }
}

/// Reads and discards a rejected body: closing a connection with unread bytes would discard the response.
pub(crate) async fn discard(body: Body) {
    timeout(DISCARD_TIMEOUT, read(body, 0)).await.ok();
}
