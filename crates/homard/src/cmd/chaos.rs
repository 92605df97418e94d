//! `homard chaos`: kills a temporary gateway repeatedly while clients use it, and then checks that nothing was lost.
//!
//! [`victim`] is the gateway, [`model`] answers it by a [`script`], [`sender`]s keep it busy, the [`killer`] kills it;
//! [`verify`] requests every result again, and [`check`] compares the disk with what the clients received.

mod check;
mod killer;
mod model;
mod progress;
mod report;
mod rng;
mod script;
mod sender;
mod state;
mod verify;
mod victim;

use std::{collections::BTreeMap, fs, io::ErrorKind, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures_util::future::join_all;
use homard_runtime::task;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use self::{
    check::DiskState, killer::KillStats, model::ScriptedServer, progress::KillProgress, report::ChaosReport,
    rng::SplitMix, script::COUNTER, sender::Sender, state::ChaosState, victim::Victim,
};
use crate::{cli_error::CliError, render, signal::Signals};

/// Time for the clients to receive the end of all their runs after the last kill.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Total time for the final verification requests.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(600);

/// The flags of `homard chaos`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard chaos --kills 100
  homard chaos --kills 1000 --seed 7 --json

The gateway, its state and its model are created for the test and removed afterwards; your own state is not changed.
Exit code 1 means that something was lost or duplicated; the files are then kept, and the last line says where.")]
pub(super) struct Args {
    /// Number of kills
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// Seed of the random kills and pauses; their exact timing depends on the machine
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of concurrent sessions
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    sessions: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep the state directory and the log
    #[arg(long)]
    keep: bool,
}

/// Kills, checks and reports.
pub(super) async fn run(args: Args) -> Result<()> {
    let folder =
        tempfile::Builder::new().prefix("homard-chaos-").tempdir().context("cannot create a temporary directory")?;
    let mut signals = Signals::listen()?;
    let outcome = tokio::select! {
        biased;
        signal = signals.next() => {
            let failure = CliError::new("interrupted", format!("stopped by {signal}; nothing was checked"));
            return Err(CliError { exit: signal.exit_code(), ..failure }.into());
        }
        outcome = run_scenario(&args, folder.path()) => outcome,
    };
    let report = match outcome {
        Ok(report) => report,
        Err(error) => return Err(CliError::new("failed", format!("{error:#}\n{}", keep(folder))).into()),
    };
    let report = ChaosReport { kept: Some(folder.path()).filter(|_| args.keep || !report.is_good()), ..report };
    if args.json {
        render::print_json(&report.to_json())?;
    } else {
        render::print_table(&report.to_table())?;
        report.problems.iter().for_each(|problem| render::remark(&render::strip_controls(problem)));
    }
    let is_good = report.is_good();
    if !is_good {
        return Err(
            CliError::new("failed", format!("something was lost, duplicated or wrong\n{}", keep(folder))).into()
        );
    }
    if args.keep {
        render::remark(&keep(folder));
    }
    Ok(())
}

/// Keeps all files and says where they are.
fn keep(folder: TempDir) -> String {
    format!("the state and the log are kept in {}", folder.keep().display())
}

async fn run_scenario(args: &Args, folder: &Path) -> Result<ChaosReport<'static>> {
    let started_at = Instant::now();
    let seed = args.seed.map_or_else(random, Ok)?;
    let token = format!("chaos-{:016x}", random()?);
    let (state, moments) = ChaosState::new(token.clone());
    let state = Arc::new(state);
    let model = ScriptedServer::start(state.clone()).await?;
    let sessions = usize::from(args.sessions);
    let victim = Victim::new(folder, &token, model.port, sessions.div_ceil(2))?;
    let senders: Vec<_> = (0..sessions)
        .map(|number| AbortOnDropHandle::new(task::spawn("client", Sender::new(state.clone(), number, seed).run())))
        .collect();
    let kills = args.kills as usize;
    let mut progress = KillProgress::new(kills);
    let killed = killer::kill((&victim, kills), &state, moments, SplitMix::new(seed), &mut progress).await?;
    let killed = settle(&victim, &state, senders, killed).await?;
    let found = check::check(&state.history(), &read(&victim)?);
    let mut history = state.history();
    found.problems.iter().for_each(|problem| history.problem(problem.clone()));
    let (requests, problems) = (history.requests, history.some_problems());
    Ok(ChaosReport { seed, killed, found, requests, problems, took: started_at.elapsed(), kept: None })
}

/// Waits for all runs, restarts once more, and requests every result again.
async fn settle(
    victim: &Victim,
    state: &Arc<ChaosState>,
    senders: Vec<AbortOnDropHandle<()>>,
    mut killed: KillStats,
) -> Result<KillStats> {
    let gateway = victim.start().await?;
    killed.restarts += 1;
    killed.ready.push(gateway.ready_after);
    state.port.send_replace(Some(gateway.port));
    state.closing.cancel();
    if timeout(SETTLE_TIMEOUT, join_all(senders)).await.is_err() {
        state.history().problem(format!("not all runs ended within {SETTLE_TIMEOUT:?} after the last kill"));
    }
    stop(gateway).await?;
    let gateway = victim.start().await?;
    let verified = timeout(VERIFY_TIMEOUT, async {
        verify::repeat_requests(state, gateway.port).await?;
        verify::continue_sessions(state, gateway.port).await
    });
    verified
        .await
        .with_context(|| format!("the gateway did not answer all verification requests within {VERIFY_TIMEOUT:?}"))??;
    stop(gateway).await?;
    Ok(killed)
}

async fn stop(gateway: victim::ChaosGateway) -> Result<()> {
    let status = gateway.stop().await?;
    ensure!(status.success(), "the gateway did not shut down cleanly ({status})");
    Ok(())
}

/// Reads the transcripts and the counter from disk.
fn read(victim: &Victim) -> Result<DiskState> {
    let folder = victim.state().join("agents/main/sessions");
    let mut transcripts = BTreeMap::new();
    let listing = match fs::read_dir(&folder) {
        // Every kill came before a run started.
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        listing => Some(listing.with_context(|| format!("cannot list {}", folder.display()))?),
    };
    for item in listing.into_iter().flatten() {
        let path = item?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            transcripts.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text);
        }
    }
    let counter = match fs::read_to_string(victim.workspace().join(COUNTER)) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        counter => counter.context("cannot read the counter file")?,
    };
    Ok(DiskState { transcripts, counter })
}

fn random() -> Result<u64> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(std::io::Error::from).context("cannot read random bytes")?;
    // Short enough to type.
    Ok(u64::from(u32::from_le_bytes(bytes)))
}
