//! The gateway of an [`App`]: it listens, recovers unfinished runs, answers clients, and ends in order.
//!
//! [`start`] does everything that has to happen before a client is answered; [`StartedGateway::serve`] answers them until
//! it is stopped.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use homard_agent::{
    Hub, HubEvent,
    hub::{CrashLoops, RecoveryResult},
};
use homard_approvals::ExecApprovals;
use homard_channel_runtime::HttpRoutes;
use homard_credentials::gateway_secret::GatewaySecret;
use homard_gateway::{ControlUi, Gateway, LogBuffer, Method, OperatorWarnings, Outages, Tls};
use homard_runtime::task;
use homard_schedule::ScheduleTasks;
use homard_settings::{Chosen, Config, paths::Paths};
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    App, Error, approvals,
    methods::{self, service::Handover},
    metrics, otel, outages,
    plugins::{PluginRoutes, Transforms},
    reload::ConfigReloader,
    schedule,
};

/// What a gateway is started with, besides its config.
#[derive(Debug)]
pub struct GatewayOptions {
    /// Addresses to listen on; the first one is recorded for commands.
    pub addresses: Vec<SocketAddr>,
    /// The certificate, if TLS is enabled.
    pub tls: Option<Tls>,
    /// The shared secret of clients.
    pub secret: GatewaySecret,
    /// The pages of the Control UI, if it is served.
    pub control_ui: Option<ControlUi>,
    /// What happens to runs that were active at several crashes in a row.
    pub crash_loops: CrashLoops,
    /// The log that clients read.
    pub log: LogBuffer,
    /// Listeners that a service manager or the previous process opened.
    pub inherited: Vec<TcpListener>,
    /// How the process is replaced at a restart, if it can be.
    pub handover: Option<Handover>,
}

/// A gateway that listens and whose unfinished runs are queued. It does not answer yet.
pub struct StartedGateway {
    /// How many unfinished runs resume, and how many are held.
    pub recovered: RecoveryResult,
    /// Why there is no schedule, if so.
    pub schedule_error: Option<String>,
    gateway: Gateway,
    port: u16,
    live: ConfigReloader,
    planned: Option<ScheduleTasks>,
    approvals: [JoinHandle<()>; 2],
    stop: CancellationToken,
}

impl fmt::Debug for StartedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartedGateway").field("port", &self.port).finish_non_exhaustive()
    }
}

/// Listens, recovers unfinished runs and connects the gateway to the app. It ends when `stop` is cancelled.
pub async fn start(
    app: &App,
    chosen: &Chosen,
    paths: &Paths,
    mut options: GatewayOptions,
    stop: CancellationToken,
) -> Result<StartedGateway, Error> {
    let config = &chosen.loaded.config;
    // An occupied port is detected before any run starts, and no request is answered before every recovered run is
    // queued.
    let inherited = std::mem::take(&mut options.inherited);
    let gateway = homard_gateway::bind_with(settings(&options, config, paths), inherited).await?;
    let GatewayOptions { control_ui, crash_loops, log, handover, .. } = options;
    // Before any command runs.
    let exec_approvals = approvals::open(&app.hub, paths).await?;
    if app.hub.lifecycle().unfinished().await? > 0 {
        // Resumed runs may need the tools that they had.
        app.settle(&chosen.loaded).await?;
    }
    let recovered = recover(&app.hub, crash_loops).await?;
    let port = record_port(&gateway, paths)?;
    let (schedule, planned) = match schedule::start(&app.hub, config, paths, stop.clone()).await {
        Ok((schedule, tasks)) => (Ok(schedule), Some(tasks)),
        Err(error) => {
            tracing::error!("{error}");
            (Err(error.to_string()), None)
        }
    };
    let schedule_error = schedule.as_ref().err().cloned();
    let planner = schedule.as_ref().ok().cloned();
    let gateway = gateway.with_schedule(schedule).with_log(log);
    let live = ConfigReloader::new(paths, chosen, app, &gateway);
    app.factory.open_gateway(&live, planner.as_ref());
    let approvals = approvals::start(&exec_approvals, gateway.broadcaster(), stop.clone());
    approvals::resume(app, config, paths);
    let service = methods::service::methods(app.hub.runs().slots(), gateway.local_addrs(), handover);
    let gateway = gateway
        .with_outages(outages::of(app, &live, paths))
        .with_methods(methods(app, &live, paths, &exec_approvals).into_iter().chain(service).collect())
        .with_metrics(metrics::of(&app.journal))
        .with_endpoints(endpoints(config));
    let gateway = match otel::start()? {
        Some(callback) => gateway.on_run_end(callback),
        None => gateway,
    };
    let gateway = with_webhooks(gateway, app, config, paths);
    let gateway = match control_ui {
        Some(pages) => gateway.with_control_ui(pages),
        None => gateway,
    };
    Ok(StartedGateway { recovered, schedule_error, gateway, port, live, planned, approvals, stop })
}

