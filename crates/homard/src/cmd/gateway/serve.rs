//! `homard gateway run`: runs the gateway in the foreground until it is stopped.

mod claim;
pub(super) mod listen;
mod service_manager;

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use homard_agent::{Hub, HubEvent, hub::CrashLoops};
use homard_app::{
    App, Purpose,
    gateway::{self, GatewayOptions, StartedGateway},
    methods::service::Handover,
    openclaw_lock::OpenClawLock,
};
use homard_client::chat_gateway;
use homard_credentials::{
    certificate,
    gateway_secret::{self, GatewaySecret, SecretSource},
};
use homard_gateway::ControlUi;
use homard_journal::Journal;
use homard_logging::Log;
use homard_sandbox::Tier;
use homard_service::{
    handover::{HandoverRequest, Program},
    notify::{Notifier, monotonic_time},
};
use homard_settings::{
    Chosen, Config, DEMO,
    paths::{self, PORT, Paths},
};
use homard_store::Error as StoreError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    sync::{
        mpsc::{self, UnboundedReceiver},
        oneshot,
    },
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use self::{claim::Claim, service_manager::RestartSignal};
use crate::{
    cli_error::CliError,
    render,
    signal::{Signal, Signals},
};

/// Time for active runs to end after SIGTERM: well within the 90 s that systemd allows.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Exit code after a disk failure: EX_IOERR.
const DISK_FAILED: u8 = 74;

/// Desired limit of open files; each socket is one.
const MAX_OPEN_FILES: u64 = 65_536;

/// Arguments of `homard gateway run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Port to listen on; 0 for a free one [default: 18789]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Interfaces to listen on: loopback for this machine only, lan for all its networks, tailnet for its Tailscale
    /// network, custom for gateway.customBindHost [default: gateway.bind of the config, or loopback]
    #[arg(long, value_name = "loopback|lan|tailnet|custom")]
    bind: Option<String>,
    /// Token that clients must send
    #[arg(long, value_name = "TEXT")]
    token: Option<String>,
    /// Password that clients must send
    #[arg(long, value_name = "TEXT", conflicts_with = "token")]
    password: Option<String>,
    /// Serve the Control UI from this directory, such as node_modules/openclaw/dist/control-ui
    #[arg(long, value_name = "DIR")]
    control_ui: Option<PathBuf>,
    /// Kill the process that uses the state directory, and continue its runs
    #[arg(long)]
    takeover: bool,
    /// Serve the chat that started this process, and end when it closes standard input
    #[arg(long, hide = true)]
    for_chat: bool,
    /// Resume runs even if they were active at several crashes in a row, instead of holding them
    #[arg(long)]
    recover: bool,
}

impl Args {
    /// Rejects invalid arguments before anything is changed.
    pub(super) fn check(&self) -> Result<(), CliError> {
        listen::bind(self.bind.as_deref(), &Config::default())?;
        // An empty secret would silently be replaced by another source.
        for (flag, secret) in [("--token", &self.token), ("--password", &self.password)] {
            if secret.as_ref().is_some_and(|secret| secret.trim().is_empty()) {
                return Err(CliError::usage(format!("{flag} is empty")));
            }
        }
        Ok(())
    }
}

/// Raises the limit of open files for ten thousand sockets: most systems start with a soft limit of about a thousand.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MAX_OPEN_FILES, |most| most.min(MAX_OPEN_FILES));
    if limit.current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
    {
        tracing::debug!(%error, wanted, "failed to raise the limit of open files");
    }
}

