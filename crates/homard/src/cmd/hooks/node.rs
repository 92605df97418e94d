//! Checks the Node that runs JavaScript handlers: whether it exists, is new enough, and can load them.

use std::{collections::BTreeMap, time::Duration};

use homard_app::plugins::offline_host;
use homard_doctor::plugins::node as node_version;
use homard_plugins::{
    PluginSetup, Plugins, Settings,
    internal::{HookHandler, LoadedScript, Script, ScriptRunner as _},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::HookList;
use crate::render;

/// Timeout for loading all handlers.
const LOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// The result of trying Node.
pub(super) struct NodeTrial {
    /// The version and path of Node, or why there is no usable one.
    pub(super) node: Result<String, String>,
    /// Errors of the handlers, by hook name; `None` if it can be loaded.
    pub(super) handlers: BTreeMap<String, Option<String>>,
}

impl NodeTrial {
    /// Tries the handlers of the enabled hooks; `None` if none of them needs Node.
    ///
    /// They are loaded in a temporary state directory, as a gateway would load them.
    pub(super) async fn of(list: &HookList, setup: &PluginSetup) -> Option<Self> {
        let scripts = list.scripts();
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
            Err(_) => names().map(|name| (name, Some("requires Node".to_owned()))).collect(),
        };
        Some(Self { node, handlers })
    }

    /// Returns true if every handler can be loaded.
    pub(super) fn is_good(&self) -> bool {
        self.node.is_ok() && self.handlers.values().all(Option::is_none)
    }

    /// Returns the problems as lines for people.
    pub(super) fn problem_lines(&self) -> Vec<String> {
        let node = self.node.as_ref().err().map(|why| format!("Node: {why}"));
        let failing = self.handlers.iter().filter_map(|(name, why)| {
            let why = why.as_ref().filter(|_| self.node.is_ok())?;
            Some(format!("{name}: cannot load the handler: {why}"))
        });
        let needs_node = self.node.is_err().then(|| {
            let names: Vec<_> = self.handlers.keys().map(String::as_str).collect();
            format!("needed by: {}", names.join(", "))
        });
        node.into_iter().chain(needs_node).chain(failing).collect()
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

async fn load(scripts: &[Script], setup: &PluginSetup) -> Result<Vec<Result<LoadedScript, String>>, String> {
    let scratch = tempfile::tempdir().map_err(|error| format!("cannot create a temporary directory: {error}"))?;
    let settings = Settings { enabled: Some(false), ..setup.settings.clone() };
    let setup = PluginSetup { settings, state: scratch.path().to_owned(), ..setup.clone() };
    let plugins = Plugins::open(setup.clone(), &offline_host(&setup));
    let loaded = timeout(LOAD_TIMEOUT, plugins.node().load(scripts, LOAD_TIMEOUT)).await;
    plugins.close().await;
    match loaded {
        Ok(Ok(loaded)) => Ok(loaded),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("Node is not ready after {}", render::duration(LOAD_TIMEOUT))),
    }
}

impl HookList {
    /// Returns the JavaScript handlers of the enabled hooks.
    fn scripts(&self) -> Vec<Script> {
        let active = self.hooks.iter().filter(|(_, decision)| decision.is_active());
        let script = active.filter_map(|(hook, _)| match &hook.handler {
            HookHandler::Script { path, export } => Some(Script {
                name: hook.name.clone(),
                path: path.clone(),
                export: export.clone(),
                events: hook.events.clone(),
                env: self.rules.entries.get(&hook.key).map(|entry| entry.env.clone()).unwrap_or_default(),
            }),
            HookHandler::Program(_) | HookHandler::Bundled(_) => None,
        });
        script.collect()
    }
}
