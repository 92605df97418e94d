//! Checks of channel access: settings that admit no one, or other senders than it seems.

use std::collections::BTreeMap;

use homard_channels::access::DmPolicy;
use homard_config::path::Path;
use homard_proto::{ChannelAccount, IdIssuer, SenderPattern};

use super::{FoundProblems, key};
use crate::{
    Config,
    channel_kinds::{CHANNEL_KINDS, issuer, label, sender_entry},
    channels::{Account, Channel, DEFAULT_ACCOUNT, Id},
};

/// Keys of `channels` that are not channels.
const NO_CHANNELS: [&str; 2] = ["defaults", "modelByChannel"];

/// Returns the enabled channels that this version does not support.
pub fn unsupported_channels(config: &Config) -> FoundProblems {
    let is_unsupported = |(name, channel): &(&String, &Channel)| {
        let kind = name.trim().to_lowercase();
        let is_known = CHANNEL_KINDS.iter().any(|(known, _)| *known == kind) || NO_CHANNELS.contains(&name.as_str());
        !is_known && channel.enabled != Some(false)
    };
    let message = "is not supported by this version of Homard: nothing is received or sent there";
    let unsupported = config.channels.iter().filter(is_unsupported);
    unsupported.map(|(name, _)| (key("channels").key(name), message.to_owned())).collect()
}

/// Checks that the accounts of a channel have unique names, ignoring case and surrounding whitespace.
pub(super) fn check_account_names(config: &Config, found: &mut FoundProblems) {
    for (name, channel) in &config.channels {
        let mut owners: BTreeMap<String, &String> = BTreeMap::new();
        for account in channel.accounts.keys() {
            if let Some(owner) = owners.insert(account.trim().to_lowercase(), account) {
                let path = key("channels").key(name).key("accounts").key(account);
                found.push((path, format!("is the same account as {owner:?}: account names are case-insensitive")));
            }
        }
    }
}

/// Returns the entries of `allowTo` that do not name a chat.
pub(super) fn recipient_warnings(config: &Config) -> FoundProblems {
    let all = (key("tools"), &config.tools.message.allow_to);
    let agent_lists = config.all_agents().map(|(path, _, agent)| (path.key("tools"), &agent.tools.message.allow_to));
    let mut found = Vec::new();
    for (path, list) in std::iter::once(all).chain(agent_lists) {
        let path = path.key("message").key("allowTo");
        for (at, entry) in list.iter().enumerate() {
            let parts = entry.trim().split_once(':');
            if entry.trim() != "*" && parts.is_none_or(|(channel, id)| channel.is_empty() || id.is_empty()) {
                let message = format!("is {entry:?}, which is not a chat; use telegram:7, telegram:* or *");
                found.push((path.index(at), message));
            }
        }
    }
    found
}

