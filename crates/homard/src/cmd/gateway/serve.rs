//! `homard gateway run`: runs the gateway in the foreground until it is stopped.

mod claim;
mod listen;
mod openclaw;

use std::{
    fs::OpenOptions,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use homard_agent::{
    Hub, HubEvent,
    hub::{CrashLoops, RecoveryResult},
};
use homard_credentials::{
    certificate,
    gateway_secret::{self, GatewaySecret, SecretSource},
};
use homard_gateway::{ControlUi, Tls};
use homard_runtime::task;
use homard_settings::{
    Chosen, Config, DEMO,
    paths::{self, PORT, Paths},
};
use homard_store::Error as StoreError;
use homard_tools::sandbox::{self, Tier};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::claim::Claim;
use crate::{
    assemble::{
        self, App, Purpose,
        channels::HttpRoutes,
        plugins::{PluginRoutes, Transforms},
    },
    cli_error::CliError,
    logging::Log,
    methods,
    reload::ConfigReloader,
    render,
    signal::{Signal, Signals},
};

/// Time for active runs to end after SIGTERM: well within the 90 s that systemd allows.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Exit code after a disk failure: EX_IOERR.
const DISK_FAILED: u8 = 74;

/// Desired limit of open files; each socket is one.
const MAX_OPEN_FILES: u64 = 65_536;

/// The flags of `homard gateway run`.
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

/// Runs the gateway until SIGINT or SIGTERM. Runs that are active then resume at the next start.
pub(super) async fn run(args: Args, log: Log) -> Result<()> {
    args.check()?;
    let paths = Paths::find()?;
    let chosen = Config::choose(&paths)?;
    log.masks.hide_all(vec![assemble::secrets::of_config(&chosen.loaded, &paths)]);
    if let Some(config_warning) = homard_settings::last_good_warning(&chosen, &paths.config) {
        tracing::error!("{config_warning}");
    }
    for outage in homard_settings::outages(&chosen.loaded) {
        tracing::error!("config file {}: {outage}", paths.config.display());
    }
    for warning in &chosen.loaded.warnings {
        tracing::warn!("config file {}, {warning}", paths.config.display());
    }
    allow_many_files();
    let mut signals = Signals::listen()?;
    let open = || App::open(&chosen, &paths, Purpose::Gateway);
    let claim = if args.takeover { Claim::Takeover } else { Claim::Fail };
    let openclaw = openclaw::OpenClawLock::find(&paths.state);
    openclaw.check()?;
    let (app, feed) = claim::open(&paths.state, claim, open).await?;
    let _openclaw_lock = match openclaw.take() {
        Ok(lock) => lock,
        Err(error) => return app.close().await.and(Err(error.into())),
    };
    let (journal, hub) = (app.journal.clone(), app.hub.clone());
    let failed = journal.failed();
    tokio::pin!(failed);
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let serving = async move {
        let served = serve((args, log), (&chosen, &paths), (&app, feed), stopped).await;
        // Also after a failure, otherwise it would count as a crash.
        let closed = app.close().await;
        served.and(closed)
    };
    tokio::pin!(serving);
    let signal = tokio::select! {
        biased;
        error = &mut failed => return Err(disk_failure(&error).into()),
        signal = signals.next() => signal,
        result = &mut serving => return result,
    };
    // Clients receive the results of their runs during the drain; only then are they disconnected.
    let forced_exit = async move {
        hub.drain(drain_timeout(signal, &hub)).await;
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
        result = serving => result,
        () = forced_exit => Ok(()),
    }
}

/// Returns how long active runs may take to end. A user at a terminal wants it back immediately; nothing is lost either
/// way.
fn drain_timeout(signal: Signal, hub: &Hub) -> Duration {
    let runs = hub.live_runs().len();
    match signal {
        Signal::Terminate if runs > 0 => {
            tracing::info!(%signal, runs, seconds = DRAIN_TIMEOUT.as_secs(), "stopping; waiting for active runs");
            DRAIN_TIMEOUT
        }
        Signal::Terminate | Signal::Interrupt | Signal::Hangup => {
            tracing::info!(%signal, runs, "stopping");
            Duration::ZERO
        }
    }
}

/// Returns the failure after a disk error. Nothing is awaited: only a restart can determine what is stored.
fn disk_failure(error: &StoreError) -> CliError {
    CliError { exit: DISK_FAILED, ..CliError::new("disk", error.to_string()) }
}

/// Recovers unfinished runs.
async fn recover(hub: &Hub, loops: CrashLoops) -> Result<RecoveryResult> {
    let mut recovered = hub.recover(loops).await?;
    if loops == CrashLoops::Resume {
        for run in hub.held().await? {
            hub.release(&run.run).await?;
            recovered = RecoveryResult { resumed: recovered.resumed + 1, held: recovered.held.saturating_sub(1) };
        }
    }
    tracing::info!(resumed = recovered.resumed, held = recovered.held, "recovered unfinished runs");
    Ok(recovered)
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

/// Recovers unfinished runs and serves until stopped.
async fn serve(
    (args, log): (Args, Log),
    (chosen, paths): (&Chosen, &Paths),
    (app, feed): (&App, UnboundedReceiver<HubEvent>),
    stop: CancellationToken,
) -> Result<()> {
    app.factory.mask_in(&log.masks);
    let config = &chosen.loaded.config;
    let port = args.port.map_or_else(|| anyhow::Ok(paths::port()?.or(config.gateway.port).unwrap_or(PORT)), Ok)?;
    let (secret, source) =
        gateway_secret::find_or_create(GatewaySecret::either(args.token, args.password), config, paths)?;
    let pages = control_ui(args.control_ui.as_deref(), config)?;
    let addresses = listen::addresses(listen::bind(args.bind.as_deref(), config)?, port, config)?;
    let tls = certificate::open(config, paths, &listen::reachable_addresses(&addresses))?;
    // An occupied port is detected before any run starts, and no request is answered before every recovered run is
    // queued.
    let gateway = homard_gateway::bind(settings((addresses, tls.clone()), &secret, config, paths)).await?;
    let sandbox_line = describe_sandbox(config, paths);
    // Before any command runs.
    let exec_approvals = assemble::approvals::open(&app.hub, paths).await?;
    if app.hub.unfinished().await? > 0 {
        // Resumed runs may need the tools that they had.
        app.settle(&chosen.loaded).await?;
    }
    let loops = if args.recover { CrashLoops::Resume } else { CrashLoops::Hold };
    let recovered = recover(&app.hub, loops).await.context("cannot recover unfinished runs")?;
    let address = gateway.local_addrs().first().copied().context("the gateway has no listening address")?;
    let port_file = paths.port_file();
    let private = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&port_file);
    private
        .and_then(|mut file| writeln!(file, "{}", address.port()))
        .with_context(|| format!("cannot write {}", port_file.display()))?;
    let exposure = listen::exposure(&gateway.local_addrs(), tls.is_some(), config);
    if let Some(text) = &exposure {
        tracing::warn!("{text}");
    }
    let mut rows = listen::address_lines(&gateway.local_addrs(), tls.as_ref());
    rows.extend(greeting(app, paths, (&secret, &source)));
    rows.push(["exec".to_owned(), sandbox_line.await.context("cannot check the sandbox")?]);
    if recovered.resumed > 0 {
        rows.push(["runs".to_owned(), format!("{} unfinished; resuming", recovered.resumed)]);
    }
    let notice = held_notice(recovered.held);
    if let Some(notice) = &notice {
        tracing::warn!("{notice}");
        rows.push(["warning".to_owned(), notice.clone()]);
    }
    let (schedule, planned) = match assemble::schedule::start(&app.hub, config, paths, stop.clone()).await {
        Ok((schedule, tasks)) => (Ok(schedule), Some(tasks)),
        Err(error) => {
            tracing::error!("{error:#}");
            rows.push(["warning".to_owned(), format!("{error:#}")]);
            (Err(format!("{error:#}")), None)
        }
    };
    let planner = schedule.as_ref().ok().cloned();
    let gateway = gateway.with_schedule(schedule).with_log(log.buffer);
    let live = ConfigReloader::new(paths, chosen, app, (gateway.warnings(), gateway.broadcaster()));
    app.factory.open_gateway(&live, planner.as_ref());
    let gateway = gateway.with_outages(assemble::outages::of(app, &live, paths));
    let approvals = assemble::approvals::start(&exec_approvals, gateway.broadcaster(), stop.clone());
    assemble::approvals::resume(app, config, paths);
    let mut extra_methods = methods::all(&live, paths, (&exec_approvals, &app.factory.channels));
    extra_methods.extend(methods::audit::methods(&app.journal, &app.factory.audit));
    extra_methods.push(methods::plugins::method(&app.factory.plugins));
    let gateway = gateway
        .with_methods(extra_methods)
        .with_metrics(assemble::metrics::of(&app.journal))
        .with_endpoints(endpoints(config));
    let gateway = match crate::otel::start()? {
        Some(callback) => gateway.on_run_end(callback),
        None => gateway,
    };
    let gateway = match config.hooks.webhooks() {
        Ok(Some(mut webhooks)) => {
            let folder = config.hooks.transforms(paths);
            webhooks.transformer = Some(Arc::new(Transforms::new(&app.factory.plugins, folder)));
            gateway.with_webhooks(webhooks)
        }
        // The config check reports what is wrong with them.
        Ok(None) | Err(_) => gateway,
    };
    let (gateway, no_pages) = match pages {
        Ok(Some(pages)) => {
            let scheme = if tls.is_some() { "https" } else { "http" };
            rows.push(["control ui".to_owned(), format!("{scheme}://127.0.0.1:{}/", address.port())]);
            (gateway.with_control_ui(pages), None)
        }
        Ok(None) => (gateway, None),
        Err(why) => (gateway, Some(why)),
    };
    gateway.warnings().set("control-ui", no_pages.clone());
    gateway.warnings().set("bind", exposure.clone());
    let outages = homard_settings::outages(&chosen.loaded);
    let unsupported = homard_settings::unsupported_channels(config);
    let startup_warnings =
        homard_settings::last_good_warning(chosen, &paths.config).into_iter().chain(outages).chain(unsupported);
    let startup_warnings = startup_warnings.chain(exposure).chain(no_pages);
    let startup_warnings = startup_warnings.chain(app.warnings.iter().cloned());
    rows.extend(startup_warnings.map(|text| ["warning".to_owned(), text]));
    render::print_table(&render::Table::fields(rows.into_iter().map(Vec::from).collect()))?;
    let close = CancellationToken::new();
    let channels = app.factory.channels.clone();
    let routes = HttpRoutes { plugins: PluginRoutes(app.factory.plugins.clone()), channels: channels.clone() };
    let gateway = gateway.with_plugins(Arc::new(routes));
    channels.start(stop.child_token()).iter().for_each(|warning| tracing::error!("{warning}"));
    let mut serving = task::spawn("gateway", gateway.serve(app.hub.clone(), feed, close.clone()));
    let (hub, plugins, port) = (app.hub.clone(), app.factory.plugins.clone(), address.port());
    // Plugins start in the background; only what needs one waits for it.
    let plugin_start = AbortOnDropHandle::new(task::spawn("plugins", async move {
        plugins.start().await;
        hub.gateway_started(port).await;
    }));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        ended = &mut serving => return ended.context("the gateway task failed"),
        () = live.watch() => {}
    }
    if let Some(planned) = planned {
        planned.ended().await;
    }
    for task in approvals {
        task.await.context("the approvals task failed")?;
    }
    drop(plugin_start);
    app.hub.gateway_stopping("shutdown").await;
    // Runs first, so that clients still receive their end.
    app.hub.shut_down().await;
    close.cancel();
    serving.await.context("the gateway task failed")
}

