//! Checks that every enabled channel has its credentials. Its connection state is reported by the gateway.

use std::collections::BTreeMap;

use homard_channel_host::{HostSettings, package};
use homard_settings::channel_kinds::{CHANNEL_KINDS, missing_credential};

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

/// Same as `homard channels list`. While a gateway runs, its health report is more accurate.
pub fn check(context: &CheckContext) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let (mut summary, mut findings) = (Vec::new(), Vec::new());
    for (name, channel) in &loaded.config.channels {
        let kind = name.trim().to_lowercase();
        if !CHANNEL_KINDS.iter().any(|(known, _)| *known == kind) {
            continue;
        }
        if let Some(package) = package(&kind).filter(|_| channel.enabled != Some(false)) {
            let settings = HostSettings::new(*package, &context.paths.state.join("channels"), BTreeMap::new());
            if let Err(why) = settings.check_packages() {
                findings.push(DoctorFinding::problem(
                    format!("{kind} is down: {why}"),
                    format!("homard channels add {kind}"),
                ));
            }
        }
        for (account, config) in channel.resolved_accounts() {
            if config.enabled == Some(false) {
                continue;
            }
            summary.push(format!("{kind} ({account})"));
            // An unset variable is reported by the config check.
            if let Some((message, remedy)) =
                missing_credential(&kind, &config).filter(|_| config.fault.is_none() && context.holder.is_none())
            {
                findings.push(DoctorFinding::problem(format!("{kind} ({account}) is down: {message}"), remedy));
            }
        }
    }
    if summary.is_empty() {
        summary.push("none configured".to_owned());
    }
    CheckReport::new(summary.join(", "), findings)
}
