//! Plugins with their own command: one process each, in any language.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::{
    host::Host,
    host_api::{ProcessInfo, UncaughtErrors},
    manifest::DeclaredRights,
    process::{ProcessSpec, environment},
    registrations::Registrations,
    registry::{EnabledPlugin, PluginRegistry},
    rpc_session::RpcSession,
    supervisor::{CallParams, InitError, Launcher, LoadedPlugins},
};

/// Programs that reserve more address space than they use and limit their memory themselves.
const SELF_LIMITING: [&str; 4] = ["node", "bun", "deno", "java"];

/// Environment passed to all processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct PluginEnvironment {
    /// State directory.
    pub(crate) state: std::path::PathBuf,
    /// Workspace of the default agent.
    pub(crate) workspace: std::path::PathBuf,
    /// The config, without secrets.
    pub(crate) config: Value,
    /// The gateway's environment variables.
    pub(crate) env: BTreeMap<String, String>,
}

impl PluginEnvironment {
    /// Returns the parameters of the initial request.
    pub(crate) fn init_params(&self) -> Value {
        json!({
            "protocol": 1,
            "hostVersion": env!("CARGO_PKG_VERSION"),
            "apiLevel": "2026.2",
            "stateDir": self.state,
            "workspaceDir": self.workspace,
            "config": self.config,
        })
    }
}

/// Launcher of a plugin with its own command.
pub(crate) struct CommandLauncher {
    pub(crate) plugin: EnabledPlugin,
    pub(crate) environment: Arc<PluginEnvironment>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) register: Arc<PluginRegistry>,
    pub(crate) uncaught: UncaughtErrors,
}

impl CommandLauncher {
    fn rights(&self) -> DeclaredRights {
        self.plugin.candidate.manifest.rights.clone().unwrap_or_default()
    }

    fn parse_registrations(&self, answer: &Value) -> Result<Registrations, String> {
        match answer.get("registrations").filter(|registrations| !registrations.is_null()) {
            Some(registrations) => {
                Registrations::deserialize(registrations).map_err(|error| format!("invalid registrations: {error}"))
            }
            None => self.plugin.candidate.manifest.declared().ok_or_else(|| {
                "the plugin returned no registrations, and its manifest declares tools without \"parameters\""
                    .to_owned()
            }),
        }
    }
}

#[async_trait]
impl Launcher for CommandLauncher {
    fn process_info(&self) -> ProcessInfo {
        let name = self.plugin.candidate.manifest.id.clone();
        let (allowed_methods, host, uncaught) = (Some(self.rights().host), self.host.clone(), self.uncaught.clone());
        ProcessInfo { name, is_shared: false, allowed_methods, host, uncaught }
    }

    async fn process_spec(&self) -> Result<ProcessSpec, String> {
        self.plugin.check_start().await?;
        let (manifest, rights) = (&self.plugin.candidate.manifest, self.rights());
        let mut env = environment(&self.environment.env, rights.env.iter());
        let is_declared = |name: &&String| rights.env.contains(name);
        env.extend(
            self.plugin
                .entry
                .env
                .iter()
                .filter(|(name, _)| is_declared(name))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        let run = manifest.run.clone().unwrap_or_default();
        let program = run
            .first()
            .map(|program| Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned());
        let is_reserving = program.is_some_and(|program| SELF_LIMITING.contains(&program.as_str()));
        let memory_mb = (!is_reserving).then_some(manifest.memory_mb);
        Ok(ProcessSpec { name: manifest.id.clone(), run, dir: self.plugin.candidate.root.clone(), env, memory_mb })
    }

    async fn initialise(&self, session: &RpcSession, time_limit: Duration) -> Result<LoadedPlugins, InitError> {
        let id = self.plugin.candidate.manifest.id.clone();
        let mut init_params = self.environment.init_params();
        if !self.rights().host.iter().any(|name| name == "config.get") {
            init_params["config"] = Value::Null;
        }
        init_params["pluginId"] = json!(id);
        init_params["pluginConfig"] = self.plugin.entry.config.clone();
        let later = |error: crate::Error| InitError::Retry(format!("the plugin did not start: {error}"));
        let call = CallParams::plain(&init_params).map_err(later)?;
        let answer = session.call("initialize", &call.params, time_limit, None).await.map_err(later)?;
        let registrations = self.parse_registrations(&answer).map_err(InitError::Retry)?;
        Ok(vec![(id, Ok(registrations))])
    }

    fn initialised(&self, loaded: &LoadedPlugins) {
        for (plugin, registrations) in loaded {
            self.register.update(plugin, registrations.clone());
        }
    }
}
