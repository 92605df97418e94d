//! Supervises a plugin's process: starts it on first use, calls and pings it, and restarts it when it ends.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::task;
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
    door::{Behind, Door},
    large::Lent,
    link::{Link, OnProgress},
    offer::{Kind, Offers},
    process::Recipe,
    strikes::{Backoff, Strikes},
};

/// Timeouts and delays of plugin processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
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

impl Default for Timing {
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
pub(crate) type Loaded = Vec<(String, Result<Offers, String>)>;

/// Why the initial exchange with a process failed.
#[derive(Debug)]
pub(crate) enum Unwelcome {
    /// Retried after a delay.
    Later(String),
    /// One of its plugins is the cause and is skipped from now on; retried at once.
    Without(String),
}

/// Launcher: how a process is started and initialised.
#[async_trait]
pub(crate) trait Launch: Send + Sync {
    /// Describes the process to the host API.
    fn behind(&self) -> Behind;

    /// Returns how to start it; an error says what the owner has to do.
    async fn recipe(&self) -> Result<Recipe, String>;

    /// Initialises the process and returns its registrations.
    async fn greet(&self, link: &Link, within: Duration) -> Result<Loaded, Unwelcome>;

    /// Reports the registrations.
    fn greeted(&self, loaded: &Loaded);
}

/// Address of a registration: plugin, kind, name, and index among those with the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) plugin: String,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) nth: usize,
}

impl Address {
    /// Returns the plugin id.
    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }
}

/// State of a process.
#[derive(Debug, Clone)]
pub(crate) enum Life {
    /// Not needed yet.
    Off,
    Starting,
    Up(Arc<Up>),
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
pub(crate) struct Up {
    pub(crate) link: Link,
    /// Number of this start. What was loaded in one process is unknown to the next.
    pub(crate) start: u64,
    references: HashMap<Address, Value>,
    /// Plugins that are not loaded, with the reason.
    absent: HashMap<String, String>,
}

impl Up {
    fn new(link: Link, start: u64, loaded: &Loaded) -> Self {
        let (mut references, mut absent) = (HashMap::new(), HashMap::new());
        for (plugin, offers) in loaded {
            match offers {
                Ok(offers) => references.extend(addresses(plugin, offers)),
                Err(why) => drop(absent.insert(plugin.clone(), why.clone())),
            }
        }
        Self { link, start, references, absent }
    }

    /// Returns the process's handle of a registration.
    pub(crate) fn reference(&self, address: &Address) -> Result<&Value, Error> {
        let Address { plugin, name, .. } = address;
        self.references.get(address).ok_or_else(|| match self.absent.get(plugin) {
            Some(why) => Error::Gone(why.clone()),
            None => Error::Failed(format!("the plugin {plugin} did not register {name:?} this time")),
        })
    }
}

/// Returns all registrations of a plugin with their handles, which default to the names.
pub(crate) fn addresses(plugin: &str, offers: &Offers) -> Vec<(Address, Value)> {
    let mut counts: HashMap<(Kind, &str), usize> = HashMap::new();
    let mut all = Vec::new();
    for (kind, name, reference) in offers.references() {
        let count = counts.entry((kind, name)).or_default();
        let address = Address { plugin: plugin.to_owned(), kind, name: name.to_owned(), nth: *count };
        *count += 1;
        all.push((address, if reference.is_null() { json!(name) } else { reference.clone() }));
    }
    all
}

/// Serialised parameters of a call.
pub(crate) struct Paper {
    pub(crate) params: Box<RawValue>,
    /// Values that can be fetched while the call is open.
    pub(crate) lent: Option<Lent>,
}

impl Paper {
    pub(crate) fn plain(params: &Value) -> Result<Self, Error> {
        Ok(Self { params: to_raw_value(params).map_err(|error| Error::Failed(error.to_string()))?, lent: None })
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
pub(crate) struct Question<'a> {
    pub(crate) plugin: &'a str,
    pub(crate) method: &'a str,
    pub(crate) within: Duration,
    pub(crate) delivery: Delivery,
    pub(crate) on_progress: Option<OnProgress>,
}

/// Supervisor of a plugin's process.
pub(crate) struct Worker {
    launch: Box<dyn Launch>,
    timing: Timing,
    life: watch::Sender<Life>,
    wanted: Notify,
    /// Notified when a call failed, so that the process is pinged at once.
    doubted: Notify,
    strikes: Mutex<HashMap<String, Strikes>>,
    /// Number of successful starts.
    starts: AtomicU64,
    /// Running services and their parameters: they are restarted with the process.
    services: Mutex<BTreeMap<Address, Value>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("name", &self.name()).field("life", &*self.life.borrow()).finish()
    }
}

impl Worker {
    /// Creates a supervisor; the process is not started yet. It ends with `stop`; waiting for `tasks` includes that.
    pub(crate) fn new(
        launch: Box<dyn Launch>,
        timing: Timing,
        stop: CancellationToken,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        let worker = Arc::new(Self {
            launch,
            timing,
            life: watch::Sender::new(Life::Off),
            wanted: Notify::new(),
            doubted: Notify::new(),
            strikes: Mutex::default(),
            starts: AtomicU64::new(0),
            services: Mutex::default(),
            stop,
            tasks: tasks.clone(),
        });
        task::spawn("plugin", tasks.track_future(worker.clone().keep()));
        worker
    }

