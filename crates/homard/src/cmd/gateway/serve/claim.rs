//! How a gateway obtains its state directory: if it is free, from the gateway of a chat, or from another process with
//! `--takeover`.

use std::{path::Path, time::Duration};

use anyhow::Result;
use homard_app::Error as AppError;
use homard_client::chat_gateway;
use homard_journal::lock::{self, LockHolder};
use homard_store::Error as StoreError;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

/// How long another process may take to exit, and the interval of checks.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// What to do if another process holds the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Fail.
    Fail,
    /// Stop it if it is the gateway of a chat, which then uses this one; fail otherwise.
    FromChat,
    /// Wait for it: after a hand-over, a command may have been quicker, or the previous process may still be exiting.
    Wait,
    /// Kill that process and resume its runs.
    Takeover,
}

/// Opens a state directory.
pub(super) async fn open<T>(state: &Path, claim: Claim, open: impl Fn() -> Result<T, AppError>) -> Result<T> {
    let started_at = Instant::now();
    let mut stopped = None;
    loop {
        let error = match open() {
            Err(error) if claim != Claim::Fail && is_locked(&error) && started_at.elapsed() < EXIT_TIMEOUT => error,
            opened => return Ok(opened?),
        };
        let holder = match claim {
            Claim::Fail => None,
            Claim::FromChat | Claim::Wait => chat_gateway::holder(state),
            Claim::Takeover => lock::holder(state),
        };
        match holder {
            Some(holder) if stopped.as_ref() != Some(&holder) => {
                stop(&holder, claim)?;
                stopped = Some(holder);
            }
            Some(_) | None if stopped.is_some() || claim == Claim::Wait => sleep(RETRY_INTERVAL).await,
            Some(_) | None => return Err(error.into()),
        }
    }
}

/// Stops the process that holds the directory. The runs of a chat's gateway are interrupted, and continue in this one.
fn stop(holder: &LockHolder, claim: Claim) -> Result<()> {
    if claim == Claim::Takeover {
        tracing::warn!(%holder, "killing the process that holds the state directory, because of --takeover");
        return send(holder, Signal::KILL);
    }
    tracing::info!(%holder, "taking over from the gateway of a chat");
    send(holder, Signal::INT)
}

fn is_locked(error: &AppError) -> bool {
    matches!(error, AppError::Store(StoreError::Locked(_)))
}

#[cfg(target_os = "linux")]
fn send(holder: &LockHolder, signal: Signal) -> Result<()> {
    use anyhow::Context;
    use rustix::{
        io::Errno,
        process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal},
    };

    let pid = i32::try_from(holder.pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("the lock of the state directory names an invalid process id")?;
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot inspect {holder}")),
    };
    // Until the pidfd was opened, the pid may have been reused by another process; from then on it cannot be.
    if lock::process_start_time(holder.pid) != holder.started {
        return Ok(());
    }
    match pidfd_send_signal(&process, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot stop {holder}")),
    }
}

#[cfg(not(target_os = "linux"))]
fn send(holder: &LockHolder, _signal: Signal) -> Result<()> {
    let text = format!("taking over a state directory works on Linux only\nstop {holder} yourself, then start again");
    Err(crate::cli_error::CliError::usage(text).into())
}