impl StartedGateway {
    /// Returns the addresses on which the gateway listens.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.gateway.local_addrs()
    }

    /// Returns duplicates of the listeners, for the next process.
    pub fn duplicate_listeners(&self) -> io::Result<Vec<TcpListener>> {
        self.gateway.duplicate_listeners()
    }

    /// Registers further methods.
    pub fn with_methods(self, methods: Vec<Method>) -> Self {
        Self { gateway: self.gateway.with_methods(methods), ..self }
    }

    /// Returns the function that lists the current outages, as the health report shows them.
    pub fn outages(&self) -> Option<Outages> {
        self.gateway.outages()
    }

    /// Returns the warnings that the health report shows.
    pub fn warnings(&self) -> OperatorWarnings {
        self.gateway.warnings()
    }

    /// Starts the channels and plugins and answers clients, until stopped. Then active runs end, and clients still
    /// receive their ends.
    pub async fn serve(self, app: &App, feed: UnboundedReceiver<HubEvent>) -> Result<(), Error> {
        let Self { gateway, port, live, planned, approvals, stop, .. } = self;
        let close = CancellationToken::new();
        let channels = app.factory.channels.clone();
        let routes = HttpRoutes { plugins: PluginRoutes(app.factory.plugins.clone()), channels: channels.clone() };
        let gateway = gateway.with_plugins(Arc::new(routes));
        channels.start(stop.child_token()).iter().for_each(|warning| tracing::error!("{warning}"));
        let mut serving = task::spawn("gateway", gateway.serve(app.hub.clone(), feed, close.clone()));
        let (hub, plugins) = (app.hub.clone(), app.factory.plugins.clone());
        // Plugins start in the background; only what needs one waits for it.
        let plugin_start = AbortOnDropHandle::new(task::spawn("plugins", async move {
            plugins.start().await;
            hub.hooks().gateway_started(port).await;
        }));
        let failed = |error| Error::Task { what: "the gateway task failed", error };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            ended = &mut serving => return ended.map_err(failed),
            () = live.watch() => {}
        }
        if let Some(planned) = planned {
            planned.ended().await;
        }
        for task in approvals {
            task.await.map_err(|error| Error::Task { what: "the approvals task failed", error })?;
        }
        drop(plugin_start);
        app.hub.hooks().gateway_stopping("shutdown").await;
        if app.hub.runs().slots().is_paused() {
            // The next process resumes the runs that are active still. Clients reconnect and never learn that they were
            // interrupted.
            close.cancel();
            serving.await.map_err(failed)?;
            app.hub.lifecycle().shut_down().await;
            return Ok(());
        }
        // Runs first, so that clients still receive their end.
        app.hub.lifecycle().shut_down().await;
        close.cancel();
        serving.await.map_err(failed)
    }
}

/// Recovers unfinished runs.
async fn recover(hub: &Hub, loops: CrashLoops) -> Result<RecoveryResult, Error> {
    let failed = |error: &dyn fmt::Display| Error::Recovery(error.to_string());
    let mut recovered = hub.lifecycle().recover(loops).await.map_err(|error| failed(&error))?;
    if loops == CrashLoops::Resume {
        for run in hub.runs().held().await.map_err(|error| failed(&error))? {
            hub.runs().release(&run.run).await.map_err(|error| failed(&error))?;
            recovered = RecoveryResult { resumed: recovered.resumed + 1, held: recovered.held.saturating_sub(1) };
        }
    }
    tracing::info!(resumed = recovered.resumed, held = recovered.held, "recovered unfinished runs");
    Ok(recovered)
}

/// Records the port and this process for commands, and returns the port.
fn record_port(gateway: &Gateway, paths: &Paths) -> Result<u16, Error> {
    let port = gateway.local_addrs().first().map(SocketAddr::port);
    let port = port.ok_or_else(|| Error::Config("the gateway has no listening address".to_owned()))?;
    let file = paths.port_file();
    let text = format!("{port} {}\n", std::process::id());
    homard_stdx::file::replace(&file, text.as_bytes()).map_err(|error| Error::Write { path: file.clone(), error })?;
    Ok(port)
}

/// Returns the methods of this crate.
fn methods(app: &App, live: &ConfigReloader, paths: &Paths, exec_approvals: &ExecApprovals) -> Vec<Method> {
    let mut methods = methods::all(live, paths, exec_approvals, &app.factory.channels);
    methods.extend(methods::audit::methods(&app.journal, &app.factory.audit));
    methods.push(methods::backup::method(&app.journal, paths));
    methods.push(methods::plugins::method(&app.factory.plugins));
    methods.push(methods::mcp::method(&app.factory.tool_deps.mcp));
    methods
}

fn with_webhooks(gateway: Gateway, app: &App, config: &Config, paths: &Paths) -> Gateway {
    match config.hooks.webhooks() {
        Ok(Some(mut webhooks)) => {
            let folder = config.hooks.transforms(paths);
            webhooks.transformer = Some(Arc::new(Transforms::new(&app.factory.plugins, folder)));
            gateway.with_webhooks(webhooks)
        }
        // The config check reports what is wrong with them.
        Ok(None) | Err(_) => gateway,
    }
}

fn settings(options: &GatewayOptions, config: &Config, paths: &Paths) -> homard_gateway::Settings {
    homard_gateway::Settings {
        bind: options.addresses.clone(),
        secret: match &options.secret {
            GatewaySecret::Token(token) => homard_gateway::Secret::new(Some(token.clone()), None),
            GatewaySecret::Password(password) => homard_gateway::Secret::new(None, Some(password.clone())),
        },
        allowed_origins: config.gateway.control_ui.allowed_origins.clone(),
        trusted_proxies: config.gateway.trusted_proxies.clone(),
        tls: options.tls.clone(),
        allow_insecure: config.gateway.allow_insecure,
        state_dir: paths.state.clone(),
        config_path: Some(paths.config.clone()),
    }
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
