//! Known registrations of each plugin: from its manifest, from the last time it ran, or from the running process.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_stdx::sync::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{sync::watch, task::spawn_blocking};

use crate::{
    admit::{ReservedNames, authorise},
    discover::DiscoveredPlugin,
    fingerprint,
    registrations::Registrations,
    settings::PluginEntry,
};

/// Maximum size of the cache file in bytes.
const MAX_CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// Known registrations of all plugins.
#[derive(Debug)]
pub(crate) struct PluginRegistry {
    known: Mutex<BTreeMap<String, KnownPlugin>>,
    reserved: ReservedNames,
    file: PathBuf,
    /// Incremented when the registrations change.
    pub(crate) edition: watch::Sender<u64>,
}

/// What is known of a plugin.
#[derive(Debug, Clone)]
pub(crate) struct KnownPlugin {
    pub(crate) candidate: Arc<DiscoveredPlugin>,
    pub(crate) entry: PluginEntry,
    /// Cache key: another manifest, entry file or config invalidates the registrations.
    key: String,
    /// True if the manifest declares everything.
    is_declared: bool,
    /// Accepted registrations; `None` if not known yet.
    pub(crate) registrations: Option<Registrations>,
    /// Rejected registrations, with the reasons.
    pub(crate) rejected: Vec<String>,
    /// Why it could not be loaded.
    pub(crate) error: Option<String>,
}

/// An enabled plugin.
#[derive(Debug, Clone)]
pub(crate) struct EnabledPlugin {
    pub(crate) candidate: Arc<DiscoveredPlugin>,
    pub(crate) entry: PluginEntry,
    /// Fingerprint of its files at installation.
    pub(crate) installed_hash: Option<String>,
    /// Why it must not be started. It stays enabled, so that what it guards is blocked.
    pub(crate) start_error: Option<String>,
}

impl EnabledPlugin {
    pub(crate) fn id(&self) -> &str {
        &self.candidate.manifest.id
    }

    /// Checks whether it may be started; an error says what to do.
    pub(crate) async fn check_start(&self) -> Result<(), String> {
        if let Some(start_error) = &self.start_error {
            return Err(start_error.clone());
        }
        let Some(expected) = &self.installed_hash else { return Ok(()) };
        let root = self.candidate.root.clone();
        let actual = match spawn_blocking(move || fingerprint::fingerprint(&root)).await {
            Ok(actual) => actual.map_err(|error| format!("the plugin's files cannot be read: {error}"))?,
            Err(error) => return Err(format!("the plugin's files cannot be read: {error}")),
        };
        let root = self.candidate.root.display();
        if actual == *expected {
            Ok(())
        } else {
            Err(format!(
                "the plugin's files have changed since it was installed; inspect {root}, then install it again"
            ))
        }
    }
}

/// Cached registrations of a plugin.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CachedRegistrations {
    key: String,
    offers: Registrations,
}

impl PluginRegistry {
    /// Collects what is known of these plugins without running them.
    pub(crate) fn open(plugins: Vec<EnabledPlugin>, reserved: ReservedNames, file: PathBuf) -> Self {
        let cached = read_cache(&file);
        let register = Self { known: Mutex::default(), reserved, file, edition: watch::Sender::new(0) };
        for EnabledPlugin { candidate, entry, start_error, .. } in plugins {
            let id = candidate.manifest.id.clone();
            let key = key(&candidate, &entry.config);
            let declared = candidate.manifest.declared();
            let last = cached.get(&id).filter(|last| last.key == key).map(|last| last.offers.clone());
            let is_declared = declared.is_some();
            let mut known = KnownPlugin {
                candidate,
                entry,
                key,
                is_declared,
                registrations: None,
                rejected: Vec::new(),
                error: None,
            };
            if let Some(registrations) = declared.or(last) {
                register.accept(&mut known, registrations);
            }
            known.error = start_error;
            register.lock().insert(id, known);
        }
        register
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownPlugin>> {
        self.known.lock()
    }

    /// Returns what is known of a plugin.
    pub(crate) fn of(&self, plugin: &str) -> Option<KnownPlugin> {
        self.lock().get(plugin).cloned()
    }

    /// Returns the plugins whose registrations are unknown.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let known = self.lock();
        known.iter().filter(|(_, known)| known.registrations.is_none()).map(|(id, _)| id.clone()).collect()
    }

    fn accept(&self, known: &mut KnownPlugin, registrations: Registrations) {
        let (mut admitted, mut denied) = authorise(registrations, &known.candidate.manifest, &self.reserved);
        admitted.hooks.retain(|hook| {
            let (name, is_allowed) = (&hook.name, known.entry.hooks.allows(&hook.name));
            if !is_allowed {
                denied.push(format!("hook {name}: the config's hooks.allowPromptInjection is false for this plugin"));
            }
            is_allowed
        });
        (known.registrations, known.rejected, known.error) = (Some(admitted), denied, None);
    }

    /// Updates the registrations from the running plugin, or records why it cannot be loaded.
    pub(crate) fn update(&self, plugin: &str, result: Result<Registrations, String>) {
        let mut all = self.lock();
        let Some(known) = all.get_mut(plugin) else { return };
        let before = (known.registrations.as_ref().map(Registrations::without_handles), known.error.clone());
        match result {
            Ok(result) => self.accept(known, result),
            Err(reason) => known.error = Some(reason),
        }
        for denied in &known.rejected {
            tracing::warn!(plugin, "registration rejected: {denied}");
        }
        let has_changed =
            before != (known.registrations.as_ref().map(Registrations::without_handles), known.error.clone());
        if !has_changed {
            return;
        }
        let cached = all.iter().filter(|(_, known)| !known.is_declared).filter_map(|(id, known)| {
            Some((id.clone(), CachedRegistrations { key: known.key.clone(), offers: known.registrations.clone()? }))
        });
        let cached = cached.collect();
        drop(all);
        if let Err(error) = write_cache(&self.file, &cached) {
            tracing::warn!(%error, file = %self.file.display(), "failed to write the cache of plugin registrations");
        }
        self.edition.send_modify(|edition| *edition += 1);
    }
}

/// Computes the cache key of a plugin's registrations.
fn key(candidate: &DiscoveredPlugin, config: &Value) -> String {
    let entry = candidate.entry.as_ref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
    let (manifest, config) = (candidate.manifest.raw.to_string(), config.to_string());
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    fingerprint::digest([version, manifest.as_bytes(), config.as_bytes(), &entry])
}

fn read_cache(file: &Path) -> BTreeMap<String, CachedRegistrations> {
    let size = file.metadata().map_or(0, |meta| meta.len());
    let text = if size <= MAX_CACHE_BYTES { fs::read(file).unwrap_or_default() } else { Vec::new() };
    // An unreadable cache is rebuilt.
    serde_json::from_slice(&text).unwrap_or_default()
}

fn write_cache(file: &Path, all: &BTreeMap<String, CachedRegistrations>) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    homard_stdx::file::replace(file, &serde_json::to_vec(all)?)
}
