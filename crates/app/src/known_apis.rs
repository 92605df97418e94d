//! Results of API probes, kept in the state directory so that a restart does not probe again.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use homard_providers::Wire;
use homard_runtime::{Ambient, ambient::iso};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// The file with the probe results.
#[derive(Debug, Clone)]
pub(crate) struct KnownApis(PathBuf);

/// Content of the file with the probe results.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct KnownApisFile {
    version: u32,
    /// By provider name.
    providers: BTreeMap<String, KnownApi>,
}

/// The API of a provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KnownApi {
    /// Base URL that was probed. The result is not valid for another one.
    base_url: String,
    api: String,
    found_at: String,
}

impl KnownApis {
    /// Returns the probe results of a state directory; the file may not exist yet.
    pub(crate) fn of(state: &Path) -> Self {
        Self(state.join("provider-apis.json"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the API of a provider at this base URL, if known.
    pub(crate) fn get(&self, provider: &str, base_url: &str) -> Option<Wire> {
        let finding = self.read().providers.remove(provider).filter(|finding| finding.base_url == base_url)?;
        Wire::PROBED.into_iter().find(|wire| wire.api() == finding.api)
    }

    /// Stores a probe result.
    pub(crate) fn put(&self, provider: &str, base_url: &str, wire: Wire) -> io::Result<()> {
        let found_at = iso(Ambient::system().now_ms());
        let finding = KnownApi { base_url: base_url.to_owned(), api: wire.api().to_owned(), found_at };
        let mut content = self.read();
        content.providers.insert(provider.to_owned(), finding);
        self.write(&content)
    }

    /// Deletes a probe result that proved wrong.
    pub(crate) fn remove(&self, provider: &str) -> io::Result<()> {
        let mut content = self.read();
        match content.providers.remove(provider) {
            Some(_) => self.write(&content),
            None => Ok(()),
        }
    }

    /// Reads the file. An unreadable file counts as empty: the worst consequence is another probe.
    fn read(&self) -> KnownApisFile {
        fs::read(&self.0).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    fn write(&self, content: &KnownApisFile) -> io::Result<()> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        // Created with mode 0600: a base URL may contain a secret.
        let mut file = NamedTempFile::new_in(folder)?;
        let content = KnownApisFile { version: 1, providers: content.providers.clone() };
        file.write_all(serde_json::to_string_pretty(&content)?.as_bytes())?;
        file.persist(&self.0).map_err(|error| error.error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_api_belongs_to_one_provider_and_address() {
        let state = tempfile::tempdir().unwrap();
        let apis = KnownApis::of(&state.path().join("new"));
        assert_eq!(apis.get("mine", "http://a/v1"), None);
        apis.put("mine", "http://a/v1", Wire::AnthropicMessages).unwrap();
        apis.put("other", "http://b/v1", Wire::OpenAiCompletions).unwrap();
        assert_eq!(apis.get("mine", "http://a/v1"), Some(Wire::AnthropicMessages));
        assert_eq!((apis.get("mine", "http://b/v1"), apis.get("nobody", "http://a/v1")), (None, None));
        apis.remove("mine").unwrap();
        apis.remove("mine").unwrap();
        assert_eq!(apis.get("mine", "http://a/v1"), None);
        assert_eq!(apis.get("other", "http://b/v1"), Some(Wire::OpenAiCompletions));
    }

    #[test]
    fn an_invalid_file_is_empty_and_is_replaced() {
        let state = tempfile::tempdir().unwrap();
        let apis = KnownApis::of(state.path());
        fs::write(apis.path(), "{").unwrap();
        assert_eq!(apis.get("mine", "http://a/v1"), None);
        apis.put("mine", "http://a/v1", Wire::OpenAiResponses).unwrap();
        assert_eq!(apis.get("mine", "http://a/v1"), Some(Wire::OpenAiResponses));
    }
}
