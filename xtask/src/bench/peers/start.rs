//! Size of an installation, startup time, and memory after startup.

use std::{path::Path, process::Command, rc::Rc, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::{
    environment::{PeerEnvironment, PeerValue, WINDOW, megabytes},
    peer::{self, Peer, StorageKind},
};
use crate::{
    bench::{client::BenchClient, hooks, recovery, report::percentile},
    gateway::{self, RunningGateway},
    setup, shell,
};

/// Number of starts, for quick peers and others.
const STARTS: [usize; 2] = [15, 3];
/// Idle time before memory is read.
const SETTLE: Duration = Duration::from_secs(10);

/// Measures the size of an installation, without Node.
pub(super) fn install(peer: &Peer) -> Result<Vec<PeerValue>> {
    let bytes = match peer {
        Peer::Floor(binary) | Peer::Homard(binary) => binary.metadata()?.len(),
        Peer::OpenClaw(installed) => {
            let modules = installed.script.ancestors().nth(2).context("OpenClaw's script has no parent directory")?;
            let node = installed.node.ancestors().nth(2).context("the Node binary has no parent directory")?;
            on_disk(modules)? - on_disk(node)?
        }
    };
    Ok(vec![("install", megabytes(bytes))])
}

fn on_disk(folder: &Path) -> Result<u64> {
    let output = shell::output(Command::new("du").args(["-s", "--block-size=1"]).arg(folder))?;
    let output = String::from_utf8_lossy(&output);
    output.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).context("du did not print a size")
}

/// Measures startup in a home that was used before, and memory after an idle period.
pub(super) async fn start(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Disk)?;
    drop(home.start().await?);
    let mut times = Vec::new();
    for _ in 1..STARTS[usize::from(!peer.is_quick())] {
        times.push(home.start().await?.startup_time());
    }
    let running = home.start().await?;
    times.push(running.startup_time());
    sleep(SETTLE).await;
    Ok(vec![("start", percentile(&times, 50)), ("idle-rss", megabytes(running.memory()?))])
}

/// Measures startup with ten thousand sessions and fifty plugins, half of them native and half of them OpenClaw's.
pub(super) async fn full_start(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let Peer::Homard(binary) = peer else { bail!("only measured for Homard") };
    let node = setup::node().context("no sufficiently recent version of Node was found")?;
    let plugins = environment.folder.join("plugins");
    let ids: Vec<String> = (0..hooks::PLUGINS).map(|number| format!("plugin-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        let write_plugin = if number % 2 == 0 { hooks::write_python_plugin } else { hooks::write_javascript_plugin };
        write_plugin(&plugins.join(id), id, &["agent_end"])?;
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let config = hooks::with_plugins(&peer::config(environment.model.port(), WINDOW), &node, &plugins, &ids);
    let home = Rc::new(gateway::GatewayHome::new(binary, &config, &environment.folder.join("full-start.log"))?);
    recovery::create_sessions(&home.state())?;
    let unknown: Vec<&str> = ids.iter().skip(1).step_by(2).copied().collect();
    hooks::wait_for_registrations(&RunningGateway::start_at(home.clone())?, &unknown)?;
    let mut times = Vec::new();
    for _ in 0..STARTS[0] {
        let start = Instant::now();
        let gateway = RunningGateway::start_at(home.clone())?;
        drop(BenchClient::connect(gateway.port(), gateway::TOKEN).await?);
        times.push(start.elapsed());
    }
    Ok(vec![("full-start", percentile(&times, 50))])
}
