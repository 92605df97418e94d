//! Decides when the gateway is killed, and kills it.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use homard_stdx::SeededRng;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{sleep, timeout},
};

use super::{
    state::{ChaosState, ClientHistory, KillMoment},
    victim::Victim,
};

/// How long to wait for the event of a kill point; after that the gateway is killed anyway.
const MOMENT_TIMEOUT: Duration = Duration::from_secs(2);

/// When the gateway is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillPoint {
    /// This long after its process started: during recovery.
    DuringStart(Duration),
    /// This long after an event has happened this many times.
    AtMoment(KillMoment, u64, Duration),
    /// This long after it was ready.
    AfterReady(Duration),
}

impl KillPoint {
    /// Draws a random kill point.
    fn draw(rng: &mut SeededRng) -> Self {
        let moment = KillMoment::ALL[rng.below(KillMoment::ALL.len() as u64) as usize];
        let nth = match moment {
            KillMoment::TextDelta => 1 + rng.below(150),
            KillMoment::Accepted | KillMoment::Tool | KillMoment::LastDelta | KillMoment::Ended => 1 + rng.below(15),
        };
        match rng.below(10) {
            0 => Self::DuringStart(Duration::from_millis(rng.below(40))),
            1..3 => Self::AfterReady(Duration::from_millis(rng.below(150))),
            // Immediately after the event; otherwise up to 5 ms later.
            3..7 => Self::AtMoment(moment, nth, Duration::ZERO),
            _ => Self::AtMoment(moment, nth, Duration::from_micros(rng.below(5_000))),
        }
    }
}

/// Statistics of the kills.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct KillStats {
    pub kills: usize,
    pub restarts: usize,
    /// Duration of each start after a kill: from the start of the process until it was ready. Starts that were killed
    /// themselves are not included.
    pub ready: Vec<Duration>,
}

/// How far the kills of a scenario are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub killed: usize,
    pub kills: usize,
    /// How many runs were accepted, and how many of them have ended.
    pub accepted: usize,
    pub ended: usize,
    pub problems: usize,
}

impl Progress {
    fn of(killed: usize, kills: usize, history: &ClientHistory) -> Self {
        Self {
            killed,
            kills,
            accepted: history.runs.values().filter(|run| run.is_accepted).count(),
            ended: history.runs.values().filter(|run| run.result.is_some()).count(),
            problems: history.problems.len(),
        }
    }
}

/// The kills of a scenario.
#[derive(Debug)]
pub(super) struct Killer<'a> {
    pub victim: &'a Victim,
    pub state: &'a Arc<ChaosState>,
    pub moments: UnboundedReceiver<KillMoment>,
    pub rng: SeededRng,
    /// How many kills there are to be.
    pub kills: usize,
}

/// Starts the gateway and kills it, repeatedly. `show` is called after each kill.
pub(crate) async fn kill(killer: Killer<'_>, show: &mut dyn FnMut(&Progress)) -> Result<KillStats> {
    let Killer { victim, state, mut moments, mut rng, kills } = killer;
    let mut stats = KillStats::default();
    while stats.kills < kills {
        let kill_point = KillPoint::draw(&mut rng);
        stats.restarts += usize::from(stats.kills > 0);
        if let KillPoint::DuringStart(after) = kill_point {
            victim.start_and_kill(after).await?;
        } else {
            let gateway = victim.start().await?;
            if stats.kills > 0 {
                stats.ready.push(gateway.ready_after);
            }
            while moments.try_recv().is_ok() {}
            state.port.send_replace(Some(gateway.port));
            await_kill_point(kill_point, &mut moments).await;
            gateway.kill().await?;
            state.port.send_replace(None);
        }
        stats.kills += 1;
        show(&Progress::of(stats.kills, kills, &state.history()));
    }
    Ok(stats)
}

/// Waits until the gateway is to be killed.
async fn await_kill_point(kill_point: KillPoint, moments: &mut UnboundedReceiver<KillMoment>) {
    match kill_point {
        KillPoint::DuringStart(after) | KillPoint::AfterReady(after) => sleep(after).await,
        KillPoint::AtMoment(moment, nth, after) => {
            let reached = async {
                let mut remaining = nth;
                while remaining > 0 {
                    match moments.recv().await {
                        Some(now) => remaining -= u64::from(now == moment),
                        None => return,
                    }
                }
            };
            // On timeout the gateway is killed although the event has not happened.
            timeout(MOMENT_TIMEOUT, reached).await.ok();
            if !after.is_zero() {
                sleep(after).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_of_kill_point_is_drawn() {
        let mut rng = SeededRng::new(1);
        let kinds: HashSet<String> = (0..200)
            .map(|_| match KillPoint::draw(&mut rng) {
                KillPoint::DuringStart(_) => "early".to_owned(),
                KillPoint::AfterReady(_) => "sometime".to_owned(),
                KillPoint::AtMoment(moment, _, after) => format!("{moment:?} at once: {}", after.is_zero()),
            })
            .collect();
        assert_eq!(kinds.len(), 2 + 2 * KillMoment::ALL.len(), "{kinds:?}");
    }
}
