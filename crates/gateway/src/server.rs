//! The gateway server: listeners, state shared by all connections, and shutdown.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use homard_agent::{Hub, HubEvent};
use homard_runtime::task;
use homard_schedule::Schedule;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::mpsc::UnboundedReceiver,
    time::Instant,
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use crate::{
    auth::{AuthLimiter, MIN_TOKEN_CHARS, Secret},
    broadcaster::Broadcaster,
    control_ui::{ControlUi, OwnPage},
    device::UsedSignatures,
    devices::{DeviceListError, Devices, PairedDevices},
    extra_methods::Method,
    http,
    log_buffer::LogBuffer,
    login_codes::LoginCodes,
    methods::system_info::CpuMeter,
    metrics::{Metrics, MetricsSource, RunEndCallback},
    openai::Endpoints,
    origin_check::{OriginRules, RemotePolicy},
    outages::Outages,
    plugin_routes::PluginEndpoints,
    preauth::{PeerInfo, PreAuthLimiter, PreAuthListener},
    presence::{self, Presence},
    projector::{PendingProjector, Projector},
    router, session_changes,
    tls::Tls,
    warnings::OperatorWarnings,
    webhooks::{self, WebhookContext, WebhookServer, Webhooks},
};

/// Kernel send buffer per socket in bytes. Linux doubles the value.
const SEND_BUFFER: u32 = 128 * 1024;

/// Length of the listen backlog.
const BACKLOG: u32 = 1024;

/// Time connections have to close at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of a gateway.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Addresses to listen on. An IPv6 address that follows another one is skipped on a machine without IPv6.
    pub bind: Vec<SocketAddr>,
    /// Shared secret that authenticates the owner.
    pub secret: Secret,
    /// Origins of pages that may connect although the gateway does not serve them, such as `https://desk.example`.
    pub allowed_origins: Vec<String>,
    /// Trusted proxies: their `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpAddr>,
    /// TLS settings, if enabled.
    pub tls: Option<Tls>,
    /// Serve other machines without encryption.
    pub allow_insecure: bool,
    /// State directory, reported to clients.
    pub state_dir: PathBuf,
    /// Config file, reported to clients.
    pub config_path: Option<PathBuf>,
}

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is in use.
    #[error("port {} on {} is in use; stop the other gateway or choose another with --port", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// The address is reachable from other machines without encryption.
    #[error(
        "{0} is reachable from other machines, and without TLS the token and all messages are sent unencrypted. Set \
         gateway.tls.enabled to true; or add the proxy that terminates TLS for the gateway to gateway.trustedProxies; \
         or, if the network is trusted, set gateway.allowInsecure to true. To accept local connections only, set \
         gateway.bind to loopback"
    )]
    Exposed(IpAddr),
    /// The address is reachable from other machines and the token is too short.
    #[error(
        "{address} is reachable from other machines, and a token of {length} characters can be guessed; use a token \
         of at least {MIN_TOKEN_CHARS} characters, or remove it to let the gateway generate one"
    )]
    ShortToken {
        /// The address.
        address: IpAddr,
        /// Length of the token in characters.
        length: usize,
    },
    /// Listening failed.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// No address is configured.
    #[error("no address to listen on; specify at least one")]
    NoAddress,
    /// Neither token nor password is set.
    #[error("neither a token nor a password is set; set one of them")]
    NoSecret,
    /// The list of paired devices cannot be read.
    #[error(transparent)]
    Devices(#[from] DeviceListError),
}

