//! Decides when the gateway is killed, and kills it.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{sleep, timeout},
};

use super::{
    progress::KillProgress,
    rng::SplitMix,
    state::{ChaosState, KillMoment},
    victim::Victim,
};

/// How long to wait for a moment; after that the gateway is killed anyway.
const MOMENT_TIMEOUT: Duration = Duration::from_secs(2);

/// When the gateway is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillPoint {
    /// This long after its process started: during recovery.
    DuringStart(Duration),
    /// When this has happened that many times, and a little later.
    AtMoment(KillMoment, u64, Duration),
    /// This long after it was ready.
    AfterReady(Duration),
}

impl KillPoint {
    fn draw(dice: &mut SplitMix) -> Self {
        let moment = KillMoment::ALL[dice.below(KillMoment::ALL.len() as u64) as usize];
        let often = match moment {
            KillMoment::TextDelta => 1 + dice.below(150),
            KillMoment::Accepted | KillMoment::Tool | KillMoment::LastDelta | KillMoment::Ended => 1 + dice.below(15),
        };
        match dice.below(10) {
            0 => Self::DuringStart(Duration::from_millis(dice.below(40))),
            1..3 => Self::AfterReady(Duration::from_millis(dice.below(150))),
            // Half of them immediately, the others a moment later.
            3..7 => Self::AtMoment(moment, often, Duration::ZERO),
            _ => Self::AtMoment(moment, often, Duration::from_micros(dice.below(5_000))),
        }
    }
}

/// The result of the kills.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct KillStats {
    pub(super) kills: usize,
    pub(super) restarts: usize,
    /// Time of each start after a kill.
    pub(super) ready: Vec<Duration>,
}

/// Starts the gateway and kills it, repeatedly.
pub(super) async fn kill(
    (victim, kills): (&Victim, usize),
    stage: &Arc<ChaosState>,
    mut moments: UnboundedReceiver<KillMoment>,
    mut dice: SplitMix,
    progress: &mut KillProgress,
) -> Result<KillStats> {
    let mut done = KillStats::default();
    while done.kills < kills {
        let death = KillPoint::draw(&mut dice);
        done.restarts += usize::from(done.kills > 0);
        if let KillPoint::DuringStart(after) = death {
            victim.start_and_kill(after).await?;
        } else {
            let living = victim.start().await?;
            if done.kills > 0 {
                done.ready.push(living.ready_after);
            }
            while moments.try_recv().is_ok() {}
            stage.port.send_replace(Some(living.port));
            await_kill_point(death, &mut moments).await;
            living.kill().await?;
            stage.port.send_replace(None);
        }
        done.kills += 1;
        progress.show(done.kills, stage);
    }
    Ok(done)
}

async fn await_kill_point(death: KillPoint, moments: &mut UnboundedReceiver<KillMoment>) {
    match death {
        KillPoint::DuringStart(after) | KillPoint::AfterReady(after) => sleep(after).await,
        KillPoint::AtMoment(moment, often, after) => {
            let happened = async {
                let mut left = often;
                while left > 0 {
                    match moments.recv().await {
                        Some(now) => left -= u64::from(now == moment),
                        None => return,
                    }
                }
            };
            // The gateway is killed now, whether the moment came or not.
            timeout(MOMENT_TIMEOUT, happened).await.ok();
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
    fn every_kind_of_death_is_drawn() {
        let mut dice = SplitMix::new(1);
        let kinds: HashSet<String> = (0..200)
            .map(|_| match KillPoint::draw(&mut dice) {
                KillPoint::DuringStart(_) => "early".to_owned(),
                KillPoint::AfterReady(_) => "sometime".to_owned(),
                KillPoint::AtMoment(moment, _, after) => format!("{moment:?} at once: {}", after.is_zero()),
            })
            .collect();
        assert_eq!(kinds.len(), 2 + 2 * KillMoment::ALL.len(), "{kinds:?}");
    }
}
