//! Checks that every enabled channel has its credentials. Its connection state is reported by the gateway.

use super::{
    Scene,
    finding::{Finding, Report},
};
use crate::{assemble::channels::KINDS, cmd::channels::lack};

/// Same as `homard channels list`. While a gateway runs, its health report is more accurate.
pub(super) fn look(scene: &Scene) -> Report {
    let Some(loaded) = &scene.loaded else { return Report::without_config() };
    let (mut summary, mut findings) = (Vec::new(), Vec::new());
    for (name, channel) in &loaded.config.channels {
        let kind = name.trim().to_lowercase();
        if !KINDS.iter().any(|(known, _)| *known == kind) {
            continue;
        }
        for (account, said) in channel.described() {
            if said.enabled == Some(false) {
                continue;
            }
            summary.push(format!("{kind} ({account})"));
            // An unset variable is reported by the config check.
            if let Some((what, to_do)) = lack(&kind, &said).filter(|_| said.fault.is_none() && scene.holder.is_none()) {
                findings.push(Finding::wrong(format!("{kind} ({account}) is down: {what}"), to_do));
            }
        }
    }
    if summary.is_empty() {
        summary.push("none is set up".to_owned());
    }
    Report::new(summary.join(", "), findings)
}