/// A gateway that is bound to its addresses and not serving yet.
pub struct Gateway {
    listeners: Vec<(TcpListener, SocketAddr)>,
    settings: Settings,
    paired: PairedDevices,
    warnings: OperatorWarnings,
    schedule: Result<Schedule, String>,
    methods: Vec<Method>,
    endpoints: Endpoints,
    webhooks: Option<Webhooks>,
    control_ui: Option<ControlUi>,
    log: LogBuffer,
    plugins: Option<Arc<dyn PluginEndpoints>>,
    more_metrics: Option<MetricsSource>,
    outages: Option<Outages>,
    on_run_end: Option<RunEndCallback>,
    projector: PendingProjector,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Opens a listener with a bounded send buffer. With the kernel's default, megabytes of events would be copied for each
/// peer that does not read.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns the listener for an address: an inherited one that listens there, else a new one. An inherited listener fits
/// any port if the system may choose the port.
fn open_listener(address: SocketAddr, inherited: &mut Vec<std::net::TcpListener>) -> io::Result<TcpListener> {
    let fits = |listener: &std::net::TcpListener| {
        let local = listener.local_addr();
        local.is_ok_and(|local| local.ip() == address.ip() && (address.port() == 0 || local.port() == address.port()))
    };
    let Some(index) = inherited.iter().position(fits) else { return listen(address) };
    let listener = inherited.swap_remove(index);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Opens the listeners, so that a port conflict is found before anything else starts.
pub async fn bind(settings: Settings) -> Result<Gateway, Error> {
    bind_with(settings, Vec::new()).await
}

/// Same as [`bind`], with listeners that a service manager or the previous process opened. Those that listen on none of
/// the addresses are closed, with a warning.
pub async fn bind_with(settings: Settings, mut inherited: Vec<std::net::TcpListener>) -> Result<Gateway, Error> {
    if settings.secret.is_empty() {
        return Err(Error::NoSecret);
    }
    let paired = PairedDevices::read(&settings.state_dir)?;
    let mut listeners = Vec::new();
    for &(mut address) in &settings.bind {
        settings.check_address(address.ip())?;
        let chosen_port =
            listeners.first().map(|(_, first): &(_, SocketAddr)| first.port()).filter(|_| address.port() == 0);
        // The port that the system chose for the first address is used for all.
        address.set_port(chosen_port.unwrap_or(address.port()));
        let result = open_listener(address, &mut inherited).and_then(|listener| Ok((listener.local_addr()?, listener)));
        match result {
            Ok((local, listener)) => listeners.push((listener, local)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && chosen_port.is_none() => {
                return Err(Error::InUse(address));
            }
            Err(error) if address.is_ipv6() && !listeners.is_empty() => {
                tracing::debug!(%error, %address, "not listening on an additional address");
            }
            Err(error) => return Err(Error::Listen { address, error }),
        }
    }
    if listeners.is_empty() {
        return Err(Error::NoAddress);
    }
    for unused in inherited {
        let address = unused.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string());
        tracing::warn!(
            address,
            "closing an inherited socket whose address is not configured; if a service manager opened it, run homard gateway install again"
        );
    }
    Ok(Gateway {
        listeners,
        settings,
        paired,
        warnings: OperatorWarnings::default(),
        schedule: Err("the scheduler is not available".to_owned()),
        methods: Vec::new(),
        endpoints: Endpoints::default(),
        webhooks: None,
        control_ui: None,
        log: LogBuffer::default(),
        plugins: None,
        more_metrics: None,
        outages: None,
        on_run_end: None,
        projector: PendingProjector::new(),
    })
}

impl Settings {
    /// Checks whether an address may be listened on.
    fn check_address(&self, address: IpAddr) -> Result<(), Error> {
        let address = address.to_canonical();
        if address.is_loopback() {
            return Ok(());
        }
        let length = self.secret.token_length().unwrap_or(MIN_TOKEN_CHARS);
        if length < MIN_TOKEN_CHARS {
            return Err(Error::ShortToken { address, length });
        }
        let is_secret = self.tls.is_some() || is_tailnet(address);
        let has_proxy = self.trusted_proxies.iter().any(|proxy| !proxy.to_canonical().is_loopback());
        if is_secret || has_proxy || self.allow_insecure { Ok(()) } else { Err(Error::Exposed(address)) }
    }

    /// Returns the policy for other machines. A Tailscale network encrypts by itself.
    fn remote_policy(&self) -> RemotePolicy {
        let is_private = |address: &SocketAddr| {
            let address = address.ip().to_canonical();
            address.is_loopback() || is_tailnet(address)
        };
        let allows_all = self.tls.is_some() || self.allow_insecure || self.bind.iter().all(is_private);
        if allows_all { RemotePolicy::All } else { RemotePolicy::TrustedProxies }
    }
}

/// True for addresses of a Tailscale network.
fn is_tailnet(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            first == 100 && (64..128).contains(&second)
        }
        IpAddr::V6(address) => address.segments()[..3] == [0xfd7a, 0x115c, 0xa1e0],
    }
}