/// Runs the gateway until SIGINT or SIGTERM, or until a new program replaces this one. Runs that are active then resume
/// at the next start.
pub(super) async fn run(args: Args, log: Log, inherited: Vec<TcpListener>) -> Result<()> {
    args.check()?;
    let program = Program::current(std::env::args_os()).context("cannot find this program")?;
    let paths = Paths::find()?;
    let chosen = Config::choose(&paths)?;
    log.masks.hide_all(vec![homard_app::secrets::of_config(&chosen.loaded, &paths)]);
    report_config(&chosen, &paths);
    allow_many_files();
    let signals = if args.for_chat { Signals::listen_with_stdin()? } else { Signals::listen()? };
    let (requests, handovers) = mpsc::channel(1);
    // The gateway of a chat ends with the chat's input, which another process would not have.
    let handover = (!args.for_chat).then(|| Handover { program: program.clone(), requests });
    let restarts = RestartSignal::listen(handover.clone())?;
    let (notifier, _watchdog) = service_manager::connect();
    let open = || App::open(&chosen, &paths, Purpose::Gateway);
    let claim = match (args.takeover, args.for_chat) {
        (true, _) => Claim::Takeover,
        (false, true) => Claim::Fail,
        (false, false) if inherited.is_empty() => Claim::FromChat,
        (false, false) => Claim::Wait,
    };
    let openclaw = OpenClawLock::find(&paths.state);
    openclaw.check()?;
    let (app, feed) = claim::open(&paths.state, claim, open).await?;
    let openclaw_lock = match openclaw.take() {
        Ok(lock) => lock,
        Err(error) => {
            app.close().await?;
            return Err(error.into());
        }
    };
    if args.for_chat {
        chat_gateway::record(&paths.state).context("cannot record the process id of the gateway")?;
    }
    let (journal, hub) = (app.journal.clone(), app.hub.clone());
    let (stop, (listeners, opened)) = (CancellationToken::new(), oneshot::channel());
    let stopped = stop.clone();
    let ready = notifier.clone();
    let serving = async move {
        let serving = Serving { args, log, chosen: &chosen, paths: &paths, app: &app, inherited, handover };
        let served = serve(serving, feed, stopped, |gateway| announce(gateway, &ready, listeners)).await;
        // Also after a failure, otherwise it would count as a crash.
        let closed = app.close().await;
        served.and(closed.map_err(Into::into))
    };
    let control = Control { signals, restarts, handovers, notifier };
    let ending = control.until_end(serving, &journal, &hub, &stop).await?;
    drop((openclaw_lock, journal, hub));
    match ending {
        Ending::Stopped => Ok(()),
        Ending::Replaced => {
            let listeners = opened.await.context("the gateway stopped before it listened")?;
            Err(program.replace(&listeners)).with_context(|| format!("cannot start {}", program.path().display()))
        }
    }
}

/// Logs what is wrong with the config.
fn report_config(chosen: &Chosen, paths: &Paths) {
    if let Some(config_warning) = homard_settings::last_good_warning(chosen, &paths.config) {
        tracing::error!("{config_warning}");
    }
    for outage in homard_settings::outages(&chosen.loaded) {
        tracing::error!("config file {}: {outage}", paths.config.display());
    }
    for warning in &chosen.loaded.warnings {
        tracing::warn!("config file {}, {warning}", paths.config.display());
    }
}

/// Tells the service manager that the gateway is ready, and keeps its sockets for the next process.
fn announce(gateway: &StartedGateway, notifier: &Notifier, listeners: oneshot::Sender<Vec<TcpListener>>) -> Result<()> {
    let duplicates = gateway.duplicate_listeners().context("cannot keep the sockets open")?;
    let addresses: Vec<_> = gateway.local_addrs().iter().map(SocketAddr::to_string).collect();
    notifier.ready(&format!("serving on {}", addresses.join(", ")));
    // The receiver lives until the gateway has stopped.
    drop(listeners.send(duplicates));
    Ok(())
}

/// What ends or replaces a serving gateway.
struct Control {
    signals: Signals,
    restarts: RestartSignal,
    handovers: mpsc::Receiver<HandoverRequest>,
    notifier: Notifier,
}

/// How a gateway ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Stopped,
    /// A new program has to take its place.
    Replaced,
}

/// Why a gateway ends.
#[derive(Debug, Clone, Copy)]
enum EndReason {
    Signal(Signal),
    Handover(HandoverRequest),
}

impl Control {
    /// Serves until a signal or a request, and then until active runs have ended or their time is over.
    async fn until_end(
        self,
        serving: impl Future<Output = Result<()>>,
        journal: &Journal,
        hub: &Hub,
        stop: &CancellationToken,
    ) -> Result<Ending> {
        let Self { mut signals, restarts, mut handovers, notifier } = self;
        let failed = journal.failed();
        tokio::pin!(failed, serving);
        let restarts = restarts.serve();
        tokio::pin!(restarts);
        let reason = tokio::select! {
            biased;
            error = &mut failed => return Err(disk_failure(&error).into()),
            signal = signals.next() => EndReason::Signal(signal),
            Some(request) = handovers.recv() => EndReason::Handover(request),
            () = &mut restarts => return Ok(Ending::Stopped),
            result = &mut serving => return result.map(|()| Ending::Stopped),
        };
        // Further requests are refused.
        drop(handovers);
        let ending = match reason {
            EndReason::Signal(_) => Ending::Stopped,
            EndReason::Handover(_) => Ending::Replaced,
        };
        // Clients receive the results of their runs during the drain; only then are they disconnected.
        let forced_exit = async {
            drain(reason, hub, &notifier).await;
            stop.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            error = &mut failed => Err(disk_failure(&error).into()),
            signal = signals.next() => {
                let text = format!("stopped immediately by a second {signal}; active runs continue at the next start");
                Err(CliError { exit: signal.exit_code(), ..CliError::new("interrupted", text) }.into())
            }
            result = serving => result.map(|()| ending),
            () = forced_exit => Ok(ending),
        }
    }
}

