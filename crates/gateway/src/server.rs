//! The gateway: its sockets, what all connections share, and how it stops.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use homard_agent::{Hub, HubEvent, schedule::Schedule, task};
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
    added::Method,
    admit::{Afar, Rules},
    auth::{Bouncer, LONG_ENOUGH, Secret},
    changes,
    control_ui::ControlUi,
    device::UsedSignatures,
    devices::Devices,
    foreign::Foreign,
    http,
    lobby::{Door, Lobby, Peer},
    log_book::LogBook,
    methods::machine::Meter,
    metrics::{Metrics, MoreMetrics, RunEnds},
    news::News,
    notices::Notices,
    openai::Endpoints,
    outages::Outages,
    presence::{self, Presence},
    projector::{Projector, Unstarted},
    router,
    tls::Tls,
    webhooks::{self, Hooks, Webhooks},
};

/// How much the system keeps of what a peer has not read. Linux takes twice as much.
const SEND_BUFFER: u32 = 128 * 1024;

/// How many peers wait until they are let in.
const BACKLOG: u32 = 1024;

/// How long connections may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(3);

/// What a gateway needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens. An IPv6 address after another one is skipped on a machine without IPv6.
    pub bind: Vec<SocketAddr>,
    /// Who knows this is the owner.
    pub secret: Secret,
    /// Origins of pages that may connect from elsewhere, such as `https://desk.example`.
    pub allowed_origins: Vec<String>,
    /// Proxies that may say for whom they ask.
    pub trusted_proxies: Vec<IpAddr>,
    /// How it speaks in secret, if it does.
    pub tls: Option<Tls>,
    /// Whether other machines are answered although all that is said could be read on the way.
    pub allow_insecure: bool,
    /// The state directory, told to clients.
    pub state_dir: PathBuf,
    /// The config file, told to clients.
    pub config_path: Option<PathBuf>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else listens there.
    #[error("port {} on {} is in use; stop the other gateway or choose another with --port", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// The address is reachable from other machines, and what they say could be read on the way.
    #[error(
        "{0} is reachable from other machines, and without TLS the token and every message could be read on the way. Set \
         gateway.tls.enabled to true; or name the proxy that speaks TLS for the gateway in gateway.trustedProxies; or, if \
         nobody listens on that network, set gateway.allowInsecure to true. To stay on this machine, set gateway.bind to \
         loopback"
    )]
    Exposed(IpAddr),
    /// The address is reachable from other machines, and the token could be guessed.
    #[error(
        "{address} is reachable from other machines, and a token of {length} characters can be guessed; use one of at least \
         {LONG_ENOUGH}, or none, and the gateway makes a good one"
    )]
    Guessable {
        /// The address.
        address: IpAddr,
        /// How long the token is.
        length: usize,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// There is no address.
    #[error("no address to listen on; name at least one")]
    NoAddress,
    /// Nobody could come in.
    #[error("no token and no password is set; set one of them")]
    NoSecret,
}

