//! Supervises a plugin's process: starts it on first use, calls and pings it, and restarts it when it ends.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_runtime::task;
use homard_stdx::sync::{Mutex, MutexGuard};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Error,
    blob_refs::BlobRefs,
    circuit_breaker::{PluginBreaker, RestartBackoff},
    host_api::{HostApi, ProcessInfo},
    process::ProcessSpec,
    registrations::{RegistrationKind, Registrations},
    rpc_session::{OnProgress, RpcSession},
};

/// Timeouts and delays of plugin processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessTiming {
    /// Timeout of a start, until the plugin has sent its registrations.
    pub start: Duration,
    /// Interval of pings.
    pub ping_every: Duration,
    /// Timeout of a ping.
    pub ping_within: Duration,
    /// Delay before the first restart; doubled each time.
    pub backoff: Duration,
    /// Maximum delay.
    pub longest_backoff: Duration,
    /// Time for a graceful shutdown.
    pub grace: Duration,
}

impl Default for ProcessTiming {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(10),
            ping_every: Duration::from_secs(5),
            ping_within: Duration::from_secs(5),
            backoff: Duration::from_millis(250),
            longest_backoff: Duration::from_secs(60),
            grace: Duration::from_secs(2),
        }
    }
}

/// Registrations of the plugins in a process, or why one could not be loaded.
pub(crate) type LoadedPlugins = Vec<(String, Result<Registrations, String>)>;

/// Why the initial exchange with a process failed.
#[derive(Debug)]
pub(crate) enum InitError {
    /// Retried after a delay.
    Retry(String),
    /// One of its plugins is the cause and is skipped from now on; retried at once.
    SkipPlugin(String),
}

/// Launcher: how a process is started and initialised.
#[async_trait]
pub(crate) trait Launcher: Send + Sync {
    /// Describes the process to the host API.
    fn process_info(&self) -> ProcessInfo;

    /// Returns how to start it; an error says what the owner has to do.
    async fn process_spec(&self) -> Result<ProcessSpec, String>;

    /// Initialises the process and returns its registrations.
    async fn initialise(&self, session: &RpcSession, timeout: Duration) -> Result<LoadedPlugins, InitError>;

    /// Stores the registrations of a process that was initialised.
    fn initialised(&self, loaded: &LoadedPlugins);
}

/// Address of a registration: plugin, kind, name, and index among those with the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RegistrationAddress {
    pub(crate) plugin: String,
    pub(crate) kind: RegistrationKind,
    pub(crate) name: String,
    pub(crate) nth: usize,
}

impl RegistrationAddress {
    /// Returns the plugin id.
    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }
}

/// State of a process.
#[derive(Debug, Clone)]
pub(crate) enum ProcessLife {
    /// Not needed yet.
    Off,
    Starting,
    Up(Arc<RunningProcess>),
    Down {
        why: String,
        until: Instant,
        /// True if it is restarted at `until` without a request, because it had been up.
        restarts: bool,
    },
    /// The gateway is shutting down.
    Over,
}

/// A running, initialised process.
#[derive(Debug)]
pub(crate) struct RunningProcess {
    pub(crate) session: RpcSession,
    /// Number of this start. Anything loaded into the process must be loaded again after the next start.
    pub(crate) start: u64,
    handles: HashMap<RegistrationAddress, Value>,
    /// Plugins that are not loaded, with the reason.
    missing: HashMap<String, String>,
}

impl RunningProcess {
    fn new(session: RpcSession, start: u64, loaded: &LoadedPlugins) -> Self {
        let (mut handles, mut missing) = (HashMap::new(), HashMap::new());
        for (plugin, registrations) in loaded {
            match registrations {
                Ok(registrations) => handles.extend(addresses(plugin, registrations)),
                Err(reason) => drop(missing.insert(plugin.clone(), reason.clone())),
            }
        }
        Self { session, start, handles, missing }
    }

