//! The crash test of a whole gateway: it is killed repeatedly while clients use it, and then nothing may be lost.
//!
//! A development tool behind `homard chaos`; the product does not depend on it. `victim` is the gateway, `model`
//! answers it by a `script`, `sender`s keep it busy, the `killer` kills it; `verify` requests every result again,
//! and `check` compares the disk with what the clients received. Start with [`run`].

mod check;
mod killer;
mod model;
mod script;
mod sender;
mod state;
mod verify;
mod victim;

use std::{collections::BTreeMap, fs, io::ErrorKind, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures_util::future::join_all;
use homard_runtime::task;
use homard_stdx::SeededRng;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use self::{
    check::DiskState, killer::Killer, model::ScriptedServer, script::COUNTER, sender::Sender, state::ChaosState,
    victim::Victim,
};

pub use self::{
    check::ChaosFindings,
    killer::{KillStats, Progress},
};

/// Time for the clients to receive the end of all their runs after the last kill.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Total time for the final verification requests.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(600);

/// What is tested.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Number of kills.
    pub kills: usize,
    /// Seed of the random kills and pauses; a random one if there is none.
    pub seed: Option<u64>,
    /// Number of concurrent sessions.
    pub sessions: usize,
}

/// What happened.
#[derive(Debug)]
pub struct ScenarioResult {
    pub seed: u64,
    pub killed: KillStats,
    pub found: ChaosFindings,
    /// Number of model requests.
    pub requests: usize,
    pub problems: Vec<String>,
    pub took: Duration,
}

impl ScenarioResult {
    /// Returns true if nothing was lost, doubled or otherwise wrong.
    pub fn is_good(&self) -> bool {
        let ChaosFindings { lost, doubled_effects, doubled_inputs, .. } = &self.found;
        lost.is_empty() && doubled_effects.is_empty() && doubled_inputs.is_empty() && self.problems.is_empty()
    }
}

/// Kills a gateway with its state in `folder` and checks what is left. The gateway is this program, started with
/// `gateway run`. `show` is called after each kill.
pub async fn run(scenario: Scenario, folder: &Path, show: &mut dyn FnMut(&Progress)) -> Result<ScenarioResult> {
    let started_at = Instant::now();
    let seed = scenario.seed.map_or_else(random, Ok)?;
    let token = format!("chaos-{:016x}", random()?);
    let (state, moments) = ChaosState::new(token.clone());
    let state = Arc::new(state);
    let model = ScriptedServer::start(state.clone()).await?;
    let sessions = scenario.sessions;
    let victim = Victim::new(folder, &token, model.port, sessions.div_ceil(2))?;
    let senders: Vec<_> = (0..sessions)
        .map(|number| AbortOnDropHandle::new(task::spawn("client", Sender::new(state.clone(), number, seed).run())))
        .collect();
    let killer = Killer { victim: &victim, state: &state, moments, rng: SeededRng::new(seed), kills: scenario.kills };
    let killed = killer::kill(killer, show).await?;
    let killed = settle(&victim, &state, senders, killed).await?;
    let found = check::check(&state.history(), &read(&victim)?);
    let mut history = state.history();
    found.problems.iter().for_each(|problem| history.problem(problem.clone()));
    let (requests, problems) = (history.requests, history.some_problems());
    Ok(ScenarioResult { seed, killed, found, requests, problems, took: started_at.elapsed() })
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
