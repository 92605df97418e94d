//! A reader that fails when the run is cancelled.

use std::io::{self, Read};

use tokio_util::sync::CancellationToken;

/// Reads until the run is cancelled, which is reported as an error, so that a huge file cannot delay an abort.
pub(crate) struct CancelReader<R> {
    inner: R,
    cancel: CancellationToken,
}

impl<R: Read> CancelReader<R> {
    pub(crate) fn new(inner: R, cancel: &CancellationToken) -> Self {
        Self { inner, cancel: cancel.clone() }
    }
}

impl<R: Read> Read for CancelReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("the run was stopped while the file was read"));
        }
        self.inner.read(buffer)
    }
}
