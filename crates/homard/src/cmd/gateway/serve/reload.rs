//! Looks at the config file while the gateway runs, for what changes without a restart: how many runs are at work at once.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use homard_agent::{Class, Slots};
use tokio::time::{MissedTickBehavior, interval};

use crate::{assemble, config::Config};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Looks until it is dropped. A file that cannot be read changes nothing.
pub(super) async fn watch(path: &Path, slots: &Slots) {
    let mut seen = stamp(path);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = stamp(path);
        if now == seen {
            continue;
        }
        seen = now;
        match Config::load(path) {
            Ok(config) => apply(&config, slots),
            Err(error) => {
                tracing::warn!("the config has changed and cannot be used; what was read before counts: {error:#}")
            }
        }
    }
}

fn apply(config: &Config, slots: &Slots) {
    let (main, subagent) = assemble::slots(config);
    slots.resize(Class::Main, main);
    slots.resize(Class::Subagent, subagent);
    tracing::info!(
        main,
        subagent,
        "the config has changed: so many runs are at work at once; the rest of it needs a restart"
    );
}

/// What tells one state of a file from another.
fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}