/// Returns warnings about channels.
pub(super) fn channel_warnings(config: &Config) -> FoundProblems {
    let mut found = unsupported_channels(config);
    for (name, channel) in &config.channels {
        let kind = name.trim().to_lowercase();
        let section = key("channels").key(name);
        for (account, config) in channel.resolved_accounts() {
            let is_named = channel.accounts.keys().any(|known| known.trim().to_lowercase() == account);
            let path = if is_named { section.key("accounts").key(&account) } else { section.clone() };
            let entries = config.direct_senders().into_iter().flatten();
            let patterns: Vec<_> = entries.map(|id| SenderPattern::parse(sender_entry(&kind, &id.0))).collect();
            if kind == "discord" {
                found.extend(server_warnings(&path, &config));
            }
            if config.direct_policy() == DmPolicy::Open && !patterns.contains(&SenderPattern::Anyone) {
                let message =
                    "is open, but only to the senders in allowFrom; to allow all senders, add \"*\" to allowFrom";
                found.push((path.key("dmPolicy"), message.to_owned()));
            }
            let ids = patterns.iter().filter_map(|pattern| match pattern {
                SenderPattern::One { id, .. } => Some(id),
                SenderPattern::Anyone => None,
            });
            let is_name = |id: &&String| match kind.as_str() {
                "telegram" => id.starts_with('@'),
                "discord" => !is_discord_id(id),
                _ => false,
            };
            let mut ids = ids.filter(is_name);
            if let Some(name) = ids.next() {
                let message = format!(
                    "has {name}, which matches no sender: {} identifies senders by numeric ids only",
                    label(&kind)
                );
                found.push((path.key("allowFrom"), message));
            }
            let at = ChannelAccount::new(&kind, &account, issuer(&kind), false);
            let lists = [("allowFrom", &config.allow_from), ("groupAllowFrom", &config.group_allow_from)];
            for (list, entries) in lists {
                let is_elsewhere = |entry: &&Id| {
                    let pattern = SenderPattern::parse(sender_entry(&kind, &entry.0));
                    pattern != SenderPattern::Anyone && pattern.in_own_list(&at).is_none()
                };
                if let Some(entry) = entries.iter().flatten().find(is_elsewhere) {
                    let entry = entry.0.trim();
                    let message = format!(
                        "has {entry}, which matches no sender: the part before the colon names another channel or \
                         account; if it is part of the id, write {kind}:{entry}"
                    );
                    found.push((path.key(list), message));
                }
            }
        }
    }
    found.extend(owner_warnings(config));
    if config.commands.owner_allow_from.iter().any(|id| id.0.trim() == "*") {
        let message = "has \"*\", which is ignored; add your own id, such as telegram:123456789";
        found.push((key("commands").key("ownerAllowFrom"), message.to_owned()));
    }
    found
}

/// Returns the servers, channels, users and roles of a Discord account that are not named by their ids.
fn server_warnings(path: &Path, account: &Account) -> FoundProblems {
    let mut found = FoundProblems::new();
    let mut check = |path: Path, id: &str, what: &str| {
        if id.trim() != "*" && !is_discord_id(sender_entry("discord", id)) {
            let message = format!(
                "names the {what} {id:?}, which matches nothing: use its numeric id (in Discord: User Settings, \
                 Advanced, Developer Mode; then Copy ID in the menu of the {what})"
            );
            found.push((path, message));
        }
    };
    for (id, guild) in account.guilds.iter().flatten() {
        let guild_path = path.key("guilds").key(id);
        check(guild_path.clone(), id, "server");
        for user in guild.users.iter().flatten() {
            check(guild_path.key("users"), &user.0, "user");
        }
        for role in guild.roles.iter().flatten() {
            check(guild_path.key("roles"), &role.0, "role");
        }
        for (id, channel) in &guild.channels {
            let channel_path = guild_path.key("channels").key(id);
            check(channel_path.clone(), id, "channel");
            for user in channel.users.iter().flatten() {
                check(channel_path.key("users"), &user.0, "user");
            }
            for role in channel.roles.iter().flatten() {
                check(channel_path.key("roles"), &role.0, "role");
            }
        }
    }
    found
}

