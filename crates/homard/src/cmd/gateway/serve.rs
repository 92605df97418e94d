//! `homard gateway run`: the gateway in the foreground, until it is told to stop.

mod claim;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, anyhow};
use homard_agent::{HubEvent, task};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use self::claim::Claim;
use crate::{
    assemble::{self, DEMO, House, Place},
    config::Config,
    failure::Failure,
    paths::{self, PORT, Paths},
    render,
    secret::{self, Secret, Source},
    signal::Signals,
};

/// The flags of `homard gateway run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen; 0 lets the system choose [default: 18789]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// For whom to listen: loopback is this machine
    #[arg(long, value_name = "loopback")]
    bind: Option<String>,
    /// The token that clients must show
    #[arg(long, value_name = "TEXT")]
    token: Option<String>,
    /// The password that clients must show
    #[arg(long, value_name = "TEXT", conflicts_with = "token")]
    password: Option<String>,
    /// Kill the process that has the state directory, and go on with what it was at
    #[arg(long)]
    takeover: bool,
    /// Take up unfinished runs even after several crashes in a short time
    #[arg(long)]
    recover: bool,
}

/// Runs the gateway until SIGINT or SIGTERM. Runs that are at work then go on at the next start.
pub(super) async fn run(args: Args) -> Result<()> {
    if let Some(bind) = args.bind.as_deref().filter(|bind| !is_loopback(bind)) {
        let text = format!("--bind {bind} is not supported yet: the gateway listens on loopback only");
        return Err(Failure::usage(text).into());
    }
    let paths = Paths::find()?;
    let config = Config::load(&paths.config)?;
    if let Some(bind) = config.gateway.bind.as_deref().filter(|bind| !is_loopback(bind)) {
        let file = paths.config.display();
        return Err(anyhow!("gateway.bind is \"{bind}\" in {file}, which is not supported yet; use \"loopback\""));
    }
    let mut signals = Signals::listen()?;
    let open = || House::open(&config, &paths, &Place::Workspaces);
    let claim = if args.takeover { Claim::Takeover } else { Claim::Polite };
    let (house, feed) = claim::open(&paths.state, claim, open).await?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let work = async move {
        let served = serve(args, (&config, &paths), (&house, feed), stopped).await;
        // Also after a failure, or it would count as a crash.
        let closed = house.close().await;
        served.and(closed)
    };
    tokio::pin!(work);
    tokio::select! {
        biased;
        signal = signals.next() => {
            tracing::info!(%signal, "stopping");
            stop.cancel();
        }
        done = &mut work => return done,
    }
    tokio::select! {
        biased;
        signal = signals.next() => {
            let text = format!("stopped at once by a second {signal}; what was at work goes on at the next start");
            Err(Failure { exit: signal.exit_code(), ..Failure::new("interrupted", text) }.into())
        }
        done = work => done,
    }
}

/// Takes up what was unfinished, and answers until it is told to stop.
async fn serve(
    args: Args,
    (config, paths): (&Config, &Paths),
    (house, feed): (&House, UnboundedReceiver<HubEvent>),
    stop: CancellationToken,
) -> Result<()> {
    let port = args.port.map_or_else(|| anyhow::Ok(paths::port()?.or(config.gateway.port).unwrap_or(PORT)), Ok)?;
    let (secret, source) = secret::find_or_make(Secret::either(args.token, args.password), config, paths)?;
    // A taken port is known before any run begins, and nobody is answered before every run has its place in line.
    let gateway = homard_gateway::bind(settings(port, &secret, config, paths)).await?;
    let going_on = house.hub.recover().await.context("unfinished runs cannot be taken up")?;
    tracing::info!(runs = going_on, "unfinished runs go on");
    let address = gateway.local_addrs().first().copied().context("the gateway listens nowhere")?;
    let port_file = paths.port_file();
    std::fs::write(&port_file, format!("{}\n", address.port()))
        .with_context(|| format!("cannot write {}", port_file.display()))?;
    let mut rows = greeting(address, config, paths, (&secret, &source));
    if going_on > 0 {
        rows.push(["runs".to_owned(), format!("{going_on} unfinished; they go on")]);
    }
    render::print(&render::table(&rows.into_iter().map(Vec::from).collect::<Vec<_>>()))?;
    let closing = CancellationToken::new();
    let mut serving = task::spawn("gateway", gateway.serve(house.hub.clone(), feed, closing.clone()));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        ended = &mut serving => return ended.context("the gateway broke"),
    }
    // Runs first, so that clients still hear of those that ended.
    house.hub.shut_down().await;
    closing.cancel();
    serving.await.context("the gateway broke")
}

fn is_loopback(bind: &str) -> bool {
    matches!(bind.trim(), "loopback" | "auto")
}

fn settings(port: u16, secret: &Secret, config: &Config, paths: &Paths) -> homard_gateway::Settings {
    let mut bind = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    if port != 0 {
        // The system would choose another port for the second address.
        bind.push((Ipv6Addr::LOCALHOST, port).into());
    }
    homard_gateway::Settings {
        bind,
        secret: match secret {
            Secret::Token(token) => homard_gateway::Secret::new(Some(token.clone()), None),
            Secret::Password(password) => homard_gateway::Secret::new(None, Some(password.clone())),
        },
        allowed_origins: config.gateway.control_ui.allowed_origins.clone(),
        state_dir: paths.state.clone(),
        config_path: Some(paths.config.clone()),
    }
}

fn greeting(
    address: SocketAddr,
    config: &Config,
    paths: &Paths,
    (secret, source): (&Secret, &Source),
) -> Vec<[String; 2]> {
    let model = assemble::model_name(config);
    let hint = if model == DEMO { " (built in, offline; to set a real one see docs/models.md)" } else { "" };
    let kept = if render::is_terminal() { format!("{} ({source})", secret.expose()) } else { source.to_string() };
    vec![
        ["listening".to_owned(), format!("ws://{address}")],
        [secret.kind().to_owned(), kept],
        ["state".to_owned(), paths.state.display().to_string()],
        ["model".to_owned(), format!("{model}{hint}")],
        [
            "exec".to_owned(),
            "no sandbox yet: commands run as you, in the workspace, with a cleared environment".to_owned(),
        ],
    ]
}
