//! Test support: a gateway setup with plugins in temporary directories.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_plugins::{Host, NoHost, PluginSetup, Plugins, ProcessState, ProcessTiming, Settings};
use serde_json::{Value, json};

/// Directories of a setup.
pub(crate) struct PluginTestSetup {
    folder: tempfile::TempDir,
    /// The config under `plugins`.
    pub(crate) settings: Value,
    /// Host that handles requests of plugins.
    pub(crate) host: Arc<dyn Host>,
}

impl PluginTestSetup {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), settings: json!({"entries": {}}), host: Arc::new(NoHost) }
    }

    pub(crate) fn path(&self, at: &str) -> PathBuf {
        self.folder.path().join(at)
    }

    pub(crate) fn write(&self, at: &str, text: &str) {
        fs::create_dir_all(self.path(at).parent().unwrap()).unwrap();
        fs::write(self.path(at), text).unwrap();
    }

    /// Installs the files of a directory as a plugin, and enables it.
    pub(crate) fn install(&mut self, from: &Path, id: &str) {
        for entry in fs::read_dir(from).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap();
            self.write(&format!("state/extensions/{id}/{name}"), &fs::read_to_string(&file).unwrap());
        }
        self.enable(id);
    }

    /// Installs and enables a plugin in shell that returns `{}` for everything, except hooks, which run the given
    /// script.
    pub(crate) fn shell(&mut self, id: &str, manifest: &Value, hook: &str) {
        let mut file = json!({"id": id, "configSchema": {}, "run": ["sh", "plugin.sh"]});
        file.as_object_mut().unwrap().extend(manifest.as_object().unwrap().clone());
        self.write(&format!("state/extensions/{id}/homard.plugin.json"), &file.to_string());
        let script = format!(
            r#"while IFS= read -r line; do
  id=${{line#*\"id\":}}; id=${{id%%,*}}
  case $line in
    *'"method":"hook.invoke"'*) {hook} ;;
    *'"method":"$/cancel"'*) ;;
    *) printf '{{"id":%s,"result":{{}}}}\n' "$id" ;;
  esac
done
"#
        );
        self.write(&format!("state/extensions/{id}/plugin.sh"), &script);
        self.enable(id);
    }

    pub(crate) fn enable(&mut self, id: &str) {
        self.settings["entries"][id]["enabled"] = json!(true);
    }

    pub(crate) fn open(&self) -> Plugins {
        let ms = Duration::from_millis;
        let settings: Settings = serde_json::from_value(self.settings.clone()).unwrap();
        let env = |name: &str| Some((name.to_owned(), std::env::vars().find(|(key, _)| key == name)?.1));
        let setup = PluginSetup {
            settings,
            state: self.path("state"),
            workspaces: vec![self.path("work")],
            config: json!({"agents": {}}),
            env: ["PATH", "HOME", "LANG", "USER"].into_iter().filter_map(env).collect::<BTreeMap<_, _>>(),
            timing: ProcessTiming {
                ping_within: ms(300),
                backoff: ms(1),
                longest_backoff: ms(2),
                grace: ms(500),
                ..ProcessTiming::default()
            },
            ..PluginSetup::default()
        };
        Plugins::open(setup, &self.host)
    }
}

pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

pub(crate) fn state(plugins: &Plugins, id: &str) -> ProcessState {
    plugins.status().into_iter().find(|status| status.id == id).unwrap().state
}