    fn name(&self) -> String {
        self.launch.behind().name
    }

    /// Returns its state, now and in future.
    pub(crate) fn life(&self) -> watch::Receiver<Life> {
        self.life.subscribe()
    }

    /// Time until a plugin's circuit breaker closes, if it is open.
    pub(crate) fn rest(&self, plugin: &str) -> Option<Duration> {
        self.strikes().get(plugin).and_then(|strikes| strikes.rest(Instant::now()))
    }

    fn strikes(&self) -> MutexGuard<'_, HashMap<String, Strikes>> {
        self.strikes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the process, starting it on first use. An error if it is down.
    pub(crate) async fn up(&self) -> Result<Arc<Up>, Error> {
        self.up_by(Instant::now()).await
    }

    /// Returns the process, starting it on first use. While it is being restarted, callers wait, unless the restart is
    /// later than `by`: then the error is returned at once, because waiting would be pointless.
    async fn up_by(&self, by: Instant) -> Result<Arc<Up>, Error> {
        let mut life = self.life.subscribe();
        loop {
            match &*life.borrow_and_update() {
                Life::Up(up) if !up.link.is_over() => return Ok(up.clone()),
                Life::Off => self.wanted.notify_one(),
                // A process that has ended is about to be marked as down.
                Life::Starting | Life::Up(_) => {}
                Life::Down { restarts: true, until, .. } if *until < by => {}
                Life::Down { why, until, .. } => {
                    let rest = until.saturating_duration_since(Instant::now()).as_secs() + 1;
                    return Err(Error::Gone(format!("{why}; it is started again in {rest} s")));
                }
                Life::Over => return Err(Error::Gone("the gateway goes down".to_owned())),
            }
            if life.changed().await.is_err() {
                return Err(Error::Gone("the gateway goes down".to_owned()));
            }
        }
    }

    /// Returns the process if it is up within the deadline of a call.
    async fn up_in_time(&self, plugin: &str, begun: Instant, within: Duration) -> Result<Arc<Up>, Error> {
        let by = begun + within;
        match timeout_at(by, self.up_by(by)).await {
            Ok(up) => up,
            // The plugin is not blamed for a process that had been up and takes long to restart.
            Err(_) if self.starts.load(Ordering::Relaxed) > 0 => {
                Err(Error::Gone(format!("its process was not ready within {} ms", within.as_millis())))
            }
            Err(_) => {
                self.failed(plugin, &Error::Late(within), 0);
                Err(Error::Late(within))
            }
        }
    }

