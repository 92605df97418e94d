//! Checks the Node that runs JavaScript handlers: whether it exists, is new enough, and can load them.

use std::{collections::BTreeMap, time::Duration};

use homard_plugins::{
    Plugins, Settings, Setup,
    internal::{Handler, LoadedScript, Script, Scripts as _},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Shown;
use crate::cmd::plugins::{host, node_version};

/// Timeout for loading all handlers.
const PATIENCE: Duration = Duration::from_secs(20);

/// The result of trying Node.
pub(super) struct Trial {
    /// The version and path of Node, or why there is no usable one.
    pub(super) node: Result<String, String>,
    /// Errors of the handlers, by hook name; `None` if it can be loaded.
    pub(super) handlers: BTreeMap<String, Option<String>>,
}

impl Trial {
    /// Tries the handlers of the enabled hooks; `None` if none of them needs Node.
    ///
    /// They are loaded in a temporary state directory, as a gateway would load them.
    pub(super) async fn of(shown: &Shown, setup: &Setup) -> Option<Self> {
        let scripts = shown.scripts();
        if scripts.is_empty() {
            return None;
        }
        let node = node_version(setup).await;
        let names = || scripts.iter().map(|script| script.name.clone());
        let handlers = match &node {
            Ok(_) => match load(&scripts, setup).await {
                Ok(loaded) => names().zip(loaded.into_iter().map(Result::err)).collect(),
                Err(why) => names().map(|name| (name, Some(why.clone()))).collect(),
            },
            Err(_) => names().map(|name| (name, Some("it needs Node".to_owned()))).collect(),
        };
        Some(Self { node, handlers })
    }

    /// Returns true if every handler can be loaded.
    pub(super) fn is_good(&self) -> bool {
        self.node.is_ok() && self.handlers.values().all(Option::is_none)
    }

    /// Returns the problems as lines for people.
    pub(super) fn told(&self) -> Vec<String> {
        let node = self.node.as_ref().err().map(|why| format!("Node: {why}"));
        let cannot = self.handlers.iter().filter_map(|(name, why)| {
            let why = why.as_ref().filter(|_| self.node.is_ok())?;
            Some(format!("{name}: its handler cannot be loaded: {why}"))
        });
        let needing = self.node.is_err().then(|| {
            let names: Vec<_> = self.handlers.keys().map(String::as_str).collect();
            format!("needed by: {}", names.join(", "))
        });
        node.into_iter().chain(needing).chain(cannot).collect()
    }

    /// Returns Node and the handlers as JSON.
    pub(super) fn documents(&self) -> (Value, Value) {
        let node = match &self.node {
            Ok(found) => json!({"ok": true, "found": found, "needed": "22 or newer"}),
            Err(why) => json!({"ok": false, "message": why, "needed": "22 or newer"}),
        };
        let handler =
            |(name, why): (&String, &Option<String>)| json!({"hook": name, "ok": why.is_none(), "message": why});
        (node, self.handlers.iter().map(handler).collect())
    }
}

async fn load(scripts: &[Script], setup: &Setup) -> Result<Vec<Result<LoadedScript, String>>, String> {
    let scratch = tempfile::tempdir().map_err(|error| format!("there is no place to try it: {error}"))?;
    let settings = Settings { enabled: Some(false), ..setup.settings.clone() };
    let setup = Setup { settings, state: scratch.path().to_owned(), ..setup.clone() };
    let plugins = Plugins::open(setup.clone(), &host(&setup));
    let loaded = timeout(PATIENCE, plugins.node().load(scripts, PATIENCE)).await;
    plugins.close().await;
    match loaded {
        Ok(Ok(loaded)) => Ok(loaded),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("Node is not ready after {} s", PATIENCE.as_secs())),
    }
}

impl Shown {
    /// Returns the JavaScript handlers of the enabled hooks.
    fn scripts(&self) -> Vec<Script> {
        let on = self.hooks.iter().filter(|(_, verdict)| verdict.takes_part());
        let script = on.filter_map(|(hook, _)| match &hook.handler {
            Handler::Script { path, export } => Some(Script {
                name: hook.name.clone(),
                path: path.clone(),
                export: export.clone(),
                events: hook.events.clone(),
                env: self.rules.entries.get(&hook.key).map(|entry| entry.env.clone()).unwrap_or_default(),
            }),
            Handler::Program(_) | Handler::Bundled(_) => None,
        });
        script.collect()
    }
}
