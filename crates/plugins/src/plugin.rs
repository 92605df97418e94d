//! Plugins with their own command: one process each, in any language.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::{
    door::{Behind, Uncaught},
    host::Host,
    link::Link,
    manifest::Rights,
    offer::Offers,
    process::{Recipe, environment},
    register::{Judged, Register},
    supervisor::{Launch, Loaded, Paper, Unwelcome},
};

/// Programs that reserve more address space than they use and limit their memory themselves.
const RESERVE: [&str; 4] = ["node", "bun", "deno", "java"];

/// Environment passed to all processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    /// State directory.
    pub(crate) state: std::path::PathBuf,
    /// Workspace of the default agent.
    pub(crate) workspace: std::path::PathBuf,
    /// The config, without secrets.
    pub(crate) config: Value,
    /// The gateway's environment variables.
    pub(crate) env: BTreeMap<String, String>,
}

impl Surroundings {
    /// Returns the parameters of the initial request.
    pub(crate) fn greeting(&self) -> Value {
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
pub(crate) struct Command {
    pub(crate) plugin: Judged,
    pub(crate) surroundings: Arc<Surroundings>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) register: Arc<Register>,
    pub(crate) uncaught: Uncaught,
}

impl Command {
    fn rights(&self) -> Rights {
        self.plugin.candidate.manifest.rights.clone().unwrap_or_default()
    }

    fn offers(&self, answer: &Value) -> Result<Offers, String> {
        match answer.get("registrations").filter(|said| !said.is_null()) {
            Some(said) => Offers::deserialize(said)
                .map_err(|error| format!("it registered something that cannot be read: {error}")),
            None => self.plugin.candidate.manifest.declared().ok_or_else(|| {
                "it did not say what it registers, and its manifest declares tools without \"parameters\"".to_owned()
            }),
        }
    }
}

#[async_trait]
impl Launch for Command {
    fn behind(&self) -> Behind {
        let name = self.plugin.candidate.manifest.id.clone();
        let (asks, host, uncaught) = (Some(self.rights().host), self.host.clone(), self.uncaught.clone());
        Behind { name, is_shared: false, asks, host, uncaught }
    }

    async fn recipe(&self) -> Result<Recipe, String> {
        self.plugin.may_start().await?;
        let (manifest, rights) = (&self.plugin.candidate.manifest, self.rights());
        let mut env = environment(&self.surroundings.env, rights.env.iter());
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
        let is_reserving = program.is_some_and(|program| RESERVE.contains(&program.as_str()));
        let memory_mb = (!is_reserving).then_some(manifest.memory_mb);
        Ok(Recipe { name: manifest.id.clone(), run, dir: self.plugin.candidate.root.clone(), env, memory_mb })
    }

    async fn greet(&self, link: &Link, within: Duration) -> Result<Loaded, Unwelcome> {
        let id = self.plugin.candidate.manifest.id.clone();
        let mut greeting = self.surroundings.greeting();
        if !self.rights().host.iter().any(|right| right == "config.get") {
            greeting["config"] = Value::Null;
        }
        greeting["pluginId"] = json!(id);
        greeting["pluginConfig"] = self.plugin.entry.config.clone();
        let later = |error: crate::Error| Unwelcome::Later(format!("it did not start: {error}"));
        let paper = Paper::plain(&greeting).map_err(later)?;
        let answer = link.call("initialize", &paper.params, within, None).await.map_err(later)?;
        let offers = self.offers(&answer).map_err(Unwelcome::Later)?;
        Ok(vec![(id, Ok(offers))])
    }

    fn greeted(&self, loaded: &Loaded) {
        for (plugin, offers) in loaded {
            self.register.hear(plugin, offers.clone());
        }
    }
}
