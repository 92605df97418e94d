//! What the gateway tells its service manager, and the signal by which it asks for a restart.

use anyhow::{Context, Result};
use homard_app::methods::service::Handover;
use homard_runtime::task;
use homard_service::{
    handover::{HandoverRequest, RESTART_WAIT},
    notify::{Notifier, watchdog_interval},
};
use homard_settings::paths;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

/// Connects to the service manager, if one started this process. Also starts to report that the process is alive, if
/// the manager watches it, for as long as the second value lives.
pub(super) fn connect() -> (Notifier, Option<AbortOnDropHandle<()>>) {
    let Some(address) = paths::env("NOTIFY_SOCKET") else { return Default::default() };
    let notifier = match Notifier::connect(&address) {
        Ok(notifier) => notifier,
        Err(error) => {
            tracing::warn!(%error, "cannot connect to the service manager");
            return Default::default();
        }
    };
    let text = |name| paths::env(name).and_then(|value| value.into_string().ok());
    let (micros, watched) = (text("WATCHDOG_USEC"), text("WATCHDOG_PID"));
    let interval = watchdog_interval(micros.as_deref(), watched.as_deref(), std::process::id());
    let watchdog = interval.map(|interval| {
        let notifier = notifier.clone();
        AbortOnDropHandle::new(task::spawn("watchdog", async move {
            let mut ticks = tokio::time::interval(interval);
            loop {
                ticks.tick().await;
                notifier.alive();
            }
        }))
    });
    (notifier, watchdog)
}

/// SIGUSR2, by which a service manager or an administrator asks for a restart without a pause.
#[derive(Debug)]
pub(super) struct RestartSignal {
    signal: Signal,
    /// `None` if the gateway cannot be replaced: the signal is then ignored.
    handover: Option<Handover>,
}

impl RestartSignal {
    /// Installs the handler.
    pub(super) fn listen(handover: Option<Handover>) -> Result<Self> {
        let signal = signal(SignalKind::user_defined2()).context("cannot listen for signals")?;
        Ok(Self { signal, handover })
    }

    /// Turns each signal into a request, unless the new program could not take over. Never returns.
    pub(super) async fn serve(mut self) {
        while self.signal.recv().await.is_some() {
            let Some(handover) = &self.handover else { continue };
            let program = handover.program.clone();
            let checked = tokio::task::spawn_blocking(move || program.check(homard_journal::state_format())).await;
            match checked {
                Ok(Ok(())) if handover.requests.try_send(HandoverRequest { wait: RESTART_WAIT }).is_ok() => {}
                Ok(Ok(())) => tracing::warn!("the gateway is restarting already"),
                Ok(Err(refusal)) => tracing::error!("restart refused: {refusal}"),
                Err(error) => tracing::error!("restart refused: {error}"),
            }
        }
        std::future::pending().await
    }
}
