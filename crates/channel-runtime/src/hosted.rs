//! Channels that OpenClaw's packages serve: one process per channel, which its accounts share.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use homard_channel_host::{ChannelHost, HostSettings, HostedChannel, package};
use homard_settings::{channels::Account, paths};
use serde_json::Value;

/// The processes of hosted channels. A process is created for the first account and ends with the last one.
#[derive(Debug)]
pub(super) struct ChannelHosts {
    /// Directory of all channels.
    dir: PathBuf,
    hosts: Mutex<BTreeMap<String, Weak<ChannelHost>>>,
}

impl ChannelHosts {
    /// Creates the hosts; `state` is the state directory.
    pub(crate) fn new(state: &Path) -> Self {
        Self { dir: state.join("channels"), hosts: Mutex::default() }
    }

    /// Builds an account. `section` is the channel's section of the config.
    pub(crate) fn build(
        &self,
        channel: &str,
        name: &str,
        account: &Account,
        section: Value,
    ) -> Result<HostedChannel, String> {
        let package = *package(channel).ok_or_else(|| format!("unsupported channel \"{channel}\""))?;
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = hosts.get(channel).and_then(Weak::upgrade).unwrap_or_else(|| {
            let host = Arc::new(ChannelHost::new(HostSettings::new(package, &self.dir, paths::variables().collect())));
            hosts.insert(channel.to_owned(), Arc::downgrade(&host));
            host
        });
        Ok(HostedChannel::new(host, name, section, account.text_chunk_limit))
    }

    /// Returns the running host whose package serves this path.
    pub(crate) fn with_route(&self, path: &str) -> Option<Arc<ChannelHost>> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.values().filter_map(Weak::upgrade).find(|host| host.has_route(path))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use homard_channel_host::PACKAGES;
    use homard_settings::channel_kinds::{CHANNEL_KINDS, HOSTED};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_config_knows_every_package() {
        let packages: BTreeSet<_> = PACKAGES.iter().map(|package| package.name).collect();
        assert_eq!(packages, HOSTED.into());
        assert!(packages.iter().all(|name| CHANNEL_KINDS.iter().any(|(known, _)| known == name)));
    }

    #[tokio::test]
    async fn accounts_of_a_channel_share_a_process_that_ends_with_them() {
        let state = tempfile::tempdir().unwrap();
        let hosts = ChannelHosts::new(state.path());
        let build = |name: &str| hosts.build("irc", name, &Account::default(), json!({})).unwrap();
        let (one, other) = (build("a"), build("b"));
        assert!(Arc::ptr_eq(one.host(), other.host()));
        let weak = Arc::downgrade(one.host());
        drop((one, other));
        assert!(weak.upgrade().is_none());
        assert!(hosts.build("carrier-pigeon", "a", &Account::default(), json!({})).is_err());
    }
}
