//! Lists the channels of the config.

use anyhow::Result;
use homard_settings::{
    channel_kinds::{CHANNEL_KINDS, missing_credential},
    channels::Account,
    paths::Paths,
};
use serde_json::json;

use crate::render::{self, Table};

/// Lists the channels of the config.
pub(super) fn list(wants_json: bool) -> Result<()> {
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let mut rows = Vec::new();
    for (name, channel) in &chosen.loaded.config.channels {
        let name = name.trim().to_lowercase();
        let is_known = CHANNEL_KINDS.iter().any(|(known, _)| *known == name);
        let accounts = channel.resolved_accounts().into_iter();
        rows.extend(accounts.map(|(account, config)| (name.clone(), account, state(&name, &config, is_known))));
    }
    if wants_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(channel, account, state)| json!({"channel": channel, "accountId": account, "state": state}))
            .collect();
        return Ok(render::print_json(&json!({"channels": rows}))?);
    }
    if rows.is_empty() {
        return Ok(render::print("no channels configured; add one with: homard channels add telegram --token TOKEN")?);
    }
    let titles = ["CHANNEL", "ACCOUNT", "STATE"].map(str::to_owned).to_vec();
    let lines = rows
        .into_iter()
        .map(|(channel, account, state)| [channel, account, state].map(|cell| render::strip_controls(&cell)).to_vec());
    Ok(render::print_table(&Table::list(std::iter::once(titles).chain(lines).collect()))?)
}

fn state(channel: &str, account: &Account, is_known: bool) -> String {
    match (is_known, account.enabled, &account.fault, missing_credential(channel, account)) {
        (false, ..) => "not supported yet".to_owned(),
        (true, Some(false), ..) => "off".to_owned(),
        (true, _, Some(fault), _) => format!("down: {fault}"),
        (true, _, None, Some((_, remedy))) if channel == "webhook" => format!("no secret: {remedy}"),
        (true, _, None, Some((_, remedy))) => format!("no token: {remedy}"),
        (true, _, None, None) => "configured".to_owned(),
    }
}
