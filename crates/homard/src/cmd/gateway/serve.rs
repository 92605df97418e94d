//! `homard gateway run`: the gateway in the foreground, until it is told to stop.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, anyhow};
use homard_agent::task;
use tokio_util::sync::CancellationToken;

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
}

/// Runs the gateway until SIGINT or SIGTERM, then ends what is at work and stores it.
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
    let port = args.port.map_or_else(|| anyhow::Ok(paths::port()?.or(config.gateway.port).unwrap_or(PORT)), Ok)?;
    let mut signals = Signals::listen()?;
    let (house, feed) = House::open(&config, &paths, &Place::Workspaces)?;
    let (secret, source) = secret::find_or_make(Secret::either(args.token, args.password), &config, &paths)?;
    let gateway = homard_gateway::bind(settings(port, &secret, &config, &paths)).await?;
    let address = gateway.local_addrs().first().copied().context("the gateway listens nowhere")?;
    render::print(&greeting(address, &config, &paths, (&secret, &source)))?;
    let stop = CancellationToken::new();
    let mut serving = task::spawn("gateway", gateway.serve(house.hub.clone(), feed, stop.clone()));
    tokio::select! {
        biased;
        signal = signals.next() => tracing::info!(%signal, "stopping"),
        ended = &mut serving => ended.context("the gateway broke")?,
    }
    let stopping = async {
        // Runs first, so that clients still hear how theirs ended.
        house.hub.shut_down().await;
        stop.cancel();
        if !serving.is_finished() {
            serving.await.context("the gateway broke")?;
        }
        house.close().await
    };
    tokio::select! {
        biased;
        signal = signals.next() => {
            let text = format!("stopped at once by a second {signal}; what was at work may not be stored as ended");
            Err(Failure { exit: signal.exit_code(), ..Failure::new("interrupted", text) }.into())
        }
        stopped = stopping => stopped,
    }
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

fn greeting(address: SocketAddr, config: &Config, paths: &Paths, (secret, source): (&Secret, &Source)) -> String {
    let model = assemble::model_name(config);
    let hint = if model == DEMO { " (built in, offline; to set a real one see docs/models.md)" } else { "" };
    let kept = if render::is_terminal() { format!("{} ({source})", secret.expose()) } else { source.to_string() };
    let rows = [
        ["listening".to_owned(), format!("ws://{address}")],
        [secret.kind().to_owned(), kept],
        ["state".to_owned(), paths.state.display().to_string()],
        ["model".to_owned(), format!("{model}{hint}")],
        [
            "exec".to_owned(),
            "no sandbox yet: commands run as you, in the workspace, with a cleared environment".to_owned(),
        ],
    ];
    render::table(&rows.map(|row| row.to_vec()))
}
