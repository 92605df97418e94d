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
use tokio::{net::TcpListener, sync::mpsc::UnboundedReceiver, time::Instant};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use crate::{
    added::Method,
    admit::Rules,
    auth::{Bouncer, Secret},
    changes,
    control_ui::ControlUi,
    devices::Devices,
    foreign::Foreign,
    http,
    lobby::{Door, Lobby, Peer},
    log_book::LogBook,
    news::News,
    notices::Notices,
    openai::Endpoints,
    projector::{Projector, Unstarted},
    router,
    webhooks::{self, Hooks, Webhooks},
};

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
    /// The address is reachable from other machines.
    #[error("{0} is reachable from other machines, which is not supported yet; use 127.0.0.1 or ::1")]
    NotLoopback(IpAddr),
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
#[derive(Debug)]
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
    projector: Unstarted,
}

/// Opens the sockets, so that a taken port is known before anything else is started.
pub async fn bind(settings: Settings) -> Result<Gateway, Error> {
    if settings.secret.is_empty() {
        return Err(Error::NoSecret);
    }
    let mut listeners = Vec::new();
    for &address in &settings.bind {
        if !address.ip().to_canonical().is_loopback() {
            return Err(Error::NotLoopback(address.ip()));
        }
        let opened = TcpListener::bind(address).await.and_then(|listener| Ok((listener.local_addr()?, listener)));
        match opened {
            Ok((local, listener)) => listeners.push((listener, local)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(Error::InUse(address)),
            Err(error) if address.is_ipv6() && !listeners.is_empty() => {
                tracing::debug!(%error, %address, "IPv6 is not available");
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
        projector: Unstarted::new(),
    })
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

    /// The same gateway, which also answers webhooks.
    pub fn with_webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = Some(webhooks);
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
            bound: self.listeners.iter().map(|(_, address)| address.ip()).collect(),
            origins: self.settings.allowed_origins,
            proxies: self.settings.trusted_proxies.iter().map(IpAddr::to_canonical).collect(),
        };
        let (projector, told, changed) = self.projector.start(feed);
        let changes = changes::tell(hub.clone(), projector.clone(), changed);
        let told = AbortOnDropHandle::new(told);
        let news = self.schedule.as_ref().ok().map(|schedule| projector.follow(schedule));
        let closing = CancellationToken::new();
        let server = Arc::new(Server {
            hub,
            projector,
            bouncer: Bouncer::new(self.settings.secret),
            devices: Arc::new(Devices::open(&self.settings.state_dir)),
            rules,
            state_dir: self.settings.state_dir,
            config_path: self.settings.config_path,
            notices: self.notices,
            schedule: self.schedule,
            methods: self.methods,
            endpoints: self.endpoints,
            webhooks: self.webhooks.map(|settings| Arc::new(Hooks::new(settings))),
            control_ui: self.control_ui,
            log: self.log,
            foreign: self.foreign,
            started: Instant::now(),
            stop: closing.clone(),
            connections: TaskTracker::new(),
            count: AtomicU64::new(0),
        });
        if let Some(hooks) = &server.webhooks {
            webhooks::take_up(&server, hooks).await;
        }
        let lobby = Lobby::default();
        let open = |(listener, _)| {
            let door = Door { listener, lobby: lobby.clone(), stop: closing.clone() };
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
        drop((doors, news, changes, told));
    }
}

/// What all connections share.
pub(crate) struct Server {
    pub(crate) hub: Hub,
    pub(crate) projector: Projector,
    pub(crate) bouncer: Bouncer,
    /// Devices that belong to the owner.
    pub(crate) devices: Arc<Devices>,
    pub(crate) rules: Rules,
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
