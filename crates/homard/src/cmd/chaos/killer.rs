//! Decides when the gateway is killed, and kills it.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{sleep, timeout},
};

use super::{
    dice::Dice,
    progress::Progress,
    stage::{Moment, Stage},
    victim::Victim,
};

/// How long to wait for a moment; after that the gateway is killed anyway.
const PATIENCE: Duration = Duration::from_secs(2);

/// When the gateway is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// This long after its process started: during recovery.
    Early(Duration),
    /// When this has happened that many times, and a little later.
    At(Moment, u64, Duration),
    /// This long after it was ready.
    Sometime(Duration),
}

impl Death {
    fn draw(dice: &mut Dice) -> Self {
        let moment = Moment::ALL[dice.below(Moment::ALL.len() as u64) as usize];
        let often = match moment {
            Moment::Word => 1 + dice.below(150),
            Moment::Accepted | Moment::Tool | Moment::LastWord | Moment::Ended => 1 + dice.below(15),
        };
        match dice.below(10) {
            0 => Self::Early(Duration::from_millis(dice.below(40))),
            1..3 => Self::Sometime(Duration::from_millis(dice.below(150))),
            // Half of them immediately, the others a moment later.
            3..7 => Self::At(moment, often, Duration::ZERO),
            _ => Self::At(moment, often, Duration::from_micros(dice.below(5_000))),
        }
    }
}

/// The result of the kills.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Killed {
    pub(super) kills: usize,
    pub(super) restarts: usize,
    /// Time of each start after a kill.
    pub(super) ready: Vec<Duration>,
}

/// Starts the gateway and kills it, repeatedly.
pub(super) async fn kill(
    (victim, kills): (&Victim, usize),
    stage: &Arc<Stage>,
    mut moments: UnboundedReceiver<Moment>,
    mut dice: Dice,
    progress: &mut Progress,
) -> Result<Killed> {
    let mut done = Killed::default();
    while done.kills < kills {
        let death = Death::draw(&mut dice);
        done.restarts += usize::from(done.kills > 0);
        if let Death::Early(after) = death {
            victim.start_and_kill(after).await?;
        } else {
            let living = victim.start().await?;
            if done.kills > 0 {
                done.ready.push(living.ready_after);
            }
            while moments.try_recv().is_ok() {}
            stage.door.send_replace(Some(living.port));
            await_death(death, &mut moments).await;
            living.kill().await?;
            stage.door.send_replace(None);
        }
        done.kills += 1;
        progress.show(done.kills, stage);
    }
    Ok(done)
}

async fn await_death(death: Death, moments: &mut UnboundedReceiver<Moment>) {
    match death {
        Death::Early(after) | Death::Sometime(after) => sleep(after).await,
        Death::At(moment, often, after) => {
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
            timeout(PATIENCE, happened).await.ok();
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
        let mut dice = Dice::new(1);
        let kinds: HashSet<String> = (0..200)
            .map(|_| match Death::draw(&mut dice) {
                Death::Early(_) => "early".to_owned(),
                Death::Sometime(_) => "sometime".to_owned(),
                Death::At(moment, _, after) => format!("{moment:?} at once: {}", after.is_zero()),
            })
            .collect();
        assert_eq!(kinds.len(), 2 + 2 * Moment::ALL.len(), "{kinds:?}");
    }
}