/// Waits for active runs. Before a hand-over messages are still accepted, and the new process starts them.
async fn drain(reason: EndReason, hub: &Hub, notifier: &Notifier) {
    match reason {
        EndReason::Signal(signal) => {
            notifier.stopping("waiting for active runs");
            hub.lifecycle().drain(drain_timeout(signal, hub)).await;
        }
        EndReason::Handover(HandoverRequest { wait }) => {
            let active = hub.runs().slots().taken();
            tracing::info!(active, wait = ?wait, "restarting; waiting for active runs");
            notifier.reloading("restarting; waiting for active runs", monotonic_time());
            hub.lifecycle().pause(wait).await;
        }
    }
}

/// Returns how long active runs may take to end. A user at a terminal wants it back immediately; nothing is lost either
/// way.
fn drain_timeout(signal: Signal, hub: &Hub) -> Duration {
    let runs = hub.runs().live().len();
    match signal {
        Signal::Terminate if runs > 0 => {
            tracing::info!(%signal, runs, seconds = DRAIN_TIMEOUT.as_secs(), "stopping; waiting for active runs");
            DRAIN_TIMEOUT
        }
        Signal::Terminate | Signal::Interrupt | Signal::Hangup | Signal::InputClosed => {
            tracing::info!(%signal, runs, "stopping");
            Duration::ZERO
        }
    }
}

/// Returns the failure after a disk error. Nothing is awaited: only a restart can determine what is stored.
fn disk_failure(error: &StoreError) -> CliError {
    CliError { exit: DISK_FAILED, ..CliError::new("disk", error.to_string()) }
}

/// Returns the warning about held runs.
fn held_notice(held: usize) -> Option<String> {
    let runs = match held {
        0 => return None,
        1 => "1 run was active at several crashes in a row and is held".to_owned(),
        held => format!("{held} runs were active at several crashes in a row and are held"),
    };
    Some(format!("{runs}; all other runs are processed. List: homard runs held. Continue: homard runs release RUN"))
}

/// What a gateway is served with.
struct Serving<'a> {
    args: Args,
    log: Log,
    chosen: &'a Chosen,
    paths: &'a Paths,
    app: &'a App,
    inherited: Vec<TcpListener>,
    handover: Option<Handover>,
}

/// Starts the gateway, prints what it is, announces it, and serves until stopped.
async fn serve(
    serving: Serving<'_>,
    feed: UnboundedReceiver<HubEvent>,
    stop: CancellationToken,
    announce: impl FnOnce(&StartedGateway) -> Result<()>,
) -> Result<()> {
    let Serving { args, log, chosen, paths, app, inherited, handover } = serving;
    app.factory.mask_in(&log.masks);
    let config = &chosen.loaded.config;
    let port = args.port.map_or_else(|| anyhow::Ok(paths::port()?.or(config.gateway.port).unwrap_or(PORT)), Ok)?;
    let (secret, source) =
        gateway_secret::find_or_create(GatewaySecret::either(args.token, args.password), config, paths)?;
    let (pages, no_pages) = match control_ui(args.control_ui.as_deref(), config)? {
        Ok(pages) => (pages, None),
        Err(why) => (None, Some(why)),
    };
    let has_pages = pages.is_some();
    let addresses = listen::addresses(listen::bind(args.bind.as_deref(), config)?, port, config)?;
    let tls = certificate::open(config, paths, &listen::reachable_addresses(&addresses))?;
    let options = GatewayOptions {
        addresses,
        tls: tls.clone(),
        secret: secret.clone(),
        control_ui: pages,
        crash_loops: if args.recover { CrashLoops::Resume } else { CrashLoops::Hold },
        log: log.buffer,
        inherited,
        handover,
    };
    let sandbox_line = describe_sandbox(config, paths);
    let gateway = gateway::start(app, chosen, paths, options, stop).await?;
    let doctor = homard_doctor::running::method(app, paths, &gateway);
    let gateway = gateway.with_methods(vec![doctor]);
    let exposure = listen::exposure(&gateway.local_addrs(), tls.is_some(), config);
    if let Some(text) = &exposure {
        tracing::warn!("{text}");
    }
    gateway.warnings().set("control-ui", no_pages.clone());
    gateway.warnings().set("bind", exposure.clone());
    let mut rows = listen::address_lines(&gateway.local_addrs(), tls.as_ref());
    rows.extend(greeting(app, paths, &secret, &source));
    rows.push(["exec".to_owned(), sandbox_line.await.context("cannot check the sandbox")?]);
    rows.extend(run_rows(&gateway));
    if has_pages {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let port = gateway.local_addrs().first().map_or(0, SocketAddr::port);
        rows.push(["control ui".to_owned(), format!("{scheme}://127.0.0.1:{port}/")]);
    }
    let warnings = startup_warnings(chosen, paths).into_iter().chain(exposure).chain(no_pages);
    let warnings = warnings.chain(app.warnings.iter().cloned());
    rows.extend(warnings.map(|text| ["warning".to_owned(), text]));
    render::print_table(&render::Table::fields(rows.into_iter().map(Vec::from).collect()))?;
    announce(&gateway)?;
    Ok(gateway.serve(app, feed).await?)
}