    /// Calls a method of a plugin. Starting or restarting the process counts towards the deadline. An event that ends the
    /// process whenever it is sent counts as a failure each time, until the circuit breaker opens.
    pub(crate) async fn ask(
        &self,
        question: Question<'_>,
        mut write: impl FnMut(&Up) -> Result<Paper, Error>,
    ) -> Result<Value, Error> {
        let Question { plugin, method, within, delivery, on_progress } = question;
        let (begun, mut on_progress) = (Instant::now(), on_progress);
        let (up, answer) = loop {
            if let Some(rest) = self.rest(plugin) {
                return Err(Error::Gone(format!("it failed too often and is left alone for {} s", rest.as_secs() + 1)));
            }
            let up = self.up_in_time(plugin, begun, within).await?;
            let Paper { params, lent } = write(&up)?;
            let (left, is_followed) = (within.saturating_sub(begun.elapsed()), on_progress.is_some());
            let (answer, is_sent) = up.link.call_once(method, &params, left, on_progress.take()).await;
            drop(lent);
            match &answer {
                // The process ended before it could read the request, so nothing was done: the next one is called.
                Err(Error::Gone(_)) if !is_sent && !is_followed => {}
                Err(error @ Error::Gone(_)) if delivery == Delivery::AtLeastOnce => {
                    self.failed(plugin, error, up.start);
                }
                _ => break (up, answer),
            }
        };
        match answer {
            Ok(answer) => {
                self.strikes().entry(plugin.to_owned()).or_default().worked();
                Ok(answer)
            }
            Err(error) => {
                let error = if let Error::Late(_) = error { Error::Late(within) } else { error };
                if error.is_ailing() {
                    self.failed(plugin, &error, up.start);
                }
                Err(error)
            }
        }
    }

    /// Records a failure of a plugin, and in which start of its process.
    fn failed(&self, plugin: &str, error: &Error, start: u64) {
        let is_enough = {
            let mut all = self.strikes();
            let strikes = all.entry(plugin.to_owned()).or_default();
            match error {
                Error::Gone(_) => strikes.ended(start, Instant::now()),
                Error::Late(_) | Error::Failed(_) => strikes.failed(Instant::now()),
            }
        };
        if is_enough {
            tracing::warn!(plugin, %error, "a plugin failed three times within a minute and is left alone for a minute");
        }
        self.doubted.notify_one();
    }

    /// Starts a service, now and after every restart of the process.
    pub(crate) async fn begin(&self, service: &Address, context: Value) -> Result<(), Error> {
        // A restart starts all recorded services, so this one is recorded only once the process is up; otherwise it
        // would be started twice.
        let up = self.up().await;
        self.services.lock().unwrap_or_else(PoisonError::into_inner).insert(service.clone(), context.clone());
        up?;
        let question = Question {
            plugin: &service.plugin,
            method: "service.start",
            within: self.timing.start,
            delivery: Delivery::AtMostOnce,
            on_progress: None,
        };
        self.ask(question, |up| Paper::plain(&json!({"ref": up.reference(service)?, "ctx": context}))).await?;
        Ok(())
    }

    /// Stops a service, if its process runs.
    pub(crate) async fn finish(&self, service: &Address) {
        self.services.lock().unwrap_or_else(PoisonError::into_inner).remove(service);
        let Life::Up(up) = self.life.borrow().clone() else { return };
        let Ok(paper) = up.reference(service).and_then(|reference| Paper::plain(&json!({"ref": reference}))) else {
            return;
        };
        if let Err(error) = up.link.call("service.stop", &paper.params, self.timing.grace, None).await {
            tracing::warn!(plugin = service.plugin, service = service.name, %error, "a service did not stop");
        }
    }

    /// Sends a notification to the process, if it runs.
    pub(crate) async fn tell(&self, method: &str, params: &Value) {
        let Life::Up(up) = self.life.borrow().clone() else { return };
        up.link.tell(method, params).await;
    }

    fn set(&self, life: Life) {
        self.life.send_replace(life);
    }