    /// Returns the process's handle of a registration.
    pub(crate) fn handle(&self, address: &RegistrationAddress) -> Result<&Value, Error> {
        let RegistrationAddress { plugin, name, .. } = address;
        self.handles.get(address).ok_or_else(|| match self.missing.get(plugin) {
            Some(reason) => Error::Unavailable(reason.clone()),
            None => Error::Failed(format!("the plugin {plugin} did not register {name:?} at its last start")),
        })
    }
}

/// Returns all registrations of a plugin with their handles, which default to the names.
pub(crate) fn addresses(plugin: &str, registrations: &Registrations) -> Vec<(RegistrationAddress, Value)> {
    let mut counts: HashMap<(RegistrationKind, &str), usize> = HashMap::new();
    let mut all = Vec::new();
    for (kind, name, handle) in registrations.handles() {
        let count = counts.entry((kind, name)).or_default();
        let address = RegistrationAddress { plugin: plugin.to_owned(), kind, name: name.to_owned(), nth: *count };
        *count += 1;
        all.push((address, if handle.is_null() { json!(name) } else { handle.clone() }));
    }
    all
}

/// Serialised parameters of a call.
pub(crate) struct CallParams {
    pub(crate) params: Box<RawValue>,
    /// Values that can be fetched while the call is open.
    pub(crate) blobs: Option<BlobRefs>,
}

impl CallParams {
    pub(crate) fn plain(params: &Value) -> Result<Self, Error> {
        Ok(Self { params: to_raw_value(params).map_err(|error| Error::Failed(error.to_string()))?, blobs: None })
    }
}

/// What happens to a call whose process ends before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It fails, unless the process cannot have read it: its effect must not happen twice.
    AtMostOnce,
    /// It is sent again to the next process, within its deadline. Only an answer acknowledges it, so an event that was
    /// handled by a process that ended before it answered is handled twice.
    AtLeastOnce,
}

/// A call to a plugin.
pub(crate) struct PluginCall<'a> {
    pub(crate) plugin: &'a str,
    pub(crate) method: &'a str,
    pub(crate) timeout: Duration,
    pub(crate) delivery: Delivery,
    pub(crate) on_progress: Option<OnProgress>,
}

/// Supervisor of a plugin's process.
pub(crate) struct ProcessSupervisor {
    launch: Box<dyn Launcher>,
    timing: ProcessTiming,
    state: watch::Sender<ProcessLife>,
    wanted: Notify,
    /// Notified when a call failed, so that the process is pinged at once.
    ping_requested: Notify,
    breakers: Mutex<HashMap<String, PluginBreaker>>,
    /// Number of successful starts.
    starts: AtomicU64,
    /// Running services and their parameters: they are restarted with the process.
    services: Mutex<BTreeMap<RegistrationAddress, Value>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for ProcessSupervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessSupervisor").field("name", &self.name()).field("life", &*self.state.borrow()).finish()
    }
}

impl ProcessSupervisor {
    /// Creates a supervisor; the process is not started yet. It ends with `stop`; waiting for `tasks` includes that.
    pub(crate) fn new(
        launch: Box<dyn Launcher>,
        timing: ProcessTiming,
        stop: CancellationToken,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        let worker = Arc::new(Self {
            launch,
            timing,
            state: watch::Sender::new(ProcessLife::Off),
            wanted: Notify::new(),
            ping_requested: Notify::new(),
            breakers: Mutex::default(),
            starts: AtomicU64::new(0),
            services: Mutex::default(),
            stop,
            tasks: tasks.clone(),
        });
        task::spawn("plugin", tasks.track_future(worker.clone().supervise()));
        worker
    }

    fn name(&self) -> String {
        self.launch.process_info().name
    }

    /// Returns its state, now and in future.
    pub(crate) fn state(&self) -> watch::Receiver<ProcessLife> {
        self.state.subscribe()
    }

    /// Time until a plugin's circuit breaker closes, if it is open.
    pub(crate) fn breaker_open_for(&self, plugin: &str) -> Option<Duration> {
        self.lock_breakers().get(plugin).and_then(|breaker| breaker.circuit.open_for(Instant::now()))
    }

