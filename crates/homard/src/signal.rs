//! Termination signals.

use std::fmt;

use anyhow::{Context, Result};
use homard_runtime::task;
use tokio::signal::unix::{self, SignalKind};
use tokio_util::sync::CancellationToken;

/// A signal that asks the process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
    /// The process at the other end of standard input has ended.
    InputClosed,
}

impl Signal {
    /// Returns the exit code that shells expect after this signal.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::Hangup => 129,
            Self::InputClosed => 0,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
            Self::InputClosed => "the end of standard input",
        })
    }
}

/// Receives all of these signals from the moment it is created.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    /// Cancelled at the end of standard input, if that is watched.
    input_closed: CancellationToken,
}

impl Signals {
    /// Installs the handlers; from here on none of the signals terminates the process.
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| unix::signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            input_closed: CancellationToken::new(),
        })
    }

    /// Also watches standard input, and drops what it contains.
    pub(crate) fn listen_with_stdin() -> Result<Self> {
        let signals = Self::listen()?;
        let closed = signals.input_closed.clone();
        task::spawn("standard input", async move {
            // A failure is an end as well.
            tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await.ok();
            closed.cancel();
        });
        Ok(signals)
    }

    /// Returns the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            biased;
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            Some(()) = self.hangup.recv() => Signal::Hangup,
            () = self.input_closed.cancelled() => {
                // It is reported once; a second signal stops the process at once.
                self.input_closed = CancellationToken::new();
                Signal::InputClosed
            }
        }
    }
}
