//! Builds the internal hooks from the config.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use futures_util::FutureExt as _;
use homard_agent::{Class, Hub, Inbound};
use homard_config::Loaded;
use homard_hooks::Listener;
use homard_plugins::internal::{Ask, Entry, House, Roots, Rules, Scripts, Settings, WriteFile, listeners};
use homard_proto::{SessionKey, message::User};
use homard_skills::{Level, Problem};
use homard_tools::Background;

use super::{office::workspace, skills};
use crate::{
    config::{Config, Text, internal_hooks::Entry as Said},
    paths::{self, Paths},
};

/// Sender of the messages that hooks submit to agents.
const HOOK: &str = "hook";

/// Returns the hooks as listeners, and warnings.
pub(super) fn open(
    loaded: &Loaded<Config>,
    paths: &Paths,
    hub: Arc<OnceLock<Hub>>,
    scripts: &Arc<dyn Scripts>,
    background: Background,
) -> (Vec<Arc<dyn Listener>>, Vec<String>) {
    let write: WriteFile = Arc::new(move |workspace, work| background.write_file(workspace, work));
    let house = House { slug: None, run: Some(boot(hub)), write: Some(write) };
    let (listeners, problems) = listeners(&settings(loaded, paths), Some(scripts), &house);
    let wrong = problems.into_iter().filter(|problem| problem.level == Level::Warning);
    (listeners, wrong.map(|problem: Problem| problem.to_string()).collect())
}

/// Returns a function that starts a run of the default agent in a new session. The reply is not delivered.
fn boot(hub: Arc<OnceLock<Hub>>) -> Ask {
    Arc::new(move |text| {
        let hub = hub.clone();
        let asked = async move {
            let hub = hub.get().ok_or("there is no hub yet")?;
            let (run, agents) = (hub.ambient().run_id(), hub.agents());
            let key =
                SessionKey::parse(&format!("boot:{run}"), agents.default_id()).map_err(|error| error.to_string())?;
            let message = User::text(text, hub.ambient().now_ms());
            let plain = Inbound::plain(run, (HOOK, "boot"), key, message);
            let inbound = Inbound { class: Class::Cron, label: Some("Boot".to_owned()), ..plain };
            let accepted = hub.submit(inbound).await.map_err(|error| error.to_string())?;
            Ok(accepted.run.to_string())
        };
        asked.boxed()
    })
}

/// Returns where hooks are looked for and how they are filtered. The workspace is the default agent's, because hooks
/// are global.
pub(crate) fn settings(loaded: &Loaded<Config>, paths: &Paths) -> Settings {
    let (said, home) = (&loaded.config.hooks.internal, paths::home());
    // Relative paths are resolved against the state directory.
    let place = |text: &Text| paths.state.join(paths::expand(Path::new(text.as_str()), home.as_deref()));
    let agent = loaded.config.agents.member(None);
    let workspace =
        agent.map_or_else(|| paths.state.join("workspace"), |agent| workspace(&loaded.config, paths, &agent));
    Settings {
        roots: Roots {
            extra: said.load.extra_dirs.iter().map(place).collect(),
            managed: paths.state.join("hooks"),
            workspace: workspace.join("hooks"),
        },
        rules: Rules {
            enabled: said.enabled,
            entries: said.entries.iter().map(|(key, said)| (key.clone(), entry(said))).collect(),
        },
        host: skills::host(loaded),
        state: paths.state.clone(),
        workspace,
    }
}

fn entry(said: &Said) -> Entry {
    Entry {
        enabled: said.enabled,
        env: said.env.iter().map(|(name, value)| (name.clone(), value.as_str().to_owned())).collect(),
        config: said.more.clone().into_iter().collect(),
        guard: said.guard.settings(),
        fault: said.fault.clone(),
    }
}
