//! `homard gateway install`, `uninstall`, `start`, `stop`, `restart` and `status`: the gateway as a service.

mod report;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use homard_journal::lock;
use homard_service::{
    manager::{InstallReport, Locations, Manager},
    spec::{Credential, NAME, Scope, ServiceSpec},
    supervisor::{self, Supervisor},
    systemd,
};
use homard_settings::{
    Config,
    paths::{self, PORT, Paths},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::serve::listen;
use crate::{
    cli_error::CliError,
    cmd::{
        flags,
        query::{Call, CommandContext},
    },
    render,
    signal::Signals,
};

/// How long a gateway may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of checks whether a gateway answers.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// State directory of a system service.
const SYSTEM_STATE: &str = "/var/lib/homard";

/// The flags of the commands that control the service.
#[derive(Debug, clap::Args)]
pub(super) struct ScopeArgs {
    /// The service of the machine instead of that of this user
    #[arg(long)]
    system: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments of `homard gateway install`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  homard gateway install
  sudo homard gateway install --system --env-file /etc/homard/environment
  sudo homard gateway install --system --credential openai-key=/etc/homard/openai-key
  homard gateway install --print")]
pub(super) struct InstallArgs {
    /// Install a service of the machine, with its state in /var/lib/homard, instead of one of this user
    #[arg(long)]
    system: bool,
    /// User that a service of the machine runs as
    #[arg(long, value_name = "NAME", default_value = NAME, requires = "system")]
    user: String,
    /// File with environment variables, such as API keys
    #[arg(long, value_name = "PATH")]
    env_file: Option<PathBuf>,
    /// Secret that only the service can read; the config refers to it as ${credential:NAME}. May be repeated
    #[arg(long, value_name = "NAME=PATH", value_parser = Credential::parse)]
    credential: Vec<Credential>,
    /// Let the gateway open its sockets itself; connections are then refused during a restart by the service manager
    #[arg(long)]
    no_socket: bool,
    /// Do not start the service
    #[arg(long)]
    no_start: bool,
    /// Print the files instead of installing them
    #[arg(long)]
    print: bool,
    /// Program that the service runs, if it is not this file
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments of `homard gateway restart`.
#[derive(Debug, clap::Args)]
pub(super) struct RestartArgs {
    /// How long active runs may take to end; the new process resumes the others [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = flags::seconds)]
    wait: Option<Duration>,
    /// The service of the machine instead of that of this user
    #[arg(long)]
    system: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The service manager and the state directory of a service.
struct Target {
    manager: Option<Manager>,
    paths: Paths,
}

impl Target {
    fn find(system: bool) -> Result<Self> {
        let scope = if system { Scope::System(NAME.to_owned()) } else { Scope::User };
        Ok(Self { manager: Manager::find(&scope, &locations()?), paths: service_paths(system)? })
    }

    /// Returns the manager if the service is installed.
    fn installed(&self) -> Result<Option<&Manager>> {
        let Some(manager) = &self.manager else { return Ok(None) };
        Ok(manager.state()?.is_installed.then_some(manager))
    }

    /// Returns a context for requests to the gateway of this service.
    fn context(&self) -> Result<CommandContext> {
        CommandContext::of(self.paths.clone())
    }

    /// Returns what the running gateway says about its process; `None` if none answers.
    async fn process(&self) -> Result<Option<Value>> {
        self.context()?.query("homard.gateway.status").await
    }
}

/// Whether the gateway is a service of this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cmd) enum ServiceStatus {
    /// There is no service manager.
    NoManager,
    NotInstalled,
    Installed,
}

impl ServiceStatus {
    /// Asks the service manager.
    pub(in crate::cmd) fn find() -> Result<Self> {
        if paths::home().is_none() {
            return Ok(Self::NoManager);
        }
        let target = Target::find(false)?;
        Ok(match (&target.manager, target.installed()?) {
            (None, _) => Self::NoManager,
            (Some(_), None) => Self::NotInstalled,
            (Some(_), Some(_)) => Self::Installed,
        })
    }
}

fn locations() -> Result<Locations> {
    let home = paths::home().context("HOME is not set")?;
    let config = paths::env("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    Ok(Locations { home, config })
}

/// Returns the paths of the service: those of this command, or of the machine's service unless the environment names
/// another state directory.
fn service_paths(system: bool) -> Result<Paths> {
    if !system || paths::setting("STATE_DIR").is_some() {
        return Ok(Paths::find()?);
    }
    Ok(Paths { state: SYSTEM_STATE.into(), config: PathBuf::from(SYSTEM_STATE).join("homard.json") })
}

/// Describes the service that is to be installed.
fn spec(args: &InstallArgs, paths: &Paths) -> Result<ServiceSpec> {
    let config = Config::choose(paths)?.loaded.config;
    let port = paths::port()?.or(config.gateway.port).unwrap_or(PORT);
    let addresses = listen::addresses(listen::bind(None, &config)?, port, &config)?;
    let addresses = if args.no_socket { Vec::new() } else { listen::supported(addresses) };
    let search_path = if args.system { None } else { paths::env("PATH").and_then(|path| path.into_string().ok()) };
    let scope = if args.system { Scope::System(args.user.clone()) } else { Scope::User };
    Ok(ServiceSpec {
        program: args.program.clone().map_or_else(std::env::current_exe, Ok).context("cannot find this program")?,
        state_dir: paths.state.clone(),
        config: paths::setting("CONFIG_PATH").is_some().then(|| paths.config.clone()),
        addresses,
        scope,
        credentials: args.credential.clone(),
        environment_file: args.env_file.clone(),
        search_path: search_path.unwrap_or_default(),
    })
}

/// Installs the service and starts it.
pub(super) async fn install(args: &InstallArgs) -> Result<()> {
    let target = Target::find(args.system)?;
    if args.print {
        let spec = spec(args, &target.paths)?;
        let units = [Some(systemd::service(&spec)?), systemd::socket(&spec)];
        return Ok(render::print(units.into_iter().flatten().collect::<Vec<_>>().join("\n").trim_end())?);
    }
    let InstallReport { files, warnings } = install_service(&target, args)?;
    warnings.iter().for_each(|warning| render::remark(&format!("warning: {warning}")));
    if args.json {
        return Ok(render::print_json(
            &json!({"ok": true, "files": files, "warnings": warnings, "started": !args.no_start}),
        )?);
    }
    let mut text: Vec<_> = files.iter().map(|path| format!("wrote {}", path.display())).collect();
    text.push(match args.no_start {
        true => "the service is installed; start it with: homard gateway start".to_owned(),
        false => "the service is installed and running; show it with: homard gateway status".to_owned(),
    });
    Ok(render::print(&text.join("\n"))?)
}

/// Installs the service of this user and starts it.
pub(in crate::cmd) fn install_for_user() -> Result<InstallReport> {
    install_service(&Target::find(false)?, &InstallArgs::default())
}

fn install_service(target: &Target, args: &InstallArgs) -> Result<InstallReport> {
    let spec = spec(args, &target.paths)?;
    let manager = target.manager.as_ref().ok_or_else(|| no_manager(args.system))?;
    if !args.no_start
        && manager.state()?.pid.is_none()
        && let Some(holder) = lock::holder(&target.paths.state)
    {
        let text = format!("a gateway already uses {}: {holder}; stop it first", target.paths.state.display());
        return Err(CliError::new("locked", text).into());
    }
    let report = manager.install(&spec)?;
    if !args.no_start {
        manager.start()?;
    }
    Ok(report)
}

/// Returns what to do on a machine without a service manager.
pub(in crate::cmd) fn no_manager(system: bool) -> CliError {
    let whose = if system { "this machine" } else { "this user" };
    CliError::new(
        "service",
        format!(
            "no service manager runs for {whose}\n\
             run the gateway in the background, restarted after failures, with: homard gateway start\n\
             or let the init system of the machine or container run: homard gateway run"
        ),
    )
}

/// Stops and removes the service.
pub(super) fn uninstall(args: &ScopeArgs) -> Result<()> {
    let target = Target::find(args.system)?;
    let files = target.manager.as_ref().ok_or_else(|| no_manager(args.system))?.uninstall()?;
    if files.is_empty() {
        return Err(CliError::not_found("the service is not installed").into());
    }
    let text: Vec<_> = files.iter().map(|path| format!("removed {}", path.display())).collect();
    finish(&json!({"ok": true, "files": files}), &text.join("\n"), args.json)
}

/// Starts the service, or a supervised gateway in the background.
pub(super) async fn start(args: &ScopeArgs) -> Result<()> {
    let target = Target::find(args.system)?;
    if let Some(manager) = target.installed()? {
        manager.start()?;
        return finish(&json!({"ok": true, "manager": manager.state()?.manager}), "the service runs", args.json);
    }
    if target.manager.is_some() {
        render::remark(
            "the service is not installed, so nothing starts the gateway with the machine; install it with: homard gateway install",
        );
    }
    if let Some(holder) = lock::holder(&target.paths.state) {
        return Err(CliError::new("locked", format!("a gateway already runs: {holder}")).into());
    }
    let (program, state) = (std::env::current_exe().context("cannot find this program")?, &target.paths.state);
    Config::choose(&target.paths)?;
    let mut process = supervisor::start_detached(state, &program, &["gateway", "supervise"])?;
    let started_at = Instant::now();
    loop {
        if let Ok(Some(gateway)) = target.process().await {
            let text = format!(
                "the gateway runs in the background (process {}); it does not start with the machine\nlog: {}",
                gateway["pid"],
                supervisor::log_file(state).display()
            );
            return finish(&json!({"ok": true, "manager": "supervisor", "gateway": gateway}), &text, args.json);
        }
        let exit = process.try_wait().context("cannot watch the supervisor")?;
        // The file may still contain what an earlier supervisor wrote.
        let record = Some(supervisor::last_record(state)).filter(|record| record.pid == process.id());
        let record = record.unwrap_or_default();
        if exit.is_some() || started_at.elapsed() > START_TIMEOUT || record.restarts > 2 {
            let stopped = state.clone();
            tokio::task::spawn_blocking(move || supervisor::stop(&stopped)).await.context("the request failed")??;
            let why = record.last_exit.unwrap_or_else(|| "it does not answer".to_owned());
            let log = supervisor::log_file(state);
            return Err(
                CliError::new("service", format!("the gateway did not start: {why}; see {}", log.display())).into()
            );
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Stops the service, or the supervised gateway.
pub(super) async fn stop(args: &ScopeArgs) -> Result<()> {
    let target = Target::find(args.system)?;
    if let Some(manager) = target.installed()? {
        manager.stop()?;
        return finish(&json!({"ok": true, "manager": manager.state()?.manager}), "the service is stopped", args.json);
    }
    let state = target.paths.state.clone();
    if tokio::task::spawn_blocking(move || supervisor::stop(&state)).await.context("the request failed")?? {
        return finish(&json!({"ok": true, "manager": "supervisor"}), "the gateway is stopped", args.json);
    }
    Err(match lock::holder(&target.paths.state) {
        Some(holder) => {
            let text = format!("the gateway is not a service; stop {holder} with: kill {}", holder.pid);
            CliError::new("service", text)
        }
        None => CliError::new("service", "no gateway runs"),
    }
    .into())
}

/// Replaces the running gateway; starts the installed service if none runs.
pub(super) async fn restart(args: &RestartArgs) -> Result<()> {
    let target = Target::find(args.system)?;
    let Some(before) = target.process().await? else {
        let Some(manager) = target.installed()? else { return Err(target.context()?.not_running().into()) };
        manager.restart()?;
        return finish(&json!({"ok": true, "manager": manager.state()?.manager}), "the service was started", args.json);
    };
    let params = args.wait.map_or_else(|| json!({}), |wait| json!({"waitMs": homard_stdx::time::millis(wait)}));
    let answer = target.context()?.require(Call::admin("homard.gateway.restart", params)).await?;
    let wait = Duration::from_millis(answer["waitMs"].as_u64().unwrap_or_default());
    if let Some(active @ 1..) = answer["waitsFor"].as_u64() {
        let limit = render::duration(wait);
        let runs = render::count(usize::try_from(active).unwrap_or(usize::MAX), "active run");
        render::remark(&format!("waiting up to {limit} for {runs}; what does not end by then continues afterwards"));
    }
    let after = async {
        loop {
            // Connections wait in the socket's queue while no process serves it, and may be cut off before that.
            match target.process().await {
                Ok(Some(now)) if now["startedAtMs"] != before["startedAtMs"] => return now,
                Ok(_) | Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
    };
    let Ok(after) = timeout(wait + START_TIMEOUT, after).await else {
        let text = "the gateway did not come back; see: homard gateway status, homard gateway logs";
        return Err(CliError::new("connection", text).into());
    };
    let text = format!(
        "restarted: version {} (before: {})",
        after["version"].as_str().unwrap_or("?"),
        before["version"].as_str().unwrap_or("?")
    );
    finish(&json!({"ok": true, "before": before, "after": after}), &text, args.json)
}

/// Shows the service and its gateway.
pub(super) async fn status(args: &ScopeArgs) -> Result<()> {
    report::show(&Target::find(args.system)?, args.json).await
}

/// Supervises a gateway until SIGTERM, or until it ends by itself.
pub(super) async fn supervise() -> Result<()> {
    let paths = Paths::find()?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut signals = Signals::listen()?;
    let supervisor = Supervisor::begin(&paths.state, &program, &["gateway", "run"])?;
    let status = supervisor
        .run(async {
            signals.next().await;
        })
        .await?;
    match status.success() {
        true => Ok(()),
        false => Err(CliError::new("service", format!("the gateway ended with {status}")).into()),
    }
}

fn finish(document: &Value, text: &str, is_json: bool) -> Result<()> {
    if is_json {
        return Ok(render::print_json(document)?);
    }
    Ok(render::print(text)?)
}
