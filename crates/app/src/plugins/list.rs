//! The plugins of a config, without a gateway. None of them runs.

use std::sync::Arc;

use async_trait::async_trait;
use homard_config::LoadedConfig;
use homard_plugins::{
    DiscoveredPlugin, DiscoveredPlugins, Host, HostMethod, PluginSetup, PluginStatus, Plugins, discover,
};
use homard_settings::{Config, agent_directories::plugin_roots, paths::Paths};
use serde_json::Value;

use super::setup;

/// The discovered plugins, evaluated as in a gateway. None of them runs.
#[derive(Debug)]
pub struct PluginList {
    /// Settings of the plugin host.
    pub setup: PluginSetup,
    /// The config with their entries.
    pub loaded: LoadedConfig<Config>,
    /// In discovery order, which is the order in which their hooks are called.
    pub plugins: Vec<(DiscoveredPlugin, PluginStatus)>,
    /// Problems with files: sentences that begin with a path.
    pub problems: Vec<String>,
}

impl PluginList {
    /// Discovers the plugins. Needs a runtime.
    pub fn find(loaded: &LoadedConfig<Config>, paths: &Paths) -> Self {
        let setup = setup(loaded, paths);
        let DiscoveredPlugins { candidates, problems } = discover(&plugin_roots(&loaded.config, paths));
        let mut known = Plugins::open(setup.clone(), &offline_host(&setup)).status();
        let with_status = |candidate: DiscoveredPlugin| {
            let at = known.iter().position(|status| status.id == candidate.manifest.id)?;
            Some((candidate, known.swap_remove(at)))
        };
        let plugins = candidates.into_iter().filter_map(with_status).collect();
        Self { setup, loaded: loaded.clone(), plugins, problems }
    }
}

/// A plugin host without a gateway: it gives plugins the config and nothing else.
struct OfflineHost(Value);

#[async_trait]
impl Host for OfflineHost {
    async fn handle(&self, _plugin: &str, ask: HostMethod, _params: Value) -> Result<Value, String> {
        match ask {
            HostMethod::ConfigGet => Ok(self.0.clone()),
            HostMethod::ConfigWrite
            | HostMethod::SystemEvent
            | HostMethod::GatewayRequest
            | HostMethod::AgentRun
            | HostMethod::LlmComplete
            | HostMethod::MemorySearch
            | HostMethod::MemoryGet => Err(format!("{} is not available without a gateway", ask.name())),
        }
    }
}

/// Returns a plugin host without a gateway.
pub fn offline_host(setup: &PluginSetup) -> Arc<dyn Host> {
    Arc::new(OfflineHost(setup.config.clone()))
}