fn settings(
    (bind, tls): (Vec<SocketAddr>, Option<Tls>),
    secret: &GatewaySecret,
    config: &Config,
    paths: &Paths,
) -> homard_gateway::Settings {
    homard_gateway::Settings {
        bind,
        secret: match secret {
            GatewaySecret::Token(token) => homard_gateway::Secret::new(Some(token.clone()), None),
            GatewaySecret::Password(password) => homard_gateway::Secret::new(None, Some(password.clone())),
        },
        allowed_origins: config.gateway.control_ui.allowed_origins.clone(),
        trusted_proxies: config.gateway.trusted_proxies.clone(),
        tls,
        allow_insecure: config.gateway.allow_insecure,
        state_dir: paths.state.clone(),
        config_path: Some(paths.config.clone()),
    }
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

/// Returns the enabled HTTP endpoints.
fn endpoints(config: &Config) -> homard_gateway::Endpoints {
    let (endpoints, tools) = (&config.gateway.http.endpoints, &config.gateway.tools);
    let default = homard_gateway::Endpoints::default();
    homard_gateway::Endpoints {
        chat_completions: endpoints.chat_completions.enabled,
        responses: endpoints.responses.enabled,
        responses_body: endpoints.responses.max_body_bytes.unwrap_or(default.responses_body),
        allowed_tools: tools.allow.clone(),
        denied_tools: tools.deny.clone(),
    }
}

fn greeting(app: &App, paths: &Paths, (secret, source): (&GatewaySecret, &SecretSource)) -> Vec<[String; 2]> {
    let model = match app.hub.agents().get(app.hub.agents().default_id()) {
        Some(agent) if agent.spec().model.is_empty() => "none available; see: homard models status".to_owned(),
        Some(agent) => format!("{}/{}", agent.spec().provider, agent.spec().model),
        None => DEMO.to_owned(),
    };
    let hint = match &app.remark {
        Some(remark) => format!(" {remark}"),
        None if model == DEMO => " (built in, offline; to configure a real model, see: homard docs models)".to_owned(),
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
        sandbox::AccessMode::Full => {
            "no sandbox (tools.exec.sandbox.mode is full): commands run with your permissions".to_owned()
        }
        sandbox::AccessMode::ReadOnly | sandbox::AccessMode::Workspace | sandbox::AccessMode::Guarded => {
            let tier = assemble::tools::tier();
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