impl Gateway {
    /// Returns the addresses it listens on, with the ports that the system chose.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|(_, address)| *address).collect()
    }

    /// Returns duplicates of the listeners, which stay open when the gateway has stopped: connections then wait for the
    /// next process that serves them.
    pub fn duplicate_listeners(&self) -> io::Result<Vec<std::net::TcpListener>> {
        self.listeners.iter().map(|(listener, _)| Ok(listener.as_fd().try_clone_to_owned()?.into())).collect()
    }

    /// Returns the warnings that health reports; they may change while the gateway serves.
    pub fn warnings(&self) -> OperatorWarnings {
        self.warnings.clone()
    }

    /// Registers further methods. Names that are taken are ignored.
    pub fn with_methods(mut self, methods: Vec<Method>) -> Self {
        let all = self.methods.into_iter().chain(methods).collect();
        self.methods = router::without_duplicates(all);
        self
    }

    /// Enables the OpenAI-compatible HTTP endpoints.
    pub fn with_endpoints(mut self, endpoints: Endpoints) -> Self {
        self.endpoints = endpoints;
        self
    }

    /// Adds the methods and routes of plugins.
    pub fn with_plugins(mut self, plugins: Arc<dyn PluginEndpoints>) -> Self {
        self.plugins = Some(plugins);
        self
    }

    /// Adds metrics to the `/metrics` page.
    pub fn with_metrics(mut self, metrics: MetricsSource) -> Self {
        self.more_metrics = Some(metrics);
        self
    }

    /// Sets a callback for finished runs.
    pub fn on_run_end(mut self, callback: RunEndCallback) -> Self {
        self.on_run_end = Some(callback);
        self
    }

    /// Enables webhooks.
    pub fn with_webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = Some(webhooks);
        self
    }

    /// Adds a source of outages, which health reports.
    pub fn with_outages(mut self, outages: Outages) -> Self {
        self.outages = Some(outages);
        self
    }

    /// Returns the source of outages.
    pub fn outages(&self) -> Option<Outages> {
        self.outages.clone()
    }

    /// Sets the log buffer that `logs.tail` reads.
    pub fn with_log(mut self, log: LogBuffer) -> Self {
        self.log = log;
        self
    }

    /// Serves an installed Control UI.
    pub fn with_control_ui(mut self, control_ui: ControlUi) -> Self {
        self.control_ui = Some(control_ui);
        self
    }

    /// Returns a handle for broadcasting events to clients.
    pub fn broadcaster(&self) -> Broadcaster {
        Broadcaster::new(self.projector.projector())
    }

    /// Sets the schedule, or the reason why there is none.
    pub fn with_schedule(mut self, schedule: Result<Schedule, String>) -> Self {
        self.schedule = schedule;
        self
    }

    /// Serves until `stop` is cancelled, then notifies all clients and returns. Runs belong to the hub and are not
    /// stopped here.
    pub async fn serve(self, hub: Hub, feed: UnboundedReceiver<HubEvent>, stop: CancellationToken) {
        let rules = OriginRules {
            remote: self.settings.remote_policy(),
            origins: self.settings.allowed_origins,
            proxies: self.settings.trusted_proxies.iter().map(IpAddr::to_canonical).collect(),
        };
        let (tls, proxies) = (self.settings.tls, rules.proxies.clone());
        let tool_hub = hub.clone();
        let is_tool = move |name: &str| tool_hub.agents().iter().any(|agent| agent.toolbox.has(name));
        let metrics = Metrics::new(is_tool, self.on_run_end);
        let (projector, projector_task, session_changes_feed) = self.projector.start(feed, metrics.clone());
        let change_task = session_changes::publish(hub.clone(), projector.clone(), session_changes_feed);
        let message_task = projector.messages().publish(hub.clone(), projector.clone());
        let projector_task = AbortOnDropHandle::new(projector_task);
        let schedule_task = self.schedule.as_ref().ok().map(|schedule| projector.publish_schedule(schedule));
        let closing = CancellationToken::new();
        let audit = hub.audit();
        let server = Arc::new(ServerState {
            hub,
            projector,
            auth: AuthLimiter::new(self.settings.secret).with_audit(audit.clone()),
            devices: Arc::new(Devices::new(&self.settings.state_dir, self.paired, audit.clone())),
            used_signatures: UsedSignatures::default(),
            login_codes: LoginCodes::default(),
            origin_rules: rules,
            preauth: PreAuthLimiter::default(),
            state_dir: self.settings.state_dir,
            config_path: self.settings.config_path,
            warnings: self.warnings,
            schedule: self.schedule,
            routes: Routes {
                methods: self.methods,
                plugins: self.plugins,
                endpoints: self.endpoints,
                webhooks: self.webhooks.map(|settings| Arc::new(WebhookServer::new(settings, audit))),
                control_ui: self.control_ui,
                own_page: OwnPage::default(),
            },
            monitoring: Monitoring {
                log: self.log,
                metrics,
                more_metrics: self.more_metrics,
                outages: self.outages,
                cpu_meter: CpuMeter::new(),
            },
            presence: Arc::default(),
            started: Instant::now(),
            stop: closing.clone(),
            connections: TaskTracker::new(),
            count: AtomicU64::new(0),
        });
        let presence = presence::publish(server.clone());
        if let Some(hooks) = &server.routes.webhooks {
            webhooks::resume_reports(&WebhookContext { server: server.clone(), hooks: hooks.clone() }).await;
        }
        let serve_listener = |(listener, _)| {
            let (limiter, tls, proxies) = (server.preauth.clone(), tls.clone(), proxies.clone());
            let (stop, ending) = (closing.clone(), stop.clone());
            let graceful = ending.clone();
            let preauth_listener = PreAuthListener { listener, limiter, tls, proxies, stop, ending };
            let service = http::app(server.clone()).into_make_service_with_connect_info::<PeerInfo>();
            let serving = axum::serve(preauth_listener, service).with_graceful_shutdown(graceful.cancelled_owned());
            AbortOnDropHandle::new(task::spawn("listener", serving.into_future()))
        };
        let listeners: Vec<_> = self.listeners.into_iter().map(serve_listener).collect();
        stop.cancelled().await;
        // Requests that wait for a run get its result before the connection closes.
        server.projector.drain().await;
        closing.cancel();
        server.connections.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, server.connections.wait()).await.is_err() {
            tracing::warn!("some client connections did not close in time");
        }
        // Aborts the tasks that are still running.
        drop((listeners, schedule_task, change_task, message_task, presence, projector_task));
    }
}