/// A gateway that listens and does not answer yet.
pub struct Gateway {
    listeners: Vec<(TcpListener, SocketAddr)>,
    settings: Settings,
    notices: Notices,
    schedule: Result<Schedule, String>,
    methods: Vec<Method>,
    endpoints: Endpoints,
    webhooks: Option<Webhooks>,
    control_ui: Option<ControlUi>,
    log: LogBook,
    foreign: Option<Arc<dyn Foreign>>,
    more_metrics: Option<MoreMetrics>,
    outages: Option<Outages>,
    run_ends: Option<RunEnds>,
    projector: Unstarted,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Listens there. What the system keeps for a peer that does not read is bounded: left to itself it would take megabytes,
/// and copy into them all that others read.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Opens the sockets, so that a taken port is known before anything else is started.
pub async fn bind(settings: Settings) -> Result<Gateway, Error> {
    if settings.secret.is_empty() {
        return Err(Error::NoSecret);
    }
    let mut listeners = Vec::new();
    for &(mut address) in &settings.bind {
        settings.may_open(address.ip())?;
        let chosen = listeners.first().map(|(_, first): &(_, SocketAddr)| first.port()).filter(|_| address.port() == 0);
        // The system chose one; all addresses have the same.
        address.set_port(chosen.unwrap_or(address.port()));
        let opened = listen(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
        match opened {
            Ok((local, listener)) => listeners.push((listener, local)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && chosen.is_none() => {
                return Err(Error::InUse(address));
            }
            Err(error) if address.is_ipv6() && !listeners.is_empty() => {
                tracing::debug!(%error, %address, "it does not listen there, too");
            }
            Err(source) => return Err(Error::Listen { address, source }),
        }
    }
    if listeners.is_empty() {
        return Err(Error::NoAddress);
    }
    Ok(Gateway {
        listeners,
        settings,
        notices: Notices::default(),
        schedule: Err("nothing is scheduled here".to_owned()),
        methods: Vec::new(),
        endpoints: Endpoints::default(),
        webhooks: None,
        control_ui: None,
        log: LogBook::default(),
        foreign: None,
        more_metrics: None,
        outages: None,
        run_ends: None,
        projector: Unstarted::new(),
    })
}

impl Settings {
    /// Whether an address may be listened on.
    fn may_open(&self, address: IpAddr) -> Result<(), Error> {
        let address = address.to_canonical();
        if address.is_loopback() {
            return Ok(());
        }
        let length = self.secret.token_length().unwrap_or(LONG_ENOUGH);
        if length < LONG_ENOUGH {
            return Err(Error::Guessable { address, length });
        }
        let is_secret = self.tls.is_some() || is_tailnet(address);
        let has_proxy = self.trusted_proxies.iter().any(|proxy| !proxy.to_canonical().is_loopback());
        if is_secret || has_proxy || self.allow_insecure { Ok(()) } else { Err(Error::Exposed(address)) }
    }

    /// Which other machines are answered. What comes through a Tailscale network is secret without us.
    fn afar(&self) -> Afar {
        let is_secret = |address: &SocketAddr| {
            let address = address.ip().to_canonical();
            address.is_loopback() || is_tailnet(address)
        };
        let anybody = self.tls.is_some() || self.allow_insecure || self.bind.iter().all(is_secret);
        if anybody { Afar::Anybody } else { Afar::Proxies }
    }
}

/// Whether an address is one of a Tailscale network, which encrypts what goes through it.
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
    /// Where it listens, with the ports that the system chose.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|(_, address)| *address).collect()
    }

    /// What it tells everybody who asks how it is; may change while it answers.
    pub fn notices(&self) -> Notices {
        self.notices.clone()
    }

    /// The same gateway, which has others answer these methods. A name that is taken keeps its meaning.
    pub fn with_methods(mut self, methods: Vec<Method>) -> Self {
        self.methods = router::distinct(methods);
        self
    }

    /// The same gateway, which also answers these over HTTP.
    pub fn with_endpoints(mut self, endpoints: Endpoints) -> Self {
        self.endpoints = endpoints;
        self
    }

    /// The same gateway, with what plugins add to it.
    pub fn with_foreign(mut self, foreign: Arc<dyn Foreign>) -> Self {
        self.foreign = Some(foreign);
        self
    }

    /// The same gateway, with more on the page of its metrics.
    pub fn with_metrics(mut self, more: MoreMetrics) -> Self {
        self.more_metrics = Some(more);
        self
    }

    /// The same gateway, which tells somebody of each run that is over.
    pub fn with_run_ends(mut self, ends: RunEnds) -> Self {
        self.run_ends = Some(ends);
        self
    }

    /// The same gateway, which also answers webhooks.
    pub fn with_webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = Some(webhooks);
        self
    }

    /// The same gateway, which reports in its health what is down.
    pub fn with_outages(mut self, outages: Outages) -> Self {
        self.outages = Some(outages);
        self
    }

    /// The same gateway, which tells what is in this book.
    pub fn with_log(mut self, log: LogBook) -> Self {
        self.log = log;
        self
    }

    /// The same gateway, which also serves the pages of a Control UI.
    pub fn with_control_ui(mut self, control_ui: ControlUi) -> Self {
        self.control_ui = Some(control_ui);
        self
    }

    /// A handle for telling all of its clients something.
    pub fn news(&self) -> News {
        News::new(self.projector.projector())
    }

    /// The same gateway, which answers for this schedule, or says why there is none.
    pub fn with_schedule(mut self, schedule: Result<Schedule, String>) -> Self {
        self.schedule = schedule;
        self
    }