    /// Supervises the process from its first use until shutdown.
    async fn keep(self: Arc<Self>) {
        let mut backoff = Backoff::new(self.timing.backoff, self.timing.longest_backoff);
        let mut is_wanted = false;
        while is_wanted || self.stop.run_until_cancelled(self.wanted.notified()).await.is_some() {
            self.set(Life::Starting);
            let Some(started) = self.stop.run_until_cancelled(self.start()).await else { break };
            let (why, was_up, link) = match started {
                Ok(up) => {
                    let since = Instant::now();
                    self.set(Life::Up(up.clone()));
                    let Some(why) = self.watch_over(&up).await else {
                        self.end(&up).await;
                        break;
                    };
                    (why, Some(since.elapsed()), Some(up))
                }
                Err(Unwelcome::Without(why)) => {
                    tracing::warn!(worker = self.name(), why, "a plugin is left out");
                    is_wanted = true;
                    continue;
                }
                Err(Unwelcome::Later(why)) => (why, None, None),
            };
            let wait = backoff.after(was_up.unwrap_or_default());
            tracing::warn!(worker = self.name(), why, ?wait, "a plugin's process is down");
            let until = Instant::now() + wait;
            // Published before the process is ended, which takes a while.
            self.set(Life::Down { why: why.clone(), until, restarts: was_up.is_some() });
            if let Some(up) = link {
                up.link.end(&why).await;
            }
            if self.stop.run_until_cancelled(sleep_until(until)).await.is_none() {
                break;
            }
            // A process that could not be started is tried again on the next request.
            is_wanted = was_up.is_some() || !self.services.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            if !is_wanted {
                self.set(Life::Off);
            }
        }
        self.set(Life::Over);
    }

    /// Starts and initialises the process, and restarts its services.
    async fn start(&self) -> Result<Arc<Up>, Unwelcome> {
        let recipe = self.launch.recipe().await.map_err(Unwelcome::Later)?;
        let link = Link::open(&recipe, Door::new(self.launch.behind()), &self.tasks)
            .map_err(|error| Unwelcome::Later(format!("it cannot be started: {error}")))?;
        let loaded = match self.launch.greet(&link, self.timing.start).await {
            Ok(loaded) => loaded,
            Err(unwelcome) => {
                link.end("it could not be greeted").await;
                return Err(unwelcome);
            }
        };
        self.launch.greeted(&loaded);
        let up = Arc::new(Up::new(link, self.starts.fetch_add(1, Ordering::Relaxed) + 1, &loaded));
        let services = self.services.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (service, context) in services {
            let Ok(paper) =
                up.reference(&service).and_then(|reference| Paper::plain(&json!({"ref": reference, "ctx": context})))
            else {
                continue;
            };
            if let Err(error) = up.link.call("service.start", &paper.params, self.timing.start, None).await {
                tracing::warn!(plugin = service.plugin, service = service.name, %error, "a service did not start again");
            }
        }
        Ok(up)
    }

    /// Waits until the process is gone or hangs, and returns the reason; `None` at shutdown.
    async fn watch_over(&self, up: &Up) -> Option<String> {
        // A process with a single plugin may do one thing at a time: being busy does not mean that it hangs.
        let is_shared = self.launch.behind().is_shared;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                why = up.link.over() => return Some(why),
                () = self.doubted.notified() => {}
                () = sleep(self.timing.ping_every) => {}
            }
            if !is_shared && !up.link.is_idle() {
                continue;
            }
            let nothing = to_raw_value(&json!({})).unwrap_or_default();
            let pinged = up.link.call("ping", &nothing, self.timing.ping_within, None);
            match self.stop.run_until_cancelled(pinged).await? {
                // An error response shows that it is alive, too.
                Ok(_) | Err(Error::Failed(_)) => {}
                Err(Error::Late(within)) => {
                    return Some(format!("it did not answer a ping within {} ms", within.as_millis()));
                }
                Err(Error::Gone(why)) => return Some(why),
            }
        }
    }

    /// Ends the process gracefully.
    async fn end(&self, up: &Up) {
        let grace = self.timing.grace;
        if let Ok(paper) = Paper::plain(&json!({"graceMs": grace.as_millis() as u64}))
            && up.link.call("shutdown", &paper.params, grace, None).await.is_ok()
        {
            // It confirmed the shutdown; wait for its exit.
            timeout(grace, up.link.over()).await.ok();
        }
        up.link.end("the gateway goes down").await;
    }
}

#[cfg(test)]
mod tests;