/// State shared by all connections.
pub(crate) struct ServerState {
    pub(crate) hub: Hub,
    pub(crate) projector: Projector,
    pub(crate) auth: AuthLimiter,
    /// Paired devices.
    pub(crate) devices: Arc<Devices>,
    /// Nonce-less device signatures that were used already.
    pub(crate) used_signatures: UsedSignatures,
    /// One-time codes with which browsers sign in.
    pub(crate) login_codes: LoginCodes,
    pub(crate) origin_rules: OriginRules,
    /// Unauthenticated connections.
    pub(crate) preauth: PreAuthLimiter,
    pub(crate) state_dir: PathBuf,
    pub(crate) config_path: Option<PathBuf>,
    /// Warnings for operators.
    pub(crate) warnings: OperatorWarnings,
    /// The schedule, or the reason why there is none.
    pub(crate) schedule: Result<Schedule, String>,
    pub(crate) routes: Routes,
    pub(crate) monitoring: Monitoring,
    pub(crate) presence: Arc<Presence>,
    pub(crate) stop: CancellationToken,
    /// Each connection holds a token, so that shutdown can wait for all of them.
    pub(crate) connections: TaskTracker,
    started: Instant,
    count: AtomicU64,
}

/// Methods and HTTP routes besides those of the protocol.
pub(crate) struct Routes {
    /// Registered methods.
    pub(crate) methods: Vec<Method>,
    /// Methods and routes of plugins.
    pub(crate) plugins: Option<Arc<dyn PluginEndpoints>>,
    /// Enabled OpenAI-compatible endpoints.
    pub(crate) endpoints: Endpoints,
    /// Webhooks, if enabled.
    pub(crate) webhooks: Option<Arc<WebhookServer>>,
    /// The installed Control UI, if there is one.
    pub(crate) control_ui: Option<ControlUi>,
    /// Homard's own page.
    pub(crate) own_page: OwnPage,
}

/// What operators can watch.
pub(crate) struct Monitoring {
    /// Recent log lines.
    pub(crate) log: LogBuffer,
    pub(crate) metrics: Metrics,
    /// Further metrics.
    pub(crate) more_metrics: Option<MetricsSource>,
    pub(crate) outages: Option<Outages>,
    /// CPU utilisation of the process.
    pub(crate) cpu_meter: CpuMeter,
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState").field("rules", &self.origin_rules).finish_non_exhaustive()
    }
}

impl ServerState {
    /// Time since the server started, in milliseconds.
    pub(crate) fn uptime_ms(&self) -> u64 {
        homard_stdx::time::millis(self.started.elapsed())
    }

    /// Returns a unique connection number.
    pub(crate) fn next_connection(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}