    /// Answers until `stop` fires, then tells every client and returns. Runs are the hub's: they are not stopped here.
    pub async fn serve(self, hub: Hub, feed: UnboundedReceiver<HubEvent>, stop: CancellationToken) {
        let rules = Rules {
            afar: self.settings.afar(),
            origins: self.settings.allowed_origins,
            proxies: self.settings.trusted_proxies.iter().map(IpAddr::to_canonical).collect(),
        };
        let (tls, proxies) = (self.settings.tls, rules.proxies.clone());
        let tools = hub.clone();
        let knows = move |name: &str| tools.agents().iter().any(|agent| agent.toolbox.has(name));
        let metrics = Metrics::new(knows, self.run_ends);
        let (projector, told, changed) = self.projector.start(feed, metrics.clone());
        let changes = changes::tell(hub.clone(), projector.clone(), changed);
        let messages = projector.messages().publish(hub.clone(), projector.clone());
        let told = AbortOnDropHandle::new(told);
        let news = self.schedule.as_ref().ok().map(|schedule| projector.follow(schedule));
        let closing = CancellationToken::new();
        let audit = hub.audit();
        let server = Arc::new(Server {
            hub,
            projector,
            bouncer: Bouncer::new(self.settings.secret).noting(audit.clone()),
            devices: Arc::new(Devices::open(&self.settings.state_dir, audit.clone())),
            used_signatures: UsedSignatures::default(),
            rules,
            lobby: Lobby::default(),
            state_dir: self.settings.state_dir,
            config_path: self.settings.config_path,
            notices: self.notices,
            schedule: self.schedule,
            methods: self.methods,
            endpoints: self.endpoints,
            webhooks: self.webhooks.map(|settings| Arc::new(Hooks::new(settings, audit))),
            control_ui: self.control_ui,
            log: self.log,
            foreign: self.foreign,
            metrics,
            more_metrics: self.more_metrics,
            outages: self.outages,
            presence: Arc::default(),
            meter: Meter::new(),
            started: Instant::now(),
            stop: closing.clone(),
            connections: TaskTracker::new(),
            count: AtomicU64::new(0),
        });
        let presence = presence::tell(server.clone());
        if let Some(hooks) = &server.webhooks {
            webhooks::take_up(&server, hooks).await;
        }
        let open = |(listener, _)| {
            let (lobby, tls, proxies) = (server.lobby.clone(), tls.clone(), proxies.clone());
            let door = Door { listener, lobby, tls, proxies, stop: closing.clone() };
            let service = http::app(server.clone()).into_make_service_with_connect_info::<Peer>();
            let serving = axum::serve(door, service).with_graceful_shutdown(stop.clone().cancelled_owned());
            AbortOnDropHandle::new(task::spawn("listener", serving.into_future()))
        };
        let doors: Vec<_> = self.listeners.into_iter().map(open).collect();
        stop.cancelled().await;
        // Whoever waits for a run hears how it ended before it is told goodbye.
        server.projector.drain().await;
        closing.cancel();
        server.connections.close();
        if tokio::time::timeout(GOODBYE, server.connections.wait()).await.is_err() {
            tracing::warn!("some clients did not say goodbye in time");
        }
        // Whatever is left of these ends here.
        drop((doors, news, changes, messages, presence, told));
    }
}

/// What all connections share.
pub(crate) struct Server {
    pub(crate) hub: Hub,
    pub(crate) projector: Projector,
    pub(crate) bouncer: Bouncer,
    /// Devices that belong to the owner.
    pub(crate) devices: Arc<Devices>,
    /// Signatures of devices that count no more.
    pub(crate) used_signatures: UsedSignatures,
    pub(crate) rules: Rules,
    /// Where strangers wait.
    pub(crate) lobby: Lobby,
    pub(crate) state_dir: PathBuf,
    pub(crate) config_path: Option<PathBuf>,
    /// What is not as it should be.
    pub(crate) notices: Notices,
    /// What is done without anybody asking, or why nothing is.
    pub(crate) schedule: Result<Schedule, String>,
    /// What others answer.
    pub(crate) methods: Vec<Method>,
    /// What is answered over HTTP.
    pub(crate) endpoints: Endpoints,
    /// What other programs may send, if anything.
    pub(crate) webhooks: Option<Arc<Hooks>>,
    /// The pages that are served, if not our own.
    pub(crate) control_ui: Option<ControlUi>,
    /// What it said of itself of late.
    pub(crate) log: LogBook,
    /// What plugins add.
    pub(crate) foreign: Option<Arc<dyn Foreign>>,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// What others add to that.
    pub(crate) more_metrics: Option<MoreMetrics>,
    pub(crate) outages: Option<Outages>,
    /// Who is here.
    pub(crate) presence: Arc<Presence>,
    /// How busy it is.
    pub(crate) meter: Meter,
    pub(crate) stop: CancellationToken,
    /// Every connection holds a token, so that stopping can wait for all of them.
    pub(crate) connections: TaskTracker,
    started: Instant,
    count: AtomicU64,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Server {
    /// How long it has been answering.
    pub(crate) fn uptime_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A number that no other connection has.
    pub(crate) fn next_connection(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}
