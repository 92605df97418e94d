//! Reports current outages: models, channels, the config file, plugins, hooks, held runs. Nothing is probed: the report
//! reflects the last requests, connections and the recovery.

use std::sync::Arc;

use homard_gateway::{Outage, Outages};
use homard_settings::paths::Paths;

use super::App;
use crate::reload::ConfigReloader;

/// Returns a function that lists the current outages.
pub fn of(app: &App, live: &ConfigReloader, paths: &Paths) -> Outages {
    let (hub, channels, live) = (app.hub.clone(), app.factory.channels.clone(), live.clone());
    let plugins = app.factory.plugins.clone();
    let file = paths.config.display().to_string();
    Arc::new(move || {
        let now = hub.ambient().now_ms();
        let agents = hub.agents();
        let model = agents.iter().filter_map(|agent| {
            let why = agent.candidates.outage(now)?;
            Some(Outage { part: "model", id: agent.id.to_string(), why })
        });
        let channel = |((channel, account), why)| Outage { part: "channel", id: format!("{channel}:{account}"), why };
        let config = live.rejected().map(|why| Outage { part: "config", id: file.clone(), why });
        let held_runs = hub.runs().held_ids().into_iter().map(|run| {
            let why = format!(
                "held, because it was active at several crashes in a row; continue it with: homard runs release {run}; \
                 or end it with: homard runs drop {run}"
            );
            Outage { part: "run", id: run.to_string(), why }
        });
        config
            .into_iter()
            .chain(held_runs)
            .chain(model)
            .chain(channels.outages().into_iter().map(channel))
            .chain(plugins.failing().into_iter().map(|(part, id, why)| Outage { part, id, why }))
            .collect()
    })
}