/// True if a text is an id of Discord.
fn is_discord_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the owners on a channel with several accounts that do not name their account.
fn owner_warnings(config: &Config) -> FoundProblems {
    let mut found = FoundProblems::new();
    for entry in &config.commands.owner_allow_from {
        let SenderPattern::One { channel: Some(channel), account: None, id } = SenderPattern::parse(&entry.0) else {
            continue;
        };
        let found_section = config.channels.iter().find(|(name, _)| name.trim().to_lowercase() == channel);
        let accounts = found_section.map(|(_, section)| section.resolved_accounts()).unwrap_or_default();
        if issuer(&channel) == IdIssuer::Peer && accounts.len() > 1 && !accounts.contains_key(DEFAULT_ACCOUNT) {
            let names: Vec<_> = accounts.keys().map(|account| format!("{channel}/{account}:{id}")).collect();
            let message = format!(
                "has {}, which is ignored: the channel has several accounts; write {}",
                entry.0.trim(),
                names.join(" or ")
            );
            found.push((key("commands").key("ownerAllowFrom"), message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_recipient_without_a_channel_is_a_warning() {
        let text = "{tools: {message: {allowTo: ['7', 'telegram:7', '*', ':7']}},
            agents: {list: [{id: 'a', tools: {message: {allowTo: ['telegram:']}}}]}}";
        let warnings: Vec<_> =
            Config::read(Path::new("homard.json"), text).warnings.iter().map(ToString::to_string).collect();
        for (part, is_warned) in [
            ("tools.message.allowTo[0] is \"7\", which is not a chat", true),
            ("tools.message.allowTo[3]", true),
            ("agents.list[0].tools.message.allowTo[0]", true),
            ("tools.message.allowTo[1]", false),
            ("tools.message.allowTo[2]", false),
        ] {
            assert_eq!(warnings.iter().any(|line| line.contains(part)), is_warned, "{part}: {warnings:?}");
        }
    }

    #[test]
    fn names_on_discord_are_warnings() {
        let text = "{channels: {discord: {token: 't', allowFrom: ['ann', 'user:7', '<@8>'], guilds: {
            friends: {}, '1': {users: ['9', 'bob'], roles: ['mod', '3'], channels: {general: {}, '2': {}, '*': {}}}}}}}";
        let warnings: Vec<_> =
            Config::read(Path::new("homard.json"), text).warnings.iter().map(ToString::to_string).collect();
        for (part, is_warned) in [
            ("channels.discord.allowFrom has ann, which matches no sender: Discord identifies", true),
            ("channels.discord.guilds.friends names the server \"friends\"", true),
            ("guilds.1.users names the user \"bob\"", true),
            ("guilds.1.roles names the role \"mod\"", true),
            ("guilds.1.channels.general names the channel", true),
            ("guilds.1 names", false),
            ("user:7", false),
        ] {
            assert_eq!(warnings.iter().any(|line| line.contains(part)), is_warned, "{part}: {warnings:?}");
        }
        assert_eq!(warnings.len(), 5, "{warnings:?}");
    }

    #[test]
    fn settings_that_admit_no_sender_are_warnings() {
        let text = "{channels: {telegram: {dmPolicy: 'open', allowFrom: [7], accounts: {Work: {botToken: 't', allowFrom: ['@ann', '*']}}}},
            commands: {ownerAllowFrom: ['*']}}";
        let warnings: Vec<_> =
            Config::read(Path::new("homard.json"), text).warnings.iter().map(ToString::to_string).collect();
        for part in ["channels.telegram.accounts.work.allowFrom has @ann", "commands.ownerAllowFrom has \"*\""] {
            assert!(warnings.iter().any(|line| line.contains(part)), "{warnings:?}");
        }
        let text =
            "{channels: {webhook: {allowFrom: ['telegram:1', 'ann'], accounts: {a: {secret: 's'}, b: {secret: 's'}}}},
            commands: {ownerAllowFrom: ['webhook:ann']}}";
        let warnings: Vec<_> =
            Config::read(Path::new("homard.json"), text).warnings.iter().map(ToString::to_string).collect();
        for part in [
            "channels.webhook.accounts.a.allowFrom has telegram:1, which matches no sender",
            "commands.ownerAllowFrom has webhook:ann, which is ignored: the channel has several accounts; \
             write webhook/a:ann or webhook/b:ann",
        ] {
            assert!(warnings.iter().any(|line| line.contains(part)), "{warnings:?}");
        }
        let text = "{channels: {telegram: {dmPolicy: 'open', allowFrom: [7]}}}";
        let warnings: Vec<_> =
            Config::read(Path::new("homard.json"), text).warnings.iter().map(ToString::to_string).collect();
        assert!(
            warnings.iter().any(|line| line.contains("channels.telegram.dmPolicy is open, but only")),
            "{warnings:?}"
        );
    }
}