    fn lock_breakers(&self) -> MutexGuard<'_, HashMap<String, PluginBreaker>> {
        self.breakers.lock()
    }

    /// Returns the process, starting it on first use. An error if it is down.
    pub(crate) async fn up(&self) -> Result<Arc<RunningProcess>, Error> {
        self.up_before(Instant::now()).await
    }

    /// Returns the process, starting it on first use. While it is being restarted, callers wait, unless the restart is
    /// later than `deadline`: then the error is returned at once, because waiting would be pointless.
    async fn up_before(&self, deadline: Instant) -> Result<Arc<RunningProcess>, Error> {
        let mut state_changes = self.state.subscribe();
        loop {
            match &*state_changes.borrow_and_update() {
                ProcessLife::Up(process) if !process.session.has_ended() => return Ok(process.clone()),
                ProcessLife::Off => self.wanted.notify_one(),
                // A process that has ended is about to be marked as down.
                ProcessLife::Starting | ProcessLife::Up(_) => {}
                ProcessLife::Down { restarts: true, until, .. } if *until < deadline => {}
                ProcessLife::Down { why, until, .. } => {
                    let remaining = until.saturating_duration_since(Instant::now()).as_secs() + 1;
                    return Err(Error::Unavailable(format!(
                        "{why}; the plugin process is started again in {remaining} s at the earliest"
                    )));
                }
                ProcessLife::Over => return Err(Error::Unavailable("the gateway is shutting down".to_owned())),
            }
            if state_changes.changed().await.is_err() {
                return Err(Error::Unavailable("the gateway is shutting down".to_owned()));
            }
        }
    }

    /// Returns the process, starting it on first use; if it is down, why and how long at least.
    pub(crate) async fn up_or_down(&self) -> Result<Arc<RunningProcess>, (String, Duration)> {
        let mut state_changes = self.state.subscribe();
        let is_closing = || ("the gateway is shutting down".to_owned(), Duration::MAX);
        loop {
            match &*state_changes.borrow_and_update() {
                ProcessLife::Up(process) if !process.session.has_ended() => return Ok(process.clone()),
                ProcessLife::Off => self.wanted.notify_one(),
                ProcessLife::Starting | ProcessLife::Up(_) => {}
                ProcessLife::Down { why, until, .. } => {
                    return Err((why.clone(), until.saturating_duration_since(Instant::now())));
                }
                ProcessLife::Over => return Err(is_closing()),
            }
            state_changes.changed().await.map_err(|_closed| is_closing())?;
        }
    }

    /// Returns the process if it is up within the deadline of a call.
    async fn up_in_time(
        &self,
        plugin: &str,
        started_at: Instant,
        time_limit: Duration,
    ) -> Result<Arc<RunningProcess>, Error> {
        let deadline = started_at + time_limit;
        match timeout_at(deadline, self.up_before(deadline)).await {
            Ok(up) => up,
            // The plugin is not blamed for a process that had been up and takes long to restart.
            Err(_) if self.starts.load(Ordering::Relaxed) > 0 => Err(Error::Unavailable(format!(
                "the plugin process was not ready within {} ms",
                time_limit.as_millis()
            ))),
            Err(_) => {
                self.record_failure(plugin, &Error::Timeout(time_limit), 0);
                Err(Error::Timeout(time_limit))
            }
        }
    }

    /// Calls a method of a plugin. Starting or restarting the process counts towards the deadline. With
    /// [`Delivery::AtLeastOnce`], a call whose process ended is repeated; each time counts as a failure, until the
    /// circuit breaker opens.
    pub(crate) async fn call(
        &self,
        plugin_call: PluginCall<'_>,
        mut write: impl FnMut(&RunningProcess) -> Result<CallParams, Error>,
    ) -> Result<Value, Error> {
        let PluginCall { plugin, method, timeout: time_limit, delivery, on_progress } = plugin_call;
        let (started_at, mut on_progress) = (Instant::now(), on_progress);
        let (process, answer) = loop {
            if let Some(remaining) = self.breaker_open_for(plugin) {
                return Err(Error::Unavailable(format!(
                    "the plugin failed too often and is suspended for {} s",
                    remaining.as_secs() + 1
                )));
            }
            let process = self.up_in_time(plugin, started_at, time_limit).await?;
            let CallParams { params, blobs } = write(&process)?;
            let (remaining_time, has_progress) =
                (time_limit.saturating_sub(started_at.elapsed()), on_progress.is_some());
            let (answer, is_sent) =
                process.session.call_once(method, &params, remaining_time, on_progress.take()).await;
            drop(blobs);
            match &answer {
                // The process ended before the request was sent, so it had no effect and is sent to the next process.
                Err(Error::Unavailable(_)) if !is_sent && !has_progress => {}
                Err(error @ Error::Unavailable(_)) if delivery == Delivery::AtLeastOnce => {
                    self.record_failure(plugin, error, process.start);
                }
                _ => break (process, answer),
            }
        };
        match answer {
            Ok(answer) => {
                self.lock_breakers().entry(plugin.to_owned()).or_default().circuit.record_success();
                Ok(answer)
            }
            Err(error) => {
                let error = if let Error::Timeout(_) = error { Error::Timeout(time_limit) } else { error };
                if error.trips_breaker() {
                    self.record_failure(plugin, &error, process.start);
                }
                Err(error)
            }
        }
    }

    /// Records a failure of a plugin, and in which start of its process.
    fn record_failure(&self, plugin: &str, error: &Error, start: u64) {
        let is_tripped = {
            let mut breakers = self.lock_breakers();
            let breaker = breakers.entry(plugin.to_owned()).or_default();
            match error {
                Error::Unavailable(_) => breaker.record_exit(start, Instant::now()),
                Error::Timeout(_) | Error::Failed(_) => breaker.circuit.record_failure(Instant::now()),
            }
        };
        if is_tripped {
            tracing::warn!(plugin, %error, "plugin failed three times within a minute; suspending it for a minute");
        }
        self.ping_requested.notify_one();
    }

    /// Starts a service, now and after every restart of the process.
    pub(crate) async fn start_service(&self, service: &RegistrationAddress, context: Value) -> Result<(), Error> {
        // A restart starts all recorded services, so this one is recorded only once the process is up; otherwise it
        // would be started twice.
        let up = self.up().await;
        self.services.lock().insert(service.clone(), context.clone());
        up?;
        let call = PluginCall {
            plugin: &service.plugin,
            method: "service.start",
            timeout: self.timing.start,
            delivery: Delivery::AtMostOnce,
            on_progress: None,
        };
        self.call(call, |up| CallParams::plain(&json!({"ref": up.handle(service)?, "ctx": context}))).await?;
        Ok(())
    }

    /// Stops a service, if its process runs.
    pub(crate) async fn stop_service(&self, service: &RegistrationAddress) {
        self.services.lock().remove(service);
        let ProcessLife::Up(process) = self.state.borrow().clone() else { return };
        let Ok(call) = process.handle(service).and_then(|handle| CallParams::plain(&json!({"ref": handle}))) else {
            return;
        };
        if let Err(error) = process.session.call("service.stop", &call.params, self.timing.grace, None).await {
            tracing::warn!(plugin = service.plugin, service = service.name, %error, "failed to stop a plugin service");
        }
    }

    fn set(&self, state: ProcessLife) {
        self.state.send_replace(state);
    }

    /// Supervises the process from its first use until shutdown.
    async fn supervise(self: Arc<Self>) {
        let mut backoff = RestartBackoff::new(self.timing.backoff, self.timing.longest_backoff);
        let mut is_wanted = false;
        while is_wanted || self.stop.run_until_cancelled(self.wanted.notified()).await.is_some() {
            self.set(ProcessLife::Starting);
            let Some(result) = self.stop.run_until_cancelled(self.start()).await else { break };
            let (why, was_up, ended_process) = match result {
                Ok(process) => {
                    let since = Instant::now();
                    self.set(ProcessLife::Up(process.clone()));
                    let Some(why) = self.watch(&process).await else {
                        self.end(&process).await;
                        break;
                    };
                    (why, Some(since.elapsed()), Some(process))
                }
                Err(InitError::SkipPlugin(why)) => {
                    tracing::warn!(
                        worker = self.name(),
                        why,
                        "failed to load a plugin; its process continues without it"
                    );
                    is_wanted = true;
                    continue;
                }
                Err(InitError::Retry(why)) => (why, None, None),
            };
            let wait = backoff.after(was_up.unwrap_or_default());
            tracing::warn!(worker = self.name(), why, ?wait, "plugin process is down");
            let until = Instant::now() + wait;
            // Published before the process is ended, which takes a while.
            self.set(ProcessLife::Down { why: why.clone(), until, restarts: was_up.is_some() });
            if let Some(process) = ended_process {
                process.session.end(&why).await;
            }
            if self.stop.run_until_cancelled(sleep_until(until)).await.is_none() {
                break;
            }
            // A process that could not be started is tried again on the next request.
            is_wanted = was_up.is_some() || !self.services.lock().is_empty();
            if !is_wanted {
                self.set(ProcessLife::Off);
            }
        }
        self.set(ProcessLife::Over);
    }

    /// Starts and initialises the process, and restarts its services.
    async fn start(&self) -> Result<Arc<RunningProcess>, InitError> {
        let spec = self.launch.process_spec().await.map_err(InitError::Retry)?;
        let session = RpcSession::open(&spec, HostApi::new(self.launch.process_info()), &self.tasks)
            .map_err(|error| InitError::Retry(format!("failed to start the plugin process: {error}")))?;
        let loaded = match self.launch.initialise(&session, self.timing.start).await {
            Ok(loaded) => loaded,
            Err(init_error) => {
                session.end("initialization failed").await;
                return Err(init_error);
            }
        };
        self.launch.initialised(&loaded);
        let process = Arc::new(RunningProcess::new(session, self.starts.fetch_add(1, Ordering::Relaxed) + 1, &loaded));
        let services = self.services.lock().clone();
        for (service, context) in services {
            let Ok(call) =
                process.handle(&service).and_then(|handle| CallParams::plain(&json!({"ref": handle, "ctx": context})))
            else {
                continue;
            };
            if let Err(error) = process.session.call("service.start", &call.params, self.timing.start, None).await {
                tracing::warn!(plugin = service.plugin, service = service.name, %error, "failed to restart a plugin service");
            }
        }
        Ok(process)
    }

    /// Waits until the process is gone or hangs, and returns the reason; `None` at shutdown.
    async fn watch(&self, process: &RunningProcess) -> Option<String> {
        // A process with a single plugin may do one thing at a time: being busy does not mean that it hangs.
        let is_shared = self.launch.process_info().is_shared;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                reason = process.session.ended() => return Some(reason),
                () = self.ping_requested.notified() => {}
                () = sleep(self.timing.ping_every) => {}
            }
            if !is_shared && !process.session.is_idle() {
                continue;
            }
            let nothing = to_raw_value(&json!({})).unwrap_or_default();
            let ping = process.session.call("ping", &nothing, self.timing.ping_within, None);
            match self.stop.run_until_cancelled(ping).await? {
                // An error response shows that it is alive, too.
                Ok(_) | Err(Error::Failed(_)) => {}
                Err(Error::Timeout(timeout)) => {
                    return Some(format!("the plugin process did not answer a ping within {} ms", timeout.as_millis()));
                }
                Err(Error::Unavailable(reason)) => return Some(reason),
            }
        }
    }

    /// Ends the process gracefully.
    async fn end(&self, process: &RunningProcess) {
        let grace = self.timing.grace;
        if let Ok(call) = CallParams::plain(&json!({"graceMs": grace.as_millis() as u64}))
            && process.session.call("shutdown", &call.params, grace, None).await.is_ok()
        {
            // It confirmed the shutdown; wait for its exit.
            timeout(grace, process.session.ended()).await.ok();
        }
        process.session.end("the gateway is shutting down").await;
    }
}

#[cfg(test)]
mod tests;
