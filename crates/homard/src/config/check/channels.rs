//! What is odd about who may write on channels: settings that let in nobody, or not whom they seem to.

use homard_channels::access::DmPolicy;

use super::{Found, key};
use crate::{
    assemble::channels::KINDS,
    config::{Config, channels::Channel},
};

/// Keys of `channels` that are no channels.
const NO_CHANNELS: [&str; 2] = ["defaults", "modelByChannel"];

impl Config {
    /// Channels that are switched on and that this version does not have.
    pub(in crate::config) fn unsupported_channels(&self) -> Found {
        let is_meant = |(name, channel): &(&String, &Channel)| {
            let kind = name.trim().to_lowercase();
            let is_known = KINDS.iter().any(|(known, _)| *known == kind) || NO_CHANNELS.contains(&name.as_str());
            !is_known && channel.enabled != Some(false)
        };
        let what = "is not supported by this version of Homard: nothing is received or sent there";
        let meant = self.channels.iter().filter(is_meant);
        meant.map(|(name, _)| (key("channels").key(name), what.to_owned())).collect()
    }

    /// What is worth a word about channels.
    pub(super) fn odd_channels(&self) -> Found {
        let mut found = self.unsupported_channels();
        for (name, channel) in &self.channels {
            let kind = name.trim().to_lowercase();
            let section = key("channels").key(name);
            for (account, said) in channel.described() {
                let is_named = channel.accounts.keys().any(|known| known.trim().to_lowercase() == account);
                let place = if is_named { section.key("accounts").key(&account) } else { section.clone() };
                let ids: Vec<String> = said.allow_from.iter().flatten().map(|id| id.on(&kind)).collect();
                if said.dm_policy.is_some_and(|word| word.0 == DmPolicy::Open) && !ids.iter().any(|id| id == "*") {
                    let what = "is open, but only to those whom allowFrom lists; add \"*\" there to let everybody in";
                    found.push((place.key("dmPolicy"), what.to_owned()));
                }
                if let Some(name) = ids.iter().find(|id| kind == "telegram" && id.starts_with('@')) {
                    let what =
                        format!("has {name}, which lets in nobody: on Telegram people are known by their numbers only");
                    found.push((place.key("allowFrom"), what));
                }
            }
        }
        if self.commands.owner_allow_from.iter().any(|id| id.0.trim() == "*") {
            let what = "has \"*\", which makes nobody the owner; name yourself, such as telegram:123456789";
            found.push((key("commands").key("ownerAllowFrom"), what.to_owned()));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn settings_that_let_in_nobody_are_told() {
        let text = "{channels: {telegram: {dmPolicy: 'open', allowFrom: [7], accounts: {Work: {botToken: 't', allowFrom: ['@ann', '*']}}}},
            commands: {ownerAllowFrom: ['*']}}";
        let told: Vec<_> =
            Config::read(Path::new("homard.json"), text).warnings.iter().map(ToString::to_string).collect();
        for part in ["channels.telegram.accounts.work.allowFrom has @ann", "commands.ownerAllowFrom has \"*\""] {
            assert!(told.iter().any(|line| line.contains(part)), "{told:?}");
        }
        let text = "{channels: {telegram: {dmPolicy: 'open', allowFrom: [7]}}}";
        let told: Vec<_> =
            Config::read(Path::new("homard.json"), text).warnings.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.contains("channels.telegram.dmPolicy is open, but only")), "{told:?}");
    }
}