/// Returns the lines about recovered runs and the schedule.
fn run_rows(gateway: &StartedGateway) -> Vec<[String; 2]> {
    let mut rows = Vec::new();
    let recovered = &gateway.recovered;
    if recovered.resumed > 0 {
        rows.push(["runs".to_owned(), format!("{} unfinished; resuming", recovered.resumed)]);
    }
    let notice = held_notice(recovered.held);
    if let Some(notice) = &notice {
        tracing::warn!("{notice}");
    }
    rows.extend(notice.into_iter().chain(gateway.schedule_error.clone()).map(|text| ["warning".to_owned(), text]));
    rows
}

/// Returns the warnings about the config.
fn startup_warnings(chosen: &Chosen, paths: &Paths) -> Vec<String> {
    let outages = homard_settings::outages(&chosen.loaded);
    let unsupported = homard_settings::unsupported_channels(&chosen.loaded.config);
    homard_settings::last_good_warning(chosen, &paths.config).into_iter().chain(outages).chain(unsupported).collect()
}

/// Returns the control UI to serve. An invalid flag is an error; an invalid config key is only a warning, because the
/// gateway works without the UI.
fn control_ui(flag: Option<&Path>, config: &Config) -> Result<Result<Option<ControlUi>, String>> {
    if let Some(folder) = flag {
        let pages = ControlUi::open(folder).map_err(|error| CliError::usage(format!("--control-ui: {error}")))?;
        return Ok(Ok(Some(pages)));
    }
    let Some(root) = &config.gateway.control_ui.root else { return Ok(Ok(None)) };
    let folder = paths::expand(Path::new(root.as_str()), paths::home().as_deref());
    Ok(ControlUi::open(&folder).map(Some).map_err(|error| format!("gateway.controlUi.root: {error}")))
}

fn greeting(app: &App, paths: &Paths, secret: &GatewaySecret, source: &SecretSource) -> Vec<[String; 2]> {
    let model = match app.hub.agents().get(app.hub.agents().default_id()) {
        Some(agent) if agent.spec().model.is_empty() => "none available; see: homard models status".to_owned(),
        Some(agent) => format!("{}/{}", agent.spec().provider, agent.spec().model),
        None => DEMO.to_owned(),
    };
    let hint = match &app.remark {
        Some(remark) => format!(" {remark}"),
        None if model == DEMO => " (built in, offline; to set up a real model: homard setup)".to_owned(),
        None => String::new(),
    };
    let secret_line =
        if render::is_terminal() { format!("{} ({source})", secret.expose()) } else { source.to_string() };
    vec![
        [secret.kind().to_owned(), secret_line],
        ["state".to_owned(), paths.state.display().to_string()],
        ["model".to_owned(), format!("{model}{hint}")],
    ]
}

/// Describes the sandbox of commands.
fn describe_sandbox(config: &Config, paths: &Paths) -> JoinHandle<String> {
    let policy = homard_settings::sandbox_policy(config, paths);
    tokio::task::spawn_blocking(move || match policy.mode {
        homard_sandbox::AccessMode::Full => {
            "no sandbox (tools.exec.sandbox.mode is full): commands run with your permissions".to_owned()
        }
        homard_sandbox::AccessMode::ReadOnly
        | homard_sandbox::AccessMode::Workspace
        | homard_sandbox::AccessMode::Guarded => {
            let tier = homard_app::toolbox::tier();
            let gaps = tier.gaps().join("; ");
            let text = match tier {
                Tier::A { .. } => "in a sandbox".to_owned(),
                Tier::B { why } => {
                    tracing::warn!(
                        why,
                        "commands run in a limited sandbox and can {gaps}; install bubblewrap for a full one"
                    );
                    format!("in a limited sandbox ({why}): commands can {gaps}")
                }
                Tier::C { why } => format!("disabled, because no sandbox is available ({why})"),
            };
            format!("{text}; to see what commands may do: homard sandbox explain")
        }
    })
}
