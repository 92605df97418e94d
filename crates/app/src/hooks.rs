//! Builds the internal hooks from the config.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use futures_util::FutureExt as _;
use homard_agent::{Hub, Inbound, InboundSender};
use homard_config::LoadedConfig;
use homard_hooks::Listener;
use homard_plugins::internal::{
    BundledServices, HookEntry, HookRoots, HookRules, ScriptRunner, Settings, TextFunction, WriteFile, listeners,
};
use homard_proto::{SessionKey, message::User};
use homard_queue::RunClass;
use homard_settings::{
    Config, Text,
    agent_directories::workspace,
    internal_hooks::Entry as Said,
    paths::{self, Paths},
};
use homard_tools::BackgroundCommands;
use homard_workspace::skills::{ProblemLevel, SkillProblem};

use super::skills;

/// Sender of the messages that hooks submit to agents.
const HOOK_SENDER: &str = "hook";

/// Returns the hooks as listeners, and warnings.
pub fn open(
    loaded: &LoadedConfig<Config>,
    paths: &Paths,
    hub: Arc<OnceLock<Hub>>,
    scripts: &Arc<dyn ScriptRunner>,
    background: BackgroundCommands,
) -> (Vec<Arc<dyn Listener>>, Vec<String>) {
    let write: WriteFile = Arc::new(move |workspace, change| background.write_file(workspace, change));
    let services = BundledServices { slug: None, run: Some(boot_run(hub)), write: Some(write) };
    let (listeners, problems) = listeners(&settings(loaded, paths), Some(scripts), &services);
    let warnings = problems.into_iter().filter(|problem| problem.level == ProblemLevel::Warning);
    (listeners, warnings.map(|problem: SkillProblem| problem.to_string()).collect())
}

/// Returns a function that starts a run of the default agent in a new session. The reply is not delivered.
fn boot_run(hub: Arc<OnceLock<Hub>>) -> TextFunction {
    Arc::new(move |text| {
        let hub = hub.clone();
        let reply = async move {
            let hub = hub.get().ok_or("the gateway is not ready yet")?;
            let (run, agents) = (hub.ambient().run_id(), hub.agents());
            let key =
                SessionKey::parse(&format!("boot:{run}"), agents.default_id()).map_err(|error| error.to_string())?;
            let message = User::text(text, hub.ambient().now_ms());
            let mut inbound = Inbound::plain(run, InboundSender::new(HOOK_SENDER, "boot"), key, message);
            inbound.session.label = Some("Boot".to_owned());
            inbound.options.class = RunClass::Cron;
            let accepted = hub.submit(inbound).await.map_err(|error| error.to_string())?;
            Ok(accepted.run.to_string())
        };
        reply.boxed()
    })
}

/// Returns where hooks are looked for and how they are filtered. The workspace is the default agent's, because hooks
/// are global.
pub fn settings(loaded: &LoadedConfig<Config>, paths: &Paths) -> Settings {
    let (internal, home) = (&loaded.config.hooks.internal, paths::home());
    // Relative paths are resolved against the state directory.
    let resolve = |text: &Text| paths.state.join(paths::expand(Path::new(text.as_str()), home.as_deref()));
    let agent = loaded.config.agents.member(None);
    let workspace =
        agent.map_or_else(|| paths.state.join("workspace"), |agent| workspace(&loaded.config, paths, &agent));
    Settings {
        roots: HookRoots {
            extra: internal.load.extra_dirs.iter().map(resolve).collect(),
            managed: paths.state.join("hooks"),
            workspace: workspace.join("hooks"),
        },
        rules: HookRules {
            enabled: internal.enabled,
            entries: internal.entries.iter().map(|(key, section)| (key.clone(), entry(section))).collect(),
        },
        host: skills::host(loaded),
        state: paths.state.clone(),
        workspace,
    }
}

fn entry(section: &Said) -> HookEntry {
    HookEntry {
        enabled: section.enabled,
        env: section.env.iter().map(|(name, value)| (name.clone(), value.as_str().to_owned())).collect(),
        config: section.more.clone().into_iter().collect(),
        guard: section.guard.settings(),
        fault: section.fault.clone(),
    }
}
